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
 *
 * -ETIMEDOUT, -EAGAIN and -EINTR only tell of a call's own wait.  When the agent misses a deadline,
 * a transfer ends with WB_CODE_ABORTED, and a worker is turned away with -ECONNREFUSED; the
 * sentence says which deadline.  A send ends with -ECANCELED while the object's spec.suspend is
 * true: nothing was sent, and it may be called again.
 */
#ifdef __cplusplus
extern "C" {
#endif

enum wb_code {
	WB_CODE_VERSION = -4001, /* agent and library speak different protocol versions */
	WB_CODE_PLAN = -4002, /* the plan is not valid */
	WB_CODE_CHECKSUM = -4003, /* bytes did not match their checksum */
	WB_CODE_STALE = -4004, /* an older epoch or transfer */
	WB_CODE_ABORTED = -4005, /* the transfer ended, every engine's old weights are intact */
	/* Parameters hold a mix of two versions.  From a call of a rollout worker: its own do, and
	 * it must not serve.  From a transfer: those of an engine do, which the sentence names and
	 * the next transfer repairs; trainers' own parameters are never touched. */
	WB_CODE_TORN = -4006,
	WB_CODE_NOT_COPY = -4007, /* load_weights does something that is not a copy */
	/* The agent that led the transfer, or an engine, is gone or silent, and it is not known yet
	 * which weights that engine holds; the next transfer brings it up to date. */
	WB_CODE_UNKNOWN = -4008,
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
