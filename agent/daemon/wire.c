/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wire.h"

#include "base/buf.h"
#include "base/err.h"
#include "net/seq.h"

#include <string.h>

static int encode(uint32_t version, uint16_t type, const void *msg, struct wb_buf *b)
{
	struct wb_frame f = {.version = (uint8_t)version, .type = type};

	wb_buf_init(b, (size_t)wb_msg_info(type)->cap + WB_FRAME_BYTES);
	return wb_msg_encode(&f, msg, b, NULL);
}

static void count(struct wb_session_count *c, size_t bytes)
{
	c->frames++;
	c->bytes += bytes;
}

int wb__wire_send_seq(struct wb_seq *s, uint32_t version, uint16_t type, const void *msg,
	const struct wb__wire_fds *fds, struct wb_session_counts *counts)
{
	struct wb_buf b;
	int rc = encode(version, type, msg, &b);

	if (rc == 0)
		rc = wb_seq_send(s, b.data, b.len, fds ? fds->fd : NULL, fds ? fds->n : 0);
	if (rc == 0)
		count(&counts->tx, b.len);
	wb_buf_finish(&b);
	return rc;
}

int wb__wire_decode(const uint8_t *frame, size_t bytes, struct wb_session_counts *counts,
	struct wb_frame *f, union wb_msg *msg, struct wb_err *err)
{
	const uint8_t *body;
	int rc = wb_frame_check(frame, bytes, f, &body, err);

	count(rc == 0 && f->type == WBP_HEARTBEAT ? &counts->beat : &counts->rx, bytes);
	return rc < 0 ? rc : wb_msg_decode(f, body, msg, err);
}
