/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "client/internal.h"
#include "proto/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RELEASE_TIMEOUT (60ull * 1000000000ull)

static void free_engines(struct wb_client_transfer *t)
{
	uint32_t i;

	for (i = 0; i < t->info.n_engine; i++)
		wb_free(t->engine[i]);
	wb_free(t->engine);
	wb_free(t->engine_state);
	t->engine = NULL;
	t->engine_state = NULL;
	t->info.n_engine = 0;
}

/* Drops one of the two references; the client's lock is held or the client is gone. */
static void put(struct wb_client_transfer *t)
{
	if (--t->refs)
		return;
	free_engines(t);
	wb_free(t);
}

/* The client a handle belongs to, NULL when it only holds an old result. */
static struct wb_client *client_of(const struct wb_client_transfer *t)
{
	struct wb_client *c = __atomic_load_n(&t->c, __ATOMIC_ACQUIRE);

	return c && !wb__client_usable(c, NULL) ? c : NULL;
}

void wb__client_transfer_orphan(struct wb_client_transfer *t)
{
	__atomic_store_n(&t->c, NULL, __ATOMIC_RELEASE);
}

static bool is_final(const struct wb_client_transfer *t)
{
	return t->info.state == WB_CLIENT_TRANSFER_FINAL;
}

static void set_engines(struct wb_client_transfer *t, const struct wb_msg_app_send_state *m)
{
	uint32_t i, n = m->n_engine < m->n_engine_state ? m->n_engine : m->n_engine_state;

	free_engines(t);
	t->engine = wb_zalloc(n, sizeof(*t->engine));
	t->engine_state = wb_zalloc(n, sizeof(*t->engine_state));
	if (!t->engine || !t->engine_state) {
		free_engines(t);
		return;
	}
	for (i = 0; i < n; i++) {
		t->engine[i] = wb_strdup(m->engine[i]);
		t->engine_state[i] = m->engine_state[i];
	}
	t->info.n_engine = n;
}

static void send_release(struct wb_client *c, struct wb_client_transfer *t)
{
	struct wb_msg_app_release m = {.transfer = t->info.transfer};

	if (!t->release_wanted || t->release_sent || !m.transfer)
		return;
	t->release_sent = true;
	wb__client_send_msg(c, WBP_APP_RELEASE, &m, NULL, 0);
}

void wb__client_on_send_state(struct wb_client *c, const struct wb_msg_app_send_state *m)
{
	struct wb_client_transfer *t = c->cur;

	if (c->prev && !c->prev->is_lost && m->transfer && c->prev->info.transfer == m->transfer)
		t = c->prev;
	if (t && is_final(t) && !t->is_lost && t->info.transfer == m->transfer)
		t->is_held &= m->held; /* a hold that outlasts the transfer may end */
	if (!t || is_final(t) || (t->info.transfer && t->info.transfer != m->transfer))
		return; /* news of a transfer that nobody asks about any more */
	t->info.transfer = m->transfer;
	t->info.version = m->version;
	if ((int)m->state > t->info.state)
		t->info.state = (int)m->state;
	t->info.seconds = (double)m->seconds_x1e6 / 1e6;
	t->is_held = m->held && m->state >= WB_APP_SEND_RELEASED && m->code >= 0;
	if (m->code < 0) {
		t->info.code = wb__client_agents_code(m->code, WB_CODE_ABORTED);
		t->info.state = WB_CLIENT_TRANSFER_FINAL;
	}
	if (m->sentence)
		snprintf(t->info.sentence, sizeof(t->info.sentence), "%s", m->sentence);
	if (m->n_engine)
		set_engines(t, m);
	send_release(c, t);
}

static void lose(const struct wb_client *c, struct wb_client_transfer *t)
{
	if (!t)
		return;
	t->is_held = false;
	t->is_lost = true;
	if (is_final(t))
		return;
	t->info.state = WB_CLIENT_TRANSFER_FINAL;
	t->info.code = WB_CODE_UNKNOWN; /* to its caller it is no matter who was lost on the way */
	snprintf(t->info.sentence, sizeof(t->info.sentence),
		"the agent went away during the transfer, whose outcome is not known here: %.800s",
		c->session.cause.msg);
}

void wb__client_send_lost(struct wb_client *c)
{
	lose(c, c->prev);
	lose(c, c->cur);
}

static const char *remedy(int code)
{
	if (code == WB_CODE_TORN)
		return "An engine is left with a mix of two versions and does not serve: call "
		       "send_weights again on every trainer worker, which repairs it";
	if (code == WB_CODE_ABORTED)
		return "The engines keep the weights they had: call send_weights again on every "
		       "trainer worker";
	return "Call send_weights again on every trainer worker";
}

/* The transfer's failure as an error, once. */
static int report(struct wb_client_transfer *t, struct wb_error *err)
{
	t->reported = true;
	if (t->info.code == -ECANCELED) /* it never was a transfer */
		return wb__client_fail(err, t->info.code, "version %lld is not sent: %.800s",
			(long long)t->info.version, t->info.sentence);
	return wb__client_fail(err, t->info.code, "transfer %llu (version %lld): %.800s.  %s",
		(unsigned long long)t->info.transfer, (long long)t->info.version,
		t->info.sentence[0] ? t->info.sentence : wb_strerror(t->info.code),
		remedy(t->info.code));
}

/* May the next send follow?  With overlap Supersede, if the parameters were let go, and one
 * transfer is in flight, not two. */
static bool may_follow(const struct wb_client *c)
{
	return c->supersedes && c->cur->info.state >= WB_CLIENT_TRANSFER_RELEASED &&
	       !c->cur->is_held && (!c->prev || is_final(c->prev));
}

static int ready_to_send(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	if (c->cur && (is_final(c->cur) ? c->cur->is_held : !may_follow(c)))
		return 0;
	if (wb_session_is_up(&c->session) && c->is_planned)
		return 1;
	return wb__client_lost(c, "send", err);
}

static int begin_send(struct wb_client *c, struct wb_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->is_sending)
		rc = wb__client_fail(err, -EBUSY,
			"another thread is inside send_weights of this worker: one at a time");
	else if (!c->generation)
		rc = wb__client_fail(err, -EINVAL, "send before attach");
	else
		c->is_sending = true;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int send_wait(struct wb_client *c, uint64_t timeout, struct wb_error *err)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	if (c->cur && (c->cur->flags & WB_CLIENT_SEND_HOLD)) {
		c->cur->release_wanted = true; /* a new version ends the hold of the last */
		send_release(c, c->cur);
	}
	pthread_mutex_unlock(&c->lock);
	rc = wb__client_wait(c, wb__client_deadline(timeout), ready_to_send, NULL, err);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = -ETIMEDOUT;
	pthread_mutex_lock(&c->lock);
	if (c->cur && is_final(c->cur) && c->cur->is_held)
		wb__client_fail(err, rc,
			"the parameters of transfer %llu (version %lld) are still read after "
			"%.1f s",
			(unsigned long long)c->cur->info.transfer, (long long)c->cur->info.version,
			(double)timeout / 1e9);
	else if (c->cur && !is_final(c->cur))
		wb__client_fail(err, rc,
			"transfer %llu (version %lld) is still in flight after %.1f s",
			(unsigned long long)c->cur->info.transfer, (long long)c->cur->info.version,
			(double)timeout / 1e9);
	else
		wb__client_fail(err, rc,
			"no plan to send by after %.1f s; the agent's last word: %.800s",
			(double)timeout / 1e9, c->status[0] ? c->status : "(none)");
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* Lock held: ask the agent, keep the handle. */
static int ask(struct wb_client *c, int64_t version, uint32_t flags,
	struct wb_client_transfer **out, struct wb_error *err)
{
	struct wb_msg_app_send m = {.version = version, .flags = flags};
	struct wb_client_transfer *t;
	int rc;

	if (flags & WB_CLIENT_SEND_HOLD)
		m.flags |= WB_APP_SEND_KEEP;
	if (c->prev && c->prev->info.code < 0 && !c->prev->reported)
		return report(c->prev, err);
	if (c->cur && c->cur->info.code < 0 && !c->cur->reported)
		return report(c->cur, err);
	t = wb_zalloc(1, sizeof(*t));
	if (!t)
		return wb__client_fail(err, -ENOMEM, "no memory for a transfer");
	rc = wb__client_send_msg(c, WBP_APP_SEND, &m, NULL, 0);
	if (rc) {
		wb_free(t);
		return wb__client_fail(err, -ECONNRESET, "send: %s", c->session.cause.msg);
	}
	if (c->prev) {
		wb__client_transfer_orphan(c->prev);
		put(c->prev);
	}
	c->prev = c->cur; /* its end may still be news */
	t->c = c;
	t->refs = 2;
	t->flags = flags;
	t->info.version = version;
	*out = c->cur = t;
	return 0;
}

int wb_client_send(struct wb_client *c, int64_t version, uint32_t flags, uint64_t timeout,
	struct wb_client_transfer **out, struct wb_error *err)
{
	int rc = wb__client_usable(c, err);

	if (rc)
		return rc;
	if (c->role != WB_CLIENT_TRAINER)
		return wb__client_fail(err, -EINVAL, "only a trainer worker sends weights");
	if (version < -1)
		return wb__client_fail(
			err, -EINVAL, "version %lld is negative", (long long)version);
	rc = begin_send(c, err);
	if (rc)
		return rc;
	rc = send_wait(c, timeout, err);
	if (!rc)
		rc = wb__client_device_settle(c, err);
	pthread_mutex_lock(&c->lock);
	if (!rc && c->mem != WB__MEM_HELD)
		rc = wb__client_fail(err, -EINVAL,
			"this worker has released its memory: acquire_memory comes before "
			"send_weights");
	if (!rc)
		rc = ask(c, version, flags, out, err);
	c->is_sending = false;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

struct transfer_wait {
	struct wb_client_transfer *t;
	int state;
};

static int ready_transfer(struct wb_client *c, void *arg, struct wb_error *err)
{
	const struct transfer_wait *w = arg;

	(void)c;
	if (w->t->info.code < 0)
		return report(w->t, err);
	return w->t->info.state >= w->state;
}

/* Until the transfer has started, only the agent's last word says who is missing. */
static int fail_late(struct wb_client *c, const struct wb_client_transfer *t, int state,
	uint64_t timeout, struct wb_error *err)
{
	static const char *const word[] = {"asked for", "started", "received", "final"};
	const struct wb_client_transfer_info *info = &t->info;
	const char *why = info->sentence;
	int rc;

	pthread_mutex_lock(&c->lock);
	if (!*why && info->state == WB_CLIENT_TRANSFER_ASKED && !c->is_status_over)
		why = c->status;
	rc = wb__client_fail(err, -ETIMEDOUT,
		"transfer %llu (version %lld) is %s, not %s, after %.1f s%s%.700s",
		(unsigned long long)info->transfer, (long long)info->version, word[info->state],
		word[state], (double)timeout / 1e9, *why ? ": " : "", why);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int wb_client_transfer_wait(
	struct wb_client_transfer *t, int state, uint64_t timeout, struct wb_error *err)
{
	struct transfer_wait w = {t, state};
	struct wb_client *c;
	int rc;

	if (!t || state < WB_CLIENT_TRANSFER_STARTED || state > WB_CLIENT_TRANSFER_FINAL)
		return wb__client_fail(err, -EINVAL, "no such state of a transfer to wait for");
	c = client_of(t);
	if (!c) {
		rc = ready_transfer(NULL, &w, err);
		return rc > 0 ? 0
		       : rc   ? rc
			      : wb__client_fail(err, -ENOTCONN, "the client is closed");
	}
	rc = wb__client_wait(c, wb__client_deadline(timeout), ready_transfer, &w, err);
	return rc > 0 ? 0 : rc ? rc : fail_late(c, t, state, timeout, err);
}

void wb_client_transfer_get(struct wb_client_transfer *t, struct wb_client_transfer_info *out)
{
	struct wb_client *c = client_of(t);

	if (!c) {
		*out = t->info;
		return;
	}
	pthread_mutex_lock(&c->lock);
	wb__client_pump(c);
	*out = t->info;
	pthread_mutex_unlock(&c->lock);
}

int wb_client_transfer_engine(struct wb_client_transfer *t, uint32_t i, char *name,
	size_t name_bytes, char *state, size_t state_bytes)
{
	struct wb_client *c = client_of(t);
	int rc = -ENOENT;

	if (c)
		pthread_mutex_lock(&c->lock);
	if (i < t->info.n_engine) {
		snprintf(name, name_bytes, "%s", t->engine[i] ? t->engine[i] : "");
		snprintf(state, state_bytes, "%s",
			wb_word(&wb_engine_state_words, t->engine_state[i]));
		rc = 0;
	}
	if (c)
		pthread_mutex_unlock(&c->lock);
	return rc;
}

/* Before RELEASED the agent has not said yet whether this worker holds, and all may be reading. */
static int ready_unheld(struct wb_client *c, void *arg, struct wb_error *err)
{
	const struct wb_client_transfer *t = arg;

	(void)c;
	(void)err;
	return t->info.state >= WB_CLIENT_TRANSFER_RELEASED && !t->is_held;
}

static void want_release(struct wb_client *c, struct wb_client_transfer *t)
{
	pthread_mutex_lock(&c->lock);
	t->release_wanted = true;
	if (t == c->cur)
		send_release(c, t);
	pthread_mutex_unlock(&c->lock);
}

int wb_client_release(struct wb_client_transfer *t, struct wb_error *err)
{
	struct wb_client *c = client_of(t);
	int rc;

	if (!c)
		return 0;
	if (!(t->flags & WB_CLIENT_SEND_HOLD))
		return wb__client_fail(err, -EINVAL, "this transfer was not sent with hold");
	want_release(c, t);
	/* Somebody may be reading: the agent ends that within seconds. */
	rc = wb__client_wait(c, wb__client_deadline(RELEASE_TIMEOUT), ready_unheld, t, err);
	if (!rc)
		return wb__client_fail(err, -ETIMEDOUT,
			"the agent has not answered the end of the hold for %.0f s",
			(double)RELEASE_TIMEOUT / 1e9);
	return rc > 0 ? 0 : rc;
}

void wb_client_transfer_free(struct wb_client_transfer *t)
{
	struct wb_client *c;

	if (!t)
		return;
	c = client_of(t);
	if (c)
		pthread_mutex_lock(&c->lock);
	put(t);
	if (c)
		pthread_mutex_unlock(&c->lock);
}

int wb__client_send_finish(struct wb_client *c, uint64_t timeout, struct wb_error *err)
{
	struct wb_client_transfer *t = c->cur;

	if (!t || (is_final(t) && (t->reported || !t->info.code)))
		return 0;
	if ((t->flags & WB_CLIENT_SEND_HOLD) && !t->release_wanted)
		want_release(c, t);
	return wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, timeout, err);
}
