/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wire.h"

#include "base/buf.h"
#include "base/err.h"
#include "net/chan.h"
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

int wb__wire_send(struct wb_chan *ch, uint32_t version, uint16_t type, const void *msg,
	struct wb_session_counts *counts)
{
	struct wb_buf b;
	int rc = encode(version, type, msg, &b);

	if (rc == 0)
		rc = wb_chan_send(ch, b.data, b.len);
	if (rc == 0)
		count(type == WBP_HEARTBEAT ? &counts->beat : &counts->tx, b.len);
	wb_buf_finish(&b);
	return rc;
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

/* Not wb__wire_decode(), which counts. */
static int send_again(struct wb_chan *ch, uint32_t version, const uint8_t *frame, size_t bytes,
	struct wb_session_counts *counts)
{
	const uint8_t *body;
	struct wb_frame f;
	union wb_msg m;
	int rc;

	rc = wb_frame_check(frame, bytes, &f, &body, NULL);
	if (rc == 0)
		rc = wb_msg_decode(&f, body, &m, NULL);
	if (rc < 0)
		return rc;
	rc = wb__wire_send(ch, version, f.type, &m, counts);
	wb_msg_free(f.type, &m);
	return rc;
}

int wb__wire_send_frame(struct wb_chan *ch, uint32_t version, const uint8_t *frame, size_t bytes,
	struct wb_session_counts *counts)
{
	struct wb_frame f;
	int rc = wb_frame_decode(frame, bytes, &f, NULL);

	if (rc == 0 && f.version != version)
		return send_again(ch, version, frame, bytes, counts);
	if (rc == 0)
		rc = wb_chan_send(ch, frame, bytes);
	if (rc == 0)
		count(&counts->tx, bytes);
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
