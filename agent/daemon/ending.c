/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ending.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <unistd.h>

struct wb__ending {
	struct wb_timer *timer;
	struct wb_watch *watch; /* of process; NULL = it cannot be watched */
	int process; /* owned; negative = none */
	bool is_over;
	wb_loop_fn on_over;
	void *cookie;
};

static void over(void *cookie)
{
	struct wb__ending *e = cookie;

	if (e->is_over)
		return;
	e->is_over = true;
	wb_timer_stop(e->timer);
	if (e->watch)
		wb_watch_set(e->watch, 0);
	e->on_over(e->cookie);
}

static void fired(void *cookie, int events)
{
	(void)events;
	over(cookie);
}

int wb__ending_begin(struct wb_loop *loop, int process, wb_loop_fn on_over, void *cookie,
	struct wb__ending **out)
{
	struct wb__ending *e;

	*out = NULL;
	if (process == -ESRCH)
		return 0;
	e = wb_zalloc(1, sizeof(*e));
	if (!e) {
		if (process >= 0)
			close(process);
		return -ENOMEM;
	}
	e->process = process;
	e->on_over = on_over;
	e->cookie = cookie;
	if (wb_timer_create(loop, over, e, &e->timer)) {
		wb__ending_destroy(e);
		return -ENOMEM;
	}
	if (process >= 0 && wb_watch_create(loop, process, WB_READABLE, fired, e, &e->watch))
		e->watch = NULL;
	wb_timer_start(e->timer, e->watch ? WB__ENDING_MAX_NS : WB__ENDING_BLIND_NS, 0);
	*out = e;
	return 0;
}

bool wb__ending_is_over(const struct wb__ending *e)
{
	return e->is_over;
}

void wb__ending_destroy(struct wb__ending *e)
{
	if (!e)
		return;
	wb_watch_destroy(e->watch);
	wb_timer_destroy(e->timer);
	if (e->process >= 0)
		close(e->process);
	wb_free(e);
}
