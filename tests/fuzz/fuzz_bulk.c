/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk frames: whatever the bytes, decoding stays inside them; what decodes, encodes again to a
 * frame of the same size that decodes to the same. */
#include "base/base.h"
#include "xport/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wb__frame f, g;
	uint8_t again[WBP_BULK_FRAME_MAX], twice[WBP_BULK_FRAME_MAX], *exact;
	size_t at = 0;

	while (size - at >= WBP_BULK_PREFIX) {
		int n = wb__frame_bytes(data + at);
		size_t m;

		if (n < 0 || (size_t)n > size - at)
			break;
		exact = malloc((size_t)n); /* so that ASan sees one byte too many */
		if (!exact)
			abort();
		memcpy(exact, data + at, (size_t)n);
		at += (size_t)n;
		if (!wb__frame_decode(exact, (size_t)n, &f)) {
			m = wb__frame_encode(&f, again);
			assert(m == (size_t)n && !wb__frame_decode(again, m, &g));
			assert(wb__frame_encode(&g, twice) == m && !memcmp(again, twice, m));
			for (uint32_t i = 0; f.type == WBP_BULK_TABLE && i < f.n_range; i++) {
				struct wb__range r = wb__range_get(f.range, i);
				struct wb__range q = wb__range_get(g.range, i);

				assert(!memcmp(&r, &q, sizeof(r)));
			}
		}
		free(exact);
	}
	return 0;
}
