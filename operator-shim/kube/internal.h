/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_INTERNAL_H
#define WB_KUBE_INTERNAL_H
/*
 * State of the HTTP client, shared by http.c and curl.c.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "net/loop.h"
#include "operator-shim/kube/http.h"

#include <curl/curl.h>
#include <sys/stat.h>

struct wb_kube_rq {
	struct wb_kube_rq *next;
	struct wb_kube *k;
	struct wb_kube_call call; /* its path is our copy, its body is not used */
	char *path;
	char *send_text; /* the body as text, allocated by jansson */
	CURL *easy;
	CURLU *url;
	struct curl_slist *headers, *connect_to;
	char error[CURL_ERROR_SIZE];
	struct wb_buf body;
	int chunk_rc, start_rc;
	bool is_running, is_second, is_cancelled, is_too_big;
};

struct wb__kube_socket; /* of curl.c */

struct wb_kube {
	struct wb_loop *loop;
	struct wb_kube_config config;
	struct wb_kube_opts o;
	CURLM *multi;
	struct wb_timer *timer; /* curl's */
	struct wb_timer *pump; /* starts queued requests, and ends those that curl is done with */
	struct wb__kube_socket *socket; /* list */
	struct wb_kube_rq *list; /* in order of sending */
	size_t n_running;
	double tokens;
	uint64_t filled_ns;
	char *token; /* from the file; secret */
	struct stat token_stat;
	uint64_t token_read_ns;
	bool in_curl;
	struct wb_kube_stats stats;
};

/* http.c */
/** wb__kube_reap - end requests that curl is done with, and free cancelled ones; calls the users'
 * callbacks.  Must not be called from inside curl. */
void wb__kube_reap(struct wb_kube *k);
/** wb__kube_pump - start as many queued requests as the rate allows. */
void wb__kube_pump(struct wb_kube *k);

/* curl.c */
/** wb__kube_curl_open - create curl's state for a client.  0 or -ENOMEM; call wb__kube_curl_close()
 * in either case. */
int wb__kube_curl_open(struct wb_kube *k);
void wb__kube_curl_close(struct wb_kube *k);
/** wb__kube_curl_start - send @rq; wb__kube_reap() reports how it ends.  0, or negative: then
 * nothing of curl is left in @rq. */
int wb__kube_curl_start(struct wb_kube_rq *rq);
/** wb__kube_curl_end - the handle is off the multi: free what curl had of the request. */
void wb__kube_curl_end(struct wb_kube_rq *rq);
/** wb__kube_read_token - read the token file if it changed, or if @must; true when there is a
 * token. */
bool wb__kube_read_token(struct wb_kube *k, bool must);

#endif
