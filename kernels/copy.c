/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain copies of rows.
 *
 * Streaming stores save reading the destination's lines before they are overwritten.  Long runs
 * walk four pages at once, which memory serves better than one.
 */
#include <string.h>

#include "kernels/internal.h"

#define LINE 64u
#define PAGE 4096u

#if WBK_X86
void wbk__copy_stream(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t lead = -(uintptr_t)dst & (LINE - 1), i;
	bool is_long = n >= 16 * PAGE; /* what is prefetched beyond its end is little then */

	if (n < lead + LINE) {
		memcpy(dst, src, n);
		return;
	}
	memcpy(dst, src, lead);
	for (i = lead; i + 4 * PAGE <= n; i += 4 * PAGE) {
		bool more = is_long || i + 8 * PAGE <= n;

		for (size_t k = i; k < i + PAGE; k += LINE)
			for (size_t s = k; s < k + 4 * PAGE; s += PAGE) {
				if (more)
					__builtin_prefetch(src + s + 4 * PAGE);
				wbk__line_stream(dst + s, src + s);
			}
	}
	for (; i + PAGE + LINE <= n; i += LINE) {
		__builtin_prefetch(src + i + PAGE); /* hardware prefetch ends with a page */
		wbk__line_stream(dst + i, src + i);
	}
	for (; i + LINE <= n; i += LINE)
		wbk__line_stream(dst + i, src + i);
	memcpy(dst + i, src + i, n - i);
}

void wbk__stream_fence(void)
{
	_mm_sfence();
}
#else
void wbk__copy_stream(uint8_t *dst, const uint8_t *src, size_t n)
{
	memcpy(dst, src, n);
}

void wbk__stream_fence(void)
{
}
#endif

/* The hardware prefetches only within a page, so ask for the start of the next row early. */
static void fetch_ahead(const uint8_t *p, size_t n)
{
	n = n < PAGE ? n : PAGE;
	for (size_t i = 0; i < n; i += LINE)
		__builtin_prefetch(p + i, 0, 2);
}

void wbk__rows_copy(const struct wbk__rows *r)
{
	const uint8_t *src = r->src;
	uint8_t *dst = r->dst;
	bool stream = r->stream && r->row_bytes >= 4 * LINE;

	for (size_t row = 0; row < r->n_row; row++) {
		if (row + 1 < r->n_row && r->src_stride != (int64_t)r->row_bytes)
			fetch_ahead(src + r->src_stride, r->row_bytes);
		if (stream)
			wbk__copy_stream(dst, src, r->row_bytes);
		else
			memcpy(dst, src, r->row_bytes);
		src += r->src_stride;
		dst += r->dst_stride;
	}
}
