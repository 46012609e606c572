/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test's main() ends with, and an assertion for loops. */
#ifndef WB_TESTS_FX_CHECK_H
#define WB_TESTS_FX_CHECK_H

#include <check.h>
#include <stdbool.h>

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
int fx_step(void);
int fx_first(void);

/* Has each test a process of its own?  Only then may one be added that ends by a signal: under
 * ThreadSanitizer they share one (CK_FORK=no). */
bool fx_forks(void);

/* Check writes a record at every assertion; loops over millions assert only what fails. */
#define fx_must(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			ck_abort_msg("%s", #x);                                                    \
	} while (0)

#endif
