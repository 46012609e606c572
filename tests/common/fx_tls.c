/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_tls.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A frame of these tests: u32 length of the whole, 12 bytes of anything, body. */
static int framer(void *cookie, const uint8_t *head, size_t *total, struct wb_err *err)
{
	uint32_t n;

	(void)cookie;
	memcpy(&n, head, 4);
	if (n < WB_FRAME_HEAD_BYTES || n > FX_FRAME_MAX)
		return wb_err_set(err, -EMSGSIZE, "frame of %u bytes", n);
	*total = n;
	return 0;
}

const struct wb_chan_limits fx_limits = {
	.framer = framer, .connect_ns = 5 * WB_NS_PER_S, .queue_bytes_max = 4u << 20};

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct fx_end *e = cookie;

	ck_assert_ptr_eq(ch, e->ch);
	e->opened++;
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct fx_end *e = cookie;

	e->frames++;
	e->bytes += bytes;
	for (size_t i = WB_FRAME_HEAD_BYTES; i < bytes; i += 997)
		ck_assert_uint_eq(frame[i], (uint8_t)(e->frames * 31 + (int)(i / 997)));
	if (e->echo)
		ck_assert_int_eq(wb_chan_send(ch, frame, bytes), 0);
	if (e->close_at == e->frames)
		wb_chan_close(ch);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct fx_end *e = cookie;

	ck_assert_ptr_eq(ch, e->ch);
	e->closed++;
	e->code = why->code;
	strcpy(e->msg, why->msg);
	e->ch = NULL;
}

struct wb_chan_cb fx_cb_of(struct fx_end *e)
{
	return (struct wb_chan_cb){
		.cookie = e, .on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
}

void fx_on_chan(void *cookie, struct wb_chan *ch)
{
	struct fx_end *e = cookie;
	const struct wb_chan_cb cb = fx_cb_of(e);

	e->ch = ch;
	e->opened++;
	strcpy(e->identity, wb_chan_identity(ch));
	wb_chan_bind(ch, &cb);
}

static void on_raw(void *cookie, int fd, const char *peer)
{
	struct fx_end *e = cookie;

	ck_assert_int_eq(strncmp(peer, "127.0.0.1:", 10), 0);
	e->raw_fd = fd;
	e->raws++;
}

void fx_on_refused(void *cookie, const char *peer, const struct wb_err *why)
{
	struct fx_end *e = cookie;

	ck_assert(*peer);
	e->refused++;
	strcpy(e->refusal, why->msg);
}

/* ---- pre-shared keys ------------------------------------------------------------------------- */

struct wb_psk fx_key(const char *id, uint8_t fill)
{
	struct wb_psk k = {.bytes = 48};

	strcpy(k.id, id);
	memset(k.key, fill, k.bytes);
	return k;
}

struct wb_tls *fx_psk_tls(bool is_server, const char *id, uint8_t fill)
{
	struct wb_psk k = fx_key(id, fill);
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &k};
	struct wb_err err = {0};
	struct wb_tls *t;

	ck_assert_msg(!(is_server ? wb_tls_server_create : wb_tls_client_create)(&o, &t, &err),
		"%s", err.msg);
	return t;
}

struct wb_listener *fx_tls_listen(struct wb_tls *tls, struct fx_end *server, bool has_raw)
{
	const struct wb_listen_opts o = {.host = "127.0.0.1", .tls = tls, .limits = fx_limits};
	const struct wb_listen_cb cb = {server, fx_on_chan, has_raw ? on_raw : NULL, fx_on_refused};
	struct wb_listener *l;
	struct wb_err err = {0};

	ck_assert_msg(!wb_listen(fx_loop, &o, &cb, &l, &err), "%s", err.msg);
	ck_assert_uint_ne(wb_listener_port(l), 0);
	return l;
}

void fx_tls_dial(struct wb_tls *tls, const char *host, uint16_t port, struct fx_end *client)
{
	const struct wb_chan_cb cb = fx_cb_of(client);

	ck_assert_int_eq(wb_tls_connect(fx_loop, tls, host, port, &fx_limits, &cb, &client->ch), 0);
}

uint8_t *fx_make_frame(int number, size_t bytes)
{
	uint8_t *f = calloc(bytes, 1);
	uint32_t n = (uint32_t)bytes;

	memcpy(f, &n, 4);
	for (size_t i = WB_FRAME_HEAD_BYTES; i < bytes; i += 997)
		f[i] = (uint8_t)(number * 31 + (int)(i / 997));
	return f;
}

int fx_send_frame(struct wb_chan *ch, int number, size_t bytes)
{
	uint8_t *f = fx_make_frame(number, bytes);
	int rc = wb_chan_send(ch, f, bytes);

	free(f);
	return rc;
}
