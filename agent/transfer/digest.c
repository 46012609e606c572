/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of what workers hold, for `wbctl verify`: sums with seed 0 over each class of the plan,
 * by position in the checkpoint, so that they are the same in every layout.
 *
 * Anybody may ask, without saying who it is.  So there is only one run at a time, of all objects,
 * which all who ask share, and it rests four times as long as it works: however often digests are
 * asked for, they take a fifth of the loop's time at most.  What a run found is kept under the
 * run's number until the next run is over: nobody can take it away from those for whom it was made.
 */
#include "transfer/object.h"

#include "transfer/epoch.h"
#include "transfer/worker.h"

#include <string.h>

#define BYTES_A_TICK (2u << 20)
#define RESTS 4 /* times as long as a tick took */
#define PAGE_MAX (16u << 20)

struct digest {
	struct epoch *e;
	uint32_t worker, cls, chunk; /* what is summed next */
	bool done;
	uint64_t due_ns; /* rests until then */
	struct wbk_sum_keys keys;
	struct wbk_sum *sum; /* owned: by worker and class */
	uint64_t *held; /* owned: transfer that each worker held when the run began */
	struct wbk_box *box; /* owned */
	uint32_t *scratch; /* owned */
};

void wb__transfer_digest_cancel(struct object *o)
{
	struct digest *d = o->digest;

	if (!d)
		return;
	wb_free(d->sum);
	wb_free(d->held);
	wb_free(d->box);
	wb_free(d->scratch);
	wb_free(d);
	o->digest = NULL;
}

static int start(struct object *o)
{
	struct epoch *e = o->cur;
	struct digest *d = wb_zalloc(1, sizeof(*d));

	o->digest = d;
	if (!d)
		return -1;
	d->e = e;
	d->due_ns = now_ns(o->core) + WB_NS_PER_MS;
	d->sum = wb_zalloc((size_t)e->local->n * WB_MAX(e->plan->n_class, 1u), sizeof(*d->sum));
	d->held = wb_zalloc(e->local->n, sizeof(*d->held));
	d->box = wb_zalloc(e->local->boxes_max, sizeof(*d->box));
	d->scratch = wb_zalloc(e->local->boxes_max, sizeof(*d->scratch));
	if (!d->sum || !d->held || !d->box || !d->scratch) {
		wb__transfer_digest_cancel(o);
		return -1;
	}
	wbk_sum_keys_init(&d->keys, 0);
	for (uint32_t i = 0; i < e->local->n; i++)
		d->held[i] = e->member[i] ? e->member[i]->held_transfer : 0;
	return 0;
}

/* Private heap can be read by the worker alone. */
static bool is_readable(const struct digest *d, uint32_t i)
{
	const struct worker *w = d->e->member[i];

	return w && !w->gone && !w->asleep && d->e->local->member[i].base &&
	       d->e->local->member[i].base[0];
}

static uint64_t add_chunk(struct digest *d)
{
	const struct wb_local *l = d->e->local;
	int n = wb_local_boxes(l, d->worker, d->cls, d->chunk, false, d->box, d->scratch);

	if (n > 0)
		wbk_sum_mem(l->member[d->worker].base, d->box, (size_t)n, &d->keys,
			&d->sum[(size_t)d->worker * d->e->plan->n_class + d->cls]);
	return wb_chunk_len(d->e->plan, &d->e->plan->cls[d->cls], d->chunk);
}

/* To the next chunk of a class that the worker is a member of. */
static void next(struct digest *d)
{
	const struct wb_plan *p = d->e->plan;

	while (d->worker < d->e->local->n) {
		if (is_readable(d, d->worker) && d->cls < p->n_class &&
			wb_local_is_member(d->e->local, d->worker, d->cls) &&
			d->chunk < p->cls[d->cls].n_chunk)
			return;
		d->chunk = 0;
		if (is_readable(d, d->worker) && ++d->cls < p->n_class)
			continue;
		d->cls = 0;
		d->worker++;
	}
	d->done = true;
}

uint64_t wb__transfer_digest_tick(struct object *o, uint64_t now)
{
	struct digest *d = o->digest;
	uint64_t bytes = 0, took;

	if (!d || d->done)
		return 0;
	if (now < d->due_ns) /* events of others call this more often */
		return d->due_ns;
	for (next(d); !d->done && bytes < BYTES_A_TICK; next(d)) {
		bytes += add_chunk(d);
		d->chunk++;
	}
	took = now_ns(o->core) - now;
	d->due_ns = now + took + WB_MAX(RESTS * took, WB_NS_PER_MS);
	return d->done ? 0 : d->due_ns;
}

static void put_sums(const struct digest *d, uint32_t i, struct wb_buf *out)
{
	const char *comma = "";

	for (uint32_t k = 0; k < d->e->plan->n_class; k++) {
		const struct wbk_sum *s = &d->sum[(size_t)i * d->e->plan->n_class + k];

		if (!wb_local_is_member(d->e->local, i, k))
			continue;
		wb_buf_printf(out, "%s[%u,\"%016llx\",\"%016llx\"]", comma, k,
			(unsigned long long)s->lane[0], (unsigned long long)s->lane[1]);
		comma = ",";
	}
}

static void put_worker(const struct digest *d, uint32_t i, struct wb_buf *out)
{
	const struct worker *w = d->e->member[i];
	const struct wb_plan_worker *pw = &d->e->plan->worker[d->e->local->member[i].plan_worker];
	bool rolls = pw->role == WB_ROLE_ROLLOUT;
	const char *state = !is_readable(d, i)                        ? "unreadable"
			    : rolls && w->held_transfer != d->held[i] ? "changing"
								      : "ok";

	wb_buf_printf(out, "{\"name\":");
	wb_buf_json_str(out, wb__transfer_worker_name(d->e, d->e->local->member[i].plan_worker));
	wb_buf_printf(out, ",\"role\":\"%s\",\"engine\":", wb_word(&wb_role_words, pw->role));
	wb_buf_json_str(out, rolls ? d->e->r->engine[pw->engine].name : "");
	wb_buf_printf(out, ",\"transfer\":%llu,\"version\":%lld,\"state\":\"%s\",\"sums\":[",
		(unsigned long long)(w ? w->held_transfer : 0),
		(long long)(w ? w->held_version : -1), state);
	if (!strcmp(state, "ok"))
		put_sums(d, i, out);
	wb_buf_printf(out, "]}");
}

static void put_object(const struct object *o, struct wb_buf *out)
{
	const struct digest *d = o->digest;
	char digest[WB_DIGEST_TEXT];

	wb_buf_printf(out, "{\"object\":");
	wb_buf_json_str(out, o->name);
	wb_buf_printf(out, ",\"plan\":\"%s\",\"classes\":%u,\"workers\":[",
		wb_digest_text(d->e->plan->digest, digest), d->e->plan->n_class);
	for (uint32_t i = 0; i < d->e->local->n; i++) {
		if (i)
			wb_buf_u8(out, ',');
		put_worker(d, i, out);
	}
	wb_buf_printf(out, "]}");
}

/* True when all objects are summed.  A plan that came meanwhile makes an object begin again. */
static bool look(struct wb_transfer_core *c)
{
	bool done = true;

	for (struct object *o = c->objects; o; o = o->next) {
		if (o->digest && o->digest->e != o->cur)
			wb__transfer_digest_cancel(o);
		if (!o->cur || !o->cur->is_active)
			continue;
		if (!o->digest && start(o) < 0)
			continue;
		done &= o->digest->done;
	}
	return done;
}

static void finish(struct wb_transfer_core *c)
{
	struct wb_buf *page = &c->digest.page;
	bool first = true;

	wb_buf_finish(page);
	wb_buf_init(page, PAGE_MAX);
	wb_buf_printf(page, "{\"done\":true,\"number\":%llu,\"objects\":[",
		(unsigned long long)c->digest.begun);
	for (struct object *o = c->objects; o; o = o->next) {
		if (!o->digest)
			continue;
		wb_buf_printf(page, "%s", first ? "" : ",");
		first = false;
		put_object(o, page);
		wb__transfer_digest_cancel(o);
	}
	wb_buf_printf(page, "]}\n");
	c->digest.done = c->digest.begun;
}

void wb_transfer_digest_json(struct wb_transfer_core *c, uint64_t number, struct wb_buf *out)
{
	bool is_there = number && number <= c->digest.done;

	if (!is_there) {
		if (c->digest.begun == c->digest.done)
			c->digest.begun++;
		is_there = look(c);
		if (is_there)
			finish(c);
	}
	if (!is_there)
		wb_buf_printf(out, "{\"done\":false,\"number\":%llu}\n",
			(unsigned long long)c->digest.begun);
	else if (c->digest.page.rc < 0)
		out->rc = c->digest.page.rc;
	else
		wb_buf_put(out, c->digest.page.data, c->digest.page.len);
}
