/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl bench: which end this is, and what comes out as text or JSON. */
#include "ctl/bench.h"

#include "base/base.h"
#include "base/err.h"
#include "ctl/json.h"
#include "ctl/table.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- options -----------------------------------------------------------------------------------
 */

/* Where an option belongs: a bit each. */
enum { SOURCE = 1, RECEIVER = 2, OF_AGENT = 4 };

static int check_ends(const struct wb__ctl_bench *b, unsigned end, struct wb_err *err)
{
	const struct {
		const char *name;
		bool is_given;
		unsigned ends;
		const char *with;
	} only[] = {
		{"memory", b->memory, SOURCE | OF_AGENT, "--listen, or with --to AGENT"},
		{"wait", b->wait, SOURCE, "--listen"},
		{"parent", b->parent, SOURCE, "--listen"},
		{"from", b->from, RECEIVER | OF_AGENT, "--to"},
		{"sizes", b->sizes, RECEIVER | OF_AGENT, "--to"},
		{"depths", b->depths, RECEIVER | OF_AGENT, "--to"},
		{"sums", b->sums, RECEIVER | OF_AGENT, "--to"},
		{"seconds", b->seconds, RECEIVER | OF_AGENT, "--to"},
		{"force", b->is_forced, OF_AGENT, "--to AGENT"},
		{"key-file", b->key_file, SOURCE | RECEIVER,
			"addresses: agents make a key of their own"},
	};

	for (size_t i = 0; i < WB_ARRAY_SIZE(only); i++)
		if (only[i].is_given && !(only[i].ends & end))
			return wb_err_set(
				err, -EINVAL, "--%s goes with %s", only[i].name, only[i].with);
	return 0;
}

static int check(const struct wb__ctl_bench *b, bool is_of_agent, struct wb_err *err)
{
	int rc;

	if (!b->listen == !b->to)
		return wb_err_set(err, -EINVAL,
			"bench has two ends: wbctl bench --listen ADDRESS at one place, and what "
			"that prints at the other (--to); one of the two is wanted here, or --to "
			"AGENT");
	rc = check_ends(b, is_of_agent ? OF_AGENT : b->listen ? SOURCE : RECEIVER, err);
	if (rc < 0 || (is_of_agent && !b->transport))
		return rc;
	if (b->is_encrypted && strcmp(wb__bench_transport(b), "tcp") != 0)
		return wb_err_set(err, -EINVAL, "--encrypt goes with --transport tcp, not %s",
			wb__bench_transport(b));
	return 0;
}

int wb__ctl_bench(const struct wb__ctl_opts *o, struct wb_err *err)
{
	bool is_of_agent = o->bench.to && wb__bench_is_agent(o->bench.to);
	int rc = check(&o->bench, is_of_agent, err);

	if (rc < 0)
		return rc;
	if (is_of_agent)
		return wb__bench_from_agent(o, err);
	return o->bench.listen ? wb__bench_source(o, err) : wb__bench_receiver(o, err);
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static json_t *point_json(const struct wb__bench_point *p, const struct wb__bench_result *r)
{
	json_t *o = json_pack("{s:i, s:i, s:I, s:b, s:I, s:f, s:f, s:f, s:f}", "rails", p->rails,
		"depth", p->depth, "bytes", (json_int_t)p->bytes, "sums", p->has_sums,
		p->is_read ? "reads" : "chunks", (json_int_t)r->chunks, "seconds", r->seconds,
		"minMicroseconds", r->min_us, "medianMicroseconds", r->median_us, "p99Microseconds",
		r->p99_us);

	if (!p->is_latency)
		json_object_update_new(
			o, json_pack("{s:f, s:f, s:f, s:{s:f, s:f, s:f, s:f}}", "bytesPerSecond",
				   r->bytes_per_s, "receiverCpuSecondsPerGiB", r->cpu_here,
				   "sourceCpuSecondsPerGiB", r->cpu_there, "receiverPerGiB",
				   "controlBytes", r->word_bytes, "workRequests", r->requests,
				   "doorbells", r->doorbells, "completions", r->completions));
	return o;
}

static int show_json(const struct wb__bench_sheet *s, bool is_yaml)
{
	json_t *all = json_pack("{s:s, s:s, s:s, s:b, s:b, s:f, s:{s:i, s:I}, s:[], s:[], s:[]}",
		"version", WB_VERSION, "transport", s->transport, "from", s->from, "encrypted",
		s->is_encrypted, "spinning", s->is_spinning, "memcpyBytesPerSecond",
		s->memcpy_bytes_per_s, "source", "rails", s->source_rails, "memoryBytes",
		(json_int_t)s->source_bytes, "readLatency", "latency", "bandwidth");

	if (s->agent_there)
		json_object_set_new(all, "agents",
			json_pack("{s:s, s:s}", "from", s->agent_there, "to", s->agent_here));
	for (uint32_t i = 0; i < s->sweep->n; i++) {
		const struct wb__bench_point *p = &s->sweep->point[i];

		json_array_append_new(json_object_get(all, p->is_read      ? "readLatency"
							   : p->is_latency ? "latency"
									   : "bandwidth"),
			point_json(p, &s->result[i]));
	}
	if (!all)
		return -ENOMEM;
	wb__ctl_dump(all, is_yaml);
	json_decref(all);
	return 0;
}

/* ---- text --------------------------------------------------------------------------------------
 */

static void put_time(struct wb__ctl_table *t, double us)
{
	if (us < 1000)
		wb__ctl_cell(t, "%.1f us", us);
	else
		wb__ctl_cell(t, "%.2f ms", us / 1e3);
}

static void put_point(
	struct wb__ctl_table *t, const struct wb__bench_point *p, const struct wb__bench_result *r)
{
	char size[32];

	wb__ctl_cell(t, "%u", p->rails);
	wb__ctl_cell(t, "%s", wb__bench_size_text(p->bytes, size));
	wb__ctl_cell(t, "%u", p->depth);
	wb__ctl_cell(t, "%s", p->has_sums ? "on" : "off");
	if (p->is_latency) {
		wb__ctl_cell(t, "-");
	} else {
		wb__ctl_cell(t, "%.*f GB/s", r->bytes_per_s < 1e9 ? 3 : 2, r->bytes_per_s / 1e9);
	}
	wb__ctl_cell(t, "%s", wb__bench_point_times(p));
	put_time(t, r->min_us);
	put_time(t, r->median_us);
	put_time(t, r->p99_us);
	for (int there = 0; there < 2; there++) {
		if (p->is_latency)
			wb__ctl_cell(t, "-");
		else
			wb__ctl_cell(t, "%.2f", there ? r->cpu_there : r->cpu_here);
	}
}

static int show_text(const struct wb__bench_sheet *s)
{
	static const char *const heads[] = {"RAILS", "CHUNK", "DEPTH", "SUMS", "RATE", "TIME OF",
		"MIN", "MEDIAN", "P99", "CPU S/GIB HERE", "THERE"};
	struct wb__ctl_table t;
	int rc;

	if (s->agent_there)
		printf("from agent %s to agent %s, %u rail%s there\n", s->agent_there,
			s->agent_here, s->source_rails, s->source_rails > 1 ? "s" : "");
	printf("%s from %s, %s%s\none thread copies %.2f GB/s here (memcpy)\n\n", s->transport,
		s->from,
		s->is_encrypted               ? "encrypted"
		: strcmp(s->transport, "shm") ? "in the clear"
					      : "within the host",
		s->is_spinning ? ", this end never sleeps" : "", s->memcpy_bytes_per_s / 1e9);
	wb__ctl_table_init(&t, WB_ARRAY_SIZE(heads));
	for (size_t i = 0; i < WB_ARRAY_SIZE(heads); i++)
		wb__ctl_cell(&t, "%s", heads[i]);
	for (uint32_t i = 0; i < s->sweep->n; i++)
		put_point(&t, &s->sweep->point[i], &s->result[i]);
	rc = wb__ctl_print(&t, "", stdout);
	wb__ctl_table_finish(&t);
	printf("\nMIN, MEDIAN, P99 of ask: from asking for a chunk until it is there, behind those "
	       "asked for before; of\nREAD: of one that waits for nothing else, from the landing "
	       "of the one before it.\nGB/s: 10^9 bytes a second; CPU seconds for 2^30 bytes, of "
	       "all "
	       "threads of each end.\n");
	return rc;
}

int wb__bench_show(const struct wb__bench_sheet *s, const struct wb__ctl_opts *o)
{
	return o->is_json ? show_json(s, o->is_yaml) : show_text(s);
}
