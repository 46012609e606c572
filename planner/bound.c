/* SPDX-License-Identifier: Apache-2.0 */
/* The least time that a transfer can take: the model's bytes divided by the egress of all trainers,
 * or the bytes that a node needs divided by its ingress, whichever is largest.  Bytes that cross no
 * rail, because one node both holds and needs them, do not count. */
#include "planner/internal.h"

#include "base/mem.h"

#include <errno.h>

struct node_sum {
	uint64_t need_bytes, rate;
	uint32_t seen; /* class + 1 last counted */
};

/* Add @bytes once to each node in which a needer gets the class by a rail.  Returns false if a
 * needer gets it through memory, and so can pass it on. */
static bool see(const struct wb_plan *p, const struct wb_class *k, uint32_t stamp,
	const uint32_t *mark, uint64_t bytes, struct node_sum *node)
{
	bool is_crossing = true;

	for (uint32_t i = k->needer_begin; i < k->needer_end; i++) {
		const struct wb_plan_worker *w = &p->worker[p->member[i]];
		struct node_sum *n = &node[w->node];

		if (mark[w->node] == stamp) {
			is_crossing = false;
			continue;
		}
		n->need_bytes += n->seen == stamp ? 0 : bytes;
		n->seen = stamp;
	}
	return is_crossing;
}

/* Sum up the bytes that each node needs by its rails, each byte once: a direct class counts only in
 * nodes that do not get its primary class by a rail.  @model: bytes that must leave the trainers by
 * their rails. */
static void sum_needs(
	const struct wb_plan *p, uint32_t *mark, struct node_sum *node, uint64_t *model)
{
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];
		bool is_crossing;

		wb__mark_holders(p, c, mark);
		if (k->primary != c)
			see(p, &p->cls[k->primary], c + 1, mark, 0, node);
		is_crossing = see(p, k, c + 1, mark, k->bytes, node);
		*model += k->primary == c && is_crossing ? k->bytes : 0;
	}
}

int64_t wb__node_bound(const struct wb_plan *p, uint32_t *node_out)
{
	struct node_sum *node = wb_zalloc(p->n_worker, sizeof(*node));
	uint32_t *mark = wb_zalloc(p->n_worker, sizeof(*mark));
	uint64_t model = 0, egress = 0;
	bool is_rated = true;
	double best;

	if (!node || !mark) {
		wb_free(node);
		wb_free(mark);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < p->n_worker; i++) {
		const struct wb_plan_worker *w = &p->worker[i];

		is_rated &= w->rail_bytes_per_s != 0;
		if (w->role == WB_ROLE_TRAINER)
			egress += w->rail_bytes_per_s;
		else
			node[w->node].rate += w->rail_bytes_per_s;
	}
	sum_needs(p, mark, node, &model);
	best = egress ? (double)model / (double)egress : 0;
	if (node_out)
		*node_out = UINT32_MAX;
	for (uint32_t v = 0; v < p->n_worker; v++) {
		double time = node[v].rate ? (double)node[v].need_bytes / (double)node[v].rate : 0;

		if (time <= best)
			continue;
		best = time;
		if (node_out)
			*node_out = v;
	}
	wb_free(node);
	wb_free(mark);
	return is_rated ? wb__ns_of(best) : 0;
}

const char *wb_plan_bound_by(const struct wb_plan *p)
{
	uint32_t node;

	if (!p->worker_bound_ns || wb__node_bound(p, &node) < 0)
		return NULL;
	if (p->worker_bound_ns - p->worker_bound_ns / 100 > p->node_bound_ns)
		return "rail of one worker";
	return node == UINT32_MAX ? "trainer egress" : "rollout ingress";
}
