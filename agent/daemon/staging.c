/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/staging.h"

#include "base/base.h"
#include "base/err.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/area.h"
#include "daemon/env.h"
#include "daemon/oplink.h"
#include "daemon/worker.h"
#include "flow/image.h"
#include "lane/area.h"
#include "planner/plan.h"
#include "proto/messages.h"
#include "transfer/roster.h"

#include <errno.h>
#include <stdio.h>

#define IMAGE_ALIGN 4096

static unsigned long long ull(uint64_t v)
{
	return v;
}

static bool is_mine(const struct wb__staging_in *in, uint32_t w, enum wb_role role)
{
	assert(w < in->roster->plan->n_worker);
	return in->roster->plan->worker[w].domain == in->roster->me &&
	       in->roster->plan->worker[w].role == role;
}

static uint64_t image_bytes(const struct wb__staging_in *in)
{
	uint64_t bytes = 0;

	if (in->object->sender_staging != WB_STAGING_HOST_MEMORY)
		return 0;
	for (uint32_t w = 0; w < in->roster->plan->n_worker; w++)
		if (is_mine(in, w, WB_ROLE_TRAINER))
			bytes += wb_align_up(wb_image_bytes(in->roster->plan, w), IMAGE_ALIGN);
	return bytes;
}

/* How much of the area's memfd is written; the rest takes no memory. */
static uint64_t area_of(const struct wb__worker *w)
{
	return WB_AREA_HEAD_BYTES + wb_area_used(w->map);
}

static uint64_t area_bytes(const struct wb__agent *a, const struct wb__staging_in *in)
{
	uint64_t bytes = 0;

	if (in->object->receiver_staging != WB_STAGING_HOST_MEMORY)
		return 0;
	for (uint32_t i = 0; i < in->roster->plan->n_worker; i++) {
		const struct wb__worker *w =
			is_mine(in, i, WB_ROLE_ROLLOUT)
				? wb__apps_find(a->apps, in->roster->worker[i].local)
				: NULL;

		bytes += w ? area_of(w) : 0;
	}
	return bytes;
}

/* What the other objects of this agent have: one limit is for all. */
static uint64_t others_have(const struct wb__agent *a, uint32_t index)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < a->o.n_served; i++)
		bytes += i == index ? 0 : wb__env_images_used(a->env, i);
	for (const struct wb__worker *w = wb__apps_first(a->apps); w; w = w->next)
		if (w->object_index != index && w->area)
			bytes += area_of(w);
	return bytes;
}

/* Slots of all objects, where object @index has @bytes. */
static uint64_t slots_with(const struct wb__agent *a, uint32_t index, uint64_t bytes)
{
	return wb__env_arena_used(a->env) - wb__env_slots_used(a->env, index) + bytes;
}

uint64_t wb__staging_left(const struct wb__agent *a, uint32_t index, uint64_t buffer_bytes)
{
	uint64_t group = wb__memory_limit(), taken = others_have(a, WB__OBJECTS_MAX);

	if (!group)
		return UINT64_MAX;
	taken += slots_with(a, index, WB_MAX(wb__env_slots_used(a->env, index), buffer_bytes));
	return group > taken ? group - taken : 0;
}

uint64_t wb__staging_due(const struct wb__agent *a)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < a->o.n_served; i++)
		bytes += wb__env_due(a->env, i);
	for (const struct wb__worker *w = wb__apps_first(a->apps); w; w = w->next)
		if (!w->area && w->map && (w->had_area || w->area_raw.is_made))
			bytes += area_of(w);
	return bytes;
}

int wb__staging_check(
	const struct wb__agent *a, const struct wb__staging_in *in, struct wb_err *err)
{
	uint64_t group = wb__memory_limit(), others = others_have(a, in->object_index);
	uint64_t slots = slots_with(a, in->object_index, in->buffer_bytes);
	uint64_t images = image_bytes(in), areas = area_bytes(a, in), need = images + areas;
	char beside[64] = "";

	if (others)
		snprintf(beside, sizeof(beside), ", beside %llu of other objects", ull(others));
	if (need && a->o.staging_limit_bytes && need + others > a->o.staging_limit_bytes)
		return wb_err_set(err, -ENOMEM,
			"staging takes %llu bytes at agent %s (%llu for snapshots, %llu for "
			"staging "
			"areas%s), --staging-limit is %llu: raise it, or set spec.staging to None",
			ull(need), a->o.name, ull(images), ull(areas), beside,
			ull(a->o.staging_limit_bytes));
	if (!group || need + others + slots <= group)
		return 0;
	if (!need)
		return wb_err_set(err, -ENOMEM,
			"buffers take %llu bytes at agent %s%s, the memory limit is %llu: raise "
			"it, or "
			"lower bufferSize of spec.trainer or spec.rollout",
			ull(slots), a->o.name, beside, ull(group));
	return wb_err_set(err, -ENOMEM,
		"staging takes %llu bytes at agent %s (%llu for snapshots, %llu for staging "
		"areas%s) beside %llu of buffers, the memory limit is %llu: raise it, or set "
		"spec.staging to None",
		ull(need), a->o.name, ull(images), ull(areas), beside, ull(slots), ull(group));
}

static int reserve_images(
	struct wb__agent *a, const struct wb__staging_in *in, uint64_t bytes, struct wb_err *err)
{
	int rc = wb__env_images(a->env, in->object_index, bytes, &in->roster->id.object, err);
	uint8_t *at;

	if (rc < 0 || !bytes)
		return rc;
	at = wb__env_images_base(a->env, in->object_index);
	for (uint32_t w = 0; w < in->roster->plan->n_worker; w++) {
		uint64_t n;

		if (!is_mine(in, w, WB_ROLE_TRAINER))
			continue;
		n = wb_align_up(wb_image_bytes(in->roster->plan, w), IMAGE_ALIGN);
		wb_transfer_set_image(a->core, in->roster->worker[w].local, at, n);
		at += n;
	}
	assert(at == wb__env_images_base(a->env, in->object_index) + bytes);
	return 0;
}

static int worst(int a, int b)
{
	return b == 0 || (b == -EINPROGRESS && a < 0) ? a : b;
}

static int reserve_areas(
	struct wb__agent *a, const struct wb__staging_in *in, uint64_t bytes, struct wb_err *err)
{
	int rc = 0;

	/* All at once: their pages are taken side by side. */
	for (uint32_t i = 0;
		bytes && (rc == 0 || rc == -EINPROGRESS) && i < in->roster->plan->n_worker; i++) {
		struct wb__worker *w = is_mine(in, i, WB_ROLE_ROLLOUT)
					       ? wb__apps_find(a->apps, in->roster->worker[i].local)
					       : NULL;

		if (w && wb_transfer_is_asleep(a->core, w->id))
			w->had_area = true; /* gets it when its memory is there again */
		else if (w)
			rc = worst(rc, wb__worker_area(w, err));
	}
	return rc;
}

int wb__staging_reserve(struct wb__agent *a, const struct wb__staging_in *in, struct wb_err *err)
{
	int rc = reserve_images(a, in, image_bytes(in), err);

	return rc < 0 ? rc : reserve_areas(a, in, area_bytes(a, in), err);
}
