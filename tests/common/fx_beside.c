/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_beside.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* This program is build/VARIANT/tests/test_x. */
void *fx_beside(const char *path)
{
	char self[PATH_MAX] = "", all[2 * PATH_MAX];
	void *lib;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		abort();
	for (int i = 0; i < 2; i++)
		*strrchr(self, '/') = 0;
	snprintf(all, sizeof(all), "%s/%s", self, path);
	lib = dlopen(all, RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "fx_beside: %s\n", dlerror());
		abort();
	}
	return lib;
}
