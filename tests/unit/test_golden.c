/* SPDX-License-Identifier: Apache-2.0 */
/* What is written down of the messages: golden encodings, PROTOCOL.md, examples for the fuzzer. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/messages.h"
#include "proto/peers.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_proto.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* WB_GOLDEN=update rewrites both files; review the difference. */
static char *slurp(const char *path)
{
	const char *top = getenv("WB_TOP");
	char name[4096], *text = NULL;
	size_t n;
	FILE *f;

	snprintf(name, sizeof(name), "%s/%s", top ? top : ".", path);
	f = fopen(name, "r");
	if (!f)
		return calloc(1, 1);
	text = calloc(1 << 20, 1);
	n = fread(text, 1, (1 << 20) - 1, f);
	ck_assert_uint_lt(n, (1 << 20) - 1);
	fclose(f);
	return text;
}

static void ck_golden(const char *path, const char *now, const char *was)
{
	const char *top = getenv("WB_TOP"), *mode = getenv("WB_GOLDEN");
	char name[4096];
	FILE *f;

	if (!strcmp(now, was))
		return;
	ck_assert_msg(mode && !strcmp(mode, "update"),
		"%s differs from the tables in words.h, messages.h and peers.h; when that is "
		"meant: "
		"WB_GOLDEN=update make check T=test_golden, and review the difference",
		path);
	snprintf(name, sizeof(name), "%s/%s", top ? top : ".", path);
	f = fopen(name, "w");
	ck_assert_ptr_nonnull(f);
	fputs(now, f);
	fclose(f);
}

START_TEST(each_message_has_an_example_for_the_fuzzer)
{
	const struct wb_msg_info *m;
	const char *top = getenv("WB_TOP");

	for (uint32_t i = 0; (m = wb_msg_at(i)); i++) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/tests/fuzz/corpus/fuzz_frame/%s", top ? top : ".",
			m->name);
		ck_assert_msg(
			access(name, R_OK) == 0, "%s: its line of tests/golden/frames.txt", name);
	}
}
END_TEST

static void put_example(
	struct wb_buf *text, const struct wb_msg_info *m, uint32_t version, uint32_t id)
{
	struct wb_frame f = {(uint8_t)version, 0, m->type, 0, id};
	static const uint8_t head[WB_FRAME_BYTES];
	struct wb_rng r = {m->type};
	struct wb_err err = {0};
	struct wb_buf a;
	union wb_msg x;
	size_t hex;

	wb_buf_init(&a, 1 << 20);
	memset(&x, 0, sizeof(x));
	fx_fill_table(m->table, &x, &r, true);
	wb_buf_put(&a, head, sizeof(head));
	/* What a message may say is looked at elsewhere: fields are random here. */
	ck_assert_int_eq((m->encoding == WB_ENC_BIN ? wb_table_encode_bin : wb_table_encode_json)(
				 m->table, &x, version, &a, &err),
		0);
	f.bytes = (uint32_t)(a.len - sizeof(head));
	wb_frame_encode(&f, a.data);
	wb_msg_free(m->type, &x);
	hex = m->encoding == WB_ENC_BIN ? a.len : WB_FRAME_BYTES;
	wb_buf_printf(text, "%s ", m->name);
	for (size_t k = 0; k < hex; k++)
		wb_buf_printf(text, "%02x", a.data[k]);
	if (m->encoding == WB_ENC_JSON)
		wb_buf_printf(text, " %.*s", (int)(a.len - hex), (char *)a.data + hex);
	wb_buf_u8(text, '\n');
	wb_buf_finish(&a);
}

static bool changed_in(const struct wb_table *t, uint32_t version)
{
	for (uint32_t i = 0; i < t->n_field; i++)
		if (t->field[i].since == version ||
			(t->field[i].words && version == WBF_WORDS_SINCE) ||
			(t->field[i].sub && changed_in(t->field[i].sub, version)))
			return true;
	return false;
}

/* What shipped stays what it was: a line of a version that others speak must never change. */
START_TEST(encodings_are_the_golden_ones)
{
	const struct wb_msg_info *m;
	struct wb_buf text;
	char *was;

	wb_buf_init(&text, 1 << 20);
	wb_buf_printf(&text, "# One frame of each message, version 1: name, header and binary body "
			     "in hex, or the JSON body.\n");
	for (uint32_t i = 0; (m = wb_msg_at(i)); i++)
		put_example(&text, m, 1, i + 1);
	for (uint32_t v = 2; v <= WBP_VERSION_MAX; v++) {
		wb_buf_printf(&text, "# Those that version %u changed.\n", v);
		for (uint32_t i = 0; (m = wb_msg_at(i)); i++)
			if (changed_in(m->table, v))
				put_example(&text, m, v, i + 1);
	}
	was = slurp("tests/golden/frames.txt");
	ck_golden("tests/golden/frames.txt", wb_buf_cstr(&text), was);
	free(was);
	wb_buf_finish(&text);
}
END_TEST

/* clang-format off */
static const char *const kind_name[] = {"bool", "u32", "u64", "i64", "string", "digest", "bytes", "u32[]", "u64[]", "string[]", "word of ", "words of ", "", ""};
static void row(struct wb_buf *b, const char *name, unsigned kind, const char *sub, unsigned max, bool opt, unsigned since, const char *doc)
{
	wb_buf_printf(b, "| `%s` | %s%s%s%s%s | ", name, kind_name[kind], sub ? "`" : "", sub ? sub : "", sub ? "`" : "", kind == WBF_STRUCTS ? "[]" : "");
	if (max)
		wb_buf_printf(b, "%u", max);
	wb_buf_printf(b, " | %s | %u | %s |\n", opt ? "no" : "yes", since, doc);
}
#define HEAD "\n| field | kind | max | required | since | meaning |\n|---|---|---|---|---|---|\n"
#define DOC_F(b, kind, name, max, opt, since, doc) row(b, #name, WBF_##kind, NULL, max, WBF_##opt, since, doc);
#define DOC_S(b, kind, name, sub, max, opt, since, doc) row(b, #name, WBF_##kind, #sub, max, WBF_##opt, since, doc);
#define DOC_SUB(sub) wb_buf_printf(b, "\n#### `" #sub "`\n" HEAD); WBF_##sub(DOC_F, DOC_S, b)
#define DOC_MSG(no, NAME, lower, enc, cap, who, doc) \
	wb_buf_printf(b, "\n#### 0x%03x `" #NAME "`\n\n%s: %s. %s, at most %u bytes.\n" HEAD, no, who, doc, WB_ENC_##enc == WB_ENC_BIN ? "Binary" : "JSON", cap); \
	WBF_##lower(DOC_F, DOC_S, b)
/* @noun is what this kind calls the field at @offset. */
static void peer_field(struct wb_buf *b, const char *noun, size_t offset, const char *mark)
{
	const struct wb_table *t = wb_msg_info(WBP_PEER)->table;
	const struct wb_fdef *f = t->field;

	while (f->offset != offset)
		f++;
	if (!strcmp(f->name, noun))
		wb_buf_printf(b, " %s`%s`%s", mark, f->name, mark);
	else
		wb_buf_printf(b, " %s`%s`%s (%s)", mark, f->name, mark, noun);
}
#define DOC_MUST(field) peer_field(b, #field, offsetof(struct wb_msg_peer, field), "**");
#define DOC_MAY(field) peer_field(b, #field, offsetof(struct wb_msg_peer, field), "");
#define DOC_PEER(number, NAME, from, to, fields, doc) \
	wb_buf_printf(b, "| %d | `%s` | %s | %s |", number, #NAME, #from, #to); \
	fields \
	wb_buf_printf(b, " | %s |\n", doc);
#define DOC_WORD(P, number, NAME, text) wb_buf_printf(b, " %d `%s`", number, text);
#define DOC_WORDS(name, P, LIST) wb_buf_printf(b, "| %s |", #name); LIST(DOC_WORD, P) wb_buf_printf(b, " |\n");
static void put_tables(struct wb_buf *b)
{
	wb_buf_printf(b, "\n### Words\n\n| of | number and text |\n|---|---|\n");
	WB_VOCABULARY(DOC_WORDS)
	wb_buf_printf(b, "\n### Parts\n");
	WB_SUBS(DOC_SUB)
	wb_buf_printf(b, "\n### Messages\n");
	WB_MESSAGES(DOC_MSG)
	wb_buf_printf(b, "\n### Kinds of `PEER`\n\n| kind | name | from | to | fields | meaning |\n|---|---|---|---|---|---|\n");
	WB_PEERS(DOC_PEER, DOC_MUST, DOC_MAY, DOC_MAY)
}
/* clang-format on */

#define MARK "<!-- The rest is written from words.h, messages.h and peers.h by test_golden. -->\n"

START_TEST(protocol_md_has_every_message_and_field)
{
	char *was = slurp("agent/proto/PROTOCOL.md"), *mark = strstr(was, MARK);
	struct wb_buf b;

	ck_assert_msg(mark != NULL, "PROTOCOL.md: the line %s is missing", MARK);
	wb_buf_init(&b, 1 << 20);
	wb_buf_put(&b, was, (size_t)(mark - was) + strlen(MARK));
	put_tables(&b);
	ck_golden("agent/proto/PROTOCOL.md", wb_buf_cstr(&b), was);
	wb_buf_finish(&b);
	free(was);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("golden");
	TCase *t = tcase_create("golden");

	tcase_add_test(t, encodings_are_the_golden_ones);
	tcase_add_test(t, each_message_has_an_example_for_the_fuzzer);
	tcase_add_test(t, protocol_md_has_every_message_and_field);
	suite_add_tcase(s, t);
	return fx_run(s);
}
