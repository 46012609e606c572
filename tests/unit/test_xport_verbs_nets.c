/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of RDMA devices that are on networks of their own: which of them reach each other. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"
#include "xport/inet.h"
#include "xport/verbs/host.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)

/* Each lane's source is on the other device by itself, as chance has it where rails share an
 * address. */
START_TEST(a_source_goes_by_the_port_that_reaches_its_receiver)
{
	static const char *const crossed[] = {"fake1@127.0.0.1:0", "fake0@127.0.0.2:0"};
	const struct fx_verbs *v = fx_verbs();
	struct fakeverbs_counts n;
	struct wb_xport_stats s;
	struct fx_xport f;
	struct fx_job *j;

	v->reset();
	v->apart(true);
	fx_open(&f, "verbs",
		&(struct fx_opts){
			.mem_bytes = 17 * MIB, .n_rail = 2, .is_apart = _i, .src_addr = crossed});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 7, 1);
	n.qps = 0;
	for (int i = 0; i < 50 && n.qps < 2 * 2 * WBP_BULK_QPS; i++) {
		fx_job_run(&f, j, !i);
		v->count(&n);
	}
	ck_assert_int_eq(
		n.qps, 2 * 2 * WBP_BULK_QPS); /* both ends of two lanes have all of theirs */
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	ck_assert_int_eq(wb_xport_rail_stats(f.dst.x, 0, &s), 0);
	ck_assert_uint_eq(s.rails_lost, 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

static const struct {
	uint8_t ip[16];
	uint8_t bits;
} nets[] = {{{[10] = 0xff, 0xff, 127, 0, 0, 1}, 96 + 8}, {{[15] = 1}, 128},
	{{[10] = 0xff, 0xff, 192, 0, 2, 7}, 0}, {{0x20, 0x01, 0x0d, 0xb8, [15] = 1}, 0}};

static bool has_ipv6_loopback(void)
{
	return !access("/proc/net/if_inet6", R_OK);
}

START_TEST(an_address_has_the_network_of_its_interface)
{
	bool is_left_out = nets[_i].bits == 128 && !has_ipv6_loopback();

	ck_assert_uint_eq(wb__inet_net_bits(nets[_i].ip), is_left_out ? 0 : nets[_i].bits);
}
END_TEST

/* Own GID, bits, the other's: 10.77.2.1/23 has 10.77.3.9 beside it, and not 10.77.4.9. */
static const struct {
	uint8_t bits, third, fourth;
	bool is_near;
} near[] = {{96 + 23, 3, 9, true}, {96 + 23, 4, 9, false}, {96 + 24, 2, 200, true},
	{96 + 24, 3, 1, false}, {128, 2, 1, true}, {128, 2, 2, false}, {0, 2, 1, false}};

START_TEST(a_port_is_near_to_what_its_network_has)
{
	struct wb__host h = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_port = 1};
	uint8_t gid[16] = {[10] = 0xff, 0xff, 10, 77, near[_i].third, near[_i].fourth};

	memcpy(h.port[0].at.gid.raw, ((uint8_t[16]){[10] = 0xff, 0xff, 10, 77, 2, 1}), 16);
	h.port[0].at.net_bits = near[_i].bits;
	ck_assert_int_eq(wb__host_is_near(&h, 0, gid), near[_i].is_near);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_nets");
	TCase *c = tcase_create("xport_verbs_nets");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_source_goes_by_the_port_that_reaches_its_receiver, 0, 2);
	tcase_add_loop_test(
		c, an_address_has_the_network_of_its_interface, 0, (int)WB_ARRAY_SIZE(nets));
	tcase_add_loop_test(c, a_port_is_near_to_what_its_network_has, 0, (int)WB_ARRAY_SIZE(near));
	return fx_run(s);
}
