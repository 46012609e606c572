/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Among thousands of objects a change costs what it costs among two hundred: counted in comparisons
 * of names, which is what looking for something takes, and in objects that are said to have
 * changed.
 */
#include "base/dues.h"
#include "base/hash.h"
#include "base/names.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

#define FEW 200 /* more than have series of their own in metrics */
#define MANY 6400
#define LEVELS 5 /* of a tree, more */

/* ---- comparisons ---- */

static unsigned long n_compared;

/* In place of libc's, for all that is linked here. */
int strcmp(const char *a, const char *b)
{
	n_compared++;
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return (unsigned char)*a - (unsigned char)*b;
}

/* ---- an operator with so many objects, and one agent ---- */

static unsigned n_changed;
static char last_changed[400];

static void changed(void *ctx, const char *object)
{
	(void)ctx;
	n_changed++;
	snprintf(last_changed, sizeof(last_changed), "%s", object);
}

static void put_object(const char *object, const char *more)
{
	struct wb_spec *spec = object_spec(object, more);
	struct wb_err err = {0};

	ck_assert_int_eq(
		put_spec(spec,
			(struct wb_serve_object_desc){.uid = wb_spec_uid(spec), .has_pods = true},
			&err),
		0);
}

static void start_with(unsigned n)
{
	const char *object = "default/a";
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = "train",
		.host = "10.0.0.1",
		.port = 7444,
		.instance = 11,
		.objects = &object,
		.n_objects = 1};
	union wb_msg m;
	char name[32];

	start_serve((struct wb_serve_opts){.n_series = WB_SERVE_SERIES_MAX},
		(struct wb_serve_env){.changed = changed});
	put_object("default/a", "");
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "mallory/o-%u", i);
		put_object(name, "");
	}
	open_wire(&train);
	agent_says(&train, WBP_HELLO, &h);
	expect(&train, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
}

static void end(void)
{
	end_wire(&train);
	tear_down_serve();
}

static void some_page(void)
{
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	ck_assert_int_eq(b.rc, 0);
	wb_buf_finish(&b);
}

/* ---- changes ---- */

static void workers_attach(void)
{
	say_workers(&train, 1, NULL);
}

static void a_pod_comes(void)
{
	wb_serve_pod(s, "default/a", &(struct wb_serve_pod){.name = "train", .has_sidecar = true});
}

static void an_object_comes(void)
{
	put_object("default/new", "");
}

static void an_object_is_edited(void)
{
	put_object("default/a", ", suspend: true");
}

static void an_object_goes(void)
{
	wb_serve_remove(s, "mallory/o-3", "it was deleted");
}

static void a_page_is_read(void)
{
	a_pod_comes();
	some_page();
}

static void a_stranger_connects(void)
{
	struct wire w;

	open_wire(&w);
	end_wire(&w);
}

static void time_passes(void)
{
	clk.now += S;
	wb_serve_tick(s);
}

static const struct change {
	const char *name;
	void (*make)(void);
} changes[] = {
	{"workers attach", workers_attach},
	{"a pod comes", a_pod_comes},
	{"an object comes", an_object_comes},
	{"an object is edited", an_object_is_edited},
	{"an object goes", an_object_goes},
	{"a page is read", a_page_is_read},
	{"a stranger connects", a_stranger_connects},
	{"time passes", time_passes},
};

struct cost {
	unsigned long compared;
	unsigned changed;
};

static struct cost cost_among(unsigned n, const struct change *c)
{
	struct cost got;

	make_model();
	start_with(n);
	some_page(); /* what is new is counted then */
	for (int i = 0; i < 5; i++)
		time_passes(); /* and settles */
	some_page();
	n_compared = n_changed = 0;
	c->make();
	got = (struct cost){n_compared, n_changed};
	end();
	free_model();
	return got;
}

START_TEST(a_change_costs_the_same_among_thousands)
{
	const struct change *c = &changes[_i];
	struct cost few = cost_among(FEW, c), many = cost_among(MANY, c);

	/* What is changed is looked for, and charged, a few times. */
	ck_assert_msg(many.compared <= few.compared + 30 * LEVELS,
		"%s: %lu comparisons among %d objects, %lu among %d", c->name, many.compared, MANY,
		few.compared, FEW);
	ck_assert_msg(many.changed <= few.changed, "%s: %u objects changed among %d, %u among %d",
		c->name, many.changed, MANY, few.changed, FEW);
}
END_TEST

/* ---- what that stands on ---- */

#define ENTRIES 300

START_TEST(what_is_due_first_is_found_first)
{
	static struct wb_due e[ENTRIES];
	struct wb_dues d = {0};
	struct wb_rng rng = {7};

	for (unsigned round = 0; round < 20000; round++) {
		struct wb_due *x = &e[wb_rng_u64(&rng) % ENTRIES];
		uint64_t least = WB_NEVER;

		switch (wb_rng_u64(&rng) % 4) {
		case 0:
			wb_dues_set(&d, x, WB_NEVER);
			break;
		case 1:
			(void)wb_dues_take(&d, wb_rng_u64(&rng) % 500);
			break;
		default:
			wb_dues_set(&d, x, wb_rng_u64(&rng) % 1000);
		}
		for (unsigned i = 0; i < ENTRIES; i++)
			if (e[i].is_in && e[i].at_ns < least)
				least = e[i].at_ns;
		ck_assert(wb_dues_at(&d) == least);
	}
	for (uint64_t last = 0, at; (at = wb_dues_at(&d)) != WB_NEVER; last = at) {
		ck_assert(at >= last);
		ck_assert(!wb_dues_take(&d, at - 1));
		ck_assert(wb_dues_take(&d, at));
	}
}
END_TEST

START_TEST(a_name_is_found_until_it_is_dropped)
{
	static char name[ENTRIES][8];
	struct wb_names t = {0};
	char again[8] = "n7";

	for (unsigned i = 0; i < ENTRIES; i++) {
		snprintf(name[i], sizeof(name[i]), "n%u", i);
		ck_assert_int_eq(wb_names_add(&t, name[i]), 0);
	}
	ck_assert_int_eq(wb_names_add(&t, again), -EEXIST);
	wb_names_drop(&t, again); /* not the one that is there */
	for (unsigned i = 0; i < ENTRIES; i++)
		ck_assert_ptr_eq(wb_names_find(&t, name[i]), name[i]);
	for (unsigned i = 0; i < ENTRIES; i += 2)
		wb_names_drop(&t, name[i]);
	for (unsigned i = 0; i < ENTRIES; i++)
		ck_assert_ptr_eq(wb_names_find(&t, name[i]), i % 2 ? name[i] : NULL);
	for (unsigned i = 0; i < ENTRIES; i++)
		wb_names_drop(&t, name[i]);
	ck_assert_ptr_null(t.root);
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("serve_many");
	TCase *tc = tcase_create("changes");

	fx_add_points(tc, a_change_costs_the_same_among_thousands, 0, (int)WB_ARRAY_SIZE(changes));
	suite_add_tcase(su, tc);
	tc = tcase_create("tables");
	tcase_add_test(tc, what_is_due_first_is_found_first);
	tcase_add_test(tc, a_name_is_found_until_it_is_dropped);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
