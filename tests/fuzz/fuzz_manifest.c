/* SPDX-License-Identifier: Apache-2.0 */
/* Manifest decoder: refused, or decoded to something that encodes to the same bytes. */
#include "base/buf.h"
#include "planner/map.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb_manifest *m = NULL;
	struct wb_buf b;

	if (wb_manifest_decode(data, size, &m, NULL) < 0)
		return 0;
	wb_buf_init(&b, 2 * size + 64);
	assert(!wb_manifest_encode(m, &b));
	assert(b.len == size && !memcmp(b.data, data, size));
	for (uint32_t i = 1; i < m->n; i++)
		assert(strcmp(m->tensor[m->by_name[i - 1]].name, m->tensor[m->by_name[i]].name) <
			0);
	wb_buf_finish(&b);
	wb_manifest_destroy(m);
	return 0;
}
