/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/area.h"

#include "base/base.h"
#include "base/mem.h"
#include "kernels/kernels.h"

#include <errno.h>
#include <string.h>

#define PAGE 4096u
#define STREAM_MIN 65536u /* shorter runs: memcpy */

uint64_t wb_area_layout(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t *off)
{
	uint64_t at = WB_AREA_HEAD_BYTES;

	for (uint32_t i = 0; i < n_mem; i++) {
		if (off)
			off[i] = at;
		at += wb_align_up(mem_bytes[i], PAGE);
	}
	return at;
}

static uint64_t n_elem(const struct wb_op *op)
{
	return (uint64_t)op->n_row * op->n_col * (op->repeat ? op->repeat : 1);
}

uint64_t wb_area_used(const struct wb_map *map)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < map->n_op; i++)
		bytes += n_elem(&map->op[i]) * wb_dtype_bytes(map->param[map->op[i].param].dtype);
	return bytes;
}

bool wb_area_check(const struct wb_area_head *h, uint64_t bytes)
{
	return h->magic == WB_AREA_MAGIC && h->bytes == bytes && h->state <= WB_AREA_INSTALLED &&
	       h->n_judge <= WB_AREA_JUDGES_MAX;
}

void wb_area_reset(struct wb_area_head *h, uint64_t bytes)
{
	memset(h, 0, sizeof(*h));
	h->magic = WB_AREA_MAGIC;
	h->bytes = bytes;
	h->version = h->held_version = -1;
}

/* How many elements the ops write in each parameter: if all of them, one range is enough for it. */
static uint64_t *count_elems(const struct wb_map *map)
{
	uint64_t *n = wb_zalloc(map->n_param, sizeof(*n));

	for (uint32_t i = 0; n && i < map->n_op; i++)
		n[map->op[i].param] += n_elem(&map->op[i]);
	return n;
}

static void add_op(const struct wb_map *map, const struct wb_op *op, const struct wb_place *at,
	struct wb_area_range *r, uint32_t *n)
{
	int64_t elem = (int64_t)wb_dtype_bytes(map->param[op->param].dtype);
	bool rows = op->dst_col_stride == 1 || op->n_col == 1;
	uint32_t reps = op->repeat ? op->repeat : 1;

	/* Each row is one piece if its elements lie next to each other; otherwise each element is a
	 * piece. */
	for (uint32_t k = 0; k < reps; k++)
		r[(*n)++] = (struct wb_area_range){
			.mem = at->mem,
			.param = op->param,
			.off = at->off_bytes +
			       (uint64_t)((int64_t)op->dst + k * op->dst_repeat_stride) *
				       (uint64_t)elem,
			.bytes = rows ? op->n_col * (uint64_t)elem : (uint64_t)elem,
			.n_row = op->n_row,
			.row_stride = op->dst_row_stride * elem,
			.n_rep = rows ? 1 : op->n_col,
			.rep_stride = op->dst_col_stride * elem,
		};
}

int wb_area_ranges(const struct wb_map *map, const struct wb_place *place,
	struct wb_area_range **out, uint32_t *n_out)
{
	uint64_t *elems = count_elems(map), most = map->n_param;
	struct wb_area_range *r;
	uint32_t n = 0;

	for (uint32_t i = 0; i < map->n_op; i++)
		most += map->op[i].repeat ? map->op[i].repeat : 1;
	r = wb_zalloc(most, sizeof(*r));
	if (!elems || !r) {
		wb_free(elems);
		wb_free(r);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < map->n_param; i++)
		if (elems[i] == map->param[i].span && elems[i])
			r[n++] = (struct wb_area_range){
				.mem = place[i].mem,
				.param = i,
				.off = place[i].off_bytes,
				.bytes = map->param[i].span * wb_dtype_bytes(map->param[i].dtype),
				.n_row = 1,
				.n_rep = 1,
			};
	for (uint32_t i = 0; i < map->n_op; i++)
		if (elems[map->op[i].param] != map->param[map->op[i].param].span)
			add_op(map, &map->op[i], &place[map->op[i].param], r, &n);
	wb_free(elems);
	*out = r;
	*n_out = n;
	return 0;
}

/* Long runs are copied past the caches, which is twice as fast as memcpy() on small pages. */
static void copy(void *to, const void *from, uint64_t bytes)
{
	if (bytes < STREAM_MIN)
		memcpy(to, from, bytes);
	else
		wbk_sum_copy(NULL, 0, to, from, bytes, NULL);
}

void wb_area_copy(const struct wb_area_range *r, uint32_t n, void *const *from, void *const *to)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint64_t row = 0; row < r[i].n_row; row++)
			for (uint64_t k = 0; k < r[i].n_rep; k++) {
				int64_t at = (int64_t)r[i].off + (int64_t)row * r[i].row_stride +
					     (int64_t)k * r[i].rep_stride;

				copy((char *)to[r[i].mem] + at, (char *)from[r[i].mem] + at,
					r[i].bytes);
			}
	wbk_copy_end();
}

static bool is_same(const struct wb_area_range *r, void *const *from, void *const *to)
{
	for (uint64_t row = 0; row < r->n_row; row++)
		for (uint64_t k = 0; k < r->n_rep; k++) {
			int64_t at = (int64_t)r->off + (int64_t)row * r->row_stride +
				     (int64_t)k * r->rep_stride;

			if (memcmp((char *)to[r->mem] + at, (char *)from[r->mem] + at, r->bytes) !=
				0)
				return false;
		}
	return true;
}

uint32_t wb_area_differs(
	const struct wb_area_range *r, uint32_t n, uint32_t i, void *const *from, void *const *to)
{
	while (i < n && is_same(&r[i], from, to))
		i++;
	return i;
}

void wb_area_flip(const struct wb_area_range *r, uint32_t n, void *const *to, uint64_t bit)
{
	const struct wb_area_range *at = n ? &r[bit % n] : NULL;
	uint64_t b = bit >> 8;

	if (at && at->bytes && at->n_row && at->n_rep)
		((uint8_t *)to[at->mem])[at->off + (b / 8) % at->bytes] ^= (uint8_t)(1u << b % 8);
}
