/* SPDX-License-Identifier: Apache-2.0 */
/* The states of party, lead, coordinator, trainers and ballot: their tables, and what
 * agent/DESIGN.md shows. */
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"
#include "transfer/states.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void set(uint32_t role, uint32_t from, uint32_t to)
{
	struct party p = {.state = from};
	struct lead *l = wb_zalloc(1, sizeof(*l));
	struct coordinator *r = wb_zalloc(1, sizeof(*r));
	struct trainers t = {.state = from};
	struct ballot b = {.state = from};

	l->state = from;
	r->state = from;
	if (role == STATES_PARTY)
		wb__transfer_party_set(&p, to);
	else if (role == STATES_LEAD)
		wb__transfer_lead_set(l, to);
	else if (role == STATES_COORDINATOR)
		wb__transfer_coordinator_set(r, to);
	else if (role == STATES_TRAINERS)
		wb__transfer_trainers_set(&t, to);
	else
		wb__transfer_ballot_set(&b, to);
	ck_assert_uint_eq(role == STATES_PARTY         ? p.state
			  : role == STATES_LEAD        ? l->state
			  : role == STATES_COORDINATOR ? r->state
			  : role == STATES_TRAINERS    ? t.state
						       : b.state,
		to);
	wb_free(l);
	wb_free(r);
}

START_TEST(a_setter_takes_each_step_of_its_table)
{
	const struct state_table *t = &wb__transfer_states[_i];

	for (uint32_t from = 0; from < t->n; from++)
		for (uint32_t to = 0; to < t->n; to++)
			if (t->row[from].to >> to & 1)
				set(_i, from, to);
}
END_TEST

/* The k-th step that the table does not have; false: there are fewer. */
static bool find_forbidden(const struct state_table *t, uint32_t k, uint32_t *from, uint32_t *to)
{
	for (*from = 0; *from < t->n; (*from)++)
		for (*to = 0; *to < t->n; (*to)++)
			if (!(t->row[*from].to >> *to & 1) && k-- == 0)
				return true;
	return false;
}

#define STEPS_MAX 128 /* more than 11 * 11, of the role with the most states */

START_TEST(a_setter_ends_the_process_at_any_other_step)
{
	uint32_t from, to;

	ck_assert(find_forbidden(&wb__transfer_states[_i / STEPS_MAX], _i % STEPS_MAX, &from, &to));
	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* it says so each time */
	set(_i / STEPS_MAX, from, to);
}
END_TEST

/* Each state is reached from the first, and the first from each. */
START_TEST(no_state_is_beyond_reach_or_without_a_way_out)
{
	const struct state_table *t = &wb__transfer_states[_i];
	uint32_t reached = 1, ends;
	/* A lead that is done stays so until the next run. */
	uint32_t last = _i == STATES_LEAD ? LEAD_DONE : 0;

	ends = 1u << last;
	for (uint32_t k = 0; k < t->n; k++)
		for (uint32_t s = 0; s < t->n; s++) {
			if (reached >> s & 1)
				reached |= t->row[s].to;
			if (t->row[s].to & ends)
				ends |= 1u << s;
		}
	ck_assert_uint_eq(reached, (1u << t->n) - 1);
	ck_assert_uint_eq(ends, (1u << t->n) - 1);
	for (uint32_t s = 0; s < t->n; s++)
		for (uint32_t k = 0; k < s; k++)
			ck_assert_str_ne(t->row[s].name, t->row[k].name);
}
END_TEST

/* As agent/DESIGN.md has it: a line a state, indented as code. */
static void draw(const struct state_table *t, struct wb_buf *out)
{
	wb_buf_printf(out, "    %s\n", t->role);
	for (uint32_t s = 0; s < t->n; s++) {
		wb_buf_printf(out, "        %-10s ->", t->row[s].name);
		for (uint32_t to = 1; to <= t->n; to++) /* the first last */
			if (t->row[s].to >> to % t->n & 1)
				wb_buf_printf(out, " %s", t->row[to % t->n].name);
		wb_buf_u8(out, '\n');
	}
}

START_TEST(the_document_shows_the_table)
{
	static char text[1 << 20];
	FILE *f = fopen("agent/DESIGN.md", "r");
	struct wb_buf b;

	ck_assert_ptr_nonnull(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	(void)fclose(f);
	wb_buf_init(&b, 1 << 16);
	wb_buf_u8(&b, '\n');
	draw(&wb__transfer_states[_i], &b);
	wb_buf_u8(&b, '\n');
	ck_assert_msg(strstr(text, wb_buf_cstr(&b)) != NULL,
		"agent/DESIGN.md has no such lines:\n%s", wb_buf_cstr(&b));
	wb_buf_finish(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transfer_states");
	TCase *tc = tcase_create("tables");

	tcase_add_loop_test(tc, a_setter_takes_each_step_of_its_table, 0, STATES_N);
	for (uint32_t r = 0; r < STATES_N && fx_forks(); r++) {
		uint32_t from, to, n = 0;

		while (find_forbidden(&wb__transfer_states[r], n, &from, &to))
			n++;
		tcase_add_loop_test_raise_signal(tc, a_setter_ends_the_process_at_any_other_step,
			SIGABRT, r * STEPS_MAX, r * STEPS_MAX + n);
	}
	tcase_add_loop_test(tc, no_state_is_beyond_reach_or_without_a_way_out, 0, STATES_N);
	tcase_add_loop_test(tc, the_document_shows_the_table, 0, STATES_N);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
