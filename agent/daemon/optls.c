/* SPDX-License-Identifier: Apache-2.0 */
/* How the agent proves who it is to the operator: a shared key, or its pod's token. */
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/oplink_internal.h"

#include <string.h>

#define MOD "oplink"
#define PSK_ID "weightbridge"

static int make_psk(struct wb__oplink *l, struct wb_err *err)
{
	struct wb_psk psk;
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &psk};
	int rc = wb_psk_read(l->served->psk_file, PSK_ID, &psk, err);

	if (rc < 0)
		return rc;
	rc = wb_tls_client_create(&o, &l->tls, err);
	wb_psk_clear(&psk);
	return rc;
}

int wb__oplink_tls(struct wb__oplink *l, struct wb_err *err)
{
	struct wb_tls_opts o = {.mode = WB_TLS_CERT,
		.ca_file = l->a->o.ca_file,
		/* The name is the operator's, also when a standby sends us to an address. */
		.server_name =
			l->a->o.operator_name[0] ? l->a->o.operator_name : l->a->o.operator.host };

	if (l->served->psk_file[0])
		return l->tls ? 0 : make_psk(l, err);
	/* The authority's certificate is renewed in place, and may come later than the agent. */
	return l->tls ? wb_tls_reload(l->tls, err) : wb_tls_client_create(&o, &l->tls, err);
}

char *wb__oplink_token(const struct wb__oplink *l)
{
	const char *path = l->served->token_file;
	uint8_t *token = NULL;
	size_t n = 0;
	int rc;

	if (!path[0])
		return NULL;
	rc = wb_file_read(path, WBP_TOKEN_MAX - 1, &token, &n);
	if (rc < 0 || !n)
		WB_LOG_ERR(MOD, "token not read", WB_S("file", path),
			WB_S("reason", rc < 0 ? wb_strerror(rc) : "it is empty"));
	if (n)
		token[strcspn((char *)token, "\r\n")] = '\0';
	return (char *)token;
}

void wb__oplink_token_free(char *token)
{
	if (token)
		explicit_bzero(token, strlen(token));
	wb_free(token);
}
