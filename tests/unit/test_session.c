/* SPDX-License-Identifier: Apache-2.0 */
/* Control sessions, without sockets: what may come when, what is sent, who is late, how they end.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "proto/session.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_proto.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define S WB_NS_PER_S
#define SENT_MAX 64

/* A channel that remembers. */
struct link {
	struct {
		struct wb_frame head;
		struct wb_msg_heartbeat beat;
		size_t bytes;
		int fd; /* the first that came with it, or -1 */
	} sent[SENT_MAX];
	uint32_t n;
	int rc; /* of the next ones */
	bool is_closed;
};

static int link_send(void *cookie, const void *frame, size_t bytes, const int *fds, uint32_t n_fd)
{
	struct link *l = cookie;
	const uint8_t *body;
	union wb_msg m;

	if (l->rc < 0)
		return l->rc;
	ck_assert_uint_lt(l->n, SENT_MAX);
	ck_assert_int_eq(wb_frame_check(frame, bytes, &l->sent[l->n].head, &body, NULL), 0);
	ck_assert_int_eq(wb_msg_decode(&l->sent[l->n].head, body, &m, NULL), 0);
	if (l->sent[l->n].head.type == WBP_HEARTBEAT)
		l->sent[l->n].beat = m.heartbeat;
	wb_msg_free(l->sent[l->n].head.type, &m);
	l->sent[l->n].fd = n_fd ? fds[0] : -1;
	l->sent[l->n++].bytes = bytes;
	return 0;
}

static void link_close(void *cookie)
{
	struct link *l = cookie;

	ck_assert(!l->is_closed);
	l->is_closed = true;
}

static const struct wb_session_io io = {link_send, link_close, wb_msg_encode, wb_msg_decode, NULL};
static struct link far;
static struct wb_session s;

#define UP                                                                                         \
	{                                                                                          \
		WB_SESSION_UP, WB_SESSION_UP                                                       \
	}
#define AS_WORKER                                                                                  \
	{                                                                                          \
		WB_SESSION_TRAINER, WB_SESSION_ROLLOUT                                             \
	}

/* The sides, and which pair they are of as messages.h writes it. */
static const struct side {
	enum wb_session_side side;
	bool opens;
	uint16_t first, reject;
	enum wb_session_state up[2]; /* when all is said */
	const char *us, *them;
} sides[] = {
	{WB_SIDE_AGENT, true, WBP_HELLO, WBP_REJECT, UP, "agent", "operator"},
	{WB_SIDE_OPERATOR, false, WBP_HELLO, WBP_REJECT, UP, "operator", "agent"},
	{WB_SIDE_DIALLED, true, WBP_PEER_HELLO, WBP_REJECT, UP, "agent", "agent"},
	{WB_SIDE_ACCEPTED, false, WBP_PEER_HELLO, WBP_REJECT, UP, "agent", "agent"},
	{WB_SIDE_LIBRARY, true, WBP_APP_HELLO, 0, AS_WORKER, "app", "agent"},
	{WB_SIDE_WORKERS, false, WBP_APP_HELLO, WBP_APP_REJECT, AS_WORKER, "agent", "app"},
};

static void open_session(enum wb_session_side side, struct wb_session_counts *counts)
{
	struct wb_rng rng = {1};
	union wb_msg m = {0};

	far = (struct link){0};
	s = (struct wb_session){.io = &io, .side = side, .counts = counts};
	if (!sides[side].opens) {
		wb_session_accept(&s, &far, 1 * S);
		return;
	}
	wb_session_dial(&s, &far, 1 * S);
	fx_fill_msg(wb_msg_info(sides[side].first)->table, &m, &rng, true);
	ck_assert_int_eq(wb_session_open(&s, &m, 1 * S), 0);
	wb_msg_free(sides[side].first, &m);
	ck_assert_uint_eq(far.sent[0].head.type, sides[side].first);
	far.n = 0;
}

static bool is_up(enum wb_session_state state)
{
	return state >= WB_SESSION_UP && state < WB_SESSION_ENDING;
}

static bool has_state(const struct side *of, enum wb_session_state state)
{
	bool is_workers = of->up[0] == WB_SESSION_TRAINER;

	switch (state) {
	case WB_SESSION_DIALLING:
		return of->opens;
	case WB_SESSION_ASKED:
		return !of->opens && !is_workers;
	case WB_SESSION_WELCOMED:
		return is_workers;
	case WB_SESSION_ATTACHING:
		return is_workers && of->opens;
	default:
		return !is_up(state) || state == of->up[0] || state == of->up[1];
	}
}

/* To @state from the beginning; false: this side has no such state. */
static bool bring(enum wb_session_side side, enum wb_session_state state)
{
	if (!has_state(&sides[side], state))
		return false;
	if (state <= WB_SESSION_DIALLING) {
		far = (struct link){0};
		s = (struct wb_session){.io = &io, .side = side};
		if (state == WB_SESSION_DIALLING)
			wb_session_dial(&s, &far, 1 * S);
		return true;
	}
	open_session(side, NULL);
	if (state > WB_SESSION_HELLO && state < WB_SESSION_ENDING)
		wb_session_enter(&s, state, 1 * S);
	if (state == WB_SESSION_ENDING)
		wb_session_end(&s, -ECANCELED, "for a test");
	return true;
}

/* A frame of this type, its content by chance. */
static void make(uint16_t type, uint32_t version, struct wb_buf *b)
{
	const struct wb_msg_info *info = wb_msg_info(type);
	struct wb_frame f = {.version = (uint8_t)version, .type = type};
	struct wb_rng rng = {type};
	union wb_msg m = {0};

	fx_fill_msg(info->table, &m, &rng, true);
	wb_buf_init(b, (size_t)info->cap + WB_FRAME_BYTES);
	ck_assert_int_eq(wb_msg_encode(&f, &m, b, NULL), 0);
	wb_msg_free(type, &m);
}

static int take(uint16_t type, uint64_t now, struct wb_err *err)
{
	struct wb_frame f;
	struct wb_buf b;
	union wb_msg m;
	int rc;

	make(type, WBP_VERSION_MAX, &b);
	rc = wb_session_take(&s, b.data, b.len, now, &f, &m, err);
	wb_buf_finish(&b);
	if (rc == 1)
		wb_msg_free(f.type, &m);
	return rc;
}

static int take_beat(uint64_t sent, uint64_t echo, uint64_t now)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_HEARTBEAT};
	struct wb_msg_heartbeat m = {.sent_ns = sent, .echo_ns = echo};
	struct wb_buf b;
	union wb_msg out;
	int rc;

	wb_buf_init(&b, 4096);
	ck_assert_int_eq(wb_msg_encode(&f, &m, &b, NULL), 0);
	rc = wb_session_take(&s, b.data, b.len, now, &f, &out, NULL);
	wb_buf_finish(&b);
	return rc;
}

/* ---- turns ------------------------------------------------------------------------------------
 */

/* All that may come; nothing else, and nothing anywhere else. */
static const struct {
	enum wb_session_side side;
	enum wb_session_state state;
	const char *may; /* between spaces */
} turns[] = {
	{WB_SIDE_AGENT, WB_SESSION_HELLO, " WELCOME REJECT REDIRECT "},
	{WB_SIDE_AGENT, WB_SESSION_UP,
		" WANT CONTENT PLAN ACTIVATE PROGRESS READER_ANSWER HEARTBEAT DRAIN REJECT "
		"REDIRECT "},
	{WB_SIDE_OPERATOR, WB_SESSION_HELLO, " HELLO "},
	{WB_SIDE_OPERATOR, WB_SESSION_UP,
		" WORKERS CONTENT READY REFUSE REPORT READER HEARTBEAT DRAIN REJECT "},
	{WB_SIDE_DIALLED, WB_SESSION_HELLO, " PEER_WELCOME REJECT "},
	{WB_SIDE_DIALLED, WB_SESSION_UP, " PEER HEARTBEAT REJECT "},
	{WB_SIDE_ACCEPTED, WB_SESSION_HELLO, " PEER_HELLO "},
	{WB_SIDE_ACCEPTED, WB_SESSION_UP, " PEER HEARTBEAT "},
	{WB_SIDE_LIBRARY, WB_SESSION_HELLO, " APP_WELCOME APP_REJECT "},
	{WB_SIDE_LIBRARY, WB_SESSION_WELCOMED, " APP_REJECT "},
	{WB_SIDE_LIBRARY, WB_SESSION_ATTACHING, " APP_ATTACHED APP_STATUS APP_REJECT "},
	{WB_SIDE_LIBRARY, WB_SESSION_TRAINER,
		" APP_STATUS APP_PLANNED APP_SEND_STATE APP_MEM_RELEASED APP_MEM_ACQUIRED "
		"APP_REJECT "},
	{WB_SIDE_LIBRARY, WB_SESSION_ROLLOUT,
		" APP_STATUS APP_PLANNED APP_GO APP_WAKE APP_BEGIN APP_AREA APP_INSTALL APP_END "
		"APP_MEM_RELEASED APP_MEM_ACQUIRED APP_REJECT "},
	{WB_SIDE_WORKERS, WB_SESSION_HELLO, " APP_HELLO "},
	{WB_SIDE_WORKERS, WB_SESSION_WELCOMED, " APP_ATTACH APP_DETACH "},
	{WB_SIDE_WORKERS, WB_SESSION_TRAINER,
		" APP_SEND APP_RELEASE APP_MEM_RELEASE APP_MEM_ACQUIRE APP_DETACH "},
	{WB_SIDE_WORKERS, WB_SESSION_ROLLOUT,
		" APP_PARKED APP_BEGUN APP_INSTALLED APP_RESUMED APP_MEM_RELEASE APP_MEM_ACQUIRE "
		"APP_DETACH "},
};

static bool may_come(enum wb_session_side side, enum wb_session_state state, const char *name)
{
	char word[64];

	snprintf(word, sizeof(word), " %s ", name);
	for (size_t i = 0; i < WB_ARRAY_SIZE(turns); i++)
		if (turns[i].side == side && turns[i].state == state)
			return strstr(turns[i].may, word);
	return false;
}

/* As messages.h says who sends it. */
static bool is_of_pair(const struct side *of, const struct wb_msg_info *info)
{
	char who[64];

	snprintf(who, sizeof(who), "%s > %s", of->them, of->us);
	return !strcmp(info->who, who) || !strcmp(info->who, "any > any");
}

static void check_turn(const struct side *of, enum wb_session_state state, uint32_t message)
{
	const struct wb_msg_info *info = wb_msg_at(message);
	struct wb_err err = {0};
	int rc, want;

	bring(of->side, state);
	want = wb_session_is_over(&s) ? 0 : may_come(of->side, state, info->name) ? 1 : -EPROTO;
	rc = take(info->type, 2 * S, &err);
	ck_assert_msg(rc == want, "side %d state %d %s: %d, not %d (%s)", (int)of->side, (int)state,
		info->name, rc, want, err.msg);
	ck_assert_msg(rc != 1 || is_of_pair(of, info), "%s comes from %s", info->name, info->who);
	if (rc < 0)
		ck_assert_msg(
			strstr(err.msg, info->name), "%s is not named: %s", info->name, err.msg);
	ck_assert_msg(!far.is_closed || state == WB_SESSION_ENDING, "the caller ends it");
}

START_TEST(a_message_is_taken_in_its_turn_and_refused_by_name_in_any_other)
{
	const struct side *of = &sides[_i];
	uint32_t n = 0;

	for (int state = 0; state < WB_SESSION_STATES; state++)
		for (uint32_t i = 0; wb_msg_at(i) && bring(of->side, state); i++, n++)
			check_turn(of, state, i);
	ck_assert_uint_gt(n, 100);
}
END_TEST

START_TEST(a_body_out_of_its_turn_is_not_read)
{
	struct wb_err err = {0};
	struct wb_frame f;
	struct wb_buf b;
	union wb_msg m;

	bring(WB_SIDE_OPERATOR, WB_SESSION_HELLO);
	make(WBP_WORKERS, WBP_VERSION_MAX, &b);
	memset(b.data + WB_FRAME_BYTES, '?', b.len - WB_FRAME_BYTES);
	ck_assert_int_eq(wb_session_take(&s, b.data, b.len, 2 * S, &f, &m, &err), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err.msg, "HELLO must be first"));
	wb_buf_finish(&b);
}
END_TEST

START_TEST(what_is_no_frame_or_cannot_be_decoded_is_refused)
{
	struct wb_err err = {0};
	struct wb_frame f;
	struct wb_buf b;
	union wb_msg m;

	bring(WB_SIDE_OPERATOR, WB_SESSION_UP);
	make(WBP_READY, WBP_VERSION_MAX, &b);
	memset(b.data + WB_FRAME_BYTES, '?', b.len - WB_FRAME_BYTES);
	ck_assert_int_eq(wb_session_take(&s, b.data, b.len, 2 * S, &f, &m, &err), -EBADMSG);
	b.data[0] = 'X';
	ck_assert_int_eq(wb_session_take(&s, b.data, b.len, 2 * S, &f, &m, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.msg, "not a WeightBridge peer"));
	wb_buf_finish(&b);
}
END_TEST

START_TEST(before_its_first_message_is_answered_a_side_says_nothing_else)
{
	struct wb_msg_drain m = {.sentence = "bye"};

	for (size_t i = 0; i < WB_ARRAY_SIZE(sides); i++)
		for (int state = 0; state < WB_SESSION_STATES; state++) {
			bool may = (state > WB_SESSION_HELLO && state < WB_SESSION_ENDING) ||
				   (state == WB_SESSION_HELLO && !sides[i].opens);

			if (!bring(sides[i].side, state))
				continue;
			ck_assert_int_eq(wb_session_send(&s, WBP_DRAIN, &m), may ? 0 : -ENOTCONN);
			ck_assert_uint_eq(far.n, may);
		}
}
END_TEST

/* ---- versions ---------------------------------------------------------------------------------
 */

START_TEST(after_it_is_agreed_on_messages_are_written_in_that_version)
{
	struct wb_msg_drain m = {.sentence = "bye"};
	struct wb_err err = {0};

	bring(WB_SIDE_OPERATOR, WB_SESSION_HELLO);
	ck_assert_int_eq(wb_session_agree(&s, "agent a", 1, 1, &err), 0);
	ck_assert_int_eq(wb_session_send(&s, WBP_DRAIN, &m), 0);
	ck_assert_uint_eq(far.sent[0].head.version, 1);
	bring(WB_SIDE_AGENT, WB_SESSION_HELLO);
	ck_assert_int_eq(wb_session_chosen(&s, "the operator", 1, &err), 0);
	wb_session_enter(&s, WB_SESSION_UP, 1 * S);
	ck_assert_int_eq(wb_session_send(&s, WBP_DRAIN, &m), 0);
	ck_assert_uint_eq(far.sent[0].head.version, 1);
}
END_TEST

START_TEST(descriptors_travel_with_their_message)
{
	struct wb_msg_app_detach m = {0};
	const int fd = 77;

	bring(WB_SIDE_LIBRARY, WB_SESSION_WELCOMED);
	ck_assert_int_eq(wb_session_send_fds(&s, WBP_APP_DETACH, &m, &fd, 1), 0);
	ck_assert_int_eq(far.sent[0].fd, 77);
	ck_assert_int_eq(wb_session_send(&s, WBP_APP_DETACH, &m), 0);
	ck_assert_int_eq(far.sent[1].fd, -1);
}
END_TEST

/* An agent of any build can read what a library says first. */
START_TEST(a_librarys_first_message_is_of_the_oldest_version_and_others_of_the_newest)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(sides); i++)
		if (bring(sides[i].side, WB_SESSION_HELLO))
			ck_assert_uint_eq(s.version, sides[i].up[0] == WB_SESSION_UP
							     ? WBP_VERSION_MAX
							     : WBP_VERSION_MIN);
}
END_TEST

START_TEST(a_version_that_this_build_does_not_speak_is_refused_for_good)
{
	static const uint32_t bad[] = {0, WBP_VERSION_MIN - 1, WBP_VERSION_MAX + 1, UINT32_MAX};

	for (size_t i = 0; i < WB_ARRAY_SIZE(bad); i++) {
		struct wb_err err = {0};

		bring(WB_SIDE_AGENT, WB_SESSION_HELLO);
		ck_assert_int_eq(wb_session_chosen(&s, "the operator", bad[i], &err), WB_EVERSION);
		ck_assert(s.is_refused);
		ck_assert_ptr_nonnull(strstr(err.msg, "the operator"));
	}
	bring(WB_SIDE_OPERATOR, WB_SESSION_HELLO);
	ck_assert_int_eq(wb_session_agree(&s, "agent a", 90, 91, NULL), WB_EVERSION);
	ck_assert_uint_eq(s.version, WBP_VERSION_MAX);
}
END_TEST

/* ---- ends -------------------------------------------------------------------------------------
 */

START_TEST(the_cause_of_an_end_is_of_the_side_that_ended_it)
{
	struct wb_err reset = {.code = -ECONNRESET, .msg = "connection reset"}, none = {0};
	const struct wb_err *why;

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	wb_session_end(&s, -EPROTO, "it spoke of %s", "cats");
	wb_session_end(&s, -EINVAL, "a second cause");
	ck_assert(far.is_closed);
	why = wb_session_closed(&s, &reset);
	ck_assert_int_eq(why->code, -EPROTO);
	ck_assert_str_eq(why->msg, "it spoke of cats");
	ck_assert(s.was_up && s.state == WB_SESSION_DOWN);

	bring(WB_SIDE_AGENT, WB_SESSION_HELLO);
	why = wb_session_closed(&s, &reset);
	ck_assert_int_eq(why->code, -ECONNRESET);
	ck_assert_str_eq(why->msg, "connection reset");
	ck_assert(!s.was_up && !far.is_closed);

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	why = wb_session_closed(&s, &none);
	ck_assert_int_eq(why->code, 0);
	ck_assert_str_eq(why->msg, "it closed the connection");
}
END_TEST

START_TEST(a_session_begins_anew_on_another_channel)
{
	struct wb_err none = {0};

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	s.is_refused = true;
	s.version = 1;
	(void)wb_session_closed(&s, &none);
	wb_session_dial(&s, &far, 9 * S);
	ck_assert(!s.was_up && !s.is_refused);
	ck_assert_uint_eq(s.version, WBP_VERSION_MAX);
}
END_TEST

START_TEST(a_channel_that_does_not_take_a_message_ends_the_session)
{
	struct wb_msg_drain m = {.sentence = "bye"};

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	far.rc = -EAGAIN;
	ck_assert_int_eq(wb_session_send(&s, WBP_DRAIN, &m), -EAGAIN);
	ck_assert_int_eq(s.state, WB_SESSION_ENDING);
	ck_assert_str_eq(s.cause.msg, "DRAIN could not be sent: it does not read");
	far.rc = 0;
	ck_assert_int_eq(wb_session_send(&s, WBP_DRAIN, &m), -ENOTCONN);
	ck_assert_uint_eq(far.n, 0);
}
END_TEST

START_TEST(who_is_rejected_hears_why_and_that_is_the_end)
{
	if (sides[_i].opens) /* it says nothing before it is answered */
		return;
	bring(sides[_i].side, WB_SESSION_HELLO);
	wb_session_reject(&s, -EPERM, true, "no token");
	ck_assert_uint_eq(far.n, 1);
	ck_assert_uint_eq(far.sent[0].head.type, sides[_i].reject);
	ck_assert(far.is_closed);
	ck_assert_int_eq(s.cause.code, -EPERM);
	ck_assert_str_eq(s.cause.msg, "no token");
	wb_session_reject(&s, -EPERM, true, "again");
	ck_assert_uint_eq(far.n, 1);
}
END_TEST

/* ---- time -------------------------------------------------------------------------------------
 */

static const struct {
	enum wb_session_side side;
	enum wb_session_state state;
	uint64_t late_s; /* begun at 1 s, heard at 3 s */
	const char *word;
} late[] = {
	{WB_SIDE_AGENT, WB_SESSION_DIALLING, 0, NULL},
	{WB_SIDE_AGENT, WB_SESSION_HELLO, 1 + 5, "no answer to HELLO within 5.0 s"},
	{WB_SIDE_AGENT, WB_SESSION_UP, 3 + 7, "it has been silent for 7.0 s"},
	{WB_SIDE_AGENT, WB_SESSION_ENDING, 0, NULL},
	{WB_SIDE_OPERATOR, WB_SESSION_HELLO, 1 + 5, "it connected and did not say who it is"},
	{WB_SIDE_OPERATOR, WB_SESSION_ASKED, 1 + 6, "no answer to HELLO within 6.0 s"},
	{WB_SIDE_OPERATOR, WB_SESSION_UP, 3 + 7, "it has been silent for 7.0 s"},
	{WB_SIDE_LIBRARY, WB_SESSION_HELLO, 1 + 5, "no answer to APP_HELLO within 5.0 s"},
	{WB_SIDE_LIBRARY, WB_SESSION_WELCOMED, 0, NULL},
	{WB_SIDE_LIBRARY, WB_SESSION_ATTACHING, 1 + 6, "no answer to APP_ATTACH within 6.0 s"},
	{WB_SIDE_WORKERS, WB_SESSION_HELLO, 1 + 5, "it connected and did not say who it is"},
};

START_TEST(a_bound_that_is_as_long_as_can_be_is_none)
{
	bring(WB_SIDE_LIBRARY, WB_SESSION_HELLO);
	s.bounds.hello_ns = UINT64_MAX;
	ck_assert_uint_eq(wb_session_due(&s), UINT64_MAX);
	ck_assert_int_eq(wb_session_tick(&s, 1000 * S, NULL), 0);
}
END_TEST

START_TEST(each_state_has_its_bound_and_is_late_from_then_on)
{
	struct wb_err err = {0};

	ck_assert(bring(late[_i].side, late[_i].state));
	ck_assert_uint_eq(wb_session_due(&s), UINT64_MAX);
	s.bounds = (struct wb_session_bounds){5 * S, 6 * S, 7 * S, 0};
	if (late[_i].state == WB_SESSION_UP)
		ck_assert_int_eq(take(WBP_DRAIN, 3 * S, &err), 1);
	if (!late[_i].word) {
		ck_assert_uint_eq(wb_session_due(&s), UINT64_MAX);
		ck_assert_int_eq(wb_session_tick(&s, 1000 * S, &err), 0);
		return;
	}
	ck_assert_uint_eq(wb_session_due(&s), late[_i].late_s * S);
	ck_assert_int_eq(wb_session_tick(&s, late[_i].late_s * S - 1, &err), 0);
	ck_assert_int_eq(wb_session_tick(&s, late[_i].late_s * S, &err), -ETIMEDOUT);
	ck_assert_str_eq(err.msg, late[_i].word);
	ck_assert(!far.is_closed);
}
END_TEST

START_TEST(heartbeats_come_at_their_times_and_ask_when_nothing_was_heard)
{
	uint64_t now = 1 * S;

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	s.bounds.beat_ns = 2 * S;
	for (uint32_t i = 0; i < 8; i++) { /* these measure the offset of the clocks */
		ck_assert_uint_eq(wb_session_due(&s), now);
		ck_assert_int_eq(wb_session_tick(&s, now, NULL), 0);
		ck_assert_uint_eq(far.n, i + 1);
		ck_assert_uint_eq(far.sent[i].beat.sent_ns, now);
		now += 100 * WB_NS_PER_MS;
	}
	ck_assert_int_eq(take_beat(0, 0, now), 1);
	ck_assert_int_eq(wb_session_tick(&s, now, NULL), 0);
	ck_assert_uint_eq(far.sent[8].beat.sent_ns, 0);
	for (uint32_t i = 9; i < 12; i++) {
		ck_assert_uint_ge(wb_session_due(&s), now + 2 * S - 2 * S / 10);
		ck_assert_uint_le(wb_session_due(&s), now + 2 * S + 2 * S / 10);
		now = wb_session_due(&s);
		ck_assert_int_eq(wb_session_tick(&s, now - 1, NULL), 0);
		ck_assert_uint_eq(far.n, i);
		ck_assert_int_eq(wb_session_tick(&s, now, NULL), 0);
		ck_assert_uint_eq(far.n, i + 1);
		ck_assert_uint_eq(far.sent[i].beat.sent_ns, i == 9 ? 0 : now);
	}
}
END_TEST

START_TEST(a_side_that_measures_no_clock_does_not_ask_while_it_hears)
{
	bring(WB_SIDE_ACCEPTED, WB_SESSION_UP);
	s.bounds.beat_ns = 2 * S;
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t now = wb_session_due(&s);

		ck_assert_int_eq(take_beat(0, 0, now), 1);
		ck_assert_int_eq(wb_session_tick(&s, now, NULL), 0);
		ck_assert_uint_eq(far.n, i + 1);
		ck_assert_uint_eq(far.sent[i].beat.sent_ns, 0);
	}
}
END_TEST

START_TEST(a_heartbeat_that_asks_is_answered_and_no_other)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(sides); i++) {
		if (!bring(sides[i].side, WB_SESSION_UP))
			continue;
		ck_assert_int_eq(take_beat(77, 0, 5 * S), 1);
		ck_assert_uint_eq(far.n, 1);
		ck_assert_uint_eq(far.sent[0].beat.sent_ns, 5 * S);
		ck_assert_uint_eq(far.sent[0].beat.echo_ns, 77);
		ck_assert_uint_eq(far.sent[0].beat.echo_received_ns, 5 * S);
		ck_assert_int_eq(take_beat(0, 0, 5 * S), 1);
		ck_assert_int_eq(take_beat(78, 66, 5 * S), 1);
		ck_assert_uint_eq(far.n, 1);
	}
}
END_TEST

START_TEST(frames_are_counted_and_heartbeats_apart)
{
	struct wb_session_counts n = {0};
	struct wb_msg_drain m = {.sentence = "bye"};

	open_session(WB_SIDE_AGENT, &n);
	wb_session_enter(&s, WB_SESSION_UP, 1 * S);
	ck_assert_uint_eq(n.tx.frames, 1); /* HELLO */
	ck_assert_int_eq(wb_session_send(&s, WBP_DRAIN, &m), 0);
	ck_assert_int_eq(take(WBP_DRAIN, 2 * S, NULL), 1);
	ck_assert_int_eq(take(WBP_HELLO, 2 * S, NULL), -EPROTO);
	ck_assert_int_eq(take_beat(5, 0, 2 * S), 1); /* and its answer */
	ck_assert_uint_eq(n.tx.frames, 2);
	ck_assert_uint_eq(n.rx.frames, 2);
	ck_assert_uint_eq(n.beat.frames, 2);
	ck_assert_uint_gt(n.tx.bytes, far.sent[0].bytes);
}
END_TEST

/* ---- kept messages ----------------------------------------------------------------------------
 */

static void keep(struct wb_keep *k, uint64_t transfer, uint32_t max)
{
	struct wb_p_epoch e = {1, transfer};
	struct wb_msg_ready m = {.object = "ns/o", .epoch = e};

	ck_assert_int_eq(wb_keep_add(k, wb_msg_encode, WBP_READY, &m, max), 0);
}

START_TEST(a_kept_message_goes_out_once_a_connection_until_it_is_confirmed)
{
	struct wb_keep k = {0};
	struct wb_err none = {0};

	bring(WB_SIDE_AGENT, WB_SESSION_HELLO);
	keep(&k, 1, 8);
	ck_assert_int_eq(wb_keep_send(&k, &s, 10), -ENOTCONN);
	wb_session_enter(&s, WB_SESSION_UP, 1 * S);
	ck_assert_int_eq(wb_keep_send(&k, &s, 10), 0);
	keep(&k, 2, 8);
	ck_assert_int_eq(wb_keep_send(&k, &s, 20), 0);
	ck_assert_uint_eq(far.n, 2);
	wb_keep_confirm(&k, 9);
	ck_assert_uint_eq(k.n, 2);
	wb_keep_confirm(&k, 19);
	ck_assert_uint_eq(k.n, 1);

	(void)wb_session_closed(&s, &none);
	wb_keep_lost(&k);
	wb_keep_confirm(&k, UINT64_MAX); /* by what was sent before: not over this connection */
	ck_assert_uint_eq(k.n, 1);
	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	ck_assert_int_eq(wb_keep_send(&k, &s, 30), 0);
	ck_assert_uint_eq(far.n, 1);
	wb_keep_confirm(&k, 30);
	ck_assert(!k.n && !k.first && !k.last);
}
END_TEST

START_TEST(of_too_many_kept_messages_the_oldest_goes)
{
	struct wb_keep k = {0};

	for (uint64_t i = 0; i < 5; i++)
		keep(&k, i, 3);
	ck_assert_uint_eq(k.n, 3);
	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	ck_assert_int_eq(wb_keep_send(&k, &s, 1), 0);
	ck_assert_uint_eq(far.n, 3);
	wb_keep_drop(&k);
	ck_assert(!k.n && !k.first);
}
END_TEST

START_TEST(a_kept_message_is_written_anew_for_an_older_version)
{
	struct wb_keep k = {0};

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	s.version = WBP_VERSION_MIN;
	keep(&k, 1, 8);
	ck_assert_int_eq(wb_keep_send(&k, &s, 1), 0);
	ck_assert_uint_eq(far.sent[0].head.version, WBP_VERSION_MIN);
	wb_keep_drop(&k);
}
END_TEST

START_TEST(what_a_channel_did_not_take_stays_kept)
{
	struct wb_keep k = {0};

	bring(WB_SIDE_AGENT, WB_SESSION_UP);
	keep(&k, 1, 8);
	keep(&k, 2, 8);
	far.rc = -EAGAIN;
	ck_assert_int_eq(wb_keep_send(&k, &s, 5), -EAGAIN);
	wb_keep_confirm(&k, UINT64_MAX);
	ck_assert_uint_eq(k.n, 2);
	ck_assert(far.is_closed);
	wb_keep_drop(&k);
}
END_TEST

START_TEST(memory_that_is_short_loses_no_message_that_was_kept_before)
{
	struct wb_msg_ready m = {.object = "ns/o"};
	struct wb_keep k = {0};

	keep(&k, 1, 8);
	for (uint32_t i = 1; i < 4; i++) {
		wb_mem_fail_at(i);
		if (wb_keep_add(&k, wb_msg_encode, WBP_READY, &m, 8) == 0)
			break;
		ck_assert_uint_eq(k.n, 1);
	}
	wb_mem_fail_at(0);
	ck_assert_uint_ge(k.n, 1);
	wb_keep_drop(&k);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session");
	TCase *tc = tcase_create("session");

	tcase_add_loop_test(tc, a_message_is_taken_in_its_turn_and_refused_by_name_in_any_other, 0,
		WB_ARRAY_SIZE(sides));
	tcase_add_test(tc, a_body_out_of_its_turn_is_not_read);
	tcase_add_test(tc, what_is_no_frame_or_cannot_be_decoded_is_refused);
	tcase_add_test(tc, before_its_first_message_is_answered_a_side_says_nothing_else);
	tcase_add_test(tc, after_it_is_agreed_on_messages_are_written_in_that_version);
	tcase_add_test(tc, descriptors_travel_with_their_message);
	tcase_add_test(
		tc, a_librarys_first_message_is_of_the_oldest_version_and_others_of_the_newest);
	tcase_add_test(tc, a_version_that_this_build_does_not_speak_is_refused_for_good);
	tcase_add_test(tc, the_cause_of_an_end_is_of_the_side_that_ended_it);
	tcase_add_test(tc, a_session_begins_anew_on_another_channel);
	tcase_add_test(tc, a_channel_that_does_not_take_a_message_ends_the_session);
	tcase_add_loop_test(
		tc, who_is_rejected_hears_why_and_that_is_the_end, 0, WB_ARRAY_SIZE(sides));
	tcase_add_test(tc, a_bound_that_is_as_long_as_can_be_is_none);
	tcase_add_loop_test(
		tc, each_state_has_its_bound_and_is_late_from_then_on, 0, WB_ARRAY_SIZE(late));
	tcase_add_test(tc, heartbeats_come_at_their_times_and_ask_when_nothing_was_heard);
	tcase_add_test(tc, a_side_that_measures_no_clock_does_not_ask_while_it_hears);
	tcase_add_test(tc, a_heartbeat_that_asks_is_answered_and_no_other);
	tcase_add_test(tc, frames_are_counted_and_heartbeats_apart);
	tcase_add_test(tc, a_kept_message_goes_out_once_a_connection_until_it_is_confirmed);
	tcase_add_test(tc, of_too_many_kept_messages_the_oldest_goes);
	tcase_add_test(tc, a_kept_message_is_written_anew_for_an_older_version);
	tcase_add_test(tc, what_a_channel_did_not_take_stays_kept);
	tcase_add_test(tc, memory_that_is_short_loses_no_message_that_was_kept_before);
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
