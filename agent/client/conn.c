/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "client/internal.h"
#include "client/seq.h"
#include "proto/build.h"
#include "proto/frame.h"
#include "proto/messages.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define BACKOFF_MAX (2 * WB_NS_PER_S)
#define SEND_TIMEOUT_MS 5000
#define NOT_TRIED WB_NS_PER_S /* so long without a look at the socket: nobody has tried */

uint64_t wb__client_now(void)
{
	return wb_now_ns(&wb_clock_real);
}

uint64_t wb__client_deadline(uint64_t timeout)
{
	uint64_t now = wb__client_now();

	return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

#undef wb__client_fail /* internal.h, WB_ANALYZE */
int wb__client_fail(struct wb_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		err->code = code;
		va_start(ap, fmt);
		vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
	}
	return code;
}

int wb__client_usable(struct wb_client *c, struct wb_error *err)
{
	if (!c)
		return wb__client_fail(err, -EINVAL, "no client");
	if (!c->hot->alive)
		return wb__client_fail(err, -EPERM,
			"this process was forked from the one that attached: a child must not use "
			"its parent's WeightBridge client; open one after the fork");
	return 0;
}

static void set_timer(struct wb_client *c, uint64_t at_ns)
{
	struct itimerspec ts = {0};

	ts.it_value.tv_sec = (time_t)(at_ns / WB_NS_PER_S);
	ts.it_value.tv_nsec = (long)(at_ns % WB_NS_PER_S);
	timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &ts, NULL);
}

/* Called when the session is in another state. */
static void moved(struct wb_client *c)
{
	uint64_t due = wb_session_due(&c->session);

	if (c->session.state == WB_SESSION_DOWN)
		due = c->retry_at_ns;
	set_timer(c, due == UINT64_MAX ? 0 : due); /* 0 disarms it */
	wb__client_attention(c);
}

static void enter(struct wb_client *c, enum wb_session_state state)
{
	wb_session_enter(&c->session, state, wb__client_now());
	moved(c);
}

static void plan_retry(struct wb_client *c)
{
	uint64_t half = c->backoff_ns / 2;

	c->retry_at_ns = wb__client_now() + half + wb_rng_below(&c->rng, half + 1);
	c->backoff_ns = c->backoff_ns * 2 > BACKOFF_MAX ? BACKOFF_MAX : c->backoff_ns * 2;
}

static void go_down(void *client)
{
	struct wb_client *c = client;

	(void)wb_session_closed(&c->session, &c->session.cause);
	/* An agent that sees the end uses its slots again: nothing may write there any more. */
	wb__client_lane_stop(c->lane, true);
	c->lane = NULL;
	if (c->fd >= 0) {
		/* A forked child may keep the socket open, so closing alone would not remove it. */
		epoll_ctl(c->epfd, EPOLL_CTL_DEL, c->fd, NULL);
		close(c->fd);
		c->fd = -1;
	}
	if (!c->lost_ns)
		c->lost_ns = wb__client_now();
	if (c->session.was_up && !c->refused.code)
		c->backoff_ns = WB__BACKOFF_MIN;
	c->is_planned = false;
	plan_retry(c);
	moved(c);
	wb__client_mem_lost(c);
	wb__client_send_lost(c);
	wb__client_update_lost(c);
}

static int link_send(void *client, const void *frame, size_t bytes, const int *fds, uint32_t n_fd)
{
	struct wb_client *c = client;

	wb__client_lane_pass(c->lane);
	return wb__client_seq_send(c->fd, frame, bytes, fds, n_fd, SEND_TIMEOUT_MS);
}

const struct wb_session_io wb__client_io = {
	link_send, go_down, wb_msg_encode_bin, wb_msg_decode_bin, NULL};

int wb__client_send_msg(
	struct wb_client *c, uint16_t type, const void *msg, const int *fds, unsigned n_fd)
{
	return wb_session_send_fds(&c->session, type, msg, fds, n_fd);
}

static void send_hello(struct wb_client *c)
{
	struct wb_msg_app_hello m = {.proto_min = WBP_VERSION_MIN, .proto_max = WBP_VERSION_MAX};
	char build[WB_BUILD_TEXT];

	m.lib_version = wb_build_text(WB_VERSION, WBP_VERSION_MIN, WBP_VERSION_MAX, build);
	m.pid = (uint32_t)getpid();
	if (!wb_session_open(&c->session, &m, wb__client_now()))
		moved(c);
}

static void try_connect(struct wb_client *c)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int fd;

	wb_session_dial(&c->session, c, wb__client_now());
	fd = wb_unix_dial(c->socket); /* a full backlog gives -EAGAIN: the backoff retries */
	if (fd < 0) {
		wb__client_drop(c, fd, "connect to %s: %s", c->socket, wb_strerror(fd));
		return;
	}
	c->fd = fd;
	if (epoll_ctl(c->epfd, EPOLL_CTL_ADD, fd, &ev)) {
		wb__client_drop(c, -errno, "watch the socket: %s", wb_strerror(-errno));
		return;
	}
	send_hello(c);
}

/* Refuse an agent from before builds had names that can be compared; an agent that knows such names
 * has refused us itself. */
static void refuse_agent(struct wb_client *c, const struct wb_msg_app_welcome *m)
{
	char build[WB_BUILD_TEXT];

	wb_err_set(&c->refused, WB_EVERSION,
		"the agent is build %.64s, this library is %s, and they do not understand each "
		"other: take both from one release",
		m->agent_version, wb_build_text(WB_VERSION, m->proto, m->proto, build));
	wb__client_drop(c, WB_EVERSION, "%s", c->refused.msg);
}

static void on_welcome(struct wb_client *c, const struct wb_msg_app_welcome *m)
{
	char who[96];

	snprintf(who, sizeof(who), "the agent (version %.64s)", m->agent_version);
	if (wb_session_chosen(&c->session, who, m->proto, &c->refused) < 0) {
		wb_err_wrap(&c->refused, WB_EVERSION, "libweightbridge %s", WB_VERSION);
		wb__client_drop(c, WB_EVERSION, "%s", c->refused.msg);
		return;
	}
	if (!wb_build_is_same(m->agent_version, m->proto, m->proto)) {
		refuse_agent(c, m);
		return;
	}
	c->agent_imports = m->imports;
	enter(c, WB_SESSION_WELCOMED);
	if (c->reg && c->mem != WB__MEM_RELEASED)
		wb__client_attach_send(c);
}

void wb__client_attaching(struct wb_client *c)
{
	enter(c, WB_SESSION_ATTACHING);
}

static void on_attached(
	struct wb_client *c, const struct wb_msg_app_attached *m, int *fds, unsigned n)
{
	struct wb_err err = {0};

	if (wb__client_attached(c, m->lane, fds, n, &err)) {
		wb__client_drop(c, err.code, "%s", err.msg);
		return;
	}
	snprintf(c->worker, sizeof(c->worker), "%s", m->name);
	c->lost_ns = 0;
	c->refused.code = 0;
	c->backoff_ns = WB__BACKOFF_MIN;
	c->generation++;
	enter(c, c->role == WB_CLIENT_TRAINER ? WB_SESSION_TRAINER : WB_SESSION_ROLLOUT);
	wb__client_update_again(c);
}

int wb__client_agents_code(int64_t code, int otherwise)
{
	if (code >= 0)
		return 0;
	if (code < -100000 || code == -ETIMEDOUT || code == -EAGAIN || code == -EINTR)
		return otherwise;
	return (int)code;
}

static void on_reject(struct wb_client *c, const struct wb_msg_app_reject *m)
{
	int code = wb__client_agents_code(m->code < 0 ? m->code : -EPERM, -ECONNREFUSED);

	wb_err_set(&c->refused, code, "%s", m->sentence);
	/* Refused, though it was attached before: the cause may pass, do not hurry. */
	c->backoff_ns = BACKOFF_MAX;
	wb__client_drop(c, code, "%s", m->sentence);
}

static void set_status(struct wb_client *c, const char *sentence)
{
	snprintf(c->status, sizeof(c->status), "%s", sentence);
	c->is_status_over = false;
	c->status_seq++;
}

static void on_planned(struct wb_client *c, const struct wb_msg_app_planned *m)
{
	c->plan.term = m->term;
	c->plan.number = m->number;
	c->plan.version = m->version;
	c->supersedes = m->supersede;
	snprintf(c->plan.digest, sizeof(c->plan.digest), "%s", m->digest);
	c->is_planned = c->was_planned = true;
	/* If the status holds with the plan, too, the agent tells it to a trainer again. */
	c->is_status_over = true;
}

static void on_area(struct wb_client *c, const struct wb_msg_app_area *m, int *fds, unsigned n)
{
	struct wb_err err = {0};

	if (n != 1)
		wb__client_drop(c, -EPROTO, "a staging area came with %u descriptors", n);
	else if (wb__client_area_take(c, m->bytes, &fds[0], &err) < 0)
		wb__client_drop(c, err.code, "%s", err.msg);
}

static void act(struct wb_client *c, uint16_t type, const union wb_msg *m, int *fds, unsigned n_fd)
{
	switch (type) {
	case WBP_APP_WELCOME:
		on_welcome(c, &m->app_welcome);
		break;
	case WBP_APP_REJECT:
		on_reject(c, &m->app_reject);
		break;
	case WBP_APP_ATTACHED:
		on_attached(c, &m->app_attached, fds, n_fd);
		break;
	case WBP_APP_STATUS:
		set_status(c, m->app_status.sentence);
		break;
	case WBP_APP_PLANNED:
		on_planned(c, &m->app_planned);
		break;
	case WBP_APP_SEND_STATE:
		wb__client_on_send_state(c, &m->app_send_state);
		break;
	case WBP_APP_GO:
		wb__client_on_go(c);
		break;
	case WBP_APP_WAKE:
		wb__client_on_wake(c);
		break;
	case WBP_APP_BEGIN:
		wb__client_on_begin(c, &m->app_begin);
		break;
	case WBP_APP_AREA:
		on_area(c, &m->app_area, fds, n_fd);
		break;
	case WBP_APP_INSTALL:
		wb__client_on_install(c, &m->app_install);
		break;
	case WBP_APP_MEM_RELEASED:
		wb__client_on_mem_released(c, &m->app_mem_released);
		break;
	case WBP_APP_MEM_ACQUIRED:
		wb__client_on_mem_acquired(c, &m->app_mem_acquired, fds, n_fd);
		break;
	default:
		wb__client_on_end(c, &m->app_end);
		break;
	}
}

/* A message that only answers a request of ours may come only while there is one. */
static int check_answer(const struct wb_client *c, uint16_t type, struct wb_err *err)
{
	if ((type == WBP_APP_MEM_RELEASED && c->mem != WB__MEM_RELEASING) ||
		(type == WBP_APP_MEM_ACQUIRED && c->mem != WB__MEM_ACQUIRING))
		return wb_session_out_of_turn(&c->session, type, err);
	return 1;
}

static void dispatch(struct wb_client *c, const uint8_t *p, size_t bytes, int *fds, unsigned n_fd)
{
	struct wb_err err = {0};
	struct wb_frame f;
	union wb_msg m;
	int rc;

	wb__client_lane_pass(c->lane);
	rc = wb_session_take(&c->session, p, bytes, wb__client_now(), &f, &m, &err);
	if (rc <= 0) {
		wb__client_drop(
			c, rc, "the agent at %s sent what cannot be read: %s", c->socket, err.msg);
		return;
	}
	rc = check_answer(c, f.type, &err);
	if (rc > 0)
		act(c, f.type, &m, fds, n_fd);
	else
		wb__client_drop(c, rc, "the agent at %s: %s", c->socket, err.msg);
	wb_msg_free(f.type, &m);
}

static void take_news(struct wb_client *c)
{
	int fds[WB__SEQ_FDS_MAX];
	unsigned n_fd, i;
	int64_t got;

	while (c->fd >= 0) {
		got = wb__client_seq_recv(c->fd, c->rx, WB__MSG_MAX, fds, &n_fd);
		if (got == -EAGAIN)
			return;
		if (got == -ECONNRESET && c->refused.code && !wb_session_is_up(&c->session))
			wb__client_drop(c, c->refused.code, "%s", c->refused.msg);
		else if (got < 0)
			wb__client_drop(c, (int)got, "the agent at %s went away (%s)", c->socket,
				wb_strerror((int)got));
		else
			dispatch(c, c->rx, (size_t)got, fds, n_fd);
		for (i = 0; i < n_fd; i++) /* those taken are -1 */
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

/* Refused for good: the caller hears why.  A worker that has worked already comes back for as long
 * as reconnect_timeout says, and so does one whose agent is being replaced. */
static bool is_turned_away(const struct wb_client *c)
{
	if (!c->refused.code || c->was_planned)
		return false;
	return !c->generation || c->refused.code != -ESHUTDOWN;
}

void wb__client_pump(struct wb_client *c)
{
	struct wb_err err;
	uint64_t now, expired;

	if (!wb_session_is_up(&c->session) && c->session.state != WB_SESSION_WELCOMED) {
		now = wb__client_now();
		/* A trainer has no thread of ours: while its code is elsewhere nobody tries. */
		if (c->lost_ns && now - c->tried_ns >= NOT_TRIED)
			c->lost_ns = now;
		c->tried_ns = now;
		if (read(c->timer_fd, &expired, sizeof(expired)) < 0)
			assert(errno == EAGAIN || errno == EINTR || errno == ECANCELED);
		if (c->session.state == WB_SESSION_DOWN) {
			if (now < c->retry_at_ns || is_turned_away(c))
				return;
			try_connect(c);
		} else if (wb_session_tick(&c->session, now, &err) < 0) {
			wb__client_drop(c, err.code, "the agent at %s: %s", c->socket, err.msg);
		}
	}
	take_news(c);
}

int wb__client_lost(struct wb_client *c, const char *what, struct wb_error *err)
{
	if (is_turned_away(c))
		return wb__client_fail(err, c->refused.code, "%s", c->refused.msg);
	if (!c->generation || !c->lost_ns || wb__client_now() - c->lost_ns < c->reconnect_timeout)
		return 0;
	return wb__client_fail(err, c->refused.code ? c->refused.code : -ECONNRESET,
		"%s: the agent is lost and did not take this worker back within %.1f s "
		"(reconnect_timeout): %s",
		what, (double)c->reconnect_timeout / 1e9, c->session.cause.msg);
}

int wb__client_wait(struct wb_client *c, uint64_t deadline, wb__client_ready_fn ready, void *arg,
	struct wb_error *err)
{
	struct pollfd pfd = {.fd = c->epfd, .events = POLLIN};
	uint64_t now, ms;
	int rc;

	for (;;) {
		pthread_mutex_lock(&c->lock);
		wb__client_pump(c);
		rc = ready(c, arg, err);
		pthread_mutex_unlock(&c->lock);
		if (rc)
			return rc;
		now = wb__client_now();
		if (now >= deadline)
			return 0;
		ms = (deadline - now) / WB_NS_PER_MS + 1;
		if (poll(&pfd, 1, ms < WB__SLICE_MS ? (int)ms : WB__SLICE_MS) < 0 && errno == EINTR)
			return wb__client_fail(err, -EINTR, "interrupted by a signal");
	}
}
