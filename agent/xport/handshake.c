/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The challenge that opens a bulk socket.
 *
 *	dialer					acceptor
 *	HELLO {epoch, names, socket, nonce} ->	knows the epoch? is that name its own?
 *	checks the MAC			<-	CHALLENGE {nonce, MAC(acceptor)}
 *	PROOF {MAC(dialer)}		->	checks the MAC
 *	TLS handshake			<->	where HELLO said so; all that follows is inside
 *						the loop counts the session's sockets
 *	UP				<-	WELCOME, when all are in
 *
 * Either MAC covers the HELLO frame and the acceptor's nonce, so it holds for this epoch, these two
 * names and this socket only, and cannot be replayed or reflected (the labels differ).
 */
#include "net/psk.h"
#include "xport/internal.h"
#include "xport/secure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int wb__handshake_start(struct wb__sock *s)
{
	struct wb__frame f = {.type = WBP_BULK_HELLO};

	if (wb_random_bytes(s->hello.nonce, sizeof(s->hello.nonce)))
		return wb__sock_fail(s, -EIO, "the system gives no random numbers");
	f.hello = s->hello;
	wb__frame_encode(&f, s->hello_raw);
	s->state = WB__S_CHALLENGE;
	return wb__sock_send(s, &f);
}

static int on_challenge(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__frame proof = {.type = WBP_BULK_PROOF};
	uint8_t mac[WBP_BULK_MAC];

	if (wb__mac(s->key, WB__MAC_ACCEPTOR, s->hello_raw, f->nonce, mac) ||
		!wb_bytes_equal(mac, f->mac, WBP_BULK_MAC))
		return wb__sock_fail(s, -EKEYREJECTED,
			"agent %s does not hold our key of epoch %llu.%llu", s->peer,
			(unsigned long long)s->hello.term, (unsigned long long)s->hello.number);
	if (wb__mac(s->key, WB__MAC_DIALER, s->hello_raw, f->nonce, proof.mac))
		return wb__sock_fail(s, -EIO, "cannot compute a MAC");
	memcpy(s->nonce, f->nonce, sizeof(s->nonce));
	s->state = s->hello.over == WBP_BULK_OVER_TLS ? WB__S_SECURE : WB__S_WELCOME;
	return wb__sock_send(s, &proof);
}

/* Refuse a dialer whose HELLO disagrees with our epoch about encryption, or that uses another
 * transport. */
static int check_over(struct wb__sock *s, const struct wb_xport_epoch *e)
{
	uint16_t want = wb__xport_stream_over(s->rail->x, e), over = s->hello.over;

	if (over == want)
		return 0;
	if (want == WBP_BULK_OVER_TLS && over == WBP_BULK_OVER_TCP)
		return wb__sock_fail(s, -EPROTO,
			"agent %s would send in the clear, but encryption is TLS for this object",
			s->peer);
	if (want == WBP_BULK_OVER_TCP && over == WBP_BULK_OVER_TLS)
		return wb__sock_fail(s, -EPROTO,
			"agent %s wants TLS, but encryption is None for this object here", s->peer);
	return wb__sock_fail(s, -EPROTO, "agent %s speaks another transport to us", s->peer);
}

static int on_hello(struct wb__sock *s, const struct wb__frame *f, const uint8_t *raw)
{
	struct wb__xport_stream *x = s->rail->x;
	const struct wb__hello *h = &f->hello;
	struct wb__frame c = {.type = WBP_BULK_CHALLENGE};
	struct wb_xport_epoch e;
	int rc;

	s->hello = *h;
	memcpy(s->hello_raw, raw, sizeof(s->hello_raw));
	snprintf(s->peer, sizeof(s->peer), "%s", h->dialer);
	if (strcmp(h->acceptor, x->name))
		return wb__sock_fail(s, -EADDRNOTAVAIL,
			"agent %s looks for agent %s here, but this is agent %s", h->dialer,
			h->acceptor, x->name);
	if (!wb__xport_stream_epoch_of(x, h, &e))
		return wb__sock_fail(s, WB_ESTALE,
			"agent %s does not know epoch %llu.%llu of object %016llx, which agent %s "
			"names",
			x->name, (unsigned long long)h->term, (unsigned long long)h->number,
			(unsigned long long)h->object, h->dialer);
	memcpy(s->key, e.key, sizeof(s->key));
	explicit_bzero(&e.key, sizeof(e.key));
	rc = check_over(s, &e);
	if (rc)
		return rc;
	if (wb_random_bytes(s->nonce, sizeof(s->nonce)) ||
		wb__mac(s->key, WB__MAC_ACCEPTOR, s->hello_raw, s->nonce, c.mac))
		return wb__sock_fail(s, -EIO, "cannot compute a MAC");
	memcpy(c.nonce, s->nonce, sizeof(c.nonce));
	s->state = WB__S_PROOF;
	return wb__sock_send(s, &c);
}

static int on_proof(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__ev e = {.kind = WB__EV_AUTHED, .sock = s};
	uint8_t mac[WBP_BULK_MAC];

	if (wb__mac(s->key, WB__MAC_DIALER, s->hello_raw, s->nonce, mac) ||
		!wb_bytes_equal(mac, f->mac, WBP_BULK_MAC))
		return wb__sock_fail(s, -EKEYREJECTED,
			"agent %s does not hold our key of epoch %llu.%llu", s->peer,
			(unsigned long long)s->hello.term, (unsigned long long)s->hello.number);
	wb__young_move(s->rail, s, WB__YOUNG_PROVED);
	if (s->hello.over == WBP_BULK_OVER_TLS) {
		s->state = WB__S_SECURE;
		return 0;
	}
	s->state = WB__S_ADMIT;
	wb__emit(s->rail, &e, false);
	return 0;
}

static int be_up(struct wb__sock *s)
{
	const struct wb__link_ops *link = s->rail->x->link;

	s->state = WB__S_UP;
	wb__young_move(s->rail, s, WB__YOUNG_NONE);
	return link->sock_open ? link->sock_open(s) : 0;
}

int wb__handshake_frame(struct wb__sock *s, const struct wb__frame *f, const uint8_t *raw)
{
	struct wb__ev e = {.kind = WB__EV_UP, .sock = s};
	int rc;

	if (s->is_dialer && f->type == WBP_BULK_REJECT)
		return wb__sock_fail(s, f->code < 0 ? f->code : -EPROTO, "agent %s refused: %s",
			s->peer, f->text);
	if (s->state == WB__S_CHALLENGE && f->type == WBP_BULK_CHALLENGE)
		return on_challenge(s, f);
	if (s->state == WB__S_HELLO && f->type == WBP_BULK_HELLO)
		return on_hello(s, f, raw);
	if (s->state == WB__S_PROOF && f->type == WBP_BULK_PROOF)
		return on_proof(s, f);
	if (s->state != WB__S_WELCOME || f->type != WBP_BULK_WELCOME)
		return wb__sock_fail(s, -EPROTO, "%s%s sent frame type %d in the challenge",
			s->peer[0] ? "agent " : "a peer", s->peer, (int)f->type);
	rc = be_up(s);
	if (rc)
		return rc;
	wb__emit(s->rail, &e, false);
	return 0;
}

int wb__handshake_welcome(struct wb__sock *s)
{
	struct wb__frame f = {.type = WBP_BULK_WELCOME};
	int rc;

	assert(s->state == WB__S_ADMIT);
	if (wb__sock_tables(s, s->hello.slots))
		return wb__sock_fail(s, -ENOMEM, "no memory for the slots of agent %s", s->peer);
	rc = wb__sock_send(s, &f);
	if (rc)
		return rc;
	return be_up(s);
}

void wb__handshake_reject(struct wb__sock *s)
{
	struct wb__frame f = {.type = WBP_BULK_REJECT, .code = s->code};
	uint8_t buf[WBP_BULK_FRAME_MAX];
	struct iovec v = {buf, 0};

	if (s->state == WB__S_HELLO && !s->peer[0])
		return; /* the peer has sent no HELLO, so it may not know our protocol */
	if (s->state == WB__S_SECURE)
		return; /* TLS has sent an alert itself */
	snprintf(f.text, sizeof(f.text), "%.*s", (int)sizeof(f.text) - 1, s->reason);
	/* The frame may be lost, which does no harm, but it must not follow a part of another
	 * frame.  It is so small that an idle socket takes all of it. */
	if (s->tx_at != s->tx_have)
		return;
	v.iov_len = wb__frame_encode(&f, buf);
	if (s->secure)
		(void)!wb__secure_writev(s, &v, 1, 0);
	else
		(void)!send(s->fd, buf, v.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
}
