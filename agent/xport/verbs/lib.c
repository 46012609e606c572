/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/verbs/lib.h"

#include "base/base.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libibverbs.so.1"

static const struct {
	const char *name;
	size_t at;
	bool may_lack;
} symbols[] = {
#define SYMBOL(field, name)                                                                        \
	{                                                                                          \
		name, offsetof(struct wb__ibv, field), false                                       \
	}
	SYMBOL(get_device_list, "ibv_get_device_list"),
	SYMBOL(free_device_list, "ibv_free_device_list"),
	SYMBOL(get_device_name, "ibv_get_device_name"),
	SYMBOL(open_device, "ibv_open_device"),
	SYMBOL(close_device, "ibv_close_device"),
	SYMBOL(query_device, "ibv_query_device"),
	SYMBOL(port_query, "ibv_query_port"),
	SYMBOL(query_gid, "ibv_query_gid"),
	{"_ibv_query_gid_ex", offsetof(struct wb__ibv, query_gid_ex), true},
	SYMBOL(alloc_pd, "ibv_alloc_pd"),
	SYMBOL(dealloc_pd, "ibv_dealloc_pd"),
	SYMBOL(mr_reg, "ibv_reg_mr"),
	{"ibv_reg_dmabuf_mr", offsetof(struct wb__ibv, dmabuf_mr_reg), true},
	SYMBOL(dereg_mr, "ibv_dereg_mr"),
	SYMBOL(create_comp_channel, "ibv_create_comp_channel"),
	SYMBOL(destroy_comp_channel, "ibv_destroy_comp_channel"),
	SYMBOL(create_cq, "ibv_create_cq"),
	SYMBOL(destroy_cq, "ibv_destroy_cq"),
	SYMBOL(get_cq_event, "ibv_get_cq_event"),
	SYMBOL(ack_cq_events, "ibv_ack_cq_events"),
	SYMBOL(create_qp, "ibv_create_qp"),
	SYMBOL(modify_qp, "ibv_modify_qp"),
	SYMBOL(destroy_qp, "ibv_destroy_qp"),
	SYMBOL(get_async_event, "ibv_get_async_event"),
	SYMBOL(ack_async_event, "ibv_ack_async_event"),
	SYMBOL(wc_status_str, "ibv_wc_status_str"),
	SYMBOL(event_type_str, "ibv_event_type_str"),
};

static struct wb__ibv functions;
static struct wb_err why;
static int loaded;

static void load(void)
{
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		loaded = wb_err_set(&why, -ENOTSUP,
			"no RDMA: %s is not here (on Debian: apt-get install libibverbs1 "
			"ibverbs-providers)",
			LIBRARY);
		return;
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(symbols); i++) {
		void *f = dlsym(lib, symbols[i].name);

		if (!f && !symbols[i].may_lack) {
			loaded = wb_err_set(&why, -ENOTSUP, "no RDMA: %s here has no %s", LIBRARY,
				symbols[i].name);
			return;
		}
		memcpy((char *)&functions + symbols[i].at, &f, sizeof(f));
	}
}

int wb__ibv_load(const struct wb__ibv **out, struct wb_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	*out = &functions;
	return loaded ? wb_err_set(err, loaded, "%s", why.msg) : 0;
}
