/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests, the lists of a checkpoint's tensors: make, check, encode and decode them. */
#include "planner/internal.h"
#include "planner/map.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_MAGIC 0x464d4257u /* "WBMF" */
#define MANIFEST_VERSION 1
#define TENSOR_BYTES_MIN 13 /* name length, one name byte, dtype, ndim */
#define BYTES_MAX (UINT64_C(1) << 62)
#define COLS_MAX UINT32_MAX /* a box counts columns in 32 bits */
#define ROWS_MAX (UINT64_C(1) << 40)

static int shape_of(struct wb_tensor *t, struct wb_err *err)
{
	t->rows = 1;
	t->cols = 1;
	if (t->ndim > WB_NDIM_MAX)
		return wb_err_set(err, -EINVAL,
			"tensor %s has %" PRIu32 " dimensions of at most %d", t->name, t->ndim,
			WB_NDIM_MAX);
	for (uint32_t d = 0; d < t->ndim; d++) {
		uint64_t *side = d + 1 == t->ndim ? &t->cols : &t->rows;

		if (!t->shape[d])
			return wb_err_set(err, -EINVAL, "tensor %s has a dimension of 0", t->name);
		if (!wb_mul_u64(*side, t->shape[d], side))
			*side = UINT64_MAX;
	}
	if (t->cols > COLS_MAX || t->rows > ROWS_MAX)
		return wb_err_set(err, -EINVAL,
			"tensor %s is too large: %" PRIu64 " rows of %" PRIu64
			" columns (at most 2^40 rows of 2^32 - 1)",
			t->name, t->rows, t->cols);
	return 0;
}

/* Set the running sums.  shape_of() has limited rows to 2^40, so neither rows times the bytes of an
 * element nor the sum of all rows can overflow; other products and sums are checked. */
static int derive(struct wb_manifest *m, struct wb_err *err)
{
	uint64_t base = 0;

	m->rows = m->bytes = 0;
	for (uint32_t i = 0; i < m->n; i++) {
		struct wb_tensor *t = &m->tensor[i];
		uint64_t bytes;
		int rc = shape_of(t, err);

		if (rc < 0)
			return rc;
		if (!wb_mul_u64(t->rows * wb_dtype_bytes(t->dtype), t->cols, &bytes) ||
			bytes > BYTES_MAX || base > BYTES_MAX - bytes)
			return wb_err_set(err, -EINVAL,
				"tensor %s: the checkpoint image passes 2^62 bytes", t->name);
		t->row_base = m->rows;
		t->byte_base = base;
		m->rows += t->rows;
		m->bytes += bytes;
		base = wb_align_up(base + bytes, 64);
	}
	return 0;
}

struct named {
	const char *name;
	uint32_t tensor;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a;
	const struct named *y = b;

	return strcmp(x->name, y->name);
}

static int index_names(struct wb_manifest *m, struct wb_err *err)
{
	struct named *sorted = wb_zalloc(m->n, sizeof(*sorted));
	int rc = 0;

	m->by_name = wb_zalloc(m->n, sizeof(*m->by_name));
	if (!sorted || !m->by_name) {
		wb_free(sorted);
		return wb_err_set(err, -ENOMEM, "manifest of %" PRIu32 " tensors", m->n);
	}
	for (uint32_t i = 0; i < m->n; i++)
		sorted[i] = (struct named){m->tensor[i].name, i};
	qsort(sorted, m->n, sizeof(*sorted), by_name);
	for (uint32_t i = 0; i < m->n && !rc; i++) {
		m->by_name[i] = sorted[i].tensor;
		if (i && !strcmp(sorted[i - 1].name, sorted[i].name))
			rc = wb_err_set(
				err, -EINVAL, "tensor name %s is listed twice", sorted[i].name);
	}
	wb_free(sorted);
	return rc;
}

/* Set everything that is derived from the tensors, and check it. */
static int finish(struct wb_manifest *m, struct wb_err *err)
{
	struct wb_buf b;
	int rc = derive(m, err);

	if (!rc)
		rc = index_names(m, err);
	if (rc < 0)
		return rc;
	wb_buf_init(&b, SIZE_MAX / 2);
	rc = wb_manifest_encode(m, &b);
	if (rc < 0)
		wb_err_set(err, rc, "manifest of %" PRIu32 " tensors", m->n);
	else
		m->digest = wb_digest_of(b.data, b.len);
	wb_buf_finish(&b);
	return rc;
}

static struct wb_manifest *empty(uint32_t n)
{
	struct wb_manifest *m = wb_zalloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->tensor = wb_zalloc(n, sizeof(*m->tensor));
	if (!m->tensor) {
		wb_free(m);
		return NULL;
	}
	m->n = n;
	return m;
}

static int copy_tensor(struct wb_tensor *to, const struct wb_tensor *from, struct wb_err *err)
{
	if (!from->name || !from->name[0] || strlen(from->name) > WB_NAME_MAX)
		return wb_err_set(err, -EINVAL, "a tensor name is empty or longer than %d bytes",
			WB_NAME_MAX);
	if (!wb_dtype_bytes(from->dtype))
		return wb_err_set(err, -EINVAL, "tensor %s has an unknown dtype", from->name);
	if (from->ndim <= WB_NDIM_MAX)
		memcpy(to->shape, from->shape, from->ndim * sizeof(to->shape[0]));
	to->dtype = from->dtype;
	to->ndim = from->ndim;
	to->name = wb_strdup(from->name);
	return to->name ? 0 : wb_err_set(err, -ENOMEM, "tensor %s", from->name);
}

int wb_manifest_create(
	const struct wb_tensor *tensor, uint32_t n, struct wb_manifest **out, struct wb_err *err)
{
	struct wb_manifest *m;
	int rc = 0;

	assert(out && (tensor || !n));
	if (!n || n > WB_TENSORS_MAX)
		return wb_err_set(err, -EINVAL, "a manifest of %" PRIu32 " tensors (1 to %u)", n,
			WB_TENSORS_MAX);
	m = empty(n);
	if (!m)
		return wb_err_set(err, -ENOMEM, "manifest of %" PRIu32 " tensors", n);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = copy_tensor(&m->tensor[i], &tensor[i], err);
	if (!rc)
		rc = finish(m, err);
	if (rc < 0) {
		wb_manifest_destroy(m);
		return rc;
	}
	*out = m;
	return 0;
}

void wb_manifest_destroy(struct wb_manifest *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n; i++)
		wb_free(m->tensor[i].name);
	wb_free(m->by_name);
	wb_free(m->tensor);
	wb_free(m);
}

int wb_manifest_encode(const struct wb_manifest *m, struct wb_buf *out)
{
	wb_buf_u32(out, MANIFEST_MAGIC);
	wb_buf_u32(out, MANIFEST_VERSION);
	wb_buf_u32(out, m->n);
	wb_buf_u32(out, 0);
	for (uint32_t i = 0; i < m->n; i++) {
		const struct wb_tensor *t = &m->tensor[i];

		wb_buf_str(out, t->name);
		wb_buf_u32(out, t->dtype);
		wb_buf_u32(out, t->ndim);
		for (uint32_t d = 0; d < t->ndim; d++)
			wb_buf_u64(out, t->shape[d]);
	}
	return out->rc;
}

int wb__name_read(struct wb_cursor *c, char **out)
{
	char *s = wb_cur_str(c, WB_NAME_MAX);

	if (!s)
		return c->bad ? -EBADMSG : -ENOMEM;
	if (!s[0]) {
		wb_free(s);
		return -EBADMSG;
	}
	*out = s;
	return 0;
}

static int read_tensor(struct wb_cursor *c, struct wb_tensor *t)
{
	int rc = wb__name_read(c, &t->name);
	uint32_t dtype;

	if (rc < 0)
		return rc;
	dtype = wb_cur_u32(c);
	t->ndim = wb_cur_u32(c);
	if (c->bad || dtype >= WB_DT_COUNT || dtype == WB_DT_NONE || t->ndim > WB_NDIM_MAX)
		return -EBADMSG;
	t->dtype = (enum wb_dtype)dtype;
	for (uint32_t d = 0; d < t->ndim; d++)
		t->shape[d] = wb_cur_u64(c);
	return c->bad ? -EBADMSG : 0;
}

int wb_manifest_decode(const void *p, size_t bytes, struct wb_manifest **out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(p, bytes);
	struct wb_manifest *m;
	uint32_t magic = wb_cur_u32(&c), version = wb_cur_u32(&c);
	uint32_t n = wb_cur_count(&c, WB_TENSORS_MAX, TENSOR_BYTES_MIN);
	uint32_t zero = wb_cur_u32(&c);
	int rc = 0;

	if (c.bad || magic != MANIFEST_MAGIC || version != MANIFEST_VERSION || !n || zero)
		return wb_err_set(err, -EBADMSG, "not a manifest of format %d", MANIFEST_VERSION);
	m = empty(n);
	if (!m)
		return wb_err_set(err, -ENOMEM, "manifest of %" PRIu32 " tensors", n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = read_tensor(&c, &m->tensor[i]);
		if (rc < 0)
			wb_err_set(err, rc,
				"manifest: tensor %" PRIu32 " of %" PRIu32 " is damaged", i, n);
	}
	if (!rc && wb_cur_left(&c))
		rc = wb_err_set(err, -EBADMSG, "manifest: bytes after the last tensor");
	if (!rc) {
		rc = finish(m, err);
		rc = rc == -EINVAL ? -EBADMSG : rc;
		if (rc == -EBADMSG && err)
			err->code = rc;
	}
	if (rc < 0) {
		wb_manifest_destroy(m);
		return rc;
	}
	*out = m;
	return 0;
}
