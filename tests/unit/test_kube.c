/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the Kubernetes client: cutting a watch stream, kubeconfigs, text, waiting. */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/claim.h"
#include "operator-shim/kube/config.h"
#include "operator-shim/kube/cursor.h"
#include "operator-shim/kube/lease.h"
#include "operator-shim/kube/series.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/token.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- cursor ---- */

struct seen {
	char text[512];
	unsigned n, stop_after;
};

static int note(void *cookie, enum wb_kube_event what, json_t *o)
{
	struct seen *s = cookie;
	const char *name = json_string_value(json_object_get(o, "n"));

	snprintf(s->text + strlen(s->text), sizeof(s->text) - strlen(s->text), "%d%s;", what,
		name ? name : "");
	return ++s->n == s->stop_after ? -ECANCELED : 0;
}

static int feed(const char *text, size_t n, size_t cut1, size_t cut2, size_t max, struct seen *s)
{
	struct wb_kube_cursor c;
	struct wb_err err = {0};
	int rc;

	memset(s->text, 0, sizeof(s->text));
	s->n = 0;
	wb_kube_cursor_init(&c, max, note, s);
	rc = wb_kube_cursor_feed(&c, text, cut1, &err);
	if (rc == 0)
		rc = wb_kube_cursor_feed(&c, text + cut1, cut2 - cut1, &err);
	if (rc == 0)
		rc = wb_kube_cursor_feed(&c, text + cut2, n - cut2, &err);
	if (rc == 0)
		rc = wb_kube_cursor_end(&c, &err);
	ck_assert(rc == 0 || rc == -ECANCELED || err.msg[0]);
	if (rc < 0)
		ck_assert_int_eq(wb_kube_cursor_feed(&c, "x", 1, NULL), rc);
	wb_kube_cursor_finish(&c);
	return rc;
}

static const struct {
	const char *text, *want;
	int rc;
	unsigned stop_after;
} streams[] = {
	{"{\"type\":\"ADDED\",\"object\":{\"n\":\"a\"}}\n\r\n{\"type\":\"MODIFIED\",\"object\":{"
	 "\"n\":"
	 "\"b\"}}\n",
		"0a;1b;", 0, 0},
	{"{\"type\":\"DELETED\",\"object\":{\"n\":\"\xc3\xa9\"}}\n{\"type\":\"BOOKMARK\","
	 "\"object\":{}}",
		"2\xc3\xa9;3;", 0, 0},
	{"{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n", "4;", 0, 0},
	{"{\"type\":\"NEWER\"}\n{\"type\":\"NEWER\",\"object\":{\"n\":\"x\"}}\n", "5;5x;", 0, 0},
	{"", "", 0, 0},
	{"\n\n", "", 0, 0},
	{"{\"type\":\"ADDED\",\"object\":{\"n\":\"a\"}}\nx\n{}", "0a;", -EPROTO, 0},
	{"{\"type\":\"ADDED\"}\n", "", -EPROTO, 0},
	{"{\"type\":\"ADDED\",\"object\":[]}\n", "", -EPROTO, 0},
	{"{\"object\":{}}\n", "", -EPROTO, 0},
	{"{\"type\":\"ADDED\",\"type\":\"ADDED\",\"object\":{}}\n", "", -EPROTO, 0},
	{"[]\n", "", -EPROTO, 0},
	{"{\"type\":\"ADDED\",\"object\":{\"n\":\"a\"", "", -EPROTO, 0},
	{"{\"type\":\"ADDED\",\"object\":{\"n\":\"a\"}}\n{\"type\":\"ADDED\",\"object\":{\"n\":"
	 "\"b\"}}\n",
		"0a;", -ECANCELED, 1},
};

START_TEST(cut_anywhere_gives_the_same_events)
{
	const char *text = streams[_i].text;
	size_t n = strlen(text);

	for (size_t a = 0; a <= n; a++)
		for (size_t b = a; b <= n; b++) {
			struct seen s = {.stop_after = streams[_i].stop_after};

			ck_assert_int_eq(feed(text, n, a, b, 4096, &s), streams[_i].rc);
			ck_assert_str_eq(s.text, streams[_i].want);
		}
}
END_TEST

START_TEST(long_line_is_refused_wherever_it_is_cut)
{
	const char *text = "{\"type\":\"ADDED\",\"object\":{\"n\":\"abc\"}}\n";
	size_t n = strlen(text);
	struct seen s = {0};

	for (size_t a = 0; a <= n; a++) {
		ck_assert_int_eq(feed(text, n, a, a, n - 1, &s), 0);
		ck_assert_int_eq(feed(text, n, a, a, n - 2, &s), -E2BIG);
		ck_assert_uint_eq(s.n, 0);
	}
}
END_TEST

/* ---- text ---- */

START_TEST(escape_leaves_only_unreserved)
{
	struct wb_buf b;

	wb_buf_init(&b, 1024);
	wb_kube_put_escaped(&b, "aZ9-._~/?&= %+\xc3\xa9\n,!()");
	ck_assert_str_eq(wb_buf_cstr(&b), "aZ9-._~%2F%3F%26%3D%20%25%2B%C3%A9%0A%2C%21%28%29");
	wb_buf_finish(&b);
}
END_TEST

static const struct {
	const char *in, *out; /* NULL = refused */
} base64[] = {
	{"", ""},
	{"Zg==", "f"},
	{"Zm8=", "fo"},
	{"Zm9v", "foo"},
	{"Zm9v\nYmFy\r\n", "foobar"},
	{"Zg=", NULL},
	{"Zg", NULL},
	{"Z===", NULL},
	{"====", NULL},
	{"Zg==Zg==", NULL},
	{"Zm9v!", NULL},
	{"Z g=", NULL},
	{"Zm9vYg==x", NULL},
	{"+/+/", "\xfb\xff\xbf"},
};

START_TEST(base64_is_strict)
{
	uint8_t *out = NULL;
	size_t n = 0;
	int rc = wb_kube_base64(base64[_i].in, &out, &n);

	if (!base64[_i].out) {
		ck_assert_int_eq(rc, -EINVAL);
		return;
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(n, strlen(base64[_i].out));
	ck_assert_mem_eq(out, base64[_i].out, n + 1);
	wb_free(out);
}
END_TEST

START_TEST(time_has_microseconds)
{
	char text[WB_KUBE_TIME_TEXT];

	ck_assert_str_eq(wb_kube_time(1767322845000006789ull, text), "2026-01-02T03:00:45.000006Z");
	ck_assert_str_eq(wb_kube_time(0, text), "1970-01-01T00:00:00.000000Z");
}
END_TEST

START_TEST(backoff_grows_jitters_obeys_and_forgets)
{
	struct wb_kube_backoff b = {.min_ns = 500, .max_ns = 30000, .healthy_ns = 60000};
	uint64_t least = UINT64_MAX, most = 0, now = 1000;

	for (int i = 0; i < 12; i++) {
		uint64_t w = wb_kube_backoff_next(&b, now, UINT64_MAX - 7 * (uint64_t)i, 0);

		ck_assert_uint_ge(w, 250);
		ck_assert_uint_le(w, 30000);
		now += w;
	}
	ck_assert_uint_eq(b.next_ns, 30000);
	for (uint64_t i = 0; i < 1000; i++) {
		struct wb_kube_backoff c = b;
		uint64_t w = wb_kube_backoff_next(&c, now, i * 6364136223846793005ull >> 3, 0);

		least = WB_MIN(least, w);
		most = WB_MAX(most, w);
	}
	ck_assert_uint_lt(least, 3000); /* full jitter: also short ones */
	ck_assert_uint_gt(most, 27000);
	ck_assert_uint_eq(wb_kube_backoff_next(&b, now, 0, 5 * WB_NS_PER_S), 5 * WB_NS_PER_S);
	ck_assert_uint_eq(wb_kube_backoff_next(&b, now, 0, 9999 * WB_NS_PER_S), 600 * WB_NS_PER_S);
	wb_kube_backoff_next(&b, now + 200000, 0, 0);
	ck_assert_uint_eq(b.next_ns, 1000); /* was healthy for long: starts anew */
}
END_TEST

/* ---- config ---- */

#define HEAD                                                                                       \
	"apiVersion: v1\nkind: Config\ncurrent-context: c\n"                                       \
	"contexts:\n- {name: x, context: {cluster: y}}\n"                                          \
	"- name: c\n  context: {cluster: k, user: u, namespace: n}\n"
#define CLUSTER "clusters:\n- name: k\n  cluster: {server: \"https://h:6443/p//\"}\n"
#define USER(text) "users:\n- name: u\n  user: {" text "}\n"

static const struct {
	const char *text, *want; /* part of the sentence; NULL = taken */
} configs[] = {
	{HEAD CLUSTER USER("token: t"), NULL},
	{HEAD CLUSTER USER(""), NULL},
	{HEAD CLUSTER "users:\n- name: u\n  user: null\n", NULL},
	{HEAD CLUSTER USER("client-certificate: a, client-key: /b"), NULL},
	{HEAD CLUSTER USER("client-certificate-data: Zg==, client-key-data: Zg=="), NULL},
	{HEAD CLUSTER USER("exec: {command: aws}"), "user u logs in by a program (exec)"},
	{HEAD CLUSTER USER("auth-provider: {name: gcp}"), "auth-provider"},
	{HEAD CLUSTER USER("username: a"), "a password"},
	{HEAD CLUSTER USER("client-key: a"), "client-certificate and client-key together"},
	{HEAD CLUSTER USER("token: \"a\\r\\nb: c\""), "more than one line"},
	{HEAD CLUSTER USER("token: \"a\\x01b\""), "control character"},
	{HEAD CLUSTER USER("token: [a]"), "token must be a word"},
	{HEAD CLUSTER USER("client-key-data: \"?\", client-certificate: a"), "not base64"},
	{HEAD CLUSTER "users: []\n", "no user named u"},
	{HEAD USER("token: t"), "no cluster named k"},
	{HEAD "clusters: 5\n", "no cluster named k"},
	{HEAD "clusters:\n- name: k\n  cluster: {server: \"http://h\"}\n", "https://"},
	{HEAD "clusters:\n- name: k\n  cluster: {server: \"https://\"}\n", "https://"},
	{HEAD "clusters:\n- name: k\n  cluster: {server: \"https:///\"}\n", "https://"},
	{HEAD "clusters:\n- name: k\n  cluster: {server: \"https:///p\"}\n", "https://"},
	{HEAD "clusters:\n- name: k\n  cluster: {server: \"//\"}\n", "https://"},
	{HEAD "clusters:\n- name: k\n  cluster: {}\n", "no server"},
	{HEAD "clusters:\n- name: k\n  cluster: [1]\n", "is not a map"},
	{"current-context: z\ncontexts: []\n", "no context named z"},
	{"contexts: []\n", "no current-context"},
	{"- a\n", "not a kubeconfig"},
	{"", "not a kubeconfig"},
	{"a: b\n---\na: b\n", "not a kubeconfig"},
	{"a: &x [1]\nb: *x\n", "not supported"},
	{"a: {", "not YAML"},
};

START_TEST(kubeconfig_is_taken_or_refused_with_a_sentence)
{
	struct wb_kube_config c;
	struct wb_err err = {0};
	int rc = wb_kube_config_parse(
		"kc", "/dir", configs[_i].text, strlen(configs[_i].text), &c, &err);

	if (!configs[_i].want) {
		ck_assert_msg(rc == 0, "%s", err.msg);
		ck_assert_str_eq(c.server, "https://h:6443/p");
		ck_assert_str_eq(c.namespace_, "n");
		if (c.cert.file) {
			ck_assert_str_eq(c.cert.file, "/dir/a");
			ck_assert_str_eq(c.key.file, "/b");
		}
		wb_kube_config_finish(&c);
		return;
	}
	ck_assert_int_lt(rc, 0);
	ck_assert_int_eq(rc, err.code);
	ck_assert_msg(strstr(err.msg, configs[_i].want) && strstr(err.msg, "kc"), "%s", err.msg);
	ck_assert_msg(!strstr(err.msg, "secret"), "%s", err.msg);
}
END_TEST

START_TEST(first_kubeconfig_that_is_there_counts)
{
	const char *text = HEAD CLUSTER USER("token: t");
	char file[] = "/tmp/wb-kubeconfig-XXXXXX", list[128];
	int fd = mkstemp(file);
	struct wb_kube_config c;
	struct wb_err err = {0};

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	snprintf(list, sizeof(list), "/none/a::%s:/none/b", file);
	ck_assert_int_eq(wb_kube_config_load(list, &c, &err), 0);
	ck_assert_str_eq(c.server, "https://h:6443/p");
	wb_kube_config_finish(&c);
	unlink(file);
	ck_assert_int_eq(wb_kube_config_load(list, &c, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "none of /none/a"));
	ck_assert_int_eq(wb_kube_config_load("/none/a", &c, &err), -ENOENT);
	ck_assert_str_eq(err.msg, "kubeconfig /none/a: No such file or directory");
}
END_TEST

START_TEST(short_memory_leaves_nothing)
{
	const char *text =
		HEAD CLUSTER USER("client-certificate-data: Zg==, client-key: b, token: t");

	for (uint64_t n = 1;; n++) {
		struct wb_kube_config c;
		struct wb_err err = {0};
		int rc;

		wb_mem_fail_at(n);
		rc = wb_kube_config_parse("kc", "d", text, strlen(text), &c, &err);
		if (!wb_mem_failed()) {
			ck_assert_int_eq(rc, 0);
			wb_kube_config_finish(&c);
			break;
		}
		ck_assert_int_eq(rc, -ENOMEM);
	}
	wb_mem_fail_at(0);
}
END_TEST

START_TEST(outside_of_a_pod_is_said)
{
	struct wb_kube_config c;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_kube_config_in_cluster(NULL, "443", "/none", &c, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "KUBERNETES_SERVICE_HOST"));
	ck_assert_int_eq(wb_kube_config_in_cluster("::1", "443", "/none", &c, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "/none/token"));
}
END_TEST

/* ---- lease ---- */

#define AGO(x) ((x)*WB_NS_PER_S)

static const struct {
	struct wb_kube_lease_view v;
	bool leading;
	enum wb_kube_lease_step want;
} leases[] = {
	{{"", 15, 0, 0}, false, WB_KUBE_LEASE_TAKE}, /* released */
	{{"other", 15, AGO(14), 0}, false, WB_KUBE_LEASE_WAIT},
	{{"other", 15, AGO(15), 0}, false, WB_KUBE_LEASE_TAKE}, /* not renewed for its time */
	{{"me", 15, 0, 0}, false, WB_KUBE_LEASE_TAKE}, /* our write, whose answer got lost */
	{{"me", 15, 0, AGO(9)}, true, WB_KUBE_LEASE_RENEW},
	{{"me", 15, 0, AGO(10)}, true, WB_KUBE_LEASE_LOST}, /* before others may take it */
	{{"other", 15, 0, 0}, true, WB_KUBE_LEASE_LOST},
	{{"", 15, 0, 0}, true, WB_KUBE_LEASE_LOST},
};

START_TEST(lease_is_taken_renewed_or_lost)
{
	ck_assert_int_eq(wb_kube_lease_judge(&leases[_i].v, "me", leases[_i].leading, AGO(10)),
		leases[_i].want);
}
END_TEST

/* Whoever may write the Lease names whom he likes. */
START_TEST(holder_that_is_no_name_is_not_shown)
{
	static const struct {
		const char *holder, *shown;
	} cases[] = {
		{"ops/some", "ops/some"}, {"", ""}, {"a b", "?"}, {"\u00e9", "?"}, {"a\nb", "?"}};
	char long_one[WB_KUBE_LEASE_HOLDER + 1], shown[WB_KUBE_LEASE_HOLDER];

	memset(long_one, 'x', sizeof(long_one));
	long_one[WB_KUBE_LEASE_HOLDER] = '\0';
	for (size_t i = 0; i <= WB_ARRAY_SIZE(cases); i++) {
		bool is_long = i == WB_ARRAY_SIZE(cases);
		json_t *lease = json_pack("{s:{s:s}}", "spec", "holderIdentity",
			is_long ? long_one : cases[i].holder);

		wb_kube_lease_holder(lease, shown);
		ck_assert_str_eq(shown, is_long ? "?" : cases[i].shown);
		json_decref(lease);
	}
	wb_kube_lease_holder(NULL, shown);
	ck_assert_str_eq(shown, "");
}
END_TEST

static const struct {
	struct wb_kube_claim_view v;
	enum wb_kube_claim_step want;
} claims[] = {
	{{false, 0, true, 0}, WB_KUBE_CLAIM_STAKE},
	{{true, 0, true, 0}, WB_KUBE_CLAIM_SERVE}, /* it was looked at after ours was written */
	{{false, 1, true, 0}, WB_KUBE_CLAIM_WAIT}, /* older, but it serves already */
	{{false, 1, false, 0}, WB_KUBE_CLAIM_WAIT},
	/* Both have staked: the younger one withdraws, for which the older one waits ... */
	{{true, 1, false, 0}, WB_KUBE_CLAIM_WAIT},
	{{true, 1, true, AGO(9)}, WB_KUBE_CLAIM_STAKE},
	/* ... unless that one had looked before we wrote, and serves. */
	{{true, 1, true, AGO(10)}, WB_KUBE_CLAIM_WAIT},
	{{true, 2, true, AGO(1)}, WB_KUBE_CLAIM_STAKE},
};

START_TEST(one_release_serves_and_others_wait)
{
	ck_assert_int_eq(wb_kube_claim_judge(&claims[_i].v), claims[_i].want);
}
END_TEST

/* ---- bodies ---- */

START_TEST(event_note_is_cut_between_characters)
{
	char note[1100];
	struct wb_kube_series_write w = {.is_new = true,
		.event = "t.1",
		.of = {"v1", "Pod", "n", "t", "u", "TransferFailed", "", note},
		.count = 2,
		.first_wall_ns = 1000000000,
		.last_wall_ns = 61999999999};
	json_t *o;
	char *text;

	memset(note, 'x', sizeof(note));
	memcpy(note + 1023, "\xc3\xa9", 2);
	note[1099] = '\0';
	o = wb_kube_event_body(&w, "i");
	ck_assert_uint_eq(strlen(json_string_value(json_object_get(o, "message"))), 1023);
	ck_assert_str_eq(json_string_value(json_object_get(o, "type")), "Warning");
	ck_assert_str_eq(json_string_value(json_object_get(o, "action")), "Transfer");
	json_decref(o);
	w.of.reason = "Unheard";
	w.of.note = "it is so";
	o = wb_kube_event_body(&w, "i");
	text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	ck_assert_str_eq(text,
		"{\"action\":\"Reconcile\",\"apiVersion\":\"v1\",\"count\":2,\"firstTimestamp\":"
		"\"1970-01-01T00:00:01Z\",\"involvedObject\":{\"apiVersion\":\"v1\",\"kind\":"
		"\"Pod\","
		"\"name\":\"t\",\"namespace\":\"n\",\"uid\":\"u\"},\"kind\":\"Event\","
		"\"lastTimestamp\":\"1970-01-01T00:01:01Z\",\"message\":\"it is so\",\"metadata\":"
		"{\"name\":\"t.1\",\"namespace\":\"n\"},\"reason\":\"Unheard\","
		"\"reportingComponent\":\"weightbridge.io/operator\",\"reportingInstance\":\"i\","
		"\"source\":{\"component\":\"weightbridge.io/operator\"},\"type\":\"Normal\"}");
	free(text);
	json_decref(o);
	w.is_new = false;
	o = wb_kube_event_body(&w, "i");
	text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	ck_assert_str_eq(text,
		"{\"count\":2,\"lastTimestamp\":\"1970-01-01T00:01:01Z\",\"message\":\"it is "
		"so\"}");
	free(text);
	json_decref(o);
}
END_TEST

static json_t *parse(const char *text)
{
	json_t *o = json_loads(text, 0, NULL);

	ck_assert_msg(o != NULL, "%s", text);
	return o;
}

static void check_text(json_t *o, const char *want)
{
	char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);

	ck_assert_str_eq(text, want);
	free(text);
}

/* A status that was only read answers what it answered when it was written. */
START_TEST(what_was_only_read_keeps_its_generation)
{
	json_t *st = parse("{\"conditions\":[{\"type\":\"a\",\"observedGeneration\":3},{\"type\":"
			   "\"b\"}],\"observedGeneration\":3}");

	wb_kube_observed(st, 7);
	check_text(st, "{\"conditions\":[{\"observedGeneration\":3,\"type\":\"a\"},{"
		       "\"observedGeneration\":"
		       "7,\"type\":\"b\"}],\"observedGeneration\":3}");
	json_decref(st);
}
END_TEST

#define T0 "1970-01-01T00:00:00Z"
#define T9 "1970-01-01T00:00:09Z"
#define ACCEPTED(is, generation, when, reason, message)                                            \
	"{\"lastTransitionTime\":\"" when "\",\"message\":\"" message                              \
	"\",\"observedGeneration\":" generation ",\"reason\":\"" reason "\",\"status\":\"" is      \
	"\",\"type\":\"Accepted\"}"

/* Nine seconds after the epoch, generation 7 is judged: what is written, and since when it is so.
 */
static const struct {
	const char *written, *why, *want;
} verdicts[] = {
	{NULL, NULL, ACCEPTED("True", "7", T9, "R", "")},
	{"{}", "bad", ACCEPTED("False", "7", T9, "R", "bad")},
	{"{\"conditions\":[" ACCEPTED("True", "6", T0, "x", "") "]}", NULL,
		ACCEPTED("True", "7", T0, "R", "")},
	{"{\"conditions\":[" ACCEPTED("True", "6", T0, "x", "") "]}", "bad",
		ACCEPTED("False", "7", T9, "R", "bad")},
	{"{\"conditions\":[5,{},{\"type\":\"Accepted\",\"status\":\"True\"}]}", NULL,
		ACCEPTED("True", "7", T9, "R", "")},
	{"{\"conditions\":\"none\"}", NULL, ACCEPTED("True", "7", T9, "R", "")},
};

START_TEST(verdict_on_a_spec_is_a_condition)
{
	struct wb_kube_verdict v = {7, "R", verdicts[_i].why, 9 * WB_NS_PER_S};
	json_t *written = verdicts[_i].written ? parse(verdicts[_i].written) : NULL;
	json_t *st = json_object();
	char want[400];

	wb_kube_accepted(st, written, &v);
	snprintf(want, sizeof(want), "{\"conditions\":[%s]}", verdicts[_i].want);
	check_text(st, want);
	/* Said of a status that has it, it is said once. */
	wb_kube_accepted(st, st, &v);
	check_text(st, want);
	json_decref(st);
	json_decref(written);
}
END_TEST

START_TEST(who_vouches_and_when_is_no_difference)
{
	json_t *a = parse("{\"version\":1}"), *b = parse("{\"version\":1}"), *c = parse("{}");

	ck_assert_uint_eq(wb_kube_confirmed_ns(a), 0);
	ck_assert_uint_eq(wb_kube_confirmed_ns(NULL), 0);
	wb_kube_confirm(a, "op-1", 1700000000 * WB_NS_PER_S + 5);
	ck_assert_uint_eq(wb_kube_confirmed_ns(a), 1700000000 * WB_NS_PER_S);
	ck_assert(wb_kube_same_status(a, b));
	wb_kube_confirm(b, "op-2", 1);
	ck_assert(wb_kube_same_status(a, b));
	ck_assert(!wb_kube_same_status(a, c));
	ck_assert(!wb_kube_same_status(a, NULL));
	check_text(b, "{\"operator\":{\"name\":\"op-2\",\"renewTime\":\"" T0 "\"},\"version\":1}");
	json_decref(a);
	json_decref(b);
	json_decref(c);
}
END_TEST

static const struct {
	const char *written; /* NULL = nothing is stored */
	const char *status;
	bool is_news;
} news[] = {
	{NULL, "{\"version\":1}", true},
	{NULL, "{}", false},
	{"{\"version\":1}", "{\"version\":2}", true},
	{"{\"version\":1,\"connectedAgents\":3}", "{\"version\":1,\"connectedAgents\":4}", false},
	{"{}", "{\"currentTransfer\":{\"transfer\":1}}", false},
	{"{\"lastTransfer\":{\"transfer\":1,\"result\":\"Succeeded\"}}",
		"{\"lastTransfer\":{\"transfer\":2,\"result\":\"Succeeded\"}}", true},
	{"{\"lastTransfer\":{\"transfer\":2,\"result\":\"Succeeded\"}}",
		"{\"lastTransfer\":{\"transfer\":2,\"result\":\"Aborted\"}}", true},
	{"{\"lastTransfer\":{\"transfer\":2,\"networkBytes\":1}}",
		"{\"lastTransfer\":{\"transfer\":2,\"networkBytes\":2}}", false},
	{"{\"conditions\":[" ACCEPTED("True", "7", T0, "R", "") "]}",
		"{\"conditions\":[" ACCEPTED("True", "8", T9, "S", "why") "]}", false},
	{"{\"conditions\":[" ACCEPTED("True", "7", T0, "R", "") "]}",
		"{\"conditions\":[" ACCEPTED("False", "7", T0, "R", "") "]}", true},
	{"{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}",
		"{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}," ACCEPTED(
			"True", "7", T0, "R", "") "]}",
		true},
	{"{\"conditions\":\"none\"}", "{\"conditions\":5}", false},
};

START_TEST(ends_of_transfers_and_conditions_are_news)
{
	json_t *written = news[_i].written ? parse(news[_i].written) : NULL;
	json_t *status = parse(news[_i].status);

	ck_assert_int_eq(wb_kube_is_news(status, written), news[_i].is_news);
	ck_assert(!wb_kube_is_news(status, status));
	json_decref(written);
	json_decref(status);
}
END_TEST

START_TEST(resource_of_an_earlier_version_gets_what_it_knows)
{
	json_t *st =
		parse("{\"operator\":{},\"version\":1,\"lastTransfer\":{"
		      "\"throughputMegabitsPerSecond\":5,\"transfer\":2},\"recentTransfers\":[{"
		      "\"throughputMegabitsPerSecond\":5}]}");

	wb_kube_without_news(st);
	check_text(
		st, "{\"lastTransfer\":{\"transfer\":2},\"recentTransfers\":[{}],\"version\":1}");
	json_decref(st);
}
END_TEST

START_TEST(observed_generation_is_in_the_status_and_each_condition)
{
	json_t *st = json_loads("{\"conditions\":[{\"type\":\"a\"},{\"type\":\"b\"}]}", 0, NULL);
	json_t *body;
	char *text;

	wb_kube_observed(st, 7);
	body = wb_kube_apply_status("n", "t", "42", st);
	text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
	ck_assert_str_eq(text,
		"{\"apiVersion\":\"weightbridge.io/"
		"v1alpha1\",\"kind\":\"WeightTransfer\",\"metadata\":"
		"{\"name\":\"t\",\"namespace\":\"n\",\"resourceVersion\":\"42\"},\"status\":{"
		"\"conditions\":[{\"observedGeneration\":7,\"type\":\"a\"},{\"observedGeneration\":"
		"7,"
		"\"type\":\"b\"}],\"observedGeneration\":7}}");
	free(text);
	json_decref(body);
	json_decref(st);
}
END_TEST

/* ---- tokens ---- */

#define REVIEW(name, extra)                                                                        \
	"{\"status\":{\"authenticated\":true,\"audiences\":[\"weightbridge.io/n/t\"],"             \
	"\"user\":{\"username\":\"" name "\",\"extra\":{" extra "}}}}"
#define POD                                                                                        \
	"\"authentication.kubernetes.io/pod-name\":[\"p\"],"                                       \
	"\"authentication.kubernetes.io/pod-uid\":[\"u\"]"

static const struct {
	const char *review, *want; /* part of the sentence; NULL = good */
} reviews[] = {
	{REVIEW("system:serviceaccount:n:a", POD), NULL},
	{"{}", "not valid for audience weightbridge.io/n/t: Kubernetes refused it"},
	{"{\"status\":{\"authenticated\":false,\"error\":\"expired\"}}", "n/t: expired"},
	{"{\"status\":{\"authenticated\":\"true\"}}", "not valid"},
	{"{\"status\":{\"authenticated\":true}}", "not for audience"},
	{"{\"status\":{\"authenticated\":true,\"audiences\":[\"weightbridge.io/n/x\",5]}}",
		"not for audience"},
	{REVIEW("admin", POD), "not of a service account"},
	{REVIEW("system:serviceaccount::a", POD), "not of a service account"},
	{REVIEW("system:serviceaccount:n:", POD), "not of a service account"},
	{REVIEW("system:serviceaccount:n", POD), "not of a service account"},
	{REVIEW("system:serviceaccount:n:a", ""), "not bound to a pod"},
	{REVIEW("system:serviceaccount:n:a", "\"authentication.kubernetes.io/pod-name\":[\"p\"]"),
		"not bound to a pod"},
	{REVIEW("system:serviceaccount:n:a", "\"authentication.kubernetes.io/pod-name\":\"p\""),
		"not bound to a pod"},
};

START_TEST(token_is_judged_by_the_review_alone)
{
	const char *object = "n/t";
	json_t *o = json_loads(reviews[_i].review, 0, NULL);
	struct wb_kube_who who;
	struct wb_err err = {0};
	int rc = wb_kube_review_judge(o, &object, 1, &who, &err);

	json_decref(o);
	if (!reviews[_i].want) {
		ck_assert_int_eq(rc, 0);
		ck_assert_str_eq(who.ns, "n");
		ck_assert_str_eq(who.account, "a");
		ck_assert_str_eq(who.pod, "p");
		ck_assert_str_eq(who.pod_uid, "u");
		return;
	}
	ck_assert_int_eq(rc, -EACCES);
	ck_assert_msg(strstr(err.msg, reviews[_i].want), "%s", err.msg);
}
END_TEST

START_TEST(review_asks_for_each_object)
{
	const char *object[] = {"n/t", "n/u"};
	json_t *o = wb_kube_review_body("tok", object, 2);
	char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);

	ck_assert_str_eq(text,
		"{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\"spec\":{"
		"\"audiences\":[\"weightbridge.io/n/t\",\"weightbridge.io/n/u\"],\"token\":"
		"\"tok\"}}");
	free(text);
	json_decref(o);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kube");
	TCase *tc = tcase_create("kube");

	tcase_add_loop_test(tc, cut_anywhere_gives_the_same_events, 0, (int)WB_ARRAY_SIZE(streams));
	tcase_add_test(tc, long_line_is_refused_wherever_it_is_cut);
	tcase_add_test(tc, escape_leaves_only_unreserved);
	tcase_add_loop_test(tc, base64_is_strict, 0, (int)WB_ARRAY_SIZE(base64));
	tcase_add_test(tc, time_has_microseconds);
	tcase_add_test(tc, backoff_grows_jitters_obeys_and_forgets);
	tcase_add_loop_test(
		tc, kubeconfig_is_taken_or_refused_with_a_sentence, 0, (int)WB_ARRAY_SIZE(configs));
	tcase_add_test(tc, first_kubeconfig_that_is_there_counts);
	tcase_add_test(tc, short_memory_leaves_nothing);
	tcase_add_test(tc, outside_of_a_pod_is_said);
	tcase_add_loop_test(tc, lease_is_taken_renewed_or_lost, 0, (int)WB_ARRAY_SIZE(leases));
	tcase_add_test(tc, holder_that_is_no_name_is_not_shown);
	tcase_add_loop_test(tc, one_release_serves_and_others_wait, 0, (int)WB_ARRAY_SIZE(claims));
	tcase_add_loop_test(
		tc, token_is_judged_by_the_review_alone, 0, (int)WB_ARRAY_SIZE(reviews));
	tcase_add_test(tc, review_asks_for_each_object);
	tcase_add_test(tc, event_note_is_cut_between_characters);
	tcase_add_test(tc, observed_generation_is_in_the_status_and_each_condition);
	tcase_add_test(tc, what_was_only_read_keeps_its_generation);
	tcase_add_loop_test(tc, verdict_on_a_spec_is_a_condition, 0, (int)WB_ARRAY_SIZE(verdicts));
	tcase_add_test(tc, who_vouches_and_when_is_no_difference);
	tcase_add_loop_test(
		tc, ends_of_transfers_and_conditions_are_news, 0, (int)WB_ARRAY_SIZE(news));
	tcase_add_test(tc, resource_of_an_earlier_version_gets_what_it_knows);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
