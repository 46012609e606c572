/* SPDX-License-Identifier: Apache-2.0 */
/* Cache files and source map files: bad ones are refused, good ones come back byte by byte. */
#include "base/buf.h"
#include "base/err.h"
#include "extract/internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_map(const uint8_t *data, size_t bytes)
{
	struct wb_srcmap *s = NULL;
	struct wb_err err;
	struct wb_buf b;

	if (wb_srcmap_decode(data, bytes, &s, &err) < 0)
		return;
	wb_buf_init(&b, SIZE_MAX / 4);
	if (wb_srcmap_encode(s, &b) < 0 || b.len != bytes || memcmp(b.data, data, bytes))
		abort();
	wb_buf_reset(&b);
	if (wb_srcmap_report(s, &b) < 0)
		abort();
	wb_buf_finish(&b);
	wb_srcmap_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const uint8_t *payload;
	struct wb_digest name = {0, 0};
	const char *why = NULL;
	size_t n = 0;

	/* The digests of a cache file are beyond a fuzzer: read the payload as it stands too. */
	if (bytes >= 24)
		memcpy(&name, data + 8, sizeof(name));
	payload = wb__cache_check(data, bytes, name, &n, &why);
	if (payload ? n > bytes : !why)
		abort();
	read_map(data, bytes);
	return 0;
}
