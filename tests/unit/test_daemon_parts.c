/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users of the daemons meet first: mistakes of the command line, names without an address,
 * folders that cannot be written, plans and descriptors that are not what they should be.  Each is
 * one sentence that says what to do.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/portfile.h"
#include "daemon/addr.h"
#include "daemon/content.h"
#include "daemon/options.h"
#include "daemon/roster.h"
#include "daemon/store.h"
#include "operator-shim/options.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_plan.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 16

struct line {
	const char *words; /* after the program's name, between spaces */
	const char *says; /* NULL = taken */
};

static int split(const char *line, char *room, char **argv)
{
	char *save = NULL;
	int n = 1;

	strcpy(room, line);
	for (char *w = strtok_r(room, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[n++] = w;
	return n;
}

static void check_line(const struct line *l, int rc, const struct wb_err *err)
{
	ck_assert_msg(rc == (l->says ? -EINVAL : 0), "%s: %d %s", l->words, rc, err->msg);
	ck_assert_msg(!l->says || strstr(err->msg, l->says), "%s: %s", l->words, err->msg);
}

#define OP "--operator op:7443 "
static const struct line agent_lines[] = {
	{OP "--psk-file k", NULL},
	{"--psk-file k", "--operator HOST:PORT is missing"},
	{OP, "--psk-file FILE is missing"},
	{"--operator op --psk-file k", "--operator op: expected HOST:PORT"},
	{"--operator :1 --psk-file k", "expected HOST:PORT"},
	{"--operator op:0 --psk-file k", "expected HOST:PORT"},
	{"--operator op:65536 --psk-file k", "expected HOST:PORT"},
	{OP "--psk-file k --name a/b", "--name a/b: expected a name without spaces or slashes"},
	{OP "--psk-file k --socket-mode 999", "three octal digits"},
	{OP "--psk-file k --socket-mode 1777", "three octal digits"},
	{OP "--psk-file k --transport udp", "expected auto, or some of shm, verbs and tcp"},
	{OP "--psk-file k --transport shm,udp", "expected auto, or some of"},
	{OP "--psk-file k --transport tcp,shm,tcp", "expected auto, or some of"},
	{OP "--psk-file k --transport shm,", "expected auto, or some of"},
	{OP "--psk-file k --transport auto,tcp", "expected auto, or some of"},
	{OP "--psk-file k --transport shm,verbs,tcp --rail lo", NULL},
	{OP "--psk-file k --transport auto --rail-device a", NULL},
	{OP "--psk-file k --transport shm,tcp --rail-device a", "goes with --transport verbs"},
	{OP "--psk-file k --shm-folder here", "a path of at most 60 characters"},
	{OP "--psk-file k --shm-folder /run/wb/", "that begins with /"},
	{OP "--psk-file k --shm-folder /run/wb", NULL},
	{OP "--psk-file k --rails 17", "--rails 17: expected 1 to 16"},
	{OP "--psk-file k --rails 3 --rail lo", "--rail and --rails exclude each other"},
	{OP "--psk-file k --rail a --rail b", NULL},
	{OP "--psk-file k --rail a --rail a", "--rail a: expected another network interface"},
	{OP "--psk-file k --transport shm --rail lo", "goes with --transport tcp"},
	{OP "--psk-file k --transport tcp --rail-device a",
		"--rail-device goes with --transport verbs"},
	{OP "--psk-file k --rdma-traffic-class 106", NULL},
	{OP "--psk-file k --no-rdma-windows", NULL},
	{OP "--psk-file k --no-bench", NULL},
	{OP "--psk-file k --no-rdma-windows --transport shm,tcp", "goes with --transport verbs"},
	{OP "--psk-file k --rdma-traffic-class 106 --transport tcp", "go with --transport verbs"},
	{OP "--psk-file k --rdma-service-level 1 --transport shm", "go with --transport verbs"},
	{OP "--psk-file k --transport verbs --rdma-traffic-class 256", "0 to 255"},
	{OP "--psk-file k --transport verbs --rdma-service-level 16", "0 to 15"},
	{OP "--psk-file k --transport verbs --rdma-traffic-class 106 --rdma-service-level 15",
		NULL},
	{OP "--psk-file k --transport verbs --rail lo --rail-device a,b",
		"--rail-device names 2 devices, and there are 1 rails"},
	{OP "--psk-file k --transport verbs --rail lo --rail-device a", NULL},
	{OP "--psk-file k --transport verbs --rail-device a,b", NULL},
	{OP "--psk-file k --rail=", "expected another network interface"},
	{OP "--psk-file k --rail-rate 5X", "expected a rate such as 500M"},
	{OP "--psk-file k --buffer 1000", "--buffer 1000: expected a size of at least 1Mi"},
	{OP "--psk-file k --staging-limit lots", "a size above 0, such as 8Gi"},
	{OP "--psk-file k --staging-limit 0", "a size above 0, such as 8Gi"},
	{OP "--psk-file k --grace 90000", "--grace 90000: expected 0 to 86400"},
	{OP "--psk-file k --log-format xml", "text, json or auto"},
	{OP "--psk-file k --log-level loud", "error, warn, info or debug"},
	{OP "--psk-file k --object a", "another NAMESPACE/NAME"},
	{OP "--psk-file k --object n/a --object n/a", "another NAMESPACE/NAME"},
	{OP "--psk-file k --object n/a --object n/b", NULL},
	{OP "--psk-file k --psk-file l --object n/a --object n/b --object n/c",
		"3 objects and 2 key files: give one for each"},
	{OP "--psk-file k --token-file t --ca-file c --object n/a", "exclude each other"},
	{OP "--token-file t --object n/a", "--token-file and --ca-file belong together"},
	{OP "--psk-file k --ca-file c", "belong together"},
	{OP "--token-file t --ca-file c", "--token-file needs --object NAMESPACE/NAME"},
	{OP "--token-file t --ca-file c --object n/a --object n/b", "2 objects and 1 token files"},
	{OP "--token-file t --ca-file c --object n/a", NULL},
	{"--probe startup", NULL},
	{"--probe dead", "--probe dead: expected startup, live or ready"},
	{OP "--psk-file k --advertise=", "expected host names or addresses"},
};

START_TEST(a_mistake_in_how_an_agent_is_started_is_named)
{
	char room[512], program[] = "weightbridge-agent", *argv[WORDS_MAX + 2] = {program};
	int argc = split(agent_lines[_i].words, room, argv);
	struct wb_err err = {0};
	struct wb__options o;

	check_line(&agent_lines[_i], wb__options_parse(argc, argv, &o, &err), &err);
}
END_TEST

static const struct line operator_lines[] = {
	{"--file f --psk-file k", NULL},
	{"--psk-file k", "--file FILE is missing"},
	{"--file f", "--psk-file FILE is missing"},
	{"--file f --in-cluster --psk-file k", "exclude each other"},
	{"--in-cluster --kubeconfig c --psk-file k", "exclude each other"},
	{"--in-cluster --psk-file k --tls-secret s", "give either --psk-file, or"},
	{"--in-cluster --tls-cert c", "--tls-cert and --tls-key together"},
	{"--file f --tls-cert c --tls-key k", "tokens need a cluster"},
	{"--in-cluster --psk-file k --tls-ca c", "--tls-ca goes with --tls-cert"},
	{"--in-cluster --tls-secret s", "--tls-secret and --tls-name belong together"},
	{"--in-cluster --tls-secret s --tls-name a.b", NULL},
	{"--in-cluster --tls-secret s --tls-name A,b", "DNS names in small letters"},
	{"--in-cluster --psk-file k --lease x", "--lease x: expected NAMESPACE/NAME"},
	{"--in-cluster --psk-file k --advertise host", "--advertise host: expected HOST:PORT"},
	{"--file f --psk-file k --listen 1.2.3.4", "expected HOST:PORT, or :PORT"},
	{"--file f --psk-file k --settle-ms 700000", "0 to 600000"},
	{"--file f --psk-file k --metrics-objects 129", "0 to 128"},
};

START_TEST(a_mistake_in_how_an_operator_is_started_is_named)
{
	char room[512], program[] = "weightbridge-operator", *argv[WORDS_MAX + 2] = {program};
	int argc = split(operator_lines[_i].words, room, argv);
	struct wb__operator_options o;
	struct wb_err err = {0};

	check_line(&operator_lines[_i], wb__operator_parse(argc, argv, &o, &err), &err);
}
END_TEST

/* ---- addresses, files ---------------------------------------------------------------------- */

START_TEST(an_address_is_found_or_the_name_is_named)
{
	char out[WB__ADDR_MAX], text[100];
	struct wb_err err = {0};

	ck_assert_int_eq(wb__addr_numeric("", out, &err), 0);
	ck_assert_str_eq(out, "0.0.0.0");
	ck_assert_int_eq(wb__addr_numeric("127.0.0.1", out, &err), 0);
	ck_assert_str_eq(out, "127.0.0.1");
	ck_assert_int_eq(wb__addr_numeric("no such name.invalid", out, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "the name no such name.invalid has no address"));
	ck_assert_int_eq(wb__addr_towards("127.0.0.1", 9, out, &err), 0);
	ck_assert_str_eq(out, "127.0.0.1");
	ck_assert_int_eq(wb__addr_towards("no such name.invalid", 9, out, &err), -ENOENT);
	wb__addr_join("::1", 5, text, sizeof(text));
	ck_assert_str_eq(text, "[::1]:5");
	wb__addr_join("a", 5, text, sizeof(text));
	ck_assert_str_eq(text, "a:5");
	ck_assert(wb__addr_is_any("::") && wb__addr_is_any("0.0.0.0") && !wb__addr_is_any("::1"));
}
END_TEST

static void folder(char out[100])
{
	const char *tmp = getenv("TMPDIR");

	snprintf(out, 100, "%.60s/parts-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(out));
}

START_TEST(ports_are_written_whole_or_the_file_is_named)
{
	char dir[100], path[120], text[64] = "", *far = malloc(5000);
	struct wb_err err = {0};
	FILE *f;

	folder(dir);
	snprintf(path, sizeof(path), "%s/port", dir);
	ck_assert_int_eq(wb_port_file_write(path, &(struct wb_ports){5, 6, 0}, &err), 0);
	f = fopen(path, "r");
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, f), 0);
	fclose(f);
	ck_assert_str_eq(text, "listen 5\nhttp 6\n");
	ck_assert_int_eq(wb_port_file_write("", &(struct wb_ports){5, 6, 0}, &err), 0);
	unlink(path);
	rmdir(dir);
	ck_assert_int_eq(wb_port_file_write(path, &(struct wb_ports){5, 6, 0}, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, path));
	memset(far, 'a', 4999);
	far[4999] = '\0';
	ck_assert_int_eq(wb_port_file_write(far, &(struct wb_ports){5, 6, 0}, &err), -ENAMETOOLONG);
	free(far);
}
END_TEST

START_TEST(what_is_stored_is_there_again_and_what_cannot_be_is_an_error)
{
	char dir[100], socket[120], path[160], data[8];
	struct wb_transfer_store s;

	wb_log_level_max = -1;
	folder(dir);
	snprintf(socket, sizeof(socket), "%s/sock", dir);
	wb__store_init(&s, socket);
	ck_assert_int_eq(s.load(s.ctx, "x", data, sizeof(data)), 0); /* nothing yet */
	ck_assert_int_eq(s.save(s.ctx, "x", "first", 5), 0);
	ck_assert_int_eq(s.save(s.ctx, "x", "2", 1), 0);
	ck_assert_int_eq(s.load(s.ctx, "x", data, sizeof(data)), 1);
	ck_assert_int_eq(data[0], '2');
	/* A folder in its place: what was promised there cannot be known. */
	snprintf(path, sizeof(path), "%s.x", socket);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_lt(s.load(s.ctx, "x", data, sizeof(data)), 0);
	ck_assert_int_lt(s.save(s.ctx, "x", "3", 1), 0);
	rmdir(path);
	snprintf(path, sizeof(path), "%s.x.new", socket);
	unlink(path);
	rmdir(dir);
	ck_assert_int_eq(s.save(s.ctx, "x", "3", 1), -ENOENT); /* the folder is gone */
}
END_TEST

/* ---- what workers send: descriptors --------------------------------------------------------- */

START_TEST(a_descriptor_that_is_not_what_it_says_is_named)
{
	struct wb_manifest *m = NULL;
	const struct wb_manifest *got, *again;
	struct wb__contents *c = wb__contents_create();
	struct wb_tensor t = fx_tensor("w", WB_BF16, 4, 4);
	struct wb_err err = {0};
	struct wb_buf b;
	int ends[2], fd = memfd_create("m", MFD_CLOEXEC);
	uint8_t *p;

	ck_assert(!wb_manifest_create(&t, 1, &m, NULL));
	wb_buf_init(&b, 1 << 16);
	ck_assert(!wb_manifest_encode(m, &b));
	ck_assert_int_eq(write(fd, b.data, b.len), (ssize_t)b.len);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(wb__contents_manifest(c, ends[0], b.len, &got, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "the descriptor of the manifest is no memfd");
	ck_assert_int_eq(wb__contents_manifest(c, fd, b.len + 1, &got, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "should have"));
	ck_assert_int_eq(wb__contents_manifest(c, fd, 0, &got, &err), -EINVAL);
	ck_assert_int_eq(
		wb__contents_manifest(c, fd, WB__MANIFEST_BYTES_MAX + 1, &got, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "are taken"));
	ck_assert_int_lt(wb__contents_manifest(c, fd, b.len - 1, &got, &err), 0);
	ck_assert_int_eq(wb__contents_manifest(c, fd, b.len, &got, &err), 0);
	ck_assert_int_eq(wb__contents_manifest(c, fd, b.len, &again, &err), 0);
	ck_assert_ptr_eq(got, again); /* decoded once */
	ck_assert_int_eq(wb__read_memfd("x", fd, 4, 4, &p, &err), 0);
	ck_assert_mem_eq(p, b.data, 4);
	free(p);
	close(ends[0]);
	close(ends[1]);
	close(fd);
	wb_buf_finish(&b);
	wb_manifest_destroy(m);
	wb__contents_destroy(c);
}
END_TEST

/* ---- what the operator sends: a plan and who is in it --------------------------------------- */

static struct wb_plan_worker workers[3] = {{WB_ROLE_TRAINER, 0, 0, 0, 0, 0},
	{WB_ROLE_ROLLOUT, 1, 0, 1, 0, 0}, {WB_ROLE_ROLLOUT, 1, 0, 1, 0, 0}};
static uint32_t w0[] = {0}, w12[] = {1, 2}, ids0[] = {7}, ids12[] = {8, 9};
static char key[65], name_a[] = "a", name_b[] = "b", host[] = "h", engine[] = "e", object[] = "n/o";

static uint32_t part_of; /* 1 more than the agent whose part the plan is; 0 = it is all of it */

/* The roster's own. */
static struct wb_plan *make_plan(void)
{
	struct wb_plan *plan = wb_zalloc(1, sizeof(*plan));

	plan->n_worker = 3;
	plan->worker = wb_memdup(workers, sizeof(workers));
	plan->is_part = part_of != 0;
	plan->domain = part_of ? part_of - 1 : 0;
	return plan;
}

static int roster_of(void (*spoil)(struct wb_msg_plan *m, struct wb_p_endpoint *e), const char *me,
	struct wb_roster **r, struct wb_err *err)
{
	struct wb_p_endpoint e[2] = {{.agent = name_a,
					     .host = host,
					     .port = 5,
					     .workers = w0,
					     .n_workers = 1,
					     .ids = ids0,
					     .n_ids = 1},
		{.agent = name_b,
			.host = host,
			.port = 6,
			.workers = w12,
			.n_workers = 2,
			.ids = ids12,
			.n_ids = 2}};
	char *engines[2] = {engine, engine};
	struct wb_msg_plan m = {.object = object,
		.key = key,
		.agents = e,
		.n_agents = 2,
		.engines = (void *)engines,
		.n_engines = 1};
	struct wb_p_object o = {.transfer_deadline_ns = 1, .checksums = true};
	static const struct wb__addrs none;
	struct wb_object_id id = wb_object_id_of(0x0123456789abcdef);
	struct wb__roster_in in = {me, &o, &id, &m, &none, 1};

	memset(key, 'a', 64);
	if (spoil)
		spoil(&m, e);
	return wb__roster_create(&in, make_plan(), r, err);
}

static void no_engine(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	(void)e;
	m->n_engines = 0;
}

static void bad_key(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	(void)e;
	(void)m;
	key[3] = 'x';
}

static void fewer_ids(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	(void)m;
	e[1].n_ids = 1;
}

static void beyond(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	static uint32_t w[] = {1, 3};

	(void)m;
	e[1].workers = w;
}

static void of_another(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	static uint32_t w[] = {1, 0};

	(void)m;
	e[1].workers = w;
}

static void twice(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	static uint32_t w[] = {1, 1};

	(void)m;
	e[1].workers = w;
}

static void one_less(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	(void)m;
	e[1].n_workers = e[1].n_ids = 1;
}

static void engine_too_many(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	(void)e;
	m->n_engines = 2;
}

static void absent(struct wb_msg_plan *m, struct wb_p_endpoint *e)
{
	(void)m;
	e[1].port = 0;
}

static const struct {
	void (*spoil)(struct wb_msg_plan *m, struct wb_p_endpoint *e);
	int rc;
	const char *says;
} spoilt[] = {
	{no_engine, -EBADMSG, "2 agents and 0 engines"},
	{bad_key, -EBADMSG, "not 64 hex digits"},
	{fewer_ids, -EBADMSG, "agent b: 2 workers, 1 ids"},
	{beyond, WB_EPLAN, "agent b is said to have worker 3"},
	{of_another, WB_EPLAN, "worker 0, which the plan has elsewhere"},
	{twice, WB_EPLAN, "agent b is said to have worker 1"},
	{one_less, WB_EPLAN, "worker 2 of the plan is at no agent"},
	{engine_too_many, WB_EPLAN, "engine e has no worker in the plan"},
	{absent, -ENOENT, "the plan has no agent called b"},
};

START_TEST(a_plan_message_that_does_not_fit_the_plan_is_refused)
{
	struct wb_roster *r;
	struct wb_err err = {0};

	if (_i == 0) {
		ck_assert_msg(!roster_of(NULL, "b", &r, &err), "%s", err.msg);
		ck_assert_uint_eq(r->coordinator, 0);
		ck_assert(r->sums && !r->read_back); /* as the object says */
		ck_assert_uint_eq(r->me, 1);
		ck_assert_str_eq(r->id.object.text, "0123456789abcdef");
		ck_assert_uint_eq(r->worker[2].local, 9);
		ck_assert_uint_eq(r->engine[0].lead, 1);
		ck_assert_str_eq(r->worker[2].name, "b/worker 9");
		ck_assert_str_eq(r->agent[1].control, "h:6");
		wb_roster_put(r);
	}
	ck_assert_int_eq(roster_of(spoilt[_i].spoil, "b", &r, &err), spoilt[_i].rc);
	ck_assert_msg(strstr(err.msg, spoilt[_i].says) != NULL, "%s", err.msg);
	ck_assert_ptr_null(r);
	err.msg[0] = '\0';
	ck_assert_int_eq(roster_of(NULL, "c", &r, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "no agent called c"));
}
END_TEST

/* Nothing in it is for the workers here: they would be complete without a byte. */
START_TEST(the_part_of_another_agent_is_refused)
{
	struct wb_roster *r;
	struct wb_err err = {0};

	part_of = 2;
	ck_assert_msg(!roster_of(NULL, "b", &r, &err), "%s", err.msg);
	wb_roster_put(r);
	part_of = 1;
	ck_assert_int_eq(roster_of(NULL, "b", &r, &err), WB_EPLAN);
	ck_assert_ptr_null(r);
	ck_assert_str_eq(err.msg, "the part of the plan is of agent 0, and this is agent 1");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("daemon_parts");
	TCase *t = tcase_create("parts");

	tcase_add_loop_test(t, a_mistake_in_how_an_agent_is_started_is_named, 0,
		(int)WB_ARRAY_SIZE(agent_lines));
	tcase_add_loop_test(t, a_mistake_in_how_an_operator_is_started_is_named, 0,
		(int)WB_ARRAY_SIZE(operator_lines));
	tcase_add_test(t, an_address_is_found_or_the_name_is_named);
	tcase_add_test(t, ports_are_written_whole_or_the_file_is_named);
	tcase_add_test(t, what_is_stored_is_there_again_and_what_cannot_be_is_an_error);
	tcase_add_test(t, a_descriptor_that_is_not_what_it_says_is_named);
	tcase_add_loop_test(t, a_plan_message_that_does_not_fit_the_plan_is_refused, 0,
		(int)WB_ARRAY_SIZE(spoilt));
	tcase_add_test(t, the_part_of_another_agent_is_refused);
	suite_add_tcase(s, t);
	return fx_run(s);
}
