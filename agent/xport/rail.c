/* SPDX-License-Identifier: Apache-2.0 */
/* A rail: its thread sleeps, wakes, runs commands and gives each socket its turn, within rate caps
 * and deadlines. */
#include "xport/internal.h"

#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EPOLL_BATCH 64
#define TURNS_A_ROUND 16 /* sockets that run between two looks at commands and epoll */
#define BURST_NS (2 * WB_NS_PER_MS)
#define ACCEPT_RETRY_NS (100 * WB_NS_PER_MS)
#define ROOM_RETRY_NS (100 * WB_NS_PER_US)

/* ---- lists ------------------------------------------------------------------------------------
 */

static void list_del(struct wb__list *l, struct wb__sock *s)
{
	assert(s->on != WB__ON_NONE);
	if (s->prev)
		s->prev->next = s->next;
	else
		l->head = s->next;
	if (s->next)
		s->next->prev = s->prev;
	else
		l->tail = s->prev;
	s->prev = s->next = NULL;
	s->on = WB__ON_NONE;
}

static void list_add(struct wb__list *l, struct wb__sock *s, uint8_t on)
{
	assert(s->on == WB__ON_NONE && on != WB__ON_NONE);
	s->prev = l->tail;
	s->next = NULL;
	if (l->tail)
		l->tail->next = s;
	else
		l->head = s;
	l->tail = s;
	s->on = on;
}

static void unlist(struct wb__rail *r, struct wb__sock *s)
{
	if (s->on == WB__ON_READY)
		list_del(&r->ready, s);
	else if (s->on == WB__ON_WAIT)
		list_del(&r->waiting, s);
	else if (s->on == WB__ON_SERVED)
		list_del(&r->served, s);
}

void wb__rail_ready(struct wb__rail *r, struct wb__sock *s)
{
	if (s->on == WB__ON_READY || s->state == WB__S_CLOSED)
		return;
	unlist(r, s);
	list_add(&r->ready, s, WB__ON_READY);
}

/* ---- rate caps --------------------------------------------------------------------------------
 */

static void bucket_init(struct wb__bucket *b, uint64_t rate, uint64_t now_ns)
{
	b->rate = (double)rate;
	b->burst = WB_MAX(b->rate * BURST_NS / 1e9, 65536.0);
	b->tokens = 0;
	b->most = rate ? (size_t)(b->burst / 4) & ~(size_t)(WB_XPORT_PIECE_ALIGN - 1) : SIZE_MAX;
	b->last_ns = now_ns;
}

bool wb__bucket_ok(struct wb__rail *r, struct wb__bucket *b)
{
	double want;
	uint64_t wait_ns, until;

	if (b->rate <= 0)
		return true;
	if (r->now_ns > b->last_ns) {
		b->tokens += b->rate * (double)(r->now_ns - b->last_ns) / 1e9;
		b->tokens = WB_MIN(b->tokens, b->burst);
		b->last_ns = r->now_ns;
	}
	if (b->tokens >= b->burst / 16)
		return true;
	/* Wait for a quarter of the burst, so that a rail with a cap does not wake for a few bytes
	 * at a time. */
	want = b->burst / 4 - b->tokens;
	wait_ns = (uint64_t)(want * 1e9 / b->rate) + 1;
	until = r->now_ns + wait_ns;
	wb__rail_wake_at(r, until);
	if (until > r->throttled_until_ns) {
		wb__count(&r->throttled_ns, until - WB_MAX(r->now_ns, r->throttled_until_ns));
		r->throttled_until_ns = until;
	}
	return false;
}

/* ---- commands and events ----------------------------------------------------------------------
 */

static void wake(struct wb__rail *r)
{
	uint64_t one = 1;

	if (atomic_exchange(&r->asleep, 0))
		while (write(r->cmd_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

int wb__cmd(struct wb__rail *r, const struct wb__cmd *c)
{
	if (!wb__cmd_has_room(r))
		return -EAGAIN;
	wb_ring_push(&r->cmd, c);
	wake(r);
	return 0;
}

void wb__cmd_must(struct wb__rail *r, const struct wb__cmd *c)
{
	/* This ends, since the rail runs all commands in each of its rounds. */
	while (wb_ring_push(&r->cmd, c)) {
		wake(r);
		sched_yield();
	}
	wake(r);
}

static void say_events(struct wb__rail *r)
{
	uint64_t one = 1;

	r->n_unsaid = 0;
	if (!atomic_exchange(&r->x->signalled, 1))
		while (write(r->x->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

void wb__emit(struct wb__rail *r, struct wb__ev *e, bool may_wait)
{
	int rc;

	e->at_ns = wb_now_ns(r->x->o.clock);
	rc = wb_ring_push(&r->ev, e);
	assert(!rc); /* the caller has made sure that there is room */
	if (++r->n_unsaid >= WB__UNSAID_MAX || !may_wait)
		say_events(r);
}

void wb__emit_of_cmd(struct wb__rail *r, struct wb__ev *e)
{
	struct wb__op *op = e->op;

	if (!r->late_head && wb_ring_room(&r->ev)) {
		wb__emit(r, e, false);
		return;
	}
	op->late_sock = e->sock;
	op->late_kind = (uint8_t)e->kind;
	op->late_code = e->code;
	op->late_next = NULL;
	*r->late_tail = op;
	r->late_tail = &op->late_next;
}

static void say_ops_late(struct wb__rail *r)
{
	while (r->late_head && wb_ring_room(&r->ev)) {
		struct wb__op *op = r->late_head;
		struct wb__ev e = {.kind = op->late_kind,
			.sock = op->late_sock,
			.op = op,
			.code = op->late_code};

		r->late_head = op->late_next;
		if (!r->late_head)
			r->late_tail = &r->late_head;
		wb__emit(r, &e, false);
	}
}

static void say_down(struct wb__rail *r, struct wb__sock *s)
{
	struct wb__ev e = {.kind = WB__EV_DOWN, .sock = s, .code = s->code};

	if (!r->late_head && !r->down_head && wb_ring_room(&r->ev)) {
		wb__emit(r, &e, false);
		return;
	}
	s->down_next = NULL;
	*r->down_tail = s;
	r->down_tail = &s->down_next;
}

static void say_late(struct wb__rail *r)
{
	say_ops_late(r);
	while (!r->late_head && r->down_head && wb_ring_room(&r->ev)) {
		struct wb__sock *s = r->down_head;
		struct wb__ev e = {.kind = WB__EV_DOWN, .sock = s, .code = s->code};

		r->down_head = s->down_next;
		if (!r->down_head)
			r->down_tail = &r->down_head;
		wb__emit(r, &e, false);
	}
	if (r->late_head || r->down_head)
		wb__rail_wake_at(r, r->now_ns + ROOM_RETRY_NS);
}

/* ---- sockets come and go ----------------------------------------------------------------------
 */

void wb__young_move(struct wb__rail *r, struct wb__sock *s, enum wb__young_kind to)
{
	struct wb__young *y = &r->young[s->young];

	if (s->young) {
		*(s->young_prev ? &s->young_prev->young_next : &y->head) = s->young_next;
		*(s->young_next ? &s->young_next->young_prev : &y->tail) = s->young_prev;
		assert(y->n);
		y->n--;
	}
	s->young = (uint8_t)to;
	if (!to)
		return;
	y = &r->young[to];
	s->young_prev = y->tail;
	s->young_next = NULL;
	*(y->tail ? &y->tail->young_next : &y->head) = s;
	y->tail = s;
	y->n++;
	s->deadline_ns = r->now_ns + r->x->o.handshake_timeout_ns;
	/* A connect that is never answered causes no epoll event. */
	wb__rail_wake_at(r, s->deadline_ns);
}

static int watch(struct wb__rail *r, struct wb__sock *s)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};

	s->all_next = r->all;
	if (r->all)
		r->all->all_prev = s;
	r->all = s;
	wb__young_move(r, s, s->is_dialer ? WB__YOUNG_DIALLED : WB__YOUNG_STRANGER);
	if (epoll_ctl(r->epfd, EPOLL_CTL_ADD, s->fd, &e))
		return wb__sock_errno(s, errno);
	return 0;
}

/* Add the peer's address to the reason, since the name that an unproved peer gives may be false. */
static void say_from(struct wb__sock *s)
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	size_t at = strlen(s->reason);
	char host[64], port[16];

	if (getpeername(s->fd, (struct sockaddr *)&a, &len) ||
		(a.ss_family != AF_INET && a.ss_family != AF_INET6) ||
		getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(s->reason + at, sizeof(s->reason) - at, " (from %s port %s)", host, port);
}

static void close_sock(struct wb__rail *r, struct wb__sock *s)
{
	if (s->state == WB__S_CLOSED)
		return;
	s->closed_ns = wb_now_ns(r->x->o.clock);
	if (!s->is_dialer && s->state != WB__S_UP) {
		wb__handshake_reject(s);
		say_from(s);
		wb__count(&r->rejected, 1);
	}
	if (s->link)
		r->x->link->sock_close(s);
	unlist(r, s);
	close(s->fd); /* this also removes it from epoll */
	s->fd = -1;
	s->state = WB__S_CLOSED;
	wb__young_move(r, s, WB__YOUNG_NONE);
	say_down(r, s);
}

static void forget_sock(struct wb__rail *r, struct wb__sock *s)
{
	if (s->all_next)
		s->all_next->all_prev = s->all_prev;
	if (s->all_prev)
		s->all_prev->all_next = s->all_next;
	else if (r->all == s)
		r->all = s->all_next;
	wb__sock_free(s);
}

/* Make room for one more accepted socket that has proved nothing yet: if there are too many, close
 * the oldest, but only if it has been there for a while.  If many agents dial at once, closing
 * newer ones would end challenges that are nearly over.  The loop does not know these sockets, so
 * it is not told.  The socket is freed in the next round, since epoll events of this round may
 * still name it. */
static bool make_room(struct wb__rail *r)
{
	struct wb__young *y = &r->young[WB__YOUNG_STRANGER];
	struct wb__sock *s = y->head;

	if (y->n < WB__STRANGERS_MAX)
		return true;
	if (r->now_ns + r->x->o.handshake_timeout_ns - s->deadline_ns < WB__LINGER_NS)
		return false;
	unlist(r, s);
	close(s->fd);
	s->fd = -1;
	s->state = WB__S_CLOSED;
	wb__young_move(r, s, WB__YOUNG_NONE);
	wb__count(&r->rejected, 1);
	s->down_next = r->dropped;
	r->dropped = s;
	return true;
}

static void free_dropped(struct wb__rail *r)
{
	while (r->dropped) {
		struct wb__sock *s = r->dropped;

		r->dropped = s->down_next;
		forget_sock(r, s);
	}
}

/* Takes @fd. */
static void take_fd(struct wb__rail *r, int fd)
{
	struct wb__sock *s;

	if (!make_room(r) || !(s = wb__sock_create(r, fd, false))) {
		wb__count(&r->rejected, 1);
		close(fd);
		return;
	}
	if (r->x->link->tune)
		r->x->link->tune(r->x, fd);
	s->state = WB__S_HELLO;
	if (watch(r, s))
		close_sock(r, s);
}

static void watch_listener(struct wb__rail *r, int op, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = &r->listen_fd};

	epoll_ctl(r->epfd, op, r->listen_fd, &e);
}

static void accept_some(struct wb__rail *r)
{
	for (int i = 0; i < 16; i++) {
		int fd = accept4(r->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			/* When accept fails for want of descriptors or memory the listener stays
			 * readable and would wake us without end, so it is tried again later. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				errno == ENOMEM) {
				watch_listener(r, EPOLL_CTL_MOD, 0);
				r->accept_at_ns = r->now_ns + ACCEPT_RETRY_NS;
			}
			return;
		}
		take_fd(r, fd);
	}
}

static void check_deadlines(struct wb__rail *r)
{
	for (int k = WB__YOUNG_DIALLED; k < WB__YOUNGS; k++) {
		struct wb__sock *s;

		while ((s = r->young[k].head) && r->now_ns >= s->deadline_ns) {
			wb__sock_fail(s, -ETIMEDOUT,
				"%s%s did not finish the challenge in time (%s)",
				s->peer[0] ? "agent " : "a peer", s->peer,
				s->state == WB__S_CONNECTING ? "not connected" : "no answer");
			close_sock(r, s);
		}
		if (s)
			wb__rail_wake_at(r, s->deadline_ns);
	}
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void run_command(struct wb__rail *r, const struct wb__cmd *c)
{
	struct wb__sock *s = c->sock;

	switch (c->kind) {
	case WB__CMD_STOP:
		r->is_stopping = true;
		break;
	case WB__CMD_LISTEN:
		r->listen_fd = (int)c->n;
		watch_listener(r, EPOLL_CTL_ADD, EPOLLIN);
		break;
	case WB__CMD_ADOPT:
		take_fd(r, (int)c->n);
		break;
	case WB__CMD_DIAL:
		if (watch(r, s))
			close_sock(r, s);
		break;
	case WB__CMD_ADMIT:
		if (s->state != WB__S_ADMIT)
			break;
		if (wb__handshake_welcome(s) < 0)
			close_sock(r, s);
		else
			wb__rail_ready(r, s);
		break;
	case WB__CMD_CLOSE:
		if (s->state == WB__S_CLOSED)
			break;
		wb__sock_fail(s, c->code, "%s", wb_strerror(c->code));
		close_sock(r, s);
		break;
	case WB__CMD_FREE:
		forget_sock(r, s);
		break;
	case WB__CMD_LINK:
		r->x->link->command(r, c);
		break;
	case WB__CMD_REGION:
	case WB__CMD_UNREGION:
		r->x->link->region(r, c);
		break;
	default:
		if (s->state == WB__S_UP) {
			wb__sock_cmd(s, c);
			wb__rail_ready(r, s);
		}
		break;
	}
}

/* Run all commands, even if the event ring is full: the loop may be waiting for room in the command
 * ring, and takes no events while it waits. */
static void run_commands(struct wb__rail *r)
{
	struct wb__cmd c;

	while (!wb_ring_pop(&r->cmd, &c)) {
		run_command(r, &c);
		r->idle_since_ns = 0;
	}
}

/* When the wake time has come, all waiting sockets look again, and each sets a new wake time if it
 * has to wait longer. */
static void run_timers(struct wb__rail *r)
{
	if (r->now_ns >= r->wake_ns) {
		r->wake_ns = UINT64_MAX;
		while (r->waiting.head)
			wb__rail_ready(r, r->waiting.head);
	}
	check_deadlines(r);
	if (r->accept_at_ns && r->now_ns >= r->accept_at_ns) {
		r->accept_at_ns = 0;
		watch_listener(r, EPOLL_CTL_MOD, EPOLLIN);
	}
	if (r->accept_at_ns)
		wb__rail_wake_at(r, r->accept_at_ns);
}

/* A socket that has moved bytes and waits for the rate cap goes behind those that could move none.
 * Otherwise one socket would have the whole cap until its chunk is over, and its peer all that this
 * rail can send.  Where all sources serve in the same order, their readers would then wait for each
 * other. */
static void wait_for_turn(struct wb__rail *r, struct wb__sock *s, bool has_moved)
{
	if (has_moved)
		list_add(&r->served, s, WB__ON_SERVED);
	else
		list_add(&r->waiting, s, WB__ON_WAIT);
}

static void end_round(struct wb__rail *r)
{
	while (r->served.head) {
		struct wb__sock *s = r->served.head;

		list_del(&r->served, s);
		list_add(&r->waiting, s, WB__ON_WAIT);
	}
}

static uint64_t moved(struct wb__rail *r)
{
	return atomic_load_explicit(&r->rx_bytes, memory_order_relaxed) +
	       atomic_load_explicit(&r->tx_bytes, memory_order_relaxed);
}

static void run_sockets(struct wb__rail *r)
{
	for (int i = 0; i < TURNS_A_ROUND && r->ready.head; i++) {
		struct wb__sock *s = r->ready.head;
		uint64_t before = moved(r);
		int rc;

		if (r->now_ns < r->stall_until_ns) {
			wb__rail_wake_at(r, r->stall_until_ns);
			break;
		}
		list_del(&r->ready, s);
		if (r->rx.rate > 0 || r->tx.rate > 0)
			r->now_ns = wb_now_ns(r->x->o.clock);
		rc = wb__sock_turn(s);
		if (rc < 0)
			close_sock(r, s);
		else if (rc == WB__AGAIN)
			wb__rail_ready(r, s);
		else if (rc == WB__WAIT && s->on == WB__ON_NONE)
			wait_for_turn(r, s, moved(r) != before);
		r->idle_since_ns = 0;
	}
	end_round(r);
}

static bool has_work(struct wb__rail *r)
{
	return r->ready.head && r->now_ns >= r->stall_until_ns;
}

/* How many nanoseconds to sleep in epoll; 0: only look. */
static uint64_t sleep_ns(struct wb__rail *r)
{
	if (has_work(r))
		return 0;
	if (!r->idle_since_ns)
		r->idle_since_ns = r->now_ns;
	if (r->now_ns - r->idle_since_ns < r->x->o.spin_ns)
		return 0;
	return r->wake_ns > r->now_ns ? r->wake_ns - r->now_ns : 0;
}

static int wait_events(struct wb__rail *r, struct epoll_event *e)
{
	uint64_t ns = sleep_ns(r);
	struct timespec ts = {(time_t)(ns / WB_NS_PER_S), (long)(ns % WB_NS_PER_S)};
	int n;

	if (!ns)
		return epoll_wait(r->epfd, e, EPOLL_BATCH, 0);
	/* Set asleep, then look again: a command that was pushed before this look is seen here, and
	 * one that is pushed after it wakes us. */
	atomic_exchange(&r->asleep, 1);
	if (!wb_ring_is_empty(&r->cmd) || (r->x->link->rail_arm && !r->x->link->rail_arm(r))) {
		atomic_store(&r->asleep, 0);
		return 0;
	}
	wb__count(&r->sleeps, 1);
	n = epoll_pwait2(r->epfd, e, EPOLL_BATCH, r->wake_ns == UINT64_MAX ? NULL : &ts, NULL);
	if (n < 0 && errno == ENOSYS)
		n = epoll_wait(r->epfd, e, EPOLL_BATCH,
			r->wake_ns == UINT64_MAX ? -1 : (int)WB_MIN(ns / WB_NS_PER_MS + 1, 1000u));
	atomic_store(&r->asleep, 0);
	return n;
}

static bool is_link_s(const struct wb__rail *r, const void *p)
{
	uintptr_t at = (uintptr_t)p, first = (uintptr_t)r->link_mark;

	return at >= first && at < first + WB__LINK_MARKS;
}

static void take_events(struct wb__rail *r, const struct epoll_event *e, int n)
{
	uint64_t v;

	for (int i = 0; i < n; i++) {
		struct wb__sock *s = e[i].data.ptr;

		if (e[i].data.ptr == &r->cmd_fd) {
			if (read(r->cmd_fd, &v, sizeof(v)) < 0)
				continue;
		} else if (e[i].data.ptr == &r->listen_fd) {
			accept_some(r);
		} else if (is_link_s(r, e[i].data.ptr)) {
			r->x->link->rail_event(r, (uint32_t)((char *)e[i].data.ptr - r->link_mark));
		} else {
			if (e[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
				s->rd_ready = true;
			if (e[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
				s->is_hup = true;
			if (e[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
				s->wr_ready = true;
			wb__rail_ready(r, s);
		}
	}
}

static void *rail_main(void *arg)
{
	struct wb__rail *r = arg;
	struct epoll_event e[EPOLL_BATCH];
	int n;

	for (;;) {
		r->now_ns = wb_now_ns(r->x->o.clock);
		free_dropped(r);
		run_timers(r);
		run_commands(r);
		if (r->is_stopping)
			break;
		say_late(r);
		if (r->x->link->rail_poll && r->x->link->rail_poll(r))
			r->idle_since_ns = 0;
		run_sockets(r);
		if (r->n_unsaid)
			say_events(r);
		r->now_ns = wb_now_ns(r->x->o.clock);
		n = wait_events(r, e);
		/* Take the time anew after the sleep, so that deadlines which begin now are not
		 * shortened by it. */
		r->now_ns = wb_now_ns(r->x->o.clock);
		take_events(r, e, n);
	}
	free_dropped(r);
	while (r->all) {
		struct wb__sock *s = r->all;

		if (s->state != WB__S_CLOSED) {
			if (s->link)
				r->x->link->sock_close(s);
			close(s->fd);
		}
		forget_sock(r, s);
	}
	return NULL;
}

int wb__rail_open(struct wb__xport_stream *x, uint32_t index, const struct wb_xport_rail *o)
{
	struct wb__rail *r = &x->rail[index];
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = &r->cmd_fd};
	uint64_t now = wb_now_ns(x->o.clock);
	char name[16];
	int rc;

	r->x = x;
	r->index = index;
	r->wake_ns = UINT64_MAX;
	r->late_tail = &r->late_head;
	r->down_tail = &r->down_head;
	bucket_init(&r->rx, o->rate_bytes_per_s, now);
	bucket_init(&r->tx, o->rate_bytes_per_s, now);
	snprintf(r->addr, sizeof(r->addr), "%s", o->addr ? o->addr : "");
	snprintf(r->advertise, sizeof(r->advertise), "%s",
		o->advertise_host ? o->advertise_host : "");
	r->epfd = epoll_create1(EPOLL_CLOEXEC);
	r->cmd_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->epfd < 0 || r->cmd_fd < 0 || epoll_ctl(r->epfd, EPOLL_CTL_ADD, r->cmd_fd, &e))
		return -errno;
	r->scratch = wb_alloc(WB__SCRATCH);
	if (!r->scratch)
		return -ENOMEM;
	rc = wb_ring_init(&r->cmd, WB__RING_ITEMS, sizeof(struct wb__cmd));
	if (!rc)
		rc = wb_ring_init(&r->ev, WB__RING_ITEMS, sizeof(struct wb__ev));
	if (!rc)
		rc = x->link->rail_open(r);
	snprintf(name, sizeof(name), "wb-rail%u", r->index % 1000);
	if (!rc)
		rc = wb_thread_start(&r->thread, name, rail_main, r);
	r->is_started = !rc;
	/* A container may not be allowed these CPUs; then the thread runs where it can. */
	if (!rc && o->cpus)
		(void)pthread_setaffinity_np(r->thread, sizeof(*o->cpus), o->cpus);
	return rc;
}

void wb__rail_close(struct wb__rail *r)
{
	struct wb__cmd c = {.kind = WB__CMD_STOP};

	if (r->is_started) {
		wb__cmd_must(r, &c);
		pthread_join(r->thread, NULL);
		/* Free sockets and close descriptors of commands that were not run. */
		while (!wb_ring_pop(&r->cmd, &c)) {
			if (c.kind == WB__CMD_DIAL) {
				close(c.sock->fd);
				wb__sock_free(c.sock);
			} else if (c.kind == WB__CMD_ADOPT || c.kind == WB__CMD_LISTEN) {
				close((int)c.n);
			} else if (c.kind == WB__CMD_REGION && c.region.fd >= 0) {
				close(c.region.fd);
			}
		}
	}
	if (r->x && r->x->link->rail_close)
		r->x->link->rail_close(r);
	if (r->listen_fd > 0)
		close(r->listen_fd);
	if (r->epfd > 0)
		close(r->epfd);
	if (r->cmd_fd > 0)
		close(r->cmd_fd);
	if (r->unlink_path[0])
		unlink(r->unlink_path);
	wb_ring_finish(&r->cmd);
	wb_ring_finish(&r->ev);
	wb_free(r->scratch);
}
