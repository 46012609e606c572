/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_CAMAPS_H
#define WB_OPERATOR_CAMAPS_H
/*
 * ConfigMap "weightbridge-ca" in each namespace that has a WeightTransfer: key ca.crt, the
 * authorities that agents trust.  Owned by those WeightTransfers; written again when somebody
 * edits it.  See certs.h.  Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/kube/http.h"

#include <stdbool.h>

struct wb__camaps; /* opaque */

/** wb__camaps_create - writes nothing yet.  @watched: namespaces, copied; none = all.  0 or
 *  -ENOMEM. */
int wb__camaps_create(struct wb_kube *kube, const char *const *watched, size_t n_watched,
	struct wb__camaps **out);
/** wb__camaps_destroy - NULL is allowed. */
void wb__camaps_destroy(struct wb__camaps *m);
/** wb__camaps_lead - this replica leads: it writes from now on. */
void wb__camaps_lead(struct wb__camaps *m);
/** wb__camaps_set - set what ca.crt must contain; NULL = not known yet.  Copied. */
void wb__camaps_set(struct wb__camaps *m, const char *pem);
/** wb__camaps_owner - a WeightTransfer exists (@is_there), or is gone. */
void wb__camaps_owner(
	struct wb__camaps *m, const char *ns, const char *name, const char *uid, bool is_there);

#endif
