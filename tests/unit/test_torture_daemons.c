/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torture of what the daemons make when they start: whichever allocation fails, the operator's
 * Kubernetes side says -ENOMEM, and an agent ends with a sentence and exit status 1.  Leaks are
 * the sanitizer's to find.
 */
#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "net/loop.h"
#include "operator-shim/camaps.h"
#include "operator-shim/certs.h"
#include "operator-shim/identity.h"
#include "operator-shim/kube/config.h"
#include "operator-shim/kube/lease.h"
#include "operator-shim/kube/watch.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES_MAX 2000

/* ---- the operator towards Kubernetes: a server that is never reached ----------------------- */

static struct wb_loop *loop;
static struct wb_kube *kube;

static const char config[] = "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
			     "contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\n"
			     "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
			     "users: [{name: u, user: {token: t}}]\n";

static int make_kube(struct wb_kube **out)
{
	struct wb_kube_opts o = {0};
	struct wb_kube_config c;
	int rc = wb_kube_config_parse("f", "", config, sizeof(config) - 1, &c, NULL);

	return rc < 0 ? rc : wb_kube_create(loop, &c, &o, out, NULL);
}

static void set_up(void)
{
	wb_log_level_max = -1;
	ck_assert_int_eq(wb_loop_create(&loop, NULL), 0);
	ck_assert_int_eq(make_kube(&kube), 0);
}

static void tear_down(void)
{
	wb_kube_destroy(kube);
	wb_loop_destroy(loop);
}

static int client(void)
{
	struct wb_kube *k = NULL;
	int rc = make_kube(&k);

	wb_kube_destroy(k);
	return rc;
}

static void answered(void *cookie, const struct wb_kube_reply *r)
{
	(void)cookie;
	(void)r;
}

static int request(void)
{
	struct wb_kube_call c = {.method = "GET", .path = "/version", .done = answered};
	struct wb_kube_rq *rq = NULL;
	int rc = wb_kube_send(kube, &c, &rq);

	wb_kube_cancel(rq);
	wb_mem_fail_at(0); /* what follows is not the maker's */
	wb_loop_run_once(loop, false);
	return rc;
}

static void on_object(void *cookie, json_t *o)
{
	(void)cookie;
	(void)o;
}

static void on_synced(void *cookie)
{
	(void)cookie;
}

static int watch(void)
{
	struct wb_kube_watch_cb cb = {
		.on_put = on_object, .on_gone = on_object, .on_synced = on_synced};
	struct wb_kube_watch_opts o = {.path = "/api/v1/pods", .label_selector = "a", .name = "n"};
	struct wb_kube_watch *w = NULL;
	int rc = wb_kube_watch_start(kube, &o, &cb, &w);

	wb_kube_watch_stop(w);
	return rc;
}

static void on_leading(void *cookie, uint64_t transitions)
{
	(void)cookie;
	(void)transitions;
}

static void on_lost(void *cookie, const char *why)
{
	(void)cookie;
	(void)why;
}

static void on_other(void *cookie, const char *holder, const char *address)
{
	(void)cookie;
	(void)holder;
	(void)address;
}

static int lease(void)
{
	struct wb_kube_lease_cb cb = {
		.on_leading = on_leading, .on_lost = on_lost, .on_other = on_other};
	struct wb_kube_lease_opts o = {
		.namespace_ = "n", .name = "l", .identity = "me", .address = "a:1"};
	struct wb_kube_lease *l = NULL;
	int rc = wb_kube_lease_start(kube, &o, &cb, &l);

	wb_kube_lease_stop(l);
	return rc;
}

static void on_pair(void *cookie, const char *cert, const char *key)
{
	(void)cookie;
	(void)cert;
	(void)key;
}

static int certs(void)
{
	static const char *const name[] = {"a", "b"};
	struct wb__certs_cb cb = {.on_pair = on_pair};
	struct wb__certs_opts o = {.ns = "n", .secret = "s", .name = name, .n_name = 2};
	struct wb__certs *c = NULL;
	int rc = wb__certs_start(kube, &o, &cb, &c);

	wb__certs_stop(c);
	return rc;
}

static int camaps(void)
{
	struct wb__camaps *m = NULL;
	int rc = wb__camaps_create(kube, NULL, 0, &m);

	wb__camaps_destroy(m);
	return rc;
}

static int identity(void)
{
	struct wb__identity *d = NULL;
	struct wb_kube *reviews = NULL;
	int rc = make_kube(&reviews);

	if (rc == 0)
		rc = wb__identity_start(kube, reviews, NULL, "", &d);
	wb__identity_stop(d);
	return rc;
}

static const struct {
	const char *name;
	int (*make)(void);
} makers[] = {{"client", client}, {"request", request}, {"watch", watch}, {"lease", lease},
	{"certs", certs}, {"camaps", camaps}, {"identity", identity}};

START_TEST(each_lost_allocation_is_enomem)
{
	uint64_t n;

	for (n = 1; n < TRIES_MAX; n++) {
		int rc, failed;

		wb_mem_fail_at(n);
		rc = makers[_i].make();
		failed = rc == -ENOMEM || wb_mem_failed();
		if (!failed)
			break;
		ck_assert_msg(rc == -ENOMEM, "%s: allocation %d lost: %d (%s)", makers[_i].name,
			(int)n, rc, wb_strerror(rc));
	}
	wb_mem_fail_at(0);
	ck_assert_msg(n > 1 && n < TRIES_MAX, "%s: %d allocations", makers[_i].name, (int)n - 1);
	ck_assert_int_eq(makers[_i].make(), 0);
}
END_TEST

/* ---- an agent ------------------------------------------------------------------------------- */

static char dir[64], key[96], port[96], path[96], sentences[96];

static void put_key(void)
{
	int fd = open(key, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(write(fd, "a", 1), 1);
	close(fd);
}

static void make_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%.40s/torture-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(key, sizeof(key), "%s/key", dir);
	snprintf(port, sizeof(port), "%s/port", dir);
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(sentences, sizeof(sentences), "%s/err", dir);
	put_key();
}

static void remove_dir(void)
{
	char lock[160];

	snprintf(lock, sizeof(lock), "%s.lock", path);
	unlink(lock);
	unlink(key);
	unlink(port);
	unlink(path);
	unlink(sentences);
	rmdir(dir);
}

/* The child: its @n-th allocation fails. */
static void agent(uint64_t n)
{
	const char *words[] = {"weightbridge-agent", "--name", "a", "--operator", "127.0.0.1:1",
		"--psk-file", key, "--socket", path, "--listen", "127.0.0.1:0", "--http",
		"127.0.0.1:0", "--port-file", port, "--object", "n/a"};
	char *argv[WB_ARRAY_SIZE(words) + 1] = {NULL};
	struct wb__options o;
	struct wb_err err = {0};

	memcpy(argv, words, sizeof(words));
	if (!freopen(sentences, "w", stderr) ||
		wb__options_parse((int)WB_ARRAY_SIZE(argv) - 1, argv, &o, &err) != 0)
		_exit(99);
	wb_log_level_max = -1;
	wb_mem_fail_at(n);
	exit(wb__agent_run(&o));
}

/* Exit status of one that ended by itself; -1: it runs (and is ended). */
static int try_agent(uint64_t n)
{
	pid_t pid;
	int status = 0, calm = 0;

	unlink(port);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		agent(n);
	/* What comes after the port file takes less than 30 ms, or the next try finds it. */
	while (waitpid(pid, &status, WNOHANG) == 0) {
		poll(NULL, 0, 1);
		if (!access(port, F_OK) && ++calm > 30) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
	}
	ck_assert_msg(WIFEXITED(status), "allocation %d lost: signal %d", (int)n, WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void look_for_sentence(uint64_t n)
{
	char text[256] = "";
	FILE *f = fopen(sentences, "r");

	ck_assert_ptr_nonnull(f);
	ck_assert_msg(fgets(text, sizeof(text), f) && !strncmp(text, "weightbridge-agent: ", 20),
		"allocation %d lost: %s", (int)n, text);
	fclose(f);
}

START_TEST(agent_without_memory_ends_with_a_sentence)
{
	int running = 0, ended = 0;
	uint64_t n;

	make_dir();
	/* Three in a row: an allocation may be one that it does without. */
	for (n = 1; n < TRIES_MAX && running < 3; n++) {
		int rc = try_agent(n);

		running = rc < 0 ? running + 1 : 0;
		if (rc < 0)
			continue;
		ck_assert_msg(rc == 1, "allocation %d lost: exit status %d", (int)n, rc);
		look_for_sentence(n);
		ended++;
	}
	remove_dir();
	ck_assert_int_eq(running, 3);
	ck_assert_int_gt(ended, 20);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("torture of daemons");
	TCase *t = tcase_create("operator");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, each_lost_allocation_is_enomem, 0, (int)WB_ARRAY_SIZE(makers));
	suite_add_tcase(s, t);
	t = tcase_create("agent");
	tcase_add_test(t, agent_without_memory_ends_with_a_sentence);
	suite_add_tcase(s, t);
	return fx_run(s);
}
