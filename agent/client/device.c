/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that lie on a GPU. */
#include "base/buf.h"
#include "client/internal.h"
#include "mem/gpu.h"
#include "mem/travel.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static_assert((int)WB_CLIENT_DEVICE_WORKER == WB_MEM_HEAP &&
		      (int)WB_CLIENT_DEVICE_VMM == WB_MEM_CUDA_VMM &&
		      (int)WB_CLIENT_DEVICE_IPC == WB_MEM_CUDA_IPC,
	"the caller is told what mem found");

int wb_client_device_memory(
	const void *base, uint64_t bytes, struct wb_client_device_info *out, struct wb_error *err)
{
	struct wb_mem_export x;
	struct wb_err why = {0};
	int rc;

	if (!out || out->size < sizeof(*out))
		return wb__client_fail(err, -EINVAL, "device_memory with a result of unknown size");
	rc = wb_mem_export(base, bytes, &x, &why);
	if (rc)
		return wb__client_fail(err, rc, "%s", why.msg);
	out->kind = (int)x.desc.kind;
	wb_gpu_text(x.desc.uuid, out->device, sizeof(out->device));
	snprintf(out->why, sizeof(out->why), "%s", x.why);
	wb_mem_export_finish(&x);
	return 0;
}

/* The device of one object. */
static int find_one(const struct wb_client_mem *m, struct wb_gpu **out, struct wb_err *err)
{
	uint8_t uuid[WB_MEM_UUID_BYTES];
	int rc = wb_mem_device(m->base, m->bytes, uuid, err);

	return rc ? rc : wb_gpu_get(uuid, out, err);
}

int wb__client_device_find(struct wb__client_reg *r, struct wb_error *err)
{
	struct wb_err why = {0};

	for (uint32_t i = 0; i < r->n_mem; i++) {
		struct wb_gpu *g;
		int rc;

		if (r->mem[i].kind != WB_CLIENT_MEM_DEVICE)
			continue;
		rc = find_one(&r->mem[i], &g, &why);
		if (rc)
			return wb__client_fail(err, rc, "memory object %u: %.900s", i, why.msg);
		if (!r->gpu) {
			r->gpu = g;
			continue;
		}
		wb_gpu_put(g);
		if (g != r->gpu)
			return wb__client_fail(err, -EINVAL,
				"memory object %u lies on another GPU than those before it: a "
				"worker has one",
				i);
	}
	return 0;
}

/* ---- for an agent that imports --------------------------------------------------------------- */

void wb__client_exports_close(struct wb__client_exports *x)
{
	for (unsigned i = 0; i < x->n; i++)
		if (x->fds[i] >= 0)
			close(x->fds[i]);
	x->n = 0;
	x->bytes = 0;
}

/* 0, or -1 with the reason in out->why. */
static int export_one(const struct wb_client_mem *m, uint32_t i, unsigned room,
	struct wb__client_exports *out, struct wb_buf *b)
{
	struct wb_err why = {0};
	struct wb_mem_export x;
	int rc = 0;

	if (m->kind != WB_CLIENT_MEM_DEVICE) {
		snprintf(out->why, sizeof(out->why),
			"memory object %u is private memory of the host: only its worker reaches "
			"it",
			i);
		return -1;
	}
	if (wb_mem_export(m->base, m->bytes, &x, &why)) {
		snprintf(out->why, sizeof(out->why), "memory object %u: %.900s", i, why.msg);
		return -1;
	}
	if (x.desc.kind == WB_MEM_HEAP) {
		snprintf(out->why, sizeof(out->why), "memory object %u: %s", i, x.why);
		rc = -1;
	} else if (out->n + x.desc.n_piece > room) {
		snprintf(out->why, sizeof(out->why),
			"memory object %u: with it the parameters are of more than %u allocations, "
			"and a message has no room for more descriptors",
			i, room ? room - 1 : 0);
		rc = -1;
	}
	for (uint32_t k = 0; !rc && k < x.desc.n_piece; k++)
		out->fds[out->n++] = x.piece[k].fd;
	if (!rc) {
		wb_mem_put(b, &x.desc);
		x.desc.n_piece = 0; /* ours now */
	}
	wb_mem_export_finish(&x);
	return rc;
}

void wb__client_device_export(
	const struct wb__client_reg *r, unsigned room, struct wb__client_exports *out)
{
	struct wb_error why = {0};
	struct wb_buf b;
	int rc = 0, fd;

	*out = (struct wb__client_exports){.fds = {-1}, .n = 1}; /* the first is for the text */
	wb_buf_init(&b, SIZE_MAX);
	for (uint32_t i = 0; !rc && i < r->n_mem; i++)
		if (r->mem[i].kind != WB_CLIENT_MEM_MEMFD)
			rc = export_one(&r->mem[i], i, room, out, &b);
	if (!rc && !b.rc) {
		fd = wb__client_sealed_copy("descriptions of memory", b.data, b.len, &why);
		out->fds[0] = fd;
		rc = fd < 0 ? -1 : 0;
		snprintf(out->why, sizeof(out->why), "%s", why.msg);
	} else if (!rc) {
		snprintf(out->why, sizeof(out->why), "no memory to describe the parameters'");
		rc = -1;
	}
	if (rc)
		wb__client_exports_close(out);
	else
		out->bytes = b.len;
	wb_buf_finish(&b);
}

/* ---- order ----------------------------------------------------------------------------------- */

int wb__client_device_settle_on(struct wb_gpu *g, struct wb_error *err)
{
	struct wb_err why = {0};
	int rc = g ? wb_gpu_settle(g, &why) : 0;

	return rc ? wb__client_fail(err, rc, "wait for the work on the parameters: %.900s", why.msg)
		  : 0;
}

int wb__client_device_settle(struct wb_client *c, struct wb_error *err)
{
	struct wb_gpu *g = NULL;
	int rc;

	pthread_mutex_lock(&c->lock);
	if (c->reg && c->reg->gpu)
		g = wb_gpu_ref(c->reg->gpu);
	pthread_mutex_unlock(&c->lock);
	rc = wb__client_device_settle_on(g, err);
	wb_gpu_put(g);
	return rc;
}
