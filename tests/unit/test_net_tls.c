/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_tls.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "net/listen.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
	struct wb_tls *st, *ct;
	struct wb_listener *l;
	struct fx_end server, client;
};

static void pair_open(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	p->st = fx_psk_tls(true, "default/llm", 7);
	p->ct = fx_psk_tls(false, "default/llm", 7);
	p->l = fx_tls_listen(p->st, &p->server, false);
	fx_tls_dial(p->ct, "127.0.0.1", wb_listener_port(p->l), &p->client);
	fx_loop_until(&p->client.opened, 1);
	fx_loop_until(&p->server.opened, 1);
}

static void pair_close(struct pair *p)
{
	if (p->client.ch)
		wb_chan_close(p->client.ch);
	if (p->server.ch)
		wb_chan_close(p->server.ch);
	fx_loop_until(&p->client.closed, 1);
	fx_loop_until(&p->server.closed, 1);
	wb_listener_close(p->l);
	wb_tls_put(p->st);
	wb_tls_put(p->ct);
}

START_TEST(frames_of_all_sizes_arrive_in_order_and_come_back)
{
	const size_t sizes[] = {16, 17, 100, 16384, 16385, 70000, FX_FRAME_MAX, 16};
	struct pair p;
	int n = 0;

	pair_open(&p);
	ck_assert_str_eq(p.server.identity, "default/llm");
	ck_assert_int_eq(strncmp(wb_chan_peer(p.client.ch), "127.0.0.1:", 10), 0);
	p.server.echo = true;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < WB_ARRAY_SIZE(sizes); i++)
			ck_assert_int_eq(fx_send_frame(p.client.ch, ++n, sizes[i]), 0);
		fx_loop_until(&p.client.frames, n);
	}
	ck_assert_uint_eq(p.client.bytes, p.server.bytes);
	ck_assert_uint_eq(wb_chan_queued(p.client.ch), 0);
	pair_close(&p);
	ck_assert_int_eq(p.client.code, 0);
	ck_assert_int_eq(p.server.code, 0);
}
END_TEST

START_TEST(a_full_queue_is_eagain_and_nothing_is_lost)
{
	struct pair p;
	int n = 0, rc;

	pair_open(&p);
	while (!(rc = fx_send_frame(p.client.ch, n + 1, 500000)))
		n++;
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_int_eq(fx_send_frame(p.client.ch, n + 1, 5u << 20), -EMSGSIZE);
	ck_assert_int_ge(n, 8);
	fx_loop_until(&p.server.frames, n);
	ck_assert_int_eq(fx_send_frame(p.client.ch, ++n, 500000), 0);
	/* Closing sends what is queued first. */
	wb_chan_close(p.client.ch);
	ck_assert_int_eq(fx_send_frame(p.client.ch, 1, 16), -ENOTCONN);
	fx_loop_until(&p.server.closed, 1);
	ck_assert_int_eq(p.server.frames, n);
	ck_assert_int_eq(p.server.code, 0);
	pair_close(&p);
}
END_TEST

START_TEST(the_last_frame_before_a_close_arrives_though_much_is_unread)
{
	struct pair p;

	for (int i = 0; i < 5; i++) {
		pair_open(&p);
		p.server.echo = true;
		p.server.close_at = 1;
		for (int n = 1; n <= 8; n++)
			ck_assert_int_eq(fx_send_frame(p.client.ch, n, n == 1 ? 16 : 400000), 0);
		fx_loop_until(&p.client.closed, 1);
		ck_assert_int_eq(p.client.frames, 1);
		ck_assert_msg(p.client.code == 0, "%s", p.client.msg);
		pair_close(&p);
	}
}
END_TEST

static int put_off(void *cookie, struct wb_chan *ch, size_t bytes)
{
	(void)cookie;
	(void)ch;
	(void)bytes;
	return -EAGAIN;
}

static uint64_t rounds(void)
{
	struct wb_loop_lag lag;

	wb_loop_lag(fx_loop, &lag);
	return lag.rounds;
}

/* The peer takes nothing more and goes on to speak: the loop turns for what it can do something
 * about, until the time to linger is over (1), or the peer takes it after all (0). */
START_TEST(a_channel_that_closes_does_not_turn_the_loop_for_what_it_does_not_read)
{
	struct wb_chan_cb cb;
	struct pair p;
	uint64_t before;
	int n = 0;

	pair_open(&p);
	cb = fx_cb_of(&p.client);
	cb.on_head = put_off;
	wb_chan_bind(p.client.ch, &cb);
	while (fx_send_frame(p.server.ch, n + 1, 500000) == 0)
		n++;
	for (int i = 0; i < 100; i++) /* until the socket takes no more */
		wb_loop_run_once(fx_loop, false);
	ck_assert_uint_gt(wb_chan_queued(p.server.ch), 0);
	wb_chan_close(p.server.ch);
	ck_assert_int_eq(fx_send_frame(p.client.ch, 1, 1000), 0);
	before = rounds();
	if (_i) {
		fx_loop_until(&p.server.closed, 1);
		ck_assert_uint_le(rounds() - before, 1000);
	} else {
		for (int i = 0; i < 100; i++)
			wb_loop_run_once(fx_loop, false);
		cb.on_head = NULL;
		wb_chan_bind(p.client.ch, &cb);
		wb_chan_resume(p.client.ch);
		fx_loop_until(&p.client.closed, 1);
		ck_assert_int_eq(p.client.frames, n);
		ck_assert_msg(p.client.code == 0, "%s", p.client.msg);
	}
	pair_close(&p);
}
END_TEST

START_TEST(an_oversized_frame_ends_the_channel_before_memory_is_taken)
{
	uint8_t head[WB_FRAME_HEAD_BYTES] = {0xff, 0xff, 0xff, 0xff};
	struct pair p;

	pair_open(&p);
	ck_assert_int_eq(wb_chan_send(p.client.ch, head, sizeof(head)), 0);
	fx_loop_until(&p.server.closed, 1);
	ck_assert_int_eq(p.server.code, -EMSGSIZE);
	ck_assert_msg(strstr(p.server.msg, "127.0.0.1:") != NULL &&
			      strstr(p.server.msg, "frame of 4294967295 bytes") != NULL,
		"%s", p.server.msg);
	pair_close(&p);
}
END_TEST

START_TEST(a_truncated_frame_is_ebadmsg)
{
	static const size_t cut[] = {1, 15, 16, 99};
	uint8_t *f = fx_make_frame(1, 100);
	struct pair p;

	pair_open(&p);
	ck_assert_int_eq(wb_chan_send(p.client.ch, f, cut[_i]), 0);
	wb_chan_close(p.client.ch);
	fx_loop_until(&p.server.closed, 1);
	ck_assert_int_eq(p.server.code, -EBADMSG);
	ck_assert_msg(strstr(p.server.msg, "middle of a frame") != NULL, "%s", p.server.msg);
	ck_assert_int_eq(p.server.frames, 0);
	free(f);
	pair_close(&p);
}
END_TEST

static const struct {
	const char *id;
	uint8_t fill;
	const char *client, *server;
} wrong[] = {
	{"default/llm", 8, "does not accept key \"default/llm\": copy the key file of that side",
		"holds another key \"default/llm\" than this side: copy this side's key file"},
	{"default/other", 7, "does not accept key \"default/other\"",
		"names key \"default/other\", which is not known here"},
};

START_TEST(a_wrong_key_says_on_both_sides_what_to_fix)
{
	struct fx_end server = {0}, client = {0};
	struct wb_tls *st = fx_psk_tls(true, "default/llm", 7);
	struct wb_tls *ct = fx_psk_tls(false, wrong[_i].id, wrong[_i].fill);
	struct wb_listener *l = fx_tls_listen(st, &server, false);

	fx_tls_dial(ct, "127.0.0.1", wb_listener_port(l), &client);
	fx_loop_until(&client.closed, 1);
	fx_loop_until(&server.refused, 1);
	ck_assert_int_eq(client.code, -EACCES);
	ck_assert_msg(strstr(client.msg, wrong[_i].client) != NULL, "%s", client.msg);
	ck_assert_msg(strstr(server.refusal, wrong[_i].server) != NULL, "%s", server.refusal);
	ck_assert(!server.opened && !client.opened);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

static int find_key(void *cookie, const char *id, struct wb_psk *out)
{
	int *asked = cookie;

	++*asked;
	if (strncmp(id, "epoch-", 6))
		return -ENOENT;
	*out = fx_key(id, (uint8_t)atoi(id + 6));
	return 0;
}

START_TEST(a_server_looks_keys_up_by_their_id)
{
	int asked = 0;
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk_find = find_key, .psk_cookie = &asked};
	struct fx_end server = {0}, client = {0};
	struct wb_tls *st, *ct = fx_psk_tls(false, "epoch-42", 42);
	struct wb_listener *l;

	ck_assert_int_eq(wb_tls_server_create(&o, &st, NULL), 0);
	l = fx_tls_listen(st, &server, false);
	fx_tls_dial(ct, "localhost", wb_listener_port(l), &client);
	fx_loop_until(&server.opened, 1);
	ck_assert_str_eq(server.identity, "epoch-42");
	ck_assert_int_ge(asked, 1);
	/* A channel outlives its listener and the caller's reference to the context. */
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
	fx_loop_until(&client.opened, 1);
	ck_assert_int_eq(fx_send_frame(client.ch, 1, 1000), 0);
	fx_loop_until(&server.frames, 1);
	wb_chan_close(server.ch);
	fx_loop_until(&client.closed, 1);
	fx_loop_until(&server.closed, 1);
}
END_TEST

/* ---- other bytes on the port ----------------------------------------------------------------- */

static int raw_connect(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

START_TEST(another_first_byte_is_handed_out_raw_and_unread)
{
	struct fx_end server = {0};
	struct wb_tls *st = fx_psk_tls(true, "k", 1);
	struct wb_listener *l = fx_tls_listen(st, &server, true);
	int fd = raw_connect(wb_listener_port(l));
	char buf[8];

	ck_assert_int_eq(write(fd, "WBbulk", 6), 6);
	fx_loop_until(&server.raws, 1);
	ck_assert_int_eq(read(server.raw_fd, buf, 6), 6);
	ck_assert_mem_eq(buf, "WBbulk", 6);
	close(server.raw_fd);
	close(fd);
	wb_listener_close(l);
	wb_tls_put(st);
}
END_TEST

static const struct {
	const char *bytes;
	size_t n;
	bool leave;
	const char *word;
} rude[] = {
	{"GET / HTTP/1.1\r\n\r\n", 18, false, "does not speak TLS"},
	{"", 0, false, "said nothing"},
	{"", 0, true, "left before it said anything"},
	{"\x16rubbish rubbish", 16, false, "TLS"},
	{"\x16", 1, false, "no answer within 50 ms (TLS handshake)"},
	{"\x16\x03\x01", 3, true, "closed the connection"},
};

START_TEST(connections_that_are_not_peers_are_refused_in_time)
{
	struct fx_end server = {0};
	struct wb_tls *st = fx_psk_tls(true, "k", 1);
	struct wb_listen_opts o = {.host = "127.0.0.1", .tls = st, .limits = fx_limits};
	const struct wb_listen_cb cb = {&server, fx_on_chan, NULL, fx_on_refused};
	struct wb_listener *l;
	int fd;

	o.limits.connect_ns = 50 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_listen(fx_loop, &o, &cb, &l, NULL), 0);
	fd = raw_connect(wb_listener_port(l));
	if (rude[_i].n)
		ck_assert_int_eq(write(fd, rude[_i].bytes, rude[_i].n), (ssize_t)rude[_i].n);
	if (rude[_i].leave)
		close(fd);
	fx_loop_until(&server.refused, 1);
	ck_assert_msg(strstr(server.refusal, rude[_i].word) != NULL, "%s", server.refusal);
	if (!rude[_i].leave)
		close(fd);
	wb_listener_close(l);
	wb_tls_put(st);
}
END_TEST

START_TEST(too_many_connections_are_turned_away_and_closing_drops_the_rest)
{
	struct fx_end server = {0};
	struct wb_tls *st = fx_psk_tls(true, "k", 1);
	struct wb_listen_opts o = {
		.host = "127.0.0.1", .tls = st, .limits = fx_limits, .pending_max = 2};
	const struct wb_listen_cb cb = {&server, fx_on_chan, NULL, fx_on_refused};
	struct wb_listener *l;
	int fd[3];
	char c;

	ck_assert_int_eq(wb_listen(fx_loop, &o, &cb, &l, NULL), 0);
	for (int i = 0; i < 3; i++)
		fd[i] = raw_connect(wb_listener_port(l));
	ck_assert_int_eq(write(fd[0], "\x16\x03", 2), 2);
	fx_loop_until(&server.refused, 1);
	ck_assert_msg(strstr(server.refusal, "too many") != NULL, "%s", server.refusal);
	for (int i = 0; i < 5; i++)
		wb_loop_run_once(fx_loop, false);
	wb_listener_close(l);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_le(read(fd[i], &c, 1), 0);
		close(fd[i]);
	}
	ck_assert_int_eq(server.refused, 1);
	wb_tls_put(st);
}
END_TEST

/* They do not end by themselves before the test does. */
START_TEST(who_lingers_makes_room_for_who_comes)
{
	struct wb_chan_limits lim = fx_limits;
	struct fx_end server = {0}, client = {0};
	struct wb_tls *st = fx_psk_tls(true, "k", 1), *ct = fx_psk_tls(false, "k", 1);
	struct wb_listen_opts o = {
		.host = "127.0.0.1", .tls = st, .limits = fx_limits, .pending_max = 2};
	const struct wb_listen_cb cb = {&server, fx_on_chan, NULL, fx_on_refused};
	struct wb_chan_cb mine = fx_cb_of(&client);
	struct wb_listener *l;
	int fd[2];

	o.limits.connect_ns = lim.connect_ns = 100 * WB_NS_PER_S;
	ck_assert_int_eq(wb_listen(fx_loop, &o, &cb, &l, NULL), 0);
	for (int i = 0; i < 2; i++)
		fd[i] = raw_connect(wb_listener_port(l));
	if (_i) /* one is in the middle of its handshake */
		ck_assert_int_eq(write(fd[0], "\x16\x03", 2), 2);
	/* At first the house is full, of those who have just come. */
	while (!server.opened) {
		client = (struct fx_end){0};
		ck_assert_int_eq(wb_tls_connect(fx_loop, ct, "127.0.0.1", wb_listener_port(l), &lim,
					 &mine, &client.ch),
			0);
		while (!server.opened && !client.closed)
			wb_loop_run_once(fx_loop, true);
	}
	wb_chan_close(server.ch);
	fx_loop_until(&server.closed, 1);
	fx_loop_until(&client.closed, 1);
	wb_listener_close(l);
	for (int i = 0; i < 2; i++)
		close(fd[i]);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

START_TEST(nobody_listening_and_no_answer_are_said)
{
	struct wb_chan_limits lim = fx_limits;
	struct sockaddr_in sa = {.sin_family = AF_INET};
	struct fx_end a = {0}, b = {0};
	struct wb_tls *ct = fx_psk_tls(false, "k", 1);
	struct wb_chan_cb cb = fx_cb_of(&b);
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	getsockname(fd, (struct sockaddr *)&sa, &len);
	fx_tls_dial(ct, "127.0.0.1", ntohs(sa.sin_port), &a);
	fx_loop_until(&a.closed, 1);
	ck_assert_int_eq(a.code, -ECONNREFUSED);
	ck_assert_msg(strstr(a.msg, "nobody listens there") != NULL, "%s", a.msg);
	ck_assert_int_eq(listen(fd, 1), 0);
	lim.connect_ns = 500 * WB_NS_PER_MS; /* the connection itself is made by then */
	ck_assert_int_eq(
		wb_tls_connect(fx_loop, ct, "127.0.0.1", ntohs(sa.sin_port), &lim, &cb, &b.ch), 0);
	fx_loop_until(&b.closed, 1);
	ck_assert_int_eq(b.code, -ETIMEDOUT);
	ck_assert_msg(strstr(b.msg, "(TLS handshake)") != NULL, "%s", b.msg);
	close(fd);
	/* Closing while the name is looked up, and in the handshake. */
	memset(&b, 0, sizeof(b));
	ck_assert_int_eq(wb_tls_connect(fx_loop, ct, "127.0.0.1", 1, &lim, &cb, &b.ch), 0);
	wb_chan_close(b.ch);
	fx_loop_until(&b.closed, 1);
	ck_assert_int_eq(b.code, 0);
	ck_assert_int_eq(wb_tls_connect(fx_loop, ct, "", 1, &lim, &cb, &b.ch), -EINVAL);
	ck_assert_int_eq(wb_tls_connect(fx_loop, ct, "h", 0, &lim, &cb, &b.ch), -EINVAL);
	wb_tls_put(ct);
}
END_TEST

/* A listener on @addr whose queue is full: a connect there is never answered. */
static int deaf(const char *addr, uint16_t *port, int *filler)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(*port)};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(inet_pton(AF_INET, addr, &sa.sin_addr), 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, 0), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	*port = ntohs(sa.sin_port);
	*filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(*filler, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

START_TEST(an_address_that_never_answers_costs_a_moment_when_there_is_another)
{
	static const char *const addr[] = {"127.0.0.2", "127.0.0.3", "127.0.0.1"};
	struct fx_end server = {0}, client = {0};
	struct wb_tls *st = fx_psk_tls(true, "k", 1), *ct = fx_psk_tls(false, "k", 1);
	struct wb_chan_cb cb = fx_cb_of(&client);
	struct wb_listener *l = fx_tls_listen(st, &server, false);
	uint16_t port = wb_listener_port(l);
	uint64_t began = wb_now_ns(&wb_clock_real), took;
	int filler, fd = deaf("127.0.0.2", &port, &filler);

	/* The first is silent, the second refuses, the third answers. */
	ck_assert_int_eq(wb_tls_connect_any(fx_loop, ct, &(struct wb_dial_to){addr, 3, port},
				 &fx_limits, &cb, &client.ch),
		0);
	fx_loop_until(&client.opened, 1);
	took = wb_now_ns(&wb_clock_real) - began;
	ck_assert_uint_ge(took, WB_DIAL_STAGGER_NS);
	ck_assert_uint_lt(took, 4 * WB_DIAL_STAGGER_NS);
	wb_chan_close(client.ch);
	fx_loop_until(&client.closed, 1);
	close(fd);
	close(filler);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

START_TEST(addresses_that_fail_are_named_each_with_its_reason_and_in_time)
{
	static const char *const addr[WB_DIAL_ADDRS_MAX + 1] = {"127.0.0.2", "127.0.0.3"};
	struct wb_chan_limits lim = fx_limits;
	struct fx_end a = {0}, b = {0};
	struct wb_tls *ct = fx_psk_tls(false, "k", 1);
	struct wb_chan_cb cb = fx_cb_of(&a);
	uint16_t port = 0;
	int filler, fd = deaf("127.0.0.2", &port, &filler);
	struct wb_dial_to two = {addr, 2, port};
	const char *name = "localhost";
	char want[3][64];

	lim.dial_ns = 300 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_tls_connect_any(fx_loop, ct, &two, &lim, &cb, &a.ch), 0);
	fx_loop_until(&a.closed, 1);
	ck_assert_int_eq(a.code, -ETIMEDOUT);
	snprintf(want[0], 64, "127.0.0.2:%u: no answer within 300 ms (connecting)", port);
	snprintf(want[1], 64, "127.0.0.3:%u: %s", port, wb_strerror(-ECONNREFUSED));
	snprintf(want[2], 64, "127.0.0.2:%u: %s", port, wb_strerror(-ETIMEDOUT));
	for (int i = 0; i < 3; i++)
		ck_assert_msg(strstr(a.msg, want[i]) != NULL, "%s: %s", want[i], a.msg);
	close(fd);
	close(filler);
	/* Nobody anywhere; and one address alone is said as ever. */
	cb = fx_cb_of(&b);
	ck_assert_int_eq(wb_tls_connect_any(fx_loop, ct, &two, &lim, &cb, &b.ch), 0);
	fx_loop_until(&b.closed, 1);
	ck_assert_int_eq(b.code, -ECONNREFUSED);
	ck_assert_msg(strstr(b.msg, "none of its addresses can be reached: 127.0.0.2:") != NULL,
		"%s", b.msg);
	ck_assert_msg(strstr(b.msg, want[1]) != NULL, "%s", b.msg);
	two.n = 0;
	ck_assert_int_eq(wb_tls_connect_any(fx_loop, ct, &two, &lim, &cb, &b.ch), -EINVAL);
	two.n = WB_DIAL_ADDRS_MAX + 1;
	ck_assert_int_eq(wb_tls_connect_any(fx_loop, ct, &two, &lim, &cb, &b.ch), -EINVAL);
	two = (struct wb_dial_to){&name, 1, port};
	ck_assert_int_eq(wb_tls_connect_any(fx_loop, ct, &two, &lim, &cb, &b.ch), -EINVAL);
	wb_tls_put(ct);
}
END_TEST

START_TEST(a_port_in_use_is_eaddrinuse)
{
	struct fx_end server = {0};
	struct wb_tls *st = fx_psk_tls(true, "k", 1);
	struct wb_listener *l = fx_tls_listen(st, &server, false), *m;
	struct wb_listen_opts o = {
		.host = "127.0.0.1", .port = wb_listener_port(l), .tls = st, .limits = fx_limits};
	const struct wb_listen_cb cb = {&server, fx_on_chan, NULL, NULL};
	struct wb_err err = {0};

	ck_assert_int_eq(wb_listen(fx_loop, &o, &cb, &m, &err), -EADDRINUSE);
	ck_assert_msg(strstr(err.msg, "another process has the port") != NULL, "%s", err.msg);
	wb_listener_close(l);
	/* All addresses, whatever the machine has. */
	o.host = NULL;
	o.port = 0;
	ck_assert_msg(!wb_listen(fx_loop, &o, &cb, &m, &err), "%s", err.msg);
	close(raw_connect(wb_listener_port(m)));
	wb_listener_close(m);
	wb_tls_put(st);
}
END_TEST

START_TEST(making_things_without_memory_is_enomem_and_leaks_nothing)
{
	struct wb_psk k = fx_key("k", 1);
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &k};
	struct wb_tls *ct = fx_psk_tls(false, "k", 1), *st;
	struct fx_end e = {0};
	struct wb_listen_opts lo = {.host = "127.0.0.1", .limits = fx_limits};
	const struct wb_listen_cb lcb = {&e, fx_on_chan, NULL, NULL};
	struct wb_chan_cb cb = fx_cb_of(&e);
	struct wb_listener *l;
	int rc = -ENOMEM, at[3] = {0}, step = 0;

	/* Three creations in turn, each with its first, second, ... allocation failing. */
	while (step < 3) {
		wb_mem_fail_at((uint64_t)++at[step]);
		if (step == 0)
			rc = wb_tls_server_create(&o, &st, NULL);
		else if (step == 1)
			rc = wb_listen(fx_loop, &lo, &lcb, &l, NULL);
		else
			rc = wb_tls_connect(fx_loop, ct, "127.0.0.1", 1, &fx_limits, &cb, &e.ch);
		if (wb_mem_failed()) {
			ck_assert_int_eq(rc, -ENOMEM);
			continue;
		}
		wb_mem_fail_at(0);
		ck_assert_int_eq(rc, 0);
		lo.tls = st;
		step++;
	}
	ck_assert(at[0] > 1 && at[1] > 3 && at[2] > 3);
	wb_chan_close(e.ch);
	fx_loop_until(&e.closed, 1);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tls");
	TCase *t = tcase_create("psk");

	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_test(t, frames_of_all_sizes_arrive_in_order_and_come_back);
	tcase_add_test(t, a_full_queue_is_eagain_and_nothing_is_lost);
	tcase_add_test(t, the_last_frame_before_a_close_arrives_though_much_is_unread);
	tcase_add_loop_test(
		t, a_channel_that_closes_does_not_turn_the_loop_for_what_it_does_not_read, 0, 2);
	tcase_add_test(t, an_oversized_frame_ends_the_channel_before_memory_is_taken);
	tcase_add_loop_test(t, a_truncated_frame_is_ebadmsg, 0, 4);
	tcase_add_loop_test(t, a_wrong_key_says_on_both_sides_what_to_fix, 0, WB_ARRAY_SIZE(wrong));
	tcase_add_test(t, a_server_looks_keys_up_by_their_id);
	suite_add_tcase(s, t);
	t = tcase_create("port");
	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_test(t, another_first_byte_is_handed_out_raw_and_unread);
	tcase_add_loop_test(
		t, connections_that_are_not_peers_are_refused_in_time, 0, WB_ARRAY_SIZE(rude));
	tcase_add_test(t, too_many_connections_are_turned_away_and_closing_drops_the_rest);
	tcase_add_loop_test(t, who_lingers_makes_room_for_who_comes, 0, 2);
	tcase_add_test(t, nobody_listening_and_no_answer_are_said);
	tcase_add_test(t, an_address_that_never_answers_costs_a_moment_when_there_is_another);
	tcase_add_test(t, addresses_that_fail_are_named_each_with_its_reason_and_in_time);
	tcase_add_test(t, a_port_in_use_is_eaddrinuse);
	tcase_add_test(t, making_things_without_memory_is_enomem_and_leaks_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
