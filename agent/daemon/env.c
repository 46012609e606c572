/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/env.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/fill.h"
#include "daemon/metrics.h"
#include "daemon/oplink.h"
#include "daemon/peers.h"
#include "daemon/store.h"
#include "daemon/trace.h"
#include "mem/mem.h"
#include "net/loop.h"
#include "xport/xport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOD "transfer"
/* Sparse: only slots that are used take memory.  Room for every worker an agent may have. */
#define RESERVE_BYTES (64ull << 30)

/* An object's arena: slots, then snapshots. */
struct part {
	int fd;
	uint8_t *base;
	uint64_t reserve, images;
	uint64_t used; /* slots of the newest plan */
	uint64_t span; /* slots that there are, or may be still: snapshots lie behind them */
	uint64_t reach; /* what the transport knows of it */
	uint64_t known_to; /* hash of the object whose source it is to the transport */
	uint32_t region;
	bool has_region;
	bool is_empty; /* its pages were given back */
	bool sleeps; /* all of its workers do: its pages go back when nothing uses them */
	struct wb__fill *fill; /* pages of snapshots that are being taken */
	struct wb_object_id object; /* the object that uses it; uid 0 = none yet */
	uint64_t wanted_ns; /* since when an object that was made again wants it; 0 = none does */
	struct { /* the last checksum that differed */
		struct wb_object_id object;
		uint64_t transfer; /* 0 = none */
		char text[WB__MISMATCH_TEXT];
	} mismatch;
};

struct wb__env {
	struct wb__agent *a;
	struct wb_transfer_env env;
	struct wb_transfer_store store;
	struct wb_watch *xport_watch;
	struct wb_timer *timer;
	bool is_kicked;
	struct part part[WB__OBJECTS_MAX]; /* by object */
};

static struct part *part_of(struct wb__env *e, uint32_t index)
{
	assert(index < e->a->o.n_served);
	return &e->part[index];
}

static const struct part *part_in(const struct wb__env *e, uint32_t index)
{
	assert(index < e->a->o.n_served);
	return &e->part[index];
}

/* ---- what the core asks for ---------------------------------------------------------------- */

static void to_worker(void *ctx, uint32_t worker, uint16_t type, const void *msg)
{
	struct wb__env *e = ctx;

	wb__apps_send(e->a->apps, worker, type, msg);
}

static void to_peer(void *ctx, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes)
{
	struct wb__env *e = ctx;

	wb__peers_send(e->a->peers, r, agent, msg, frame, bytes);
}

static void ended(struct wb__env *e, const struct wb_transfer_report *r)
{
	const char *who = r->n_engine == 1 ? r->engine[0] : "engines";
	bool is_final = r->kind == WB_REPORT_FINAL;
	uint64_t ns = r->end_wall_ns > r->begin_wall_ns ? r->end_wall_ns - r->begin_wall_ns : 0;

	if (is_final)
		WB_LOG_INFO(MOD, r->is_feed ? "feed ended" : "transfer ended",
			WB_U("transfer", r->transfer), WB_I("version", r->version),
			WB_S("result", wb_word(&wb_result_words, r->result)),
			WB_U("engines", r->n_engine), WB_F("seconds", (double)ns / 1e9),
			WB_U("bytes_receive", r->bytes[0]), WB_U("bytes_external", r->bytes[1]),
			WB_U("bytes_internal", r->bytes[2]),
			WB_S("culprit", r->culprit ? r->culprit : ""));
	else
		WB_LOG_INFO(MOD, "engine ended", WB_U("transfer", r->transfer),
			WB_I("version", r->version), WB_S("engine", who),
			WB_S("state", wb_word(&wb_engine_state_words, r->state[0])),
			WB_F("seconds", (double)ns / 1e9),
			WB_S("reason", r->n_engine && r->sentence && r->sentence[0] ? r->sentence[0]
										    : ""));
	wb__trace_span(e->a->trace,
		r->is_feed ? "feed"
		: is_final ? "transfer"
			   : "update",
		is_final ? "coordinator" : who, r->transfer, r->begin_wall_ns, r->end_wall_ns);
	wb__metrics_report(e->a->http, r);
}

static void report(void *ctx, const struct wb_transfer_report *r)
{
	struct wb__env *e = ctx;
	struct wb__oplink *l = wb__oplink_of(e->a, &r->epoch->object);

	if (r->kind == WB_REPORT_STARTED)
		WB_LOG_INFO(MOD, r->is_feed ? "feed begins" : "transfer begins",
			WB_U("transfer", r->transfer), WB_I("version", r->version),
			WB_S(r->is_feed ? "engine" : "object",
				r->is_feed ? r->engine[0] : r->object));
	else
		ended(e, r);
	if (l)
		wb__oplink_report(l, r);
}

/* The arena of @object.  Transfers are numbered by object, so two objects may have the same
 * number. */
static struct part *part_with(struct wb__env *e, const struct wb_object_id *object)
{
	for (uint32_t i = 0; i < e->a->o.n_served; i++)
		if (wb_object_id_eq(&e->part[i].object, object))
			return &e->part[i];
	return NULL;
}

static void mismatch(void *ctx, const struct wb_transfer_mismatch *m)
{
	struct wb__env *e = ctx;
	struct wb__agent *a = e->a;
	struct part *p = part_with(e, m->id);
	char rail[24] = "";

	if (m->rail != WB_FLOW_NO_RAIL)
		snprintf(rail, sizeof(rail), ", rail %u", m->rail);
	if (!m->src)
		snprintf(a->mismatch, sizeof(a->mismatch),
			"%s: parameter %.100s of %.64s, copied from its staging area", m->place,
			m->param, m->dst);
	else
		snprintf(a->mismatch, sizeof(a->mismatch),
			"%s: chunk %u of class %u, parameter %.100s of %.64s, from %.64s%s",
			m->place, m->chunk, m->cls, m->param, m->dst, m->src, rail);
	if (p) {
		p->mismatch.object = *m->id;
		p->mismatch.transfer = m->transfer;
		memcpy(p->mismatch.text, a->mismatch, sizeof(p->mismatch.text));
	}
	WB_LOG_WRN(MOD, "checksum differs", WB_S("what", a->mismatch),
		WB_U("transfer", m->transfer), WB_S("object", m->object));
	wb__metrics_mismatch(a->http, m);
}

static void times(void *ctx, const struct wb_transfer_times *t)
{
	struct wb__env *e = ctx;
	const struct part *p = part_with(e, &t->epoch->object);
	struct wb__oplink *l = wb__oplink_of(e->a, &t->epoch->object);

	if (p && t->transfer == p->mismatch.transfer &&
		wb_object_id_eq(&p->mismatch.object, &t->epoch->object))
		t->worker[0].mismatch = p->mismatch.text;
	if (l)
		wb__oplink_times(l, t);
}

static void trace(void *ctx, const char *what, const char *who, uint64_t transfer, uint64_t value)
{
	struct wb__env *e = ctx;

	wb__trace_mark(e->a->trace, what, who, transfer, value);
	WB_LOG_DEBUG(MOD, "mark", WB_S("what", what), WB_S("who", who), WB_U("transfer", transfer),
		WB_U("value", value));
}

/* ---- driving it ----------------------------------------------------------------------------- */

static void give_pages_back(struct wb__env *e);

static void tick(struct wb__env *e)
{
	uint64_t now, next;

	assert(e->a->core);
	next = wb_transfer_tick(e->a->core);
	wb__apps_reap(e->a->apps);
	give_pages_back(e);
	if (!next) {
		wb_timer_stop(e->timer);
		return;
	}
	now = wb_now_ns(&wb_clock_real);
	wb_timer_start(e->timer, next > now ? next - now : WB_NS_PER_MS, 0);
}

static void on_timer(void *cookie)
{
	tick(cookie);
}

static void on_kick(void *cookie)
{
	struct wb__env *e = cookie;

	e->is_kicked = false;
	if (e->a->core)
		tick(e);
}

void wb__env_kick(struct wb__env *e)
{
	if (e->is_kicked || e->a->is_stopping)
		return;
	e->is_kicked = true;
	if (wb_loop_defer(e->a->loop, on_kick, e) < 0) {
		e->is_kicked = false;
		wb_timer_start(e->timer, WB_NS_PER_MS, 0);
	}
}

void wb__env_pump(struct wb__env *e)
{
	if (!e->a->core)
		return;
	wb_transfer_pump(e->a->core);
	wb__env_kick(e);
}

static void xport_ready(void *cookie, int events)
{
	(void)events;
	wb__env_pump(cookie);
}

/* ---- arena ---------------------------------------------------------------------------------- */

static int map_part(struct part *p, struct wb_err *err)
{
	void *at;

	assert(p->fd < 0 && !p->base && p->reserve);
	p->fd = wb_memfd_create("weightbridge slots", p->reserve, err);
	if (p->fd < 0)
		return p->fd;
	at = mmap(NULL, p->reserve, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->fd, 0);
	if (at == MAP_FAILED)
		return wb_err_set(err, -errno, "map %llu bytes of slots: %s",
			(unsigned long long)p->reserve, strerror(errno));
	p->base = at;
	return 0;
}

static int map_arena(struct wb__env *e, struct wb_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < e->a->o.n_served && rc == 0; i++) {
		e->part[i].reserve =
			WB_MAX(RESERVE_BYTES, wb_align_up(e->a->o.buffer_bytes, 1u << 20));
		rc = map_part(&e->part[i], err);
	}
	return rc;
}

void *wb__env_arena(const struct wb__env *e, uint32_t index)
{
	return part_in(e, index)->base;
}

int wb__env_arena_fd(const struct wb__env *e, uint32_t index)
{
	return part_in(e, index)->fd;
}

uint64_t wb__env_arena_reserve(const struct wb__env *e, uint32_t index)
{
	return part_in(e, index)->reserve;
}

uint64_t wb__env_arena_used(const struct wb__env *e)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < e->a->o.n_served; i++)
		used += e->part[i].used;
	return used;
}

uint64_t wb__env_slots_used(const struct wb__env *e, uint32_t index)
{
	return part_in(e, index)->used;
}

uint64_t wb__env_images_used(const struct wb__env *e, uint32_t index)
{
	return part_in(e, index)->images;
}

static uint64_t images_at(const struct part *p)
{
	return wb_align_up(p->span, 4096);
}

uint64_t wb__env_due(const struct wb__env *e, uint32_t index)
{
	const struct part *p = part_in(e, index);
	uint64_t all = wb_align_up(p->used, 4096) + p->images, has = 0;
	struct stat s;

	if (p->fd >= 0 && fstat(p->fd, &s) == 0)
		has = (uint64_t)s.st_blocks * 512;
	return all > has ? all - has : 0;
}

/* False: a source is being read. */
static bool drop_region(struct wb__env *e, struct part *p)
{
	if (p->has_region && wb_xport_region_remove(e->a->xport, p->region) == -EBUSY)
		return false;
	p->has_region = false;
	p->reach = 0;
	return true;
}

static int add_region(
	struct wb__env *e, struct part *p, uint64_t bytes, uint64_t object, struct wb_err *err)
{
	struct wb_xport_region r = {.object = object, .fd = p->fd, .base = p->base, .bytes = bytes};
	int rc = wb_xport_region_add(e->a->xport, &r, &p->region, err);

	if (rc < 0)
		return rc;
	p->has_region = true;
	p->reach = bytes;
	p->known_to = object;
	return 0;
}

/* The transport sees slots and snapshots as one source.  The old source and the new one at once
 * would be more than a device may pin: the old one goes first, and is put back if the new one
 * cannot be made known. */
static int set_region(
	struct wb__env *e, struct part *p, uint64_t bytes, uint64_t object, struct wb_err *err)
{
	uint64_t was = p->reach;
	int rc;

	assert(p->base && bytes <= p->reserve);
	if (!(wb_xport_caps(e->a->xport) & WB_XPORT_CAP_REGIONS)) {
		p->reach = bytes;
		return 0;
	}
	if (!drop_region(e, p))
		return wb_err_set(err, -EBUSY, "slots are being read");
	rc = add_region(e, p, bytes, object, err);
	if (rc == 0)
		return 0;
	if (was && add_region(e, p, was, p->known_to, NULL) < 0)
		WB_LOG_WRN(MOD, "slots of the plan that runs cannot be read: no region for them",
			WB_U("bytes", was));
	return wb_err_wrap(err, rc, "slots");
}

/* What is used by the plan that runs stays known: the next plan may still be refused. */
static int reach(
	struct wb__env *e, struct part *p, uint64_t bytes, uint64_t object, struct wb_err *err)
{
	return bytes <= p->reach ? 0 : set_region(e, p, bytes, object, err);
}

static bool punch(const struct part *p, uint64_t from, uint64_t to)
{
	return from >= to || !fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     (off_t)from, (off_t)(to - from));
}

uint8_t *wb__env_images_base(const struct wb__env *e, uint32_t index)
{
	const struct part *p = part_in(e, index);

	return p->base + images_at(p);
}

/* Take the pages of snapshots of @bytes, so that a transfer cannot fail for want of them. */
static int take_pages(struct wb__env *e, struct part *p, uint64_t bytes, struct wb_err *err)
{
	int rc;

	assert(bytes && bytes <= p->reserve - images_at(p));
	rc = wb__fill(e->a->loop, &p->fill, p->fd, images_at(p), bytes);
	if (rc == -EINPROGRESS)
		return wb_err_set(err, rc, "memory for snapshots is being taken");
	return rc < 0 ? wb_err_set(err, rc, "no memory for snapshots of %llu bytes: %s",
				(unsigned long long)bytes, wb_strerror(rc))
		      : 0;
}

int wb__env_images(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err)
{
	struct part *p = part_of(e, index);
	int rc;

	if (bytes <= p->images)
		return 0;
	if (bytes > p->reserve - images_at(p))
		return wb_err_set(err, -EINVAL, "snapshots of %llu bytes, at most %llu fit",
			(unsigned long long)bytes, (unsigned long long)(p->reserve - images_at(p)));
	rc = take_pages(e, p, bytes, err);
	if (rc < 0)
		return rc;
	/* A transfer may have begun meanwhile. */
	if (wb_transfer_is_sending(e->a->core, object))
		return wb_err_set(err, -EBUSY, "snapshots are in use");
	rc = reach(e, p, images_at(p) + bytes, object->hash, err);
	if (rc < 0)
		return rc;
	p->images = bytes;
	WB_LOG_INFO(MOD, "snapshots reserved", WB_U("bytes", bytes));
	return 0;
}

/* The object was deleted and made again: the new one has another uid and the same memory. */
static int hand_over(
	struct wb__env *e, struct part *p, const struct wb_object_id *object, struct wb_err *err)
{
	uint64_t now = wb_now_ns(&wb_clock_real);
	int rc;

	assert(p->object.uid && p->used);
	if (!p->wanted_ns)
		p->wanted_ns = now;
	if (!wb_transfer_let_go(e->a->core, &p->object, now - p->wanted_ns))
		return wb_err_set(err, -EBUSY, "a transfer of the object before is under way");
	p->wanted_ns = 0;
	rc = set_region(e, p, WB_MAX(p->reach, images_at(p) + p->images), object->hash, err);
	if (rc == 0)
		rc = wb_transfer_set_arena(e->a->core, object, p->base, p->used);
	if (rc == 0)
		p->object = *object;
	return rc;
}

/* Snapshots that slots would grow into are made anew behind the slots. */
static int resize(struct wb__env *e, struct part *p, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err)
{
	int rc = reach(e, p, bytes, object->hash, err);

	if (rc == 0)
		rc = wb_transfer_set_arena(e->a->core, object, p->base, bytes);
	if (rc < 0)
		return rc;
	if (bytes > images_at(p))
		p->images = 0;
	p->span = WB_MAX(p->span, bytes);
	p->used = bytes;
	p->object = *object;
	WB_LOG_INFO(MOD, "buffer set", WB_U("bytes", bytes));
	return 0;
}

int wb__env_arena_use(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err)
{
	struct part *p = part_of(e, index);
	int rc = 0;

	if (bytes > p->reserve)
		return wb_err_set(err, -EINVAL,
			"the workers here lend %llu bytes of buffers together, an agent uses at "
			"most "
			"%llu: start it with --buffer",
			(unsigned long long)bytes, (unsigned long long)p->reserve);
	if (p->used && !wb_object_id_eq(&p->object, object))
		rc = hand_over(e, p, object, err);
	if (rc == 0 && bytes == p->used) /* an earlier try may have failed on the way */
		rc = reach(e, p, p->images ? images_at(p) + p->images : bytes, object->hash, err);
	return rc < 0 || bytes == p->used ? rc : resize(e, p, bytes, object, err);
}

void wb__env_arena_trim(struct wb__env *e, uint32_t index)
{
	struct part *p = part_of(e, index);
	uint64_t was = p->reach, end;
	struct wb_err err = {0};

	/* Slots of the plan before are still used: their pages go with the next plan. */
	if (wb_transfer_arena_used(e->a->core, &p->object) != p->used)
		return;
	if (!p->images)
		p->span = p->used;
	end = p->images ? images_at(p) + p->images : p->used;
	if (end < was && set_region(e, p, end, p->object.hash, &err) < 0) {
		WB_LOG_WRN(MOD, "buffer stays as large as it was", WB_S("reason", err.msg));
		return;
	}
	/* A user that has pinned a page goes on with it when another page takes its place: a worker
	 * whose lane knows the slots, a device that knows what lies between slots and snapshots. */
	if (wb__apps_has_lanes(e->a->apps, index))
		return;
	if (!p->images || !(wb_xport_caps(e->a->xport) & WB_XPORT_CAP_LANDINGS))
		(void)punch(p, wb_align_up(p->used, 4096), p->images ? images_at(p) : was);
	(void)punch(p, wb_align_up(end, 4096), was);
}

/* A transfer whose end the worker has heard may not be over here yet: others read what it left, or
 * run their hooks.  The transport lets go first: the pages that it has pinned would stay, and be
 * read in place of what is written later. */
static void give_pages_back(struct wb__env *e)
{
	for (uint32_t i = 0; i < e->a->o.n_served; i++) {
		struct part *p = &e->part[i];
		uint64_t reached;

		p->sleeps = p->sleeps && wb__apps_all_asleep(e->a->apps, i);
		if (!p->sleeps || !wb_transfer_let_go(e->a->core, &p->object, 0))
			continue;
		reached = WB_MAX(p->reach, images_at(p) + p->images);
		if (!drop_region(e, p))
			continue;
		p->sleeps = false;
		p->is_empty = punch(p, 0, reached);
	}
}

void wb__env_sleep(struct wb__env *e, uint32_t index)
{
	part_of(e, index)->sleeps = true;
	give_pages_back(e);
}

int wb__env_wake(struct wb__env *e, uint32_t index, struct wb_err *err)
{
	struct part *p = part_of(e, index);
	int rc = 0;

	p->sleeps = false;
	if (p->is_empty && p->images)
		rc = take_pages(e, p, p->images, err);
	if (rc == 0 && p->used)
		rc = reach(
			e, p, p->images ? images_at(p) + p->images : p->used, p->object.hash, err);
	if (rc == 0)
		p->is_empty = false;
	return rc;
}

/* ---- start and stop ------------------------------------------------------------------------- */

int wb__env_start(struct wb__agent *a, struct wb__env **out, struct wb_err *err)
{
	struct wb__env *e = wb_zalloc(1, sizeof(*e));
	struct wb_transfer_opts o = {.agent = a->o.name, .n_rail = a->rails.n};
	int rc;

	assert(a->xport && a->o.n_served <= WB__OBJECTS_MAX);
	if (!e)
		return wb_err_set(err, -ENOMEM, "no memory for the agent's core");
	*out = e;
	e->a = a;
	wb__store_init(&e->store, a->o.socket);
	o.store = &e->store;
	e->env = (struct wb_transfer_env){.ctx = e,
		.clock = &wb_clock_real,
		.xport = a->xport,
		.fault = a->fault,
		.to_worker = to_worker,
		.to_peer = to_peer,
		.report = report,
		.times = times,
		.mismatch = mismatch,
		.trace = trace};
	for (uint32_t i = 0; i < WB__OBJECTS_MAX; i++)
		e->part[i].fd = -1;
	rc = map_arena(e, err);
	if (rc == 0)
		rc = wb_transfer_create(&o, &e->env, &a->core, err);
	if (rc < 0)
		return rc;
	rc = wb_timer_create(a->loop, on_timer, e, &e->timer);
	if (rc == 0 && wb_xport_event_fd(a->xport) >= 0)
		rc = wb_watch_create(a->loop, wb_xport_event_fd(a->xport), WB_READABLE, xport_ready,
			e, &e->xport_watch);
	return rc < 0 ? wb_err_set(err, rc, "watch the transport: %s", wb_strerror(rc)) : 0;
}

void wb__env_stop(struct wb__env *e)
{
	if (!e)
		return;
	if (e->xport_watch)
		wb_watch_destroy(e->xport_watch);
	wb_timer_destroy(e->timer);
	wb_xport_close(e->a->xport); /* nothing touches the core's buffers any more */
	e->a->xport = NULL;
	wb_transfer_destroy(e->a->core);
	e->a->core = NULL;
	for (uint32_t i = 0; i < e->a->o.n_served; i++) {
		wb__fill_drop(e->part[i].fill);
		if (e->part[i].base)
			munmap(e->part[i].base, e->part[i].reserve);
		if (e->part[i].fd >= 0)
			close(e->part[i].fd);
	}
	wb_free(e);
}
