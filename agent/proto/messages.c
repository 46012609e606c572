/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/messages.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/internal.h"
#include "proto/peers.h"

#include <errno.h>

/* clang-format off */
#define N_OFF_BOOL(st, name) 0
#define N_OFF_U32(st, name) 0
#define N_OFF_U64(st, name) 0
#define N_OFF_PEER_FEEDER(st, name) 0
#define N_OFF_PEER_POLL(st, name) 0
#define N_OFF_PEER_HOW(st, name) 0
#define N_OFF_PEER_DECISION(st, name) 0
#define N_OFF_PEER_BYTES(st, name) offsetof(struct st, n_##name)
#define N_OFF_I64(st, name) 0
#define N_OFF_STR(st, name) 0
#define N_OFF_DIGEST(st, name) 0
#define N_OFF_BLOB(st, name) offsetof(struct st, n_##name)
#define N_OFF_U32S(st, name) offsetof(struct st, n_##name)
#define N_OFF_U64S(st, name) offsetof(struct st, n_##name)
#define N_OFF_STRS(st, name) offsetof(struct st, n_##name)
#define N_OFF_WORD(st, name) 0
#define N_OFF_WORDS(st, name) offsetof(struct st, n_##name)
#define N_OFF_STRUCT(st, name) 0
#define N_OFF_STRUCTS(st, name) offsetof(struct st, n_##name)

#define ROW_F(st, kind, name, max, opt, since, doc) \
	{#name, WBF_##kind, WBF_##opt, since, max, offsetof(struct st, name), N_OFF_##kind(st, name), NULL, NULL},
#define OF_WORD(words) NULL, &wb_##words##_words
#define OF_WORDS(words) OF_WORD(words)
#define OF_STRUCT(sub) &sub_##sub, NULL
#define OF_STRUCTS(sub) OF_STRUCT(sub)
#define ROW_S(st, kind, name, sub, max, opt, since, doc) \
	{#name, WBF_##kind, WBF_##opt, since, max, offsetof(struct st, name), N_OFF_##kind(st, name), OF_##kind(sub)},

#define SUB_TABLE(sub) \
	static const struct wb_fdef fields_##sub[] = {WBF_##sub(ROW_F, ROW_S, wb_p_##sub)}; \
	static const struct wb_table sub_##sub = { \
		#sub, fields_##sub, WB_ARRAY_SIZE(fields_##sub), sizeof(struct wb_p_##sub)};
WB_SUBS(SUB_TABLE)

#define MSG_TABLE(no, NAME, lower, enc, cap, who, doc) \
	static const struct wb_fdef fields_##NAME[] = {WBF_##lower(ROW_F, ROW_S, wb_msg_##lower)}; \
	static const struct wb_table msg_##NAME = { \
		#NAME, fields_##NAME, WB_ARRAY_SIZE(fields_##NAME), sizeof(struct wb_msg_##lower)};
WB_MESSAGES(MSG_TABLE)

#define MSG_INFO(no, NAME, lower, enc, cap, who, doc) \
	{no, WB_ENC_##enc, cap, #NAME, who, &msg_##NAME},
static const struct wb_msg_info infos[] = {WB_MESSAGES(MSG_INFO)};
/* clang-format on */

const struct wb_msg_info *wb_msg_at(uint32_t i)
{
	return i < WB_ARRAY_SIZE(infos) ? &infos[i] : NULL;
}

const struct wb_msg_info *wb_msg_info(uint32_t type)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(infos); i++)
		if (infos[i].type == type)
			return &infos[i];
	return NULL;
}

const char *wb_msg_name(uint32_t type)
{
	const struct wb_msg_info *m = wb_msg_info(type);

	return m ? m->name : "?";
}

void wb_msg_free(uint32_t type, void *msg)
{
	const struct wb_msg_info *m = wb_msg_info(type);

	assert(m);
	wb_table_clear(m->table, msg);
}

int wb__msg_encode(const struct wb_frame *f, const struct wb_msg_info *m, const void *msg,
	wb__encode_fn fn, struct wb_buf *out, struct wb_err *err)
{
	static const uint8_t room[WB_FRAME_BYTES];
	struct wb_frame head = *f;
	size_t at = out->len;
	int rc;

	assert(f->version);
	wb_buf_put(out, room, sizeof(room));
	rc = fn(m->table, msg, f->version, out, err);
	if (rc < 0)
		return rc;
	if (out->len - at - WB_FRAME_BYTES > m->cap)
		return wb_err_set(err, -E2BIG, "message %s: %zu bytes, at most %u are allowed",
			m->name, out->len - at - WB_FRAME_BYTES, m->cap);
	head.bytes = (uint32_t)(out->len - at - WB_FRAME_BYTES);
	wb_frame_encode(&head, out->data + at);
	return 0;
}

int wb_msg_encode_bin(
	const struct wb_frame *f, const void *msg, struct wb_buf *out, struct wb_err *err)
{
	const struct wb_msg_info *m = wb_msg_info(f->type);

	assert(m && m->encoding == WB_ENC_BIN);
	if (f->type == WBP_PEER && wb_peer_check_fields(msg, err) < 0)
		return wb_err_wrap(err, -EINVAL, "message %s", m->name);
	return wb__msg_encode(f, m, msg, wb_table_encode_bin, out, err);
}

int wb_msg_encode_head(const struct wb_frame *f, const void *msg, uint32_t rest, struct wb_buf *out,
	struct wb_err *err)
{
	const struct wb_msg_info *m = wb_msg_info(f->type);
	const struct wb_fdef *last = &m->table->field[m->table->n_field - 1];
	struct wb_frame head = *f;
	size_t at = out->len;
	int rc = wb_msg_encode_bin(f, msg, out, err);

	assert(last->kind == WBF_BLOB && last->since <= f->version && !wb__count_in(msg, last));
	if (rc < 0)
		return rc;
	head.bytes = (uint32_t)(out->len - at - WB_FRAME_BYTES) + rest;
	if (rest > last->max || head.bytes > m->cap)
		return wb_err_set(err, -E2BIG, "message %s: %s of %u bytes is too long", m->name,
			last->name, rest);
	wb_frame_encode(&head, out->data + at);
	out->len -= sizeof(rest);
	wb_buf_u32(out, rest);
	return 0;
}

static size_t width(const struct wb_fdef *f)
{
	static const uint8_t of[] = {
		[WBF_BOOL] = 1, [WBF_U32] = 4, [WBF_U64] = 8, [WBF_I64] = 8, [WBF_STRUCTS] = 0};

	return of[f->kind];
}

void wb_msg_patch_u64(uint8_t *frame, size_t bytes, const char *field, uint64_t v)
{
	const struct wb_fdef *f;
	const struct wb_table *t;
	struct wb_frame head;
	size_t at = bytes;
	int rc = wb_frame_decode(frame, bytes, &head, NULL);

	assert(rc == 0);
	(void)rc;
	t = wb_msg_info(head.type)->table;
	for (f = t->field + t->n_field - 1; strcmp(f->name, field) != 0; f--) {
		assert(f > t->field && (f->since > head.version || width(f)));
		at -= f->since > head.version ? 0 : width(f);
	}
	assert(width(f) == sizeof(v));
	for (size_t i = 0; i < sizeof(v) && f->since <= head.version; i++)
		frame[at - sizeof(v) + i] = (uint8_t)(v >> 8 * i);
}

int wb_msg_decode_bin(const struct wb_frame *f, const void *body, void *msg, struct wb_err *err)
{
	const struct wb_msg_info *m = wb_msg_info(f->type);
	int rc;

	if (!m || m->encoding != WB_ENC_BIN)
		return wb_err_set(err, -EBADMSG, "message 0x%x (%s) is not a binary message",
			f->type, wb_msg_name(f->type));
	rc = wb_table_decode_bin(m->table, body, f->bytes, f->version, WBP_VERSION_MAX, msg, err);
	if (rc < 0 || f->type != WBP_PEER)
		return rc;
	rc = wb_peer_check_fields(msg, err);
	if (rc == 0)
		return 0;
	wb_msg_free(f->type, msg);
	return wb_err_wrap(err, rc, "message %s", m->name);
}
