/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters by name. */
#include "predict/params.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *word, *text;
	size_t at; /* in struct wb_predict_params */
	double dflt, least, greatest;
} param[] = {
#define P(field, word, dflt, least, greatest, text)                                                \
	{word, text, offsetof(struct wb_predict_params, field), dflt, least, greatest},
	WB_PREDICT_PARAMS(P)
#undef P
};

static double *at(struct wb_predict_params *p, size_t i)
{
	return (double *)(void *)((char *)p + param[i].at);
}

struct wb_predict_params wb_predict_defaults(void)
{
	struct wb_predict_params p;

	for (size_t i = 0; i < WB_ARRAY_SIZE(param); i++)
		*at(&p, i) = param[i].dflt;
	return p;
}

/* One setting, of @n characters. */
static int set_one(struct wb_predict_params *p, const char *text, size_t n, struct wb_err *err)
{
	char one[128], *eq, *end;
	double v;

	if (n >= sizeof(one))
		return wb_err_set(err, -EINVAL, "parameter %.32s...: too long", text);
	memcpy(one, text, n);
	one[n] = '\0';
	eq = strchr(one, '=');
	if (!eq)
		return wb_err_set(err, -EINVAL, "parameter %s: expected WORD=NUMBER", one);
	*eq++ = '\0';
	for (size_t i = 0; i < WB_ARRAY_SIZE(param); i++) {
		if (strcmp(param[i].word, one) != 0)
			continue;
		v = strtod(eq, &end);
		if (end == eq || *end || !isfinite(v) || v < param[i].least ||
			v > param[i].greatest)
			return wb_err_set(err, -EINVAL, "parameter %s=%s: expected %g to %g", one,
				eq, param[i].least, param[i].greatest);
		*at(p, i) = v;
		return 0;
	}
	return wb_err_set(
		err, -EINVAL, "there is no parameter %s (wbctl simulate --set list)", one);
}

int wb_predict_set(struct wb_predict_params *p, const char *text, struct wb_err *err)
{
	int rc = 0;

	while (*text && rc == 0) {
		size_t n = strcspn(text, ",");

		rc = set_one(p, text, n, err);
		text += n + (text[n] == ',');
	}
	return rc;
}

void wb_predict_list(struct wb_buf *out)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(param); i++)
		wb_buf_printf(out, "%-11s %7g  (%g to %g) %s\n", param[i].word, param[i].dflt,
			param[i].least, param[i].greatest, param[i].text);
}
