/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_HTTP_H
#define WB_KUBE_HTTP_H
/*
 * Requests to one API server: libcurl's multi interface on the loop.
 *
 * Connections are kept and reused; no redirects; certificates are always checked unless the
 * kubeconfig says otherwise.  A token file is checked before each request, and read again when it
 * changed; after 401 it is read again, and the request is sent once more.  429 and 503 with
 * Retry-After are passed to the caller, who decides.  A body above its cap is an error, never cut.
 * A token bucket delays requests above 50 a second (bursts of 100).
 *
 * Requests and answers may hold tokens and private keys.  Our buffers for these are zeroed before
 * they are freed, and so are jansson's values if the program has called wb_kube_wipe_json().  We
 * cannot zero libcurl's send buffer and its copy of our own token (CURLOPT_XOAUTH2_BEARER), the
 * records in OpenSSL, and the kernel's socket buffers: these last until the memory is used again.
 *
 * Life: the callback of a request is called exactly once, from the loop, and never from inside
 * wb_kube_send().  It is not called after wb_kube_cancel(), which may be called anywhere, also from
 * the callbacks of that request.  Threads: the loop's.  Layer: operator-shim/kube (over base, net).
 */
#include "base/err.h"
#include "operator-shim/kube/config.h"

#include <jansson.h>

struct wb_loop;
struct wb_kube; /* opaque: one API server */
struct wb_kube_rq; /* opaque: one request under way */

#define WB_KUBE_BODY_MAX (4u << 20)
/* Limit for one page of a list, and for a single object: what etcd keeps is at most 1.5 MiB, and at
 * most six times as long as JSON.  A page of many small values, once parsed, takes about twenty
 * times its length in memory. */
#define WB_KUBE_PAGE_MAX (12u << 20)

struct wb_kube_opts {
	uint64_t connect_ns, call_ns; /* 0 = 10 s, 30 s */
	unsigned per_s, burst; /* requests; 0 = 50, 100 */
	unsigned in_flight; /* requests at a time, watches included; 0 = 64 */
};

struct wb_kube_reply {
	long status; /* HTTP status; 0 = no answer */
	json_t *body; /* borrowed; NULL = none, or not a JSON object */
	const char *reason; /* of a Status body ("Expired", "Conflict"), or "" */
	uint64_t retry_after_ns; /* 0 = not said */
	struct wb_err err; /* code 0 for 2xx, else what happened, with method and path */
};

typedef void (*wb_kube_fn)(void *cookie, const struct wb_kube_reply *r);
/** wb_kube_chunk_fn - part of the body of an answer with 2xx; a negative value ends the request,
 *  whose error then has this code. */
typedef int (*wb_kube_chunk_fn)(void *cookie, const void *bytes, size_t n);

struct wb_kube_call {
	const char *method; /* "GET"; static */
	const char *path; /* begins with '/', already escaped, with query; copied */
	const char *content_type; /* of the body; static; NULL = application/json */
	json_t *body; /* borrowed for the call; NULL = none */
	uint64_t total_ns, idle_ns; /* deadlines: 0 = opts.call_ns, none */
	size_t body_max; /* 0 = WB_KUBE_BODY_MAX */
	wb_kube_chunk_fn on_chunk; /* NULL: the body is collected and parsed */
	wb_kube_fn done;
	void *cookie;
};

/** wb_kube_wipe_json - from now on jansson zeroes what it frees, in the whole process.  Call it
 * before there are threads. */
void wb_kube_wipe_json(void);

/** wb_kube_create - @config is taken over (also on failure).  0, -ENOMEM, -EINVAL.  Release with
 *  wb_kube_destroy(). */
int wb_kube_create(struct wb_loop *loop, struct wb_kube_config *config_take,
	const struct wb_kube_opts *o, struct wb_kube **out, struct wb_err *err);
/** wb_kube_destroy - cancel what is under way, and free.  NULL is allowed.  Must not be called from
 * a callback of a request. */
void wb_kube_destroy(struct wb_kube *k);

/** wb_kube_send - start a request.  0 or -ENOMEM.  @out may be NULL; *out is valid until the
 * callback. */
int wb_kube_send(struct wb_kube *k, const struct wb_kube_call *c, struct wb_kube_rq **out);
/** wb_kube_cancel - cancel the request; no callback will be called.  NULL is allowed. */
void wb_kube_cancel(struct wb_kube_rq *rq);

/** wb_kube_loop - the loop that @k was created on; borrowed. */
struct wb_loop *wb_kube_loop(const struct wb_kube *k);
/** wb_kube_random - unpredictable bits, for jitter. */
uint64_t wb_kube_random(void);

struct wb_kube_stats {
	uint64_t requests; /* sent */
	uint64_t failures; /* no answer, or an answer that is not 2xx */
	uint64_t token_reads;
	uint64_t last_ok_ns; /* monotonic time of the last 2xx; 0 = never */
};
/** wb_kube_get_stats - copy what has been counted since @k was created. */
void wb_kube_get_stats(const struct wb_kube *k, struct wb_kube_stats *out);

#endif
