/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl verify: compares what engines and trainers hold, by sums that do not depend on a layout. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "ctl/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GROUPS_MAX 256
#define CLASSES_MAX (1u << 20)
#define POLL_NS 50000000
#define WAIT_NS (15 * 60 * WB_NS_PER_S) /* for one agent's sums, which take seconds */
#define SAY_NS (5 * WB_NS_PER_S)

/* The trainers, or an engine: workers that together hold one copy of the model. */
struct group {
	char name[128]; /* "" = trainers */
	int64_t version;
	uint64_t transfer;
	uint32_t n_worker, n_known, n_unreadable;
	bool changing;
	struct class_sum {
		bool known;
		uint64_t lane[2];
		char from[128];
	} * cls; /* owned */
	uint64_t total[2];
	char wrong[400]; /* the first replica that differs */
	char private[300]; /* the first workers whose memory only they can read */
};

struct verify {
	struct group group[GROUPS_MAX];
	uint32_t n;
	uint32_t n_class;
	char object[320], plan[64];
};

enum verdict { SAME, DIFFERS, UNKNOWN, REFERENCE };
static const char *const verdict_name[] = {"Same", "Differs", "Unknown", "Reference"};

static struct group *group_of(struct verify *v, const char *engine)
{
	struct group *g;

	for (uint32_t i = 0; i < v->n; i++)
		if (!strcmp(v->group[i].name, engine))
			return &v->group[i];
	if (v->n == GROUPS_MAX)
		return NULL;
	g = &v->group[v->n];
	g->cls = wb_zalloc(v->n_class, sizeof(*g->cls));
	if (!g->cls)
		return NULL;
	v->n++;
	snprintf(g->name, sizeof(g->name), "%s", engine);
	g->version = -1;
	return g;
}

static void add_sum(struct verify *v, struct group *g, const char *worker, const json_t *sum)
{
	uint32_t k = (uint32_t)json_integer_value(json_array_get(sum, 0));
	const char *a = json_string_value(json_array_get(sum, 1));
	const char *b = json_string_value(json_array_get(sum, 2));
	uint64_t lane[2] = {a ? strtoull(a, NULL, 16) : 0, b ? strtoull(b, NULL, 16) : 0};
	struct class_sum *c;

	if (k >= v->n_class)
		return;
	c = &g->cls[k];
	if (!c->known) {
		c->known = true;
		memcpy(c->lane, lane, sizeof(lane));
		snprintf(c->from, sizeof(c->from), "%s", worker);
		g->n_known++;
		g->total[0] += lane[0];
		g->total[1] += lane[1];
	} else if (memcmp(c->lane, lane, sizeof(lane)) && !g->wrong[0]) {
		snprintf(g->wrong, sizeof(g->wrong), "%s and %s differ in class %u", c->from,
			worker, k);
	}
}

static void note_private(struct group *g, const char *worker)
{
	size_t n = strlen(g->private);

	if (g->n_unreadable < 3)
		snprintf(g->private + n, sizeof(g->private) - n, "%s%.90s",
			g->n_unreadable ? ", " : "", worker);
	else if (g->n_unreadable == 3)
		snprintf(g->private + n, sizeof(g->private) - n, ", ...");
	g->n_unreadable++;
}

static int add_worker(struct verify *v, const json_t *w, struct wb_err *err)
{
	char name[128], engine[128], state[32];
	struct group *g;
	const json_t *sums;

	wb__ctl_text(w, "name", name, sizeof(name));
	wb__ctl_text(w, "state", state, sizeof(state));
	wb__ctl_text(w, "engine", engine, sizeof(engine));
	if (!json_string_length(json_object_get(w, "engine")))
		engine[0] = '\0';
	g = group_of(v, engine);
	if (!g)
		return v->n == GROUPS_MAX
			       ? wb_err_set(err, -E2BIG, "more than %d engines", GROUPS_MAX)
			       : wb_err_set(err, -ENOMEM, "no memory");
	g->n_worker++;
	if (!strcmp(state, "unreadable"))
		note_private(g, name);
	g->changing |= !strcmp(state, "changing");
	if (engine[0]) {
		g->transfer = (uint64_t)json_integer_value(json_object_get(w, "transfer"));
		g->version = json_integer_value(json_object_get(w, "version"));
	}
	sums = json_object_get(w, "sums");
	for (size_t i = 0; i < json_array_size(sums); i++)
		add_sum(v, g, name, json_array_get(sums, i));
	return 0;
}

static int add_page(struct verify *v, const json_t *page, const char *addr, const char *object,
	struct wb_err *err)
{
	const json_t *o, *w;
	char name[320], plan[64];
	size_t i, k;
	int rc = 0;

	json_array_foreach(json_object_get(page, "objects"), i, o)
	{
		uint32_t n = (uint32_t)json_integer_value(json_object_get(o, "classes"));

		wb__ctl_text(o, "object", name, sizeof(name));
		if (!wb__ctl_is_meant(name, object))
			continue;
		if (v->object[0] && strcmp(v->object, name) != 0)
			return wb_err_set(err, -EINVAL, "%s serves %s and %s: name one by --object",
				addr, v->object, name);
		snprintf(v->object, sizeof(v->object), "%s", name);
		wb__ctl_text(o, "plan", plan, sizeof(plan));
		if (!v->plan[0]) {
			snprintf(v->plan, sizeof(v->plan), "%s", plan);
			v->n_class = WB_MIN(n, CLASSES_MAX);
		}
		if (strcmp(v->plan, plan) != 0)
			return wb_err_set(err, -ESTALE,
				"agent %s has plan %s, another has %s: ask again", addr, plan,
				v->plan);
		json_array_foreach(json_object_get(o, "workers"), k, w)
		{
			rc = add_worker(v, w, err);
			if (rc < 0)
				return rc;
		}
	}
	return rc;
}

/* Finds a ticket that the agent at @addr accepts; "" = none.  In the container of an agent, that
 * agent gives out tickets for the other agents of its objects, a line for each. */
static void find_ticket(const char *addr, char *out, size_t cap)
{
	struct wb__ctl_opts own = {.agent_addr = NULL};
	char text[32], path[400], *save = NULL;
	const char *agent = wb__ctl_agent(&own, text);
	struct wb_err err = {0};
	struct wb_buf list, page;

	*out = '\0';
	wb_buf_init(&list, 1u << 16);
	if (agent && wb__ctl_fetch(agent, "/tickets", NULL, &list, &err) == 0 &&
		*wb_buf_cstr(&list))
		for (char *t = strtok_r((char *)list.data, "\n", &save); t && !*out;
			t = strtok_r(NULL, "\n", &save)) {
			/* This question begins the computation of sums; later questions join it. */
			snprintf(path, sizeof(path), "/digest?ticket=%.300s", t);
			wb_buf_init(&page, 64u << 20);
			if (wb__ctl_fetch(addr, path, NULL, &page, &err) == 0)
				snprintf(out, cap, "%s", t);
			wb_buf_finish(&page);
		}
	wb_buf_finish(&list);
}

static int ask(struct verify *v, const char *addr, const char *object, struct wb_err *err)
{
	char path[400] = "/digest", ticket[320] = "";
	bool has_number = false;
	struct timespec nap = {0, POLL_NS};
	uint64_t begin_ns = wb_now_ns(&wb_clock_real), said_ns = begin_ns, now;
	json_t *page = NULL;
	json_int_t number;
	int rc;

	for (;;) {
		rc = wb__ctl_fetch_json(addr, path, NULL, &page, err);
		if (rc == -EACCES && !ticket[0]) {
			find_ticket(addr, ticket, sizeof(ticket));
			snprintf(path, sizeof(path), "/digest?ticket=%s", ticket);
			if (ticket[0])
				continue;
		}
		if (rc < 0)
			return rc;
		if (json_is_true(json_object_get(page, "done")))
			break;
		/* Ask for the sums that were begun for us, since others may ask too. */
		number = json_integer_value(json_object_get(page, "number"));
		if (number > 0 && !has_number)
			snprintf(path, sizeof(path), "/digest?number=%lld%s%s", (long long)number,
				ticket[0] ? "&ticket=" : "", ticket);
		has_number |= number > 0;
		json_decref(page);
		now = wb_now_ns(&wb_clock_real);
		if (now - begin_ns > WAIT_NS)
			return wb_err_set(err, -ETIMEDOUT,
				"%s has not finished its sums in %d minutes: see its log", addr,
				(int)(WAIT_NS / WB_NS_PER_S / 60));
		if (now - said_ns > SAY_NS && isatty(STDERR_FILENO)) {
			fprintf(stderr, "%s sums for %.0f s\n", addr,
				(double)(now - begin_ns) / 1e9);
			said_ns = now;
		}
		nanosleep(&nap, NULL);
	}
	rc = add_page(v, page, addr, object, err);
	json_decref(page);
	return rc;
}

static const char *name_of(const struct group *g)
{
	return g->name[0] ? g->name : "the trainers";
}

/* Says why not all of @g is known. */
static void say_unknown(const struct verify *v, const struct group *g, char *out, size_t cap)
{
	if (g->changing)
		snprintf(out, cap, "not verified: it changes just now");
	else if (g->n_unreadable)
		snprintf(out, cap,
			"not verified: %u of %u classes are in private memory, which only its "
			"workers read: %s",
			v->n_class - g->n_known, v->n_class, g->private);
	else
		snprintf(out, cap,
			"not verified: %u of %u classes are held by agents that were not asked",
			v->n_class - g->n_known, v->n_class);
}

static bool is_whole(const struct verify *v, const struct group *g)
{
	return !g->changing && !g->n_unreadable && g->n_known == v->n_class;
}

/* Compares class by class; @g is whole. */
static enum verdict compare(const struct verify *v, const struct group *g, const struct group *ref,
	char *out, size_t cap)
{
	uint32_t n = 0, first = 0, both = 0;

	for (uint32_t k = v->n_class; k-- > 0;) {
		both += ref->cls[k].known;
		if (!ref->cls[k].known || !memcmp(ref->cls[k].lane, g->cls[k].lane, 16))
			continue;
		first = k;
		n++;
	}
	if (n)
		snprintf(out, cap, "differs from %s in %u of %u classes, first %u of %s",
			name_of(ref), n, v->n_class, first, g->cls[first].from);
	else if (both < v->n_class)
		snprintf(out, cap, "same as %s in %u of %u classes; no more is known of %s",
			name_of(ref), both, v->n_class, ref->name[0] ? "it" : "them");
	else
		snprintf(out, cap, "same as %s", name_of(ref));
	return n ? DIFFERS : SAME;
}

/* Compares @g with @ref, and writes what to say about it. */
static enum verdict judge(const struct verify *v, const struct group *g, const struct group *ref,
	char *out, size_t cap)
{
	if (g->wrong[0]) {
		snprintf(out, cap, "%s", g->wrong);
		return DIFFERS;
	}
	if (!is_whole(v, g)) {
		say_unknown(v, g, out, cap);
		return UNKNOWN;
	}
	if (ref == g) {
		snprintf(out, cap, "-");
		return REFERENCE;
	}
	if (!ref) {
		snprintf(out, cap, "not verified: nobody to compare with was asked");
		return UNKNOWN;
	}
	return compare(v, g, ref, out, cap);
}

/* What to compare @g with: the trainers, if any of their sums are known; else the first engine with
 * the same transfer of which all sums are known; else NULL. */
static const struct group *reference(const struct verify *v, const struct group *g)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (!v->group[i].name[0] && v->group[i].n_known && !v->group[i].changing)
			return &v->group[i];
	for (uint32_t i = 0; i < v->n; i++)
		if (v->group[i].name[0] && v->group[i].transfer == g->transfer &&
			is_whole(v, &v->group[i]))
			return &v->group[i];
	return NULL;
}

/* What is shown of a group, as text and as JSON. */
struct row {
	enum verdict verdict;
	char text[600], digest[64];
};

static void fill_row(const struct verify *v, const struct group *g, struct row *out)
{
	out->verdict = judge(v, g, reference(v, g), out->text, sizeof(out->text));
	snprintf(out->digest, sizeof(out->digest), "sum128:%016llx%016llx",
		(unsigned long long)g->total[0], (unsigned long long)g->total[1]);
}

static int print(const struct verify *v)
{
	static const char *const heads[] = {
		"NAME", "VERSION", "WORKERS", "CLASSES", "DIGEST", "RESULT"};
	struct wb__ctl_table t;
	int rc;

	wb__ctl_table_init(&t, WB_ARRAY_SIZE(heads));
	for (size_t i = 0; i < WB_ARRAY_SIZE(heads); i++)
		wb__ctl_cell(&t, "%s", heads[i]);
	for (uint32_t i = 0; i < v->n; i++) {
		const struct group *g = &v->group[i];
		struct row row;

		fill_row(v, g, &row);
		wb__ctl_cell(&t, "%s", g->name[0] ? g->name : "(trainers)");
		if (g->name[0])
			wb__ctl_cell(&t, "%lld", (long long)g->version);
		else
			wb__ctl_cell(&t, "-");
		wb__ctl_cell(&t, "%u", g->n_worker);
		wb__ctl_cell(&t, "%u/%u", g->n_known, v->n_class);
		wb__ctl_cell(&t, "%s", row.digest);
		wb__ctl_cell(&t, "%s", row.text);
	}
	rc = wb__ctl_print(&t, "", stdout);
	wb__ctl_table_finish(&t);
	return rc;
}

static int print_json(const struct verify *v, bool is_yaml)
{
	json_t *list = json_array(), *all;

	for (uint32_t i = 0; i < v->n; i++) {
		const struct group *g = &v->group[i];
		struct row row;
		json_t *o;

		fill_row(v, g, &row);
		o = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "role",
			g->name[0] ? "rollout" : "trainer", "workers", (int)g->n_worker,
			"classesRead", (int)g->n_known, "digest", row.digest, "result",
			verdict_name[row.verdict], "message", row.text);
		if (g->name[0]) {
			json_object_set_new(o, "engine", json_string(g->name));
			json_object_set_new(o, "version", json_integer(g->version));
		}
		json_array_append_new(list, o);
	}
	all = json_pack("{s:s, s:s, s:i, s:o}", "object", v->object, "plan", v->plan, "classes",
		(int)v->n_class, "groups", list);
	if (!all)
		return -ENOMEM;
	wb__ctl_dump(all, is_yaml);
	json_decref(all);
	return 0;
}

static int conclude(const struct verify *v, const struct wb__ctl_opts *o, struct wb_err *err)
{
	uint32_t n[WB_ARRAY_SIZE(verdict_name)] = {0};
	struct row row;
	int rc;

	if (!v->n)
		return wb_err_set(err, -ENOENT, "these agents have no plan yet");
	rc = o->is_json ? print_json(v, o->is_yaml) : print(v);
	if (rc < 0)
		return wb_err_set(err, rc, "no memory");
	for (uint32_t i = 0; i < v->n; i++) {
		fill_row(v, &v->group[i], &row);
		n[row.verdict]++;
	}
	if (n[DIFFERS])
		return wb_err_set(err, -EILSEQ,
			"%u of %u do not hold what they should (trainers may have gone on since)",
			n[DIFFERS], v->n);
	if (!n[SAME])
		return wb_err_set(err, -ENODATA,
			"nothing was verified: no two of those asked could be compared; name all "
			"agents, of trainers and engines (--agent A,B,...)");
	return 0;
}

int wb__ctl_verify(const struct wb__ctl_opts *o, struct wb_err *err)
{
	struct verify *v;
	char *list, *save = NULL;
	int rc = 0;

	if (!o->agent_addr)
		return wb_err_set(err, -EINVAL,
			"verify reads agents: --agent HOST:PORT,HOST:PORT... of all that matter");
	v = wb_zalloc(1, sizeof(*v));
	list = wb_strdup(o->agent_addr);
	if (!v || !list)
		rc = wb_err_set(err, -ENOMEM, "no memory");
	for (char *a = list ? strtok_r(list, ",", &save) : NULL; rc == 0 && a;
		a = strtok_r(NULL, ",", &save))
		rc = ask(v, a, o->object, err);
	if (rc == 0)
		rc = conclude(v, o, err);
	for (uint32_t i = 0; v && i < v->n; i++)
		wb_free(v->group[i].cls);
	wb_free(list);
	wb_free(v);
	return rc;
}
