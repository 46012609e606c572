/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_INTERNAL_H
#define WB_NET_INTERNAL_H
/* Shared between the files of net.  Layer: net (L1). */
#include "net/listen.h"
#include "net/loop.h"

#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* A deferred call that needs no allocation; embedded in the struct that it concerns. */
struct wb__defer {
	struct wb__defer *next;
	wb_loop_fn fn;
	void *cookie;
};
/** wb__defer - call @d->fn soon, from the loop; @d is the caller's and must not be queued
 * already. */
void wb__defer(struct wb_loop *loop, struct wb__defer *d);

/** wb__addr_text - write "1.2.3.4:5" or "[::1]:5" to @out. */
void wb__addr_text(const struct sockaddr *sa, char *out, size_t cap);
#define WB__PEER_MAX 128

/* The address that a connection comes from, without its port; IPv4 as a mapped address; all zero
 * from a unix socket. */
struct wb__source {
	uint8_t a[16];
};
/** wb__source_of - the address without its port; all zero for what is neither IPv4 nor IPv6. */
struct wb__source wb__source_of(const struct sockaddr *sa);
/** wb__source_equal - the same address. */
static inline bool wb__source_equal(const struct wb__source *a, const struct wb__source *b)
{
	return !memcmp(a->a, b->a, sizeof(a->a));
}
/** wb__source_is_here - the connection is from 127.0.0.1, ::1 or a unix socket: from within this
 * pod or machine. */
bool wb__source_is_here(const struct wb__source *s);

/** wb__tcp_bind - make a socket that listens on @host ("" or NULL = all addresses, of both
 * families) and @port (0 = any).  0, with *@fd and the port; or negative with the sentence "@what
 * on HOST:PORT: ", why it is not available, and what to do. */
int wb__tcp_bind(const char *what, const char *host, uint16_t port, int *fd, uint16_t *port_out,
	struct wb_err *err);

/* Identifies a file that we made, to recognize it later. */
struct wb__unix_file {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	dev_t dev;
	ino_t ino; /* 0 = there is none */
};
/** wb__unix_bind - make a socket of @type that listens on @path; an old socket on which nobody
 * answers is replaced.  0; or negative with a sentence: then the caller closes *@fd unless it is
 * negative. */
int wb__unix_bind(const char *path, int type, mode_t mode, struct wb__unix_file *f, int *fd,
	struct wb_err *err);
/** wb__unix_remove - remove the file, if it is still ours. */
void wb__unix_remove(const struct wb__unix_file *f);

/** wb__accept_pause - true when @e means that this process is out of descriptors or memory:
 *  waiting a moment is better than asking again at once. */
bool wb__accept_pause(int e);
#define WB__ACCEPT_PAUSE_NS 100000000ull

/* ---- unix sockets (seq.c) -------------------------------------------------------------------- */

struct wb_seq;
/** wb__seq_set_gone - set what to call when a connection that was handed out is freed, since its
 * listener counts these. */
void wb__seq_set_gone(struct wb_seq *s, void (*on_gone)(void *cookie), void *cookie);

/* ---- TLS contexts (tls.c) -------------------------------------------------------------------- */

/* What the key callbacks learn about one connection; it is SSL_get_app_data() of the connection's
 * SSL. */
struct wb__tls_seen {
	struct wb_tls *tls;
	char identity[WB_PSK_ID_MAX]; /* key id that the client named */
	bool was_named, was_found;
};

/** wb__tls_ref - take one more reference, to be released with wb_tls_put(); returns @t. */
struct wb_tls *wb__tls_ref(struct wb_tls *t);
/** wb__tls_is_server - @t was made by wb_tls_server_create(). */
bool wb__tls_is_server(const struct wb_tls *t);
/** wb__tls_ssl - make a connection's SSL on @fd; @host: the dialled host; NULL at a server.  NULL:
 * no memory. */
SSL *wb__tls_ssl(struct wb_tls *t, int fd, const char *host, struct wb__tls_seen *seen);
/** wb__tls_sentence - set the sentence: why the handshake on @ssl failed, and what to fix; clears
 * OpenSSL's queue.  Returns the code. */
int wb__tls_sentence(SSL *ssl, const struct wb__tls_seen *seen, const char *peer, int ssl_error,
	int sys_error, struct wb_err *err);
/** wb__tls_check - after a handshake: was the key really used?  0 or -EACCES. */
int wb__tls_check(SSL *ssl, const struct wb__tls_seen *seen, const char *peer, struct wb_err *err);

/* ---- channels of a listener (tls_chan.c) ----------------------------------------------------- */

struct wb__chan_owner { /* a listener's hooks; NULL members are not called */
	void *cookie;
	void *gone_cookie;
	void (*on_ready)(void *cookie, struct wb_chan *ch); /* handshake done */
	/* The handshake failed; the channel frees itself afterwards. */
	void (*on_failed)(
		void *cookie, struct wb_chan *ch, const char *peer, const struct wb_err *why);
	void (*on_gone)(void *gone_cookie); /* a ready channel was freed */
	int (*on_trust)(void *gone_cookie, enum wb_chan_trust how_far);
};

/** wb__tls_accept - server side of a connected socket; takes @fd_take on success.  @waited_ns: how
 * much of limits->connect_ns has passed already. */
int wb__tls_accept(struct wb_loop *loop, struct wb_tls *tls, int fd_take, const char *peer,
	const struct wb_chan_limits *limits, uint64_t waited_ns, const struct wb__chan_owner *owner,
	struct wb_chan **out);
/** wb__tls_abandon - end a channel whose handshake is not done; no callback. */
void wb__tls_abandon(struct wb_chan *ch);
/** wb__tls_end - end an open channel at once. */
void wb__tls_end(struct wb_chan *ch, const struct wb_err *why);

#endif
