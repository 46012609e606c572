/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RC_PAIR_H
#define RC_PAIR_H
/*
 * Two RC queue pairs in one process, one to ask and one to answer, for the cases of rc_semantics.
 * What goes wrong in here is a failure of the case that is run.  Threads: one.
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BYTES (1u << 20) /* of each side's memory */
#define PATIENCE_S 20.0 /* for a completion */
#define WRS 64 /* requests that a queue pair takes */
#define TIMEOUT 16 /* of a queue pair, 0.27 s a try: a guest without hardware help is slow */
#define RETRIES 2

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* all of buf, all rights that a case has not taken away */
	uint8_t *buf;
	union ibv_gid gid;
	int gid_index, rd_atomic;
};

struct pair {
	struct side a, b; /* a asks, b answers */
};

struct request {
	uint64_t id, local, remote;
	uint32_t bytes, lkey, rkey;
	enum ibv_wr_opcode opcode;
	bool is_quiet;
};

/* A claim. */
struct rc_case {
	const char *name;
	void (*run)(void);
};
#define CASE(x)                                                                                    \
	{                                                                                          \
#x, x                                                                              \
	}

/** on_devices - the names of both sides' devices; NULL = the first two. */
void on_devices(const char *a, const char *b);
/** run_cases - "ok NAME" or "FAILED NAME: line N: what"; how many failed. */
size_t run_cases(const struct rc_case *c, size_t n);
/** fail - of what a case says when it fails, the first is printed. */
void fail(const char *what, int line);
/** is_failing - the case that is run has failed. */
bool is_failing(void);
#define must(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			fail(#x, __LINE__);                                                        \
	} while (0)

/** now, nap - seconds; 50 us. */
double now(void);
void nap(void);

/** open_device - the one of side @which; ends the program as skipped when there is none. */
struct ibv_context *open_device(int which);
/** make_qp - one more of this side's, reset.  NULL: errno. */
struct ibv_qp *make_qp(struct side *s, uint32_t wrs);
/** open_side - all that a side has, its queue pair reset; @rights: of its memory. */
void open_side(struct side *s, int which, int rights);
/** to_init, to_rtr, to_rts - the next state.  0 or what ibv_modify_qp() says. */
int to_init(struct side *s, unsigned rights);
int to_rtr(struct side *s, const struct side *peer);
int to_rts(struct side *s);
/** open_pair - a may ask, b may answer. */
void open_pair(struct pair *p, int a_rights, int b_rights, unsigned b_qp_rights);
/** open_usual - of b's memory all may be read. */
void open_usual(struct pair *p);
void close_side(struct side *s);
void close_pair(struct pair *p);

/** read_of - the same @bytes from @off of b's memory into a's. */
struct request read_of(struct pair *p, uint32_t off, uint32_t bytes);
/** post - at a.  0 or what ibv_post_send() says. */
int post(struct pair *p, const struct request *r);
/** wait_wc - the next completion; a failure of the case after PATIENCE_S. */
struct ibv_wc wait_wc(struct side *s);
/** expect_status - post it, and that is how it ends. */
void expect_status(struct pair *p, const struct request *r, enum ibv_wc_status status);

/* ---- rc_windows.c ---- */

/** has_windows - do devices have memory windows of type 2B? */
bool has_windows(void);
/** window_cases - what is so where they have; @n: how many. */
const struct rc_case *window_cases(size_t *n);

#endif
