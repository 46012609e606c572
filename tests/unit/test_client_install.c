/* SPDX-License-Identifier: Apache-2.0 */
/* The client library while it copies its staging area: what else may come meanwhile. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/area.h"
#include "mem/mem.h"
#include "planner/map.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define S 1000000000ull
#define BYTES sizeof(fx_heap)

static void *params = fx_heap; /* the worker's parameter */
static uint64_t on_gpu; /* its address there; 0 = it is on the host */

/* One tensor, one parameter that is all of it. */
static struct wb_client *worker(const struct wb_client_opts *o)
{
	struct wb_tensor t = {
		.name = (char[]){"w"}, .dtype = WB_BF16, .ndim = 2, .shape = {2, BYTES / 4}};
	struct wb_client_mem mem = {on_gpu ? WB_CLIENT_MEM_DEVICE : WB_CLIENT_MEM_HEAP, 0, -1,
		on_gpu ? (void *)(uintptr_t)on_gpu : params, BYTES};
	struct wb_client_param at = {0, 0};
	struct wb_manifest *manifest = NULL;
	struct wb_client *c = NULL;
	struct wb_map raw, *map = NULL;
	struct wb_error err = {0};
	struct wb_buf mb, pb;

	ck_assert_int_eq(wb_manifest_create(&t, 1, &manifest, NULL), 0);
	memset(&raw, 0, sizeof(raw));
	raw.n_param = raw.n_op = 1;
	raw.param = wb_zalloc(1, sizeof(*raw.param));
	raw.op = wb_zalloc(1, sizeof(*raw.op));
	*raw.param = (struct wb_param){.name = wb_strdup("w"),
		.dtype = WB_BF16,
		.ndim = 2,
		.shape = {2, BYTES / 4},
		.stride = {BYTES / 4, 1},
		.span = BYTES / 2};
	*raw.op = (struct wb_op){.n_row = 2,
		.n_col = BYTES / 4,
		.row_step = 1,
		.col_step = 1,
		.dst_row_stride = BYTES / 4,
		.dst_col_stride = 1,
		.repeat = 1};
	ck_assert_int_eq(wb_map_create(manifest, &raw, &map, NULL), 0);
	wb_buf_init(&mb, 1u << 16);
	wb_buf_init(&pb, 1u << 16);
	ck_assert_int_eq(wb_manifest_encode(manifest, &mb), 0);
	ck_assert_int_eq(wb_map_encode(map, &pb), 0);
	struct wb_client_attach a = {.size = sizeof(a),
		.manifest = mb.data,
		.manifest_bytes = mb.len,
		.map = pb.data,
		.map_bytes = pb.len,
		.mem = &mem,
		.n_mem = 1,
		.param = &at,
		.n_param = 1};
	ck_assert_int_eq(wb_client_open(o, &c, &err), 0);
	ck_assert_msg(!wb_client_attach(c, &a, &err), "%s", err.msg);
	ck_assert_msg(!wb_client_wait_planned(c, 5 * S, NULL, NULL, NULL, &err), "%s", err.msg);
	wb_buf_finish(&mb);
	wb_buf_finish(&pb);
	wb_map_destroy(map);
	wb_manifest_destroy(manifest);
	return c;
}

static struct wb_area_head *area; /* of the agent: head, then the bytes from @staged on */
static uint8_t *staged;

static void send_area(struct fx_agent *a)
{
	uint64_t bytes = BYTES, off, all = wb_area_layout(&bytes, 1, &off);
	struct wb_msg_app_area m = {.bytes = all};
	int fd = wb_memfd_create("area", all, NULL);

	area = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(area != MAP_FAILED);
	wb_area_reset(area, all);
	staged = (uint8_t *)area + off;
	fx_agent_send_fds(a, WBP_APP_AREA, &m, &fd, 1);
	close(fd);
}

static pthread_barrier_t turn;

/* INSTALL of transfer 1, and the end of its engine's patience with it, at once. */
static void install_and_give_up(struct fx_agent *a)
{
	struct wb_msg_app_begin begin = {.transfer = 1, .version = 10, .staged = true};
	struct wb_msg_app_install install = {.transfer = 1, .version = 10};

	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_attached(a);
	send_area(a);
	fx_agent_planned(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_send(a, WBP_APP_BEGIN, &begin);
	fx_agent_expect(a, WBP_APP_BEGUN);
	fx_agent_send(a, WBP_APP_INSTALL, &install);
	fx_agent_end(a, 1, WB_APP_END_TORN, "worker-y did not install");
}

static void script(struct fx_agent *a)
{
	install_and_give_up(a);
	pthread_barrier_wait(&turn); /* only now the worker looks */
	pthread_barrier_wait(&turn);
	fx_agent_begin(a, 2);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, 0);
	fx_agent_end(a, 2, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

/* One that was stopped finds INSTALL and the end of its engine's patience at once. */
START_TEST(given_up_before_its_copy_is_torn_and_repaired)
{
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, script);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = worker(&o);
	while (!wb_client_poll(c))
		;
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	pthread_barrier_wait(&turn);
	ck_assert_int_eq(wb_client_update_step(c, 0, &u, &err), -EAGAIN);
	pthread_barrier_wait(&turn);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_uint_eq(u.transfer, 2);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_AFTER);
	ck_assert_int_eq(wb_client_update_resumed(c, 0, NULL, &err), 0);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* The next update too, and perhaps its end: of a newer transfer, or of the same number, as a feed
 * is, and a transfer that is taken up again. */
static const struct next {
	uint64_t transfer;
	int n_end; /* 2: and nobody will repair it */
} nexts[] = {{2, 0}, {2, 1}, {2, 2}, {1, 0}, {1, 1}, {1, 2}};
static const struct next *next;

static void with_the_next_at_once(struct fx_agent *a)
{
	install_and_give_up(a);
	fx_agent_begin(a, next->transfer);
	if (next->n_end) {
		fx_agent_end(a, next->transfer, WB_APP_END_TORN, "worker-y did not begin");
		if (next->n_end == 2)
			fx_agent_end(
				a, next->transfer, WB_APP_END_TORN_FINAL, "nobody repaired it");
		pthread_barrier_wait(&turn);
		pthread_barrier_wait(&turn);
		fx_agent_begin(a, 3);
	} else {
		pthread_barrier_wait(&turn);
	}
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, 0);
	fx_agent_end(a, next->n_end ? 3 : next->transfer, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

/* Its copy is long, and its engine goes on without it: the next update waits for the copy, and what
 * has ended meanwhile does not begin. */
START_TEST(the_next_update_waits_for_a_copy_that_was_given_up)
{
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	next = &nexts[_i];
	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, with_the_next_at_once);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = worker(&o);
	while (!wb_client_poll(c))
		;
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	pthread_barrier_wait(&turn);
	if (next->n_end) {
		ck_assert_int_eq(wb_client_update_step(c, 0, &u, &err),
			next->n_end == 2 ? WB_ETORN : -EAGAIN);
		pthread_barrier_wait(&turn);
	}
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_uint_eq(u.transfer, next->n_end ? 3 : next->transfer);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_AFTER);
	ck_assert_int_eq(wb_client_update_resumed(c, 0, NULL, &err), 0);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* ---- what is in the area -------------------------------------------------------------------- */

/* An update by @transfer, up to BEGUN. */
static void begin_staged(struct fx_agent *a, uint64_t transfer)
{
	struct wb_msg_app_begin begin = {
		.transfer = transfer, .version = (int64_t)transfer * 10, .staged = true};

	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_send(a, WBP_APP_BEGIN, &begin);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, 0);
}

static void up_with_area(struct fx_agent *a)
{
	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_attached(a);
	send_area(a);
	fx_agent_planned(a);
}

static void stage(uint64_t transfer, enum wb_area_state state)
{
	memset(staged, 0x5a, BYTES);
	area->transfer = transfer;
	wb_area_set(area, state);
}

/* INSTALL of transfer 3, with what else is said and what is in the area. */
static const struct install {
	uint64_t asked, transfer; /* of INSTALL, of the area */
	enum wb_area_state state;
	bool read_back, flip;
	int code; /* of INSTALLED */
	uint32_t mismatched;
	bool is_copied;
} installs[] = {
	{3, 3, WB_AREA_WHOLE, false, false, 0, 0, true},
	{3, 3, WB_AREA_WHOLE, true, false, 0, 0, true},
	{3, 3, WB_AREA_WHOLE, true, true, 0, 1, true}, /* found, and copied again */
	{4, 4, WB_AREA_WHOLE, false, false, -EAGAIN, 0, false}, /* not the one that it is in */
	{3, 4, WB_AREA_WHOLE, false, false, WB_ESTALE, 0, false},
	{3, 3, WB_AREA_EMPTY, false, false, WB_ESTALE, 0, false},
	{3, 3, WB_AREA_FILLING, false, false, WB_ESTALE, 0, false},
};
static int which, is_seen;

static void script_install(struct fx_agent *a)
{
	const struct install *x = &installs[which];
	struct wb_msg_app_install install = {
		.transfer = x->asked, .version = 30, .read_back = x->read_back, .flip = x->flip};
	const struct wb_msg_app_installed *m;

	up_with_area(a);
	stage(x->transfer, x->state);
	begin_staged(a, 3);
	fx_agent_send(a, WBP_APP_INSTALL, &install);
	m = &fx_agent_expect(a, WBP_APP_INSTALLED)->app_installed;
	ck_assert_int_eq(m->code, x->code);
	ck_assert_uint_eq(m->mismatched, x->mismatched);
	ck_assert_int_eq(wb_area_state(area), x->is_copied ? WB_AREA_INSTALLED : x->state);
	__atomic_store_n(&is_seen, 1, __ATOMIC_RELEASE);
	fx_agent_wait_closed(a);
}

static struct wb_client *come_to_begun(struct fx_script *s, void (*script_of)(struct fx_agent *))
{
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;
	struct wb_error err;

	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(s, script_of);
	o = fx_opts(&s->a, WB_CLIENT_ROLLOUT);
	c = worker(&o);
	while (!wb_client_poll(c))
		;
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	return c;
}

/* A parameter on a GPU. */
static void put_on_gpu(void)
{
	uint8_t zeros[BYTES] = {0};

	ck_assert_int_eq(fx_cuda_driver(0)->mem_alloc(&on_gpu, BYTES), 0);
	fx_cuda_write(on_gpu, zeros, BYTES);
}

static void is_installed(const struct install *x)
{
	uint8_t want[BYTES], got[BYTES], *is = params;
	struct wb_client_update u;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	which = (int)(x - installs);
	is_seen = 0;
	memset(params, 0, BYTES);
	c = come_to_begun(&s, script_install);
	while (!__atomic_load_n(&is_seen, __ATOMIC_ACQUIRE)) /* nothing ends this update */
		ck_assert_int_eq(wb_client_update_step(c, 1000000, &u, &err), -EAGAIN);
	memset(want, x->is_copied ? 0x5a : 0, BYTES);
	if (on_gpu)
		fx_cuda_read(is = got, on_gpu, BYTES);
	ck_assert_mem_eq(is, want, BYTES);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}

START_TEST(only_what_is_whole_and_of_this_transfer_is_installed)
{
	is_installed(&installs[_i]);
}
END_TEST

START_TEST(a_parameter_on_a_gpu_is_installed_alike)
{
	struct fakecuda_counts n;

	put_on_gpu();
	is_installed(&installs[_i]);
	fx_cuda()->count(&n);
	ck_assert(!n.streams && !n.pinned); /* with the client all is gone */
}
END_TEST

static void script_failure(struct fx_agent *a)
{
	struct wb_msg_app_install install = {.transfer = 3, .version = 30};

	up_with_area(a);
	stage(3, WB_AREA_WHOLE);
	begin_staged(a, 3);
	fx_cuda_do("fail cuLaunchKernel 719 1");
	fx_agent_send(a, WBP_APP_INSTALL, &install);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_INSTALLED)->app_installed.code, -EIO);
	ck_assert_int_eq(wb_area_state(area), WB_AREA_INSTALLING); /* perhaps a mix */
	__atomic_store_n(&is_seen, 1, __ATOMIC_RELEASE);
	fx_agent_wait_closed(a);
}

START_TEST(an_install_that_a_gpu_fails_is_told_of)
{
	struct wb_client_update u;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	is_seen = 0;
	put_on_gpu();
	c = come_to_begun(&s, script_failure);
	while (!__atomic_load_n(&is_seen, __ATOMIC_ACQUIRE))
		ck_assert_int_eq(wb_client_update_step(c, 1000000, &u, &err), -EAGAIN);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_begun(struct fx_agent *a)
{
	up_with_area(a);
	begin_staged(a, 3);
	fx_agent_wait_closed(a);
}

START_TEST(a_forked_child_leaves_an_area_of_its_parents_gpu_alone)
{
	struct fakecuda_counts n;
	struct wb_client *c;
	struct fx_script s;
	pid_t pid;
	int st;

	put_on_gpu();
	c = come_to_begun(&s, script_begun);
	fx_cuda()->count(&n);
	ck_assert_int_gt(n.streams, 0); /* the install's */
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

/* ---- an agent that was restarted meanwhile -------------------------------------------------- */

static void script_restart(struct fx_agent *a)
{
	struct wb_msg_app_install install = {.transfer = 3, .version = 30};

	up_with_area(a);
	stage(3, WB_AREA_WHOLE);
	begin_staged(a, 3);
	fx_agent_send(a, WBP_APP_INSTALL, &install);
	fx_agent_drop(a);
	pthread_barrier_wait(&turn); /* only now the worker looks */
	fx_agent_up(a);
	pthread_barrier_wait(&turn);
	begin_staged(a, 4); /* PARKED is the first that it hears */
	fx_agent_end(a, 4, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

/* The copy is made all the same, since the decision stands; the new agent has not asked for it. */
START_TEST(a_restarted_agent_is_not_told_of_an_install_that_it_did_not_ask_for)
{
	struct wb_client_update u;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	c = come_to_begun(&s, script_restart);
	pthread_barrier_wait(&turn);
	ck_assert_msg(!wb_client_wait_planned(c, 5 * S, NULL, NULL, NULL, &err), "%s", err.msg);
	pthread_barrier_wait(&turn);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_uint_eq(u.transfer, 4);
	ck_assert(u.torn);
	ck_assert_int_eq(((uint8_t *)params)[BYTES - 1], 0x5a);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_AFTER);
	ck_assert_int_eq(wb_client_update_resumed(c, 0, NULL, &err), 0);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_refill(struct fx_agent *a)
{
	struct wb_msg_app_install install = {.transfer = 3, .version = 30};

	up_with_area(a);
	stage(3, WB_AREA_WHOLE);
	begin_staged(a, 3);
	fx_agent_send(a, WBP_APP_INSTALL, &install);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_INSTALLED)->app_installed.code, WB_ESTALE);
	ck_assert_int_eq(wb_area_state(area), WB_AREA_FILLING);
	__atomic_store_n(&is_seen, 1, __ATOMIC_RELEASE);
	fx_agent_wait_closed(a);
}

/* The first write of the copy comes here: an agent begins to fill the area anew under it. */
static void refill(int sig)
{
	(void)sig;
	wb_area_set(area, WB_AREA_FILLING);
	if (mprotect(params, 4096, PROT_READ | PROT_WRITE))
		abort();
}

START_TEST(what_is_filled_anew_during_the_copy_is_not_installed)
{
	struct sigaction sa = {.sa_handler = refill}, was;
	struct wb_client_update u;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	is_seen = 0;
	params = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(params != MAP_FAILED);
	ck_assert_int_eq(sigaction(SIGSEGV, &sa, &was), 0);
	c = come_to_begun(&s, script_refill);
	while (!__atomic_load_n(&is_seen, __ATOMIC_ACQUIRE))
		ck_assert_int_eq(wb_client_update_step(c, 1000000, &u, &err), -EAGAIN);
	ck_assert_int_eq(sigaction(SIGSEGV, &was, NULL), 0);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
	munmap(params, 4096);
	params = fx_heap;
}
END_TEST

/* ---- memory that goes and comes ------------------------------------------------------------- */

static void script_acquire(struct fx_agent *a)
{
	struct wb_msg_app_mem_released released = {0, NULL};
	struct wb_msg_app_mem_acquired acquired = {0};
	struct wb_msg_app_install install = {.transfer = 3, .version = 30};

	up_with_area(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &released);
	fx_agent_expect(a, WBP_APP_MEM_ACQUIRE);
	fx_agent_send(a, WBP_APP_MEM_ACQUIRED, &acquired);
	send_area(a);
	stage(3, WB_AREA_WHOLE);
	begin_staged(a, 3);
	fx_agent_send(a, WBP_APP_INSTALL, &install);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_INSTALLED)->app_installed.code, 0);
	__atomic_store_n(&is_seen, 1, __ATOMIC_RELEASE);
	fx_agent_wait_closed(a);
}

/* It was given an area for memory of the host, and gets another one. */
START_TEST(a_staged_worker_acquires_memory_of_a_gpu)
{
	struct wb_client_mem mem = {WB_CLIENT_MEM_DEVICE, 0, -1, NULL, BYTES};
	struct wb_client_param at = {0, 0};
	struct wb_client_acquire q = {
		.size = sizeof(q), .mem = &mem, .n_mem = 1, .param = &at, .n_param = 1};
	uint8_t want[BYTES], got[BYTES];
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;
	struct wb_error err;
	struct fx_script s;

	is_seen = 0;
	fx_script_start(&s, script_acquire);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = worker(&o);
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	put_on_gpu();
	mem.base = (void *)(uintptr_t)on_gpu;
	ck_assert_msg(!wb_client_acquire_memory(c, &q, 5 * S, &err), "%s", err.msg);
	while (!wb_client_poll(c))
		;
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	while (!__atomic_load_n(&is_seen, __ATOMIC_ACQUIRE))
		ck_assert_int_eq(wb_client_update_step(c, 1000000, &u, &err), -EAGAIN);
	memset(want, 0x5a, BYTES);
	fx_cuda_read(got, on_gpu, BYTES);
	ck_assert_mem_eq(got, want, BYTES);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client_install");
	TCase *t = tcase_create("client_install");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, given_up_before_its_copy_is_torn_and_repaired);
	tcase_add_loop_test(t, the_next_update_waits_for_a_copy_that_was_given_up, 0,
		(int)(sizeof(nexts) / sizeof(nexts[0])));
	tcase_add_loop_test(t, only_what_is_whole_and_of_this_transfer_is_installed, 0,
		(int)(sizeof(installs) / sizeof(installs[0])));
	tcase_add_test(t, a_restarted_agent_is_not_told_of_an_install_that_it_did_not_ask_for);
	tcase_add_test(t, what_is_filled_anew_during_the_copy_is_not_installed);
	tcase_add_loop_test(t, a_parameter_on_a_gpu_is_installed_alike, 0,
		(int)(sizeof(installs) / sizeof(installs[0])));
	tcase_add_test(t, an_install_that_a_gpu_fails_is_told_of);
	tcase_add_test(t, a_forked_child_leaves_an_area_of_its_parents_gpu_alone);
	tcase_add_test(t, a_staged_worker_acquires_memory_of_a_gpu);
	suite_add_tcase(s, t);
	return fx_run(s);
}
