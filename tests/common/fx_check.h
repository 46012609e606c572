/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test's main() ends with, and an assertion for loops. */
#ifndef WB_TESTS_FX_CHECK_H
#define WB_TESTS_FX_CHECK_H

#include <check.h>

/*
 * Runs and frees a suite; CK_VERBOSITY, CK_FORK and CK_RUN_CASE work. Returns main()'s exit status:
 * 0 when every test passed, else 1.
 */
int fx_run(Suite *suite);

/* Check writes a record at every assertion; loops over millions assert only what fails. */
#define fx_must(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			ck_abort_msg("%s", #x);                                                    \
	} while (0)

#endif
