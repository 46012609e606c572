/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters' memory that goes away and comes back, while the worker keeps its place in the plan.
 */
#include "client/internal.h"
#include "proto/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS 2000000 /* between two tries while the agent needs the memory */

/* Let go of everything of the memory that this library has: descriptors, lane, staging area. */
static void let_go(struct wb_client *c)
{
	wb__client_lane_stop(c->lane, true);
	c->lane = NULL;
	wb__client_area_destroy(c->area, true);
	c->area = NULL;
	for (uint32_t i = 0; i < c->reg->n_mem; i++) {
		if (c->reg->mem[i].fd >= 0)
			close(c->reg->mem[i].fd);
		c->reg->mem[i].fd = -1;
	}
	c->mem = WB__MEM_RELEASED;
}

void wb__client_on_mem_released(struct wb_client *c, const struct wb_msg_app_mem_released *m)
{
	c->mem_code = wb__client_agents_code(m->code, -EIO);
	snprintf(c->mem_why, sizeof(c->mem_why), "%s", m->sentence ? m->sentence : "");
	c->mem = WB__MEM_HELD;
	if (!c->mem_code)
		let_go(c);
}

void wb__client_on_mem_acquired(
	struct wb_client *c, const struct wb_msg_app_mem_acquired *m, int *fds, unsigned n_fd)
{
	struct wb_err err = {0};

	c->mem_code = wb__client_agents_code(m->code, -EIO);
	snprintf(c->mem_why, sizeof(c->mem_why), "%s", m->sentence ? m->sentence : "");
	c->mem = WB__MEM_HELD;
	if (c->mem_code)
		let_go(c);
	else if (m->lane == WB_APP_LANE_WORKER &&
		 wb__client_lane_start(c->reg, fds, n_fd, &c->lane, &err) < 0)
		wb__client_drop(c, err.code, "%s", err.msg);
}

void wb__client_mem_lost(struct wb_client *c)
{
	if (c->mem == WB__MEM_RELEASING)
		let_go(c);
	else if (c->mem == WB__MEM_ACQUIRING)
		c->mem = WB__MEM_HELD; /* attached anew, with what was acquired */
}

/* OTHERWISE: it is not released now, and mem_code says why. */
static int ready_released(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	(void)err;
	if (c->mem == WB__MEM_RELEASED)
		return WB__CLIENT_READY;
	return c->mem == WB__MEM_HELD ? WB__CLIENT_OTHERWISE : WB__CLIENT_NOT_YET;
}

/* One question to the agent; -EBUSY with the reason when it needs the memory. */
static int ask_release(struct wb_client *c, uint64_t deadline, struct wb_error *err)
{
	struct wb_msg_app_mem_release m = {0};
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	wb__client_pump(c);
	if (c->mem == WB__MEM_ACQUIRING)
		rc = wb__client_fail(err, -EBUSY, "acquire_memory is under way in another thread");
	else if (c->mem == WB__MEM_HELD && c->phase != WB__RUN)
		rc = wb__client_fail(
			err, -EBUSY, "this worker is in an update: poll until it is over");
	else if (c->mem == WB__MEM_HELD && c->session.state == WB_SESSION_ATTACHING)
		rc = wb__client_fail(err, -EBUSY, "the agent is just taking this worker's memory");
	else if (c->mem == WB__MEM_HELD && !wb_session_is_up(&c->session)) {
		c->acquires = false;
		let_go(c); /* no agent has it, and a new agent is not given it */
	} else if (c->mem == WB__MEM_HELD) {
		c->acquires = false;
		c->mem = WB__MEM_RELEASING;
		if (wb__client_send_msg(c, WBP_APP_MEM_RELEASE, &m, NULL, 0))
			wb__client_mem_lost(c);
	}
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return rc;
	rc = wb__client_wait(c, deadline, ready_released, NULL, err);
	if (rc == WB__CLIENT_OTHERWISE)
		rc = wb__client_fail(err, c->mem_code, "%s", c->mem_why);
	else if (!rc)
		rc = wb__client_fail(err, -ETIMEDOUT, "the agent still uses this worker's memory");
	return rc;
}

int wb_client_release_memory(struct wb_client *c, uint64_t timeout, struct wb_error *err)
{
	struct timespec pause = {0, RETRY_NS};
	uint64_t deadline = wb__client_deadline(timeout);
	struct wb_error why = {0};
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	if (!c->generation)
		return wb__client_fail(err, -EINVAL, "this worker has attached no memory");
	while ((rc = ask_release(c, deadline, &why)) == -EBUSY && wb__client_now() < deadline)
		if (nanosleep(&pause, NULL))
			return wb__client_fail(
				err, -EINTR, "interrupted by a signal: %.900s", why.msg);
	if (rc == -EBUSY || rc == -ETIMEDOUT)
		return wb__client_fail(err, -ETIMEDOUT,
			"the memory is not released after %.1f s: %.900s", (double)timeout / 1e9,
			why.msg);
	return rc < 0 ? wb__client_fail(err, rc, "%s", why.msg) : 0;
}

/* The new memory takes the place of what was attached. */
static void exchange(struct wb__client_reg *r, struct wb__client_reg *now)
{
	struct wb__client_reg old = *r;

	*r = *now;
	*now = old;
	r->manifest_fd = old.manifest_fd;
	r->manifest_bytes = old.manifest_bytes;
	r->map_fd = old.map_fd;
	r->map_bytes = old.map_bytes;
	now->manifest_fd = now->map_fd = -1;
}

static void tell_acquired(struct wb_client *c, bool kept)
{
	struct wb_msg_app_mem_acquire m = {.table_bytes = c->reg->table_bytes,
		.n_mem = c->reg->n_mem,
		.n_param = c->reg->n_param,
		.kept = kept};
	int fds[WB_UNIX_FDS_MAX] = {c->reg->table_fd};
	struct wb__client_exports x = {.n = 0};
	unsigned n = 1;

	for (uint32_t i = 0; i < c->reg->n_mem; i++)
		if (c->reg->mem[i].fd >= 0)
			fds[n++] = c->reg->mem[i].fd;
	if (c->reg->gpu && c->agent_imports)
		wb__client_device_export(c->reg, WB_UNIX_FDS_MAX - n, &x);
	m.export_bytes = x.bytes;
	m.export_fds = x.n;
	m.unshared = x.why;
	c->is_exported = x.n != 0;
	memcpy(fds + n, x.fds, x.n * sizeof(fds[0]));
	n += x.n;
	c->mem = WB__MEM_ACQUIRING;
	if (wb__client_send_msg(c, WBP_APP_MEM_ACQUIRE, &m, fds, n))
		wb__client_mem_lost(c);
	wb__client_exports_close(&x);
}

/* OTHERWISE: the agent refused, and mem_code says why. */
static int ready_acquired(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	if (c->mem == WB__MEM_RELEASED)
		return WB__CLIENT_OTHERWISE;
	if (c->mem == WB__MEM_HELD && wb_session_is_up(&c->session))
		return WB__CLIENT_READY;
	return wb__client_lost(c, "acquire memory", err);
}

static bool is_same(const struct wb__client_reg *a, const struct wb__client_reg *b)
{
	if (a->n_mem != b->n_mem || a->n_param != b->n_param)
		return false;
	for (uint32_t i = 0; i < a->n_mem; i++)
		if (a->mem[i].kind != b->mem[i].kind || a->mem[i].base != b->mem[i].base ||
			a->mem[i].bytes != b->mem[i].bytes)
			return false;
	for (uint32_t i = 0; i < a->n_param; i++)
		if (a->param[i].mem != b->param[i].mem || a->param[i].offset != b->param[i].offset)
			return false;
	return true;
}

static int check_acquired(
	const struct wb_client *c, const struct wb__client_reg *now, struct wb_error *err)
{
	if (c->mem != WB__MEM_RELEASED || !c->reg)
		return wb__client_fail(err, -EALREADY, "this worker's memory is not released");
	if (now->n_param != c->reg->n_param)
		return wb__client_fail(err, -EINVAL, "%u parameters were attached, %u are acquired",
			c->reg->n_param, now->n_param);
	return 0;
}

int wb_client_acquire_memory(struct wb_client *c, const struct wb_client_acquire *a,
	uint64_t timeout, struct wb_error *err)
{
	struct wb_client_attach table = {.size = sizeof(table)};
	struct wb__client_reg *now = NULL;
	int rc = wb__client_usable(c, err);
	bool again;

	if (rc)
		return rc;
	if (!a || a->size < sizeof(*a))
		return wb__client_fail(
			err, -EINVAL, "acquire_memory with options of an unknown size");
	table.mem = a->mem;
	table.n_mem = a->n_mem;
	table.param = a->param;
	table.n_param = a->n_param;
	rc = wb__client_reg_make(&table, &now, err);
	if (!rc)
		rc = wb__client_device_settle_on(now->gpu, err);
	if (rc) {
		wb__client_reg_destroy(now);
		return rc;
	}
	pthread_mutex_lock(&c->lock);
	wb__client_pump(c);
	/* The call before was cut short: the agent may have answered by now, or may still do so. */
	again = c->acquires && is_same(c->reg, now);
	if (c->acquires && !again && c->mem != WB__MEM_RELEASED)
		rc = wb__client_fail(err, -EBUSY,
			"other memory is being acquired: call acquire_memory with that again, "
			"until it returns");
	else if (!again)
		rc = check_acquired(c, now, err);
	if (!rc && !again) {
		exchange(c->reg, now);
		c->acquires = true;
		c->mem_code = 0;
		c->mem = WB__MEM_HELD;
		if (wb_session_is_up(&c->session))
			tell_acquired(c, a->flags & WB_CLIENT_ACQUIRE_KEPT);
		else if (c->session.state == WB_SESSION_WELCOMED)
			wb__client_attach_send(c);
	}
	pthread_mutex_unlock(&c->lock);
	wb__client_reg_destroy(now);
	if (rc)
		return rc;
	rc = wb__client_wait(c, wb__client_deadline(timeout), ready_acquired, NULL, err);
	if (rc && rc != -EINTR)
		c->acquires = false;
	if (rc == WB__CLIENT_OTHERWISE)
		return wb__client_fail(err, c->mem_code, "%s", c->mem_why);
	if (!rc)
		return wb__client_fail(err, -ETIMEDOUT,
			"the agent did not take the memory within %.1f s", (double)timeout / 1e9);
	return rc < 0 ? rc : 0;
}
