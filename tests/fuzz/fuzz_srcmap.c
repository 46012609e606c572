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

/* The same as a cache file would hold it, and then cut, lengthened, damaged or another's. */
static void in_file(const uint8_t *data, size_t bytes)
{
	struct wb_digest name = {1, 2}, sum = wb_digest_of(data, bytes);
	const char *why = NULL;
	struct wb_buf b;
	size_t n = 0;

	wb_buf_init(&b, bytes + 64);
	wb_buf_put(&b, "WBMC\1\0\0\0", 8);
	wb_buf_u64(&b, name.hi);
	wb_buf_u64(&b, name.lo);
	wb_buf_u64(&b, sum.hi);
	wb_buf_u64(&b, sum.lo);
	wb_buf_u64(&b, bytes);
	wb_buf_put(&b, data, bytes);
	if (wb__cache_check(b.data, b.len, name, &n, &why) != b.data + 48 || n != bytes)
		abort();
	if (wb__cache_check(b.data, b.len - 1, name, &n, &why) || !why)
		abort();
	b.data[bytes % b.len] ^= 1;
	if (wb__cache_check(b.data, b.len, name, &n, &why))
		abort();
	wb_buf_finish(&b);
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
	if (bytes)
		in_file(data, bytes);
	read_map(data, bytes);
	return 0;
}
