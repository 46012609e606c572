/* SPDX-License-Identifier: Apache-2.0 */
/* Channels under certificates instead of a pre-shared key. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_tls.h"

#include "base/base.h"
#include "base/err.h"

#include <check.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[256];

static void add_ext(X509 *x, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
}

/* A self-signed certificate for @san, which is its own CA. */
static void make_cert(const char *name, const char *san)
{
	char path[512];
	EVP_PKEY *k = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	FILE *f;

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -60);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_set_pubkey(x, k);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
		(const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(x));
	add_ext(x, NID_basic_constraints, "critical,CA:TRUE");
	add_ext(x, NID_subject_alt_name, san);
	X509_sign(x, k, EVP_sha256());
	snprintf(path, sizeof(path), "%s/%s.pem", dir, name);
	f = fopen(path, "w");
	PEM_write_X509(f, x);
	fclose(f);
	snprintf(path, sizeof(path), "%s/%s.key", dir, name);
	f = fopen(path, "w");
	PEM_write_PrivateKey(f, k, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	X509_free(x);
	EVP_PKEY_free(k);
}

static void cert_set_up(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/wbn-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	make_cert("a", "DNS:localhost,IP:127.0.0.1");
	make_cert("b", "DNS:elsewhere");
	fx_loop_set_up();
}

static void cert_tear_down(void)
{
	char cmd[512];

	fx_loop_tear_down();
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static struct wb_tls *cert_tls(bool is_server, const char *cert, const char *name)
{
	char pem[512], pkey[512];
	struct wb_tls_opts o = {.mode = WB_TLS_CERT, .server_name = name};
	struct wb_err err = {0};
	struct wb_tls *t;
	int rc;

	snprintf(pem, sizeof(pem), "%s/%s.pem", dir, cert);
	snprintf(pkey, sizeof(pkey), "%s/%s.key", dir, cert);
	if (is_server)
		o.cert_file = pem, o.key_file = pkey;
	else
		o.ca_file = pem;
	rc = (is_server ? wb_tls_server_create : wb_tls_client_create)(&o, &t, &err);
	ck_assert_msg(!rc, "%s", err.msg);
	return t;
}

static const struct {
	const char *cert, *ca, *name, *host, *word;
} certs[] = {
	{"a", "a", NULL, "localhost", NULL},
	{"a", "a", NULL, "127.0.0.1", NULL},
	{"b", "b", "elsewhere", "127.0.0.1", NULL},
	{"b", "b", NULL, "127.0.0.1", "check the CA file and the name dialled"},
	{"a", "b", NULL, "127.0.0.1", "is not accepted: self"},
};

START_TEST(a_client_takes_only_a_certificate_of_its_ca_and_name)
{
	struct fx_end server = {0}, client = {0};
	struct wb_tls *st = cert_tls(true, certs[_i].cert, NULL);
	struct wb_tls *ct = cert_tls(false, certs[_i].ca, certs[_i].name);
	struct wb_listener *l = fx_tls_listen(st, &server, false);

	fx_tls_dial(ct, certs[_i].host, wb_listener_port(l), &client);
	if (certs[_i].word) {
		fx_loop_until(&client.closed, 1);
		ck_assert_int_eq(client.code, -EACCES);
		ck_assert_msg(strstr(client.msg, certs[_i].word) != NULL, "%s", client.msg);
		fx_loop_until(&server.refused, 1);
	} else {
		fx_loop_until(&server.opened, 1);
		ck_assert_str_eq(server.identity, "");
		ck_assert_int_eq(fx_send_frame(server.ch, 1, 100), 0);
		fx_loop_until(&client.frames, 1);
		wb_chan_close(server.ch);
		fx_loop_until(&client.closed, 1);
		fx_loop_until(&server.closed, 1);
	}
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

START_TEST(a_key_and_a_certificate_do_not_meet)
{
	struct fx_end server = {0}, client = {0};
	struct wb_tls *st = cert_tls(true, "a", NULL), *ct = fx_psk_tls(false, "k", 1);
	struct wb_tls *st2 = fx_psk_tls(true, "k", 1), *ct2 = cert_tls(false, "a", NULL);
	struct wb_listener *l = fx_tls_listen(st, &server, false);

	fx_tls_dial(ct, "127.0.0.1", wb_listener_port(l), &client);
	fx_loop_until(&client.closed, 1);
	ck_assert_msg(strstr(client.msg, "shows a certificate") != NULL, "%s", client.msg);
	fx_loop_until(&server.refused, 1);
	wb_listener_close(l);
	l = fx_tls_listen(st2, &server, false);
	fx_tls_dial(ct2, "127.0.0.1", wb_listener_port(l), &client);
	fx_loop_until(&client.closed, 2);
	fx_loop_until(&server.refused, 2);
	ck_assert_msg(
		strstr(server.refusal, "offers no pre-shared key") != NULL, "%s", server.refusal);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
	wb_tls_put(st2);
	wb_tls_put(ct2);
}
END_TEST

START_TEST(bad_files_are_named_and_a_reload_keeps_the_old)
{
	char pem[512], other[512];
	struct wb_tls_opts o = {.mode = WB_TLS_CERT, .cert_file = pem, .key_file = other};
	struct wb_tls *t, *st = cert_tls(true, "a", NULL);
	struct wb_err err = {0};
	FILE *f;

	snprintf(pem, sizeof(pem), "%s/a.pem", dir);
	snprintf(other, sizeof(other), "%s/b.key", dir);
	ck_assert_int_eq(wb_tls_server_create(&o, &t, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "b.key") != NULL, "%s", err.msg);
	o.cert_file = "/nonexistent.pem";
	ck_assert_int_eq(wb_tls_server_create(&o, &t, &err), -ENOENT);
	ck_assert_msg(strstr(err.msg, "/nonexistent.pem") != NULL, "%s", err.msg);
	o.mode = WB_TLS_PSK;
	ck_assert_int_eq(wb_tls_server_create(&o, &t, &err), -EINVAL);
	ck_assert_int_eq(wb_tls_reload(st, &err), 0);
	f = fopen(pem, "w");
	fputs("not a certificate\n", f);
	fclose(f);
	ck_assert_int_eq(wb_tls_reload(st, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "a.pem") != NULL, "%s", err.msg);
	wb_tls_put(st);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tls_cert");
	TCase *t;

	t = tcase_create("cert");
	tcase_add_checked_fixture(t, cert_set_up, cert_tear_down);
	tcase_add_loop_test(
		t, a_client_takes_only_a_certificate_of_its_ca_and_name, 0, WB_ARRAY_SIZE(certs));
	tcase_add_test(t, a_key_and_a_certificate_do_not_meet);
	tcase_add_test(t, bad_files_are_named_and_a_reload_keeps_the_old);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
