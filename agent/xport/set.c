/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set: several transports as one.
 *
 * Each member is a transport of its own and keeps its own book.  The upper bits of a connection's
 * number hold its member's place in the set (wb_xport_opts.tag).  So a request about a connection
 * goes straight to its member, and events pass through as they are.  The set itself keeps regions,
 * which have a number in each member; epochs, with the members that may carry them; and, for a peer
 * that can be reached in several ways, how often each way has failed (struct wb__trial).
 */
#include "xport/set.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOD "xport"
/* Another way is taken after this many failures.  A connection that ends before a chunk has come
 * mostly counts for all of them (weight()). */
#define FAILS_MAX 2

static struct wb__set *set_of(struct wb_xport *x)
{
	return wb_container_of(x, struct wb__set, base);
}

static const char *name_of(const struct wb__set *s, uint32_t i)
{
	return s->m[i].x->ops->name;
}

static bool has_cap(const struct wb__set *s, uint32_t i, uint32_t cap)
{
	return s->m[i].x->ops->caps & cap;
}

/* ---- epochs -----------------------------------------------------------------------------------
 */

static struct wb__set_epoch *find_epoch(struct wb__set *s, const struct wb_epoch_id *id)
{
	for (uint32_t i = 0; i < s->n_epoch; i++)
		if (wb_epoch_id_eq(&s->epoch[i].id, id))
			return &s->epoch[i];
	return NULL;
}

static bool is_off(const struct wb__member *m, uint64_t object)
{
	for (uint32_t i = 0; i < m->n_off; i++)
		if (m->off[i] == object)
			return true;
	return false;
}

static void forget_trials(struct wb__set *s, const struct wb_epoch_id *id)
{
	size_t k = 0;

	for (size_t i = 0; i < s->n_trial; i++)
		if (!wb_epoch_id_eq(&s->trial[i].epoch, id))
			s->trial[k++] = s->trial[i];
	s->n_trial = k;
}

/* Add the members with this name, or all, to @out.  Members that may not carry the epoch are left
 * out; if encryption is the reason, this is logged. */
static int add_members(struct wb__set *s, const struct wb_xport_epoch *e, const char *name,
	struct wb__set_epoch *out, struct wb_err *err)
{
	for (uint32_t i = 0; i < s->n; i++) {
		int rc;

		if ((name && strcmp(name, name_of(s, i))) || is_off(&s->m[i], e->id.object.hash))
			continue;
		if (e->is_encrypted && has_cap(s, i, WB_XPORT_CAP_CLEAR)) {
			WB_LOG_INFO(MOD, "transport not used", WB_S("transport", name_of(s, i)),
				WB_S("reason", "encryption is TLS for this object, and it moves "
					       "bytes in the clear"));
			continue;
		}
		rc = wb_xport_epoch_add(s->m[i].x, e, err);
		if (rc < 0)
			return rc;
		assert(out->n < s->n);
		out->order[out->n++] = (uint8_t)i;
	}
	return 0;
}

static int add_allowed(struct wb__set *s, const struct wb_xport_epoch *e, struct wb__set_epoch *out,
	struct wb_err *err)
{
	char word[32];
	int rc = e->allowed ? 0 : add_members(s, e, NULL, out, err);

	for (uint32_t i = 0; rc == 0 && e->allowed && out->n < s->n &&
			     wb__way_word(e->allowed, i, word, sizeof(word));
		i++)
		rc = add_members(s, e, word, out, err);
	if (rc == 0 && !out->n)
		return wb_err_set(err, -ENOTSUP,
			"of the transports of this agent (%s) none may carry the object: "
			"spec.transport allows %s%s",
			s->name, e->allowed ? e->allowed : "all",
			e->is_encrypted ? ", encrypted" : "");
	return rc;
}

static void take_back(struct wb__set *s, const struct wb__set_epoch *e)
{
	for (uint32_t i = 0; i < e->n; i++)
		(void)wb_xport_epoch_remove(s->m[e->order[i]].x, &e->id);
}

static int set_epoch_add(struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err)
{
	struct wb__set *s = set_of(x);
	struct wb__set_epoch fresh = {.id = e->id}, *known = find_epoch(s, &e->id);
	int rc;

	if (known) /* the member compares the key */
		return wb_xport_epoch_add(s->m[known->order[0]].x, e, err);
	if (s->n_epoch == WB__EPOCHS_MAX)
		return wb_err_set(err, -ENOSPC, "more than %d epochs", WB__EPOCHS_MAX);
	rc = add_allowed(s, e, &fresh, err);
	if (rc < 0) {
		take_back(s, &fresh);
		return rc;
	}
	assert(fresh.n);
	s->epoch[s->n_epoch++] = fresh;
	return 0;
}

static int set_epoch_remove(struct wb_xport *x, const struct wb_epoch_id *id)
{
	struct wb__set *s = set_of(x);
	struct wb__set_epoch *e = find_epoch(s, id);
	int n = 0;

	if (!e)
		return -ENOENT;
	for (uint32_t i = 0; i < e->n; i++) {
		int rc = wb_xport_epoch_remove(s->m[e->order[i]].x, id);

		n += rc > 0 ? rc : 0;
	}
	forget_trials(s, id);
	*e = s->epoch[--s->n_epoch];
	return n;
}

/* ---- regions ----------------------------------------------------------------------------------
 */

/* Member @i cannot have memory of this object and would refuse writes from there, so it carries
 * nothing of the object any more. */
static void turn_off(struct wb__set *s, uint32_t i, uint64_t object, const char *why)
{
	struct wb__member *m = &s->m[i];

	if (is_off(m, object))
		return;
	WB_LOG_WRN(
		MOD, "transport not used", WB_S("transport", name_of(s, i)), WB_S("reason", why));
	m->off[m->n_off++ % WB__SET_OBJECTS_MAX] = object;
	m->n_off = WB_MIN(m->n_off, WB__SET_OBJECTS_MAX);
	for (uint32_t k = 0; k < s->n_epoch; k++) {
		struct wb__set_epoch *e = &s->epoch[k];
		uint32_t n = 0;

		for (uint32_t j = 0; e->id.object.hash == object && j < e->n; j++)
			if (e->order[j] != i)
				e->order[n++] = e->order[j];
		if (!n || n == e->n)
			continue;
		e->n = n;
		(void)wb_xport_epoch_remove(m->x, &e->id);
	}
}

/* Members that cannot have a region, and why.  They are turned off once all others have it: a
 * region that is not added at all turns nobody off. */
struct without {
	uint32_t members; /* a bit each */
	struct wb_err why[WB_XPORT_SET_MAX];
};

static void turn_off_all(struct wb__set *s, const struct without *w, uint64_t object)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (w->members >> i & 1)
			turn_off(s, i, object, w->why[i].msg);
}

/* Is there another member that carries this object, and also reaches other hosts? */
static bool can_do_without(
	const struct wb__set *s, uint32_t i, const struct without *w, uint64_t object)
{
	for (uint32_t k = 0; k < s->n; k++)
		if (k != i && !(w->members >> k & 1) && !is_off(&s->m[k], object) &&
			!has_cap(s, k, WB_XPORT_CAP_LOCAL))
			return true;
	return false;
}

/* Add the region to member @i.  If it cannot have it, and the set can do without it, it is noted in
 * @w. */
static int add_to(struct wb__set *s, uint32_t i, struct wb__set_region *g, struct without *w,
	struct wb_err *err)
{
	struct wb_err why = {0};
	int rc;

	g->id[i] = WB__REGION_NONE;
	/* Members that would touch such memory with the CPU have to know which memory is a GPU's,
	 * too, so that they refuse it. */
	if ((!has_cap(s, i, WB_XPORT_CAP_REGIONS) && !g->r.gpu.is_there) ||
		is_off(&s->m[i], g->r.object))
		return 0;
	rc = wb_xport_region_add(s->m[i].x, &g->r, &g->id[i], &why);
	if (rc == 0)
		return 0;
	g->id[i] = WB__REGION_NONE;
	if (!can_do_without(s, i, w, g->r.object) || rc == -EINVAL)
		return wb_err_wrap(err, rc, "%s", why.msg);
	w->members |= 1u << i;
	w->why[i] = why;
	return 0;
}

static int set_region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	struct wb__set *s = set_of(x);
	struct wb__set_region fresh = {.is_used = true, .r = *r};
	struct without w = {0};
	size_t at = 0;
	int rc = 0;

	while (at < s->n_region && s->region[at].is_used)
		at++;
	if (at == s->n_region &&
		wb_grow(&s->region, &s->cap_region, at + 1, WB__REGIONS_MAX, sizeof(*s->region)))
		return wb_err_set(err, -ENOSPC, "more than %d regions", WB__REGIONS_MAX);
	for (uint32_t i = 0; i < s->n; i++)
		fresh.id[i] = WB__REGION_NONE;
	for (uint32_t i = 0; i < s->n && rc == 0; i++)
		rc = add_to(s, i, &fresh, &w, err);
	if (rc < 0) {
		for (uint32_t i = 0; i < s->n; i++)
			if (fresh.id[i] != WB__REGION_NONE)
				(void)wb_xport_region_remove(s->m[i].x, fresh.id[i]);
		return rc;
	}
	turn_off_all(s, &w, r->object);
	/* The descriptor is borrowed for this call, and no later call needs it.  Only
	 * set_region_remove() adds a region again, to members that come before one that still uses
	 * it; a member that has used the descriptor is never among them. */
	fresh.r.gpu.dmabuf_fd = -1;
	s->region[at] = fresh;
	s->n_region = WB_MAX(s->n_region, at + 1);
	*id = (uint32_t)at;
	return 0;
}

/* Remove the region from all members, or from none while one of them uses it. */
static int set_region_remove(struct wb_xport *x, uint32_t id)
{
	struct wb__set *s = set_of(x);
	struct wb__set_region *g =
		id < s->n_region && s->region[id].is_used ? &s->region[id] : NULL;
	struct without w = {0};
	uint32_t i;
	int rc = 0;

	if (!g)
		return -ENOENT;
	for (i = 0; i < s->n && rc == 0; i++)
		if (g->id[i] != WB__REGION_NONE)
			rc = wb_xport_region_remove(s->m[i].x, g->id[i]);
	if (rc == 0) {
		g->is_used = false;
		return 0;
	}
	for (i--; i--;)
		if (g->id[i] != WB__REGION_NONE)
			(void)add_to(s, i, g, &w, NULL);
	turn_off_all(s, &w, g->r.object);
	return rc;
}

/* How good a path is.  Between equal paths, a member that moves memory of GPUs ranks higher, since
 * it can say best why a path is not better. */
static int rank_of(const struct wb__set *s, uint32_t i, enum wb_xport_path path)
{
	static const int rank[] = {[WB_XPORT_PATH_FAILED] = 0,
		[WB_XPORT_PATH_BOUNCE] = 1,
		[WB_XPORT_PATH_PENDING] = 2,
		[WB_XPORT_PATH_HOST] = 3,
		[WB_XPORT_PATH_PEER] = 4,
		[WB_XPORT_PATH_DMABUF] = 5};

	return 2 * rank[path] + has_cap(s, i, WB_XPORT_CAP_GPU);
}

static enum wb_xport_path set_region_path(struct wb_xport *x, uint32_t id, char *out, size_t cap)
{
	struct wb__set *s = set_of(x);
	const struct wb__set_region *g =
		id < s->n_region && s->region[id].is_used ? &s->region[id] : NULL;
	enum wb_xport_path best =
		!g ? WB_XPORT_PATH_FAILED
		   : (g->r.gpu.is_there ? WB_XPORT_PATH_BOUNCE : WB_XPORT_PATH_HOST);
	int rank = -1;

	for (uint32_t i = 0; g && i < s->n; i++) {
		char says[WB__REASON_MAX] = "";
		enum wb_xport_path path;

		if (g->id[i] == WB__REGION_NONE)
			continue;
		path = wb_xport_region_path(s->m[i].x, g->id[i], says, sizeof(says));
		if (rank_of(s, i, path) <= rank)
			continue;
		rank = rank_of(s, i, path);
		best = path;
		snprintf(out, cap, "%s", says);
	}
	return best;
}

/* ---- which way to a peer ----------------------------------------------------------------------
 */

static struct wb__trial *find_trial(
	struct wb__set *s, const struct wb_epoch_id *id, const char *peer)
{
	for (size_t i = 0; i < s->n_trial; i++)
		if (wb_epoch_id_eq(&s->trial[i].epoch, id) && !strcmp(s->trial[i].peer, peer))
			return &s->trial[i];
	return NULL;
}

/* NULL: memory is short. */
static struct wb__trial *make_trial(
	struct wb__set *s, const struct wb_epoch_id *id, const char *peer)
{
	struct wb__trial *t = find_trial(s, id, peer);

	if (t)
		return t;
	if (wb_grow(&s->trial, &s->cap_trial, s->n_trial + 1, 1u << 20, sizeof(*s->trial)))
		return NULL;
	t = &s->trial[s->n_trial++];
	*t = (struct wb__trial){.epoch = *id};
	snprintf(t->peer, sizeof(t->peer), "%s", peer);
	return t;
}

/* The peer's way for member @i, into @out. */
static bool way_for(
	const struct wb__set *s, uint32_t i, const char *endpoint, char *out, size_t cap)
{
	const struct wb_xport_ops *x = s->m[i].x->ops;

	return wb__way_of(endpoint, x->scheme, out, cap) &&
	       (!x->is_near || x->is_near(s->m[i].endpoint, out));
}

/* The best member that has a way to the peer and has not failed.  -1: all have failed; their counts
 * then begin anew. */
static int best_of(const struct wb__set_epoch *e, struct wb__trial *t)
{
	for (uint32_t k = 0; k < e->n; k++)
		if (t->usable >> e->order[k] & 1 && t->fails[e->order[k]] < FAILS_MAX)
			return e->order[k];
	memset(t->fails, 0, sizeof(t->fails));
	return -1;
}

/* How many failures (of FAILS_MAX) a connection counts for that ended like this. */
static uint32_t weight(int code, uint64_t n_arrived)
{
	if (code == -ECONNABORTED) /* by us */
		return 0;
	/* WB_ESTALE: the peer does not know the plan yet, or does not use this way for it. */
	return code == WB_ESTALE || n_arrived ? 1 : FAILS_MAX;
}

/* Count a failure of member @i.  true: there is another member, which has not failed since the
 * counts began anew. */
static bool failed(struct wb__set *s, const struct wb__set_epoch *e, struct wb__trial *t,
	uint32_t i, uint32_t by, const char *why)
{
	int next;

	t->fails[i] = (uint8_t)WB_MIN(t->fails[i] + by, FAILS_MAX);
	if (t->fails[i] < FAILS_MAX)
		return false;
	next = best_of(e, t);
	if (next < 0)
		return false;
	if (!has_cap(s, i, WB_XPORT_CAP_LOCAL))
		snprintf(t->why, sizeof(t->why), "%s and not %s: %s", name_of(s, (uint32_t)next),
			name_of(s, i), why);
	if (!t->is_said[i])
		WB_LOG_INFO(MOD, "another transport is taken", WB_S("peer", t->peer),
			WB_S("was", name_of(s, i)), WB_S("is", name_of(s, (uint32_t)next)),
			WB_S("reason", why));
	t->is_said[i] = true;
	return true;
}

/* Members that have a way to the peer, a bit each. */
static uint32_t usable(const struct wb__set *s, const struct wb__set_epoch *e, const char *endpoint,
	char way[WB__WAY_MAX])
{
	uint32_t bits = 0;

	for (uint32_t k = 0; k < e->n; k++)
		if (way_for(s, e->order[k], endpoint, way, WB__WAY_MAX))
			bits |= 1u << e->order[k];
	return bits;
}

static int dial(struct wb__set *s, uint32_t i, const struct wb_xport_peer *p, wb_conn_t *out,
	struct wb_err *err)
{
	char way[WB__WAY_MAX];
	struct wb_xport_peer to = *p;

	if (!way_for(s, i, p->endpoint, way, sizeof(way)))
		return wb_err_set(err, -EINVAL, "endpoint '%.100s' of agent %s is not valid",
			p->endpoint, p->name);
	to.endpoint = way;
	return wb_xport_connect(s->m[i].x, &to, out, err);
}

/* Is this error the fault of one way?  Bad arguments, or a lack of room or memory here, would make
 * every way fail. */
static bool is_of_way(int rc)
{
	return rc != -EINVAL && rc != -ENOSPC && rc != -ENOMEM;
}

static int set_connect(
	struct wb_xport *x, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	struct wb__set *s = set_of(x);
	const struct wb__set_epoch *e = find_epoch(s, p->epoch);
	char way[WB__WAY_MAX];
	uint32_t bits;
	struct wb__trial *t;
	int i, rc;

	if (!e || !p->endpoint || !p->endpoint[0] || !p->name)
		return wb_xport_connect(s->m[0].x, p, out, err); /* it reports what is wrong */
	bits = usable(s, e, p->endpoint, way);
	if (!bits)
		return wb_err_set(err, -EPROTONOSUPPORT,
			"agent %s has none of the transports %s that may carry this object",
			p->name, s->name);
	if (!(bits & (bits - 1)))
		return dial(s, (uint32_t)__builtin_ctz(bits), p, out, err);
	t = make_trial(s, p->epoch, p->name);
	if (!t)
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	t->usable = (uint8_t)bits;
	i = best_of(e, t);
	for (i = i < 0 ? best_of(e, t) : i;; i = best_of(e, t)) {
		struct wb_err why = {0};

		assert(i >= 0); /* another one is left, or all counts began anew */
		rc = dial(s, (uint32_t)i, p, out, &why);
		if (rc < 0 && is_of_way(rc) && failed(s, e, t, (uint32_t)i, FAILS_MAX, why.msg))
			continue;
		return rc < 0 ? wb_err_wrap(err, rc, "%s", why.msg) : 0;
	}
}

/* ---- events -----------------------------------------------------------------------------------
 */

static void look(struct wb__set *s, uint32_t i, struct wb_xport_event *ev)
{
	const struct wb_xport_conn_info *c = ev->info;
	struct wb__trial *t = NULL;
	const struct wb__set_epoch *e;
	uint32_t by;

	assert(!ev->conn || ev->conn >> WB__TAG_SHIFT == i);
	if (ev->kind != WB_XP_CONN_DOWN || !c || !c->is_dialer)
		return;
	e = find_epoch(s, &c->epoch);
	by = weight(ev->code, c->n_arrived);
	if (e && by)
		t = find_trial(s, &c->epoch, c->peer);
	if (t)
		ev->has_other =
			failed(s, e, t, i, by, ev->reason ? ev->reason : wb_strerror(ev->code));
}

/* A different member is polled first each time, so that no member has to wait for the others. */
static int set_poll(struct wb_xport *x, struct wb_xport_event *ev, int max)
{
	struct wb__set *s = set_of(x);
	int n = 0;

	s->turn++;
	for (uint32_t k = 0; k < s->n; k++) {
		uint32_t i = (s->turn + k) % s->n;
		int got = n < max ? wb_xport_poll(s->m[i].x, ev + n, max - n) : 0;

		for (int j = 0; j < got; j++)
			look(s, i, &ev[n + j]);
		n += got;
	}
	return n;
}

/* ---- what goes to the one that has the connection ----------------------------------------------
 */

static struct wb_xport *of_conn(struct wb_xport *x, wb_conn_t conn)
{
	struct wb__set *s = set_of(x);
	uint32_t i = conn >> WB__TAG_SHIFT;

	return i < s->n ? s->m[i].x : NULL;
}

static int set_disconnect(struct wb_xport *x, wb_conn_t conn)
{
	struct wb_xport *m = of_conn(x, conn);

	return m ? m->ops->disconnect(m, conn) : -ENOTCONN;
}

static int set_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g)
{
	struct wb_xport *m = of_conn(x, conn);

	return m ? m->ops->grant(m, conn, g) : -ENOTCONN;
}

static int set_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie)
{
	struct wb_xport *m = of_conn(x, conn);

	return m ? m->ops->cancel(m, conn, cookie) : -ENOTCONN;
}

static int set_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w)
{
	struct wb_xport *m = of_conn(x, conn);

	return m ? m->ops->write(m, conn, w) : -ENOTCONN;
}

static int set_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code)
{
	struct wb_xport *m = of_conn(x, conn);

	return m ? m->ops->refuse(m, conn, grant, code) : -ENOTCONN;
}

/* ---- being reached ----------------------------------------------------------------------------
 */

/* Let each member serve, and join their endpoints with semicolons.  @at NULL: each listens by
 * itself. */
static int say_all(struct wb__set *s, const char *const *at, uint32_t n, char *endpoint, size_t cap,
	struct wb_err *err)
{
	size_t used = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		struct wb__member *m = &s->m[i];
		int k, rc = at ? wb_xport_serve(m->x, at, n, m->endpoint, sizeof(m->endpoint), err)
			       : wb_xport_listen(m->x, m->endpoint, sizeof(m->endpoint), err);

		if (rc < 0)
			return rc;
		k = snprintf(endpoint + used, cap - used, "%s%s", i ? ";" : "", m->endpoint);
		if (k < 0 || (size_t)k >= cap - used)
			return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
		used += (size_t)k;
	}
	return 0;
}

static int set_listen(struct wb_xport *x, char *endpoint, size_t cap, struct wb_err *err)
{
	return say_all(set_of(x), NULL, 0, endpoint, cap, err);
}

static int set_serve(struct wb_xport *x, const char *const *at, uint32_t n, char *endpoint,
	size_t cap, struct wb_err *err)
{
	return say_all(set_of(x), at, n, endpoint, cap, err);
}

/* The first bytes say which member the socket is for.  They have arrived, since a dialer sends
 * HELLO in one piece.  tcp, if it is a member, takes every socket that is not recognised, and tells
 * the peer what is wrong. */
static int set_adopt(struct wb_xport *x, int fd_take, struct wb_err *err)
{
	struct wb__set *s = set_of(x);
	struct wb_xport *to = NULL;
	uint8_t first[64];
	ssize_t n = recv(fd_take, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);

	for (uint32_t i = 0; i < s->n; i++) {
		const struct wb_xport_ops *o = s->m[i].x->ops;

		if (o->is_mine && o->is_mine(first, n > 0 ? (size_t)n : 0))
			to = s->m[i].x;
	}
	if (to)
		return wb_xport_adopt(to, fd_take, err);
	close(fd_take);
	return wb_err_set(
		err, -ENOTSUP, "somebody speaks a transport that is not among %s here", s->name);
}

static int set_event_fd(struct wb_xport *x)
{
	return set_of(x)->epfd;
}

/* ---- figures ----------------------------------------------------------------------------------
 */

static int set_stats(struct wb_xport *x, uint32_t rail, struct wb_xport_stats *out)
{
	struct wb__set *s = set_of(x);

	*out = (struct wb_xport_stats){0};
	for (uint32_t i = 0; i < s->n; i++) {
		struct wb_xport_stats a;
		uint64_t *to = (uint64_t *)out;
		const uint64_t *from = (const uint64_t *)&a;
		int rc = wb_xport_rail_stats(s->m[i].x, rail, &a);

		if (rc < 0)
			return rc;
		for (size_t k = 0; k < sizeof(a) / sizeof(*to); k++)
			to[k] += from[k];
	}
	return 0;
}

_Static_assert(sizeof(struct wb_xport_stats) % sizeof(uint64_t) == 0, "it is counters alone");

static bool set_instead(struct wb_xport *x, uint64_t object, char *out, size_t cap)
{
	const struct wb__set *s = set_of(x);

	for (size_t i = 0; i < s->n_trial; i++) {
		const struct wb__trial *t = &s->trial[i];

		if (t->epoch.object.hash != object || !t->why[0])
			continue;
		snprintf(out, cap, "agent %s is reached by %s", t->peer, t->why);
		return true;
	}
	return false;
}

/* The first member that has something to say says it. */
static bool first_of(
	struct wb_xport *x, bool (*says)(struct wb_xport *, char *, size_t), char *out, size_t cap)
{
	const struct wb__set *s = set_of(x);

	for (uint32_t i = 0; i < s->n; i++)
		if (says(s->m[i].x, out, cap))
			return true;
	return false;
}

static bool set_reduced(struct wb_xport *x, char *out, size_t cap)
{
	return first_of(x, wb_xport_reduced, out, cap);
}

static bool set_keys(struct wb_xport *x, char *out, size_t cap)
{
	return first_of(x, wb_xport_keys, out, cap);
}

/* ---- the table --------------------------------------------------------------------------------
 */

void wb__set_close(struct wb_xport *x)
{
	struct wb__set *s = set_of(x);

	for (uint32_t i = 0; i < s->n; i++)
		wb_xport_close(s->m[i].x);
	if (s->epfd >= 0)
		close(s->epfd);
	wb_free(s->region);
	wb_free(s->trial);
	wb_free(s);
}

const struct wb_xport_ops wb__set_ops = {
	.scheme = "",
	.sockets_min = 1,
	.close = wb__set_close,
	.listen = set_listen,
	.serve = set_serve,
	.adopt = set_adopt,
	.epoch_add = set_epoch_add,
	.epoch_remove = set_epoch_remove,
	.region_add = set_region_add,
	.region_remove = set_region_remove,
	.region_path = set_region_path,
	.connect = set_connect,
	.disconnect = set_disconnect,
	.grant = set_grant,
	.cancel = set_cancel,
	.write = set_write,
	.refuse = set_refuse,
	.poll = set_poll,
	.event_fd = set_event_fd,
	.stats = set_stats,
	.instead = set_instead,
	.reduced = set_reduced,
	.keys = set_keys,
	.carrier = of_conn,
};
