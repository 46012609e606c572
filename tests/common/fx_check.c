/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_check.h"

#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);
	int n = text ? atoi(text) : 0;

	return n > 0 ? n : otherwise;
}

int fx_step(void)
{
	return number("WB_SAMPLE", 1);
}

int fx_first(void)
{
	return number("WB_SAMPLE_AT", 0) % fx_step();
}

int fx_step_row(void)
{
	return (fx_step() + 1) / 2;
}

int fx_first_row(void)
{
	return fx_first() % fx_step_row();
}

int fx_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

bool fx_forks(void)
{
	const char *mode = getenv("CK_FORK");

	return !mode || strcmp(mode, "no") != 0;
}
