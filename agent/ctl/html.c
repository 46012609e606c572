/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/html.h"

#include "base/buf.h"
#include "base/err.h"
#include "ctl/fetch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int wb__ctl_html(const char *path, const char *title, const struct wb_page_part *part,
	size_t n_part, struct wb_err *err)
{
	bool is_stdout = !strcmp(path, "-");
	struct wb_buf b;
	FILE *f;
	int rc;

	wb_buf_init(&b, WB_CTL_PAGE_MAX);
	wb_page_put(title, part, n_part, &b);
	rc = b.rc;
	if (rc < 0) {
		wb_err_set(err, rc, "draw %s: %s", path, wb_strerror(rc));
	} else {
		f = is_stdout ? stdout : fopen(path, "we");
		if (!f || fwrite(b.data, 1, b.len, f) != b.len || fflush(f))
			rc = wb_err_set(err, -errno, "write %s: %s", path, strerror(errno));
		if (f && !is_stdout)
			fclose(f);
	}
	if (rc == 0 && !is_stdout)
		fprintf(stderr, "wbctl: open %s in a browser\n", path);
	wb_buf_finish(&b);
	return rc;
}
