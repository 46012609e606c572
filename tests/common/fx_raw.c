/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_raw.h"
#include "tests/common/fx_check.h"

#include <string.h>
#include <sys/socket.h>

void fx_raw_send(int fd, const struct wb__frame *f)
{
	uint8_t buf[WBP_BULK_FRAME_MAX];
	size_t n = wb__frame_encode(f, buf);

	ck_assert_int_eq(send(fd, buf, n, MSG_NOSIGNAL), n);
}

bool fx_raw_recv(int fd, struct wb__frame *f)
{
	uint8_t buf[WBP_BULK_FRAME_MAX];
	int need;

	if (recv(fd, buf, WBP_BULK_PREFIX, MSG_WAITALL) != WBP_BULK_PREFIX)
		return false;
	need = wb__frame_bytes(buf);
	ck_assert_int_ge(need, WBP_BULK_PREFIX);
	need -= WBP_BULK_PREFIX;
	if (need && recv(fd, buf + WBP_BULK_PREFIX, (size_t)need, MSG_WAITALL) != need)
		return false;
	return !wb__frame_decode(buf, (size_t)need + WBP_BULK_PREFIX, f);
}

struct wb__hello fx_raw_hello(uint16_t over)
{
	struct wb__hello h = {.object = fx_epoch.id.object.hash,
		.term = fx_epoch.id.term,
		.number = fx_epoch.id.number,
		.session = 5,
		.count = 1,
		.slots = 4,
		.over = over,
		.dialer = "raw",
		.acceptor = "src"};

	return h;
}

void fx_raw_prove(struct fx_xport *f, struct fx_raw *r, const struct wb__hello *h)
{
	struct wb__frame hello = {.type = WBP_BULK_HELLO, .hello = *h}, in;
	struct wb__frame proof = {.type = WBP_BULK_PROOF};
	struct wb_err err = {0};
	int fd[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	ck_assert_int_eq(wb_xport_adopt(f->src.x, fd[0], &err), 0);
	r->fd = fd[1];
	wb__frame_encode(&hello, r->hello);
	ck_assert_int_eq(send(r->fd, r->hello, sizeof(r->hello), 0), sizeof(r->hello));
	if (!fx_raw_recv(r->fd, &in) || in.type != WBP_BULK_CHALLENGE)
		return;
	memcpy(r->nonce, in.nonce, sizeof(r->nonce));
	ck_assert_int_eq(wb__mac(fx_epoch.key, WB__MAC_DIALER, r->hello, in.nonce, proof.mac), 0);
	fx_raw_send(r->fd, &proof);
}
