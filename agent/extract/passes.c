/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/err.h"
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * Runs the passes, in this order: constant, constant on a sentinel, column digits, row digits, then
 * both kinds of digits again, with differences along every axis, if parameters had too many
 * records, and then hashes.  With a map from the cache there are only the hash passes, and all of
 * the above only if the map does not hold.
 */

/* Find parameters that had too many records, and may have fewer when differenced along all their
 * axes.  True: there are some. */
static bool start_nd_round(struct wb_probe *p)
{
	bool any = false;

	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];
		struct wb_probe_param shape = {.name = a->name, .ndim = a->ndim};
		struct wb__geom g;

		if (a->state != WB__ACTIVE || !a->is_over)
			continue;
		memcpy(shape.shape, a->shape, sizeof(shape.shape));
		memcpy(shape.stride, a->stride, sizeof(shape.stride));
		if (p->round || wb__geom_init(&g, &shape, true, NULL) < 0 ||
			g.n_axis == a->geom.n_axis) {
			wb__fault(a,
				"record overflow: more than %" PRIu64
				" jumps in the order of its elements",
				p->opts.record_max);
			continue;
		}
		a->geom = g;
		a->is_nd = any = true;
		a->is_over = false;
		wb__recs_finish(&a->field[0]);
		wb__recs_finish(&a->field[1]);
	}
	if (any)
		p->round++;
	return any;
}

static uint32_t n_expected(const struct wb_probe *p)
{
	uint32_t digits = p->n_col_pass + p->n_row_pass;

	return p->is_cached ? p->opts.n_hash : 2 + digits * (1 + p->round) + p->opts.n_hash;
}

/* The pass after the current one; 0 = none. */
static enum wb_pass_kind advance(struct wb_probe *p, uint32_t *digit)
{
	*digit = p->pass.digit + 1;
	switch (p->pass.kind) {
	case WB_PASS_CONST:
		return WB_PASS_CONST_B;
	case WB_PASS_COLUMN:
		if (*digit < p->n_col_pass)
			return WB_PASS_COLUMN;
		*digit = 0;
		return WB_PASS_ROW;
	case WB_PASS_ROW:
		if (*digit < p->n_row_pass)
			return WB_PASS_ROW;
		*digit = 0;
		return start_nd_round(p) ? WB_PASS_COLUMN : WB_PASS_HASH;
	case WB_PASS_HASH:
		return p->hash_done < p->opts.n_hash ? WB_PASS_HASH : 0;
	case WB_PASS_CONST_B:
		*digit = 0;
		return WB_PASS_COLUMN;
	default:
		*digit = 0;
		return p->is_cached ? WB_PASS_HASH : WB_PASS_CONST;
	}
}

static void name_pass(const struct wb_probe *p, struct wb_pass *pass)
{
	static const char *const names[] = {
		[WB_PASS_CONST] = "constant",
		[WB_PASS_CONST_B] = "second constant",
		[WB_PASS_COLUMN] = "column digit",
		[WB_PASS_ROW] = "row digit",
		[WB_PASS_HASH] = "hash",
	};

	if (pass->kind == WB_PASS_COLUMN || pass->kind == WB_PASS_ROW)
		snprintf(pass->name, sizeof(pass->name), "%s %" PRIu32, names[pass->kind],
			pass->digit);
	else
		snprintf(pass->name, sizeof(pass->name), "%s%s", names[pass->kind],
			p->is_cached ? " (map from the cache)" : "");
}

bool wb__is_prefilled(const struct wb_probe *p, const struct wb__param *a)
{
	/* A map from the cache may be stale, so a parameter that could not be put back is not
	 * filled. */
	return a->state == WB__ACTIVE && a->geom.total && (a->has_snapshot || !p->is_cached);
}

static int prefill_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];

	if (!a->dev && wb__is_prefilled(p, a))
		wb__prefill(a);
	return 0;
}

static int left_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];

	if (!a->dev && a->state == WB__LEFT && a->geom.total)
		a->hash = wb__content_hash(a);
	return 0;
}

/* Prepare what a pass needs to find in the parameters. */
static int prepare(struct wb_probe *p, enum wb_pass_kind kind)
{
	bool is_first_check = p->is_cached && !p->hash_done;
	int rc = 0;

	if (is_first_check)
		rc = wb__parallel(p->threads, p->n_param, left_task, p);
	if (!rc && is_first_check)
		rc = wb__dev_left(p);
	if (!rc && (kind == WB_PASS_CONST_B || is_first_check))
		rc = wb__parallel(p->threads, p->n_param, prefill_task, p);
	if (!rc && (kind == WB_PASS_CONST_B || is_first_check))
		rc = wb__dev_prefill(p);
	if (!rc && kind == WB_PASS_CONST && p->opts.keep_no_snapshot)
		rc = wb__count_held(p);
	return rc;
}

/* Make the sentence for a failure.  If a device failed, the parameters are put back at once, since
 * there is no next pass, and the sentence says what became of them. */
static int failed(struct wb_probe *p, int rc, const char *when, struct wb_err *err)
{
	struct wb_err why = p->dev_err;
	bool is_back;

	if (!why.code)
		return wb_err_set(err, rc, "%s pass %s", when, p->pass.name);
	p->is_done = p->is_restored = true;
	is_back = wb__restore(p) == 0;
	return wb_err_set(err, rc, "%s pass %s: %.300s (the parameters %s)", when, p->pass.name,
		why.msg,
		!is_back                   ? "on that GPU could not be put back"
		: p->opts.keep_no_snapshot ? "have to be loaded again"
					   : "are as before");
}

static void forget_ops(struct wb_probe *p)
{
	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];

		if (a->state == WB__ALIAS)
			continue;
		a->n_op = 0;
		if (a->geom.total)
			a->n_region = 0;
		if (a->state == WB__LEFT || a->state == WB__ASIDE)
			a->state = WB__ACTIVE;
	}
}

int wb__agree(struct wb_probe *p, uint32_t said, uint32_t *all, struct wb_err *err)
{
	int rc;

	*all = said;
	if (!p->opts.agree)
		return 0;
	rc = p->opts.agree(p->opts.agree_cookie, said, all);
	return rc < 0 ? wb_err_set(err, rc, "the ranks that load together did not agree") : 0;
}

static int probe_anew(struct wb_probe *p)
{
	int rc;

	wb__note(p, "the map in the cache%s is not what load_weights does now: probing anew",
		p->is_stale ? "" : " of another rank");
	rc = wb__restore(p);
	forget_ops(p);
	p->is_cached = p->is_stale = false;
	p->hash_done = 0;
	p->pass.kind = 0;
	return rc;
}

/* The pass that all ranks run next; 0 in @kind = none. */
static int agree_next(
	struct wb_probe *p, enum wb_pass_kind *kind, uint32_t *digit, struct wb_err *err)
{
	uint32_t round = p->round, said, all;
	int rc;

	*kind = p->is_stale ? 0 : advance(p, digit);
	said = (p->is_stale ? WB__SAID_STALE : 0) | (p->round != round ? WB__SAID_ROUND : 0);
	rc = wb__agree(p, said, &all, err);
	if (rc < 0)
		return rc;
	if (all & WB__SAID_STALE) {
		rc = probe_anew(p);
		if (rc < 0)
			return failed(p, rc, "after", err);
		*kind = advance(p, digit);
	} else if ((all & WB__SAID_ROUND) && p->round == round) {
		p->round++; /* this rank needs no more passes, but others do */
		*kind = WB_PASS_COLUMN;
		*digit = 0;
	}
	return 0;
}

int wb_probe_next_pass(struct wb_probe *p, struct wb_pass *pass, struct wb_err *err)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	enum wb_pass_kind kind;
	uint32_t digit;
	int rc = 0;

	if (p->in_pass)
		return wb_err_set(err, -EINVAL, "pass %s was not ended", p->pass.name);
	if (p->dev_err.code)
		return wb_err_set(err, p->dev_err.code, "%s", p->dev_err.msg);
	if (p->is_done)
		return 0;
	rc = agree_next(p, &kind, &digit, err);
	if (rc < 0)
		return rc;
	if (!kind) {
		p->is_done = true;
		return 0;
	}
	p->pass.kind = kind;
	p->pass.digit = digit;
	p->pass.index = p->stats.n_pass++;
	p->pass.n_expected = n_expected(p);
	name_pass(p, &p->pass);
	rc = wb__dev_settle(p);
	if (!rc)
		rc = prepare(p, kind);
	if (rc < 0)
		return failed(p, rc, "before", err);
	p->in_pass = true;
	if (p->opts.on_progress)
		p->opts.on_progress(p->opts.cookie, &p->pass, 0);
	*pass = p->pass;
	p->began_ns = wb_now_ns(&wb_clock_real);
	p->stats.host_ns += p->began_ns - t0;
	return 1;
}

/* Find parameters that are not where they were, or are of another shape: load_weights must write
 * them in place. */
static int check_storage(
	struct wb_probe *p, const struct wb_probe_param *now, uint32_t n, struct wb_err *err)
{
	if (!now)
		return 0;
	if (n != p->n_param)
		return wb_err_set(
			err, -EINVAL, "%" PRIu32 " parameters, %" PRIu32 " before", n, p->n_param);
	for (uint32_t i = 0; i < n; i++) {
		struct wb__param *a = &p->param[i];
		bool same = now[i].dtype == a->dtype && now[i].ndim == a->ndim;

		for (uint32_t d = 0; same && d < a->ndim; d++)
			same = now[i].shape[d] == a->shape[d] &&
			       (now[i].stride[d] == a->stride[d] || a->shape[d] <= 1);
		if ((same && now[i].data == a->data) || !a->geom.total || a->state == WB__OUT)
			continue;
		wb__fault(a, "%s",
			same ? "all elements: its storage was moved during load_weights (it must "
			       "be written in place)"
			     : "all elements: its shape, strides or type changed during "
			       "load_weights (it must be written in place)");
		a->moved_to = same ? now[i].data : NULL;
	}
	return 0;
}

void wb_probe_gone(struct wb_probe *p, uint32_t i, const void *data)
{
	struct wb__param *a = &p->param[i];

	if (a->moved_to == data)
		a->moved_to = NULL;
	if (a->data != data || !a->geom.total || a->state == WB__OUT)
		return;
	a->data = NULL;
	wb__fault(a, "all elements: its storage was freed, or made smaller, during load_weights "
		     "(it must be written in place)");
}

static int end_hash(struct wb_probe *p)
{
	bool is_bad = false;
	int rc = wb__verify(p);

	p->hash_done++;
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < p->n_param; i++)
		is_bad |= p->param[i].bad.n != 0;
	if (!is_bad || !p->is_cached) {
		wb__verify_judge(p);
		return 0;
	}
	for (uint32_t i = 0; i < p->n_param; i++)
		p->param[i].bad = (struct wb__bad){0};
	p->is_stale = true; /* all ranks begin anew with the next pass */
	return 0;
}

static int read_pass(struct wb_probe *p)
{
	int rc;

	switch (p->pass.kind) {
	case WB_PASS_CONST:
		return wb__classify_first(p);
	case WB_PASS_CONST_B:
		return wb__classify_second(p);
	case WB_PASS_HASH:
		return end_hash(p);
	default:
		rc = wb__digits_read(p);
		if (!rc && p->pass.kind == WB_PASS_ROW && p->pass.digit + 1 == p->n_row_pass)
			rc = wb__recover_all(p);
		return rc;
	}
}

int wb_probe_end_pass(
	struct wb_probe *p, const struct wb_probe_param *param, uint32_t n, struct wb_err *err)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	struct wb_pass ended = p->pass;
	int rc;

	if (!p->in_pass)
		return wb_err_set(err, -EINVAL, "no pass to end");
	rc = check_storage(p, param, n, err);
	if (rc < 0)
		return rc;
	p->in_pass = false;
	p->stats.load_ns += t0 - p->began_ns;
	rc = wb__dev_settle(p);
	if (!rc)
		rc = read_pass(p);
	p->stats.host_ns += wb_now_ns(&wb_clock_real) - t0;
	if (rc < 0)
		return failed(p, rc, "after", err);
	if (p->opts.on_progress)
		p->opts.on_progress(p->opts.cookie, &ended, 1);
	return 0;
}
