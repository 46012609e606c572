/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test's main() ends with, and assertions that are cheap in loops. */
#ifndef WB_TESTS_FX_CHECK_H
#define WB_TESTS_FX_CHECK_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Runs and frees a suite; CK_VERBOSITY, CK_FORK and CK_RUN_CASE work. Returns main()'s exit status:
 * 0 when every test passed, else 1.
 */
int fx_run(Suite *suite);

/*
 * tcase_add_loop_test() for a claim that is made at many points: where each costs ten times as much
 * (sanitizers), every WB_SAMPLE-th of them, from point WB_SAMPLE_AT on.
 */
#define fx_add_points(tc, test, from, to)                                                          \
	do {                                                                                       \
		for (int fx_i = (from) + fx_first(); fx_i < (to); fx_i += fx_step())               \
			tcase_add_loop_test(tc, test, fx_i, fx_i + 1);                             \
	} while (0)
/* The same for the rows of a table, which differ more than points do: twice as many of them. */
#define fx_add_rows(tc, test, n)                                                                   \
	do {                                                                                       \
		for (int fx_i = fx_first_row(); fx_i < (int)(n); fx_i += fx_step_row())            \
			tcase_add_loop_test(tc, test, fx_i, fx_i + 1);                             \
	} while (0)
int fx_step(void);
int fx_first(void);
int fx_step_row(void);
int fx_first_row(void);

/* Has each test a process of its own?  Only then may one be added that ends by a signal: under
 * ThreadSanitizer they share one (CK_FORK=no). */
bool fx_forks(void);

/*
 * Check writes a record to a file at every assertion, so that it can name the last one before a
 * crash: a third of the time of tests that assert in loops.  Here each line writes it when it is
 * passed for the first time by a thread, so what is named is the last line that was new.  (Lines
 * of a header and of the file that includes it share a mark where their numbers are the same.)
 */
#define FX_LINES 4096u
static inline void fx_mark(const char *file, int line)
{
	static _Thread_local uint64_t passed[FX_LINES / 64];
	uint64_t bit = 1ull << line % 64, *word = &passed[(unsigned)line % FX_LINES / 64];

	if (*word & bit)
		return;
	*word |= bit;
	_mark_point(file, line);
}
#define _mark_point(file, line) fx_mark(file, line)

#endif
