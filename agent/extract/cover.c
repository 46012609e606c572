/* SPDX-License-Identifier: Apache-2.0 */
#include "extract/cover.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>

void wb__cover_of(const struct wb_srcmap *s, struct wb__cover *cover)
{
	const struct wb_map *map = s->map;

	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];

		cover[o->param].n_op++;
		cover[o->param].copied += (uint64_t)o->n_row * o->n_col * o->repeat;
	}
	for (uint32_t i = 0; i < map->n_region; i++) {
		const struct wb_region *g = &map->region[i];
		struct wb__cover *c = &cover[g->param];
		uint64_t n = (uint64_t)g->n_row * g->n_col;

		if (s->alias[g->param].owner != WB_ALIAS_NONE)
			continue; /* counted only for its owner */
		if (g->kind == WB_REGION_UNWRITTEN) {
			c->unwritten += n;
			continue;
		}
		c->constant += n;
		if (!c->n_constant || c->value != g->value)
			c->n_constant++;
		if (c->n_constant == 1)
			c->value = g->value;
	}
}

/* What the sentences are made from. */
struct gaps {
	const struct wb_srcmap *s;
	const struct wb__cover *cover;
	uint32_t *exact, *rounds; /* by tensor: number of an op that does so, plus 1; 0: none */
};

static void find_tensors(const struct gaps *g)
{
	const struct wb_map *map = g->s->map;

	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];
		bool is_exact = true;

		(void)wb_cast_between(g->s->manifest->tensor[o->tensor].dtype,
			map->param[o->param].dtype, &is_exact);
		(is_exact ? g->exact : g->rounds)[o->tensor] = i + 1;
	}
}

/* One kind of gap: which tensors or parameters have it, and how each is listed. */
struct kind {
	bool (*has)(const struct gaps *g, uint32_t i);
	void (*put)(const struct gaps *g, uint32_t i, struct wb_buf *out);
	bool of_tensors;
	const char *what, *why; /* "WHAT (12 of 40): a, b, and 10 more WHY" */
};

static bool is_unread(const struct gaps *g, uint32_t i)
{
	return !g->exact[i] && !g->rounds[i];
}

static bool is_rounded(const struct gaps *g, uint32_t i)
{
	return g->rounds[i] && !g->exact[i]; /* if there is an exact copy, that one is sent */
}

static bool is_view(const struct gaps *g, uint32_t i)
{
	return g->s->alias[i].owner != WB_ALIAS_NONE;
}

static bool is_unwritten(const struct gaps *g, uint32_t i)
{
	return !g->cover[i].n_op && g->cover[i].unwritten;
}

static bool is_constant(const struct gaps *g, uint32_t i)
{
	return !g->cover[i].n_op && g->cover[i].constant && !g->cover[i].unwritten;
}

static bool is_partial(const struct gaps *g, uint32_t i)
{
	return g->cover[i].n_op && g->cover[i].unwritten;
}

static bool is_empty(const struct gaps *g, uint32_t i)
{
	return !g->s->map->param[i].span && !is_view(g, i);
}

static void put_tensor(const struct gaps *g, uint32_t i, struct wb_buf *out)
{
	wb_buf_printf(out, "%s", g->s->manifest->tensor[i].name);
}

static void put_rounded(const struct gaps *g, uint32_t i, struct wb_buf *out)
{
	const struct wb_tensor *t = &g->s->manifest->tensor[i];
	const struct wb_param *p = &g->s->map->param[g->s->map->op[g->rounds[i] - 1].param];

	wb_buf_printf(out, "%s (%s, as %s in %s)", t->name, wb_dtype_name(t->dtype),
		wb_dtype_name(p->dtype), p->name);
}

static void put_param(const struct gaps *g, uint32_t i, struct wb_buf *out)
{
	wb_buf_printf(out, "%s", g->s->map->param[i].name);
}

static void put_partial(const struct gaps *g, uint32_t i, struct wb_buf *out)
{
	const struct wb__cover *c = &g->cover[i];

	wb_buf_printf(out, "%s (not %" PRIu64 " of %" PRIu64 " elements)", g->s->map->param[i].name,
		c->unwritten, c->copied + c->constant + c->unwritten);
}

static const struct kind kinds[] = {
	{is_unread, put_tensor, true, "tensors that go into no parameter here",
		" (as it must be where other workers hold their layers or experts)"},
	{is_unwritten, put_param, false, "parameters that load_weights does not write", ""},
	{is_empty, put_param, false, "parameters without elements", ""},
	{is_constant, put_param, false, "parameters that get constants and nothing else", ""},
	{is_partial, put_partial, false, "parameters that load_weights writes in part", ""},
	{is_rounded, put_rounded, true, "tensors held in a type that rounds them",
		"; a trainer sends them rounded"},
};

static void put_kind(
	const struct gaps *g, const struct kind *k, uint32_t shown_max, struct wb_buf *out)
{
	uint32_t total = k->of_tensors ? g->s->manifest->n : g->s->map->n_param, n = 0, shown = 0;

	for (uint32_t i = 0; i < total; i++)
		n += k->has(g, i);
	if (!n)
		return;
	wb_buf_printf(out, "%s (%" PRIu32 " of %" PRIu32 "): ", k->what, n, total);
	for (uint32_t i = 0; i < total && shown < shown_max; i++) {
		if (!k->has(g, i))
			continue;
		if (shown++)
			wb_buf_printf(out, ", ");
		k->put(g, i, out);
	}
	if (n > shown)
		wb_buf_printf(out, ", and %" PRIu32 " more", n - shown);
	wb_buf_printf(out, "%s\n", k->why);
}

int wb_srcmap_gaps(const struct wb_srcmap *s, uint32_t shown_max, struct wb_buf *out)
{
	struct wb__cover *cover = wb_zalloc(s->map->n_param, sizeof(*cover));
	uint32_t *ops = wb_zalloc(2 * (size_t)s->manifest->n, sizeof(*ops));
	struct gaps g = {s, cover, ops, ops ? ops + s->manifest->n : NULL};

	if (cover && ops) {
		wb__cover_of(s, cover);
		find_tensors(&g);
		for (size_t i = 0; i < WB_ARRAY_SIZE(kinds); i++)
			put_kind(&g, &kinds[i], shown_max, out);
	}
	wb_free(ops);
	wb_free(cover);
	return cover && ops ? out->rc : -ENOMEM;
}
