/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FX_TLS_H
#define FX_TLS_H
/*
 * Both ends of a TLS channel on one loop: frames whose bytes are checked, ends that count what
 * happened to them.  Callbacks take a struct fx_end as cookie.
 */
#include "net/listen.h"

#include "base/hash.h"
#include "tests/common/fx_loop.h"

#define FX_FRAME_MAX (1u << 20)

struct fx_end {
	struct wb_chan *ch;
	int opened, frames, closed, code, raw_fd, raws, refused, close_at;
	bool echo;
	uint64_t bytes;
	struct wb_rng rng; /* of the bytes that come */
	char msg[WB_ERR_MSG_MAX], refusal[WB_ERR_MSG_MAX], identity[WB_PSK_ID_MAX];
};

extern const struct wb_chan_limits fx_limits;

struct wb_chan_cb fx_cb_of(struct fx_end *e);
void fx_on_chan(void *cookie, struct wb_chan *ch);
void fx_on_refused(void *cookie, const char *peer, const struct wb_err *why);
struct wb_psk fx_key(const char *id, uint8_t fill);
struct wb_tls *fx_psk_tls(bool is_server, const char *id, uint8_t fill);
/** fx_tls_listen - on 127.0.0.1, any port; @server gets what comes.  @has_raw: other first bytes,
 * too.
 */
struct wb_listener *fx_tls_listen(struct wb_tls *tls, struct fx_end *server, bool has_raw);
void fx_tls_dial(struct wb_tls *tls, const char *host, uint16_t port, struct fx_end *client);
/** fx_make_frame - the @number-th frame, which fx_on_chan and fx_tls_dial ends check; free() it. */
uint8_t *fx_make_frame(int number, size_t bytes);
int fx_send_frame(struct wb_chan *ch, int number, size_t bytes);

#endif
