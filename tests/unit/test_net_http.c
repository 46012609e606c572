/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/err.h"
#include "net/http.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_loop.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct get {
	uint16_t port;
	const char *request;
	char reply[4096];
	int done;
};

/* On the pool: it waits for the server, which is on the loop. */
static void get(void *cookie)
{
	struct get *g = cookie;
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(g->port)};
	size_t at = 0;
	ssize_t n;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
		write(fd, g->request, strlen(g->request)) > 0)
		while ((n = read(fd, g->reply + at, sizeof(g->reply) - 1 - at)) > 0)
			at += (size_t)n;
	close(fd);
}

static void got(void *cookie)
{
	((struct get *)cookie)->done++;
}

enum { TOGETHER = 4 }; /* at once, as many as the pool has threads */

static struct {
	struct wb_http_held *held[TOGETHER];
	int n, answered;
	unsigned turn, answered_in;
	bool is_crowded; /* two answers in one turn of the loop */
} together;

static void turned(void *cookie, int events)
{
	(void)cookie;
	(void)events;
	together.turn++;
}

/* They wait until a test lets them go on. */
static int serve_held(struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *sentence;
	int rc;

	if (wb_http_outcome(rq, &rc, &sentence)) {
		together.answered++;
		wb_buf_printf(&r->body, "ok\n");
		return 0;
	}
	together.held[together.n++] = wb_http_hold(rq);
	return -EINPROGRESS;
}

/* All may go on when the last has come. */
static int serve_together(struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *sentence;
	int rc;

	if (wb_http_outcome(rq, &rc, &sentence)) {
		together.is_crowded |= together.answered++ && together.answered_in == together.turn;
		together.answered_in = together.turn;
		wb_buf_printf(&r->body, "ok\n");
		return 0;
	}
	together.held[together.n++] = wb_http_hold(rq);
	for (int i = 0; together.n == TOGETHER && i < TOGETHER; i++)
		wb_http_go_on(together.held[i], 0, NULL);
	return -EINPROGRESS;
}

static int serve(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *q = wb_http_query(rq, "name"), *sentence;
	int rc;

	(void)cookie;
	if (!strcmp(path, "/held"))
		return serve_held(rq, r);
	if (!strcmp(path, "/bad"))
		return -EIO;
	if (!strcmp(path, "/together"))
		return serve_together(rq, r);
	if (!strcmp(path, "/known")) { /* what it would wait for is there */
		if (!wb_http_outcome(rq, &rc, &sentence)) {
			wb_http_go_on(wb_http_hold(rq), -EPERM, "not you");
			return -EINPROGRESS;
		}
		r->status = 403;
		wb_buf_printf(&r->body, "%d %s\n", rc, sentence);
		return 0;
	}
	if (strcmp(path, "/metrics"))
		return -ENOENT;
	if (q)
		r->status = 503;
	wb_buf_printf(&r->body, "wb_up{name=\"%s\"} 1\n", q ? q : "-");
	return 0;
}

static const struct wb_http_opts http_opts = {.host = "127.0.0.1", .fn = serve};

static const struct {
	const char *request, *status, *body;
} gets[] = {
	{"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\nwb_up{name=\"-\"} 1\n"},
	{"GET /metrics?name=a%20b HTTP/1.0\r\n\r\n", "503", "{name=\"a b\"}"},
	{"GET /no HTTP/1.0\r\n\r\n", "404", "404 Not Found"},
	{"GET /bad HTTP/1.0\r\n\r\n", "500", "Input/output error"},
	{"GET /known HTTP/1.0\r\n\r\n", "403", "-1 not you"},
	{"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "405", "only GET"},
	{"GET metrics HTTP/1.0\r\n\r\n", "400", "not an address"},
	{"rubbish\r\n\r\n", "", ""},
};

START_TEST(http_answers_get_and_nothing_else)
{
	struct get g = {.request = gets[_i].request};
	struct wb_err err = {0};
	struct wb_http *h;

	ck_assert_msg(!wb_http_start(fx_loop, &http_opts, &h, &err), "%s", err.msg);
	g.port = wb_http_port(h);
	ck_assert_uint_ne(g.port, 0);
	ck_assert_int_eq(wb_loop_work(fx_loop, get, got, &g), 0);
	fx_loop_until(&g.done, 1);
	ck_assert_msg(strstr(g.reply, gets[_i].status) != NULL, "%s", g.reply);
	ck_assert_msg(strstr(g.reply, gets[_i].body) != NULL, "%s", g.reply);
	wb_http_stop(h);
}
END_TEST

START_TEST(a_port_in_use_is_said_with_its_address)
{
	struct wb_http_opts o = http_opts;
	struct wb_http *h, *g;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_http_start(fx_loop, &http_opts, &h, &err), 0);
	o.port = wb_http_port(h);
	ck_assert_int_lt(wb_http_start(fx_loop, &o, &g, &err), 0);
	ck_assert_msg(strstr(err.msg, "127.0.0.1:") != NULL, "%s", err.msg);
	wb_http_stop(h);
	o.host = "";
	o.port = 0;
	ck_assert_msg(!wb_http_start(fx_loop, &o, &h, &err), "%s", err.msg);
	wb_http_stop(h);
}
END_TEST

/* However many ask for what costs the loop much, what else it does goes between two answers. */
START_TEST(one_answer_that_was_waited_for_goes_out_a_turn)
{
	struct get g[TOGETHER] = {0};
	struct wb_watch *watch;
	struct wb_err err = {0};
	struct wb_http *h;
	int fd = eventfd(1, EFD_CLOEXEC); /* readable in every turn */

	memset(&together, 0, sizeof(together));
	ck_assert_msg(!wb_http_start(fx_loop, &http_opts, &h, &err), "%s", err.msg);
	ck_assert_int_eq(wb_watch_create(fx_loop, fd, WB_READABLE, turned, NULL, &watch), 0);
	for (int i = 0; i < TOGETHER; i++) {
		g[i] = (struct get){
			.port = wb_http_port(h), .request = "GET /together HTTP/1.0\r\n\r\n"};
		ck_assert_int_eq(wb_loop_work(fx_loop, get, got, &g[i]), 0);
	}
	for (int i = 0; i < TOGETHER; i++) {
		fx_loop_until(&g[i].done, 1);
		ck_assert_msg(strstr(g[i].reply, "200 OK") != NULL, "%s", g[i].reply);
	}
	ck_assert_int_eq(together.answered, TOGETHER);
	ck_assert(!together.is_crowded);
	wb_watch_destroy(watch);
	close(fd);
	wb_http_stop(h);
}
END_TEST

/* Who stops while requests wait leaves nothing, whether they may go on or not. */
START_TEST(a_server_that_stops_lets_go_of_who_waits)
{
	struct get g[2] = {0};
	struct wb_err err = {0};
	struct wb_http *h;

	memset(&together, 0, sizeof(together));
	ck_assert_msg(!wb_http_start(fx_loop, &http_opts, &h, &err), "%s", err.msg);
	for (int i = 0; i < 2; i++) {
		g[i] = (struct get){
			.port = wb_http_port(h), .request = "GET /together HTTP/1.0\r\n\r\n"};
		ck_assert_int_eq(wb_loop_work(fx_loop, get, got, &g[i]), 0);
	}
	fx_loop_until(&together.n, 2);
	wb_http_go_on(together.held[0], 0, NULL);
	wb_http_stop(h);
	wb_http_go_on(together.held[1], 0, NULL);
	for (int i = 0; i < 2; i++)
		fx_loop_until(&g[i].done, 1);
}
END_TEST

/* A request for /held as from another pod; its socket. */
static int ask_from_elsewhere(uint16_t port)
{
	static const char text[] = "GET /held HTTP/1.0\r\n\r\n";
	struct sockaddr_in from = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 8)};
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	return fd;
}

/* What is asked of us may take long (whose token is it?): who asks that from one address, and has
 * all places, keeps nobody out. */
START_TEST(who_waits_for_us_makes_room_for_who_comes_from_elsewhere)
{
	struct get g = {.request = "GET /metrics HTTP/1.0\r\n\r\n"};
	struct wb_http_opts o = http_opts;
	struct wb_err err = {0};
	struct wb_http *h;
	int fd[TOGETHER];
	char byte;

	memset(&together, 0, sizeof(together));
	o.conns_max = o.source_max = TOGETHER;
	ck_assert_msg(!wb_http_start(fx_loop, &o, &h, &err), "%s", err.msg);
	for (int i = 0; i < TOGETHER; i++) {
		fd[i] = ask_from_elsewhere(wb_http_port(h));
		fx_loop_until(&together.n, i + 1);
	}
	g.port = wb_http_port(h);
	ck_assert_int_eq(wb_loop_work(fx_loop, get, got, &g), 0);
	fx_loop_until(&g.done, 1);
	ck_assert_msg(strstr(g.reply, "200 OK") != NULL, "%s", g.reply);
	ck_assert_int_eq(read(fd[0], &byte, 1), 0); /* the oldest went */
	for (int i = 0; i < TOGETHER; i++) /* also for that one, by who promised it */
		wb_http_go_on(together.held[i], 0, NULL);
	fx_loop_until(&together.answered, TOGETHER - 1);
	wb_http_stop(h);
	ck_assert_int_eq(together.answered, TOGETHER - 1);
	for (int i = 0; i < TOGETHER; i++)
		close(fd[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net http");
	TCase *t = tcase_create("http");

	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_loop_test(t, http_answers_get_and_nothing_else, 0, WB_ARRAY_SIZE(gets));
	tcase_add_test(t, a_port_in_use_is_said_with_its_address);
	tcase_add_test(t, one_answer_that_was_waited_for_goes_out_a_turn);
	tcase_add_test(t, a_server_that_stops_lets_go_of_who_waits);
	tcase_add_test(t, who_waits_for_us_makes_room_for_who_comes_from_elsewhere);
	suite_add_tcase(s, t);
	return fx_run(s);
}
