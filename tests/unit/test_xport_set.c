/* SPDX-License-Identifier: Apache-2.0 */
/* Several transports as one: which is taken, and what happens when that cannot be had. */
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- texts ------------------------------------------------------------------------------------
 */

#define BOOT "unix:@wb-00000000000000aa-0000000000000001"
#define SAME "unix:@wb-00000000000000aa-0000000000000002"
#define ELSE "unix:@wb-00000000000000bb-0000000000000003"
#define TCP "10.0.0.1:1"
#define RDMA "verbs:10.0.0.1:1"

static const struct {
	const char *mine, *theirs, *allowed;
	bool is_encrypted, can;
} meets[] = {
	{TCP, TCP, NULL, false, true},
	{TCP, TCP, NULL, true, true},
	{TCP, RDMA, NULL, false, false},
	{RDMA, RDMA, NULL, false, true},
	{RDMA, RDMA, NULL, true, false}, /* its bytes would travel in the clear */
	{RDMA, RDMA, "tcp,shm", false, false},
	{RDMA, RDMA, "shm,verbs+soft", false, true},
	{RDMA ";" TCP, TCP, NULL, false, true},
	{RDMA ";" TCP, TCP, "shm,verbs", false, false},
	{RDMA ";" TCP, RDMA ";" TCP, "shm,verbs", true, false},
	{BOOT, SAME, NULL, false, true},
	{BOOT, ELSE, NULL, false, false}, /* of another host */
	{BOOT, "unix:@00001", NULL, false, true}, /* of an agent that does not say */
	{BOOT, "unix:/run/wb-00000000000000bb-0000000000000001", NULL, false, false},
	{BOOT ";" TCP, ELSE ";" TCP, NULL, false, true},
	{BOOT ";" TCP, "unix:@a,unix:@b", NULL, false, true},
	{"", TCP, NULL, false, false},
	{TCP, "", NULL, false, false},
};

START_TEST(who_may_reach_whom_stands_in_their_texts)
{
	ck_assert_int_eq(wb_xport_meet(meets[_i].mine, meets[_i].theirs, meets[_i].allowed,
				 meets[_i].is_encrypted),
		meets[_i].can);
	ck_assert_int_eq(wb_xport_meet(meets[_i].theirs, meets[_i].mine, meets[_i].allowed,
				 meets[_i].is_encrypted),
		meets[_i].can);
}
END_TEST

START_TEST(a_text_of_several_is_cut_and_counted_by_each)
{
	const char *all = "unix:@a,unix:@b;verbs:1.1.1.1:1,verbs:1.1.1.2:1;1.1.1.1:1,1.1.1.2:1";
	char out[WB_XPORT_ENDPOINT_MAX];

	ck_assert(wb_xport_way(all, 1, out, sizeof(out)));
	ck_assert_str_eq(out, "verbs:1.1.1.1:1,verbs:1.1.1.2:1");
	ck_assert(!wb_xport_way(all, 3, out, sizeof(out)));
	ck_assert(!wb_xport_way(all, 1, out, 5));
	ck_assert_int_eq(wb_xport_endpoint_of(all, 2, out, sizeof(out)), 0);
	ck_assert_str_eq(out, "unix:@b;verbs:1.1.1.2:1;1.1.1.2:1");
	ck_assert_int_eq(wb_xport_endpoint_of(all, 0, out, sizeof(out)), 0);
	ck_assert_str_eq(out, all);
	ck_assert_int_eq(wb_xport_endpoint_of(all, 4, out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(
		wb_xport_endpoint_of("unix:@a;1.1.1.1:1,1.1.1.2:1", 2, out, sizeof(out)), -EINVAL);
	for (size_t n = 0; n < strlen(all); n++)
		ck_assert_int_eq(wb_xport_endpoint_of(all, 0, out, n), -ENOSPC);
	/* Of the transport that takes most: tcp has two at least. */
	ck_assert_uint_eq(wb_xport_sockets(1, "unix:@a;verbs:1.1.1.1:1;1.1.1.1:1"), 2);
	ck_assert_uint_eq(wb_xport_sockets(1, "unix:@a,unix:@b,unix:@c;1.1.1.1:1"), 3);
	ck_assert_str_eq(wb_xport_of_endpoint(all), "shm");
}
END_TEST

static const struct {
	const char *names, *words;
} wrong[] = {
	{"tcp,tcp", "transport tcp is named twice"},
	{"tcp,none", "there is no transport 'none'; there are tcp, shm and verbs"},
	{"none", "there is no transport 'none'"},
	{"", "a name is empty among the transports ''"},
	{",tcp", "a name is empty"},
	{"tcp,", "a name is empty"},
	{"tcp,,shm", "a name is empty"},
	{"tcp,shm,verbs,tcp,shm", "more than 4 transports"},
};

START_TEST(names_that_are_wrong_are_named)
{
	struct wb_xport_rail rail = {.addr = "127.0.0.1:0"};
	struct wb_xport_opts o = {.name = "a", .rail = &rail, .n_rail = 1};
	struct wb_err err = {0};
	struct wb_xport *x;

	ck_assert_int_eq(wb_xport_open_set(wrong[_i].names, &o, &x, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, wrong[_i].words) != NULL, "%s", err.msg);
}
END_TEST

/* ---- which is taken ---------------------------------------------------------------------------
 */

static void close_epoch(struct fx_xport *f)
{
	wb_xport_epoch_remove(f->src.x, &fx_epoch.id);
	wb_xport_epoch_remove(f->dst.x, &fx_epoch.id);
}

/* The epoch of both, with what may carry it. */
static void allow(struct fx_xport *f, const char *allowed, bool is_encrypted)
{
	struct wb_xport_epoch e = fx_epoch;
	struct wb_err err = {0};

	close_epoch(f);
	e.allowed = allowed;
	e.is_encrypted = is_encrypted;
	ck_assert_msg(wb_xport_epoch_add(f->src.x, &e, &err) == 0, "%s", err.msg);
	ck_assert_msg(wb_xport_epoch_add(f->dst.x, &e, &err) == 0, "%s", err.msg);
}

static void move_a_chunk(struct fx_xport *f)
{
	struct fx_job *j = fx_job_make(f, 100000, 5, 1);

	fx_job_run(f, j, true);
	ck_assert(fx_job_arrived(j));
	fx_job_free(j);
}

static const struct {
	const char *kind, *allowed;
	bool is_encrypted;
	const char *via;
} taken[] = {
	{"set:shm,verbs,tcp/shm,verbs,tcp", NULL, false, "shm"},
	{"set:tcp,shm/shm,verbs,tcp", NULL, false, "shm"},
	{"set:tcp/shm,verbs,tcp", NULL, false, "tcp"},
	{"set:shm,verbs,tcp/tcp", NULL, false, "tcp"}, /* one of several, for one of one */
	{"set:verbs,tcp/shm,verbs,tcp", NULL, false, "verbs"},
	{"set:shm,verbs,tcp/verbs,tcp", NULL, false, "verbs"},
	{"set:shm,verbs,tcp/shm,verbs,tcp", "tcp", false, "tcp"},
	{"set:shm,verbs,tcp/shm,verbs,tcp", "verbs,verbs+soft,tcp", false, "verbs"},
	{"set:shm,verbs,tcp/shm,verbs,tcp", "tcp,verbs", false, "tcp"},
	{"set:shm,verbs,tcp/shm,verbs,tcp", NULL, true, "shm"},
	{"set:verbs,tcp/verbs,tcp", NULL, true, "tcp+tls"},
	{"set:verbs,tcp/tcp,verbs", "verbs,tcp", false, "verbs"},
};

START_TEST(the_best_that_both_have_and_may_use_is_taken)
{
	struct fx_xport f;

	fx_open(&f, taken[_i].kind, &(struct fx_opts){.n_rail = 2});
	allow(&f, taken[_i].allowed, taken[_i].is_encrypted);
	fx_join(&f);
	ck_assert_str_eq(f.dst.via, taken[_i].via);
	ck_assert_str_eq(f.src.via, taken[_i].via);
	move_a_chunk(&f);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_close(&f);
}
END_TEST

START_TEST(what_none_may_carry_is_refused_by_name)
{
	struct wb_xport_epoch e = fx_epoch;
	struct wb_err err = {0};
	struct fx_xport f;

	fx_open(&f, "set:verbs,shm/verbs,shm", &(struct fx_opts){0});
	close_epoch(&f);
	e.allowed = "verbs";
	e.is_encrypted = true;
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), -ENOTSUP);
	ck_assert_msg(strstr(err.msg, "(verbs,shm) none may carry the object: spec.transport "
				      "allows verbs, encrypted") != NULL,
		"%s", err.msg);
	fx_close(&f);
}
END_TEST

/* Both ways at once: numbers are told apart, and each gets what is its own. */
START_TEST(connections_of_several_transports_live_beside_each_other)
{
	struct fx_xport f;
	struct wb_xport_epoch other = fx_epoch;
	struct wb_err err = {0};
	wb_conn_t first;

	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	fx_join(&f);
	first = f.conn;
	other.id.number++;
	other.allowed = "tcp";
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &other, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &other, &err), 0);
	f.conn = fx_dial(&f, &other, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 2);
	fx_wait(&f, &f.src, WB_XP_CONN_UP, 2);
	ck_assert_str_eq(f.dst.via, "tcp");
	ck_assert_uint_ne(f.conn, first);
	f.src_conn = f.src.ev[f.src.n_ev - 1].conn;
	move_a_chunk(&f);
	/* What its chunks are to be like is said by each one's own; by the set of what is not
	 * there. */
	ck_assert_str_eq(wb_xport_carrier(f.dst.x, first)->name, "shm");
	ck_assert_str_eq(wb_xport_carrier(f.dst.x, f.conn)->name, "tcp");
	ck_assert_ptr_eq(wb_xport_carrier(f.dst.x, 3u << 30 | 1), f.dst.x->ops);
	ck_assert_int_eq(wb_xport_disconnect(f.dst.x, f.conn), 0);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert(!f.dst.ev[f.dst.n_ev - 1].has_other); /* we wanted that */
	ck_assert_int_eq(wb_xport_disconnect(f.dst.x, f.conn), -ENOTCONN);
	ck_assert_int_eq(wb_xport_disconnect(f.dst.x, first), 0);
	ck_assert_int_eq(wb_xport_disconnect(f.dst.x, 3u << 30 | 1), -ENOTCONN);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 2);
	fx_close(&f);
}
END_TEST

static const struct {
	const char *name;
	bool is_untouched;
	uint32_t run_min;
} wishes[] = {
	{"tcp", false, WB_XPORT_RUN_MIN}, {"shm", false, WB_XPORT_RUN_MIN}, {"verbs", true, 8192}};

START_TEST(only_rdma_leaves_sums_to_others_and_wants_long_ranges)
{
	const struct wb_xport_ops *o = wb_xport_find(wishes[_i].name);
	struct wb_xport x = {.ops = o};

	ck_assert_int_eq((o->caps & WB_XPORT_CAP_UNTOUCHED) != 0, wishes[_i].is_untouched);
	ck_assert_uint_eq(wb_xport_run_min(&x, 1), wishes[_i].run_min);
}
END_TEST

/* ---- what cannot be had ------------------------------------------------------------------------
 */

/* The last connection that came up there and has not ended, or 0: the end of one before it may be
 * told after it is up. */
static wb_conn_t standing(const struct fx_side *e)
{
	wb_conn_t conn = 0;

	for (int i = 0; i < e->n_ev; i++) {
		if (e->ev[i].kind == WB_XP_CONN_UP)
			conn = e->ev[i].conn;
		else if (e->ev[i].kind == WB_XP_CONN_DOWN && e->ev[i].conn == conn)
			conn = 0;
	}
	return conn;
}

/* As a user does: again while there is another way, until it stands. */
static void dial_until_up(struct fx_xport *f, int most)
{
	int up = f->dst.count[WB_XP_CONN_UP], down = f->dst.count[WB_XP_CONN_DOWN];

	for (f->conn = fx_dial(f, &fx_epoch, "src"); f->dst.count[WB_XP_CONN_UP] == up;) {
		fx_pump(f);
		if (f->dst.count[WB_XP_CONN_DOWN] == down)
			continue;
		ck_assert_int_lt(f->dst.count[WB_XP_CONN_DOWN] - down, most);
		down = f->dst.count[WB_XP_CONN_DOWN];
		f->conn = fx_dial(f, &fx_epoch, "src");
	}
	while (!(f->src_conn = standing(&f->src)))
		fx_pump(f);
}

static const struct {
	const char *shm; /* in place of the source's own */
} gone[] = {
	{"unix:@weightbridge-nobody"}, /* another network namespace: nobody listens there */
	{"unix:/nonexistent/weightbridge"}, {NULL}, /* another host's, see below: not even tried */
};

/* Somebody here who has the name that an agent of another host has there. */
static int listen_as(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path + 1, name, strlen(name));
	ck_assert_int_eq(
		bind(fd, (struct sockaddr *)&a,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
		0);
	ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

START_TEST(memory_that_cannot_be_shared_gives_way_inside_the_call)
{
	struct fx_xport f;
	char tcp[WB_XPORT_ENDPOINT_MAX], why[256];
	char other[64]; /* a name that nobody else who runs this has at the time */
	int fd;

	snprintf(other, sizeof(other), "unix:@wb-00000000000000bb-%016x", (unsigned)getpid());
	fd = listen_as(strchr(other, '@') + 1);
	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	ck_assert(wb_xport_way(f.src.endpoint, 1, tcp, sizeof(tcp)));
	snprintf(f.src.endpoint, sizeof(f.src.endpoint), "%s;%.100s",
		gone[_i].shm ? gone[_i].shm : other, tcp);
	fx_join(&f);
	ck_assert_str_eq(f.dst.via, "tcp");
	move_a_chunk(&f);
	ck_assert_int_lt(accept4(fd, NULL, NULL, SOCK_CLOEXEC), 0);
	close(fd);
	/* As it is between pods: nothing to tell anybody of. */
	ck_assert(!wb_xport_instead(f.dst.x, FX_OBJECT, why, sizeof(why)));
	fx_close(&f);
}
END_TEST

/* When nobody is there by any way, each call begins with the best again and the code is the
 * last's. */
START_TEST(nobody_by_any_way_is_refused)
{
	struct wb_xport_peer p = {.name = "src",
		.endpoint = "unix:@weightbridge-nobody;127.0.0.1:1",
		.epoch = &fx_epoch.id};
	struct wb_err err = {0};
	struct fx_xport f;
	int n = 0;

	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	for (int i = 0; i < 3; i++) {
		int at = 0, rc = wb_xport_connect(f.dst.x, &p, &f.conn, &err);

		ck_assert(rc == 0 || rc == -ECONNREFUSED);
		if (rc)
			continue;
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, ++n);
		for (int k = 0; k < n; k++) {
			struct wb_xport_event *e = fx_take(&f.dst, WB_XP_CONN_DOWN, &at);

			ck_assert_int_eq(e->code, -ECONNREFUSED);
			ck_assert(!e->has_other);
		}
	}
	p.endpoint = "verbs:127.0.0.1:1";
	ck_assert_int_eq(wb_xport_connect(f.dst.x, &p, &f.conn, &err), -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(strstr(err.msg, "agent src has none of the transports shm,tcp"));
	fx_close(&f);
}
END_TEST

/* RDMA whose reads never arrive: its connections stand, and not one chunk comes. */
START_TEST(rdma_that_brings_nothing_gives_way_and_it_is_said)
{
	struct fakeverbs_rule r = {.device = FAKEVERBS_ANY,
		.port = FAKEVERBS_ANY,
		.opcode = FAKEVERBS_ANY,
		.status = IBV_WC_RETRY_EXC_ERR};
	struct fx_xport f;
	struct wb_xport_grant g;
	struct fx_job *j;
	char why[256];

	fx_verbs()->reset();
	fx_open(&f, "set:shm,verbs,tcp/verbs,tcp", &(struct fx_opts){0});
	fx_verbs()->rule(&r);
	fx_join(&f);
	ck_assert_str_eq(f.dst.via, "verbs");
	j = fx_job_make(&f, 100000, 5, 1);
	g = fx_grant_of(j, 1, NULL);
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	while (!f.dst.count[WB_XP_CONN_DOWN]) {
		int at = 0;
		struct wb_xport_event *e;

		fx_pump(&f);
		if (f.src.count[WB_XP_GRANT] == 1 && !f.src.count[WB_XP_WRITE_DONE] &&
			(e = fx_take(&f.src, WB_XP_GRANT, &at))) {
			struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

			(void)wb_xport_write(f.src.x, f.src_conn, &w);
			e->kind = 0;
		}
	}
	ck_assert(f.dst.ev[f.dst.n_ev - 1].has_other);
	fx_wait(&f, &f.src, WB_XP_CONN_DOWN, 1); /* the source reads the ranges until then */
	fx_job_free(j);
	dial_until_up(&f, 1);
	ck_assert_str_eq(f.dst.via, "tcp");
	move_a_chunk(&f);
	ck_assert(wb_xport_instead(f.dst.x, FX_OBJECT, why, sizeof(why)));
	ck_assert_msg(strstr(why, "agent src is reached by tcp and not verbs: ") == why, "%s", why);
	ck_assert(!wb_xport_instead(f.dst.x, FX_OBJECT + 1, why, sizeof(why)));
	/* It is so for the epoch. */
	wb_xport_epoch_remove(f.dst.x, &fx_epoch.id);
	ck_assert(!wb_xport_instead(f.dst.x, FX_OBJECT, why, sizeof(why)));
	fx_verbs()->reset();
	fx_close(&f);
}
END_TEST

/* One lost connection is no reason, when it had brought chunks; the second is. */
START_TEST(a_way_that_breaks_again_and_again_gives_way)
{
	struct fx_xport f;
	int up;

	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	for (up = 0; up < 3; up++) {
		dial_until_up(&f, 1);
		ck_assert_str_eq(f.dst.via, up < 2 ? "shm" : "tcp");
		move_a_chunk(&f);
		ck_assert_int_eq(wb_xport_disconnect(f.src.x, f.src_conn), 0);
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, up + 1);
		/* Not behind the next one's CONN_UP. */
		fx_wait(&f, &f.src, WB_XP_CONN_DOWN, up + 1);
		ck_assert_int_eq(f.dst.ev[f.dst.n_ev - 1].has_other, up == 1);
	}
	fx_close(&f);
}
END_TEST

START_TEST(a_way_is_as_good_as_before_when_we_hang_up)
{
	struct fx_xport f;

	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	for (int up = 0; up < 3; up++) {
		dial_until_up(&f, 1);
		ck_assert_str_eq(f.dst.via, "shm");
		ck_assert_int_eq(wb_xport_disconnect(f.dst.x, f.conn), 0);
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, up + 1);
		fx_wait(&f, &f.src, WB_XP_CONN_DOWN, up + 1);
		ck_assert(!f.dst.ev[f.dst.n_ev - 1].has_other);
	}
	fx_close(&f);
}
END_TEST

/* Memory that shm cannot have (it could shrink) is served by what remains, at both ends. */
START_TEST(memory_that_a_transport_cannot_have_turns_it_off_for_the_object)
{
	struct wb_xport_region r = {.object = FX_OBJECT, .bytes = 4096};
	struct wb_err err = {0};
	struct fx_xport f;
	uint32_t id;

	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	r.fd = memfd_create("no sealing", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(r.fd, 4096), 0);
	r.base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
	ck_assert_msg(wb_xport_region_add(f.src.x, &r, &id, &err) == 0, "%s", err.msg);
	dial_until_up(&f, 4);
	ck_assert_str_eq(f.dst.via, "tcp");
	move_a_chunk(&f);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), -ENOENT);
	munmap(r.base, 4096);
	close(r.fd);
	fx_close(&f);
}
END_TEST

/* Memory that the last of them cannot have either (verbs for want of a descriptor) turns none off:
 * what the agent may have later is carried as if it had not asked. */
START_TEST(memory_that_is_not_taken_turns_no_transport_off)
{
	struct wb_xport_region r = {.object = FX_OBJECT, .bytes = 4096};
	struct rlimit was, none;
	struct wb_err err = {0};
	struct fx_xport f;
	uint32_t id;
	int next, rc;

	fx_verbs()->reset();
	fx_open(&f, "set:shm,verbs/shm,verbs", &(struct fx_opts){0});
	r.fd = memfd_create("no sealing", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(r.fd, 4096), 0);
	r.base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
	next = fcntl(r.fd, F_DUPFD_CLOEXEC, 0);
	close(next);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = (struct rlimit){(rlim_t)next, was.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	rc = wb_xport_region_add(f.src.x, &r, &id, &err);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	ck_assert_msg(rc == -EMFILE, "%d: %s", rc, err.msg);
	dial_until_up(&f, 4);
	ck_assert_str_eq(f.dst.via, "shm");
	move_a_chunk(&f);
	munmap(r.base, 4096);
	close(r.fd);
	fx_close(&f);
}
END_TEST

/* A region that one of them uses is not let go by the others. */
START_TEST(a_region_in_use_stays_whole)
{
	struct wb_xport_epoch other = fx_epoch;
	struct wb_err err = {0};
	struct wb_xport_event *e;
	struct wb_xport_write w;
	struct fx_xport f;
	struct fx_job *j;

	fx_open(&f, "set:verbs,shm/shm,verbs", &(struct fx_opts){0});
	fx_join(&f);
	j = fx_job_make(&f, 100000, 5, 1);
	e = fx_ask(&f, j, 1, NULL);
	w = fx_write_of(j, e->grant, NULL);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), -EBUSY);
	fx_wait(&f, &f.src, WB_XP_WRITE_DONE, 1);
	fx_job_free(j);
	other.id.number++;
	other.allowed = "verbs";
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &other, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &other, &err), 0);
	f.conn = fx_dial(&f, &other, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 2);
	fx_wait(&f, &f.src, WB_XP_CONN_UP, 2);
	ck_assert_str_eq(f.dst.via, "verbs");
	f.src_conn = f.src.ev[f.src.n_ev - 1].conn;
	move_a_chunk(&f);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	fx_close(&f);
}
END_TEST

/* ---- sockets that come to one port --------------------------------------------------------------
 */

START_TEST(a_socket_goes_to_the_transport_it_speaks)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), n;
	static const char *const kind[] = {"set:shm,verbs,tcp/verbs", "set:shm,verbs,tcp/tcp",
		"set:verbs,tcp/verbs,tcp", "set:shm,verbs/tcp"};
	static const char *const via[] = {"verbs", "tcp", "verbs", NULL};
	char at[64], endpoint[WB_XPORT_ENDPOINT_MAX];
	const char *addr = at;
	struct wb_err err = {0};
	struct fx_xport f;

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 16), 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	snprintf(at, sizeof(at), "127.0.0.1:%d", ntohs(a.sin_port));
	fx_open(&f, kind[_i], &(struct fx_opts){.sockets = 2});
	/* It listens already; what is said now is in place of that. */
	if (!strstr(kind[_i], "shm"))
		ck_assert_msg(
			wb_xport_serve(f.src.x, &addr, 1, endpoint, sizeof(endpoint), &err) == 0,
			"%s", err.msg);
	else
		snprintf(endpoint, sizeof(endpoint), "verbs:%s;%s", at, at);
	snprintf(f.src.endpoint, sizeof(f.src.endpoint), "%s", endpoint);
	f.conn = fx_dial(&f, &fx_epoch, "src");
	for (n = 0; n < 2; n++) {
		int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		uint8_t byte[64];

		while (recv(got, byte, sizeof(byte), MSG_PEEK) < 60)
			;
		ck_assert_int_eq(wb_xport_adopt(f.src.x, got, &err), via[_i] ? 0 : -ENOTSUP);
	}
	if (via[_i]) {
		fx_wait(&f, &f.dst, WB_XP_CONN_UP, 1);
		ck_assert_str_eq(f.dst.via, via[_i]);
	} else {
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	}
	close(fd);
	fx_close(&f);
}
END_TEST

/* ---- two pods of a node
 * -------------------------------------------------------------------------- */

/* Network namespaces do not share names of sockets; a folder that both see they do. */
START_TEST(agents_of_two_network_namespaces_meet_in_a_folder)
{
	char folder[] = "/tmp/wb-set-XXXXXX", listing[64];
	struct wb_xport_rail rail = {.addr = "127.0.0.1:0"};
	struct wb_xport_opts o = {.name = "src", .rail = &rail, .n_rail = 1};
	struct wb_xport_epoch e = fx_epoch;
	struct wb_err err = {0};
	struct fx_xport f;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("SKIP: no network namespace may be made here: %s\n", strerror(errno));
		return;
	}
	ck_assert_ptr_nonnull(mkdtemp(folder));
	fx_open(&f, "set:shm,tcp/shm,tcp", &(struct fx_opts){0});
	wb_xport_close(f.src.x);
	o.folder = _i ? folder : NULL;
	ck_assert_int_eq(wb_xport_open_set("shm,tcp", &o, &f.src.x, &err), 0);
	/* No loopback is up in the new one, so tcp is of no help. */
	ck_assert_int_eq(wb_xport_listen(f.src.x, f.src.endpoint, sizeof(f.src.endpoint), &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), 0);
	ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
	if (_i) {
		fx_join(&f);
		ck_assert_str_eq(f.dst.via, "shm");
	} else {
		struct wb_xport_peer p = {
			.name = "src", .endpoint = f.src.endpoint, .epoch = &fx_epoch.id};

		if (!wb_xport_connect(f.dst.x, &p, &f.conn, &err)) {
			fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
			ck_assert_int_eq(f.dst.count[WB_XP_CONN_UP], 0);
		}
	}
	fx_close(&f);
	snprintf(listing, sizeof(listing), "%s", folder);
	ck_assert_int_eq(rmdir(listing), 0); /* nothing is left there */
}
END_TEST

static const char *memory_of(const char *folder)
{
	static char text[4][64];
	static int at;
	char *out = text[at++ % 4];

	ck_assert_int_eq(wb_xport_memory(folder, out, sizeof(text[0])), 0);
	ck_assert_uint_gt(strlen(out), 20);
	return out;
}

/* A folder is the same by any name, and no other. */
START_TEST(agents_that_find_each_other_have_a_text_in_common)
{
	char folder[] = "/tmp/wb-memory-XXXXXX", link[sizeof(folder) + 8], other[64] = "x";

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(link, sizeof(link), "%s/link", folder);
	ck_assert_int_eq(symlink(".", link), 0);
	ck_assert_str_eq(memory_of(NULL), memory_of(NULL));
	ck_assert_str_eq(memory_of(folder), memory_of(link));
	ck_assert_str_ne(memory_of(folder), memory_of(NULL));
	ck_assert_str_ne(memory_of(folder), memory_of("/"));
	ck_assert_int_eq(strncmp(memory_of(folder), memory_of(NULL), 16), 0); /* the kernel */
	ck_assert_int_eq(unlink(link), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_int_eq(wb_xport_memory(folder, other, sizeof(other)), -ENOENT);
	ck_assert_str_eq(other, "");
	ck_assert_int_eq(wb_xport_memory(NULL, other, 20), -ENOSPC);
	ck_assert_str_eq(other, "");
	ck_assert_uint_gt(wb_xport_memory_rate(), 1000000);
	snprintf(other, sizeof(other), "%s", memory_of(NULL));
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		printf("SKIP: no network namespace may be made here: %s\n", strerror(errno));
	else
		ck_assert_str_ne(memory_of(NULL), other);
}
END_TEST

#define LEN(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
	Suite *s = suite_create("xport_set");
	TCase *c = tcase_create("xport_set");

	suite_add_tcase(s, c);
	fx_verbs_open();
	tcase_add_loop_test(c, who_may_reach_whom_stands_in_their_texts, 0, LEN(meets));
	tcase_add_test(c, a_text_of_several_is_cut_and_counted_by_each);
	tcase_add_loop_test(c, names_that_are_wrong_are_named, 0, LEN(wrong));
	tcase_add_loop_test(c, the_best_that_both_have_and_may_use_is_taken, 0, LEN(taken));
	tcase_add_test(c, what_none_may_carry_is_refused_by_name);
	tcase_add_test(c, connections_of_several_transports_live_beside_each_other);
	tcase_add_loop_test(c, only_rdma_leaves_sums_to_others_and_wants_long_ranges, 0,
		(int)WB_ARRAY_SIZE(wishes));
	tcase_add_loop_test(
		c, memory_that_cannot_be_shared_gives_way_inside_the_call, 0, LEN(gone));
	tcase_add_test(c, nobody_by_any_way_is_refused);
	tcase_add_test(c, agents_that_find_each_other_have_a_text_in_common);
	tcase_add_test(c, rdma_that_brings_nothing_gives_way_and_it_is_said);
	tcase_add_test(c, a_way_that_breaks_again_and_again_gives_way);
	tcase_add_test(c, a_way_is_as_good_as_before_when_we_hang_up);
	tcase_add_test(c, memory_that_a_transport_cannot_have_turns_it_off_for_the_object);
	tcase_add_test(c, memory_that_is_not_taken_turns_no_transport_off);
	tcase_add_test(c, a_region_in_use_stays_whole);
	tcase_add_loop_test(c, a_socket_goes_to_the_transport_it_speaks, 0, 4);
	tcase_add_loop_test(c, agents_of_two_network_namespaces_meet_in_a_folder, 0, 2);
	return fx_run(s);
}
