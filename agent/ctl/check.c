/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl check: whether an operator works, as seen from here. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int check_page(const char *addr, const char *path, const char *word, struct wb_err *err)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, WB_CTL_PAGE_MAX);
	rc = wb__ctl_fetch(addr, path, NULL, &b, err);
	/* An operator that asks for a token serves the page. */
	if (rc == -EACCES) {
		wb_buf_finish(&b);
		return 0;
	}
	if (rc == 0 && !strstr(wb_buf_cstr(&b), word))
		rc = wb_err_set(err, -EBADMSG, "%s%s is not an operator's page", addr, path);
	wb_buf_finish(&b);
	return rc;
}

static const struct {
	const char *path, *word; /* path NULL: TLS */
	const char *name, *means;
} checks[] = {
	{"/readyz", "ok", "ready", "it is ready: agents can come"},
	{"/metrics", "wb_objects", "metrics", "it shows metrics"},
	{"/objects", "WeightTransferList", "leader", "a leader serves objects"},
	{NULL, NULL, "certificate", "its certificate is for the name dialled, of that authority"},
};

/* Prints a line as soon as a check has passed; JSON at the end, when all have passed. */
int wb__ctl_check(const struct wb__ctl_opts *o, struct wb_err *err)
{
	json_t *passed = json_array();
	int rc = 0;

	if (!o->tls_addr != !o->ca_file)
		rc = wb_err_set(err, -EINVAL, "--tls and --ca-file belong together");
	for (size_t i = 0; i < WB_ARRAY_SIZE(checks) && rc == 0; i++) {
		if (!checks[i].path && !o->tls_addr)
			continue;
		rc = checks[i].path
			     ? check_page(wb__ctl_operator(o), checks[i].path, checks[i].word, err)
			     : wb__ctl_check_tls(o->tls_addr, o->ca_file, err);
		if (rc == 0 && !o->is_json)
			printf("ok  %s\n", checks[i].means);
		if (rc == 0)
			json_array_append_new(passed, json_string(checks[i].name));
	}
	if (rc == 0 && o->is_json) {
		json_t *all =
			json_pack("{s:s, s:O}", "operator", wb__ctl_operator(o), "passed", passed);

		wb__ctl_dump(all, o->is_yaml);
		json_decref(all);
	}
	json_decref(passed);
	return rc;
}
