/* SPDX-License-Identifier: Apache-2.0 */
/* The port of agents, and who connects to it without proving who it is. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_tls.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MANY 12
#define SOCKETS 80

/* The last channel handed out is server.ch; all of them are ch[]. */
static struct fx_end server, client[4];
static struct wb_chan *ch[MANY];
static int n_ch, ended;
static char why_ended[WB_ERR_MSG_MAX];
static struct wb_listener *l;
static struct wb_tls *st, *ct;
static int fd[SOCKETS], n_fd;

static void on_end(void *cookie, struct wb_chan *c, const struct wb_err *why)
{
	(void)cookie;
	(void)c;
	ended++;
	strcpy(why_ended, why->msg);
}

static void on_chan(void *cookie, struct wb_chan *c)
{
	const struct wb_chan_cb cb = {.cookie = cookie, .on_closed = on_end};

	ck_assert_int_lt(n_ch, MANY);
	ch[n_ch++] = c;
	server.opened++;
	wb_chan_bind(c, &cb);
}

static void open_port(struct wb_listen_opts o)
{
	const struct wb_listen_cb cb = {&server, on_chan, NULL, fx_on_refused};
	struct wb_err err = {0};
	uint64_t deadline = o.limits.connect_ns;

	o.host = "127.0.0.1";
	o.tls = st;
	o.limits = fx_limits;
	o.limits.connect_ns = deadline ? deadline : 100 * WB_NS_PER_S; /* nobody ends by itself */
	ck_assert_msg(!wb_listen(fx_loop, &o, &cb, &l, &err), "%s", err.msg);
}

static void set_up(void)
{
	fx_loop_set_up();
	memset(&server, 0, sizeof(server));
	memset(client, 0, sizeof(client));
	n_ch = n_fd = ended = 0;
	st = fx_psk_tls(true, "k", 1);
	ct = fx_psk_tls(false, "k", 1);
}

static void tear_down(void)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(client); i++)
		if (client[i].ch)
			wb_chan_close(client[i].ch);
	for (size_t i = 0; i < WB_ARRAY_SIZE(client); i++)
		while (client[i].ch)
			wb_loop_run_once(fx_loop, true);
	while (ended < n_ch)
		wb_loop_run_once(fx_loop, true);
	while (n_fd)
		close(fd[--n_fd]);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
	fx_loop_tear_down();
}

/* Sockets that say nothing, as from pod 127.0.0.@pod. */
static void idle(int n, unsigned pod)
{
	struct sockaddr_in from = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000u | pod)};
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(wb_listener_port(l)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	for (int i = 0; i < n; i++) {
		int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		ck_assert_int_eq(bind(s, (struct sockaddr *)&from, sizeof(from)), 0);
		ck_assert_int_eq(connect(s, (struct sockaddr *)&to, sizeof(to)), 0);
		ck_assert_int_lt(n_fd, SOCKETS);
		fd[n_fd++] = s;
	}
	for (int i = 0; i < 5; i++)
		wb_loop_run_once(fx_loop, false);
}

static void dial(struct fx_end *c)
{
	*c = (struct fx_end){0};
	fx_tls_dial(ct, "127.0.0.1", wb_listener_port(l), c);
	while (!c->opened && !c->closed)
		wb_loop_run_once(fx_loop, true);
}

/* Our end may be open a moment before theirs. */
static void dial_in(struct fx_end *c)
{
	int n = server.opened;

	dial(c);
	ck_assert_msg(c->opened, "%s", c->msg);
	fx_loop_until(&server.opened, n + 1);
}

static const struct {
	const char *what;
	struct wb_listen_opts o;
	int n[3]; /* idle sockets of three pods */
	int refused; /* of them */
} floods[] = {
	{"one pod has its share", {.pending_max = 8, .source_max = 4}, {8, 0, 0}, 4},
	{"one pod has all places", {.pending_max = 8, .source_max = 8}, {8, 0, 0}, 0},
	{"three pods have all places", {.pending_max = 8, .source_max = 4}, {4, 4, 4}, 2},
};

START_TEST(idle_sockets_of_other_addresses_keep_nobody_out)
{
	open_port(floods[_i].o);
	for (unsigned k = 0; k < 3; k++)
		idle(floods[_i].n[k], 66 + k);
	ck_assert_msg(
		server.refused == floods[_i].refused, "%s: %d", floods[_i].what, server.refused);
	dial_in(&client[0]); /* at once: nobody has had to wait for a deadline */
}
END_TEST

START_TEST(where_a_handshake_proves_nothing_the_house_is_full_of_those_who_say_nothing)
{
	open_port((struct wb_listen_opts){.pending_max = 2, .proves_later = true});
	dial_in(&client[0]);
	dial_in(&client[1]);
	dial(&client[2]);
	ck_assert_msg(client[2].closed && !client[2].opened, "there were two places");
	/* One says who it is: that is looked at, its place is free. */
	ck_assert_int_eq(wb_chan_trust(ch[0], WB_CHAN_CLAIMS), 0);
	dial_in(&client[2]);
	ck_assert_int_eq(wb_chan_trust(ch[0], WB_CHAN_PROVED), 0);
	/* The other says nothing, and has had its time when somebody else comes. */
	for (dial(&client[3]); !client[3].opened; dial(&client[3]))
		;
	fx_loop_until(&ended, 1);
	ck_assert_msg(strstr(why_ended, "made room for others") != NULL, "%s", why_ended);
	ck_assert(!client[0].closed);
}
END_TEST

START_TEST(where_a_handshake_takes_the_key_who_is_in_holds_no_place)
{
	open_port((struct wb_listen_opts){.pending_max = 1});
	for (size_t i = 0; i < WB_ARRAY_SIZE(client); i++)
		dial_in(&client[i]);
	ck_assert_int_eq(wb_chan_trust(ch[0], WB_CHAN_CLAIMS), 0); /* is nothing to it */
	ck_assert_int_eq(wb_chan_trust(ch[0], WB_CHAN_PROVED), 0);
	ck_assert_int_eq(ended, 0);
}
END_TEST

/* They begin a handshake that is none, so that each is refused when it has its turn. */
static void begin_handshakes(int n, unsigned pod)
{
	static const char hello[] = "\x16\x03\x03\x00\x05nopes";

	idle(n, pod);
	for (int i = n_fd - n; i < n_fd; i++)
		ck_assert_int_eq(send(fd[i], hello, sizeof(hello), 0), sizeof(hello));
}

/* 64 at once, and one each 31 ms. */
START_TEST(handshakes_of_one_address_begin_at_a_pace)
{
	uint64_t began = wb_now_ns(&wb_clock_real), after;

	open_port((struct wb_listen_opts){.source_max = SOCKETS});
	begin_handshakes(72, 66);
	fx_loop_until(&server.refused, 72);
	after = wb_now_ns(&wb_clock_real) - began;
	ck_assert_msg(after >= 8 * WB_NS_PER_S / 32, "all were looked at after %llu ms",
		(unsigned long long)after / WB_NS_PER_MS);
}
END_TEST

START_TEST(whose_turn_comes_too_late_is_turned_away)
{
	open_port((struct wb_listen_opts){
		.source_max = SOCKETS, .limits.connect_ns = 300 * WB_NS_PER_MS});
	server.refusal[0] = '\0';
	begin_handshakes(SOCKETS, 66);
	while (!strstr(server.refusal, "more than 32 handshakes a second")) {
		ck_assert_msg(server.refused < SOCKETS, "%s", server.refusal);
		wb_loop_run_once(fx_loop, true);
	}
}
END_TEST

START_TEST(an_address_that_has_used_up_its_handshakes_keeps_no_other_out)
{
	int n;

	open_port((struct wb_listen_opts){.source_max = SOCKETS});
	begin_handshakes(78, 66);
	fx_loop_until(&server.refused, 64);
	n = server.refused;
	begin_handshakes(1, 67);
	fx_loop_until(&server.refused, n + 1);
	while (!strstr(server.refusal, "127.0.0.67"))
		wb_loop_run_once(fx_loop, true);
	ck_assert_int_lt(server.refused, 79); /* some of the others still wait */
	dial_in(&client[0]); /* from within the pod: without a pace */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("strangers");
	TCase *t = tcase_create("port");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(
		t, idle_sockets_of_other_addresses_keep_nobody_out, 0, WB_ARRAY_SIZE(floods));
	tcase_add_test(
		t, where_a_handshake_proves_nothing_the_house_is_full_of_those_who_say_nothing);
	tcase_add_test(t, where_a_handshake_takes_the_key_who_is_in_holds_no_place);
	tcase_add_test(t, handshakes_of_one_address_begin_at_a_pace);
	tcase_add_test(t, whose_turn_comes_too_late_is_turned_away);
	tcase_add_test(t, an_address_that_has_used_up_its_handshakes_keeps_no_other_out);
	suite_add_tcase(s, t);
	return fx_run(s);
}
