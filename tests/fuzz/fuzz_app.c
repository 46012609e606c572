/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of the app socket: the binary messages only, as the client library reads them. */
#include "base/buf.h"
#include "base/err.h"
#include "proto/messages.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct wb_msg_info *info;
	struct wb_frame f;
	struct wb_err err;
	struct wb_buf b;
	union wb_msg m;

	/* The first byte picks the message, the rest is its body. */
	if (!size)
		return 0;
	for (uint32_t i = data[0]; !(info = wb_msg_at(i)); i /= 2)
		;
	f = (struct wb_frame){WBP_VERSION_MAX, 0, info->type, (uint32_t)size - 1, 0};
	if (info->encoding != WB_ENC_BIN || f.bytes > info->cap)
		return 0;
	if (wb_msg_decode_bin(&f, data + 1, &m, &err) < 0)
		return 0;
	wb_buf_init(&b, 64u << 20);
	/* Binary bodies have one form, but for optional strings. */
	if (wb_msg_encode_bin(&f, &m, &b, &err) < 0 || b.len != size - 1 + WB_FRAME_BYTES ||
		memcmp(b.data + WB_FRAME_BYTES, data + 1, size - 1))
		abort();
	wb_buf_finish(&b);
	wb_msg_free(f.type, &m);
	return 0;
}
