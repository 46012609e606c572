/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_INJECT_H
#define WB_CTL_INJECT_H
/*
 * wbctl inject: the sidecar into pod templates of YAML documents, as the policy of the operator's
 * chart does it to pods.  Layer: ctl (L4).
 */
#include "ctl/ctl.h"

#include <stdio.h>
#include <yaml.h>

#define WB__LABEL_INJECT "weightbridge.io/inject"

/* JSON; text in @signs@ is filled in for each pod. */
extern const char wb__ctl_sidecar_text[];

struct wb__inject {
	const struct wb__ctl_opts *o;
	yaml_document_t *text; /* of wb__ctl_sidecar_text */
	yaml_document_t *doc; /* being changed */
	size_t n; /* pods that got a sidecar */
};

/** wb__inject_pod - into a pod or pod template (node number @pod) that has label inject=enabled.
 *  0, also where there is one already; -EINVAL with a sentence (a label, a container, no
 *  namespace); -ENOMEM. */
int wb__inject_pod(struct wb__inject *j, int pod, const char *ns, struct wb_err *err);

/** wb__inject_stream - all documents of @in, changed, to @to: all of them or, on failure, none.
 *  @n_out: pods that got a sidecar.  0; -EINVAL with line and sentence; -ENOMEM. */
int wb__inject_stream(
	const struct wb__ctl_opts *o, FILE *in, FILE *to, size_t *n_out, struct wb_err *err);

/* Nodes of a document are numbers, 0 = none: adding one moves the others in memory. */
/** wb__yaml_get - value of @key in mapping @at; 0 when there is none. */
int wb__yaml_get(yaml_document_t *d, int at, const char *key);
/** wb__yaml_text - the text of a scalar; "" for anything else.  Valid until something is added. */
const char *wb__yaml_text(yaml_document_t *d, int at);

#endif
