/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_CONTENT_H
#define WB_DAEMON_CONTENT_H
/*
 * Manifests and source maps that workers brought; each distinct one is decoded once.
 *
 * They are kept until the agent ends: plans refer to them after their workers have left, and an
 * agent sees few distinct ones.  Loop thread.  Layer: daemon (L4).
 */
#include "planner/map.h"
#include "proto/words.h"

struct wb__contents;

#define WB__MANIFEST_BYTES_MAX (256ull << 20)
#define WB__MAP_BYTES_MAX (1ull << 30)

/** wb__contents_create - NULL = no memory. */
struct wb__contents *wb__contents_create(void);
/** wb__contents_destroy - free it with all manifests and maps; NULL is allowed. */
void wb__contents_destroy(struct wb__contents *c);

/**
 * wb__read_memfd - copy the content of a descriptor that a worker sent
 * @what: names it in sentences
 * @fd: untrusted; must be a memfd (reading others may block)
 * @bytes: length that the worker claims; @bytes_max: most that is accepted
 * @out: the caller's, from wb_alloc().  0; -EINVAL with @what named; -ENOMEM; -errno of reading.
 */
int wb__read_memfd(const char *what, int fd, uint64_t bytes, uint64_t bytes_max, uint8_t **out,
	struct wb_err *err);
/** wb__contents_manifest, wb__contents_map - decode, or find the same.  0, -EINVAL, -EBADMSG,
 *  -ENOSPC (too many distinct ones), -ENOMEM. */
int wb__contents_manifest(struct wb__contents *c, int fd, uint64_t bytes,
	const struct wb_manifest **out, struct wb_err *err);
int wb__contents_map(struct wb__contents *c, const struct wb_manifest *m, int fd, uint64_t bytes,
	const struct wb_map **out, struct wb_err *err);

/** wb__contents_encode - append the encoded manifest or map whose digest is @digest.  @kind_out:
 * which of them it is.  0, -ENOENT, -ENOMEM. */
int wb__contents_encode(const struct wb__contents *c, struct wb_digest digest,
	enum wb_content *kind_out, struct wb_buf *out);

#endif
