/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_FRAME_H
#define WB_PROTO_FRAME_H
/*
 * The 16-byte header before every message, on every kind of connection.
 *
 *	0  u32 magic    "WBP1" (0x31504257 little-endian)
 *	4  u8  version  protocol version the body is written in
 *	5  u8  flags    WB_FRAME_*; unknown bits are refused
 *	6  u16 type     message number (messages.h)
 *	8  u32 bytes    length of the body
 *	12 u32 id       request number; a reply repeats it; 0 = nobody waits for a reply
 *
 * Numbers are little-endian.  The body's length is checked against the cap of its type before
 * anything is allocated.  Pure functions, any thread.  Layer: proto (L1).
 */
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB_FRAME_BYTES 16
#define WB_FRAME_MAGIC 0x31504257u

enum {
	WB_FRAME_REPLY = 1, /* answers the request with the same id */
};
#define WB_FRAME_FLAGS_KNOWN 1u

struct wb_frame {
	uint8_t version, flags;
	uint16_t type;
	uint32_t bytes; /* of the body */
	uint32_t id;
};

/** wb_frame_encode - write the header of @f to @out (WB_FRAME_BYTES bytes). */
void wb_frame_encode(const struct wb_frame *f, uint8_t *out);

/**
 * wb_frame_decode - read and check a header
 * @p, @bytes:	untrusted input; only the first WB_FRAME_BYTES are read
 * @out:	written on success
 * Returns 0; -EBADMSG (truncated, no magic: "not a WeightBridge peer", version 0, unknown flag or
 * message number); -EMSGSIZE when the length is above the cap of the type (both named).
 * A type or flag unknown here is refused also from a newer peer: peers speak the version that
 * was agreed on.
 */
int wb_frame_decode(const void *p, size_t bytes, struct wb_frame *out, struct wb_err *err);

/**
 * wb_frame_length - length of the frame that starts with @head; the framer of net's channels
 * @cookie:	ignored
 * @head:	WB_FRAME_BYTES bytes
 * @total_out:	bytes of header and body together
 * Returns as wb_frame_decode() does.
 */
int wb_frame_length(void *cookie, const uint8_t *head, size_t *total_out, struct wb_err *err);

/**
 * wb_frame_check - check a whole frame in memory (a datagram, or a frame of a channel)
 * @body_out:	on success the body inside @p, out->bytes long
 * Returns as wb_frame_decode() does; -EBADMSG when @bytes is not the header's length plus body's.
 */
int wb_frame_check(const void *p, size_t bytes, struct wb_frame *out, const uint8_t **body_out,
	struct wb_err *err);

/**
 * wb_version_agree - the version two peers speak
 * @what:	who the peer is, for the sentence ("the operator", "agent a-0")
 * @our_min, @our_max: range of this program; @peer_min, @peer_max: range of the peer
 * @out:	on success the greatest version both know
 * Returns 0; -EBADMSG for an empty range or version 0; WB_EVERSION with a sentence that says which
 * side to upgrade.
 */
int wb_version_agree(const char *what, uint32_t our_min, uint32_t our_max, uint32_t peer_min,
	uint32_t peer_max, uint32_t *out, struct wb_err *err);

#endif
