/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_ANSWERS_H
#define WB_KUBE_ANSWERS_H
/*
 * Recent answers of the API server, found by a key that reveals nothing of the question.  The
 * number of places is fixed, and each answer is kept for a few seconds.  Pure.
 *
 * Positive and negative answers have separate places, so that somebody who makes up tokens pushes
 * out no answer about a good one.  Threads: one.  Layer: operator-shim/kube (over base).
 */
#include "base/clock.h"

#include <stdint.h>

#define WB_KUBE_ANSWER_KEY 32 /* bytes of a keyed hash */
#define WB_KUBE_ANSWERS 64 /* places of each kind */
#define WB_KUBE_ANSWER_YES_NS (10 * WB_NS_PER_S) /* how long a withdrawn right may last */
#define WB_KUBE_ANSWER_NO_NS (5 * WB_NS_PER_S)

struct wb_kube_answer {
	uint8_t key[WB_KUBE_ANSWER_KEY];
	uint64_t until_ns; /* 0 = free */
	int rc;
	char sentence[512]; /* why not; cut to fit */
};

struct wb_kube_answers {
	struct wb_kube_answer yes[WB_KUBE_ANSWERS], no[WB_KUBE_ANSWERS];
};

/** wb_kube_answers_find - the answer kept for @key; NULL = none, or it is too old.  Borrowed until
 * the next wb_kube_answers_put(). */
const struct wb_kube_answer *wb_kube_answers_find(
	const struct wb_kube_answers *a, const uint8_t key[WB_KUBE_ANSWER_KEY], uint64_t now_ns);
/** wb_kube_answers_put - keep an answer; @rc 0: yes.  It replaces the answer of its kind that would
 * expire first. */
void wb_kube_answers_put(struct wb_kube_answers *a, const uint8_t key[WB_KUBE_ANSWER_KEY], int rc,
	const char *sentence, uint64_t now_ns);

#endif
