/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void wb_buf_init(struct wb_buf *b, size_t max)
{
	memset(b, 0, sizeof(*b));
	b->max = max;
}

void wb_buf_finish(struct wb_buf *b)
{
	if (b->is_secret)
		wb_free_wiped(b->data);
	else
		wb_free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

void wb_buf_reset(struct wb_buf *b)
{
	b->len = 0;
	b->rc = 0;
}

/* wb_grow() for a secret.  realloc() may leave a copy of the secret in freed memory. */
static int grow_secret(struct wb_buf *b, size_t need)
{
	size_t cap = WB_MIN(WB_MAX(need, 2 * b->cap), b->max);
	uint8_t *data;

	if (need <= b->cap)
		return 0;
	data = wb_alloc(cap);
	if (!data)
		return -ENOMEM;
	if (b->len)
		memcpy(data, b->data, b->len);
	wb_free_wiped(b->data);
	b->data = data;
	b->cap = cap;
	return 0;
}

static uint8_t *reserve(struct wb_buf *b, size_t bytes)
{
	uint8_t *at;
	int rc;

	if (b->rc)
		return NULL;
	if (bytes > b->max || b->len > b->max - bytes) {
		b->rc = -E2BIG;
		return NULL;
	}
	rc = b->is_secret ? grow_secret(b, b->len + bytes)
			  : wb_grow(&b->data, &b->cap, b->len + bytes, b->max, 1);
	if (rc < 0) {
		b->rc = rc;
		return NULL;
	}
	at = b->data + b->len;
	b->len += bytes;
	return at;
}

void wb_buf_put(struct wb_buf *b, const void *p, size_t bytes)
{
	uint8_t *at = bytes ? reserve(b, bytes) : NULL;

	if (at)
		memcpy(at, p, bytes);
}

static void put_le(struct wb_buf *b, uint64_t v, size_t bytes)
{
	uint8_t *at = reserve(b, bytes);

	for (size_t i = 0; at && i < bytes; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

void wb_buf_u8(struct wb_buf *b, uint8_t v)
{
	put_le(b, v, 1);
}

void wb_buf_u32(struct wb_buf *b, uint32_t v)
{
	put_le(b, v, 4);
}

void wb_buf_u64(struct wb_buf *b, uint64_t v)
{
	put_le(b, v, 8);
}

void wb_buf_str(struct wb_buf *b, const char *s)
{
	size_t len = s ? strlen(s) : 0;

	wb_buf_u32(b, (uint32_t)len);
	wb_buf_put(b, s, len);
}

void wb_buf_vprintf(struct wb_buf *b, const char *fmt, va_list ap)
{
	va_list again;
	uint8_t *at;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0) {
		b->rc = b->rc ? b->rc : -EINVAL;
		return;
	}
	/* vsnprintf writes a NUL, which is not part of the content. */
	at = reserve(b, (size_t)n + 1);
	if (!at)
		return;
	vsnprintf((char *)at, (size_t)n + 1, fmt, ap);
	b->len--;
}

void wb_buf_printf(struct wb_buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	wb_buf_vprintf(b, fmt, ap);
	va_end(ap);
}

/* Bytes of the well-formed UTF-8 sequence at @s, 0 when there is none. */
static size_t utf8_len(const unsigned char *s)
{
	size_t n = s[0] < 0x80                   ? 1
		   : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		   : (s[0] & 0xf0) == 0xe0       ? 3
		   : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
						 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
		return 0;
	if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
		return 0;
	return n;
}

void wb_buf_json_str(struct wb_buf *b, const char *s)
{
	const unsigned char *p = (const unsigned char *)(s ? s : "");

	wb_buf_u8(b, '"');
	while (*p) {
		size_t n = utf8_len(p);

		if (*p == '"' || *p == '\\')
			wb_buf_printf(b, "\\%c", *p);
		else if (*p < 0x20)
			wb_buf_printf(b, "\\u%04x", *p);
		else if (n)
			wb_buf_put(b, p, n);
		else
			wb_buf_put(b, "\xef\xbf\xbd", 3);
		p += n ? n : 1;
	}
	wb_buf_u8(b, '"');
}

char *wb_utf8_mend(char *s)
{
	for (unsigned char *p = (unsigned char *)s; *p;) {
		size_t n = utf8_len(p);

		if (!n)
			*p = '?';
		p += n ? n : 1;
	}
	return s;
}

void wb_buf_set_u64(struct wb_buf *b, size_t at, uint64_t v)
{
	if (b->rc)
		return;
	assert(at + 8 <= b->len);
	for (size_t i = 0; i < 8; i++)
		b->data[at + i] = (uint8_t)(v >> (8 * i));
}

const char *wb_buf_cstr(struct wb_buf *b)
{
	uint8_t *nul = reserve(b, 1);

	if (!nul)
		return "";
	*nul = 0;
	b->len--;
	return (const char *)b->data;
}

int wb_buf_take(struct wb_buf *b, uint8_t **data_out, size_t *len_out)
{
	int rc = b->rc;

	if (rc < 0) {
		wb_buf_finish(b);
		return rc;
	}
	*data_out = b->data;
	*len_out = b->len;
	b->data = NULL;
	b->len = b->cap = 0;
	return 0;
}

const uint8_t *wb_cur_bytes(struct wb_cursor *c, size_t bytes)
{
	const uint8_t *at = c->p;

	if (c->bad || bytes > wb_cur_left(c)) {
		c->bad = true;
		return NULL;
	}
	c->p += bytes;
	return at;
}

static uint64_t get_le(struct wb_cursor *c, size_t bytes)
{
	const uint8_t *at = wb_cur_bytes(c, bytes);
	uint64_t v = 0;

	for (size_t i = 0; at && i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

uint8_t wb_cur_u8(struct wb_cursor *c)
{
	return (uint8_t)get_le(c, 1);
}

uint16_t wb_cur_u16(struct wb_cursor *c)
{
	return (uint16_t)get_le(c, 2);
}

uint32_t wb_cur_u32(struct wb_cursor *c)
{
	return (uint32_t)get_le(c, 4);
}

uint64_t wb_cur_u64(struct wb_cursor *c)
{
	return get_le(c, 8);
}

char *wb_cur_str(struct wb_cursor *c, size_t max)
{
	uint32_t len = wb_cur_u32(c);
	const uint8_t *at;

	if (len > max)
		c->bad = true;
	at = wb_cur_bytes(c, len);
	if (!at || memchr(at, 0, len)) {
		c->bad = true;
		return NULL;
	}
	return wb_strndup((const char *)at, len);
}

void wb_cur_align(struct wb_cursor *c, const uint8_t *start, size_t align)
{
	while (!c->bad && (size_t)(c->p - start) % align)
		if (wb_cur_u8(c))
			c->bad = true;
}

uint32_t wb_cur_count(struct wb_cursor *c, uint32_t max, size_t elem_bytes)
{
	uint32_t n = wb_cur_u32(c);

	if (c->bad || n > max || (elem_bytes && n > wb_cur_left(c) / elem_bytes)) {
		c->bad = true;
		return 0;
	}
	return n;
}
