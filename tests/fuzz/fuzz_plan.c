/* SPDX-License-Identifier: Apache-2.0 */
/* Plan decoder: refused, or canonical; and then explained without reading outside. */
#include "base/buf.h"
#include "planner/plan.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb_plan *p = NULL;
	struct wb_buf b;

	if (wb_plan_decode(data, size, &p, NULL) < 0)
		return 0;
	wb_buf_init(&b, 1 << 22);
	assert(!wb_plan_encode(p, &b));
	assert(b.len == size && !memcmp(b.data, data, size));
	wb_buf_reset(&b);
	wb_plan_explain(p, NULL, NULL, false, &b);
	wb_buf_reset(&b);
	wb_plan_explain(p, NULL, NULL, true, &b);
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	return 0;
}
