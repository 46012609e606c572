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
	struct wb_kube_call call; /* path is ours, body is not used */
	char *path;
	char *send_text; /* jansson's */
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
	struct wb_timer *pump; /* the queue, and what ended */
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
/** wb__kube_reap - end what curl is done with, and free what was cancelled; calls the users'
 *  callbacks.  Never from inside curl. */
void wb__kube_reap(struct wb_kube *k);
/** wb__kube_pump - start what the rate allows. */
void wb__kube_pump(struct wb_kube *k);

/* curl.c */
/** wb__kube_curl_open - curl's state of a client.  0 or -ENOMEM; wb__kube_curl_close() in either
 *  case. */
int wb__kube_curl_open(struct wb_kube *k);
void wb__kube_curl_close(struct wb_kube *k);
/** wb__kube_curl_start - send @rq; what it ends with comes by wb__kube_reap().  0 or negative: then
 *  nothing of curl is left in it. */
int wb__kube_curl_start(struct wb_kube_rq *rq);
/** wb__kube_curl_end - the handle is off the multi: free what curl had of the request. */
void wb__kube_curl_end(struct wb_kube_rq *rq);
/** wb__kube_read_token - read the token file when it changed, or @must; true when there is one. */
bool wb__kube_read_token(struct wb_kube *k, bool must);

#endif
