/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan decoders: refused, or right.  What is listed is canonical, and explained without reading
 * outside.  Of what is packed the digests of the parts are mended first, so that damage behind them
 * is seen; what an agent reads of it is in range.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "planner/parts.h"

#include <assert.h>
#include <string.h>

#define MEMORY_MAX (64u << 20) /* a few records may stand for many segments */
#define PART_ENTRY 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void explain(const struct wb_plan *p)
{
	struct wb_buf b;

	wb_buf_init(&b, 1 << 22);
	wb_plan_explain(p, NULL, NULL, false, &b);
	wb_buf_reset(&b);
	wb_plan_explain(p, NULL, NULL, true, &b);
	wb_buf_finish(&b);
}

static void list(const uint8_t *data, size_t size, bool is_canonical)
{
	struct wb_plan *p = NULL;
	struct wb_buf b;

	wb_mem_allow(MEMORY_MAX);
	if (wb_plan_decode(data, size, &p, NULL) < 0) {
		wb_mem_allow(0);
		return;
	}
	wb_mem_allow(0);
	wb_buf_init(&b, 1 << 28);
	assert(!wb_plan_encode(p, &b));
	assert(!is_canonical || (b.len == size && !memcmp(b.data, data, size)));
	assert(wb_digest_eq(wb_digest_of(b.data, b.len), p->digest));
	wb_buf_finish(&b);
	explain(p);
	wb_plan_destroy(p);
}

static void put_u64(uint8_t *at, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(v >> 8 * i);
}

static void look(const struct wb_plan *p, uint32_t domain)
{
	assert(p->is_part && p->domain == domain);
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];

		assert(k->seg_begin <= k->seg_end && k->seg_end <= p->n_segment);
		for (uint32_t s = k->seg_begin; s < k->seg_end; s++)
			assert(p->segment[s].class_id == c && p->segment[s].wire_off < k->bytes);
	}
	for (uint32_t i = 0; i < p->n_route; i++)
		assert(p->worker[p->route[i].src].domain == domain ||
			p->worker[p->route[i].dst].domain == domain);
}

static void unpack(uint8_t *data, const struct wb_plan_slice *s, int n)
{
	for (int i = 1; i < n; i++) {
		struct wb_digest d = wb_digest_of(data + s[i].at, s[i].bytes);
		uint8_t *entry = data + s[0].bytes - (size_t)(n - i) * PART_ENTRY;

		put_u64(entry + 8, d.hi);
		put_u64(entry + 16, d.lo);
	}
	for (int i = 1; i < n; i++) {
		struct wb_plan_piece head = {data, s[0].bytes}, part = {data + s[i].at, s[i].bytes};
		struct wb_plan *p = NULL;

		if (wb_plan_unpack(head, part, MEMORY_MAX, &p, NULL) < 0)
			continue;
		look(p, (uint32_t)i - 1);
		wb_plan_destroy(p);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb_plan_slice *s = NULL;
	int n = wb_plan_slices(data, size, &s, NULL);
	uint8_t *own;

	if (n < 0) {
		list(data, size, true);
		return 0;
	}
	own = wb_memdup(data, size);
	unpack(own, s, n);
	list(own, size, false);
	wb_free(own);
	wb_free(s);
	return 0;
}
