/* SPDX-License-Identifier: Apache-2.0 */
/* Makes JSON strings of text that may not be UTF-8. */
#include "operator-shim/spec/json.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"

json_t *wb_json_text(const char *s)
{
	json_t *text = json_string(s);
	char *copy;

	if (text)
		return text;
	copy = wb_strdup(s);
	if (!copy)
		return NULL;
	text = json_string(wb_utf8_mend(copy));
	wb_free(copy);
	return text;
}
