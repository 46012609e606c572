/* SPDX-License-Identifier: Apache-2.0 */
/* A watch stream from anywhere, cut anywhere: the same events and the same end as in one piece. */
#include "base/err.h"
#include "base/hash.h"
#include "operator-shim/kube/cursor.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	uint64_t hash;
	unsigned n;
};

static int note(void *cookie, enum wb_kube_event what, json_t *o)
{
	struct seen *s = cookie;
	char *text = o ? json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT) : NULL;

	s->hash = wb_hash64(text ? text : "", text ? strlen(text) : 0, s->hash + (uint64_t)what);
	s->n++;
	free(text);
	return what == WB_KUBE_ERROR ? -1 : 0;
}

static int run(const uint8_t *p, size_t n, size_t step, struct seen *s)
{
	struct wb_kube_cursor c;
	struct wb_err err = {0};
	int rc = 0;

	wb_kube_cursor_init(&c, 512, note, s);
	for (size_t at = 0; at < n && rc == 0; at += step)
		rc = wb_kube_cursor_feed(&c, p + at, n - at < step ? n - at : step, &err);
	if (rc == 0)
		rc = wb_kube_cursor_end(&c, &err);
	if (rc < -1 && !err.msg[0])
		abort();
	wb_kube_cursor_finish(&c);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole = {0}, cut = {0};
	size_t step = size ? 1 + data[0] % 7 : 1;

	if (run(data, size, size ? size : 1, &whole) != run(data, size, step, &cut) ||
		whole.hash != cut.hash || whole.n != cut.n)
		abort();
	return 0;
}
