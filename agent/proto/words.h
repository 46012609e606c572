/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_WORDS_H
#define WB_PROTO_WORDS_H
/*
 * Words that processes share, and that users see: one row a word.
 *
 *	W(P, number, NAME, text)
 *
 * Programs keep the number: it is what binary messages, numbers in JSON ones and plans carry.  The
 * text is for JSON fields that hold words, the resource's fields, pages, metrics and sentences.
 * What has shipped keeps its number and its text; new words are appended.  PROTOCOL.md has them
 * all (a test compares).
 *
 * Pure, libc only; any thread.  Layer: proto (L1).
 */
#include <stdint.h>

/* clang-format off */

#define WB_ROLES(W, P) \
	W(P, 1, TRAINER, "trainer") \
	W(P, 2, ROLLOUT, "rollout")

/* 0 is no word: a worker leaves it to the object. */
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
	W(P, 3, PLAN, "plan")

#define WB_VOCABULARY(V) \
	V(role, WB_ROLE_, WB_ROLES) \
	V(staging, WB_STAGING_, WB_STAGINGS) \
	V(overlap, WB_OVERLAP_, WB_OVERLAPS) \
	V(commit, WB_COMMIT_, WB_COMMITS) \
	V(content, WB_CONTENT_, WB_CONTENTS)

/* ---- from rows to C ------------------------------------------------------------------------- */

struct wb_words {
	const char *const *text; /* by number; NULL = no word */
	uint32_t n; /* numbers are below it */
};

#define WB__WORD_ENUM(P, number, NAME, text) P##NAME = (number),
#define WB__WORDS_DECL(name, P, LIST) \
	enum wb_##name { LIST(WB__WORD_ENUM, P) }; \
	extern const struct wb_words wb_##name##_words;
WB_VOCABULARY(WB__WORDS_DECL)
/* clang-format on */

#define WB_STAGING_UNSET 0

/** wb_word - text of @number; "Unknown" when it is no word.  Static. */
const char *wb_word(const struct wb_words *w, uint32_t number);
/** wb_word_number - the least number with that text; -1 when it is no word. */
int wb_word_number(const struct wb_words *w, const char *text);

#endif
