/* SPDX-License-Identifier: Apache-2.0 */
/* Rails: a connection keeps to those that it was given and came to, and a capped one serves all in
 * turns. */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAILS 3

/* Rail 1 here and rail 2 there, by two sockets, and no other moves a byte. */
START_TEST(a_connection_of_some_rails_uses_no_other)
{
	struct fx_xport f;
	struct wb_xport_peer p = {
		.name = "src", .epoch = &fx_epoch.id, .rails = 1u << 1, .depth = 8};
	char endpoint[WB_XPORT_ENDPOINT_MAX];
	const struct wb_xport_conn_info *info;
	struct wb_err err = {0};
	int at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.n_rail = RAILS, .mem_bytes = 4 << 20});
	ck_assert_int_eq(
		wb_xport_endpoint_of(f.src.endpoint, 1u << 2, endpoint, sizeof(endpoint)), 0);
	p.endpoint = endpoint;
	p.rails = 1u << RAILS;
	ck_assert_int_eq(wb_xport_connect(f.dst.x, &p, &f.conn, &err), -EINVAL);
	p.rails = 1u << 1;
	ck_assert_int_eq(wb_xport_connect(f.dst.x, &p, &f.conn, &err), 0);
	while (!f.dst.count[WB_XP_CONN_UP])
		fx_pump(&f);
	info = fx_take(&f.dst, WB_XP_CONN_UP, &at)->info;
	ck_assert_uint_eq(info->depth, 8);
	ck_assert_uint_le(info->n_socket, 2);
	fx_wait(&f, &f.src, WB_XP_CONN_UP, 1);
	at = 0;
	f.src_conn = fx_take(&f.src, WB_XP_CONN_UP, &at)->conn;
	for (uint64_t i = 0; i < 6; i++) {
		struct fx_job *j = fx_job_make(&f, 300000, 1, i + 1);

		fx_job_run(&f, j, true);
		fx_job_free(j);
	}
	for (uint32_t r = 0; r < RAILS; r++) {
		struct wb_xport_stats in, out;

		ck_assert_int_eq(wb_xport_rail_stats(f.dst.x, r, &in), 0);
		ck_assert_int_eq(wb_xport_rail_stats(f.src.x, r, &out), 0);
		ck_assert_msg(in.rx_bytes == (r == 1 ? 6 * 300000 : 0), "in by rail %u: %llu", r,
			(unsigned long long)in.rx_bytes);
		ck_assert_msg(!!out.tx_chunks == (r == 2), "out by rail %u: %llu", r,
			(unsigned long long)out.tx_chunks);
	}
	fx_close(&f);
}
END_TEST

/* A listener for all addresses, as an agent has. */
static int listen_anywhere(uint16_t *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(sa);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, RAILS), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	*port = ntohs(sa.sin_port);
	return fd;
}

/* The rails that sent something since @sent was written, a bit each. */
static uint32_t have_sent(struct wb_xport *x, uint64_t sent[RAILS])
{
	struct wb_xport_stats now;
	uint32_t rails = 0;

	for (uint32_t r = 0; r < RAILS; r++) {
		ck_assert_int_eq(wb_xport_rail_stats(x, r, &now), 0);
		rails |= (uint32_t)(now.tx_chunks > sent[r]) << r;
		sent[r] = now.tx_chunks;
	}
	return rails;
}

static const char *const by_address[] = {"tcp", "tls"};

/* Whatever came before it: a rail's rate, and its interface, are those of its address. */
START_TEST(a_socket_is_served_by_the_rail_whose_address_it_came_to)
{
	static const char *const addr[RAILS] = {"127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"};
	static const uint32_t order[] = {2, 0, 0, 1};
	uint64_t sent[RAILS] = {0};
	struct fx_xport f;
	char endpoint[32];
	uint16_t port;
	int fd, at = 0;

	fx_open(&f, by_address[_i],
		&(struct fx_opts){.n_rail = RAILS, .sockets = 1, .src_addr = addr});
	fd = listen_anywhere(&port);
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(order); i++) {
		struct wb_xport_peer p = {
			.name = "src", .endpoint = endpoint, .epoch = &fx_epoch.id};
		struct fx_job *j;

		snprintf(endpoint, sizeof(endpoint), "127.0.0.%u:%u", order[i] + 1, port);
		ck_assert_int_eq(wb_xport_connect(f.dst.x, &p, &f.conn, NULL), 0);
		ck_assert_int_eq(wb_xport_adopt(f.src.x, accept(fd, NULL, NULL), NULL), 0);
		fx_wait(&f, &f.dst, WB_XP_CONN_UP, (int)i + 1);
		fx_wait(&f, &f.src, WB_XP_CONN_UP, (int)i + 1);
		f.src_conn = fx_take(&f.src, WB_XP_CONN_UP, &at)->conn;
		j = fx_job_make(&f, 300000, 1, i + 1);
		fx_job_run(&f, j, true);
		fx_job_free(j);
		ck_assert_uint_eq(have_sent(f.src.x, sent), 1u << order[i]);
	}
	close(fd);
	fx_close(&f);
}
END_TEST

static const struct {
	const char *all;
	uint32_t rails;
	int rc;
	const char *some;
} endpoints[] = {
	{"a:1,b:1,c:1", 0, 0, "a:1,b:1,c:1"},
	{"a:1,b:1,c:1", 2, 0, "b:1"},
	{"a:1,b:1,c:1", 5, 0, "a:1,c:1"},
	{"a:1", 1, 0, "a:1"},
	{"a:1,b:1", 4, -EINVAL, ""},
	{"a:1,b:1", 3u << 30, -EINVAL, ""},
	{"a:1,twelve-bytes", 2, -ENOSPC, ""},
};

START_TEST(of_an_endpoint_some_addresses_can_be_taken)
{
	char out[12] = "";

	ck_assert_int_eq(
		wb_xport_endpoint_of(endpoints[_i].all, endpoints[_i].rails, out, sizeof(out)),
		endpoints[_i].rc);
	if (!endpoints[_i].rc)
		ck_assert_str_eq(out, endpoints[_i].some);
}
END_TEST

/* ---- caps ---- */

#define TURNS 4
#define TURN_BYTES (512 << 10)

static _Atomic uint64_t landed[TURNS];

static void count(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	(void)data;
	(void)wire_off;
	atomic_fetch_add((_Atomic uint64_t *)ctx, bytes);
}

static const char *const capped[] = {"tcp", "tls"};

/* As a rail sees time on a busy machine: it stands still for long, then for a moment, by turns. */
static uint64_t busy_now(const struct wb_clock *c)
{
	uint64_t now = wb_now_ns(&wb_clock_real), at = now % (22 * WB_NS_PER_MS);

	(void)c;
	return now - at + (at < 4200 * WB_NS_PER_US ? 0 : 4200 * WB_NS_PER_US);
}

static const struct wb_clock busy = {busy_now};

/* Four chunks by four sockets of one rail each side: when the first is whole, so are the others
 * nearly. Else sources that serve in the same order would keep all readers but one waiting. */
START_TEST(a_capped_rail_moves_all_that_it_has_in_turns)
{
	struct fx_xport f;
	struct iovec to[TURNS], from[TURNS];
	struct wb_xport_event *e;
	int at = 0;

	for (uint32_t i = 0; i < TURNS; i++)
		atomic_store(&landed[i], 0);
	fx_open(&f, capped[_i / 2],
		&(struct fx_opts){.sockets = TURNS,
			.rate = 4000000,
			.mem_bytes = 4 << 20,
			.clock = _i % 2 ? &busy : NULL});
	fx_join(&f);
	for (uint32_t i = 0; i < TURNS; i++) {
		struct wb_xport_grant g = {.cookie = i,
			.chunk = {.bytes = TURN_BYTES, .chunk = i},
			.iov = &to[i],
			.n_iov = 1,
			.observe = count,
			.ctx = &landed[i]};

		to[i] = (struct iovec){f.dst.mem + i * TURN_BYTES, TURN_BYTES};
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, TURNS);
	for (uint32_t i = 0; i < TURNS; i++) {
		struct wb_xport_write w = {.iov = &from[i], .n_iov = 1};

		e = fx_take(&f.src, WB_XP_GRANT, &at);
		w.grant = e->grant;
		from[i] = (struct iovec){f.src.mem + i * TURN_BYTES, TURN_BYTES};
		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	}
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	for (uint32_t i = 0; i < TURNS; i++)
		ck_assert_msg(atomic_load(&landed[i]) > TURN_BYTES / 2, "%llu of chunk %u",
			(unsigned long long)atomic_load(&landed[i]), i);
	fx_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_rails");
	TCase *c = tcase_create("rails");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_connection_of_some_rails_uses_no_other, 0, FX_KINDS);
	tcase_add_loop_test(c, a_socket_is_served_by_the_rail_whose_address_it_came_to, 0,
		(int)WB_ARRAY_SIZE(by_address));
	tcase_add_loop_test(
		c, of_an_endpoint_some_addresses_can_be_taken, 0, (int)WB_ARRAY_SIZE(endpoints));
	tcase_add_loop_test(
		c, a_capped_rail_moves_all_that_it_has_in_turns, 0, 2 * (int)WB_ARRAY_SIZE(capped));
	return fx_run(s);
}
