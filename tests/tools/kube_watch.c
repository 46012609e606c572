/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kube_watch CONFIG PATH [KEY=VALUE]...   The Kubernetes client, driven by a test.
 *
 * CONFIG is a kubeconfig, or DIR:HOST:PORT for a service account folder.  Watches PATH ("" = does
 * not) and prints one JSON line for each callback.  Lines on stdin are requests: "stats"; "call
 * METHOD PATH [CONTENT-TYPE [JSON]]"; "cancel", of the last call, which is under way.  Ends at the
 * end of stdin.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/http.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct wb_loop *loop;
static struct wb_kube *kube;
static struct wb_kube_watch *watch;
static struct wb_watch *input;
static struct wb_kube_rq *last;
static char line[1 << 20];
static size_t n_line;
static const char *stop_at = ""; /* name of the object at which the watch is stopped */

static void print(json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT);

	printf("%s\n", text ? text : "{}");
	fflush(stdout);
	free(text);
	json_decref(o);
}

static void on_object(const char *what, json_t *o)
{
	print(json_pack("{s:s, s:s, s:s, s:s}", "what", what, "name", wb_kube_meta(o, "name"),
		"uid", wb_kube_meta(o, "uid"), "version", wb_kube_meta(o, "resourceVersion")));
	if (!strcmp(stop_at, wb_kube_meta(o, "name"))) {
		wb_kube_watch_stop(watch);
		watch = NULL;
	}
}

static void on_put(void *cookie, json_t *o)
{
	(void)cookie;
	on_object("put", o);
}

static void on_gone(void *cookie, json_t *o)
{
	(void)cookie;
	on_object("gone", o);
}

static void on_synced(void *cookie)
{
	(void)cookie;
	print(json_pack("{s:s, s:i}", "what", "synced", "count", (int)wb_kube_watch_count(watch)));
}

static void stats(void)
{
	static const struct wb_kube_watch_stats none;
	const struct wb_kube_watch_stats *w = watch ? wb_kube_watch_get_stats(watch) : &none;
	struct wb_kube_stats k;

	wb_kube_get_stats(kube, &k);
	print(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I}", "what", "stats",
		"lists", (json_int_t)w->lists, "watches", (json_int_t)w->watches, "events",
		(json_int_t)w->events, "bookmarks", (json_int_t)w->bookmarks, "expired",
		(json_int_t)w->expired, "empty", (json_int_t)w->empty, "failures",
		(json_int_t)w->failures, "last", w->last_failure, "requests",
		(json_int_t)k.requests, "token_reads", (json_int_t)k.token_reads));
}

static void on_reply(void *cookie, const struct wb_kube_reply *r)
{
	(void)cookie;
	print(json_pack("{s:s, s:i, s:i, s:s, s:s, s:I, s:O*}", "what", "reply", "status",
		(int)r->status, "code", r->err.code, "error", r->err.msg, "reason", r->reason,
		"retry_after_ms", (json_int_t)(r->retry_after_ns / WB_NS_PER_MS), "body", r->body));
}

static void call(char *text)
{
	static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
	char *save = NULL, *method = strtok_r(text, " ", &save), *path = strtok_r(NULL, " ", &save);
	char *type = strtok_r(NULL, " ", &save);
	static char types[8][80];
	static unsigned at;
	struct wb_kube_call c = {.path = path, .done = on_reply};

	for (size_t i = 0; i < WB_ARRAY_SIZE(methods); i++)
		if (!strcmp(method, methods[i]))
			c.method = methods[i];
	if (type) {
		c.content_type = types[at % 8];
		snprintf(types[at++ % 8], sizeof(types[0]), "%s", type);
	}
	if (save && *save)
		c.body = json_loads(save, 0, NULL);
	if (wb_kube_send(kube, &c, &last) < 0)
		abort();
	json_decref(c.body);
}

static void on_input(void *cookie, int events)
{
	ssize_t got = read(0, line + n_line, sizeof(line) - 1 - n_line);
	char *nl;

	(void)cookie;
	(void)events;
	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0) {
		wb_loop_stop(loop);
		return;
	}
	n_line += (size_t)got;
	line[n_line] = '\0';
	while ((nl = strchr(line, '\n'))) {
		*nl = '\0';
		if (!strcmp(line, "stats"))
			stats();
		else if (!strcmp(line, "cancel"))
			wb_kube_cancel(last);
		else if (!strncmp(line, "call ", 5))
			call(line + 5);
		n_line -= (size_t)(nl + 1 - line);
		memmove(line, nl + 1, n_line + 1);
	}
}

static void option(char *text, struct wb_kube_opts *ko, struct wb_kube_watch_opts *wo)
{
	char *value = strchr(text, '=');
	unsigned long long v;

	if (!value)
		return;
	*value++ = '\0';
	v = strtoull(value, NULL, 10);
	if (!strcmp(text, "selector"))
		wo->label_selector = value;
	else if (!strcmp(text, "stop_at"))
		stop_at = value;
	else if (!strcmp(text, "idle_s"))
		wo->idle_ns = v * WB_NS_PER_S;
	else if (!strcmp(text, "watch_s"))
		wo->watch_s = v;
	else if (!strcmp(text, "page"))
		wo->page = (unsigned)v;
	else if (!strcmp(text, "backoff_ms"))
		wo->backoff_min_ns = v * WB_NS_PER_MS;
	else if (!strcmp(text, "backoff_max_ms"))
		wo->backoff_max_ns = v * WB_NS_PER_MS;
	else if (!strcmp(text, "connect_ms"))
		ko->connect_ns = v * WB_NS_PER_MS;
	else if (!strcmp(text, "call_ms"))
		ko->call_ns = v * WB_NS_PER_MS;
	else if (!strcmp(text, "in_flight"))
		ko->in_flight = (unsigned)v;
	else if (!strcmp(text, "per_s"))
		ko->per_s = ko->burst = (unsigned)v;
}

static int get_config(char *text, struct wb_kube_config *config, struct wb_err *err)
{
	char *port = strrchr(text, ':'), *host;

	if (!port)
		return wb_kube_config_load(text, config, err);
	*port++ = '\0';
	host = strchr(text, ':');
	*host++ = '\0';
	return wb_kube_config_in_cluster(host, port, text, config, err);
}

int main(int argc, char **argv)
{
	struct wb_kube_watch_cb cb = {.on_put = on_put, .on_gone = on_gone, .on_synced = on_synced};
	struct wb_kube_watch_opts wo = {0};
	struct wb_kube_opts ko = {0};
	struct wb_kube_config config;
	struct wb_err err = {0};

	if (argc < 3)
		return 2;
	for (int i = 3; i < argc; i++)
		option(argv[i], &ko, &wo);
	wo.path = argv[2];
	if (get_config(argv[1], &config, &err) < 0 || wb_loop_create(&loop, &err) < 0 ||
		wb_kube_create(loop, &config, &ko, &kube, &err) < 0) {
		fprintf(stderr, "kube_watch: %s\n", err.msg);
		return 1;
	}
	if (*wo.path && wb_kube_watch_start(kube, &wo, &cb, &watch) < 0)
		return 1;
	if (wb_watch_create(loop, 0, WB_READABLE, on_input, NULL, &input) < 0)
		return 1;
	wb_loop_run(loop);
	wb_watch_destroy(input);
	wb_kube_watch_stop(watch);
	wb_kube_destroy(kube);
	wb_loop_destroy(loop);
	return 0;
}
