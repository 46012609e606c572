/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/pki.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define DAY_S 86400
#define CA_DAYS 1095
#define CERT_DAYS 90
#define BACKDATE_S 300 /* clocks of pods differ */
#define SPREAD_S 900 /* by then every agent has heard of a new authority */
#define AUTHORITIES_MAX 4

/* ---- reading ---- */

static BIO *open_pem(const char *pem)
{
	return BIO_new_mem_buf(pem ? pem : "", -1);
}

static size_t read_certs(const char *pem, X509 **out, size_t max)
{
	BIO *b = open_pem(pem);
	size_t n = 0;

	while (b && n < max && (out[n] = PEM_read_bio_X509(b, NULL, NULL, NULL)))
		n++;
	BIO_free(b);
	ERR_clear_error();
	return n;
}

static EVP_PKEY *read_key(const char *pem)
{
	BIO *b = open_pem(pem);
	EVP_PKEY *k = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, NULL) : NULL;

	BIO_free(b);
	ERR_clear_error();
	return k;
}

/*
 * A key in PEM also contains its public half.  If its private half is damaged, it still seems to
 * fit the certificate, but nobody accepts what it signs.
 */
static bool is_whole(EVP_PKEY *k)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(k, NULL);
	bool ok = ctx && EVP_PKEY_pairwise_check(ctx) == 1;

	EVP_PKEY_CTX_free(ctx);
	return ok;
}

static bool is_pair(const X509 *x, const char *key_pem)
{
	EVP_PKEY *k = read_key(key_pem);
	bool ok = k && X509_check_private_key(x, k) == 1 && is_whole(k);

	EVP_PKEY_free(k);
	ERR_clear_error();
	return ok;
}

static int64_t seconds_of(const ASN1_TIME *t)
{
	struct tm tm;

	return t && ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

/* The certificate is valid already, and more than a third of its time is left. */
static bool is_fresh(const X509 *x, uint64_t wall_s)
{
	int64_t from = seconds_of(X509_get0_notBefore(x)), to = seconds_of(X509_get0_notAfter(x));
	int64_t now = (int64_t)wall_s;

	return from <= now && to - now > (to - from) / 3;
}

static bool has_names(X509 *x, const struct wb__pki_want *w)
{
	for (size_t i = 0; i < w->n_name; i++)
		if (X509_check_host(x, w->name[i], 0, 0, NULL) != 1)
			return false;
	return true;
}

static bool is_signed_by(X509 *x, X509 *ca)
{
	bool ok = X509_verify(x, X509_get0_pubkey(ca)) == 1;

	ERR_clear_error();
	return ok;
}

/* The newest authority has signed @x, or an older one has and the newest is not known to all yet.
 */
static bool is_trusted(X509 *x, X509 **ca, size_t n, uint64_t wall_s)
{
	int64_t made = seconds_of(X509_get0_notBefore(ca[0])) + BACKDATE_S;

	if (is_signed_by(x, ca[0]))
		return true;
	for (size_t i = 1; i < n; i++)
		if (is_signed_by(x, ca[i]))
			return (int64_t)wall_s < made + SPREAD_S;
	return false;
}

unsigned wb__pki_due(const struct wb__pki *p, const struct wb__pki_want *w)
{
	X509 *ca[AUTHORITIES_MAX], *cert = NULL;
	size_t n = read_certs(p->ca, ca, AUTHORITIES_MAX);
	unsigned due = 0;

	if (!n || !is_signed_by(ca[0], ca[0]) || !is_pair(ca[0], p->ca_key) ||
		!is_fresh(ca[0], w->wall_s))
		due |= WB__PKI_CA;
	if (!read_certs(p->cert, &cert, 1) || !is_pair(cert, p->key) ||
		!is_fresh(cert, w->wall_s) || !has_names(cert, w) || !n ||
		!is_trusted(cert, ca, n, w->wall_s))
		due |= WB__PKI_CERT;
	X509_free(cert);
	for (size_t i = 0; i < n; i++)
		X509_free(ca[i]);
	return due;
}

/* ---- making ---- */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	bool ok;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = e && X509_add_ext(x, e, -1) == 1;
	X509_EXTENSION_free(e);
	return ok;
}

static bool set_serial(X509 *x)
{
	BIGNUM *n = BN_new();
	bool ok = n && BN_rand(n, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
		  BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));

	BN_free(n);
	return ok;
}

static bool set_times(X509 *x, uint64_t wall_s, int days)
{
	return ASN1_TIME_set(X509_getm_notBefore(x), (time_t)wall_s - BACKDATE_S) &&
	       ASN1_TIME_set(X509_getm_notAfter(x), (time_t)wall_s + (time_t)days * DAY_S);
}

static bool set_subject(X509 *x, const char *cn)
{
	X509_NAME *n = X509_get_subject_name(x);

	return X509_NAME_add_entry_by_txt(n, "O", MBSTRING_ASC,
		       (const unsigned char *)"weightbridge", -1, -1, 0) == 1 &&
	       X509_NAME_add_entry_by_txt(
		       n, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0) == 1;
}

static X509 *begin(EVP_PKEY *key, const char *cn, uint64_t wall_s, int days)
{
	X509 *x = X509_new();

	if (x && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
		set_times(x, wall_s, days) && set_subject(x, cn) && X509_set_pubkey(x, key) == 1)
		return x;
	X509_free(x);
	return NULL;
}

static bool add_authority_parts(X509 *x)
{
	return add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	       add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	       add_extension(x, x, NID_subject_key_identifier, "hash");
}

static bool add_endpoint_parts(X509 *x, X509 *ca, const struct wb__pki_want *w)
{
	struct wb_buf names;
	bool ok;

	wb_buf_init(&names, 65536);
	for (size_t i = 0; i < w->n_name; i++)
		wb_buf_printf(&names, "%sDNS:%s", i ? "," : "", w->name[i]);
	ok = names.rc == 0 && add_extension(x, ca, NID_basic_constraints, "critical,CA:FALSE") &&
	     add_extension(x, ca, NID_key_usage, "critical,digitalSignature") &&
	     add_extension(x, ca, NID_ext_key_usage, "serverAuth") &&
	     add_extension(x, ca, NID_authority_key_identifier, "keyid") &&
	     add_extension(x, ca, NID_subject_alt_name, wb_buf_cstr(&names));
	wb_buf_finish(&names);
	return ok;
}

static char *take_text(BIO *b)
{
	const char *data = NULL;
	long n = BIO_get_mem_data(b, &data);
	char *out = n > 0 ? wb_alloc((size_t)n + 1) : NULL;

	if (out) {
		memcpy(out, data, (size_t)n);
		out[n] = '\0';
	}
	return out;
}

static char *cert_text(X509 *first, X509 **more, size_t n_more)
{
	BIO *b = BIO_new(BIO_s_mem());
	bool ok = b && PEM_write_bio_X509(b, first) == 1;
	char *out;

	for (size_t i = 0; ok && i < n_more; i++)
		ok = PEM_write_bio_X509(b, more[i]) == 1;
	out = ok ? take_text(b) : NULL;
	BIO_free(b);
	return out;
}

static char *key_text(EVP_PKEY *k)
{
	BIO *b = BIO_new(BIO_s_secmem());
	char *out = b && PEM_write_bio_PKCS8PrivateKey(b, k, NULL, NULL, 0, NULL, NULL) == 1
			    ? take_text(b)
			    : NULL;

	BIO_free(b);
	return out;
}

static void replace(char **at, char *text)
{
	if (*at)
		OPENSSL_cleanse(*at, strlen(*at));
	wb_free(*at);
	*at = text;
}

/* Replace both, or neither if one is missing. */
static bool replace_both(char **cert, char *cert_pem, char **key, char *key_pem)
{
	if (!cert_pem || !key_pem) {
		replace(&cert_pem, NULL);
		replace(&key_pem, NULL);
		return false;
	}
	replace(cert, cert_pem);
	replace(key, key_pem);
	return true;
}

static bool make_authority(struct wb__pki *p, const struct wb__pki_want *w)
{
	X509 *old[AUTHORITIES_MAX - 1], *x = NULL;
	size_t n = read_certs(p->ca, old, AUTHORITIES_MAX - 1), n_keep = 0;
	EVP_PKEY *k = EVP_EC_gen("P-256");
	bool ok;

	for (size_t i = 0; i < n; i++)
		if (seconds_of(X509_get0_notAfter(old[i])) > (int64_t)w->wall_s)
			old[n_keep++] = old[i];
		else
			X509_free(old[i]);
	if (k)
		x = begin(k, "weightbridge operator authority", w->wall_s, CA_DAYS);
	ok = x && X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
	     add_authority_parts(x) && X509_sign(x, k, EVP_sha256()) &&
	     replace_both(&p->ca, cert_text(x, old, n_keep), &p->ca_key, key_text(k));
	X509_free(x);
	EVP_PKEY_free(k);
	for (size_t i = 0; i < n_keep; i++)
		X509_free(old[i]);
	return ok;
}

static bool make_cert(struct wb__pki *p, const struct wb__pki_want *w)
{
	EVP_PKEY *k = EVP_EC_gen("P-256"), *ca_key = read_key(p->ca_key);
	X509 *ca = NULL, *x = NULL;
	bool ok = k && ca_key && read_certs(p->ca, &ca, 1);

	/* Clients check the names in the extension; this name is for people. */
	if (ok)
		x = begin(k, "weightbridge operator", w->wall_s, CERT_DAYS);
	ok = x && X509_set_issuer_name(x, X509_get_subject_name(ca)) == 1 &&
	     add_endpoint_parts(x, ca, w) && X509_sign(x, ca_key, EVP_sha256()) &&
	     replace_both(&p->cert, cert_text(x, NULL, 0), &p->key, key_text(k));
	X509_free(x);
	X509_free(ca);
	EVP_PKEY_free(k);
	EVP_PKEY_free(ca_key);
	return ok;
}

static int copy(char **to, const char *from)
{
	*to = from ? wb_strdup(from) : NULL;
	return from && !*to ? -ENOMEM : 0;
}

int wb__pki_make(struct wb__pki *p, const struct wb__pki_want *w, unsigned due, struct wb_err *err)
{
	struct wb__pki q = {0};
	int rc = 0;

	if (copy(&q.ca, p->ca) || copy(&q.ca_key, p->ca_key) || copy(&q.cert, p->cert) ||
		copy(&q.key, p->key))
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	if (rc == 0 && (((due & WB__PKI_CA) && !make_authority(&q, w)) ||
			       ((due & WB__PKI_CERT) && !make_cert(&q, w)))) {
		const char *why = ERR_reason_error_string(ERR_peek_error());

		rc = wb_err_set(err, -EIO, "make a certificate: %s", why ? why : "out of memory");
	}
	ERR_clear_error();
	if (rc == 0) {
		struct wb__pki old = *p;

		*p = q;
		q = old;
	}
	wb__pki_finish(&q);
	return rc;
}

void wb__pki_finish(struct wb__pki *p)
{
	replace(&p->ca, NULL);
	replace(&p->ca_key, NULL);
	replace(&p->cert, NULL);
	replace(&p->key, NULL);
}
