/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/ring.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct wb_fault *parse(const char *text)
{
	struct wb_fault *f = NULL;
	struct wb_err err = {0};

	ck_assert_msg(!wb_fault_parse(text, &f, &err), "%s", err.msg);
	return f;
}

START_TEST(empty_text_is_no_table)
{
	ck_assert_ptr_null(parse(NULL));
	ck_assert_ptr_null(parse(""));
	ck_assert_ptr_null(parse(" ; ;"));
}
END_TEST

static const char *const bad[] = {"flip", "flip=", "flip=moon", "burn=wire", "flip=wire:2.0",
	"flip=wire:chunk=x", "flip=wire:color=1", "delay=wire:5 apples", "kill=recv:0",
	"drop=wire:1e99s", "=", "flip=wire:nan", "drop=recv", "flip=ctrl", "stall=send",
	"delay=commit", "flip=rail0", "misplace=wire", "flip=assemble", "flip=wire:chunk=0",
	"flip=wire:version=18446744073709551615", "drop=wire:version=3", "stall=rail:transfer=1",
	"flip=slot:rail=0", "kill=attach:version=1", "kill=plan:rail=0", "kill=ctrl:rail=0"};

START_TEST(bad_rule_is_named)
{
	struct wb_fault *f = (void *)1;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_fault_parse(bad[_i], &f, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, bad[_i]));
	ck_assert_ptr_eq(f, (void *)1);
}
END_TEST

START_TEST(bad_property_is_named_with_what_would_do)
{
	struct wb_fault *f = NULL;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_fault_parse("drop=wire; flip=wire:0.1:color=1", &f, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "'color=1' is no property") && strstr(err.msg, "chunk=K"),
		"%s", err.msg);
}
END_TEST

static const struct {
	const char *rule, *says; /* NULL = taken */
} misfits[] = {
	{"kill=ready; kill=plan:chunk=2", NULL},
	{"kill=wire", "rule for wire, which it does not have: its places are rail plan ready"},
	{"kill=plan; flip=slot", "rule for slot"},
	{"stall=rail", NULL},
	{"stall=rail1", NULL},
	{"stall=rail2:1s", "rule for rail 2, which it does not have: its rails are 0 to 1"},
	{"kill=rail:rail=9", "rail 9"},
};

START_TEST(rule_for_what_a_program_does_not_have_is_refused)
{
	const unsigned has = 1u << WB_FAULT_RAIL | 1u << WB_FAULT_PLAN | 1u << WB_FAULT_READY;
	struct wb_fault *f = parse(misfits[_i].rule);
	struct wb_err err = {0};

	ck_assert_int_eq(wb_fault_check(f, "it", has, 2, &err), misfits[_i].says ? -EINVAL : 0);
	ck_assert_msg(!misfits[_i].says || strstr(err.msg, misfits[_i].says), "%s", err.msg);
	ck_assert_int_eq(wb_fault_check(f, "it", WB_FAULT_ALL, 10, &err), 0);
	ck_assert_int_eq(wb_fault_check(NULL, "it", 0, 0, &err), 0);
	wb_fault_destroy(f);
}
END_TEST

START_TEST(chunk_counts_within_the_named_version)
{
	struct wb_fault *f = parse("drop=send:chunk=3:version=6; delay=wire:5ms");
	struct wb_fault_at at = {5, WB_FAULT_ANY, 0};
	struct wb_fault_hit hit;

	for (int i = 0; i < 10; i++)
		ck_assert_uint_eq(wb_fault_hit(f, WB_FAULT_SEND, &at, &hit), 0);
	at.version = 6;
	for (int i = 1; i < 10; i++)
		ck_assert_uint_eq(
			wb_fault_hit(f, WB_FAULT_SEND, &at, &hit), i == 3 ? WB_FAULT_DROP : 0);
	ck_assert_uint_eq(wb_fault_hit(f, WB_FAULT_WIRE, &at, &hit), WB_FAULT_DELAY);
	ck_assert_uint_eq(hit.delay_ns, 5000000);
	ck_assert_uint_eq(wb_fault_hit(NULL, WB_FAULT_WIRE, &at, &hit), 0);
	wb_fault_destroy(f);
}
END_TEST

START_TEST(probability_and_stall_once)
{
	struct wb_fault *f = parse("flip=wire:0.1:seed=7;stall=rail1:2s");
	struct wb_fault_at at = {WB_FAULT_ANY, 1, 1};
	struct wb_fault_hit hit;
	int n = 0, stalls = 0;

	for (int i = 0; i < 10000; i++) {
		n += wb_fault_hit(f, WB_FAULT_WIRE, &at, &hit) == WB_FAULT_FLIP;
		stalls += wb_fault_hit(f, WB_FAULT_RAIL, &at, &hit) == WB_FAULT_STALL;
	}
	ck_assert_int_gt(n, 900);
	ck_assert_int_lt(n, 1100);
	ck_assert_int_eq(stalls, 1);
	wb_fault_destroy(f);
}
END_TEST

START_TEST(kill_is_sigkill)
{
	struct wb_fault *f = parse("kill=recv:chunk=2");
	struct wb_fault_at at = {1, 1, 0};
	struct wb_fault_hit hit;

	wb_fault_hit(f, WB_FAULT_RECV, &at, &hit);
	wb_fault_hit(f, WB_FAULT_RECV, &at, &hit);
	exit(1);
}
END_TEST

/* ---- the manual page ------------------------------------------------------------------------- */

static char page[65536];

static void read_page(void)
{
	const char *top = getenv("WB_TOP");
	char name[4096];
	size_t n;
	FILE *f;

	snprintf(name, sizeof(name), "%s/agent/daemon/weightbridge-agent.8", top ? top : ".");
	f = fopen(name, "r");
	ck_assert_msg(f != NULL, "%s", name);
	n = fread(page, 1, sizeof(page) - 1, f);
	fclose(f);
	page[n] = 0;
	ck_assert_ptr_nonnull(strstr(page, ".SH FAULTS"));
}

static bool has_word(const char *line, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = line; (at = strstr(at, word)); at += n)
		if (!strchr("abcdefghijklmnopqrstuvwxyz", at[n] ? at[n] : ' ') &&
			(at == line || strchr(" \",", at[-1])))
			return true;
	return false;
}

/* Is there a heading ".BR ACTION... at PLACE..." with both? */
static bool is_heading(const char *action, const char *place)
{
	char text[sizeof(page)], *save = NULL;

	memcpy(text, strstr(page, ".SH FAULTS"), strlen(strstr(page, ".SH FAULTS")) + 1);
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		char *at = strstr(l, " at ");

		if (strncmp(l, ".BR ", 4) || !at)
			continue;
		*at = 0;
		if (has_word(l, action) && has_word(at + 1, place))
			return true;
	}
	return false;
}

/* The words between @from and the next ';' of the sentence about a bad rule. */
static int words(const char *sentence, const char *from, char out[][16], int cap)
{
	const char *at = strstr(sentence, from);
	int n = 0, used;

	ck_assert_ptr_nonnull(at);
	for (at += strlen(from); n < cap && sscanf(at, " %15[a-zA-Z]%n", out[n], &used) == 1; n++)
		at += used;
	return n;
}

START_TEST(every_fault_is_in_the_manual_page_and_no_other)
{
	char action[16][16], place[32][16];
	struct wb_fault *f = NULL;
	struct wb_err err = {0};
	int n_action, n_place;

	read_page();
	ck_assert_int_eq(wb_fault_parse("?", &f, &err), -EINVAL);
	n_action = words(err.msg, "actions are", action, 16);
	n_place = words(err.msg, "places are", place, 32);
	ck_assert_int_eq(n_action, 6);
	ck_assert_int_eq(n_place, WB_FAULT_PLACES);
	for (int p = 0; p < n_place; p++) {
		bool is_rail = !strcmp(place[p], "railN");

		for (int a = 0; a < n_action; a++) {
			char rule[40];
			bool can;

			snprintf(rule, sizeof(rule), "%.15s=%.15s", action[a],
				is_rail ? "rail0" : place[p]);
			can = wb_fault_parse(rule, &f, &err) == 0;
			if (can)
				wb_fault_destroy(f);
			if (strcmp(action[a], "kill"))
				ck_assert_msg(can == is_heading(action[a], place[p]), "%s: %s",
					rule, can ? "not documented" : "documented, but refused");
		}
		ck_assert_msg(has_word(strstr(page, "kill \" at any place"), place[p]),
			"kill at %s", place[p]);
	}
}
END_TEST

START_TEST(ring_full_is_eagain_and_keeps_order)
{
	struct wb_ring r;
	uint64_t v;

	ck_assert_int_eq(wb_ring_init(&r, 3, sizeof(v)), 0);
	for (v = 0; v < 4; v++)
		ck_assert_int_eq(wb_ring_push(&r, &v), 0);
	ck_assert_int_eq(wb_ring_push(&r, &v), -EAGAIN);
	ck_assert_uint_eq(wb_ring_room(&r), 0);
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert_int_eq(wb_ring_pop(&r, &v), 0);
		ck_assert_uint_eq(v, i);
	}
	ck_assert_int_eq(wb_ring_pop(&r, &v), -EAGAIN);
	ck_assert(wb_ring_is_empty(&r));
	wb_ring_finish(&r);
}
END_TEST

#define MANY 200000

static void *producer(void *arg)
{
	for (uint64_t i = 0; i < MANY; i++) {
		uint64_t item[2] = {i, ~i};

		while (wb_ring_push(arg, item))
			sched_yield();
	}
	return NULL;
}

START_TEST(ring_between_threads_loses_nothing)
{
	struct wb_ring r;
	pthread_t t;

	ck_assert_int_eq(wb_ring_init(&r, 64, 16), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, producer, &r), 0);
	for (uint64_t i = 0; i < MANY; i++) {
		uint64_t item[2];

		while (wb_ring_pop(&r, item))
			sched_yield();
		ck_assert(item[0] == i && item[1] == ~i);
	}
	pthread_join(t, NULL);
	wb_ring_finish(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fault");
	TCase *c = tcase_create("fault");

	suite_add_tcase(s, c);
	tcase_add_test(c, empty_text_is_no_table);
	tcase_add_loop_test(c, bad_rule_is_named, 0, WB_ARRAY_SIZE(bad));
	tcase_add_loop_test(c, rule_for_what_a_program_does_not_have_is_refused, 0,
		(int)WB_ARRAY_SIZE(misfits));
	tcase_add_test(c, bad_property_is_named_with_what_would_do);
	tcase_add_test(c, chunk_counts_within_the_named_version);
	tcase_add_test(c, probability_and_stall_once);
	if (fx_forks())
		tcase_add_test_raise_signal(c, kill_is_sigkill, SIGKILL);
	tcase_add_test(c, every_fault_is_in_the_manual_page_and_no_other);
	tcase_add_test(c, ring_full_is_eagain_and_keeps_order);
	tcase_add_test(c, ring_between_threads_loses_nothing);
	return fx_run(s);
}
