/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_TOKEN_H
#define WB_KUBE_TOKEN_H
/*
 * Finds out whose token it is: makes bodies of authentication.k8s.io/v1 TokenReview, and judges the
 * answers.  Pure.
 *
 * The API server is asked each time, since only it knows that a pod was deleted.  A token is
 * accepted only if it is valid for all audiences that were asked for, and bound to a pod.
 * Threads: any.  Layer: operator-shim/kube (over base).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct wb_err;

#define WB_KUBE_REVIEWS "/apis/authentication.k8s.io/v1/tokenreviews"

struct wb_kube_who {
	char ns[64], account[254]; /* of the service account */
	char pod[254], pod_uid[64];
};

/** wb_kube_account - ns and account of user "system:serviceaccount:NAMESPACE:NAME"; the rest of
 *  @out stays.  0; -EPERM: it is another kind of user. */
int wb_kube_account(const char *user, struct wb_kube_who *out);

/** wb_kube_review_body - a review of @token, with one audience for each object.  New reference;
 * NULL = no memory.  Holds the token: do not log. */
json_t *wb_kube_review_body(const char *token, const char *const *object, size_t n);
/** wb_kube_review_judge - judge the answer.  0; -EACCES with a sentence that says what to fix. */
int wb_kube_review_judge(const json_t *review, const char *const *object, size_t n,
	struct wb_kube_who *out, struct wb_err *err);

/** wb_kube_review_reader - the same for somebody who only reads: it must be a service account of
 * the namespace of @object, bound to a pod or not; @object NULL: any user. */
int wb_kube_review_reader(const json_t *review, const char *object, struct wb_err *err);

#define WB_KUBE_ACCESS "/apis/authorization.k8s.io/v1/subjectaccessreviews"
/** wb_kube_access_body - may the user of @review "get" the path @path, which is not that of a
 * resource?  New reference; NULL = no memory. */
json_t *wb_kube_access_body(const json_t *review, const char *path);
/** wb_kube_server_body - may service account @account of namespace @ns write the status of
 *  WeightTransfers in all namespaces?  New reference; NULL = no memory. */
json_t *wb_kube_server_body(const char *ns, const char *account);
/** wb_kube_is_allowed - the answer is yes. */
bool wb_kube_is_allowed(const json_t *access);
/** wb_kube_access_judge - 0; -EPERM with a sentence about @path. */
int wb_kube_access_judge(const json_t *access, const char *path, struct wb_err *err);

#endif
