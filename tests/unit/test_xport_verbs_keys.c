/* SPDX-License-Identifier: Apache-2.0 */
/* What a source tells its peer of regions' keys, and how often, to a dialer that is made by hand. */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_raw.h"
#include "tests/common/fx_verbs.h"

#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (1u << 20)
#define REGIONS 4 /* of the source */
#define ALL ((1u << WBP_BULK_QPS) - 1)

/* ---- a receiver made by hand --------------------------------------------------------------------
 */

struct peer {
	struct fx_xport *f;
	struct fx_raw raw;
	uint32_t numbers, grants;
	uint32_t memory, unregion, up, lost; /* frames that came since forget() */
	uint32_t key[REGIONS][WBP_BULK_QPS]; /* by region, as told last */
};

static void take(struct peer *p, const struct wb__frame *f)
{
	if (f->type == WBP_BULK_MEMORY) {
		ck_assert_uint_lt(f->region, REGIONS);
		memcpy(p->key[f->region], f->key, sizeof(f->key));
	}
	p->memory += f->type == WBP_BULK_MEMORY;
	p->unregion += f->type == WBP_BULK_UNREGION;
	p->up += f->type == WBP_BULK_QP && f->qp.number;
	p->lost += f->type == WBP_BULK_QP && !f->qp.number;
}

static void forget(struct peer *p)
{
	p->memory = p->unregion = p->up = p->lost = 0;
}

/* Frames until @n queue pairs are answered for. */
static void read_up(struct peer *p, uint32_t n)
{
	struct wb__frame f;

	while (p->up < n) {
		ck_assert(fx_raw_recv(p->raw.fd, &f));
		take(p, &f);
	}
}

/* The source has seen what was said before, and has said what it had to say: it answers no
 * earlier. */
static void settle(struct peer *p)
{
	struct wb__frame f = {.type = WBP_BULK_GRANT,
		.id = (uint64_t)++p->grants << 16,
		.chunk = {.transfer = 1, .bytes = 4096}};
	struct wb_xport_event *e = NULL;
	int at = 0;

	fx_raw_send(p->raw.fd, &f);
	fx_wait(p->f, &p->f->src, WB_XP_GRANT, (int)p->grants);
	for (uint32_t i = 0; i < p->grants; i++)
		e = fx_take(&p->f->src, WB_XP_GRANT, &at);
	ck_assert_int_eq(wb_xport_refuse(p->f->src.x, e->conn, e->grant, -EBUSY), 0);
	do {
		ck_assert(fx_raw_recv(p->raw.fd, &f));
		take(p, &f);
	} while (f.type != WBP_BULK_REFUSE);
}

/* Of each queue pair in @which: it is new, or (not @is_new) lost.  All in one piece of the stream.
 */
static void say_qps(struct peer *p, uint32_t which, bool is_new)
{
	static const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 99, 0, 1};
	uint8_t buf[WBP_BULK_QPS * WBP_BULK_FRAME_MAX];
	size_t n = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		struct wb__frame f = {.type = WBP_BULK_QP, .qp = {.k = (uint16_t)k}};

		if (!(which & 1u << k))
			continue;
		if (is_new)
			f.qp = (struct wb__qp_frame){.k = (uint16_t)k,
				.number = ++p->numbers,
				.psn = 1,
				.mtu = IBV_MTU_1024,
				.reads = 4,
				.has_gid = true};
		memcpy(f.qp.gid, gid, sizeof(gid));
		n += wb__frame_encode(&f, buf + n);
	}
	ck_assert_int_eq(send(p->raw.fd, buf, n, MSG_NOSIGNAL), n);
}

static void add_regions(struct fx_xport *f)
{
	struct wb_err err = {0};
	char says[400];
	uint32_t id;

	for (int i = 1; i < REGIONS; i++) {
		struct wb_xport_region r = {.object = FX_OBJECT,
			.fd = f->src.mem_fd,
			.base = f->src.mem,
			.bytes = (uint64_t)i * 4096};

		ck_assert_int_eq(wb_xport_region_add(f->src.x, &r, &id, &err), 0);
		while (wb_xport_region_path(f->src.x, id, says, sizeof(says)) ==
			WB_XPORT_PATH_PENDING)
			fx_pump_some(f);
	}
}

static void open_peer(struct peer *p, struct fx_xport *f)
{
	struct wb__hello h = fx_raw_hello(WBP_BULK_OVER_VERBS);
	struct wb__frame in;

	memset(p, 0, sizeof(*p));
	p->f = f;
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = MIB});
	add_regions(f);
	fx_raw_prove(f, &p->raw, &h);
	fx_wait(f, &f->src, WB_XP_CONN_UP, 1);
	ck_assert(fx_raw_recv(p->raw.fd, &in) && in.type == WBP_BULK_WELCOME);
	say_qps(p, ALL, true);
	read_up(p, WBP_BULK_QPS);
	settle(p);
	ck_assert_uint_eq(p->memory, REGIONS);
	forget(p);
}

static void close_peer(struct peer *p)
{
	close(p->raw.fd);
	fx_close(p->f);
}

/* ---- how often ----------------------------------------------------------------------------------
 */

static const struct {
	uint32_t lost;
	bool at_source; /* by a port of its own that is down */
} losses[] = {{0x1, false}, {0x7, false}, {ALL, false}, {0x5, true}};

/* However many are lost at once, and one after the other as they are told of: that one is lost says
 * nothing of keys, and those that are made anew together are told of together. */
START_TEST(keys_are_told_anew_once_however_many_queue_pairs_were_lost)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct peer p;

	open_peer(&p, &f);
	if (losses[_i].at_source)
		v->port(0, 1, false);
	for (uint32_t k = 0; !losses[_i].at_source && k < WBP_BULK_QPS; k++) {
		if (!(losses[_i].lost & 1u << k))
			continue;
		say_qps(&p, 1u << k, false);
		settle(&p);
	}
	while (losses[_i].at_source && p.lost < 2)
		settle(&p);
	ck_assert_uint_eq(p.memory, 0);
	say_qps(&p, losses[_i].lost, true);
	read_up(&p, (uint32_t)__builtin_popcount(losses[_i].lost));
	settle(&p);
	ck_assert_uint_le(p.memory, REGIONS);
	ck_assert_uint_eq(p.unregion, 0);
	for (int i = 0; i < REGIONS; i++)
		for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
			ck_assert_uint_ne(p.key[i][k], 0);
	close_peer(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_keys");
	TCase *c = tcase_create("xport_verbs_keys");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, keys_are_told_anew_once_however_many_queue_pairs_were_lost, 0,
		(int)WB_ARRAY_SIZE(losses));
	return fx_run(s);
}
