/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/pki.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <check.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_S 86400u

static const char *const names[] = {"operator.system.svc", "operator"};
static const char *const more_names[] = {"operator.system.svc", "operator", "third.example"};
static struct wb__pki p;
static uint64_t t0;

static void set_up(void)
{
	t0 = (uint64_t)time(NULL);
	memset(&p, 0, sizeof(p));
}

static void tear_down(void)
{
	wb__pki_finish(&p);
}

static struct wb__pki_want at(uint64_t wall_s)
{
	return (struct wb__pki_want){names, WB_ARRAY_SIZE(names), wall_s};
}

static unsigned due_at(uint64_t wall_s)
{
	struct wb__pki_want w = at(wall_s);

	return wb__pki_due(&p, &w);
}

static void make_at(uint64_t wall_s, unsigned due)
{
	struct wb__pki_want w = at(wall_s);
	struct wb_err err = {0};

	ck_assert_msg(wb__pki_make(&p, &w, due, &err) == 0, "%s", err.msg);
}

static size_t count(const char *pem)
{
	size_t n = 0;

	for (; (pem = strstr(pem, "BEGIN CERTIFICATE")); pem++)
		n++;
	return n;
}

/* A client that trusts @bundle accepts @cert for @name at that time. */
static bool is_accepted(const char *bundle, const char *cert, const char *name, uint64_t wall_s)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	BIO *b = BIO_new_mem_buf(bundle, -1), *c = BIO_new_mem_buf(cert, -1);
	X509 *x, *leaf = PEM_read_bio_X509(c, NULL, NULL, NULL);
	bool ok;

	while ((x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
		X509_STORE_add_cert(store, x);
		X509_free(x);
	}
	X509_STORE_CTX_init(ctx, store, leaf, NULL);
	X509_STORE_CTX_set_time(ctx, 0, (time_t)wall_s);
	X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
	X509_VERIFY_PARAM_set1_host(X509_STORE_CTX_get0_param(ctx), name, 0);
	ok = X509_verify_cert(ctx) == 1;
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	X509_free(leaf);
	BIO_free(b);
	BIO_free(c);
	ERR_clear_error();
	return ok;
}

START_TEST(from_nothing_both_are_made_and_a_client_accepts_them)
{
	ck_assert_uint_eq(due_at(t0), WB__PKI_CA | WB__PKI_CERT);
	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	ck_assert_uint_eq(due_at(t0), 0);
	for (size_t i = 0; i < WB_ARRAY_SIZE(names); i++)
		ck_assert(is_accepted(p.ca, p.cert, names[i], t0 + DAY_S));
	ck_assert(!is_accepted(p.ca, p.cert, "another.name", t0 + DAY_S));
	ck_assert(!is_accepted(p.ca, p.cert, names[0], t0 + 91 * DAY_S));
}
END_TEST

static const struct {
	unsigned days, due;
} ages[] = {
	{59, 0},
	{61, WB__PKI_CERT}, /* a third of 90 days is left */
	{200, WB__PKI_CERT},
	{729, WB__PKI_CERT},
	{731, WB__PKI_CA | WB__PKI_CERT},
	{4000, WB__PKI_CA | WB__PKI_CERT},
};

START_TEST(each_is_due_when_a_third_of_its_time_is_left)
{
	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	ck_assert_uint_eq(due_at(t0 + ages[_i].days * DAY_S), ages[_i].due);
}
END_TEST

START_TEST(what_is_damaged_or_does_not_fit_is_due)
{
	struct wb__pki_want w = {more_names, WB_ARRAY_SIZE(more_names), t0};
	struct wb__pki whole, other = {0};
	char *const bad = (char *)(uintptr_t) "not PEM";

	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	whole = p;
	ck_assert_uint_eq(wb__pki_due(&p, &w), WB__PKI_CERT);
	p.cert = bad;
	ck_assert_uint_eq(due_at(t0), WB__PKI_CERT);
	p.cert = whole.cert, p.key = NULL;
	ck_assert_uint_eq(due_at(t0), WB__PKI_CERT);
	p.key = whole.ca_key; /* a key, of another pair */
	ck_assert_uint_eq(due_at(t0), WB__PKI_CERT);
	p.key = whole.key, p.ca_key = NULL;
	ck_assert_uint_eq(due_at(t0), WB__PKI_CA);
	p.ca_key = whole.ca_key, p.ca = bad;
	ck_assert_uint_eq(due_at(t0), WB__PKI_CA | WB__PKI_CERT);
	/* A certificate of a stranger's authority. */
	p = other;
	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	other = p;
	p = whole;
	p.cert = other.cert, p.key = other.key;
	ck_assert_uint_eq(due_at(t0), WB__PKI_CERT);
	/* Clocks: nothing of the future. */
	p = whole;
	ck_assert_uint_eq(due_at(t0 - DAY_S), WB__PKI_CA | WB__PKI_CERT);
	wb__pki_finish(&other);
}
END_TEST

/* PKCS #8 of P-256 (RFC 5915): the private half ends at byte 67, the public one follows. */
static char *with_other_private_half(const char *key_pem)
{
	BIO *b = BIO_new_mem_buf(key_pem, -1), *out = BIO_new(BIO_s_mem());
	unsigned char *der = NULL;
	char *text, *name = NULL, *header = NULL, *at;
	long n;

	ck_assert_int_eq(PEM_read_bio(b, &name, &header, &der, &n), 1);
	der[50] ^= 1;
	PEM_write_bio(out, name, header, der, n);
	n = BIO_get_mem_data(out, &at);
	text = wb_strndup(at, (size_t)n);
	OPENSSL_free(der);
	OPENSSL_free(header);
	OPENSSL_free(name);
	BIO_free(b);
	BIO_free(out);
	return text;
}

/* Then a certificate would be made again and again, and no client would accept one. */
START_TEST(a_key_whose_private_half_is_damaged_is_due)
{
	char **const key[] = {&p.ca_key, &p.key};
	char *bad;

	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	bad = with_other_private_half(*key[_i]);
	wb_free(*key[_i]);
	*key[_i] = bad;
	ck_assert_uint_eq(due_at(t0), _i ? WB__PKI_CERT : WB__PKI_CA);
	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	ck_assert_uint_eq(due_at(t0), 0);
	ck_assert(is_accepted(p.ca, p.cert, names[0], t0));
}
END_TEST

/* One byte of the authority's certificate: what it says of itself is no longer what was signed. */
START_TEST(a_damaged_authority_is_due)
{
	char *at;

	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	at = p.ca + strlen(p.ca) - 60; /* in its signature */
	*at = *at == 'A' ? 'B' : 'A';
	ck_assert_uint_ne(due_at(t0) & WB__PKI_CA, 0);
}
END_TEST

START_TEST(a_new_authority_is_heard_of_before_it_signs)
{
	uint64_t t = t0 + 731 * DAY_S;
	struct wb__pki old = {0};

	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	make_at(t - 60 * DAY_S, WB__PKI_CERT);
	old.ca = wb_strdup(p.ca);
	make_at(t, WB__PKI_CA);
	ck_assert_uint_eq(count(p.ca), 2);
	/* Agents that heard, and agents that did not, take the certificate in use. */
	ck_assert(is_accepted(p.ca, p.cert, names[0], t));
	ck_assert(is_accepted(old.ca, p.cert, names[0], t));
	ck_assert_uint_eq(due_at(t + 60) & WB__PKI_CA, 0);
	make_at(t, WB__PKI_CERT);
	ck_assert_uint_eq(due_at(t), 0);
	ck_assert(is_accepted(p.ca, p.cert, names[0], t));
	ck_assert(!is_accepted(old.ca, p.cert, names[0], t));
	/* The old one leaves when it has ended. */
	make_at(t0 + 1096 * DAY_S, WB__PKI_CA);
	ck_assert_uint_eq(count(p.ca), 2);
	wb__pki_finish(&old);
}
END_TEST

START_TEST(a_certificate_of_the_old_authority_is_due_when_the_new_one_is_known)
{
	uint64_t t = t0 + 10 * DAY_S;

	make_at(t0, WB__PKI_CA | WB__PKI_CERT);
	make_at(t, WB__PKI_CA);
	ck_assert_uint_eq(due_at(t), 0);
	ck_assert_uint_eq(due_at(t + 899), 0);
	ck_assert_uint_eq(due_at(t + 901), WB__PKI_CERT);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pki");
	TCase *t = tcase_create("pki");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, from_nothing_both_are_made_and_a_client_accepts_them);
	tcase_add_loop_test(
		t, each_is_due_when_a_third_of_its_time_is_left, 0, WB_ARRAY_SIZE(ages));
	tcase_add_test(t, what_is_damaged_or_does_not_fit_is_due);
	tcase_add_loop_test(t, a_key_whose_private_half_is_damaged_is_due, 0, 2);
	tcase_add_test(t, a_damaged_authority_is_due);
	tcase_add_test(t, a_new_authority_is_heard_of_before_it_signs);
	tcase_add_test(t, a_certificate_of_the_old_authority_is_due_when_the_new_one_is_known);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
