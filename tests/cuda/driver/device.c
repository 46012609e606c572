/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, results in words; the beginning and end of every call. */
#include "tests/cuda/driver/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 16

struct fc fc = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.lose_after = -1,
	.next_id = 1};

/* Contexts that are current in this thread, one above the other. */
static __thread struct {
	struct fc_device *stack[DEPTH];
	int n;
} current;

/* ---- calls ----------------------------------------------------------------------------------- */

uint64_t fc_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct fc_device *fc_current(void)
{
	return current.n ? current.stack[current.n - 1] : NULL;
}

int fc_enter(const char *function, enum fc_need need)
{
	int rc;

	pthread_mutex_lock(&fc.lock);
	fc.count.strays += fc.pid && fc.pid != getpid();
	rc = fc.pid != getpid() ? WBCU_NOT_INITIALIZED : fc_script_fail(function);
	if (!rc && need != FC_NOTHING)
		rc = fc.lost;
	if (!rc && need == FC_CONTEXT && !fc_current())
		rc = WBCU_INVALID_CONTEXT;
	if (!rc && need == FC_CONTEXT && !fc_current()->retained)
		rc = FC_CONTEXT_IS_DESTROYED;
	if (rc)
		pthread_mutex_unlock(&fc.lock);
	return rc;
}

int fc_leave(int rc)
{
	pthread_mutex_unlock(&fc.lock);
	return rc;
}

int cuGetErrorName(int rc, const char **text)
{
	static const struct {
		int rc;
		const char *name;
	} names[] = {{WBCU_SUCCESS, "CUDA_SUCCESS"},
		{WBCU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
		{WBCU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
		{WBCU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
		{WBCU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
		{WBCU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
		{WBCU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
		{WBCU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
		{WBCU_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED"},
		{WBCU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
		{WBCU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
		{WBCU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}, {WBCU_NOT_READY, "CUDA_ERROR_NOT_READY"},
		{WBCU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
		{FC_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"},
		{FC_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
		{WBCU_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
		{WBCU_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
		{WBCU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
		{WBCU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
		{WBCU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
		{WBCU_UNKNOWN, "CUDA_ERROR_UNKNOWN"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].rc == rc) {
			*text = names[i].name;
			return WBCU_SUCCESS;
		}
	*text = NULL;
	return WBCU_INVALID_VALUE;
}

int cuGetErrorString(int rc, const char **text)
{
	return cuGetErrorName(rc, text);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void uuid_of(int device, struct wbcu_uuid *out)
{
	memcpy(out->bytes, "fakecuda\0\0\0\0\0\0\0", WBCU_UUID_BYTES);
	out->bytes[WBCU_UUID_BYTES - 1] = (uint8_t)device;
}

/* "GPU-" and as many of its 32 digits as are given, with or without dashes. */
static bool is_named(const char *word, int device)
{
	struct wbcu_uuid u;
	char digits[2 * WBCU_UUID_BYTES + 1];
	const char *d = digits;

	uuid_of(device, &u);
	for (int i = 0; i < WBCU_UUID_BYTES; i++)
		snprintf(digits + 2 * (size_t)i, 3, "%02x", u.bytes[i]);
	if (strncmp(word, "GPU-", 4) != 0 || !word[4])
		return false;
	for (word += 4; *word; word++) {
		if (*word == '-')
			continue;
		if (tolower((unsigned char)*word) != *d++)
			return false;
	}
	return true;
}

/* CUDA_VISIBLE_DEVICES; the first word that names none ends it. */
static void look_around(int n_device)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char copy[512], *save = NULL;

	for (int i = 0; !list && i < n_device; i++)
		fc.visible[fc.n_visible++] = i;
	snprintf(copy, sizeof(copy), "%s", list ? list : "");
	for (char *s = strtok_r(copy, ",", &save); s && fc.n_visible < FC_DEVICES;
		s = strtok_r(NULL, ",", &save)) {
		int at = -1;

		for (int i = 0; i < n_device && at < 0; i++)
			if (is_named(s, i) || (isdigit((unsigned char)*s) && atoi(s) == i))
				at = i;
		if (at < 0)
			return;
		fc.visible[fc.n_visible++] = at;
	}
}

static void make_device(int i)
{
	struct fc_device *d = &fc.device[i];

	d->number = i;
	d->attribute[WBCU_DEVICE_SM_COUNT] = 2;
	d->attribute[WBCU_DEVICE_PCI_BUS] = 0x10 + i;
	d->attribute[WBCU_DEVICE_MAJOR] = 9;
	d->attribute[WBCU_DEVICE_HAS_VMM] = 1;
	d->attribute[WBCU_DEVICE_EXPORTS_FD] = 1;
	d->attribute[WBCU_DEVICE_HAS_DMABUF] = 1;
}

/* A child may ask at least what it cannot do: no thread of its parent's holds the lock meanwhile.
 */
static void before_a_fork(void)
{
	pthread_mutex_lock(&fc.lock);
}

static void after_a_fork(void)
{
	pthread_mutex_unlock(&fc.lock);
}

/* A driver looks at files of its process in /proc, where that is of another namespace of processes
 * it finds another's, or none. */
static bool is_found_in_proc(void)
{
	char name[32] = "";

	return readlink("/proc/self", name, sizeof(name) - 1) > 0 && atoi(name) == getpid();
}

static int begin(void)
{
	const char *n = getenv("FAKECUDA_DEVICES"), *script = getenv("FAKECUDA_SCRIPT");
	int n_device = n ? atoi(n) : 2;

	if (!is_found_in_proc())
		return FC_OPERATING_SYSTEM;
	if (n_device < 0 || n_device > FC_DEVICES)
		abort();
	for (int i = 0; i < n_device; i++)
		make_device(i);
	look_around(n_device);
	fc_world_open();
	fc.pid = getpid();
	if (pthread_atfork(before_a_fork, after_a_fork, after_a_fork))
		abort();
	fc_work_start();
	fc_serve_start();
	pthread_mutex_unlock(&fc.lock);
	if (script && fakecuda_script(script)) {
		fprintf(stderr, "fakecuda: not understood: %s\n", script);
		abort();
	}
	pthread_mutex_lock(&fc.lock);
	return fc_script_fail("cuInit");
}

int cuInit(unsigned flags)
{
	int rc = WBCU_SUCCESS;

	pthread_mutex_lock(&fc.lock);
	if (flags)
		rc = WBCU_INVALID_VALUE;
	else if (fc.pid && fc.pid != getpid())
		rc = WBCU_NOT_INITIALIZED; /* a fork */
	else if (!fc.pid)
		rc = begin();
	if (!rc && !fc.n_visible)
		rc = WBCU_NO_DEVICE;
	return fc_leave(rc);
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return WBCU_SUCCESS;
}

int fc_visible(int dev)
{
	return dev >= 0 && dev < fc.n_visible ? fc.visible[dev] : -1;
}

int fc_number(int device)
{
	for (int i = 0; i < fc.n_visible; i++)
		if (fc.visible[i] == device)
			return i;
	return -1;
}

int cuDeviceGetCount(int *n)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	*n = fc.n_visible;
	return fc_leave(WBCU_SUCCESS);
}

int cuDeviceGet(int *dev, int number)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (fc_visible(number) < 0)
		return fc_leave(WBCU_INVALID_DEVICE);
	*dev = number;
	return fc_leave(WBCU_SUCCESS);
}

int cuDeviceGetUuid_v2(struct wbcu_uuid *uuid, int dev)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (fc_visible(dev) < 0)
		return fc_leave(WBCU_INVALID_DEVICE);
	uuid_of(fc_visible(dev), uuid);
	return fc_leave(WBCU_SUCCESS);
}

int cuDeviceGetName(char *name, int bytes, int dev)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (fc_visible(dev) < 0)
		return fc_leave(WBCU_INVALID_DEVICE);
	snprintf(name, (size_t)bytes, "Stand-in %d", fc_visible(dev));
	return fc_leave(WBCU_SUCCESS);
}

int cuDeviceGetAttribute(int *value, int attribute, int dev)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (fc_visible(dev) < 0)
		return fc_leave(WBCU_INVALID_DEVICE);
	if (attribute < 0 || attribute >= FC_ATTRIBUTES)
		return fc_leave(WBCU_INVALID_VALUE);
	*value = fc.device[fc_visible(dev)].attribute[attribute];
	return fc_leave(WBCU_SUCCESS);
}

/* ---- contexts: the primary one of each device ------------------------------------------------ */

int cuDevicePrimaryCtxRetain(void **context, int dev)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (fc_visible(dev) < 0)
		return fc_leave(WBCU_INVALID_DEVICE);
	fc.device[fc_visible(dev)].retained++;
	fc.count.contexts++;
	*context = &fc.device[fc_visible(dev)];
	return fc_leave(WBCU_SUCCESS);
}

int cuDevicePrimaryCtxRelease_v2(int dev)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (fc_visible(dev) < 0 || !fc.device[fc_visible(dev)].retained)
		return fc_leave(WBCU_INVALID_CONTEXT);
	fc.device[fc_visible(dev)].retained--;
	fc.count.contexts--;
	return fc_leave(WBCU_SUCCESS);
}

static bool is_context(const void *context)
{
	for (int i = 0; i < FC_DEVICES; i++)
		if (context == &fc.device[i])
			return fc.device[i].retained > 0;
	return false;
}

int cuCtxPushCurrent_v2(void *context)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (!is_context(context) || current.n == DEPTH)
		return fc_leave(WBCU_INVALID_CONTEXT);
	current.stack[current.n++] = context;
	return fc_leave(WBCU_SUCCESS);
}

int cuCtxPopCurrent_v2(void **context)
{
	if (!current.n)
		return WBCU_INVALID_CONTEXT;
	current.n--;
	if (context)
		*context = current.stack[current.n];
	return WBCU_SUCCESS;
}

int cuCtxSetCurrent(void *context)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	if (context && !is_context(context))
		return fc_leave(WBCU_INVALID_CONTEXT);
	current.n -= current.n > 0;
	if (context)
		current.stack[current.n++] = context;
	return fc_leave(WBCU_SUCCESS);
}

int cuCtxSynchronize(void)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	return rc ? rc : fc_leave(fc_wait(0));
}
