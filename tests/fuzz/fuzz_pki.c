/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Secret with the operator's certificates, which anybody with the right may have written: what
 * is due is found, what is made is good.
 *
 * Input: days that have passed, then four PEM texts with a NUL between; or, if the first byte is
 * odd, edits of good ones (place, byte), each of which may leave out a text altogether.
 */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/pki.h"

#include <stdlib.h>
#include <string.h>

#define WALL_S 1700000000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *part(const uint8_t **p, size_t *left)
{
	const uint8_t *end = memchr(*p, 0, *left);
	size_t n = end ? (size_t)(end - *p) : *left;
	char *s = n ? wb_strndup((const char *)*p, n) : NULL;

	*p += end ? n + 1 : n;
	*left -= end ? n + 1 : n;
	return s;
}

static const char *const names[] = {"op.ns.svc", "op.ns.svc.cluster.local"};

static char **text(struct wb__pki *p, uint8_t i)
{
	char **at[] = {&p->ca, &p->ca_key, &p->cert, &p->key};

	return at[i % 4];
}

static void edit(struct wb__pki *p, const uint8_t *data, size_t size)
{
	static struct wb__pki good;
	struct wb__pki_want w = {names, WB_ARRAY_SIZE(names), WALL_S};

	if (!good.ca && wb__pki_make(&good, &w, WB__PKI_CA | WB__PKI_CERT, NULL) < 0)
		abort();
	for (uint8_t i = 0; i < 4; i++)
		*text(p, i) = wb_strdup(*text(&good, i));
	for (; size >= 4; data += 4, size -= 4) {
		char **t = text(p, data[0]);
		size_t at = (size_t)data[1] << 8 | data[2];

		if (data[0] & 64) {
			wb_free(*t);
			*t = NULL;
		} else if (*t && at < strlen(*t)) {
			(*t)[at] = (char)data[3];
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb__pki_want w = {names, WB_ARRAY_SIZE(names), WALL_S};
	struct wb__pki p = {0};
	struct wb_err err = {0};
	unsigned due;

	if (size < 2)
		return 0;
	w.wall_s += data[1] * UINT64_C(864000);
	if (data[0] & 1) {
		edit(&p, data + 2, size - 2);
	} else {
		data += 2;
		size -= 2;
		for (uint8_t i = 0; i < 4; i++)
			*text(&p, i) = part(&data, &size);
	}
	due = wb__pki_due(&p, &w);
	if (wb__pki_make(&p, &w, due, &err) == 0) {
		/* One under a new authority waits until that is known. */
		if (wb__pki_due(&p, &w) & (due == WB__PKI_CA ? WB__PKI_CA : ~0u))
			abort();
	} else if (!err.msg[0]) {
		abort();
	}
	wb__pki_finish(&p);
	return 0;
}
