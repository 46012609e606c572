/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_KERNELS_H
#define WBK_KERNELS_H
/*
 * Kernels: pack, assemble, checksum and the second difference.  Plain C, for all users.
 *
 * Each has a host body here (and later a device body of the same meaning behind the same header).
 * The wire image of a box is its elements in the checkpoint's row-major order, in the checkpoint's
 * dtype, without gaps.  No allocation, no lock, no log.  Any thread; callers own all memory.
 * Layer: L1, includes nothing of ours.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element conversions between wire (checkpoint dtype) and memory (parameter dtype).  Narrowing
 * rounds to nearest, ties to even; NaN stays NaN.  Part of the plan format: append only. */
enum wbk_cast {
	WBK_COPY = 0,
	WBK_BF16_TO_F32 = 1, /* first named: wire; second: memory.  pack does the inverse. */
	WBK_F32_TO_BF16 = 2,
	WBK_F16_TO_F32 = 3,
	WBK_F32_TO_F16 = 4,
	WBK_BF16_TO_F16 = 5,
	WBK_F16_TO_BF16 = 6,
	WBK_CAST_COUNT,
};

/* A box of a parameter and its place in a wire buffer.  Element (r, c) lies in memory at
 *	base + mem_off + r * row_stride + c * col_stride	(bytes, strides may be negative)
 * in the wire buffer at wire_off + (r * n_col + c) * wire_elem, and in the checkpoint at
 *	pos + r * pos_row_stride + c * pos_col_stride		(bytes, strides positive)
 * With repeat > 1 (0 is 1) assemble writes the box repeat times, repeat_stride bytes apart; pack
 * reads the first. */
struct wbk_box {
	uint64_t wire_off, mem_off, pos;
	uint64_t pos_row_stride, pos_col_stride;
	int64_t row_stride, col_stride, repeat_stride;
	uint32_t n_row, n_col, repeat;
	uint8_t wire_elem, mem_elem; /* bytes of an element */
	uint8_t cast; /* enum wbk_cast */
	uint8_t pad;
	uint32_t base; /* index into the bases table: a memory object of the worker */
};

/* The checksum of a set of checkpoint bytes: sum of w(p) * k(p) mod 2^64 over 32-bit little-endian
 * words, p the word's position in the checkpoint; two lanes with two seeds.
 *	k(p) = table[lane][p % 1024] * block_key(seed[lane], p / 1024)	(both factors odd)
 * The sum is linear, so sums of disjoint pieces (down to bytes) add up to the sum of the whole, in
 * any order.  Table keys have 32 bits: a product fits one 32 x 32 -> 64 multiply, and a change of
 * up to two words of a block is missed by a lane with probability 2^-31, as with wider keys at
 * worst. */
struct wbk_sum {
	uint64_t lane[2];
};

/* Key tables of one seed pair: 8 KiB, made once for each transfer. */
struct wbk_sum_keys {
	uint64_t seed[2];
	uint32_t table[2][1024]; /* one odd key for each word of a 4 KiB block */
};

/** wbk_sum_keys_init - fill @k for @seed (0 = the seed of `wbctl verify`). */
void wbk_sum_keys_init(struct wbk_sum_keys *k, uint64_t seed);
/** wbk_sum_keys_of - fill @k for the two lane seeds @seed (k->seed of another process). */
void wbk_sum_keys_of(struct wbk_sum_keys *k, const uint64_t seed[2]);
/** wbk_sum_add - add @bytes bytes at checkpoint byte position @pos (any alignment) to @s. */
void wbk_sum_add(const struct wbk_sum_keys *k, uint64_t pos, const void *data, size_t bytes,
	struct wbk_sum *s);

/** wbk_sum_copy - the same, and in the same pass copy @data to @dst, bypassing the caches: for
 * memory that is not read again soon.  @k NULL: only copy.  After one or several copies, call
 * wbk_copy_end(). */
void wbk_sum_copy(const struct wbk_sum_keys *k, uint64_t pos, void *dst, const void *data,
	size_t bytes, struct wbk_sum *s);

/** wbk_copy_end - what wbk_sum_copy() wrote may be handed to other threads from now on. */
void wbk_copy_end(void);

/**
 * wbk_pack - gather boxes into the wire buffer
 * @bases:	start of each parameter memory that box.base indexes
 * @box, @n:	boxes; must not overlap in the wire buffer
 * @wire:	wire buffer
 * @keys, @sum:	when @sum is not NULL the wire bytes written are added to it
 */
void wbk_pack(void *const *bases, const struct wbk_box *box, size_t n, void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);
/** wbk_pack_cold - the same, bypassing the caches: for a wire buffer that is not read again
 * soon. */
void wbk_pack_cold(void *const *bases, const struct wbk_box *box, size_t n, void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);
/** wbk_assemble - scatter boxes from the wire buffer; when @sum is not NULL, the wire bytes read
 * are added to it. */
void wbk_assemble(void *const *bases, const struct wbk_box *box, size_t n, const void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);
/** wbk_sum_mem - add what wbk_pack() would write to @sum, without writing it. */
void wbk_sum_mem(void *const *bases, const struct wbk_box *box, size_t n,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);
/** wbk_box_fits - 1 when the cast exists and the box touches nothing outside @mem_bytes bytes of
 *  its memory and @wire_bytes of the wire; any numbers are allowed in @box. */
int wbk_box_fits(const struct wbk_box *box, uint64_t mem_bytes, uint64_t wire_bytes);

/** wbk_cast_fwd - convert @n elements wire -> memory; wbk_cast_back - memory -> wire. */
void wbk_cast_fwd(enum wbk_cast cast, const void *wire, void *mem, size_t n);
void wbk_cast_back(enum wbk_cast cast, const void *mem, void *wire, size_t n);

/* Second difference of a decoded field (EXTRACTION: D(r,c) = h(r,c) - 2h(r-1,c) + h(r-2,c),
 * h(r,c) = v(r,c) - 2v(r,c-1) + v(r,c-2), zero outside). */
struct wbk_record {
	uint64_t index; /* r * cols + c */
	int64_t value; /* never 0 */
};

/* Value-safe digit codes: every code is a finite, normal, nonzero number, and the BF16 and F32
 * codes survive casts to each other.  Digit bits in parentheses.
 *	BF16 (15)	sign | exponent 64..191 (7 bits) | 7 mantissa bits
 *	F32 (15)	the BF16 code in the high half, low half zero
 *	F16 (15)	sign | exponent 8..23 (4 bits) | 10 mantissa bits
 *	E4M3 (7)	sign | exponent 4..11 (3 bits) | 3 mantissa bits
 *	E5M2 (7)	sign | exponent 8..23 (4 bits) | 2 mantissa bits
 *	I8 (7)		0x80 | digit, for signed and unsigned
 *	I32 (31)	0x80000000 | digit
 * Decoding rejects everything else, such as 0, -0, infinity, NaN and subnormals. */
enum wbk_code {
	WBK_CODE_BF16 = 1,
	WBK_CODE_F32 = 2,
	WBK_CODE_F16 = 3,
	WBK_CODE_E4M3 = 4,
	WBK_CODE_E5M2 = 5,
	WBK_CODE_I8 = 6,
	WBK_CODE_I32 = 7,
	WBK_CODE_COUNT,
};

/* One parameter in one pass. */
struct wbk_field {
	const void *data;
	uint64_t rows, cols;
	int64_t row_stride; /* elements from a row to the next; cols are adjacent */
	const uint8_t *cls; /* rows * cols classes, 0 = copy; NULL = all copy */
	uint8_t code; /* enum wbk_code: how this parameter's dtype decodes */
};

/** wbk_encode_fill - write the code of @digit, for @n elements, @out in the code's dtype. */
void wbk_encode_fill(enum wbk_code code, uint32_t digit, void *out, size_t n);
/** wbk_encode_ramp - write the codes of digit(first + i), i < n, where digit(x) = (x >> shift) &
 * mask. */
void wbk_encode_ramp(
	enum wbk_code code, uint64_t first, unsigned shift, uint32_t mask, void *out, size_t n);
/** wbk_decode - digit of one element, or -1 when it is not a code. */
int64_t wbk_decode(enum wbk_code code, const void *elem);
/** wbk_code_bits - digit width of a code. */
unsigned wbk_code_bits(enum wbk_code code);

/**
 * wbk_diff2 - write the nonzeros of the field's second difference as records, in index order
 * @f:		field; elements whose class is not 0 count as 0, and so do elements that are no code
 * @begin:	first index (r * cols + c) to look at
 * @rec, @cap:	record buffer and its capacity, at least 1
 * @next:	on return, first index not looked at (== rows * cols: done); call again from there
 * @n_bad:	the number of copy-class elements in [@begin, *@next) that are no code is added to
 *		it
 * Returns the number of records written.  No state is kept: each call reads the two rows and
 * columns before each element again.
 */
size_t wbk_diff2(const struct wbk_field *f, uint64_t begin, struct wbk_record *rec, size_t cap,
	uint64_t *next, uint64_t *n_bad);

#ifdef __cplusplus
}
#endif
#endif
