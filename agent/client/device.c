/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that lie on a GPU. */
#include "client/internal.h"
#include "mem/gpu.h"
#include "mem/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

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

/* The device of one object.  The lane works in this process: what the memory could travel as does
 * not matter. */
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
