/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/oplink.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/gate.h"
#include "daemon/oplink_internal.h"
#include "net/loop.h"
#include "proto/beat.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "oplink"
#define BACKOFF_MIN_NS (100 * WB_NS_PER_MS)
#define BACKOFF_MAX_NS WB_REDIAL_PAUSE_NS
#define BACKOFF_REFUSED_NS (30 * WB_NS_PER_S)
#define HELLO_NS (10 * WB_NS_PER_S)

static void dial(struct wb__oplink *l);

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static const struct wb_session_io io = {
	wb_chan_put, wb_chan_stop, wb_msg_encode, wb_msg_decode, wb_chan_put_lent};

void wb__oplink_arm(struct wb__oplink *l)
{
	uint64_t due = wb_session_due(&l->session), now = now_ns();

	if (due != UINT64_MAX)
		wb_timer_start(l->timer, due > now ? due - now : 1, 0);
}

/* ---- connect --------------------------------------------------------------------------------- */

static void schedule(struct wb__oplink *l)
{
	uint64_t half = l->backoff_ns / 2;

	wb_timer_start(l->timer, half + wb_rng_below(&l->rng, half + 1), 0);
	l->backoff_ns = WB_MIN(l->backoff_ns * 2, BACKOFF_MAX_NS);
}

/* Trying the same again cannot succeed.  Before the first welcome the cause is a mistake in how
 * this agent was started; later the operator has changed, and may change back.  In a pod all that
 * is wrong is put right around the agent: certificates, tokens and labels are renewed, operators
 * upgraded. */
static void give_up(struct wb__oplink *l, int code, const char *why)
{
	struct wb__agent *a = l->a;

	WB_LOG_ERR(
		MOD, "refused by the operator", WB_S("operator", l->address), WB_S("reason", why));
	snprintf(l->trouble, sizeof(l->trouble), "%.900s", why);
	wb__apps_give_up(a->apps, l->index, code, why);
	if (!l->n_up && !l->served->token_file[0]) {
		wb__agent_quit(a, 1);
		return;
	}
	l->backoff_ns = BACKOFF_REFUSED_NS;
	schedule(l);
}

static void went_down(struct wb__oplink *l, const struct wb_err *why, bool was_up, bool is_refused)
{
	l->chan = NULL;
	wb_keep_lost(&l->reports);
	wb__plans_reset(l->plans);
	wb__uploads_reset(l);
	wb__gate_lost(l->a->gate, l);
	if (l->is_closing)
		return;
	if (is_refused || (why->code == -EACCES && !l->n_up && !l->served->token_file[0])) {
		give_up(l, why->code, why->msg);
		return;
	}
	if (was_up || strcmp(l->trouble, why->msg))
		WB_LOG_WRN(MOD, "operator not reached", WB_S("operator", l->address),
			WB_S("reason", why->msg));
	snprintf(l->trouble, sizeof(l->trouble), "%.900s", why->msg);
	wb__apps_status(l->a->apps, l->index, "agent %s waits for the operator at %s: %.600s",
		l->a->o.name, l->address, why->msg);
	/* A standby has answered, and knows who leads: that is no failure, unless another standby
	 * had sent us there. */
	if (l->leader_host[0] && !l->is_sent_on) {
		wb_timer_start(l->timer, 1 + wb_rng_below(&l->rng, BACKOFF_MIN_NS), 0);
		return;
	}
	if (was_up)
		l->backoff_ns = BACKOFF_MIN_NS;
	schedule(l);
}

/* Best first, into @out; the text is in @names. */
static uint32_t name_transports(
	const struct wb__agent *a, char *names, size_t cap, const char *out[WB_XPORT_SET_MAX])
{
	char *save = NULL;
	uint32_t n = 0;

	snprintf(names, cap, "%s", wb_xport_name(a->xport));
	for (char *s = strtok_r(names, ",", &save); s && n < WB_XPORT_SET_MAX;
		s = strtok_r(NULL, ",", &save))
		out[n++] = s;
	return n;
}

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct wb__oplink *l = cookie;
	struct wb__agent *a = l->a;
	const char *object = l->served->object, *transport[WB_XPORT_SET_MAX];
	char names[64];
	uint64_t rates[WB_XPORT_RAILS_MAX], nics[WB_XPORT_RAILS_MAX];
	struct wb_msg_hello m = {
		.version_min = WBP_VERSION_MIN,
		.version_max = WBP_VERSION_MAX,
		.build = WB_VERSION,
		.agent = a->o.name,
		.objects = &object,
		.n_objects = object[0] ? 1 : 0,
		.node = a->o.node,
		.host = a->o.advertise,
		.hosts = a->hosts,
		.n_hosts = a->addrs.n > 1 ? a->addrs.n : 0,
		.port = a->port,
		.bulk = a->ways[a->n_ways - 1],
		.ways = a->ways,
		.n_ways = a->n_ways - 1,
		.memory = a->memory,
		.memory_bytes_per_s = a->memory_bytes_per_s,
		.transports = transport,
		.n_transports = name_transports(a, names, sizeof(names), transport),
		.rails = rates,
		.n_rails = a->rails.n,
		.nics = nics,
		.n_nics = a->rails.n,
		.memory_limit_bytes = l->memory_limit_bytes,
		.last_transfer = wb_transfer_highest(a->core, l->object[0] ? l->object : NULL),
		.instance = a->instance,
		.term = l->term,
		.term_operator = l->term_operator,
	};
	char *token, binding[WB_CHAN_BINDING_TEXT] = "";
	bool is_rated = true;

	for (uint32_t i = 0; i < a->rails.n; i++) {
		rates[i] = wb__rail_rate(&a->rails.rail[i]);
		nics[i] = wb__rail_nic(&a->rails.rail[i]);
		is_rated &= rates[i] != 0;
		m.rail_bytes_per_s += rates[i];
	}
	m.rail_bytes_per_s = is_rated ? m.rail_bytes_per_s : 0;

	if (l->session.state != WB_SESSION_DIALLING)
		return;
	token = wb__oplink_token(l);
	m.token = token;
	if (token && *token)
		(void)wb_chan_binding(ch, binding);
	m.binding = binding;
	(void)wb_session_open(&l->session, &m, now_ns());
	wb__oplink_arm(l);
	wb__oplink_token_free(token);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct wb__oplink *l = cookie;

	assert(ch == l->chan);
	why = wb_session_closed(&l->session, why);
	went_down(l, why, l->session.was_up, l->session.is_refused);
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct wb__oplink *l = cookie;
	struct wb_err err = {0};
	struct wb_frame f;
	union wb_msg m;
	int rc;

	assert(ch == l->chan);
	rc = wb_session_take(&l->session, frame, bytes, now_ns(), &f, &m, &err);
	if (rc < 0)
		wb_session_end(&l->session, rc, "%s", err.msg);
	if (rc <= 0)
		return;
	wb__oplink_act(l, f.type, &m);
	wb_msg_free(f.type, &m);
}

static void dial(struct wb__oplink *l)
{
	struct wb_chan_limits limits = {.framer = wb_frame_length, .dial_ns = WB_DIAL_NS};
	struct wb_chan_cb cb = {
		.cookie = l, .on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
	struct wb_err err = {0};
	int rc;

	if (wb__oplink_tls(l, &err) < 0) {
		went_down(l, &err, false, false);
		return;
	}
	/* Only one try there: if that leader is gone, the next one is found through the operator's
	 * address. */
	l->is_sent_on = l->leader_host[0];
	rc = l->leader_host[0] && l->leader_port
		     ? wb_tls_connect(l->a->loop, l->tls, l->leader_host, l->leader_port, &limits,
			       &cb, &l->chan)
		     : wb_tls_connect(l->a->loop, l->tls, l->a->o.operator.host,
			       l->a->o.operator.port, &limits, &cb, &l->chan);
	l->leader_host[0] = '\0';
	if (rc < 0) {
		schedule(l);
		return;
	}
	wb_session_dial(&l->session, l->chan, now_ns());
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

static void on_timer(void *cookie)
{
	struct wb__oplink *l = cookie;
	struct wb_err err = {0};

	assert(!l->chan == (l->session.state == WB_SESSION_DOWN));
	if (l->session.state == WB_SESSION_DOWN) {
		if (!l->is_closing)
			dial(l);
		return;
	}
	if (wb_session_tick(&l->session, now_ns(), &err) < 0)
		wb_session_end(&l->session, err.code, "%s", err.msg);
	wb__oplink_look_at_rails(l);
	wb__oplink_arm(l);
}

/* Offset as NTP finds it; the exchange with the smallest error of the last few counts. */
void wb__oplink_on_heartbeat(struct wb__oplink *l, const struct wb_msg_heartbeat *m)
{
	uint64_t now = now_ns();
	struct clock_sample *s, *best = &l->sample[0];
	int64_t there, back;

	if (!m->echo_ns)
		return;
	wb_keep_confirm(&l->reports, m->echo_ns - 1);
	there = (int64_t)(m->echo_received_ns - m->echo_ns);
	back = (int64_t)(m->sent_ns - now);
	s = &l->sample[l->n_sample++ % WB_ARRAY_SIZE(l->sample)];
	s->offset_ns = -(there / 2 + back / 2);
	s->error_ns = (uint64_t)((there - back) / 2) + 1;
	for (size_t i = 1; i < WB_MIN(l->n_sample, WB_ARRAY_SIZE(l->sample)); i++)
		if (l->sample[i].error_ns < best->error_ns)
			best = &l->sample[i];
	l->clock = *best;
	l->session.clock_offset_ns = best->offset_ns;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static void on_installed(void *cookie, const struct wb_p_epoch *epoch, struct wb_digest digest,
	const struct wb_err *err)
{
	struct wb__oplink *l = cookie;
	struct wb_msg_ready ready = {.object = l->object, .epoch = *epoch, .digest = digest};
	struct wb_msg_refuse refuse = {.object = l->object, .epoch = *epoch};

	if (!err) {
		wb_fault_phase(l->a->fault, WB_FAULT_READY);
		(void)wb_session_send(&l->session, WBP_READY, &ready);
		return;
	}
	refuse.code = err->code ? err->code : -EINVAL;
	refuse.sentence = err->msg;
	(void)wb_session_send(&l->session, WBP_REFUSE, &refuse);
}

int wb__oplink_start(
	struct wb__agent *a, uint32_t index, struct wb__oplink **out, struct wb_err *err)
{
	struct wb__oplink *l = wb_zalloc(1, sizeof(*l));
	struct wb__plans_cb cb = {.cookie = l, .on_installed = on_installed};
	int rc;

	if (!l)
		return wb_err_set(err, -ENOMEM, "no memory for the operator's connection");
	l->a = a;
	l->index = index;
	l->served = &a->o.served[index];
	*out = l;
	l->rng.state = a->instance + index;
	l->backoff_ns = BACKOFF_MIN_NS;
	l->session = (struct wb_session){.io = &io,
		.side = WB_SIDE_AGENT,
		.bounds.hello_ns = HELLO_NS,
		.counts = &a->control[WB__CONTROL_OPERATOR]};
	l->memory_limit_bytes = wb__memory_limit();
	snprintf(l->address, sizeof(l->address), "%s:%u", a->o.operator.host, a->o.operator.port);
	/* A key must be there already; what a pod has instead may come later than the agent. */
	rc = l->served->psk_file[0] ? wb__oplink_tls(l, err) : 0;
	if (rc < 0)
		return rc;
	rc = wb_timer_create(a->loop, on_timer, l, &l->timer);
	if (rc == 0)
		rc = wb_timer_create(a->loop, wb__oplink_news, l, &l->news_timer);
	if (rc == 0)
		rc = wb__plans_create(a, index, &cb, &l->plans);
	if (rc < 0)
		return wb_err_set(err, rc, "no memory for the operator's connection");
	wb__apps_status(
		a->apps, index, "agent %s connects to the operator at %s", a->o.name, l->address);
	dial(l);
	return 0;
}

void wb__oplink_close(struct wb__oplink *l)
{
	l->is_closing = true;
	if (l->timer)
		wb_timer_stop(l->timer);
	if (l->news_timer)
		wb_timer_stop(l->news_timer);
	wb_session_end(&l->session, 0, "this agent stops");
}

bool wb__oplink_is_closed(const struct wb__oplink *l)
{
	return l->session.state == WB_SESSION_DOWN;
}

void wb__oplink_destroy(struct wb__oplink *l)
{
	if (!l)
		return;
	assert(wb__oplink_is_closed(l) && !l->chan);
	wb__plans_destroy(l->plans);
	wb__uploads_reset(l);
	wb_keep_drop(&l->reports);
	if (l->timer)
		wb_timer_destroy(l->timer);
	if (l->news_timer)
		wb_timer_destroy(l->news_timer);
	wb_tls_put(l->tls);
	wb_free(l);
}

void wb__oplink_state(const struct wb__oplink *l, struct wb__oplink_state *out)
{
	const struct wb_roster *r = wb_transfer_running(l->a->core, &l->id);

	*out = (struct wb__oplink_state){
		.is_up = wb_session_is_up(&l->session),
		.object = l->object,
		.term = r ? r->id.term : 0,
		.number = r ? r->id.number : 0,
		.clock_offset_ns = l->clock.offset_ns,
		.clock_error_ns = l->clock.error_ns,
		.reconnects = l->n_up ? l->n_up - 1 : 0,
		.trouble = wb_session_is_up(&l->session) ? "" : l->trouble,
	};
}

void wb__oplink_all(const struct wb__agent *a, struct wb__oplink_state *out)
{
	wb__oplink_state(a->oplink[0], out);
	for (uint32_t i = 1; i < a->n_oplink; i++) {
		struct wb__oplink_state one;

		wb__oplink_state(a->oplink[i], &one);
		out->is_up &= one.is_up;
		out->reconnects += one.reconnects;
		if (!one.term)
			out->term = out->number = 0;
		if (!out->trouble[0])
			out->trouble = one.trouble;
		if (one.clock_error_ns > out->clock_error_ns) {
			out->clock_error_ns = one.clock_error_ns;
			out->clock_offset_ns = one.clock_offset_ns;
		}
	}
}
