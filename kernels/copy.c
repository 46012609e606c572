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

	if (n < lead + LINE) {
		memcpy(dst, src, n);
		return;
	}
	memcpy(dst, src, lead);
	for (i = lead; i + 4 * PAGE <= n; i += 4 * PAGE)
		for (size_t k = i; k < i + PAGE; k += LINE)
			for (size_t s = k; s < k + 4 * PAGE; s += PAGE) {
				__builtin_prefetch(src + s + 4 * PAGE);
				wbk__line_stream(dst + s, src + s);
			}
	for (; i + PAGE + LINE <= n; i += LINE) {
		__builtin_prefetch(src + i + PAGE); /* hardware stops at the end of a page */
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

void wbk__rows_copy(const struct wbk__rows *r)
{
	const uint8_t *src = r->src;
	uint8_t *dst = r->dst;
	bool stream = r->stream && r->row_bytes >= 4 * LINE;

	for (size_t row = 0; row < r->n_row; row++) {
		if (stream)
			wbk__copy_stream(dst, src, r->row_bytes);
		else
			memcpy(dst, src, r->row_bytes);
		src += r->src_stride;
		dst += r->dst_stride;
	}
	if (stream)
		wbk__stream_fence();
}
