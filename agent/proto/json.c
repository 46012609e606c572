/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON codec of codec.h, and those functions of messages.h that take both encodings. */
#include "proto/codec.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "proto/internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

/* ---- write ----------------------------------------------------------------------------------- */

static int put_object(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err);

static void put_u64(struct wb_buf *out, uint64_t v)
{
	/* Many JSON libraries hold integers in 63 bits, so a greater number is a string. */
	wb_buf_printf(out, v > INT64_MAX ? "\"%llu\"" : "%llu", (unsigned long long)v);
}

static void put_digest(struct wb_buf *out, struct wb_digest d)
{
	char text[WB_DIGEST_TEXT];

	wb_buf_json_str(out, wb_digest_is_none(d) ? "" : wb_digest_text(d, text));
}

static void put_word(const struct wb_fdef *f, uint32_t number, uint32_t version, struct wb_buf *out)
{
	if (version >= WBF_WORDS_SINCE)
		put_u64(out, number);
	else
		wb_buf_json_str(out, wb_word(f->words, number));
}

static int put_array(const struct wb_fdef *f, const void *msg, uint32_t version, struct wb_buf *out,
	struct wb_err *err)
{
	const void *p = wb__pointer_in(msg, f);
	uint32_t n = wb__count_in(msg, f);
	int rc;

	wb_buf_u8(out, '[');
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			wb_buf_u8(out, ',');
		if (f->kind == WBF_U32S) {
			put_u64(out, ((const uint32_t *)p)[i]);
		} else if (f->kind == WBF_U64S) {
			put_u64(out, ((const uint64_t *)p)[i]);
		} else if (f->kind == WBF_STRS) {
			wb_buf_json_str(out, ((const char *const *)p)[i]);
		} else if (f->kind == WBF_WORDS) {
			put_word(f, ((const uint32_t *)p)[i], version, out);
		} else {
			rc = put_object(f->sub, (const char *)p + (size_t)i * f->sub->bytes,
				version, out, err);
			if (rc < 0)
				return wb_err_wrap(err, rc, "%s[%u]", f->name, i);
		}
	}
	wb_buf_u8(out, ']');
	return 0;
}

static int put_value(const struct wb_fdef *f, const void *msg, uint32_t version, struct wb_buf *out,
	struct wb_err *err)
{
	const void *at = wb__field_in(msg, f);
	int rc = wb__check_value(f, msg, err);

	if (rc < 0)
		return rc;
	switch ((enum wb_fkind)f->kind) {
	case WBF_BOOL:
		wb_buf_printf(out, "%s", *(const bool *)at ? "true" : "false");
		return 0;
	case WBF_U32:
		put_u64(out, *(const uint32_t *)at);
		return 0;
	case WBF_U64:
		put_u64(out, *(const uint64_t *)at);
		return 0;
	case WBF_I64:
		wb_buf_printf(out, "%lld", (long long)*(const int64_t *)at);
		return 0;
	case WBF_STR:
		wb_buf_json_str(out, wb__pointer_in(msg, f));
		return 0;
	case WBF_WORD:
		put_word(f, *(const uint32_t *)at, version, out);
		return 0;
	case WBF_DIGEST:
		put_digest(out, *(const struct wb_digest *)at);
		return 0;
	case WBF_BLOB:
		return wb_err_set(err, -ENOTSUP, "%s: bytes do not travel in JSON", f->name);
	case WBF_STRUCT:
		rc = put_object(f->sub, at, version, out, err);
		return rc < 0 ? wb_err_wrap(err, rc, "%s", f->name) : 0;
	case WBF_U32S:
	case WBF_U64S:
	case WBF_STRS:
	case WBF_WORDS:
	case WBF_STRUCTS:
		return put_array(f, msg, version, out, err);
	}
	return -EINVAL;
}

static int put_object(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err)
{
	char before = '{';
	int rc;

	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];

		if (f->since > version || ((f->flags & WBF_OPT) && wb__is_empty(f, msg)))
			continue;
		wb_buf_printf(out, "%c\"%s\":", before, f->name);
		before = ',';
		rc = put_value(f, msg, version, out, err);
		if (rc < 0)
			return rc;
	}
	wb_buf_printf(out, before == '{' ? "{}" : "}");
	return 0;
}

int wb_table_encode_json(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err)
{
	int rc = put_object(t, msg, version, out, err);

	if (rc < 0)
		return wb_err_wrap(err, rc, "message %s", t->name);
	if (out->rc < 0)
		return wb_err_set(err, out->rc, "message %s: %s", t->name, wb_strerror(out->rc));
	return 0;
}

/* ---- read ------------------------------------------------------------------------------------ */

struct reader {
	uint32_t version;
	bool is_newer; /* the body's version is above ours: unknown names are allowed */
	struct wb_err *err;
};

static int get_object(const struct reader *r, const struct wb_table *t, const json_t *j, void *msg);

static int not_a(const struct reader *r, const struct wb_fdef *f, const char *what)
{
	return wb_err_set(r->err, -EBADMSG, "%s: not %s", f->name, what);
}

static int no_memory(const struct reader *r, const struct wb_fdef *f)
{
	return wb_err_set(r->err, -ENOMEM, "%s: out of memory", f->name);
}

static bool parse_u64(const json_t *j, uint64_t *out)
{
	const char *s = json_string_value(j);
	char *end;

	if (json_is_integer(j) && json_integer_value(j) >= 0) {
		*out = (uint64_t)json_integer_value(j);
		return true;
	}
	/* Exactly the form that put_u64() writes: 19 or 20 digits above 2^63 - 1. */
	if (!s || strlen(s) > 20 || strspn(s, "0123456789") != strlen(s))
		return false;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return !errno && *s && !*end && *out > INT64_MAX && s[0] != '0';
}

static int get_number(const struct reader *r, const struct wb_fdef *f, const json_t *j, void *at)
{
	uint64_t max = f->max ? f->max : f->kind == WBF_U32 ? UINT32_MAX : UINT64_MAX;
	uint64_t v;

	if (f->kind == WBF_I64) {
		if (!json_is_integer(j))
			return not_a(r, f, "an integer");
		*(int64_t *)at = json_integer_value(j);
		return 0;
	}
	if (!parse_u64(j, &v))
		return not_a(r, f, "an integer of 0 or more");
	if (v > max)
		return wb_err_set(r->err, -EBADMSG, "%s: %llu, at most %llu is allowed", f->name,
			(unsigned long long)v, (unsigned long long)max);
	if (f->kind == WBF_U32)
		*(uint32_t *)at = (uint32_t)v;
	else
		*(uint64_t *)at = v;
	return 0;
}

static int get_str(const struct reader *r, const struct wb_fdef *f, const json_t *j, size_t max,
	bool null_if_empty, char **out)
{
	size_t len = json_string_length(j);

	if (!json_is_string(j))
		return not_a(r, f, "a string");
	if (len > max)
		return wb_err_set(r->err, -EBADMSG, "%s: %zu bytes, at most %zu are allowed",
			f->name, len, max);
	if (!len && null_if_empty)
		return 0;
	*out = wb_strndup(json_string_value(j), len);
	return *out ? 0 : no_memory(r, f);
}

static int get_word(const struct reader *r, const struct wb_fdef *f, const json_t *j, uint32_t *out)
{
	size_t max = f->kind == WBF_WORD ? f->max : WB_STRS_ITEM_MAX;
	uint64_t v;

	if (r->version >= WBF_WORDS_SINCE) {
		if (!parse_u64(j, &v) || v > UINT32_MAX)
			return not_a(r, f, "an integer of 0 to 4294967295");
		*out = (uint32_t)v;
		return 0;
	}
	if (!json_is_string(j) || json_string_length(j) > max)
		return not_a(r, f, "a word");
	*out = (uint32_t)wb_word_number(f->words, json_string_value(j));
	return 0;
}

static int get_item(const struct reader *r, const struct wb_fdef *f, const json_t *j, void *at)
{
	uint64_t v;

	switch ((enum wb_fkind)f->kind) {
	case WBF_U32S:
		if (!parse_u64(j, &v) || v > UINT32_MAX)
			return not_a(r, f, "an integer of 0 to 4294967295");
		*(uint32_t *)at = (uint32_t)v;
		return 0;
	case WBF_U64S:
		if (!parse_u64(j, &v))
			return not_a(r, f, "an integer of 0 or more");
		*(uint64_t *)at = v;
		return 0;
	case WBF_STRS:
		return get_str(r, f, j, WB_STRS_ITEM_MAX, false, at);
	case WBF_WORDS:
		return get_word(r, f, j, at);
	default:
		return get_object(r, f->sub, j, at);
	}
}

static int get_array(const struct reader *r, const struct wb_fdef *f, const json_t *j, void *msg)
{
	size_t n = json_array_size(j);
	size_t bytes = f->kind == WBF_U32S || f->kind == WBF_WORDS ? sizeof(uint32_t)
		       : f->kind == WBF_U64S                       ? sizeof(uint64_t)
		       : f->kind == WBF_STRS                       ? sizeof(char *)
								   : f->sub->bytes;
	char *p;
	int rc;

	if (!json_is_array(j))
		return not_a(r, f, "an array");
	if (n > f->max)
		return wb_err_set(r->err, -EBADMSG, "%s: %zu elements, at most %u are allowed",
			f->name, n, f->max);
	if (!n)
		return 0;
	p = wb_zalloc(n, bytes);
	if (!p)
		return no_memory(r, f);
	memcpy(wb__field(msg, f), &p, sizeof(p));
	*wb__count(msg, f) = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		rc = get_item(r, f, json_array_get(j, i), p + i * bytes);
		if (rc < 0)
			return f->kind == WBF_STRUCTS
				       ? wb_err_wrap(r->err, rc, "%s[%zu]", f->name, i)
				       : rc;
	}
	return 0;
}

static int get_value(const struct reader *r, const struct wb_fdef *f, const json_t *j, void *msg)
{
	void *at = wb__field(msg, f);
	const char *s;
	int rc;

	switch ((enum wb_fkind)f->kind) {
	case WBF_BOOL:
		if (!json_is_boolean(j))
			return not_a(r, f, "true or false");
		*(bool *)at = json_is_true(j);
		return 0;
	case WBF_U32:
	case WBF_U64:
	case WBF_I64:
		return get_number(r, f, j, at);
	case WBF_STR:
		return get_str(r, f, j, f->max, f->flags & WBF_OPT, at);
	case WBF_WORD:
		return get_word(r, f, j, at);
	case WBF_DIGEST:
		s = json_string_value(j);
		if (!s || (*s && wb_digest_parse(s, at) < 0))
			return not_a(r, f, "a digest");
		return 0;
	case WBF_STRUCT:
		rc = get_object(r, f->sub, j, at);
		return rc < 0 ? wb_err_wrap(r->err, rc, "%s", f->name) : 0;
	case WBF_BLOB:
		return wb_err_set(r->err, -EBADMSG, "%s: bytes do not travel in JSON", f->name);
	case WBF_U32S:
	case WBF_U64S:
	case WBF_STRS:
	case WBF_WORDS:
	case WBF_STRUCTS:
		return get_array(r, f, j, msg);
	}
	return -EBADMSG;
}

static bool is_known(const struct reader *r, const struct wb_table *t, const char *name)
{
	for (uint32_t i = 0; i < t->n_field; i++)
		if (t->field[i].since <= r->version && !strcmp(t->field[i].name, name))
			return true;
	return false;
}

static int refuse_unknown(const struct reader *r, const struct wb_table *t, const json_t *j)
{
	void *it = json_object_iter((json_t *)(uintptr_t)j);

	for (; it; it = json_object_iter_next((json_t *)(uintptr_t)j, it))
		if (!is_known(r, t, json_object_iter_key(it)))
			return wb_err_set(r->err, -EBADMSG, "unknown field \"%.64s\" in version %u",
				json_object_iter_key(it), r->version);
	return 0;
}

static int get_object(const struct reader *r, const struct wb_table *t, const json_t *j, void *msg)
{
	size_t seen = 0;
	int rc;

	if (!json_is_object(j))
		return wb_err_set(r->err, -EBADMSG, "%s is not an object", t->name);
	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];
		const json_t *v = f->since <= r->version ? json_object_get(j, f->name) : NULL;

		if (v) {
			seen++;
			rc = get_value(r, f, v, msg);
			if (rc < 0)
				return rc;
		} else if (f->since <= r->version && !(f->flags & WBF_OPT)) {
			return wb_err_set(r->err, -EBADMSG, "%s: is missing", f->name);
		}
	}
	return seen == json_object_size(j) || r->is_newer ? 0 : refuse_unknown(r, t, j);
}

int wb_table_decode_json(const struct wb_table *t, const void *p, size_t bytes, uint32_t version,
	uint32_t our_version, void *msg, struct wb_err *err)
{
	const struct reader r = {version, version > our_version, err};
	json_error_t why;
	json_t *j;
	int rc;

	memset(msg, 0, t->bytes);
	j = json_loadb(p, bytes, JSON_REJECT_DUPLICATES, &why);
	if (!j && json_error_code(&why) == json_error_out_of_memory)
		return wb_err_set(err, -ENOMEM, "message %s: out of memory", t->name);
	if (!j)
		return wb_err_set(err, -EBADMSG, "message %s: not JSON: line %d, column %d: %s",
			t->name, why.line, why.column, why.text);
	rc = get_object(&r, t, j, msg);
	json_decref(j);
	if (!rc)
		return 0;
	wb_table_clear(t, msg);
	return wb_err_wrap(err, rc, "message %s", t->name);
}

/* ---- messages -------------------------------------------------------------------------------- */

int wb_msg_encode(const struct wb_frame *f, const void *msg, struct wb_buf *out, struct wb_err *err)
{
	const struct wb_msg_info *m = wb_msg_info(f->type);

	assert(m);
	return m->encoding == WB_ENC_BIN
		       ? wb_msg_encode_bin(f, msg, out, err)
		       : wb__msg_encode(f, m, msg, wb_table_encode_json, out, err);
}

int wb_msg_decode(const struct wb_frame *f, const void *body, void *msg, struct wb_err *err)
{
	const struct wb_msg_info *m = wb_msg_info(f->type);

	if (!m)
		return wb_err_set(err, -EBADMSG, "unknown message number 0x%x", f->type);
	if (m->encoding == WB_ENC_BIN)
		return wb_msg_decode_bin(f, body, msg, err);
	return wb_table_decode_json(
		m->table, body, f->bytes, f->version, WBP_VERSION_MAX, msg, err);
}
