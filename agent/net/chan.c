/* SPDX-License-Identifier: Apache-2.0 */
#include "net/chan.h"

#include "base/mem.h"

#include <string.h>

static int send_copy(struct wb_chan *ch, const void *head, size_t bytes, const struct wb_lent *rest)
{
	uint8_t *frame = wb_alloc(bytes + rest->bytes);
	int rc;

	if (!frame)
		return -ENOMEM;
	memcpy(frame, head, bytes);
	memcpy(frame + bytes, rest->data, rest->bytes);
	rc = wb_chan_send(ch, frame, bytes + rest->bytes);
	wb_free_wiped(frame);
	return rc;
}

int wb_chan_send_lent(
	struct wb_chan *ch, const void *head, size_t bytes, const struct wb_lent *rest)
{
	int rc;

	if (ch->ops->send_lent)
		return ch->ops->send_lent(ch, head, bytes, rest);
	rc = send_copy(ch, head, bytes, rest);
	if (rc == 0)
		rest->put(rest->cookie);
	return rc;
}
