/* SPDX-License-Identifier: Apache-2.0 */
#include "client/internal.h"
#include "proto/messages.h"
#include "proto/pollword.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void set_phase(struct wb_client *c, enum wb__client_phase phase)
{
	c->phase = phase;
	c->phase_ns = wb__client_now();
	wb__client_attention(c);
}

static void say_why(struct wb_client *c, const char *sentence)
{
	snprintf(c->why, sizeof(c->why), "%s", sentence ? sentence : "");
}

/* fileno() stops being readable on account of a wake. */
static void clear_wake(struct wb_client *c)
{
	uint64_t n;

	if (!c->is_wake)
		return;
	if (read(c->wake_fd, &n, sizeof(n)) < 0)
		assert(errno == EAGAIN || errno == EINTR);
	c->is_wake = false;
	wb__client_attention(c);
}

static void set_wake(struct wb_client *c)
{
	uint64_t one = 1;

	if (c->is_wake)
		return;
	if (write(c->wake_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN || errno == EINTR);
	c->is_wake = true;
	wb__client_attention(c);
}

static void park(struct wb_client *c, uint32_t count)
{
	struct wb_msg_app_parked m = {.count = count};

	c->parked_count = count;
	c->parked_generation = c->generation;
	clear_wake(c);
	wb__client_send_msg(c, WBP_APP_PARKED, &m, NULL, 0);
}

/* A torn worker does not serve, so it may poll up to any stop at once: that is how an agent that
 * came back finds it parked. */
static void poll_while_torn(struct wb_client *c)
{
	uint64_t w;

	if (!wb_session_is_up(&c->session) || !c->hot->word || c->is_in_doubt)
		return; /* in doubt it may have to go on from here, poll by poll with the others */
	w = wb_poll_load(c->hot->word);
	if (wb_poll_is_ahead(w)) {
		/* Take in what was said before this stop was set: perhaps that the worker is not
		 * torn after all. */
		wb__client_pump(c);
		if (c->phase != WB__TORN)
			return;
	}
	while (wb_poll_is_ahead(w))
		w = wb_poll_add(c->hot->word);
	if (wb_poll_is_parked(w) &&
		(c->parked_generation != c->generation || c->parked_count != wb_poll_count(w)))
		park(c, wb_poll_count(w));
}

/* ---- news from the agent ---- */

void wb__client_poll_owed(struct wb_client *c)
{
	for (; c->owed && !wb_poll_is_parked(wb_poll_load(&c->page->word)); c->owed--)
		wb_poll_add(&c->page->word);
}

void wb__client_on_go(struct wb_client *c)
{
	if (c->phase != WB__PARKED || wb_poll_is_parked(wb_poll_load(c->hot->word)))
		return;
	wb__client_poll_owed(c);
	if (wb_poll_is_parked(wb_poll_load(c->hot->word))) {
		park(c, wb_poll_count(wb_poll_load(c->hot->word)));
		return;
	}
	say_why(c, "");
	set_phase(c, WB__RUN);
}

void wb__client_on_wake(struct wb_client *c)
{
	if (c->phase == WB__RUN)
		set_wake(c);
}

void wb__client_on_begin(struct wb_client *c, const struct wb_msg_app_begin *m)
{
	struct wb_msg_app_begun no = {.transfer = m->transfer, .code = -EAGAIN};
	char sentence[] = "this worker is not parked: it gave up waiting or its agent restarted";

	/* The engine's patience with a long copy has ended, and the next update is here already:
	 * the copy is made first. */
	if (c->phase == WB__INSTALL) {
		c->next_begin = *m;
		return;
	}
	if (c->phase != WB__PARKED && c->phase != WB__TORN) {
		no.sentence = sentence;
		wb__client_send_msg(c, WBP_APP_BEGUN, &no, NULL, 0);
		return;
	}
	c->transfer = m->transfer;
	c->version = m->version;
	c->was_torn = c->phase == WB__TORN && !c->is_in_doubt;
	c->is_in_doubt = false;
	c->begun_at = c->parked_count;
	c->is_staged = m->staged;
	set_phase(c, WB__BEFORE);
}

void wb__client_on_install(struct wb_client *c, const struct wb_msg_app_install *m)
{
	struct wb_msg_app_installed no = {.transfer = m->transfer, .code = -EAGAIN};
	char sentence[] = "this worker is not in the update: it gave up waiting or its agent "
			  "restarted";

	if (c->phase != WB__BEGUN || c->transfer != m->transfer || !c->area) {
		no.sentence = sentence;
		wb__client_send_msg(c, WBP_APP_INSTALLED, &no, NULL, 0);
		return;
	}
	c->is_given_up = false;
	c->install = (struct wb__client_install){.read_back = m->read_back, .flip = m->flip};
	set_phase(c, WB__INSTALL);
}

/* Lock held. */
static void begin_next(struct wb_client *c)
{
	struct wb_msg_app_begin m = c->next_begin;

	c->next_begin.transfer = 0;
	if (m.transfer)
		wb__client_on_begin(c, &m);
}

/* Once begun, the install is finished, with or without an agent: the decision stands. */
static void install(struct wb_client *c)
{
	struct wb_msg_app_installed m = {0};
	struct wb__client_install x;
	struct wb__client_area *area;
	uint32_t generation;

	pthread_mutex_lock(&c->lock);
	if (c->phase != WB__INSTALL || c->is_copying) {
		pthread_mutex_unlock(&c->lock);
		return;
	}
	c->is_copying = true;
	area = c->area;
	x = c->install;
	m.transfer = x.transfer = c->transfer;
	generation = c->parked_generation;
	pthread_mutex_unlock(&c->lock);
	m.code = wb__client_area_install(area, &x);
	m.mismatched = x.n_bad;
	m.param = x.param;
	pthread_mutex_lock(&c->lock);
	c->is_copying = false;
	if (c->is_given_up) {
		set_phase(c, WB__TORN);
	} else if (wb_session_is_up(&c->session) && c->generation == generation &&
		   !wb__client_send_msg(c, WBP_APP_INSTALLED, &m, NULL, 0)) {
		set_phase(c, WB__INSTALLED);
	} else {
		say_why(c, "the agent went away during the install, which is complete here");
		set_phase(c, WB__TORN);
	}
	begin_next(c);
	pthread_mutex_unlock(&c->lock);
}

/* An END may still be on its way when the worker has left that update and parked for another. */
static bool is_end_of_this(const struct wb_client *c, const struct wb_msg_app_end *m)
{
	switch (c->phase) {
	case WB__PARKED: /* aborted before it began: as GO */
		return m->result == WB_APP_END_ABORTED &&
		       !wb_poll_is_parked(wb_poll_load(c->hot->word));
	case WB__BEFORE:
	case WB__BEGUN:
	case WB__INSTALLED:
		return m->transfer == c->transfer;
	case WB__TORN:
		return m->transfer >= c->transfer;
	default:
		return false;
	}
}

void wb__client_on_end(struct wb_client *c, const struct wb_msg_app_end *m)
{
	/* A worker that was stopped may find INSTALL and the end of its engine's patience at once:
	 * the copy is made, and nobody waits for it any more. */
	bool early = c->phase == WB__INSTALL && m->transfer == c->transfer;
	bool in_doubt = c->is_in_doubt;

	/* The next update has ended without this worker.  It may have the number of the update that
	 * is being copied: a feed does, and a transfer that is taken up again. */
	if (c->phase == WB__INSTALL && m->transfer >= c->next_begin.transfer)
		c->next_begin.transfer = 0;
	if (c->phase == WB__INSTALL && m->transfer > c->transfer) {
		c->is_torn_final |= m->result == WB_APP_END_TORN_FINAL;
		return;
	}
	if (!early && !is_end_of_this(c, m))
		return;
	c->is_in_doubt = false;
	say_why(c, m->sentence);
	c->is_torn_final = m->result == WB_APP_END_TORN_FINAL;
	c->is_given_up = early;
	if (early)
		return;
	switch (m->result) {
	case WB_APP_END_COMMITTED:
		c->was_torn |= c->phase == WB__TORN && !in_doubt;
		c->done_at = c->transfer == m->transfer ? c->begun_at : c->parked_count;
		c->done = m->transfer;
		c->transfer = m->transfer;
		c->version = m->version;
		snprintf(c->digest, sizeof(c->digest), "%s", m->digest ? m->digest : "");
		set_phase(c, WB__AFTER);
		break;
	case WB_APP_END_ABORTED:
		/* Aborted while torn: what was torn stays torn. */
		set_phase(
			c, (c->phase == WB__TORN && !in_doubt) || c->was_torn ? WB__TORN : WB__RUN);
		break;
	default:
		/* The wait for repair began when the worker first heard that it is torn. */
		if (c->phase != WB__TORN || !c->is_torn_final)
			set_phase(c, WB__TORN);
		break;
	}
}

void wb__client_update_lost(struct wb_client *c)
{
	bool is_touched =
		c->page && __atomic_load_n(&c->page->touched, __ATOMIC_ACQUIRE) == c->transfer;

	c->next_begin.transfer = 0;
	/* Before BEGUN nothing has been written: PARKED waits for the agent, BEFORE for its hook.
	 */
	if (c->phase == WB__BEGUN && c->is_staged && !is_touched) {
		say_why(c, "the agent went away before the update was installed");
		set_phase(c, c->was_torn ? WB__TORN : WB__RUN);
	} else if (c->phase == WB__INSTALLED && wb__client_area_holds(c->area, c->transfer)) {
		/* Committed: only the message is lost. */
		c->digest[0] = '\0';
		c->done = c->transfer;
		c->done_at = c->begun_at;
		set_phase(c, WB__AFTER);
	} else if (c->phase == WB__BEGUN || c->phase == WB__INSTALLED) {
		say_why(c, "the agent went away during the update, and how that ended is not known "
			   "here yet");
		c->is_in_doubt = true;
		/* Staged, and not told to install: others may be installing. */
		c->is_touched = c->phase == WB__INSTALLED || (is_touched && !c->is_staged);
		set_phase(c, WB__TORN);
	}
}

/* Lock held.  The word is read again: another thread may have taken in the GO meanwhile. */
static int stop_here(struct wb_client *c)
{
	uint64_t w = wb_poll_load(c->hot->word);

	if (c->phase == WB__RUN && wb_poll_is_parked(w)) {
		set_phase(c, WB__PARKED);
		say_why(c, "");
		park(c, wb_poll_count(w));
	}
	return c->phase != WB__RUN;
}

void wb__client_update_again(struct wb_client *c)
{
	if (c->phase == WB__PARKED) {
		say_why(c, "the agent restarted, which released this worker from its stop");
		set_phase(c, WB__RUN);
	}
	/* Time without an agent does not count against the repair. */
	c->phase_ns = wb__client_now();
	/* Polls made meanwhile may have come to a stop; the next poll would pass it. */
	if (c->hot->word)
		stop_here(c);
	wb__client_attention(c);
}

/* ---- poll ---- */

static uint64_t coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The poll has been counted: @w is the word after it. */
static int poll_look(struct wb_client *c, uint64_t w)
{
	uint64_t now = coarse_ns();
	int rc;

	/* The stop itself needs no look at the socket, and none may delay it. */
	if (!wb_poll_stop(w) && !__atomic_load_n(&c->hot->attention, __ATOMIC_RELAXED) &&
		now < c->hot->look_at_ns)
		return 0;
	pthread_mutex_lock(&c->lock);
	rc = stop_here(c);
	if (!rc) {
		c->hot->look_at_ns = now + c->hot->look_ns;
		wb__client_pump(c);
		rc = stop_here(c); /* a new page may stand at a stop */
		/* No stop: the update that woke this worker is gone again. */
		if (!rc && !wb_poll_is_ahead(wb_poll_load(c->hot->word)))
			clear_wake(c);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int poll_attention(struct wb_client *c)
{
	int rc = wb__client_usable(c, NULL);
	uint64_t w;

	if (rc)
		return rc;
	if (!c->hot->word)
		return -EINVAL; /* a trainer, or not attached */
	pthread_mutex_lock(&c->lock);
	rc = c->phase != WB__RUN;
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return 1; /* still in an update: this is no new poll */
	w = wb_poll_add(c->hot->word);
	return poll_look(c, w);
}

int wb_client_poll(struct wb_client *c)
{
	struct wb__client_hot *h = c->hot;
	uint64_t w;

	if (__builtin_expect(!h->alive, 0))
		return -EPERM;
	if (__builtin_expect(__atomic_load_n(&h->attention, __ATOMIC_RELAXED), 0))
		return poll_attention(c);
	w = wb_poll_add(h->word);
	if (__builtin_expect(!wb_poll_stop(w) && (++h->n & h->mask), 1))
		return 0;
	return poll_look(c, w);
}

/* ---- steps of an update ---- */

static void fill(const struct wb_client *c, struct wb_client_update *u)
{
	memset(u, 0, sizeof(*u));
	u->transfer = c->transfer;
	u->version = c->version;
	u->torn = (c->phase == WB__TORN && !c->is_in_doubt) ||
		  ((c->phase == WB__BEFORE || c->phase == WB__AFTER) && c->was_torn);
}

/* Waits that only the agent can end are bounded here too, each with its own sentence. */
static int overdue(struct wb_client *c, struct wb_error *err)
{
	uint64_t waited = wb__client_now() - c->phase_ns;
	int rc;

	if (c->phase == WB__PARKED) {
		rc = wb__client_lost(c, "parked for an update", err);
		if (!rc && waited < c->update_timeout)
			return 0;
		if (!rc)
			rc = wb__client_fail(err, -ETIMEDOUT,
				"parked at poll %u for %.1f s (update_timeout), and the agent "
				"neither began the update nor released this worker",
				c->parked_count, (double)waited / 1e9);
		set_phase(c, WB__RUN);
		return rc;
	}
	if ((c->phase == WB__BEGUN || c->phase == WB__INSTALLED) && waited >= c->update_timeout) {
		say_why(c, "the agent did not end the update");
		set_phase(c, WB__TORN);
		waited = c->repair_timeout;
	}
	if (c->phase != WB__TORN || (waited < c->repair_timeout && !c->is_torn_final))
		return 0;
	rc = wb__client_fail(err, WB_CODE_TORN,
		"transfer %llu (version %lld) left this worker's parameters a mix of two versions, "
		"and no repair came within %.1f s%s: do not serve (%.700s)",
		(unsigned long long)c->transfer, (long long)c->version, (double)waited / 1e9,
		waited < c->repair_timeout ? "" : " (repair_timeout)",
		c->why[0] ? c->why : c->session.cause.msg);
	c->phase_ns = wb__client_now(); /* the next poll waits for repair again */
	c->is_torn_final = false;
	return rc;
}

#define STEP_RUN 100 /* ready functions give > 0 for "met"; steps begin at 0 */
#define STEP_INSTALL 101

static int ready_step(struct wb_client *c, void *arg, struct wb_error *err)
{
	struct wb_client_update *u = arg;

	fill(c, u);
	switch (c->phase) {
	case WB__RUN:
		snprintf(u->sentence, sizeof(u->sentence), "%s", c->why);
		return STEP_RUN;
	case WB__BEFORE:
		return WB_CLIENT_STEP_BEFORE;
	case WB__AFTER:
		snprintf(u->digest, sizeof(u->digest), "%s", c->digest);
		return WB_CLIENT_STEP_AFTER;
	case WB__INSTALL:
		if (!c->is_copying)
			return STEP_INSTALL;
		break;
	case WB__TORN:
		poll_while_torn(c);
		break;
	default:
		break;
	}
	return overdue(c, err);
}

int wb_client_update_step(
	struct wb_client *c, uint64_t timeout, struct wb_client_update *u, struct wb_error *err)
{
	uint64_t deadline = wb__client_deadline(timeout);
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	if (c->role != WB_CLIENT_ROLLOUT)
		return wb__client_fail(err, -EINVAL, "only a rollout worker takes part in updates");
	while ((rc = wb__client_wait(c, deadline, ready_step, u, err)) == STEP_INSTALL)
		install(c);
	if (!rc)
		return wb__client_fail(err, -EAGAIN, "the update is still going on");
	return rc == STEP_RUN ? WB_CLIENT_STEP_NONE : rc;
}

int wb_client_update_begun(
	struct wb_client *c, int code, const char *sentence, struct wb_error *err)
{
	struct wb_msg_app_begun m = {.code = code};
	char text[WB_ERROR_MSG_MAX];
	struct wb_error why = {0};
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), "%.1000s", sentence ? sentence : "");
	rc = wb__client_device_settle(c, &why);
	if (rc && !code) { /* what the engine still computes there would see a mix */
		m.code = rc;
		snprintf(text, sizeof(text), "%.1000s", why.msg);
	}
	rc = 0;
	pthread_mutex_lock(&c->lock);
	if (c->phase != WB__BEFORE) {
		rc = wb__client_fail(err, -EINVAL, "no update waits for before_update_hook");
	} else {
		m.transfer = c->transfer;
		m.sentence = text;
		/* From here on the parameters may change, unless the agent is gone: then nobody
		 * has been told that they may. */
		if (wb_session_is_up(&c->session) && c->parked_generation == c->generation &&
			!wb__client_send_msg(c, WBP_APP_BEGUN, &m, NULL, 0)) {
			set_phase(c, WB__BEGUN);
		} else {
			say_why(c, "the agent went away before the update began");
			set_phase(c, c->was_torn ? WB__TORN : WB__RUN);
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int wb_client_update_resumed(
	struct wb_client *c, int code, const char *sentence, struct wb_error *err)
{
	struct wb_msg_app_resumed m = {.code = code};
	char text[WB_ERROR_MSG_MAX];
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), "%.1000s", sentence ? sentence : "");
	pthread_mutex_lock(&c->lock);
	if (c->phase != WB__AFTER) {
		rc = wb__client_fail(err, -EINVAL, "no update waits for after_update_hook");
	} else {
		m.transfer = c->transfer;
		m.sentence = text;
		c->was_torn = false;
		if (wb_session_is_up(&c->session) && c->parked_generation == c->generation)
			wb__client_send_msg(c, WBP_APP_RESUMED, &m, NULL, 0);
		set_phase(c, WB__RUN);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int ready_idle(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	if (c->phase != WB__RUN || wb_poll_is_ahead(wb_poll_load(c->hot->word)))
		return 1;
	clear_wake(c);
	return wb__client_lost(c, "wait for an update", err);
}

int wb_client_idle(struct wb_client *c, uint64_t timeout, struct wb_error *err)
{
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	if (!c->hot->word)
		return wb__client_fail(
			err, -EINVAL, "only an attached rollout worker waits for updates");
	rc = wb__client_wait(c, wb__client_deadline(timeout), ready_idle, NULL, err);
	return rc;
}

int wb_client_fileno(struct wb_client *c)
{
	int rc = wb__client_usable(c, NULL);

	if (rc)
		return rc;
	/* A caller that waits on this descriptor polls when it is readable: look at the socket
	 * then, not once a second. */
	c->hot->mask = 0;
	c->hot->look_ns = 1000000;
	c->hot->look_at_ns = 0;
	return c->user_epfd;
}

/* ---- the same in one call, for C programs ---- */

static int run_steps(struct wb_client *c, const struct wb_client_hooks *hooks,
	struct wb_client_update *u, struct wb_error *err)
{
	int rc, code;

	for (;;) {
		rc = wb_client_update_step(c, WB_FOREVER, u, err);
		if (rc == -EINTR)
			continue;
		if (rc <= 0)
			return rc;
		if (rc == WB_CLIENT_STEP_AFTER)
			break;
		code = hooks && hooks->before_update ? hooks->before_update(hooks->cookie, u) : 0;
		rc = wb_client_update_begun(c, code, code ? "before_update failed" : "", err);
		if (rc)
			return rc;
	}
	code = hooks && hooks->after_update ? hooks->after_update(hooks->cookie, u) : 0;
	rc = wb_client_update_resumed(c, code, code ? "after_update failed" : "", err);
	return rc ? rc : 1;
}

static int counted(struct wb_client *c, const struct wb_client_hooks *hooks,
	struct wb_client_update *u, struct wb_error *err)
{
	int rc = wb_client_poll(c);

	if (rc > 0)
		return run_steps(c, hooks, u, err);
	if (rc < 0 && !wb__client_usable(c, err))
		wb__client_fail(err, rc, "only an attached rollout worker polls");
	return rc;
}

int wb_client_poll_requests(struct wb_client *c, const struct wb_client_hooks *hooks,
	struct wb_client_update *u, struct wb_error *err)
{
	return counted(c, hooks, u, err);
}

int wb_client_update_wait(struct wb_client *c, uint64_t timeout,
	const struct wb_client_hooks *hooks, struct wb_client_update *u, struct wb_error *err)
{
	uint64_t deadline = wb__client_deadline(timeout), now;
	int rc;

	do {
		rc = counted(c, hooks, u, err);
		if (rc)
			return rc;
		do {
			now = wb__client_now();
			rc = wb_client_idle(c, deadline > now ? deadline - now : 0, err);
		} while (rc == -EINTR);
		if (rc < 0)
			return rc;
		rc = counted(c, hooks, u, err);
		if (rc)
			return rc;
	} while (timeout == WB_FOREVER);
	return 0;
}
