/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_ANSWERS_H
#define WB_KUBE_ANSWERS_H
/*
 * What the API server has said lately, by a key that tells nothing of what was asked: as many as
 * there are places, each for a few seconds.  Pure.
 *
 * Those who may and those who may not have places of their own: whoever makes up tokens pushes out
 * nobody's good one.  Threads: one.  Layer: operator-shim/kube (over base).
 */
#include "base/clock.h"

#include <stdint.h>

#define WB_KUBE_ANSWER_KEY 32 /* bytes of a keyed hash */
#define WB_KUBE_ANSWERS 64 /* places of each kind */
#define WB_KUBE_ANSWER_YES_NS (10 * WB_NS_PER_S) /* a right that is taken away ends so late */
#define WB_KUBE_ANSWER_NO_NS (5 * WB_NS_PER_S)

struct wb_kube_answer {
	uint8_t key[WB_KUBE_ANSWER_KEY];
	uint64_t until_ns; /* 0 = free */
	int rc;
	char sentence[512]; /* why not; cut */
};

struct wb_kube_answers {
	struct wb_kube_answer yes[WB_KUBE_ANSWERS], no[WB_KUBE_ANSWERS];
};

/** wb_kube_answers_find - what was said of it, NULL = nothing, or too long ago.  Borrowed until
 *  something is put. */
const struct wb_kube_answer *wb_kube_answers_find(
	const struct wb_kube_answers *a, const uint8_t key[WB_KUBE_ANSWER_KEY], uint64_t now_ns);
/** wb_kube_answers_put - @rc 0: yes.  Takes the place that would be free first. */
void wb_kube_answers_put(struct wb_kube_answers *a, const uint8_t key[WB_KUBE_ANSWER_KEY], int rc,
	const char *sentence, uint64_t now_ns);

#endif
