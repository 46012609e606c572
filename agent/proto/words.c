/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/words.h"

#include "base/base.h"

#include <string.h>

/* clang-format off */
#define WB__WORD_TEXT(P, number, NAME, text) [number] = text,
#define WB__WORDS_DEF(name, P, LIST) \
	static const char *const name##_text[] = { LIST(WB__WORD_TEXT, P) }; \
	const struct wb_words wb_##name##_words = {name##_text, WB_ARRAY_SIZE(name##_text)};
WB_VOCABULARY(WB__WORDS_DEF)
/* clang-format on */

const char *wb_word(const struct wb_words *w, uint32_t number)
{
	return number < w->n && w->text[number] ? w->text[number] : "Unknown";
}

int wb_word_number(const struct wb_words *w, const char *text)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (w->text[i] && !strcmp(w->text[i], text))
			return (int)i;
	return -1;
}
