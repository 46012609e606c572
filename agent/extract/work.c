/* SPDX-License-Identifier: Apache-2.0 */
/* Runs tasks on several threads, and cuts parameters into pieces for them. */
#include "base/base.h"
#include "base/mem.h"
#include "base/thread.h"
#include "extract/internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define PIECE_ELEMS (4u << 20)
#define THREADS_MAX 64

struct crew {
	wb__task_fn fn;
	void *ctx;
	size_t n;
	atomic_size_t next;
	atomic_int rc;
};

static void *work(void *arg)
{
	struct crew *c = arg;

	for (;;) {
		size_t i = atomic_fetch_add(&c->next, 1);
		int rc, none = 0;

		if (i >= c->n || atomic_load(&c->rc))
			return NULL;
		rc = c->fn(c->ctx, i);
		if (rc < 0)
			atomic_compare_exchange_strong(&c->rc, &none, rc);
	}
}

int wb__parallel(uint32_t threads, size_t n, wb__task_fn fn, void *ctx)
{
	struct crew c = {.fn = fn, .ctx = ctx, .n = n};
	pthread_t id[THREADS_MAX];
	uint32_t begun = 0;

	/* This thread works, too.  If a thread cannot be started, the work only takes longer. */
	while (begun + 1 < WB_MIN(threads, THREADS_MAX) && begun + 1 < n)
		if (wb_thread_start(&id[begun], "wb-extract", work, &c) < 0)
			break;
		else
			begun++;
	work(&c);
	while (begun)
		pthread_join(id[--begun], NULL);
	return atomic_load(&c.rc);
}

static size_t cut(const struct wb__geom *g, uint32_t param, struct wb__piece *out)
{
	size_t n = 0;
	uint64_t rows = WB_MAX(PIECE_ELEMS / g->cols, 1);

	if (g->rows_all == 1) {
		for (uint64_t c = 0; c < g->cols; c += PIECE_ELEMS, n++)
			if (out)
				out[n] = (struct wb__piece){
					param, 0, 1, c, WB_MIN(c + PIECE_ELEMS, g->cols)};
		return n;
	}
	for (uint64_t r = 0; r < g->rows_all; r += rows, n++)
		if (out)
			out[n] = (struct wb__piece){
				param, r, WB_MIN(r + rows, g->rows_all), 0, g->cols};
	return n;
}

bool wb__takes_part(const struct wb__param *a)
{
	return a->state == WB__ACTIVE && !a->has_digits && a->geom.total;
}

static bool takes_part(const struct wb__param *a)
{
	return wb__takes_part(a) && !a->dev;
}

int wb__pieces(const struct wb_probe *p, struct wb__piece **out, size_t *n_out)
{
	struct wb__piece *piece;
	size_t n = 0, at = 0;

	for (uint32_t i = 0; i < p->n_param; i++)
		if (takes_part(&p->param[i]))
			n += cut(&p->param[i].geom, i, NULL);
	piece = wb_zalloc(n, sizeof(*piece));
	if (!piece)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_param; i++)
		if (takes_part(&p->param[i]))
			at += cut(&p->param[i].geom, i, piece + at);
	*out = piece;
	*n_out = n;
	return 0;
}
