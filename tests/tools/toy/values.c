/* SPDX-License-Identifier: Apache-2.0 */
/* What the parameters hold in each version, and who looks at them. */
#include "base/base.h"
#include "base/mem.h"
#include "tests/tools/toy/toy.h"

#include <stdio.h>
#include <time.h>

static uint32_t element(int64_t version, uint32_t tensor, uint64_t k)
{
	return (uint32_t)wb_mix64((uint64_t)version << 48 ^ (uint64_t)tensor << 40 ^ k);
}

static uint64_t key(const struct toy *t, uint32_t r, uint32_t c)
{
	return (uint64_t)(t->row0 + r) * t->cols + t->col0 + c;
}

/* What a parameter has for an element: itself, or rounded to BF16 (to nearest, ties to even). */
static uint32_t stored(const struct toy *t, int64_t version, uint32_t tensor, uint64_t k)
{
	uint32_t x = element(version, tensor, k);

	if (t->floats)
		x = (x & 0x807fffff) | 0x3f800000;
	return t->rounds ? (x + 0x7fff + (x >> 16 & 1)) >> 16 : x;
}

static uint32_t held(const struct toy *t, size_t i)
{
	return t->rounds ? ((const uint16_t *)t->data)[i] : t->data[i];
}

void toy_fill(struct toy *t, int64_t version)
{
	size_t i = 0;

	for (uint32_t x = 0; x < t->tensors; x++)
		for (uint32_t r = 0; r < t->n_row; r++)
			for (uint32_t c = 0; c < t->n_col; c++, i++) {
				uint32_t e = stored(t, version, x, key(t, r, c));

				if (t->rounds)
					((uint16_t *)t->data)[i] = (uint16_t)e;
				else
					t->data[i] = e;
			}
	toy_device_push(t);
}

/* Number of wrong elements; the first one is described. */
static uint64_t check(const struct toy *t, int64_t version, char *what, size_t cap)
{
	uint64_t bad = 0;
	size_t i = 0;

	what[0] = '\0';
	for (uint32_t x = 0; x < t->tensors; x++)
		for (uint32_t r = 0; r < t->n_row; r++)
			for (uint32_t c = 0; c < t->n_col; c++, i++)
				if (held(t, i) != stored(t, version, x, key(t, r, c)) && !bad++)
					snprintf(what, cap, "tensor %u row %u col %u", x, r, c);
	return bad;
}

void toy_say_checked(const struct toy *t, const char *verb, int64_t version)
{
	char what[96];
	uint64_t bad;

	toy_device_pull(t);
	bad = check(t, version, what, sizeof(what));

	if (bad)
		toy_say("%s %lld bad: %llu elements, first at %s", verb, (long long)version,
			(unsigned long long)bad, what);
	else
		toy_say("%s %lld ok", verb, (long long)version);
}

/* ---- --watch --------------------------------------------------------------------------------- */

/* Reads while others write: that is the point. */
__attribute__((no_sanitize("thread"))) void *toy_watch(void *arg)
{
	struct toy *t = arg;
	const volatile uint32_t *p = t->data;
	size_t n = t->bytes / sizeof(uint32_t);
	uint32_t *last = wb_zalloc(n, sizeof(*last));
	struct timespec pause = {0, 500000};

	for (size_t i = 0; i < n; i++)
		last[i] = p[i];
	for (;;) {
		for (size_t i = 0; i < n; i++) {
			if (last[i] == p[i])
				continue;
			last[i] = p[i];
			if (!__atomic_load_n(&t->first_ns, __ATOMIC_ACQUIRE))
				__atomic_store_n(&t->first_ns, toy_now(), __ATOMIC_RELEASE);
		}
		__atomic_fetch_add(&t->looks, 1, __ATOMIC_ACQ_REL);
		(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

void toy_watched(const struct toy *t)
{
	unsigned before = __atomic_load_n(&t->looks, __ATOMIC_ACQUIRE);
	struct timespec pause = {0, 1000000};

	/* The look that goes on may have been past the byte; the next one is not. */
	while (__atomic_load_n(&t->looks, __ATOMIC_ACQUIRE) - before < 2)
		(void)nanosleep(&pause, NULL);
}

int toy_before(void *cookie, const struct wb_client_update *u)
{
	struct toy *t = cookie;

	(void)u;
	t->begin_ns = toy_now();
	/* A byte that changed before the hook ran would stay for all to see. */
	if (__atomic_load_n(&t->first_ns, __ATOMIC_ACQUIRE))
		toy_say("bad: a byte changed before before_update_hook");
	return 0;
}

void toy_say_blocked(struct toy *t, int64_t version)
{
	uint64_t end = toy_now();

	toy_watched(t);
	toy_say("blocked %lld ms=%.1f first=%.1f", (long long)version,
		(double)(end - t->begin_ns) / 1e6,
		((double)t->first_ns - (double)t->begin_ns) / 1e6);
	__atomic_store_n(&t->first_ns, 0, __ATOMIC_RELEASE);
}
