/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_VERBS_H
#define WB_TESTS_FX_VERBS_H
/*
 * The fake libibverbs, loaded so that the transport finds it as libibverbs.so.1, and what a test
 * may do to it.
 */
#include "tests/fakeverbs/fakeverbs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fx_verbs {
	void (*reset)(void);
	void (*rule)(const struct fakeverbs_rule *);
	void (*port)(int device, int port, bool is_up);
	void (*remove)(int device);
	void (*fatal)(int device);
	void (*folder)(int device, const char *path);
	void (*regid)(int device, int port, uint8_t last);
	void (*apart)(bool is_so);
	void (*break_calls)(const char *function, int err, uint32_t times);
	void (*slow)(uint64_t reg_ns);
	void (*dmabuf)(int device, int err);
	void (*peer)(const void *addr, uint64_t bytes, int fd, uint64_t off);
	void (*limit)(int rd_atomic, uint32_t max_msg, int max_cqe);
	void (*mtu)(int device, int mtu);
	void (*windows)(int device, bool has);
	void (*count)(struct fakeverbs_counts *);
};

/** fx_verbs - the fake; loaded at the first call, which has to come before the transport is opened.
 */
const struct fx_verbs *fx_verbs(void);
/** fx_verbs_old - before any other: it is the library of a time before ibv_reg_dmabuf_mr(). */
void fx_verbs_old(void);
/** fx_verbs_fresh - the same, without rules, and with ports and counts as at first. */
const struct fx_verbs *fx_verbs_fresh(void);

/* With FX_DEVICES="A,A B,B" (tests/roce) the transport's contract is tested on those devices of
 * this machine, those before the blank for the source and the others for the receiver; the fake is
 * not loaded then, and cases of other transports are over at once. */

/** fx_verbs_is_left_out - cases of this kind have nothing to show on devices. */
bool fx_verbs_is_left_out(const char *kind);
/** fx_verbs_open - before a transport of the kind verbs is opened; on devices a line says so. */
void fx_verbs_open(void);
/** fx_verbs_rail - the address of rail @i of a side (0 = the source) into @out. */
void fx_verbs_rail(int side, uint32_t i, char *out, size_t cap);

#endif
