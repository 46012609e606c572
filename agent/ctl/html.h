/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_HTML_H
#define WB_CTL_HTML_H
/* Pictures as a file.  Layer: ctl (L4). */
#include "page/page.h"

struct wb_err;

/** wb__ctl_html - write the page with @part to @path ("-": stdout), and say on stderr where it is.
 *  0, or the system's error with a sentence; -ENOMEM. */
int wb__ctl_html(const char *path, const char *title, const struct wb_page_part *part,
	size_t n_part, struct wb_err *err);

#endif
