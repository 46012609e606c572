/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the devices of a probe, and holds memory and kernels on them. */
#include "extract/device.h"

#include "base/base.h"
#include "base/mem.h"
#include "extract/table.h"
#include "mem/mem.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

int wb__probe_says(struct wb_probe *p, int rc, const char *sentence)
{
	pthread_mutex_lock(&p->lock);
	if (!p->dev_err.code)
		wb_err_set(&p->dev_err, rc, "%s", sentence);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int wb__dev_says(struct wb__dev *d, int rc, const char *sentence)
{
	return wb__probe_says(d->p, rc, sentence);
}

int wb__dev_fails(struct wb__dev *d, int result, const char *what)
{
	struct wb_err err = {0};
	int rc = wb_gpu_rc(d->gpu, result, what, &err);

	return rc ? wb__dev_says(d, rc, err.msg) : 0;
}

int wb__dev_do(struct wb__dev *d, int (*step)(struct wb__dev *d, void *ctx), void *ctx)
{
	struct wb_err err = {0};
	int rc;

	pthread_mutex_lock(&d->lock);
	rc = wb_gpu_enter(d->gpu, &err);
	if (rc) {
		rc = wb__dev_says(d, rc, err.msg);
	} else {
		rc = step(d, ctx);
		wb_gpu_leave(d->gpu);
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

int wb__dev_each(struct wb_probe *p, int (*step)(struct wb__dev *d, void *ctx), void *ctx)
{
	int first = 0;

	for (uint32_t i = 0; i < p->n_dev; i++) {
		int rc = wb__dev_do(p->dev[i], step, ctx);

		first = first ? first : rc;
	}
	return first;
}

struct wb__param *wb__dev_next(const struct wb__dev *d, const struct wb__param *a)
{
	uint32_t i = a ? (uint32_t)(a - d->p->param) + 1 : 0;

	for (; i < d->p->n_param; i++)
		if (d->p->param[i].dev == d)
			return &d->p->param[i];
	return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

uint64_t wb__dense_bytes(const struct wb__param *a)
{
	return a->geom.total * a->elem_bytes;
}

uint64_t wb__room(uint64_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

int wb__store_get(struct wb__dev *d, uint64_t bytes, bool or_host, struct wb__store *out)
{
	int rc = d->gpu->cu->mem_alloc(&out->addr, bytes);

	out->bytes = bytes;
	if (!rc)
		return 0;
	out->addr = 0;
	return rc == WBCU_OUT_OF_MEMORY && or_host ? wb__store_get_host(d, bytes, out)
						   : wb__dev_fails(d, rc, "cuMemAlloc");
}

int wb__store_get_host(struct wb__dev *d, uint64_t bytes, struct wb__store *out)
{
	const struct wbcu *cu = d->gpu->cu;
	int rc;

	out->bytes = bytes;
	rc = cu->host_alloc(&out->host, bytes, WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED);
	if (rc)
		out->host = NULL;
	if (!rc)
		rc = cu->host_device_addr(&out->addr, out->host, 0);
	return wb__dev_fails(d, rc, "cuMemHostAlloc");
}

void wb__store_put(struct wb__dev *d, struct wb__store *s)
{
	if (s->host)
		d->gpu->cu->host_free(s->host);
	else if (s->addr)
		d->gpu->cu->mem_free(s->addr);
	*s = (struct wb__store){0};
}

int wb__dev_wait(struct wb__dev *d)
{
	int rc = d->gpu->cu->stream_sync(d->stream);

	if (rc) /* a lost device answers at once; otherwise queued work may still use the desk */
		(void)d->gpu->cu->stream_sync(d->stream);
	return rc;
}

int wb__dev_out(struct wb__dev *d, void *to, uint64_t from, size_t bytes)
{
	int rc = d->gpu->cu->copy_out(to, from, bytes, d->stream);

	if (!rc)
		rc = wb__dev_wait(d);
	d->out_bytes += bytes;
	return wb__dev_fails(d, rc, "cuMemcpyDtoHAsync");
}

/* ---- life ------------------------------------------------------------------------------------ */

/* An image without code, for builds without a CUDA compiler.  A real driver refuses it; the
 * stand-in for the driver in the tests has the kernels built in. */
static const uint32_t no_code[4] = {0xBA55ED50u, 0x00100001u, 0, 0};

static int load(struct wb__dev *d)
{
	const struct wbcu *cu = d->gpu->cu;
	int rc = 0;

	for (int i = 0; i < WBK_GPU_COUNT && !rc; i++) {
		const struct wbk_gpu_kernel *k = wbk_gpu_kernel((enum wbk_gpu)i);

		for (int before = 0; before < i && !d->module[i]; before++)
			if (wbk_gpu_kernel((enum wbk_gpu)before)->image == k->image)
				d->module[i] = d->module[before];
		if (!d->module[i]) {
			rc = cu->module_load(&d->module[i], k->image ? k->image : no_code);
			if (rc && !k->image)
				return wb__dev_says(d, -ENOTSUP,
					"this build has no code for GPUs: it was built without a "
					"CUDA compiler");
			rc = wb__dev_fails(d, rc, "cuModuleLoadData");
		}
		if (!rc)
			rc = wb__dev_fails(
				d, cu->module_function(&d->fn[i], d->module[i], k->name), k->name);
	}
	return rc;
}

/* Get room for as many hits as a parameter may have records, or for fewer if memory is short.  If a
 * parameter has more hits than there is room for, they are found in parts. */
static int get_hits(struct wb__dev *d)
{
	uint64_t most = WB_MIN(d->p->opts.record_max, WB__RECORD_MAX);
	int rc = WBCU_OUT_OF_MEMORY;

	for (d->cap = WB_MAX(most, WB__HITS_LEAST); rc == WBCU_OUT_OF_MEMORY; d->cap /= 2) {
		rc = d->gpu->cu->mem_alloc(&d->hit, d->cap * sizeof(struct wbk_hit));
		if (!rc || d->cap < 2 * WB__HITS_LEAST)
			break;
	}
	if (rc)
		d->hit = 0;
	return wb__dev_fails(d, rc, "cuMemAlloc");
}

static int make(struct wb__dev *d, void *ctx)
{
	const struct wbcu *cu = d->gpu->cu;
	int rc = load(d);

	(void)ctx;
	if (!rc)
		rc = wb__dev_fails(d, cu->stream_create(&d->stream, WBCU_STREAM_NON_BLOCKING),
			"cuStreamCreate");
	if (!rc)
		rc = wb__dev_fails(d,
			cu->host_alloc((void **)&d->desk, sizeof(*d->desk), WBCU_HOST_PORTABLE),
			"cuMemHostAlloc");
	if (!rc)
		rc = wb__dev_fails(
			d, cu->mem_alloc(&d->dev, offsetof(struct wb__desk, stage)), "cuMemAlloc");
	return rc ? rc : get_hits(d);
}

static int unmake(struct wb__dev *d, void *ctx)
{
	const struct wbcu *cu = d->gpu->cu;

	(void)ctx;
	wb__store_put(d, &d->before[0]);
	wb__store_put(d, &d->before[1]);
	wb__store_put(d, &d->was);
	wb__store_put(d, &d->cls);
	if (d->hit)
		cu->mem_free(d->hit);
	if (d->dev)
		cu->mem_free(d->dev);
	if (d->desk)
		cu->host_free(d->desk);
	if (d->stream)
		cu->stream_destroy(d->stream);
	for (int i = 0; i < WBK_GPU_COUNT; i++) {
		bool is_last = d->module[i] != NULL;

		for (int k = i + 1; k < WBK_GPU_COUNT; k++)
			is_last &= d->module[k] != d->module[i];
		if (is_last)
			cu->module_unload(d->module[i]);
	}
	return 0;
}

void wb__dev_finish(struct wb_probe *p)
{
	for (uint32_t i = 0; i < p->n_dev; i++) {
		struct wb__dev *d = p->dev[i];

		/* The objects of a lost device stay until the process ends. */
		(void)wb__dev_do(d, unmake, NULL);
		wb_gpu_put(d->gpu);
		pthread_mutex_destroy(&d->lock);
		wb_free(d);
	}
	wb_free(p->dev);
	p->dev = NULL;
	p->n_dev = 0;
}

static struct wb__dev *find(const struct wb_probe *p, const uint8_t *uuid)
{
	for (uint32_t i = 0; i < p->n_dev; i++)
		if (!memcmp(p->dev[i]->gpu->uuid.bytes, uuid, WB_MEM_UUID_BYTES))
			return p->dev[i];
	return NULL;
}

struct wb__dev *wb__dev_of(const struct wb_probe *p, const void *addr)
{
	uint8_t uuid[WB_MEM_UUID_BYTES];

	return wb_mem_device(addr, 1, uuid, NULL) ? NULL : find(p, uuid);
}

static int hold(struct wb_probe *p, const uint8_t *uuid, struct wb__dev **out, struct wb_err *err)
{
	size_t cap = p->n_dev;
	struct wb__dev *d;
	int rc = wb_grow(&p->dev, &cap, p->n_dev + 1, 64, sizeof(*p->dev));

	d = rc < 0 ? NULL : wb_zalloc(1, sizeof(*d));
	if (!d)
		return wb_err_set(err, -ENOMEM, "devices");
	d->p = p;
	rc = wb_gpu_get(uuid, &d->gpu, err);
	if (rc) {
		wb_free(d);
		return rc;
	}
	pthread_mutex_init(&d->lock, NULL);
	p->dev[p->n_dev++] = d;
	rc = wb__dev_do(d, make, NULL);
	*out = d;
	return rc ? wb_err_set(err, rc, "%s", p->dev_err.msg) : 0;
}

static int find_one(struct wb_probe *p, struct wb__param *a, struct wb_err *err)
{
	uint8_t uuid[WB_MEM_UUID_BYTES];
	int rc = wb_mem_device(a->data, a->geom.span * a->elem_bytes, uuid, err);

	if (rc && a->role != WB_PROBE_PARAM) {
		a->state = WB__OUT;
		return 0;
	}
	if (rc)
		return wb_err_wrap(err, rc, "parameter %s", a->name);
	a->dev = find(p, uuid);
	return a->dev ? 0 : hold(p, uuid, &a->dev, err);
}

int wb__dev_find(struct wb_probe *p, struct wb_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->n_param && !rc; i++) {
		struct wb__param *a = &p->param[i];

		if (!a->geom.total || !a->data)
			continue;
		rc = wb_mem_where(a->data, err);
		if (rc > 0)
			rc = find_one(p, a, err);
		else if (rc < 0)
			wb_err_wrap(err, rc, "parameter %s", a->name);
	}
	return rc;
}

int wb__dev_where(const struct wb_probe *p, const void *addr)
{
	return p->opts.has_devices && addr ? wb_mem_where(addr, NULL) : 0;
}

uint64_t wb__dev_out_bytes(const struct wb_probe *p)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->n_dev; i++)
		sum += p->dev[i]->out_bytes;
	return sum;
}

static int settle(struct wb__dev *d, void *ctx)
{
	(void)ctx;
	return wb__dev_fails(d, d->gpu->cu->context_sync(), "cuCtxSynchronize");
}

int wb__dev_settle(struct wb_probe *p)
{
	return wb__dev_each(p, settle, NULL);
}

/* ---- filling --------------------------------------------------------------------------------- */

static struct wbk_id id_of(const struct wb_probe *p, const struct wb_tensor *t)
{
	struct wb__digit d = wb__digit_of(p, t->dtype);
	struct wbk_id id = {.code = (uint8_t)wb__code_of(t->dtype), .is_mixed = p->is_mixed};

	switch (p->pass.kind) {
	case WB_PASS_CONST:
	case WB_PASS_CONST_B:
		id.kind = WBK_ID_SAME;
		id.mask = wb__const_raw(t->dtype, p->pass.kind);
		break;
	case WB_PASS_HASH:
		id.kind = WBK_ID_HASH;
		id.seed = p->opts.seed + p->hash_done;
		id.mask = wb__code_mask(p, t->dtype);
		break;
	default:
		id.kind = p->pass.kind == WB_PASS_ROW ? WBK_ID_ROW : WBK_ID_COLUMN;
		id.shift = (uint8_t)d.shift;
		id.mask = d.mask;
	}
	return id;
}

static int fill(struct wb__dev *d, void *ctx)
{
	struct wbk_fill *item = ctx;
	struct wb__scan s = {.d = d, .which = WBK_GPU_FILL, .item_bytes = sizeof(struct wbk_fill)};
	int rc = wb__scan_add(
		&s, item, &(struct wb__extent){item->p.rows, item->p.cols, 1}, d->p->param);

	return rc ? rc : wb__scan_flush(&s);
}

int wb__dev_fill(const struct wb_probe *p, const struct wb_tensor *t, const struct wb__fill_at *at)
{
	size_t elem = wb_dtype_bytes(t->dtype);
	struct wbk_fill item = {.p = {.data = at->out,
					.rows = at->rows,
					.cols = at->cols,
					.row_stride = (int64_t)at->cols,
					.row_end = at->rows,
					.elem = (uint8_t)elem},
		.id = id_of(p, t),
		.row = t->row_base};
	uint8_t uuid[WB_MEM_UUID_BYTES];
	int rc = wb_mem_device(at->out, at->rows * at->cols * elem, uuid, NULL);
	struct wb__dev *d = rc ? NULL : find(p, uuid);

	if (!rc && !d)
		return -ENOTSUP;
	rc = rc ? rc : wb__dev_do(d, fill, &item);
	/* If a driver calls something invalid, or not supported, the device has failed.  -EINVAL
	 * and -ENOTSUP would tell the caller that there is no such pass, or that this is another
	 * device. */
	return rc && rc != -ENOMEM ? -EIO : rc;
}
