/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/session.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "proto/beat.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BEATS 8 /* first heartbeats, by which the other side's clock is measured */
#define FIRST_BEATS_NS (100 * WB_NS_PER_MS)

static const struct {
	bool opens; /* else it answers */
	bool measures; /* the other side's clock, by the first heartbeats */
	uint8_t version; /* of messages until one is agreed on */
	uint16_t first; /* first message */
} sides[WB_SIDES] = {
	[WB_SIDE_AGENT] = {true, true, WBP_VERSION_MAX, WBP_HELLO},
	[WB_SIDE_OPERATOR] = {false, false, WBP_VERSION_MAX, WBP_HELLO},
	[WB_SIDE_DIALLED] = {true, false, WBP_VERSION_MAX, WBP_PEER_HELLO},
	[WB_SIDE_ACCEPTED] = {false, false, WBP_VERSION_MAX, WBP_PEER_HELLO},
	[WB_SIDE_LIBRARY] = {true, false, WBP_VERSION_MIN, WBP_APP_HELLO},
	[WB_SIDE_WORKERS] = {false, false, WBP_VERSION_MIN, WBP_APP_HELLO},
};

/* ---- what may come ----------------------------------------------------------------------------
 */

#define HELLO (1u << WB_SESSION_HELLO)
#define WELCOMED (1u << WB_SESSION_WELCOMED)
#define ATTACHING (1u << WB_SESSION_ATTACHING)
#define UP (1u << WB_SESSION_UP)
#define TRAINER (1u << WB_SESSION_TRAINER)
#define ROLLOUT (1u << WB_SESSION_ROLLOUT)
#define EITHER (TRAINER | ROLLOUT)

static const struct {
	uint8_t side; /* that receives these messages */
	uint16_t states;
	uint16_t may[10];
} turns[] = {
	{WB_SIDE_AGENT, HELLO, {WBP_WELCOME}},
	{WB_SIDE_AGENT, HELLO | UP, {WBP_REJECT, WBP_REDIRECT}},
	{WB_SIDE_AGENT, UP,
		{WBP_WANT, WBP_CONTENT, WBP_PROGRESS, WBP_PLAN, WBP_ACTIVATE, WBP_READER_ANSWER,
			WBP_HEARTBEAT, WBP_DRAIN}},
	{WB_SIDE_OPERATOR, HELLO, {WBP_HELLO}},
	{WB_SIDE_OPERATOR, UP,
		{WBP_WORKERS, WBP_CONTENT, WBP_READY, WBP_REFUSE, WBP_REPORT, WBP_READER,
			WBP_HEARTBEAT, WBP_DRAIN, WBP_REJECT}},
	{WB_SIDE_DIALLED, HELLO, {WBP_PEER_WELCOME}},
	{WB_SIDE_DIALLED, HELLO | UP, {WBP_REJECT}},
	{WB_SIDE_DIALLED, UP, {WBP_PEER, WBP_HEARTBEAT}},
	{WB_SIDE_ACCEPTED, HELLO, {WBP_PEER_HELLO}},
	{WB_SIDE_ACCEPTED, UP, {WBP_PEER, WBP_HEARTBEAT}},
	{WB_SIDE_LIBRARY, HELLO, {WBP_APP_WELCOME}},
	{WB_SIDE_LIBRARY, HELLO | WELCOMED | ATTACHING | EITHER, {WBP_APP_REJECT}},
	{WB_SIDE_LIBRARY, ATTACHING, {WBP_APP_ATTACHED}},
	{WB_SIDE_LIBRARY, ATTACHING | EITHER, {WBP_APP_STATUS}},
	{WB_SIDE_LIBRARY, EITHER, {WBP_APP_PLANNED, WBP_APP_MEM_RELEASED, WBP_APP_MEM_ACQUIRED}},
	{WB_SIDE_LIBRARY, TRAINER, {WBP_APP_SEND_STATE}},
	{WB_SIDE_LIBRARY, ROLLOUT,
		{WBP_APP_GO, WBP_APP_WAKE, WBP_APP_BEGIN, WBP_APP_AREA, WBP_APP_INSTALL,
			WBP_APP_END}},
	{WB_SIDE_WORKERS, HELLO, {WBP_APP_HELLO}},
	{WB_SIDE_WORKERS, WELCOMED, {WBP_APP_ATTACH}},
	{WB_SIDE_WORKERS, WELCOMED | EITHER, {WBP_APP_DETACH}},
	{WB_SIDE_WORKERS, EITHER, {WBP_APP_MEM_RELEASE, WBP_APP_MEM_ACQUIRE}},
	{WB_SIDE_WORKERS, TRAINER, {WBP_APP_SEND, WBP_APP_RELEASE}},
	{WB_SIDE_WORKERS, ROLLOUT,
		{WBP_APP_PARKED, WBP_APP_BEGUN, WBP_APP_INSTALLED, WBP_APP_RESUMED}},
};

static bool is_its_turn(const struct wb_session *s, uint16_t type)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(turns); i++)
		for (size_t k = 0; k < WB_ARRAY_SIZE(turns[i].may) && turns[i].may[k]; k++)
			if (turns[i].may[k] == type && turns[i].side == s->side &&
				turns[i].states >> s->state & 1)
				return true;
	return false;
}

int wb_session_out_of_turn(const struct wb_session *s, uint16_t type, struct wb_err *err)
{
	const char *name = wb_msg_name(type), *first = wb_msg_name(sides[s->side].first);

	if (s->state == WB_SESSION_ASKED)
		return wb_err_set(err, -EPROTO, "%s came before the answer to %s", name, first);
	if (s->state == WB_SESSION_HELLO && !sides[s->side].opens)
		return wb_err_set(
			err, -EPROTO, "%s is out of place: %s must be first", name, first);
	return wb_err_set(err, -EPROTO, "%s is out of place", name);
}

/* ---- states -----------------------------------------------------------------------------------
 */

void wb_session_enter(struct wb_session *s, enum wb_session_state state, uint64_t now_ns)
{
	assert(state > s->state && state < WB_SESSION_ENDING && !wb_session_is_up(s));
	s->state = state;
	s->since_ns = now_ns;
	if (!wb_session_is_up(s))
		return;
	s->was_up = true;
	s->n_beat = 0;
	s->beat_at_ns = now_ns;
}

static void begin(struct wb_session *s, enum wb_session_state state, void *link, uint64_t now)
{
	assert(s->state == WB_SESSION_DOWN && link);
	s->link = link;
	s->version = sides[s->side].version;
	s->heard_ns = now;
	s->was_up = s->is_refused = false;
	wb_session_enter(s, state, now);
}

void wb_session_dial(struct wb_session *s, void *link, uint64_t now_ns)
{
	assert(sides[s->side].opens);
	begin(s, WB_SESSION_DIALLING, link, now_ns);
}

void wb_session_accept(struct wb_session *s, void *link, uint64_t now_ns)
{
	assert(!sides[s->side].opens);
	begin(s, WB_SESSION_HELLO, link, now_ns);
}

int wb_session_agree(
	struct wb_session *s, const char *who, uint32_t min, uint32_t max, struct wb_err *err)
{
	return wb_version_agree(who, WBP_VERSION_MIN, WBP_VERSION_MAX, min, max, &s->version, err);
}

int wb_session_chosen(struct wb_session *s, const char *who, uint32_t version, struct wb_err *err)
{
	if (version < WBP_VERSION_MIN || version > WBP_VERSION_MAX) {
		s->is_refused = true;
		return wb_err_set(err, WB_EVERSION,
			"%s chose protocol version %u, this build speaks %u to %u", who, version,
			WBP_VERSION_MIN, WBP_VERSION_MAX);
	}
	s->version = version;
	return 0;
}

void wb_session_end(struct wb_session *s, int code, const char *fmt, ...)
{
	va_list ap;

	if (wb_session_is_over(s))
		return;
	s->state = WB_SESSION_ENDING;
	s->cause.code = code;
	va_start(ap, fmt);
	vsnprintf(s->cause.msg, sizeof(s->cause.msg), fmt, ap);
	va_end(ap);
	s->io->close(s->link);
}

const struct wb_err *wb_session_closed(struct wb_session *s, const struct wb_err *why)
{
	if (s->state != WB_SESSION_ENDING)
		s->cause = *why;
	if (!s->cause.msg[0])
		wb_err_set(&s->cause, s->cause.code, "it closed the connection");
	s->state = WB_SESSION_DOWN;
	s->link = NULL;
	return &s->cause;
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static void count(struct wb_session_count *c, size_t bytes)
{
	c->frames++;
	c->bytes += bytes;
}

static int encode(
	wb_msg_encode_fn fn, uint32_t version, uint16_t type, const void *msg, struct wb_buf *b)
{
	struct wb_frame f = {.version = (uint8_t)version, .type = type};

	wb_buf_init(b, (size_t)wb_msg_info(type)->cap + WB_FRAME_BYTES);
	return fn(&f, msg, b, NULL);
}

/* Counts a frame that was sent; ends the session when @rc says that it was not.  Returns @rc. */
static int sent(struct wb_session *s, int rc, uint16_t type, size_t bytes)
{
	if (rc < 0)
		wb_session_end(s, rc, "%s could not be sent: %s", wb_msg_name(type),
			rc == -EAGAIN ? "it does not read" : wb_strerror(rc));
	else if (s->counts)
		count(type == WBP_HEARTBEAT ? &s->counts->beat : &s->counts->tx, bytes);
	return rc;
}

static int say(struct wb_session *s, uint16_t type, const void *msg, const int *fds, uint32_t n_fd)
{
	struct wb_buf b;
	int rc = encode(s->io->encode, s->version, type, msg, &b);

	if (rc == 0)
		rc = s->io->send(s->link, b.data, b.len, fds, n_fd);
	rc = sent(s, rc, type, b.len);
	wb_buf_finish(&b);
	return rc;
}

int wb_session_open(struct wb_session *s, const void *msg, uint64_t now_ns)
{
	wb_session_enter(s, WB_SESSION_HELLO, now_ns);
	s->heard_ns = now_ns;
	return say(s, sides[s->side].first, msg, NULL, 0);
}

static bool may_speak(const struct wb_session *s)
{
	return !wb_session_is_over(s) &&
	       s->state > (sides[s->side].opens ? WB_SESSION_HELLO : WB_SESSION_DIALLING);
}

int wb_session_send(struct wb_session *s, uint16_t type, const void *msg)
{
	return wb_session_send_fds(s, type, msg, NULL, 0);
}

int wb_session_send_fds(
	struct wb_session *s, uint16_t type, const void *msg, const int *fds, uint32_t n_fd)
{
	return may_speak(s) ? say(s, type, msg, fds, n_fd) : -ENOTCONN;
}

int wb_session_send_lent(
	struct wb_session *s, uint16_t type, const void *msg, const struct wb_lent *rest)
{
	struct wb_frame f = {.version = (uint8_t)s->version, .type = type};
	uint8_t head[WB_FRAME_BYTES];
	struct wb_buf b;
	int rc = 0;

	if (!may_speak(s))
		return -ENOTCONN;
	wb_buf_init(&b, (size_t)wb_msg_info(type)->cap + WB_FRAME_BYTES);
	f.bytes = (uint32_t)rest->bytes;
	wb_frame_encode(&f, head);
	if (msg)
		rc = wb_msg_encode_head(&f, msg, f.bytes, &b, NULL);
	else
		wb_buf_put(&b, head, sizeof(head));
	if (rc == 0)
		rc = b.rc < 0 ? b.rc : s->io->send_lent(s->link, b.data, b.len, rest);
	rc = sent(s, rc, type, b.len + rest->bytes);
	wb_buf_finish(&b);
	return rc;
}

void wb_session_reject(struct wb_session *s, int code, bool retry, const char *sentence)
{
	char text[WBP_TEXT_MAX];
	struct wb_msg_reject m = {.code = code, .sentence = text, .retry = retry};
	struct wb_msg_app_reject app = {.code = code, .sentence = text};

	snprintf(text, sizeof(text), "%s", sentence);
	if (s->side == WB_SIDE_WORKERS)
		(void)wb_session_send(s, WBP_APP_REJECT, &app);
	else
		(void)wb_session_send(s, WBP_REJECT, &m);
	wb_session_end(s, code, "%s", text);
}

int wb_session_send_frame(struct wb_session *s, const uint8_t *frame, size_t bytes)
{
	struct wb_frame f;
	const uint8_t *body;
	union wb_msg msg;
	int rc;

	if (!may_speak(s))
		return -ENOTCONN;
	rc = wb_frame_check(frame, bytes, &f, &body, NULL);
	if (rc == 0 && f.version == s->version)
		rc = s->io->send(s->link, frame, bytes, NULL, 0);
	else if (rc == 0)
		rc = s->io->decode(&f, body, &msg, NULL);
	if (rc < 0 || f.version == s->version)
		return sent(s, rc, f.type, bytes);
	rc = say(s, f.type, &msg, NULL, 0);
	wb_msg_free(f.type, &msg);
	return rc;
}

static void answer(struct wb_session *s, const struct wb_msg_heartbeat *m, uint64_t now)
{
	struct wb_msg_heartbeat reply = {now, m->sent_ns, now};

	if (m->sent_ns && !m->echo_ns)
		(void)wb_session_send(s, WBP_HEARTBEAT, &reply);
}

int wb_session_take(struct wb_session *s, const uint8_t *frame, size_t bytes, uint64_t now_ns,
	struct wb_frame *f, union wb_msg *m, struct wb_err *err)
{
	const uint8_t *body;
	int rc;

	if (wb_session_is_over(s))
		return 0;
	s->heard_ns = now_ns;
	rc = wb_frame_check(frame, bytes, f, &body, err);
	if (s->counts)
		count(rc == 0 && f->type == WBP_HEARTBEAT ? &s->counts->beat : &s->counts->rx,
			bytes);
	if (rc == 0 && !is_its_turn(s, f->type))
		rc = wb_session_out_of_turn(s, f->type, err);
	if (rc == 0)
		rc = s->io->decode(f, body, m, err);
	if (rc < 0)
		return rc;
	if (f->type == WBP_HEARTBEAT)
		answer(s, &m->heartbeat, now_ns);
	return 1;
}

/* ---- time -------------------------------------------------------------------------------------
 */

static uint64_t after(uint64_t from, uint64_t bound_ns)
{
	return bound_ns && bound_ns < UINT64_MAX - from ? from + bound_ns : UINT64_MAX;
}

/* From when on the other side is late; UINT64_MAX = never. */
static uint64_t late_at(const struct wb_session *s)
{
	switch (s->state) {
	case WB_SESSION_HELLO:
		return after(s->since_ns, s->bounds.hello_ns);
	case WB_SESSION_ASKED:
	case WB_SESSION_ATTACHING:
		return after(s->since_ns, s->bounds.asked_ns);
	default:
		return wb_session_is_up(s) ? after(s->heard_ns, s->bounds.silent_ns) : UINT64_MAX;
	}
}

static void beat(struct wb_session *s, uint64_t now)
{
	bool is_first = sides[s->side].measures && s->n_beat < FIRST_BEATS;
	struct wb_msg_heartbeat m = {0};

	if (is_first || wb_beat_wants_answer(now, s->heard_ns, s->bounds.beat_ns))
		m.sent_ns = now;
	s->n_beat++;
	s->beat_at_ns =
		now + (is_first ? FIRST_BEATS_NS
				: wb_beat_after_ns(now, s->clock_offset_ns, s->bounds.beat_ns));
	(void)wb_session_send(s, WBP_HEARTBEAT, &m);
}

static int say_late(const struct wb_session *s, uint64_t now, struct wb_err *err)
{
	const char *asked = wb_msg_name(
		s->state == WB_SESSION_ATTACHING ? WBP_APP_ATTACH : sides[s->side].first);

	if (wb_session_is_up(s))
		return wb_err_set(err, -ETIMEDOUT, "it has been silent for %.1f s",
			(double)(now - s->heard_ns) / 1e9);
	if (s->state == WB_SESSION_HELLO && !sides[s->side].opens)
		return wb_err_set(err, -ETIMEDOUT, "it connected and did not say who it is");
	return wb_err_set(err, -ETIMEDOUT, "no answer to %s within %.1f s", asked,
		(double)(now - s->since_ns) / 1e9);
}

int wb_session_tick(struct wb_session *s, uint64_t now_ns, struct wb_err *err)
{
	if (now_ns >= late_at(s))
		return say_late(s, now_ns, err);
	if (wb_session_is_up(s) && s->bounds.beat_ns && now_ns >= s->beat_at_ns)
		beat(s, now_ns);
	return 0;
}

uint64_t wb_session_due(const struct wb_session *s)
{
	uint64_t late = late_at(s);

	return wb_session_is_up(s) && s->bounds.beat_ns ? WB_MIN(late, s->beat_at_ns) : late;
}

/* ---- kept messages ----------------------------------------------------------------------------
 */

static void drop_first(struct wb_keep *k)
{
	struct wb_kept *m = k->first;

	k->first = m->next;
	if (!k->first)
		k->last = NULL;
	k->n--;
	wb_free(m->frame);
	wb_free(m);
}

/* Owns @frame_take from now on, also on failure; NULL is -ENOMEM. */
static int add(struct wb_keep *k, uint8_t *frame_take, size_t bytes, uint32_t max)
{
	struct wb_kept *m = frame_take ? wb_zalloc(1, sizeof(*m)) : NULL;

	if (!m) {
		wb_free(frame_take);
		return -ENOMEM;
	}
	m->frame = frame_take;
	m->bytes = bytes;
	if (k->last)
		k->last->next = m;
	else
		k->first = m;
	k->last = m;
	if (++k->n > max)
		drop_first(k);
	return 0;
}

int wb_keep_add(
	struct wb_keep *k, wb_msg_encode_fn fn, uint16_t type, const void *msg, uint32_t max)
{
	uint8_t *frame = NULL;
	size_t bytes = 0;
	struct wb_buf b;
	int rc = encode(fn, WBP_VERSION_MAX, type, msg, &b);

	if (rc == 0)
		rc = wb_buf_take(&b, &frame, &bytes);
	else
		wb_buf_finish(&b);
	return rc < 0 ? rc : add(k, frame, bytes, max);
}

int wb_keep_add_frame(struct wb_keep *k, const uint8_t *frame, size_t bytes, uint32_t max)
{
	uint8_t *copy = wb_alloc(bytes);

	if (copy)
		memcpy(copy, frame, bytes);
	return add(k, copy, bytes, max);
}

int wb_keep_send(struct wb_keep *k, struct wb_session *s, uint64_t mark)
{
	int rc = 0;

	assert(mark);
	for (struct wb_kept *m = k->first; m && rc == 0; m = m->next) {
		if (m->mark)
			continue;
		rc = wb_session_is_up(s) ? wb_session_send_frame(s, m->frame, m->bytes) : -ENOTCONN;
		if (rc == 0)
			m->mark = mark;
	}
	return rc;
}

void wb_keep_confirm(struct wb_keep *k, uint64_t mark)
{
	while (k->first && k->first->mark && k->first->mark <= mark)
		drop_first(k);
}

void wb_keep_lost(struct wb_keep *k)
{
	for (struct wb_kept *m = k->first; m; m = m->next)
		m->mark = 0;
}

void wb_keep_drop(struct wb_keep *k)
{
	while (k->first)
		drop_first(k);
}
