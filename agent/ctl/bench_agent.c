/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl bench --to AGENT: asks two agents, and is the receiver of what the other one starts. */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/bench.h"
#include "ctl/fetch.h"
#include "ctl/json.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATH_ROOM 900 /* of a page with its query */
#define SECONDS_MAX 540.0 /* agents end a source after ten minutes */
#define SECONDS 10.0
#define BUSY_NS (2 * WB_NS_PER_S) /* how long a measurement of others is waited for */
#define POLL_NS 50000000

bool wb__bench_is_agent(const char *to)
{
	return !strpbrk(to, ":/@");
}

/* ---- queries -----------------------------------------------------------------------------------
 */

struct query {
	char text[PATH_ROOM];
	size_t at;
};

static void put(struct query *q, const char *text)
{
	int n = snprintf(q->text + q->at, sizeof(q->text) - q->at, "%s", text);

	q->at = WB_MIN(q->at + (size_t)n, sizeof(q->text));
}

/* NAME=VALUE, whatever is in VALUE. */
static void put_value(struct query *q, const char *name, const char *value)
{
	char *text = curl_easy_escape(NULL, value, 0);

	put(q, name);
	put(q, text ? text : "");
	curl_free(text);
}

static int check_room(const struct query *q, struct wb_err *err)
{
	return q->at < sizeof(q->text)
		       ? 0
		       : wb_err_set(err, -ENAMETOOLONG, "the names of the agents are too long");
}

/* ---- the agent of this container ---------------------------------------------------------------
 */

struct needs {
	uint64_t memory, landing; /* of a source, and of the receiver */
	uint32_t rails;
};

static int take_needs(const struct wb__ctl_bench *b, struct needs *out, struct wb_err *err)
{
	struct wb__bench_sweep *s = wb_zalloc(1, sizeof(*s));
	uint64_t ns;
	int rc = s ? wb__bench_sweep(b, s, err) : wb_err_set(err, -ENOMEM, "no memory");

	if (rc == 0) {
		out->memory = WB_MAX(WB__BENCH_MEMORY, s->bytes_max);
		out->landing = wb__bench_room(s);
		out->rails = s->rails_max;
		rc = wb__bench_memory(b, &out->memory, err);
	}
	if (rc == 0)
		rc = wb__bench_seconds("seconds", b->seconds, 0.1, SECONDS, &ns, err);
	if (rc == 0 && (double)ns / 1e9 > SECONDS_MAX)
		rc = wb_err_set(err, -EINVAL,
			"--seconds %s: an agent ends a measurement after ten minutes: at most %.0f",
			b->seconds, SECONDS_MAX);
	wb_free(s);
	return rc;
}

static int ask_here(const struct wb__ctl_bench *b, json_t **out, struct wb_err *err)
{
	struct wb__ctl_opts own = {.agent_addr = NULL};
	struct query q = {.at = 0};
	char text[32], number[32];
	const char *agent = wb__ctl_agent(&own, text);
	struct needs need = {0};
	int rc = take_needs(b, &need, err);

	if (rc < 0)
		return rc;
	if (!agent)
		return wb_err_set(err, -EINVAL,
			"--to %s: it is no address (ADDRESS:PORT, /PATH or @NAME), and agents are "
			"found by the agent of this container, of which there is none: run it "
			"there "
			"(kubectl exec POD -c weightbridge-agent -- wbctl bench --to %s)",
			b->to, b->to);
	put_value(&q, "/tickets?bench=", b->to);
	snprintf(number, sizeof(number), "%" PRIu64, need.memory);
	put_value(&q, "&memory=", number);
	snprintf(number, sizeof(number), "%" PRIu64, need.landing);
	put_value(&q, "&landing=", number);
	snprintf(number, sizeof(number), "%" PRIu32, need.rails);
	if (b->rails)
		put_value(&q, "&rails=", number);
	if (b->transport)
		put_value(&q, "&transport=", b->transport);
	put(&q, b->is_encrypted ? "&encrypt=1" : "");
	put(&q, b->is_forced ? "&force=1" : "");
	rc = check_room(&q, err);
	if (rc == 0)
		rc = wb__ctl_fetch_json(agent, q.text, NULL, out, err);
	if (rc == -EBADMSG)
		rc = wb_err_set(err, rc,
			"the agent of this container (%s) knows no measurements: it is older than "
			"this wbctl",
			agent);
	return rc;
}

/* ---- the other agent ---------------------------------------------------------------------------
 */

static const char *word(const json_t *page, const char *name)
{
	const char *text = json_string_value(json_object_get(page, name));

	return text ? text : "";
}

/* Its pages are where ours are, at any of its addresses. */
static int ask_hosts(const json_t *ticket, const char *path, json_t **out, struct wb_err *err)
{
	unsigned port = (unsigned)json_integer_value(json_object_get(ticket, "http"));
	const json_t *hosts = json_object_get(ticket, "hosts"), *host;
	int rc = -ENOENT;
	char addr[300];
	size_t i;

	if (!port)
		return wb_err_set(err, -EINVAL,
			"the agent of this container has no pages at a port (--http), so where "
			"those of the other are is not known: --agent HOST:PORT");
	json_array_foreach(hosts, i, host)
	{
		const char *at = json_string_value(host);

		snprintf(addr, sizeof(addr), at && strchr(at, ':') ? "[%s]:%u" : "%s:%u",
			at ? at : "", port);
		rc = wb__ctl_fetch_json(addr, path, NULL, out, err);
		if (rc != -ECONNREFUSED && rc != -ETIMEDOUT)
			return rc;
	}
	return wb_err_wrap(err, rc < 0 ? rc : -ENOENT,
		"the pages of the other agent (--agent HOST:PORT where they are at another port)");
}

static int ask_there(
	const struct wb__ctl_opts *o, const json_t *ticket, json_t **out, struct wb_err *err)
{
	struct query q = {.at = 0};
	int rc;

	put_value(&q, "/bench?for=", word(ticket, "for"));
	put_value(&q, "&ticket=", word(ticket, "ticket"));
	rc = check_room(&q, err);
	if (rc < 0)
		return rc;
	return o->agent_addr ? wb__ctl_fetch_json(o->agent_addr, q.text, NULL, out, err)
			     : ask_hosts(ticket, q.text, out, err);
}

/* ---- both --------------------------------------------------------------------------------------
 */

static int measure(const struct wb__ctl_opts *o, const json_t *ticket, const json_t *answer,
	struct wb_err *err)
{
	const json_t *source = json_object_get(answer, "source");
	struct wb__ctl_opts run = *o;
	struct wb__ctl_bench *b = &run.bench;
	char rails[16];

	if (!*word(source, "to"))
		return wb_err_set(
			err, -EPROTO, "agent %s says not where its source listens", o->bench.to);
	snprintf(rails, sizeof(rails), "%u",
		(unsigned)json_integer_value(json_object_get(ticket, "rails")));
	b->agent_here = word(ticket, "agent");
	b->agent_there = word(answer, "agent");
	b->key = word(ticket, "key");
	b->to = word(source, "to");
	b->transport = word(ticket, "transport");
	b->rails = b->rails ? b->rails : rails;
	b->from = b->from ? b->from : word(ticket, "from");
	b->is_encrypted = json_is_true(json_object_get(ticket, "encrypted"));
	b->is_apart = json_is_true(json_object_get(ticket, "apart"));
	b->traffic_class = (uint32_t)json_integer_value(json_object_get(ticket, "trafficClass"));
	b->service_level = (uint32_t)json_integer_value(json_object_get(ticket, "serviceLevel"));
	b->no_windows = json_is_false(json_object_get(ticket, "windows"));
	return wb__bench_receiver(&run, err);
}

/* The source of the last measurement may be ending just now. */
static int ask_both(
	const struct wb__ctl_opts *o, json_t **ticket, json_t **answer, struct wb_err *err)
{
	uint64_t until = wb_now_ns(&wb_clock_real) + BUSY_NS;
	const struct timespec nap = {0, POLL_NS};
	int rc;

	rc = ask_here(&o->bench, ticket, err);
	if (rc < 0)
		return rc;
	for (;;) { /* a ticket that found somebody else measuring was not used */
		rc = ask_there(o, *ticket, answer, err);
		if (rc != -EBUSY || wb_now_ns(&wb_clock_real) >= until)
			return rc;
		nanosleep(&nap, NULL);
	}
}

int wb__bench_from_agent(const struct wb__ctl_opts *o, struct wb_err *err)
{
	json_t *ticket = NULL, *answer = NULL;
	int rc;

	wb_mem_offer(0);
	json_set_alloc_funcs(wb_alloc, wb_free_wiped); /* pages with a ticket and a key */
	rc = ask_both(o, &ticket, &answer, err);
	if (rc == 0)
		rc = measure(o, ticket, answer, err);
	json_decref(answer);
	json_decref(ticket);
	return rc;
}
