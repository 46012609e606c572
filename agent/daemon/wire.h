/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_WIRE_H
#define WB_DAEMON_WIRE_H
/*
 * Messages over datagram connections: encode, send; check, decode; count.
 *
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/session.h"

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

/** wb__wire_send_seq - encode @msg at protocol @version, send it as one datagram with descriptors
 *  (@fds NULL: none) and count it.  Negative: as wb_msg_encode() or wb_seq_send(). */
int wb__wire_send_seq(struct wb_seq *s, uint32_t version, uint16_t type, const void *msg,
	const struct wb__wire_fds *fds, struct wb_session_counts *counts);
/** wb__wire_decode - count, check and decode a whole frame (untrusted).  On success release with
 *  wb_msg_free(f->type, msg). */
int wb__wire_decode(const uint8_t *frame, size_t bytes, struct wb_session_counts *counts,
	struct wb_frame *f, union wb_msg *msg, struct wb_err *err);

#endif
