/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include "base/buf.h"
#include "base/err.h"
#include "proto/messages.h"

#include <errno.h>

void wb_frame_encode(const struct wb_frame *f, uint8_t *out)
{
	const uint32_t word[4] = {WB_FRAME_MAGIC,
		(uint32_t)f->version | (uint32_t)f->flags << 8 | (uint32_t)f->type << 16, f->bytes,
		f->id};

	for (size_t i = 0; i < WB_FRAME_BYTES; i++)
		out[i] = (uint8_t)(word[i / 4] >> (8 * (i % 4)));
}

int wb_frame_decode(const void *p, size_t bytes, struct wb_frame *out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(p, bytes);
	const struct wb_msg_info *m;
	struct wb_frame f;
	uint32_t magic;

	magic = wb_cur_u32(&c);
	f.version = wb_cur_u8(&c);
	f.flags = wb_cur_u8(&c);
	f.type = wb_cur_u16(&c);
	f.bytes = wb_cur_u32(&c);
	f.id = wb_cur_u32(&c);
	if (c.bad)
		return wb_err_set(err, -EBADMSG, "frame header: %zu bytes, %d are needed", bytes,
			WB_FRAME_BYTES);
	if (magic != WB_FRAME_MAGIC)
		return wb_err_set(err, -EBADMSG,
			"not a WeightBridge peer: a frame begins with 0x%08x instead of 0x%08x",
			magic, WB_FRAME_MAGIC);
	if (!f.version)
		return wb_err_set(err, -EBADMSG, "frame header: protocol version 0");
	if (f.flags & ~WB_FRAME_FLAGS_KNOWN)
		return wb_err_set(err, -EBADMSG, "frame header: unknown flags 0x%02x", f.flags);
	m = wb_msg_info(f.type);
	if (!m)
		return wb_err_set(err, -EBADMSG,
			"frame header: unknown message number 0x%x (version %u, this program "
			"speaks %u to %u)",
			f.type, f.version, WBP_VERSION_MIN, WBP_VERSION_MAX);
	if (f.bytes > m->cap)
		return wb_err_set(err, -EMSGSIZE, "message %s: %u bytes, at most %u are allowed",
			m->name, f.bytes, m->cap);
	*out = f;
	return 0;
}

int wb_frame_length(void *cookie, const uint8_t *head, size_t *total_out, struct wb_err *err)
{
	struct wb_frame f;
	int rc = wb_frame_decode(head, WB_FRAME_BYTES, &f, err);

	(void)cookie;
	if (rc < 0)
		return rc;
	*total_out = WB_FRAME_BYTES + (size_t)f.bytes;
	return 0;
}

int wb_frame_check(const void *p, size_t bytes, struct wb_frame *out, const uint8_t **body_out,
	struct wb_err *err)
{
	struct wb_frame f;
	int rc = wb_frame_decode(p, bytes, &f, err);

	if (rc < 0)
		return rc;
	if (bytes != WB_FRAME_BYTES + (size_t)f.bytes)
		return wb_err_set(err, -EBADMSG, "message %s: %zu bytes came, its header says %zu",
			wb_msg_name(f.type), bytes, WB_FRAME_BYTES + (size_t)f.bytes);
	*out = f;
	*body_out = (const uint8_t *)p + WB_FRAME_BYTES;
	return 0;
}

int wb_version_agree(const char *what, uint32_t our_min, uint32_t our_max, uint32_t peer_min,
	uint32_t peer_max, uint32_t *out, struct wb_err *err)
{
	if (!peer_min || peer_min > peer_max)
		return wb_err_set(err, -EBADMSG, "%s says it speaks protocol versions %u to %u",
			what, peer_min, peer_max);
	if (peer_min > our_max)
		return wb_err_set(err, WB_EVERSION,
			"%s speaks protocol versions %u to %u, this program %u to %u: upgrade this "
			"program",
			what, peer_min, peer_max, our_min, our_max);
	if (peer_max < our_min)
		return wb_err_set(err, WB_EVERSION,
			"%s speaks protocol versions %u to %u, this program %u to %u: upgrade %s",
			what, peer_min, peer_max, our_min, our_max, what);
	*out = peer_max < our_max ? peer_max : our_max;
	return 0;
}
