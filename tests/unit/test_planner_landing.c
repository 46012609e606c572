/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rails of unequal rates: how long the busiest one is at work, held against a linear program in
 * which any rollout worker's rail may take what its domain needs.  The program says
 *
 *	least T with, for each class, sum over its holders of sent = its bytes;
 *	for each domain that needs it, sum over the domain's rails of taken = its bytes;
 *	for each rail, sent <= T * rate and taken <= T * rate,
 *
 * where a class that its needers round goes to each of them.  Taking may be shared at will, so its
 * part is bytes over rates, domain by domain; for sending the dual is enumerated.  Exchange sets
 * nothing: a rail passes on no more than it takes.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_deploy.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t first_seed = 1;

/* ---- the oracle ---- */

/* Max over sets of members of (bytes that only they can carry) / (what they carry in a second).
 * @bytes: by set. */
static double dual(const double *bytes, uint32_t n, const double *rate)
{
	double best = 0;

	for (uint32_t s = 1; s < 1u << n; s++) {
		double sum = 0, all = 0;

		for (uint32_t t = s; t; t = (t - 1) & s)
			sum += bytes[t];
		for (uint32_t i = 0; i < n; i++)
			all += s >> i & 1 ? rate[i] : 0;
		best = fmax(best, sum / all);
	}
	return best;
}

/* The workers of a role in a domain (UINT32_MAX: all): their rates, and a number for each. */
struct side {
	uint32_t n, of[64];
	double rate[64], sum;
};

static struct side side_of(const struct wb_plan *p, enum wb_role role, uint32_t domain)
{
	struct side s = {0};

	for (uint32_t w = 0; w < p->n_worker; w++) {
		s.of[w] = UINT32_MAX;
		if (p->worker[w].role != role ||
			(domain != UINT32_MAX && p->worker[w].domain != domain))
			continue;
		s.of[w] = s.n;
		s.sum += s.rate[s.n++] = (double)p->worker[w].rail_bytes_per_s;
	}
	ck_assert_uint_le(s.n, 12);
	return s;
}

static uint32_t members(const struct wb_plan *p, uint32_t begin, uint32_t end, const struct side *s)
{
	uint32_t set = 0;

	for (uint32_t i = begin; i < end; i++)
		if (s->of[p->member[i]] != UINT32_MAX)
			set |= 1u << s->of[p->member[i]];
	return set;
}

static double send_bound(const struct wb_plan *p)
{
	struct side s = side_of(p, WB_ROLE_TRAINER, UINT32_MAX);
	double *bytes = calloc(1u << s.n, sizeof(*bytes)), best;

	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];

		bytes[members(p, k->holder_begin, k->holder_end, &s)] +=
			(double)k->bytes * (k->is_direct ? k->needer_end - k->needer_begin : 1);
	}
	best = dual(bytes, s.n, s.rate);
	free(bytes);
	return best;
}

/* What a domain needs over what its rails take in a second: all of them, or those of needers. */
static double take_bound(const struct wb_plan *p, uint32_t domain, bool is_own)
{
	struct side s = side_of(p, WB_ROLE_ROLLOUT, domain);
	double *bytes = calloc(1u << s.n, sizeof(*bytes)), all = 0, best;

	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];
		uint32_t set = members(p, k->needer_begin, k->needer_end, &s);

		for (; set && k->is_direct; set &= set - 1) {
			bytes[set & -set] += (double)k->bytes;
			all += (double)k->bytes;
		}
		bytes[set] += (double)k->bytes;
		all += set ? (double)k->bytes : 0;
	}
	bytes[0] = 0;
	best = is_own ? dual(bytes, s.n, s.rate) : all > 0 ? all / s.sum : 0;
	free(bytes);
	return best;
}

static double bound_of(const struct wb_plan *p)
{
	double best = send_bound(p);

	for (uint32_t d = 0; d < p->n_worker; d++)
		best = fmax(best, take_bound(p, d, false));
	return best;
}

/* ---- plans ---- */

/* The rail that is at work longest. */
static double busiest_of(const struct wb_plan *p)
{
	uint64_t *out = calloc(2 * p->n_worker, sizeof(*out)), *in = out + p->n_worker;
	double most = 0;

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		for (uint32_t c = r->chunk_begin; r->stage != WB_STAGE_INTERNAL && c < r->chunk_end;
			c++) {
			uint64_t n = wb_chunk_len(p, &p->cls[r->class_id], c);

			out[r->src_rail] += n;
			in[r->dst_rail] += n;
		}
	}
	for (uint32_t w = 0; w < p->n_worker; w++)
		most = fmax(most, (double)WB_MAX(out[w], in[w]) /
					  (double)WB_MAX(p->worker[w].rail_bytes_per_s, 1));
	free(out);
	return most;
}

static uint32_t count_lent(const struct wb_plan *p, uint32_t domain)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_route; i++)
		n += p->route[i].dst_rail != p->route[i].dst &&
		     (domain == UINT32_MAX || p->worker[p->route[i].dst].domain == domain);
	return n;
}

enum rates { EQUAL, SLOW_ROLLOUTS, SLOW_ALL, UNKNOWN, UNSAID };

/* Slow are a third of the rails. */
static struct wb_plan *plan_of(struct fx_deploy *d, uint64_t seed, enum rates rates)
{
	struct fx_deploy_opts o = {seed, 16, 20000, 5, 5, .is_plain = seed % 2};
	struct wb_rng rng = {seed};
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	fx_deploy_random(d, &o);
	for (uint32_t w = 0; w < d->in.n_worker; w++) {
		bool may = rates == SLOW_ALL || rates == UNSAID ||
			   (rates == SLOW_ROLLOUTS && d->worker[w].role == WB_ROLE_ROLLOUT);

		if (may && !wb_rng_below(&rng, 3))
			d->worker[w].rail_bytes_per_s /= 2 + wb_rng_below(&rng, 7);
	}
	d->in.lends_rails = rates != UNSAID;
	if (rates == UNKNOWN)
		d->worker[0].rail_bytes_per_s = 0;
	ck_assert_msg(!wb_plan_create(&d->in, &p, &err), "%s", err.msg);
	ck_assert_msg(!wb_plan_check(p, d->m, d->in.layout, &err), "%s", err.msg);
	return p;
}

static void check_busiest(uint64_t seed, enum rates rates, double times)
{
	struct fx_deploy d;
	struct wb_plan *p = plan_of(&d, seed, rates);
	double bound = bound_of(p), busiest = busiest_of(p);

	ck_assert(busiest >= bound * (1 - 1e-9));
	if (busiest > times * bound)
		ck_abort_msg("seed %llu: busiest rail %f s, bound %f s, %.4f of it",
			(unsigned long long)seed, busiest, bound, busiest / bound);
	if (fabs((double)p->worker_bound_ns - bound * 1e9) > 2 + bound * 1e9 * 2e-4)
		ck_abort_msg("seed %llu: bound %llu ns, by the oracle %f s",
			(unsigned long long)seed, (unsigned long long)p->worker_bound_ns, bound);
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}

START_TEST(slow_rails_cost_no_more_than_if_any_of_the_domain_might_land)
{
	check_busiest(first_seed + (uint64_t)_i, _i % 4 < 2 ? SLOW_ROLLOUTS : SLOW_ALL, 1.05);
}
END_TEST

START_TEST(equal_rails_end_together)
{
	check_busiest(first_seed + (uint64_t)_i, EQUAL, 1.02);
}
END_TEST

START_TEST(rails_are_lent_only_where_their_own_would_hold_up_the_transfer)
{
	uint64_t seed = first_seed + (uint64_t)_i;
	struct fx_deploy d;
	struct wb_plan *p = plan_of(&d, seed, _i % 3);
	double bound = bound_of(p);

	for (uint32_t v = 0; v < p->n_worker; v++) {
		double own = take_bound(p, v, true);

		if (own < bound && count_lent(p, v))
			ck_abort_msg("seed %llu, domain %u", (unsigned long long)seed, v);
	}
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

START_TEST(no_rail_is_lent_while_a_rate_is_unknown_or_to_who_could_not_use_it)
{
	struct fx_deploy d;
	struct wb_plan *p = plan_of(&d, first_seed + (uint64_t)_i, _i % 2 ? UNKNOWN : UNSAID);

	ck_assert(!count_lent(p, UINT32_MAX));
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

/* ---- bytes ---- */

static int decode_with(struct wb_plan *p, struct wb_plan **out)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, 1 << 28);
	ck_assert(!wb_plan_encode(p, &b));
	rc = wb_plan_decode(b.data, b.len, out, NULL);
	wb_buf_finish(&b);
	return rc;
}

/* The first plan that lends, from the first seed on, and a route of it that does. */
static struct wb_plan *lending_plan(struct fx_deploy *d, struct wb_route **r)
{
	for (uint64_t seed = first_seed;; seed++) {
		struct wb_plan *p = plan_of(d, seed, SLOW_ROLLOUTS);

		for (uint32_t i = 0; i < p->n_route; i++)
			if (p->route[i].dst_rail != p->route[i].dst) {
				*r = &p->route[i];
				return p;
			}
		wb_plan_destroy(p);
		fx_deploy_finish(d);
	}
}

START_TEST(lent_rails_are_read_back)
{
	struct fx_deploy d;
	struct wb_route *r;
	struct wb_plan *p = lending_plan(&d, &r), *back = NULL;

	ck_assert(!decode_with(p, &back));
	ck_assert(wb_digest_eq(back->digest, p->digest));
	ck_assert_uint_eq(back->n_route, p->n_route);
	for (uint32_t i = 0; i < p->n_route; i++) {
		ck_assert(back->route[i].src_rail == p->route[i].src_rail);
		ck_assert(back->route[i].dst_rail == p->route[i].dst_rail);
	}
	wb_plan_destroy(back);
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

START_TEST(a_rail_of_another_domain_or_role_is_refused)
{
	struct fx_deploy d;
	struct wb_route *r;
	struct wb_plan *p = lending_plan(&d, &r), *back = NULL;
	uint16_t was = r->dst_rail;

	for (uint32_t w = 0; w < p->n_worker; w++) {
		bool is_fit = p->worker[w].role == WB_ROLE_ROLLOUT &&
			      p->worker[w].domain == p->worker[r->dst].domain;

		r->dst_rail = (uint16_t)w;
		ck_assert_int_eq(decode_with(p, &back), is_fit ? 0 : -EBADMSG);
		if (is_fit)
			wb_plan_destroy(back);
	}
	r->dst_rail = was;
	was = r->src_rail;
	r->src_rail = r->dst_rail;
	ck_assert_int_eq(decode_with(p, &back), -EBADMSG);
	r->src_rail = was;
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_landing");
	TCase *c = tcase_create("landing");
	const char *seed = getenv("WB_SEED");
	int n = getenv("WB_RUNS") ? atoi(getenv("WB_RUNS")) : 1000;

	first_seed = seed ? strtoull(seed, NULL, 0) : 1;
	printf("seeds %llu and on (WB_SEED, WB_RUNS)\n", (unsigned long long)first_seed);
	suite_add_tcase(s, c);
	fx_add_points(c, slow_rails_cost_no_more_than_if_any_of_the_domain_might_land, 0, n);
	fx_add_points(c, equal_rails_end_together, 0, n);
	fx_add_points(c, rails_are_lent_only_where_their_own_would_hold_up_the_transfer, 0, n);
	fx_add_points(
		c, no_rail_is_lent_while_a_rate_is_unknown_or_to_who_could_not_use_it, 0, n / 10);
	tcase_add_test(c, lent_rails_are_read_back);
	tcase_add_test(c, a_rail_of_another_domain_or_role_is_refused);
	return fx_run(s);
}
