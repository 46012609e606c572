/* SPDX-License-Identifier: Apache-2.0 */
/* The page /bench, the tickets for it, and the source that one measurement has here. */
#include "daemon/measure.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/metrics.h"
#include "daemon/peers.h"
#include "daemon/staging.h"
#include "net/child.h"
#include "net/loop.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOD "measure"
#define PAGE "/bench"
#define PURPOSE "weightbridge measurement"
#define START_NS (20 * WB_NS_PER_S)
#define PROMISE_NS (3 * WB_NS_PER_S) /* a landing is there by then, and counts as used */
#define LIMIT_NS (600 * WB_NS_PER_S)
#define WAIT_S "5" /* for its receiver: one that went away meanwhile is not noticed earlier */
#define SILENCE_S "30" /* of that: one that is killed is noticed at once */
#define SAID_MAX 8192
#define NAMES_SHOWN 16
#define ARGS_MAX 32
#define BUSY 409 /* wbctl asks again for a moment: the last source may be ending */
#define SIGNED_MAX (sizeof(PAGE) + WB__MEASURE_TEXT)

struct wb__measure {
	struct wb__agent *a;
	struct wb_child *child; /* the source; NULL = nothing is measured */
	struct wb_timer *timer; /* until it listens, then until it has to be through */
	struct wb_http_held *held; /* who has asked for it, until it listens */
	struct wb__measure_request now;
	uint64_t begin_ns;
	char now_text[WB__MEASURE_TEXT]; /* of the measurement, or of the last one */
	char said[SAID_MAX + 1]; /* by its source when that listened; "" = it did not yet */
	struct wb__measure_used used;
	char why[128]; /* it is being killed; "" = it is not */
	/* Landings of tickets that were given just now, whose memory is not taken yet */
	uint64_t promised, promised_until_ns;
	bool is_stopped;
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static int refuse(struct wb_http_reply *r, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(struct wb_http_reply *r, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	wb_buf_vprintf(&r->body, fmt, ap);
	va_end(ap);
	wb_buf_u8(&r->body, '\n');
	r->status = status;
	return -EACCES;
}

/* What a ticket is for. */
static void signed_text(const char *request, char out[static SIGNED_MAX])
{
	snprintf(out, SIGNED_MAX, PAGE "\n%s", request);
}

/* Of both pages.  0 or -EACCES. */
static int is_open(const struct wb__measure *m, struct wb_http_reply *r)
{
	const char *name = m->a->o.name;

	if (m->a->o.no_bench)
		return refuse(r, 403,
			"agent %s does not take part in measurements: it was started with "
			"--no-bench",
			name);
	if (m->is_stopped || wb__agent_is_draining(m->a))
		return refuse(r, 503, "agent %s is stopping", name);
	return 0;
}

static int is_free(const struct wb__measure *m, bool is_forced, struct wb_http_reply *r)
{
	if (is_forced || !wb_transfer_is_busy(m->a->core))
		return 0;
	return refuse(r, 503,
		"a transfer is under way at agent %s, and a measurement would take from its links: "
		"wait for its end (wbctl status), or say --force",
		m->a->o.name);
}

/* ---- the source --------------------------------------------------------------------------------
 */

/* What a source over shm leaves in the folder when it is killed. */
static void sweep_folder(const struct wb__measure *m)
{
	char list[WB__MEASURE_LIST], *save = NULL;

	if (strcmp(m->now.transport, "shm") != 0 || !m->a->o.shm_folder[0] ||
		wb__measure_rails(m->a, "shm", false, &m->now, list) < 0)
		return;
	for (char *path = strtok_r(list, ",", &save); path; path = strtok_r(NULL, ",", &save))
		(void)unlink(path);
}

static void tell(struct wb__measure *m, int rc, const char *sentence)
{
	struct wb_http_held *held = m->held;

	m->held = NULL;
	if (held)
		wb_http_go_on(held, rc, sentence);
}

static void end_source(struct wb__measure *m)
{
	const char *words = wb_child_words(m->child);
	const char *how = m->why[0]                                ? m->why
			  : wb_child_is_well(m->child) && !m->held ? "it is through"
			  : *words                                 ? words
				   : "its source ended without a word";
	char sentence[600];

	sweep_folder(m);
	WB_LOG_INFO(MOD, "measurement ended", WB_S("for", m->now.from), WB_S("how", how),
		WB_F("seconds", (double)(now_ns() - m->begin_ns) / 1e9));
	snprintf(sentence, sizeof(sentence), "agent %s could not start a source: %s", m->a->o.name,
		how);
	wb_timer_stop(m->timer);
	wb_child_destroy(m->child);
	m->child = NULL;
	tell(m, -EIO, sentence);
}

static void kill_source(struct wb__measure *m, const char *why)
{
	if (!m->child || m->why[0])
		return;
	snprintf(m->why, sizeof(m->why), "%s", why);
	wb_child_kill(m->child);
}

/* It prints one document, indented, and then serves. */
static void on_news(void *cookie)
{
	struct wb__measure *m = cookie;
	const char *said = wb_child_output(m->child), *end = strstr(said, "\n}\n");

	if (m->held && !m->why[0] && end) {
		snprintf(m->said, sizeof(m->said), "%.*s", (int)(end + 2 - said), said);
		wb_timer_start(m->timer, LIMIT_NS, 0);
		tell(m, 0, "");
	} else if (m->held && wb_child_is_cut(m->child)) {
		kill_source(m, "what it said was no answer: is the wbctl there of this version?");
	}
	if (wb_child_is_over(m->child))
		end_source(m);
}

static void on_timer(void *cookie)
{
	struct wb__measure *m = cookie;

	kill_source(m, m->held ? "its source did not listen within 20 s"
			       : "it took longer than 10 minutes");
}

/* Beside this program, where packages and images have it. */
static int find_wbctl(char out[static PATH_MAX], struct wb_err *err)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return wb_err_set(err, -errno, "/proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	if (snprintf(out, PATH_MAX, "%s/wbctl", self) >= PATH_MAX)
		return wb_err_set(err, -ENAMETOOLONG, "the path of this program is too long");
	if (access(out, X_OK))
		return wb_err_set(err, -errno,
			"there is no wbctl beside its program (%s): install it there, as packages "
			"and images do, or start the source by hand (wbctl bench --listen)",
			out);
	return 0;
}

/* Faults on demand are of the agent. */
static char **make_env(void)
{
	size_t n = 0, k = 0;
	char **out;

	while (environ[n])
		n++;
	out = wb_zalloc(n + 1, sizeof(*out));
	for (size_t i = 0; out && i < n; i++)
		if (strncmp(environ[i], "WB_FAULT=", 9) != 0)
			out[k++] = environ[i];
	return out;
}

static void source_args(
	const struct wb__measure *m, const char *list, char text[5][32], const char *argv[ARGS_MAX])
{
	const struct wb__measure_request *q = &m->now;
	const struct wb__options *o = &m->a->o;
	bool is_verbs = !strcmp(q->transport, "verbs"), is_shm = !strcmp(q->transport, "shm");
	uint32_t n = 0;

	snprintf(text[0], 32, "%" PRIu32, q->rails);
	snprintf(text[1], 32, "%" PRIu64, q->memory);
	snprintf(text[2], 32, "%d", (int)getpid());
	snprintf(text[3], 32, "%" PRIu32, o->rdma_traffic_class);
	snprintf(text[4], 32, "%" PRIu32, o->rdma_service_level);
	for (const char *const *w = (const char *const[]){"wbctl", "bench", "--listen", list,
		     "--transport", q->transport, "--rails", text[0], "--memory", text[1],
		     "--parent", text[2], "--wait", WAIT_S, "--timeout", SILENCE_S, "--key-file",
		     "-", "--json", NULL};
		*w; w++)
		argv[n++] = *w;
	if (q->is_encrypted)
		argv[n++] = "--encrypt";
	if (m->a->rails.is_named && !is_shm)
		argv[n++] = "--apart";
	for (int i = 0; is_verbs && i < 2; i++) {
		argv[n++] = i ? "--rdma-service-level" : "--rdma-traffic-class";
		argv[n++] = text[3 + i];
	}
	if (is_verbs && o->no_rdma_windows)
		argv[n++] = "--no-rdma-windows";
	assert(n < ARGS_MAX);
	argv[n] = NULL;
}

static int start_child(struct wb__measure *m, const uint8_t key[WB_MAC_BYTES], struct wb_err *err)
{
	char program[PATH_MAX], list[WB__MEASURE_LIST], text[5][32], line[2 * WB_MAC_BYTES + 2];
	const char *argv[ARGS_MAX];
	struct wb_child_opts o = {.file = program,
		.input = line,
		.input_bytes = sizeof(line) - 1,
		.output_max = SAID_MAX,
		.on_news = on_news,
		.cookie = m};
	char **env = NULL;
	int rc = find_wbctl(program, err);

	if (rc == 0 && wb__measure_rails(m->a, m->now.transport, m->now.is_v6, &m->now, list) < 0)
		rc = wb_err_set(err, -ENOSPC, "the addresses of its rails are too long");
	if (rc == 0 && !(env = make_env()))
		rc = wb_err_set(err, -ENOMEM, "no memory");
	if (rc == 0) {
		source_args(m, list, text, argv);
		for (size_t i = 0; i < WB_MAC_BYTES; i++)
			snprintf(line + 2 * i, 3, "%02x", key[i]);
		line[sizeof(line) - 2] = '\n';
		o.argv = (char *const *)(uintptr_t)argv; /* execve() changes none of them */
		o.env = env;
		rc = wb_child_start(m->a->loop, &o, &m->child, err);
		explicit_bzero(line, sizeof(line));
	}
	wb_free(env);
	return rc;
}

static int start_source(struct wb__measure *m, const struct wb__measure_request *q,
	const char *request, const char *ticket, struct wb_err *err)
{
	uint8_t key[WB_MAC_BYTES];
	int rc = wb__peers_derive(m->a->peers, ticket, PURPOSE, request, key);

	if (rc < 0)
		return wb_err_set(err, rc, "no memory for a key");
	m->now = *q;
	m->begin_ns = now_ns();
	m->why[0] = m->said[0] = '\0';
	snprintf(m->now_text, sizeof(m->now_text), "%s", request);
	wb__measure_use(&m->used, q->nonce, m->begin_ns); /* also if it does not start */
	rc = start_child(m, key, err);
	explicit_bzero(key, sizeof(key));
	if (rc < 0)
		return rc;
	wb_timer_start(m->timer, START_NS, 0);
	WB_LOG_INFO(MOD, "measurement begins", WB_S("for", q->from),
		WB_S("transport", q->transport), WB_U("rails", q->rails), WB_U("memory", q->memory),
		WB_S("forced", q->is_forced ? "yes" : "no"));
	return 0;
}

/* ---- the page /bench ---------------------------------------------------------------------------
 */

/* Memory of which a measurement may have half. */
static uint64_t memory_left(const struct wb__measure *m)
{
	uint64_t due = wb__staging_due(m->a);
	struct wb_cgroup_memory mem = {0};
	int rc = wb_cgroup_memory(NULL, NULL, &mem, NULL);

	if (now_ns() < m->promised_until_ns)
		due += m->promised;
	if (m->held) /* a source that starts has not filled its memory yet */
		due += m->now.memory;
	return wb__measure_left(rc, &mem, due);
}

static void promise(struct wb__measure *m, uint64_t bytes)
{
	m->promised = bytes + (now_ns() < m->promised_until_ns ? m->promised : 0);
	m->promised_until_ns = now_ns() + PROMISE_NS;
}

static int is_unused(const struct wb__measure *m, const char *nonce, struct wb_http_reply *r)
{
	int rc = wb__measure_may_use(&m->used, nonce, now_ns());

	if (rc == -EEXIST)
		return refuse(r, 403, "this ticket was used before: each is for one measurement");
	return rc == 0 ? 0
		       : refuse(r, 503,
				 "agent %s has begun %d measurements within %d s, and no more than "
				 "that: try again in a minute",
				 m->a->o.name, WB__MEASURE_USED_MAX, WB__MEASURE_HOLDS_S);
}

/* Whoever has a ticket may measure, but not always.  0 or -EACCES. */
static int is_possible(
	const struct wb__measure *m, const struct wb__measure_request *q, struct wb_http_reply *r)
{
	struct wb_err err = {0};

	if (is_open(m, r) < 0)
		return -EACCES;
	if (strcmp(q->to, m->a->o.name) != 0)
		return refuse(r, 400,
			"this is agent %s and not %s: --agent HOST:PORT has to name the pages of "
			"the agent that --to does",
			m->a->o.name, q->to);
	if (is_unused(m, q->nonce, r) < 0)
		return -EACCES;
	if (m->child)
		return refuse(r, BUSY,
			"agent %s measures already, for agent %s since %.0f s ago: one at a time",
			q->to, m->now.from, (double)(now_ns() - m->begin_ns) / 1e9);
	if (is_free(m, q->is_forced, r) < 0)
		return -EACCES;
	return wb__measure_room(q->memory, memory_left(m), &err) < 0
		       ? refuse(r, 503, "agent %s: %s", q->to, err.msg)
		       : 0;
}

/* The handler's second call: @rc is what became of it. */
static int conclude(const struct wb__measure *m, const char *request, int rc, const char *why,
	struct wb_http_reply *r)
{
	if (rc < 0)
		return refuse(r, 503, "%s", why);
	if (!m->said[0] || strcmp(request, m->now_text) != 0)
		return refuse(r, 503, "the source of this measurement has ended already");
	return 0;
}

int wb__measure_ask(struct wb__measure *m, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *request = wb_http_query(rq, "for"), *ticket = wb_http_query(rq, "ticket"), *why;
	struct wb__measure_request q;
	struct wb_err err = {0};
	char text[SIGNED_MAX];
	int rc;

	if (!request || strlen(request) >= WB__MEASURE_TEXT)
		request = "";
	/* The ticket did hold when it was first looked at; the plan may be another by now. */
	if (wb_http_outcome(rq, &rc, &why))
		return conclude(m, request, rc, why, r);
	signed_text(request, text);
	if (!wb__peers_ticket_holds(m->a->peers, text, ticket))
		return refuse(r, 401,
			PAGE
			": it is for agents of a plan with this one: run wbctl bench --to %s in "
			"the container of such an agent",
			m->a->o.name);
	if (wb__measure_parse(request, &q) < 0)
		return refuse(
			r, 400, "the request is not understood: are both agents of one version?");
	rc = is_possible(m, &q, r);
	if (rc < 0)
		return rc;
	rc = start_source(m, &q, request, ticket, &err);
	if (rc < 0)
		return refuse(r, 503, "agent %s could not start a source: %s", q.to, err.msg);
	m->held = wb_http_hold(rq);
	if (m->held)
		return -EINPROGRESS;
	kill_source(m, "no memory for who has asked");
	return -ENOMEM;
}

void wb__measure_answer(const struct wb__measure *m, struct wb_http_reply *r)
{
	r->content_type = "application/json";
	wb_buf_printf(&r->body, "{\"agent\":");
	wb_buf_json_str(&r->body, m->a->o.name);
	wb_buf_printf(&r->body, ",\"source\":%s}\n", m->said);
}

/* ---- tickets -----------------------------------------------------------------------------------
 */

/* An agent of one of our plans. */
struct found {
	const struct wb_roster *r;
	const struct wb_roster_agent *at;
};

static struct found find_agent(const struct wb__measure *m, const char *name)
{
	const struct wb_roster *r;

	for (uint32_t i = 0; (r = wb__peers_newest(m->a->peers, i)); i++)
		for (uint32_t k = 0; k < r->n_agent; k++)
			if (k != r->me && !r->agent[k].is_absent && !strcmp(r->agent[k].name, name))
				return (struct found){r, &r->agent[k]};
	return (struct found){NULL, NULL};
}

static void name_agents(const struct wb__measure *m, const char *asked, struct wb_http_reply *r)
{
	const struct wb_roster *o;
	uint32_t n = 0;

	r->status = 400;
	if (!strcmp(asked, m->a->o.name)) {
		wb_buf_printf(
			&r->body, "agent %s is the one of this container: name another\n", asked);
		return;
	}
	wb_buf_printf(
		&r->body, "no plan of agent %s has an agent %.64s; there ", m->a->o.name, asked);
	for (uint32_t i = 0; (o = wb__peers_newest(m->a->peers, i)); i++)
		for (uint32_t k = 0; k < o->n_agent; k++)
			if (k != o->me && !o->agent[k].is_absent && n++ < NAMES_SHOWN)
				wb_buf_printf(
					&r->body, "%s%s", n > 1 ? ", " : "are: ", o->agent[k].name);
	if (!n)
		wb_buf_printf(&r->body, "is no other agent in a plan yet (wbctl status)");
	if (n > NAMES_SHOWN)
		wb_buf_printf(&r->body, " and %" PRIu32 " more", n - NAMES_SHOWN);
	wb_buf_u8(&r->body, '\n');
}

/* The one by which weights would come: the first of the object's, or of ours, that both have. */
static bool choose_transport(const struct wb__agent *a, const struct found *f, char out[static 8])
{
	const char *at = f->r->allowed;

	for (uint32_t i = 0; at ? *at != '\0' : i < a->n_ways; i++) {
		const char *name = at ? at : wb_xport_of_endpoint(a->ways[i]);

		snprintf(out, 8, "%.*s", (int)strcspn(name, ","), name);
		if (wb_xport_meet(a->bulk, f->at->bulk, out, f->r->encrypted))
			return true;
		if (at) {
			at += strcspn(at, ",");
			at += *at == ',';
		}
	}
	return false;
}

static int number(
	struct wb_http_request *rq, const char *name, uint64_t absent, uint64_t max, uint64_t *out)
{
	const char *text = wb_http_query(rq, name);

	*out = absent;
	return text ? wb_cli_uint(text, 1, max, out) : 0;
}

/* What is asked for, in full.  0 or -EACCES. */
static int make_request(struct wb__measure *m, const struct found *f, struct wb_http_request *rq,
	struct wb__measure_request *q, struct wb_http_reply *r)
{
	const struct wb__agent *a = m->a;
	const char *transport = wb_http_query(rq, "transport");
	uint8_t nonce[WB__MEASURE_NONCE / 2];
	bool encrypts = wb_http_query(rq, "encrypt") != NULL;
	struct wb_err err = {0};
	uint64_t rails, landing;

	if (encrypts && !transport)
		transport = "tcp";
	snprintf(q->transport, sizeof(q->transport), "%s", transport ? transport : "");
	if (!transport && !choose_transport(a, f, q->transport))
		return refuse(r, 400,
			"agents %s and %s have no transport in common that their object allows: "
			"name "
			"one by --transport",
			a->o.name, f->at->name);
	if (!wb_xport_find(q->transport))
		return refuse(r, 400, "transport=%s: it is tcp, shm or verbs", q->transport);
	q->is_encrypted = !strcmp(q->transport, "tcp") && (encrypts || f->r->encrypted);
	q->is_forced = wb_http_query(rq, "force") != NULL;
	if (number(rq, "rails", a->rails.n, WB_XPORT_RAILS_MAX, &rails) < 0 ||
		number(rq, "memory", WB__MEASURE_MEMORY, UINT64_MAX, &q->memory) < 0 ||
		number(rq, "landing", 0, UINT64_MAX, &landing) < 0)
		return refuse(r, 400, "rails, memory or landing is no number of them");
	if (wb__measure_room(q->memory, UINT64_MAX, &err) < 0)
		return refuse(r, 503, "%s", err.msg);
	if (wb__measure_landing(landing, memory_left(m), &err) < 0)
		return refuse(r, 503, "agent %s: %s", a->o.name, err.msg);
	promise(m, landing);
	q->rails = (uint32_t)rails;
	snprintf(q->from, sizeof(q->from), "%s", a->o.name);
	snprintf(q->to, sizeof(q->to), "%s", f->at->name);
	if (wb_random_bytes(nonce, sizeof(nonce)) < 0)
		return refuse(r, 503, "the system has no random bytes");
	for (size_t i = 0; i < sizeof(nonce); i++)
		snprintf(q->nonce + 2 * i, 3, "%02x", nonce[i]);
	return 0;
}

static void put_hosts(const struct wb_roster_agent *at, struct wb_buf *b)
{
	struct wb_cli_addr one;

	for (uint32_t i = 0; i < at->n_addr; i++) {
		wb_buf_printf(b, "%s", i ? "," : "");
		wb_buf_json_str(b, at->addr[i]);
	}
	if (!at->n_addr && wb_cli_addr(at->control, &one) == 0)
		wb_buf_json_str(b, one.host);
}

static bool is_v6(const struct wb_roster_agent *at)
{
	struct wb_cli_addr one;

	if (at->n_addr)
		return strchr(at->addr[0], ':') != NULL;
	return wb_cli_addr(at->control, &one) == 0 && strchr(one.host, ':') != NULL;
}

static void put_ticket(const struct wb__measure *m, const struct found *f,
	const struct wb__measure_request *q, struct wb_http_reply *r)
{
	const struct wb__agent *a = m->a;
	char request[WB__MEASURE_TEXT], text[SIGNED_MAX], ticket[WB__PEERS_TICKET];
	char from[WB__MEASURE_LIST];
	uint8_t key[WB_MAC_BYTES];

	wb__measure_text(q, request);
	signed_text(request, text);
	wb__peers_ticket(a->peers, f->r, text, ticket);
	if (wb__peers_derive(a->peers, ticket, PURPOSE, request, key) < 0 ||
		wb__measure_rails(a, q->transport, q->is_v6, NULL, from) < 0) {
		(void)refuse(r, 503, "no memory");
		return;
	}
	r->content_type = "application/json";
	r->body.is_secret = true;
	wb_buf_printf(&r->body, "{\"agent\":");
	wb_buf_json_str(&r->body, a->o.name);
	wb_buf_printf(&r->body, ",\"hosts\":[");
	put_hosts(f->at, &r->body);
	wb_buf_printf(&r->body,
		"],\"http\":%u,\"transport\":\"%s\",\"encrypted\":%s,\"rails\":%" PRIu32
		",\"apart\":%s,\"trafficClass\":%" PRIu32 ",\"serviceLevel\":%" PRIu32
		",\"windows\":%s,\"from\":",
		wb__http_port(a->http), q->transport, q->is_encrypted ? "true" : "false", q->rails,
		a->rails.is_named && strcmp(q->transport, "shm") ? "true" : "false",
		a->o.rdma_traffic_class, a->o.rdma_service_level,
		a->o.no_rdma_windows ? "false" : "true");
	wb_buf_json_str(&r->body, from);
	wb_buf_printf(&r->body, ",\"for\":");
	wb_buf_json_str(&r->body, request);
	wb_buf_printf(&r->body, ",\"ticket\":");
	wb_buf_json_str(&r->body, ticket);
	wb_buf_printf(&r->body, ",\"key\":\"");
	for (size_t i = 0; i < sizeof(key); i++)
		wb_buf_printf(&r->body, "%02x", key[i]);
	wb_buf_printf(&r->body, "\"}\n");
	explicit_bzero(key, sizeof(key));
}

void wb__measure_ticket(struct wb__measure *m, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *name = wb_http_query(rq, "bench");
	struct wb__measure_request q = {.rails = 0};
	struct found f;

	if (!wb_http_is_unix(rq)) {
		(void)refuse(r, 401,
			"tickets for measurements are given on the agent's socket alone "
			"(SOCKET.http): a key goes over no network");
		return;
	}
	if (is_open(m, r) < 0)
		return;
	f = find_agent(m, name);
	if (!f.at) {
		name_agents(m, name, r);
		return;
	}
	if (f.at->is_foreign) {
		(void)refuse(r, 400, "agent %s has no address of a family that agent %s has", name,
			m->a->o.name);
		return;
	}
	q.is_v6 = is_v6(f.at);
	if (make_request(m, &f, rq, &q, r) == 0 && is_free(m, q.is_forced, r) == 0)
		put_ticket(m, &f, &q, r);
}

/* ---- with the agent ----------------------------------------------------------------------------
 */

int wb__measure_create(struct wb__agent *a, struct wb__measure **out)
{
	struct wb__measure *m = wb_zalloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->a = a;
	if (wb_timer_create(a->loop, on_timer, m, &m->timer) < 0) {
		wb_free(m);
		return -ENOMEM;
	}
	*out = m;
	return 0;
}

void wb__measure_stop(struct wb__measure *m)
{
	m->is_stopped = true;
	kill_source(m, "the agent stops");
}

void wb__measure_destroy(struct wb__measure *m)
{
	if (!m)
		return;
	wb__measure_stop(m);
	if (m->child)
		end_source(m);
	wb_timer_destroy(m->timer);
	wb_free(m);
}
