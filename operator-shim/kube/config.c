/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/config.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/spec/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX 65536

void wb_kube_scrub(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	wb_free(s);
}

static void finish_pem(struct wb_kube_pem *p)
{
	if (p->data)
		explicit_bzero(p->data, p->bytes);
	wb_free(p->data);
	wb_free(p->file);
}

void wb_kube_config_finish(struct wb_kube_config *c)
{
	wb_free(c->server);
	wb_free(c->tls_server_name);
	wb_free(c->proxy_url);
	wb_free(c->namespace_);
	finish_pem(&c->ca);
	finish_pem(&c->cert);
	finish_pem(&c->key);
	wb_kube_scrub(c->token);
	wb_free(c->token_file);
	memset(c, 0, sizeof(*c));
}

/* ---- files ---- */

static int read_all(const char *path, size_t max, char **out, size_t *bytes)
{
	uint8_t *data;
	int rc = wb_file_read(path, max, &data, bytes);

	if (rc == 0)
		*out = (char *)data;
	return rc;
}

int wb_kube_read_file(const char *path, char **out)
{
	char *s = NULL;
	size_t n = 0;
	int rc = read_all(path, FILE_MAX, &s, &n);

	if (rc < 0)
		return rc;
	while (n && strchr(" \t\r\n", s[n - 1]))
		s[--n] = '\0';
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < ' ' || s[i] == 127)
			rc = -EINVAL;
	if (rc < 0)
		wb_kube_scrub(s);
	else
		*out = s;
	return rc;
}

int wb_kube_read_pem(const char *path, char **out)
{
	size_t n = 0;

	return read_all(path, FILE_MAX, out, &n);
}

/* ---- kubeconfig ---- */

struct parser {
	const char *file, *dir;
	struct wb_err *err;
};

/* Copy the scalar under @key to *@out (owned).  When it is absent, null or empty, *@out stays. */
static int get_text(
	const struct parser *p, const struct wb_yaml_node *n, const char *key, char **out)
{
	const struct wb_yaml_node *v = wb_yaml_get(n, key);

	if (!v || wb_yaml_is_null(v))
		return 0;
	if (v->kind != WB_YAML_SCALAR)
		return wb_err_set(
			p->err, -EINVAL, "%s:%u: %s must be a word", p->file, v->line, key);
	for (const char *c = v->text; *c; c++)
		if ((unsigned char)*c < ' ' && *c != '\n' && *c != '\r')
			return wb_err_set(p->err, -EINVAL, "%s:%u: %s holds a control character",
				p->file, v->line, key);
	if (!*v->text)
		return 0;
	*out = wb_strdup(v->text);
	return *out ? 0 : wb_err_set(p->err, -ENOMEM, "%s: out of memory", p->file);
}

/* The same for a value that must be one line, for example since it goes into a header or a URL. */
static int get_line(
	const struct parser *p, const struct wb_yaml_node *n, const char *key, char **out)
{
	int rc = get_text(p, n, key, out);

	if (rc == 0 && *out && strpbrk(*out, "\r\n"))
		return wb_err_set(p->err, -EINVAL, "%s: %s is more than one line", p->file, key);
	return rc;
}

static int get_path(
	const struct parser *p, const struct wb_yaml_node *n, const char *key, char **out)
{
	struct wb_buf b;
	size_t len;
	int rc = get_line(p, n, key, out);

	if (rc < 0 || !*out || **out == '/' || !*p->dir)
		return rc;
	wb_buf_init(&b, 8192);
	wb_buf_printf(&b, "%s/%s", p->dir, *out);
	wb_buf_u8(&b, 0);
	wb_free(*out);
	*out = NULL;
	rc = wb_buf_take(&b, (uint8_t **)out, &len);
	return rc < 0 ? wb_err_set(p->err, rc, "%s: %s is too long", p->file, key) : 0;
}

/* The value of KEY is a path; that of KEY-data is the content itself, in base64. */
static int get_pem(const struct parser *p, const struct wb_yaml_node *n, const char *key,
	struct wb_kube_pem *out)
{
	char name[64], *text = NULL;
	int rc;

	snprintf(name, sizeof(name), "%s-data", key);
	rc = get_text(p, n, name, &text);
	if (rc == 0 && text) {
		rc = wb_kube_base64(text, &out->data, &out->bytes);
		if (rc < 0)
			wb_err_set(p->err, rc, "%s: %s is not base64", p->file, name);
	} else if (rc == 0) {
		rc = get_path(p, n, key, &out->file);
	}
	wb_kube_scrub(text);
	return rc;
}

/* Find entry @name of list @list ("clusters"), and in it the map @what ("cluster"); *@out NULL =
 * the entry has no such map. */
static int find_entry(const struct parser *p, const struct wb_yaml_node *root, const char *list,
	const char *what, const char *name, const struct wb_yaml_node **out)
{
	const struct wb_yaml_node *l = wb_yaml_get(root, list);

	for (uint32_t i = 0; l && l->kind == WB_YAML_LIST && i < l->n; i++) {
		const struct wb_yaml_node *e = l->child[i].value, *k = wb_yaml_get(e, "name");

		if (!k || k->kind != WB_YAML_SCALAR || strcmp(k->text, name) != 0)
			continue;
		*out = wb_yaml_get(e, what);
		if (*out && (*out)->kind == WB_YAML_MAP)
			return 0;
		if (!*out || wb_yaml_is_null(*out)) {
			*out = NULL; /* a user without a map has no credentials */
			return 0;
		}
		return wb_err_set(p->err, -EINVAL, "%s:%u: %s %.100s is not a map", p->file,
			e->line, what, name);
	}
	return wb_err_set(p->err, -EINVAL, "%s: no %s named %.100s", p->file, what, name);
}

static int get_cluster(
	const struct parser *p, const struct wb_yaml_node *c, struct wb_kube_config *out)
{
	const struct wb_yaml_node *v = wb_yaml_get(c, "insecure-skip-tls-verify");
	int rc = get_line(p, c, "server", &out->server);

	if (rc == 0)
		rc = get_line(p, c, "tls-server-name", &out->tls_server_name);
	if (rc == 0)
		rc = get_line(p, c, "proxy-url", &out->proxy_url);
	if (rc == 0)
		rc = get_pem(p, c, "certificate-authority", &out->ca);
	if (rc < 0)
		return rc;
	out->is_insecure = v && v->kind == WB_YAML_SCALAR && !strcmp(v->text, "true");
	if (!out->server)
		return wb_err_set(p->err, -EINVAL, "%s: the cluster has no server", p->file);
	for (size_t n = strlen(out->server); n && out->server[n - 1] == '/'; n--)
		out->server[n - 1] = '\0';
	if (strncmp(out->server, "https://", 8) != 0 || out->server[8] == '/')
		return wb_err_set(p->err, -EINVAL,
			"%s: server must begin with https:// and the name of a host", p->file);
	return 0;
}

static int get_user(const struct parser *p, const struct wb_yaml_node *u, const char *name,
	struct wb_kube_config *out)
{
	static const struct {
		const char *key, *instead;
	} refused[] = {
		{"exec", "a program"},
		{"auth-provider", "an auth-provider"},
		{"username", "a password"},
		{"password", "a password"},
	};
	int rc;

	for (size_t i = 0; i < WB_ARRAY_SIZE(refused); i++)
		if (wb_yaml_get(u, refused[i].key))
			return wb_err_set(p->err, -EOPNOTSUPP,
				"%s: user %.100s logs in by %s (%s), which is not supported: use a "
				"client certificate, a token or a tokenFile",
				p->file, name, refused[i].instead, refused[i].key);
	rc = get_pem(p, u, "client-certificate", &out->cert);
	if (rc == 0)
		rc = get_pem(p, u, "client-key", &out->key);
	if (rc == 0)
		rc = get_line(p, u, "token", &out->token);
	if (rc == 0)
		rc = get_path(p, u, "tokenFile", &out->token_file);
	if (rc < 0)
		return rc;
	if ((out->cert.file || out->cert.data) != (out->key.file || out->key.data))
		return wb_err_set(p->err, -EINVAL,
			"%s: user %.100s needs client-certificate and client-key together", p->file,
			name);
	return 0;
}

static int get_context(
	const struct parser *p, const struct wb_yaml_node *root, struct wb_kube_config *out)
{
	const struct wb_yaml_node *context = NULL, *cluster = NULL, *user = NULL;
	char *name = NULL, *cluster_name = NULL, *user_name = NULL;
	int rc = get_line(p, root, "current-context", &name);

	if (rc == 0 && !name)
		rc = wb_err_set(p->err, -EINVAL, "%s: no current-context", p->file);
	if (rc == 0)
		rc = find_entry(p, root, "contexts", "context", name, &context);
	if (rc == 0)
		rc = get_line(p, context, "cluster", &cluster_name);
	if (rc == 0)
		rc = get_line(p, context, "user", &user_name);
	if (rc == 0)
		rc = get_line(p, context, "namespace", &out->namespace_);
	if (rc == 0 && !cluster_name)
		rc = wb_err_set(
			p->err, -EINVAL, "%s: context %.100s names no cluster", p->file, name);
	if (rc == 0)
		rc = find_entry(p, root, "clusters", "cluster", cluster_name, &cluster);
	if (rc == 0)
		rc = get_cluster(p, cluster, out);
	if (rc == 0 && user_name)
		rc = find_entry(p, root, "users", "user", user_name, &user);
	if (rc == 0 && user)
		rc = get_user(p, user, user_name, out);
	wb_free(name);
	wb_free(cluster_name);
	wb_free(user_name);
	return rc;
}

int wb_kube_config_parse(const char *file, const char *dir, const void *text, size_t bytes,
	struct wb_kube_config *out, struct wb_err *err)
{
	struct parser p = {file, dir, err};
	struct wb_yaml_node **doc = NULL;
	size_t n = 0;
	int rc = wb_yaml_read(file, text, bytes, &doc, &n, err);

	memset(out, 0, sizeof(*out));
	if (rc < 0)
		return rc;
	if (n != 1 || doc[0]->kind != WB_YAML_MAP)
		rc = wb_err_set(err, -EINVAL, "%s: not a kubeconfig", file);
	else
		rc = get_context(&p, doc[0], out);
	wb_yaml_free(doc, n);
	if (rc < 0)
		wb_kube_config_finish(out);
	return rc;
}

static int load_one(const char *path, struct wb_kube_config *out, struct wb_err *err)
{
	const char *slash = strrchr(path, '/');
	char *text = NULL, *dir;
	size_t bytes = 0;
	int rc = read_all(path, WB_YAML_BYTES_MAX, &text, &bytes);

	memset(out, 0, sizeof(*out));
	if (rc < 0)
		return wb_err_set(err, rc, "kubeconfig %s: %s", path, strerror(-rc));
	dir = slash ? wb_strndup(path, (size_t)(slash - path)) : wb_strdup("");
	rc = dir ? wb_kube_config_parse(path, dir, text, bytes, out, err)
		 : wb_err_set(err, -ENOMEM, "out of memory");
	explicit_bzero(text, bytes);
	wb_free(text);
	wb_free(dir);
	return rc;
}

/* @paths has the form of $KUBECONFIG: files, separated by colons.  Only the first file that exists
 * is read; files are not merged. */
int wb_kube_config_load(const char *paths, struct wb_kube_config *out, struct wb_err *err)
{
	const char *at = paths;
	int rc = -ENOENT;

	memset(out, 0, sizeof(*out));
	while (rc == -ENOENT) {
		size_t n = strcspn(at, ":");
		char *path = n ? wb_strndup(at, n) : NULL;

		if (n && !path)
			return wb_err_set(err, -ENOMEM, "out of memory");
		if (path)
			rc = load_one(path, out, err);
		wb_free(path);
		if (!at[n])
			break;
		at += n + 1;
	}
	if (rc == -ENOENT && strchr(paths, ':'))
		return wb_err_set(err, rc, "kubeconfig: none of %s is there", paths);
	return rc;
}

/* ---- a pod's service account ---- */

static char *print(const char *a, const char *b, const char *c, const char *d)
{
	struct wb_buf buf;
	uint8_t *out = NULL;
	size_t n;

	wb_buf_init(&buf, 4096);
	wb_buf_printf(&buf, "%s%s%s%s", a, b, c, d);
	wb_buf_u8(&buf, 0);
	wb_buf_take(&buf, &out, &n);
	return (char *)out;
}

int wb_kube_config_in_cluster(const char *host, const char *port, const char *dir,
	struct wb_kube_config *out, struct wb_err *err)
{
	char *file = print(dir, "/namespace", "", ""), *bracketed;
	bool is_v6 = host && strchr(host, ':');
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (!host || !*host || !port || !*port) {
		wb_free(file);
		return wb_err_set(err, -ENOENT,
			"this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are "
			"not "
			"set");
	}
	bracketed = print(is_v6 ? "[" : "", host, is_v6 ? "]" : "", "");
	out->server = bracketed ? print("https://", bracketed, ":", port) : NULL;
	out->ca.file = print(dir, "/ca.crt", "", "");
	out->token_file = print(dir, "/token", "", "");
	out->is_in_cluster = true;
	if (!file || !out->server || !out->ca.file || !out->token_file)
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	else if (access(out->token_file, R_OK) < 0)
		rc = wb_err_set(err, -ENOENT, "%s: %s: is a service account token mounted?",
			out->token_file, strerror(errno));
	if (rc == 0)
		wb_kube_read_file(file, &out->namespace_);
	wb_free(bracketed);
	wb_free(file);
	if (rc < 0)
		wb_kube_config_finish(out);
	return rc;
}
