/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the driver's library, if it is installed. */
#include "mem/cuda.h"

#include "base/base.h"
#include "base/err.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static struct wbcu functions;
static struct wb_err why;
static int loaded;

static void load(void)
{
	static const struct {
		const char *name;
		size_t at;
	} symbols[] = {
#define SYMBOL(member, symbol, args) {#symbol, offsetof(struct wbcu, member)},
		WBCU_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *text = NULL;
	int rc;

	if (!lib) {
		loaded = wb_err_set(&why, -ENOTSUP,
			"no GPU: %s, which comes with NVIDIA's driver, is not here", LIBRARY);
		return;
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(symbols); i++) {
		void *f = dlsym(lib, symbols[i].name);

		if (!f) {
			loaded = wb_err_set(&why, -ENOTSUP,
				"no GPU: %s here has no %s: a driver for CUDA 12 is needed",
				LIBRARY, symbols[i].name);
			return;
		}
		memcpy((char *)&functions + symbols[i].at, &f, sizeof(f));
	}
	rc = functions.init(0);
	if (rc == WBCU_SUCCESS)
		return;
	functions.error_text(rc, &text);
	loaded = wb_err_set(&why, -ENOTSUP, "no GPU: the driver says: %s (%d)",
		text ? text : "unknown error", rc);
}

int wbcu_load(const struct wbcu **out, struct wb_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	*out = &functions;
	return loaded ? wb_err_set(err, loaded, "%s", why.msg) : 0;
}
