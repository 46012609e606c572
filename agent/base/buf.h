/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_BUF_H
#define WB_BASE_BUF_H
/*
 * A growing byte buffer with a cap, and a bounded reading cursor.
 *
 * Writers append and look at the error once at the end: after the first failure every append is a
 * no-op and wb_buf_rc() says why.  Readers never read past the end: after the first short read the
 * cursor is bad and every read gives zero.  Numbers are little-endian.  Layer: base (L0).
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_buf {
	uint8_t *data; /* owned */
	size_t len, cap;
	size_t max; /* bytes; appends beyond it fail with -E2BIG */
	int rc; /* 0 or the first failure */
	bool is_secret; /* set it after wb_buf_init(): memory is zeroed before it is freed */
};

/** wb_buf_init - empty buffer that never grows above @max bytes.  Release with wb_buf_finish(). */
void wb_buf_init(struct wb_buf *b, size_t max);
void wb_buf_finish(struct wb_buf *b);
/** wb_buf_reset - set the length to 0 and clear the error; memory is kept. */
void wb_buf_reset(struct wb_buf *b);
/** wb_buf_put - append @bytes bytes of @p, which must not lie in @b itself; NULL is allowed when
 *  there are none. */
void wb_buf_put(struct wb_buf *b, const void *p, size_t bytes);
/** wb_buf_u8, wb_buf_u32, wb_buf_u64 - append a number of 1, 4 or 8 bytes. */
void wb_buf_u8(struct wb_buf *b, uint8_t v);
void wb_buf_u32(struct wb_buf *b, uint32_t v);
void wb_buf_u64(struct wb_buf *b, uint64_t v);
/** wb_buf_str - append a u32 length and the bytes of @s (NULL is the empty string). */
void wb_buf_str(struct wb_buf *b, const char *s);
/** wb_buf_printf, wb_buf_vprintf - append text, without a NUL.  Below the cap there must be room
 * for one byte more than the text; -EINVAL as the buffer's error when the format fails. */
void wb_buf_printf(struct wb_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void wb_buf_vprintf(struct wb_buf *b, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
/** wb_buf_json_str - append @s as a quoted JSON string (invalid UTF-8 bytes become U+FFFD). */
void wb_buf_json_str(struct wb_buf *b, const char *s);
/** wb_utf8_mend - replace each byte of @s that is not part of a UTF-8 character, as when a text was
 * cut, by '?'; returns @s. */
char *wb_utf8_mend(char *s);
/** wb_buf_set_u64 - overwrite the 8 bytes at @at, which must lie inside the content. */
void wb_buf_set_u64(struct wb_buf *b, size_t at, uint64_t v);
/** wb_buf_cstr - the content as a C string ("" after a failure); valid until the next append. */
const char *wb_buf_cstr(struct wb_buf *b);
/** wb_buf_take - hand the bytes to the caller (wb_free()); the buffer is empty afterwards.  Returns
 * 0, or the first failure, and then the bytes are freed. */
int wb_buf_take(struct wb_buf *b, uint8_t **data_out, size_t *len_out);

struct wb_cursor {
	const uint8_t *p, *end; /* borrowed */
	bool bad;
};

/** wb_cursor - a cursor at the first of @bytes bytes at @p, which must outlive it. */
static inline struct wb_cursor wb_cursor(const void *p, size_t bytes)
{
	const uint8_t *b = p;

	return (struct wb_cursor){b, b + bytes, false};
}

/** wb_cur_left - number of bytes not read yet. */
static inline size_t wb_cur_left(const struct wb_cursor *c)
{
	return (size_t)(c->end - c->p);
}

/** wb_cur_u8, wb_cur_u16, wb_cur_u32, wb_cur_u64 - read a number of 1, 2, 4 or 8 bytes; 0 and the
 *  cursor bad when fewer are left. */
uint8_t wb_cur_u8(struct wb_cursor *c);
uint16_t wb_cur_u16(struct wb_cursor *c);
uint32_t wb_cur_u32(struct wb_cursor *c);
uint64_t wb_cur_u64(struct wb_cursor *c);
/** wb_cur_bytes - pointer to the next @bytes bytes inside the input, or NULL (cursor bad). */
const uint8_t *wb_cur_bytes(struct wb_cursor *c, size_t bytes);
/** wb_cur_str - owned copy of a string of at most @max bytes, no NUL inside; NULL = bad or no
 *  memory (then @c->bad is false). */
char *wb_cur_str(struct wb_cursor *c, size_t max);
/** wb_cur_align - skip zero padding up to @align bytes from @start; other bytes make it bad. */
void wb_cur_align(struct wb_cursor *c, const uint8_t *start, size_t align);
/** wb_cur_count - read a u32 count; the cursor becomes bad when it is above @max, or @elem_bytes *
 * count exceeds the rest. */
uint32_t wb_cur_count(struct wb_cursor *c, uint32_t max, size_t elem_bytes);

#endif
