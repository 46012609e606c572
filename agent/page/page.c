/* SPDX-License-Identifier: Apache-2.0 */
/* Makes page.html a part of the program, and puts into it what it draws. */
#include "page/page.h"

#include "base/buf.h"

#include <string.h>

#define MARK "@DATA@"

/* C11 has no #embed, but assemblers have .incbin. */
__asm__(".section .rodata\n"
	"wb__page_begin:\n"
	".incbin \"agent/page/page.html\"\n"
	"wb__page_end:\n"
	".byte 0\n"
	".previous\n");
extern const char wb__page_begin[], wb__page_end[];

/* Write "<" as \u003c.  JSON has "<" only in strings, where this is allowed, and so nothing in it
 * can end the script element. */
static void put_json(struct wb_buf *out, const char *json, size_t bytes)
{
	const char *at = json, *end = json + bytes, *next;

	while ((next = memchr(at, '<', (size_t)(end - at)))) {
		wb_buf_put(out, at, (size_t)(next - at));
		wb_buf_printf(out, "\\u003c");
		at = next + 1;
	}
	wb_buf_put(out, at, (size_t)(end - at));
}

static void put_data(
	const char *title, const struct wb_page_part *part, size_t n_part, struct wb_buf *out)
{
	struct wb_buf text;

	wb_buf_init(&text, 1u << 16);
	wb_buf_json_str(&text, title);
	wb_buf_printf(out, "{\"title\":");
	put_json(out, wb_buf_cstr(&text), text.len);
	for (size_t i = 0; i < n_part; i++) {
		wb_buf_printf(out, ",\n\"%s\":", part[i].name);
		put_json(out, part[i].json, part[i].bytes);
	}
	wb_buf_printf(out, "}");
	wb_buf_finish(&text);
}

void wb_page_put(
	const char *title, const struct wb_page_part *part, size_t n_part, struct wb_buf *out)
{
	const char *mark = strstr(wb__page_begin, MARK);

	wb_buf_put(out, wb__page_begin, (size_t)(mark - wb__page_begin));
	if (title)
		put_data(title, part, n_part, out);
	mark += strlen(MARK);
	wb_buf_put(out, mark, (size_t)(wb__page_end - mark));
}
