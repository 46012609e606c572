/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int wb_log_level_max = WB_LOG_INFO_;

static bool json;
static const char *name;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

int wb_log_setup(const char *format, const char *level)
{
	int found = -1;

	for (size_t i = 0; i < WB_ARRAY_SIZE(level_names); i++)
		if (!strcmp(level, level_names[i]))
			found = (int)i;
	if (found < 0)
		return -EINVAL;
	if (!strcmp(format, "auto"))
		json = !isatty(STDERR_FILENO);
	else if (!strcmp(format, "json") || !strcmp(format, "text"))
		json = format[0] == 'j';
	else
		return -EINVAL;
	wb_log_level_max = found;
	return 0;
}

void wb_log_set_name(const char *n)
{
	name = n;
}

static void put_time(struct wb_buf *b)
{
	uint64_t now = wb_wall_ns();
	time_t s = (time_t)(now / WB_NS_PER_S);
	char text[32];
	struct tm tm;

	gmtime_r(&s, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	wb_buf_printf(b, "%s.%06uZ", text, (unsigned)(now % WB_NS_PER_S / 1000));
}

static void put_value(struct wb_buf *b, const struct wb_field *f)
{
	if (f->kind == WB_FIELD_U64)
		wb_buf_printf(b, "%llu", (unsigned long long)f->v.u);
	else if (f->kind == WB_FIELD_I64)
		wb_buf_printf(b, "%lld", (long long)f->v.i);
	else if (f->kind == WB_FIELD_F64)
		wb_buf_printf(b, "%.6g", f->v.f);
	else if (json || !f->v.s || strpbrk(f->v.s, " \"=\n"))
		wb_buf_json_str(b, f->v.s);
	else
		wb_buf_printf(b, "%s", f->v.s);
}

static void put_json(struct wb_buf *b, const char *level, const char *mod, const char *msg,
	const struct wb_field *f)
{
	wb_buf_printf(b, "{\"ts\":\"");
	put_time(b);
	wb_buf_printf(b, "\",\"level\":\"%s\",\"mod\":\"%s\",", level, mod);
	if (name) {
		wb_buf_printf(b, "\"name\":");
		wb_buf_json_str(b, name);
		wb_buf_u8(b, ',');
	}
	wb_buf_printf(b, "\"msg\":");
	wb_buf_json_str(b, msg);
	for (; f->kind != WB_FIELD_END; f++) {
		wb_buf_u8(b, ',');
		wb_buf_json_str(b, f->key);
		wb_buf_u8(b, ':');
		put_value(b, f);
	}
	wb_buf_printf(b, "}\n");
}

static void put_text(struct wb_buf *b, const char *level, const char *mod, const char *msg,
	const struct wb_field *f)
{
	put_time(b);
	wb_buf_printf(b, " %-5s %s%s%s: %s", level, name ? name : "", name ? " " : "", mod, msg);
	for (; f->kind != WB_FIELD_END; f++) {
		wb_buf_printf(b, " %s=", f->key);
		put_value(b, f);
	}
	wb_buf_u8(b, '\n');
}

void wb_log_emit(
	enum wb_log_level level, const char *mod, const char *msg, const struct wb_field *fields)
{
	int saved = errno;
	struct wb_buf b;

	wb_buf_init(&b, 16384);
	(json ? put_json : put_text)(&b, level_names[level], mod, msg, fields);
	if (!b.rc && write(STDERR_FILENO, b.data, b.len) < 0) {
		/* Nowhere to say that stderr is gone. */
	}
	wb_buf_finish(&b);
	errno = saved;
}

#define BOUND_LINES 20
#define BOUND_EVERY_NS (3 * WB_NS_PER_S)

bool wb_log_may(struct wb_log_bound *b, const char *mod, uint64_t now_ns)
{
	uint64_t got = (now_ns - b->filled_ns) / BOUND_EVERY_NS;

	if (!b->filled_ns || b->lines + got >= BOUND_LINES) {
		b->lines = BOUND_LINES;
		b->filled_ns = now_ns;
	} else {
		b->lines += (uint32_t)got;
		b->filled_ns += got * BOUND_EVERY_NS;
	}
	if (!b->lines) {
		b->left_out++;
		return false;
	}
	b->lines--;
	if (b->left_out)
		WB_LOG_WRN(
			mod, "lines like the next one were left out", WB_U("count", b->left_out));
	b->left_out = 0;
	return true;
}
