/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_KERNELS_H
#define WBK_KERNELS_H
/*
 * Kernels: pack, assemble, checksum and the second difference.  Plain C for everyone.
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
 * With repeat > 1 assemble writes the box repeat times, repeat_stride bytes apart; pack reads the
 * first. */
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
 * words, p the word's position in the checkpoint; two lanes with two seeds.  Linear, so sums of
 * disjoint pieces (down to bytes) add up to the sum of the whole in any order. */
struct wbk_sum {
	uint64_t lane[2];
};

/* Key tables of one seed pair: 16 KiB, made once a transfer. */
struct wbk_sum_keys {
	uint64_t seed[2];
	uint64_t table[2][1024]; /* one key for each word of a 4 KiB block */
};

/** wbk_sum_keys_init - fill @k for @seed (0 = the seed of `wbctl verify`). */
void wbk_sum_keys_init(struct wbk_sum_keys *k, uint64_t seed);
/** wbk_sum_add - add @bytes bytes at checkpoint byte position @pos (any alignment) to @s. */
void wbk_sum_add(const struct wbk_sum_keys *k, uint64_t pos, const void *data, size_t bytes,
	struct wbk_sum *s);

/**
 * wbk_pack - gather boxes into the wire buffer
 * @bases:	start of each parameter memory that box.base indexes
 * @box, @n:	boxes; must not overlap in the wire buffer
 * @wire:	wire buffer
 * @keys, @sum:	when @sum is not NULL the wire bytes written are added to it
 */
void wbk_pack(void *const *bases, const struct wbk_box *box, size_t n, void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);
/** wbk_assemble - scatter boxes from the wire buffer; @sum: of the wire bytes read. */
void wbk_assemble(void *const *bases, const struct wbk_box *box, size_t n, const void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);
/** wbk_sum_wire - add the wire image of the boxes to @sum without moving anything. */
void wbk_sum_wire(const struct wbk_box *box, size_t n, const void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum);

/** wbk_cast_fwd - convert @n elements wire -> memory; wbk_cast_back - memory -> wire. */
void wbk_cast_fwd(enum wbk_cast cast, const void *wire, void *mem, size_t n);
void wbk_cast_back(enum wbk_cast cast, const void *mem, void *wire, size_t n);

/* Second difference of a decoded field (EXTRACTION: D(r,c) = h(r,c) - 2h(r-1,c) + h(r-2,c),
 * h(r,c) = v(r,c) - 2v(r,c-1) + v(r,c-2), zero outside). */
struct wbk_record {
	uint64_t index; /* r * cols + c */
	int64_t value; /* never 0 */
};

/* Value-safe digit codes; see codes.h of the extractor for the tables. */
enum wbk_code {
	WBK_CODE_BF16 = 1, /* 15 bits */
	WBK_CODE_F32 = 2, /* the bf16 code shifted left 16 */
	WBK_CODE_F16 = 3, /* 15 bits */
	WBK_CODE_E4M3 = 4, /* 7 bits */
	WBK_CODE_E5M2 = 5, /* 7 bits */
	WBK_CODE_I8 = 6, /* 7 bits: 0x80 | digit */
	WBK_CODE_I32 = 7, /* 31 bits: 0x80000000 | digit */
};

/* One parameter in one pass.  row_pitch and elem strides in elements. */
struct wbk_field {
	const void *data;
	uint64_t rows, cols;
	int64_t row_stride; /* elements from a row to the next; cols are adjacent */
	const uint8_t *cls; /* rows * cols classes, 0 = copy; NULL = all copy */
	uint8_t code; /* enum wbk_code: how this parameter's dtype decodes */
};

/** wbk_encode - write the code of @digit, for @n elements, @out in the code's dtype. */
void wbk_encode_fill(enum wbk_code code, uint32_t digit, void *out, size_t n);
/** wbk_encode_ramp - codes of digit(first + i), i < n, where digit(x) = (x >> shift) & mask. */
void wbk_encode_ramp(
	enum wbk_code code, uint64_t first, unsigned shift, uint32_t mask, void *out, size_t n);
/** wbk_decode - digit of one element, or -1 when it is not a code. */
int64_t wbk_decode(enum wbk_code code, const void *elem);
/** wbk_code_bits - digit width of a code; wbk_code_elem_bytes - element size. */
unsigned wbk_code_bits(enum wbk_code code);
size_t wbk_code_elem_bytes(enum wbk_code code);

/**
 * wbk_diff2 - emit the nonzeros of the field's second difference, in index order
 * @f:		field; elements whose class is not 0 count as 0
 * @row_begin:	first row to emit; continue a full buffer with *row_next
 * @rec, @cap:	record buffer and its capacity
 * @row_next:	on return, first row not emitted completely (== rows: done)
 * @n_bad:	number of copy-class elements that decode to nothing in the rows emitted; added to
 * @scratch:	3 * (cols + 2) int64_t
 * Returns the number of records written.  A row is emitted wholly or not at all; a row with more
 * than @cap records gives 0 records and *row_next == row_begin.
 */
size_t wbk_diff2(const struct wbk_field *f, uint64_t row_begin, struct wbk_record *rec, size_t cap,
	uint64_t *row_next, uint64_t *n_bad, int64_t *scratch);

#ifdef __cplusplus
}
#endif
#endif
