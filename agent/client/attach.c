/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "client/internal.h"
#include "client/seq.h"
#include "mem/gpu.h"
#include "mem/mem.h"
#include "mem/numa.h"
#include "proto/messages.h"
#include "proto/pollword.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static_assert((int)WB_CLIENT_TRAINER == WB_ROLE_TRAINER &&
		      (int)WB_CLIENT_ROLLOUT == WB_ROLE_ROLLOUT &&
		      (int)WB_CLIENT_STAGING_UNSET == WB_STAGING_UNSET &&
		      (int)WB_CLIENT_STAGING_NONE == WB_STAGING_NONE &&
		      (int)WB_CLIENT_STAGING_HOST_MEMORY == WB_STAGING_HOST_MEMORY,
	"what the caller gives goes to the agent as it is");

#define TABLE_MEM_BYTES 24
#define TABLE_PARAM_BYTES 16
#define POLLS_BETWEEN_MAX 1000000
#define PROTO_PAST 2 /* from 2 on APP_ATTACH says what became of updates under earlier agents */
#define BLOB_FDS 3 /* manifest, map, table */

static_assert(WB_CLIENT_MEMFDS_MAX + BLOB_FDS + 1 <= WB__SEQ_FDS_MAX, "fds of one datagram");

static int write_all(int fd, const void *p, size_t bytes)
{
	const char *b = p;
	ssize_t n;

	while (bytes) {
		n = write(fd, b, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		b += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int wb__client_sealed_copy(const char *name, const void *p, size_t bytes, struct wb_error *err)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return wb__client_fail(err, -errno, "memfd_create: %s", strerror(errno));
	rc = write_all(fd, p, bytes);
	if (!rc && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
		rc = -errno;
	if (!rc)
		return fd;
	close(fd);
	return wb__client_fail(
		err, rc, "write %zu bytes of the %s: %s", bytes, name, wb_strerror(rc));
}

static int check_mem(const struct wb_client_mem *m, uint32_t i, struct wb_error *err)
{
	struct wb_err why = {0};
	int rc;

	if (!m->bytes || !m->base)
		return wb__client_fail(err, -EINVAL, "memory object %u is empty", i);
	if (m->kind == WB_CLIENT_MEM_HEAP || m->kind == WB_CLIENT_MEM_DEVICE)
		return 0;
	if (m->kind != WB_CLIENT_MEM_MEMFD)
		return wb__client_fail(
			err, -EINVAL, "memory object %u: unknown kind %u", i, m->kind);
	rc = wb_memfd_check(m->fd, m->bytes, NULL, &why);
	return rc ? wb__client_fail(err, rc, "number %u: %.900s", i, why.msg) : 0;
}

static int check_attach(const struct wb_client_attach *a, struct wb_error *err)
{
	uint32_t i, n_fd = 0;
	int rc;

	if (!a->n_mem || !a->n_param)
		return wb__client_fail(err, -EINVAL, "attach without a parameter");
	for (i = 0; i < a->n_mem; i++) {
		rc = check_mem(&a->mem[i], i, err);
		if (rc)
			return rc;
		n_fd += a->mem[i].kind == WB_CLIENT_MEM_MEMFD;
	}
	if (n_fd > WB_CLIENT_MEMFDS_MAX)
		return wb__client_fail(err, -EINVAL,
			"%u memfd memory objects, at most %d can be attached: allocate the "
			"parameters from fewer pools",
			n_fd, WB_CLIENT_MEMFDS_MAX);
	for (i = 0; i < a->n_param; i++)
		if (a->param[i].mem >= a->n_mem ||
			a->param[i].offset >= a->mem[a->param[i].mem].bytes)
			return wb__client_fail(
				err, -EINVAL, "parameter %u lies outside its memory object", i);
	return 0;
}

static int table_fd(const struct wb_client_attach *a, uint64_t *bytes_out, struct wb_error *err)
{
	struct wb_buf b;
	uint32_t i;
	int fd;

	wb_buf_init(
		&b, (size_t)a->n_mem * TABLE_MEM_BYTES + (size_t)a->n_param * TABLE_PARAM_BYTES);
	for (i = 0; i < a->n_mem; i++) {
		/* To the agent memory of a GPU is memory that it cannot touch. */
		wb_buf_u32(&b, a->mem[i].kind == WB_CLIENT_MEM_DEVICE ? WB_CLIENT_MEM_HEAP
								      : a->mem[i].kind);
		wb_buf_u32(&b, a->mem[i].device);
		wb_buf_u64(&b, a->mem[i].bytes);
		wb_buf_u64(&b, (uint64_t)(uintptr_t)a->mem[i].base);
	}
	for (i = 0; i < a->n_param; i++) {
		wb_buf_u32(&b, a->param[i].mem);
		wb_buf_u32(&b, 0);
		wb_buf_u64(&b, a->param[i].offset);
	}
	*bytes_out = b.len;
	fd = b.rc ? wb__client_fail(err, b.rc, "the table of parameters: %s", wb_strerror(b.rc))
		  : wb__client_sealed_copy("table of parameters", b.data, b.len, err);
	wb_buf_finish(&b);
	return fd;
}

void wb__client_reg_destroy(struct wb__client_reg *r)
{
	uint32_t i;

	if (!r)
		return;
	for (i = 0; r->mem && i < r->n_mem; i++)
		if (r->mem[i].fd >= 0)
			close(r->mem[i].fd);
	if (r->manifest_fd >= 0)
		close(r->manifest_fd);
	if (r->map_fd >= 0)
		close(r->map_fd);
	if (r->table_fd >= 0)
		close(r->table_fd);
	wb_gpu_put(r->gpu);
	wb_free(r->mem);
	wb_free(r->param);
	wb_free(r);
}

static int copy_mem(
	struct wb__client_reg *r, const struct wb_client_attach *a, struct wb_error *err)
{
	uint32_t i;

	r->mem = wb_zalloc(a->n_mem, sizeof(*r->mem));
	r->param = wb_memdup(a->param, a->n_param * sizeof(*r->param));
	if (!r->mem || !r->param)
		return wb__client_fail(err, -ENOMEM, "no memory for %u memory objects", a->n_mem);
	r->n_mem = a->n_mem;
	r->n_param = a->n_param;
	for (i = 0; i < a->n_mem; i++) {
		r->mem[i] = a->mem[i];
		r->mem[i].fd = -1;
	}
	for (i = 0; i < a->n_mem; i++) {
		if (a->mem[i].kind != WB_CLIENT_MEM_MEMFD)
			continue;
		r->mem[i].fd = fcntl(a->mem[i].fd, F_DUPFD_CLOEXEC, 3);
		if (r->mem[i].fd < 0)
			return wb__client_fail(
				err, -errno, "duplicate a memfd: %s", strerror(errno));
		r->n_fd++;
	}
	return 0;
}

int wb__client_reg_make(
	const struct wb_client_attach *a, struct wb__client_reg **out, struct wb_error *err)
{
	struct wb__client_reg *r;
	int rc = check_attach(a, err);

	if (rc)
		return rc;
	r = wb_zalloc(1, sizeof(*r));
	if (!r)
		return wb__client_fail(err, -ENOMEM, "no memory to attach");
	r->manifest_fd = r->map_fd = r->table_fd = -1;
	r->manifest_bytes = a->manifest_bytes;
	r->map_bytes = a->map_bytes;
	rc = copy_mem(r, a, err);
	if (!rc)
		rc = wb__client_device_find(r, err);
	if (!rc && a->manifest)
		rc = r->manifest_fd =
			wb__client_sealed_copy("manifest", a->manifest, a->manifest_bytes, err);
	if (rc >= 0 && a->map)
		rc = r->map_fd = wb__client_sealed_copy("source map", a->map, a->map_bytes, err);
	if (rc >= 0)
		rc = r->table_fd = table_fd(a, &r->table_bytes, err);
	if (rc < 0) {
		wb__client_reg_destroy(r);
		return rc;
	}
	*out = r;
	return 0;
}

/* Node + 1 of the processors that this process may run on; 0 = several, or not known. */
static uint32_t numa_here(void)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return 0;
	return (uint32_t)(wb_numa_of_cpus(NULL, &cpus) + 1);
}

void wb__client_attach_send(struct wb_client *c)
{
	const struct wb__client_reg *r = c->reg;
	struct wb_msg_app_attach m = {.object = c->object,
		.model = c->model,
		.engine = c->engine,
		.role = c->role,
		.rank = c->rank,
		.sender_staging = c->sender_staging,
		.receiver_staging = c->receiver_staging,
		.manifest_bytes = r->manifest_bytes,
		.map_bytes = r->map_bytes,
		.table_bytes = r->table_bytes,
		.n_mem = r->n_mem,
		.n_param = r->n_param,
		.numa = numa_here()};
	int fds[WB__SEQ_FDS_MAX] = {r->manifest_fd, r->map_fd, r->table_fd};
	struct wb__client_exports x = {.n = 0};
	unsigned n = BLOB_FDS;
	uint32_t i;
	int area_fd;

	c->attach_count = c->page ? wb_poll_count(wb_poll_load(&c->page->word)) : 0;
	m.count = c->attach_count;
	if (c->session.version < PROTO_PAST)
		c->is_in_doubt = false; /* that agent cannot ask how the update ended */
	if (c->is_in_doubt) {
		m.begun = c->transfer;
		m.begun_version = c->version;
		m.begun_at = c->begun_at;
		m.is_touched = c->is_touched;
	}
	m.is_torn = c->is_in_doubt || c->phase == WB__BEFORE
			    ? c->was_torn /* and is, until that update is committed */
			    : c->phase == WB__TORN || c->phase == WB__INSTALL;
	m.done = c->done;
	m.done_at = c->done_at;
	for (i = 0; i < r->n_mem; i++)
		if (r->mem[i].fd >= 0)
			fds[n++] = r->mem[i].fd;
	if (r->gpu && c->agent_imports)
		wb__client_device_export(r, WB__SEQ_FDS_MAX - n - 1, &x); /* 1: the area */
	m.export_bytes = x.bytes;
	m.export_fds = x.n;
	m.unshared = x.why;
	c->is_exported = x.n != 0;
	memcpy(fds + n, x.fds, x.n * sizeof(fds[0]));
	n += x.n;
	area_fd = wb__client_area_fd(c->area, &m.area_bytes);
	if (area_fd >= 0)
		fds[n++] = area_fd;
	if (!wb__client_send_msg(c, WBP_APP_ATTACH, &m, fds, n))
		wb__client_attaching(c);
	wb__client_exports_close(&x);
}

void wb__client_detach(struct wb_client *c, bool is_owner)
{
	wb__client_lane_stop(c->lane, is_owner);
	c->lane = NULL;
	if (c->page)
		munmap(c->page, WB_POLL_PAGE_BYTES);
	c->page = NULL;
	c->hot->word = NULL;
}

/* The page of a restarted agent takes the place of the old one, since a poll may be running. */
static int map_page(struct wb_client *c, int fd, struct wb_err *err)
{
	int place = c->page ? MAP_FIXED : 0;
	uint32_t count = c->page ? wb_poll_count(wb_poll_load(&c->page->word)) : 0;
	void *p;
	int rc = wb_memfd_check(fd, WB_POLL_PAGE_BYTES, NULL, err);

	if (rc)
		return wb_err_wrap(err, rc, "poll page");
	p = mmap(c->page, WB_POLL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | place, fd, 0);
	if (p == MAP_FAILED)
		return wb_err_set(err, -errno, "map the poll page: %s", strerror(errno));
	c->page = p;
	/* The agent goes on from attach_count, an older one from 0; what was polled since comes on
	 * top.  The agent may have promised a stop already, which must not be jumped over. */
	count -= c->attach_count;
	c->owed = count < POLLS_BETWEEN_MAX ? count : 0;
	wb__client_poll_owed(c);
	if (c->role == WB_CLIENT_ROLLOUT)
		c->hot->word = &c->page->word;
	return 0;
}

int wb__client_attached(
	struct wb_client *c, uint32_t lane, int *fds, unsigned n_fd, struct wb_err *err)
{
	struct wb__client_lane *l = NULL;
	int rc;

	if (n_fd < 1)
		return wb_err_set(err, -EPROTO, "the agent attached without a poll page");
	if (lane == WB_APP_LANE_WORKER) {
		rc = wb__client_lane_start(c->reg, fds + 1, n_fd - 1, &l, err);
		if (rc)
			return rc;
	}
	rc = map_page(c, fds[0], err);
	if (rc) {
		wb__client_lane_stop(l, true);
		return rc;
	}
	c->lane = l;
	return 0;
}

static int ready_attached(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	return c->generation ? 1 : wb__client_lost(c, "attach", err);
}

int wb_client_attach(struct wb_client *c, const struct wb_client_attach *a, struct wb_error *err)
{
	struct wb__client_reg *reg = NULL;
	bool again;
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->lock);
	rc = c->generation ? wb__client_fail(err, -EALREADY, "this worker is attached already") : 0;
	again = c->reg != NULL; /* the call before this was interrupted */
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return rc;
	if (!again) {
		if (a->size < sizeof(*a) || !a->manifest || !a->manifest_bytes || !a->map ||
			!a->map_bytes)
			return wb__client_fail(
				err, -EINVAL, "attach needs a manifest and a source map");
		rc = wb__client_reg_make(a, &reg, err);
		if (rc)
			return rc;
		pthread_mutex_lock(&c->lock);
		c->reg = reg;
		if (c->session.state == WB_SESSION_WELCOMED)
			wb__client_attach_send(c);
		pthread_mutex_unlock(&c->lock);
	}
	rc = wb__client_wait(c, wb__client_deadline(c->connect_timeout), ready_attached, NULL, err);
	if (!rc)
		return wb__client_fail(err, -ETIMEDOUT,
			"no answer to attach from the agent at %s within %.1f s "
			"(connect_timeout)%s%s",
			c->socket, (double)c->connect_timeout / 1e9,
			c->session.cause.code ? ": " : "", c->session.cause.msg);
	return rc < 0 ? rc : 0;
}

const char *wb_client_worker(struct wb_client *c)
{
	return wb__client_usable(c, NULL) ? "" : c->worker;
}

struct plan_wait {
	uint64_t seen; /* status shown */
	char text[WB_ERROR_MSG_MAX];
};

static int ready_planned(struct wb_client *c, void *arg, struct wb_error *err)
{
	struct plan_wait *w = arg;

	if (c->status_seq != w->seen && c->status[0]) {
		w->seen = c->status_seq;
		memcpy(w->text, c->status, sizeof(w->text));
		return WB__CLIENT_OTHERWISE;
	}
	if (wb_session_is_up(&c->session) && c->is_planned)
		return WB__CLIENT_READY;
	return wb__client_lost(c, "wait for the plan", err);
}

int wb_client_wait_planned(struct wb_client *c, uint64_t timeout, wb_client_progress_fn on_progress,
	void *cookie, struct wb_client_plan *plan, struct wb_error *err)
{
	struct plan_wait w = {0};
	uint64_t deadline;
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	if (!c->reg)
		return wb__client_fail(err, -EINVAL, "wait_planned before attach");
	deadline = wb__client_deadline(timeout);
	while ((rc = wb__client_wait(c, deadline, ready_planned, &w, err)) == WB__CLIENT_OTHERWISE)
		if (on_progress)
			on_progress(cookie, w.text);
	if (!rc)
		return wb__client_fail(err, -ETIMEDOUT,
			"no plan within %.1f s; the agent's last word: %s", (double)timeout / 1e9,
			w.text[0] ? w.text : "(none)");
	if (rc < 0)
		return rc;
	if (plan) {
		pthread_mutex_lock(&c->lock);
		*plan = c->plan;
		pthread_mutex_unlock(&c->lock);
	}
	return 0;
}

const char *wb_client_progress(struct wb_client *c)
{
	if (wb__client_usable(c, NULL))
		return "";
	pthread_mutex_lock(&c->lock);
	snprintf(c->status_out, sizeof(c->status_out), "%s", c->is_status_over ? "" : c->status);
	pthread_mutex_unlock(&c->lock);
	return c->status_out;
}
