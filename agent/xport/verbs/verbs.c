/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the verbs link, and its part on the loop thread: devices and regions. */
#include "xport/verbs/verbs.h"

#include "base/mem.h"
#include "xport/inet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SCHEME "verbs:"

/* ---- addresses ----------------------------------------------------------------------------------
 */

static int verbs_listen(struct wb__rail *r, int *fd, char *endpoint, size_t cap, struct wb_err *err)
{
	size_t n = strlen(SCHEME);

	if (cap <= n)
		return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
	memcpy(endpoint, SCHEME, n);
	return wb__inet_listen(r, fd, endpoint + n, cap - n, err);
}

static int verbs_dial(struct wb__rail *r, const char *endpoint, int *fd, struct wb_err *err)
{
	size_t n = strlen(SCHEME);

	if (strncmp(endpoint, SCHEME, n))
		return wb_err_set(err, -EINVAL, "'%.99s' is not " SCHEME "ADDRESS:PORT", endpoint);
	return wb__inet_dial(r, endpoint + n, fd, err);
}

/* ---- the transport ------------------------------------------------------------------------------
 */

static int verbs_open(struct wb__xport_stream *x, const struct wb_xport_opts *o, struct wb_err *err)
{
	struct wb__verbs *v = wb_zalloc(1, sizeof(*v));

	if (!v)
		return wb_err_set(err, -ENOMEM, "no memory");
	x->own = v;
	v->host.done_fd = x->event_fd;
	v->host.done_signalled = &x->signalled;
	return wb__host_open(&v->host, o, err);
}

static void verbs_close(struct wb__xport_stream *x)
{
	if (!x->own)
		return;
	wb__host_close(&wb__verbs_of(x)->host);
	wb_free(x->own);
}

/* ---- regions ------------------------------------------------------------------------------------
 */

static void tell_rails(struct wb__xport_stream *x, int what, struct wb__memory *m)
{
	struct wb__cmd c = {.kind = WB__CMD_LINK, .n = what, .p = m};

	for (uint32_t i = 0; i < x->n_rail; i++)
		wb__cmd_must(&x->rail[i], &c);
}

/* Replace the caller's dma-buf descriptor by a duplicate, or by -1 if there is none. */
static int dup_dmabuf(struct wb_xport_gpu *g, struct wb_err *err)
{
	if (!g->is_there || g->dmabuf_fd < 0) {
		g->dmabuf_fd = -1;
		return 0;
	}
	g->dmabuf_fd = fcntl(g->dmabuf_fd, F_DUPFD_CLOEXEC, 3);
	return g->dmabuf_fd < 0
		       ? wb_err_set(err, -errno, "no descriptor for a dma-buf: %s", strerror(errno))
		       : 0;
}

static int verbs_region_add(struct wb__xport_stream *x, uint32_t id,
	const struct wb_xport_region *r, struct wb_err *err)
{
	struct wb__verbs *v = wb__verbs_of(x);
	struct wb_xport_region ours = *r;
	struct wb__memory *m;
	int rc = dup_dmabuf(&ours.gpu, err);

	if (rc)
		return rc;
	m = wb__host_register(&v->host, id, &ours, x->n_rail + 1);
	if (!m) {
		if (ours.gpu.dmabuf_fd >= 0)
			close(ours.gpu.dmabuf_fd);
		return wb_err_set(err, -ENOMEM, "no memory for a region");
	}
	v->memory[id] = m;
	tell_rails(x, WB__MEM_COMES, m);
	return 0;
}

/* The loop lets go of the memory once the thread has given it back. */
static void verbs_region_remove(struct wb__xport_stream *x, uint32_t id)
{
	struct wb__verbs *v = wb__verbs_of(x);
	struct wb__memory *m = v->memory[id];

	v->memory[id] = NULL;
	tell_rails(x, WB__MEM_GOES, m);
	m->is_removed = true;
	if (m->is_done)
		wb__host_let_go(&v->host, m);
}

static enum wb_xport_path verbs_region_path(
	struct wb__xport_stream *x, uint32_t id, char *out, size_t cap)
{
	const struct wb__memory *m = wb__verbs_of(x)->memory[id];

	if (!m->is_done)
		return WB_XPORT_PATH_PENDING;
	snprintf(out, cap, "%s", m->path == WB_XPORT_PATH_FAILED ? wb_strerror(m->code) : m->says);
	return m->path;
}

static void verbs_poll(struct wb__xport_stream *x)
{
	struct wb__verbs *v = wb__verbs_of(x);
	struct wb__memory *m;

	while ((m = wb__host_done(&v->host))) {
		m->is_done = true;
		if (m->is_removed)
			wb__host_let_go(&v->host, m);
		else
			tell_rails(x, WB__MEM_IS, m);
	}
}

const struct wb__link_ops wb__link_verbs = {
	.over = WBP_BULK_OVER_VERBS,
	.is_clear = true,
	.tx_extra = 8 * WBP_BULK_FRAME_MAX,
	.listen = verbs_listen,
	.dial = verbs_dial,
	.tune = wb__inet_tune,
	.is_home = wb__inet_is_home,
	.open = verbs_open,
	.close = verbs_close,
	.region_add = verbs_region_add,
	.region_remove = verbs_region_remove,
	.region_path = verbs_region_path,
	.poll = verbs_poll,
	.rail_open = wb__verbs_rail_open,
	.rail_close = wb__verbs_rail_close,
	.command = wb__verbs_command,
	.rail_poll = wb__verbs_rail_poll,
	.rail_arm = wb__verbs_rail_arm,
	.rail_event = wb__verbs_rail_event,
	.sock_open = wb__lane_open,
	.sock_close = wb__lane_close,
	.recv = wb__inet_recv,
	.on_frame = wb__lane_on_frame,
	.rx_begin = wb__take_begin,
	.rx_payload = wb__take_payload,
	.tx_idle = wb__give_idle,
	.tx_begin = wb__give_begin,
	.tx_payload = wb__give_payload,
	.revoke = wb__take_revoke,
};

static int verbs_rail_addr(const struct wb_xport_rail *r, const char *folder, char *out, size_t cap)
{
	const char *device = r->device ? r->device : "";
	int n = snprintf(out, cap, "%s%s%s", device, *device ? "@" : "", r->addr);

	(void)folder;
	return n < 0 || (size_t)n >= cap ? -ENOSPC : 0;
}

static bool verbs_is_mine(const uint8_t *first, size_t bytes)
{
	return wb__hello_over(first, bytes) == WBP_BULK_OVER_VERBS;
}

static bool verbs_reduced(struct wb_xport *x, char *out, size_t cap)
{
	struct wb__xport_stream *s = wb__xport_stream(x);
	struct wb__host *h = &wb__verbs_of(s)->host;
	uint32_t used = 0;

	_Static_assert(WB__PORTS_MAX <= 32, "a bit each");
	for (uint32_t i = 0; i < s->n_rail; i++)
		used |= wb__rail_ports(&s->rail[i]);
	return wb__host_reduced(h, used, out, cap);
}

static bool verbs_keys(struct wb_xport *x, char *out, size_t cap)
{
	wb__host_keys(&wb__verbs_of(wb__xport_stream(x))->host, out, cap);
	return true;
}

static int open_xport(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err);

/* The table without the name. */
#define TABLE                                                                                      \
	WB__STREAM_OPERATIONS,                                                                     \
		.scheme = SCHEME, .sockets_min = 1,                                                \
		.caps = WB_XPORT_CAP_THREADS | WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LANDINGS |      \
			WB_XPORT_CAP_CLEAR | WB_XPORT_CAP_GPU | WB_XPORT_CAP_UNTOUCHED,            \
		.run_min = WB__RUN_MIN, .rail_addr = verbs_rail_addr, .is_mine = verbs_is_mine,    \
		.reduced = verbs_reduced, .keys = verbs_keys, .open = open_xport

const struct wb_xport_ops wb_xport_verbs = {TABLE, .name = "verbs"};
/* For hosts where all devices are the kernel's RDMA in software. */
static const struct wb_xport_ops verbs_soft = {TABLE, .name = "verbs+soft"};

static int open_xport(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	int rc = wb__xport_stream_open(&wb_xport_verbs, &wb__link_verbs, o, out, err);
	struct wb__xport_stream *x = rc ? NULL : wb__xport_stream(*out);

	if (x && wb__host_is_soft(&wb__verbs_of(x)->host)) {
		x->desk.base.ops = &verbs_soft;
		x->desk.book.via = verbs_soft.name;
	}
	return rc;
}
