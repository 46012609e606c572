/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu [--move FILE] [--scan FILE] [--blocks N] [--only WORD] [--mib N]
 *
 * Kernels on a GPU beside what its driver does with as many bytes, one JSON object a line.  A row's
 * figure is a ratio of medians of seven, taken in turns: 1 = as fast as the driver's copy.  Without
 * a device one line says so.
 *	--move, --scan	other images of kernels/move.cu and scan.cu, to compare them
 *	--blocks	of a multiprocessor, instead of what wbk_gpu_grid() says
 *	--only		rows with that word in their name
 *	--mib		of a plan's bytes, at most; and 2048 if absent
 */
#include "tests/bench/gpu/bench.h"

#include "base/base.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(void)
{
	fprintf(stderr,
		"usage: gpu [--move FILE] [--scan FILE] [--blocks N] [--only WORD] [--mib N]\n");
	exit(2);
}

/* A number from 1 on. */
static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (!n || *end || *text == '-')
		usage();
	return n;
}

static void parse(int argc, char **argv)
{
	if (argc % 2 == 0)
		usage();
	for (int i = 1; i < argc; i += 2) {
		const char *value = argv[i + 1];

		if (!strcmp(argv[i], "--move"))
			gb.move = value;
		else if (!strcmp(argv[i], "--scan"))
			gb.scan = value;
		else if (!strcmp(argv[i], "--only"))
			gb.only = value;
		else if (!strcmp(argv[i], "--blocks"))
			gb.blocks = (uint32_t)WB_MIN(number(value), 1024);
		else if (!strcmp(argv[i], "--mib"))
			gb.wire_bytes = WB_MIN(number(value) << 20, GB_WIRE_BYTES);
		else
			usage();
	}
}

int main(int argc, char **argv)
{
	struct wb_err err = {0};
	int version = 0, rc;

	parse(argc, argv);
	rc = wb_gpu_get(NULL, &gb.gpu, &err);
	if (rc || !wbk_gpu_kernel(WBK_GPU_ROWS)->image) {
		printf("{\"name\":\"gpu\",\"figure\":null,\"skipped\":\"%s\"}\n",
			rc ? err.msg : "built without a CUDA compiler: make CUDA=yes");
		return getenv("STRICT") ? 1 : 0;
	}
	gb.cu = gb.gpu->cu;
	gb_must_err(wb_gpu_enter(gb.gpu, &err), &err);
	gb.cu->driver_version(&version);
	gb_must(gb.cu->stream_create(&gb.stream, WBCU_STREAM_NON_BLOCKING), "cuStreamCreate");
	printf("{\"name\":\"gpu\",\"device\":\"%s\",\"driver\":\"CUDA %d.%d\",\"sm\":%d}\n",
		gb.gpu->name, version / 1000, version % 1000 / 10, gb.gpu->n_sm);
	wbk_sum_keys_init(&gb.keys, 0);
	gb_moves();
	gb_scans();
	gb_jobs();
	wb_gpu_leave(gb.gpu);
	wb_gpu_put(gb.gpu);
	return 0;
}
