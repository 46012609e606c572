/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_VERBS_LIB_H
#define WB_XPORT_VERBS_LIB_H
/*
 * libibverbs, opened at run time: one binary serves hosts with and without it.
 *
 * What the library's header defines inline (posting, polling, arming) goes through the device's own
 * table, and is called directly.
 * Threads: any thread may load it, once; as the library says, each function may be called by
 * several threads.  Layer: xport (L2), internal.
 */
#include "base/err.h"

#include <infiniband/verbs.h>

struct wb__ibv {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*port_query)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	/* NULL before version 36; the types of GIDs are not known then. */
	int (*query_gid_ex)(
		struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*mr_reg)(struct ibv_pd *, void *, size_t, int);
	/* NULL before version 34 of rdma-core; memory of GPUs can then only be registered as a
	 * peer's. */
	struct ibv_mr *(*dmabuf_mr_reg)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
	int (*destroy_comp_channel)(struct ibv_comp_channel *);
	struct ibv_cq *(*create_cq)(
		struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	int (*get_cq_event)(struct ibv_comp_channel *, struct ibv_cq **, void **);
	void (*ack_cq_events)(struct ibv_cq *, unsigned);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	const char *(*wc_status_str)(enum ibv_wc_status);
	const char *(*event_type_str)(enum ibv_event_type);
};

/** wb__ibv_load - load the library's functions, for the life of the process.  0; -ENOTSUP: it is
 * missing or too old, and @err says what to install. */
int wb__ibv_load(const struct wb__ibv **out, struct wb_err *err);

#endif
