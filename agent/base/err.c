/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#undef wb_err_set /* with WB_ANALYZE they are macros (err.h) */
#undef wb_err_wrap

int wb_err_set(struct wb_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return code;
}

int wb_err_wrap(struct wb_err *err, int code, const char *fmt, ...)
{
	char inner[WB_ERR_MSG_MAX];
	va_list ap;
	size_t used;

	if (!err)
		return code;
	memcpy(inner, err->msg, sizeof(inner));
	inner[sizeof(inner) - 1] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	used = strlen(err->msg);
	if (inner[0] && used < sizeof(err->msg) - 3)
		snprintf(err->msg + used, sizeof(err->msg) - used, ": %.*s",
			(int)(sizeof(err->msg) - used - 3), inner);
	err->code = code;
	return code;
}

const char *wb_strerror(int code)
{
	switch (code) {
	case WB_EVERSION:
		return "protocol versions do not overlap";
	case WB_EPLAN:
		return "plan not valid or of another digest";
	case WB_ECKSUM:
		return "checksum mismatch";
	case WB_ESTALE:
		return "stale epoch, transfer or generation";
	case WB_EABORTED:
		return "transfer aborted, old weights intact";
	case WB_ETORN:
		return "an engine holds a mix of two versions";
	case WB_EUNKNOWN:
		return "how the transfer ended is not known";
	case WB_ENOTCOPY:
		return "load_weights is not a copy";
	default:
		return strerror(code < 0 ? -code : code);
	}
}
