/* SPDX-License-Identifier: Apache-2.0 */
/* The binary form of every message: of those of the app socket as the client library and the agent
 * read them, of the others because the codec takes any table. */
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
	if (f.bytes > info->cap)
		return 0;
	if (info->encoding == WB_ENC_BIN
			? wb_msg_decode_bin(&f, data + 1, &m, &err) < 0
			: wb_table_decode_bin(info->table, data + 1, size - 1, WBP_VERSION_MAX,
				  WBP_VERSION_MAX, &m, &err) < 0) {
		if (!err.msg[0])
			abort();
		return 0;
	}
	wb_buf_init(&b, 64u << 20);
	/* Binary bodies have one form, but for optional strings. */
	if (info->encoding == WB_ENC_BIN) {
		if (wb_msg_encode_bin(&f, &m, &b, &err) < 0)
			abort();
	} else {
		for (int i = 0; i < WB_FRAME_BYTES; i++)
			wb_buf_u8(&b, 0);
		if (wb_table_encode_bin(info->table, &m, WBP_VERSION_MAX, &b, &err) < 0)
			abort();
	}
	if (b.len != size - 1 + WB_FRAME_BYTES ||
		memcmp(b.data + WB_FRAME_BYTES, data + 1, size - 1) != 0)
		abort();
	wb_buf_finish(&b);
	wb_msg_free(f.type, &m);
	return 0;
}
