/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct entry {
	char what[32], who[64];
	uint64_t transfer, value, at_ns, end_ns; /* end_ns 0 = a mark */
};

struct wb__trace_ring {
	const char *agent;
	struct entry *e; /* owned */
	uint32_t n;
	uint64_t at; /* entries ever written */
};

struct wb__trace_ring *wb__trace_create(const char *agent, uint32_t n)
{
	struct wb__trace_ring *t = wb_zalloc(1, sizeof(*t));

	assert(n && agent);
	if (!t)
		return NULL;
	t->e = wb_zalloc(n, sizeof(*t->e));
	if (!t->e) {
		wb_free(t);
		return NULL;
	}
	t->agent = agent;
	t->n = n;
	return t;
}

void wb__trace_destroy(struct wb__trace_ring *t)
{
	if (!t)
		return;
	wb_free(t->e);
	wb_free(t);
}

static struct entry *add(
	struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer)
{
	struct entry *e = &t->e[t->at++ % t->n];

	assert(what);
	memset(e, 0, sizeof(*e));
	snprintf(e->what, sizeof(e->what), "%s", what);
	snprintf(e->who, sizeof(e->who), "%s", who ? who : "");
	e->transfer = transfer;
	return e;
}

void wb__trace_mark(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t value)
{
	struct entry *e = add(t, what, who, transfer);

	e->value = value;
	e->at_ns = wb_wall_ns();
}

void wb__trace_span(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t begin_wall_ns, uint64_t end_wall_ns)
{
	struct entry *e = add(t, what, who, transfer);

	e->at_ns = begin_wall_ns;
	e->end_ns = WB_MAX(end_wall_ns, begin_wall_ns);
}

/* Rows of the viewer: one process an agent, one thread for each `who`. */
static uint32_t row_of(const char *name)
{
	return (uint32_t)wb_hash64(name, strlen(name), 0) & 0x3fffffff;
}

static void put_name(
	struct wb_buf *out, const char *kind, uint32_t pid, uint32_t tid, const char *name)
{
	wb_buf_printf(out,
		"{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
		",\"args\":{\"name\":",
		kind, pid, tid);
	wb_buf_json_str(out, name);
	wb_buf_printf(out, "}},\n");
}

static void put_us(struct wb_buf *out, const char *key, uint64_t ns)
{
	wb_buf_printf(out, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static void put_entry(struct wb_buf *out, uint32_t pid, const struct entry *e)
{
	const char *who = e->who[0] ? e->who : "agent";
	uint32_t tid = row_of(who);

	put_name(out, "thread_name", pid, tid, who);
	wb_buf_printf(out, "{\"name\":");
	wb_buf_json_str(out, e->what);
	wb_buf_printf(out, ",\"cat\":\"wb\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32, pid, tid);
	put_us(out, "ts", e->at_ns);
	if (e->end_ns) {
		wb_buf_printf(out, ",\"ph\":\"X\"");
		put_us(out, "dur", e->end_ns - e->at_ns);
	} else {
		wb_buf_printf(out, ",\"ph\":\"i\",\"s\":\"t\"");
	}
	wb_buf_printf(out, ",\"args\":{\"transfer\":%" PRIu64 ",\"value\":%" PRIu64 "}},\n",
		e->transfer, e->value);
}

void wb__trace_json(const struct wb__trace_ring *t, uint64_t transfer, struct wb_buf *out)
{
	uint64_t i = t->at > t->n ? t->at - t->n : 0;
	uint32_t pid = row_of(t->agent);

	wb_buf_printf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
	for (; i < t->at; i++) {
		const struct entry *e = &t->e[i % t->n];

		if (!transfer || !e->transfer || e->transfer == transfer)
			put_entry(out, pid, e);
	}
	/* Last, so that every event before it can end with a comma. */
	wb_buf_printf(out,
		"{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"args\":{\"name\":",
		pid);
	wb_buf_json_str(out, t->agent);
	wb_buf_printf(out, "}}\n]}\n");
}
