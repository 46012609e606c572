/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one idle wb_client_poll() costs, in nanoseconds: median of 7 runs of 4 Mi calls, against a
 * scripted agent.  Prints one JSON object.
 */
#include "base/clock.h"
#include "tests/common/fx_agent.h"
#include "weightbridge/weightbridge.h"

#include <stdio.h>
#include <stdlib.h>

#define CALLS (4u << 20)
#define RUNS 7
#define BOUND_NS 100.0

static void script(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_wait_closed(a);
}

static double run(struct wb_client *c)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);

	for (uint32_t i = 0; i < CALLS; i++)
		if (wb_client_poll(c))
			abort();
	return (double)(wb_now_ns(&wb_clock_real) - t0) / CALLS;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(void)
{
	struct fx_script s;
	struct wb_client_opts o;
	struct wb_client *c;
	double plain[RUNS], waited[RUNS];

	fx_script_start(&s, script);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	for (int i = 0; i < RUNS; i++)
		plain[i] = run(c);
	wb_client_fileno(c); /* from here on it looks at its socket every millisecond */
	for (int i = 0; i < RUNS; i++)
		waited[i] = run(c);
	qsort(plain, RUNS, sizeof(*plain), compare);
	qsort(waited, RUNS, sizeof(*waited), compare);
	printf("{\"name\":\"idle poll from "
	       "C\",\"figure\":%.1f,\"unit\":\"ns\",\"bar\":%.0f,\"met\":%s,"
	       "\"with_fileno_ns\":%.1f,\"calls\":%u,\"n\":%d}\n",
		plain[RUNS / 2], BOUND_NS, plain[RUNS / 2] < BOUND_NS ? "true" : "false",
		waited[RUNS / 2], CALLS, RUNS);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
	return plain[RUNS / 2] < BOUND_NS ? 0 : 1;
}
