/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_INTERNAL_H
#define WB_PLANNER_INTERNAL_H
/*
 * Shared by the files of the planner; not for others.
 *
 * The steps of making a plan: wb__faults collects what is wrong; wb__overlap proves that no
 * parameter element has two sources; wb__refine cuts tensors into segments and finds the sets that
 * hold and need them; wb__classes turns sets of layouts into classes over workers; wb__shares
 * splits classes over workers, and lends rails; wb__routes cuts the chunk grids.  Layer: planner
 * (L1).
 */
#include "base/buf.h"
#include "planner/plan.h"

#include <errno.h>

struct wb_err;

/** wb__ns_of - @s >= 0 seconds in ns; INT64_MAX if that is too much, as a plan read from a file may
 * have any rate. */
static inline int64_t wb__ns_of(double s)
{
	return s < 9.2e9 ? (int64_t)(s * 1e9) : INT64_MAX;
}

/** wb__name_read - read a name of 1..WB_NAME_MAX bytes; *out is owned.  0, -EBADMSG or -ENOMEM. */
int wb__name_read(struct wb_cursor *c, char **out);

/* ---- sets of numbers, each stored once (set.c) ---- */

struct wb__sets {
	uint32_t *val; /* owned: all elements */
	uint32_t *begin; /* owned: set i is val[begin[i] .. begin[i + 1]) */
	uint32_t *slot; /* owned: open hash table of set number + 1 */
	size_t cap_val, cap_begin, n_slot;
	uint32_t n;
};

/** wb__sets_init - make the sets, of which set 0 is the empty set.  0 or -ENOMEM. */
int wb__sets_init(struct wb__sets *s);
/** wb__sets_finish - free the sets; the struct is zeroed. */
void wb__sets_finish(struct wb__sets *s);
/** wb__sets_put - number of the set @v[0..n), which is ascending without repeats; it is added if it
 * is new.  Or -ENOMEM, -E2BIG. */
int64_t wb__sets_put(struct wb__sets *s, const uint32_t *v, uint32_t n);
/** wb__set_len - number of elements of set @i, which must be below @s->n. */
static inline uint32_t wb__set_len(const struct wb__sets *s, uint32_t i)
{
	return s->begin[i + 1] - s->begin[i];
}

/* ---- what is wrong with the input, listed (faults.c) ---- */

struct wb__faults {
	char text[960];
	size_t len;
	uint32_t n, n_shown;
};

/** wb__plan_fault - note one more fault.  Faults are shown in the order of the calls until the text
 * is full; the others are only counted. */
void wb__plan_fault(struct wb__faults *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/** wb__plan_faults_rc - 0 without faults, else WB_EPLAN and the sentence. */
int wb__plan_faults_rc(const struct wb__faults *f, struct wb_err *err);

/* ---- one-dimensional lattices (lattice.c) ---- */

struct wb__axis {
	uint64_t first, step, n; /* first + i * step, i < n; step >= 1, n >= 1 */
};

/** wb__axis_common - number of values that are in both. */
uint64_t wb__axis_common(struct wb__axis a, struct wb__axis b);
/** wb__axis_has - every value of @in is one of @a. */
bool wb__axis_has(struct wb__axis a, struct wb__axis in);

/** wb__op_rows, wb__op_cols - rows (columns) of its tensor that an op reads. */
static inline struct wb__axis wb__op_rows(const struct wb_op *o)
{
	return (struct wb__axis){o->row, o->row_step, o->n_row};
}
static inline struct wb__axis wb__op_cols(const struct wb_op *o)
{
	return (struct wb__axis){o->col, o->col_step, o->n_col};
}
/** wb__seg_rows, wb__seg_cols - rows (columns) of its tensor that a segment covers. */
static inline struct wb__axis wb__seg_rows(const struct wb_segment *s)
{
	return (struct wb__axis){s->row, s->row_step, s->n_row};
}
static inline struct wb__axis wb__seg_cols(const struct wb_segment *s)
{
	return (struct wb__axis){s->col, s->col_step, s->n_col};
}

/* ---- the steps of planning ---- */

/* A layout as the planner uses it. */
struct wb__layout {
	const struct wb_map *map;
	uint32_t trainer, rollout; /* a worker of the role that has it, UINT32_MAX = none */
};

/* The sets of layouts that hold a segment, need it exactly, and need it rounded. */
struct wb__combo {
	uint32_t held, exact, lossy; /* set numbers */
	uint32_t dtype;
	uint32_t cls_exact, cls_lossy; /* class numbers once known, else UINT32_MAX */
};

struct wb__work {
	const struct wb_plan_input *in;
	struct wb__layout *layout; /* owned, in->n_layout */
	struct wb__faults faults;
	struct wb__sets sets; /* of layouts */
	struct wb__combo *combo; /* owned */
	size_t cap_combo;
	uint32_t n_combo;
	uint32_t *combo_slot; /* owned: open hash table of combo number + 1 */
	size_t n_combo_slot;
	struct wb_segment *seg; /* owned; class_id is a combo number; ordered by tensor, row, col */
	size_t cap_seg, n_seg;
	struct wb_plan *plan; /* owned until it is done */
	size_t cap_member;
	uint64_t spent; /* of WB__WORK_MAX */
	char limit[400]; /* which limit was exceeded, and where; empty = a size of the plan */
};

/*
 * Bounds the time for maps that are made to cost time: ops that all cross each other cost the
 * square of their number.  The unit is about a nanosecond, counted and not measured, so that equal
 * input gives equal results.  The largest deployments that were tried spend a twentieth of it.
 */
#define WB__WORK_MAX (UINT64_C(1) << 34)

/** wb__spend - count work; -E2BIG when it is too much. */
static inline int wb__spend(struct wb__work *w, uint64_t units)
{
	w->spent += units < WB__WORK_MAX ? units : WB__WORK_MAX;
	return w->spent > WB__WORK_MAX ? -E2BIG : 0;
}

/** wb__who - write "trainer worker 3", or the same with the worker's name, to @out. */
void wb__who(const struct wb_plan_input *in, uint32_t worker, char *out, size_t cap);

/** wb__overlap - list the parameters of a layout in which an element has two sources or, for a
 *  rollout layout, none.  0, -ENOMEM or -E2BIG. */
int wb__overlap(struct wb__work *w, const struct wb__layout *l);
/** wb__refine - make segments and combos of every tensor; faults: bytes that nobody holds, unknown
 * casts.  0; -ENOMEM; -E2BIG with w->limit. */
int wb__refine(struct wb__work *w);
/** wb__classes - make plan->cls, segment and member from segments and combos. */
int wb__classes(struct wb__work *w);

/* Work of one kind that may be split over its members. */
struct wb__group {
	uint64_t bytes;
	const uint32_t *member; /* borrowed */
	uint32_t n;
	/* For taking: the first n_need members need it, the others lend their rails */
	uint32_t n_need;
	uint64_t *share; /* n counts of bytes whose sum is bytes; written by wb__balance() */
};

enum wb__begin { WB__BEGIN_BY_RATE, WB__BEGIN_AS_IS };

/**
 * wb__balance - split groups over members so that the most loaded member ends as early as possible
 * @rate:	relative rate of each member number below @n_member, > 0
 * @begin:	start from a split by rate, or from the present shares
 * @time:	in: no member needs to end earlier than this; out: greatest load / rate of the best
 *		split, or the given time if that is greater
 * Returns 0 or -ENOMEM.
 */
int wb__balance(struct wb__group *g, uint32_t n, const double *rate, uint32_t n_member,
	enum wb__begin begin, double *time);

/* How a plan's classes are shared: there is a group for each holder set, and for each needer set
 * one group per node (per worker if the class is direct).  Classes with equal sets use the same
 * groups. */
struct wb__shares {
	struct wb__group *send, *take; /* owned */
	uint64_t *bytes; /* owned: storage of the shares */
	uint32_t *take_member; /* owned: needer sets ordered by (node, domain, worker) */
	/* Owned; for groups to which rails are lent: needers, then others of their domains. */
	uint32_t *lent_member;
	uint64_t *lent_bytes;
	double *rate; /* owned: rate of each worker's rail, 1 if rates are not known */
	uint32_t *send_of; /* owned: group of each class */
	uint32_t *take_begin, *take_end; /* owned: groups of each class */
	uint32_t n_send, n_take;
	/* Most nodes that get a class's chunk from the node that received it, including this
	 * node */
	uint32_t nodes_max;
	/* Bytes / rate of the most loaded rail in the best split of what must cross the network,
	 * when any rail of the node that needs it may take it. */
	double send_time, take_time;
	double time; /* time of the most loaded rail with these shares, approximately */
	uint64_t send_max, take_max; /* bytes of the most loaded worker */
	bool is_rated; /* every rate is known: times are seconds */
	bool may_lend;
};

/** wb__n_spread - how often trainers send a class that @n nodes need. */
static inline uint32_t wb__n_spread(uint32_t nodes_max, uint32_t n)
{
	return n / nodes_max + (n % nodes_max ? 1 : 0);
}

/** wb__mark_holders - mark[v] = @cls + 1 for each node v with a holder of class @cls: its rollouts
 * get what they need of the class through memory, which loads no rail. */
static inline void wb__mark_holders(const struct wb_plan *p, uint32_t cls, uint32_t *mark)
{
	for (uint32_t i = p->cls[cls].holder_begin; i < p->cls[cls].holder_end; i++)
		mark[p->worker[p->member[i]].node] = cls + 1;
}

/** wb__take_time - the bytes that a node takes from the network divided by what its rails take in a
 * second; the maximum over all nodes.  0 or -ENOMEM. */
int wb__take_time(const struct wb_plan *p, const struct wb__shares *s, double *out);
/** wb__lend_rails - balance what each node takes from the network, node by node.  If the needers'
 * own rails would end later than the transfer has to (by @s->send_time and take_time), rails of
 * others in their domains are lent to them.  0 or -ENOMEM. */
int wb__lend_rails(const struct wb_plan *p, struct wb__shares *s);
/** wb__shares_make - balance both sides of a plan that has classes and members; @may_lend: rails
 *  may be lent.  0 or -ENOMEM. */
int wb__shares_make(const struct wb_plan *p, bool may_lend, struct wb__shares *out);
/** wb__shares_finish - free what wb__shares_make() made; the struct is zeroed. */
void wb__shares_finish(struct wb__shares *s);
/** wb__route_order - compare two routes by their order in a plan: by stage, dst, class,
 * chunk_begin. */
int wb__route_order(const void *a, const void *b);
/** wb__routes_make - make plan->route, which must be empty, from the shares; the grids must be set.
 * @few_peers: small classes go whole to one node first, instead of a little to each: then rollouts
 * talk to fewer trainers, which send less evenly.  0, -ENOMEM, -E2BIG. */
int wb__routes_make(struct wb_plan *p, const struct wb__shares *s, bool few_peers);
/* A class and its size. */
struct wb__sized {
	uint64_t bytes;
	uint32_t cls;
};
/** wb__classes_by_size - all classes, the largest first, those of equal size by number.  The caller
 * frees the array; NULL when memory is short. */
struct wb__sized *wb__classes_by_size(const struct wb_plan *p);
/** wb__node_bound - the least time that a transfer can take, in ns; *node: the node that sets the
 * bound, UINT32_MAX = trainer egress.  0 when a rate is unknown.  -ENOMEM is negative. */
int64_t wb__node_bound(const struct wb_plan *p, uint32_t *node);

/** wb__class_is_of - is some worker of @domain a holder or needer of the class? */
bool wb__class_is_of(const struct wb_plan *p, const struct wb_class *k, uint32_t domain);
/** wb__plan_name - set the digest of a whole plan, which is that of its encoding in version 1; 0 or
 * -ENOMEM. */
int wb__plan_name(struct wb_plan *p);
/** wb__plan_sane - check that every number of a plan, or of a part of one, is in range; 0 or
 * -EBADMSG. */
int wb__plan_sane(const struct wb_plan *p, struct wb_err *err);
/** wb__check_routes - check that every needer gets every chunk once, in the order of the stages.  0
 * or negative. */
int wb__check_routes(const struct wb_plan *p, struct wb_err *err);

#endif
