/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_WIRE_H
#define WB_DAEMON_WIRE_H
/*
 * Messages over channels and datagram connections: encode, send; check, decode; count.
 *
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/session.h"

struct wb_chan;
struct wb_seq;

enum wb__wire_channel {
	WB__WIRE_OPERATOR,
	WB__WIRE_AGENT, /* other agents */
	WB__WIRE_WORKER,
	WB__WIRE_CHANNELS,
};

struct wb__wire_fds {
	const int *fd; /* borrowed */
	uint32_t n;
};

/** wb__wire_send - encode @msg at protocol @version, queue it on a channel and count it.  Negative:
 *  as wb_msg_encode() or wb_chan_send(). */
int wb__wire_send(struct wb_chan *ch, uint32_t version, uint16_t type, const void *msg,
	struct wb_session_counts *counts);
/** wb__wire_send_seq - the same as one datagram with descriptors (@fds NULL: none). */
int wb__wire_send_seq(struct wb_seq *s, uint32_t version, uint16_t type, const void *msg,
	const struct wb__wire_fds *fds, struct wb_session_counts *counts);
/** wb__wire_send_frame - one that was encoded before there was a channel; where @version, which was
 *  agreed on since, is another, it is written anew.  Negative: as wb__wire_send(). */
int wb__wire_send_frame(struct wb_chan *ch, uint32_t version, const uint8_t *frame, size_t bytes,
	struct wb_session_counts *counts);
/** wb__wire_decode - count, check and decode a whole frame (untrusted).  On success release with
 *  wb_msg_free(f->type, msg). */
int wb__wire_decode(const uint8_t *frame, size_t bytes, struct wb_session_counts *counts,
	struct wb_frame *f, union wb_msg *msg, struct wb_err *err);

#endif
