/* SPDX-License-Identifier: Apache-2.0 */
/* Workers whose memory of a GPU an agent imports: what they and the agent say to each other while
 * that takes its time, fails, or ends.  Imports are played; a worker is a socket in this process.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/apps_internal.h"
#include "daemon/env.h"
#include "daemon/oplink.h"
#include "daemon/trace.h"
#include "net/loop.h"
#include "proto/build.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "tests/common/fx_model.h"
#include "weightbridge/version.h"
#include "xport/xport.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARENA ((uint64_t)1 << 20)
#define TURNS 20 /* of the loop: all that was sent is read, and read again */

/* ---- imports, as the test wants them --------------------------------------------------------- */

struct wb__imports {
	struct wb__imports_in in;
	enum wb__imports_state state;
	bool is_stopped, is_there;
};
static struct wb__imports imports[4];
static uint32_t n_begun;
static bool takes_descriptors; /* the next one leaves none to this process */

static void set_descriptors(rlim_t n)
{
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = n ? n : l.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
}

int wb__imports_begin(const struct wb__imports_in *in, struct wb__imports **out, struct wb_err *err)
{
	(void)err;
	ck_assert(n_begun < WB_ARRAY_SIZE(imports));
	*out = &imports[n_begun++];
	**out = (struct wb__imports){.in = *in, .is_there = true};
	if (takes_descriptors)
		set_descriptors(4);
	return 0;
}

enum wb__imports_state wb__imports_state(const struct wb__imports *i)
{
	return i->state;
}

const char *wb__imports_why(const struct wb__imports *i)
{
	(void)i;
	return "";
}

void wb__imports_stop(struct wb__imports *i)
{
	i->is_stopped = true;
}

void wb__imports_destroy(struct wb__imports *i)
{
	if (!i)
		return;
	ck_assert(i->is_there && i->state == WB__IMPORTS_OVER);
	i->is_there = false;
}

static void becomes(uint32_t i, enum wb__imports_state state)
{
	ck_assert(i < n_begun && imports[i].is_there);
	imports[i].state = state;
	imports[i].in.on_change(imports[i].in.cookie);
}

/* ---- what else is around it ------------------------------------------------------------------ */

static struct wb__agent a;
static uint8_t *arena;
static int arena_fd, find_rc, wake_rc;
static unsigned n_wake;

int wb__oplink_find(struct wb__agent *ag, const char *object, const char *model,
	uint32_t *index_out, struct wb_err *err)
{
	(void)ag;
	(void)object;
	(void)model;
	*index_out = 0;
	return find_rc ? wb_err_set(err, find_rc, "a test says so") : 0;
}

void wb__oplink_workers_changed(struct wb__oplink *l)
{
	(void)l;
}

bool wb__oplink_is_suspended(const struct wb__agent *ag, uint32_t index)
{
	(void)ag;
	(void)index;
	return false;
}

void wb__trace_mark(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t value)
{
	(void)t;
	(void)what;
	(void)who;
	(void)transfer;
	(void)value;
}

void *wb__env_arena(const struct wb__env *e, uint32_t index)
{
	(void)e;
	(void)index;
	return arena;
}

uint64_t wb__env_arena_reserve(const struct wb__env *e, uint32_t index)
{
	(void)e;
	(void)index;
	return ARENA;
}

int wb__env_arena_fd(const struct wb__env *e, uint32_t index)
{
	(void)e;
	(void)index;
	return arena_fd;
}

void wb__env_pump(struct wb__env *e)
{
	(void)e;
}

void wb__env_kick(struct wb__env *e)
{
	(void)e;
}

void wb__env_sleep(struct wb__env *e, uint32_t index)
{
	(void)e;
	(void)index;
}

int wb__env_wake(struct wb__env *e, uint32_t index, struct wb_err *err)
{
	(void)e;
	(void)index;
	n_wake++;
	return wake_rc ? wb_err_set(err, wake_rc, "a test says so") : 0;
}

static void to_worker(void *ctx, uint32_t worker, uint16_t type, const void *msg)
{
	(void)ctx;
	(void)worker;
	(void)type;
	(void)msg;
}

/* A transport that knows regions, and refuses them where the test says so. */
static int add_rc;

static int region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *out, struct wb_err *err)
{
	(void)x;
	(void)r;
	*out = 0;
	return add_rc ? wb_err_set(err, add_rc, "a test says so") : 0;
}

static int region_remove(struct wb_xport *x, uint32_t i)
{
	(void)x;
	(void)i;
	return 0;
}

static const struct wb_xport_ops xport_ops = {.name = "regions",
	.caps = WB_XPORT_CAP_REGIONS,
	.region_add = region_add,
	.region_remove = region_remove};
static struct wb_xport xport = {.ops = &xport_ops};

/* ---- a worker -------------------------------------------------------------------------------- */

static char path[108];
static int sock;
static bool is_child; /* the next worker's process is not this one */
static pid_t child; /* 0 = none */
static uint8_t frame[1 << 17];
static union wb_msg got; /* the last one that it heard */
static uint16_t got_type; /* 0 = none yet */

/* All that is on its way is read, and who may go goes. */
static void turn(void)
{
	for (int i = 0; i < TURNS; i++) {
		wb_loop_run_once(a.loop, false);
		wb__apps_reap(a.apps);
	}
}

static void say(uint16_t type, const void *msg, const int *fds, uint32_t n_fd)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, sizeof(frame));
	ck_assert_msg(!wb_msg_encode_bin(&f, msg, &b, &err), "%s", err.msg);
	fx_send(sock, b.data, b.len, fds, n_fd);
	wb_buf_finish(&b);
	turn();
}

static bool is_silent(void)
{
	turn();
	return recv(sock, frame, sizeof(frame), MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

static void forget(void)
{
	if (got_type)
		wb_msg_free(got_type, &got);
	got_type = 0;
}

/* What the agent has said, which is @type. */
static union wb_msg *hear(uint16_t type)
{
	struct wb_err err = {0};
	struct wb_frame f;
	const uint8_t *body;
	ssize_t n;

	turn();
	n = recv(sock, frame, sizeof(frame), MSG_DONTWAIT);
	ck_assert_msg(n > 0, "nothing came, message %#x was to", type);
	ck_assert_msg(!wb_frame_check(frame, (size_t)n, &f, &body, &err), "%s", err.msg);
	forget();
	ck_assert_msg(!wb_msg_decode_bin(&f, body, &got, &err), "%s", err.msg);
	got_type = f.type;
	ck_assert_uint_eq(f.type, type);
	return &got;
}

static int memfd_of(const void *p, size_t bytes)
{
	int fd = memfd_create("w", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, p, bytes), (ssize_t)bytes);
	return fd;
}

/* Memory of the host, and of a GPU with the parameter in it. */
static uint64_t put_table(int *table, int *host)
{
	static const char page[4096];
	const uint64_t bytes[2] = {sizeof(page), MODEL_BYTES};
	struct wb_buf b;
	uint64_t len;

	wb_buf_init(&b, 4096);
	for (int i = 0; i < 2; i++) {
		wb_buf_u32(&b, i ? WB_MEM_HEAP : WB_MEM_MEMFD);
		wb_buf_u32(&b, 0);
		wb_buf_u64(&b, bytes[i]);
		wb_buf_u64(&b, 0x1000);
	}
	wb_buf_u32(&b, 1);
	wb_buf_u32(&b, 0);
	wb_buf_u64(&b, 0);
	*table = memfd_of(b.data, b.len);
	*host = memfd_of(page, sizeof(page));
	len = b.len;
	wb_buf_finish(&b);
	return len;
}

/* It is this process that connects, or a child that does nothing else. */
static void connect_worker(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int status = 0;

	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(sock, 0);
	memcpy(at.sun_path, path, sizeof(path));
	if (!is_child) {
		ck_assert_int_eq(connect(sock, (struct sockaddr *)&at, sizeof(at)), 0);
		return;
	}
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (connect(sock, (struct sockaddr *)&at, sizeof(at)))
			_exit(1);
		close(sock);
		raise(SIGSTOP);
		pause();
	}
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
}

static void end_child(void)
{
	if (child > 0) {
		kill(child, SIGKILL);
		ck_assert_int_eq(waitpid(child, NULL, 0), child);
	}
	child = 0;
}

/* Its memory is being imported. */
static void comes(void)
{
	char build[WB_BUILD_TEXT];
	struct wb_msg_app_hello h = {
		.proto_min = WBP_VERSION_MIN, .proto_max = WBP_VERSION_MAX, .lib_version = build};
	struct wb_msg_app_attach m = {.object = (char[]){"one"},
		.model = (char[]){"m"},
		.role = WB_ROLE_TRAINER,
		.manifest_bytes = manifest_bytes.len,
		.map_bytes = map_bytes.len,
		.n_mem = 2,
		.n_param = 1,
		.export_bytes = 8,
		.export_fds = 1};
	int fds[5];

	connect_worker();
	wb_build_text(WB_VERSION, WBP_VERSION_MIN, WBP_VERSION_MAX, build);
	say(WBP_APP_HELLO, &h, NULL, 0);
	ck_assert(hear(WBP_APP_WELCOME)->app_welcome.imports);
	fds[0] = memfd_of(manifest_bytes.data, manifest_bytes.len);
	fds[1] = memfd_of(map_bytes.data, map_bytes.len);
	m.table_bytes = put_table(&fds[2], &fds[3]);
	fds[4] = memfd_of("8 bytes.", 8);
	say(WBP_APP_ATTACH, &m, fds, 5);
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	ck_assert(is_silent());
	ck_assert_uint_eq(n_begun, 1);
}

static void attaches(void)
{
	comes();
	becomes(0, WB__IMPORTS_WORKING);
	ck_assert_uint_eq(hear(WBP_APP_ATTACHED)->app_attached.lane, WB_APP_LANE_AGENT);
}

static void falls_asleep(void)
{
	struct wb_msg_app_mem_release m = {0};
	struct wb_err err = {0};

	attaches();
	ck_assert_int_eq(wb__worker_regions_add(wb__apps_first(a.apps), 11, &err), 0);
	say(WBP_APP_MEM_RELEASE, &m, NULL, 0);
	ck_assert(is_silent() && imports[0].is_stopped);
	becomes(0, WB__IMPORTS_OVER);
	ck_assert_int_eq(hear(WBP_APP_MEM_RELEASED)->app_mem_released.code, 0);
}

static void acquires(void)
{
	struct wb_msg_app_mem_acquire m = {
		.n_mem = 2, .n_param = 1, .export_bytes = 8, .export_fds = 1};
	int fds[3];

	m.table_bytes = put_table(&fds[0], &fds[1]);
	fds[2] = memfd_of("8 bytes.", 8);
	say(WBP_APP_MEM_ACQUIRE, &m, fds, 3);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

/* Import @i is all that there is of it: it hears nothing before that is gone, and then @type. */
static union wb_msg *hears_when_let_go(uint32_t i, uint16_t type)
{
	ck_assert_msg(imports[i].is_there && imports[i].is_stopped, "it is held on to");
	ck_assert_msg(is_silent(), "it heard of it while its memory was here");
	becomes(i, WB__IMPORTS_OVER);
	hear(type);
	ck_assert(!imports[i].is_there);
	return &got;
}

/* ---- fixture --------------------------------------------------------------------------------- */

static void set_up(void)
{
	static const struct wb_transfer_env env = {
		.clock = &wb_clock_real, .xport = &xport, .to_worker = to_worker};
	static char name[] = "a";
	const char *dir = getenv("TMPDIR");
	struct wb_transfer_opts o = {.agent = name};
	struct wb_err err = {0};

	wb_log_level_max = -1;
	snprintf(path, sizeof(path), "%s/lanes-%d.sock", dir ? dir : "/tmp", (int)getpid());
	make_model();
	/* One process may run all of these, one after the other. */
	n_begun = n_wake = 0;
	find_rc = wake_rc = add_rc = 0;
	takes_descriptors = is_child = false;
	memset(&a, 0, sizeof(a));
	a.o.name = name;
	a.o.socket = path;
	a.o.n_served = 1;
	a.o.imports = true;
	a.xport = &xport;
	sock = -1;
	arena_fd = wb_memfd_create("slots", ARENA, &err);
	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd, 0);
	ck_assert_ptr_ne(arena, MAP_FAILED);
	ck_assert_int_eq(wb_loop_create(&a.loop, &err), 0);
	ck_assert_int_eq(wb_transfer_create(&o, &env, &a.core, &err), 0);
	ck_assert_msg(!wb__apps_start(&a, &a.apps, &err), "%s", err.msg);
}

/* Whatever was imported is let go of in the end. */
static void tear_down(void)
{
	end_child();
	forget();
	close(sock);
	wb__apps_close(a.apps);
	turn();
	for (uint32_t i = 0; i < n_begun; i++) {
		ck_assert(!imports[i].is_there || imports[i].is_stopped);
		if (imports[i].is_there)
			becomes(i, WB__IMPORTS_OVER);
	}
	turn();
	ck_assert(wb__apps_is_empty(a.apps));
	for (uint32_t i = 0; i < n_begun; i++)
		ck_assert(!imports[i].is_there);
	wb__apps_destroy(a.apps);
	wb_transfer_destroy(a.core);
	wb_loop_destroy(a.loop);
	free_model();
	munmap(arena, ARENA);
	close(arena_fd);
}

/* ---- memory that comes back ------------------------------------------------------------------ */

/* Slots have no pages (0), it cannot be waited for (1), or the transport cannot know it (2). */
START_TEST(a_worker_hears_that_its_memory_is_not_taken_when_nothing_of_it_is_here)
{
	falls_asleep();
	takes_descriptors = _i == 1;
	acquires();
	takes_descriptors = false;
	set_descriptors(0);
	ck_assert_uint_eq(n_begun, 2);
	wake_rc = _i == 0 ? -ENOMEM : 0;
	add_rc = _i == 2 ? -EMFILE : 0;
	if (_i != 1)
		becomes(1, WB__IMPORTS_WORKING);
	hears_when_let_go(1, WBP_APP_MEM_ACQUIRED);
	ck_assert_int_eq(got.app_mem_acquired.code, _i == 0 ? -ENOMEM : -EMFILE);
	ck_assert_ptr_nonnull(strstr(
		got.app_mem_acquired.sentence, _i == 1 ? "keep a descriptor" : "a test says so"));
	wake_rc = add_rc = 0;
	acquires(); /* with what it needs now */
	becomes(2, WB__IMPORTS_WORKING);
	ck_assert_int_eq(hear(WBP_APP_MEM_ACQUIRED)->app_mem_acquired.code, 0);
	ck_assert_uint_eq(got.app_mem_acquired.lane, WB_APP_LANE_AGENT);
}
END_TEST

/* A worker whose memory is in use asks for it once more: its lane goes on. */
START_TEST(memory_that_was_not_released_stays_in_use)
{
	attaches();
	acquires();
	ck_assert_int_eq(hear(WBP_APP_MEM_ACQUIRED)->app_mem_acquired.code, -EALREADY);
	ck_assert(!imports[0].is_stopped);
}
END_TEST

START_TEST(memory_is_not_looked_at_again_while_it_is_imported)
{
	unsigned before;

	falls_asleep();
	acquires();
	before = n_wake;
	for (int i = 0; i < 3; i++)
		wb__apps_try_wishes(a.apps); /* as its timer does */
	ck_assert_uint_eq(n_wake, before);
	ck_assert(is_silent());
	becomes(1, WB__IMPORTS_WORKING);
	ck_assert_int_eq(hear(WBP_APP_MEM_ACQUIRED)->app_mem_acquired.code, 0);
	ck_assert_uint_eq(n_wake, before + 1);
}
END_TEST

/* ---- workers that are about to be attached --------------------------------------------------- */

/* The operator names another object (0) or model (1), there will be no plan (2), or the object is
 * not that of the agent any more when the import is done (3). */
START_TEST(a_worker_whose_memory_is_imported_is_refused_as_one_that_is_attached)
{
	comes();
	if (_i < 2)
		wb__apps_check_object(a.apps, 0, _i ? "one" : "two", _i ? "other" : "m");
	else if (_i == 2)
		wb__apps_give_up(a.apps, 0, -ENOENT, "there is no plan");
	find_rc = -ENOENT;
	if (_i == 3)
		becomes(0, WB__IMPORTS_WORKING);
	hears_when_let_go(0, WBP_APP_REJECT);
	ck_assert_int_eq(got.app_reject.code, -ENOENT);
}
END_TEST

START_TEST(a_worker_whose_memory_is_imported_has_a_lane_and_is_awake)
{
	ck_assert(wb__apps_all_asleep(a.apps, 0));
	comes();
	ck_assert(wb__apps_has_lanes(a.apps, 0));
	ck_assert(!wb__apps_all_asleep(a.apps, 0));
	ck_assert(!wb__apps_has_lanes(a.apps, 1));
	ck_assert(wb__apps_all_asleep(a.apps, 1));
}
END_TEST

/* ---- ends ------------------------------------------------------------------------------------ */

START_TEST(a_worker_whose_lane_ended_by_itself_is_sent_to_attach_anew)
{
	attaches();
	becomes(0, WB__IMPORTS_OVER);
	ck_assert_int_eq(hear(WBP_APP_REJECT)->app_reject.code, -ESHUTDOWN);
	ck_assert_ptr_nonnull(strstr(got.app_reject.sentence, "ended by itself"));
	ck_assert(!imports[0].is_there);
	turn();
	ck_assert_ptr_null(wb__apps_first(a.apps));
}
END_TEST

/* Before it was attached (0), and after. */
START_TEST(who_makes_no_sense_hears_so_when_nothing_of_its_memory_is_here)
{
	if (_i)
		attaches();
	else
		comes();
	fx_send(sock, "no frame", 8, NULL, 0);
	turn();
	hears_when_let_go(0, WBP_APP_REJECT);
	ck_assert_int_eq(got.app_reject.code, -EBADMSG);
}
END_TEST

/* Its own lane, in a process of its own. */
static void attaches_with_its_lane(void)
{
	is_child = true;
	comes();
	becomes(0, WB__IMPORTS_OVER);
	ck_assert_uint_eq(hear(WBP_APP_ATTACHED)->app_attached.lane, WB_APP_LANE_WORKER);
}

static bool is_there(void)
{
	turn();
	return wb__apps_first(a.apps) != NULL;
}

/* A process that is killed has closed its socket before its device has stopped copying (0).  One
 * that is sent away, for what it said (1) or since the object is another (2), hears so at once. */
START_TEST(slots_of_a_worker_that_was_cut_off_are_its_own_until_its_process_has_ended)
{
	struct wb_lane_job job = {.kind = WB_LANE_PACK, .wire = arena, .cookie = 7};
	struct wb_lane *lane;

	attaches_with_its_lane();
	lane = wb__apps_first(a.apps)->lane;
	ck_assert_int_eq(wb_lane_submit(lane, &job), 0);
	if (_i == 1)
		fx_send(sock, "no frame", 8, NULL, 0);
	else if (_i == 2)
		wb__apps_check_object(a.apps, 0, "two", "m");
	if (_i) {
		hear(WBP_APP_REJECT);
	} else {
		close(sock);
		sock = -1;
	}
	ck_assert(is_there());
	ck_assert_int_eq(wb_lane_reap(lane, &job, 1), 0);
	end_child();
	ck_assert(!is_there());
}
END_TEST

/* It says goodbye when its lane has ended. */
START_TEST(a_worker_that_says_goodbye_is_waited_for_no_longer)
{
	struct wb_msg_app_detach m = {0};

	attaches_with_its_lane();
	say(WBP_APP_DETACH, &m, NULL, 0);
	ck_assert(!is_there());
}
END_TEST

/* By the agent's lane: nothing of it runs in the worker's process. */
START_TEST(the_process_of_a_worker_whose_lane_is_here_is_not_waited_for)
{
	is_child = true;
	attaches();
	close(sock);
	sock = -1;
	ck_assert(is_there());
	becomes(0, WB__IMPORTS_OVER);
	ck_assert(!is_there());
}
END_TEST

START_TEST(an_agent_that_stops_waits_for_no_process)
{
	attaches_with_its_lane();
	close(sock);
	sock = -1;
	ck_assert(is_there());
	wb__apps_close(a.apps);
	ck_assert(!is_there());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("daemon lanes");
	TCase *t = tcase_create("all");

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(
		t, a_worker_hears_that_its_memory_is_not_taken_when_nothing_of_it_is_here, 0, 3);
	tcase_add_test(t, memory_that_was_not_released_stays_in_use);
	tcase_add_test(t, memory_is_not_looked_at_again_while_it_is_imported);
	tcase_add_loop_test(
		t, a_worker_whose_memory_is_imported_is_refused_as_one_that_is_attached, 0, 4);
	tcase_add_test(t, a_worker_whose_memory_is_imported_has_a_lane_and_is_awake);
	tcase_add_test(t, a_worker_whose_lane_ended_by_itself_is_sent_to_attach_anew);
	tcase_add_loop_test(
		t, who_makes_no_sense_hears_so_when_nothing_of_its_memory_is_here, 0, 2);
	tcase_add_loop_test(t,
		slots_of_a_worker_that_was_cut_off_are_its_own_until_its_process_has_ended, 0, 3);
	tcase_add_test(t, a_worker_that_says_goodbye_is_waited_for_no_longer);
	tcase_add_test(t, the_process_of_a_worker_whose_lane_is_here_is_not_waited_for);
	tcase_add_test(t, an_agent_that_stops_waits_for_no_process);
	return fx_run(s);
}
