/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/secure.h"

#include "base/mem.h"
#include "net/psk_tls.h"
#include "xport/internal.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD 16384u /* plaintext of a full record */
#define RECORD_ROOM (RECORD + 256u) /* with header and tag, and a key update before it */
#define OUT_BYTES (4 * RECORD_ROOM) /* sent in one call */
#define IN_BYTES (4 * RECORD_ROOM) /* received in one call */
static char groups[] = "X25519:P-256"; /* not const, since OpenSSL takes it as char * */

static const unsigned char identity[] = "weightbridge bulk";

struct wb__secure_ctx {
	SSL_CTX *ssl;
	BIO_METHOD *bio;
	uint64_t rekey_records;
};

struct wb__secure {
	struct wb__sock *s;
	SSL *ssl;
	uint8_t psk[WB_XPORT_KEY_BYTES]; /* until the handshake is over */
	uint64_t key_left; /* records until our key is renewed */
	uint32_t out_at, out_have; /* bytes [at, have) of out are not sent */
	uint8_t out[OUT_BYTES];
};

/* ---- the socket, as OpenSSL sees it -----------------------------------------------------------
 */

static int bio_read(BIO *b, char *p, int n)
{
	struct wb__secure *t = BIO_get_data(b);
	ssize_t got;

	BIO_clear_retry_flags(b);
	do {
		got = recv(t->s->fd, p, (size_t)n, MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		BIO_set_retry_read(b);
	return (int)got;
}

static int bio_write(BIO *b, const char *p, int n)
{
	struct wb__secure *t = BIO_get_data(b);
	size_t bytes = (size_t)n;

	BIO_clear_retry_flags(b);
	if (t->out_at && OUT_BYTES - t->out_have < bytes) {
		memmove(t->out, t->out + t->out_at, t->out_have - t->out_at);
		t->out_have -= t->out_at;
		t->out_at = 0;
	}
	if (OUT_BYTES - t->out_have < bytes) {
		BIO_set_retry_write(b);
		return -1;
	}
	memcpy(t->out + t->out_have, p, bytes);
	t->out_have += (uint32_t)bytes;
	return n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *p)
{
	(void)b;
	(void)num;
	(void)p;
	return cmd == BIO_CTRL_FLUSH || cmd == BIO_CTRL_DUP;
}

/* ---- keys -------------------------------------------------------------------------------------
 */

static int psk_find(SSL *ssl, const unsigned char *id, size_t bytes, SSL_SESSION **out)
{
	struct wb__secure *t = SSL_get_app_data(ssl);

	/* To return 1 without a session means that there is no such key.  The handshake then fails,
	 * since there is no certificate either. */
	*out = NULL;
	if (bytes != sizeof(identity) || memcmp(id, identity, bytes) != 0)
		return 1;
	*out = wb_psk_session(ssl, t->psk, sizeof(t->psk));
	return *out != NULL;
}

static int psk_use(
	SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *bytes, SSL_SESSION **out)
{
	struct wb__secure *t = SSL_get_app_data(ssl);

	*out = NULL;
	*id = NULL;
	*bytes = 0;
	/* The server may ask for another hash by a HelloRetryRequest, but our keys are bound to
	 * SHA-256. */
	if (md && !EVP_MD_is_a(md, "SHA256"))
		return 1;
	*out = wb_psk_session(ssl, t->psk, sizeof(t->psk));
	if (!*out)
		return 0;
	*id = identity;
	*bytes = sizeof(identity);
	return 1;
}

/* ---- contexts ---------------------------------------------------------------------------------
 */

static bool set_up(SSL_CTX *c)
{
	SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
	SSL_CTX_clear_options(c, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(c, 1);
	SSL_CTX_set_default_read_buffer_len(c, IN_BYTES);
	SSL_CTX_set_psk_find_session_callback(c, psk_find);
	SSL_CTX_set_psk_use_session_callback(c, psk_use);
	return SSL_CTX_set_num_tickets(c, 0) == 1 &&
	       SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 &&
	       SSL_CTX_set_ciphersuites(c, WB_PSK_TLS_SUITE) == 1 &&
	       SSL_CTX_set1_groups_list(c, groups) == 1;
}

int wb__secure_ctx_create(uint64_t rekey_bytes, struct wb__secure_ctx **out)
{
	struct wb__secure_ctx *c = wb_zalloc(1, sizeof(*c));
	int rc = -ENOMEM;

	if (!c)
		return rc;
	c->rekey_records = WB_MAX(rekey_bytes / RECORD, 1u);
	c->ssl = SSL_CTX_new(TLS_method());
	c->bio = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weightbridge bulk");
	if (!c->ssl || !c->bio) {
		if (ERR_GET_REASON(ERR_peek_error()) != ERR_R_MALLOC_FAILURE)
			rc = -ENOTSUP;
		goto fail;
	}
	BIO_meth_set_read(c->bio, bio_read);
	BIO_meth_set_write(c->bio, bio_write);
	BIO_meth_set_ctrl(c->bio, bio_ctrl);
	rc = -ENOTSUP;
	if (!set_up(c->ssl))
		goto fail;
	*out = c;
	return 0;
fail:
	ERR_clear_error();
	wb__secure_ctx_destroy(c);
	return rc;
}

void wb__secure_ctx_destroy(struct wb__secure_ctx *c)
{
	if (!c)
		return;
	SSL_CTX_free(c->ssl);
	BIO_meth_free(c->bio);
	wb_free(c);
}

/* ---- one socket -------------------------------------------------------------------------------
 */

static int create(struct wb__sock *s)
{
	struct wb__secure_ctx *c = s->rail->x->secure;
	struct wb__secure *t = wb_zalloc(1, sizeof(*t));
	BIO *b;

	if (!t)
		return -ENOMEM;
	t->s = s;
	t->key_left = c->rekey_records;
	t->ssl = SSL_new(c->ssl);
	b = BIO_new(c->bio);
	if (!t->ssl || !b || wb__mac(s->key, WB__MAC_TLS, s->hello_raw, s->nonce, t->psk)) {
		BIO_free(b);
		wb__secure_free(t);
		return -ENOMEM;
	}
	BIO_set_data(b, t);
	BIO_set_init(b, 1);
	SSL_set_bio(t->ssl, b, b);
	SSL_set_app_data(t->ssl, t);
	if (s->is_dialer) {
		/* If the server does not use the key, the dialer must not accept a certificate
		 * instead. */
		SSL_set_verify(t->ssl, SSL_VERIFY_PEER, NULL);
		SSL_set_connect_state(t->ssl);
	} else {
		SSL_set_accept_state(t->ssl);
	}
	s->secure = t;
	return 0;
}

void wb__secure_free(struct wb__secure *t)
{
	if (!t)
		return;
	SSL_free(t->ssl);
	OPENSSL_cleanse(t->psk, sizeof(t->psk));
	wb_free(t);
}

int wb__secure_flush(struct wb__sock *s, int flags)
{
	struct wb__secure *t = s->secure;
	int rc = wb__sock_push(s, t->out, &t->out_at, t->out_have, flags);

	if (rc == 1)
		t->out_at = t->out_have = 0;
	return rc;
}

static bool is_about_key(int reason)
{
	return reason == SSL_R_BINDER_DOES_NOT_VERIFY ||
	       reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
	       reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR ||
	       reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE ||
	       reason == SSL_R_TLSV1_ALERT_UNKNOWN_PSK_IDENTITY;
}

/* Note why OpenSSL failed.  An alert that it has for the peer is sent as far as the socket takes
 * it. */
static int fail(struct wb__sock *s, int ssl_error)
{
	int sys = errno;
	unsigned long e = ERR_peek_error();
	int reason = ERR_GET_REASON(e);
	const char *text = e ? ERR_reason_error_string(e) : NULL;
	bool is_damage = reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC ||
			 reason == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC;
	bool is_end = ssl_error == SSL_ERROR_ZERO_RETURN ||
		      reason == SSL_R_UNEXPECTED_EOF_WHILE_READING ||
		      (ssl_error == SSL_ERROR_SYSCALL && !e);

	ERR_clear_error();
	if (ssl_error == SSL_ERROR_SYSCALL && sys)
		return wb__sock_errno(s, sys);
	if (is_end)
		return wb__sock_errno(s, 0);
	(void)wb__secure_flush(s, 0);
	if (ssl_error == SSL_ERROR_WANT_WRITE)
		return wb__sock_fail(s, -EPROTO, "agent %s makes us answer too much", s->peer);
	if (s->state != WB__S_SECURE && is_damage)
		return wb__sock_fail(s, -EBADMSG,
			"bytes between agent %s and here were changed on the way: a TLS record "
			"does not verify",
			s->peer);
	text = text ? text : "no reason given";
	if (s->state == WB__S_SECURE && is_about_key(reason))
		return wb__sock_fail(s, -EKEYREJECTED,
			"agent %s and this one do not have the same key for TLS, although they "
			"held the epoch's: somebody is between them (%s)",
			s->peer, text);
	return wb__sock_fail(s, -EPROTO, "TLS with agent %s %s: %s", s->peer,
		s->state == WB__S_SECURE ? "did not begin" : "ended", text);
}

static int shaken(struct wb__sock *s)
{
	struct wb__ev e = {.kind = WB__EV_AUTHED, .sock = s};
	struct wb__secure *t = s->secure;

	if (!SSL_session_reused(t->ssl) || SSL_version(t->ssl) != TLS1_3_VERSION)
		return wb__sock_fail(
			s, -EKEYREJECTED, "agent %s did not use the epoch's key in TLS", s->peer);
	OPENSSL_cleanse(t->psk, sizeof(t->psk));
	if (s->is_dialer) {
		s->state = WB__S_WELCOME;
	} else {
		s->state = WB__S_ADMIT;
		wb__emit(s->rail, &e, false);
	}
	return WB__AGAIN;
}

int wb__secure_turn(struct wb__sock *s)
{
	int rc, why;

	if (s->tx_at < s->tx_have)
		return WB__IDLE; /* PROOF is not sent completely yet */
	if (!s->secure && create(s))
		return wb__sock_fail(s, -ENOMEM, "no memory for TLS with agent %s", s->peer);
	if (!wb__rail_has_room(s->rail)) {
		wb__rail_wake_at(s->rail, s->rail->now_ns + 100 * WB_NS_PER_US);
		return WB__WAIT;
	}
	ERR_clear_error();
	errno = 0;
	rc = SSL_do_handshake(s->secure->ssl);
	if (rc == 1) {
		rc = wb__secure_flush(s, 0);
		return rc < 0 ? rc : shaken(s);
	}
	why = SSL_get_error(s->secure->ssl, rc);
	if (why != SSL_ERROR_WANT_READ)
		return fail(s, why);
	s->rd_ready = false;
	rc = wb__secure_flush(s, 0);
	return rc < 0 ? rc : WB__IDLE;
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

/* Read up to @n bytes.  1 = all, 0 = no more now, negative. */
static int read_full(struct wb__sock *s, uint8_t *p, size_t n, size_t *done)
{
	struct wb__secure *t = s->secure;

	for (size_t at = 0; at < n;) {
		size_t got = 0;
		int why;

		ERR_clear_error();
		errno = 0;
		if (SSL_read_ex(t->ssl, p + at, n - at, &got) == 1) {
			at += got;
			*done += got;
			continue;
		}
		why = SSL_get_error(t->ssl, 0);
		return why == SSL_ERROR_WANT_READ ? 0 : fail(s, why);
	}
	return 1;
}

ssize_t wb__secure_readv(struct wb__sock *s, const struct iovec *iov, int n_iov)
{
	size_t done = 0;
	int rc = 1;

	for (int i = 0; i < n_iov && rc == 1; i++)
		rc = read_full(s, iov[i].iov_base, iov[i].iov_len, &done);
	if (done || rc == 1)
		return (ssize_t)done;
	errno = rc ? -rc : EAGAIN;
	return -1;
}

/* The next bytes from @at on, up to one record.  Returns where they are; if they are in several
 * pieces they are copied to @room. */
static const uint8_t *next_record(
	const struct iovec *iov, int n_iov, struct wb__at *at, uint8_t *room, size_t *bytes)
{
	size_t have = 0;

	while (have < RECORD && at->i < (uint32_t)n_iov) {
		const uint8_t *p = (const uint8_t *)iov[at->i].iov_base + at->off;
		size_t left = iov[at->i].iov_len - at->off, n = WB_MIN(left, RECORD - have);

		at->off += n;
		if (n == left) {
			at->i++;
			at->off = 0;
		}
		*bytes = have + n;
		if (!have && (n == RECORD || at->i == (uint32_t)n_iov))
			return p;
		memcpy(room + have, p, n);
		have += n;
	}
	return room;
}

/* Encrypt one record into t->out, where there is room for it. */
static int seal(struct wb__sock *s, const uint8_t *p, size_t bytes)
{
	struct wb__secure *t = s->secure;
	size_t n = 0;

	ERR_clear_error();
	if (!t->key_left) {
		if (SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
			return fail(s, SSL_ERROR_SSL);
		t->key_left = s->rail->x->secure->rekey_records;
		wb__count(&s->rail->rekeys, 1);
	}
	if (SSL_write_ex(t->ssl, p, bytes, &n) != 1)
		return fail(s, SSL_get_error(t->ssl, 0));
	assert(n == bytes && t->out_have <= OUT_BYTES);
	t->key_left--;
	return 0;
}

ssize_t wb__secure_writev(struct wb__sock *s, const struct iovec *iov, int n_iov, int flags)
{
	struct wb__secure *t = s->secure;
	struct wb__at at = {0};
	size_t all = 0, done = 0;

	for (int i = 0; i < n_iov; i++)
		all += iov[i].iov_len;
	while (done < all) {
		const uint8_t *p;
		size_t n = 0;
		int rc = 1;

		if (OUT_BYTES - (t->out_have - t->out_at) < RECORD_ROOM)
			rc = wb__secure_flush(s, MSG_MORE);
		if (!rc)
			break;
		if (rc > 0) {
			p = next_record(iov, n_iov, &at, s->rail->scratch, &n);
			rc = seal(s, p, n);
		}
		if (rc < 0) {
			errno = -rc;
			return -1;
		}
		done += n;
	}
	if (done == all && wb__secure_flush(s, flags) < 0) {
		errno = EPIPE; /* wb__secure_flush() has noted the cause */
		return -1;
	}
	if (done)
		return (ssize_t)done;
	errno = EAGAIN;
	return -1;
}
