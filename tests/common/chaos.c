/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/chaos.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (2 * WB_NS_PER_MS)
#define EVENTS_MAX 5000000
#define SETTLE_NS (120 * WB_NS_PER_S)
#define REST_NS (300 * WB_NS_PER_MS)
/* Who dies or hangs up is noticed without any deadline of the object: messages are given up after
 * 10 s, and so is a connection that cannot be made; a drain takes 5 s. */
#define PROMPT_NS (30 * WB_NS_PER_S)
#define SCRIBBLE 1000000 /* what trainers write once they may */
#define INSIDE_VERSIONS 2 /* bits that go wrong inside agents do so up to this one */

static void show_agent(const struct world_agent *a)
{
	struct wb_buf b;

	wb_buf_init(&b, 1u << 20);
	if (a->alive)
		wb_transfer_status_json(a->core, &b);
	fprintf(stderr, "%s%s: %.*s\n", a->name,
		!a->alive                                 ? " dead"
		: a->stall_until_ns > world_now(a->world) ? " stopped"
							  : "",
		(int)b.len, (const char *)b.data);
	wb_buf_finish(&b);
}

static void wrong(struct chaos *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct chaos *c, const char *fmt, ...)
{
	size_t at;
	va_list ap;

	if (c->wrong[0])
		return;
	at = (size_t)snprintf(
		c->wrong, sizeof(c->wrong), "%.6f ms: ", (double)world_now(c->w) / 1e6);
	va_start(ap, fmt);
	vsnprintf(c->wrong + at, sizeof(c->wrong) - at, fmt, ap);
	va_end(ap);
	for (uint32_t i = 0; c->o.is_tracing && i < c->w->n_worker; i++) {
		const struct world_worker *k = &c->w->worker[i];

		fprintf(stderr, "worker %u engine %u %s id %u version %lld count %u stop %u%s%s\n",
			i, k->engine, world_phase_name(k->phase), k->id, (long long)k->version,
			k->page ? wb_poll_count(k->page->word) : 0,
			k->page ? wb_poll_stop(k->page->word) : 0, k->poll_due ? " polls" : "",
			k->stall_until_ns > world_now(c->w) ? " stopped" : "");
	}
	for (uint32_t i = 0; c->o.is_tracing && i < c->w->n_agent; i++)
		show_agent(&c->w->agent[i]);
}

/* ---- what is checked when a worker's phase changes ------------------------------------------- */

static uint64_t hash_of(const struct world_worker *k)
{
	return wb_hash64(k->memory, k->bytes, 0);
}

static void check_bytes(
	struct chaos *c, const struct world_worker *k, int64_t version, const char *when)
{
	if (!world_holds(c->w, k, version))
		wrong(c, "worker %u of engine %u does not hold version %lld %s", k->index,
			k->engine, (long long)version, when);
}

static void check_same_poll(struct chaos *c, const struct world_worker *k)
{
	uint32_t count = wb_poll_count(k->page->word), en = k->engine;

	/* Who was in doubt may hear how a run ended when a feed of the same number has begun. */
	if (c->engine[en].poll_before.is_set && c->engine[en].poll_before.count == count &&
		c->engine[en].poll_before.transfer == k->transfer)
		return;
	if (!c->engine[en].poll.is_set || c->engine[en].poll.transfer != k->transfer) {
		c->engine[en].poll.is_set = true;
		c->engine[en].poll.transfer = k->transfer;
		c->engine[en].poll.count = count;
	} else if (c->engine[en].poll.count != count) {
		wrong(c, "engine %u changes at different polls in transfer %llu: %u and %u", en,
			(unsigned long long)k->transfer, c->engine[en].poll.count, count);
	}
}

static void on_serve(void *ctx, struct world_worker *k, uint32_t count)
{
	struct chaos *c = ctx;
	char why[256];

	if (!world_steps_serve(&c->steps, k, count, why, sizeof(why)))
		wrong(c, "%s", why);
}

static void on_phase(void *ctx, struct world_worker *k, enum world_phase before)
{
	struct chaos *c = ctx;

	if (k->role != WB_ROLE_ROLLOUT || !c->w->net)
		return;
	switch (k->phase) {
	case WORLD_DOWN: /* with its whole engine, whose counts begin again */
		world_steps_forget(&c->steps, k->engine);
		break;
	case WORLD_BEGUN:
		if (k->was_torn && c->torn[k->index].has_hash &&
			hash_of(k) != c->torn[k->index].hash)
			wrong(c, "something was written to worker %u after it was told Torn",
				k->index);
		if (!k->was_torn)
			check_bytes(c, k, k->version, "when an update begins");
		break;
	case WORLD_TORN:
		if (!k->past.begun) /* else it is in doubt, and hears of it */
			chaos_account_torn(c, k);
		if (before == WORLD_TORN)
			break; /* the end of the repair's deadline */
		c->n_torn++;
		c->torn[k->index].hash = hash_of(k);
		/* A job of its lane that has begun ends; the next update waits for that. */
		c->torn[k->index].has_hash = !world_lane_is_busy(k->lane);
		break;
	case WORLD_AFTER:
		c->torn[k->index].has_hash = false;
		check_bytes(c, k, k->to_version, "when told Committed");
		check_same_poll(c, k);
		break;
	case WORLD_RUN:
		c->n_updates += before == WORLD_AFTER;
		check_bytes(c, k, k->version, "when it runs on");
		break;
	default:
		break;
	}
}

/* ---- what is checked when agents decide -------------------------------------------------------
 */

static int64_t version_of(const struct chaos *c, uint64_t transfer)
{
	for (uint32_t i = c->n_version; i-- > 0;)
		if (c->versions[i % 64].transfer == transfer)
			return c->versions[i % 64].version;
	return -1;
}

/* All engines or none. */
static void check_joint(struct chaos *c, uint64_t transfer)
{
	int yes = -1, no = -1;

	for (int en = 0; c->w->o.all_engines && en < WORLD_OP_ENGINES; en++) {
		yes = c->engine[en].last == transfer ? en : yes;
		no = c->engine[en].aborted == transfer ? en : no;
	}
	if (yes >= 0 && no >= 0)
		wrong(c, "transfer %llu is committed by engine %d and aborted by engine %d",
			(unsigned long long)transfer, yes, no);
}

/* The number of an engine; UINT32_MAX for a worker, an agent and other names. */
static uint32_t engine_named(const char *who)
{
	char *end;
	unsigned long n = who[0] == 'e' ? strtoul(who + 1, &end, 10) : 0;

	return who[0] == 'e' && end != who + 1 && !*end ? (uint32_t)n : UINT32_MAX;
}

/* Who was in doubt may hear later how it ended, and at which poll. */
static void stops_anew(struct chaos *c, uint32_t en)
{
	if (c->engine[en].poll.is_set)
		c->engine[en].poll_before = c->engine[en].poll;
	c->engine[en].poll.is_set = false;
}

/* A number is used again when all who knew it are dead, and the file that it was to be kept in was
 * on a full disk: what became of its first use is no part of this one. */
static void forget(struct chaos *c, uint64_t transfer)
{
	for (uint32_t en = 0; en < WORLD_OP_ENGINES; en++) {
		if (c->engine[en].aborted == transfer)
			c->engine[en].aborted = 0;
		if (c->engine[en].last == transfer)
			c->engine[en].last = 0;
	}
	chaos_account_begin(c, transfer);
}

static void on_trace(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	struct chaos *c = ctx;
	uint32_t en = engine_named(who);

	(void)a;
	if (!strcmp(what, "transfer")) {
		forget(c, transfer);
		c->versions[c->n_version % 64].transfer = transfer;
		c->versions[c->n_version++ % 64].version = (int64_t)value;
	} else if (!strcmp(what, "left early")) {
		c->n_left++;
	} else if (!strcmp(what, "in doubt")) {
		c->n_doubt++;
	} else if (!strcmp(what, "resume")) {
		c->n_resumed++;
		if (en < WORLD_OP_ENGINES)
			stops_anew(c, en);
	} else if (!strcmp(what, "feed")) {
		c->n_feed++;
	} else if (!strcmp(what, "prepare") && en < WORLD_OP_ENGINES) {
		stops_anew(c, en);
		if (value) { /* it may overtake the transfer that it repeats */
			c->engine[en].feed = transfer;
			return;
		}
		/* Unless all who knew it are dead. */
		if (transfer <= c->engine[en].prepared && transfer <= c->op.seen_active)
			wrong(c, "number %llu is prepared twice for %s",
				(unsigned long long)transfer, who);
		c->engine[en].prepared = chaos_later(c->engine[en].prepared, transfer);
	} else if (!strcmp(what, "Aborted") && en < WORLD_OP_ENGINES &&
		   c->engine[en].feed != transfer) {
		c->engine[en].aborted = transfer;
		check_joint(c, transfer);
	} else if (!strcmp(what, "Committed") && en < WORLD_OP_ENGINES) {
		chaos_account_committed(c, transfer);
		c->engine[en].last = transfer;
		c->engine[en].committed = chaos_later(c->engine[en].committed, transfer);
		check_joint(c, transfer);
		for (uint32_t i = 0; i < c->w->n_worker; i++) {
			struct world_worker *k = &c->w->worker[i];

			if (k->role == WB_ROLE_ROLLOUT && k->engine == en &&
				(k->phase == WORLD_BEGUN || k->phase == WORLD_INSTALLED) &&
				k->transfer == transfer)
				check_bytes(c, k, version_of(c, transfer), "at the commit");
		}
	}
}

static bool names_someone(const char *text)
{
	static const char *const words[] = {"agent ", "worker", "engine ", "trainer", "transfer"};

	/* A deadline is named by its field. */
	if (strstr(text, "deadline") && !strstr(text, "spec."))
		return false;
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(words); i++)
		if (strstr(text, words[i]))
			return true;
	return false;
}

static void on_report(void *ctx, struct world_agent *a, const struct wb_transfer_report *r)
{
	struct chaos *c = ctx;

	world_op_report(&c->op, a, r);
	if (r->kind == WB_REPORT_STARTED)
		return;
	for (uint32_t i = 0; i < r->n_engine; i++) {
		uint32_t en = engine_named(r->engine[i]);

		if (r->state[i] == WB_ENGINE_COMMITTED) {
			if (en < WORLD_OP_ENGINES && c->engine[en].committed < r->transfer)
				wrong(c,
					"%s reports %s committed in transfer %llu, its lead never "
					"did",
					a->name, r->engine[i], (unsigned long long)r->transfer);
		} else if (!names_someone(r->sentence[i])) {
			wrong(c, "%s says that %s is %s in transfer %llu and names nobody: '%s'",
				a->name, r->engine[i], wb_word(&wb_engine_state_words, r->state[i]),
				(unsigned long long)r->transfer, r->sentence[i]);
		}
	}
	if (r->kind == WB_REPORT_FINAL && !r->is_feed) {
		bool is_in = r->result == WB_RESULT_SUCCEEDED || r->result == WB_RESULT_PARTLY_TORN;

		c->n_superseded += r->result == WB_RESULT_SUPERSEDED;
		c->n_committed += is_in;
		c->n_aborted += !is_in;
	}
}

/* ---- trainers ----------------------------------------------------------------------------------
 */

static void on_send_state(void *ctx, struct world_worker *k)
{
	struct chaos *c = ctx;

	if (c->o.is_tracing)
		fprintf(stderr, "%14.6f trainer %u: send state %d code %lld %s\n",
			(double)world_now(c->w) / 1e6, k->index, k->send_state,
			(long long)k->send_code, k->why);
	if (k->send_state == WB_APP_SEND_FINAL && k->send_code < 0 && !names_someone(k->why))
		wrong(c, "send_weights of trainer %u fails with %lld and names nobody: '%s'",
			k->index, (long long)k->send_code, k->why);
	chaos_account_told(c, k);
	/* They may change from here on: whoever reads on gets caught. */
	if ((k->send_state == WB_APP_SEND_RELEASED || k->send_state == WB_APP_SEND_FINAL) &&
		!k->held)
		world_fill(k, c->version + SCRIBBLE);
	c->wide_fired[WIDE_HOLDS] += k->send_state == WB_APP_SEND_FINAL && k->held;
}

static void on_let_go(void *ctx, struct world_worker *k)
{
	struct chaos *c = ctx;

	world_fill(k, c->version + SCRIBBLE);
}

static void call(struct chaos *c, struct world_worker *k)
{
	world_fill(k, c->version);
	k->version = c->version;
	world_send_one(k, c->version);
	c->round_ns = world_now(c->w);
}

/* With overlap Supersede: all have been let go, and some call again before the end. */
static bool overtake(struct chaos *c)
{
	if (!c->w->o.supersede || c->is_paused || chaos_below(c, 8))
		return false;
	for (uint32_t i = 0; i < c->w->n_trainer; i++) {
		const struct world_worker *k = &c->w->worker[i];

		if (k->phase != WORLD_RUN || !k->id || !k->send_ns || !k->send_transfer ||
			k->send_state != WB_APP_SEND_RELEASED || k->held)
			return false;
	}
	return true;
}

static void next_version(struct chaos *c)
{
	c->version++;
	c->rounds -= c->rounds > 0;
	c->is_paused = !c->rounds;
}

/* All trainers call send_weights, wait, and go on; who lost his agent calls again. */
static void drive(struct chaos *c)
{
	uint64_t now = world_now(c->w);
	uint32_t n = 0, idle = 0;

	chaos_wide_holds(c);
	for (uint32_t i = 0; i < c->w->n_trainer && c->w->o.lazy_trainers; i++)
		if (c->w->worker[i].phase == WORLD_RUN && !c->w->worker[i].id &&
			!chaos_below(c, 100))
			world_come_back(&c->w->worker[i]);
	if (overtake(c)) {
		next_version(c);
		for (uint32_t i = 0; i < c->w->n_trainer; i++)
			call(c, &c->w->worker[i]);
		return;
	}
	for (uint32_t i = 0; i < c->w->n_trainer; i++) {
		const struct world_worker *k = &c->w->worker[i];

		n += k->phase == WORLD_RUN && k->id && (!k->held || k->send_ns);
		idle += k->phase == WORLD_RUN && k->id && !k->send_ns;
	}
	if (n < c->w->n_trainer || !idle) {
		c->idle_ns = 0;
		return;
	}
	if (!c->idle_ns)
		c->idle_ns = now + (idle == n ? chaos_below(c, 5 * WB_NS_PER_MS) : WB_NS_PER_S);
	if (now < c->idle_ns || (idle == n && c->is_paused))
		return;
	c->idle_ns = 0;
	if (idle == n)
		next_version(c);
	for (uint32_t i = 0; i < c->w->n_trainer; i++)
		if (!c->w->worker[i].send_ns)
			call(c, &c->w->worker[i]);
}

/* ---- deadlines ----------------------------------------------------------------------------------
 */

static uint64_t bound_ns(const struct chaos *c)
{
	/* A coordinator allows its leads 2 steps and the movement (with staging the install, too),
	 * and itself 5 s more, then another step for those it cancels; a trainer waits 5 s longer
	 * than that for the coordinator's last word: 3 steps + movement + 10 s.  Readers of what is
	 * to change get 5 s.  Steps are 3 s at most here.  A peer that says nothing is given up
	 * after 10 s, which is less. */
	if (c->is_patient)
		return PROMPT_NS;
	return 2 * c->w->o.step_deadline_ns +
	       (c->w->o.rollout_staged ? 2 : 1) * c->w->o.transfer_deadline_ns + 20 * WB_NS_PER_S;
}

static void check_worker_time(struct chaos *c, const struct world_worker *k, uint64_t now)
{
	uint64_t since = chaos_later(k->phase_ns, c->fault_ns);

	switch (k->phase) {
	case WORLD_PARKED:
		/* One that is to be fed waits for that, or for the next transfer; how long is the
		 * client's business. */
		if (c->op.is_behind)
			return;
		break;
	case WORLD_BEGUN: /* so does one whose first feed came to nothing */
		if (c->op.is_behind && k->version < 0)
			return;
		break;
	case WORLD_BEFORE:
	case WORLD_INSTALL:
	case WORLD_INSTALLED:
	case WORLD_AFTER:
		break;
	case WORLD_TORN: /* the deadline of the repair is the client's when the agent is new */
		if (k->is_torn_final || k->parked_id != k->id)
			return;
		break;
	default:
		return;
	}
	if (now > since + bound_ns(c))
		wrong(c, "worker %u (engine %u) is %s for %.1f s: no wait may be so long", k->index,
			k->engine, world_phase_name(k->phase), (double)(now - since) / 1e9);
}

static void check_times(struct chaos *c)
{
	uint64_t now = world_now(c->w), since;

	if (c->n_restart)
		c->fault_ns = chaos_later(c->fault_ns, now);
	for (uint32_t i = 0; i < c->w->n_worker; i++) {
		const struct world_worker *k = &c->w->worker[i];

		if (k->role == WB_ROLE_ROLLOUT) {
			check_worker_time(c, k, now);
			continue;
		}
		since = chaos_later(chaos_later(k->send_ns, c->round_ns),
			chaos_later(c->fault_ns, c->op.changed_ns));
		if (k->send_ns && now > since + bound_ns(c))
			wrong(c, "trainer %u waits in send_weights for %.1f s", k->index,
				(double)(now - since) / 1e9);
	}
}

/* ---- the run
 * --------------------------------------------------------------------------------------- */

/* Pages can be asked for at any time: of one worker after the other.  Nothing of it is more than
 * the plan has for it, whoever was lost. */
static void read_page(struct chaos *c)
{
	const struct world_worker *k = &c->w->worker[c->n_look++ % c->w->n_worker];
	const struct world_agent *a = &c->w->agent[k->agent];
	unsigned long long in = 0, planned = 0;
	struct wb_buf b;
	const char *at;

	if (!k->id || !a->alive)
		return;
	wb_buf_init(&b, 1u << 20);
	wb_transfer_progress_json(a->core, k->id, &b);
	at = strstr(wb_buf_cstr(&b), "\"inBytes\":");
	if (at && sscanf(at, "\"inBytes\":%llu,\"inPlannedBytes\":%llu,", &in, &planned) == 2 &&
		in > planned)
		wrong(c, "a page shows more than there is: %s", wb_buf_cstr(&b));
	if (strcmp(wb_buf_cstr(&b), "null") != 0 && (!at || b.data[b.len - 1] != '}'))
		wrong(c, "a page breaks off: %s", wb_buf_cstr(&b));
	wb_buf_finish(&b);
}

static void on_look(void *ctx)
{
	struct chaos *c = ctx;

	if (!c->w->net || c->digest)
		return; /* the run is over */
	drive(c);
	check_times(c);
	read_page(c);
	wb_sim_timer(c->w->net, world_now(c->w) + LOOK_NS, on_look, c);
}

/* Large worlds make more of them. */
static uint64_t events_max(const struct chaos *c)
{
	return EVENTS_MAX * (1ull + c->w->n_worker / 64);
}

/* One event and what must hold after it; false at the end. */
static bool step(struct chaos *c)
{
	if (c->wrong[0] || !wb_sim_step(c->w->net))
		return false;
	if (++c->events > events_max(c))
		wrong(c, "more than %llu events: something goes round in circles",
			(unsigned long long)events_max(c));
	if (!c->is_over && chaos_below(c, 1000000) < c->fault_ppm)
		chaos_inject(c);
	if (!c->is_over && c->wide && wb_rng_below(&c->wide_rng, 1000000) < c->fault_ppm)
		chaos_wide_inject(c);
	if (c->w->wrong[0])
		wrong(c, "%s", c->w->wrong);
	if (wb_sim_counts(c->w->net)->outside)
		wrong(c, "a source writes from memory that is none, or none any more");
	if (!chaos_below(c, 64)) {
		struct world_worker *k = &c->w->worker[chaos_below(c, c->w->n_worker)];

		if (k->role == WB_ROLE_ROLLOUT && k->phase == WORLD_RUN)
			check_bytes(c, k, k->version, "while it runs");
	}
	return !c->wrong[0];
}

static void shape(struct chaos *c, struct world_opts *o)
{
	static const uint64_t polls[] = {300000, 2000000, 20000000};
	static const uint64_t hooks[] = {0, 100000, 20000000};
	/* Bits that go wrong inside agents, not on the wire; in versions before the last. */
	static const char *const insides[] = {"flip=slot:0.05:version=1", "flip=slot:0.3:version=2",
		"flip=relay:0.1:version=1", "flip=relay:0.5:version=2"};
	uint64_t inside = wb_mix64(c->o.seed ^ 0xf11b);
	uint64_t mode = c->o.mode < 0 ? wb_mix64(c->o.seed) % CHAOS_MODES
				      : (uint64_t)c->o.mode % CHAOS_MODES;

	c->is_patient =
		c->o.mode < 0 ? wb_mix64(c->o.seed ^ 0x9a71) % 3 == 0 : c->o.mode >= CHAOS_MODES;
	*o = (struct world_opts){
		.seed = c->o.seed,
		.trainer_agents = 1 + (uint32_t)chaos_below(c, 3),
		.trainers_per_agent = 1 + (uint32_t)chaos_below(c, 2),
		.engines = 1 + (uint32_t)chaos_below(c, 4),
		.agents_per_engine = 1 + (uint32_t)chaos_below(c, 2),
		.workers_per_agent = 1 + (uint32_t)chaos_below(c, 2),
		.poll_ns = polls[chaos_below(c, 3)],
		.hook_ns = hooks[chaos_below(c, 3)],
		.step_deadline_ns = WB_NS_PER_S * (1 + chaos_below(c, 3)),
		.transfer_deadline_ns = WB_NS_PER_S * (1 + chaos_below(c, 12)),
		.drift = 1 + (uint32_t)chaos_below(c, 10),
		.peers_reconnect = true,
	};
	if (c->is_patient) {
		o->step_deadline_ns = 600 * WB_NS_PER_S;
		o->transfer_deadline_ns = 120 * WB_NS_PER_S;
		o->lazy_trainers = wb_mix64(c->o.seed ^ 0x1a2e) % 2;
	}
	o->trainer_staged = mode % 2;
	o->rollout_staged = mode >= 2;
	o->all_engines = mode >= 4;
	o->supersede = o->rollout_staged && wb_mix64(c->o.seed ^ 0x5e7d) % 2;
	/* Rows are cut by the trainers, columns (64 and more) by an engine's workers. */
	if (o->trainer_agents == 3)
		o->trainer_agents = o->trainers_per_agent == 1 ? 4 : 2;
	o->scale = 16u << chaos_below(c, 3);
	if (!chaos_below(c, 4))
		o->arena_bytes = 4 * 2048;
	if (c->o.hook_ns)
		o->hook_ns = c->o.hook_ns;
	o->one_pod = c->o.one_pod && o->agents_per_engine == 1;
	if (inside % 8 == 0 && !c->o.is_quiet)
		o->fault = insides[inside / 8 % WB_ARRAY_SIZE(insides)];
}

static uint32_t n_waiting(const struct chaos *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->w->n_trainer; i++)
		n += c->w->worker[i].send_ns != 0;
	return n;
}

static bool settled(const struct chaos *c)
{
	for (uint32_t i = 0; i < c->w->n_worker; i++) {
		const struct world_worker *k = &c->w->worker[i];

		if (k->phase == WORLD_DOWN || k->phase == WORLD_CONNECTING || !k->id)
			return false;
		/* One whose first feed came to nothing waits there for the next. */
		if (k->phase >= WORLD_BEFORE && k->phase <= WORLD_AFTER &&
			!(k->phase == WORLD_BEGUN && k->version < 0))
			return false;
	}
	return !c->n_restart && !n_waiting(c) && c->is_paused && world_now(c->w) >= c->fault_ns &&
	       world_op_is_quiet(&c->op);
}

void chaos_transfer(struct chaos *c)
{
	uint32_t before;
	uint64_t end;

	c->rounds = 1;
	c->is_paused = false;
	before = c->n_committed;
	end = world_now(c->w) + bound_ns(c);
	while (!c->is_paused || n_waiting(c))
		if (!step(c))
			return;
		else if (world_now(c->w) > end) {
			wrong(c, "the transfer after the faults does not end");
			return;
		}
	/* One whose trainers died in it may end meanwhile, too. */
	if (c->n_committed <= before || strcmp(c->w->last_result, "Succeeded"))
		wrong(c, "the transfer after the faults ends as %s: %s", c->w->last_result,
			c->w->last_culprit);
	end = world_now(c->w) + WB_NS_PER_S;
	while (world_now(c->w) < end)
		if (!step(c))
			return;
	for (uint32_t i = c->w->n_trainer; i < c->w->n_worker; i++) {
		const struct world_worker *k = &c->w->worker[i];

		if (k->version != c->version || !world_holds(c->w, k, c->version))
			wrong(c,
				"after the faults worker %u (engine %u, %s) is at version %lld, "
				"not %lld: %s",
				i, k->engine, world_phase_name(k->phase), (long long)k->version,
				(long long)c->version, c->w->last_culprit);
	}
}

/* Faults are over: soon all is planned again, and the next transfer commits everywhere. */
static void finale(struct chaos *c)
{
	uint64_t end, since = 0;

	end = chaos_later(world_now(c->w), c->fault_ns) + SETTLE_NS;
	/* For a while: an operator needs a moment to see who is back. */
	while (!since || world_now(c->w) < since + REST_NS) {
		if (!step(c))
			return;
		if (c->w->n_worker > 100 && c->events % 64) /* a look at all of them */
			continue;
		if (!settled(c))
			since = 0;
		else if (!since)
			since = world_now(c->w);
		if (!since && world_now(c->w) > end) {
			wrong(c,
				"does not come to rest after the faults: stage %d, %u trainers "
				"wait, %u restarts, quiet %d",
				(int)c->op.stage, n_waiting(c), c->n_restart,
				world_op_is_quiet(&c->op));
			return;
		}
	}
	/* After few rounds it would be one of those in which agents damage what they hold. */
	if (c->w->o.fault && c->version < INSIDE_VERSIONS)
		c->version = INSIDE_VERSIONS;
	chaos_late_frames(c);
	chaos_transfer(c);
	if (!c->wrong[0] && !c->o.is_quiet && c->w->n_agent > 1)
		chaos_half_activated(c);
}

bool chaos_step(struct chaos *c)
{
	return step(c);
}

void chaos_wrong(struct chaos *c, const char *why)
{
	wrong(c, "%s", why);
}

bool chaos_run(struct chaos *c, const struct chaos_opts *o)
{
	struct world_opts wo;
	uint64_t events;

	memset(c, 0, sizeof(*c));
	c->o = *o;
	c->rng.state = wb_mix64(o->seed ^ 0x5eed);
	shape(c, &wo);
	if (o->wide)
		chaos_wide_shape(c, &wo);
	c->w = calloc(1, sizeof(*c->w));
	world_init(c->w, &wo);
	c->w->is_tracing = c->w->is_tracing || o->is_tracing;
	c->w->watch = (struct world_watch){c, on_phase, on_serve, on_trace, on_report,
		on_send_state, on_let_go, chaos_late_message};
	world_op_start(&c->op, c->w);
	c->rounds = 2 + (uint32_t)chaos_below(c, 6);
	c->fault_ppm = 200u << chaos_below(c, 5);
	chaos_wide_begin(c);
	if (o->is_tracing)
		fprintf(stderr, "world: %s\n", c->says);
	events = 60000ull * c->rounds * (1 + c->w->n_worker / 64);
	chaos_choose_faults(c);
	c->version = 0;
	c->is_over = o->is_quiet;
	wb_sim_timer(c->w->net, world_now(c->w) + LOOK_NS, on_look, c);
	while (!(c->is_paused && !n_waiting(c)) && c->events < events && step(c))
		;
	c->is_over = true;
	c->rounds = 0;
	c->is_paused = true;
	wb_sim_faults_clear(c->w->net);
	chaos_wide_end(c);
	for (uint32_t i = 0; i < c->w->n_worker; i++) {
		c->w->worker[i].hook_raises = false;
		/* Hooks that take longer than the deadline allows end updates, not engines: once
		 * they are short, all is well again. */
		if (c->w->o.hook_ns * 2 > c->w->o.step_deadline_ns)
			c->w->worker[i].hook_ns = 0;
	}
	if (!c->wrong[0])
		finale(c);
	if (!c->wrong[0] && world_violations(c->w))
		wrong(c, "%llu messages were not their sender's to say",
			(unsigned long long)world_violations(c->w));
	c->digest = wb_mix64(c->w->digest ^ c->events) | 1;
	c->op.alive = false;
	c->w->watch = (struct world_watch){0};
	chaos_wide_count(c);
	world_finish(c->w); /* timers of late frames fire in it, and send nothing any more */
	chaos_late_free(c);
	free(c->w);
	c->w = NULL;
	return !c->wrong[0];
}
