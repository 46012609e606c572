/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of PEER carries (proto/peers.h): made by programs, and looked at by both codecs.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/peers.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RUN "version feeder feed"
#define ORDER RUN " engine coordinator"
#define REPLY "version engine decision"
#define WHY "code sentence"
#define SUM " sum0 sum1"
#define TIMES " bytes stall_ns n_stall"

/* Said anew, so that the table is not checked against itself, and by the names on the wire. */
static const struct {
	const char *kind, *must, *may;
} rows[] = {
	{"PREPARE", "transfer", ORDER},
	{"REFUSED", "transfer code", "engine feed sentence highest"},
	{"STOP", "transfer", ORDER " decision"},
	{"PROMISE", "transfer", REPLY " poll"},
	{"TARGET", "transfer", ORDER " poll"},
	{"STOPPED", "transfer", REPLY " how " WHY},
	{"OPEN", "transfer", ORDER},
	{"PROGRESS", "transfer how", REPLY " losses " WHY SUM},
	{"END", "transfer how", ORDER " " WHY SUM},
	{"ENDED", "transfer", REPLY TIMES},
	{"ENGINE", "transfer how", ORDER " losses " WHY SUM TIMES " decision"},
	{"LOST", "transfer losses", ORDER},
	{"CANCEL", "transfer code", RUN " engine sentence decision"},
	{"TRIGGER", "", "version poll how highest " WHY},
	{"SERVE", "transfer", "version how"},
	{"RELEASE", "transfer", "version how"},
	{"FINAL", "", "transfer version poll how elapsed_ns engines states " WHY},
	{"TRAINER_LOST", "code", "transfer sentence"},
	{"CONFIRM", "", ""},
	{"STAGE", "transfer", ORDER},
	{"INSTALL", "transfer", ORDER},
	{"DECIDED", "transfer", RUN " engine"},
	{"RESUME", "", "transfer " REPLY " how"},
	{"BALLOT", "transfer ballot", ""},
	{"BALLOTED", "transfer", "code ballot accepted decision"},
	{"ACCEPT", "transfer ballot decision", ""},
	{"ACCEPTED", "transfer", "code ballot accepted decision"},
	{"NEXT", "transfer", ""},
	{"ACTIVE", "", ""},
	{"DOUBT", "transfer", "version engine poll how"},
	{"RECALL", "transfer", "engine poll"},
	{"RECALLED", "transfer", "engine poll how"},
	{"OUTCOME", "transfer how", "engine poll"},
	{"LACK", "transfer how", ""},
	{"LACKED", "transfer how", "code bytes"},
	{"ALL_STOPPED", "transfer", ORDER},
	{"HEARD", "transfer", REPLY},
};

static bool has(const char *list, const char *word)
{
	char padded[512], wanted[64];

	snprintf(padded, sizeof(padded), " %s ", list);
	snprintf(wanted, sizeof(wanted), " %s ", word);
	return strstr(padded, wanted) != NULL;
}

static bool is_of_every_kind(const char *field)
{
	return has("kind uid term number seq base ack skipped", field);
}

/* Some value that is not none. */
static void set(struct wb_msg_peer *m, const struct wb_fdef *f)
{
	static const char *const strs[] = {"e0"};
	static const uint64_t numbers[] = {1};
	static const char text[] = "why";
	const uint32_t one = 1;
	const uint64_t one64 = 1;
	const void *value = f->kind == WBF_STR    ? (const void *)text
			    : f->kind == WBF_STRS ? (const void *)strs
						  : (const void *)numbers;
	char *at = (char *)m + f->offset;

	if (f->kind == WBF_BOOL)
		*(bool *)at = true;
	else if (f->kind == WBF_U32)
		memcpy(at, &one, sizeof(one));
	else if (f->kind == WBF_U64 || f->kind == WBF_I64)
		memcpy(at, &one64, sizeof(one64));
	else
		memcpy(at, &value, sizeof(value));
	if (f->n_offset)
		memcpy((char *)m + f->n_offset, &one, sizeof(one));
}

static const struct wb_table *table(void)
{
	return wb_msg_info(WBP_PEER)->table;
}

/* Row @i with what it must have, but for field @without. */
static struct wb_msg_peer message(int i, const char *without)
{
	struct wb_msg_peer m = {.kind = (uint32_t)i + 1, .uid = "u", .term = 1, .number = 1};

	for (uint32_t k = 0; k < table()->n_field; k++) {
		const struct wb_fdef *f = &table()->field[k];

		if (has(rows[i].must, f->name) && strcmp(f->name, without) != 0)
			set(&m, f);
	}
	return m;
}

/* With JSON beside it and without. */
static int (*const encode[])(const struct wb_frame *, const void *, struct wb_buf *,
	struct wb_err *) = {wb_msg_encode_bin, wb_msg_encode};
static int (*const decode[])(const struct wb_frame *, const void *, void *, struct wb_err *) = {
	wb_msg_decode_bin, wb_msg_decode};

static void ck_door(int door, const struct wb_msg_peer *m, const char *sentence)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_PEER};
	struct wb_err err = {0};
	struct wb_buf b;
	union wb_msg back;
	int rc;

	wb_buf_init(&b, 1 << 20);
	rc = encode[door](&f, m, &b, &err);
	ck_assert_msg(rc == (sentence[0] ? -EINVAL : 0) && !strcmp(err.msg, sentence),
		"encoded, %d: '%s', not '%s'", rc, err.msg, sentence);
	wb_buf_reset(&b);
	ck_assert_int_eq(wb_table_encode_bin(table(), m, f.version, &b, &err), 0);
	f.bytes = (uint32_t)b.len;
	err = (struct wb_err){0};
	rc = decode[door](&f, b.data, &back, &err);
	ck_assert_msg(rc == (sentence[0] ? -EBADMSG : 0) && !strcmp(err.msg, sentence),
		"decoded, %d: '%s', not '%s'", rc, err.msg, sentence);
	if (rc == 0)
		wb_msg_free(WBP_PEER, &back);
	wb_buf_finish(&b);
}

/* Whoever writes or reads it says what is wrong, @sentence; "" = it is taken. */
static void ck_codecs(const struct wb_msg_peer *m, const char *sentence)
{
	for (int door = 0; door < 2; door++)
		ck_door(door, m, sentence);
}

START_TEST(a_kind_has_its_own_fields_and_no_others)
{
	struct wb_msg_peer m = message(_i, "");
	char sentence[128];

	ck_assert_str_eq(wb_peer_rule(m.kind)->name, rows[_i].kind);
	ck_codecs(&m, "");
	for (uint32_t k = 0; k < table()->n_field; k++) {
		const struct wb_fdef *f = &table()->field[k];

		if (!strcmp(f->name, "kind"))
			continue;
		m = message(_i, "");
		set(&m, f);
		snprintf(sentence, sizeof(sentence),
			"message PEER: %s with %s, which it does not carry", rows[_i].kind,
			f->name);
		ck_codecs(&m, is_of_every_kind(f->name) || has(rows[_i].must, f->name) ||
					      has(rows[_i].may, f->name)
				      ? ""
				      : sentence);
	}
}
END_TEST

/* How a kind calls a field that several share. */
static const char *called(const char *kind, const char *field)
{
	return strcmp(field, "how") != 0   ? field
	       : !strcmp(kind, "PROGRESS") ? "progress"
	       : !strncmp(kind, "LACK", 4) ? "question"
					   : field;
}

START_TEST(what_a_kind_requires_is_there)
{
	char sentence[128];

	for (uint32_t k = 0; k < table()->n_field; k++) {
		const char *field = table()->field[k].name;
		struct wb_msg_peer m = message(_i, field);

		if (!has(rows[_i].must, field))
			continue;
		snprintf(sentence, sizeof(sentence), "message PEER: %s without %s", rows[_i].kind,
			called(rows[_i].kind, field));
		ck_codecs(&m, sentence);
	}
}
END_TEST

START_TEST(a_message_has_what_its_maker_was_given)
{
	uint64_t lacked[] = {7, 8};
	const struct wb_msg_peer *m =
		WB_PEER(LACKED, .transfer = 5, .question = 3, .lacked = lacked, .n_lacked = 2);
	struct wb_peer_TARGET f = WB_PEER_FIELDS(TARGET, .transfer = 6);

	ck_assert(m->kind == WBP_PEER_LACKED && m->transfer == 5 && m->how == 3);
	ck_assert(m->bytes == lacked && m->n_bytes == 2 && !m->code);
	f.poll = 9;
	m = WB_PEER_OF(TARGET, &f);
	ck_assert(m->kind == WBP_PEER_TARGET && m->transfer == 6 && m->poll == 9);
	m = WB_PEER(ACTIVE);
	ck_assert(m->kind == WBP_PEER_ACTIVE && !m->transfer);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proto_peers");
	TCase *t = tcase_create("fields");

	tcase_add_loop_test(t, a_kind_has_its_own_fields_and_no_others, 0, WB_ARRAY_SIZE(rows));
	tcase_add_loop_test(t, what_a_kind_requires_is_there, 0, WB_ARRAY_SIZE(rows));
	tcase_add_test(t, a_message_has_what_its_maker_was_given);
	suite_add_tcase(s, t);
	return fx_run(s);
}
