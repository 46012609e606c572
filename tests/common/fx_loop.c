/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_loop.h"
#include "base/base.h"
#include "base/clock.h"
#include "tests/common/fx_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wb_loop *fx_loop;
char fx_dir[256];

void fx_loop_set_up(void)
{
	const char *tmp = getenv("TMPDIR");

	/* Short: a socket's path has 107 bytes. */
	snprintf(fx_dir, sizeof(fx_dir), "%s/wbn-XXXXXX", tmp && strlen(tmp) < 70 ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(fx_dir));
	ck_assert_int_eq(wb_loop_create(&fx_loop, NULL), 0);
}

void fx_loop_tear_down(void)
{
	char cmd[512];

	wb_loop_destroy(fx_loop);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", fx_dir);
	ck_assert_int_eq(system(cmd), 0);
}

char *fx_loop_path(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", fx_dir, name);
	return path;
}

static void too_late(void *cookie)
{
	*(bool *)cookie = true;
}

void fx_loop_until(const int *p, int n)
{
	struct wb_timer *t;
	bool late = false;

	ck_assert_int_eq(wb_timer_create(fx_loop, too_late, &late, &t), 0);
	wb_timer_start(t, 20 * WB_NS_PER_S, 0);
	while (*p < n && !late)
		wb_loop_run_once(fx_loop, true);
	wb_timer_destroy(t);
	ck_assert_msg(*p >= n, "still at %d of %d after 20 s", *p, n);
}
