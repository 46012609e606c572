/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp link: after WRITE the stream carries the chunk's bytes and the 32-byte trailer. */
#include "xport/inet.h"
#include "xport/internal.h"
#include "xport/secure.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define SEND_MAX (512u << 10) /* bytes in one call when no observer sees them */
#define RECV_MAX (512u << 10)

/* ---- receiver ---------------------------------------------------------------------------------
 */

static ssize_t tcp_recv(struct wb__sock *s, void *p, size_t n)
{
	struct iovec v = {p, n};

	return s->secure ? wb__secure_readv(s, &v, 1) : recv(s->fd, p, n, MSG_DONTWAIT);
}

static int tcp_rx_begin(struct wb__sock *s)
{
	s->in_payload = true;
	return 0;
}

/* Receive once: 1 = *got bytes came, 0 = none now, negative. */
static int receive(struct wb__sock *s, struct iovec *iov, int n_iov, size_t want, size_t *got)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n_iov};
	ssize_t n;

	do {
		n = s->secure ? wb__secure_readv(s, iov, n_iov) : recvmsg(s->fd, &m, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		s->rd_ready = false;
		return 0;
	}
	if (n <= 0)
		return wb__sock_errno(s, n ? errno : 0);
	/* A short read has emptied the socket.  After a hang-up, the end or an error is still to be
	 * read. */
	if ((size_t)n < want && !s->is_hup)
		s->rd_ready = false;
	*got = (size_t)n;
	return 1;
}

static int rx_trailer(struct wb__sock *s)
{
	struct iovec v = {s->trailer + s->trailer_have, sizeof(s->trailer) - s->trailer_have};
	size_t got;
	int rc;

	if (!s->rd_ready)
		return WB__IDLE;
	rc = receive(s, &v, 1, v.iov_len, &got);
	if (rc <= 0)
		return rc;
	s->trailer_have += (uint32_t)got;
	if (s->trailer_have == sizeof(s->trailer))
		wb__sock_arrived(s);
	return 0;
}

static void landed(struct wb__sock *s, size_t got)
{
	struct wb__op *op = s->rx_op;

	wb__op_skip(op, &op->at, got);
	wb__op_observe(op, op->at.done, s->rail->x->o.piece_bytes);
}

static int tcp_rx_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct wb__op *op = s->rx_op;
	struct iovec iov[WB__IOV_BATCH];
	size_t want, got;
	int n, rc;

	if (!s->rx_left)
		return rx_trailer(s);
	while (s->rx_left) {
		if (!*budget)
			return WB__AGAIN;
		if (!s->rd_ready)
			return WB__IDLE;
		if (!wb__bucket_ok(r, &r->rx))
			return WB__WAIT;
		want = WB_MIN(s->rx_left, op->observe ? r->x->o.piece_bytes : RECV_MAX);
		want = WB_MIN(want, r->rx.most);
		if (op->is_dead) { /* cancelled: read into the scratch buffer */
			want = WB_MIN(want, (size_t)WB__SCRATCH);
			iov[0] = (struct iovec){r->scratch, want};
			n = 1;
		} else {
			n = wb__op_gather(op, &op->at, want, iov);
			want = 0;
			for (int i = 0; i < n; i++)
				want += iov[i].iov_len;
		}
		rc = receive(s, iov, n, want, &got);
		if (rc <= 0)
			return rc;
		wb_dassert(got <= s->rx_left);
		s->rx_left -= got;
		*budget -= (uint32_t)WB_MIN(got, (size_t)*budget);
		wb__bucket_take(&r->rx, got);
		wb__count(&r->rx_bytes, got);
		if (!op->is_dead)
			landed(s, got);
	}
	return rx_trailer(s);
}

/* ---- source -----------------------------------------------------------------------------------
 */

static int tcp_tx_begin(struct wb__sock *s)
{
	struct wb__frame f = {.type = WBP_BULK_WRITE, .id = s->tx_in->id, .bytes = s->tx_in->bytes};
	int rc = wb__fault_begin(s, s->tx_in->op);

	return rc ? rc : wb__sock_send(s, &f);
}

/* Flip fault: the byte that has the bit is sent alone, from a changed copy; the source's memory is
 * not changed. */
static size_t apply_flip(
	struct wb__op *op, struct iovec *iov, int *n_iov, size_t want, uint8_t *one)
{
	uint64_t at = op->flip_bit / 8, off = 0;

	if (op->flip_bit == UINT64_MAX || at < op->at.done || at >= op->at.done + want)
		return want;
	if (at == op->at.done) {
		*one = (uint8_t)(*(uint8_t *)iov[0].iov_base ^ (1u << op->flip_bit % 8));
		iov[0] = (struct iovec){one, 1};
		*n_iov = 1;
		return 1;
	}
	for (int i = 0; i < *n_iov; i++) { /* send what lies before the byte */
		if (op->at.done + off + iov[i].iov_len >= at) {
			iov[i].iov_len = at - op->at.done - off;
			*n_iov = i + 1;
			break;
		}
		off += iov[i].iov_len;
	}
	return at - op->at.done;
}

static int send_piece(struct wb__sock *s, struct wb__op *op, size_t want, size_t *sent)
{
	struct iovec iov[WB__IOV_BATCH];
	int n = wb__op_gather(op, &op->at, want, iov);
	struct msghdr m = {.msg_iov = iov};
	/* MSG_MORE lets the kernel hold back a segment that is not full for up to 200 ms.  That is
	 * too long if the next bytes have to wait for the rate cap. */
	int more = s->rail->tx.rate > 0 ? 0 : MSG_MORE;
	uint8_t one;
	ssize_t k;

	want = 0;
	for (int i = 0; i < n; i++)
		want += iov[i].iov_len;
	want = apply_flip(op, iov, &n, want, &one);
	m.msg_iovlen = (size_t)n;
	do {
		k = s->secure ? wb__secure_writev(s, iov, n, more)
			      : sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL | more);
	} while (k < 0 && errno == EINTR);
	if (k < 0 && errno == EAGAIN) {
		s->wr_ready = false;
		return 0;
	}
	if (k < 0)
		return wb__sock_errno(s, errno);
	if ((size_t)k < want)
		s->wr_ready = false;
	*sent = (size_t)k;
	return 1;
}

static int tx_trailer(struct wb__sock *s, struct wb__op *op)
{
	uint8_t *out = s->txb + s->tx_have;

	if (s->is_trailer_queued) { /* and flushed: turn_out() flushes before it calls tx_payload */
		struct wb__in *in = s->tx_in;

		s->tx_in = NULL;
		wb__sock_written(s, in);
		return 0;
	}
	assert(s->tx_cap - s->tx_have >= WB_XPORT_TRAILER_BYTES);
	if (op->trailer)
		op->trailer(op->ctx, out);
	else
		memset(out, 0, WB_XPORT_TRAILER_BYTES);
	s->tx_have += WB_XPORT_TRAILER_BYTES;
	s->is_trailer_queued = true;
	return 0;
}

static int tcp_tx_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct wb__op *op = s->tx_in->op;
	size_t want, sent;
	int rc;

	while (op->at.done < op->bytes) {
		if (!*budget)
			return WB__AGAIN;
		if (!s->wr_ready)
			return WB__IDLE;
		if (!wb__bucket_ok(r, &r->tx))
			return WB__WAIT;
		want = op->bytes - op->at.done;
		if (op->observe) {
			size_t piece = WB_MIN(r->x->o.piece_bytes, r->tx.most);

			if (op->seen.done == op->at.done)
				wb__op_observe(op, WB_MIN(op->at.done + piece, op->bytes),
					(uint32_t)piece);
			want = op->seen.done - op->at.done;
		}
		want = WB_MIN(want, r->tx.most);
		rc = send_piece(s, op, WB_MIN(want, (size_t)SEND_MAX), &sent);
		if (rc <= 0)
			return rc;
		wb__op_skip(op, &op->at, sent);
		*budget -= (uint32_t)WB_MIN(sent, (size_t)*budget);
		wb__bucket_take(&r->tx, sent);
		wb__count(&r->tx_bytes, sent);
		if (s->drop_soon && op->at.done >= op->bytes / 2)
			return wb__sock_fail(s, -ECONNABORTED, "dropped by WB_FAULT");
	}
	return tx_trailer(s, op);
}

const struct wb__link_ops wb__link_tcp = {
	.over = WBP_BULK_OVER_TCP,
	.over_secure = WBP_BULK_OVER_TLS,
	.rx_exact = true,
	.tx_extra = WB_XPORT_TRAILER_BYTES,
	.listen = wb__inet_listen,
	.dial = wb__inet_dial,
	.tune = wb__inet_tune,
	.is_home = wb__inet_is_home,
	.rail_open = wb__inet_rail_open,
	.recv = tcp_recv,
	.rx_begin = tcp_rx_begin,
	.rx_payload = tcp_rx_payload,
	.tx_begin = tcp_tx_begin,
	.tx_payload = tcp_tx_payload,
};

/* Take every socket that is not for verbs: a peer whose transport is not in the set then gets a
 * reason. */
static bool tcp_is_mine(const uint8_t *first, size_t bytes)
{
	return wb__hello_over(first, bytes) != WBP_BULK_OVER_VERBS;
}

static int tcp_open(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	return wb__xport_stream_open(&wb_xport_tcp, &wb__link_tcp, o, out, err);
}

const struct wb_xport_ops wb_xport_tcp = {
	WB__STREAM_OPERATIONS,
	.name = "tcp",
	.scheme = "",
	.sockets_min = 2,
	.caps = WB_XPORT_CAP_THREADS,
	.is_mine = tcp_is_mine,
	.open = tcp_open,
};
