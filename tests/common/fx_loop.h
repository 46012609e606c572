/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_LOOP_H
#define WB_TESTS_FX_LOOP_H
/*
 * A loop and a folder of its own for each test; both are gone after it.  For the parts of net.
 */
#include "net/loop.h"

extern struct wb_loop *fx_loop;
extern char fx_dir[256];

/** fx_loop_set_up, fx_loop_tear_down - for tcase_add_checked_fixture. */
void fx_loop_set_up(void);
void fx_loop_tear_down(void);
/** fx_loop_path - @name in the folder; good until the next call. */
char *fx_loop_path(const char *name);
/** fx_loop_until - run the loop until *@p >= @n; the test fails after 20 s. */
void fx_loop_until(const int *p, int n);

#endif
