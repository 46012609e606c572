/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a place at a port of the daemons, of strangers. */
#include "base/base.h"
#include "net/places.h"
#include "tests/common/fx_check.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>

static struct wb__source source_of(unsigned n)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000000u + n)};

	return wb__source_of((const struct sockaddr *)&sa);
}

enum { NOBODY = -1, FREE = -2, MS = 1000000 };

/* So many of each source, opened one millisecond after the other; each has had its time after 100
 * ms.  Who makes room for the next? */
static const struct {
	const char *what;
	unsigned n[3]; /* of sources 1, 2, 3, in turn */
	unsigned comes; /* from which source */
	unsigned after_ms; /* so long after the last one */
	enum { LOOSE, FIRM, HELD } how; /* held: has as much time as it likes */
	int gone; /* index of opening, or of the above */
} rooms[] = {
	{"a place is free", {3, 0, 0}, 2, 0, LOOSE, FREE},
	{"a source has its share, all of it just come", {4, 0, 0}, 1, 0, LOOSE, NOBODY},
	{"a source has its share: its own oldest", {4, 2, 0}, 1, 200, LOOSE, 0},
	{"all places taken: of the one with most, though just come", {4, 4, 0}, 3, 0, LOOSE, 0},
	{"all taken: of the one with most, not the oldest", {1, 4, 3}, 1, 0, LOOSE, 1},
	{"all taken, by many: the oldest", {3, 3, 2}, 3, 200, LOOSE, 0},
	{"all taken, by many that have just come", {3, 3, 2}, 3, 0, LOOSE, NOBODY},
	{"all taken, and firm", {3, 3, 2}, 3, 0, FIRM, NOBODY},
	{"all taken, and firm, but one has far more: its oldest", {1, 4, 3}, 4, 0, FIRM, 1},
	{"all taken, and held, but one has far more: its oldest", {1, 4, 3}, 4, 200, HELD, 1},
	{"all taken, and held, by many", {3, 3, 2}, 3, 200, HELD, NOBODY},
	{"all taken, and firm, but all have had their time", {4, 4, 0}, 3, 200, FIRM, 0},
	{"all taken, late, by others who have as few: its own", {3, 3, 2}, 2, 200, FIRM, 3},
};

START_TEST(who_is_slow_or_greedy_makes_room)
{
	struct wb__place at[8] = {0}, *gone;
	struct wb__places s;
	struct wb__source from;
	uint64_t now = 1000ull * MS;
	unsigned n = 0;
	bool room;

	wb__places_init(&s, 8, 4);
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < rooms[_i].n[k]; i++, n++, now += MS) {
			at[n] = (struct wb__place){.source = source_of(k + 1),
				.since_ns = now,
				.patience_ns = rooms[_i].how == HELD ? UINT64_MAX : 100 * MS,
				.is_firm = rooms[_i].how != LOOSE};
			wb__place_take(&s, &at[n]);
		}
	now += (uint64_t)rooms[_i].after_ms * MS;
	from = source_of(rooms[_i].comes);
	room = wb__places_room(&s, &from, now, &gone);
	ck_assert_msg(room == (rooms[_i].gone != NOBODY), "%s", rooms[_i].what);
	if (rooms[_i].gone >= 0)
		ck_assert_msg(gone == &at[rooms[_i].gone], "%s", rooms[_i].what);
	else
		ck_assert_msg(gone == NULL, "%s", rooms[_i].what);
	while (n) {
		wb__place_leave(&s, &at[--n]);
		wb__place_leave(&s, &at[n]);
	}
	ck_assert(s.n == 0 && s.first == NULL);
}
END_TEST

/* Nobody else can be within this pod: its own may take all places, but not hold them. */
START_TEST(our_own_address_has_no_share_but_makes_room_for_others)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct wb__source here = wb__source_of((const struct sockaddr *)&sa), other = source_of(1);
	struct wb__place at[8] = {0}, *gone;
	struct wb__places s;

	wb__places_init(&s, 8, 4);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert(wb__places_room(&s, &here, 1, &gone) && !gone);
		at[i] = (struct wb__place){.source = here, .since_ns = 1, .patience_ns = 100};
		wb__place_take(&s, &at[i]);
	}
	ck_assert(!wb__places_room(&s, &here, 1, &gone));
	ck_assert(wb__places_room(&s, &other, 1, &gone) && gone == &at[0]);
	ck_assert(wb__places_room(&s, &here, 1000, &gone) && gone == &at[0]); /* its own, late */
}
END_TEST

/* Whose page is slow to come, because we are, has one place; those who read theirs slowly have
 * many, come again when one of them was cut, and are in no hurry. */
START_TEST(who_has_many_places_takes_none_of_one_who_has_one)
{
	struct wb__place at[8] = {0}, *gone;
	struct wb__source two = source_of(2), three = source_of(3);
	struct wb__places s;

	wb__places_init(&s, 8, 4);
	for (unsigned i = 0; i < 8; i++) {
		at[i] = (struct wb__place){.source = source_of(i == 0  ? 1
							       : i < 5 ? 2
								       : 3),
			.since_ns = 1,
			.patience_ns = i == 0 ? 100 : UINT64_MAX,
			.is_firm = true};
		wb__place_take(&s, &at[i]);
	}
	ck_assert(!wb__places_room(&s, &two, 1000, &gone));
	ck_assert(!wb__places_room(&s, &three, 1000, &gone));
	/* Who has none may take that of who has had its time, or of who has far more. */
	ck_assert(wb__places_room(&s, &(struct wb__source){.a = {9}}, 1000, &gone));
	ck_assert(gone == &at[0]);
}
END_TEST

static const struct {
	const char *address;
	bool is_here;
} heres[] = {
	{"127.0.0.1", true},
	{"::1", true},
	{"::ffff:127.0.0.1", true},
	{"127.0.0.6", false}, /* a mesh's proxy */
	{"10.0.0.1", false},
	{"fd00::1", false},
	{"::ffff:10.0.0.1", false},
};

START_TEST(only_the_loopback_address_itself_is_here)
{
	struct sockaddr_in6 s6 = {.sin6_family = AF_INET6};
	struct sockaddr_in s4 = {.sin_family = AF_INET};
	bool is_v4 = inet_pton(AF_INET, heres[_i].address, &s4.sin_addr) == 1;
	struct wb__source s;

	ck_assert(is_v4 || inet_pton(AF_INET6, heres[_i].address, &s6.sin6_addr) == 1);
	s = wb__source_of(is_v4 ? (const struct sockaddr *)&s4 : (const struct sockaddr *)&s6);
	ck_assert_msg(wb__source_is_here(&s) == heres[_i].is_here, "%s", heres[_i].address);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("places");
	TCase *t = tcase_create("places");

	tcase_add_loop_test(t, who_is_slow_or_greedy_makes_room, 0, WB_ARRAY_SIZE(rooms));
	tcase_add_test(t, who_has_many_places_takes_none_of_one_who_has_one);
	tcase_add_test(t, our_own_address_has_no_share_but_makes_room_for_others);
	tcase_add_loop_test(t, only_the_loopback_address_itself_is_here, 0, WB_ARRAY_SIZE(heres));
	suite_add_tcase(s, t);
	return fx_run(s);
}
