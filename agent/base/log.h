/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_LOG_H
#define WB_BASE_LOG_H
/*
 * One line on stderr for each event: text for people, JSON for machines.
 *
 * The message is constant; what varies goes into typed fields, so that lines can be grouped:
 *	WB_LOG_INFO("agent", "peer connected", WB_S("peer", name), WB_U("rail", i));
 * The level is tested before the arguments are evaluated; errno survives.  Never tokens, keys or
 * weights.  Any thread (one write(2) for each line).  Not on the chunk path.  Layer: base (L0).
 */
#include <stdbool.h>
#include <stdint.h>

enum wb_log_level { WB_LOG_ERROR, WB_LOG_WARN, WB_LOG_INFO_, WB_LOG_DEBUG_ };

struct wb_field {
	const char *key;
	enum { WB_FIELD_END, WB_FIELD_STR, WB_FIELD_U64, WB_FIELD_I64, WB_FIELD_F64 } kind;
	union {
		const char *s;
		uint64_t u;
		int64_t i;
		double f;
	} v;
};

#define WB_S(k, x) ((struct wb_field){(k), WB_FIELD_STR, {.s = (x)}})
#define WB_U(k, x) ((struct wb_field){(k), WB_FIELD_U64, {.u = (uint64_t)(x)}})
#define WB_I(k, x) ((struct wb_field){(k), WB_FIELD_I64, {.i = (int64_t)(x)}})
#define WB_F(k, x) ((struct wb_field){(k), WB_FIELD_F64, {.f = (x)}})

extern int wb_log_level_max; /* set before threads start */

/** wb_log_emit - write the line, whatever the level: the macros below test the level first.
 * @fields ends with a WB_FIELD_END; nothing is kept.  A line that cannot be written is lost
 * silently. */
void wb_log_emit(
	enum wb_log_level level, const char *mod, const char *msg, const struct wb_field *fields);

#define WB_LOG_FIELDS_MAX 14 /* more are an error of the compiler */

/* Elements that are not given are zero, which is WB_FIELD_END.  The first element is only there for
 * the comma after it. */
#define WB_LOG_AT(level, mod, msg, ...)                                                            \
	do {                                                                                       \
		if ((int)(level) <= wb_log_level_max)                                              \
			wb_log_emit((level), (mod), (msg),                                         \
				&(const struct wb_field[WB_LOG_FIELDS_MAX + 2]){                   \
					{0}, __VA_ARGS__}[1]);                                     \
	} while (0)
#define WB_LOG_ERR(mod, ...) WB_LOG_AT(WB_LOG_ERROR, mod, __VA_ARGS__)
#define WB_LOG_WRN(mod, ...) WB_LOG_AT(WB_LOG_WARN, mod, __VA_ARGS__)
#define WB_LOG_INFO(mod, ...) WB_LOG_AT(WB_LOG_INFO_, mod, __VA_ARGS__)
#define WB_LOG_DEBUG(mod, ...) WB_LOG_AT(WB_LOG_DEBUG_, mod, __VA_ARGS__)

/* A bound for lines that others can cause as often as they like; zero at the start. */
struct wb_log_bound {
	uint64_t filled_ns;
	uint32_t lines, left_out;
};
/** wb_log_may - may one more of these lines be written, at @now_ns of a clock that does not go
 * back?  20 at once, then one every 3 s.  False: there were enough, and the line is only counted;
 * before the next line that is allowed, a line of @mod says how many were left out. */
bool wb_log_may(struct wb_log_bound *b, const char *mod, uint64_t now_ns);

/**
 * wb_log_setup - choose format and level
 * @format:	"text", "json" or "auto" (text on a terminal, else JSON)
 * @level:	"error", "warn", "info" or "debug"
 * Call before threads start.  Returns 0 or -EINVAL.
 */
int wb_log_setup(const char *format, const char *level);
/** wb_log_set_name - program or pod name in each line; borrowed for ever; NULL = none. */
void wb_log_set_name(const char *name);

#endif
