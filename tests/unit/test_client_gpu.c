/* SPDX-License-Identifier: Apache-2.0 */
/* The client library with parameters on a GPU, on the driver without devices; WB_GPU=device: on the
 * machine's. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "kernels/gpu.h"
#include "lane/lane.h"
#include "mem/mem.h"
#include "mem/travel.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define S 1000000000ull
#define BYTES ((size_t)2048)
#define ARENA 4096

static const struct wb_client_param params[2] = {{0, 0}, {0, BYTES / 2}};

/* Two allocations without a gap; one where a driver leaves a gap. */
static struct wb_client_mem neighbours(bool *are_two)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t first, second;

	ck_assert_int_eq(cu->mem_alloc(&first, BYTES / 2), 0);
	ck_assert_int_eq(cu->mem_alloc(&second, BYTES / 2), 0);
	*are_two = second == first + BYTES / 2;
	ck_assert(*are_two || fx_cuda_is_device());
	if (!*are_two)
		ck_assert_int_eq(cu->mem_alloc(&first, BYTES), 0);
	return (struct wb_client_mem){WB_CLIENT_MEM_DEVICE, 0, -1, (void *)(uintptr_t)first, BYTES};
}

static int attach(struct wb_client *c, const struct wb_client_mem *mem, struct wb_error *err)
{
	struct wb_client_attach a = {.size = sizeof(a),
		.manifest = "manifest",
		.manifest_bytes = 8,
		.map = "source map",
		.map_bytes = 10,
		.mem = mem,
		.n_mem = 1,
		.param = params,
		.n_param = 2};

	return wb_client_attach(c, &a, err);
}

static struct wb_client_mem of_gpu(uint64_t addr, uint64_t bytes)
{
	return (struct wb_client_mem){WB_CLIENT_MEM_DEVICE, 0, -1, (void *)(uintptr_t)addr, bytes};
}

static int acquire(struct wb_client *c, const struct wb_client_mem *mem, struct wb_error *err)
{
	struct wb_client_acquire a = {.size = sizeof(a),
		.mem = mem,
		.n_mem = 1,
		.param = params,
		.n_param = 2,
		.flags = WB_CLIENT_ACQUIRE_KEPT};

	return wb_client_acquire_memory(c, &a, 5 * S, err);
}

static struct wb_client *opened(const struct wb_client_opts *o)
{
	struct wb_error err = {0};
	struct wb_client *c = NULL;

	ck_assert_msg(!wb_client_open(o, &c, &err), "%s", err.msg);
	return c;
}

static void planned(struct wb_client *c)
{
	struct wb_error err = {0};

	ck_assert_msg(!wb_client_wait_planned(c, 5 * S, NULL, NULL, NULL, &err), "%s", err.msg);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void script_up(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_wait_closed(a);
}

START_TEST(an_object_may_be_of_neighbouring_allocations)
{
	bool are_two;
	struct wb_client_mem mem = neighbours(&are_two);
	struct wb_error err = {0};
	struct wb_client_opts o;
	struct wb_client *c;
	struct fx_script s;

	if (!are_two) {
		fx_cuda_skip("an_object_may_be_of_neighbouring_allocations",
			"allocations are not side by side here");
		return;
	}
	fx_script_start(&s, script_up);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = opened(&o);
	ck_assert_msg(!attach(c, &mem, &err), "%s", err.msg);
	planned(c);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* ---- memory that goes and comes -------------------------------------------------------------- */

static void *filled; /* an event behind what the application queued */

static void script_acquire(struct fx_agent *a)
{
	struct wb_msg_app_mem_released released = {0, NULL};
	struct wb_msg_app_mem_acquired acquired = {0};

	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &released);
	fx_agent_expect(a, WBP_APP_MEM_ACQUIRE);
	/* From here on the agent may have it read. */
	ck_assert_int_eq(fx_cuda_driver(0)->event_query(filled), WBCU_SUCCESS);
	fx_agent_send(a, WBP_APP_MEM_ACQUIRED, &acquired);
	fx_agent_wait_closed(a);
}

START_TEST(what_the_application_put_there_is_there_when_it_is_acquired)
{
	bool are_two;
	struct wb_client_mem mem = neighbours(&are_two);
	struct wb_error err = {0};
	const struct wbcu *cu;
	struct wb_client_opts o;
	struct wb_client *c;
	struct fx_script s;

	fx_script_start(&s, script_acquire);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = opened(&o);
	ck_assert_msg(!attach(c, &mem, &err), "%s", err.msg);
	planned(c);
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	cu = fx_cuda_driver(0);
	ck_assert_int_eq(cu->event_create(&filled, WBCU_EVENT_NO_TIMING), 0);
	/* In halves: a driver fills within one allocation. */
	fx_cuda_fill_late((uintptr_t)mem.base, 0x5a, BYTES / 2);
	ck_assert_int_eq(cu->fill((uintptr_t)mem.base + BYTES / 2, 0x5a, BYTES / 2, NULL), 0);
	ck_assert_int_eq(cu->event_record(filled, NULL), 0);
	ck_assert_int_eq(cu->event_query(filled), WBCU_NOT_READY);
	ck_assert_msg(!acquire(c, &mem, &err), "%s", err.msg);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* ---- for an agent that imports --------------------------------------------------------------- */

enum memory { VMM, IPC, SMALL, ALONE, MANY, HOST };

/* What an agent is told of memory, by how it was allocated. */
static const struct told {
	enum memory of;
	bool wants; /* the agent */
	enum wb_mem_kind kind; /* 0: nothing travels */
	unsigned n_piece;
	const char *why;
} told[] = {
	{VMM, true, WB_MEM_CUDA_VMM, 1, ""},
	{VMM, false, 0, 0, ""},
	{IPC, true, WB_MEM_CUDA_IPC, 0, ""},
	{SMALL, true, 0, 0,
		"memory object 0: memory of the GPU that only the worker can use: an "
		"allocation that is no multiple of 2 MiB"},
	{ALONE, true, 0, 0, "its allocator made it for this process alone"},
	{MANY, true, 0, 0, "a message has no room for more descriptors"},
	{HOST, true, 0, 0, "memory object 1 is private memory of the host"},
};

#define BLOCK ((size_t)2 << 20)
#define MANY_BLOCKS 31 /* with the table and what describes them one more than a message takes */

static char of_host[BYTES];

/* Memory as the row says, in objects; their number. */
static uint32_t memory_of(const struct told *t, struct wb_client_mem *mem)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	struct wbcu_allocation what = {.type = WBCU_ALLOCATION_PINNED,
		.handle_types = WBCU_HANDLE_FD,
		.location = {WBCU_LOCATION_DEVICE, 0}};
	struct wbcu_access access = {what.location, WBCU_ACCESS_READWRITE};
	size_t bytes = t->of == SMALL ? BYTES : t->of == MANY ? MANY_BLOCKS * BLOCK : BLOCK;
	uint64_t addr, handle;

	if (t->of == SMALL || t->of == IPC) {
		ck_assert_int_eq(cu->mem_alloc(&addr, bytes), 0);
	} else if (t->of != MANY) {
		addr = fx_cuda_vmm(0, bytes, t->of != ALONE);
	} else {
		ck_assert_int_eq(cu->vmm_reserve(&addr, bytes, 0, 0, 0), 0);
		for (uint64_t at = 0; at < bytes; at += BLOCK) {
			ck_assert_int_eq(cu->vmm_create(&handle, BLOCK, &what, 0), 0);
			ck_assert_int_eq(cu->vmm_map(addr + at, BLOCK, 0, handle, 0), 0);
			ck_assert_int_eq(cu->vmm_release(handle), 0);
		}
		ck_assert_int_eq(cu->vmm_access(addr, bytes, &access, 1), 0);
	}
	mem[0] = of_gpu(addr, bytes);
	mem[1] = (struct wb_client_mem){WB_CLIENT_MEM_HEAP, 0, -1, of_host, BYTES};
	return t->of == HOST ? 2 : 1;
}

static const struct told *expected; /* what the scripts expect */
static _Atomic bool has_left; /* the agent has let go */
static _Atomic bool has_closed; /* the client */

/* Wait until the worker's thread waits for something, or has closed its client. */
static void see_it_wait(void)
{
	char path[64], is = 'R';

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	while (is != 'S' && !has_closed) {
		FILE *f = fopen(path, "r");

		ck_assert_ptr_nonnull(f);
		ck_assert_int_eq(fscanf(f, "%*d (%*[^)]) %c", &is), 1);
		fclose(f);
	}
}

/* Descriptors of this process, of files of that name. */
static int files_named(const char *name)
{
	char path[64], is[128];
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, is, sizeof(is) - 1);
		is[len > 0 ? len : 0] = '\0';
		n += strstr(is, name) != NULL;
	}
	return n;
}

/* What came in @n of a message's descriptors, from @at on. */
static void check_told(
	const struct fx_agent *a, uint64_t bytes, uint32_t n_fd, const char *why, unsigned at)
{
	struct wb_mem_taken t;
	struct wb_err err = {0};
	uint8_t text[512];
	struct wb_cursor c;

	why = why ? why : "";
	ck_assert_msg(strstr(why, expected->why) != NULL, "%s", why);
	ck_assert_int_eq(!why[0], !expected->why[0]);
	ck_assert_uint_eq(bytes, expected->kind ? WB_MEM_TRAVEL_BYTES + 8 * expected->n_piece : 0);
	ck_assert_uint_eq(n_fd, expected->kind ? 1 + expected->n_piece : 0);
	ck_assert_uint_eq(a->n_fd, at + n_fd);
	if (!expected->kind)
		return;
	ck_assert_int_eq(pread(a->fds[at], text, sizeof(text), 0), (ssize_t)bytes);
	c = wb_cursor(text, bytes);
	ck_assert_msg(
		!wb_mem_take(&c, a->fds + at + 1, expected->n_piece, &t, &err), "%s", err.msg);
	ck_assert(t.desc.kind == expected->kind && t.desc.n_piece == expected->n_piece);
	ck_assert_uint_eq(t.desc.bytes, BLOCK);
}

static void script_told(struct fx_agent *a)
{
	struct wb_msg_app_mem_released released = {0, NULL};
	struct wb_msg_app_mem_acquired acquired = {0};
	union wb_msg *m;

	a->imports = expected->wants;
	fx_agent_hello(a);
	m = fx_agent_expect(a, WBP_APP_ATTACH);
	check_told(
		a, m->app_attach.export_bytes, m->app_attach.export_fds, m->app_attach.unshared, 3);
	fx_agent_attached(a);
	fx_agent_planned(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &released);
	m = fx_agent_expect(a, WBP_APP_MEM_ACQUIRE);
	check_told(a, m->app_mem_acquire.export_bytes, m->app_mem_acquire.export_fds,
		m->app_mem_acquire.unshared, 1);
	fx_agent_send(a, WBP_APP_MEM_ACQUIRED, &acquired);
	fx_agent_expect(a, WBP_APP_DETACH);
	/* Who has none of the worker's memory is not waited for. */
	if (!expected->kind)
		fx_agent_wait_closed(a);
	else
		see_it_wait();
	has_left = !has_closed;
}

START_TEST(an_agent_that_imports_is_told_what_memory_travels_as)
{
	struct wb_client_acquire again = {.size = sizeof(again), .param = params, .n_param = 2};
	struct wb_client_attach a = {.size = sizeof(a),
		.manifest = "manifest",
		.manifest_bytes = 8,
		.map = "source map",
		.map_bytes = 10,
		.param = params,
		.n_param = 2};
	struct wb_client_mem mem[2];
	struct wb_error err = {0};
	struct wb_client_opts o;
	struct wb_client *c;
	struct fx_script s;
	int had;

	expected = &told[_i];
	again.mem = a.mem = mem;
	again.n_mem = a.n_mem = memory_of(expected, mem);
	had = files_named("memfd:fakecuda");
	fx_script_start(&s, script_told);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = opened(&o);
	ck_assert_msg(!wb_client_attach(c, &a, &err), "%s", err.msg);
	planned(c);
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	ck_assert_msg(!wb_client_acquire_memory(c, &again, 5 * S, &err), "%s", err.msg);
	wb_client_close(c, 0, NULL);
	has_closed = true;
	fx_script_stop(&s);
	ck_assert(has_left || !expected->kind);
	ck_assert_int_eq(files_named("descriptions of memory"), 0);
	ck_assert_int_eq(files_named("memfd:fakecuda"), had); /* they would keep the memory */
}
END_TEST

/* ---- forks ----------------------------------------------------------------------------------- */

/* The agent's side of a lane in the worker. */
struct slots {
	struct wb_lane *lane;
	void *arena;
	int fd;
};

static struct slots give_lane(struct fx_agent *a)
{
	struct wb_lane_remote_fds fds;
	struct wb_err err = {0};
	struct wb_lane *lane;
	int arena_fd = wb_memfd_create("slots", ARENA, &err);
	void *arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd, 0);

	ck_assert_msg(!wb_lane_create_remote(NULL, arena, ARENA, &lane, &fds, &err), "%s", err.msg);
	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_page(a);
	fx_agent_send_fds(a, WBP_APP_ATTACHED,
		&(struct wb_msg_app_attached){7, "worker-x", WB_APP_LANE_WORKER},
		(int[]){a->page_fd, fds.shared, fds.submit, fds.complete, arena_fd}, 5);
	fx_agent_planned(a);
	return (struct slots){lane, arena, arena_fd};
}

static void take_lane(struct slots *s)
{
	wb_lane_destroy(s->lane);
	munmap(s->arena, ARENA);
	close(s->fd);
}

static void script_lane(struct fx_agent *a)
{
	struct slots s = give_lane(a);

	fx_agent_wait_closed(a);
	take_lane(&s);
}

/* Row 1 has a lane, whose kernels the stand-in has itself. */
static const char *fork_needs(int row)
{
	return row && !wbk_gpu_kernel(WBK_GPU_ROWS)->image ? "a build with CUDA=yes" : NULL;
}

START_TEST(a_forked_child_leaves_its_parents_gpu_alone)
{
	bool are_two;
	struct wb_client_mem mem = neighbours(&are_two);
	struct wb_error err = {0};
	struct wb_client_opts o;
	struct wb_client *c;
	struct fakecuda_counts n;
	struct fx_script s;
	pid_t pid;
	int st;

	fx_script_start(&s, _i ? script_lane : script_up);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = opened(&o);
	ck_assert_msg(!attach(c, &mem, &err), "%s", err.msg);
	planned(c);
	fx_cuda()->count(&n);
	ck_assert(!n.streams == !_i || fx_cuda_is_device()); /* the lane's */
	pid = fork();
	if (!pid) {
		int rc = wb_client_close(c, 0, NULL);

		fx_cuda()->count(&n);
		_exit(rc || n.strays);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	wb_client_close(c, 0, NULL);
	fx_cuda()->count(&n);
	ck_assert_int_eq(n.streams, 0);
	fx_script_stop(&s);
}
END_TEST

static const char *needs_script(int row)
{
	(void)row;
	return FX_SCRIPT;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static pthread_barrier_t turn;
static int who_ends; /* 0: the application; 1: the library, of an agent that makes no sense */

static void script_job(struct fx_agent *a)
{
	const struct wbk_box box = {.n_row = 1,
		.n_col = BYTES / 2,
		.row_stride = BYTES,
		.col_stride = 2,
		.pos_row_stride = BYTES,
		.pos_col_stride = 2,
		.wire_elem = 2,
		.mem_elem = 2};
	struct slots s = give_lane(a);
	struct wb_lane_job job = {.kind = WB_LANE_PACK,
		.box = &box,
		.n_box = 1,
		.wire = s.arena,
		.wire_bytes = BYTES};
	struct fakecuda_counts n = {0};

	fx_cuda_do("late cuLaunchKernel 300000000");
	ck_assert_int_eq(wb_lane_submit(s.lane, &job), 0);
	while (!n.queued)
		fx_cuda()->count(&n);
	pthread_barrier_wait(&turn);
	if (who_ends)
		fx_agent_send_bytes(a, "no frame", 8);
	else
		fx_agent_expect(a, WBP_APP_DETACH);
	if (who_ends)
		fx_agent_wait_closed(a);
	/* From here on the slot may be another worker's. */
	ck_assert_int_eq(wb_lane_reap(s.lane, &job, 1), 1);
	ck_assert_int_eq(job.rc, 0);
	take_lane(&s);
	if (!who_ends)
		fx_agent_wait_closed(a);
	close(a->listen_fd);
	a->listen_fd = -1;
}

START_TEST(an_agent_hears_of_the_end_when_nothing_writes_its_slots)
{
	bool are_two;
	struct wb_client_mem mem = neighbours(&are_two);
	struct wb_error err = {0};
	struct wb_client_opts o;
	struct wb_client *c;
	struct fx_script s;

	who_ends = _i;
	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, script_job);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	o.reconnect_timeout = 1;
	c = opened(&o);
	ck_assert_msg(!attach(c, &mem, &err), "%s", err.msg);
	planned(c);
	pthread_barrier_wait(&turn);
	while (who_ends && !wb_client_wait_planned(c, 5 * S, NULL, NULL, NULL, &err))
		;
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client gpu");
	TCase *t = tcase_create("all");

	if (!fx_cuda_here())
		return 77;
	/* A process begins with a driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, an_object_may_be_of_neighbouring_allocations);
	tcase_add_test(t, what_the_application_put_there_is_there_when_it_is_acquired);
	tcase_add_loop_test(t, an_agent_that_imports_is_told_what_memory_travels_as, 0,
		(int)WB_ARRAY_SIZE(told));
	fx_cuda_add_rows(t, a_forked_child_leaves_its_parents_gpu_alone,
		"a_forked_child_leaves_its_parents_gpu_alone", 2, fork_needs);
	fx_cuda_add_rows(t, an_agent_hears_of_the_end_when_nothing_writes_its_slots,
		"an_agent_hears_of_the_end_when_nothing_writes_its_slots", 2, needs_script);
	suite_add_tcase(suite, t);
	return fx_run(suite);
}
