/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/hash.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS 1000000ull
#define S 1000000000ull

static void says(const struct wb_error *err, const char *part)
{
	ck_assert_msg(strstr(err->msg, part) != NULL, "\"%s\" is not in: %s", part, err->msg);
}

/* What a worker saw: one letter each, in order; large while its parameters were a mix. */
struct seen {
	char what[64];
	int before_rc, after_rc;
};

static int before(void *cookie, const struct wb_client_update *u)
{
	struct seen *s = cookie;

	ck_assert_int_eq(u->version, (int64_t)u->transfer * 10);
	strcat(s->what, u->torn ? "B" : "b");
	return s->before_rc;
}

static int after(void *cookie, const struct wb_client_update *u)
{
	struct seen *s = cookie;

	ck_assert_ptr_nonnull(strstr(u->digest, "xxh128:"));
	strcat(s->what, u->torn ? "A" : "a");
	return s->after_rc;
}

/* Polls until something comes out, at most @max times. */
static int poll_until(struct wb_client *c, struct seen *seen, uint64_t max,
	struct wb_client_update *u, struct wb_error *err)
{
	struct wb_client_hooks hooks = {before, after, seen};
	int rc = 0;

	for (uint64_t i = 0; i < max && !rc; i++) {
		rc = wb_client_poll_requests(c, &hooks, u, err);
		if (!rc)
			sched_yield();
	}
	return rc;
}

#define FOREVER_POLLS (1u << 30)

/* ---- the poll word ---- */

START_TEST(count_wraps_without_touching_stop)
{
	uint64_t word = (uint64_t)5 << 32 | (UINT32_MAX - 1);

	ck_assert_uint_eq(wb_poll_add(&word), (uint64_t)5 << 32 | UINT32_MAX);
	ck_assert_uint_eq(wb_poll_add(&word), (uint64_t)5 << 32 | 1); /* 0 is skipped */
	ck_assert_uint_eq(wb_poll_add(&word), (uint64_t)5 << 32 | 2);
	word = UINT32_MAX;
	ck_assert_uint_eq(wb_poll_promise(&word), 1);
	ck_assert(wb_poll_is_ahead(word));
	ck_assert(wb_poll_is_parked(wb_poll_add(&word)));
	ck_assert(!wb_poll_is_ahead(word));
	word = UINT32_MAX - 3;
	wb_poll_set_stop(&word, 2);
	for (int i = 0; i < 4; i++)
		ck_assert(!wb_poll_is_parked(wb_poll_add(&word)));
	ck_assert(wb_poll_is_parked(wb_poll_add(&word)));
	word = 0;
	ck_assert(!wb_poll_is_parked(word));
	ck_assert_uint_eq(wb_poll_promise(&word), 1);
	ck_assert_uint_eq(wb_poll_promise(&word), 1); /* promised already */
}
END_TEST

#define STOPS_MIN 12

struct race {
	uint64_t word, n; /* polls to do */
	uint64_t n_parked;
	int is_done;
};

static void *race_worker(void *arg)
{
	struct race *r = arg;
	uint32_t last = wb_poll_count(wb_poll_load(&r->word));
	uint64_t w, end = wb_now_ns(&wb_clock_real) + S;
	bool was_parked = false;

	for (uint64_t i = 0; i < r->n; i++) {
		/* A loaded machine need not do them all: a stop may cost it two turns of everybody.
		 */
		if ((was_parked || i % 1024 == 0) && r->n_parked > STOPS_MIN &&
			wb_now_ns(&wb_clock_real) > end)
			r->n = i;
		w = wb_poll_add(&r->word);
		last = wb_poll_next(last);
		if (wb_poll_count(w) != last ||
			(wb_poll_stop(w) && wb_poll_later(last, wb_poll_stop(w))))
			abort(); /* a poll was lost, or a stop passed */
		was_parked = wb_poll_is_parked(w);
		if (!was_parked)
			continue;
		r->n_parked++;
		while (wb_poll_is_parked(wb_poll_load(&r->word)))
			sched_yield();
	}
	__atomic_store_n(&r->is_done, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The agent promises, raises the promise to a target, finds the worker there, lets it go. */
START_TEST(no_promise_is_missed_and_no_stop_is_passed)
{
	struct race r = {.word = UINT32_MAX - 1000, .n = 2000000};
	struct wb_rng rng = {42};
	uint64_t rounds = 0;
	uint32_t target;
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, race_worker, &r));
	for (;;) {
		target = wb_poll_promise(&r.word);
		for (uint64_t n = wb_rng_below(&rng, 4); n; n--)
			target = wb_poll_next(target);
		wb_poll_set_stop(&r.word, target);
		while (!wb_poll_is_parked(wb_poll_load(&r.word)) &&
			!__atomic_load_n(&r.is_done, __ATOMIC_ACQUIRE))
			sched_yield();
		if (__atomic_load_n(&r.is_done, __ATOMIC_ACQUIRE))
			break;
		ck_assert_uint_eq(wb_poll_count(wb_poll_load(&r.word)), target);
		wb_poll_set_stop(&r.word, 0);
		rounds++;
		for (uint64_t n = wb_rng_below(&rng, 200000); n; n--)
			wb_poll_load(&r.word);
	}
	pthread_join(t, NULL);
	ck_assert_uint_ge(r.n_parked, rounds);
	ck_assert_uint_gt(rounds, 10);
	printf("race: %llu stops in %llu polls\n", (unsigned long long)r.n_parked,
		(unsigned long long)r.n);
}
END_TEST

/* ---- one update ---- */

static void script_commits(struct fx_agent *a)
{
	fx_agent_up(a);
	for (uint64_t t = 1; t <= 3; t++)
		fx_agent_update(a, t, WB_APP_END_COMMITTED);
	fx_agent_expect(a, WBP_APP_DETACH);
}

START_TEST(polling_worker_gets_each_version)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;

	fx_script_start(&s, script_commits);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	for (uint64_t t = 1; t <= 3; t++) {
		ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), 1);
		ck_assert_uint_eq(u.transfer, t);
		ck_assert_int_eq(u.version, (int64_t)t * 10);
	}
	ck_assert_str_eq(seen.what, "bababa");
	/* Without a turn for others after each: there are many of them on a loaded machine. */
	for (int i = 0; i < 70000; i++)
		ck_assert_int_eq(wb_client_poll_requests(c, NULL, &u, &err), 0);
	ck_assert_int_eq(wb_client_close(c, 0, NULL), 0);
	fx_script_stop(&s);
}
END_TEST

static uint32_t first_stop;

static void script_goes(struct fx_agent *a)
{
	uint32_t at;

	fx_agent_up(a);
	first_stop = wb_poll_promise(&a->page->word);
	at = fx_agent_expect(a, WBP_APP_PARKED)->app_parked.count;
	ck_assert_uint_eq(at, first_stop);
	fx_agent_go(a, at); /* spurious: it stays */
	fx_agent_go(a, at + 2);
	ck_assert_uint_eq(fx_agent_expect(a, WBP_APP_PARKED)->app_parked.count, at + 2);
	fx_agent_go(a, 0);
	fx_agent_wait_closed(a);
}

START_TEST(worker_below_the_target_runs_on_to_it)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;
	int n;

	fx_script_start(&s, script_goes);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	while (!wb_client_poll(c))
		;
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_NONE);
	for (n = 1; !wb_client_poll(c); n++)
		;
	ck_assert_int_eq(n, 2);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_NONE);
	ck_assert_str_eq(u.sentence, "");
	for (n = 0; n < 1000; n++)
		ck_assert_int_eq(wb_client_poll(c), 0);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), -EINVAL);
	ck_assert_int_eq(wb_client_update_resumed(c, 0, NULL, &err), -EINVAL);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_abort(struct fx_agent *a)
{
	struct wb_msg_app_begun *m;

	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, 1);
	m = &fx_agent_expect(a, WBP_APP_BEGUN)->app_begun;
	ck_assert_uint_eq(m->transfer, 1);
	ck_assert_int_eq(m->code, -EPERM);
	ck_assert_str_eq(m->sentence, "before_update failed");
	fx_agent_end(a, 1, WB_APP_END_ABORTED, "worker-x: before_update failed");
	fx_agent_update(a, 2, WB_APP_END_COMMITTED);
	ck_assert_int_eq(a->m.app_resumed.code, -EIO);
	fx_agent_wait_closed(a);
}

START_TEST(hooks_that_fail_are_told_to_the_agent)
{
	struct fx_script s;
	struct seen seen = {.before_rc = -EPERM};
	struct wb_client_update u = {0};
	struct wb_error err;
	struct wb_client_opts o;
	struct wb_client *c;
	int rc = 0;

	fx_script_start(&s, script_abort);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	while (!rc && !u.sentence[0])
		rc = poll_until(c, &seen, 1, &u, &err);
	ck_assert_int_eq(rc, 0); /* serve the old weights */
	ck_assert_str_eq(u.sentence, "worker-x: before_update failed");
	seen.before_rc = 0;
	seen.after_rc = -EIO;
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), 1);
	ck_assert_str_eq(seen.what, "bba");
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_torn(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, 1);
	fx_agent_expect(a, WBP_APP_BEGUN);
	fx_agent_end(a, 1, WB_APP_END_TORN, "trainer-0 is gone");
	fx_agent_begin(a, 2);
	fx_agent_expect(a, WBP_APP_BEGUN);
	fx_agent_end(a, 2, WB_APP_END_ABORTED, "trainer-1 is gone as well"); /* still torn */
	fx_agent_begin(a, 3);
	fx_agent_expect(a, WBP_APP_BEGUN);
	fx_agent_end(a, 3, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

/* Its first poll that returns has @transfer, and its hooks have run as @what says. */
static void first_update_is(void (*script)(struct fx_agent *a), uint64_t transfer, const char *what)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;

	fx_script_start(&s, script);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), 1);
	ck_assert_uint_eq(u.transfer, transfer);
	ck_assert_str_eq(seen.what, what);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}

START_TEST(torn_worker_blocks_until_repaired)
{
	first_update_is(script_torn, 3, "bBBA");
}
END_TEST

static pthread_barrier_t turn;

static void script_torn_for_good(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, 1);
	fx_agent_expect(a, WBP_APP_BEGUN);
	fx_agent_end(a, 1, WB_APP_END_TORN_FINAL, "trainer-0 is gone");
	pthread_barrier_wait(&turn);
	fx_agent_end(a, 2, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

START_TEST(torn_for_good_raises_and_never_returns_normally)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;

	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, script_torn_for_good);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	o.repair_timeout = 30 * MS;
	c = fx_worker(&o);
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), WB_CODE_TORN);
	says(&err, "do not serve");
	says(&err, "trainer-0 is gone");
	ck_assert_str_eq(seen.what, "b"); /* no hook for what is no version */
	/* Each further poll waits for repair again, and counts nothing. */
	ck_assert_int_eq(wb_client_poll(c), 1);
	ck_assert_int_eq(wb_client_update_step(c, 0, &u, &err), -EAGAIN);
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), WB_CODE_TORN);
	pthread_barrier_wait(&turn);
	while (poll_until(c, &seen, FOREVER_POLLS, &u, &err) == WB_CODE_TORN)
		;
	ck_assert_uint_eq(u.transfer, 2);
	ck_assert_str_eq(seen.what, "bA");
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_late_end(struct fx_agent *a)
{
	struct wb_msg_app_end late = {.transfer = 1,
		.version = 10,
		.result = WB_APP_END_ABORTED,
		.digest = "",
		.code = WB_CODE_ABORTED,
		.sentence = "of the update before"};

	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_send(a, WBP_APP_END, &late);
	fx_agent_begin(a, 2);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, 0);
	fx_agent_end(a, 2, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

/* Its engine counts on a worker that stands at its stop: the next update begins with it. */
START_TEST(the_end_of_an_earlier_update_lets_no_parked_worker_go)
{
	first_update_is(script_late_end, 2, "ba");
}
END_TEST

static void script_silent(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	pthread_barrier_wait(&turn);
	wb_poll_set_stop(&a->page->word, 0);
	fx_agent_begin(a, 1); /* too late */
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, -EAGAIN);
	fx_agent_end(a, 1, WB_APP_END_ABORTED, "worker-x was not there");
	fx_agent_update(a, 2, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

START_TEST(silent_agent_is_etimedout_and_the_worker_serves_on)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;

	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, script_silent);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	o.update_timeout = 30 * MS;
	c = fx_worker(&o);
	wb_client_fileno(c); /* looks at its socket more often */
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), -ETIMEDOUT);
	says(&err, "neither began the update nor released this worker");
	says(&err, " s (update_timeout)");
	ck_assert_int_eq(wb_client_poll(c), 0);
	pthread_barrier_wait(&turn);
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), 1);
	ck_assert_uint_eq(u.transfer, 2);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* ---- agent killed ---- */

static void script_killed_idle(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_drop(a);
	fx_agent_up(a);
	ck_assert_uint_eq(a->n_fd, 3); /* map, manifest and table came again */
	fx_agent_update(a, 1, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

static void script_killed_parked(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_drop(a);
	fx_agent_up(a);
	fx_agent_update(a, 1, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

/* Killed in an update that began; the next one knows, or hears, how it ended. */
static void killed_after(struct fx_agent *a, const struct wb_msg_app_begin *begin, bool is_opened)
{
	const struct wb_msg_app_attach *m;
	uint32_t at;

	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	at = fx_agent_expect(a, WBP_APP_PARKED)->app_parked.count;
	fx_agent_send(a, WBP_APP_BEGIN, begin);
	fx_agent_expect(a, WBP_APP_BEGUN);
	a->page->touched = is_opened ? begin->transfer : 0;
	fx_agent_drop(a);
	fx_agent_hello(a);
	m = &fx_agent_expect(a, WBP_APP_ATTACH)->app_attach;
	ck_assert_uint_eq(m->is_torn, 0);
	if (begin->staged && !is_opened) { /* nobody can have installed: it runs */
		ck_assert_uint_eq(m->begun, 0);
		return;
	}
	ck_assert_uint_eq(m->begun, begin->transfer);
	ck_assert_int_eq(m->begun_version, begin->version);
	ck_assert_uint_eq(m->begun_at, at);
	ck_assert_uint_eq(m->is_touched, is_opened && !begin->staged);
}

static void killed_in_update(struct fx_agent *a, bool is_opened, uint32_t result)
{
	static const struct wb_msg_app_begin begin = {.transfer = 8, .version = 80};

	killed_after(a, &begin, is_opened);
	fx_agent_attached(a);
	fx_agent_planned(a);
	/* In doubt it does not poll, not even to a stop. */
	wb_poll_promise(&a->page->word);
	fx_agent_end(a, 8, result, result == WB_APP_END_COMMITTED ? NULL : "it did not commit");
	if (result != WB_APP_END_COMMITTED)
		fx_agent_update(a, 9, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

static void script_killed_torn(struct fx_agent *a)
{
	killed_in_update(a, true, WB_APP_END_TORN);
}

static void script_killed_aborted(struct fx_agent *a)
{
	killed_in_update(a, false, WB_APP_END_ABORTED);
}

static void script_killed_committed(struct fx_agent *a)
{
	killed_in_update(a, true, WB_APP_END_COMMITTED);
}

/* Its areas outlive the agent; others of the engine may be installing from theirs, or not. */
static void script_killed_others_install(struct fx_agent *a)
{
	static const struct wb_msg_app_begin begin = {.transfer = 8, .version = 80, .staged = true};

	killed_after(a, &begin, true);
	fx_agent_attached(a);
	fx_agent_planned(a);
	fx_agent_end(a, 8, WB_APP_END_TORN, "others of the engine have installed it");
	fx_agent_update(a, 9, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

static void script_killed_nobody_installs(struct fx_agent *a)
{
	static const struct wb_msg_app_begin begin = {.transfer = 8, .version = 80, .staged = true};

	killed_after(a, &begin, false);
	fx_agent_attached(a);
	fx_agent_planned(a);
	fx_agent_update(a, 9, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

static const struct {
	void (*script)(struct fx_agent *a);
	const char *seen;
	bool is_fileno;
	uint64_t transfer;
} killed[] = {
	{script_killed_idle, "ba", true, 1},
	{script_killed_idle, "ba", false, 1},
	{script_killed_parked, "ba", false, 1},
	{script_killed_torn, "bBA", false, 9}, /* torn, then repaired by the new agent */
	{script_killed_aborted, "bba", false, 9}, /* went on with the old weights */
	{script_killed_committed, "ba", false, 8}, /* only END was lost */
	{script_killed_others_install, "bBA", false, 9},
	{script_killed_nobody_installs, "bba", false, 9},
};

START_TEST(killed_agent_gets_its_worker_back)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;

	fx_script_start(&s, killed[_i].script);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	if (killed[_i].is_fileno)
		wb_client_fileno(c);
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err), 1);
	ck_assert_str_eq(seen.what, killed[_i].seen);
	ck_assert_uint_eq(u.transfer, killed[_i].transfer);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

static bool is_begun_first;

static void script_stays_away(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	if (is_begun_first) {
		fx_agent_begin(a, 8);
		fx_agent_expect(a, WBP_APP_BEGUN);
	}
	close(a->listen_fd);
	a->listen_fd = -1;
	fx_agent_drop(a);
}

START_TEST(agent_that_stays_away_is_named)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;

	is_begun_first = _i;
	fx_script_start(&s, script_stays_away);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	o.reconnect_timeout = o.repair_timeout = 50 * MS;
	c = fx_worker(&o);
	ck_assert_int_eq(poll_until(c, &seen, FOREVER_POLLS, &u, &err),
		is_begun_first ? WB_CODE_TORN : -ECONNRESET);
	says(&err, is_begun_first ? "the agent went away during the update"
				  : "parked for an update: the agent is lost");
	/* Old weights serve on, torn ones do not. */
	ck_assert_int_eq(wb_client_poll(c), is_begun_first);
	if (!is_begun_first)
		ck_assert_int_eq(wb_client_idle(c, S, &err), -ECONNRESET);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* ---- waiting instead of polling ---- */

static bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void script_wakes(struct fx_agent *a)
{
	fx_agent_up(a);
	pthread_barrier_wait(&turn);
	fx_agent_update(a, 1, WB_APP_END_COMMITTED);
	/* A wake whose update is gone before the worker looks. */
	fx_agent_send(a, WBP_APP_WAKE, &(struct wb_msg_app_wake){0});
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	fx_agent_drop(a);
	fx_agent_up(a);
	fx_agent_update(a, 2, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

START_TEST(fileno_wakes_a_worker_that_does_not_poll)
{
	struct fx_script s;
	struct seen seen = {0};
	struct wb_error err;
	struct wb_client_update u;
	struct wb_client_opts o;
	struct wb_client *c;
	int fd, rc = 0;

	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, script_wakes);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	fd = wb_client_fileno(c);
	ck_assert_int_ge(fd, 0);
	ck_assert(!readable(fd, 0));
	pthread_barrier_wait(&turn);
	while (!rc && readable(fd, 5000))
		rc = poll_until(c, &seen, 1, &u, &err);
	ck_assert_int_eq(rc, 1);
	pthread_barrier_wait(&turn);
	ck_assert(readable(fd, 5000));
	for (int i = 0; i < 100000 && readable(fd, 0); i++)
		ck_assert_int_eq(poll_until(c, &seen, 1, &u, &err), 0);
	ck_assert(!readable(fd, 0));
	pthread_barrier_wait(&turn);
	/* The agent restarts; only fileno says when to poll, and it stays the same. */
	for (rc = 0; !rc && readable(fd, 5000);)
		rc = poll_until(c, &seen, 1, &u, &err);
	ck_assert_int_eq(rc, 1);
	ck_assert_uint_eq(u.transfer, 2);
	ck_assert_int_eq(wb_client_fileno(c), fd);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client_update");
	TCase *t = tcase_create("client_update");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, count_wraps_without_touching_stop);
	tcase_add_test(t, no_promise_is_missed_and_no_stop_is_passed);
	tcase_add_test(t, polling_worker_gets_each_version);
	tcase_add_test(t, worker_below_the_target_runs_on_to_it);
	tcase_add_test(t, hooks_that_fail_are_told_to_the_agent);
	tcase_add_test(t, torn_worker_blocks_until_repaired);
	tcase_add_test(t, torn_for_good_raises_and_never_returns_normally);
	tcase_add_test(t, the_end_of_an_earlier_update_lets_no_parked_worker_go);
	tcase_add_test(t, silent_agent_is_etimedout_and_the_worker_serves_on);
	tcase_add_loop_test(
		t, killed_agent_gets_its_worker_back, 0, sizeof(killed) / sizeof(killed[0]));
	tcase_add_loop_test(t, agent_that_stays_away_is_named, 0, 2);
	tcase_add_test(t, fileno_wakes_a_worker_that_does_not_poll);
	suite_add_tcase(s, t);
	return fx_run(s);
}
