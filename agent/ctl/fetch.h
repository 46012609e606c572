/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_FETCH_H
#define WB_CTL_FETCH_H
/*
 * A page of a daemon, by HTTP GET.  Layer: ctl (L4).  Blocks, at most 30 s or what
 * wb__ctl_patience() said.
 */
#include <jansson.h>

struct wb_buf;
struct wb_err;

#define WB_CTL_PAGE_MAX (1u << 30)

/**
 * wb__ctl_fetch - GET http://@addr@path into @out (initialised by the caller; its cap bounds the
 * page)
 * @object:	value of the query argument "object", NULL = none
 * Returns 0; -EACCES (401: it takes a token); -EBUSY (409); -ENOENT (404: the daemon does not have
 * it); -ECONNREFUSED, -ETIMEDOUT, -EIO with a sentence that names the address; -E2BIG; -ENOMEM.
 */
int wb__ctl_fetch(const char *addr, const char *path, const char *object, struct wb_buf *out,
	struct wb_err *err);
/** wb__ctl_show_token - from now on the operator at @addr, and nobody else, is shown the token in
 * @file (NULL = none), for pages of @object (NULL: all that are asked for name one).  All borrowed.
 */
void wb__ctl_show_token(const char *addr, const char *file, const char *object);
/** wb__ctl_patience - from now on a page that is not there after @ms (more than 0) is given up. */
void wb__ctl_patience(long ms);
/** wb__ctl_fetch_json - the same, parsed.  New reference in @out. */
int wb__ctl_fetch_json(
	const char *addr, const char *path, const char *object, json_t **out, struct wb_err *err);
/** wb__ctl_missing - an operator has no such page for @asked (NULL = its only object): which
 * objects there are, or why that one has none yet.  Negative, with the sentence. */
int wb__ctl_missing(const char *addr, const char *path, const char *asked, struct wb_err *err);
/** wb__ctl_no_object - none of @items, those of an operator, is @asked (NULL: several might be).
 *  Negative, with a sentence that names them. */
int wb__ctl_no_object(const json_t *items, const char *asked, struct wb_err *err);
/** wb__ctl_check_tls - connect to @addr by TLS; its certificate has to be for that host, of the
 *  authority in @ca_file.  0; -EPROTO or -ENOMEM with a sentence.  Blocks for 10 s at the most. */
int wb__ctl_check_tls(const char *addr, const char *ca_file, struct wb_err *err);

#endif
