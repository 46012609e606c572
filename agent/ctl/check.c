/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl check: an operator from where one stands. */
#include "base/buf.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int check_page(
	const char *addr, const char *path, const char *word, const char *what, struct wb_err *err)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, WB_CTL_PAGE_MAX);
	rc = wb__ctl_fetch(addr, path, NULL, &b, err);
	if (rc == 0 && !strstr(wb_buf_cstr(&b), word))
		rc = wb_err_set(err, -EBADMSG, "%s%s is not an operator's page", addr, path);
	if (rc == 0)
		printf("ok  %s\n", what);
	wb_buf_finish(&b);
	return rc;
}

int wb__ctl_check(const struct wb__ctl_opts *o, struct wb_err *err)
{
	const char *addr = wb__ctl_operator(o);
	int rc = check_page(addr, "/readyz", "ok", "it is ready: agents can come", err);

	if (rc == 0)
		rc = check_page(addr, "/metrics", "wb_objects", "it shows metrics", err);
	if (rc == 0)
		rc = check_page(
			addr, "/objects", "WeightTransferList", "a leader serves objects", err);
	if (rc < 0 || !o->tls_addr)
		return rc;
	if (!o->ca_file)
		return wb_err_set(err, -EINVAL, "--tls needs --ca-file FILE");
	rc = wb__ctl_check_tls(o->tls_addr, o->ca_file, err);
	if (rc == 0)
		printf("ok  its certificate is for %s, of that authority\n", o->tls_addr);
	return rc;
}
