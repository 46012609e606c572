/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl bench --to: asks for chunks, point by point, and keeps what it took. */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/bench.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIMES_MAX 65536 /* kept of a point: the last ones */
#define CHUNKS_MIN 4 /* counted of a point, whatever time that takes */
#define MEMCPY_TIMES 21
#define EVENTS 64
#define GIB 1073741824.0

/* A chunk that is under way, and its place in the landing. */
struct slot {
	struct run *of;
	uint64_t asked_ns;
	uint32_t cls;
	struct iovec iov;
	struct wbk_sum sum;
};

/* Arrivals of a point.  The first one that is late enough begins the time: what comes after it is
 * counted, until the end of the point's time and at least so many. */
struct tally {
	uint64_t from_ns, until_ns, first_ns, last_ns;
	uint64_t n, bytes, all_bytes; /* counted; all that came */
};

struct run {
	struct wb__bench_end end;
	const char *endpoint;
	wb_conn_t conn;
	bool is_up;
	uint32_t n_out; /* slots under way */
	uint32_t free[WB_XPORT_DEPTH_MAX], n_free;
	struct slot slot[WB_XPORT_DEPTH_MAX];
	uint64_t heard_ns, word[4]; /* word: of the last FACTS */
	struct tally tally;
	uint64_t times[TIMES_MAX];
	uint64_t landed_ns[WB__BENCH_READS]; /* of the chunk of READs that came last; its rail's */
	char at[64]; /* what is being done */
};

/* ---- chunks (rail threads) ---------------------------------------------------------------------
 */

static void observe(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	struct slot *s = ctx;

	wbk_sum_add(&s->of->end.keys, wire_off, data, bytes, &s->sum);
}

/* The READs of a chunk, one by one. */
static void observe_read(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	struct slot *s = ctx;

	(void)data;
	if (bytes == WB__BENCH_READ_BYTES && wire_off / bytes < WB__BENCH_READS)
		s->of->landed_ns[wire_off / bytes] = wb_now_ns(&wb_clock_real);
}

/* As agents do: past the caches, in one pass with the sum. */
static void copy(void *ctx, void *to, const void *from, size_t bytes, uint64_t wire_off)
{
	struct slot *s = ctx;
	bool has_sum = s->cls == WB__BENCH_SUMMED;

	if (bytes)
		wbk_sum_copy(has_sum ? &s->of->end.keys : NULL, wire_off, to, from, bytes,
			has_sum ? &s->sum : NULL);
	else
		wbk_copy_end();
	if (s->cls ==
		WB__BENCH_READ) /* by way of a slab, while the landing is not registered yet */
		observe_read(ctx, to, bytes, wire_off);
}

/* ---- chunks (loop) -----------------------------------------------------------------------------
 */

static int ask(struct run *r, enum wb__bench_ask what, uint64_t bytes)
{
	uint32_t i = r->free[r->n_free - 1];
	struct slot *s = &r->slot[i];
	struct wb_xport_grant g = {.cookie = i,
		.chunk = {.bytes = bytes, .cls = what, .chunk = i},
		.iov = &s->iov,
		.n_iov = 1,
		.observe = what == WB__BENCH_SUMMED ? observe
			   : what == WB__BENCH_READ ? observe_read
						    : NULL,
		.copy = copy,
		.ctx = s};
	int rc;

	*s = (struct slot){.of = r,
		.asked_ns = wb_now_ns(&wb_clock_real),
		.cls = what,
		.iov = {r->end.mem + i * wb_align_up(bytes, 4096), bytes}};
	if (what == WB__BENCH_READ)
		memset(r->landed_ns, 0, sizeof(r->landed_ns));
	assert((uint8_t *)s->iov.iov_base + bytes <= r->end.mem + r->end.bytes);
	rc = wb_xport_grant(r->end.x, r->conn, &g);
	if (rc < 0)
		return rc;
	r->n_free--;
	r->n_out++;
	return 0;
}

/* Each but the first: that one comes after the answer, and not after another. */
static void count_reads(struct run *r)
{
	for (uint32_t i = 1; i < WB__BENCH_READS; i++)
		r->times[r->tally.n++ % TIMES_MAX] = r->landed_ns[i] - r->landed_ns[i - 1];
}

static void count(struct run *r, const struct slot *s, uint64_t at_ns)
{
	struct tally *t = &r->tally;

	t->all_bytes += s->iov.iov_len;
	if (at_ns < t->from_ns || (at_ns > t->until_ns && t->n >= CHUNKS_MIN))
		return;
	if (!t->first_ns) {
		t->first_ns = at_ns;
		return;
	}
	if (s->cls == WB__BENCH_READ)
		count_reads(r);
	else
		r->times[t->n++ % TIMES_MAX] = at_ns - s->asked_ns;
	t->bytes += s->iov.iov_len;
	t->last_ns = at_ns;
}

static int arrived(struct run *r, const struct wb_xport_event *ev, struct wb_err *err)
{
	struct slot *s = &r->slot[ev->cookie];
	uint64_t word[4];

	memcpy(word, ev->trailer, sizeof(word));
	for (size_t i = 0; i < WB_ARRAY_SIZE(word); i++)
		word[i] = le64toh(word[i]);
	if (s->cls == WB__BENCH_FACTS)
		memcpy(r->word, word, sizeof(word));
	if (s->cls == WB__BENCH_SUMMED && (word[0] != s->sum.lane[0] || word[1] != s->sum.lane[1]))
		return wb_err_set(err, WB_ECKSUM,
			"bytes from %s came with another sum than they left with, at %s: something "
			"on the way changes them",
			r->endpoint, r->at);
	for (size_t i = 0; s->cls == WB__BENCH_READ && i < WB__BENCH_READS; i++)
		if (!r->landed_ns[i])
			return wb_err_set(err, -EPROTO,
				"the source at %s answers in other ranges than were asked for",
				r->endpoint);
	if (s->cls != WB__BENCH_FACTS && s->cls != WB__BENCH_END)
		count(r, s, ev->at_ns);
	r->free[r->n_free++] = (uint32_t)ev->cookie;
	r->n_out--;
	return 0;
}

static bool is_of_network(int code)
{
	return code == -ECONNREFUSED || code == -EHOSTUNREACH || code == -ENETUNREACH ||
	       code == -ETIMEDOUT;
}

static int went(const struct run *r, const struct wb_xport_event *ev, struct wb_err *err)
{
	const char *why = ev->reason ? ev->reason : wb_strerror(ev->code);
	int code = ev->code < 0 ? ev->code : -ECONNRESET;

	if (r->is_up)
		return wb_err_set(err, code, "the source at %s went away, at %s: %s", r->endpoint,
			r->at, why);
	return wb_err_set(err, code, "no connection to the source at %s: %s; %s", r->endpoint, why,
		is_of_network(code)
			? "does wbctl bench --listen wait there, and does the network let it "
			  "through?"
			: "both ends take the same key, --transport and --encrypt");
}

static int heard(struct run *r, const struct wb_xport_event *ev, struct wb_err *err)
{
	r->heard_ns = wb_now_ns(&wb_clock_real);
	switch (ev->conn == r->conn ? ev->kind : 0) { /* else of the connection before */
	case WB_XP_CONN_UP:
		r->is_up = true;
		return 0;
	case WB_XP_CONN_DOWN:
		return went(r, ev, err);
	case WB_XP_ARRIVED:
		return arrived(r, ev, err);
	case WB_XP_REFUSED:
		return wb_err_set(err, ev->code, "the source at %s refused %s: %s", r->endpoint,
			r->at, wb_strerror(ev->code));
	default:
		return 0;
	}
}

/* Something is heard, or the source is named. */
static int step(struct run *r, struct wb_err *err)
{
	struct wb_xport_event ev[EVENTS];
	int n = wb__bench_take(&r->end, ev, EVENTS, r->heard_ns + r->end.patience_ns), rc = 0;

	if (!n)
		return wb_err_set(err, -ETIMEDOUT,
			"the source at %s has sent nothing for %.1f s (--timeout), at %s: it is "
			"stopped, or cut off",
			r->endpoint, (double)r->end.patience_ns / 1e9, r->at);
	for (int i = 0; i < n && rc == 0; i++)
		rc = heard(r, &ev[i], err);
	return rc;
}

/* One answer of a byte; its trailer is what matters. */
static int ask_one(struct run *r, enum wb__bench_ask what, struct wb_err *err)
{
	int rc;

	r->heard_ns = wb_now_ns(&wb_clock_real);
	rc = ask(r, what, 1);
	if (rc < 0)
		return wb_err_set(err, rc, "the source at %s could not be asked: %s", r->endpoint,
			wb_strerror(rc));
	while (rc == 0 && r->n_out)
		rc = step(r, err);
	return rc;
}

/* ---- a point -----------------------------------------------------------------------------------
 */

static struct wb_xport_stats stats_of(const struct run *r, uint32_t n_rail)
{
	struct wb_xport_stats all = {0}, one;

	for (uint32_t i = 0; i < n_rail; i++) {
		if (wb_xport_rail_stats(r->end.x, i, &one) < 0)
			continue;
		all.word_bytes += one.word_bytes;
		all.requests += one.requests;
		all.doorbells += one.doorbells;
		all.completions += one.completions;
	}
	return all;
}

/* So many slots and no others are used at a depth: there is memory for these. */
static void free_slots(struct run *r)
{
	r->n_free = 0;
	for (uint32_t i = 0; i < WB_XPORT_DEPTH_MAX; i++)
		r->free[r->n_free++] = WB_XPORT_DEPTH_MAX - 1 - i;
}

static int keep_asking(struct run *r, const struct wb__bench_point *p, struct wb_err *err)
{
	enum wb__bench_ask what = p->is_read    ? WB__BENCH_READ
				  : p->has_sums ? WB__BENCH_SUMMED
						: WB__BENCH_PLAIN;
	uint64_t bytes = p->bytes * (p->is_read ? WB__BENCH_READS : 1);
	bool goes_on = true;
	int rc = 0;

	while (goes_on || r->n_out) {
		goes_on = wb_now_ns(&wb_clock_real) < r->tally.until_ns || r->tally.n < CHUNKS_MIN;
		while (rc == 0 && goes_on && r->n_out < p->depth)
			rc = ask(r, what, bytes);
		if (rc == -EAGAIN && r->n_out)
			rc = 0; /* no room just now */
		if (rc < 0)
			return wb_err_set(err, rc, "the source at %s could not be asked at %s: %s",
				r->endpoint, r->at, wb_strerror(rc));
		rc = r->n_out ? step(r, err) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int measure(struct run *r, const struct wb__bench_point *p, uint64_t ns,
	struct wb__bench_result *out, struct wb_err *err)
{
	struct wb_xport_stats before = stats_of(r, p->rails), after;
	uint64_t cpu_here, cpu_there, now;
	double gib;
	int rc;

	wb__bench_point_text(p, r->at);
	rc = ask_one(r, WB__BENCH_FACTS, err);
	cpu_there = r->word[3];
	cpu_here = wb__bench_cpu_ns();
	now = wb_now_ns(&wb_clock_real);
	r->tally = (struct tally){.from_ns = now + ns / 5, .until_ns = now + ns};
	free_slots(r);
	if (rc == 0)
		rc = keep_asking(r, p, err);
	cpu_here = wb__bench_cpu_ns() - cpu_here;
	after = stats_of(r, p->rails);
	if (rc == 0)
		rc = ask_one(r, WB__BENCH_FACTS, err);
	if (rc < 0)
		return rc;
	gib = (double)r->tally.all_bytes / GIB;
	*out = (struct wb__bench_result){.chunks = r->tally.n,
		.seconds = (double)(r->tally.last_ns - r->tally.first_ns) / 1e9,
		.cpu_here = (double)cpu_here / 1e9 / gib,
		.cpu_there = (double)(r->word[3] - cpu_there) / 1e9 / gib,
		.word_bytes = (double)(after.word_bytes - before.word_bytes) / gib,
		.requests = (double)(after.requests - before.requests) / gib,
		.doorbells = (double)(after.doorbells - before.doorbells) / gib,
		.completions = (double)(after.completions - before.completions) / gib};
	out->bytes_per_s = out->seconds > 0 ? (double)r->tally.bytes / out->seconds : 0;
	wb__bench_times(r->times, WB_MIN(r->tally.n, (uint64_t)TIMES_MAX), out);
	return 0;
}

/* ---- the sweep ---------------------------------------------------------------------------------
 */

static int dial(struct run *r, const char *endpoint, struct wb_err *err)
{
	struct wb_xport_peer peer = {
		.name = WB__BENCH_SOURCE, .endpoint = endpoint, .epoch = &r->end.epoch.id};
	int rc = wb_xport_connect(r->end.x, &peer, &r->conn, err);

	r->heard_ns = wb_now_ns(&wb_clock_real);
	snprintf(r->at, sizeof(r->at), "the first connection");
	while (rc == 0 && !r->is_up)
		rc = step(r, err);
	return rc;
}

/* What is asked for is held against what the source has, before anything is measured. */
static int compare(const struct run *r, const struct wb__bench_sweep *s, struct wb_err *err)
{
	char size[32], has[32];

	if (r->word[0] != WB__BENCH_MAGIC)
		return wb_err_set(err, WB_EVERSION,
			"the source at %s is of another version of wbctl bench: take the same at "
			"both ends",
			r->endpoint);
	if (r->word[1] < s->rails_max)
		return wb_err_set(err, -EINVAL,
			"--rails %u: the source at %s has %llu: start it with --rails %u, or more "
			"addresses",
			s->rails_max, r->endpoint, (unsigned long long)r->word[1], s->rails_max);
	if (r->word[2] < s->bytes_max)
		return wb_err_set(err, -EINVAL,
			"--sizes: the source at %s has %s of memory and %s are asked for at once: "
			"start it with --memory",
			r->endpoint, wb__bench_size_text(r->word[2], has),
			wb__bench_size_text(s->bytes_max, size));
	return 0;
}

static struct run *new_run(const struct wb__bench_end *like, const char *endpoint)
{
	struct run *r = wb_zalloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->end.epoch = like->epoch; /* the key */
	r->end.fd = -1;
	r->endpoint = endpoint;
	free_slots(r);
	return r;
}

static void free_run(struct run *r)
{
	if (r)
		wb__bench_close(&r->end);
	wb_free(r);
}

/* A transport with the rails of point @i in place of @last, which ends when the new one is
 * connected: the source goes when nobody is. */
static struct run *with_rails(struct run *last, const struct wb__ctl_bench *b,
	struct wb__bench_sheet *sheet, uint32_t i, struct wb_err *err)
{
	const struct wb__bench_point *p = &sheet->sweep->point[i];
	const char *shm = strcmp(sheet->transport, "shm") ? "0.0.0.0" : "@";
	char endpoint[WB_XPORT_ENDPOINT_MAX];
	struct run *r = new_run(&last->end, sheet->from);
	int rc = r ? 0 : wb_err_set(err, -ENOMEM, "no memory");

	if (rc == 0)
		rc = wb__bench_endpoint(sheet->transport, sheet->from, p->rails, endpoint, err);
	if (rc == 0)
		r->end.what = WB_XPORT_LANDING;
	if (rc == 0)
		rc = wb__bench_open(&r->end, b, b->from ? b->from : shm, p->rails, p->is_read, err);
	/* A source waits for its receiver for some seconds alone, and memory may take longer. */
	if (rc == 0)
		rc = dial(r, endpoint, err);
	if (rc == 0)
		rc = wb__bench_fill(&r->end, wb__bench_landing(sheet->sweep, i), err);
	if (rc == 0)
		rc = ask_one(r, WB__BENCH_FACTS, err);
	if (rc == 0)
		rc = compare(r, sheet->sweep, err);
	free_run(last);
	if (rc == 0) {
		sheet->source_rails = (uint32_t)r->word[1];
		sheet->source_bytes = r->word[2];
		return r;
	}
	free_run(r);
	return NULL;
}

/* One line on a terminal, which goes at the end. */
static void show_progress(const struct wb__bench_sweep *s, uint32_t i)
{
	char text[64];

	if (isatty(STDERR_FILENO) && i < s->n)
		fprintf(stderr, "\r\033[K%u of %u: %s", i + 1, s->n,
			wb__bench_point_text(&s->point[i], text));
	else if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

static int run_sweep(struct run *r, const struct wb__ctl_bench *b, struct wb__bench_sheet *sheet,
	struct wb_err *err)
{
	const struct wb__bench_sweep *s = sheet->sweep;
	const struct wb__bench_point *last = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < s->n && rc == 0; i++) {
		const struct wb__bench_point *p = &s->point[i];

		show_progress(s, i);
		if (!last || !wb__bench_is_same_run(last, p))
			r = with_rails(r, b, sheet, i, err);
		last = p;
		rc = r ? measure(r, p, p->is_latency ? s->latency_ns : s->point_ns,
				 &sheet->result[i], err)
		       : err->code;
	}
	show_progress(s, s->n);
	if (rc == 0)
		rc = ask_one(r, WB__BENCH_END, err);
	free_run(r);
	return rc;
}

/* The machine's own yardstick: bytes a second that one thread copies; the median of some copies. */
static double memcpy_rate(void)
{
	uint8_t *from = wb_alloc(WB__BENCH_MEMCPY_BYTES), *to = wb_alloc(WB__BENCH_MEMCPY_BYTES);
	struct wb__bench_result r = {0};
	uint64_t took[MEMCPY_TIMES];

	if (from && to) {
		memset(from, 1, WB__BENCH_MEMCPY_BYTES);
		memset(to, 2, WB__BENCH_MEMCPY_BYTES);
		for (size_t i = 0; i < MEMCPY_TIMES; i++) {
			uint64_t begin = wb_now_ns(&wb_clock_real);

			memcpy(to, from, WB__BENCH_MEMCPY_BYTES);
			__asm__ volatile("" : : "r"(to) : "memory");
			took[i] = wb_now_ns(&wb_clock_real) - begin;
		}
		wb__bench_times(took, MEMCPY_TIMES, &r);
	}
	wb_free(from);
	wb_free(to);
	return r.median_us > 0 ? WB__BENCH_MEMCPY_BYTES * 1e6 / r.median_us : 0;
}

static int measure_all(const struct wb__ctl_opts *o, struct wb__bench_sweep *sweep,
	struct wb__bench_sheet *sheet, struct wb_err *err)
{
	char endpoint[WB_XPORT_ENDPOINT_MAX], none[65];
	struct wb__bench_end like = {.fd = -1};
	struct run *r;
	int rc = wb__bench_sweep(&o->bench, sweep, err);

	*sheet = (struct wb__bench_sheet){.transport = wb__bench_transport(&o->bench),
		.from = endpoint,
		.is_encrypted = o->bench.is_encrypted,
		.is_spinning = o->bench.is_spinning,
		.agent_here = o->bench.agent_here,
		.agent_there = o->bench.agent_there,
		.sweep = sweep};
	if (rc == 0)
		rc = wb__bench_endpoint(sheet->transport, o->bench.to, 0, endpoint, err);
	if (rc == 0)
		rc = wb__bench_key(&o->bench, like.epoch.key, none, err);
	if (rc < 0)
		return rc;
	r = new_run(&like, endpoint);
	wb__bench_close(&like);
	rc = r ? run_sweep(r, &o->bench, sheet, err) : wb_err_set(err, -ENOMEM, "no memory");
	if (rc == 0) /* now that nobody waits, and the landing is gone */
		sheet->memcpy_bytes_per_s = memcpy_rate();
	if (rc == 0 && wb__bench_show(sheet, o) < 0)
		rc = wb_err_set(err, -ENOMEM, "no memory");
	return rc;
}

int wb__bench_receiver(const struct wb__ctl_opts *o, struct wb_err *err)
{
	struct wb__bench_sweep *sweep = wb_zalloc(1, sizeof(*sweep));
	struct wb__bench_sheet *sheet = wb_zalloc(1, sizeof(*sheet));
	int rc = sweep && sheet ? measure_all(o, sweep, sheet, err)
				: wb_err_set(err, -ENOMEM, "no memory");

	wb_free(sweep);
	wb_free(sheet);
	return rc;
}
