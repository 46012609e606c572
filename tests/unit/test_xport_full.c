/* SPDX-License-Identifier: Apache-2.0 */
/* Much at once: a loop thread that takes no events for a while, many connections, many strangers.
 */
#include "base/file.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "xport/internal.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS 18
#define DEPTH WB_XPORT_DEPTH_MAX
#define GRANTS (CONNS * DEPTH) /* more than a ring of events holds */

_Static_assert(GRANTS > WB__RING_ITEMS, "the ring must fill");

static wb_conn_t conn[CONNS];

static void open_pair(struct fx_xport *f, const char *kind)
{
	fx_open(f, kind, &(struct fx_opts){.depth = DEPTH, .sockets = 1});
	for (int i = 0; i < CONNS; i++)
		conn[i] = fx_dial(f, &fx_epoch, "src");
	fx_wait(f, &f->dst, WB_XP_CONN_UP, CONNS);
	fx_wait(f, &f->src, WB_XP_CONN_UP, CONNS);
}

static size_t n_waiting(struct wb_xport *x)
{
	struct wb_ring *r = &wb__xport_stream(x)->rail[0].ev;

	return atomic_load(&r->tail) - atomic_load(&r->head);
}

/* The rail of @x says no more: there is no room for what a turn may make. */
static bool is_full(struct wb_xport *x)
{
	return WB__RING_ITEMS - n_waiting(x) < WB__EV_ROOM;
}

static int ask(struct fx_xport *f, int i, struct iovec *to)
{
	struct wb_xport_grant g = {
		.cookie = (uint64_t)i, .chunk = {.bytes = to->iov_len}, .iov = to, .n_iov = 1};

	return wb_xport_grant(f->dst.x, conn[i / DEPTH], &g);
}

static void ask_all(struct fx_xport *f, struct iovec *to)
{
	for (int i = 0; i < GRANTS;) {
		int rc = ask(f, i, to);

		ck_assert(!rc || rc == -EAGAIN);
		i += !rc;
		if (rc)
			poll(NULL, 0, 1);
	}
}

/* Regions are told to the rails by commands that may not fail; sources have them over shm. */
START_TEST(regions_change_though_nobody_takes_events)
{
	struct fx_xport f;
	struct iovec to;
	uint32_t id;

	open_pair(&f, "shm");
	to = (struct iovec){f.dst.mem, 64};
	ask_all(&f, &to);
	while (!is_full(f.src.x))
		poll(NULL, 0, 1);
	for (int i = 0; i < 2 * WB__RING_ITEMS; i++) {
		struct wb_xport_region r = {.object = FX_OBJECT,
			.fd = f.src.mem_fd,
			.base = f.src.mem,
			.bytes = f.src.mem_bytes};

		ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, NULL), 0);
		ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	}
	fx_close(&f);
}
END_TEST

static void refuse_all(struct fx_xport *f)
{
	struct wb_xport_event ev[16];

	/* As many as make the receiver's ring full. */
	while (!is_full(f->dst.x)) {
		int n = wb_xport_poll(f->src.x, ev, 16);

		for (int k = 0; k < n; k++)
			if (ev[k].kind == WB_XP_GRANT)
				while (wb_xport_refuse(f->src.x, ev[k].conn, ev[k].grant,
					       WB_ESTALE) == -EAGAIN)
					poll(NULL, 0, 1);
		if (!n)
			poll(NULL, 0, 1);
	}
}

START_TEST(each_grant_ends_once_before_its_connection_though_the_ring_was_full)
{
	static uint8_t ends[GRANTS];
	struct wb_xport_event ev[16];
	struct fx_xport f;
	struct iovec to;
	int down = 0, n_end = 0;

	memset(ends, 0, sizeof(ends));
	open_pair(&f, fx_kinds[_i]);
	to = (struct iovec){f.dst.mem, 64};
	ask_all(&f, &to);
	refuse_all(&f);
	for (int i = 0; i < GRANTS; i++)
		while (wb_xport_cancel(f.dst.x, conn[i / DEPTH], (uint64_t)i) == -EAGAIN)
			poll(NULL, 0, 1);
	for (int i = 0; i < CONNS; i++)
		ck_assert_int_eq(wb_xport_disconnect(f.dst.x, conn[i]), 0);
	while (down < CONNS) {
		int n = wb_xport_poll(f.dst.x, ev, 16);

		for (int k = 0; k < n; k++) {
			if (ev[k].kind == WB_XP_CONN_DOWN) {
				down++;
				continue;
			}
			ck_assert_uint_lt(ev[k].cookie, GRANTS);
			ck_assert_int_eq(ends[ev[k].cookie]++, 0);
			n_end++;
		}
		if (!n)
			poll(NULL, 0, 1);
	}
	ck_assert_int_eq(n_end, GRANTS);
	fx_close(&f);
}
END_TEST

#define MESH 400 /* an engine among 140 has 280 of each of two plans */

/* Numbers are told apart while the table grows, and after places were used again. */
START_TEST(an_agent_has_as_many_connections_as_come)
{
	static wb_conn_t all[MESH];
	struct wb_xport_grant g;
	struct fx_xport f;
	struct iovec to;

	fx_open(&f, fx_kinds[_i],
		&(struct fx_opts){.depth = 1, .sockets = 1, .handshake_ns = 100 * WB_NS_PER_S});
	for (int round = 1; round <= 2; round++) {
		int down = f.dst.count[WB_XP_CONN_DOWN], gone = f.src.count[WB_XP_CONN_DOWN];

		for (int i = 0; i < MESH; i++)
			all[i] = fx_dial(&f, &fx_epoch, "src");
		fx_wait(&f, &f.dst, WB_XP_CONN_UP, round * MESH);
		to = (struct iovec){f.dst.mem, 64};
		g = (struct wb_xport_grant){.chunk = {.bytes = 64}, .iov = &to, .n_iov = 1};
		for (int i = 0; i < MESH; i++)
			ck_assert_int_eq(wb_xport_grant(f.dst.x, all[i], &g), 0);
		fx_wait(&f, &f.src, WB_XP_GRANT, round * MESH);
		for (int i = 0; i < MESH; i++)
			ck_assert_int_eq(wb_xport_disconnect(f.dst.x, all[i]), 0);
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, down + MESH);
		fx_wait(&f, &f.src, WB_XP_CONN_DOWN, gone + MESH);
		for (int i = 0; i < MESH; i++)
			ck_assert_int_eq(wb_xport_disconnect(f.dst.x, all[i]), -ENOTCONN);
	}
	fx_close(&f);
}
END_TEST

/* Somebody listens, and never says a word. */
static int silent_listener(char endpoint[32])
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(sa);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, 4096), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	snprintf(endpoint, 32, "127.0.0.1:%u", ntohs(sa.sin_port));
	return fd;
}

/* As many as there may be strangers, who are none. */
START_TEST(dialling_silent_peers_keeps_no_healthy_one_out)
{
	char endpoint[32];
	int fd = silent_listener(endpoint);
	struct wb_xport_peer p = {.name = "x", .endpoint = endpoint, .epoch = &fx_epoch.id};
	struct fx_xport f;
	wb_conn_t c;

	fx_open(&f, "tcp", &(struct fx_opts){.sockets = 1, .handshake_ns = 100 * WB_NS_PER_S});
	for (int i = 0; i < WB__STRANGERS_MAX; i++)
		ck_assert_int_eq(wb_xport_connect(f.src.x, &p, &c, NULL), 0);
	fx_join(&f);
	fx_close(&f);
	close(fd);
}
END_TEST

/* They do not end by themselves before the test does. */
START_TEST(strangers_that_linger_make_room_for_who_comes)
{
	static int fd[WB__STRANGERS_MAX][2];
	struct fx_xport f;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.handshake_ns = 100 * WB_NS_PER_S});
	for (int i = 0; i < WB__STRANGERS_MAX; i++) {
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]), 0);
		ck_assert_int_eq(wb_xport_adopt(f.src.x, fd[i][0], NULL), 0);
	}
	/* At first the house is full, of those who have just come. */
	while (!f.dst.count[WB_XP_CONN_UP]) {
		int down = f.dst.count[WB_XP_CONN_DOWN];

		fx_dial(&f, &fx_epoch, "src");
		while (!f.dst.count[WB_XP_CONN_UP] && f.dst.count[WB_XP_CONN_DOWN] == down)
			fx_pump(&f);
		poll(NULL, 0, 20);
	}
	for (int i = 0; i < WB__STRANGERS_MAX; i++)
		close(fd[i][1]);
	fx_close(&f);
}
END_TEST

static bool has_ended(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

/* Its loop knows it already, and would speak of memory that is gone. */
START_TEST(who_has_proved_itself_makes_no_room_for_strangers)
{
	static int fd[WB__STRANGERS_MAX][2];
	struct fx_xport f;
	int last[2];

	fx_open(&f, fx_kinds[_i],
		&(struct fx_opts){.sockets = 1, .handshake_ns = 100 * WB_NS_PER_S});
	f.is_quiet = true; /* nobody takes what the rail says */
	fx_dial(&f, &fx_epoch, "src");
	while (!n_waiting(f.src.x))
		fx_pump_some(&f);
	for (int i = 0; i < WB__STRANGERS_MAX; i++) {
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]), 0);
		ck_assert_int_eq(wb_xport_adopt(f.src.x, fd[i][0], NULL), 0);
	}
	/* One more makes one of the others go, when that has lingered. */
	for (bool gone = false; !gone;) {
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, last), 0);
		ck_assert_int_eq(wb_xport_adopt(f.src.x, last[0], NULL), 0);
		fx_pump_some(&f);
		poll(NULL, 0, 20);
		ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
		gone = has_ended(fd[0][1]);
		close(last[1]);
	}
	f.is_quiet = false;
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 1);
	for (int i = 0; i < WB__STRANGERS_MAX; i++)
		close(fd[i][1]);
	fx_close(&f);
}
END_TEST

#define RANGE 64u

/* No transport needs a cap of its own on how many ranges a chunk has. */
START_TEST(a_chunk_of_the_most_ranges_arrives)
{
	static struct iovec to[WB_XPORT_IOV_MAX + 1], from[WB_XPORT_IOV_MAX];
	struct wb_xport_grant g = {.chunk = {.transfer = 1, .bytes = WB_XPORT_IOV_MAX * RANGE},
		.iov = to,
		.n_iov = WB_XPORT_IOV_MAX};
	struct wb_xport_write w = {.iov = from, .n_iov = WB_XPORT_IOV_MAX};
	struct wb_xport_event *e;
	struct fx_xport f;
	int at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = 2ull * WB_XPORT_IOV_MAX * RANGE});
	fx_join(&f);
	fx_fill(f.src.mem, f.src.mem_bytes, 1);
	for (uint32_t i = 0; i < WB_XPORT_IOV_MAX; i++) {
		from[i] = (struct iovec){f.src.mem + 2ull * i * RANGE, RANGE};
		to[i] = (struct iovec){
			f.dst.mem + 2ull * (WB_XPORT_IOV_MAX - 1 - i) * RANGE, RANGE};
	}
	g.n_iov++;
	to[WB_XPORT_IOV_MAX] = (struct iovec){f.dst.mem + RANGE, 1};
	g.chunk.bytes++;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g.n_iov--;
	g.chunk.bytes--;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	fx_wait(&f, &f.src, WB_XP_GRANT, 1);
	e = fx_take(&f.src, WB_XP_GRANT, &at);
	w.grant = e->grant;
	ck_assert_int_eq(wb_xport_write(f.src.x, e->conn, &w), 0);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	for (uint32_t i = 0; i < WB_XPORT_IOV_MAX; i++)
		ck_assert(!memcmp(to[i].iov_base, from[i].iov_base, RANGE));
	fx_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_full");
	TCase *c = tcase_create("xport_full");

	(void)wb_open_files_raise();
	suite_add_tcase(s, c);
	tcase_add_test(c, regions_change_though_nobody_takes_events);
	tcase_add_loop_test(c, each_grant_ends_once_before_its_connection_though_the_ring_was_full,
		0, FX_BARE_KINDS);
	tcase_add_loop_test(c, an_agent_has_as_many_connections_as_come, 0, FX_KINDS);
	tcase_add_test(c, dialling_silent_peers_keeps_no_healthy_one_out);
	tcase_add_loop_test(c, strangers_that_linger_make_room_for_who_comes, 0, FX_BARE_KINDS);
	tcase_add_loop_test(c, who_has_proved_itself_makes_no_room_for_strangers, 0, FX_BARE_KINDS);
	tcase_add_loop_test(c, a_chunk_of_the_most_ranges_arrives, 0, FX_KINDS);
	return fx_run(s);
}
