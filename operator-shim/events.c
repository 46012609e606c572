/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/events.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/serve/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "events"
#define IN_FLIGHT 4
/* Wait this long after an occurrence, so that many of them cause one look at what to write. */
#define LOOK_NS (20 * WB_NS_PER_MS)

/* A write under way. */
struct slot {
	struct wb__events *e;
	uint64_t id; /* of its series; 0 = free */
	bool is_new;
};

struct wb__events {
	struct wb_kube *kube; /* owned */
	struct wb_kube_series *series;
	struct wb_metrics *metrics;
	struct wb_timer *timer;
	uint64_t due_ns; /* UINT64_MAX = the timer does not run */
	struct slot slot[IN_FLIGHT];
	char instance[128];
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static void wake(struct wb__events *e, uint64_t at_ns)
{
	uint64_t now = now_ns();

	if (at_ns >= e->due_ns)
		return;
	e->due_ns = at_ns;
	wb_timer_start(e->timer, at_ns > now ? at_ns - now : 0, 0);
}

static void on_written(void *cookie, const struct wb_kube_reply *r)
{
	struct slot *slot = cookie;
	struct wb__events *e = slot->e;
	bool is_gone = r->status == 404 && !slot->is_new; /* Events are kept for an hour */
	bool is_there = r->status == 409 && slot->is_new;
	bool has_failed = r->err.code && !is_gone && !is_there;

	wb_metric_add(
		e->metrics, WB_SM_KUBE_WRITES, WB_LABELS(has_failed ? "event failed" : "event"), 1);
	if (has_failed) {
		wb_metric_add(e->metrics, WB_SM_EVENTS_LEFT_OUT, WB_LABELS("failed"), 1);
		WB_LOG_WRN(MOD, "event not written", WB_S("why", r->err.msg));
	}
	wb_kube_series_wrote(e->series, now_ns(), slot->id,
		is_gone      ? WB_KUBE_VANISHED
		: is_there   ? WB_KUBE_IS_THERE
		: has_failed ? WB_KUBE_NOT_WRITTEN
			     : WB_KUBE_WRITTEN);
	slot->id = 0;
	wake(e, now_ns());
}

static void send(struct wb__events *e, struct slot *slot, const struct wb_kube_series_write *w)
{
	struct wb_kube_call call = {.method = w->is_new ? "POST" : "PATCH",
		.content_type = w->is_new ? NULL : WB_KUBE_MERGE,
		.done = on_written,
		.cookie = slot};
	struct wb_buf b;

	*slot = (struct slot){e, w->id, w->is_new};
	wb_buf_init(&b, 4096);
	wb_kube_event_path(&b, w);
	call.path = wb_buf_cstr(&b);
	call.body = wb_kube_event_body(w, e->instance);
	if (!call.body || b.rc || wb_kube_send(e->kube, &call, NULL) < 0) {
		wb_kube_series_wrote(e->series, now_ns(), w->id, WB_KUBE_NOT_WRITTEN);
		wb_metric_add(e->metrics, WB_SM_EVENTS_LEFT_OUT, WB_LABELS("memory"), 1);
		slot->id = 0;
	}
	json_decref(call.body);
	wb_buf_finish(&b);
}

static struct slot *free_slot(struct wb__events *e)
{
	for (size_t i = 0; i < IN_FLIGHT; i++)
		if (!e->slot[i].id)
			return &e->slot[i];
	return NULL;
}

static void on_timer(void *cookie)
{
	struct wb__events *e = cookie;
	struct wb_kube_series_write w;
	struct slot *slot;

	e->due_ns = UINT64_MAX;
	while ((slot = free_slot(e)) && wb_kube_series_next(e->series, now_ns(), &w))
		send(e, slot, &w);
	if (slot) /* else the end of a write calls this again */
		wake(e, wb_kube_series_due(e->series, now_ns()));
}

void wb__events_add(struct wb__events *e, const struct wb_kube_occurrence *o)
{
	int rc = wb_kube_series_add(e->series, now_ns(), wb_wall_ns(), wb_kube_random(), o);

	if (rc < 0)
		wb_metric_add(e->metrics, WB_SM_EVENTS_LEFT_OUT,
			WB_LABELS(rc == -ENOBUFS ? "budget" : "memory"), 1);
	else
		wake(e, now_ns() + LOOK_NS);
}

int wb__events_start(struct wb_loop *loop, struct wb_kube *kube_take, struct wb_metrics *metrics,
	const char *instance, struct wb__events **out)
{
	struct wb__events *e = wb_zalloc(1, sizeof(*e));

	if (!e) {
		wb_kube_destroy(kube_take);
		return -ENOMEM;
	}
	e->kube = kube_take;
	e->metrics = metrics;
	e->due_ns = UINT64_MAX;
	snprintf(e->instance, sizeof(e->instance), "%s", instance);
	e->series = wb_kube_series_create();
	if (!e->series || wb_timer_create(loop, on_timer, e, &e->timer) < 0) {
		wb__events_stop(e);
		return -ENOMEM;
	}
	*out = e;
	return 0;
}

void wb__events_stop(struct wb__events *e)
{
	if (!e)
		return;
	wb_timer_destroy(e->timer);
	wb_kube_destroy(e->kube); /* no callback comes after this */
	wb_kube_series_destroy(e->series);
	wb_free(e);
}
