/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/area.h"
#include "daemon/content.h"
#include "daemon/env.h"
#include "lane/lane.h"
#include "mem/numa.h"
#include "net/loop.h"
#include "net/seq.h"
#include "xport/xport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOD "worker"
#define BLOB_FDS 3 /* manifest, map, table */

static int check_counts(const struct wb_msg_app_attach *m, uint32_t n_fd, struct wb_err *err)
{
	if (!m->n_mem || m->n_mem > WB_PARAMS_MAX || !m->n_param || m->n_param > WB_PARAMS_MAX)
		return wb_err_set(err, -EINVAL,
			"attach with %u memory objects and %u parameters: 1 to %u of each are "
			"taken",
			m->n_mem, m->n_param, WB_PARAMS_MAX);
	if (n_fd < BLOB_FDS + (m->area_bytes ? 1u : 0u) ||
		m->export_fds > n_fd - BLOB_FDS - (m->area_bytes ? 1u : 0u))
		return wb_err_set(
			err, -EINVAL, "attach came with %u descriptors, needs %d", n_fd, BLOB_FDS);
	if (m->role != WB_ROLE_TRAINER && m->role != WB_ROLE_ROLLOUT)
		return wb_err_set(err, -EINVAL, "attach with role %u", m->role);
	return 0;
}

/* The counts of an engine's workers are compared, so a worker that lost its agent goes on from its
 * count. */
static int make_page(struct wb__worker *w, uint32_t count, struct wb_err *err)
{
	void *p;

	assert(w->page_fd < 0 && !w->page);
	w->page_fd = wb_memfd_create("poll page", WB_POLL_PAGE_BYTES, err);
	if (w->page_fd < 0)
		return w->page_fd;
	p = mmap(NULL, WB_POLL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->page_fd, 0);
	if (p == MAP_FAILED)
		return wb_err_set(err, -errno, "map the poll page: %s", strerror(errno));
	w->page = p;
	w->page->word = count;
	return 0;
}

static void lane_ready(void *cookie, int events)
{
	struct wb__worker *w = cookie;

	(void)events;
	wb_lane_fired(w->lane);
	if (w->area_lane)
		wb_lane_fired(w->area_lane);
	wb__env_pump(w->a->env);
}

static int make_lane(struct wb__worker *w, struct wb_err *err)
{
	struct wb_lane_opts o = {0};
	char name[16];
	int rc;

	assert(!w->lane && w->t.n_mem);
	snprintf(name, sizeof(name), "lane %u", w->id);
	o.name = name;
	if (w->t.has_heap) {
		w->lane_fds = wb_zalloc(1, sizeof(*w->lane_fds));
		if (!w->lane_fds)
			return wb_err_set(err, -ENOMEM, "no memory for a lane");
		rc = wb_lane_create_remote(&o, wb__env_arena(w->a->env, w->object_index),
			wb__env_arena_reserve(w->a->env, w->object_index), &w->lane, w->lane_fds,
			err);
	} else {
		rc = wb_lane_create_host(&o, &w->lane, err);
	}
	if (rc < 0)
		return rc;
	if (wb_lane_fd(w->lane) >= 0)
		rc = wb_watch_create(w->a->loop, wb_lane_fd(w->lane), WB_READABLE, lane_ready, w,
			&w->lane_watch);
	return rc < 0 ? wb_err_set(err, rc, "watch a lane: %s", wb_strerror(rc)) : 0;
}

/* ---- memory of a GPU: whose lane ------------------------------------------------------------- */

int wb__worker_exports(
	struct wb__exports *x, const int *fds, uint32_t n_fd, uint32_t behind, struct wb_err *err)
{
	if (!x->unshared)
		x->unshared = "";
	if (n_fd < behind || x->n_fd > n_fd - behind || !x->n_fd != !x->bytes)
		return wb_err_set(err, -EINVAL,
			"%u of %u descriptors are said to be of memory of a GPU, in %llu bytes",
			x->n_fd, n_fd, (unsigned long long)x->bytes);
	x->fds = fds + (n_fd - behind - x->n_fd);
	return 0;
}

/* What the thread of the imports has come to. */
static void imports_changed(void *cookie)
{
	struct wb__worker *w = cookie;

	if (wb__worker_lane_is_lost(w)) {
		/* What is out stays unanswered.  The worker is sent away (apps.c). */
		WB_LOG_ERR(MOD, "lane ended", WB_S("worker", w->name));
		wb_lane_abort(w->lane);
		wb__env_pump(w->a->env);
	}
	w->on_lane(w->on_lane_cookie);
}

static int begin_imports(struct wb__worker *w, const struct wb__table *t,
	const struct wb__exports *x, struct wb_err *err)
{
	char name[16];
	struct wb__imports_in in = {.loop = w->a->loop,
		.name = name,
		.table = t,
		.export_bytes = x->bytes,
		.fds = x->fds,
		.n_fd = x->n_fd,
		.lane = *w->lane_fds,
		.arena_fd = wb__env_arena_fd(w->a->env, w->object_index),
		.on_change = imports_changed,
		.cookie = w};

	snprintf(name, sizeof(name), "lane %u", w->id);
	return wb__imports_begin(&in, &w->imports, err);
}

static int lane_known(struct wb__worker *w, const char *why)
{
	w->is_lane_known = true;
	snprintf(w->lane_why, sizeof(w->lane_why), "%s", why);
	return 0;
}

int wb__worker_lane(struct wb__worker *w, const struct wb__table *t, const struct wb__exports *x)
{
	struct wb_err err = {0};
	int rc;

	if (w->is_lane_known)
		return 0;
	if (w->is_import_old && !wb__worker_let_go(w))
		return -EINPROGRESS;
	if (!w->imports && (!w->lane_fds || !x->bytes || !w->a->o.imports))
		return lane_known(w, x->unshared);
	if (!w->imports) {
		rc = begin_imports(w, t, x, &err);
		return rc ? lane_known(w, err.msg) : -EINPROGRESS;
	}
	if (wb__imports_state(w->imports) == WB__IMPORTS_TRYING)
		return -EINPROGRESS;
	if (wb__imports_state(w->imports) == WB__IMPORTS_WORKING)
		return lane_known(w, "");
	(void)lane_known(w, wb__imports_why(w->imports));
	wb__imports_destroy(w->imports);
	w->imports = NULL;
	return 0;
}

void wb__worker_lane_anew(struct wb__worker *w)
{
	w->is_lane_known = false;
	if (!w->imports)
		return;
	w->is_import_old = true;
	wb__imports_stop(w->imports);
}

bool wb__worker_lane_is_awaited(const struct wb__worker *w)
{
	enum wb__imports_state state;

	if (!w->imports || w->is_lane_known)
		return false;
	state = wb__imports_state(w->imports);
	return w->is_import_old ? state != WB__IMPORTS_OVER : state == WB__IMPORTS_TRYING;
}

bool wb__worker_lane_is_lost(const struct wb__worker *w)
{
	return w->imports && w->is_lane_known && wb__imports_state(w->imports) == WB__IMPORTS_OVER;
}

bool wb__worker_lane_is_here(const struct wb__worker *w)
{
	return !w->lane_fds || (w->imports && w->is_lane_known);
}

static void process_is_gone(void *cookie)
{
	struct wb__worker *w = cookie;

	wb__env_kick(w->a->env); /* reaps */
	w->on_lane(w->on_lane_cookie);
}

void wb__worker_await_end(struct wb__worker *w)
{
	assert(w->conn && !w->ending);
	if (!w->lane_fds || w->imports)
		return; /* no lane runs in that process */
	if (wb__ending_begin(
		    w->a->loop, wb_seq_peer_process(w->conn), process_is_gone, w, &w->ending))
		WB_LOG_WRN(
			MOD, "no memory to wait for the end of a process", WB_S("worker", w->name));
}

void wb__worker_forget_end(struct wb__worker *w)
{
	wb__ending_destroy(w->ending);
	w->ending = NULL;
}

bool wb__worker_let_go(struct wb__worker *w)
{
	wb__worker_lane_anew(w);
	if (w->imports && wb__imports_state(w->imports) != WB__IMPORTS_OVER)
		return false;
	if (w->ending && !wb__ending_is_over(w->ending))
		return false;
	wb__imports_destroy(w->imports);
	w->imports = NULL;
	w->is_import_old = false;
	if (w->is_leaving)
		wb_lane_abort(w->lane);
	return true;
}

static int copy_strings(struct wb__worker *w, const struct wb_msg_app_attach *m, struct wb_err *err)
{
	w->object = wb_strdup(m->object ? m->object : "");
	w->model = wb_strdup(m->model ? m->model : "");
	w->engine = wb_strdup(m->role == WB_ROLE_ROLLOUT && m->engine ? m->engine : "");
	if (!w->object || !w->model || !w->engine)
		return wb_err_set(err, -ENOMEM, "no memory for a worker");
	return 0;
}

/* ---- staging area -------------------------------------------------------------------------- */

static uint64_t *mem_sizes(const struct wb__worker *w)
{
	uint64_t *size = wb_zalloc(w->t.n_mem, sizeof(*size));

	for (uint32_t i = 0; size && i < w->t.n_mem; i++)
		size[i] = w->t.mem[i].bytes;
	return size;
}

/* What an earlier agent received for this worker may still have to be installed.  An area that does
 * not fit is no reason to refuse the worker: it gets a new one. */
static void keep_area(struct wb__worker *w, uint64_t bytes, int fd)
{
	uint64_t *size = mem_sizes(w);
	struct wb_err err = {0};

	if (size && wb__worker_area_import(size, w->t.n_mem, bytes, fd, &w->area, &err) < 0)
		WB_LOG_WRN(MOD, "staging area not taken over", WB_S("worker", w->name),
			WB_S("reason", err.msg));
	wb_free(size);
}

static int make_area(struct wb__worker *w, struct wb_err *err)
{
	uint64_t *size = mem_sizes(w);
	const struct wb__area_in in = {.loop = w->a->loop,
		.mem_bytes = size,
		.n_mem = w->t.n_mem,
		.used = wb_area_used(w->map)};
	int rc = size ? wb__worker_area_create(&in, &w->area_raw, &w->area, err)
		      : wb_err_set(err, -ENOMEM, "no memory for a staging area");

	wb_free(size);
	return rc;
}

/* The area is mapped here, whatever the parameters are. */
static int make_area_lane(struct wb__worker *w, struct wb_err *err)
{
	struct wb_lane_opts o = {0};
	char name[16];
	int rc;

	assert(w->lane && !w->area_lane);
	if (!w->lane_fds) {
		w->area_lane = w->lane;
		return 0;
	}
	snprintf(name, sizeof(name), "stage %u", w->id);
	o.name = name;
	rc = wb_lane_create_host(&o, &w->area_lane, err);
	if (rc == 0 && wb_lane_fd(w->area_lane) >= 0)
		rc = wb_watch_create(w->a->loop, wb_lane_fd(w->area_lane), WB_READABLE, lane_ready,
			w, &w->area_watch);
	return rc;
}

int wb__worker_area(struct wb__worker *w, struct wb_err *err)
{
	struct wb_transfer_area ca;
	struct wb_msg_app_area m;
	int rc = w->area ? 0 : make_area(w, err);

	if (rc == 0 && !w->area_lane)
		rc = make_area_lane(w, err);
	if (rc < 0 || w->area->in_core)
		return rc;
	if (w->area->is_new) {
		m = (struct wb_msg_app_area){.bytes = w->area->bytes};
		wb__apps_send_fd(w->a->apps, w->id, WBP_APP_AREA, &m, w->area->fd);
		w->area->is_new = false;
	}
	ca = (struct wb_transfer_area){
		.head = wb__worker_area_head(w->area), .base = w->area->base, .lane = w->area_lane};
	wb_transfer_set_area(w->a->core, w->id, &ca);
	w->area->in_core = true;
	return 0;
}

static bool has_number(const struct wb__agent *a, uint32_t number)
{
	for (const struct wb__worker *w = wb__apps_first(a->apps); w; w = w->next)
		if (w->number == number)
			return true;
	return false;
}

/* A worker that comes back gets the number that it left. */
void wb__worker_name(struct wb__worker *w)
{
	int n;

	w->number = 1;
	while (has_number(w->a, w->number))
		w->number++;
	n = snprintf(w->name, sizeof(w->name), "%s/worker %u", w->a->o.name, w->number);
	if (w->rank >= 0)
		snprintf(w->name + n, sizeof(w->name) - (size_t)n, " (rank %lld)",
			(long long)w->rank);
}

int wb__worker_create(struct wb__agent *a, struct wb__contents *contents,
	const struct wb__attach_in *in, struct wb__worker **out, struct wb_err *err)
{
	const struct wb_msg_app_attach *m = in->m;
	struct wb__worker *w;
	int rc = check_counts(m, in->n_fd, err);

	assert(in->object_index < a->o.n_served);
	if (rc < 0)
		return rc;
	w = wb_zalloc(1, sizeof(*w));
	if (!w)
		return wb_err_set(err, -ENOMEM, "no memory for a worker");
	w->a = a;
	w->id = in->id;
	w->object_index = in->object_index;
	w->page_fd = -1;
	w->on_lane = in->on_lane;
	w->on_lane_cookie = in->on_lane_cookie;
	w->role = (enum wb_role)m->role;
	w->rank = m->rank < 0 ? -1 : m->rank;
	w->numa = m->numa && m->numa <= WB_NUMA_NODES_MAX ? (int)m->numa - 1 : WB_NUMA_UNKNOWN;
	w->sender_staging = m->sender_staging;
	w->receiver_staging = m->receiver_staging;
	w->past = (struct wb_transfer_past){.begun = m->begun,
		.begun_version = m->begun_version,
		.begun_at = m->begun_at,
		.is_touched = m->is_touched,
		.is_torn = m->is_torn,
		.done = m->done,
		.done_at = m->done_at};
	wb__worker_name(w);
	rc = copy_strings(w, m, err);
	if (rc == 0)
		rc = wb__contents_manifest(
			contents, in->fds[0], m->manifest_bytes, &w->manifest, err);
	if (rc == 0)
		rc = wb__contents_map(
			contents, w->manifest, in->fds[1], m->map_bytes, &w->map, err);
	if (rc == 0)
		rc = wb__table_read(&(struct wb__table_in){.n_mem = m->n_mem,
					    .n_param = m->n_param,
					    .bytes = m->table_bytes,
					    .fds = in->fds + BLOB_FDS - 1,
					    .n_fd = in->n_fd - (BLOB_FDS - 1) - m->export_fds -
						    (m->area_bytes ? 1 : 0)},
			w->map, &w->t, err);
	if (rc == 0 && m->area_bytes)
		keep_area(w, m->area_bytes, in->fds[in->n_fd - 1]);
	if (rc == 0)
		rc = make_page(w, m->count, err);
	if (rc == 0)
		rc = make_lane(w, err);
	if (rc < 0) {
		wb__worker_destroy(w);
		return rc;
	}
	*out = w;
	return 0;
}

void wb__worker_destroy(struct wb__worker *w)
{
	if (!w)
		return;
	assert(!w->imports);
	wb__worker_forget_end(w);
	wb_watch_destroy(w->area_watch);
	if (w->area_lane != w->lane)
		wb_lane_destroy(w->area_lane);
	wb__area_raw_drop(&w->area_raw);
	wb__worker_area_destroy(w->area);
	wb_watch_destroy(w->lane_watch);
	wb_lane_destroy(w->lane);
	wb_free(w->lane_fds);
	if (w->page)
		munmap(w->page, WB_POLL_PAGE_BYTES);
	if (w->page_fd >= 0)
		close(w->page_fd);
	wb__table_finish(&w->t);
	wb_free(w->object);
	wb_free(w->model);
	wb_free(w->engine);
	wb_free(w);
}

/* Add the regions that are not there: an earlier try may have come half way. */
static int params_regions_add(struct wb__worker *w, uint64_t object, struct wb_err *err)
{
	int rc;

	if (w->region_object != object && !wb__worker_regions_remove(w))
		return wb_err_set(err, -EBUSY, "the memory of %s serves another object", w->name);
	w->region_object = object;
	for (uint32_t i = 0; i < w->t.n_mem; i++) {
		struct wb_xport_region r = {.object = object,
			.fd = w->t.mem[i].fd,
			.base = w->t.mem[i].addr,
			.bytes = w->t.mem[i].bytes,
			/* A trainer's memory is read and never written. */
			.direction = w->role == WB_ROLE_TRAINER ? WB_XPORT_SOURCE : WB_XPORT_BOTH};

		/* A GPU's memory is not made known: all of it goes by way of slots (DESIGN.md). */
		if (w->t.mem[i].access != WB_MEM_AT_HOST || w->t.region[i] != WB__REGION_NONE)
			continue;
		rc = wb_xport_region_add(w->a->xport, &r, &w->t.region[i], err);
		if (rc < 0)
			return wb_err_wrap(err, rc, "memory object %u of %s", i, w->name);
	}
	return 0;
}

int wb__worker_regions_add(struct wb__worker *w, uint64_t object, struct wb_err *err)
{
	int rc;

	assert(object);
	if (!(wb_xport_caps(w->a->xport) & WB_XPORT_CAP_REGIONS))
		return 0;
	rc = params_regions_add(w, object, err);
	if (rc < 0)
		return rc;
	if (w->area && w->area->map && w->area->region == WB__REGION_NONE) {
		struct wb_xport_region r = {.object = object,
			.fd = w->area->fd,
			.base = w->area->map,
			.bytes = w->area->bytes};

		rc = wb_xport_region_add(w->a->xport, &r, &w->area->region, err);
		if (rc < 0)
			return wb_err_wrap(err, rc, "staging area of %s", w->name);
	}
	return 0;
}

bool wb__worker_regions_remove(struct wb__worker *w)
{
	if (w->area && w->area->region != WB__REGION_NONE) {
		if (wb_xport_region_remove(w->a->xport, w->area->region) == -EBUSY)
			return false;
		w->area->region = WB__REGION_NONE;
	}
	if (!w->region_object)
		return true;
	for (uint32_t i = 0; i < w->t.n_mem; i++) {
		if (w->t.region[i] == WB__REGION_NONE)
			continue;
		if (wb_xport_region_remove(w->a->xport, w->t.region[i]) == -EBUSY)
			return false;
		w->t.region[i] = WB__REGION_NONE;
	}
	w->region_object = 0;
	return true;
}

/* ---- memory that goes and comes ------------------------------------------------------------- */

static bool unmap(struct wb__worker *w)
{
	uint64_t object = w->region_object;

	if (!wb__worker_regions_remove(w))
		return false;
	assert(!w->region_object);
	w->slept_object = object;
	wb__table_release(&w->t);
	if (w->area) {
		wb__worker_area_destroy(w->area);
		w->area = NULL;
		w->had_area = true;
	}
	return true;
}

bool wb__worker_unmap(struct wb__worker *w)
{
	if (!wb__worker_let_go(w))
		return false;
	if (w->area_raw.is_made) { /* it was about to get an area */
		wb__area_raw_drop(&w->area_raw);
		w->had_area = true;
	}
	return unmap(w);
}

/* Put @now in the place of the worker's table, which is put back if this fails. */
static int take_table(struct wb__worker *w, struct wb__table *now, bool kept, struct wb_err *err)
{
	uint64_t object = w->region_object ? w->region_object : w->slept_object;
	struct wb__table old = w->t;
	int rc = 0;

	w->t = *now;
	w->region_object = 0;
	if (w->had_area)
		rc = wb__worker_area(w, err);
	if (rc == 0 && object)
		rc = wb__worker_regions_add(w, object, err);
	if (rc < 0) {
		(void)unmap(w); /* pages of its area go on being taken */
		w->slept_object = object;
		*now = w->t;
		w->t = old;
		return rc;
	}
	wb_transfer_wake(w->a->core, w->id, w->t.place, w->t.has_heap ? NULL : w->t.base, kept);
	*now = old;
	return 0;
}

int wb__worker_remap(struct wb__worker *w, const struct wb_msg_app_mem_acquire *m, const int *fds,
	uint32_t n_fd, struct wb_err *err)
{
	struct wb__exports x = {
		.bytes = m->export_bytes, .n_fd = m->export_fds, .unshared = m->unshared};
	struct wb__table now = {0};
	int rc = wb__worker_exports(&x, fds, n_fd, 0, err);

	assert(!w->is_releasing && !w->is_leaving);
	if (rc == 0)
		rc = wb__table_read(&(struct wb__table_in){.n_mem = m->n_mem,
					    .n_param = m->n_param,
					    .bytes = m->table_bytes,
					    .fds = fds,
					    .n_fd = n_fd - m->export_fds},
			w->map, &now, err);
	if (rc == 0 && now.has_heap != w->t.has_heap)
		rc = wb_err_set(err, -EINVAL,
			"%s was attached with %s memory, what it acquires is not: attach anew",
			w->name, w->t.has_heap ? "private" : "shared");
	if (rc == 0)
		rc = wb__worker_lane(w, &now, &x);
	if (rc == 0)
		rc = take_table(w, &now, m->kept, err);
	wb__table_finish(&now);
	return rc;
}
