/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_WIRE_H
#define WB_DAEMON_WIRE_H
/*
 * Messages over channels and datagram connections: encode, send; check, decode.
 *
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/messages.h"

struct wb_chan;
struct wb_seq;

/** wb__wire_send - encode @msg at protocol @version and queue it on a channel.  Negative: as
 *  wb_msg_encode() or wb_chan_send(). */
int wb__wire_send(struct wb_chan *ch, uint32_t version, uint16_t type, const void *msg);
/** wb__wire_send_seq - the same as one datagram with descriptors (borrowed). */
int wb__wire_send_seq(struct wb_seq *s, uint32_t version, uint16_t type, const void *msg,
	const int *fds, uint32_t n_fd);
/** wb__wire_decode - check and decode a whole frame (untrusted).  On success release with
 *  wb_msg_free(f->type, msg). */
int wb__wire_decode(const uint8_t *frame, size_t bytes, struct wb_frame *f, union wb_msg *msg,
	struct wb_err *err);

#endif
