/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/image.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define CHUNK_ALIGN 64

static void mark(const struct wb_plan *p, uint32_t plan_worker, uint8_t *sends)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->src == plan_worker && r->stage == WB_STAGE_RECEIVE)
			memset(sends + p->cls[r->class_id].chunk_base + r->chunk_begin, 1,
				r->chunk_end - r->chunk_begin);
	}
}

static uint64_t lay_out(const struct wb_plan *p, const uint8_t *sends, struct wb_image *im)
{
	uint64_t at = 0;

	for (uint32_t k = 0; k < p->n_class; k++)
		for (uint32_t c = 0; c < p->cls[k].n_chunk; c++) {
			uint32_t id = p->cls[k].chunk_base + c;

			if (im)
				im->off[id] = sends[id] ? at : WB_IMAGE_NONE;
			if (!sends[id])
				continue;
			if (im) {
				im->cls[im->n] = k;
				im->chunk[im->n++] = c;
			}
			at += wb_align_up(wb_chunk_len(p, &p->cls[k], c), CHUNK_ALIGN);
		}
	return at;
}

uint64_t wb_image_bytes(const struct wb_plan *p, uint32_t plan_worker)
{
	uint8_t *sends = wb_zalloc(p->n_chunk, 1);
	uint64_t bytes;

	if (!sends)
		return UINT64_MAX;
	mark(p, plan_worker, sends);
	bytes = lay_out(p, sends, NULL);
	wb_free(sends);
	return bytes;
}

int wb_image_create(const struct wb_plan *p, uint32_t plan_worker, struct wb_image **out)
{
	struct wb_image *im = wb_zalloc(1, sizeof(*im));
	uint8_t *sends = wb_zalloc(p->n_chunk, 1);

	if (im) {
		im->off = wb_zalloc(p->n_chunk, sizeof(*im->off));
		im->cls = wb_zalloc(p->n_chunk, sizeof(*im->cls));
		im->chunk = wb_zalloc(p->n_chunk, sizeof(*im->chunk));
	}
	if (!sends || !im || !im->off || !im->cls || !im->chunk) {
		wb_free(sends);
		wb_image_destroy(im);
		return -ENOMEM;
	}
	mark(p, plan_worker, sends);
	im->bytes = lay_out(p, sends, im);
	wb_free(sends);
	*out = im;
	return 0;
}

void wb_image_destroy(struct wb_image *im)
{
	if (!im)
		return;
	wb_free(im->off);
	wb_free(im->cls);
	wb_free(im->chunk);
	wb_free(im);
}
