/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's endpoint, to agents that send whatever they like: nothing is read outside, nothing
 * is kept for ever, and who lies is told so.
 *
 * Input: how agents are let in; then pieces, each a byte that says who speaks (and whether time
 * passes first), then a frame.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "operator-shim/serve/serve.h"
#include "proto/messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define S WB_NS_PER_S
#define PEERS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One end of a channel in memory. */
struct wire {
	struct wb_chan ch;
	size_t sent;
	bool is_open, is_closed;
};

static struct wb_fake_clock clk;
static void (*job_work)(void *), (*job_done)(void *);
static void *job_cookie;

static int wire_send(struct wb_chan *ch, const void *frame, size_t bytes)
{
	struct wire *w = wb_container_of(ch, struct wire, ch);
	struct wb_err err = {0};
	struct wb_frame f;
	const uint8_t *body;

	/* Whatever was asked, what is answered is a whole frame. */
	if (wb_frame_check(frame, bytes, &f, &body, &err) < 0)
		abort();
	if (w->is_closed)
		return -ENOTCONN;
	w->sent += bytes;
	return 0;
}

static void wire_close(struct wb_chan *ch)
{
	wb_container_of(ch, struct wire, ch)->is_closed = true;
}

static const char *wire_peer(const struct wb_chan *ch)
{
	(void)ch;
	return "wire";
}

static size_t wire_queued(const struct wb_chan *ch)
{
	(void)ch;
	return 0;
}

static const struct wb_chan_ops wire_ops = {.send = wire_send,
	.close = wire_close,
	.peer = wire_peer,
	.identity = wire_peer,
	.queued = wire_queued};

static uint64_t wall(void *ctx)
{
	(void)ctx;
	return 1700000000 * S + clk.now;
}

static int zeros(void *ctx, void *out, size_t bytes)
{
	(void)ctx;
	memset(out, 7, bytes);
	return 0;
}

static void arm(void *ctx, uint64_t at_ns)
{
	(void)ctx;
	(void)at_ns;
}

static int work(void *ctx, void (*w)(void *), void (*d)(void *), void *cookie)
{
	(void)ctx;
	job_work = w;
	job_done = d;
	job_cookie = cookie;
	return 0;
}

static void run_job(void)
{
	void (*w)(void *) = job_work, (*d)(void *) = job_done;

	if (!w)
		return;
	job_work = NULL;
	w(job_cookie);
	d(job_cookie);
}

static uint32_t asked; /* about this peer */

static void authenticate(void *ctx, uint32_t peer, const struct wb_serve_claim *c)
{
	(void)ctx;
	if (!c->n_object || !c->agent[0])
		abort();
	asked = peer;
}

static struct wb_serve *make(bool has_tokens)
{
	static const char text[] =
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
		"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n";
	struct wb_serve_env env = {.clock = &clk.clock,
		.wall_ns = wall,
		.random = zeros,
		.arm = arm,
		.authenticate = has_tokens ? authenticate : NULL,
		.work = work};
	struct wb_serve_opts o = {.name = "op"};
	struct wb_spec *spec = NULL;
	struct wb_serve *s = NULL;

	wb_log_level_max = -1;
	wb_fake_clock_init(&clk, 1000 * S);
	if (wb_spec_load("f", text, sizeof(text) - 1, &spec, &o.n_spec, NULL) < 0)
		abort();
	o.spec = spec;
	if (wb_serve_create(&o, &env, &s, NULL) < 0)
		abort();
	wb_free(spec);
	return s;
}

static void end_wire(struct wire *w)
{
	struct wb_err none = {0};

	if (w->is_open)
		w->ch.cb.on_closed(w->ch.cb.cookie, &w->ch, &none);
	*w = (struct wire){0};
}

static void hear(struct wb_serve *s, struct wire *w, const uint8_t *frame, size_t bytes)
{
	uint8_t *exact;

	if (w->is_closed)
		end_wire(w);
	if (!w->is_open) {
		w->ch.ops = &wire_ops;
		w->is_open = true;
		wb_serve_accept(s, &w->ch);
	}
	exact = malloc(bytes); /* so that ASan sees one byte too many */
	if (!exact)
		abort();
	memcpy(exact, frame, bytes);
	w->ch.cb.on_frame(w->ch.cb.cookie, &w->ch, exact, bytes);
	free(exact);
}

static void look(struct wb_serve *s)
{
	struct wb_buf b;
	struct wb_lent plan;

	wb_buf_init(&b, 16 << 20);
	wb_serve_metrics(s, &b);
	wb_serve_trace(s, "default/a", &b);
	json_decref(wb_serve_list(s));
	if (wb_serve_plan(s, "default/a", &plan))
		plan.put(plan.cookie);
	wb_buf_finish(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size ? data[0] : 0;
	struct wb_serve *s = make(how & 1);
	static const struct wb_serve_who proved = {"default", "p", "u"};
	struct wire wire[PEERS];
	size_t at = 1;

	memset(wire, 0, sizeof(wire));
	asked = 0;
	if (how & 2)
		wb_serve_redirect(s, "leader", 7443);
	while (size > at && size - at > WB_FRAME_BYTES) {
		uint8_t who = data[at++];
		struct wb_err err = {0};
		size_t total;

		if (wb_frame_length(NULL, data + at, &total, &err) < 0 || total > size - at)
			break;
		if (who & 4)
			clk.now += (uint64_t)(who >> 3) * S;
		if (who & 4)
			wb_serve_tick(s);
		hear(s, &wire[who % 4 % PEERS], data + at, total);
		at += total;
		if (asked)
			wb_serve_authenticated(s, asked, &proved, who & 64 ? -EPERM : 0, "no");
		asked = 0;
		if (!(who & 128))
			run_job();
	}
	look(s);
	if (how & 4)
		wb_serve_drain(s, "it ends");
	clk.now += 3600 * S;
	wb_serve_tick(s);
	for (int i = 0; i < PEERS; i++)
		end_wire(&wire[i]);
	run_job();
	wb_serve_destroy(s);
	return 0;
}
