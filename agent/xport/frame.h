/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_FRAME_H
#define WB_XPORT_FRAME_H
/*
 * Frames of the bulk connections (tcp, shm and verbs): pure encode and decode, fixed sizes.
 *
 * Every frame starts with 8 bytes {magic u32, version u8, type u8, bytes u16}, little-endian; bytes
 * counts the whole frame and is a constant of the type, except for TABLE.
 *
 *	HELLO     dialer    who, to whom, epoch, session, socket number, slots, nonce
 *	CHALLENGE acceptor  nonce, MAC
 *	PROOF     dialer    MAC
 *	WELCOME   acceptor  all sockets of the session are in
 *	REJECT    acceptor  code and a sentence; then it closes
 *	GRANT     dialer    slot + generation, chunk
 *	CANCEL    dialer    take the grant back (answered with REFUSE if no WRITE has begun)
 *	WRITE     acceptor  tcp: the payload and a 32-byte trailer follow; shm: TABLEs and a TRAILER
 *	REFUSE    acceptor  code
 *	REGION    acceptor  shm: a memory region, its fd comes with the frame
 *	UNREGION  acceptor  shm: forget it
 *	TABLE     acceptor  shm: ranges {region u32, bytes u32, offset u64} of the running WRITE
 *	TRAILER   acceptor  shm: end of the running WRITE
 *	RELEASE   dialer    shm: the bytes were copied, the source memory is free
 *	QP        both      verbs: a queue pair of this socket, or that it is gone (number 0)
 *	MEMORY    acceptor  verbs: a memory region, with a key for each of these queue pairs (0 =
 *			    not by that one); again: keys have changed
 * verbs uses WRITE, TABLE, TRAILER, RELEASE and UNREGION as shm does.
 *
 * MACs are HMAC-SHA256 with the epoch's key over a label, the HELLO frame and the acceptor's nonce.
 * Where HELLO says TLS (over tcp), a TLS 1.3 handshake follows PROOF, with a pre-shared key that is
 * such a MAC too, and all further frames and payload are inside (secure.h).
 * Layer: xport (L2), internal.
 */
#include "base/buf.h"
#include "xport/xport.h"

#include <stdbool.h>

#define WBP_BULK_MAGIC 0x4b4c4257u /* "WBLK" */
#define WBP_BULK_VERSION 1
#define WBP_BULK_PREFIX 8
#define WBP_BULK_HELLO_BYTES 216
#define WBP_BULK_ANSWER_BYTES 32 /* WRITE and REFUSE: what a tcp dialer reads in one go */
#define WBP_BULK_TEXT 200
#define WBP_BULK_TABLE_MAX 128 /* ranges in one TABLE */
#define WBP_BULK_RANGE_BYTES 16
#define WBP_BULK_FRAME_MAX (WBP_BULK_PREFIX + WBP_BULK_TABLE_MAX * WBP_BULK_RANGE_BYTES)
#define WBP_BULK_NONCE 32
#define WBP_BULK_MAC 32

enum wb__frame_type {
	WBP_BULK_HELLO = 1,
	WBP_BULK_CHALLENGE,
	WBP_BULK_PROOF,
	WBP_BULK_WELCOME,
	WBP_BULK_REJECT,
	WBP_BULK_GRANT,
	WBP_BULK_CANCEL,
	WBP_BULK_WRITE,
	WBP_BULK_REFUSE,
	WBP_BULK_REGION,
	WBP_BULK_UNREGION,
	WBP_BULK_TABLE,
	WBP_BULK_TRAILER,
	WBP_BULK_RELEASE,
	WBP_BULK_QP,
	WBP_BULK_MEMORY,
	WBP_BULK_TYPES,
};

/* TLS: like TCP, but all that follows PROOF is inside TLS. */
enum {
	WBP_BULK_OVER_TCP = 1,
	WBP_BULK_OVER_SHM = 2,
	WBP_BULK_OVER_TLS = 3,
	WBP_BULK_OVER_VERBS = 4,
};

/** wb__hello_over - WBP_BULK_OVER_* of the HELLO that a socket begins with; 0: @first is no HELLO,
 * or too little of one. */
uint16_t wb__hello_over(const uint8_t *first, size_t bytes);

#define WBP_BULK_QPS 4 /* queue pairs behind one socket */

struct wb__qp_frame {
	uint16_t k; /* which queue pair of the socket */
	uint16_t lid;
	uint32_t number, psn; /* number 0: there is none */
	/* acceptor: number of the dialer's queue pair that this answers; 0 = none */
	uint32_t answers;
	uint8_t mtu; /* enum ibv_mtu, 1..5 */
	uint8_t reads; /* READs that it answers, or has out, at once */
	bool has_gid;
	uint8_t gid[16];
};

struct wb__hello {
	uint64_t object, term, number, session;
	uint16_t index, count; /* number of this socket; how many sockets the session has */
	uint16_t slots; /* grants outstanding on this socket */
	uint16_t over; /* WBP_BULK_OVER_* */
	uint8_t nonce[WBP_BULK_NONCE];
	char dialer[WB_XPORT_NAME_MAX], acceptor[WB_XPORT_NAME_MAX];
};

struct wb__range {
	uint32_t region, bytes;
	uint64_t off;
};

struct wb__frame {
	enum wb__frame_type type;
	uint64_t id; /* GRANT CANCEL WRITE REFUSE TRAILER RELEASE; REGION: offset in the fd */
	int32_t code; /* REJECT REFUSE */
	uint32_t region; /* REGION UNREGION */
	uint64_t bytes; /* WRITE REGION */
	uint32_t n_range; /* TABLE */
	const uint8_t *range; /* TABLE: borrowed from the input; wb__range_get() */
	struct wb_xport_chunk chunk; /* GRANT */
	struct wb__hello hello; /* HELLO */
	uint8_t nonce[WBP_BULK_NONCE]; /* CHALLENGE */
	struct wb__qp_frame qp; /* QP */
	uint32_t key[WBP_BULK_QPS]; /* MEMORY; .region, .bytes, .id = address */
	uint8_t mac[WBP_BULK_MAC]; /* CHALLENGE PROOF; TRAILER: the trailer */
	char text[WBP_BULK_TEXT + 1]; /* REJECT: printable */
};

/** wb__frame_bytes - size of the frame that starts with @prefix (8 bytes), or -EBADMSG (not a
 *  frame), WB_EVERSION. */
int wb__frame_bytes(const uint8_t *prefix);
/** wb__frame_decode - decode one whole frame of exactly @bytes bytes; 0 or -EBADMSG.  The input may
 * be hostile. */
int wb__frame_decode(const uint8_t *p, size_t bytes, struct wb__frame *out);
/** wb__frame_encode - encode into @out (room for WBP_BULK_FRAME_MAX bytes); returns the size.
 * TABLE: @f->range has the ranges, already encoded. */
size_t wb__frame_encode(const struct wb__frame *f, uint8_t *out);

/** wb__range_get - entry @i of the encoded ranges of a TABLE. */
static inline struct wb__range wb__range_get(const uint8_t *ranges, uint32_t i)
{
	struct wb_cursor c =
		wb_cursor(ranges + (size_t)i * WBP_BULK_RANGE_BYTES, WBP_BULK_RANGE_BYTES);
	struct wb__range r;

	r.region = wb_cur_u32(&c);
	r.bytes = wb_cur_u32(&c);
	r.off = wb_cur_u64(&c);
	return r;
}
/** wb__range_put - write entry @i; @ranges has room for it. */
void wb__range_put(uint8_t *ranges, uint32_t i, const struct wb__range *r);

/** wb__name_ok - is it a name: 1..63 printable ASCII characters without blanks? */
bool wb__name_ok(const char *name);

/* auth.c: MACs of the challenge, and the key of the TLS handshake after it. */
enum wb__mac_role { WB__MAC_ACCEPTOR, WB__MAC_DIALER, WB__MAC_TLS };
/** wb__mac - compute a MAC of the challenge, or the TLS key; 0 or -EIO (the crypto library
 * failed). */
int wb__mac(const uint8_t key[WB_XPORT_KEY_BYTES], enum wb__mac_role role,
	const uint8_t hello[WBP_BULK_HELLO_BYTES], const uint8_t nonce[WBP_BULK_NONCE],
	uint8_t out[WBP_BULK_MAC]);

#endif
