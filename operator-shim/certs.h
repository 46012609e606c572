/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_CERTS_H
#define WB_OPERATOR_CERTS_H
/*
 * The certificate that agents see, and the authority that they are told to trust.
 *
 * The certificate: the leader makes it, with an authority of its own, in one Secret of its
 * namespace, and renews both (pki.h); every replica reads the Secret again and again.  Or the
 * certificate is in files, which somebody else renews.  The authority: the leader writes it into a
 * ConfigMap "weightbridge-ca" in each namespace that has a WeightTransfer.  These WeightTransfers
 * own the ConfigMap: it goes with the last of them.  When somebody edits it, it is written again.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/kube/http.h"

#include <stdbool.h>

struct wb__certs; /* opaque */

#define WB__CA_CONFIGMAP "weightbridge-ca"

struct wb__certs_opts {
	const char *ns, *secret; /* NULL secret = files */
	/* Only with files: the authority, PEM; "" = agents get it from elsewhere */
	const char *ca_file;
	const char *const *name; /* DNS names of the certificate; only with a secret */
	size_t n_name;
	const char *const *watched; /* namespaces that may have objects; none = all may */
	size_t n_watched;
};

struct wb__certs_cb {
	void *cookie;
	/* The certificate (chain) and its key, PEM: at the start and whenever it changed; only with
	 * a secret.  Borrowed. */
	void (*on_pair)(void *cookie, const char *cert, const char *key);
};

/** wb__certs_start - @kube outlives this; strings are copied.  0 or -ENOMEM. */
int wb__certs_start(struct wb_kube *kube, const struct wb__certs_opts *o,
	const struct wb__certs_cb *cb, struct wb__certs **out);
/** wb__certs_stop - NULL is allowed. */
void wb__certs_stop(struct wb__certs *c);
/** wb__certs_lead - this replica leads: it writes from now on. */
void wb__certs_lead(struct wb__certs *c);
/** wb__certs_owner - a WeightTransfer exists, or (@is_there false) is gone. */
void wb__certs_owner(
	struct wb__certs *c, const char *ns, const char *name, const char *uid, bool is_there);
/** wb__certs_has_pair - on_pair was called, or will not be, since there is no secret. */
bool wb__certs_has_pair(const struct wb__certs *c);

#endif
