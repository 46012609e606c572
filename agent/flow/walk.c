/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/walk.h"

#include "base/base.h"

#include <errno.h>
#include <string.h>

void wb_walk_start(struct wb_walk *w, const struct wbk_box *box, uint32_t n_box,
	const struct wbk_sum_keys *keys)
{
	memset(w, 0, sizeof(*w));
	w->box = box;
	w->n_box = n_box;
	w->keys = keys;
}

/* Wire bytes from @in_box on that are adjacent in the checkpoint too, and their position there. */
static uint64_t run_at(const struct wbk_box *b, uint64_t in_box, uint64_t *pos)
{
	uint64_t elem = b->wire_elem, row_bytes = (uint64_t)b->n_col * elem;
	uint64_t row = in_box / row_bytes, in_row = in_box % row_bytes;

	*pos = b->pos + row * b->pos_row_stride;
	if (b->n_col > 1 && b->pos_col_stride != elem) {
		*pos += in_row / elem * b->pos_col_stride + in_row % elem;
		return elem - in_row % elem;
	}
	*pos += in_row;
	if (b->n_row == 1 || b->pos_row_stride == row_bytes)
		return row_bytes * b->n_row - in_box;
	return row_bytes - in_row;
}

/* The next bytes of the image lie at @p; they are copied to @dst unless it is NULL. */
static void walk(struct wb_walk *w, uint8_t *dst, const uint8_t *p, size_t bytes)
{
	while (bytes) {
		const struct wbk_box *b = &w->box[w->at];
		uint64_t pos, run;

		assert(w->at < w->n_box);
		run = run_at(b, w->in_box, &pos);
		run = WB_MIN(run, bytes);
		if (dst)
			wbk_sum_copy(w->keys, pos, dst, p, run, &w->sum);
		else
			wbk_sum_add(w->keys, pos, p, run, &w->sum);
		dst = dst ? dst + run : NULL;
		p += run;
		bytes -= run;
		w->in_box += run;
		if (w->in_box == (uint64_t)b->n_row * b->n_col * b->wire_elem) {
			w->at++;
			w->in_box = 0;
		}
	}
}

void wb_walk_feed(struct wb_walk *w, const void *data, size_t bytes)
{
	if (w->keys)
		walk(w, NULL, data, bytes);
}

void wb_walk_copy(struct wb_walk *w, void *to, const void *from, size_t bytes)
{
	if (w->keys)
		walk(w, to, from, bytes);
	else
		wbk_sum_copy(NULL, 0, to, from, bytes, NULL);
}

void wb_walk_copy_end(void)
{
	wbk_copy_end();
}

static int add_run(struct iovec *iov, size_t *n, size_t cap, char *at, size_t bytes)
{
	if (*n && (char *)iov[*n - 1].iov_base + iov[*n - 1].iov_len == at) {
		iov[*n - 1].iov_len += bytes;
		return 0;
	}
	if (*n == cap)
		return -EOPNOTSUPP;
	iov[(*n)++] = (struct iovec){at, bytes};
	return 0;
}

int wb_walk_runs(const struct wbk_box *box, uint32_t n_box, void *const *bases,
	size_t run_bytes_min, struct iovec *iov, size_t cap)
{
	uint64_t total = 0;
	size_t n = 0;

	for (uint32_t i = 0; i < n_box; i++) {
		const struct wbk_box *b = &box[i];
		size_t row_bytes = (size_t)b->n_col * b->wire_elem;

		if (b->cast != WBK_COPY || b->repeat > 1 ||
			(b->n_col > 1 && b->col_stride != b->wire_elem))
			return -EOPNOTSUPP;
		if (row_bytes * 4 < run_bytes_min && b->n_row > 16 &&
			b->row_stride != (int64_t)row_bytes)
			return -EOPNOTSUPP;
		for (uint32_t r = 0; r < b->n_row; r++) {
			char *at = (char *)bases[b->base] + b->mem_off + (int64_t)r * b->row_stride;

			if (add_run(iov, &n, cap, at, row_bytes) < 0)
				return -EOPNOTSUPP;
		}
		total += row_bytes * b->n_row;
	}
	return total / (n ? n : 1) < run_bytes_min && n > 1 ? -EOPNOTSUPP : (int)n;
}
