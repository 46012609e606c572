/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "base/err.h"
#include "base/mem.h"
#include "net/internal.h"
#include "net/psk_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <string.h>

/* The first suite is the one whose hash pre-shared keys are bound to. */
#define SUITES WB_PSK_TLS_SUITE ":TLS_AES_256_GCM_SHA384"

struct wb_tls {
	uint32_t refs;
	bool is_server, has_psk;
	enum wb_tls_mode mode;
	SSL_CTX *ctx;
	struct wb_psk psk;
	wb_psk_find_fn psk_find;
	void *psk_cookie;
	char *cert_file, *key_file, *ca_file, *server_name; /* owned, may be NULL */
};

/* ---- pre-shared keys ------------------------------------------------------------------------- */

static int psk_find(SSL *ssl, const unsigned char *id, size_t bytes, SSL_SESSION **out)
{
	struct wb__tls_seen *seen = SSL_get_app_data(ssl);
	struct wb_tls *t = seen->tls;
	struct wb_psk k = {.bytes = 0};

	/* 1 with no session means that there is no such key.  The handshake then fails, since the
	 * server has no certificate. */
	*out = NULL;
	if (!bytes || bytes >= sizeof(seen->identity) || memchr(id, 0, bytes))
		return 1;
	memcpy(seen->identity, id, bytes);
	seen->identity[bytes] = '\0';
	seen->was_named = true;
	if (t->psk_find && !t->psk_find(t->psk_cookie, seen->identity, &k))
		seen->was_found = true;
	else if (t->has_psk && !strcmp(t->psk.id, seen->identity))
		seen->was_found = true, k = t->psk;
	if (seen->was_found)
		*out = wb_psk_session(ssl, k.key, k.bytes);
	wb_psk_clear(&k);
	return !seen->was_found || *out ? 1 : 0;
}

static int psk_use(
	SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *bytes, SSL_SESSION **out)
{
	struct wb__tls_seen *seen = SSL_get_app_data(ssl);
	struct wb_tls *t = seen->tls;

	*out = NULL;
	*id = NULL;
	*bytes = 0;
	/* A second hello may ask for another hash; our keys are bound to SHA-256. */
	if (md && !EVP_MD_is_a(md, "SHA256"))
		return 1;
	*out = wb_psk_session(ssl, t->psk.key, t->psk.bytes);
	if (!*out)
		return 0;
	*id = (const unsigned char *)t->psk.id;
	*bytes = strlen(t->psk.id);
	strcpy(seen->identity, t->psk.id);
	return 1;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static int file_error(const char *what, const char *path, struct wb_err *err)
{
	unsigned long e = ERR_peek_error();
	int sys = ERR_SYSTEM_ERROR(e) ? ERR_GET_REASON(e) : 0, rc;

	if (sys)
		rc = wb_err_set(err, -sys, "%s %s: %s", what, path, strerror(sys));
	else
		rc = wb_err_set(err, -EBADMSG, "%s %s: not usable as PEM: %s", what, path,
			e ? ERR_reason_error_string(e) : "no reason given");
	ERR_clear_error();
	return rc;
}

static int load_files(const struct wb_tls *t, SSL_CTX *ctx, struct wb_err *err)
{
	if (t->mode != WB_TLS_CERT)
		return 0;
	ERR_clear_error();
	if (!t->is_server) {
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
		if (!(t->ca_file ? SSL_CTX_load_verify_file(ctx, t->ca_file)
				 : SSL_CTX_set_default_verify_paths(ctx)))
			return file_error("CA file", t->ca_file ? t->ca_file : "(system)", err);
		return 0;
	}
	if (!t->cert_file)
		return 0; /* certificate and key come by wb_tls_set_pem() */
	if (SSL_CTX_use_certificate_chain_file(ctx, t->cert_file) != 1)
		return file_error("certificate", t->cert_file, err);
	if (SSL_CTX_use_PrivateKey_file(ctx, t->key_file, SSL_FILETYPE_PEM) != 1)
		return file_error("private key", t->key_file, err);
	if (SSL_CTX_check_private_key(ctx) != 1)
		return wb_err_set(err, -EBADMSG, "private key %s does not belong to certificate %s",
			t->key_file, t->cert_file);
	return 0;
}

static int make_ctx(const struct wb_tls *t, SSL_CTX **out, struct wb_err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_method());
	int rc;

	if (!ctx)
		return wb_err_set(err, -ENOMEM, "TLS: out of memory");
	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_read_ahead(ctx, 1); /* one read for each record instead of two */
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	/* Without a key a client must not fall back to accepting any certificate. */
	SSL_CTX_set_verify(ctx, t->is_server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
	if (t->mode == WB_TLS_PSK && t->is_server)
		SSL_CTX_set_psk_find_session_callback(ctx, psk_find);
	else if (t->mode == WB_TLS_PSK)
		SSL_CTX_set_psk_use_session_callback(ctx, psk_use);
	rc = SSL_CTX_set_ciphersuites(ctx, SUITES) == 1
		     ? load_files(t, ctx, err)
		     : wb_err_set(err, -ENOTSUP, "TLS: OpenSSL lacks the cipher suites %s", SUITES);
	if (rc < 0) {
		SSL_CTX_free(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

static int copy_text(char **out, const char *s)
{
	*out = s && *s ? wb_strdup(s) : NULL;
	return !s || !*s || *out ? 0 : -ENOMEM;
}

static int create(
	const struct wb_tls_opts *o, bool is_server, struct wb_tls **out, struct wb_err *err)
{
	struct wb_tls *t;
	int rc;

	if (o->mode == WB_TLS_PSK
			? (!o->psk && (!is_server || !o->psk_find))
			: o->mode != WB_TLS_CERT || (is_server && !o->cert_file != !o->key_file))
		return wb_err_set(err, -EINVAL, "TLS: neither a key nor a certificate was given");
	t = wb_zalloc(1, sizeof(*t));
	if (!t)
		return wb_err_set(err, -ENOMEM, "TLS: out of memory");
	t->refs = 1;
	t->mode = o->mode;
	t->is_server = is_server;
	t->psk_find = o->psk_find;
	t->psk_cookie = o->psk_cookie;
	if (o->psk) {
		t->psk = *o->psk;
		t->has_psk = true;
	}
	if (copy_text(&t->cert_file, o->cert_file) || copy_text(&t->key_file, o->key_file) ||
		copy_text(&t->ca_file, o->ca_file) || copy_text(&t->server_name, o->server_name))
		rc = wb_err_set(err, -ENOMEM, "TLS: out of memory");
	else
		rc = make_ctx(t, &t->ctx, err);
	if (rc < 0) {
		wb_tls_put(t);
		return rc;
	}
	*out = t;
	return 0;
}

int wb_tls_server_create(const struct wb_tls_opts *o, struct wb_tls **out, struct wb_err *err)
{
	return create(o, true, out, err);
}

int wb_tls_client_create(const struct wb_tls_opts *o, struct wb_tls **out, struct wb_err *err)
{
	return create(o, false, out, err);
}

int wb_tls_reload(struct wb_tls *t, struct wb_err *err)
{
	SSL_CTX *ctx;
	int rc = make_ctx(t, &ctx, err);

	if (rc < 0)
		return rc;
	/* Connections hold their own reference to the old context. */
	SSL_CTX_free(t->ctx);
	t->ctx = ctx;
	return 0;
}

static int use_pem(SSL_CTX *ctx, const char *cert, const char *key)
{
	BIO *b = BIO_new_mem_buf(cert, -1), *k = BIO_new_mem_buf(key, -1);
	EVP_PKEY *pkey = k ? PEM_read_bio_PrivateKey(k, NULL, NULL, NULL) : NULL;
	X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
	bool ok = x && pkey && SSL_CTX_use_certificate(ctx, x) == 1 &&
		  SSL_CTX_use_PrivateKey(ctx, pkey) == 1 && SSL_CTX_check_private_key(ctx) == 1;

	X509_free(x);
	while (ok && (x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
		ok = SSL_CTX_add1_chain_cert(ctx, x) == 1;
		X509_free(x);
	}
	EVP_PKEY_free(pkey);
	BIO_free(b);
	BIO_free(k);
	ERR_clear_error();
	return ok ? 0 : -EBADMSG;
}

int wb_tls_set_pem(struct wb_tls *t, const char *cert, const char *key, struct wb_err *err)
{
	SSL_CTX *ctx;
	int rc = make_ctx(t, &ctx, err);

	if (rc < 0)
		return rc;
	rc = use_pem(ctx, cert, key);
	if (rc < 0) {
		SSL_CTX_free(ctx);
		return wb_err_set(err, rc, "certificate and key are not usable, or not of a pair");
	}
	SSL_CTX_free(t->ctx);
	t->ctx = ctx;
	return 0;
}

struct wb_tls *wb__tls_ref(struct wb_tls *t)
{
	t->refs++;
	return t;
}

void wb_tls_put(struct wb_tls *t)
{
	if (!t || --t->refs)
		return;
	SSL_CTX_free(t->ctx);
	wb_psk_clear(&t->psk);
	wb_free(t->cert_file);
	wb_free(t->key_file);
	wb_free(t->ca_file);
	wb_free(t->server_name);
	wb_free(t);
}

bool wb__tls_is_server(const struct wb_tls *t)
{
	return t->is_server;
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool is_address(const char *s)
{
	struct in6_addr a;

	return inet_pton(AF_INET, s, &a) == 1 || inet_pton(AF_INET6, s, &a) == 1;
}

static bool expect_name(const struct wb_tls *t, SSL *ssl, const char *host)
{
	const char *name = t->server_name ? t->server_name : host;

	if (is_address(name))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	/* SSL_set_tlsext_host_name() without its cast, which drops a const. */
	return SSL_set1_host(ssl, name) == 1 &&
	       SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
		       (void *)(uintptr_t)name) == 1;
}

SSL *wb__tls_ssl(struct wb_tls *t, int fd, const char *host, struct wb__tls_seen *seen)
{
	SSL *ssl = SSL_new(t->ctx);

	if (!ssl)
		return NULL;
	memset(seen, 0, sizeof(*seen));
	seen->tls = t;
	SSL_set_app_data(ssl, seen);
	if (SSL_set_fd(ssl, fd) != 1 ||
		(!t->is_server && t->mode == WB_TLS_CERT && !expect_name(t, ssl, host))) {
		SSL_free(ssl);
		return NULL;
	}
	if (t->is_server)
		SSL_set_accept_state(ssl);
	else
		SSL_set_connect_state(ssl);
	return ssl;
}

/* ---- sentences ------------------------------------------------------------------------------- */

static int server_sentence(const struct wb__tls_seen *seen, const char *peer, int reason,
	const char *detail, struct wb_err *err)
{
	if (seen->was_named && !seen->was_found)
		return wb_err_set(err, -EACCES,
			"%s names key \"%s\", which is not known here: give both sides the same "
			"key file and object",
			peer, seen->identity);
	if (reason == SSL_R_BINDER_DOES_NOT_VERIFY)
		return wb_err_set(err, -EACCES,
			"%s holds another key \"%s\" than this side: copy this side's key file "
			"there",
			peer, seen->identity);
	if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_WRONG_VERSION_NUMBER)
		return wb_err_set(err, -EPROTO, "%s does not speak TLS 1.3", peer);
	if (seen->tls->mode == WB_TLS_PSK && !seen->was_named)
		return wb_err_set(err, -EACCES,
			"%s offers no pre-shared key: start it with the key file of this side",
			peer);
	return wb_err_set(err, -EPROTO, "TLS with %s: %s", peer, detail);
}

static int client_sentence(SSL *ssl, const struct wb__tls_seen *seen, const char *peer, int reason,
	const char *detail, struct wb_err *err)
{
	long verify = SSL_get_verify_result(ssl);
	bool is_psk = seen->tls->mode == WB_TLS_PSK;

	switch (reason) {
	case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
	case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
	case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
	case SSL_R_TLSV1_ALERT_UNKNOWN_PSK_IDENTITY:
		if (!is_psk)
			break;
		return wb_err_set(err, -EACCES,
			"%s does not accept key \"%s\": copy the key file of that side here", peer,
			seen->identity);
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		if (is_psk)
			return wb_err_set(err, -EACCES,
				"%s shows a certificate instead of using key \"%s\": start it with "
				"that key file, or this side with a CA file",
				peer, seen->identity);
		return wb_err_set(err, -EACCES,
			"the certificate of %s is not accepted: %s: check the CA file and the name "
			"dialled",
			peer, X509_verify_cert_error_string(verify));
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_UNSUPPORTED_PROTOCOL:
		return wb_err_set(err, -EPROTO,
			"%s does not speak TLS 1.3: check the address and the port", peer);
	}
	return wb_err_set(err, -EPROTO, "TLS with %s: %s", peer, detail);
}

int wb__tls_sentence(SSL *ssl, const struct wb__tls_seen *seen, const char *peer, int ssl_error,
	int sys_error, struct wb_err *err)
{
	unsigned long e = ERR_peek_error();
	int reason = ERR_GET_REASON(e);
	const char *detail = e ? ERR_reason_error_string(e) : NULL;

	ERR_clear_error();
	if (ssl_error == SSL_ERROR_SYSCALL && sys_error)
		return wb_err_set(err, -sys_error, "%s: %s", peer, strerror(sys_error));
	if (ssl_error == SSL_ERROR_SYSCALL || ssl_error == SSL_ERROR_ZERO_RETURN || !e ||
		reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		return wb_err_set(err, -ECONNRESET, "%s closed the connection", peer);
	detail = detail ? detail : "failed";
	return seen->tls->is_server ? server_sentence(seen, peer, reason, detail, err)
				    : client_sentence(ssl, seen, peer, reason, detail, err);
}

int wb__tls_check(SSL *ssl, const struct wb__tls_seen *seen, const char *peer, struct wb_err *err)
{
	if (seen->tls->mode == WB_TLS_PSK && !SSL_session_reused(ssl))
		return wb_err_set(err, -EACCES, "%s did not use the pre-shared key", peer);
	return 0;
}
