/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/gpu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/play.h"
#include "tests/cuda/shim.h"

/* What is used of libcuda, as cuda.h declares it.  Handles are pointers, results ints. */
static struct {
	int (*init)(unsigned);
	int (*device)(int *, int);
	int (*name)(char *, int, int);
	int (*attribute)(int *, int, int);
	int (*retain)(void **, int);
	int (*current)(void *);
	int (*load)(void **, const void *);
	int (*function)(void **, void *, const char *);
	int (*alloc)(uint64_t *, size_t);
	int (*free)(uint64_t);
	int (*to)(uint64_t, const void *, size_t);
	int (*from)(void *, uint64_t, size_t);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		void *, void **, void **);
	int (*sync)(void);
	int (*text)(int, const char **);
	int n_sm;
	bool is_open;
	char title[256];
	void *fn[WBK_GPU_COUNT];
} cu;

#define SYMBOL(member, name)                                                                       \
	{                                                                                          \
		(void **)&cu.member, name                                                          \
	}
static const struct {
	void **to;
	const char *name;
} symbols[] = {SYMBOL(init, "cuInit"), SYMBOL(device, "cuDeviceGet"),
	SYMBOL(name, "cuDeviceGetName"), SYMBOL(attribute, "cuDeviceGetAttribute"),
	SYMBOL(retain, "cuDevicePrimaryCtxRetain"), SYMBOL(current, "cuCtxSetCurrent"),
	SYMBOL(load, "cuModuleLoadData"), SYMBOL(function, "cuModuleGetFunction"),
	SYMBOL(alloc, "cuMemAlloc_v2"), SYMBOL(free, "cuMemFree_v2"), SYMBOL(to, "cuMemcpyHtoD_v2"),
	SYMBOL(from, "cuMemcpyDtoH_v2"), SYMBOL(launch, "cuLaunchKernel"),
	SYMBOL(sync, "cuCtxSynchronize"), SYMBOL(text, "cuGetErrorString")};

#define ATTRIBUTE_SM_COUNT 16

static void must(int rc, const char *what)
{
	const char *text = NULL;

	if (!rc)
		return;
	if (cu.text)
		cu.text(rc, &text);
	fprintf(stderr, "%s: %s (%d)\n", what, text ? text : "error", rc);
	abort();
}

__attribute__((format(printf, 3, 4))) static bool no(
	char *why, size_t bytes, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, bytes, format, ap);
	va_end(ap);
	return false;
}

static bool find_symbols(char *why, size_t bytes)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return no(why, bytes, "no GPU driver: %s", dlerror());
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		*symbols[i].to = dlsym(lib, symbols[i].name);
		if (!*symbols[i].to)
			return no(why, bytes, "libcuda.so.1 has no %s", symbols[i].name);
	}
	return true;
}

static void load_kernels(void)
{
	for (int i = 0; i < WBK_GPU_COUNT; i++) {
		const struct wbk_gpu_kernel *k = wbk_gpu_kernel((enum wbk_gpu)i);
		void *module;

		must(cu.load(&module, k->image), "cuModuleLoadData");
		must(cu.function(&cu.fn[i], module, k->name), k->name);
	}
}

static bool open_device(char *why, size_t bytes)
{
	int dev, rc;
	void *context;

	if (!wbk_gpu_kernel(WBK_GPU_ROWS)->image)
		return no(why, bytes, "built without a CUDA compiler: make CUDA=yes");
	if (!find_symbols(why, bytes))
		return false;
	rc = cu.init(0);
	if (rc || cu.device(&dev, 0))
		return no(why, bytes, "no GPU: cuInit says %d", rc);
	must(cu.name(cu.title, sizeof(cu.title), dev), "cuDeviceGetName");
	must(cu.attribute(&cu.n_sm, ATTRIBUTE_SM_COUNT, dev), "cuDeviceGetAttribute");
	must(cu.retain(&context, dev), "cuDevicePrimaryCtxRetain");
	must(cu.current(context), "cuCtxSetCurrent");
	load_kernels();
	cu.is_open = true;
	return true;
}

bool wbt_gpu_open(char *why, size_t why_bytes)
{
	const char *which = getenv("WB_GPU");

	if (!which || strcmp(which, "device") != 0)
		return true;
	return open_device(why, why_bytes);
}

bool wbt_gpu_is_device(void)
{
	return cu.is_open;
}

const char *wbt_gpu_name(void)
{
	return cu.is_open ? cu.title : "the CPU, one block after another";
}

void *wbt_gpu_get(const void *host, size_t bytes)
{
	uint64_t dev;
	void *p;

	if (cu.is_open) {
		must(cu.alloc(&dev, bytes + !bytes), "cuMemAlloc");
		if (host && bytes)
			must(cu.to(dev, host, bytes), "cuMemcpyHtoD");
		return (void *)(uintptr_t)dev;
	}
	/* As aligned as a device's memory, up to the last byte. */
	if (posix_memalign(&p, 256, bytes + !bytes))
		abort();
	if (host && bytes)
		memcpy(p, host, bytes);
	return p;
}

void wbt_gpu_read(void *host, const void *dev, size_t bytes)
{
	if (cu.is_open && bytes)
		must(cu.from(host, (uintptr_t)dev, bytes), "cuMemcpyDtoH");
	else if (bytes)
		memcpy(host, dev, bytes);
}

void wbt_gpu_put(void *dev)
{
	if (!cu.is_open)
		free(dev);
	else if (dev)
		must(cu.free((uintptr_t)dev), "cuMemFree");
}

void wbt_gpu_run(enum wbk_gpu which, const void *args, uint32_t n_tile, uint32_t threads)
{
#define ENTRY(name, type) play_##name,
	static void (*const play[WBK_GPU_COUNT])(const void *) = {WBT_KERNELS(ENTRY)};
#undef ENTRY
	uint32_t grid = wbk_gpu_grid(which, n_tile, cu.is_open ? (uint32_t)cu.n_sm : 1);
	unsigned char copy[256];
	void *param[1] = {copy};

	if (!grid)
		return;
	threads = threads ? threads : wbk_gpu_kernel(which)->threads;
	if (!cu.is_open) {
		wbt_shim_run(play[which], args, grid, threads);
		return;
	}
	memcpy(copy, args, wbk_gpu_kernel(which)->args_bytes);
	must(cu.launch(cu.fn[which], grid, 1, 1, threads, 1, 1, 0, NULL, param, NULL),
		"cuLaunchKernel");
	must(cu.sync(), "the kernel");
}
