/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_SECURE_H
#define WB_XPORT_SECURE_H
/*
 * TLS 1.3 under the frames and chunks of one bulk socket.
 *
 * It begins where the challenge ends: both sides hold the epoch's key, and the socket's own key is
 * an HMAC with that key over the HELLO frame and the acceptor's nonce.  This key is the pre-shared
 * key of the TLS handshake: whoever changed one byte of the challenge, or did not take part in it,
 * has another one.  An ephemeral key exchange is added (psk_dhe_ke): whoever learns the epoch's key
 * later cannot read what was recorded.  No certificates, tickets, resumption or early data.
 *
 * Both sides say in HELLO that TLS follows, and either refuses a peer whose epoch says otherwise.
 * Everything after PROOF is inside: WELCOME, grants, payload, trailers.
 *
 * Keys are renewed (KeyUpdate) after o.rekey_bytes, well below what one AES-GCM key may carry.
 * Nothing here blocks.  Buffers are made with the handshake; on the chunk path only OpenSSL
 * allocates, for a key update.  Threads: wb__secure_ctx_create() on the loop, all else on the
 * socket's rail.
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

/** wb__secure_turn - go on with the handshake of a socket in WB__S_SECURE.  WB__IDLE until the
 * socket has more, WB__AGAIN when it is done (the state is then WELCOME or ADMIT), or negative. */
int wb__secure_turn(struct wb__sock *s);

/** wb__secure_readv - as recvmsg() without blocking: bytes, 0 at the end, -1 and errno.  Fewer
 * bytes than asked for: there is no more now. */
ssize_t wb__secure_readv(struct wb__sock *s, const struct iovec *iov, int n_iov);
/** wb__secure_writev - as sendmsg() without blocking.  The bytes that it took are encrypted, and
 * their memory is free; fewer bytes than given: the socket is full.  @flags: 0 or MSG_MORE. */
ssize_t wb__secure_writev(struct wb__sock *s, const struct iovec *iov, int n_iov, int flags);
/** wb__secure_flush - send what is encrypted and not sent: 1 = all sent, 0 = socket full,
 * negative. */
int wb__secure_flush(struct wb__sock *s, int flags);
/** wb__secure_free - wipe and free.  NULL is allowed. */
void wb__secure_free(struct wb__secure *t);

#endif
