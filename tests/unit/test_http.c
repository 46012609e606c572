/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a place at the HTTP server of the daemons, and for how long. */
#include "base/base.h"
#include "net/http_conns.h"
#include "tests/common/fx_check.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>

/* ---- who has a place at the HTTP server ---- */

static struct wb__source source_of(unsigned n)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000000u + n)};

	return wb__source_of((const struct sockaddr *)&sa);
}

enum { NOBODY = -1, FREE = -2, MS = 1000000 };

/* So many of each source, opened one millisecond after the other; who makes room for the next? */
static const struct {
	const char *what;
	unsigned n[3]; /* of sources 1, 2, 3, in turn */
	unsigned comes; /* from which source */
	unsigned after_ms; /* so long after the last one */
	bool asked; /* they all wait for an answer */
	int gone; /* index of opening, or of the above */
} rooms[] = {
	{"a place is free", {3, 0, 0}, 2, 0, false, FREE},
	{"a source has its share, all of it just come", {4, 0, 0}, 1, 0, false, NOBODY},
	{"a source has its share: its own slow one", {4, 2, 0}, 1, 200, false, 0},
	{"all places taken: of the one with most, though just come", {4, 4, 0}, 3, 0, false, 0},
	{"all taken, by many: the slowest", {3, 3, 2}, 3, 200, false, 0},
	{"all taken, by many that have just come", {3, 3, 2}, 3, 0, false, NOBODY},
	{"all are being answered", {4, 4, 0}, 3, 200, true, NOBODY},
	{"all take very long to read their answers", {4, 4, 0}, 3, 6000, true, 0},
};

START_TEST(who_is_slow_or_greedy_makes_room)
{
	const struct wb_http_opts o = {.conns_max = 8, .source_max = 4};
	struct wb__http_conn *c[8], *gone;
	struct wb__http_conns s;
	struct wb__source from;
	uint64_t now = 1000ull * MS;
	unsigned n = 0;
	bool room;

	wb__http_conns_init(&s, &o);
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < rooms[_i].n[k]; i++, n++, now += MS) {
			from = source_of(k + 1);
			ck_assert_int_eq(wb__http_conn_add(&s, &from, -1, now, &c[n]), 0);
			if (rooms[_i].asked)
				wb__http_conn_asked(c[n], now);
		}
	now += (uint64_t)rooms[_i].after_ms * MS;
	from = source_of(rooms[_i].comes);
	room = wb__http_conns_room(&s, &from, now, &gone);
	ck_assert_msg(room == (rooms[_i].gone != NOBODY), "%s", rooms[_i].what);
	if (rooms[_i].gone >= 0)
		ck_assert_msg(gone == c[rooms[_i].gone], "%s", rooms[_i].what);
	else
		ck_assert_msg(gone == NULL, "%s", rooms[_i].what);
	while (n)
		wb__http_conn_free(c[--n]);
	ck_assert_ptr_null(s.first);
}
END_TEST

START_TEST(one_that_does_not_ask_is_cut_in_time_and_one_that_asked_has_longer)
{
	const struct wb_http_opts o = {.request_ns = 5, .reply_ns = 50};
	struct wb__source from = source_of(1);
	struct wb__http_conn *a, *b;
	struct wb__http_conns s;
	uint32_t n;

	wb__http_conns_init(&s, &o);
	ck_assert_int_eq(wb__http_conn_add(&s, &from, -1, 100, &a), 0);
	ck_assert_int_eq(wb__http_conn_add(&s, &from, -1, 101, &b), 0);
	wb__http_conn_asked(a, 103);
	ck_assert_uint_eq(wb__http_conns_late(&s, 105, &n), 106);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(wb__http_conns_late(&s, 106, &n), 153);
	ck_assert(n == 1 && b->is_cut && !a->is_cut);
	ck_assert_uint_eq(wb__http_conns_late(&s, 153, &n), UINT64_MAX);
	ck_assert(n == 1 && a->is_cut);
	wb__http_conn_free(a);
	wb__http_conn_free(b);
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
	Suite *s = suite_create("http");
	TCase *t = tcase_create("places");

	tcase_add_loop_test(t, who_is_slow_or_greedy_makes_room, 0, WB_ARRAY_SIZE(rooms));
	tcase_add_test(t, one_that_does_not_ask_is_cut_in_time_and_one_that_asked_has_longer);
	tcase_add_loop_test(t, only_the_loopback_address_itself_is_here, 0, WB_ARRAY_SIZE(heres));
	suite_add_tcase(s, t);
	return fx_run(s);
}
