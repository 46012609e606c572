/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that an agent sets aside for its objects: slots, snapshots and staging, of which the limit
 * of its control group is one for all, and which the transport knows as regions. */
#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/metrics.h"
#include "daemon/oplink.h"
#include "daemon/peers.h"
#include "daemon/plans.h"
#include "daemon/staging.h"
#include "daemon/trace.h"
#include "net/loop.h"
#include "planner/plan.h"
#include "tests/common/fx_check.h"
#include "transfer/internal.h"
#include "transfer/object.h"
#include "transfer/roster.h"
#include "xport/xport.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (1ull << 20)
#define REGIONS 8

static const struct wb_object_id id[2] = {
	{.uid = 1, .hash = 11, .text = "one"}, {.uid = 2, .hash = 22, .text = "two"}};

/* ---- what is around it ---------------------------------------------------------------------- */

static uint64_t memory_limit;
static struct wb__worker *workers;

uint64_t wb__memory_limit(void)
{
	return memory_limit;
}

struct wb__worker *wb__apps_first(const struct wb__apps *s)
{
	(void)s;
	return workers;
}

struct wb__worker *wb__apps_find(const struct wb__apps *s, uint32_t worker)
{
	(void)s;
	for (struct wb__worker *w = workers; w; w = w->next)
		if (w->id == worker)
			return w;
	return NULL;
}

void wb__apps_send(struct wb__apps *s, uint32_t worker, uint16_t type, const void *msg)
{
	(void)s;
	(void)worker;
	(void)type;
	(void)msg;
}

void wb__apps_send_fd(struct wb__apps *s, uint32_t worker, uint16_t type, const void *msg, int fd)
{
	(void)fd;
	wb__apps_send(s, worker, type, msg);
}

void wb__apps_reap(struct wb__apps *s)
{
	(void)s;
}

static bool is_awake, has_lanes;

bool wb__apps_has_lanes(const struct wb__apps *s, uint32_t index)
{
	(void)s;
	(void)index;
	return has_lanes;
}

bool wb__apps_all_asleep(const struct wb__apps *s, uint32_t index)
{
	(void)s;
	(void)index;
	return !is_awake;
}

void wb__peers_send(struct wb__peers *p, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes)
{
	(void)p;
	(void)r;
	(void)agent;
	(void)msg;
	(void)frame;
	(void)bytes;
}

struct wb__oplink *wb__oplink_of(const struct wb__agent *a, const struct wb_object_id *object)
{
	(void)a;
	(void)object;
	return NULL;
}

void wb__oplink_report(struct wb__oplink *l, const struct wb_transfer_report *r)
{
	(void)l;
	(void)r;
}

void wb__oplink_times(struct wb__oplink *l, const struct wb_transfer_times *t)
{
	(void)l;
	(void)t;
}

void wb__metrics_report(struct wb__http *h, const struct wb_transfer_report *r)
{
	(void)h;
	(void)r;
}

void wb__metrics_mismatch(struct wb__http *h, const struct wb_transfer_mismatch *m)
{
	(void)h;
	(void)m;
}

void wb__trace_mark(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t value)
{
	(void)t;
	(void)what;
	(void)who;
	(void)transfer;
	(void)value;
}

void wb__trace_span(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t begin_wall_ns, uint64_t end_wall_ns)
{
	(void)end_wall_ns;
	wb__trace_mark(t, what, who, transfer, begin_wall_ns);
}

/* ---- a transport that only keeps regions ---------------------------------------------------- */

static struct {
	struct wb_xport_region r;
	bool is_there;
} region[REGIONS];
static int adds_left; /* before some fail; -1 = none does */
static int adds_failing; /* how many do */

static int region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *out, struct wb_err *err)
{
	(void)x;
	if (adds_left > 0) {
		adds_left--;
	} else if (!adds_left) {
		if (adds_failing > 1)
			adds_failing--;
		else
			adds_left = -1;
		return wb_err_set(err, -EMFILE, "a test says so");
	}
	for (uint32_t i = 0; i < REGIONS; i++)
		if (!region[i].is_there) {
			region[i].r = *r;
			region[i].is_there = true;
			*out = i;
			return 0;
		}
	return -ENOSPC;
}

static int region_remove(struct wb_xport *x, uint32_t i)
{
	(void)x;
	ck_assert(i < REGIONS && region[i].is_there);
	region[i].is_there = false;
	return 0;
}

static void xport_close(struct wb_xport *x)
{
	(void)x;
}

static const struct wb_xport_ops xport_ops = {.name = "regions",
	.caps = WB_XPORT_CAP_REGIONS,
	.close = xport_close,
	.region_add = region_add,
	.region_remove = region_remove};
static struct wb_xport xport = {.ops = &xport_ops};

static int n_regions(void)
{
	int n = 0;

	for (int i = 0; i < REGIONS; i++)
		n += region[i].is_there;
	return n;
}

/* Of the arena of object @k; 0 = it is not known. */
static uint64_t known(int k)
{
	uint64_t bytes = 0;

	for (int i = 0; i < REGIONS; i++)
		if (region[i].is_there && region[i].r.object == id[k].hash)
			bytes = region[i].r.bytes;
	return bytes;
}

/* ---- an agent of two objects ---------------------------------------------------------------- */

static struct wb__agent a;
static struct wb_err err;

static void set_up(void)
{
	wb_log_level_max = -1;
	memset(&a, 0, sizeof(a));
	memset(region, 0, sizeof(region));
	memset(&err, 0, sizeof(err));
	adds_left = -1;
	adds_failing = 1;
	memory_limit = 0;
	workers = NULL;
	is_awake = has_lanes = false;
	a.o.name = "a";
	a.o.socket = "none";
	a.o.n_served = 2;
	a.xport = &xport;
	ck_assert_int_eq(wb_loop_create(&a.loop, &err), 0);
	ck_assert_msg(wb__env_start(&a, &a.env, &err) == 0, "%s", err.msg);
}

static void tear_down(void)
{
	wb__env_stop(a.env);
	wb_loop_destroy(a.loop);
}

static int use(int k, uint64_t mib)
{
	return wb__env_arena_use(a.env, (uint32_t)k, mib * MIB, &id[k], &err);
}

/* The core has installed the plan: its slots are those. */
static void installed(int k)
{
	struct object o = {.core = a.core, .id = id[k], .next = a.core->objects};

	for (uint32_t i = 0; i < a.core->n_arena; i++)
		if (wb_object_id_eq(&a.core->arena[i].object, &id[k]))
			o.slots_bytes = a.core->arena[i].bytes;
	a.core->objects = &o;
	wb__env_arena_trim(a.env, (uint32_t)k);
	a.core->objects = o.next;
}

static uint64_t core_has(int k)
{
	for (uint32_t i = 0; i < a.core->n_arena; i++)
		if (wb_object_id_eq(&a.core->arena[i].object, &id[k]))
			return a.core->arena[i].bytes;
	return 0;
}

static void touch(int k, uint64_t mib)
{
	for (uint64_t at = 0; at < mib * MIB; at += 4096)
		((volatile uint8_t *)wb__env_arena(a.env, (uint32_t)k))[at] = 1;
}

static uint64_t pages_mib(int k)
{
	struct stat s;

	ck_assert_int_eq(fstat(wb__env_arena_fd(a.env, (uint32_t)k), &s), 0);
	return (uint64_t)s.st_blocks * 512 / MIB;
}

/* ---- slots ---------------------------------------------------------------------------------- */

START_TEST(slots_follow_the_size_that_each_plan_has)
{
	static const uint64_t sizes[] = {64, 96, 32, 64};

	for (size_t i = 0; i < WB_ARRAY_SIZE(sizes); i++) {
		ck_assert_int_eq(use(0, sizes[i]), 0);
		ck_assert_uint_eq(core_has(0), sizes[i] * MIB);
		ck_assert_uint_eq(wb__env_slots_used(a.env, 0), sizes[i] * MIB);
		installed(0);
		ck_assert_uint_eq(known(0), sizes[i] * MIB);
	}
	ck_assert_int_eq(n_regions(), 1);
	ck_assert_int_eq(use(0, 1 << 20), -EINVAL);
	ck_assert_uint_eq(core_has(0), 64 * MIB);
}
END_TEST

/* It may be refused yet: then the plan before goes on, in the slots that it has. */
START_TEST(slots_of_the_plan_that_runs_stay_until_the_next_is_installed)
{
	ck_assert_int_eq(use(0, 64), 0);
	installed(0);
	touch(0, 64);
	ck_assert_int_eq(use(0, 16), 0);
	ck_assert_uint_eq(known(0), 64 * MIB);
	ck_assert_uint_ge(pages_mib(0), 64);
	installed(0);
	ck_assert_uint_eq(known(0), 16 * MIB);
	ck_assert_uint_le(pages_mib(0), 17);
}
END_TEST

/* Neither those that are used are written over, nor what slots were is used for them. */
START_TEST(snapshots_lie_behind_all_slots_that_there_may_be)
{
	const uint8_t *base = wb__env_arena(a.env, 0);

	ck_assert_int_eq(use(0, 16), 0);
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	installed(0);
	ck_assert_ptr_eq(wb__env_images_base(a.env, 0), base + 16 * MIB);
	ck_assert_uint_eq(known(0), 20 * MIB);
	ck_assert_int_eq(use(0, 18), 0);
	ck_assert_uint_eq(wb__env_images_used(a.env, 0), 0); /* their room is taken */
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	ck_assert_ptr_eq(wb__env_images_base(a.env, 0), base + 18 * MIB);
	ck_assert_uint_eq(known(0), 22 * MIB);
	installed(0);
	touch(0, 22);
	ck_assert_int_eq(use(0, 8), 0);
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	ck_assert_ptr_eq(wb__env_images_base(a.env, 0), base + 18 * MIB);
	ck_assert_uint_eq(known(0), 22 * MIB);
	installed(0);
	ck_assert_uint_le(pages_mib(0), 13); /* not those between them */
	ck_assert_uint_ge(pages_mib(0), 12);
}
END_TEST

START_TEST(slots_that_could_not_be_made_known_are_with_the_next_try)
{
	adds_left = _i ? 1 : 0;
	if (_i) {
		ck_assert_int_eq(use(0, 16), 0);
		installed(0);
		adds_failing = 2; /* nor those that there were be put back */
	}
	ck_assert_int_eq(use(0, 64), -EMFILE);
	ck_assert_str_eq(err.msg, "slots: a test says so");
	ck_assert_int_eq(n_regions(), 0);
	ck_assert_int_eq(use(0, _i == 2 ? 16 : 64), 0);
	ck_assert_uint_eq(known(0), (_i == 2 ? 16 : 64) * MIB);
}
END_TEST

/* The plan that runs needs them: when there should be more of them (0), fewer (1), or when they are
 * to go to an object that was made again (2). */
START_TEST(slots_that_are_known_stay_so_when_others_cannot_be_made_known)
{
	ck_assert_int_eq(use(0, 16), 0);
	installed(0);
	if (_i == 1)
		ck_assert_int_eq(use(0, 8), 0);
	adds_left = 0;
	if (_i == 0)
		ck_assert_int_eq(use(0, 64), -EMFILE);
	else if (_i == 1)
		installed(0);
	else
		ck_assert_int_eq(wb__env_arena_use(a.env, 0, 16 * MIB, &id[1], &err), -EMFILE);
	ck_assert_int_eq(adds_left, -1);
	ck_assert_int_eq(n_regions(), 1);
	ck_assert_uint_eq(known(0), 16 * MIB);
	if (_i == 1)
		installed(0);
	else
		ck_assert_int_eq(wb__env_arena_use(a.env, 0, 64 * MIB, &id[_i / 2], &err), 0);
	ck_assert_int_eq(n_regions(), 1);
	ck_assert_uint_eq(known(_i / 2), (_i == 1 ? 8 : 64) * MIB);
}
END_TEST

/* ---- memory of workers ---------------------------------------------------------------------- */

/* The first try ends before one of them: each is known once after the next, also to another object.
 */
START_TEST(memory_that_was_made_known_half_way_is_known_after_the_next_try)
{
	struct wb_mem mem[3];
	uint32_t regions[3];
	uint8_t at[3];
	struct wb__worker w = {.a = &a, .t = {.mem = mem, .region = regions, .n_mem = 3}};

	strcpy(w.name, "w");
	for (int i = 0; i < 3; i++) {
		mem[i] = (struct wb_mem){
			.fd = -1, .addr = &at[i], .bytes = 1, .access = WB_MEM_AT_HOST};
		regions[i] = WB__REGION_NONE;
	}
	adds_left = _i;
	ck_assert_int_eq(wb__worker_regions_add(&w, 11, &err), -EMFILE);
	ck_assert_msg(strstr(err.msg, " of w: a test says so") != NULL, "%s", err.msg);
	ck_assert_int_eq(wb__worker_regions_add(&w, 11, &err), 0);
	ck_assert_int_eq(n_regions(), 3);
	ck_assert_int_eq(wb__worker_regions_add(&w, 11, &err), 0);
	ck_assert_int_eq(n_regions(), 3);
	adds_left = _i;
	ck_assert_int_eq(wb__worker_regions_add(&w, 22, &err), -EMFILE);
	ck_assert_int_eq(n_regions(), _i);
	ck_assert_int_eq(wb__worker_regions_add(&w, 22, &err), 0);
	ck_assert_int_eq(n_regions(), 3);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(region[regions[i]].r.object, 22);
	ck_assert(wb__worker_regions_remove(&w));
	ck_assert_int_eq(n_regions(), 0);
}
END_TEST

static const struct {
	enum wb_role role;
	enum wb_xport_direction direction;
} directions[] = {{WB_ROLE_TRAINER, WB_XPORT_SOURCE}, {WB_ROLE_ROLLOUT, WB_XPORT_BOTH}};

START_TEST(nothing_may_land_in_a_trainer_s_memory_by_a_device)
{
	uint8_t byte;
	struct wb_mem mem = {.fd = -1, .addr = &byte, .bytes = 1, .access = WB_MEM_AT_HOST};
	uint32_t number = WB__REGION_NONE;
	struct wb__worker w = {.a = &a,
		.role = directions[_i].role,
		.t = {.mem = &mem, .region = &number, .n_mem = 1}};

	ck_assert_int_eq(wb__worker_regions_add(&w, 11, &err), 0);
	ck_assert_int_eq(region[number].r.direction, directions[_i].direction);
	ck_assert(wb__worker_regions_remove(&w));
}
END_TEST

/* ---- memory that is away -------------------------------------------------------------------- */

static struct object busy[2];

/* The core knows object @k, and a transfer of it goes on, or is over. */
static void begins(int k)
{
	busy[k] = (struct object){.core = a.core, .id = id[k], .next = a.core->objects};
	busy[k].trainers.state = TRAINERS_RELEASED;
	a.core->objects = &busy[k];
}

static void ends(int k)
{
	ck_assert_ptr_eq(a.core->objects, &busy[k]);
	a.core->objects = busy[k].next;
	wb__env_kick(a.env);
	wb_loop_run_once(a.loop, false);
}

/* Snapshots are made by a transfer: a call that its coordinator has not answered (0) has none, and
 * may wait for the very plan that is to have other room for them. */
START_TEST(room_for_snapshots_is_made_anew_unless_a_transfer_uses_it)
{
	ck_assert_int_eq(use(0, 8), 0);
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	installed(0);
	begins(0);
	busy[0].trainers.state = _i ? TRAINERS_SERVING : TRAINERS_ASKED;
	ck_assert_int_eq(use(0, 16), 0);
	ck_assert_uint_eq(wb__env_images_used(a.env, 0), 0);
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), _i ? -EBUSY : 0);
	ends(0);
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	ck_assert_uint_eq(known(0), 20 * MIB);
}
END_TEST

static void fall_asleep(void)
{
	ck_assert_int_eq(use(0, 8), 0);
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	touch(0, 12);
	ck_assert_uint_ge(pages_mib(0), 12);
}

START_TEST(pages_go_when_no_transfer_of_the_object_uses_them_any_more)
{
	fall_asleep();
	begins(0);
	wb__env_sleep(a.env, 0);
	ck_assert_uint_ge(pages_mib(0), 12);
	ends(0);
	ck_assert_uint_eq(pages_mib(0), 0);
	ck_assert_int_eq(wb__env_wake(a.env, 0, &err), 0);
	ck_assert_uint_eq(pages_mib(0), 4); /* those of snapshots are there again */
}
END_TEST

/* A device would go on reading those that it has pinned: it is told of the new ones. */
START_TEST(the_transport_has_no_pages_that_were_given_back)
{
	uint64_t before;

	fall_asleep();
	before = known(0);
	ck_assert_uint_ne(before, 0);
	wb__env_sleep(a.env, 0);
	ck_assert_uint_eq(known(0), 0);
	ck_assert_int_eq(wb__env_wake(a.env, 0, &err), 0);
	ck_assert_uint_eq(known(0), before);
}
END_TEST

/* A worker's lane may have pinned the slots that are no more. */
START_TEST(pages_that_a_worker_s_lane_knows_stay)
{
	ck_assert_int_eq(use(0, 8), 0);
	installed(0);
	touch(0, 8);
	has_lanes = _i;
	ck_assert_int_eq(use(0, 4), 0);
	installed(0);
	ck_assert_uint_eq(pages_mib(0), _i ? 8 : 4);
}
END_TEST

START_TEST(pages_do_not_wait_for_transfers_of_other_objects)
{
	fall_asleep();
	begins(1);
	wb__env_sleep(a.env, 0);
	ck_assert_uint_eq(pages_mib(0), 0);
	ends(1);
}
END_TEST

/* By a word of that one (0), or another worker came meanwhile (1). */
START_TEST(pages_stay_for_a_worker_that_woke_before_the_transfer_was_over)
{
	fall_asleep();
	begins(0);
	wb__env_sleep(a.env, 0);
	if (_i)
		is_awake = true;
	else
		ck_assert_int_eq(wb__env_wake(a.env, 0, &err), 0);
	ends(0);
	ck_assert_uint_ge(pages_mib(0), 12);
	is_awake = false;
	wb__env_sleep(a.env, 0);
	ck_assert_uint_eq(pages_mib(0), 0);
}
END_TEST

/* ---- what is said of it --------------------------------------------------------------------- */

static void differs(int k, uint64_t transfer, const char *param)
{
	const struct wb_transfer_mismatch m = {.place = "wire",
		.object = id[k].text,
		.src = "t/worker 1",
		.dst = "r/worker 1",
		.param = param,
		.id = &id[k],
		.transfer = transfer,
		.n = 1};

	a.core->env->mismatch(a.core->env->ctx, &m);
}

static const char *told(int k, uint64_t transfer)
{
	struct wb_epoch_id e = {.object = id[k]};
	struct wb_p_worker_report w = {.mismatch = ""};
	const struct wb_transfer_times t = {
		.epoch = &e, .transfer = transfer, .worker = &w, .n_worker = 1};

	a.core->env->times(a.core->env->ctx, &t);
	return w.mismatch;
}

/* Each object counts its own. */
START_TEST(a_checksum_that_differed_is_told_of_its_own_object_s_transfer)
{
	ck_assert_int_eq(use(0, 8), 0);
	ck_assert_int_eq(use(1, 8), 0);
	differs(0, 7, "first");
	ck_assert_str_eq(told(1, 7), "");
	ck_assert_str_eq(told(0, 6), "");
	ck_assert_ptr_nonnull(strstr(told(0, 7), "parameter first of r/worker 1"));
	differs(1, 9, "second");
	ck_assert_ptr_nonnull(strstr(told(0, 7), "parameter first of"));
	ck_assert_ptr_nonnull(strstr(told(1, 9), "parameter second of"));
	ck_assert_ptr_nonnull(strstr(a.mismatch, "parameter second of"));
}
END_TEST

/* ---- limits --------------------------------------------------------------------------------- */

static int check(uint32_t k, uint64_t buffer_mib)
{
	static const struct wb_p_object none = {0};
	struct wb_plan plan = {0};
	struct wb_roster r = {.plan = &plan};
	struct wb__staging_in in = {
		.roster = &r, .object = &none, .object_index = k, .buffer_bytes = buffer_mib * MIB};

	return wb__staging_check(&a, &in, &err);
}

/* By what it wants, not by what an earlier one had, or was refused with. */
START_TEST(a_plan_is_held_against_the_limit_with_the_slots_that_it_wants)
{
	memory_limit = 100 * MIB;
	ck_assert_int_eq(check(0, 160), -ENOMEM);
	ck_assert_ptr_nonnull(
		strstr(err.msg, "buffers take 167772160 bytes at agent a, the memory limit"));
	ck_assert_int_eq(check(0, 96), 0);
	ck_assert_int_eq(use(0, 96), 0);
	ck_assert_int_eq(check(0, 32), 0);
	ck_assert_int_eq(check(1, 32), -ENOMEM); /* beside the other object's */
	ck_assert_ptr_nonnull(strstr(err.msg, "buffers take 134217728 bytes"));
	ck_assert_int_eq(use(0, 32), 0);
	ck_assert_int_eq(check(1, 32), 0);
	ck_assert_int_eq(use(1, 32), 0);
	ck_assert_int_eq(check(0, 64), 0);
	ck_assert_int_eq(check(0, 72), -ENOMEM);
	ck_assert_uint_eq(wb__staging_left(&a, 0, 64 * MIB), 4 * MIB);
	ck_assert_uint_eq(wb__staging_left(&a, 1, 0), 36 * MIB);
}
END_TEST

/* An area is as long as the worker's memory, and what no parameter is in takes none. */
START_TEST(staging_of_another_object_counts_with_what_is_written_of_it)
{
	struct wb_param param = {.dtype = WB_F32};
	struct wb_op op = {.n_row = 1024, .n_col = 1024, .repeat = 1};
	struct wb_map map = {.param = &param, .n_param = 1, .op = &op, .n_op = 1};
	struct wb__worker_area area = {.bytes = 40 * MIB};
	struct wb__worker w = {
		.object_index = 0, .role = WB_ROLE_ROLLOUT, .map = &map, .area = &area};

	workers = &w;
	memory_limit = 20 * MIB;
	ck_assert_int_eq(check(1, 15), 0);
	ck_assert_uint_eq(wb__staging_left(&a, 1, 8 * MIB), 8 * MIB - WB_AREA_HEAD_BYTES);
	ck_assert_int_eq(check(1, 16), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(err.msg, "beside 4198400 of other objects"));
	area.bytes = 4 * MIB + WB_AREA_HEAD_BYTES;
	ck_assert_int_eq(check(1, 16), -ENOMEM);
}
END_TEST

/* Slots are written by transfers, snapshots when a plan comes; a worker that sleeps has given its
 * area back. */
START_TEST(what_is_set_aside_and_has_no_memory_yet_is_due)
{
	struct wb_param param = {.dtype = WB_F32};
	struct wb_op op = {.n_row = 1024, .n_col = 1024, .repeat = 1};
	struct wb_map map = {.param = &param, .n_param = 1, .op = &op, .n_op = 1};
	struct wb__worker_area area = {.bytes = 40 * MIB};
	struct wb__worker w = {.object_index = 0, .role = WB_ROLE_ROLLOUT, .map = &map};

	ck_assert_uint_eq(wb__staging_due(&a), 0);
	ck_assert_int_eq(use(0, 16), 0);
	ck_assert_int_eq(use(1, 8), 0);
	ck_assert_uint_eq(wb__staging_due(&a), 24 * MIB);
	touch(0, 12);
	ck_assert_uint_eq(wb__staging_due(&a), 12 * MIB);
	workers = &w;
	ck_assert_uint_eq(wb__staging_due(&a), 12 * MIB); /* it has no area, and gets none */
	w.had_area = true;
	ck_assert_uint_eq(wb__staging_due(&a), 16 * MIB + WB_AREA_HEAD_BYTES);
	w.area = &area;
	ck_assert_uint_eq(wb__staging_due(&a), 12 * MIB);
	workers = NULL;
	ck_assert_int_eq(wb__env_images(a.env, 0, 4 * MIB, &id[0], &err), 0);
	ck_assert_uint_eq(wb__staging_due(&a), 12 * MIB); /* their pages are taken at once */
	is_awake = false;
	wb__env_sleep(a.env, 0);
	ck_assert_uint_eq(wb__staging_due(&a), 28 * MIB);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory");
	TCase *t = tcase_create("memory");

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, slots_follow_the_size_that_each_plan_has);
	tcase_add_test(t, slots_of_the_plan_that_runs_stay_until_the_next_is_installed);
	tcase_add_test(t, snapshots_lie_behind_all_slots_that_there_may_be);
	tcase_add_loop_test(t, slots_that_could_not_be_made_known_are_with_the_next_try, 0, 3);
	tcase_add_loop_test(t, slots_that_are_known_stay_so_when_others_cannot_be_made_known, 0, 3);
	tcase_add_loop_test(
		t, memory_that_was_made_known_half_way_is_known_after_the_next_try, 0, 3);
	tcase_add_loop_test(t, nothing_may_land_in_a_trainer_s_memory_by_a_device, 0,
		(int)WB_ARRAY_SIZE(directions));
	tcase_add_loop_test(t, room_for_snapshots_is_made_anew_unless_a_transfer_uses_it, 0, 2);
	tcase_add_test(t, pages_go_when_no_transfer_of_the_object_uses_them_any_more);
	tcase_add_test(t, the_transport_has_no_pages_that_were_given_back);
	tcase_add_loop_test(t, pages_that_a_worker_s_lane_knows_stay, 0, 2);
	tcase_add_test(t, pages_do_not_wait_for_transfers_of_other_objects);
	tcase_add_loop_test(
		t, pages_stay_for_a_worker_that_woke_before_the_transfer_was_over, 0, 2);
	tcase_add_test(t, a_checksum_that_differed_is_told_of_its_own_object_s_transfer);
	tcase_add_test(t, a_plan_is_held_against_the_limit_with_the_slots_that_it_wants);
	tcase_add_test(t, staging_of_another_object_counts_with_what_is_written_of_it);
	tcase_add_test(t, what_is_set_aside_and_has_no_memory_yet_is_due);
	return fx_run(s);
}
