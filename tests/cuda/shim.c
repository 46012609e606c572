/* SPDX-License-Identifier: Apache-2.0 */
/* A checked longjmp() takes a jump to another stack for an error. */
#undef _FORTIFY_SOURCE
#include "tests/cuda/shim.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

#define MOST 1024
#define STACK (128u << 10)

struct wbt_dim threadIdx, blockIdx, blockDim, gridDim;
uint64_t wbt_shim_order;

/* Where something that does not run goes on: it is entered by its context, and left and resumed by
 * a jump, which costs no system call. Sanitizers follow contexts alone. */
struct place {
	ucontext_t ctx;
	jmp_buf at;
	bool is_entered;
};

struct fiber {
	struct place place;
	char *stack;
	bool is_done;
	uint64_t n_sync; /* barriers reached */
	uint64_t n_exchange;
	void *sanitizer;
};

/* Values given to an exchange, kept until all lanes have given for the next but one. */
struct warp {
	uint64_t x[2][32];
	uint64_t n_given; /* in all */
};

static struct {
	void (*kernel)(const void *);
	const void *args;
	struct fiber fiber[MOST];
	struct warp warp[MOST / 32];
	struct place main;
	void *main_sanitizer;
	unsigned now; /* the fiber that runs */
	uint64_t n_at_sync; /* threads that reached a barrier, in all */
	uint64_t any[2]; /* barriers at which a thread said yes */
	uint64_t n_given; /* lanes that reached an exchange, in all */
	uint64_t n_done;
	/* The stack of who runs the blocks, for sanitizers. */
	char *main_stack;
	size_t main_bytes;
} run;

static void die(const char *what)
{
	fprintf(stderr, "shim: block %u, thread %u: %s\n", blockIdx.x, run.now, what);
	abort();
}

/* ---- switching ------------------------------------------------------------------------------- */

static void jump(struct place *from, struct place *to)
{
	if (IS_SANITIZED) {
		swapcontext(&from->ctx, &to->ctx);
		return;
	}
	from->is_entered = true;
	if (_setjmp(from->at))
		return;
	if (to->is_entered)
		_longjmp(to->at, 1);
	setcontext(&to->ctx);
}

static void switch_to(
	struct place *from, struct place *to, void *stack, size_t bytes, void *sanitizer)
{
#ifdef __SANITIZE_ADDRESS__
	void *fake = NULL;

	__sanitizer_start_switch_fiber(&fake, stack, bytes);
#endif
#ifdef __SANITIZE_THREAD__
	__tsan_switch_to_fiber(sanitizer, 0);
#endif
	(void)stack;
	(void)bytes;
	(void)sanitizer;
	jump(from, to);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

/* Back to who runs the block. */
static void give_way(void)
{
	unsigned me = run.now;

	switch_to(&run.fiber[me].place, &run.main, run.main_stack, run.main_bytes,
		run.main_sanitizer);
	run.now = me;
	threadIdx.x = me;
}

static void resume(unsigned i)
{
	struct fiber *f = &run.fiber[i];

	run.now = i;
	threadIdx.x = i;
	switch_to(&run.main, &f->place, f->stack, STACK, f->sanitizer);
}

static void entry(void)
{
#ifdef __SANITIZE_ADDRESS__
	const void *bottom;

	__sanitizer_finish_switch_fiber(NULL, &bottom, &run.main_bytes);
	run.main_stack = (char *)(uintptr_t)bottom;
#endif
	for (;;) { /* a block and a launch after another */
		run.kernel(run.args);
		run.fiber[run.now].is_done = true;
		run.n_done++;
		give_way();
	}
}

/* ---- what kernels call ----------------------------------------------------------------------- */

void wbt_shim_sync(void)
{
	struct fiber *f = &run.fiber[run.now];
	uint64_t all = ++f->n_sync * blockDim.x;

	run.n_at_sync++;
	while (run.n_at_sync < all) {
		if (run.n_done)
			die("waits at a barrier that a thread which ended did not reach");
		give_way();
	}
}

int wbt_shim_any(int is)
{
	/* The same number in all threads, and another at each barrier. */
	uint64_t id = run.fiber[run.now].n_sync + 1;

	if (is)
		run.any[id % 2] = id;
	wbt_shim_sync();
	return run.any[id % 2] == id;
}

const uint64_t *wbt_shim_exchange(unsigned mask, uint64_t x)
{
	struct fiber *f = &run.fiber[run.now];
	struct warp *w = &run.warp[run.now / 32];
	uint64_t *slot = w->x[f->n_exchange % 2], all = ++f->n_exchange * 32;

	if (mask != 0xffffffffu)
		die("an exchange among some lanes");
	slot[run.now % 32] = x;
	w->n_given++;
	run.n_given++;
	while (w->n_given < all)
		give_way();
	return slot;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A fiber lives as long as the program: it goes on with the next block. */
static void make(unsigned i)
{
	struct fiber *f = &run.fiber[i];

	if (f->stack)
		return;
	f->stack = malloc(STACK);
	if (!f->stack)
		die("no memory");
	getcontext(&f->place.ctx);
	f->place.ctx.uc_stack.ss_sp = f->stack;
	f->place.ctx.uc_stack.ss_size = STACK;
	makecontext(&f->place.ctx, entry, 0);
#ifdef __SANITIZE_THREAD__
	f->sanitizer = __tsan_create_fiber(0);
#endif
}

static void shuffle(uint16_t *order, unsigned n, uint64_t *state)
{
	for (unsigned i = 0; i < n; i++)
		order[i] = (uint16_t)(wbt_shim_order == 1 ? n - 1 - i : i);
	for (unsigned i = n; wbt_shim_order > 1 && i > 1; i--) {
		unsigned k;
		uint16_t x;

		*state = *state * 6364136223846793005u + 1442695040888963407u;
		k = (unsigned)(*state >> 33) % i;
		x = order[i - 1];
		order[i - 1] = order[k];
		order[k] = x;
	}
}

static void run_block(unsigned threads, uint64_t *state)
{
	uint16_t order[MOST];
	uint64_t idle = 0;

	run.n_at_sync = run.n_given = run.n_done = 0;
	run.any[0] = run.any[1] = 0;
	memset(run.warp, 0, sizeof(run.warp));
	for (unsigned i = 0; i < threads; i++) {
		run.fiber[i].n_sync = run.fiber[i].n_exchange = 0;
		run.fiber[i].is_done = false;
	}
	while (run.n_done < threads) {
		uint64_t was = run.n_at_sync + run.n_given + run.n_done;

		shuffle(order, threads, state);
		for (unsigned i = 0; i < threads; i++)
			if (!run.fiber[order[i]].is_done)
				resume(order[i]);
		/* Who waits may first go on in the round after the one that ended its wait. */
		idle = run.n_at_sync + run.n_given + run.n_done == was ? idle + 1 : 0;
		if (idle > 2)
			die("threads wait for each other at different places");
	}
}

void wbt_shim_run(
	void (*kernel)(const void *args), const void *args, unsigned grid, unsigned threads)
{
	uint64_t state = wbt_shim_order;

	if (threads % 32 || threads > MOST || !threads)
		die("a block of this many threads");
	run.kernel = kernel;
	run.args = args;
	gridDim.x = grid;
	blockDim.x = threads;
#ifdef __SANITIZE_THREAD__
	run.main_sanitizer = __tsan_get_current_fiber();
#endif
	for (unsigned i = 0; i < threads; i++)
		make(i);
	for (unsigned i = 0; i < grid; i++) {
		blockIdx.x = i;
		run_block(threads, &state);
	}
}
