/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL /* inlined: libweightbridge links libc alone */
#include <xxhash.h>

struct wb_digest wb_digest_of(const void *p, size_t bytes)
{
	XXH128_hash_t h = XXH3_128bits(p, bytes);

	return (struct wb_digest){h.high64, h.low64};
}

char *wb_digest_text(struct wb_digest d, char *out)
{
	snprintf(out, WB_DIGEST_TEXT, "xxh128:%016llx%016llx", (unsigned long long)d.hi,
		(unsigned long long)d.lo);
	return out;
}

static int hex64(const char *s, uint64_t *out)
{
	uint64_t v = 0;

	for (int i = 0; i < 16; i++) {
		const char *digits = "0123456789abcdef";
		const char *at = s[i] ? strchr(digits, s[i]) : NULL;

		if (!at)
			return -EINVAL;
		v = v << 4 | (uint64_t)(at - digits);
	}
	*out = v;
	return 0;
}

int wb_digest_parse(const char *s, struct wb_digest *out)
{
	struct wb_digest d;

	if (strncmp(s, "xxh128:", 7) || strlen(s) != WB_DIGEST_TEXT - 1)
		return -EINVAL;
	if (hex64(s + 7, &d.hi) || hex64(s + 23, &d.lo))
		return -EINVAL;
	*out = d;
	return 0;
}

uint64_t wb_hash64(const void *p, size_t bytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, bytes, seed);
}
