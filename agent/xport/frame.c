/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/frame.h"

#include "base/base.h"

#include <errno.h>
#include <string.h>

/* Each type has one size (TABLE: a limit), so a peer cannot make us wait for more bytes than we
 * expect. */
static const uint16_t frame_bytes[WBP_BULK_TYPES] = {
	[WBP_BULK_HELLO] = WBP_BULK_HELLO_BYTES,
	[WBP_BULK_CHALLENGE] = WBP_BULK_PREFIX + WBP_BULK_NONCE + WBP_BULK_MAC,
	[WBP_BULK_PROOF] = WBP_BULK_PREFIX + WBP_BULK_MAC,
	[WBP_BULK_WELCOME] = WBP_BULK_PREFIX,
	[WBP_BULK_REJECT] = WBP_BULK_PREFIX + 8 + WBP_BULK_TEXT,
	[WBP_BULK_GRANT] = 64,
	[WBP_BULK_CANCEL] = 16,
	[WBP_BULK_WRITE] = WBP_BULK_ANSWER_BYTES,
	[WBP_BULK_REFUSE] = WBP_BULK_ANSWER_BYTES,
	[WBP_BULK_REGION] = 32,
	[WBP_BULK_UNREGION] = 16,
	[WBP_BULK_TABLE] = 0, /* variable */
	[WBP_BULK_TRAILER] = 16 + WB_XPORT_TRAILER_BYTES,
	[WBP_BULK_RELEASE] = 16,
	[WBP_BULK_QP] = WBP_BULK_PREFIX + 40,
	[WBP_BULK_MEMORY] = WBP_BULK_PREFIX + 24 + 4 * WBP_BULK_QPS,
};

struct out {
	uint8_t *p;
};

static void put(struct out *o, uint64_t v, unsigned bytes)
{
	while (bytes--) {
		*o->p++ = (uint8_t)v;
		v >>= 8;
	}
}

static void put_bytes(struct out *o, const void *p, size_t bytes)
{
	memcpy(o->p, p, bytes);
	o->p += bytes;
}

bool wb__name_ok(const char *name)
{
	size_t n = name ? strnlen(name, WB_XPORT_NAME_MAX) : 0;

	if (!n || n == WB_XPORT_NAME_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	}
	return true;
}

int wb__frame_bytes(const uint8_t *prefix)
{
	struct wb_cursor c = wb_cursor(prefix, WBP_BULK_PREFIX);
	uint32_t magic = wb_cur_u32(&c);
	uint8_t version = wb_cur_u8(&c);
	uint8_t type = wb_cur_u8(&c);
	uint16_t bytes = wb_cur_u16(&c);

	if (magic != WBP_BULK_MAGIC)
		return -EBADMSG;
	if (version != WBP_BULK_VERSION)
		return WB_EVERSION;
	if (!type || type >= WBP_BULK_TYPES)
		return -EBADMSG;
	if (type == WBP_BULK_TABLE) {
		unsigned body = bytes - WBP_BULK_PREFIX;

		if (bytes <= WBP_BULK_PREFIX || bytes > WBP_BULK_FRAME_MAX ||
			body % WBP_BULK_RANGE_BYTES)
			return -EBADMSG;
	} else if (bytes != frame_bytes[type]) {
		return -EBADMSG;
	}
	return bytes;
}

static void get_bytes(struct wb_cursor *c, void *out, size_t bytes)
{
	const uint8_t *p = wb_cur_bytes(c, bytes);

	if (p)
		memcpy(out, p, bytes);
	else
		memset(out, 0, bytes);
}

static void get_name(struct wb_cursor *c, char *out)
{
	get_bytes(c, out, WB_XPORT_NAME_MAX);
	if (!memchr(out, 0, WB_XPORT_NAME_MAX) || !wb__name_ok(out)) {
		out[0] = 0;
		c->bad = true;
	}
}

static void get_hello(struct wb_cursor *c, struct wb__hello *h)
{
	h->object = wb_cur_u64(c);
	h->term = wb_cur_u64(c);
	h->number = wb_cur_u64(c);
	h->session = wb_cur_u64(c);
	h->index = wb_cur_u16(c);
	h->count = wb_cur_u16(c);
	h->slots = wb_cur_u16(c);
	h->over = wb_cur_u16(c);
	wb_cur_u64(c);
	get_bytes(c, h->nonce, sizeof(h->nonce));
	get_name(c, h->dialer);
	get_name(c, h->acceptor);
	if (!h->count || h->count > WB_XPORT_SOCKETS_MAX || h->index >= h->count || !h->slots ||
		h->slots > WB_XPORT_DEPTH_MAX)
		c->bad = true;
}

uint16_t wb__hello_over(const uint8_t *first, size_t bytes)
{
	const size_t at = WBP_BULK_PREFIX + 4 * 8 + 3 * 2; /* where get_hello() reads "over" */

	if (bytes < at + 2 || wb__frame_bytes(first) != WBP_BULK_HELLO_BYTES ||
		first[5] != WBP_BULK_HELLO)
		return 0;
	return (uint16_t)(first[at] | first[at + 1] << 8);
}

static void get_chunk(struct wb_cursor *c, struct wb_xport_chunk *k)
{
	k->transfer = wb_cur_u64(c);
	k->bytes = wb_cur_u64(c);
	k->cls = wb_cur_u32(c);
	k->chunk = wb_cur_u32(c);
	k->gen = wb_cur_u32(c);
	k->src = wb_cur_u32(c);
	k->dst = wb_cur_u32(c);
	if (!k->bytes || k->bytes > WB_XPORT_CHUNK_MAX)
		c->bad = true;
}

/* The sender may not have proved its identity yet, and its text may be shown on a terminal, so
 * characters that are not printable are replaced. */
static void get_text(struct wb_cursor *c, char *out)
{
	get_bytes(c, out, WBP_BULK_TEXT);
	out[WBP_BULK_TEXT] = 0;
	for (char *s = out; *s; s++) {
		if (*s < ' ' || *s > '~')
			*s = '?';
	}
}

static void get_qp(struct wb_cursor *c, struct wb__qp_frame *q)
{
	q->k = wb_cur_u16(c);
	q->lid = wb_cur_u16(c);
	q->number = wb_cur_u32(c);
	q->psn = wb_cur_u32(c);
	q->mtu = wb_cur_u8(c);
	q->reads = wb_cur_u8(c);
	q->has_gid = wb_cur_u16(c) == 1;
	get_bytes(c, q->gid, sizeof(q->gid));
	q->answers = wb_cur_u32(c);
	wb_cur_u32(c);
	if (q->k >= WBP_BULK_QPS || q->number >> 24 || q->psn >> 24 ||
		(q->number && (!q->mtu || q->mtu > 5 || !q->reads)))
		c->bad = true;
}

static void get_region(struct wb_cursor *c, struct wb__frame *f)
{
	f->region = wb_cur_u32(c);
	wb_cur_u32(c);
	f->bytes = wb_cur_u64(c);
	f->id = wb_cur_u64(c);
}

static void get_memory(struct wb_cursor *c, struct wb__frame *f)
{
	uint64_t end;

	get_region(c, f);
	for (int i = 0; i < WBP_BULK_QPS; i++)
		f->key[i] = wb_cur_u32(c);
	if (!f->bytes || !wb_add_u64(f->id, f->bytes, &end))
		c->bad = true;
}

int wb__frame_decode(const uint8_t *p, size_t bytes, struct wb__frame *f)
{
	struct wb_cursor c;

	if (bytes < WBP_BULK_PREFIX || wb__frame_bytes(p) != (int)bytes)
		return -EBADMSG;
	c = wb_cursor(p + WBP_BULK_PREFIX, bytes - WBP_BULK_PREFIX);
	f->type = p[5];
	switch (f->type) {
	case WBP_BULK_HELLO:
		get_hello(&c, &f->hello);
		break;
	case WBP_BULK_CHALLENGE:
		get_bytes(&c, f->nonce, sizeof(f->nonce));
		get_bytes(&c, f->mac, sizeof(f->mac));
		break;
	case WBP_BULK_PROOF:
		get_bytes(&c, f->mac, sizeof(f->mac));
		break;
	case WBP_BULK_REJECT:
		f->code = (int32_t)wb_cur_u32(&c);
		wb_cur_u32(&c);
		get_text(&c, f->text);
		break;
	case WBP_BULK_GRANT:
		f->id = wb_cur_u64(&c);
		get_chunk(&c, &f->chunk);
		break;
	case WBP_BULK_WRITE:
		f->id = wb_cur_u64(&c);
		f->bytes = wb_cur_u64(&c);
		break;
	case WBP_BULK_REFUSE:
		f->id = wb_cur_u64(&c);
		f->code = (int32_t)wb_cur_u32(&c);
		break;
	case WBP_BULK_REGION:
		get_region(&c, f);
		break;
	case WBP_BULK_UNREGION:
		f->region = wb_cur_u32(&c);
		break;
	case WBP_BULK_TABLE:
		f->n_range = (uint32_t)(wb_cur_left(&c) / WBP_BULK_RANGE_BYTES);
		f->range = c.p;
		break;
	case WBP_BULK_TRAILER:
		f->id = wb_cur_u64(&c);
		get_bytes(&c, f->mac, sizeof(f->mac));
		break;
	case WBP_BULK_CANCEL:
	case WBP_BULK_RELEASE:
		f->id = wb_cur_u64(&c);
		break;
	case WBP_BULK_QP:
		get_qp(&c, &f->qp);
		break;
	case WBP_BULK_MEMORY:
		get_memory(&c, f);
		break;
	default: /* WELCOME */
		break;
	}
	return c.bad ? -EBADMSG : 0;
}

static void put_hello(struct out *o, const struct wb__hello *h)
{
	put(o, h->object, 8);
	put(o, h->term, 8);
	put(o, h->number, 8);
	put(o, h->session, 8);
	put(o, h->index, 2);
	put(o, h->count, 2);
	put(o, h->slots, 2);
	put(o, h->over, 2);
	put(o, 0, 8);
	put_bytes(o, h->nonce, sizeof(h->nonce));
	put_bytes(o, h->dialer, sizeof(h->dialer));
	put_bytes(o, h->acceptor, sizeof(h->acceptor));
}

static void put_qp(struct out *o, const struct wb__qp_frame *q)
{
	put(o, q->k, 2);
	put(o, q->lid, 2);
	put(o, q->number, 4);
	put(o, q->psn, 4);
	put(o, q->mtu, 1);
	put(o, q->reads, 1);
	put(o, q->has_gid, 2);
	put_bytes(o, q->gid, sizeof(q->gid));
	put(o, q->answers, 4);
}

static void put_region(struct out *o, const struct wb__frame *f)
{
	put(o, f->region, 4);
	put(o, 0, 4);
	put(o, f->bytes, 8);
	put(o, f->id, 8);
}

static void put_memory(struct out *o, const struct wb__frame *f)
{
	put_region(o, f);
	for (int i = 0; i < WBP_BULK_QPS; i++)
		put(o, f->key[i], 4);
}

static void put_grant(struct out *o, const struct wb__frame *f)
{
	put(o, f->id, 8);
	put(o, f->chunk.transfer, 8);
	put(o, f->chunk.bytes, 8);
	put(o, f->chunk.cls, 4);
	put(o, f->chunk.chunk, 4);
	put(o, f->chunk.gen, 4);
	put(o, f->chunk.src, 4);
	put(o, f->chunk.dst, 4);
}

size_t wb__frame_encode(const struct wb__frame *f, uint8_t *out)
{
	size_t bytes = frame_bytes[f->type];
	struct out o = {out};

	if (f->type == WBP_BULK_TABLE)
		bytes = WBP_BULK_PREFIX + (size_t)f->n_range * WBP_BULK_RANGE_BYTES;
	assert(bytes >= WBP_BULK_PREFIX && bytes <= WBP_BULK_FRAME_MAX);
	memset(out, 0, bytes);
	put(&o, WBP_BULK_MAGIC, 4);
	put(&o, WBP_BULK_VERSION, 1);
	put(&o, f->type, 1);
	put(&o, bytes, 2);
	switch (f->type) {
	case WBP_BULK_HELLO:
		put_hello(&o, &f->hello);
		break;
	case WBP_BULK_CHALLENGE:
		put_bytes(&o, f->nonce, sizeof(f->nonce));
		put_bytes(&o, f->mac, sizeof(f->mac));
		break;
	case WBP_BULK_PROOF:
		put_bytes(&o, f->mac, sizeof(f->mac));
		break;
	case WBP_BULK_REJECT:
		put(&o, (uint32_t)f->code, 4);
		put(&o, 0, 4);
		put_bytes(&o, f->text, strnlen(f->text, WBP_BULK_TEXT));
		break;
	case WBP_BULK_GRANT:
		put_grant(&o, f);
		break;
	case WBP_BULK_WRITE:
		put(&o, f->id, 8);
		put(&o, f->bytes, 8);
		break;
	case WBP_BULK_REFUSE:
		put(&o, f->id, 8);
		put(&o, (uint32_t)f->code, 4);
		break;
	case WBP_BULK_REGION:
		put_region(&o, f);
		break;
	case WBP_BULK_UNREGION:
		put(&o, f->region, 4);
		break;
	case WBP_BULK_TABLE:
		put_bytes(&o, f->range, bytes - WBP_BULK_PREFIX);
		break;
	case WBP_BULK_TRAILER:
		put(&o, f->id, 8);
		put_bytes(&o, f->mac, sizeof(f->mac));
		break;
	case WBP_BULK_CANCEL:
	case WBP_BULK_RELEASE:
		put(&o, f->id, 8);
		break;
	case WBP_BULK_QP:
		put_qp(&o, &f->qp);
		break;
	case WBP_BULK_MEMORY:
		put_memory(&o, f);
		break;
	default:
		break;
	}
	return bytes;
}

void wb__range_put(uint8_t *ranges, uint32_t i, const struct wb__range *r)
{
	struct out o = {ranges + (size_t)i * WBP_BULK_RANGE_BYTES};

	put(&o, r->region, 4);
	put(&o, r->bytes, 4);
	put(&o, r->off, 8);
}
