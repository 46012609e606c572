/* SPDX-License-Identifier: Apache-2.0 */
/* Sets libcurl's options for each request, and runs libcurl's sockets and timer on the loop. */
#include "base/base.h"
#include "base/log.h"
#include "base/mem.h"
#include "operator-shim/kube/internal.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define MOD "kube"
#define TOKEN_AGE_NS (60 * WB_NS_PER_S)
#define CA_AGE_S 60L

struct wb__kube_socket {
	struct wb__kube_socket *next;
	struct wb_kube *k;
	curl_socket_t fd;
	struct wb_watch *watch;
};

/* ---- the loop ---- */

static void turn(struct wb_kube *k, curl_socket_t fd, int what)
{
	int running;

	k->in_curl = true;
	curl_multi_socket_action(k->multi, fd, what, &running);
	k->in_curl = false;
	wb__kube_reap(k);
}

static void on_socket(void *cookie, int events)
{
	struct wb__kube_socket *s = cookie;
	int what = (events & WB_READABLE ? CURL_CSELECT_IN : 0) |
		   (events & WB_WRITABLE ? CURL_CSELECT_OUT : 0);

	turn(s->k, s->fd, what);
}

static void on_timer(void *cookie)
{
	turn(cookie, CURL_SOCKET_TIMEOUT, 0);
}

static void drop_socket(struct wb__kube_socket *s)
{
	struct wb__kube_socket **at;

	for (at = &s->k->socket; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	wb_watch_destroy(s->watch);
	wb_free(s);
}

static int add_socket(struct wb_kube *k, curl_socket_t fd, int events)
{
	struct wb__kube_socket *s = wb_zalloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -1;
	s->k = k;
	s->fd = fd;
	rc = wb_watch_create(k->loop, fd, events, on_socket, s, &s->watch);
	if (rc < 0) {
		wb_free(s);
		return -1;
	}
	s->next = k->socket;
	k->socket = s;
	curl_multi_assign(k->multi, fd, s);
	return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *cookie, void *of_socket)
{
	struct wb__kube_socket *s = of_socket;
	struct wb_kube *k = cookie;
	int events = (what != CURL_POLL_OUT ? WB_READABLE : 0) |
		     (what != CURL_POLL_IN ? WB_WRITABLE : 0);

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (s)
			drop_socket(s);
		return 0;
	}
	if (!s)
		return add_socket(k, fd, events);
	wb_watch_set(s->watch, events);
	return 0;
}

static int want_timer(CURLM *multi, long ms, void *cookie)
{
	struct wb_kube *k = cookie;

	(void)multi;
	if (ms < 0)
		wb_timer_stop(k->timer);
	else
		wb_timer_start(k->timer, (uint64_t)ms * WB_NS_PER_MS, 0);
	return 0;
}

int wb__kube_curl_open(struct wb_kube *k)
{
	int rc;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	k->multi = curl_multi_init();
	if (!k->multi)
		return -ENOMEM;
	rc = wb_timer_create(k->loop, on_timer, k, &k->timer);
	curl_multi_setopt(k->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
	curl_multi_setopt(k->multi, CURLMOPT_SOCKETDATA, k);
	curl_multi_setopt(k->multi, CURLMOPT_TIMERFUNCTION, want_timer);
	curl_multi_setopt(k->multi, CURLMOPT_TIMERDATA, k);
	curl_multi_setopt(k->multi, CURLMOPT_MAXCONNECTS, 16L);
	return rc;
}

void wb__kube_curl_close(struct wb_kube *k)
{
	if (k->multi)
		curl_multi_cleanup(k->multi);
	while (k->socket)
		drop_socket(k->socket);
	wb_timer_destroy(k->timer);
}

/* ---- the token ---- */

static bool is_changed(const struct stat *a, const struct stat *b)
{
	return a->st_ino != b->st_ino || a->st_dev != b->st_dev || a->st_size != b->st_size ||
	       a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

bool wb__kube_read_token(struct wb_kube *k, bool must)
{
	uint64_t now = wb_now_ns(&wb_clock_real);
	char *token = NULL;
	struct stat st;
	int rc;

	if (!k->config.token_file)
		return false;
	/* The file is opened by its path each time: the kubelet replaces a symbolic link, so an
	 * open descriptor would show the old token. */
	if (stat(k->config.token_file, &st) < 0)
		return k->token != NULL;
	if (!must && k->token && !is_changed(&st, &k->token_stat) &&
		now - k->token_read_ns < TOKEN_AGE_NS)
		return true;
	rc = wb_kube_read_file(k->config.token_file, &token);
	k->stats.token_reads++;
	if (rc < 0 || !*token) {
		wb_kube_scrub(token);
		WB_LOG_ERR(MOD, "token not read, the old one stays",
			WB_S("file", k->config.token_file),
			WB_S("why", rc < 0 ? wb_strerror(rc) : "it is empty"));
		return k->token != NULL;
	}
	wb_kube_scrub(k->token);
	k->token = token;
	k->token_stat = st;
	k->token_read_ns = now;
	return true;
}

static int set_headers(struct wb_kube_rq *rq)
{
	struct wb_kube *k = rq->k;
	const char *token = wb__kube_read_token(k, false) ? k->token : k->config.token;
	struct curl_slist *list = NULL, *next = NULL;
	char type[80];

	list = curl_slist_append(NULL, "Accept: application/json");
	if (list && rq->send_text) {
		snprintf(type, sizeof(type), "Content-Type: %s",
			rq->call.content_type ? rq->call.content_type : "application/json");
		next = curl_slist_append(list, type);
		if (!next)
			goto fail;
		next = curl_slist_append(list, "Expect:");
		if (!next)
			goto fail;
	}
	rq->headers = list;
	if (!list)
		return -ENOMEM;
	curl_easy_setopt(rq->easy, CURLOPT_HTTPHEADER, list);
	if (token) {
		curl_easy_setopt(rq->easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		curl_easy_setopt(rq->easy, CURLOPT_XOAUTH2_BEARER, token);
	}
	return 0;
fail:
	curl_slist_free_all(list);
	return -ENOMEM;
}

/* ---- one request ---- */

static size_t on_body(char *bytes, size_t one, size_t n, void *cookie)
{
	struct wb_kube_rq *rq = cookie;
	long status = 0;

	(void)one;
	if (rq->is_cancelled)
		return n; /* ignored until wb__kube_reap() frees the request */
	curl_easy_getinfo(rq->easy, CURLINFO_RESPONSE_CODE, &status);
	if (rq->call.on_chunk && status >= 200 && status <= 299) {
		rq->chunk_rc = rq->call.on_chunk(rq->call.cookie, bytes, n);
		return rq->chunk_rc < 0 ? 0 : n;
	}
	wb_buf_put(&rq->body, bytes, n);
	rq->is_too_big = rq->body.rc == -E2BIG;
	return rq->body.rc < 0 ? 0 : n;
}

/* To find half-open connections, the kernel sends a probe after 30 s without traffic
 * (set_deadlines()), and ends a connection whose bytes are not acknowledged for 60 s. */
static int on_new_socket(void *cookie, curl_socket_t fd, curlsocktype purpose)
{
	unsigned ms = 60000;

	(void)cookie;
	(void)purpose;
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	return CURL_SOCKOPT_OK;
}

static void set_pem(CURL *e, const struct wb_kube_pem *p, CURLoption file, CURLoption blob)
{
	struct curl_blob b = {p->data, p->bytes, CURL_BLOB_COPY};

	if (p->data)
		curl_easy_setopt(e, blob, &b);
	else if (p->file)
		curl_easy_setopt(e, file, p->file);
}

static void set_tls(CURL *e, const struct wb_kube_config *c)
{
	set_pem(e, &c->ca, CURLOPT_CAINFO, CURLOPT_CAINFO_BLOB);
	set_pem(e, &c->cert, CURLOPT_SSLCERT, CURLOPT_SSLCERT_BLOB);
	set_pem(e, &c->key, CURLOPT_SSLKEY, CURLOPT_SSLKEY_BLOB);
	/* So a new authority is seen after a minute; libcurl's default is a day. */
	curl_easy_setopt(e, CURLOPT_CA_CACHE_TIMEOUT, CA_AGE_S);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, c->is_insecure ? 0L : 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, c->is_insecure ? 0L : 2L);
	curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
}

static long ms_of(uint64_t ns)
{
	return (long)((ns + WB_NS_PER_MS - 1) / WB_NS_PER_MS);
}

static void set_deadlines(CURL *e, const struct wb_kube_rq *rq)
{
	const struct wb_kube_opts *o = &rq->k->o;

	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, ms_of(o->connect_ns));
	curl_easy_setopt(
		e, CURLOPT_TIMEOUT_MS, ms_of(rq->call.total_ns ? rq->call.total_ns : o->call_ns));
	if (rq->call.idle_ns) {
		curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
		curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME,
			(long)WB_MAX(rq->call.idle_ns / WB_NS_PER_S, 1u));
	}
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, 30L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, 10L);
	curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
}

/* When the certificate is for another name than the server's address (tls-server-name), the URL
 * gets that name, and CONNECT_TO gets the address. */
static int set_other_name(const struct wb_kube_rq *rq, CURLU *u, struct curl_slist **to)
{
	char *host = NULL, *port = NULL, text[600];
	int rc = -ENOMEM;

	if (!curl_url_get(u, CURLUPART_HOST, &host, 0) &&
		!curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
		!curl_url_set(u, CURLUPART_HOST, rq->k->config.tls_server_name, 0)) {
		snprintf(text, sizeof(text), "::%s:%s", host, port);
		*to = curl_slist_append(NULL, text);
		rc = *to ? 0 : -ENOMEM;
	}
	curl_free(host);
	curl_free(port);
	return rc;
}

static int set_url(CURL *e, struct wb_kube_rq *rq)
{
	const struct wb_kube_config *c = &rq->k->config;
	CURLU *u = curl_url();
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, 65536);
	wb_buf_printf(&b, "%s%s", c->server, rq->path);
	rc = u ? b.rc : -ENOMEM;
	if (rc == 0 && curl_url_set(u, CURLUPART_URL, wb_buf_cstr(&b), 0))
		rc = -EINVAL;
	if (rc == 0 && c->tls_server_name)
		rc = set_other_name(rq, u, &rq->connect_to);
	if (rc == 0 && curl_easy_setopt(e, CURLOPT_CURLU, u) != CURLE_OK)
		rc = -ENOMEM;
	if (rq->connect_to)
		curl_easy_setopt(e, CURLOPT_CONNECT_TO, rq->connect_to);
	rq->url = u;
	wb_buf_finish(&b);
	return rc;
}

static void set_proxy(CURL *e, const struct wb_kube_config *c)
{
	if (c->proxy_url)
		curl_easy_setopt(e, CURLOPT_PROXY, c->proxy_url);
	if (c->is_in_cluster)
		curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
}

static void set_method(CURL *e, const struct wb_kube_rq *rq)
{
	if (rq->send_text) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, rq->send_text);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(rq->send_text));
	}
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, rq->call.method);
}

int wb__kube_curl_start(struct wb_kube_rq *rq)
{
	CURL *e = curl_easy_init();
	int rc;

	if (!e)
		return -ENOMEM;
	rq->easy = e;
	rq->error[0] = '\0';
	curl_easy_setopt(e, CURLOPT_PRIVATE, (void *)rq);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, rq->error);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "weightbridge-operator/" WB_VERSION);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "https");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, rq);
	set_deadlines(e, rq);
	set_tls(e, &rq->k->config);
	set_proxy(e, &rq->k->config);
	set_method(e, rq);
	rc = set_url(e, rq);
	if (rc == 0)
		rc = set_headers(rq);
	if (rc == 0 && curl_multi_add_handle(rq->k->multi, e) != CURLM_OK)
		rc = -ENOMEM;
	if (rc < 0)
		wb__kube_curl_end(rq);
	return rc;
}

void wb__kube_curl_end(struct wb_kube_rq *rq)
{
	if (rq->easy)
		curl_easy_cleanup(rq->easy);
	curl_slist_free_all(rq->headers);
	curl_slist_free_all(rq->connect_to);
	if (rq->url)
		curl_url_cleanup(rq->url);
	rq->easy = NULL;
	rq->headers = rq->connect_to = NULL;
	rq->url = NULL;
}
