/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_CONFIG_H
#define WB_KUBE_CONFIG_H
/*
 * Where the API server is and how to prove who we are.
 *
 * From a kubeconfig (current-context, cluster, user; certificate-authority, client-certificate and
 * client-key as files or as data; token, tokenFile; tls-server-name, proxy-url; paths relative to
 * the file), or from what Kubernetes mounts into a pod.  exec, auth-provider and basic passwords
 * are refused with a sentence that names the user entry.  Parsing is pure and bounded (see
 * spec/yaml.h); secrets never appear in an error sentence.
 *
 * Threads: any.  Layer: operator-shim/kube (over base, spec/yaml.h).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

struct wb_kube_pem {
	char *file; /* owned, or NULL */
	uint8_t *data; /* owned, or NULL; not both file and data */
	size_t bytes;
};

struct wb_kube_config {
	char *server; /* "https://HOST[:PORT][/PREFIX]", no slash at the end; owned, as all here */
	char *tls_server_name, *proxy_url; /* or NULL */
	char *namespace_; /* of the context or the service account; or NULL */
	struct wb_kube_pem ca, cert, key;
	/* Or NULL; token_file takes precedence, and is read again when it changes */
	char *token, *token_file;
	bool is_insecure; /* the certificate of the server is not checked */
	bool is_in_cluster; /* proxy variables of the environment do not apply to this server */
};

/**
 * wb_kube_config_parse - read the current context of a kubeconfig
 * @file:	name for messages; @dir: relative paths start there ("" = working directory)
 * @text:	untrusted
 * Returns 0; -EINVAL, -E2BIG with "file: what is wrong"; -EOPNOTSUPP for a way to log in that is
 * not supported; -ENOMEM.  Release with wb_kube_config_finish(); after an error @out is released
 * already.
 */
int wb_kube_config_parse(const char *file, const char *dir, const void *text, size_t bytes,
	struct wb_kube_config *out, struct wb_err *err);

/** wb_kube_config_load - the same from a file, or from the first that exists of several, separated
 * by colons.  Blocks. */
int wb_kube_config_load(const char *paths, struct wb_kube_config *out, struct wb_err *err);

#define WB_KUBE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

/**
 * wb_kube_config_in_cluster - configuration from what Kubernetes gives to a pod
 * @host, @port:	KUBERNETES_SERVICE_HOST and _PORT; NULL or "" is refused
 * @dir:		WB_KUBE_ACCOUNT_DIR, or another for tests
 * Returns 0, -ENOENT with a sentence when this is no pod, -ENOMEM.  Blocks (reads the namespace).
 */
int wb_kube_config_in_cluster(const char *host, const char *port, const char *dir,
	struct wb_kube_config *out, struct wb_err *err);

/** wb_kube_config_finish - free; secrets are overwritten first. */
void wb_kube_config_finish(struct wb_kube_config *c);

/** wb_kube_read_file - read a small file as a string without white space at its end (@out is owned
 * and secret).  0, -errno, -E2BIG above 64 KiB, -EINVAL when it holds a control character.
 * Blocks. */
int wb_kube_read_file(const char *path, char **out);
/** wb_kube_read_pem - the same with line breaks kept: certificates. */
int wb_kube_read_pem(const char *path, char **out);
/** wb_kube_scrub - overwrite and free a string.  NULL is allowed. */
void wb_kube_scrub(char *s);

#endif
