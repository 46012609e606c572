/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/gpu.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DEVICES_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: held */
static struct wb_gpu held[DEVICES_MAX]; /* by number */

void wb_gpu_text(const uint8_t *uuid, char *out, size_t out_bytes)
{
	size_t at = (size_t)snprintf(out, out_bytes, "GPU-");

	for (int i = 0; i < WBCU_UUID_BYTES && at < out_bytes; i++)
		at += (size_t)snprintf(out + at, out_bytes - at, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static int code_of(int result)
{
	switch (result) {
	case WBCU_SUCCESS:
		return 0;
	case WBCU_NOT_READY:
		return -EAGAIN;
	case WBCU_OUT_OF_MEMORY:
		return -ENOMEM;
	case WBCU_INVALID_VALUE:
	case WBCU_INVALID_HANDLE:
		return -EINVAL;
	case WBCU_NOT_SUPPORTED:
		return -ENOTSUP;
	case WBCU_INVALID_DEVICE:
	case WBCU_NO_DEVICE:
		return -ENODEV;
	case WBCU_NOT_PERMITTED:
		return -EPERM;
	default:
		return -EIO;
	}
}

int wb_gpu_rc(const struct wb_gpu *g, int result, const char *what, struct wb_err *err)
{
	const char *text = NULL;
	int rc = code_of(result);

	if (!rc || rc == -EAGAIN)
		return rc;
	g->cu->error_text(result, &text);
	return wb_err_set(
		err, rc, "%s: %s: %s (%d)", g->name, what, text ? text : "unknown error", result);
}

static int find(const struct wbcu *cu, const uint8_t *uuid, int *number, struct wb_err *err)
{
	struct wbcu_uuid is;
	char text[48];
	int n = 0;

	if (!cu->device_count(&n) && n && !uuid) {
		*number = 0;
		return 0;
	}
	for (int i = 0; i < n; i++)
		if (!cu->device_uuid(&is, i) && !memcmp(is.bytes, uuid, sizeof(is.bytes))) {
			*number = i;
			return 0;
		}
	if (!uuid)
		return wb_err_set(err, -ENODEV, "no GPU: the driver shows none to this process");
	wb_gpu_text(uuid, text, sizeof(text));
	return wb_err_set(err, -ENODEV,
		"%s is not among the %d GPUs that this process sees (CUDA_VISIBLE_DEVICES, and "
		"what its container was given)",
		text, n);
}

static int open_device(const struct wbcu *cu, int number, struct wb_gpu *g, struct wb_err *err)
{
	int rc;

	*g = (struct wb_gpu){.cu = cu, .number = number, .name = "GPU"};
	rc = wb_gpu_rc(g, cu->device_uuid(&g->uuid, number), "cuDeviceGetUuid", err);
	if (!rc)
		rc = wb_gpu_rc(g, cu->device_name(g->name, sizeof(g->name), number),
			"cuDeviceGetName", err);
	if (!rc)
		rc = wb_gpu_rc(g, cu->device_attribute(&g->n_sm, WBCU_DEVICE_SM_COUNT, number),
			"cuDeviceGetAttribute", err);
	if (!rc)
		rc = wb_gpu_rc(g, cu->context_retain(&g->context, number),
			"cuDevicePrimaryCtxRetain", err);
	return rc;
}

int wb_gpu_get(const uint8_t *uuid, struct wb_gpu **out, struct wb_err *err)
{
	const struct wbcu *cu;
	int rc = wbcu_load(&cu, err), number = 0;

	assert(out);
	if (!rc)
		rc = find(cu, uuid, &number, err);
	if (rc)
		return rc;
	if (number >= DEVICES_MAX)
		return wb_err_set(err, -ENODEV, "GPU number %d of a process", number);
	pthread_mutex_lock(&lock);
	if (!held[number].refs)
		rc = open_device(cu, number, &held[number], err);
	if (!rc) {
		held[number].refs++;
		*out = &held[number];
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

struct wb_gpu *wb_gpu_ref(struct wb_gpu *g)
{
	pthread_mutex_lock(&lock);
	assert(g->refs);
	g->refs++;
	pthread_mutex_unlock(&lock);
	return g;
}

void wb_gpu_put(struct wb_gpu *g)
{
	if (!g)
		return;
	pthread_mutex_lock(&lock);
	assert(g->refs);
	if (!--g->refs)
		g->cu->context_release(g->number);
	pthread_mutex_unlock(&lock);
}

int wb_gpu_enter(struct wb_gpu *g, struct wb_err *err)
{
	return wb_gpu_rc(g, g->cu->context_push(g->context), "cuCtxPushCurrent", err);
}

void wb_gpu_leave(struct wb_gpu *g)
{
	void *was;

	g->cu->context_pop(&was);
}

int wb_gpu_room(struct wb_gpu *g, uint64_t *free_bytes, uint64_t *total_bytes, struct wb_err *err)
{
	size_t is = 0, all = 0;
	int rc = wb_gpu_enter(g, err);

	if (rc)
		return rc;
	rc = wb_gpu_rc(g, g->cu->mem_info(&is, &all), "cuMemGetInfo", err);
	wb_gpu_leave(g);
	*free_bytes = is;
	*total_bytes = all;
	return rc;
}

int wb_gpu_settle(struct wb_gpu *g, struct wb_err *err)
{
	void *before;
	int rc = wb_gpu_enter(g, err);

	if (rc)
		return rc;
	rc = wb_gpu_rc(g, g->cu->event_create(&before, WBCU_EVENT_BLOCKING | WBCU_EVENT_NO_TIMING),
		"cuEventCreate", err);
	if (!rc) {
		rc = wb_gpu_rc(g, g->cu->event_record(before, NULL), "cuEventRecord", err);
		if (!rc)
			rc = wb_gpu_rc(g, g->cu->event_sync(before), "cuEventSynchronize", err);
		g->cu->event_destroy(before);
	}
	wb_gpu_leave(g);
	return rc;
}
