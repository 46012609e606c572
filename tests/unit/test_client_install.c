/* SPDX-License-Identifier: Apache-2.0 */
/* The client library while it copies its staging area: what else may come meanwhile. */
#include "base/buf.h"
#include "base/mem.h"
#include "lane/area.h"
#include "mem/mem.h"
#include "planner/map.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define S 1000000000ull
#define BYTES sizeof(fx_heap)

/* One tensor, one parameter that is all of it. */
static struct wb_client *worker(const struct wb_client_opts *o)
{
	struct wb_tensor t = {
		.name = (char[]){"w"}, .dtype = WB_BF16, .ndim = 2, .shape = {2, BYTES / 4}};
	struct wb_client_mem mem = {WB_CLIENT_MEM_HEAP, 0, -1, fx_heap, BYTES};
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

static void send_area(struct fx_agent *a)
{
	uint64_t bytes = BYTES, all = wb_area_layout(&bytes, 1, NULL);
	struct wb_msg_app_area m = {.bytes = all};
	int fd = wb_memfd_create("area", all, NULL);

	fx_agent_send_fds(a, WBP_APP_AREA, &m, &fd, 1);
	close(fd);
}

static pthread_barrier_t turn;

static void script(struct fx_agent *a)
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

int main(void)
{
	Suite *s = suite_create("client_install");
	TCase *t = tcase_create("client_install");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, given_up_before_its_copy_is_torn_and_repaired);
	suite_add_tcase(s, t);
	return fx_run(s);
}
