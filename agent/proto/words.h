/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_WORDS_H
#define WB_PROTO_WORDS_H
/*
 * Words that processes share and that users see, one row for each word.
 *
 *	W(P, number, NAME, text)
 *
 * Programs keep the number, which is what messages and plans carry.  The text is for people: in the
 * resource's fields, pages, metrics and sentences.  Messages of version 1 have some words as text
 * (codec.h, WBF_WORD).  A word that has shipped keeps its number and its text; new words are
 * appended.  PROTOCOL.md lists them all (a test compares).
 *
 * Pure, libc only; any thread.  Layer: proto (L1).
 */
#include <stdint.h>

/* clang-format off */

#define WB_ROLES(W, P) \
	W(P, 1, TRAINER, "trainer") \
	W(P, 2, ROLLOUT, "rollout")

/* 0 is not a word: with it a worker leaves the choice to the object. */
#define WB_STAGINGS(W, P) \
	W(P, 1, NONE, "None") \
	W(P, 2, HOST_MEMORY, "HostMemory")

#define WB_OVERLAPS(W, P) \
	W(P, 1, WAIT, "Wait") \
	W(P, 2, SUPERSEDE, "Supersede")

#define WB_COMMITS(W, P) \
	W(P, 1, EACH_ENGINE, "EachEngine") \
	W(P, 2, ALL_ENGINES, "AllEngines")

#define WB_CONTENTS(W, P) \
	W(P, 1, MANIFEST, "manifest") \
	W(P, 2, MAP, "map") \
	W(P, 3, PLAN, "plan") \
	W(P, 4, HEAD, "head") /* of a plan: what all of its agents get */ \
	W(P, 5, PART, "part") /* of a plan: what one agent gets beside it */

/* State of an engine in a transfer.  COMMITTED and later ones are ends; a REPORT has only these. */
#define WB_ENGINE_STATES(W, P) \
	W(P, 0, IDLE, "Idle") \
	W(P, 1, PREPARING, "Preparing") \
	W(P, 2, RECEIVING, "Receiving") \
	W(P, 3, RECEIVED, "Receiving") /* the trainers are not needed any more */ \
	W(P, 4, STAGED, "Staged") /* whole and verified beside the parameters */ \
	W(P, 5, DECIDED, "Decided") /* will be installed */ \
	W(P, 6, INSTALLING, "Installing") /* parameters are changing */ \
	W(P, 7, COMMITTED, "Committed") \
	W(P, 8, ABORTED, "Aborted") /* old weights intact */ \
	W(P, 9, TORN, "Torn") /* parameters are a mix */ \
	W(P, 10, UNKNOWN, "Unknown") /* not heard of */ \
	W(P, 11, SUPERSEDED, "Superseded") /* Aborted, because the next version was there; only reported, an engine is never in it */

/* How a transfer ended. */
#define WB_RESULTS(W, P) \
	W(P, 0, SUCCEEDED, "Succeeded") \
	W(P, 1, PARTLY_TORN, "PartlyTorn") /* some engines have it, others are Torn */ \
	W(P, 2, SUPERSEDED, "Superseded") \
	W(P, 3, ABORTED, "Aborted") \
	W(P, 4, TORN, "Torn") \
	W(P, 5, UNKNOWN, "Unknown") /* the coordinator or an engine was lost before the end was told */

/* What a REPORT is about.  When the whole transfer has ended, its number is FINAL plus that of the
 * result.  The texts of these rows are those that operators of version 1 know, which see PARTLY_TORN
 * and UNKNOWN in the states of the engines. */
#define WB_REPORTS(W, P) \
	W(P, 0, STARTED, "Started") /* a transfer has begun */ \
	W(P, 1, ENGINE, "Engine") /* one engine has ended it */ \
	W(P, 2, WORKERS, "Workers") /* times of workers */ \
	W(P, 3, FINAL, "Succeeded") \
	W(P, 4, FINAL_PARTLY_TORN, "Succeeded") \
	W(P, 5, FINAL_SUPERSEDED, "Superseded") \
	W(P, 6, FINAL_ABORTED, "Aborted") \
	W(P, 7, FINAL_TORN, "Torn") \
	W(P, 8, FINAL_UNKNOWN, "Aborted")

#define WB_VOCABULARY(V) \
	V(role, WB_ROLE_, WB_ROLES) \
	V(staging, WB_STAGING_, WB_STAGINGS) \
	V(overlap, WB_OVERLAP_, WB_OVERLAPS) \
	V(commit, WB_COMMIT_, WB_COMMITS) \
	V(content, WB_CONTENT_, WB_CONTENTS) \
	V(engine_state, WB_ENGINE_, WB_ENGINE_STATES) \
	V(result, WB_RESULT_, WB_RESULTS) \
	V(report, WB_REPORT_, WB_REPORTS)

/* ---- from rows to C ------------------------------------------------------------------------- */

struct wb_words {
	const char *const *text; /* by number; NULL = no word has it */
	uint32_t n; /* all numbers are below it */
};

#define WB__WORD_ENUM(P, number, NAME, text) P##NAME = (number),
#define WB__WORDS_DECL(name, P, LIST) \
	enum wb_##name { LIST(WB__WORD_ENUM, P) }; \
	extern const struct wb_words wb_##name##_words;
WB_VOCABULARY(WB__WORDS_DECL)
/* clang-format on */

#define WB_STAGING_UNSET 0
#define WB_WORD_NONE UINT32_MAX /* a text that is no word here */

/** wb_word - text of @number; "Unknown" when it is no word.  Static. */
const char *wb_word(const struct wb_words *w, uint32_t number);
/** wb_word_number - the least number with that text; -1 when it is no word. */
int wb_word_number(const struct wb_words *w, const char *text);

#endif
