/* SPDX-License-Identifier: Apache-2.0 */
/*
 * herd - many agents of an operator in one process, for load tests: only what the operator sees.
 *
 *	herd --servers HOST:PORT[,HOST:PORT...] --ca FILE --name SERVER [options] < agents
 *	herd --servers ... --key HEX [options] < agents
 *
 * One agent a line: NAME NAMESPACE/OBJECT trainer|rollout INDEX OF ENGINE TOKEN (engine "-": none).
 * Each has one worker, with part INDEX of OF of a toy model; it uploads
 *what is wanted, is ready for every plan, keeps it over reconnects, sends heartbeats, and comes
 *back with growing, jittered waits, to each server in turn or where it is sent.
 *
 * --tensors N, --rows N: of the model; --uneven: the i-th tensor has i times as many rows, so that
 *no piece of the plan is like another.  --old: speaks the oldest protocol version.  What a tenant
 *may try: --deaf reads no message of more than 64 KiB, so that what is sent stays where it is;
 *--half never ends a message of 4 MiB; --reports tells of transfers and workers that there never
 *were.
 *
 * Prints "plan NAME BYTES" for each plan that came whole, "active NAME TERM NUMBER" for each plan
 *that became active, "up NAME NS" for each welcome, "told NAME NS SENTENCE" when the operator takes
 *leave, "down NAME NS" for each end of a connection; NS is CLOCK_MONOTONIC.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/tls.h"
#include "planner/map.h"
#include "planner/plan.h"
#include "proto/beat.h"
#include "proto/messages.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLS 64
#define DEAF_BYTES (64u << 10)
#define PART_BYTES (1u << 20)
#define SERVERS_MAX 8
#define BACKOFF_MIN_NS (100 * WB_NS_PER_MS)
#define BACKOFF_MAX_NS (3 * WB_NS_PER_S)

struct server {
	char host[256];
	uint16_t port;
};

struct layout {
	struct layout *next;
	uint32_t index, of;
	struct wb_buf map;
	struct wb_digest digest;
};

struct agent {
	char name[64], object[320], engine[64];
	enum wb_role role;
	char *token;
	uint64_t instance;
	const struct layout *layout;
	struct wb_chan *ch;
	struct wb_timer *timer;
	bool is_up, is_gone; /* gone: its pod is; it stays away */
	uint64_t backoff_ns, heartbeat_ns, heard_ns;
	int64_t offset_ns;
	bool is_timed;
	unsigned server;
	struct server leader;
	uint64_t term, term_operator;
	/* The plan that was sent, and the one that runs. */
	uint64_t plan_bytes; /* of the content before PLAN */
	struct wb_p_epoch next, running;
	struct wb_digest next_plan, plan;
	uint32_t next_worker, worker, next_workers, workers;
};

static struct wb_loop *loop;
static struct wb_tls *tls;
static struct server servers[SERVERS_MAX];
static unsigned n_server;
static uint32_t n_tensor = 4, n_row = 64;
static uint32_t version = WBP_VERSION_MAX;
static bool is_deaf, is_half, is_reporter, is_uneven;
static struct wb_rng rng;
static struct layout *layouts;
static struct wb_buf manifest;
static struct wb_digest manifest_digest;

static uint64_t now(void)
{
	return wb_now_ns(&wb_clock_real);
}

static void must(int rc, const char *what, const char *why)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "herd: %s: %s\n", what, why);
	exit(1);
}

/* ---- the model ---- */

static uint32_t rows_of(uint32_t tensor)
{
	return is_uneven ? n_row * (tensor + 1) : n_row;
}

static struct wb_manifest *make_manifest(void)
{
	struct wb_tensor *x = wb_zalloc(n_tensor, sizeof(*x));
	struct wb_manifest *m = NULL;
	struct wb_err err = {0};
	char(*name)[32] = wb_zalloc(n_tensor, sizeof(*name));

	must(x && name ? 0 : -ENOMEM, "manifest", "out of memory");
	for (uint32_t i = 0; i < n_tensor; i++) {
		snprintf(name[i], sizeof(name[i]), "layers.%u.weight", i);
		x[i] = (struct wb_tensor){.name = name[i],
			.dtype = wb_dtype_parse("F32"),
			.ndim = 2,
			.shape = {rows_of(i), COLS}};
	}
	must(wb_manifest_create(x, n_tensor, &m, &err), "manifest", err.msg);
	wb_free(x);
	wb_free(name);
	return m;
}

static void make_map(struct layout *l, const struct wb_manifest *m)
{
	struct wb_param *param = wb_zalloc(n_tensor, sizeof(*param));
	struct wb_op *op = wb_zalloc(n_tensor, sizeof(*op));
	struct wb_map in = {.n_param = n_tensor, .n_op = n_tensor, .param = param, .op = op}, *map;
	struct wb_err err = {0};
	char name[32];

	must(param && op ? 0 : -ENOMEM, "map", "out of memory");
	for (uint32_t i = 0; i < n_tensor; i++) {
		uint32_t rows = rows_of(i) / l->of;

		snprintf(name, sizeof(name), "part.%u", i);
		param[i] = (struct wb_param){.name = wb_strdup(name),
			.dtype = wb_dtype_parse("F32"),
			.ndim = 2,
			.shape = {rows, COLS},
			.stride = {COLS, 1},
			.span = (uint64_t)rows * COLS};
		op[i] = (struct wb_op){.param = i,
			.tensor = i,
			.row = l->index * rows,
			.n_row = rows,
			.n_col = COLS,
			.row_step = 1,
			.col_step = 1,
			.dst_row_stride = COLS,
			.dst_col_stride = 1,
			.repeat = 1};
	}
	must(wb_map_create(m, &in, &map, &err), "map", err.msg);
	wb_buf_init(&l->map, 64 << 20);
	must(wb_map_encode(map, &l->map), "map", "encode");
	l->digest = map->digest;
	wb_map_destroy(map);
}

static const struct layout *layout_of(uint32_t index, uint32_t of)
{
	struct wb_manifest *m;
	struct layout *l = layouts;

	while (l && (l->index != index || l->of != of))
		l = l->next;
	if (l)
		return l;
	l = wb_zalloc(1, sizeof(*l));
	must(l ? 0 : -ENOMEM, "map", "out of memory");
	l->index = index;
	l->of = of;
	l->next = layouts;
	layouts = l;
	m = make_manifest();
	make_map(l, m);
	if (!manifest.len) {
		wb_buf_init(&manifest, 64 << 20);
		must(wb_manifest_encode(m, &manifest), "manifest", "encode");
		manifest_digest = m->digest;
	}
	wb_manifest_destroy(m);
	return l;
}

/* ---- talking ---- */

static void send_msg(struct agent *a, uint16_t type, const void *msg)
{
	struct wb_frame f = {.version = (uint8_t)version, .type = type};
	struct wb_err err = {0};
	struct wb_buf b;
	int rc;

	if (!a->ch)
		return;
	wb_buf_init(&b, (size_t)wb_msg_info(type)->cap + WB_FRAME_BYTES);
	rc = wb_msg_encode(&f, msg, &b, &err);
	if (rc == 0)
		rc = wb_chan_send(a->ch, b.data, b.len);
	if (rc < 0 && rc != -ENOTCONN)
		fprintf(stderr, "herd: %s: %s not sent: %d %s\n", a->name, wb_msg_name(type), rc,
			err.msg);
	wb_buf_finish(&b);
}

static void send_workers(struct agent *a)
{
	struct wb_p_worker w = {.id = 1,
		.name = a->name,
		.role = a->role,
		.engine = a->engine,
		.rank = a->layout->index,
		.manifest = manifest_digest,
		.map = a->layout->digest,
		.mem_kind = 1,
		.version = -1,
		.plan_worker = a->running.term ? a->worker + 1 : 0};
	struct wb_msg_workers m = {.object = a->object,
		.workers = &w,
		.n_workers = 1,
		.running = a->running,
		.plan = a->plan,
		.plan_workers = a->workers};

	send_msg(a, WBP_WORKERS, &m);
}

static void upload(struct agent *a, const char *digest)
{
	char mine[WB_DIGEST_TEXT];
	bool is_map = !strcmp(digest, wb_digest_text(a->layout->digest, mine));
	const struct wb_buf *b = is_map ? &a->layout->map : &manifest;
	struct wb_msg_content m = {.object = a->object,
		.kind = is_map ? WB_CONTENT_MAP : WB_CONTENT_MANIFEST,
		.digest = is_map ? a->layout->digest : manifest_digest,
		.total_bytes = b->len};

	do {
		m.data = b->data + m.offset;
		m.n_data = (uint32_t)WB_MIN(b->len - m.offset, PART_BYTES);
		send_msg(a, WBP_CONTENT, &m);
		m.offset += m.n_data;
	} while (m.offset < b->len);
}

static void on_plan(struct agent *a, const struct wb_msg_plan *m)
{
	struct wb_msg_ready ready = {.object = a->object, .epoch = m->epoch, .digest = m->digest};

	printf("plan %s %llu\n", a->name, (unsigned long long)a->plan_bytes);
	a->next = m->epoch;
	a->next_plan = m->digest;
	a->next_workers = 0;
	for (uint32_t i = 0; i < m->n_agents; i++) {
		a->next_workers += m->agents[i].n_workers;
		if (!strcmp(m->agents[i].agent, a->name) && m->agents[i].n_workers)
			a->next_worker = m->agents[i].workers[0];
	}
	send_msg(a, WBP_READY, &ready);
}

static void on_activate(struct agent *a, const struct wb_msg_activate *m)
{
	if (m->epoch.term != a->next.term || m->epoch.number != a->next.number)
		return;
	if (a->running.term == a->next.term && a->running.number == a->next.number)
		return;
	a->running = a->next;
	a->plan = a->next_plan;
	a->worker = a->next_worker;
	a->workers = a->next_workers;
	printf("active %s %llu %llu\n", a->name, (unsigned long long)a->running.term,
		(unsigned long long)a->running.number);
}

static void hear(struct agent *a, uint64_t term, uint64_t from)
{
	if (term < a->term)
		return;
	a->term = term;
	a->term_operator = from;
}

/* All but the last byte. */
static void send_half(struct agent *a)
{
	static uint8_t data[4u << 20];
	struct wb_frame f = {.version = (uint8_t)version, .type = WBP_CONTENT};
	struct wb_msg_content m = {.object = a->object,
		.kind = WB_CONTENT_MAP,
		.total_bytes = sizeof(data),
		.data = data,
		.n_data = sizeof(data)};
	struct wb_buf b;

	wb_buf_init(&b, sizeof(data) + 4096);
	must(wb_msg_encode(&f, &m, &b, NULL), "half", "encode");
	(void)wb_chan_send(a->ch, b.data, b.len - 1);
	wb_buf_finish(&b);
}

static void send_reports(struct agent *a)
{
	static struct wb_p_worker_report w[1024];
	struct wb_p_phase phase = {.name = "wire"};
	struct wb_msg_report m = {.object = a->object,
		.state = WB_REPORT_WORKERS,
		.workers = w,
		.n_workers = WB_ARRAY_SIZE(w)};

	for (uint32_t i = 0; i < 16 * 4; i++) {
		m.transfer = 1 + i / 8;
		for (uint32_t k = 0; k < WB_ARRAY_SIZE(w); k++)
			w[k] = (struct wb_p_worker_report){
				.worker = i * 1024 + k, .phases = &phase, .n_phases = 1};
		send_msg(a, WBP_REPORT, &m);
	}
}

static void on_welcome(struct agent *a, const struct wb_msg_welcome *m)
{
	a->is_up = true;
	a->backoff_ns = BACKOFF_MIN_NS;
	a->heartbeat_ns = m->heartbeat_ns;
	hear(a, m->term, m->operator_id);
	printf("up %s %llu\n", a->name, (unsigned long long)now());
	a->is_timed = false;
	wb_timer_start(a->timer, wb_rng_below(&rng, a->heartbeat_ns), a->heartbeat_ns);
	send_workers(a);
	if (is_half)
		send_half(a);
	if (is_reporter)
		send_reports(a);
}

static void on_heartbeat(struct agent *a, const struct wb_msg_heartbeat *m)
{
	struct wb_msg_heartbeat reply = {.sent_ns = now(), .echo_ns = m->sent_ns};

	if (!m->echo_ns && m->sent_ns) {
		send_msg(a, WBP_HEARTBEAT, &reply);
	} else if (m->echo_ns) {
		a->offset_ns = (int64_t)(now() / 2 + m->echo_ns / 2 - m->sent_ns);
		a->is_timed = true;
	}
}

static void act(struct agent *a, uint16_t type, const union wb_msg *m)
{

	switch (type) {
	case WBP_WELCOME:
		on_welcome(a, &m->welcome);
		break;
	case WBP_WANT:
		for (uint32_t i = 0; i < m->want.n_digests; i++)
			upload(a, m->want.digests[i]);
		break;
	case WBP_CONTENT:
		if (!m->content.offset && m->content.kind != WB_CONTENT_PART)
			a->plan_bytes = 0; /* another one */
		a->plan_bytes += m->content.n_data;
		break;
	case WBP_PLAN:
		hear(a, m->plan.epoch.term, a->term_operator);
		on_plan(a, &m->plan);
		break;
	case WBP_ACTIVATE:
		on_activate(a, &m->activate);
		break;
	case WBP_HEARTBEAT:
		on_heartbeat(a, &m->heartbeat);
		break;
	case WBP_DRAIN:
		printf("told %s %llu %s\n", a->name, (unsigned long long)now(), m->drain.sentence);
		a->is_gone = strstr(m->drain.sentence, "pod") != NULL;
		break;
	case WBP_REDIRECT:
		snprintf(a->leader.host, sizeof(a->leader.host), "%s", m->redirect.host);
		a->leader.port = (uint16_t)m->redirect.port;
		break;
	case WBP_REJECT:
		printf("refused %s %s\n", a->name, m->reject.sentence);
		break;
	default:
		break;
	}
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct agent *a = cookie;
	const uint8_t *body;
	struct wb_err err = {0};
	struct wb_frame f;
	union wb_msg m;
	int rc = wb_frame_check(frame, bytes, &f, &body, &err);

	(void)ch;
	if (rc == 0)
		rc = wb_msg_decode(&f, body, &m, &err);
	must(rc, a->name, err.msg);
	a->heard_ns = now();
	act(a, f.type, &m);
	wb_msg_free(f.type, &m);
}

static int on_head(void *cookie, struct wb_chan *ch, size_t bytes)
{
	(void)cookie;
	(void)ch;
	return is_deaf && bytes > DEAF_BYTES ? -EAGAIN : 0;
}

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct agent *a = cookie;
	const char *object = a->object, *transport = "tcp";
	struct wb_msg_hello m = {.version_min = WBP_VERSION_MIN,
		.version_max = version,
		.build = "herd",
		.agent = a->name,
		.token = a->token,
		.objects = &object,
		.n_objects = 1,
		.node = a->name,
		.host = "127.0.0.1",
		.port = 7444,
		.bulk = "127.0.0.1:7444",
		.transports = &transport,
		.n_transports = 1,
		.instance = a->instance,
		.term = a->term,
		.term_operator = a->term_operator};
	char binding[WB_CHAN_BINDING_TEXT];

	(void)wb_chan_binding(ch, binding);
	m.binding = binding;
	send_msg(a, WBP_HELLO, &m);
}

static void schedule(struct agent *a)
{
	uint64_t half = a->backoff_ns / 2;

	wb_timer_start(a->timer, half + wb_rng_below(&rng, half + 1), 0);
	a->backoff_ns = WB_MIN(a->backoff_ns * 2, BACKOFF_MAX_NS);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct agent *a = cookie;

	(void)ch;
	(void)why;
	if (a->is_up)
		printf("down %s %llu\n", a->name, (unsigned long long)now());
	a->ch = NULL;
	a->is_up = false;
	if (!a->is_gone)
		schedule(a);
}

static void dial(struct agent *a)
{
	struct wb_chan_limits limits = {.framer = wb_frame_length, .connect_ns = 10 * WB_NS_PER_S};
	struct wb_chan_cb cb = {.cookie = a,
		.on_open = on_open,
		.on_frame = on_frame,
		.on_closed = on_closed,
		.on_head = on_head};
	const struct server *s = &servers[a->server++ % n_server];

	if (a->leader.port)
		s = &a->leader;
	if (wb_tls_connect(loop, tls, s->host, s->port, &limits, &cb, &a->ch) < 0)
		schedule(a);
	a->leader.port = 0;
}

/* As agents do (oplink.c). */
static void beat(struct agent *a)
{
	struct wb_msg_heartbeat m = {0};
	uint64_t t = now();

	if (!a->is_timed || wb_beat_wants_answer(t, a->heard_ns, a->heartbeat_ns))
		m.sent_ns = t;
	send_msg(a, WBP_HEARTBEAT, &m);
	wb_timer_start(
		a->timer, wb_beat_after_ns(t, a->offset_ns, a->heartbeat_ns), a->heartbeat_ns);
}

static void on_timer(void *cookie)
{
	struct agent *a = cookie;

	if (!a->ch)
		dial(a);
	else if (a->is_up && !is_half) /* in the middle of a message there is no other */
		beat(a);
}

/* ---- start ---- */

static void read_agent(char *line)
{
	struct agent *a = wb_zalloc(1, sizeof(*a));
	char role[16], *token;
	uint32_t index, of;
	int at = 0;

	must(a ? 0 : -ENOMEM, "agent", "out of memory");
	if (sscanf(line, "%63s %319s %15s %u %u %63s %n", a->name, a->object, role, &index, &of,
		    a->engine, &at) != 6)
		must(-EINVAL, "agent", line);
	token = line + at;
	token[strcspn(token, "\n")] = '\0';
	a->token = strcmp(token, "-") ? wb_strdup(token) : NULL;
	if (!strcmp(a->engine, "-"))
		a->engine[0] = '\0';
	a->role = strcmp(role, "trainer") ? WB_ROLE_ROLLOUT : WB_ROLE_TRAINER;
	a->layout = layout_of(index, of);
	a->instance = wb_rng_u64(&rng) | 1;
	a->backoff_ns = BACKOFF_MIN_NS;
	must(wb_timer_create(loop, on_timer, a, &a->timer), "timer", "out of memory");
	/* Not all in the same millisecond: pods do not start so, either. */
	wb_timer_start(a->timer, 1 + wb_rng_below(&rng, 2 * WB_NS_PER_S), 0);
}

static void read_servers(char *text)
{
	for (char *one = strtok(text, ","); one && n_server < SERVERS_MAX;
		one = strtok(NULL, ",")) {
		char *colon = strrchr(one, ':');

		must(colon ? 0 : -EINVAL, "--servers", one);
		*colon = '\0';
		snprintf(servers[n_server].host, sizeof(servers[0].host), "%s", one);
		servers[n_server++].port = (uint16_t)atoi(colon + 1);
	}
}

static void use_key(struct wb_tls_opts *o, struct wb_psk *psk, const char *hex)
{
	psk->bytes = strlen(hex) / 2;
	must(psk->bytes <= sizeof(psk->key) ? wb_hex_parse(hex, psk->key, psk->bytes) : -EINVAL,
		"--key", "32 to 64 bytes in hex");
	o->mode = WB_TLS_PSK;
	o->psk = psk;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"servers", 1, NULL, 's'}, {"ca", 1, NULL, 'c'},
		{"name", 1, NULL, 'n'}, {"tensors", 1, NULL, 't'}, {"rows", 1, NULL, 'r'},
		{"deaf", 0, NULL, 'd'}, {"half", 0, NULL, 'h'}, {"reports", 0, NULL, 'p'},
		{"key", 1, NULL, 'k'}, {"uneven", 0, NULL, 'u'}, {"old", 0, NULL, 'o'},
		{NULL, 0, NULL, 0}};
	struct wb_tls_opts o = {.mode = WB_TLS_CERT};
	struct wb_psk psk = {.id = WBP_OPERATOR_PSK_ID};
	static char line[32768];
	struct wb_err err = {0};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's')
			read_servers(optarg);
		else if (c == 'c')
			o.ca_file = optarg;
		else if (c == 'n')
			o.server_name = optarg;
		else if (c == 't')
			n_tensor = (uint32_t)atoi(optarg);
		else if (c == 'r')
			n_row = (uint32_t)atoi(optarg);
		else if (c == 'd')
			is_deaf = true;
		else if (c == 'h')
			is_half = true;
		else if (c == 'p')
			is_reporter = true;
		else if (c == 'u')
			is_uneven = true;
		else if (c == 'o')
			version = WBP_VERSION_MIN;
		else if (c == 'k')
			use_key(&o, &psk, optarg);
		else
			return 2;
	}
	must(n_server && (o.mode == WB_TLS_PSK || (o.ca_file && o.server_name)) ? 0 : -EINVAL,
		"usage", "see the head of herd.c");
	setvbuf(stdout, NULL, _IOLBF, 0);
	must(wb_random_bytes(&rng, sizeof(rng)), "random", "none");
	must(wb_loop_create(&loop, &err), "loop", err.msg);
	must(wb_tls_client_create(&o, &tls, &err), "tls", err.msg);
	while (fgets(line, sizeof(line), stdin))
		read_agent(line);
	wb_loop_run(loop);
	return 0;
}
