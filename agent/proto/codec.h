/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_CODEC_H
#define WB_PROTO_CODEC_H
/*
 * Generic encoding of C structs that a field table describes.
 *
 * A table lists the fields of one struct: name, kind, offset, bound, the version that added it.
 * Two codecs walk the same tables: binary (codec.c, libc alone) and JSON (json.c, needs jansson; a
 * file of its own, so that the client library is linked without it).
 *
 * Values of a field:
 *	required	must be there; an empty string or array is a value
 *	optional	absent means zero, NULL or empty, and such a value is left out (JSON) or
 *			written as empty (binary); an empty optional string decodes to NULL
 * Strings hold no NUL byte.  The struct owns all that a decoder puts into it, and
 * wb_table_clear() frees it.
 *
 * Versions: encoding at version v leaves out fields with since > v.  Decoding a body of version
 * v <= ours accepts exactly the fields of v.  A body from a newer version may hold more: unknown
 * JSON names and trailing binary bytes are then ignored (only HELLO-like first messages can be
 * newer; later messages use the version agreed on).
 *
 * Threads: any.  Layer: proto (L1).
 */
#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

struct wb_buf;
struct wb_err;

/* Kind, its C type, and the binary form. */
enum wb_fkind {
	WBF_BOOL, /* bool; u8 0 or 1 */
	WBF_U32, /* uint32_t */
	/* U32 on the wire; in C a union with a name for each meaning that the field has in
	 * kinds of PEER (messages.h). */
	WBF_PEER_FEEDER = WBF_U32,
	WBF_PEER_POLL = WBF_U32,
	WBF_PEER_HOW = WBF_U32,
	WBF_PEER_DECISION = WBF_U32,
	WBF_U64, /* uint64_t; JSON integer, or decimal string above 2^63 - 1 */
	WBF_I64, /* int64_t */
	WBF_STR, /* const char *, owned; u32 length, bytes; max = bytes */
	WBF_DIGEST, /* struct wb_digest; hi, lo; JSON text form, "" = none */
	WBF_BLOB, /* const uint8_t *, owned, uint32_t n_NAME; u32 length, bytes; binary messages
		     only */
	WBF_U32S, /* const uint32_t *, owned, uint32_t n_NAME; u32 count, values; max = elements */
	WBF_U64S, /* const uint64_t *, likewise */
	WBF_PEER_BYTES = WBF_U64S, /* likewise a union */
	WBF_STRS, /* const char **, likewise; each string at most WB_STRS_ITEM_MAX bytes */
	/* uint32_t, the number of a word of `words`, or of one that a later version appended; u32.
	 * In a body of version 1 the text of the word, a string; an unknown text is decoded as
	 * WB_WORD_NONE. */
	WBF_WORD,
	WBF_WORDS, /* const uint32_t *, owned, uint32_t n_NAME; u32 count, words; max = elements */
	WBF_STRUCT, /* embedded struct; its fields in place; JSON object */
	WBF_STRUCTS, /* struct *, owned, uint32_t n_NAME; u32 count, structs; JSON array of objects
		      */
};

#define WB_STRS_ITEM_MAX 4096
#define WBF_WORDS_SINCE 2 /* protocol version from which words are numbers */

enum { WBF_REQ = 0, WBF_OPT = 1 };

struct wb_table;
struct wb_words;

struct wb_fdef {
	const char *name;
	uint8_t kind; /* enum wb_fkind */
	uint8_t flags; /* WBF_REQ or WBF_OPT */
	uint8_t since; /* protocol version that added the field */
	/* bytes of a string or blob, elements of an array; numbers: greatest, 0 = any */
	uint32_t max;
	uint32_t offset; /* of the value or pointer in the struct */
	uint32_t n_offset; /* of the uint32_t count, arrays and blobs */
	const struct wb_table *sub; /* structs */
	const struct wb_words *words; /* words */
};

struct wb_table {
	const char *name; /* of the message or struct, for sentences */
	const struct wb_fdef *field;
	uint32_t n_field;
	uint32_t bytes; /* sizeof the struct */
};

/**
 * wb_table_encode_bin - append the binary form of @msg to @out
 * @version:	protocol version to write
 * Returns 0; -EINVAL when a value is out of its bounds (a caller's mistake; the sentence names the
 * field); -E2BIG or -ENOMEM from the buffer.
 */
int wb_table_encode_bin(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err);

/**
 * wb_table_decode_bin - read a binary body
 * @p, @bytes:	untrusted
 * @version:	of the body; @our_version: newest version this program knows
 * @msg:	t->bytes bytes; on success filled (release with wb_table_clear()); on failure zeroed
 * Returns 0; -EBADMSG naming message and field (truncated, above its bound, NUL in a string,
 * bytes left over); -ENOMEM.
 */
int wb_table_decode_bin(const struct wb_table *t, const void *p, size_t bytes, uint32_t version,
	uint32_t our_version, void *msg, struct wb_err *err);

/** wb_table_encode_json - append the JSON text of @msg to @out; returns as encode_bin does, and
 *  -ENOTSUP for a table with a blob. */
int wb_table_encode_json(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err);

/** wb_table_decode_json - as wb_table_decode_bin() for JSON; also -EBADMSG for text that is not
 *  JSON (with line and column), a repeated or unknown name and a value of another kind. */
int wb_table_decode_json(const struct wb_table *t, const void *p, size_t bytes, uint32_t version,
	uint32_t our_version, void *msg, struct wb_err *err);

/** wb_table_clear - free what the struct owns and zero it.  A zeroed struct is allowed. */
void wb_table_clear(const struct wb_table *t, void *msg);

#endif
