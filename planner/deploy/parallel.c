/* SPDX-License-Identifier: Apache-2.0 */
/* Read the text that says how one side shares a model, and check that the model can be shared in
 * this way. */
#include "planner/deploy/parallel.h"

#include "base/base.h"
#include "base/cli.h"
#include "planner/deploy/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 15
#define NUMBER_MAX 65536

enum { MEGATRON = 1 << WB_MEGATRON, FSDP2 = 1 << WB_FSDP2, TRANSFORMERS = 1 << WB_TRANSFORMERS };
enum { VLLM = 1 << WB_VLLM, SGLANG = 1 << WB_SGLANG, STAGED = MEGATRON | VLLM | SGLANG };

static const char *const frameworks[] = {
	[WB_MEGATRON] = "megatron",
	[WB_FSDP2] = "fsdp2",
	[WB_TRANSFORMERS] = "transformers",
	[WB_VLLM] = "vllm",
	[WB_SGLANG] = "sglang",
};

enum kind { NUMBER, FLAG, STAGES };

static const struct setting {
	const char *word;
	unsigned of; /* frameworks */
	enum kind kind;
	size_t at;
} settings[] = {
	{"", FSDP2 | TRANSFORMERS, NUMBER, offsetof(struct wb_parallel, world)},
	{"tp", STAGED, NUMBER, offsetof(struct wb_parallel, tp)},
	{"pp", STAGED, NUMBER, offsetof(struct wb_parallel, pp)},
	{"cp", MEGATRON, NUMBER, offsetof(struct wb_parallel, cp)},
	{"ep", STAGED, NUMBER, offsetof(struct wb_parallel, ep)},
	{"dp", STAGED, NUMBER, offsetof(struct wb_parallel, dp)},
	{"dense_tp", SGLANG, NUMBER, offsetof(struct wb_parallel, dense_tp)},
	{"last", STAGED, NUMBER, offsetof(struct wb_parallel, last)},
	{"layers", STAGED, STAGES, 0},
	{"stacked", FSDP2 | TRANSFORMERS, FLAG, offsetof(struct wb_parallel, is_stacked)},
	{"masters", FSDP2, FLAG, offsetof(struct wb_parallel, has_masters)},
};

const char *wb_framework_name(enum wb_framework f)
{
	return frameworks[f];
}

bool wb_framework_is_trainer(enum wb_framework f)
{
	return f == WB_MEGATRON || f == WB_FSDP2 || f == WB_TRANSFORMERS;
}

/* ---- text ---- */

static int refuse_setting(const struct wb_parallel *p, const char *item, struct wb_err *err)
{
	char known[96];
	size_t n = 0;

	for (size_t i = 0; i < WB_ARRAY_SIZE(settings); i++)
		if (settings[i].of & 1u << p->framework)
			n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "",
				*settings[i].word ? settings[i].word : "the number of ranks");
	return wb_err_set(err, -EINVAL, "%s has no setting '%s': it has %s",
		frameworks[p->framework], item, known);
}

static int take_stages(struct wb_parallel *p, char *text, struct wb_err *err)
{
	char *save = NULL;

	if (p->n_stage)
		return wb_err_set(err, -EINVAL, "layers is given twice");
	for (char *w = strtok_r(text, "+", &save); w; w = strtok_r(NULL, "+", &save)) {
		uint64_t v;

		if (p->n_stage == WB_PARALLEL_STAGES_MAX ||
			wb_cli_uint(w, 1, WB_MODEL_LAYERS_MAX, &v) < 0)
			return wb_err_set(err, -EINVAL,
				"layers '%s': expected the layers of each stage, at most %d of "
				"them,"
				" as in layers24+24+22",
				w, WB_PARALLEL_STAGES_MAX);
		p->stage[p->n_stage++] = (uint32_t)v;
	}
	return p->n_stage ? 0 : wb_err_set(err, -EINVAL, "layers needs numbers: layers24+24+22");
}

static int take_number(
	struct wb_parallel *p, const struct setting *s, const char *text, struct wb_err *err)
{
	uint32_t *out = (uint32_t *)(void *)((char *)p + s->at);
	const char *what = *s->word ? s->word : "number of ranks";
	uint64_t v;

	if (*out)
		return wb_err_set(err, -EINVAL, "%s is given twice", what);
	if (wb_cli_uint(text, 1, NUMBER_MAX, &v) < 0)
		return wb_err_set(
			err, -EINVAL, "%s '%s': expected 1 to %d", what, text, NUMBER_MAX);
	*out = (uint32_t)v;
	return 0;
}

static int take_item(struct wb_parallel *p, char *item, struct wb_err *err)
{
	size_t n = strspn(item, "abcdefghijklmnopqrstuvwxyz_");

	for (size_t i = 0; i < WB_ARRAY_SIZE(settings); i++) {
		const struct setting *s = &settings[i];

		if (strlen(s->word) != n || strncmp(s->word, item, n) != 0 ||
			!(s->of & 1u << p->framework))
			continue;
		if (s->kind == NUMBER)
			return take_number(p, s, item + n, err);
		if (s->kind == STAGES)
			return take_stages(p, item + n, err);
		if (item[n])
			break;
		*((bool *)p + s->at) = true;
		return 0;
	}
	return refuse_setting(p, item, err);
}

static int take_framework(struct wb_parallel *p, const char *word, struct wb_err *err)
{
	for (uint32_t f = WB_MEGATRON; f < WB_ARRAY_SIZE(frameworks); f++)
		if (!strcmp(frameworks[f], word)) {
			p->framework = f;
			return 0;
		}
	return wb_err_set(err, -EINVAL,
		"unknown framework '%s': megatron, fsdp2 and transformers train, vllm and sglang "
		"serve",
		word);
}

int wb_parallel_parse(const char *text, struct wb_parallel *out, struct wb_err *err)
{
	char copy[WB_PARALLEL_TEXT_MAX], *save = NULL, *rest;
	struct wb_parallel p = {0};
	int rc;

	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
		return wb_err_set(err, -EINVAL, "'%.32s...' is longer than %d characters", text,
			WB_PARALLEL_TEXT_MAX - 1);
	rest = strchr(copy, ':');
	if (rest)
		*rest++ = 0;
	rc = take_framework(&p, copy, err);
	for (char *i = rc < 0 || !rest ? NULL : strtok_r(rest, ",", &save); i && rc == 0;
		i = strtok_r(NULL, ",", &save))
		rc = take_item(&p, i, err);
	if (rc == 0 && !p.world && (p.framework == WB_FSDP2 || p.framework == WB_TRANSFORMERS))
		rc = wb_err_set(err, -EINVAL, "the number of ranks is missing: %s:8, for example",
			frameworks[p.framework]);
	if (rc < 0)
		return wb_err_wrap(err, rc, "'%s'", text);
	*out = p;
	return 0;
}

/* ---- does it fit the model ---- */

/* Divisors of @n next to @by, in words. */
static void neighbours(uint64_t by, uint64_t n, char *out, size_t bytes)
{
	uint64_t below = WB_MIN(by, n + 1) - 1, above = by + 1;

	while (below > 1 && n % below)
		below--;
	while (above < n && n % above)
		above++;
	if (above > n)
		snprintf(out, bytes, "%" PRIu64 " does", below);
	else
		snprintf(out, bytes, "%" PRIu64 " and %" PRIu64 " do", below, above);
}

static int divides(
	const char *setting, uint64_t by, uint64_t n, const char *what, struct wb_err *err)
{
	char others[64];

	if (n % by == 0)
		return 0;
	neighbours(by, n, others, sizeof(others));
	return wb_err_set(err, -EINVAL, "%s %" PRIu64 " does not divide %" PRIu64 " %s; %s",
		setting, by, n, what, others);
}

static int fit_stages(struct wb_parallel *p, const struct wb_model *m, struct wb_err *err)
{
	uint32_t sum = 0, given = p->n_stage, rest = m->layers - p->last;

	if (given && p->pp && p->pp != given)
		return wb_err_set(err, -EINVAL,
			"pp %" PRIu32 ", and layers names %" PRIu32 " stages", p->pp, given);
	p->pp = given ? given : WB_MAX(p->pp, 1);
	for (uint32_t i = 0; i < given; i++)
		sum += p->stage[i];
	if (given)
		return sum == m->layers
			       ? 0
			       : wb_err_set(err, -EINVAL,
					 "the stages have %" PRIu32 " layers, the model %" PRIu32,
					 sum, m->layers);
	if (p->pp > WB_PARALLEL_STAGES_MAX || p->pp > m->layers)
		return wb_err_set(err, -EINVAL, "pp %" PRIu32 ": at most %" PRIu32 " stages", p->pp,
			WB_MIN(WB_PARALLEL_STAGES_MAX, m->layers));
	if (p->last && (p->last >= m->layers || p->pp == 1 || rest % (p->pp - 1)))
		return wb_err_set(err, -EINVAL,
			"last %" PRIu32 " leaves %" PRIu32 " layers, which %" PRIu32
			" stages do not share evenly: name all of them, as in layers24+24+22",
			p->last, p->last < m->layers ? rest : 0, p->pp - 1);
	if (!p->last && divides("pp", p->pp, m->layers, "layers", err) < 0)
		return wb_err_set(err, -EINVAL,
			"pp %" PRIu32 " does not divide %" PRIu32
			" layers: name those of the last stage (last22) or of each "
			"(layers24+24+22)",
			p->pp, m->layers);
	for (uint32_t i = 0; i < p->pp; i++)
		p->stage[i] = p->last ? rest / (p->pp - 1) : m->layers / p->pp;
	if (p->last)
		p->stage[p->pp - 1] = p->last;
	p->n_stage = p->pp;
	return 0;
}

/* Check that the modules can be split over @tp ranks for attention, @dense for dense MLPs and
 * @shared for shared experts. */
static int fit_modules(const struct wb_model *m, uint64_t tp, uint64_t dense, uint64_t shared,
	const char *name, struct wb_err *err)
{
	uint64_t kv = m->kv_heads, wide = (uint64_t)m->shared_experts * m->moe_intermediate;
	bool has_dense = !m->experts || m->first_dense_layers;

	if (divides(name, tp, m->heads, "heads", err) < 0)
		return -EINVAL;
	if (m->arch != WB_ARCH_DEEPSEEK_V3 && kv % tp && tp % kv)
		return wb_err_set(err, -EINVAL,
			"%s %" PRIu64 " and %" PRIu64 " KV heads: one has to divide the other",
			name, tp, kv);
	if (has_dense && divides("tp", dense, m->intermediate, "rows of a dense MLP", err) < 0)
		return -EINVAL;
	return divides("tp", shared, wide, "rows of the shared experts", err);
}

static int fit_experts(const struct wb_parallel *p, const struct wb_model *m, struct wb_err *err)
{
	if (!m->experts && p->ep > 1)
		return wb_err_set(err, -EINVAL,
			"ep %" PRIu32 ", but %s has no experts: leave ep out", p->ep, m->name);
	return m->experts ? divides("ep", p->ep, m->experts, "experts", err) : 0;
}

static int set_world(struct wb_parallel *p, uint64_t per_stage, struct wb_err *err)
{
	uint64_t n = per_stage * p->pp;

	if (n > WB_WORKERS_MAX)
		return wb_err_set(
			err, -EINVAL, "%" PRIu64 " workers are more than %d", n, WB_WORKERS_MAX);
	p->world = (uint32_t)n;
	return 0;
}

static int fit_megatron(struct wb_parallel *p, const struct wb_model *m, struct wb_err *err)
{
	uint64_t ranks, gcd, rest;

	p->cp = WB_MAX(p->cp, 1);
	ranks = (uint64_t)p->tp * p->cp;
	for (gcd = p->ep, rest = ranks; rest;) {
		uint64_t r = gcd % rest;

		gcd = rest;
		rest = r;
	}
	p->dp = p->dp ? p->dp : (uint32_t)(p->ep / gcd);
	ranks *= p->dp;
	if (divides("ep", p->ep, ranks, "workers of a stage (tp * cp * dp)", err) < 0 ||
		fit_modules(m, p->tp, p->tp, p->tp, "tp", err) < 0)
		return -EINVAL;
	if (m->mtp_layers && divides("tp", p->tp, m->hidden, "rows of eh_proj", err) < 0)
		return -EINVAL;
	return set_world(p, ranks, err);
}

static int fit_rollout(struct wb_parallel *p, const struct wb_model *m, struct wb_err *err)
{
	bool is_vllm = p->framework == WB_VLLM;
	uint64_t ranks = (uint64_t)p->tp * (is_vllm ? WB_MAX(p->dp, 1) : 1), attention, vocab;

	p->dp = WB_MAX(p->dp, 1);
	if (!is_vllm && divides("dp", p->dp, p->tp, "workers of a stage (tp)", err) < 0)
		return -EINVAL;
	if (is_vllm && p->ep != 1 && p->ep != ranks)
		return wb_err_set(err, -EINVAL,
			"ep %" PRIu32 ": vllm deals experts out to all tp * dp workers (ep%" PRIu64
			") or splits them (no ep)",
			p->ep, ranks);
	if (divides("ep", p->ep, ranks, "workers of a stage", err) < 0)
		return -EINVAL;
	if (p->dense_tp > 1 && p->dense_tp != p->tp)
		return wb_err_set(
			err, -EINVAL, "dense_tp %" PRIu32 ": expected 1 or tp", p->dense_tp);
	p->dense_tp = p->dense_tp ? p->dense_tp : p->tp;
	attention = is_vllm ? p->tp : p->tp / p->dp;
	vocab = wb_align_up(m->vocab, 64);
	if (fit_modules(m, attention, p->dense_tp, is_vllm ? p->tp : ranks,
		    p->dp > 1 && !is_vllm ? "tp / dp" : "tp", err) < 0 ||
		divides("tp", attention, vocab, "rows of the padded vocabulary", err) < 0)
		return -EINVAL;
	if (m->experts && divides("tp / ep", ranks / p->ep, m->moe_intermediate,
				  "rows of an expert", err) < 0)
		return -EINVAL;
	return set_world(p, ranks, err);
}

int wb_parallel_fit(struct wb_parallel *p, const struct wb_model *m, struct wb_err *err)
{
	int rc;

	if (p->framework == WB_FSDP2 || p->framework == WB_TRANSFORMERS) {
		p->tp = p->pp = p->cp = p->ep = p->dp = p->dense_tp = 1;
		rc = p->is_stacked && !m->experts
			     ? wb_err_set(err, -EINVAL, "stacked, but %s has no experts", m->name)
			     : 0;
		if (rc == 0)
			rc = fit_stages(p, m, err);
		if (rc == 0)
			rc = set_world(p, p->world, err);
	} else {
		p->tp = WB_MAX(p->tp, 1);
		p->ep = WB_MAX(p->ep, 1);
		rc = fit_stages(p, m, err);
		if (rc == 0)
			rc = fit_experts(p, m, err);
		if (rc == 0)
			rc = p->framework == WB_MEGATRON ? fit_megatron(p, m, err)
							 : fit_rollout(p, m, err);
	}
	return rc < 0 ? wb_err_wrap(err, rc, "%s", frameworks[p->framework]) : 0;
}

uint32_t wb__stage_begin(const struct wb_parallel *p, uint32_t stage)
{
	uint32_t begin = 0;

	for (uint32_t i = 0; i < stage; i++)
		begin += p->stage[i];
	return begin;
}

/* Workers of a stage hold the same when they have the same rank in each group over which modules
 * are split. */
uint32_t wb__twin(const struct wb_parallel *p, const struct wb_model *m, uint32_t rank)
{
	uint32_t per_stage = p->world / p->pp, in_stage = rank % per_stage;

	if (p->framework == WB_TRANSFORMERS)
		return 0;
	if (p->framework == WB_MEGATRON) {
		uint32_t first = in_stage % p->tp;

		while (first % p->ep != in_stage % p->ep)
			first += p->tp;
		return rank - in_stage + first;
	}
	return p->framework == WB_VLLM && !m->experts ? rank - in_stage + in_stage % p->tp : rank;
}
