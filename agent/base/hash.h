/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_HASH_H
#define WB_BASE_HASH_H
/*
 * Content digests: XXH3-128, written "xxh128:" and 32 hex digits.  For maps, manifests, plans and
 * caches; the bytes on the wire have their own sum (kernels.h).  Layer: base (L0).  Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_digest {
	uint64_t hi, lo; /* both 0 = none */
};

#define WB_DIGEST_TEXT 40 /* "xxh128:" + 32 hex + NUL */

/** wb_digest_of - the digest of @bytes bytes.  It is not keyed, so it proves nothing against
 * somebody who chooses the bytes. */
struct wb_digest wb_digest_of(const void *p, size_t bytes);
/** wb_digest_eq - true when both are the same; two digests that are none are equal. */
static inline bool wb_digest_eq(struct wb_digest a, struct wb_digest b)
{
	return a.hi == b.hi && a.lo == b.lo;
}
/** wb_digest_is_none - true for {0, 0}, which stands for "no digest". */
static inline bool wb_digest_is_none(struct wb_digest a)
{
	return !a.hi && !a.lo;
}
/** wb_digest_text - write the text form into @out (WB_DIGEST_TEXT bytes); returns @out. */
char *wb_digest_text(struct wb_digest d, char *out);
/** wb_digest_parse - read a digest's text form.  0, or -EINVAL when @s is none. */
int wb_digest_parse(const char *s, struct wb_digest *out);
/** wb_hash64 - seeded 64-bit hash of a byte string. */
uint64_t wb_hash64(const void *p, size_t bytes, uint64_t seed);
/** wb_mix64 - bijective mixing of one word (splitmix64's finaliser). */
static inline uint64_t wb_mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* A seeded generator (splitmix64): the same seed gives the same sequence everywhere. */
/** wb_apart_ns - a random wait in [ns / 2, ns * 3 / 2), so that when many fail at once, each tries
 * again at another moment.  @seed: made of who waits, and of the number of the try. */
static inline uint64_t wb_apart_ns(uint64_t ns, uint64_t seed)
{
	return ns / 2 + (uint64_t)(((unsigned __int128)wb_mix64(seed) * ns) >> 64);
}

struct wb_rng {
	uint64_t state;
};
/** wb_rng_u64 - the next number of the sequence; only one thread may use a generator. */
static inline uint64_t wb_rng_u64(struct wb_rng *r)
{
	r->state += 0x9e3779b97f4a7c15u;
	return wb_mix64(r->state);
}
/** wb_rng_below - uniform in [0, n), n > 0 (bias below 2^-32 for n < 2^32). */
static inline uint64_t wb_rng_below(struct wb_rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)wb_rng_u64(r) * n) >> 64);
}

#endif
