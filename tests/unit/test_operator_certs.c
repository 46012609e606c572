/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate in a Secret: requests come to the test, which answers them. */
#include "base/err.h"
#include "base/log.h"
#include "net/loop.h"
#include "operator-shim/certs.h"
#include "operator-shim/kube/config.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct wb_loop *loop;
static struct wb_kube *kube;
static struct wb_kube_call asked; /* for the Secret; done NULL = not */

int __wrap_wb_kube_send(struct wb_kube *k, const struct wb_kube_call *c, struct wb_kube_rq **out);

/* Nothing can be written. */
int __wrap_wb_kube_send(struct wb_kube *k, const struct wb_kube_call *c, struct wb_kube_rq **out)
{
	(void)k;
	(void)out;
	if (strcmp(c->method, "GET") != 0)
		return -ENOMEM;
	if (strstr(c->path, "/secrets/"))
		asked = *c;
	return 0;
}

static void set_up(void)
{
	static const char config[] =
		"apiVersion: v1\nkind: Config\ncurrent-context: c\n"
		"contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\n"
		"clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
		"users: [{name: u, user: {token: t}}]\n";
	struct wb_kube_opts o = {0};
	struct wb_kube_config c;

	asked = (struct wb_kube_call){0};
	ck_assert_int_eq(wb_loop_create(&loop, NULL), 0);
	ck_assert_int_eq(wb_kube_config_parse("f", "", config, sizeof(config) - 1, &c, NULL), 0);
	ck_assert_int_eq(wb_kube_create(loop, &c, &o, &kube, NULL), 0);
}

static void tear_down(void)
{
	wb_kube_destroy(kube);
	wb_loop_destroy(loop);
}

/* The server answers that there is no such Secret: what is logged then. */
static const char *log_of_answer(void)
{
	static char text[4096];
	struct wb_kube_reply none = {.status = 404, .reason = "NotFound"};
	FILE *f = tmpfile();
	int old = dup(2);
	size_t n;

	wb_err_set(&none.err, -ENOENT, "there is none");
	ck_assert(f && old >= 0 && dup2(fileno(f), 2) == 2);
	wb_log_level_max = WB_LOG_INFO_;
	asked.done(asked.cookie, &none);
	wb_log_level_max = -1;
	ck_assert_int_eq(dup2(old, 2), 2);
	close(old);
	rewind(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

START_TEST(a_certificate_that_cannot_be_written_is_logged_with_the_reason)
{
	static const char *const name[] = {"operator.ops.svc"};
	struct wb__certs_cb cb = {0};
	struct wb__certs_opts o = {.ns = "ops", .secret = "tls", .name = name, .n_name = 1};
	struct wb__certs *c = NULL;
	const char *said;

	ck_assert_int_eq(wb__certs_start(kube, &o, &cb, &c), 0);
	wb__certs_lead(c);
	while (!asked.done)
		wb_loop_run_once(loop, true);
	said = strstr(log_of_answer(), "certificate not made");
	ck_assert_ptr_nonnull(said);
	ck_assert_msg(strstr(said, wb_strerror(-ENOMEM)) != NULL, "%s", said);
	wb__certs_stop(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("operator certs");
	TCase *tc = tcase_create("certs");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_certificate_that_cannot_be_written_is_logged_with_the_reason);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
