/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/mem.h"
#include "client/seq.h"
#include "lane/lane.h"
#include "mem/mem.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define S 1000000000ull

static void says(const struct wb_error *err, const char *part)
{
	ck_assert_msg(strstr(err->msg, part) != NULL, "\"%s\" is not in: %s", part, err->msg);
}

/* ---- open and attach ---- */

START_TEST(options_out_of_range_are_einval)
{
	struct fx_agent a;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_agent_name(&a);
	o = fx_opts(&a, 3);
	ck_assert_int_eq(wb_client_open(&o, &c, &err), -EINVAL);
	o = fx_opts(&a, WB_CLIENT_TRAINER);
	o.size = 8;
	ck_assert_int_eq(wb_client_open(&o, &c, &err), -EINVAL);
	o = fx_opts(&a, WB_CLIENT_TRAINER);
	o.sender_staging = 9;
	ck_assert_int_eq(wb_client_open(&o, &c, &err), -EINVAL);
	o = fx_opts(&a, WB_CLIENT_TRAINER);
	o.rank = -7;
	ck_assert_int_eq(wb_client_open(&o, &c, &err), -EINVAL);
	ck_assert_int_eq(wb_client_open(NULL, &c, NULL), -EINVAL);
	ck_assert_ptr_null(c);
	ck_assert_int_eq(wb_client_close(NULL, 0, NULL), 0);
}
END_TEST

START_TEST(missing_agent_is_etimedout_naming_the_socket)
{
	struct fx_agent a;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_agent_name(&a);
	o = fx_opts(&a, WB_CLIENT_TRAINER);
	o.connect_timeout = 60 * MS;
	ck_assert_int_eq(wb_client_open(&o, &c, &err), -ETIMEDOUT);
	says(&err, a.path);
	says(&err, "No such file");
	says(&err, " s (connect_timeout)");
}
END_TEST

static char late_name[32]; /* as agent and worker name */

static void script_hello_attach(struct fx_agent *a)
{
	struct wb_msg_app_attach *at;
	struct wb_msg_app_hello *h;
	uint32_t table[2 * 4 + 6];
	char build[WB_BUILD_TEXT];
	struct stat st;

	fx_agent_accept(a);
	h = &fx_agent_expect(a, WBP_APP_HELLO)->app_hello;
	ck_assert_uint_eq(h->proto_max, WBP_VERSION_MAX);
	ck_assert_str_eq(
		h->lib_version, wb_build_text(WB_VERSION, WBP_VERSION_MIN, WBP_VERSION_MAX, build));
	ck_assert_uint_eq(h->pid, (uint32_t)getpid());
	snprintf(late_name, sizeof(late_name), "agent");
	fx_agent_send(a, WBP_APP_WELCOME, &(struct wb_msg_app_welcome){1, build, late_name, false});
	at = &fx_agent_expect(a, WBP_APP_ATTACH)->app_attach;
	ck_assert_str_eq(at->object, "ns/wt");
	ck_assert_str_eq(at->engine, "e0");
	ck_assert_uint_eq(at->role, WB_CLIENT_ROLLOUT);
	ck_assert_int_eq(at->rank, 0);
	ck_assert_uint_eq(at->n_mem, 1);
	ck_assert_uint_eq(at->n_param, 2);
	ck_assert_uint_eq(a->n_fd, 3);
	ck_assert_uint_eq(at->table_bytes, 24 + 2 * 16);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(fcntl(a->fds[i], F_GET_SEALS),
			F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
		ck_assert(!fstat(a->fds[i], &st));
		ck_assert_uint_eq(st.st_size, i == 0   ? at->manifest_bytes
					      : i == 1 ? at->map_bytes
						       : at->table_bytes);
	}
	ck_assert_int_eq(pread(a->fds[2], table, sizeof(table), 0), sizeof(table));
	ck_assert_uint_eq(table[0], WB_APP_MEM_HEAP);
	ck_assert_uint_eq(table[2], 256); /* bytes, low word */
	ck_assert_uint_eq(table[6 + 4 + 2], 128); /* offset of parameter 1 */
	fx_agent_attached(a);
	fx_agent_send(a, WBP_APP_STATUS,
		&(struct wb_msg_app_status){"waiting for 1 of 4 trainer workers"});
	fx_agent_planned(a);
	fx_agent_expect(a, WBP_APP_DETACH);
}

static void keep(void *cookie, const char *sentence)
{
	snprintf(cookie, 128, "%s", sentence);
}

START_TEST(attach_registers_and_planned_ends_the_wait)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_plan plan;
	struct wb_client_opts o;
	char seen[128] = "";

	fx_script_start(&s, script_hello_attach);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	ck_assert_msg(!wb_client_open(&o, &c, &err), "%s", err.msg);
	ck_assert_int_eq(wb_client_poll(c), -EINVAL); /* not attached */
	ck_assert_int_eq(wb_client_wait_planned(c, 0, NULL, NULL, NULL, &err), -EINVAL);
	ck_assert_msg(!fx_attach(c, &err), "%s", err.msg);
	ck_assert_int_eq(fx_attach(c, &err), -EALREADY);
	ck_assert_str_eq(wb_client_worker(c), "worker-x");
	ck_assert_msg(!wb_client_wait_planned(c, S, keep, seen, &plan, &err), "%s", err.msg);
	ck_assert_str_eq(seen, "waiting for 1 of 4 trainer workers");
	ck_assert_str_eq(wb_client_progress(c), ""); /* nothing any more */
	ck_assert_uint_eq(plan.term, 3);
	ck_assert_uint_eq(plan.number, 5);
	ck_assert_int_eq(plan.version, -1);
	ck_assert_int_eq(wb_client_close(c, 0, &err), 0);
	fx_script_stop(&s);
}
END_TEST

static void script_reject_hello(struct fx_agent *a)
{
	char why[] = "this agent drains: it takes no new worker";

	fx_agent_accept(a);
	fx_agent_expect(a, WBP_APP_HELLO);
	fx_agent_send(a, WBP_APP_REJECT, &(struct wb_msg_app_reject){-EBUSY, why});
	fx_agent_drop(a);
}

START_TEST(reject_is_its_sentence_at_once)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_script_start(&s, script_reject_hello);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert_int_eq(wb_client_open(&o, &c, &err), -EBUSY);
	ck_assert_str_eq(err.msg, "this agent drains: it takes no new worker");
	fx_script_stop(&s);
}
END_TEST

static void script_reject_attach(struct fx_agent *a)
{
	char why[] = "rank 0 of trainers is claimed by worker 3 already";

	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_send(a, WBP_APP_REJECT, &(struct wb_msg_app_reject){-EEXIST, why});
	fx_agent_drop(a);
}

START_TEST(attach_refused_is_its_sentence)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_script_start(&s, script_reject_attach);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert(!wb_client_open(&o, &c, &err));
	ck_assert_int_eq(fx_attach(c, &err), -EEXIST);
	says(&err, "rank 0 of trainers is claimed");
	ck_assert_int_eq(wb_client_close(c, 0, &err), 0);
	fx_script_stop(&s);
}
END_TEST

static void script_other_version(struct fx_agent *a)
{
	char text[] = "9.0";

	fx_agent_accept(a);
	fx_agent_expect(a, WBP_APP_HELLO);
	fx_agent_send(a, WBP_APP_WELCOME,
		&(struct wb_msg_app_welcome){WBP_VERSION_MAX + 1, text, text, false});
	fx_agent_wait_closed(a);
}

START_TEST(other_protocol_version_names_both)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_script_start(&s, script_other_version);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert_int_eq(wb_client_open(&o, &c, &err), WB_CODE_VERSION);
	says(&err, "9.0");
	says(&err, WB_VERSION);
	fx_script_stop(&s);
}
END_TEST

static void script_other_build(struct fx_agent *a)
{
	char text[] = "0.0.9";

	fx_agent_accept(a);
	fx_agent_expect(a, WBP_APP_HELLO);
	fx_agent_send(a, WBP_APP_WELCOME, &(struct wb_msg_app_welcome){2, text, text, false});
	fx_agent_wait_closed(a);
}

START_TEST(agent_of_another_build_is_eversion_with_both_names)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_opts o;

	fx_script_start(&s, script_other_build);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert_int_eq(wb_client_open(&o, &c, &err), WB_CODE_VERSION);
	says(&err, "the agent is build 0.0.9, this library is " WB_VERSION "+");
	says(&err, "take both from one release");
	fx_script_stop(&s);
}
END_TEST

static const struct {
	const char *bytes;
	size_t n;
} garbage[] = {{"GET / HTTP/1.1\r\n\r\n", 18}, {"x", 1},
	{"WBP1\x01\x00\x07\x01\xff\xff\xff\x7f\0\0\0\0", 16}, /* PLANNED, length a lie */
	{"WBP1\x01\x00\x0b\x01\x00\x00\x00\x00\0\0\0\0", 16}, /* GO out of place */
	{"WBP1\x01\x00\x02\x01\x04\x00\x00\x00\0\0\0\0\1\0\0\0", 20}}; /* WELCOME, truncated */

static int garbage_at;

static void script_garbage(struct fx_agent *a)
{
	fx_agent_accept(a);
	fx_agent_expect(a, WBP_APP_HELLO);
	fx_agent_send_bytes(a, garbage[garbage_at].bytes, garbage[garbage_at].n);
	fx_agent_wait_closed(a);
	fx_agent_up(a); /* the worker comes back */
	fx_agent_wait_closed(a);
}

START_TEST(garbage_costs_the_connection_and_nothing_else)
{
	struct fx_script s;
	struct wb_client *c;
	struct wb_client_opts o;

	garbage_at = _i;
	fx_script_start(&s, script_garbage);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void *listen_late(void *arg)
{
	struct fx_agent *a = arg;

	nanosleep(&(struct timespec){0, 50 * MS}, NULL);
	fx_agent_listen(a);
	fx_agent_up(a);
	fx_agent_wait_closed(a);
	return NULL;
}

START_TEST(agent_that_starts_later_is_waited_for)
{
	struct fx_agent a;
	struct wb_client_opts o;
	pthread_t t;

	fx_agent_name(&a);
	ck_assert(!pthread_create(&t, NULL, listen_late, &a));
	o = fx_opts(&a, WB_CLIENT_TRAINER);
	wb_client_close(fx_worker(&o), 0, NULL);
	pthread_join(t, NULL);
	fx_agent_stop(&a);
}
END_TEST

static void script_never_planned(struct fx_agent *a)
{
	char text[] = "waiting for trainer-1 (pod t-1), which has not attached";

	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_attached(a);
	fx_agent_send(a, WBP_APP_STATUS, &(struct wb_msg_app_status){text});
	fx_agent_wait_closed(a);
}

static void script_cannot_plan(struct fx_agent *a)
{
	char why[] = "waiting for 1 of 2 trainer workers, and planDeadlineSeconds are over";

	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_attached(a);
	fx_agent_send(a, WBP_APP_REJECT, &(struct wb_msg_app_reject){-ETIMEDOUT, why});
	fx_agent_drop(a); /* and nobody comes back: accept() would see it */
}

START_TEST(a_worker_that_cannot_be_planned_hears_why_at_once)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_script_start(&s, script_cannot_plan);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert(!wb_client_open(&o, &c, &err) && !fx_attach(c, &err));
	ck_assert_int_eq(
		wb_client_wait_planned(c, WB_FOREVER, NULL, NULL, NULL, &err), -ECONNREFUSED);
	says(&err, "waiting for 1 of 2 trainer workers, and planDeadlineSeconds are over");
	ck_assert_int_eq(wb_client_wait_planned(c, S, NULL, NULL, NULL, &err), -ECONNREFUSED);
	says(&err, "planDeadlineSeconds");
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

START_TEST(plan_timeout_repeats_the_agents_last_word)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_opts o;

	fx_script_start(&s, script_never_planned);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert(!wb_client_open(&o, &c, &err) && !fx_attach(c, &err));
	ck_assert_int_eq(wb_client_wait_planned(c, 60 * MS, NULL, NULL, NULL, &err), -ETIMEDOUT);
	says(&err, "trainer-1 (pod t-1), which has not attached");
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_hello_only(struct fx_agent *a)
{
	fx_agent_hello(a);
	fx_agent_wait_closed(a);
}

START_TEST(attach_that_cannot_work_is_refused_here)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	char heap[64];
	int fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int never = memfd_create("unsealed", MFD_CLOEXEC);
	struct wb_client_mem mem[WB_CLIENT_MEMFDS_MAX + 1];
	struct wb_client_param param = {0, 0};
	struct wb_client_attach at = {.size = sizeof(at),
		.manifest = "m",
		.manifest_bytes = 1,
		.map = "m",
		.map_bytes = 1,
		.mem = mem,
		.n_mem = 1,
		.param = &param,
		.n_param = 1};
	struct wb_client_opts o;

	fx_script_start(&s, script_hello_only);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert(!wb_client_open(&o, &c, &err));
	mem[0] = (struct wb_client_mem){WB_CLIENT_MEM_MEMFD, 0, never, heap, sizeof(heap)};
	ck_assert_int_eq(wb_client_attach(c, &at, &err), -EPERM);
	says(&err, "cannot be sealed");
	mem[0].fd = fd;
	ck_assert(!ftruncate(fd, 32));
	ck_assert_int_eq(wb_client_attach(c, &at, &err), -EINVAL);
	says(&err, "32 bytes long");
	ck_assert(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
	mem[0].bytes = 32;
	param.offset = 32;
	ck_assert_int_eq(wb_client_attach(c, &at, &err), -EINVAL);
	says(&err, "parameter 0 lies outside");
	param.offset = 0;
	for (int i = 1; i <= WB_CLIENT_MEMFDS_MAX; i++)
		mem[i] = mem[0];
	at.n_mem = WB_CLIENT_MEMFDS_MAX + 1;
	ck_assert_int_eq(wb_client_attach(c, &at, &err), -EINVAL);
	says(&err, "fewer pools");
	mem[0].kind = 7;
	ck_assert_int_eq(wb_client_attach(c, &at, &err), -EINVAL);
	at.n_mem = 0;
	ck_assert_int_eq(wb_client_attach(c, &at, &err), -EINVAL);
	wb_client_close(c, 0, NULL);
	close(fd);
	close(never);
	fx_script_stop(&s);
}
END_TEST

static int many_fd;

static void script_memfds(struct fx_agent *a)
{
	struct stat want, got;

	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	ck_assert_uint_eq(a->n_fd, 3 + WB_CLIENT_MEMFDS_MAX);
	ck_assert(!fstat(many_fd, &want) && !fstat(a->fds[3], &got));
	ck_assert_uint_eq(want.st_ino, got.st_ino);
	fx_agent_attached(a);
	fx_agent_wait_closed(a);
}

START_TEST(memfds_travel_with_attach)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c = NULL;
	struct wb_client_mem mem[WB_CLIENT_MEMFDS_MAX];
	struct wb_client_param param = {WB_CLIENT_MEMFDS_MAX - 1, 16};
	struct wb_client_attach at = {.size = sizeof(at),
		.manifest = "m",
		.manifest_bytes = 1,
		.map = "m",
		.map_bytes = 1,
		.mem = mem,
		.n_mem = WB_CLIENT_MEMFDS_MAX,
		.param = &param,
		.n_param = 1};
	struct wb_client_opts o;

	many_fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert(!ftruncate(many_fd, 4096) && !fcntl(many_fd, F_ADD_SEALS, F_SEAL_SHRINK));
	for (int i = 0; i < WB_CLIENT_MEMFDS_MAX; i++)
		mem[i] = (struct wb_client_mem){WB_CLIENT_MEM_MEMFD, 0, many_fd, &s, 4096};
	fx_script_start(&s, script_memfds);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	ck_assert(!wb_client_open(&o, &c, &err));
	ck_assert_msg(!wb_client_attach(c, &at, &err), "%s", err.msg);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
	close(many_fd);
}
END_TEST

static pthread_barrier_t both;

static void script_lane(struct fx_agent *a)
{
	struct wb_lane_remote_fds lane_fds;
	struct wb_lane_job job = {.kind = WB_LANE_ASSEMBLE};
	struct wbk_box box = {.wire_off = 8,
		.mem_off = 128,
		.row_stride = 4,
		.col_stride = 4,
		.n_row = 1,
		.n_col = 4,
		.repeat = 1,
		.wire_elem = 4,
		.mem_elem = 4,
		.pos_col_stride = 4,
		.pos_row_stride = 16};
	struct wb_lane *lane, *old = NULL;
	struct wb_err err = {0};
	int arena_fd = wb_memfd_create("slots", 4096, &err);
	float *arena = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd, 0);

	for (int i = 0; i < 4; i++)
		arena[2 + i] = (float)(i + 1);
	for (int round = 0; round < 2; round++) { /* again after a restart */
		ck_assert_msg(!wb_lane_create_remote(NULL, arena, 4096, &lane, &lane_fds, &err),
			"%s", err.msg);
		fx_agent_hello(a);
		fx_agent_expect(a, WBP_APP_ATTACH);
		fx_agent_page(a);
		fx_agent_send_fds(a, WBP_APP_ATTACHED,
			&(struct wb_msg_app_attached){7, "worker-x", WB_APP_LANE_WORKER},
			(int[]){a->page_fd, lane_fds.shared, lane_fds.submit, lane_fds.complete,
				arena_fd},
			5);
		fx_agent_planned(a);
		job.box = &box;
		job.n_box = 1;
		job.wire = arena + 0;
		job.wire_bytes = 4096;
		if (old) { /* nothing is done any more for an agent that is gone */
			struct pollfd p = {.fd = wb_lane_fd(old), .events = POLLIN};

			ck_assert_int_eq(wb_lane_submit(old, &job), 0);
			ck_assert_int_eq(poll(&p, 1, 50), 0);
		}
		ck_assert_int_eq(wb_lane_submit(lane, &job), 0);
		for (int n = 0; !n;) {
			struct pollfd p = {.fd = wb_lane_fd(lane), .events = POLLIN};

			ck_assert_int_eq(poll(&p, 1, 10000), 1);
			n = wb_lane_reap(lane, &job, 1);
		}
		ck_assert_int_eq(job.rc, 0);
		pthread_barrier_wait(&both);
		if (round)
			fx_agent_wait_closed(a);
		fx_agent_drop(a);
		if (!round)
			pthread_barrier_wait(&both);
		wb_lane_destroy(old);
		old = lane;
		arena[2] = 10;
		box.mem_off = 0;
	}
	wb_lane_destroy(old);
	munmap(arena, 4096);
	close(arena_fd);
}

START_TEST(worker_packs_and_assembles_where_the_agent_cannot)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client_opts o;
	struct wb_client *c;
	pid_t pid;
	int st;

	pthread_barrier_init(&both, NULL, 2);
	fx_script_start(&s, script_lane);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	pthread_barrier_wait(&both);
	pthread_barrier_wait(&both); /* the first agent is gone */
	ck_assert_msg(!wb_client_wait_planned(c, 5 * S, NULL, NULL, NULL, &err), "%s", err.msg);
	ck_assert_float_eq(fx_heap[32], 1);
	ck_assert_float_eq(fx_heap[35], 4);
	ck_assert_float_eq(fx_heap[36], 0);
	pthread_barrier_wait(&both);
	pid = fork(); /* a child without the lane's thread closes */
	if (!pid)
		_exit(wb_client_close(c, 0, NULL));
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	wb_client_close(c, 0, NULL);
	ck_assert_float_eq(fx_heap[0], 10);
	ck_assert_float_eq(fx_heap[3], 4);
	fx_script_stop(&s);
}
END_TEST

START_TEST(failed_allocation_leaves_nothing_behind)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_opts o;
	int rc = -ENOMEM;

	/* connect_timeout bounds the tries whose messages cannot be encoded */
	fx_agent_start(&s.a);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	o.connect_timeout = 1;
	for (uint64_t n = 1; rc != -ETIMEDOUT || wb_mem_failed(); n++) {
		c = NULL;
		wb_mem_fail_at(n);
		rc = wb_client_open(&o, &c, &err);
		ck_assert(rc == -ENOMEM || rc == -ETIMEDOUT);
		ck_assert_ptr_null(c);
		ck_assert_uint_lt(n, 100);
	}
	wb_mem_fail_at(0);
	fx_agent_stop(&s.a);
}
END_TEST

START_TEST(datagram_without_room_is_dropped_whole)
{
	int sv[2], fds[WB__SEQ_FDS_MAX];
	char big[512] = "", small[64];
	unsigned n = 9;

	ck_assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv));
	ck_assert_int_eq(wb__client_seq_recv(sv[1], small, sizeof(small), fds, &n), -EAGAIN);
	ck_assert(!wb__client_seq_send(sv[0], big, sizeof(big), &sv[0], 1, 0));
	ck_assert_int_eq(wb__client_seq_recv(sv[1], small, sizeof(small), fds, &n), -EMSGSIZE);
	ck_assert_uint_eq(n, 0);
	while (!wb__client_seq_send(
		sv[0], big, sizeof(big), NULL, 0, 0)) /* until the queue is full */
		;
	ck_assert_int_eq(wb__client_seq_send(sv[0], big, sizeof(big), NULL, 0, 1), -EAGAIN);
	close(sv[1]);
	ck_assert_int_lt(
		wb__client_seq_send(sv[0], big, sizeof(big), NULL, 0, 0), 0); /* no SIGPIPE */
	ck_assert_int_eq(wb__client_seq_recv(sv[0], small, sizeof(small), fds, &n), -ECONNRESET);
	close(sv[0]);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	ck_assert_int_eq(wb_unix_dial(big), -ENAMETOOLONG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client");
	TCase *t = tcase_create("client");

	setenv("WEIGHTBRIDGE_SOCKET", "/nonexistent", 1); /* options must win */
	tcase_set_timeout(t, 30);
	tcase_add_test(t, options_out_of_range_are_einval);
	tcase_add_test(t, missing_agent_is_etimedout_naming_the_socket);
	tcase_add_test(t, attach_registers_and_planned_ends_the_wait);
	tcase_add_test(t, reject_is_its_sentence_at_once);
	tcase_add_test(t, attach_refused_is_its_sentence);
	tcase_add_test(t, a_worker_that_cannot_be_planned_hears_why_at_once);
	tcase_add_test(t, other_protocol_version_names_both);
	tcase_add_test(t, agent_of_another_build_is_eversion_with_both_names);
	tcase_add_loop_test(t, garbage_costs_the_connection_and_nothing_else, 0,
		sizeof(garbage) / sizeof(garbage[0]));
	tcase_add_test(t, agent_that_starts_later_is_waited_for);
	tcase_add_test(t, plan_timeout_repeats_the_agents_last_word);
	tcase_add_test(t, attach_that_cannot_work_is_refused_here);
	tcase_add_test(t, memfds_travel_with_attach);
	tcase_add_test(t, worker_packs_and_assembles_where_the_agent_cannot);
	tcase_add_test(t, failed_allocation_leaves_nothing_behind);
	tcase_add_test(t, datagram_without_room_is_dropped_whole);
	suite_add_tcase(s, t);
	return fx_run(s);
}
