/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs transport lets others do, what it takes back and when, and what it asks of queue
 * pairs, as devices without hardware are told it. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_far.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"
#include "xport/frame.h"
#include "xport/verbs/verbs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1u << 20)
#define DEVICES 2

static struct wb_xport_stats stats(struct wb_xport *x)
{
	struct wb_xport_stats s = {0};

	ck_assert_int_eq(wb_xport_rail_stats(x, 0, &s), 0);
	return s;
}

static void hang(const struct fx_verbs *v, uint32_t reads)
{
	v->rule(&(struct fakeverbs_rule){.device = FAKEVERBS_ANY,
		.port = FAKEVERBS_ANY,
		.opcode = FAKEVERBS_ANY,
		.count = reads,
		.hangs = true});
}

/* Ask and answer, until a device is about the READ. */
static void begin(const struct fx_verbs *v, struct fx_xport *f, struct fx_job *j)
{
	struct fakeverbs_counts n;
	struct wb_xport_event *e = fx_ask(f, j, 1, NULL);
	struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

	ck_assert_int_eq(wb_xport_write(f->src.x, e->conn, &w), 0);
	do {
		fx_pump_some(f);
		v->count(&n);
	} while (!n.in_flight_max);
}

static struct wb_xport_region memory_of(const struct fx_side *s, uint64_t object)
{
	return (struct wb_xport_region){
		.object = object, .fd = s->mem_fd, .base = s->mem, .bytes = s->mem_bytes};
}

/* ---- rights -------------------------------------------------------------------------------------
 */

/* A receiver's queue pairs ask and are not asked by, a source's the other way round. */
START_TEST(nobody_is_given_more_than_the_right_to_read)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_counts n;
	struct fx_xport f;
	struct fx_job *j;

	for (int d = 0; d < DEVICES; d++)
		v->windows(d, false);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 100, 1); /* by way of slabs, too */
	fx_job_run(&f, j, true);
	v->count(&n);
	ck_assert_uint_eq(n.region_rights, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	ck_assert_uint_eq(n.qp_rights, IBV_ACCESS_REMOTE_READ);
	ck_assert_uint_eq(n.both_ways, 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* A key is worth nothing in another domain: tests/roce/rc_semantics.c. */
START_TEST(each_object_has_a_domain_of_its_own_on_each_device)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct fakeverbs_counts n;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_job *j;
	uint32_t id;

	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	j = fx_job_make(&f, MIB, 3, 1);
	fx_job_run(&f, j, true);
	v->count(&n);
	ck_assert_int_eq(n.pds, 2 * DEVICES);
	r = memory_of(&f.src, FX_OBJECT + 1);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
	do {
		fx_pump_some(&f);
		v->count(&n);
	} while (n.registered_bytes < DEVICES * (2 * f.src.mem_bytes + f.dst.mem_bytes));
	ck_assert_int_eq(n.pds, 3 * DEVICES);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* A right that was given in an epoch ends with it, READs of it that are under way included, and no
 * other peer's does. */
START_TEST(the_end_of_an_epoch_takes_its_queue_pairs_and_no_others)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_epoch next = fx_epoch;
	struct fakeverbs_counts n;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_job *j;

	next.id.number++;
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &next, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &next, &err), 0);
	(void)fx_dial(&f, &next, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 2);
	fx_wait(&f, &f.src, WB_XP_CONN_UP, 2);
	j = fx_job_make(&f, MIB, 3, 1);
	hang(v, 1);
	begin(v, &f, j);
	do { /* those of both connections */
		fx_pump_some(&f);
		v->count(&n);
	} while (n.qps < 2 * 2 * WBP_BULK_QPS);
	ck_assert_int_eq(wb_xport_epoch_remove(f.src.x, &fx_epoch.id), 1);
	fx_wait(&f, &f.dst, WB_XP_LOST, 1);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	fx_wait(&f, &f.src, WB_XP_CONN_DOWN, 1);
	v->count(&n);
	ck_assert_int_eq(n.qps, 2 * WBP_BULK_QPS);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- what queue pairs are told ------------------------------------------------------------------
 */

static const struct {
	enum ibv_mtu of[DEVICES], is;
} mtus[] = {{{IBV_MTU_4096, IBV_MTU_1024}, IBV_MTU_1024},
	{{IBV_MTU_2048, IBV_MTU_4096}, IBV_MTU_2048}, {{IBV_MTU_4096, IBV_MTU_4096}, IBV_MTU_4096}};

START_TEST(packets_are_as_long_as_both_ports_take)
{
	static const char *const source[] = {"fake1@127.0.0.1:0"};
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_counts n;
	struct fx_xport f;
	struct fx_job *j;

	for (int i = 0; i < DEVICES; i++)
		v->mtu(i, mtus[_i].of[i]);
	fx_open(&f, "verbs",
		&(struct fx_opts){
			.mem_bytes = 17 * MIB, .addr = "fake0@127.0.0.1:0", .src_addr = source});
	fx_join(&f);
	j = fx_job_make(&f, MIB, 3, 1);
	fx_job_run(&f, j, true);
	v->count(&n);
	ck_assert_uint_eq(n.path_mtu[0], mtus[_i].is);
	ck_assert_uint_eq(n.path_mtu[1], mtus[_i].is);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- deadlines ----------------------------------------------------------------------------------
 */

static _Atomic uint64_t later_ns;

static uint64_t later(const struct wb_clock *c)
{
	(void)c;
	return wb_now_ns(&wb_clock_real) + atomic_load(&later_ns);
}

static void open_later(struct fx_xport *f)
{
	static const struct wb_clock clock = {later};

	atomic_store(&later_ns, 0);
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB, .clock = &clock});
	fx_join(f);
}

/* The receiver's rail sleeps for as long as the clock said before: a command wakes it. */
static void wake(struct fx_xport *f)
{
	struct wb_xport_region r = memory_of(&f->dst, FX_OBJECT + 1);
	struct wb_err err = {0};
	uint32_t id;

	ck_assert_int_eq(wb_xport_region_add(f->dst.x, &r, &id, &err), 0);
	ck_assert_int_eq(wb_xport_region_remove(f->dst.x, id), 0);
	fx_pump_some(f);
}

/* No device says anything of it: neither a port's event, nor that it has tried often enough. */
START_TEST(a_read_that_nobody_ends_is_made_elsewhere_after_its_deadline)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_job *j;

	open_later(&f);
	j = fx_job_make(&f, 4096, 1, 1); /* one READ */
	hang(v, 1);
	begin(v, &f, j);
	ck_assert_int_eq(f.dst.count[WB_XP_ARRIVED], 0);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 0);
	atomic_store(&later_ns, WB__READ_DEADLINE_NS);
	while (!f.dst.count[WB_XP_ARRIVED])
		wake(&f);
	ck_assert(fx_job_arrived(j));
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 1);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* Taken back, it is still under way: only the end of the connection says that nothing lands. */
START_TEST(what_is_taken_back_ends_with_its_connection_where_no_read_ends)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_job *j;

	open_later(&f);
	j = fx_job_make(&f, 16 * MIB, 1, 1);
	hang(v, 0);
	begin(v, &f, j);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 1), 0);
	while (!f.dst.count[WB_XP_CONN_DOWN]) {
		atomic_fetch_add(&later_ns, WB__READ_DEADLINE_NS / 4);
		wake(&f);
	}
	ck_assert_int_eq(f.dst.count[WB_XP_CANCELLED] + f.dst.count[WB_XP_LOST], 1);
	ck_assert_int_eq(f.dst.count[WB_XP_ARRIVED], 0);
	ck_assert_msg(strstr(f.dst.reason, "no answer within the deadline"), "%s", f.dst.reason);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

#define FOLDER_FD 900 /* which nobody else gets */

/* A device may answer for a while after it has said that it is over, or, of some drivers, after
 * the kernel has taken its folder away and nobody has said a word. */
START_TEST(a_device_that_is_over_is_left_though_it_answers)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	int folder = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, FOLDER_FD);
	struct fx_xport f;
	struct fx_job *j;
	char text[300] = "", path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", folder);
	v->folder(0, path);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	j = fx_job_make(&f, 4096, 1, 1);
	hang(v, 1);
	begin(v, &f, j);
	ck_assert(!wb_xport_reduced(f.dst.x, text, sizeof(text)));
	if (_i)
		close(folder);
	else
		v->fatal(0);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	ck_assert(fx_job_arrived(j));
	while (!wb_xport_reduced(f.dst.x, text, sizeof(text))) /* the source may notice it first */
		wake(&f);
	ck_assert_msg(strstr(text, "fake0 port 1"), "%s", text);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

enum { REMOVED, TOLD, FAILS, ALL_FAIL, N_GONE };

/* Removed just now; or we have been told; or its calls fail before anybody says so. */
START_TEST(memory_that_comes_when_a_device_is_gone_goes_by_the_others)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct wb_err err = {0};
	char text[400] = "";
	struct fx_xport f;
	struct fx_job *j;
	uint32_t id;

	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	ck_assert_int_eq(fx_far_path(&f, &f.src, f.src.region, text), WB_XPORT_PATH_HOST);
	ck_assert_int_eq(fx_far_path(&f, &f.dst, f.dst.region, text), WB_XPORT_PATH_HOST);
	if (_i == TOLD)
		v->fatal(0);
	while (_i == TOLD && !wb_xport_reduced(f.src.x, text, sizeof(text)))
		wake(&f);
	if (_i <= TOLD)
		v->remove(0);
	else
		v->break_calls("ibv_reg_mr", EIO, _i == FAILS ? 1 : 1000); /* slabs, too */
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	r = memory_of(&f.src, FX_OBJECT);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
	ck_assert_int_eq(fx_far_path(&f, &f.src, id, text),
		_i == ALL_FAIL ? WB_XPORT_PATH_FAILED : WB_XPORT_PATH_HOST);
	if (_i != ALL_FAIL) {
		j = fx_job_make(&f, 4 * MIB, 3, 1);
		fx_job_run(&f, j, false);
		fx_job_free(j);
	}
	fx_close(&f);
}
END_TEST

/* By its name of then: the new one did nothing. */
START_TEST(a_connection_that_a_new_address_ends_names_the_old_one)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;

	fx_open(&f, "verbs", &(struct fx_opts){.addr = "fake0@127.0.0.1:0"});
	fx_join(&f);
	v->regid(0, 1, 77);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_msg(
		strstr(f.dst.reason, "fake0 port 1 (GID ::ffff:127.99.0.1)"), "%s", f.dst.reason);
	fx_close(&f);
}
END_TEST

/* ---- what is said -------------------------------------------------------------------------------
 */

START_TEST(memory_that_cannot_be_registered_is_logged_with_limit_and_remedy)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	int was = dup(STDERR_FILENO), to = memfd_create("log", MFD_CLOEXEC);
	struct wb_xport_region r;
	struct wb_err err = {0};
	struct fx_xport f;
	char said[4096] = "";
	uint32_t id;

	fx_open(&f, "verbs", &(struct fx_opts){0});
	fx_join(&f);
	v->break_calls("ibv_reg_mr", ENOMEM, 1);
	r = memory_of(&f.src, FX_OBJECT + 1);
	ck_assert_int_ge(dup2(to, STDERR_FILENO), 0);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
	while (!strchr(said, '\n')) {
		fx_pump_some(&f);
		ck_assert_int_ge(pread(to, said, sizeof(said) - 1, 0), 0);
	}
	ck_assert_int_ge(dup2(was, STDERR_FILENO), 0);
	ck_assert_msg(strstr(said, "cannot be registered") && strstr(said, "device=fake0") &&
			      strstr(said, "memlock=") && strstr(said, "RLIMIT_MEMLOCK") &&
			      strstr(said, "IPC_LOCK"),
		"%s", said);
	close(was);
	close(to);
	fx_close(&f);
}
END_TEST

/* ---- a region that goes ------------------------------------------------------------------------
 */

static struct {
	sem_t is_there, go_on;
	_Atomic uint64_t off; /* of the piece that it stands at */
	_Atomic bool is_free; /* it stops no more */
} rail;

#define LONG (40u * MIB) /* a source's thread takes forty rounds to look at it */

/* Keeps the source's thread before each piece of a chunk, until the test lets it go. */
static void stop_here(void *ctx, const void *data, size_t bytes, uint64_t off)
{
	(void)ctx, (void)data, (void)bytes;
	atomic_store(&rail.off, off);
	sem_post(&rail.is_there);
	if (!atomic_load(&rail.is_free))
		sem_wait(&rail.go_on);
}

/* The thread stands at a piece: piece by piece, until it has lost a queue pair. */
static void lose_one(struct fx_xport *f)
{
	while (!stats(f->src.x).rails_lost) {
		sem_post(&rail.go_on);
		sem_wait(&rail.is_there);
		ck_assert_uint_lt(atomic_load(&rail.off), LONG - 2 * MIB); /* rounds are left */
	}
}

/* Asks for all of the source's own memory, and answers with it. */
static void begin_slowly(struct fx_xport *f)
{
	static struct iovec here, there; /* both sides use them until it is over */
	struct wb_xport_grant g = {.cookie = 9, .chunk = {.bytes = LONG}, .iov = &here, .n_iov = 1};
	struct wb_xport_write w = {.cookie = 9, .iov = &there, .n_iov = 1, .observe = stop_here};
	struct wb_xport_event *e;
	int at = 0, n = f->src.count[WB_XP_GRANT];

	here = (struct iovec){f->dst.mem, LONG};
	there = (struct iovec){f->src.mem, LONG};
	ck_assert_int_eq(wb_xport_grant(f->dst.x, f->conn, &g), 0);
	fx_wait(f, &f->src, WB_XP_GRANT, n + 1);
	while ((e = fx_take(&f->src, WB_XP_GRANT, &at)))
		w.grant = e->grant;
	ck_assert_int_eq(wb_xport_write(f->src.x, f->src_conn, &w), 0);
	sem_wait(&rail.is_there);
}

/* A queue pair is lost in the midst of a chunk, and what is to be told of that waits for its end: a
 * region that goes before is no less taken back, and the next of its number taken for what it is.
 */
START_TEST(a_region_that_goes_when_a_queue_pair_is_lost_is_taken_back)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_far first, second;
	struct fx_xport f;
	char says[400];
	uint32_t id;

	sem_init(&rail.is_there, 0, 0);
	sem_init(&rail.go_on, 0, 0);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = LONG});
	fx_join(&f);
	fx_far_make(&first, MIB);
	fx_far_make(&second, 2 * MIB);
	fx_fill(second.see, second.bytes, 3);
	id = fx_far_add(&f.src, &first, WB_XPORT_SOURCE);
	(void)fx_far_path(&f, &f.src, id, says);
	ck_assert_int_eq(fx_far_move(&f, first.addr, f.dst.mem, 1024, NULL), 0);
	begin_slowly(&f);
	v->port(0, 1, false);
	lose_one(&f);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	atomic_store(&rail.is_free, true);
	sem_post(&rail.go_on);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 2);
	ck_assert_uint_eq(fx_far_add(&f.src, &second, WB_XPORT_SOURCE), id);
	(void)fx_far_path(&f, &f.src, id, says);
	ck_assert_int_eq(fx_far_move(&f, second.addr, f.dst.mem, 2 * MIB, NULL), 0);
	ck_assert(!memcmp(f.dst.mem, second.see, 2 * MIB));
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_close(&f);
	fx_far_free(&first);
	fx_far_free(&second);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_rights");
	TCase *c = tcase_create("xport_verbs_rights");

	suite_add_tcase(s, c);
	tcase_add_test(c, nobody_is_given_more_than_the_right_to_read);
	tcase_add_test(c, each_object_has_a_domain_of_its_own_on_each_device);
	tcase_add_test(c, the_end_of_an_epoch_takes_its_queue_pairs_and_no_others);
	tcase_add_loop_test(c, packets_are_as_long_as_both_ports_take, 0, (int)WB_ARRAY_SIZE(mtus));
	tcase_add_test(c, a_read_that_nobody_ends_is_made_elsewhere_after_its_deadline);
	tcase_add_test(c, what_is_taken_back_ends_with_its_connection_where_no_read_ends);
	tcase_add_loop_test(c, a_device_that_is_over_is_left_though_it_answers, 0, 2);
	tcase_add_loop_test(
		c, memory_that_comes_when_a_device_is_gone_goes_by_the_others, 0, N_GONE);
	tcase_add_test(c, a_region_that_goes_when_a_queue_pair_is_lost_is_taken_back);
	tcase_add_test(c, a_connection_that_a_new_address_ends_names_the_old_one);
	tcase_add_test(c, memory_that_cannot_be_registered_is_logged_with_limit_and_remedy);
	return fx_run(s);
}
