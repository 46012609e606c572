/* SPDX-License-Identifier: Apache-2.0 */
/* A source made by hand that sends of memory for which it has given no key: nothing is asked of a
 * device by key 0, and the connection ends by name. */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_raw.h"
#include "tests/common/fx_verbs.h"
#include "xport/verbs/verbs.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 65536u

/* ---- a source made by hand ----------------------------------------------------------------------
 */

static int listen_here(char *endpoint, size_t cap)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	snprintf(endpoint, cap, "verbs:127.0.0.1:%u", ntohs(a.sin_port));
	return fd;
}

/* HELLO .. WELCOME, from the other side. */
static int accept_one(int listener)
{
	struct wb__frame in, challenge = {.type = WBP_BULK_CHALLENGE},
			     welcome = {.type = WBP_BULK_WELCOME};
	uint8_t hello[WBP_BULK_HELLO_BYTES];
	int fd = accept(listener, NULL, NULL);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(recv(fd, hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
	ck_assert_int_eq(
		wb__mac(fx_epoch.key, WB__MAC_ACCEPTOR, hello, challenge.nonce, challenge.mac), 0);
	fx_raw_send(fd, &challenge);
	ck_assert(fx_raw_recv(fd, &in) && in.type == WBP_BULK_PROOF);
	fx_raw_send(fd, &welcome);
	return fd;
}

/* Each of the receiver's queue pairs is answered for. */
static void answer_qps(int fd)
{
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		static const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 99, 0, 1};
		struct wb__frame in, f = {.type = WBP_BULK_QP,
					     .qp = {.number = 100 + k,
						     .psn = 1,
						     .mtu = IBV_MTU_1024,
						     .reads = 4,
						     .has_gid = true}};

		ck_assert(fx_raw_recv(fd, &in) && in.type == WBP_BULK_QP && in.qp.number);
		f.qp.k = in.qp.k;
		f.qp.answers = in.qp.number;
		memcpy(f.qp.gid, gid, sizeof(gid));
		fx_raw_send(fd, &f);
	}
}

/* A whole chunk, of region 0. */
static void send_chunk(int fd, uint64_t id)
{
	uint8_t table[WBP_BULK_RANGE_BYTES];
	struct wb__range g = {.region = 0, .bytes = CHUNK};
	struct wb__frame write = {.type = WBP_BULK_WRITE, .id = id, .bytes = CHUNK},
			 ranges = {.type = WBP_BULK_TABLE, .n_range = 1, .range = table},
			 trailer = {.type = WBP_BULK_TRAILER, .id = id};

	wb__range_put(table, 0, &g);
	fx_raw_send(fd, &write);
	fx_raw_send(fd, &ranges);
	fx_raw_send(fd, &trailer);
}

/* ---- claims -------------------------------------------------------------------------------------
 */

enum { KEY_ZERO, NO_WORD_OF_IT };
static const struct {
	const char *says;
	int code;
} missing[] = {[KEY_ZERO] = {"agent src gives no key for its memory region 0", -EACCES},
	[NO_WORD_OF_IT] = {"agent src sent a range outside of its regions", -EPROTO}};

START_TEST(memory_without_a_key_is_not_read_and_ends_the_connection_by_name)
{
	struct wb__frame memory = {
		.type = WBP_BULK_MEMORY, .region = 0, .bytes = 1u << 20, .id = 0x10000000};
	struct wb_xport_stats s = {0};
	struct wb__frame in;
	struct wb_xport_event *e;
	struct fx_xport f;
	struct iovec to;
	struct wb_xport_grant g = {
		.chunk = {.transfer = 1, .bytes = CHUNK}, .iov = &to, .n_iov = 1};
	int listener, fd, at = 0;

	fx_verbs_fresh();
	fx_open(&f, "verbs", &(struct fx_opts){.sockets = 1});
	listener = listen_here(f.src.endpoint, sizeof(f.src.endpoint));
	f.conn = fx_dial(&f, &fx_epoch, "src");
	fd = accept_one(listener);
	answer_qps(fd);
	if (_i == KEY_ZERO)
		fx_raw_send(fd, &memory);
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 1);
	to = (struct iovec){f.dst.mem, CHUNK};
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	ck_assert(fx_raw_recv(fd, &in) && in.type == WBP_BULK_GRANT);
	send_chunk(fd, in.id);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_int_eq(f.dst.count[WB_XP_LOST], 1);
	e = fx_take(&f.dst, WB_XP_CONN_DOWN, &at);
	ck_assert_int_eq(e->code, missing[_i].code);
	ck_assert_msg(strstr(f.dst.reason, missing[_i].says) != NULL, "%s", f.dst.reason);
	ck_assert_int_eq(wb_xport_rail_stats(f.dst.x, 0, &s), 0);
	ck_assert_uint_eq(s.requests, 0);
	close(fd);
	close(listener);
	fx_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_keyless");
	TCase *c = tcase_create("xport_verbs_keyless");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, memory_without_a_key_is_not_read_and_ends_the_connection_by_name, 0,
		(int)WB_ARRAY_SIZE(missing));
	return fx_run(s);
}
