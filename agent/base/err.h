/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_ERR_H
#define WB_BASE_ERR_H
/*
 * Errors: a negative code for programs and one sentence for people.
 *
 * Functions return 0 or a negative errno (or WB_E*).  The place that knows the cause writes the
 * sentence with wb_err_set(); callers add context with wb_err_wrap(); only the owner of a task
 * logs it.  Fixed size, no allocation.  Any thread.  Layer: base (L0).
 */
#include <stdarg.h>

/* Codes of this project, for what errno has no code.  Outside errno's range. */
enum {
	WB_EVERSION = -4001, /* the peer speaks another protocol version */
	WB_EPLAN = -4002, /* plan digest differs, or the plan is not valid */
	WB_ECKSUM = -4003, /* bytes do not match their checksum */
	WB_ESTALE = -4004, /* an older epoch, transfer or generation */
	WB_EABORTED = -4005, /* the transfer ended, and old weights are intact */
	WB_ETORN = -4006, /* parameters hold a mix of two versions */
	WB_ENOTCOPY = -4007, /* load_weights does something that is not a copy */
	WB_EUNKNOWN = -4008, /* how the transfer ended is not known */
};

#define WB_ERR_MSG_MAX 1024

struct wb_err {
	int code; /* 0 = no error */
	char msg[WB_ERR_MSG_MAX]; /* a sentence; inner causes after ": " */
};

/** wb_err_set - record @code and a sentence; returns @code.  @err may be NULL. */
int wb_err_set(struct wb_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** wb_err_wrap - prefix the sentence already in @err with "context: "; returns @code. */
int wb_err_wrap(struct wb_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** wb_strerror - words for a code of this project or an errno (negative).  Static text. */
const char *wb_strerror(int code);

#ifdef WB_ANALYZE
/* make analyze: GCC's analyzer looks into one file at a time.  This tells it that wb_err_set() and
 * the like return the code they are given, and that it is negative. */
static inline int wb__err_negative(int rc)
{
	if (rc >= 0)
		__builtin_unreachable();
	return rc;
}
#define wb_err_set(err, rc, ...) (wb_err_set(err, rc, __VA_ARGS__), wb__err_negative(rc))
#define wb_err_wrap(err, rc, ...) (wb_err_wrap(err, rc, __VA_ARGS__), wb__err_negative(rc))
#endif

#endif
