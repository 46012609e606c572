/* SPDX-License-Identifier: Apache-2.0 */
/* A part of each matrix: manifest, source map and memory. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "mem/mem.h"
#include "planner/map.h"
#include "tests/tools/toy/toy.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t elem_bytes(const struct toy *t)
{
	return t->rounds ? sizeof(uint16_t) : sizeof(uint32_t);
}

static void make_manifest(const struct toy *t, struct wb_manifest **out)
{
	struct wb_tensor *x = wb_zalloc(t->tensors, sizeof(*x));
	struct wb_err err = {0};
	char name[32];

	for (uint32_t i = 0; i < t->tensors; i++) {
		snprintf(name, sizeof(name), "layers.%u.weight", i);
		x[i].name = wb_strdup(name);
		x[i].dtype = wb_dtype_parse("F32");
		x[i].ndim = 2;
		x[i].shape[0] = t->rows;
		x[i].shape[1] = t->cols;
	}
	toy_must(wb_manifest_create(x, t->tensors, out, &err), "manifest", err.msg);
	for (uint32_t i = 0; i < t->tensors; i++)
		wb_free(x[i].name);
	wb_free(x);
}

static void make_map(const struct toy *t, const struct wb_manifest *m, struct wb_map **out)
{
	struct wb_map map = {.n_param = t->tensors, .n_op = t->tensors};
	struct wb_err err = {0};
	char name[32];

	map.param = wb_zalloc(t->tensors, sizeof(*map.param));
	map.op = wb_zalloc(t->tensors, sizeof(*map.op));
	for (uint32_t i = 0; i < t->tensors; i++) {
		struct wb_param *p = &map.param[i];

		snprintf(name, sizeof(name), "part.%u", i);
		p->name = wb_strdup(name);
		p->dtype = wb_dtype_parse(t->rounds ? "BF16" : "F32");
		p->ndim = 2;
		p->shape[0] = t->n_row;
		p->shape[1] = t->n_col;
		p->stride[0] = t->n_col;
		p->stride[1] = 1;
		p->span = (uint64_t)t->n_row * t->n_col;
		map.op[i] = (struct wb_op){.param = i,
			.tensor = i,
			.row = t->row0,
			.col = t->col0,
			.n_row = t->n_row,
			.n_col = t->n_col,
			.row_step = 1,
			.col_step = 1,
			.dst_row_stride = t->n_col,
			.dst_col_stride = 1,
			.repeat = 1};
	}
	toy_must(wb_map_create(m, &map, out, &err), "map", err.msg);
}

void toy_make_memory(struct toy *t)
{
	struct wb_err err = {0};
	void *p;

	t->bytes = (size_t)t->tensors * t->n_row * t->n_col * elem_bytes(t);
	t->fd = -1;
	t->is_heap |= t->device != NULL;
	if (!t->is_heap) {
		t->fd = wb_memfd_create("toy", t->bytes, &err);
		toy_must(t->fd, "memory", err.msg);
	}
	p = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
		t->is_heap ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, t->fd, 0);
	toy_must(p == MAP_FAILED ? -errno : 0, "memory", "mmap");
	t->data = p;
	if (t->device)
		toy_device_make(t);
}

static void make_table(
	const struct toy *t, struct wb_client_mem *mem, struct wb_client_param *param)
{
	*mem = (struct wb_client_mem){.kind = t->is_heap ? WB_CLIENT_MEM_HEAP : WB_CLIENT_MEM_MEMFD,
		.fd = t->fd,
		.base = t->data,
		.bytes = t->bytes};
	if (t->device) {
		mem->kind = WB_CLIENT_MEM_DEVICE;
		mem->base = (void *)(uintptr_t)t->on_device;
	}
	for (uint32_t i = 0; i < t->tensors; i++)
		param[i] = (struct wb_client_param){
			.offset = (uint64_t)i * t->n_row * t->n_col * elem_bytes(t)};
}

/* As vLLM's sleep: the memory goes, and comes back elsewhere with nothing in it. */
void toy_sleep(struct toy *t)
{
	struct wb_error err = {0};
	int rc = wb_client_release_memory(t->c, 10000000000ull, &err);

	if (rc < 0) {
		toy_say("error %d sleep: %s", rc, err.msg);
		return;
	}
	if (!t->data) { /* it sleeps already */
		toy_say("asleep");
		return;
	}
	if (t->device)
		toy_device_drop(t);
	/* What comes back shall lie elsewhere, so nothing else is put here. */
	if (mmap(t->data, t->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		MAP_FAILED)
		toy_must(-errno, "memory", "mmap");
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->data = NULL;
	toy_say("asleep");
}

void toy_wake(struct toy *t)
{
	struct wb_client_param *param = wb_zalloc(t->tensors, sizeof(*param));
	struct wb_client_mem mem;
	struct wb_client_acquire a = {
		.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = param, .n_param = t->tensors};
	struct wb_error err = {0};
	int rc;

	toy_make_memory(t);
	make_table(t, &mem, param);
	rc = wb_client_acquire_memory(t->c, &a, 10000000000ull, &err);
	toy_say(rc < 0 ? "error %d wake: %s" : "awake", rc, err.msg);
	wb_free(param);
}

static void say_progress(void *cookie, const char *sentence)
{
	(void)cookie;
	toy_say("status %s", sentence);
}

void toy_attach(struct toy *t)
{
	struct wb_client_opts o = {.size = sizeof(o),
		.socket = t->socket,
		.object = t->object,
		.engine = t->engine,
		.role = t->role,
		.rank = t->rank,
		.connect_timeout = 10000000000ull,
		.reconnect_timeout = 10000000000ull};
	struct wb_client_mem mem;
	struct wb_client_param *param = wb_zalloc(t->tensors, sizeof(*param));
	struct wb_manifest *m;
	struct wb_map *map;
	struct wb_buf mb, pb;
	struct wb_error err = {0};
	struct wb_client_attach a = {.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = param};

	make_manifest(t, &m);
	make_map(t, m, &map);
	wb_buf_init(&mb, 1u << 28);
	wb_buf_init(&pb, 1u << 28);
	toy_must(wb_manifest_encode(m, &mb), "manifest", "encode");
	toy_must(wb_map_encode(map, &pb), "map", "encode");
	make_table(t, &mem, param);
	a.manifest = mb.data;
	a.manifest_bytes = mb.len;
	a.map = pb.data;
	a.map_bytes = pb.len;
	a.n_param = t->tensors;
	toy_must(wb_client_open(&o, &t->c, &err), "open", err.msg);
	toy_must(wb_client_attach(t->c, &a, &err), "attach", err.msg);
	toy_say("attached %s", wb_client_worker(t->c));
	toy_must(wb_client_wait_planned(t->c, WB_FOREVER, say_progress, NULL, NULL, &err), "plan",
		err.msg);
	toy_say("planned");
	wb_buf_finish(&mb);
	wb_buf_finish(&pb);
	wb_map_destroy(map);
	wb_manifest_destroy(m);
	wb_free(param);
}
