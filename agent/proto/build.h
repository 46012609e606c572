/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_BUILD_H
#define WB_PROTO_BUILD_H
/*
 * Whether a worker's library and its agent understand each other.
 *
 * They come from two images, so they may be of different builds, and they share more than a
 * protocol version tells: the layout of messages, rings and pages.  Each appends to its version a
 * hash of that layout for every protocol version it speaks, oldest first, in the form of a semantic
 * version's build metadata: "0.1.0+1a2b3c4d.5e6f7081".
 *
 * Pure, libc only; any thread.  Layer: proto (L1).
 */
#include <stdbool.h>
#include <stdint.h>

/* Raise it when what agent and library share in memory changes its meaning: the poll page
 * (pollword.h), a lane's rings, the head of a staging area.  Tests make builds with another one. */
#ifndef WBP_SHARED_ABI
#define WBP_SHARED_ABI 1
#endif

#define WB_BUILD_TEXT 64 /* with its NUL */

/** wb_build_text - how this build names itself, with a hash for each of protocol versions @min to
 *  @max.  @version: "0.1.0".  Returns @out. */
const char *wb_build_text(const char *version, uint32_t min, uint32_t max, char out[WB_BUILD_TEXT]);
/**
 * wb_build_is_same - whether @theirs has our layout for a protocol version
 * @theirs:	how the other side named itself; untrusted
 * @their_min:	protocol version of the first hash
 * @proto:	version agreed on, at least @their_min
 * A text without hashes comes from a build older than the hashes.  Its layout is ours for protocol
 * version 1, and for no other.
 */
bool wb_build_is_same(const char *theirs, uint32_t their_min, uint32_t proto);

#endif
