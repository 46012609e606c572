/* SPDX-License-Identifier: Apache-2.0 */
#include "base/portfile.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int wb_port_file_write(const char *path, const struct wb_ports *p, struct wb_err *err)
{
	char tmp[4096], text[64];
	int fd, n, rc = 0;

	if (!path || !path[0])
		return 0;
	n = snprintf(text, sizeof(text), "listen %u\nhttp %u\n", p->listen, p->http);
	if (p->probes)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "probes %u\n", p->probes);
	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= sizeof(tmp))
		return wb_err_set(err, -ENAMETOOLONG, "--port-file: the name is too long");
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return wb_err_set(err, -errno, "open %s: %s", tmp, strerror(errno));
	errno = ENOSPC; /* of a write that is cut short */
	if (write(fd, text, (size_t)n) != n)
		rc = wb_err_set(err, -EIO, "write %s: %s", tmp, strerror(errno));
	close(fd);
	if (rc == 0 && rename(tmp, path))
		rc = wb_err_set(err, -errno, "rename to %s: %s", path, strerror(errno));
	if (rc < 0)
		unlink(tmp);
	return rc;
}
