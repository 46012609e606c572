/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's own lane on a worker's memory of a GPU: what it imports, what it does there, and that
 * nothing is left when it is over.  On the driver without devices; WB_GPU=device: on the machine's.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "daemon/imports.h"
#include "kernels/gpu.h"
#include "mem/travel.h"
#include "net/loop.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((uint64_t)2 << 20)
#define HOST_BYTES ((uint64_t)4096)
#define ARENA ((uint64_t)4 << 20)
#define PIECE ((uint64_t)64 << 10) /* that a job moves */

/* In a process of its own: what is not so ends it. */
#define must(x)                                                                                    \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* ---- the worker: two objects, one of the host ------------------------------------------------ */

static uint8_t byte_of(uint64_t at, unsigned seed)
{
	return (uint8_t)(at * 7 + at / 1021 + seed);
}

static void fill(uint8_t *p, uint64_t bytes, unsigned seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		p[i] = byte_of(i, seed);
}

static void holds(const uint8_t *p, uint64_t bytes, unsigned seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		must(p[i] == byte_of(i, seed));
}

static const struct way {
	enum wb_mem_kind kind;
	bool dies; /* the worker, as soon as it has said what it has */
} ways[] = {{WB_MEM_CUDA_VMM, false}, {WB_MEM_CUDA_IPC, false}, {WB_MEM_CUDA_VMM, true}};

static void worker(int sock, void *arg)
{
	const struct way *way = arg;
	uint8_t *text = malloc(BYTES), c;
	const struct wbcu *cu = fx_cuda_driver(0);
	struct wb_mem_export x;
	struct wb_err err = {0};
	struct wb_buf b;
	uint64_t addr;
	int fds[2];

	if (way->kind == WB_MEM_CUDA_VMM)
		addr = fx_cuda_vmm(0, BYTES, true);
	else
		must(!cu->mem_alloc(&addr, BYTES));
	must(text);
	fill(text, BYTES, 1);
	fx_cuda_write(addr, text, BYTES);
	must(!wb_mem_export((void *)(uintptr_t)addr, BYTES, &x, &err));
	must(x.desc.kind == way->kind);
	wb_buf_init(&b, 4096);
	wb_mem_put(&b, &x.desc);
	fds[0] = memfd_create("text", MFD_CLOEXEC);
	must(write(fds[0], b.data, b.len) == (ssize_t)b.len);
	fds[1] = x.desc.n_piece ? x.piece[0].fd : fds[0];
	fx_send(sock, &b.len, sizeof(b.len), fds, 2);
	wb_mem_export_finish(&x);
	close(fds[0]);
	wb_buf_finish(&b);
	if (way->dies) {
		free(text);
		return;
	}
	fx_receive(sock, &c, 1, NULL, 0);
	fx_cuda_read(text, addr, BYTES);
	holds(text, PIECE, 2); /* what was assembled */
	for (uint64_t i = PIECE; i < BYTES; i++)
		must(text[i] == byte_of(i, 1));
	free(text);
}

/* ---- the agent ------------------------------------------------------------------------------- */

struct rig {
	struct wb_loop *loop;
	struct wb_lane *lane;
	struct wb_lane_remote_fds lane_fds;
	uint8_t *arena, *host;
	int arena_fd, host_fd;
	struct wb_mem mem[2];
	struct wb__table table;
	int fds[2];
	size_t text_bytes;
	struct wb__imports_in in;
	struct wb__imports *imports;
	unsigned changes;
};

static void changed(void *cookie)
{
	((struct rig *)cookie)->changes++;
}

static void make(struct rig *r)
{
	struct wb_err err = {0};

	memset(r, 0, sizeof(*r));
	must(!wb_loop_create(&r->loop, &err));
	r->arena_fd = wb_memfd_create("slots", ARENA, &err);
	r->arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, r->arena_fd, 0);
	r->host_fd = wb_memfd_create("host", HOST_BYTES, &err);
	r->host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->host_fd, 0);
	must(r->arena != MAP_FAILED && r->host != MAP_FAILED);
	must(!wb_lane_create_remote(NULL, r->arena, ARENA, &r->lane, &r->lane_fds, &err));
	r->mem[0] = (struct wb_mem){
		.access = WB_MEM_AT_HOST, .addr = r->host, .bytes = HOST_BYTES, .fd = r->host_fd};
	r->mem[1] = (struct wb_mem){.access = WB_MEM_AT_WORKER, .bytes = BYTES, .fd = -1};
	r->table = (struct wb__table){.mem = r->mem, .n_mem = 2, .has_heap = true};
	r->in = (struct wb__imports_in){.loop = r->loop,
		.name = "lane",
		.table = &r->table,
		.fds = r->fds,
		.lane = r->lane_fds,
		.arena_fd = r->arena_fd,
		.on_change = changed,
		.cookie = r};
}

/* What a worker says of the second object. */
static void hear(struct rig *r, int sock, const struct way *way)
{
	fx_receive(sock, &r->text_bytes, sizeof(r->text_bytes), r->fds, 2);
	r->in.export_bytes = r->text_bytes;
	r->in.n_fd = way->kind == WB_MEM_CUDA_VMM ? 2 : 1;
}

static void unmake(struct rig *r)
{
	struct fakecuda_counts n;

	wb_lane_destroy(r->lane);
	munmap(r->arena, ARENA);
	munmap(r->host, HOST_BYTES);
	close(r->arena_fd);
	close(r->host_fd);
	for (int i = 0; i < 2; i++)
		if (r->fds[i])
			close(r->fds[i]);
	wb_loop_destroy(r->loop);
	fx_cuda()->count(&n);
	must(!n.streams && !n.events && !n.modules && !n.pinned && !n.queued && !n.handles &&
		!n.blocks && !n.mappings && !n.contexts);
}

static void until(struct rig *r, enum wb__imports_state state)
{
	unsigned had = r->changes; /* it is told of each */

	while (wb__imports_state(r->imports) != state || r->changes == had)
		wb_loop_run_once(r->loop, true);
}

static struct wb_lane_job await(struct wb_lane *l)
{
	struct pollfd p = {.fd = wb_lane_fd(l), .events = POLLIN};
	struct wb_lane_job job;

	while (!wb_lane_reap(l, &job, 1))
		must(poll(&p, 1, 60000) == 1);
	return job;
}

static struct wb_lane_job piece_of(
	struct rig *r, enum wb_lane_kind kind, struct wbk_box *box, uint32_t mem, uint32_t bytes)
{
	*box = (struct wbk_box){.base = mem,
		.n_row = 1,
		.n_col = bytes / 2,
		.repeat = 1,
		.mem_elem = 2,
		.wire_elem = 2,
		.col_stride = 2,
		.row_stride = bytes};
	return (struct wb_lane_job){
		.kind = kind, .box = box, .n_box = 1, .wire = r->arena, .wire_bytes = bytes};
}

static void move(struct rig *r, enum wb_lane_kind kind, uint32_t mem, uint32_t bytes)
{
	struct wbk_box box;
	struct wb_lane_job job = piece_of(r, kind, &box, mem, bytes);

	must(!wb_lane_submit(r->lane, &job));
	must(!await(r->lane).rc);
}

static void agent(int sock, void *arg)
{
	const struct way *way = arg;
	struct wb_err err = {0};
	struct rig r;

	make(&r);
	hear(&r, sock, way);
	fill(r.host, HOST_BYTES, 5);
	must(!wb__imports_begin(&r.in, &r.imports, &err));
	until(&r, WB__IMPORTS_WORKING);
	must(!wb__imports_why(r.imports)[0]);
	move(&r, WB_LANE_PACK, 1, PIECE);
	holds(r.arena, PIECE, 1);
	move(&r, WB_LANE_PACK, 0, HOST_BYTES);
	holds(r.arena, HOST_BYTES, 5);
	fill(r.arena, PIECE, 2);
	move(&r, WB_LANE_ASSEMBLE, 1, PIECE);
	wb__imports_stop(r.imports);
	wb__imports_stop(r.imports);
	until(&r, WB__IMPORTS_OVER);
	must(!wb__imports_why(r.imports)[0]);
	wb__imports_destroy(r.imports);
	unmake(&r);
	if (!way->dies)
		fx_send(sock, "x", 1, NULL, 0);
}

START_TEST(jobs_move_what_the_worker_has_and_nothing_of_it_is_left_after)
{
	static struct way way;

	way = ways[_i];
	fx_two(worker, agent, &way);
}
END_TEST

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void stopped_with_jobs_out(int sock, void *arg)
{
	struct wb_lane_job job, done[8];
	struct wbk_box box;
	struct wb_err err = {0};
	struct rig r;
	int n = 0, got;

	make(&r);
	hear(&r, sock, arg);
	must(!wb__imports_begin(&r.in, &r.imports, &err));
	until(&r, WB__IMPORTS_WORKING);
	job = piece_of(&r, WB_LANE_PACK, &box, 1, PIECE);
	for (int i = 0; i < 8; i++)
		must(!wb_lane_submit(r.lane, &job));
	wb__imports_stop(r.imports);
	until(&r, WB__IMPORTS_OVER);
	/* Those that were begun are done, the others were not. */
	wb_lane_abort(r.lane);
	while (n < 8) {
		got = wb_lane_reap(r.lane, done + n, 8 - n);
		for (int i = n; i < n + got; i++)
			must(!done[i].rc || done[i].rc == -EPIPE);
		n += got;
	}
	wb__imports_destroy(r.imports);
	unmake(&r);
	fx_send(sock, "x", 1, NULL, 0);
}

static void stopped_at_once(int sock, void *arg)
{
	struct wb_err err = {0};
	struct rig r;

	make(&r);
	hear(&r, sock, arg);
	must(!wb__imports_begin(&r.in, &r.imports, &err));
	wb__imports_stop(r.imports);
	until(&r, WB__IMPORTS_OVER);
	wb__imports_destroy(r.imports);
	unmake(&r);
	fx_send(sock, "x", 1, NULL, 0);
}

static void not_importable(int sock, void *arg)
{
	struct wb_err err = {0};
	struct rig r;

	make(&r);
	hear(&r, sock, arg);
	/* Any other file in the place of the memory. */
	r.fds[1] = dup2(r.host_fd, r.fds[1]);
	must(!wb__imports_begin(&r.in, &r.imports, &err));
	until(&r, WB__IMPORTS_OVER);
	must(strstr(wb__imports_why(r.imports), "memory object 1: ") != NULL);
	wb__imports_destroy(r.imports);
	unmake(&r);
	fx_send(sock, "x", 1, NULL, 0);
}

/* The worker's memory stays as it was. */
static void untouched(int sock, void *arg)
{
	struct way dies = *(const struct way *)arg;
	char c;

	dies.dies = true;
	worker(sock, &dies);
	fx_receive(sock, &c, 1, NULL, 0);
}

static void (*const wrongs[])(int sock, void *arg) = {
	stopped_with_jobs_out, stopped_at_once, not_importable};

START_TEST(it_ends_in_order_whenever_it_is_stopped)
{
	static struct way way;

	way = ways[0];
	fx_two(untouched, wrongs[_i], &way);
}
END_TEST

/* ---- two devices ----------------------------------------------------------------------------- */

/* A worker with memory of two devices, as its library lets none attach. */
static void worker_of_two(int sock, void *arg)
{
	struct wb_mem_export x[2];
	struct wb_err err = {0};
	struct wb_buf b;
	int fds[3];
	char c;

	(void)arg;
	wb_buf_init(&b, 4096);
	for (int i = 0; i < 2; i++) {
		uint64_t addr = fx_cuda_vmm(i ? fx_cuda_second() : 0, BYTES, true);

		must(!wb_mem_export((void *)(uintptr_t)addr, BYTES, &x[i], &err));
		x[i].desc.piece = x[i].piece;
		wb_mem_put(&b, &x[i].desc);
		fds[1 + i] = x[i].piece[0].fd;
	}
	fds[0] = memfd_create("text", MFD_CLOEXEC);
	must(write(fds[0], b.data, b.len) == (ssize_t)b.len);
	fx_send(sock, &b.len, sizeof(b.len), fds, 3);
	close(fds[0]);
	wb_mem_export_finish(&x[0]);
	wb_mem_export_finish(&x[1]);
	wb_buf_finish(&b);
	fx_receive(sock, &c, 1, NULL, 0);
}

static void agent_of_two(int sock, void *arg)
{
	struct wb_err err = {0};
	int fds[3];
	struct rig r;

	(void)arg;
	make(&r);
	fx_receive(sock, &r.text_bytes, sizeof(r.text_bytes), fds, 3);
	r.in.export_bytes = r.text_bytes;
	r.in.fds = fds;
	r.in.n_fd = 3;
	r.mem[0] = r.mem[1];
	must(!wb__imports_begin(&r.in, &r.imports, &err));
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	until(&r, WB__IMPORTS_OVER);
	must(!strcmp(wb__imports_why(r.imports),
		"memory object 1 lies on another GPU than those before it"));
	wb__imports_destroy(r.imports);
	unmake(&r);
	fx_send(sock, "x", 1, NULL, 0);
}

START_TEST(a_lane_has_one_device)
{
	fx_two(worker_of_two, agent_of_two, NULL);
}
END_TEST

/* ---- what cannot be -------------------------------------------------------------------------- */

static const struct {
	uint64_t bytes; /* that the description says */
	uint32_t n_fd, more; /* descriptors; bytes behind the description */
	const char *says;
} lies[] = {
	{BYTES - 1, 1, 0, "memory object 1: 2097151 bytes are described, the table says 2097152"},
	{BYTES, 0, 0, "without"},
	{BYTES, 2, 0, "1 descriptors and 0 bytes more than the memory"},
	{BYTES, 1, 8, "0 descriptors and 8 bytes more than the memory"},
};

START_TEST(a_description_that_does_not_fit_the_table_is_einval)
{
	struct wb_mem_desc d = {.kind = WB_MEM_CUDA_IPC, .fd = -1, .bytes = lies[_i].bytes};
	struct wb_err err = {0};
	struct wb_buf b;
	struct rig r;

	make(&r);
	wb_buf_init(&b, 4096);
	wb_mem_put(&b, &d);
	for (uint32_t i = 0; i < lies[_i].more; i++)
		wb_buf_u8(&b, 0);
	r.fds[0] = memfd_create("text", MFD_CLOEXEC);
	r.fds[1] = memfd_create("more", MFD_CLOEXEC);
	ck_assert_int_eq(write(r.fds[0], b.data, b.len), (ssize_t)b.len);
	r.in.export_bytes = b.len;
	r.in.n_fd = lies[_i].n_fd;
	ck_assert_int_eq(wb__imports_begin(&r.in, &r.imports, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, lies[_i].says) != NULL, "%s", err.msg);
	ck_assert_uint_eq(r.changes, 0);
	wb_buf_finish(&b);
	unmake(&r);
}
END_TEST

static const char *needs_code(int row)
{
	(void)row;
	return wbk_gpu_kernel(WBK_GPU_ROWS)->image ? NULL : "a build with CUDA=yes";
}

int main(void)
{
	Suite *suite = suite_create("daemon imports");
	TCase *t = tcase_create("all");

	if (!fx_cuda_here())
		return 77;
	/* A process begins with a driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	tcase_set_timeout(t, 120);
	fx_cuda_add_rows(t, jobs_move_what_the_worker_has_and_nothing_of_it_is_left_after,
		"jobs_move_what_the_worker_has_and_nothing_of_it_is_left_after",
		(int)WB_ARRAY_SIZE(ways), needs_code);
	fx_cuda_add_rows(t, it_ends_in_order_whenever_it_is_stopped,
		"it_ends_in_order_whenever_it_is_stopped", (int)WB_ARRAY_SIZE(wrongs), needs_code);
	FX_CUDA_ADD(t, a_lane_has_one_device, "a second device");
	tcase_add_loop_test(t, a_description_that_does_not_fit_the_table_is_einval, 0,
		(int)WB_ARRAY_SIZE(lies));
	suite_add_tcase(suite, t);
	return fx_run(suite);
}
