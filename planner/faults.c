/* SPDX-License-Identifier: Apache-2.0 */
/* Collect what is wrong with the input of a plan, and make one sentence of it. */
#include "planner/internal.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void wb__plan_fault(struct wb__faults *f, const char *fmt, ...)
{
	char text[600];
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	len = strlen(text);
	f->n++;
	/* After the first fault that is not shown, no fault is: only the end of the list is cut. */
	if (f->n_shown + 1 < f->n || f->len + len + 3 > sizeof(f->text))
		return;
	f->len += (size_t)snprintf(
		f->text + f->len, sizeof(f->text) - f->len, "%s%s", f->len ? "; " : "", text);
	f->n_shown++;
}

int wb__plan_faults_rc(const struct wb__faults *f, struct wb_err *err)
{
	if (!f->n)
		return 0;
	if (f->n == f->n_shown)
		return wb_err_set(err, WB_EPLAN, "%s", f->text);
	return wb_err_set(err, WB_EPLAN, "%s; and %" PRIu32 " more", f->text, f->n - f->n_shown);
}

void wb__who(const struct wb_plan_input *in, uint32_t worker, char *out, size_t cap)
{
	const char *role = wb_word(&wb_role_words, in->worker[worker].role);

	if (in->worker_name && in->worker_name[worker])
		snprintf(out, cap, "%s worker %.120s", role, in->worker_name[worker]);
	else
		snprintf(out, cap, "%s worker %" PRIu32, role, worker);
}
