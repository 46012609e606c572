/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_peer HOST PORT ID KEYHEX - a peer that holds a key and says what it is told.
 * tls_peer object UID - the number of an object in the hello of a bulk connection.
 *
 * Lines of hex digits on stdin are sent as they are, "close" ends in order, the end of stdin in the
 * middle of whatever it was.  Prints "open", "frame TYPE BODY" for each frame that comes (bodies in
 * hex) and "closed SENTENCE".
 */
#include "base/hash.h"
#include "net/loop.h"
#include "net/tls.h"
#include "proto/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct peer {
	struct wb_loop *loop;
	struct wb_watch *in;
	struct wb_chan *ch;
	char line[1 << 20];
	size_t have;
};

static void say_line(struct peer *p, const char *line)
{
	size_t n = strlen(line) / 2;
	uint8_t *out = malloc(n + 1);

	if (!strcmp(line, "close"))
		wb_chan_close(p->ch);
	else if (!out || wb_hex_parse(line, out, n) || wb_chan_send(p->ch, out, n))
		printf("cannot send\n");
	free(out);
}

static void on_stdin(void *cookie, int events)
{
	struct peer *p = cookie;
	ssize_t n = read(0, p->line + p->have, sizeof(p->line) - 1 - p->have);
	char *end;

	(void)events;
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		_exit(0);
	p->have += (size_t)n;
	p->line[p->have] = 0;
	while ((end = memchr(p->line, '\n', p->have))) {
		*end = 0;
		say_line(p, p->line);
		p->have -= (size_t)(end + 1 - p->line);
		memmove(p->line, end + 1, p->have + 1);
	}
}

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct peer *p = cookie;

	(void)ch;
	printf("open\n");
	if (wb_watch_create(p->loop, 0, WB_READABLE, on_stdin, p, &p->in))
		exit(1);
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	(void)cookie;
	(void)ch;
	printf("frame %u ", frame[6] | frame[7] << 8);
	for (size_t i = WB_FRAME_BYTES; i < bytes; i++)
		printf("%02x", frame[i]);
	printf("\n");
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	(void)cookie;
	(void)ch;
	printf("closed %s\n", why->code ? why->msg : "in order");
	exit(0);
}

int main(int argc, char **argv)
{
	static struct peer p;
	struct wb_psk psk = {0};
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &psk};
	struct wb_chan_limits limits = {.framer = wb_frame_length, .connect_ns = 5000000000};
	struct wb_chan_cb cb = {
		.cookie = &p, .on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
	struct wb_err err = {0};
	struct wb_tls *tls;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "object")) {
		printf("%llu\n", (unsigned long long)wb_hash64(argv[2], strlen(argv[2]), 0));
		return 0;
	}
	if (argc != 5 || strlen(argv[3]) >= sizeof(psk.id))
		return 2;
	strcpy(psk.id, argv[3]);
	psk.bytes = strlen(argv[4]) / 2;
	if (psk.bytes > sizeof(psk.key) || wb_hex_parse(argv[4], psk.key, psk.bytes) ||
		wb_loop_create(&p.loop, &err) || wb_tls_client_create(&o, &tls, &err) ||
		wb_tls_connect(
			p.loop, tls, argv[1], (uint16_t)atoi(argv[2]), &limits, &cb, &p.ch)) {
		fprintf(stderr, "tls_peer: %s\n", err.msg);
		return 1;
	}
	fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
	wb_loop_run(p.loop);
	return 0;
}
