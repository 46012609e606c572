/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_SECURE_H
#define WB_XPORT_SECURE_H
/*
 * TLS 1.3 under the frames and chunks of one bulk socket.
 *
 * It begins where the challenge ends: both sides hold the epoch's key, and the socket's own key is
 * an HMAC with it over the HELLO frame and the acceptor's nonce.  That key is the pre-shared key of
 * the TLS handshake, so that whoever changed one byte of the challenge, or did not take part in it,
 * has another one.  An ephemeral key exchange is added (psk_dhe_ke): who learns the epoch's key
 * later cannot read what was recorded.  No certificates, tickets, resumption or early data.
 *
 * Both sides say in HELLO that TLS follows, and either refuses a peer whose epoch says otherwise.
 * Everything after PROOF is inside: WELCOME, grants, payload, trailers.
 *
 * Keys are renewed (KeyUpdate) after o.rekey_bytes, well below what one AES-GCM key may carry.
 * Nothing here blocks.  Buffers are made with the handshake; on the chunk path only OpenSSL
 * allocates, for a key update.
 * Threads: the context's create on the loop, all else on the socket's rail.
 * Layer: xport (L2), internal.
 */
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct wb__sock;
struct wb__secure; /* of one socket */
struct wb__secure_ctx; /* of one transport */

/** wb__secure_ctx_create - 0; -ENOMEM; -ENOTSUP: OpenSSL here lacks TLS 1.3 with AES-GCM.
 *  @rekey_bytes: plaintext that one key may carry. */
int wb__secure_ctx_create(uint64_t rekey_bytes, struct wb__secure_ctx **out);
/** wb__secure_ctx_destroy - after all its sockets.  NULL is allowed. */
void wb__secure_ctx_destroy(struct wb__secure_ctx *c);

/** wb__secure_turn - a socket in WB__S_SECURE: go on with the handshake.  WB__IDLE until the socket
 *  says more, WB__AGAIN when it is done (the state is then WELCOME or ADMIT), or negative. */
int wb__secure_turn(struct wb__sock *s);

/** wb__secure_readv - as recvmsg() without blocking: bytes, 0 at the end, -1 and errno.  Fewer
 *  bytes than asked for: nothing more is there. */
ssize_t wb__secure_readv(struct wb__sock *s, const struct iovec *iov, int n_iov);
/** wb__secure_writev - as sendmsg() without blocking.  What it took is encrypted, and the memory is
 *  free; fewer bytes than given: the socket is full.  @flags: 0 or MSG_MORE. */
ssize_t wb__secure_writev(struct wb__sock *s, const struct iovec *iov, int n_iov, int flags);
/** wb__secure_flush - send what is encrypted: 1 = all sent, 0 = socket full, negative. */
int wb__secure_flush(struct wb__sock *s, int flags);
/** wb__secure_free - wipe and free.  NULL is allowed. */
void wb__secure_free(struct wb__secure *t);

#endif
