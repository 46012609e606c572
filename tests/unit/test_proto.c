/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "proto/beat.h"
#include "proto/build.h"
#include "proto/messages.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_proto.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_blob(const struct wb_table *t)
{
	for (uint32_t i = 0; i < t->n_field; i++)
		if (t->field[i].kind == WBF_BLOB || (t->field[i].sub && has_blob(t->field[i].sub)))
			return true;
	return false;
}

static void ck_same(const struct wb_buf *a, const struct wb_buf *b, const char *what)
{
	ck_assert_msg(a->len == b->len && !memcmp(a->data, b->data, a->len), "%s: %.*s / %.*s",
		what, (int)a->len, (char *)a->data, (int)b->len, (char *)b->data);
}

/* ---- words ----------------------------------------------------------------------------------- */

#define WORDS(name, P, LIST) {#name, &wb_##name##_words},
static const struct {
	const char *name;
	const struct wb_words *words;
} vocabulary[] = {WB_VOCABULARY(WORDS)};

START_TEST(a_word_is_found_by_its_text)
{
	const struct wb_words *w = vocabulary[_i].words;

	for (uint32_t i = 0; i < w->n; i++)
		if (w->text[i]) {
			int at = wb_word_number(w, w->text[i]);

			ck_assert_msg(at >= 0 && at <= (int)i && !strcmp(w->text[at], w->text[i]),
				"%s: %s", vocabulary[_i].name, w->text[i]);
			ck_assert_str_eq(wb_word(w, i), w->text[i]);
		}
}
END_TEST

START_TEST(what_is_no_word_is_unknown)
{
	const struct wb_words *w = vocabulary[_i].words;

	ck_assert_str_eq(wb_word(w, w->n), "Unknown");
	ck_assert_str_eq(wb_word(w, UINT32_MAX), "Unknown");
	ck_assert_int_eq(wb_word_number(w, ""), -1);
	ck_assert_int_eq(wb_word_number(w, "unknown"), -1);
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->text[i])
			ck_assert_str_eq(wb_word(w, i), "Unknown");
}
END_TEST

/* ---- frames ---------------------------------------------------------------------------------- */

START_TEST(a_frame_header_comes_back_as_it_was)
{
	struct wb_frame f = {1, WB_FRAME_REPLY, WBP_HELLO, 0x1234, 0xdeadbeef}, g;
	struct wb_err err = {0};
	uint8_t b[WB_FRAME_BYTES];
	size_t total;

	wb_frame_encode(&f, b);
	ck_assert_mem_eq(b, "WBP1\x01\x01\x01\x02\x34\x12\0\0\xef\xbe\xad\xde", 16);
	ck_assert_int_eq(wb_frame_decode(b, sizeof(b), &g, &err), 0);
	ck_assert(g.version == 1 && g.flags == 1 && g.type == WBP_HELLO && g.bytes == 0x1234 &&
		  g.id == 0xdeadbeef);
	ck_assert_int_eq(wb_frame_length(NULL, b, &total, &err), 0);
	ck_assert_uint_eq(total, 0x1234 + 16);
}
END_TEST

static const struct {
	size_t at;
	uint8_t value;
	int rc;
	const char *word;
} bad_head[] = {
	{0, 'X', -EBADMSG, "not a WeightBridge peer"},
	{4, 0, -EBADMSG, "version 0"},
	{5, 0x80, -EBADMSG, "flags 0x80"},
	{7, 0x77, -EBADMSG, "0x7701"},
	{10, 0xff, -EMSGSIZE, "HELLO"},
};

START_TEST(a_bad_header_is_refused_by_name)
{
	struct wb_frame f = {1, 0, WBP_HELLO, 10, 0}, g = {0};
	struct wb_err err = {0};
	uint8_t b[WB_FRAME_BYTES];

	wb_frame_encode(&f, b);
	b[bad_head[_i].at] = bad_head[_i].value;
	ck_assert_int_eq(wb_frame_decode(b, sizeof(b), &g, &err), bad_head[_i].rc);
	ck_assert_msg(strstr(err.msg, bad_head[_i].word) != NULL, "%s", err.msg);
	ck_assert_int_eq(g.type, 0);
}
END_TEST

START_TEST(a_short_frame_is_ebadmsg)
{
	struct wb_frame f = {1, 0, WBP_HELLO, 4, 0}, g;
	const uint8_t *body;
	struct wb_err err;
	uint8_t b[WB_FRAME_BYTES + 5] = {0};

	wb_frame_encode(&f, b);
	for (size_t n = 0; n < WB_FRAME_BYTES; n++)
		ck_assert_int_eq(wb_frame_decode(b, n, &g, &err), -EBADMSG);
	for (size_t n = 0; n <= sizeof(b); n++)
		ck_assert_int_eq(wb_frame_check(b, n, &g, &body, &err),
			n == WB_FRAME_BYTES + 4 ? 0 : -EBADMSG);
	ck_assert_ptr_eq(body, b + WB_FRAME_BYTES);
}
END_TEST

static const struct {
	uint32_t our[2], peer[2];
	int rc;
	uint32_t version;
	const char *word;
} agree[] = {
	{{1, 1}, {1, 1}, 0, 1, NULL},
	{{1, 2}, {1, 1}, 0, 1, NULL},
	{{1, 2}, {2, 3}, 0, 2, NULL},
	{{2, 3}, {1, 9}, 0, 3, NULL},
	{{2, 3}, {1, 1}, WB_EVERSION, 0, "upgrade agent a-0"},
	{{1, 1}, {2, 3}, WB_EVERSION, 0, "upgrade this program"},
	{{1, 1}, {0, 3}, -EBADMSG, 0, "0 to 3"},
	{{1, 1}, {3, 2}, -EBADMSG, 0, "3 to 2"},
};

START_TEST(peers_take_the_greatest_version_both_know)
{
	struct wb_err err = {0};
	uint32_t v = 0;

	ck_assert_int_eq(wb_version_agree("agent a-0", agree[_i].our[0], agree[_i].our[1],
				 agree[_i].peer[0], agree[_i].peer[1], &v, &err),
		agree[_i].rc);
	ck_assert_uint_eq(v, agree[_i].version);
	if (agree[_i].word)
		ck_assert_msg(strstr(err.msg, agree[_i].word) != NULL, "%s", err.msg);
}
END_TEST

/* ---- every message --------------------------------------------------------------------------- */

static void check_table(const struct wb_table *t, bool is_json)
{
	ck_assert_msg(t->n_field > 0, "%s has no fields", t->name);
	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];

		ck_assert_msg(f->since >= 1 && f->since <= WBP_VERSION_MAX, "%s.%s: since %u",
			t->name, f->name, f->since);
		for (uint32_t k = 0; k < i; k++)
			ck_assert_str_ne(f->name, t->field[k].name);
		if (f->n_offset || f->kind == WBF_STR)
			ck_assert_msg(f->max > 0, "%s.%s has no bound", t->name, f->name);
		ck_assert_msg(
			f->kind != WBF_BLOB || !is_json, "%s.%s: a blob in JSON", t->name, f->name);
		if (f->sub)
			check_table(f->sub, is_json);
	}
}

START_TEST(tables_are_bounded_and_numbers_unique)
{
	const struct wb_msg_info *m, *o;

	for (uint32_t i = 0; (m = wb_msg_at(i)); i++) {
		check_table(m->table, m->encoding == WB_ENC_JSON);
		ck_assert_ptr_eq(wb_msg_info(m->type), m);
		for (uint32_t k = 0; k < i && (o = wb_msg_at(k)); k++)
			ck_assert(o->type != m->type && strcmp(o->name, m->name));
		if (!strncmp(m->name, "APP_", 4)) {
			ck_assert_int_eq(m->encoding, WB_ENC_BIN);
			ck_assert_uint_le(m->cap + WB_FRAME_BYTES, WBP_DATAGRAM_MAX);
		}
		ck_assert_uint_le(m->table->bytes, sizeof(union wb_msg));
	}
	ck_assert_str_eq(wb_msg_name(0), "?");
}
END_TEST

START_TEST(every_message_comes_back_as_it_was)
{
	const struct wb_msg_info *m;
	struct wb_rng r = {(uint64_t)_i * 7919 + 1};
	struct wb_buf a, b, ja, jb;
	struct wb_err err = {0};
	union wb_msg x, y;

	wb_buf_init(&a, 1 << 22);
	wb_buf_init(&b, 1 << 22);
	wb_buf_init(&ja, 1 << 22);
	wb_buf_init(&jb, 1 << 22);
	for (uint32_t i = 0; (m = wb_msg_at(i)); i++) {
		struct wb_frame f = {WBP_VERSION_MAX, 0, m->type, 0, i}, g;
		const uint8_t *body;

		wb_buf_reset(&a);
		wb_buf_reset(&b);
		wb_buf_reset(&ja);
		wb_buf_reset(&jb);
		memset(&x, 0, sizeof(x));
		fx_fill_msg(m->table, &x, &r, false);
		ck_assert_msg(!wb_msg_encode(&f, &x, &a, &err), "%s", err.msg);
		ck_assert_int_eq(wb_frame_check(a.data, a.len, &g, &body, &err), 0);
		ck_assert(g.type == m->type && g.id == i);
		ck_assert_msg(!wb_msg_decode(&g, body, &y, &err), "seed %d: %s: %.*s", _i, err.msg,
			(int)g.bytes, (const char *)body);
		ck_assert_int_eq(wb_msg_encode(&f, &y, &b, &err), 0);
		ck_same(&a, &b, m->name);
		/* Through the other codec: what it shows of the copy is what it shows of x. */
		if (!has_blob(m->table)) {
			ck_assert_int_eq(wb_table_encode_json(m->table, &x, 1, &ja, &err), 0);
			ck_assert_int_eq(wb_table_encode_json(m->table, &y, 1, &jb, &err), 0);
			ck_same(&ja, &jb, m->name);
			wb_msg_free(m->type, &y);
			ck_assert_int_eq(
				wb_table_decode_json(m->table, ja.data, ja.len, 1, 1, &y, &err), 0);
			wb_buf_reset(&a);
			wb_buf_reset(&b);
			ck_assert_int_eq(wb_table_encode_bin(m->table, &x, 1, &a, &err), 0);
			ck_assert_int_eq(wb_table_encode_bin(m->table, &y, 1, &b, &err), 0);
			ck_same(&a, &b, m->name);
		}
		wb_msg_free(m->type, &x);
		wb_msg_free(m->type, &y);
	}
	wb_buf_finish(&a);
	wb_buf_finish(&b);
	wb_buf_finish(&ja);
	wb_buf_finish(&jb);
}
END_TEST

static bool is_zero(const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const uint8_t *)p)[i])
			return false;
	return true;
}

START_TEST(a_truncated_body_is_ebadmsg_at_every_length)
{
	const struct wb_msg_info *m;
	struct wb_rng r = {42};
	struct wb_err err;
	struct wb_buf a;
	union wb_msg x;

	wb_buf_init(&a, 1 << 22);
	for (uint32_t i = 0; (m = wb_msg_at(i)); i++) {
		struct wb_frame f = {1, 0, m->type, 0, 0};

		wb_buf_reset(&a);
		memset(&x, 0, sizeof(x));
		fx_fill_msg(m->table, &x, &r, true);
		ck_assert_int_eq(wb_msg_encode(&f, &x, &a, &err), 0);
		wb_msg_free(m->type, &x);
		for (size_t n = 0; n + WB_FRAME_BYTES < a.len; n++) {
			uint8_t *cut = wb_memdup(a.data + WB_FRAME_BYTES, n);

			f.bytes = (uint32_t)n;
			memset(&x, 0xaa, sizeof(x));
			ck_assert_int_eq(wb_msg_decode(&f, cut, &x, &err), -EBADMSG);
			ck_assert_msg(strstr(err.msg, m->name) != NULL, "%s", err.msg);
			ck_assert(is_zero(&x, m->table->bytes));
			wb_free(cut);
		}
	}
	wb_buf_finish(&a);
}
END_TEST

START_TEST(decoding_without_memory_is_enomem_and_leaks_nothing)
{
	const struct wb_msg_info *m;
	struct wb_rng r = {4711};
	struct wb_err err;
	struct wb_buf a;
	union wb_msg x;

	wb_buf_init(&a, 1 << 22);
	for (uint32_t i = 0; (m = wb_msg_at(i)); i++) {
		struct wb_frame f = {1, 0, m->type, 0, 0};

		wb_buf_reset(&a);
		memset(&x, 0, sizeof(x));
		fx_fill_msg(m->table, &x, &r, true);
		ck_assert_int_eq(wb_msg_encode(&f, &x, &a, &err), 0);
		wb_msg_free(m->type, &x);
		f.bytes = (uint32_t)(a.len - WB_FRAME_BYTES);
		for (uint64_t n = 1;; n++) {
			int rc;

			wb_mem_fail_at(n);
			rc = wb_msg_decode(&f, a.data + WB_FRAME_BYTES, &x, &err);
			if (!wb_mem_failed()) {
				wb_mem_fail_at(0);
				ck_assert_int_eq(rc, 0);
				wb_msg_free(m->type, &x);
				break;
			}
			ck_assert_int_eq(rc, -ENOMEM);
			ck_assert(is_zero(&x, m->table->bytes));
		}
	}
	wb_buf_finish(&a);
}
END_TEST

/* ---- a table of its own: bounds, versions, strictness ---------------------------------------- */

struct part {
	uint32_t a;
	const char *b;
};
struct whole {
	bool flag;
	uint32_t small;
	uint64_t big;
	int64_t sign;
	const char *name, *note;
	struct wb_digest digest;
	uint8_t *blob;
	uint32_t n_blob;
	struct part *parts;
	uint32_t n_parts;
	const char **words;
	uint32_t n_words;
	uint32_t late;
};
#define AT(f) offsetof(struct whole, f)
static const struct wb_fdef part_fields[] = {
	{"a", WBF_U32, WBF_REQ, 1, 0, offsetof(struct part, a), 0, NULL, NULL},
	{"b", WBF_STR, WBF_REQ, 2, 4, offsetof(struct part, b), 0, NULL, NULL},
};
static const struct wb_table part_table = {"part", part_fields, 2, sizeof(struct part)};
static const struct wb_fdef whole_fields[] = {
	{"flag", WBF_BOOL, WBF_REQ, 1, 0, AT(flag), 0, NULL, NULL},
	{"small", WBF_U32, WBF_REQ, 1, 9, AT(small), 0, NULL, NULL},
	{"big", WBF_U64, WBF_REQ, 1, 0, AT(big), 0, NULL, NULL},
	{"sign", WBF_I64, WBF_REQ, 1, 0, AT(sign), 0, NULL, NULL},
	{"name", WBF_STR, WBF_REQ, 1, 8, AT(name), 0, NULL, NULL},
	{"note", WBF_STR, WBF_OPT, 1, 8, AT(note), 0, NULL, NULL},
	{"digest", WBF_DIGEST, WBF_REQ, 1, 0, AT(digest), 0, NULL, NULL},
	{"parts", WBF_STRUCTS, WBF_REQ, 1, 2, AT(parts), AT(n_parts), &part_table, NULL},
	{"words", WBF_STRS, WBF_OPT, 1, 2, AT(words), AT(n_words), NULL, NULL},
	{"late", WBF_U32, WBF_OPT, 2, 0, AT(late), 0, NULL, NULL},
};
static const struct wb_table whole_table = {
	"WHOLE", whole_fields, WB_ARRAY_SIZE(whole_fields), sizeof(struct whole)};

#define GOOD                                                                                       \
	"\"flag\":true,\"small\":9,\"big\":\"18446744073709551615\",\"sign\":-1,\"name\":\"n\","   \
	"\"digest\":\"\""
#define P0 ",\"parts\":[]"

static const struct {
	const char *text;
	uint32_t version;
	int rc;
	const char *word;
} json[] = {
	{"{" GOOD P0 "}", 1, 0, NULL},
	{"{" GOOD P0 ",\"note\":\"\",\"words\":[\"a\",\"\"]}", 1, 0, NULL},
	{"{" GOOD ",\"parts\":[{\"a\":1},{\"a\":2}]}", 1, 0, NULL},
	{"{" GOOD ",\"parts\":[{\"a\":1,\"b\":\"x\"}],\"late\":3}", 2, 0, NULL},
	{"{" GOOD ",\"parts\":[{\"a\":1,\"b\":\"x\",\"new\":[]}],\"newer\":{}}", 3, 0, NULL},
	{"{" GOOD "}", 1, -EBADMSG, "WHOLE: parts: is missing"},
	{"{" GOOD P0 ",\"nmae\":1}", 1, -EBADMSG, "\"nmae\""},
	{"{" GOOD P0 ",\"late\":3}", 1, -EBADMSG, "\"late\" in version 1"},
	{"{" GOOD ",\"parts\":[{\"a\":1},{\"a\":-1}]}", 1, -EBADMSG, "WHOLE: parts[1]: a: "},
	{"{" GOOD ",\"parts\":[{\"a\":1}]}", 2, -EBADMSG, "parts[0]: b: is missing"},
	{"{" GOOD ",\"parts\":[{\"a\":1,\"b\":\"12345\"}]}", 2, -EBADMSG, "5 bytes, at most 4"},
	{"{" GOOD ",\"parts\":[3]}", 1, -EBADMSG, "parts[0]: part is not an object"},
	{"{" GOOD ",\"parts\":[{\"a\":1},{\"a\":1},{\"a\":1}]}", 1, -EBADMSG, "at most 2"},
	{"{" GOOD P0 ",\"words\":[\"a\",7]}", 1, -EBADMSG, "words: not a string"},
	{"{" GOOD P0 ",\"words\":null}", 1, -EBADMSG, "words: not an array"},
	{"{" GOOD P0 ",\"name\":\"m\"}", 1, -EBADMSG, "duplicate"},
	{"{" GOOD P0 ",\"note\":\"a\\u0000b\"}", 1, -EBADMSG, "not JSON"},
	{"{" GOOD P0 ",\"note\":\"123456789\"}", 1, -EBADMSG, "note: 9 bytes"},
	{"{" GOOD P0, 1, -EBADMSG, "line 1"},
	{"[]", 1, -EBADMSG, "not an object"},
	{"", 1, -EBADMSG, "not JSON"},
	{"{\"flag\":1}", 1, -EBADMSG, "flag: not true or false"},
	{"{\"flag\":true,\"small\":10}", 1, -EBADMSG, "small: 10, at most 9"},
	{"{\"flag\":true,\"small\":1,\"big\":\"12\"}", 1, -EBADMSG, "big: not"},
	{"{\"flag\":true,\"small\":1,\"big\":\"18446744073709551616\"}", 1, -EBADMSG, "big: not"},
	{"{\"flag\":true,\"small\":1.0,\"big\":1}", 1, -EBADMSG, "small: not"},
};

struct ends {
	uint32_t state;
	const uint32_t *states;
	uint32_t n_states;
};
static const struct wb_fdef ends_fields[] = {
	{"state", WBF_WORD, WBF_REQ, 1, 8, offsetof(struct ends, state), 0, NULL,
		&wb_engine_state_words},
	{"states", WBF_WORDS, WBF_OPT, 1, 3, offsetof(struct ends, states),
		offsetof(struct ends, n_states), NULL, &wb_engine_state_words},
};
static const struct wb_table ends_table = {"ENDS", ends_fields, 2, sizeof(struct ends)};

/* What is read, and what the same version writes of it; sentence NULL: taken. */
static const struct {
	uint32_t version;
	const char *json, *again, *sentence;
	uint32_t state, first;
} worded[] = {
	{1, "{\"state\":\"Torn\",\"states\":[\"Receiving\",\"Unknown\"]}", NULL, NULL,
		WB_ENGINE_TORN, WB_ENGINE_RECEIVING},
	{2, "{\"state\":9,\"states\":[3,10]}", NULL, NULL, WB_ENGINE_TORN, WB_ENGINE_RECEIVED},
	/* Of a build that has more words. */
	{1, "{\"state\":\"Torn\",\"states\":[\"Melted\"]}",
		"{\"state\":\"Torn\",\"states\":[\"Unknown\"]}", NULL, WB_ENGINE_TORN,
		WB_WORD_NONE},
	{2, "{\"state\":4000000000,\"states\":[99]}", NULL, NULL, 4000000000, 99},
	/* Each version has its form, and no other. */
	{1, "{\"state\":9}", NULL, "message ENDS: state: not a word", 0, 0},
	{1, "{\"state\":\"123456789\"}", NULL, "message ENDS: state: not a word", 0, 0},
	{2, "{\"state\":\"Torn\"}", NULL, "message ENDS: state: not an integer of 0 to 4294967295",
		0, 0},
	{2, "{\"state\":9,\"states\":[4294967296]}", NULL,
		"message ENDS: states: not an integer of 0 to 4294967295", 0, 0},
	{1, "{\"state\":\"Torn\",\"states\":[1]}", NULL, "message ENDS: states: not a word", 0, 0},
};

START_TEST(a_word_is_a_number_and_in_version_1_its_text)
{
	uint32_t version = worded[_i].version;
	const char *again = worded[_i].again ? worded[_i].again : worded[_i].json;
	struct wb_err err = {0};
	struct ends m, back;
	struct wb_buf b;
	int rc = wb_table_decode_json(
		&ends_table, worded[_i].json, strlen(worded[_i].json), version, 2, &m, &err);

	if (worded[_i].sentence) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_str_eq(err.msg, worded[_i].sentence);
		return;
	}
	ck_assert_msg(rc == 0, "%s", err.msg);
	ck_assert_uint_eq(m.state, worded[_i].state);
	ck_assert_uint_eq(m.states[0], worded[_i].first);
	wb_buf_init(&b, 4096);
	ck_assert_int_eq(wb_table_encode_json(&ends_table, &m, version, &b, &err), 0);
	ck_assert_str_eq(wb_buf_cstr(&b), again);
	wb_buf_reset(&b);
	ck_assert_int_eq(wb_table_encode_bin(&ends_table, &m, version, &b, &err), 0);
	ck_assert(version == 1 || b.len == 4 + 4 + 4 * m.n_states);
	ck_assert_int_eq(
		wb_table_decode_bin(&ends_table, b.data, b.len, version, 2, &back, &err), 0);
	ck_assert_uint_eq(back.state, m.state);
	ck_assert_uint_eq(back.n_states, m.n_states);
	/* A text that is no word is one when it comes back: Unknown. */
	ck_assert(back.states[0] == m.states[0] || worded[_i].again);
	wb_table_clear(&ends_table, &m);
	wb_table_clear(&ends_table, &back);
	wb_buf_finish(&b);
}
END_TEST

START_TEST(json_is_read_strictly)
{
	struct wb_err err = {0};
	struct whole w;
	int rc = wb_table_decode_json(
		&whole_table, json[_i].text, strlen(json[_i].text), json[_i].version, 2, &w, &err);

	ck_assert_msg(rc == json[_i].rc, "%d: %s", rc, err.msg);
	if (json[_i].word)
		ck_assert_msg(strstr(err.msg, json[_i].word) != NULL, "%s", err.msg);
	if (!rc) {
		ck_assert(w.flag && w.small == 9 && w.big == UINT64_MAX && w.sign == -1);
		ck_assert_str_eq(w.name, "n");
		ck_assert_ptr_null(w.note);
	}
	wb_table_clear(&whole_table, &w);
}
END_TEST

START_TEST(binary_of_an_older_version_lacks_the_newer_fields)
{
	struct part p = {5, NULL};
	struct whole w = {.name = "n", .parts = &p, .n_parts = 1, .late = 7}, x;
	struct wb_err err = {0};
	struct wb_buf one, two;

	p.b = "xy";
	wb_buf_init(&one, 4096);
	wb_buf_init(&two, 4096);
	ck_assert_int_eq(wb_table_encode_bin(&whole_table, &w, 1, &one, &err), 0);
	ck_assert_int_eq(wb_table_encode_bin(&whole_table, &w, 2, &two, &err), 0);
	ck_assert_uint_eq(two.len, one.len + 4 + 6);

	ck_assert_int_eq(wb_table_decode_bin(&whole_table, two.data, two.len, 2, 2, &x, &err), 0);
	ck_assert(x.late == 7 && !strcmp(x.parts[0].b, "xy"));
	wb_table_clear(&whole_table, &x);
	ck_assert_int_eq(wb_table_decode_bin(&whole_table, one.data, one.len, 1, 2, &x, &err), 0);
	ck_assert(x.late == 0 && x.parts[0].a == 5 && !x.parts[0].b);
	wb_table_clear(&whole_table, &x);

	/* Bytes left over: refused, but from a newer peer they are fields unknown here. */
	wb_buf_u32(&two, 1);
	ck_assert_int_eq(
		wb_table_decode_bin(&whole_table, two.data, two.len, 2, 2, &x, &err), -EBADMSG);
	ck_assert_str_eq(err.msg, "message WHOLE: 4 bytes are left over");
	ck_assert_int_eq(wb_table_decode_bin(&whole_table, two.data, two.len, 3, 2, &x, &err), 0);
	wb_table_clear(&whole_table, &x);
	wb_buf_finish(&one);
	wb_buf_finish(&two);
}
END_TEST

START_TEST(a_huge_count_is_refused_before_memory_is_taken)
{
	struct wb_err err = {0};
	union wb_msg x;
	uint8_t body[32 + 4 + 16] = {0}; /* the count of engine is at 32 */
	struct wb_frame f = {1, 0, WBP_APP_SEND_STATE, sizeof(body), 0};

	memset(body + 32, 0xff, 4);
	ck_assert_int_eq(wb_msg_decode(&f, body, &x, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "at most") != NULL, "%s", err.msg);
	memcpy(body + 32, "\0\4\0\0", 4);
	wb_mem_fail_at(1);
	ck_assert_int_eq(wb_msg_decode(&f, body, &x, &err), -EBADMSG);
	ck_assert(!wb_mem_failed());
	wb_mem_fail_at(0);
}
END_TEST

START_TEST(a_value_out_of_bounds_is_not_sent)
{
	struct whole w = {.name = "123456789"};
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, 4096);
	ck_assert_int_eq(wb_table_encode_bin(&whole_table, &w, 1, &b, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "message WHOLE: name: 9 is above the limit of 8");
	ck_assert_int_eq(wb_table_encode_json(&whole_table, &w, 1, &b, &err), -EINVAL);
	w.name = "";
	w.small = 10;
	ck_assert_int_eq(wb_table_encode_json(&whole_table, &w, 1, &b, &err), -EINVAL);
	wb_buf_finish(&b);
}
END_TEST

START_TEST(a_body_above_its_cap_is_not_sent)
{
	struct wb_frame f = {1, 0, WBP_APP_HELLO, 0, 0};
	char *s = calloc(WB_STRS_ITEM_MAX + 1, 1);
	const char *list[64];
	struct wb_msg_want w = {.object = "o", .digests = list, .n_digests = 64};
	struct wb_err err = {0};
	struct wb_buf b;

	memset(s, 'x', WB_STRS_ITEM_MAX);
	for (size_t i = 0; i < 64; i++)
		list[i] = s;
	f.type = WBP_WANT;
	wb_buf_init(&b, 1 << 20);
	ck_assert_int_eq(wb_msg_encode(&f, &w, &b, &err), -E2BIG);
	ck_assert_msg(strstr(err.msg, "WANT") != NULL, "%s", err.msg);
	wb_buf_finish(&b);
	free(s);
}
END_TEST

/* ---- builds, beats --------------------------------------------------------------------------- */

START_TEST(builds_that_differ_in_what_they_share_are_told_apart)
{
	static const char *const other[] = {"", "0.1.0", "+", "0.1.0+", "0.1.0+00000000",
		"0.1.0+0000000", "+.", "0.1.0.12345678"};
	char mine[WB_BUILD_TEXT], two[2 * WB_BUILD_TEXT];
	const char *hash;

	wb_build_text("0.1.0", 2, 2, mine);
	hash = strchr(mine, '+');
	ck_assert_msg(hash && hash == mine + 5 && strlen(hash) == 9, "%s", mine);
	ck_assert(wb_build_is_same(mine, 2, 2));
	ck_assert(wb_build_is_same(hash, 2, 2));
	for (size_t i = 0; i < WB_ARRAY_SIZE(other); i++)
		ck_assert_msg(!wb_build_is_same(other[i], 2, 2), "%s", other[i]);
	/* One that speaks other versions, too. */
	snprintf(two, sizeof(two), "0.2.0%s.11111111", hash);
	ck_assert(wb_build_is_same(two, 2, 2));
	snprintf(two, sizeof(two), "0.2.0+11111111.%s", hash + 1);
	ck_assert(!wb_build_is_same(two, 2, 2));
	ck_assert(!wb_build_is_same(mine, 1, 2));
	snprintf(two, sizeof(two), "0.1.0%sa", hash);
	ck_assert(!wb_build_is_same(two, 2, 2));
	mine[8] = mine[8] == '0' ? '1' : '0';
	ck_assert(!wb_build_is_same(mine, 2, 2)); /* Builds of version 1 had no hashes. */
	ck_assert(wb_build_is_same("0.1.0", 1, 1));
	ck_assert(wb_build_is_same(wb_build_text("0.1.0", 1, 2, mine), 1, 1));
	ck_assert(wb_build_is_same(mine, 1, 2));
}
END_TEST

START_TEST(beats_of_all_agents_come_together)
{
	const uint64_t interval = 6000000000, slot = interval / WB_BEAT_SLOTS;

	/* Whatever an agent's clock and phase, it comes near an interval later, on a point of the
	 * grid. */
	for (int64_t offset = -7777777777; offset < 9000000000; offset += 987654321)
		for (uint64_t there = 100 * interval; there < 101 * interval; there += 123456789) {
			uint64_t now = there + (uint64_t)offset;
			uint64_t after = wb_beat_after_ns(now, offset, interval);

			ck_assert_uint_eq((there + after) % slot, 0);
			ck_assert_uint_ge(after, interval - slot / 2);
			ck_assert_uint_le(after, interval + slot / 2);
		}
	/* A clock that is a bit off does not make it change its point. */
	ck_assert_uint_eq(wb_beat_after_ns(100 * interval + 1000, 0, interval), interval - 1000);
	ck_assert_uint_eq(wb_beat_after_ns(100 * interval - 1000, 0, interval), interval + 1000);
	ck_assert(!wb_beat_wants_answer(interval, 0, interval));
	ck_assert(wb_beat_wants_answer(2 * interval, 0, interval));
}
END_TEST

static const struct {
	const char *field;
	uint32_t since;
} numbers[] = {{"seq", 1}, {"base", 1}, {"ack", 1}, {"accepted", 1}, {"skipped", 2}};

static uint64_t *number_of(struct wb_msg_peer *m, size_t i)
{
	uint64_t *at[] = {&m->seq, &m->base, &m->ack, &m->accepted, &m->skipped};

	return at[i];
}

/* The whole message comes back but for that number. */
static void check_patch(size_t i, uint32_t version)
{
	struct wb_frame f = {.version = (uint8_t)version, .type = WBP_PEER}, g;
	struct wb_rng rng = {i + version};
	union wb_msg m = {0}, back;
	const uint8_t *body;
	struct wb_buf want, got;

	fx_fill_msg(wb_msg_info(WBP_PEER)->table, &m, &rng, false);
	wb_buf_init(&got, 1u << 20);
	wb_buf_init(&want, 1u << 20);
	ck_assert_int_eq(wb_msg_encode_bin(&f, &m, &got, NULL), 0);
	wb_msg_patch_u64(got.data, got.len, numbers[i].field, 0x1122334455667788ull);
	*number_of(&m.peer, i) = 0x1122334455667788ull;
	ck_assert_int_eq(wb_msg_encode_bin(&f, &m, &want, NULL), 0);
	ck_same(&want, &got, numbers[i].field);
	ck_assert_int_eq(wb_frame_check(got.data, got.len, &g, &body, NULL), 0);
	ck_assert_int_eq(wb_msg_decode_bin(&g, body, &back, NULL), 0);
	ck_assert_uint_eq(
		*number_of(&back.peer, i), version < numbers[i].since ? 0 : 0x1122334455667788ull);
	wb_msg_free(WBP_PEER, &m);
	wb_msg_free(WBP_PEER, &back);
	wb_buf_finish(&want);
	wb_buf_finish(&got);
}

START_TEST(a_number_of_an_encoded_message_is_changed_in_any_version_and_nothing_else)
{
	for (uint32_t v = WBP_VERSION_MIN; v <= WBP_VERSION_MAX; v++)
		for (size_t i = 0; i < WB_ARRAY_SIZE(numbers); i++)
			check_patch(i, v);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proto");
	TCase *t = tcase_create("frame");

	tcase_add_loop_test(t, a_word_is_found_by_its_text, 0, WB_ARRAY_SIZE(vocabulary));
	tcase_add_loop_test(t, what_is_no_word_is_unknown, 0, WB_ARRAY_SIZE(vocabulary));
	tcase_add_test(t, a_frame_header_comes_back_as_it_was);
	tcase_add_loop_test(t, a_bad_header_is_refused_by_name, 0, WB_ARRAY_SIZE(bad_head));
	tcase_add_test(t, a_short_frame_is_ebadmsg);
	tcase_add_loop_test(t, peers_take_the_greatest_version_both_know, 0, WB_ARRAY_SIZE(agree));
	tcase_add_test(
		t, a_number_of_an_encoded_message_is_changed_in_any_version_and_nothing_else);
	suite_add_tcase(s, t);
	t = tcase_create("codec");
	tcase_add_test(t, tables_are_bounded_and_numbers_unique);
	tcase_add_loop_test(t, every_message_comes_back_as_it_was, 0, 25);
	tcase_add_test(t, a_truncated_body_is_ebadmsg_at_every_length);
	tcase_add_test(t, decoding_without_memory_is_enomem_and_leaks_nothing);
	tcase_add_loop_test(
		t, a_word_is_a_number_and_in_version_1_its_text, 0, WB_ARRAY_SIZE(worded));
	tcase_add_loop_test(t, json_is_read_strictly, 0, WB_ARRAY_SIZE(json));
	tcase_add_test(t, binary_of_an_older_version_lacks_the_newer_fields);
	tcase_add_test(t, a_huge_count_is_refused_before_memory_is_taken);
	tcase_add_test(t, a_value_out_of_bounds_is_not_sent);
	tcase_add_test(t, a_body_above_its_cap_is_not_sent);
	tcase_add_test(t, builds_that_differ_in_what_they_share_are_told_apart);
	tcase_add_test(t, beats_of_all_agents_come_together);
	suite_add_tcase(s, t);
	return fx_run(s);
}
