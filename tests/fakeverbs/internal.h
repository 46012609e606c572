/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FAKEVERBS_INTERNAL_H
#define WB_TESTS_FAKEVERBS_INTERNAL_H
/*
 * One lock guards all of it, in the world's memory: what lies outside of that belongs to this
 * process, what lies in it to all processes that share the world's file.
 */
#include "tests/fakeverbs/fakeverbs.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/types.h>

/* The library's functions are all that others see of it. */
#define FV_API __attribute__((visibility("default")))

#define FV_DEVICES 8
#define FV_PORTS 4 /* of a device */
#define FV_MRS 4096
#define FV_QPS 8192
#define FV_SGE 4
#define FV_WR_MAX 1024 /* of a queue */
#define FV_RULES 64
#define FV_PEERS 8

/* ---- what processes share ---------------------------------------------------------------------
 */

struct fv_wport {
	bool is_down;
	uint8_t last; /* of its GID; 0 = as at first */
	uint32_t changes, gid_changes;
};

struct fv_wmr {
	bool is_used;
	uint8_t tag; /* low byte of the key */
	pid_t pid;
	uint32_t pd, access;
	uint32_t windows; /* that are bound to it */
	bool is_window;
	uint32_t qpn, of; /* a window: the queue pair, 0 = not bound; the region's index */
	uint64_t addr, length;
	uint64_t at; /* where its process has the bytes of addr: of a GPU's memory elsewhere */
};

struct fv_wqp {
	bool is_used;
	pid_t pid;
	int device, port; /* port from 1; 0 = not yet */
	uint32_t pd, access;
	enum ibv_qp_state state;
	uint32_t dest_qpn;
	union ibv_gid dest;
	uint8_t dest_rd_atomic;
	bool is_broken; /* by the other side: its owner puts it in error */
	uint32_t busy; /* copies that others make of its memory */
	uint32_t windows; /* that are bound on it */
};

struct fv_world {
	pthread_mutex_t lock;
	bool is_ready;
	uint32_t next_pd, next_qp;
	struct fv_wport port[FV_DEVICES][FV_PORTS];
	struct fv_wmr mr[FV_MRS];
	struct fv_wqp qp[FV_QPS];
};

/* ---- objects of this process: the library's struct is the first member -------------------------
 */

struct fv_device {
	struct ibv_device d;
	int index, n_port;
	enum ibv_mtu mtu;
	bool is_removed, has_windows;
	uint32_t seen[FV_PORTS], seen_gid[FV_PORTS]; /* changes that were told */
	struct fv_context *first;
};

struct fv_event {
	struct ibv_async_event e;
	struct fv_event *next;
};

struct fv_context {
	struct ibv_context c;
	struct fv_device *dev;
	struct fv_context *next;
	struct fv_event *head, **tail;
	uint32_t users;
};

struct fv_pd {
	struct ibv_pd p;
	uint32_t number, users;
};

struct fv_mr {
	struct ibv_mr m;
	uint32_t index;
	void *map; /* of the file that has the bytes; NULL = none */
	size_t map_bytes;
	bool is_dmabuf;
};

/* What a peer's driver has made known to the kernel. */
struct fv_peer {
	uint64_t addr, bytes, off;
	int fd; /* owned */
};

struct fv_channel {
	struct ibv_comp_channel c;
	struct fv_cq *head, **tail;
};

struct fv_cq {
	struct ibv_cq c;
	struct ibv_wc *wc; /* ring */
	uint32_t cap, at, n, users;
	bool is_armed, is_queued;
	uint32_t events, acked;
	struct fv_cq *next;
};

struct fv_wqe {
	uint64_t wr_id, remote, due_ns, began_ns;
	enum ibv_wr_opcode opcode;
	uint32_t flags, rkey, imm, n_sge, rnr;
	uint32_t window, lkey, access; /* BIND_MW; .remote and .rkey = what it becomes */
	uint64_t length;
	struct ibv_sge sge[FV_SGE];
	bool is_begun, is_moved;
	struct fakeverbs_rule rule; /* what was made of it when it began */
};

struct fv_qp {
	struct ibv_qp q;
	struct fv_wqp *w;
	struct fv_context *ctx;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct fv_wqe *sq, *rq; /* rings */
	uint32_t sq_at, sq_n, rq_at, rq_n;
	bool is_all_signalled, is_moving; /* bytes, without the lock */
	struct fv_qp *next, **back;
};

struct fv {
	struct fv_world *w;
	pthread_cond_t work, moved;
	struct fv_device dev[FV_DEVICES];
	int n_dev;
	struct fv_qp *qp; /* all */
	struct fakeverbs_rule rule[FV_RULES];
	uint32_t hits[FV_RULES];
	int n_rule;
	char fail[40];
	int fail_errno;
	uint32_t fail_times;
	uint64_t reg_ns;
	int rd_atomic;
	uint32_t max_msg;
	int max_cqe;
	bool is_apart;
	int dmabuf_errno[FV_DEVICES];
	struct fv_peer peer[FV_PEERS];
	int n_peer;
	struct fakeverbs_counts n;
	bool has_engine;
};
extern struct fv fv;

void fv_lock(void); /* makes the world at the first call */
void fv_unlock(void);
uint64_t fv_now(void);
/* Is this call to fail?  Sets errno. */
bool fv_fails(const char *function);
void fv_gid_of(int device, int port, int index, union ibv_gid *out);
/* With the lock: */
void fv_raise(struct fv_context *c, enum ibv_event_type type, struct ibv_qp *qp, int port);
void fv_complete(struct fv_cq *cq, const struct ibv_wc *wc);
void fv_qp_error(struct fv_qp *q); /* flushes all it has */
void fv_qp_last(struct fv_qp *q); /* in the order of turns */
void fv_engine_start(void);
void fv_tell_ports(struct fv_device *d); /* what became of its ports, in this process */
/* Without it: */
void fv_fill_ops(struct ibv_context_ops *ops);
int fv_post_send(struct ibv_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fv_post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_mw *fv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int fv_dealloc_mw(struct ibv_mw *mw);
/* With the lock again: */
/* The region of a key where [addr, +length) lies in it, it is @pd's and grants @access; or NULL. */
struct fv_wmr *fv_mr_find(
	uint32_t key, uint32_t pd, uint64_t addr, uint64_t length, uint32_t access);
/* The same, or the window, that others name who ask by queue pair @by. */
struct fv_wmr *fv_remote_find(
	uint32_t key, const struct fv_wqp *by, uint64_t addr, uint64_t length, uint32_t access);
int64_t fv_free_region(void); /* or -ENOMEM */
void fv_wait_for_copies(void); /* those under way end, here and in other processes */
/* Requests that nobody else hears of: 0 or an enum ibv_wc_status. */
int fv_bind(struct fv_qp *q, const struct fv_wqe *e);
int fv_invalidate(struct fv_qp *q, const struct fv_wqe *e);

#endif
