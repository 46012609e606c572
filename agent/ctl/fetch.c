/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/fetch.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct {
	const char *addr, *file, *object; /* NULL = none */
} token;

static long patience_ms = 30000;

void wb__ctl_patience(long ms)
{
	patience_ms = ms;
}

void wb__ctl_show_token(const char *addr, const char *file, const char *object)
{
	token.addr = addr;
	token.file = file;
	token.object = object;
}

static size_t on_data(char *data, size_t size, size_t n, void *cookie)
{
	struct wb_buf *out = cookie;

	wb_buf_put(out, data, size * n);
	return out->rc ? 0 : size * n; /* 0 ends the transfer */
}

static int make_url(
	CURL *c, const char *addr, const char *path, const char *object, char *out, size_t bytes)
{
	char *text = object ? curl_easy_escape(c, object, 0) : NULL;
	int n;

	if (object && !text)
		return -ENOMEM;
	n = snprintf(out, bytes, "http://%s%s%s%s", addr[0] == '/' ? "localhost" : addr, path,
		text ? "?object=" : "", text ? text : "");
	curl_free(text);
	return n < 0 || (size_t)n >= bytes ? -ENAMETOOLONG : 0;
}

/* The path of a unix socket needs no port.  For other addresses without one, curl would use that of
 * web servers. */
static bool has_port(const char *addr)
{
	const char *colon = strrchr(addr, ':'), *end = strrchr(addr, ']');

	return addr[0] == '/' || (colon && colon[1] && (!end || colon > end));
}

static int translate(CURLcode code, const char *addr, const struct wb_buf *out, struct wb_err *err)
{
	if (out->rc == -E2BIG)
		return wb_err_set(
			err, -E2BIG, "%s: the page is larger than %zu bytes", addr, out->max);
	switch (code) {
	case CURLE_COULDNT_CONNECT:
		return wb_err_set(err, -ECONNREFUSED,
			"nobody answers at %s: is the daemon running there, and started with "
			"--http? --operator or --agent says where else",
			addr);
	case CURLE_OPERATION_TIMEDOUT:
		return wb_err_set(err, -ETIMEDOUT, "%s does not answer", addr);
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_URL_MALFORMAT:
		return wb_err_set(
			err, -EINVAL, "'%s' is not a HOST:PORT that can be reached", addr);
	case CURLE_OUT_OF_MEMORY:
		return wb_err_set(err, -ENOMEM, "out of memory");
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return wb_err_set(err, -EIO, "%s speaks no HTTP: is it the --http address?", addr);
	default:
		return wb_err_set(err, -EIO, "%s: %s", addr, curl_easy_strerror(code));
	}
}

static int judge(CURL *c, const char *addr, const char *path, const char *object,
	struct wb_buf *page, struct wb_err *err)
{
	long status = 0;
	int n;

	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return 0;
	if (status == 404 && (!strcmp(path, "/objects") || !strncmp(path, "/digest", 7)))
		return wb_err_set(err, -ENOENT, "%s has no %s: is it an %s?", addr, path + 1,
			path[1] == 'o' ? "operator" : "agent");
	if (status == 404 && !strncmp(path, "/bench?", 7))
		return wb_err_set(err, -ENOENT,
			"%s has no /bench: it is no agent, or one of an older version", addr);
	if (status == 404)
		return wb__ctl_missing(addr, path, object, err);
	/* Our pages say why in their first line; what was asked in particular may be a ticket. */
	n = (int)strcspn(wb_buf_cstr(page), "\r\n<");
	return wb_err_set(err,
		status == 401   ? -EACCES
		: status == 409 ? -EBUSY
				: -EIO,
		"%s answers %ld for %.*s%s%.*s", addr, status, (int)strcspn(path, "?"), path,
		n ? ": " : "", WB_MIN(n, 500), wb_buf_cstr(page));
}

/* Pages of agents take no token of an object, and an agent is anybody's pod. */
static bool takes_token(const char *addr)
{
	return token.file && !strcmp(addr, token.addr);
}

/* The token also goes to where a standby redirects us: that is where the leader is. */
static int put_token(CURL *c, const char *addr, struct wb_err *err)
{
	char text[16384];
	FILE *f = takes_token(addr) ? fopen(token.file, "re") : NULL;
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	if (!takes_token(addr))
		return 0;
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (!text[0])
		return wb_err_set(
			err, -ENOENT, "--token-file %s: there is no token in it", token.file);
	curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
	curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, text);
	curl_easy_setopt(c, CURLOPT_UNRESTRICTED_AUTH, 1L);
	explicit_bzero(text, sizeof(text));
	return 0;
}

static int get(CURL *c, const char *addr, const char *url, struct wb_buf *out)
{
	curl_easy_setopt(c, CURLOPT_URL, url);
	if (addr[0] == '/')
		curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, addr);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http");
	/* A standby redirects us to the leader. */
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(c, CURLOPT_MAXREDIRS, 2L);
	curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, WB_MIN(patience_ms, 5000L));
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, patience_ms);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, out);
	return (int)curl_easy_perform(c);
}

int wb__ctl_fetch(const char *addr, const char *path, const char *object, struct wb_buf *out,
	struct wb_err *err)
{
	CURL *c = curl_easy_init();
	char url[1024];
	int rc;

	if (!c)
		return wb_err_set(err, -ENOMEM, "out of memory");
	if (!has_port(addr)) {
		curl_easy_cleanup(c);
		return wb_err_set(err, -EINVAL,
			"'%s' has no port: give HOST:PORT, as the daemon was told by --http", addr);
	}
	if (takes_token(addr) && !object)
		object = token.object; /* a token is for one object */
	rc = make_url(c, addr, path, object, url, sizeof(url));
	if (rc < 0)
		wb_err_set(err, rc, "the address or object is too long");
	else
		rc = put_token(c, addr, err);
	if (rc == 0) {
		CURLcode code = (CURLcode)get(c, addr, url, out);

		rc = code ? translate(code, addr, out, err)
			  : judge(c, addr, path, object, out, err);
	}
	curl_easy_cleanup(c);
	return rc;
}

int wb__ctl_check_tls(const char *addr, const char *ca_file, struct wb_err *err)
{
	char url[512], why[CURL_ERROR_SIZE] = "";
	CURL *c = curl_easy_init();
	CURLcode code;

	if (!c)
		return wb_err_set(err, -ENOMEM, "out of memory");
	snprintf(url, sizeof(url), "https://%.400s", addr);
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_CONNECT_ONLY, 1L); /* TLS alone: the port speaks no HTTP */
	curl_easy_setopt(c, CURLOPT_CAINFO, ca_file);
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 10L);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
	code = curl_easy_perform(c);
	curl_easy_cleanup(c);
	return code ? wb_err_set(err, -EPROTO, "TLS with %s: %s", addr,
			      *why ? why : curl_easy_strerror(code))
		    : 0;
}

int wb__ctl_fetch_json(
	const char *addr, const char *path, const char *object, json_t **out, struct wb_err *err)
{
	struct wb_buf b;
	json_error_t why;
	int rc;

	wb_buf_init(&b, 64u << 20);
	b.is_secret = strchr(path, '?') != NULL; /* it may have a ticket and a key */
	rc = wb__ctl_fetch(addr, path, object, &b, err);
	if (rc == 0) {
		*out = json_loadb((const char *)b.data, b.len, JSON_REJECT_DUPLICATES, &why);
		if (!*out)
			rc = wb_err_set(err, -EBADMSG, "%s%.*s is not JSON: %s", addr,
				(int)strcspn(path, "?"), path, why.text); /* no ticket */
	}
	wb_buf_finish(&b);
	return rc;
}
