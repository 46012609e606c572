/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIGHTBRIDGE_ERROR_H
#define WEIGHTBRIDGE_ERROR_H
/*
 * Errors of the public interface: a negative code for programs and one sentence for people.
 *
 * Codes are negative errno values, or the WB_CODE_* below where errno has no word.  The sentence
 * names what failed and, where something was awaited, what.  Fixed size, no allocation.  Every
 * function that takes a struct wb_error accepts NULL, writes it on failure only, and returns its
 * code.
 */
#ifdef __cplusplus
extern "C" {
#endif

enum wb_code {
	WB_CODE_VERSION = -4001, /* agent and library speak different protocol versions */
	WB_CODE_PLAN = -4002, /* the plan is not valid */
	WB_CODE_CHECKSUM = -4003, /* bytes did not match their checksum */
	WB_CODE_STALE = -4004, /* an older epoch or transfer */
	WB_CODE_ABORTED = -4005, /* the transfer ended, old weights intact */
	WB_CODE_TORN = -4006, /* parameters hold a mix of two versions: do not serve */
	WB_CODE_NOT_COPY = -4007, /* load_weights does something that is not a copy */
};

#define WB_ERROR_MSG_MAX 1024

struct wb_error {
	int code; /* 0 = no error */
	char msg[WB_ERROR_MSG_MAX]; /* one sentence, NUL-terminated */
};

#ifdef __cplusplus
}
#endif
#endif
