/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server of both daemons, to a client that sends anything, cut anywhere: it answers or
 * closes, and serves the next one. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "net/http.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct wb_loop *loop;
static struct wb_http *http;

static int page(void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *v = wb_http_query(rq, "v");

	(void)cookie;
	if (path[0] != '/')
		abort();
	if (!strcmp(path, "/302")) {
		r->status = 302;
		snprintf(r->location, sizeof(r->location), "http://x/%.100s", v ? v : "");
	}
	if (!strcmp(path, "/500"))
		return -EIO;
	if (!strcmp(path, "/big")) /* more than a body may have */
		r->body.rc = -E2BIG;
	wb_buf_printf(&r->body, "%s %s\n", path, v ? v : "");
	return strcmp(path, "/404") ? 0 : -ENOENT;
}

static int dial(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(wb_http_port(http)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger now = {1, 0}; /* no TIME_WAIT: there are many */
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) < 0 ||
		connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		abort();
	return fd;
}

static void say(int fd, const void *p, size_t n)
{
	if (n)
		(void)!send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	for (int i = 0; i < 4; i++)
		wb_loop_run_once(loop, false);
}

static bool hear(int fd, const char *begin)
{
	char text[65536];
	ssize_t n = 0;

	for (int i = 0; i < 100 && n <= 0; i++) {
		wb_loop_run_once(loop, false);
		n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
	}
	text[WB_MAX(n, 0)] = '\0';
	return n >= 0 && !strncmp(text, begin, strlen(begin));
}

static void start(void)
{
	const struct wb_http_opts o = {.host = "127.0.0.1", .fn = page};
	struct wb_err err = {0};

	signal(SIGPIPE, SIG_IGN);
	if (wb_loop_create(&loop, NULL) < 0 || wb_http_start(loop, &o, &http, &err) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char good[] = "GET /x?v=7 HTTP/1.1\r\nHost: a\r\n\r\n";
	size_t cut = size ? data[0] % size : 0;
	char text[1024];
	int fd;

	if (!http)
		start();
	fd = dial();
	say(fd, data, cut);
	say(fd, data + cut, size - cut);
	(void)!recv(fd, text, sizeof(text), MSG_DONTWAIT);
	close(fd);
	fd = dial();
	say(fd, good, sizeof(good) - 1);
	if (!hear(fd, "HTTP/1.1 200"))
		abort();
	close(fd);
	say(fd, NULL, 0);
	return 0;
}
