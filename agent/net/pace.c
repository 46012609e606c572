/* SPDX-License-Identifier: Apache-2.0 */
#include "net/pace.h"

#include "base/base.h"
#include "base/clock.h"

void wb__pace_init(struct wb__pace *p, uint32_t burst, uint32_t a_second)
{
	*p = (struct wb__pace){.step_ns = WB_NS_PER_S / a_second};
	p->burst_ns = (burst - 1) * p->step_ns;
}

static struct wb__pace_source *of(struct wb__pace *p, const struct wb__source *source)
{
	struct wb__pace_source *least = &p->at[0];

	for (uint32_t i = 0; i < p->n; i++) {
		if (wb__source_equal(&p->at[i].source, source))
			return &p->at[i];
		if (p->at[i].due_ns < least->due_ns)
			least = &p->at[i];
	}
	if (p->n < WB__PACE_SOURCES)
		least = &p->at[p->n++];
	*least = (struct wb__pace_source){.source = *source};
	return least;
}

bool wb__pace_take(struct wb__pace *p, const struct wb__source *source, uint64_t now_ns,
	uint64_t latest_ns, uint64_t *at)
{
	struct wb__pace_source *s;
	uint64_t due, turn = now_ns;

	if (!wb__source_is_here(source)) {
		s = of(p, source);
		due = WB_MAX(s->due_ns, now_ns);
		if (due - now_ns > p->burst_ns)
			turn = due - p->burst_ns;
		if (turn > latest_ns)
			return false;
		s->due_ns = due + p->step_ns;
	}
	*at = turn;
	return true;
}
