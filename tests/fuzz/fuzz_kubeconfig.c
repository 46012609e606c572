/* SPDX-License-Identifier: Apache-2.0 */
/* A kubeconfig from anywhere: a sentence, or a server that can be asked. */
#include "base/err.h"
#include "operator-shim/kube/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb_kube_config c;
	struct wb_err err = {0};

	if (wb_kube_config_parse("f", "d", data, size, &c, &err) < 0) {
		if (!err.msg[0] || c.server)
			abort();
		return 0;
	}
	if (strncmp(c.server, "https://", 8) != 0 || strpbrk(c.server, "\r\n") ||
		(c.token && strpbrk(c.token, "\r\n")) || (c.cert.file && c.cert.data))
		abort();
	wb_kube_config_finish(&c);
	return 0;
}
