/* SPDX-License-Identifier: Apache-2.0 */
/* What wbctl bench is asked for: lists into points, addresses into those of transports. */
#include "base/base.h"
#include "base/cli.h"
#include "base/err.h"
#include "ctl/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES "64Ki,1Mi,8Mi"
/* Half the memory of that: it has to fit into what an agent has beside its buffers. */
#define SIZES_OF_AGENT "64Ki,1Mi,4Mi"
#define DEPTHS "1,16"
#define SECONDS 10.0
#define SECONDS_MAX 86400.0
#define LATENCY_BYTES 64
#define LIST_MAX 16
#define POINT_NS_MIN (10 * WB_NS_PER_MS)
#define PAGE 4096u

/* ---- lists -------------------------------------------------------------------------------------
 */

struct list {
	uint64_t value[LIST_MAX];
	uint32_t n;
};

static int value_of(const char *word, bool is_size, uint64_t max, uint64_t *out)
{
	if (!is_size)
		return wb_cli_uint(word, 1, max, out);
	return wb_cli_size(word, false, out) < 0 || *out < 1 || *out > max ? -EINVAL : 0;
}

static int take_list(const char *option, const char *text, bool is_size, uint64_t max,
	struct list *out, struct wb_err *err)
{
	char word[64];

	out->n = 0;
	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");

		snprintf(word, sizeof(word), "%.*s", (int)WB_MIN(n, sizeof(word) - 1), at);
		if (out->n == LIST_MAX)
			return wb_err_set(
				err, -EINVAL, "--%s %.80s: more than %d", option, text, LIST_MAX);
		if (value_of(word, is_size, max, &out->value[out->n++]) < 0)
			return wb_err_set(err, -EINVAL,
				"--%s %.80s: '%s' is none: expected 1 to %llu%s, with commas "
				"between",
				option, text, word, (unsigned long long)(is_size ? max >> 20 : max),
				is_size ? "Mi bytes, such as 64Ki,1Mi" : "");
		at += n;
		if (!*at)
			return 0;
	}
}

int wb__bench_seconds(const char *option, const char *text, double least, double absent,
	uint64_t *ns, struct wb_err *err)
{
	char *end;
	double s = text ? strtod(text, &end) : absent;

	if (text && (end == text || *end || !(s >= least && s <= SECONDS_MAX)))
		return wb_err_set(err, -EINVAL, "--%s %.40s: expected %g to %.0f seconds", option,
			text, least, SECONDS_MAX);
	*ns = (uint64_t)(s * 1e9);
	return 0;
}

/* ---- points ------------------------------------------------------------------------------------
 */

static int add(struct wb__bench_sweep *s, struct wb__bench_point p)
{
	if (s->n == WB__BENCH_POINTS_MAX)
		return -E2BIG;
	s->point[s->n++] = p;
	s->rails_max = WB_MAX(s->rails_max, p.rails);
	s->depth_max = WB_MAX(s->depth_max, p.depth);
	s->bytes_max = WB_MAX(s->bytes_max, p.bytes);
	return 0;
}

bool wb__bench_is_same_run(const struct wb__bench_point *a, const struct wb__bench_point *b)
{
	return a->rails == b->rails && a->is_read == b->is_read;
}

uint64_t wb__bench_landing(const struct wb__bench_sweep *s, uint32_t i)
{
	uint64_t bytes = s->point[i].is_read ? WB__BENCH_READS * WB__BENCH_READ_BYTES : 0;

	for (uint32_t k = i; k < s->n && wb__bench_is_same_run(&s->point[i], &s->point[k]); k++)
		bytes = WB_MAX(bytes, s->point[k].depth * wb_align_up(s->point[k].bytes, PAGE));
	return bytes;
}

uint64_t wb__bench_room(const struct wb__bench_sweep *s)
{
	uint64_t most = 2 * WB__BENCH_MEMCPY_BYTES, last = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t now;

		if (i && wb__bench_is_same_run(&s->point[i - 1], &s->point[i]))
			continue;
		now = wb__bench_landing(s, i);
		most = WB_MAX(most, last + now);
		last = now;
	}
	return most;
}

/* One READ: rails are of no account, and it is measured with the first number of them. */
static int add_read(struct wb__bench_sweep *s, uint32_t rails)
{
	return add(s, (struct wb__bench_point){.rails = rails,
			      .depth = 1,
			      .bytes = WB__BENCH_READ_BYTES,
			      .is_latency = true,
			      .is_read = true});
}

static int add_rails(struct wb__bench_sweep *s, uint32_t rails, const char *sums,
	const struct list *size, const struct list *depth)
{
	int rc = add(
		s, (struct wb__bench_point){
			   .rails = rails, .depth = 1, .bytes = LATENCY_BYTES, .is_latency = true});

	for (int has = 0; has < 2; has++) {
		if (!strcmp(sums, has ? "off" : "on"))
			continue;
		for (uint32_t i = 0; i < size->n; i++)
			for (uint32_t k = 0; k < depth->n && rc == 0; k++)
				rc = add(s, (struct wb__bench_point){.rails = rails,
						    .depth = (uint32_t)depth->value[k],
						    .bytes = size->value[i],
						    .has_sums = has});
	}
	return rc;
}

int wb__bench_sweep(const struct wb__ctl_bench *b, struct wb__bench_sweep *out, struct wb_err *err)
{
	bool is_of_agent = b->agent_there || (b->to && wb__bench_is_agent(b->to));
	const char *sizes = b->sizes ? b->sizes : is_of_agent ? SIZES_OF_AGENT : SIZES;
	struct list rails, size, depth;
	uint64_t ns;
	int rc = take_list(
		"rails", b->rails ? b->rails : "1", false, WB__BENCH_RAILS_MAX, &rails, err);

	memset(out, 0, sizeof(*out));
	if (rc == 0)
		rc = take_list("sizes", sizes, true, WB_XPORT_CHUNK_MAX, &size, err);
	if (rc == 0)
		rc = take_list("depths", b->depths ? b->depths : DEPTHS, false, WB_XPORT_DEPTH_MAX,
			&depth, err);
	if (rc == 0)
		rc = wb__bench_seconds("seconds", b->seconds, 0.1, SECONDS, &ns, err);
	if (rc < 0)
		return rc;
	if (b->to && !strcmp(wb__bench_transport(b), "verbs"))
		rc = add_read(out, (uint32_t)rails.value[0]);
	for (uint32_t i = 0; i < rails.n && rc == 0; i++)
		rc = add_rails(
			out, (uint32_t)rails.value[i], b->sums ? b->sums : "both", &size, &depth);
	if (rc < 0)
		return wb_err_set(err, -EINVAL,
			"more than %d points: name fewer --sizes, --depths or --rails",
			WB__BENCH_POINTS_MAX);
	out->point_ns = ns / out->n;
	out->latency_ns = WB_MIN(out->point_ns, WB_NS_PER_S);
	if (out->point_ns < POINT_NS_MIN)
		return wb_err_set(err, -EINVAL,
			"--seconds %s for %u points: each needs %llu ms at least", b->seconds,
			out->n, POINT_NS_MIN / WB_NS_PER_MS);
	return 0;
}

const char *wb__bench_size_text(uint64_t bytes, char out[static 32])
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB"};
	double v = (double)bytes;
	size_t u = 0;

	for (; v >= 1024 && u + 1 < WB_ARRAY_SIZE(unit); u++)
		v /= 1024;
	snprintf(out, 32, v == floor(v) ? "%.0f %s" : "%.1f %s", v, unit[u]);
	return out;
}

const char *wb__bench_point_text(const struct wb__bench_point *p, char out[static 64])
{
	char size[32];

	if (p->is_read)
		snprintf(out, 64, "one READ of %.12s", wb__bench_size_text(p->bytes, size));
	else
		snprintf(out, 64, "%.12s, %u deep, %u rail%s, sums %s",
			wb__bench_size_text(p->bytes, size), p->depth, p->rails,
			p->rails > 1 ? "s" : "", p->has_sums ? "on" : "off");
	return out;
}

const char *wb__bench_point_times(const struct wb__bench_point *p)
{
	return p->is_read ? "READ" : "ask";
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void wb__bench_times(uint64_t *ns, size_t n, struct wb__bench_result *out)
{
	size_t middle = n / 2, late = (n ? n - 1 : 0) * 99 / 100;

	if (!n)
		return;
	qsort(ns, n, sizeof(*ns), compare);
	out->min_us = (double)ns[0] / 1e3;
	out->median_us = (double)ns[middle] / 1e3;
	out->p99_us = (double)ns[late] / 1e3;
}

/* ---- addresses ---------------------------------------------------------------------------------
 */

/* Part @i of a list, going round; "" = it is empty or too long. */
static void part_of(const char *text, uint32_t i, char out[static WB__BENCH_ADDR_MAX])
{
	uint32_t n = 1;
	size_t len;

	for (const char *s = text; *s; s++)
		n += *s == ',';
	for (i %= n; i; i--)
		text = strchr(text, ',') + 1;
	len = strcspn(text, ",");
	len = len < WB__BENCH_ADDR_MAX ? len : 0;
	memcpy(out, text, len);
	out[len] = '\0';
}

static bool is_path(const char *text)
{
	return *text == '/' || *text == '@' || !strncmp(text, "unix:", 5);
}

const char *wb__bench_transport(const struct wb__ctl_bench *b)
{
	const char *text = b->listen ? b->listen : b->to;

	if (b->transport)
		return b->transport;
	return is_path(text) ? "shm" : wb_xport_of_endpoint(text);
}

int wb__bench_rail(const char *transport, const char *text, uint32_t i,
	char out[static WB__BENCH_ADDR_MAX], struct wb_err *err)
{
	char part[WB__BENCH_ADDR_MAX];
	bool is_shm = !strcmp(transport, "shm");
	const char *at, *host, *colon;
	int n;

	part_of(text, i, part);
	at = strchr(part, '@');
	host = at && !is_shm ? at + 1 : part;
	colon = strchr(host, ':');
	if (!*host || is_path(part) != is_shm)
		return wb_err_set(err, -EINVAL,
			"'%.80s' is no address for %s: expected %s, with commas between", text,
			transport,
			is_shm ? "/PATH of a socket, or @NAME"
			       : "ADDRESS or ADDRESS:PORT (verbs: also DEVICE@ADDRESS)");
	if (is_shm)
		n = snprintf(out, WB__BENCH_ADDR_MAX, "%s%s", *part == 'u' ? "" : "unix:", part);
	else if (colon && strchr(colon + 1, ':') && *host != '[')
		n = snprintf(out, WB__BENCH_ADDR_MAX, "%.*s[%s]:0", (int)(host - part), part, host);
	else if (colon && host[strlen(host) - 1] != ']')
		n = snprintf(out, WB__BENCH_ADDR_MAX, "%s", part);
	else
		n = snprintf(out, WB__BENCH_ADDR_MAX, "%s:0", part);
	return n < WB__BENCH_ADDR_MAX ? 0 : wb_err_set(err, -EINVAL, "'%.80s' is too long", text);
}

int wb__bench_endpoint(const char *transport, const char *text, uint32_t n,
	char out[static WB_XPORT_ENDPOINT_MAX], struct wb_err *err)
{
	const char *scheme = wb_xport_find(transport)->scheme, *is;
	char part[WB__BENCH_ADDR_MAX];
	size_t at = 0;
	uint32_t parts = 1;

	for (const char *s = text; *s; s++)
		parts += *s == ',';
	for (uint32_t i = 0; i < (n ? WB_MIN(n, parts) : parts); i++) {
		part_of(text, i, part);
		if (is_path(part) && *part != 'u')
			is = "shm";
		else
			is = wb_xport_of_endpoint(part);
		/* What has no scheme may be of any transport whose addresses look like it. */
		if (strcmp(is, transport) != 0 && !(!strcmp(is, "tcp") && strcmp(transport, "shm")))
			return wb_err_set(err, -EINVAL,
				"--to %.80s is an address of %s, and --transport is %s: both ends "
				"take the same one",
				text, *is ? is : "no transport", transport);
		at += (size_t)snprintf(out + at, WB_XPORT_ENDPOINT_MAX - at, "%s%s%s", i ? "," : "",
			strncmp(part, scheme, strlen(scheme)) ? scheme : "", part);
		if (at >= WB_XPORT_ENDPOINT_MAX)
			return wb_err_set(err, -EINVAL, "--to is too long");
	}
	return 0;
}
