/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "proto/internal.h"

#include <errno.h>

static int over(const struct wb_fdef *f, uint64_t value, struct wb_err *err)
{
	return wb_err_set(err, -EINVAL, "%s: %llu is above the limit of %u", f->name,
		(unsigned long long)value, f->max);
}

int wb__check_value(const struct wb_fdef *f, const void *msg, struct wb_err *err)
{
	const void *at = wb__field_in(msg, f);
	const char *const *strs;
	const char *s;
	uint64_t v = 0;
	uint32_t n;

	switch ((enum wb_fkind)f->kind) {
	case WBF_BOOL:
	case WBF_I64:
	case WBF_DIGEST:
	case WBF_WORD:
	case WBF_STRUCT:
		return 0;
	case WBF_U32:
		v = *(const uint32_t *)at;
		return f->max && v > f->max ? over(f, v, err) : 0;
	case WBF_U64:
		v = *(const uint64_t *)at;
		return f->max && v > f->max ? over(f, v, err) : 0;
	case WBF_STR:
		s = wb__pointer_in(msg, f);
		v = s ? strlen(s) : 0;
		return v > f->max ? over(f, v, err) : 0;
	case WBF_STRS:
		strs = wb__pointer_in(msg, f);
		n = wb__count_in(msg, f);
		for (uint32_t i = 0; n <= f->max && i < n; i++)
			if (strs[i] && strlen(strs[i]) > WB_STRS_ITEM_MAX)
				return wb_err_set(err, -EINVAL, "%s[%u]: longer than %u bytes",
					f->name, i, WB_STRS_ITEM_MAX);
		return n > f->max ? over(f, n, err) : 0;
	case WBF_BLOB:
	case WBF_U32S:
	case WBF_U64S:
	case WBF_WORDS:
	case WBF_STRUCTS:
		n = wb__count_in(msg, f);
		return n > f->max ? over(f, n, err) : 0;
	}
	return wb_err_set(err, -EINVAL, "%s: unknown kind %u", f->name, f->kind);
}

bool wb__is_empty(const struct wb_fdef *f, const void *msg)
{
	const void *at = wb__field_in(msg, f);
	const char *s;

	switch ((enum wb_fkind)f->kind) {
	case WBF_BOOL:
		return !*(const bool *)at;
	case WBF_U32:
	case WBF_WORD:
		return !*(const uint32_t *)at;
	case WBF_U64:
	case WBF_I64:
		return !*(const uint64_t *)at;
	case WBF_STR:
		s = wb__pointer_in(msg, f);
		return !s || !*s;
	case WBF_DIGEST:
		return wb_digest_is_none(*(const struct wb_digest *)at);
	case WBF_STRUCT:
		return false;
	default:
		return !wb__count_in(msg, f);
	}
}

/* ---- binary: write --------------------------------------------------------------------------- */

static int put_struct(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err);

static void put_word(const struct wb_fdef *f, uint32_t number, uint32_t version, struct wb_buf *out)
{
	if (version >= WBF_WORDS_SINCE)
		wb_buf_u32(out, number);
	else
		wb_buf_str(out, wb_word(f->words, number));
}

static int put_structs(const struct wb_fdef *f, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err)
{
	const char *elem = wb__pointer_in(msg, f);
	uint32_t n = wb__count_in(msg, f);
	int rc;

	wb_buf_u32(out, n);
	for (uint32_t i = 0; i < n; i++) {
		rc = put_struct(f->sub, elem + (size_t)i * f->sub->bytes, version, out, err);
		if (rc < 0)
			return wb_err_wrap(err, rc, "%s[%u]", f->name, i);
	}
	return 0;
}

static int put_field(const struct wb_fdef *f, const void *msg, uint32_t version, struct wb_buf *out,
	struct wb_err *err)
{
	const void *at = wb__field_in(msg, f), *p = NULL;
	int rc = wb__check_value(f, msg, err);
	uint32_t n = 0;

	if (rc < 0)
		return rc;
	if (f->n_offset) {
		p = wb__pointer_in(msg, f);
		n = wb__count_in(msg, f);
	}
	switch ((enum wb_fkind)f->kind) {
	case WBF_BOOL:
		wb_buf_u8(out, *(const bool *)at);
		return 0;
	case WBF_U32:
		wb_buf_u32(out, *(const uint32_t *)at);
		return 0;
	case WBF_U64:
	case WBF_I64:
		wb_buf_u64(out, *(const uint64_t *)at);
		return 0;
	case WBF_STR:
		wb_buf_str(out, wb__pointer_in(msg, f));
		return 0;
	case WBF_DIGEST:
		wb_buf_u64(out, ((const struct wb_digest *)at)->hi);
		wb_buf_u64(out, ((const struct wb_digest *)at)->lo);
		return 0;
	case WBF_BLOB:
		wb_buf_u32(out, n);
		wb_buf_put(out, p, n);
		return 0;
	case WBF_U32S:
		wb_buf_u32(out, n);
		for (uint32_t i = 0; i < n; i++)
			wb_buf_u32(out, ((const uint32_t *)p)[i]);
		return 0;
	case WBF_U64S:
		wb_buf_u32(out, n);
		for (uint32_t i = 0; i < n; i++)
			wb_buf_u64(out, ((const uint64_t *)p)[i]);
		return 0;
	case WBF_STRS:
		wb_buf_u32(out, n);
		for (uint32_t i = 0; i < n; i++)
			wb_buf_str(out, ((const char *const *)p)[i]);
		return 0;
	case WBF_WORD:
		put_word(f, *(const uint32_t *)at, version, out);
		return 0;
	case WBF_WORDS:
		wb_buf_u32(out, n);
		for (uint32_t i = 0; i < n; i++)
			put_word(f, ((const uint32_t *)p)[i], version, out);
		return 0;
	case WBF_STRUCT:
		rc = put_struct(f->sub, at, version, out, err);
		return rc < 0 ? wb_err_wrap(err, rc, "%s", f->name) : 0;
	case WBF_STRUCTS:
		return put_structs(f, msg, version, out, err);
	}
	return -EINVAL;
}

static int put_struct(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err)
{
	int rc;

	for (uint32_t i = 0; i < t->n_field; i++) {
		if (t->field[i].since > version)
			continue;
		rc = put_field(&t->field[i], msg, version, out, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int wb_table_encode_bin(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err)
{
	int rc = put_struct(t, msg, version, out, err);

	if (rc < 0)
		return wb_err_wrap(err, rc, "message %s", t->name);
	if (out->rc < 0)
		return wb_err_set(err, out->rc, "message %s: %s", t->name, wb_strerror(out->rc));
	return 0;
}

/* ---- binary: read ---------------------------------------------------------------------------- */

/* The fewest bytes that one struct takes in a message.  This bounds the count of an array before it
 * is allocated. */
static size_t wire_bytes_min(const struct wb_table *t, uint32_t version)
{
	static const uint8_t least[] = {[WBF_BOOL] = 1,
		[WBF_U32] = 4,
		[WBF_U64] = 8,
		[WBF_I64] = 8,
		[WBF_STR] = 4,
		[WBF_DIGEST] = 16,
		[WBF_BLOB] = 4,
		[WBF_U32S] = 4,
		[WBF_U64S] = 4,
		[WBF_STRS] = 4,
		[WBF_WORD] = 4,
		[WBF_WORDS] = 4,
		[WBF_STRUCT] = 0,
		[WBF_STRUCTS] = 4};
	size_t sum = 0;

	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];

		if (f->since <= version)
			sum += f->kind == WBF_STRUCT ? wire_bytes_min(f->sub, version)
						     : least[f->kind];
	}
	return WB_MAX(sum, 1);
}

static int bad(const struct wb_fdef *f, struct wb_err *err, const char *what)
{
	return wb_err_set(err, -EBADMSG, "%s: %s", f->name, what);
}

static int no_memory(const struct wb_fdef *f, struct wb_err *err)
{
	return wb_err_set(err, -ENOMEM, "%s: out of memory", f->name);
}

static int get_str(const struct wb_fdef *f, struct wb_cursor *c, size_t max, bool null_if_empty,
	char **out, struct wb_err *err)
{
	uint32_t len = wb_cur_u32(c);
	const uint8_t *at;

	if (c->bad)
		return bad(f, err, "the message ends inside it");
	if (len > max)
		return wb_err_set(
			err, -EBADMSG, "%s: %u bytes, at most %zu are allowed", f->name, len, max);
	at = wb_cur_bytes(c, len);
	if (!at)
		return bad(f, err, "the message ends inside it");
	if (memchr(at, 0, len))
		return bad(f, err, "a NUL byte in a string");
	if (!len && null_if_empty)
		return 0;
	*out = wb_strndup((const char *)at, len);
	return *out ? 0 : no_memory(f, err);
}

static int get_word(const struct wb_fdef *f, struct wb_cursor *c, uint32_t version, uint32_t *out,
	struct wb_err *err)
{
	char *text = NULL;
	int rc;

	if (version >= WBF_WORDS_SINCE) {
		*out = wb_cur_u32(c);
		return c->bad ? bad(f, err, "the message ends inside it") : 0;
	}
	rc = get_str(f, c, f->kind == WBF_WORD ? f->max : WB_STRS_ITEM_MAX, false, &text, err);
	if (rc < 0)
		return rc;
	*out = (uint32_t)wb_word_number(f->words, text);
	wb_free(text);
	return 0;
}

static int get_struct(const struct wb_table *t, struct wb_cursor *c, uint32_t version, void *msg,
	struct wb_err *err);

/* Reads the count of an array and allocates zeroed memory for its elements, of @bytes each, if the
 * input has at least @wire bytes for each.  @out: that memory; NULL for an empty array. */
static int get_room(const struct wb_fdef *f, struct wb_cursor *c, size_t wire, size_t bytes,
	void *msg, void **out, struct wb_err *err)
{
	uint32_t n = wb_cur_u32(c);
	void *p;

	if (c->bad)
		return bad(f, err, "the message ends inside it");
	if (n > f->max)
		return wb_err_set(
			err, -EBADMSG, "%s: %u, at most %u are allowed", f->name, n, f->max);
	if (n > wb_cur_left(c) / wire)
		return bad(f, err, "the message ends inside it");
	*out = NULL;
	if (!n)
		return 0;
	p = wb_zalloc(n, bytes);
	if (!p)
		return no_memory(f, err);
	memcpy(wb__field(msg, f), &p, sizeof(p));
	*wb__count(msg, f) = n;
	*out = p;
	return 0;
}

static int get_array(const struct wb_fdef *f, struct wb_cursor *c, uint32_t version, void *msg,
	struct wb_err *err)
{
	size_t wire = f->kind == WBF_STRUCTS ? wire_bytes_min(f->sub, version)
		      : f->kind == WBF_U64S  ? 8
		      : f->kind == WBF_BLOB  ? 1
					     : 4;
	size_t bytes = f->kind == WBF_STRUCTS ? f->sub->bytes
		       : f->kind == WBF_STRS  ? sizeof(char *)
					      : wire;
	void *p = NULL;
	int rc = get_room(f, c, wire, bytes, msg, &p, err);
	uint32_t n = wb__count_in(msg, f);

	if (rc < 0 || !p)
		return rc;
	if (f->kind == WBF_BLOB)
		memcpy(p, wb_cur_bytes(c, n), n);
	for (uint32_t i = 0; i < n; i++) {
		if (f->kind == WBF_U32S)
			((uint32_t *)p)[i] = wb_cur_u32(c);
		else if (f->kind == WBF_U64S)
			((uint64_t *)p)[i] = wb_cur_u64(c);
		else if (f->kind == WBF_STRS)
			rc = get_str(f, c, WB_STRS_ITEM_MAX, false, &((char **)p)[i], err);
		else if (f->kind == WBF_WORDS)
			rc = get_word(f, c, version, &((uint32_t *)p)[i], err);
		else if (f->kind == WBF_STRUCTS)
			rc = get_struct(f->sub, c, version, (char *)p + (size_t)i * bytes, err);
		else
			break;
		if (rc < 0)
			return f->kind == WBF_STRUCTS ? wb_err_wrap(err, rc, "%s[%u]", f->name, i)
						      : rc;
	}
	return 0;
}

static int get_number(const struct wb_fdef *f, struct wb_cursor *c, void *at, struct wb_err *err)
{
	uint64_t v = f->kind == WBF_BOOL  ? wb_cur_u8(c)
		     : f->kind == WBF_U32 ? wb_cur_u32(c)
					  : wb_cur_u64(c);

	if (c->bad)
		return bad(f, err, "the message ends inside it");
	if (f->kind == WBF_BOOL && v > 1)
		return bad(f, err, "neither 0 nor 1");
	if (f->kind != WBF_I64 && f->max && v > f->max)
		return wb_err_set(err, -EBADMSG, "%s: %llu, at most %u is allowed", f->name,
			(unsigned long long)v, f->max);
	if (f->kind == WBF_BOOL)
		*(bool *)at = v;
	else if (f->kind == WBF_U32)
		*(uint32_t *)at = (uint32_t)v;
	else
		*(uint64_t *)at = v;
	return 0;
}

static int get_field(const struct wb_fdef *f, struct wb_cursor *c, uint32_t version, void *msg,
	struct wb_err *err)
{
	void *at = wb__field(msg, f);
	struct wb_digest d;
	int rc;

	switch ((enum wb_fkind)f->kind) {
	case WBF_BOOL:
	case WBF_U32:
	case WBF_U64:
	case WBF_I64:
		return get_number(f, c, at, err);
	case WBF_STR:
		return get_str(f, c, f->max, f->flags & WBF_OPT, at, err);
	case WBF_WORD:
		return get_word(f, c, version, at, err);
	case WBF_DIGEST:
		d.hi = wb_cur_u64(c);
		d.lo = wb_cur_u64(c);
		if (c->bad)
			return bad(f, err, "the message ends inside it");
		*(struct wb_digest *)at = d;
		return 0;
	case WBF_STRUCT:
		rc = get_struct(f->sub, c, version, at, err);
		return rc < 0 ? wb_err_wrap(err, rc, "%s", f->name) : 0;
	case WBF_BLOB:
	case WBF_U32S:
	case WBF_U64S:
	case WBF_STRS:
	case WBF_WORDS:
	case WBF_STRUCTS:
		return get_array(f, c, version, msg, err);
	}
	return -EBADMSG;
}

static int get_struct(const struct wb_table *t, struct wb_cursor *c, uint32_t version, void *msg,
	struct wb_err *err)
{
	int rc;

	for (uint32_t i = 0; i < t->n_field; i++) {
		if (t->field[i].since > version)
			continue;
		rc = get_field(&t->field[i], c, version, msg, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int wb_table_decode_bin(const struct wb_table *t, const void *p, size_t bytes, uint32_t version,
	uint32_t our_version, void *msg, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(p, bytes);
	int rc;

	memset(msg, 0, t->bytes);
	rc = get_struct(t, &c, version, msg, err);
	if (!rc && version <= our_version && wb_cur_left(&c))
		rc = wb_err_set(err, -EBADMSG, "%zu bytes are left over", wb_cur_left(&c));
	if (!rc)
		return 0;
	wb_table_clear(t, msg);
	return wb_err_wrap(err, rc, "message %s", t->name);
}

void wb_table_clear(const struct wb_table *t, void *msg)
{
	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];
		void *at = wb__field(msg, f), *p;
		bool is_owner = f->kind == WBF_STR || f->n_offset;
		uint32_t n = f->n_offset ? *wb__count(msg, f) : 0;

		if (f->kind == WBF_STRUCT)
			wb_table_clear(f->sub, at);
		if (!is_owner)
			continue;
		memcpy(&p, at, sizeof(p));
		for (uint32_t k = 0; p && k < n; k++) {
			if (f->kind == WBF_STRS)
				wb_free(((char **)p)[k]);
			else if (f->kind == WBF_STRUCTS)
				wb_table_clear(f->sub, (char *)p + (size_t)k * f->sub->bytes);
			else
				break;
		}
		wb_free(p);
	}
	memset(msg, 0, t->bytes);
}
