/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_oracle.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

uint32_t fx_tensor_of(const struct fx_deploy *d, uint64_t e)
{
	uint32_t t = d->m->n - 1;

	while (d->base[t] > e)
		t--;
	return t;
}

size_t fx_elem_bytes(const struct fx_deploy *d, uint64_t e)
{
	return wb_dtype_bytes(d->m->tensor[fx_tensor_of(d, e)].dtype);
}

static void round_bf16(const uint8_t *from, uint8_t *to)
{
	uint32_t u;

	memcpy(&u, from, 4);
	u += 0x7fff + (u >> 16 & 1);
	memcpy(to, (uint8_t *)&u + 2, 2);
}

void fx_cast(enum wb_dtype wire, enum wb_dtype param, const uint8_t *from, uint8_t *to)
{
	if (wire == param) {
		memcpy(to, from, wb_dtype_bytes(wire));
	} else if (wire == WB_BF16) {
		memset(to, 0, 2);
		memcpy(to + 2, from, 2);
	} else {
		round_bf16(from, to);
	}
}

void fx_walk(const struct fx_deploy *d, const struct wb_map *map,
	void (*each)(void *, const struct wb_op *, uint64_t, uint64_t), void *cookie)
{
	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];
		uint64_t cols = d->m->tensor[o->tensor].cols;

		for (int64_t k = 0; k < o->repeat; k++)
			for (int64_t a = 0; a < o->n_row; a++)
				for (int64_t b = 0; b < o->n_col; b++)
					each(cookie, o,
						d->base[o->tensor] +
							(o->row + a * o->row_step) * cols + o->col +
							b * o->col_step,
						o->dst + a * o->dst_row_stride +
							b * o->dst_col_stride +
							k * o->dst_repeat_stride);
	}
}

struct marking {
	const struct fx_deploy *d;
	const struct wb_map *map;
	uint8_t *has;
};

static void mark(void *cookie, const struct wb_op *o, uint64_t e, uint64_t at)
{
	const struct marking *k = cookie;
	bool is_rounded = k->d->m->tensor[o->tensor].dtype == WB_F32 &&
			  k->map->param[o->param].dtype == WB_BF16;

	(void)at;
	k->has[e] |= is_rounded ? HAS_ROUNDED : HAS_EXACT;
}

uint8_t fx_held(const struct fx_deploy *d, const struct fx_oracle *o, uint64_t e)
{
	uint8_t has = 0;

	for (uint32_t l = 0; l < d->n_trainer_layout; l++)
		has |= o->has[l][e];
	return has;
}

uint8_t *fx_image_at(const struct fx_deploy *d, const struct fx_oracle *o, uint32_t t, uint64_t i)
{
	return o->image + d->m->tensor[t].byte_base + i * wb_dtype_bytes(d->m->tensor[t].dtype);
}

void fx_oracle_init(struct fx_oracle *o, struct fx_deploy *d)
{
	const struct wb_tensor *last = &d->m->tensor[d->m->n - 1];
	uint64_t bytes = last->byte_base + last->rows * last->cols * 4 + 64;

	memset(o, 0, sizeof(*o));
	for (uint32_t l = 0; l < d->in.n_layout; l++) {
		struct marking k = {d, d->layout[l], calloc(d->n_elem, 1)};

		o->has[l] = k.has;
		fx_walk(d, d->layout[l], mark, &k);
	}
	o->image = malloc(bytes);
	/* Finite numbers, whatever the type. */
	for (uint64_t i = 0; i + 1 < bytes; i += 2) {
		uint64_t v = wb_rng_u64(&d->rng);
		uint16_t x = (uint16_t)((v & 0x807f) | (64 + (v >> 16) % 128) << 7);

		memcpy(o->image + i, &x, 2);
	}
	for (uint32_t t = 0; t < d->m->n; t++) {
		const struct wb_tensor *x = &d->m->tensor[t];

		for (uint64_t i = 0; x->dtype == WB_F32 && i < x->rows * x->cols; i++) {
			uint8_t *at = fx_image_at(d, o, t, i), half[2];

			if (fx_held(d, o, d->base[t] + i) != HAS_ROUNDED)
				continue;
			round_bf16(at, half);
			memset(at, 0, 2);
			memcpy(at + 2, half, 2);
		}
	}
}

void fx_oracle_finish(struct fx_oracle *o, const struct fx_deploy *d)
{
	for (uint32_t l = 0; l < d->in.n_layout; l++)
		free(o->has[l]);
	free(o->image);
}
