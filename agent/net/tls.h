/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_TLS_H
#define WB_NET_TLS_H
/*
 * Channels over TLS 1.3 on TCP.
 *
 * Two modes.  PSK: both sides hold a pre-shared key, named by its id; no certificates.  CERT: the
 * server shows a certificate, the client verifies it against a CA file and the server's name; the
 * client's first message must say who it is (Kubernetes).  Only TLS_AES_128_GCM_SHA256 and
 * TLS_AES_256_GCM_SHA384; no tickets, no resumption, no early data.
 *
 * Threads: the loop's; a context may be shared by many channels of one loop.  Layer: net (L1).
 */
#include "net/chan.h"
#include "net/psk.h"

struct wb_loop;
struct wb_tls; /* context: keys or certificates of one side */

enum wb_tls_mode { WB_TLS_PSK = 1, WB_TLS_CERT = 2 };

/* Server: write the key with this id to @out; 0 or -ENOENT.  Called inside a handshake. */
typedef int (*wb_psk_find_fn)(void *cookie, const char *id, struct wb_psk *out);

struct wb_tls_opts {
	enum wb_tls_mode mode;
	const struct wb_psk *psk; /* PSK client: its key (copied).  Server: its only key, or NULL */
	wb_psk_find_fn psk_find; /* PSK server: looks up keys; called before psk is used */
	void *psk_cookie;
	const char *cert_file, *key_file; /* CERT server, PEM; reread by wb_tls_reload().  Both
					   * NULL: nobody gets in before wb_tls_set_pem() */
	const char *ca_file; /* CERT client, PEM; NULL = the system's */
	const char *server_name; /* CERT client: name to verify; NULL = the host dialled */
};

/** wb_tls_create - make a context.  Blocks (reads the files).  0; -EINVAL; -ENOENT, -EACCES, ... or
 * -EBADMSG for a bad file (named); -ENOMEM.  Release with wb_tls_put(). */
int wb_tls_server_create(const struct wb_tls_opts *o, struct wb_tls **out, struct wb_err *err);
/** wb_tls_client_create - the same for the side that dials. */
int wb_tls_client_create(const struct wb_tls_opts *o, struct wb_tls **out, struct wb_err *err);
/** wb_tls_reload - read certificate, key or CA again for future connections (rotation).  0 or
 * negative.  On failure the old ones stay. */
int wb_tls_reload(struct wb_tls *t, struct wb_err *err);
/** wb_tls_set_pem - set a server's certificate chain and key for future connections, from memory.
 * 0; -EBADMSG when they are not usable or do not belong together (the old ones stay); -ENOMEM. */
int wb_tls_set_pem(struct wb_tls *t, const char *cert, const char *key, struct wb_err *err);
/** wb_tls_put - release the caller's reference; channels keep theirs.  NULL is allowed. */
void wb_tls_put(struct wb_tls *t);

#define WB_DIAL_STAGGER_NS 250000000ull
#define WB_DIAL_ADDRS_MAX 8 /* tried in one dial; a name may have more */

struct wb_chan_limits {
	wb_framer_fn framer; /* required */
	void *framer_cookie;
	size_t queue_bytes_max; /* 0 = 64 MiB */
	uint64_t connect_ns; /* name, TCP and TLS together; 0 = 10 s */
	uint64_t dial_ns; /* part of connect_ns: until an address has answered a connect; 0 = 4 s */
	uint64_t linger_ns; /* to send the queue at close; 0 = 2 s */
	/* A peer that has begun a frame, or has something to read, and makes no progress with it
	 * (64 KiB, or its end) for this long, is closed, after twice this time at the latest; 0 =
	 * never. */
	uint64_t stuck_ns;
};

/**
 * wb_tls_connect - dial a peer
 * @tls:	client context
 * @host:	name or address; @port: 1..65535.  Addresses of a name are tried in their order,
 *		each WB_DIAL_STAGGER_NS after the previous one, or as soon as that has failed; the
 *		first that answers is taken, so a dead address costs only this time, not the whole
 *		dial
 * @cb:		on_open or on_closed follows, never from inside the call; on_closed says in one
 *		sentence what to fix (wrong key, wrong certificate, nobody listens, no answer)
 * Returns 0, -EINVAL or -ENOMEM.
 */
int wb_tls_connect(struct wb_loop *loop, struct wb_tls *tls, const char *host, uint16_t port,
	const struct wb_chan_limits *limits, const struct wb_chan_cb *cb, struct wb_chan **out);

struct wb_dial_to {
	const char *const *addr; /* numeric addresses of the peer, best first */
	size_t n; /* 1..WB_DIAL_ADDRS_MAX */
	uint16_t port;
};

/**
 * wb_tls_connect_any - dial a peer that has several addresses, as wb_tls_connect() does
 * The sentence of a failure names each address with its own reason.  Returns 0, -EINVAL or -ENOMEM.
 */
int wb_tls_connect_any(struct wb_loop *loop, struct wb_tls *tls, const struct wb_dial_to *to,
	const struct wb_chan_limits *limits, const struct wb_chan_cb *cb, struct wb_chan **out);

#endif
