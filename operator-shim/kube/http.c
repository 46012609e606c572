/* SPDX-License-Identifier: Apache-2.0 */
/* The life of requests, from the queue to the callback.  curl.c sets libcurl's options. */
#include "operator-shim/kube/internal.h"

#include "base/base.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/psk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "kube"

uint64_t wb_kube_random(void)
{
	uint64_t v = 0;

	if (wb_random_bytes(&v, sizeof(v)) < 0)
		v = wb_now_ns(&wb_clock_real);
	return v;
}

static void free_request(struct wb_kube_rq *rq)
{
	wb__kube_curl_end(rq);
	wb_buf_finish(&rq->body);
	wb_free_wiped(rq->send_text); /* allocated by jansson */
	wb_free(rq->path);
	wb_free(rq);
}

static void unlink_request(struct wb_kube_rq *rq)
{
	struct wb_kube_rq **at;

	for (at = &rq->k->list; *at != rq; at = &(*at)->next)
		;
	*at = rq->next;
}

/* ---- the answer ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void judge(struct wb_kube_rq *rq, CURLcode rc, struct wb_kube_reply *r)
{
	const char *why = text_of(r->body, "message");
	char path[200];

	snprintf(path, sizeof(path), "%s %.*s", rq->call.method, (int)strcspn(rq->path, "?"),
		rq->path);
	if (rq->chunk_rc < 0)
		wb_err_set(&r->err, rq->chunk_rc, "%s: ended here", path);
	else if (rq->is_too_big)
		wb_err_set(&r->err, -E2BIG, "%s: the answer is longer than %zu bytes", path,
			rq->body.max);
	else if (rc != CURLE_OK)
		wb_err_set(&r->err, rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -ECONNRESET,
			"%s: %s", path, rq->error[0] ? rq->error : curl_easy_strerror(rc));
	else if (r->status < 200 || r->status > 299)
		wb_err_set(&r->err,
			r->status == 403   ? -EACCES
			: r->status == 404 ? -ENOENT
			: r->status == 409 ? -EEXIST
					   : -EREMOTEIO,
			"%s: %ld %s", path, r->status, why);
	if (r->status == 403)
		WB_LOG_ERR(MOD, "not allowed: a rule is missing in the operator's role",
			WB_S("request", path), WB_S("why", why));
}

static void finish_request(struct wb_kube_rq *rq, CURLcode rc)
{
	struct wb_kube *k = rq->k;
	struct wb_kube_reply r = {.reason = ""};
	curl_off_t after = 0;

	curl_easy_getinfo(rq->easy, CURLINFO_RESPONSE_CODE, &r.status);
	curl_easy_getinfo(rq->easy, CURLINFO_RETRY_AFTER, &after);
	curl_multi_remove_handle(k->multi, rq->easy);
	if (r.status == 401 && !rq->is_second && wb__kube_read_token(k, true)) {
		rq->is_second = true;
		rq->is_running = false;
		wb__kube_curl_end(rq);
		wb_buf_reset(&rq->body);
		wb__kube_pump(k);
		return;
	}
	r.retry_after_ns = after > 0 ? (uint64_t)after * WB_NS_PER_S : 0;
	if (rq->body.len)
		r.body = json_loadb(
			(char *)rq->body.data, rq->body.len, JSON_REJECT_DUPLICATES, NULL);
	judge(rq, rc, &r);
	if (r.err.code == 0 && rq->body.len && !json_is_object(r.body))
		wb_err_set(&r.err, -EPROTO, "%s %.100s: the answer is not JSON", rq->call.method,
			rq->path);
	r.reason = text_of(r.body, "reason");
	if (r.err.code == 0)
		k->stats.last_ok_ns = wb_now_ns(&wb_clock_real);
	else
		k->stats.failures++;
	unlink_request(rq);
	k->n_running--;
	rq->call.done(rq->call.cookie, &r);
	json_decref(r.body);
	free_request(rq);
	if (k->list && !wb_timer_is_running(k->pump))
		wb_timer_start(k->pump, 0, 0);
}

void wb__kube_reap(struct wb_kube *k)
{
	CURLMsg *m;
	int left;

	for (struct wb_kube_rq **at = &k->list, *rq; (rq = *at);) {
		if (!rq->is_cancelled) {
			at = &rq->next;
			continue;
		}
		*at = rq->next;
		if (rq->is_running)
			curl_multi_remove_handle(k->multi, rq->easy);
		if (rq->is_running || rq->is_second)
			k->n_running--; /* one that waits for its second try counts too */
		free_request(rq);
	}
	while ((m = curl_multi_info_read(k->multi, &left))) {
		char *rq = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &rq);
		finish_request((void *)rq, m->data.result);
	}
}

/* ---- the queue ---- */

static void refill(struct wb_kube *k, uint64_t now)
{
	double got = (double)(now - k->filled_ns) / 1e9 * k->o.per_s;

	k->tokens = WB_MIN(k->tokens + got, (double)k->o.burst);
	k->filled_ns = now;
}

/* The request could not start: on_pump() reports that later, from the loop. */
static void fail_later(struct wb_kube_rq *rq, int rc)
{
	rq->start_rc = rc;
	wb_timer_start(rq->k->pump, 0, 0);
}

void wb__kube_pump(struct wb_kube *k)
{
	refill(k, wb_now_ns(&wb_clock_real));
	for (struct wb_kube_rq *rq = k->list; rq; rq = rq->next) {
		int rc;

		if (rq->is_running || rq->is_cancelled || rq->start_rc < 0)
			continue;
		if (k->n_running >= k->o.in_flight && !rq->is_second)
			return; /* the end of a request starts the pump again */
		if (k->tokens < 1) {
			wb_timer_start(k->pump, WB_NS_PER_S / k->o.per_s + WB_NS_PER_MS, 0);
			return;
		}
		rc = wb__kube_curl_start(rq);
		if (rc < 0) {
			fail_later(rq, rc);
			continue;
		}
		k->tokens -= 1;
		k->stats.requests++;
		rq->is_running = true;
		k->n_running += !rq->is_second;
	}
}

static void on_pump(void *cookie)
{
	struct wb_kube *k = cookie;
	struct wb_kube_rq *rq;

	for (;;) {
		struct wb_kube_reply r = {.reason = ""};

		for (rq = k->list; rq && (rq->start_rc == 0 || rq->is_cancelled); rq = rq->next)
			;
		if (!rq)
			break;
		wb_err_set(&r.err, rq->start_rc, "%s %.100s: %s", rq->call.method, rq->path,
			wb_strerror(rq->start_rc));
		unlink_request(rq);
		k->n_running -= rq->is_second;
		rq->call.done(rq->call.cookie, &r);
		free_request(rq);
	}
	wb__kube_reap(k);
	wb__kube_pump(k);
}

int wb_kube_send(struct wb_kube *k, const struct wb_kube_call *c, struct wb_kube_rq **out)
{
	struct wb_kube_rq *rq = wb_zalloc(1, sizeof(*rq)), **at;

	assert(c->path[0] == '/');
	if (!rq)
		return -ENOMEM;
	rq->k = k;
	rq->call = *c;
	rq->call.body = NULL;
	rq->path = wb_strdup(c->path);
	rq->call.path = rq->path;
	wb_buf_init(&rq->body, c->body_max ? c->body_max : WB_KUBE_BODY_MAX);
	rq->body.is_secret = true; /* an answer may hold a secret */
	if (c->body)
		rq->send_text = json_dumps(c->body, JSON_COMPACT);
	if (!rq->path || (c->body && !rq->send_text)) {
		free_request(rq);
		return -ENOMEM;
	}
	for (at = &k->list; *at; at = &(*at)->next)
		;
	*at = rq;
	if (out)
		*out = rq;
	/* Start it from the loop, so that no callback is called from inside this function. */
	wb_timer_start(k->pump, 0, 0);
	return 0;
}

void wb_kube_cancel(struct wb_kube_rq *rq)
{
	if (!rq || rq->is_cancelled)
		return;
	rq->is_cancelled = true;
	wb_timer_start(rq->k->pump, 0, 0);
}

/* ---- life ---- */

void wb_kube_wipe_json(void)
{
	json_set_alloc_funcs(malloc, wb_free_wiped);
}

int wb_kube_create(struct wb_loop *loop, struct wb_kube_config *config_take,
	const struct wb_kube_opts *o, struct wb_kube **out, struct wb_err *err)
{
	struct wb_kube *k = wb_zalloc(1, sizeof(*k));
	int rc = -ENOMEM;

	if (!k) {
		wb_kube_config_finish(config_take);
		return wb_err_set(err, rc, "out of memory");
	}
	k->config = *config_take;
	memset(config_take, 0, sizeof(*config_take));
	k->loop = loop;
	k->o = *o;
	k->o.connect_ns = o->connect_ns ? o->connect_ns : 10 * WB_NS_PER_S;
	k->o.call_ns = o->call_ns ? o->call_ns : 30 * WB_NS_PER_S;
	k->o.per_s = o->per_s ? o->per_s : 50;
	k->o.burst = o->burst ? o->burst : 100;
	k->o.in_flight = o->in_flight ? o->in_flight : 64;
	k->tokens = k->o.burst;
	k->filled_ns = wb_now_ns(&wb_clock_real);
	rc = wb_timer_create(loop, on_pump, k, &k->pump);
	if (rc == 0)
		rc = wb__kube_curl_open(k);
	if (rc < 0) {
		wb_kube_destroy(k);
		return wb_err_set(err, rc, "Kubernetes client: %s", wb_strerror(rc));
	}
	if (k->config.is_insecure)
		WB_LOG_WRN(MOD, "the certificate of the API server is not checked",
			WB_S("server", k->config.server));
	*out = k;
	return 0;
}

void wb_kube_destroy(struct wb_kube *k)
{
	struct wb_kube_rq *rq;

	if (!k)
		return;
	assert(!k->in_curl);
	while ((rq = k->list)) {
		k->list = rq->next;
		if (rq->is_running)
			curl_multi_remove_handle(k->multi, rq->easy);
		free_request(rq);
	}
	wb__kube_curl_close(k);
	wb_timer_destroy(k->pump);
	wb_kube_scrub(k->token);
	wb_kube_config_finish(&k->config);
	wb_free(k);
}

struct wb_loop *wb_kube_loop(const struct wb_kube *k)
{
	return k->loop;
}

void wb_kube_get_stats(const struct wb_kube *k, struct wb_kube_stats *out)
{
	*out = k->stats;
}
