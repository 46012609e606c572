/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_INTERNAL_H
#define WB_PROTO_INTERNAL_H
/* Shared by the two codecs.  Layer: proto (L1). */
#include "proto/messages.h"
#include "proto/words.h"

#include <string.h>

/** wb__field - address of a field's value. */
static inline void *wb__field(void *msg, const struct wb_fdef *f)
{
	return (char *)msg + f->offset;
}

/** wb__field_in - address of a field's value in a message that is only read. */
static inline const void *wb__field_in(const void *msg, const struct wb_fdef *f)
{
	return (const char *)msg + f->offset;
}

/** wb__count - address of the number of elements (bytes) of an array (blob) field. */
static inline uint32_t *wb__count(void *msg, const struct wb_fdef *f)
{
	return (uint32_t *)(void *)((char *)msg + f->n_offset);
}

/** wb__count_in - the number itself. */
static inline uint32_t wb__count_in(const void *msg, const struct wb_fdef *f)
{
	uint32_t n;

	memcpy(&n, (const char *)msg + f->n_offset, sizeof(n));
	return n;
}

/** wb__pointer_in - the value of a field that is a pointer: strings, blobs, arrays. */
static inline const void *wb__pointer_in(const void *msg, const struct wb_fdef *f)
{
	const void *p;

	memcpy(&p, (const char *)msg + f->offset, sizeof(p));
	return p;
}

/** wb__is_empty - is the field's value the one that stands for none: 0, false, no text, no element?
 *  A struct is never empty. */
bool wb__is_empty(const struct wb_fdef *f, const void *msg);
/** wb__check_value - 0, or -EINVAL when the field's value in @msg is above its bound. */
int wb__check_value(const struct wb_fdef *f, const void *msg, struct wb_err *err);

typedef int (*wb__encode_fn)(const struct wb_table *t, const void *msg, uint32_t version,
	struct wb_buf *out, struct wb_err *err);
/** wb__msg_encode - append header and body; @fn encodes the body. */
int wb__msg_encode(const struct wb_frame *f, const struct wb_msg_info *m, const void *msg,
	wb__encode_fn fn, struct wb_buf *out, struct wb_err *err);

#endif
