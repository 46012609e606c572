/* SPDX-License-Identifier: Apache-2.0 */
/* The paper's lower bound: max(model / trainer egress, a node's need / its ingress). */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>

struct node_sum {
	uint64_t need_bytes, rate;
	uint32_t seen; /* class + 1 last counted */
};

/* Bytes every node needs, each once: a direct class only where its primary does not come too. */
static void sum_needs(const struct wb_plan *p, struct node_sum *node)
{
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];
		const struct wb_class *first = &p->cls[k->primary];

		for (uint32_t i = first->needer_begin; k->primary != c && i < first->needer_end;
			i++)
			node[p->worker[p->member[i]].node].seen = c + 1;
		for (uint32_t i = k->needer_begin; i < k->needer_end; i++) {
			struct node_sum *n = &node[p->worker[p->member[i]].node];

			if (n->seen == c + 1)
				continue;
			n->seen = c + 1;
			n->need_bytes += k->bytes;
		}
	}
}

int64_t wb__node_bound(const struct wb_plan *p, uint32_t *node_out)
{
	struct node_sum *node = wb_zalloc(p->n_worker, sizeof(*node));
	uint64_t model = 0, egress = 0;
	bool is_rated = true;
	double best;

	if (!node)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_worker; i++) {
		const struct wb_plan_worker *w = &p->worker[i];

		is_rated &= w->rail_bytes_per_s != 0;
		if (w->role == WB_ROLE_TRAINER)
			egress += w->rail_bytes_per_s;
		else
			node[w->node].rate += w->rail_bytes_per_s;
	}
	for (uint32_t c = 0; c < p->n_class; c++)
		model += p->cls[c].primary == c ? p->cls[c].bytes : 0;
	sum_needs(p, node);
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
	return is_rated ? wb__ns_of(best) : 0;
}
