/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of users: whatever they are, wbctl inject refuses them or prints documents. */
#include "base/err.h"
#include "ctl/inject.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb__ctl_opts o = {.ns = size % 3 ? "rl" : NULL,
		.image = size % 2 ? "i" : NULL,
		.operator_addr = size % 5 ? NULL : "op:1"};
	struct wb_err err = {0};
	FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	FILE *out = fopen("/dev/null", "w");
	size_t n = 0;

	if (in && out && wb__inject_stream(&o, in, out, &n, &err) < 0 && !err.msg[0])
		abort(); /* a refusal says why */
	if (in)
		fclose(in);
	if (out)
		fclose(out);
	return 0;
}
