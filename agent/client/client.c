/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "client/internal.h"
#include "proto/pollword.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define CONNECT_TIMEOUT (60 * WB_NS_PER_S)
#define UPDATE_TIMEOUT (600 * WB_NS_PER_S)
#define REPAIR_TIMEOUT (300 * WB_NS_PER_S)
#define RECONNECT_TIMEOUT (60 * WB_NS_PER_S)
#define LEAVE_NS (5 * WB_NS_PER_S) /* for an agent to let go of what it imported */

static_assert(
	(int)WB_CODE_VERSION == (int)WB_EVERSION && (int)WB_CODE_PLAN == (int)WB_EPLAN &&
		(int)WB_CODE_CHECKSUM == (int)WB_ECKSUM && (int)WB_CODE_STALE == (int)WB_ESTALE &&
		(int)WB_CODE_ABORTED == (int)WB_EABORTED && (int)WB_CODE_TORN == (int)WB_ETORN &&
		(int)WB_CODE_NOT_COPY == (int)WB_ENOTCOPY,
	"public and internal codes are the same");
static_assert((int)WB_ERROR_MSG_MAX >= (int)WB_ERR_MSG_MAX, "a sentence fits");

const char *wb_version(void)
{
	return WB_VERSION;
}

/* An environment variable stands in for an option that was not given. */
static char *option(const char *given, const char *env, const char *otherwise)
{
	if (!given && env)
		given = getenv(env);
	return wb_strdup(given && *given ? given : otherwise);
}

static uint64_t bound(uint64_t given, uint64_t otherwise)
{
	return given ? given : otherwise;
}

static int copy_opts(struct wb_client *c, const struct wb_client_opts *o)
{
	c->socket = option(o->socket, "WEIGHTBRIDGE_SOCKET", WB_SOCKET_DEFAULT);
	c->object = option(o->object, "WEIGHTBRIDGE_OBJECT", "");
	c->model = option(o->model, NULL, "");
	c->engine = option(o->engine, NULL, "");
	c->role = (uint32_t)o->role;
	c->rank = o->rank;
	c->sender_staging = (uint32_t)o->sender_staging;
	c->receiver_staging = (uint32_t)o->receiver_staging;
	c->connect_timeout = bound(o->connect_timeout, CONNECT_TIMEOUT);
	c->session = (struct wb_session){.io = &wb__client_io,
		.side = WB_SIDE_LIBRARY,
		.bounds.hello_ns = c->connect_timeout,
		.bounds.asked_ns = c->connect_timeout};
	c->update_timeout = bound(o->update_timeout, UPDATE_TIMEOUT);
	c->repair_timeout = bound(o->repair_timeout, REPAIR_TIMEOUT);
	c->reconnect_timeout = bound(o->reconnect_timeout, RECONNECT_TIMEOUT);
	return c->socket && c->object && c->model && c->engine ? 0 : -ENOMEM;
}

static int check_opts(const struct wb_client_opts *o, struct wb_error *err)
{
	if (!o || o->size < sizeof(*o))
		return wb__client_fail(err, -EINVAL, "options of an unknown size");
	if (o->role != WB_CLIENT_TRAINER && o->role != WB_CLIENT_ROLLOUT)
		return wb__client_fail(
			err, -EINVAL, "role %d is neither trainer nor rollout", o->role);
	if (o->sender_staging < 0 || o->sender_staging > WB_CLIENT_STAGING_HOST_MEMORY ||
		o->receiver_staging < 0 || o->receiver_staging > WB_CLIENT_STAGING_HOST_MEMORY)
		return wb__client_fail(err, -EINVAL, "staging is None or HostMemory");
	if (o->rank < -1)
		return wb__client_fail(err, -EINVAL, "rank %lld is negative", (long long)o->rank);
	return 0;
}

/* One page that a forked child sees as zeros. */
static struct wb__client_hot *make_hot(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct wb__client_hot *h = p;

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, bytes, MADV_WIPEONFORK)) {
		munmap(p, bytes);
		return NULL;
	}
	h->alive = 1;
	h->attention = 1;
	h->mask = 15;
	h->look_ns = WB_NS_PER_S;
	return h;
}

static int make_fds(struct wb_client *c)
{
	struct epoll_event ev = {.events = EPOLLIN};

	c->epfd = epoll_create1(EPOLL_CLOEXEC);
	c->user_epfd = epoll_create1(EPOLL_CLOEXEC);
	c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->epfd < 0 || c->user_epfd < 0 || c->timer_fd < 0 || c->wake_fd < 0)
		return -errno;
	if (epoll_ctl(c->epfd, EPOLL_CTL_ADD, c->timer_fd, &ev) ||
		epoll_ctl(c->user_epfd, EPOLL_CTL_ADD, c->epfd, &ev) ||
		epoll_ctl(c->user_epfd, EPOLL_CTL_ADD, c->wake_fd, &ev))
		return -errno;
	return 0;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void destroy(struct wb_client *c)
{
	bool is_owner;

	if (!c)
		return;
	is_owner = !c->hot || c->hot->alive; /* not a forked child */
	if (c->cur) {
		wb__client_transfer_orphan(c->cur);
		wb_client_transfer_free(c->cur);
	}
	if (c->prev) {
		wb__client_transfer_orphan(c->prev);
		wb_client_transfer_free(c->prev);
	}
	if (c->hot) {
		if (c->reg && !is_owner)
			c->reg->gpu = NULL; /* the parent's: a forked child has no driver */
		wb__client_detach(c, is_owner);
		munmap(c->hot, (size_t)sysconf(_SC_PAGESIZE));
	}
	wb__client_area_destroy(c->area, is_owner);
	wb__client_reg_destroy(c->reg);
	close_fd(c->fd);
	close_fd(c->wake_fd);
	close_fd(c->timer_fd);
	close_fd(c->user_epfd);
	close_fd(c->epfd);
	wb_free(c->socket);
	wb_free(c->object);
	wb_free(c->model);
	wb_free(c->engine);
	wb_free(c->rx);
	wb_free(c);
}

static struct wb_client *create(const struct wb_client_opts *o, struct wb_error *err)
{
	struct wb_client *c = wb_zalloc(1, sizeof(*c));
	int rc;

	if (!c) {
		wb__client_fail(err, -ENOMEM, "no memory for a client");
		return NULL;
	}
	c->fd = c->epfd = c->user_epfd = c->timer_fd = c->wake_fd = -1;
	c->backoff_ns = WB__BACKOFF_MIN;
	c->rng.state = wb__client_now() ^ ((uint64_t)getpid() << 32) ^ (uint64_t)(uintptr_t)c;
	c->version = -1;
	c->plan.version = -1;
	rc = copy_opts(c, o);
	c->rx = wb_alloc(WB__MSG_MAX);
	c->hot = make_hot();
	if (!rc && (!c->rx || !c->hot))
		rc = -ENOMEM;
	if (!rc)
		rc = make_fds(c);
	if (rc) {
		wb__client_fail(err, rc, "set up a client: %s", wb_strerror(rc));
		destroy(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

static int ready_welcomed(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	return c->session.state >= WB_SESSION_WELCOMED ? 1 : wb__client_lost(c, "open", err);
}

int wb_client_open(const struct wb_client_opts *opts, struct wb_client **out, struct wb_error *err)
{
	struct wb_client *c;
	int rc = check_opts(opts, err);

	if (rc)
		return rc;
	c = create(opts, err);
	if (!c)
		return err ? err->code : -ENOMEM;
	rc = wb__client_wait(c, wb__client_deadline(c->connect_timeout), ready_welcomed, NULL, err);
	if (rc > 0) {
		*out = c;
		return 0;
	}
	if (!rc)
		rc = wb__client_fail(err, -ETIMEDOUT,
			"no agent answered at %s within %.1f s (connect_timeout): %s", c->socket,
			(double)c->connect_timeout / 1e9,
			c->session.cause.code ? c->session.cause.msg
					      : "it did not answer the hello");
	destroy(c);
	return rc;
}

static void say_bye(struct wb_client *c)
{
	struct wb_msg_app_detach m = {0};

	if (wb_session_is_up(&c->session))
		(void)wb__client_send_msg(c, WBP_APP_DETACH, &m, NULL, 0);
}

static int ready_left(struct wb_client *c, void *arg, struct wb_error *err)
{
	(void)arg;
	(void)err;
	return wb_session_is_over(&c->session);
}

/* The application frees its memory after this, and an agent that works on memory of a GPU itself
 * has to have let go of it by then (wb_mem_import()): it answers by closing the connection when it
 * has. */
static void leave(struct wb_client *c)
{
	uint64_t deadline;
	bool waits;

	pthread_mutex_lock(&c->lock);
	waits = c->is_exported && !c->lane;
	/* The agent uses its slots again when it hears this: nothing may write there any more. */
	wb__client_lane_stop(c->lane, true);
	c->lane = NULL;
	say_bye(c);
	waits = waits && wb_session_is_up(&c->session);
	pthread_mutex_unlock(&c->lock);
	deadline = wb__client_deadline(LEAVE_NS);
	while (waits) /* a signal is no reason to leave earlier */
		waits = wb__client_wait(c, deadline, ready_left, NULL, NULL) == -EINTR;
}

int wb_client_close(struct wb_client *c, uint64_t timeout, struct wb_error *err)
{
	int rc = 0;

	if (!c)
		return 0;
	if (c->hot->alive) {
		rc = wb__client_send_finish(c, timeout, err);
		leave(c);
		pthread_mutex_destroy(&c->lock);
	}
	destroy(c);
	return rc;
}

void wb__client_attention(struct wb_client *c)
{
	uint32_t is_on = !c->hot->word || !wb_session_is_up(&c->session) || c->phase != WB__RUN ||
			 c->is_wake;

	__atomic_store_n(&c->hot->attention, is_on, __ATOMIC_RELEASE);
}
