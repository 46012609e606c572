/* SPDX-License-Identifier: Apache-2.0 */
/* Whole frames of any message: header, JSON and binary bodies.  What decodes must encode to
 * something that decodes to the same. */
#include "base/buf.h"
#include "base/err.h"
#include "proto/messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct wb_frame *f, const void *msg)
{
	struct wb_frame g, head = *f;
	struct wb_buf a, b;
	struct wb_err err;
	const uint8_t *body;
	union wb_msg copy;

	/* A body from a newer version holds fields that cannot be written back. */
	head.version = WBP_VERSION_MAX;
	wb_buf_init(&a, 64u << 20);
	wb_buf_init(&b, 64u << 20);
	/* Invalid UTF-8 is replaced, which may lengthen a string beyond its bound. */
	if (!wb_msg_encode(&head, msg, &a, &err) &&
		!wb_frame_check(a.data, a.len, &g, &body, &err) &&
		!wb_msg_decode(&g, body, &copy, &err)) {
		if (wb_msg_encode(&head, &copy, &b, &err) || a.len != b.len ||
			memcmp(a.data, b.data, a.len))
			abort();
		wb_msg_free(g.type, &copy);
	} else if (wb_msg_info(f->type)->encoding == WB_ENC_BIN) {
		abort();
	}
	wb_buf_finish(&a);
	wb_buf_finish(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb_frame f;
	struct wb_err err;
	union wb_msg m;

	size_t total = 0;
	int rc = wb_frame_decode(data, size, &f, &err);

	/* What a channel asks before it allocates a frame. */
	if (size >= WB_FRAME_BYTES && wb_frame_length(NULL, data, &total, &err) == 0 &&
		(rc < 0 || total != WB_FRAME_BYTES + (size_t)f.bytes ||
			f.bytes > wb_msg_info(f.type)->cap))
		abort();
	if (rc < 0)
		return 0;
	/* Let the fuzzer grow bodies without keeping the length right. */
	f.bytes = (uint32_t)(size - WB_FRAME_BYTES);
	if (wb_msg_info(f.type)->encoding != WB_ENC_BIN &&
		wb_msg_decode_bin(&f, data + WB_FRAME_BYTES, &m, &err) != -EBADMSG)
		abort(); /* those of the app socket only */
	if (wb_msg_decode(&f, data + WB_FRAME_BYTES, &m, &err) < 0)
		return 0;
	if (f.type == WBP_HELLO) {
		uint32_t agreed = 0;

		if (wb_version_agree("it", WBP_VERSION_MIN, WBP_VERSION_MAX, m.hello.version_min,
			    m.hello.version_max, &agreed, &err) == 0
				? agreed < m.hello.version_min || agreed > WBP_VERSION_MAX
				: !err.msg[0])
			abort();
	}
	again(&f, &m);
	wb_msg_free(f.type, &m);
	return 0;
}
