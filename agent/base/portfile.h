/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_PORTFILE_H
#define WB_BASE_PORTFILE_H
/*
 * The ports on which a program listens, for whoever started it with port 0.  Layer: base (L0).
 */
#include <stdint.h>

struct wb_err;

struct wb_ports {
	uint16_t listen, http;
	uint16_t probes; /* 0 = there are none */
};

/** wb_port_file_write - write "listen N\nhttp M\n", and "probes P\n", to @path, completely or not
 * at all (readers wait for the file to appear).  With @path NULL or "" it does nothing.  0 or
 * -errno.  Blocks. */
int wb_port_file_write(const char *path, const struct wb_ports *p, struct wb_err *err);

#endif
