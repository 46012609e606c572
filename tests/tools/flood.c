/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flood HOST PORT KEYHEX OBJECT WORKERS BYTES SECONDS - a tenant who uploads as much as it can.
 *
 * Two agents of OBJECT: one with all its WORKERS trainer workers, each with a source map of its own
 * of BYTES less the last, and one with an engine of one worker, so that the operator asks for all
 * the maps.  All are sent at once, part by part; whoever is refused comes again at once.  Then
 * prints one line, "sent BYTES refused COUNT SENTENCE", with the last sentence.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/tls.h"
#include "proto/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART (1u << 20)
#define QUEUED_MAX (4u << 20)
#define AGAIN_NS (20 * WB_NS_PER_MS)
#define WORKERS_MAX 4096

struct agent {
	const char *name;
	uint32_t role, n;
	uint64_t instance;
	struct wb_chan *ch;
	struct wb_timer *timer;
	bool is_up;
	uint64_t at[WORKERS_MAX]; /* bytes of each map that were sent; 0 = not wanted yet */
	bool is_wanted[WORKERS_MAX];
};

static struct wb_loop *loop;
static struct wb_tls *tls;
static struct agent agents[2] = {{.name = "flood-t", .role = 1, .instance = 1},
	{.name = "flood-r", .role = 2, .n = 1, .instance = 2}};
static const char *host, *object;
static uint16_t port;
static uint64_t bytes, sent, n_refused;
static char last[1024];
static uint8_t part[PART];

/* The last byte never comes: any digest will do. */
static struct wb_digest digest_of(uint32_t worker)
{
	return (struct wb_digest){0x666c6f6f64, worker + 1};
}

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "flood: %s: %d\n", what, rc);
	exit(1);
}

static int say(struct agent *a, uint16_t type, const void *msg)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, (size_t)wb_msg_info(type)->cap + WB_FRAME_BYTES);
	rc = wb_msg_encode(&f, msg, &b, NULL);
	if (rc == 0)
		rc = a->ch ? wb_chan_send(a->ch, b.data, b.len) : -ENOTCONN;
	wb_buf_finish(&b);
	return rc;
}

static void upload_some(struct agent *a)
{
	bool is_more = true;

	while (is_more && a->ch && wb_chan_queued(a->ch) < QUEUED_MAX) {
		is_more = false;
		for (uint32_t i = 0; i < a->n; i++) {
			struct wb_msg_content m = {.object = object,
				.kind = 2,
				.digest = digest_of(i),
				.total_bytes = bytes,
				.offset = a->at[i],
				.data = part,
				.n_data = (uint32_t)WB_MIN(PART, bytes - 1 - a->at[i])};

			if (!a->is_wanted[i] || !m.n_data || say(a, WBP_CONTENT, &m) < 0)
				continue;
			a->at[i] += m.n_data;
			sent += m.n_data;
			is_more = true;
		}
	}
}

static void on_timer(void *cookie);

static void send_workers(struct agent *a)
{
	struct wb_p_worker *w = wb_zalloc(a->n, sizeof(*w));
	struct wb_msg_workers m = {.object = object, .workers = w, .n_workers = a->n};

	must(w ? 0 : -ENOMEM, "workers");
	for (uint32_t i = 0; i < a->n; i++)
		w[i] = (struct wb_p_worker){.id = i,
			.name = "w",
			.role = a->role,
			.engine = a->role == 2 ? "e" : NULL,
			.rank = -1,
			.manifest = digest_of(WORKERS_MAX),
			.map = digest_of(i),
			.mem_kind = 1,
			.version = -1};
	(void)say(a, WBP_WORKERS, &m);
	wb_free(w);
}

static void on_want(struct agent *a, const struct wb_msg_want *m)
{
	for (uint32_t k = 0; k < m->n_digests; k++)
		for (uint32_t i = 0; i < a->n; i++) {
			char text[WB_DIGEST_TEXT];

			if (!strcmp(m->digests[k], wb_digest_text(digest_of(i), text)))
				a->is_wanted[i] = true;
		}
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t n)
{
	struct agent *a = cookie;
	const uint8_t *body;
	struct wb_frame f;
	union wb_msg m;

	(void)ch;
	if (wb_frame_check(frame, n, &f, &body, NULL) < 0 || wb_msg_decode(&f, body, &m, NULL) < 0)
		return;
	if (f.type == WBP_WELCOME) {
		a->is_up = true;
		send_workers(a);
	} else if (f.type == WBP_WANT) {
		on_want(a, &m.want);
	} else if (f.type == WBP_REJECT) {
		n_refused++;
		snprintf(last, sizeof(last), "%s", m.reject.sentence);
	}
	wb_msg_free(f.type, &m);
	upload_some(a);
}

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct agent *a = cookie;
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.build = "t",
		.agent = a->name,
		.node = "n",
		.host = "127.0.0.1",
		.port = 1,
		.bulk = "",
		.instance = a->instance,
		.objects = &object,
		.n_objects = 1};

	(void)ch;
	(void)say(a, WBP_HELLO, &h);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct agent *a = cookie;

	(void)ch;
	(void)why;
	a->ch = NULL;
	a->is_up = false;
	memset(a->at, 0, sizeof(a->at));
	memset(a->is_wanted, 0, sizeof(a->is_wanted));
}

static void dial(struct agent *a)
{
	struct wb_chan_limits limits = {.framer = wb_frame_length, .linger_ns = WB_NS_PER_MS};
	struct wb_chan_cb cb = {
		.cookie = a, .on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

	must(wb_tls_connect(loop, tls, host, port, &limits, &cb, &a->ch), "connect");
}

static void on_timer(void *cookie)
{
	struct agent *a = cookie;

	if (!a->ch)
		dial(a);
	upload_some(a);
}

static void on_end(void *cookie)
{
	(void)cookie;
	printf("sent %llu refused %llu %s\n", (unsigned long long)sent,
		(unsigned long long)n_refused, last);
	fflush(stdout);
	exit(0);
}

int main(int argc, char **argv)
{
	struct wb_psk psk = {.id = WBP_OPERATOR_PSK_ID};
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &psk};
	struct wb_err err = {0};
	struct wb_timer *end;

	if (argc != 8 || atoi(argv[5]) > WORKERS_MAX)
		return 2;
	host = argv[1];
	port = (uint16_t)atoi(argv[2]);
	object = argv[4];
	agents[0].n = (uint32_t)atoi(argv[5]);
	bytes = strtoull(argv[6], NULL, 10);
	psk.bytes = strlen(argv[3]) / 2;
	if (psk.bytes > sizeof(psk.key) || wb_hex_parse(argv[3], psk.key, psk.bytes) ||
		wb_loop_create(&loop, &err) || wb_tls_client_create(&o, &tls, &err)) {
		fprintf(stderr, "flood: %s\n", err.msg);
		return 1;
	}
	for (int i = 0; i < 2; i++) {
		must(wb_timer_create(loop, on_timer, &agents[i], &agents[i].timer), "timer");
		wb_timer_start(agents[i].timer, 0, AGAIN_NS);
	}
	must(wb_timer_create(loop, on_end, NULL, &end), "timer");
	wb_timer_start(end, strtoull(argv[7], NULL, 10) * WB_NS_PER_S, 0);
	wb_loop_run(loop);
	return 0;
}
