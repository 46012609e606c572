/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_TEXT_H
#define WB_KUBE_TEXT_H
/*
 * Small pure helpers of the API client: URLs, base64, times, waiting between tries.
 *
 * Threads: any.  Layer: operator-shim/kube (over base).
 */
#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

/** wb_kube_put_escaped - append @s with every byte outside A-Z a-z 0-9 - . _ ~ as %XX: one path
 *  segment or one query value. */
void wb_kube_put_escaped(struct wb_buf *b, const char *s);

/** wb_kube_base64 - decode standard base64 (line breaks allowed).  @out: owned, with a zero byte
 *  after the end that is not counted.  0, -EINVAL, -ENOMEM. */
int wb_kube_base64(const char *text, uint8_t **out, size_t *bytes);

/** wb_kube_to_base64 - encode, without line breaks.  Owned; NULL = no memory. */
char *wb_kube_to_base64(const void *data, size_t bytes);

#define WB_KUBE_TIME_TEXT 40
/** wb_kube_time - "2026-01-02T03:04:05.000006Z", as MicroTime fields want it.  Returns @out. */
const char *wb_kube_time(uint64_t wall_ns, char out[static WB_KUBE_TIME_TEXT]);

/** wb_kube_seconds - the same without the fraction, as Time fields want it.  Returns @out. */
const char *wb_kube_seconds(uint64_t wall_ns, char out[static WB_KUBE_TIME_TEXT]);
/** wb_kube_read_time - read a time in UTC, without its fraction of a second, as ns since the epoch;
 * 0 = it is not a time. */
uint64_t wb_kube_read_time(const char *text);

/* Exponential backoff with full jitter. */
struct wb_kube_backoff {
	uint64_t min_ns, max_ns;
	uint64_t healthy_ns; /* after this long without a failure it starts again at min_ns */
	uint64_t next_ns; /* 0 = min */
	uint64_t failed_at_ns;
};

/**
 * wb_kube_backoff_next - a failure happened at @now_ns: how long to wait
 * @random:	unpredictable bits
 * @at_least:	what the server asked for (Retry-After), 0 = nothing
 * Between half of min_ns and max_ns, or @at_least when that is longer (never above ten minutes).
 */
uint64_t wb_kube_backoff_next(
	struct wb_kube_backoff *b, uint64_t now_ns, uint64_t random, uint64_t at_least_ns);

#endif
