/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_PROXY_H
#define WB_TESTS_FX_PROXY_H
/*
 * Somebody on the wire: stands between two ends of TCP on loopback, in a thread of its own, keeps
 * what goes by and may change it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FX_TO_ACCEPTOR, FX_TO_DIALER };
enum fx_meddle { FX_PASS, FX_FLIP, FX_CUT, FX_INSERT, FX_HOLD };

/* What happens to the first link, once, when byte @at of the stream in direction @dir comes by. */
struct fx_tamper {
	enum fx_meddle what; /* HOLD: nothing goes on in this direction, and the link stays */
	int dir;
	uint64_t at;
	const uint8_t *insert; /* INSERT: before it; borrowed */
	size_t insert_bytes;
};

struct fx_proxy;

/** fx_proxy_open - listen on loopback and pass everything on to @target ("127.0.0.1:4711"); at most
 *  @keep bytes of each direction of each link are kept. */
struct fx_proxy *fx_proxy_open(const char *target, const struct fx_tamper *t, size_t keep);
/** fx_proxy_endpoint - what to dial; valid until close. */
const char *fx_proxy_endpoint(const struct fx_proxy *p);
/** fx_proxy_saw - did these bytes go by, in any link and direction?  After fx_proxy_stop(). */
bool fx_proxy_saw(const struct fx_proxy *p, const void *bytes, size_t n);
/** fx_proxy_passed - bytes that went by in a direction of the first link.  After fx_proxy_stop().
 */
uint64_t fx_proxy_passed(const struct fx_proxy *p, int dir);
/** fx_proxy_kept - what is kept of a direction of the first link.  After fx_proxy_stop(). */
const uint8_t *fx_proxy_kept(const struct fx_proxy *p, int dir, size_t *bytes);
/** fx_proxy_stop - close the links and end the thread; what was seen stays.  Again: nothing. */
void fx_proxy_stop(struct fx_proxy *p);
void fx_proxy_close(struct fx_proxy *p);

#endif
