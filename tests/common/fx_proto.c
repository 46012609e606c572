/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_proto.h"

#include "base/base.h"
#include "proto/peers.h"
#include "proto/words.h"

#include <stdlib.h>
#include <string.h>

static char *random_str(struct wb_rng *r, uint32_t max)
{
	static const char *const part[] = {"a", "Z", "0", "/", "\"", "\\", "\n", "\xc3\xa9", " "};
	size_t n = wb_rng_below(r, WB_MIN(max / 2 + 1, 12)), len = 0;
	char *s = calloc(n * 2 + 2, 1);

	while (n--) {
		const char *p = part[wb_rng_below(r, WB_ARRAY_SIZE(part))];

		if (len + strlen(p) <= max)
			len += strlen(strcpy(s + len, p));
	}
	return s;
}

static uint64_t random_u64(struct wb_rng *r)
{
	uint64_t v = wb_rng_u64(r);

	return v >> wb_rng_below(r, 64);
}

/* Draws what a text would: what comes after it is what it was when words were texts. */
static uint32_t random_word(const struct wb_fdef *f, struct wb_rng *r, uint32_t max)
{
	char *s = random_str(r, max);
	uint32_t number = (uint32_t)wb_hash64(s, strlen(s), 0) % f->words->n;

	free(s);
	return number;
}

static void fill_array(
	const struct wb_fdef *f, char *msg, char *at, struct wb_rng *r, bool is_small)
{
	size_t size = f->kind == WBF_U32S      ? 4
		      : f->kind == WBF_WORDS   ? 4
		      : f->kind == WBF_U64S    ? 8
		      : f->kind == WBF_STRS    ? sizeof(char *)
		      : f->kind == WBF_STRUCTS ? f->sub->bytes
					       : 1;
	uint32_t n = (uint32_t)wb_rng_below(r, WB_MIN(f->max, is_small ? 2u : 5u) + 1);
	char *p = n ? calloc(n, size) : NULL;

	for (uint32_t i = 0; i < n; i++) {
		if (f->kind == WBF_STRS)
			((char **)(void *)p)[i] = random_str(r, 100);
		else if (f->kind == WBF_WORDS)
			((uint32_t *)(void *)p)[i] = random_word(f, r, 100);
		else if (f->kind == WBF_STRUCTS)
			fx_fill_table(f->sub, p + i * size, r, true);
		else
			for (size_t k = 0; k < size; k++)
				p[i * size + k] = (char)wb_rng_u64(r);
	}
	memcpy(at, &p, sizeof(p));
	memcpy(msg + f->n_offset, &n, sizeof(n));
}

void fx_fill_table(const struct wb_table *t, void *msg, struct wb_rng *all, bool is_small)
{
	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];
		/* What a later version appends must not change what an earlier one's lines say. */
		struct wb_rng own = {all->state ^ i};
		struct wb_rng *r = f->since > t->field[0].since ? &own : all;
		char *at = (char *)msg + f->offset, *s;
		uint64_t v = random_u64(r);

		if ((f->flags & WBF_OPT) && f->kind != WBF_STRUCT && wb_rng_below(r, 3) == 0)
			continue;
		if (f->max)
			v %= (uint64_t)f->max + 1;
		switch ((enum wb_fkind)f->kind) {
		case WBF_BOOL:
			*(bool *)at = v & 1;
			break;
		case WBF_U32:
			*(uint32_t *)(void *)at = (uint32_t)v;
			break;
		case WBF_U64:
		case WBF_I64:
			*(uint64_t *)(void *)at = v;
			break;
		case WBF_STR:
			s = random_str(r, f->max);
			memcpy(at, &s, sizeof(s));
			break;
		case WBF_WORD:
			*(uint32_t *)(void *)at = random_word(f, r, f->max);
			break;
		case WBF_DIGEST:
			*(struct wb_digest *)(void *)at = (struct wb_digest){v, wb_rng_u64(r)};
			break;
		case WBF_STRUCT:
			fx_fill_table(f->sub, at, r, is_small);
			break;
		default:
			fill_array(f, msg, at, r, is_small);
		}
	}
}

void fx_fill_msg(const struct wb_table *t, void *msg, struct wb_rng *rng, bool is_small)
{
	struct wb_msg_peer *m = msg;

	fx_fill_table(t, msg, rng, is_small);
	if (t == wb_msg_info(WBP_PEER)->table && wb_peer_rule(m->kind))
		m->kind = 64;
}
