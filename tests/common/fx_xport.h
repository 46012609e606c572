/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_XPORT_H
#define WB_TESTS_FX_XPORT_H
/*
 * Two agents, "src" and "dst", joined by any transport: dst dials and receives, src sends.
 *
 * fx_pump() lets time pass until something happened (threads) or one event happened (sim).  Events
 * are counted by kind and kept, so that a test can say what it waits for.
 */
#include "base/err.h"
#include "tests/common/sim.h"
#include "xport/xport.h"

#define FX_EVENTS 4096

struct fx_side {
	struct wb_xport *x;
	char endpoint[WB_XPORT_ENDPOINT_MAX];
	struct wb_xport_event ev[FX_EVENTS]; /* all, in order; .reason is copied to reason[] */
	int n_ev;
	int count[16]; /* by kind */
	char reason[512]; /* of the last CONN_DOWN or REJECTED */
	char via[24]; /* of the last CONN_UP */
	uint8_t *mem; /* memfd, registered as a region of FX_OBJECT */
	size_t mem_bytes;
	int mem_fd;
	uint32_t region;
};

struct fx_xport {
	const char *kind;
	struct wb_sim_net *net; /* sim */
	struct fx_side src, dst;
	wb_conn_t conn, src_conn; /* dst's and src's number of the connection that fx_join() made */
	uint64_t heard_ns; /* when something happened last */
	bool is_quiet; /* fx_pump() and fx_pump_some() do not poll src */
};

struct fx_opts {
	uint32_t n_rail, sockets, depth;
	bool is_apart;
	uint8_t traffic_class, service_level; /* verbs */
	uint32_t reads_max; /* verbs */
	bool no_windows; /* verbs */
	const char *addr; /* of all rails; NULL = 127.0.0.1 */
	const char *const *src_addr; /* of each of the source's rails; NULL = as others */
	uint64_t rate, handshake_ns, rekey_bytes;
	const char *sysfs; /* verbs */
	const struct wb_clock *clock; /* of both sides; NULL = the real one */
	struct wb_fault *src_fault, *dst_fault;
	size_t mem_bytes; /* of each side; 0 = 1 MiB */
};

#define FX_OBJECT 0x1234
extern const struct wb_xport_epoch fx_epoch;
/** fx_epoch_of - the same, encrypted where the kind says so. */
struct wb_xport_epoch fx_epoch_of(const char *kind);
/** fx_transport - name of the transport: "tcp" for "tls". */
const char *fx_transport(const char *kind);

/** fx_xport_open - wb_xport_open() of the kind; "set:A,B/C,D" is a set of A and B at the source, of
 *  C and D at the receiver (@is_dst), and "set" one of shm and tcp that takes tcp. */
int fx_xport_open(const char *kind, bool is_dst, const struct wb_xport_opts *o,
	struct wb_xport **out, struct wb_err *err);
void fx_open(struct fx_xport *f, const char *kind, const struct fx_opts *o);
/** fx_dial - dst connects to src; does not wait. */
wb_conn_t fx_dial(struct fx_xport *f, const struct wb_xport_epoch *e, const char *name);
/** fx_join - connect and wait until both sides are up. */
void fx_join(struct fx_xport *f);
void fx_close(struct fx_xport *f);
/** fx_pump - let something happen and collect events; fails the test where nothing did for 40 s. */
void fx_pump(struct fx_xport *f);
/** fx_pump_some - the same, but hardly waits: perhaps nothing happened. */
void fx_pump_some(struct fx_xport *f);
/** fx_wait - pump until @side has seen @n events of @kind. */
void fx_wait(struct fx_xport *f, struct fx_side *side, enum wb_xport_event_kind kind, int n);
/** fx_take - the next event of @kind from @from on; moves *from behind it; NULL: none. */
struct wb_xport_event *fx_take(struct fx_side *side, enum wb_xport_event_kind kind, int *from);
/** fx_fill - bytes that depend on @seed and the position. */
void fx_fill(uint8_t *p, size_t n, uint64_t seed);

#endif
