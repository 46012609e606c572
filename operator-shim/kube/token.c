/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/token.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ACCOUNT "system:serviceaccount:"

/* "weightbridge.io/NAMESPACE/NAME" of an object "NAMESPACE/NAME".  New reference. */
static json_t *audience(const char *object)
{
	return json_sprintf("weightbridge.io/%s", object);
}

json_t *wb_kube_review_body(const char *token, const char *const *object, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, audience(object[i]));
	return json_pack("{s:s, s:s, s:{s:s, s:o}}", "apiVersion", "authentication.k8s.io/v1",
		"kind", "TokenReview", "spec", "token", token, "audiences", list);
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* A value in user.extra is a list; those that are used here have one element. */
static const char *extra(const json_t *user, const char *key)
{
	const char *s = json_string_value(
		json_array_get(json_object_get(json_object_get(user, "extra"), key), 0));

	return s ? s : "";
}

static bool has_audience(const json_t *status, const char *object)
{
	json_t *want = audience(object), *a;
	bool found = false;
	size_t i;

	json_array_foreach(json_object_get(status, "audiences"), i, a)
	{
		found |= json_equal(a, want);
	}
	json_decref(want);
	return found;
}

int wb_kube_account(const char *user, struct wb_kube_who *out)
{
	const char *ns = user + strlen(ACCOUNT), *colon;

	if (strncmp(user, ACCOUNT, strlen(ACCOUNT)) != 0)
		return -EPERM;
	colon = strchr(ns, ':');
	if (!colon || colon == ns || (size_t)(colon - ns) >= sizeof(out->ns) || !colon[1] ||
		strlen(colon + 1) >= sizeof(out->account))
		return -EPERM;
	snprintf(out->ns, sizeof(out->ns), "%.*s", (int)(colon - ns), ns);
	snprintf(out->account, sizeof(out->account), "%s", colon + 1);
	return 0;
}

int wb_kube_review_judge(const json_t *review, const char *const *object, size_t n,
	struct wb_kube_who *out, struct wb_err *err)
{
	const json_t *status = json_object_get(review, "status");
	const json_t *user = json_object_get(status, "user");
	const char *pod = extra(user, "authentication.kubernetes.io/pod-name");
	const char *uid = extra(user, "authentication.kubernetes.io/pod-uid");

	memset(out, 0, sizeof(*out));
	if (!json_is_true(json_object_get(status, "authenticated")))
		return wb_err_set(err, -EACCES,
			"the token is not valid for audience weightbridge.io/%.320s: %.300s",
			n ? object[0] : "",
			*text(status, "error") ? text(status, "error") : "Kubernetes refused it");
	for (size_t i = 0; i < n; i++)
		if (!has_audience(status, object[i]))
			return wb_err_set(err, -EACCES,
				"the token is not for audience weightbridge.io/%.320s: set it in "
				"the "
				"pod's projected volume",
				object[i]);
	if (wb_kube_account(text(user, "username"), out) < 0)
		return wb_err_set(err, -EACCES, "the token is not of a service account");
	if (!*pod || !*uid || strlen(pod) >= sizeof(out->pod) ||
		strlen(uid) >= sizeof(out->pod_uid))
		return wb_err_set(err, -EACCES,
			"the token is not bound to a pod: use a projected volume, not a Secret");
	snprintf(out->pod, sizeof(out->pod), "%s", pod);
	snprintf(out->pod_uid, sizeof(out->pod_uid), "%s", uid);
	return 0;
}

int wb_kube_review_reader(const json_t *review, const char *object, struct wb_err *err)
{
	const json_t *status = json_object_get(review, "status");
	const char *error = text(status, "error"), *slash = object ? strchr(object, '/') : NULL;
	struct wb_kube_who who;

	if (!json_is_true(json_object_get(status, "authenticated")) ||
		(object && !has_audience(status, object)))
		return wb_err_set(err, -EACCES, "the token is not valid%s%.320s: %.300s",
			object ? " for audience weightbridge.io/" : "", object ? object : "",
			*error ? error : "Kubernetes refused it");
	if (!object)
		return 0;
	if (!slash || wb_kube_account(text(json_object_get(status, "user"), "username"), &who) < 0)
		return wb_err_set(err, -EACCES, "the token is not of a service account");
	if (strlen(who.ns) != (size_t)(slash - object) ||
		strncmp(object, who.ns, strlen(who.ns)) != 0)
		return wb_err_set(err, -EACCES,
			"the token is of namespace %s, object %.320s is in another", who.ns,
			object);
	return 0;
}

json_t *wb_kube_access_body(const json_t *review, const char *path)
{
	static const char *const kept[] = {"uid", "groups", "extra"};
	const json_t *user = json_object_get(json_object_get(review, "status"), "user");
	json_t *spec = json_pack("{s:s, s:{s:s, s:s}}", "user", text(user, "username"),
		"nonResourceAttributes", "path", path, "verb", "get");

	for (size_t i = 0; spec && i < WB_ARRAY_SIZE(kept); i++)
		if (json_object_get(user, kept[i]))
			json_object_set(spec, kept[i], json_object_get(user, kept[i]));
	return json_pack("{s:s, s:s, s:o}", "apiVersion", "authorization.k8s.io/v1", "kind",
		"SubjectAccessReview", "spec", spec);
}

json_t *wb_kube_server_body(const char *ns, const char *account)
{
	return json_pack("{s:s, s:s, s:{s:o, s:[s, o, s], s:{s:s, s:s, s:s, s:s}}}", "apiVersion",
		"authorization.k8s.io/v1", "kind", "SubjectAccessReview", "spec", "user",
		json_sprintf(ACCOUNT "%s:%s", ns, account), "groups", "system:serviceaccounts",
		json_sprintf("system:serviceaccounts:%s", ns), "system:authenticated",
		"resourceAttributes", "group", "weightbridge.io", "resource", "weighttransfers",
		"subresource", "status", "verb", "patch");
}

bool wb_kube_is_allowed(const json_t *access)
{
	return json_is_true(json_object_get(json_object_get(access, "status"), "allowed"));
}

int wb_kube_access_judge(const json_t *access, const char *path, struct wb_err *err)
{
	if (wb_kube_is_allowed(access))
		return 0;
	return wb_err_set(err, -EPERM,
		"the token's owner may not get %s: a ClusterRole with nonResourceURLs [%s] and "
		"verbs [get] allows it",
		path, path);
}
