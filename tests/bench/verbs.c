/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What chunks of 8 MiB cost the threads of rails by verbs, on a libibverbs without devices
 * (tests/fakeverbs), whose own thread moves the bytes: CPU time, work requests, doorbells,
 * completions and bytes of words.  Prints one JSON object with sums off and one with sums on.  The
 * figure is what one rail's thread would carry, were it never to wait: in GB/s, of the receiver or
 * of the source, whichever is less.  A device's library posts with fewer instructions than the
 * fake, which takes a lock for each call.
 */
#include "kernels/kernels.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES (8u << 20) /* of a chunk */
#define DEPTH 4
#define CHUNKS 128 /* = 1 GiB */
#define RUNS 7

struct end { /* of a run; written by its rail's thread */
	_Atomic uint64_t cpu_ns;
	struct wbk_sum sum;
	bool has_sum;
};

struct cost {
	double receiver_us, source_us; /* a chunk */
	struct wb_xport_stats to, from; /* of the run */
};

static struct wbk_sum_keys keys;

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * WB_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void observe(void *ctx, const void *data, size_t bytes, uint64_t off)
{
	struct end *e = ctx;

	if (e->has_sum)
		wbk_sum_add(&keys, off, data, bytes, &e->sum);
	atomic_store_explicit(&e->cpu_ns, thread_ns(), memory_order_relaxed);
}

static void trailer(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	struct end *e = ctx;

	memcpy(out, e->sum.lane, WB_XPORT_TRAILER_BYTES / 2);
	atomic_store_explicit(&e->cpu_ns, thread_ns(), memory_order_relaxed);
}

static void must(int rc)
{
	if (rc)
		abort();
}

static void ask(struct fx_xport *f, struct end *e, uint32_t slot, struct iovec *v)
{
	struct wb_xport_grant g = {.cookie = slot,
		.chunk = {.transfer = 1, .bytes = BYTES, .chunk = slot, .gen = 1},
		.iov = v,
		.n_iov = 1,
		.observe = observe,
		.ctx = e};

	*v = (struct iovec){f->dst.mem + (size_t)slot * BYTES, BYTES};
	must(wb_xport_grant(f->dst.x, f->conn, &g));
}

static void answer(
	struct fx_xport *f, struct end *e, const struct wb_xport_event *ev, struct iovec *v)
{
	struct wb_xport_write w = {.grant = ev->grant,
		.iov = v,
		.n_iov = 1,
		.observe = e->has_sum ? observe : NULL,
		.trailer = trailer,
		.ctx = e};

	*v = (struct iovec){f->src.mem + (size_t)ev->chunk.chunk * BYTES, BYTES};
	must(wb_xport_write(f->src.x, ev->conn, &w));
}

/* So many chunks, DEPTH of them at a time. */
static void move(struct fx_xport *f, struct end *to, struct end *from, int chunks)
{
	struct iovec dst[DEPTH], src[DEPTH];
	int asked = 0, arrived = 0, done = 0;

	while (asked < DEPTH)
		ask(f, to, (uint32_t)asked, &dst[asked]), asked++;
	while (arrived < chunks || done < chunks) {
		f->src.n_ev = f->dst.n_ev = 0;
		fx_pump(f);
		for (int i = 0; i < f->src.n_ev; i++) {
			const struct wb_xport_event *ev = &f->src.ev[i];

			if (ev->kind == WB_XP_GRANT)
				answer(f, from, ev, &src[ev->chunk.chunk]);
			done += ev->kind == WB_XP_WRITE_DONE;
		}
		for (int i = 0; i < f->dst.n_ev; i++) {
			const struct wb_xport_event *ev = &f->dst.ev[i];

			if (ev->kind != WB_XP_ARRIVED)
				continue;
			arrived++;
			if (asked < chunks)
				ask(f, to, (uint32_t)ev->cookie, &dst[ev->cookie]), asked++;
		}
	}
}

static struct wb_xport_stats stats(struct wb_xport *x)
{
	struct wb_xport_stats s = {0};

	must(wb_xport_rail_stats(x, 0, &s));
	return s;
}

static struct cost run(struct fx_xport *f, bool has_sum)
{
	struct end to = {.has_sum = has_sum}, from = {.has_sum = has_sum};
	struct wb_xport_stats t, s, t1, s1;
	uint64_t to_ns, from_ns;

	move(f, &to, &from, DEPTH);
	to_ns = to.cpu_ns;
	from_ns = from.cpu_ns;
	t = stats(f->dst.x);
	s = stats(f->src.x);
	move(f, &to, &from, CHUNKS);
	t1 = stats(f->dst.x);
	s1 = stats(f->src.x);
	t1.requests -= t.requests;
	t1.doorbells -= t.doorbells;
	t1.completions -= t.completions;
	t1.word_bytes -= t.word_bytes;
	s1.word_bytes -= s.word_bytes;
	return (struct cost){(double)(to.cpu_ns - to_ns) / CHUNKS / 1e3,
		(double)(from.cpu_ns - from_ns) / CHUNKS / 1e3, t1, s1};
}

static double slower(const struct cost *c)
{
	return c->receiver_us > c->source_us ? c->receiver_us : c->source_us;
}

static int compare(const void *a, const void *b)
{
	double x = slower(a), y = slower(b);

	return (x > y) - (x < y);
}

static void measure(struct fx_xport *f, bool has_sum)
{
	struct cost all[RUNS], *c = &all[RUNS / 2];
	double rate;

	for (int i = 0; i < RUNS; i++)
		all[i] = run(f, has_sum);
	qsort(all, RUNS, sizeof(*all), compare);
	rate = BYTES / slower(c) / 1e3;
	printf("{\"name\":\"rail thread by verbs, sums %s\",\"figure\":%.1f,\"unit\":\"GB/s\","
	       "\"receiver_us_a_chunk\":%.1f,\"source_us_a_chunk\":%.1f,\"chunk_bytes\":%u,"
	       "\"of_a_GiB\":{\"work_requests\":%" PRIu64 ",\"doorbells\":%" PRIu64
	       ",\"completions\":%" PRIu64 ","
	       "\"word_bytes\":%" PRIu64 "},\"n\":%d}\n",
		has_sum ? "on" : "off", rate, c->receiver_us, c->source_us, BYTES, c->to.requests,
		c->to.doorbells, c->to.completions, c->to.word_bytes + c->from.word_bytes, RUNS);
}

int main(void)
{
	struct fx_xport f;

	(void)fx_verbs();
	wbk_sum_keys_init(&keys, 1);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = (size_t)DEPTH * BYTES});
	fx_join(&f);
	fx_fill(f.src.mem, f.src.mem_bytes, 1);
	measure(&f, false);
	measure(&f, true);
	fx_close(&f);
	return 0;
}
