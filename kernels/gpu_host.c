/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of gpu.h mean: an element at a time, nothing clever. */
#include <assert.h>
#include <string.h>

#include "kernels/gpu.h"

struct mover {
	const struct wbk_move_args *a;
	const struct wbk_op *o;
	uint8_t *mem, *wire;
	struct wbk_sum *sum;
};

static void pack_one(const struct mover *m, const uint8_t *mem, uint8_t *wire)
{
	if (m->o->cast)
		wbk_cast_back(m->o->cast, mem, wire, 1);
	else
		memcpy(wire, mem, m->o->wire_elem);
}

static void assemble_one(const struct mover *m, const uint8_t *wire, uint8_t *mem)
{
	uint32_t repeat = m->o->repeat ? m->o->repeat : 1;

	for (uint32_t k = 0; k < repeat; k++, mem += m->o->repeat_stride) {
		if (m->o->is_fill)
			memcpy(mem, &m->o->value, m->o->mem_elem); /* little-endian */
		else if (m->o->cast)
			wbk_cast_fwd(m->o->cast, wire, mem, 1);
		else
			memcpy(mem, wire, m->o->mem_elem);
	}
}

/* Element number @i of the op. */
static void move_one(const struct mover *m, uint64_t i)
{
	const struct wbk_op *o = m->o;
	uint64_t pos = o->pos, left = i;
	int64_t off = 0;
	uint8_t one[8];
	uint8_t *wire = m->wire ? m->wire + i * o->wire_elem : one;

	for (unsigned d = WBK_DIMS; d-- > 0; left /= o->n[d]) {
		off += (int64_t)(left % o->n[d]) * o->mem_stride[d];
		pos += left % o->n[d] * o->pos_stride[d];
	}
	if (m->a->way == WBK_WAY_ASSEMBLE)
		assemble_one(m, wire, m->mem + off);
	else
		pack_one(m, m->mem + off, wire);
	if (m->sum && !o->is_fill)
		wbk_sum_add(m->a->keys, pos, wire, o->wire_elem, m->sum);
}

void wbk_host_move(const struct wbk_move_args *a)
{
	assert(a && (a->keys || !a->sum) && (a->way == WBK_WAY_SUM) == !a->wire);
	for (uint32_t i = 0; i < a->n_op; i++) {
		const struct wbk_op *o = &a->op[i];
		struct mover m = {.a = a,
			.o = o,
			.mem = (uint8_t *)a->bases[o->base] + o->mem_off,
			.wire = a->wire ? (uint8_t *)a->wire + o->wire_off : NULL,
			.sum = a->sum ? &a->sum[o->sum] : NULL};
		uint64_t n = (uint64_t)o->n[0] * o->n[1] * o->n[2] * o->n[3];

		for (uint64_t k = 0; k < n; k++)
			move_one(&m, k);
	}
}

static void hit(const struct wbk_scan_args *a, uint32_t scan, uint64_t index, int64_t value)
{
	a->out[scan].n_hit++;
	if (*a->n_hit < a->cap)
		a->hit[*a->n_hit] = (struct wbk_hit){index, value, scan, 0};
	else
		a->out[scan].is_over = 1;
	++*a->n_hit;
}

void wbk_host_diff2(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_scan; i++) {
		struct wbk_field f = a->scan[i].f;
		uint64_t at = a->scan[i].row_begin * f.cols;

		f.rows = a->scan[i].row_end;
		while (at < f.rows * f.cols) {
			struct wbk_record rec[64];
			size_t n = wbk_diff2(&f, at, rec, 64, &at, &a->out[i].n);

			for (size_t k = 0; k < n; k++)
				hit(a, i, rec[k].index, rec[k].value);
		}
	}
}

void wbk_host_classify(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_scan; i++) {
		const struct wbk_scan *s = &a->scan[i];
		uint64_t cols = s->f.cols;

		for (uint64_t r = s->row_begin; r < s->row_end; r++) {
			const uint8_t *p =
				(const uint8_t *)s->f.data + (int64_t)r * s->f.row_stride * s->elem;
			uint32_t left = s->want;

			for (uint64_t c = 0; c < cols; c++, p += s->elem) {
				uint32_t raw = 0;

				memcpy(&raw, p, s->elem); /* little-endian */
				if (raw != left)
					hit(a, i, r * cols + c, raw);
				a->out[i].n += raw == s->want;
				if (s->mark && raw != s->want)
					s->mark[r * cols + c] = 1;
				left = raw;
			}
		}
	}
}
