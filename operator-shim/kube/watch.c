/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/watch.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/cursor.h"
#include "operator-shim/kube/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "kube"
#define VERSION_MAX 256
#define EMPTY_NS WB_NS_PER_S

struct wb_kube_watch {
	struct wb_kube *k;
	struct wb_kube_watch_cb cb;
	char *path, *selector; /* owned; selector "" or "&labelSelector=..." */
	unsigned page;
	uint64_t watch_s, idle_ns;
	struct wb_kube_backoff backoff;
	struct wb_timer *timer;
	struct wb_kube_rq *rq;
	json_t *cache; /* "namespace/name" -> object */
	json_t *next; /* the new cache, while a list comes in */
	char version[VERSION_MAX]; /* "" = list first */
	char *more; /* continue token; owned */
	struct wb_kube_cursor cursor;
	uint64_t began_ns, n_event; /* of this watch */
	bool is_synced, is_stopped, is_expired;
	unsigned depth; /* callbacks we are inside of */
	struct wb_kube_watch_stats stats;
};

const char *wb_kube_meta(const json_t *object, const char *key)
{
	const char *s =
		json_string_value(json_object_get(json_object_get(object, "metadata"), key));

	return s ? s : "";
}

static void key_of(const json_t *o, char *out, size_t bytes)
{
	snprintf(out, bytes, "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
}

/* ---- callbacks: any of them may stop the watch ---- */

static void destroy(struct wb_kube_watch *w)
{
	wb_kube_cursor_finish(&w->cursor);
	wb_timer_destroy(w->timer);
	json_decref(w->cache);
	json_decref(w->next);
	wb_free(w->more);
	wb_free(w->path);
	wb_free(w->selector);
	wb_free(w);
}

static void enter(struct wb_kube_watch *w)
{
	w->depth++;
}

/* False when the watch was stopped.  It is freed when no callback is running any more. */
static bool leave(struct wb_kube_watch *w)
{
	if (--w->depth || !w->is_stopped)
		return !w->is_stopped;
	destroy(w);
	return false;
}

static void tell(struct wb_kube_watch *w, void (*fn)(void *, json_t *), json_t *o)
{
	if (!w->is_stopped)
		fn(w->cb.cookie, o);
}

/* Called once for each object that arrives.  What others write into their objects may be of any
 * length, so unneeded parts are removed before more objects arrive. */
static void trim(struct wb_kube_watch *w, json_t *o)
{
	json_object_del(json_object_get(o, "metadata"), "managedFields");
	if (w->cb.trim)
		w->cb.trim(w->cb.cookie, o);
}

/* Keep @o, which is trimmed, in place of the object of the same name; refuse it without a name. */
static int put(struct wb_kube_watch *w, json_t *o)
{
	char key[600];
	json_t *old;

	if (!*wb_kube_meta(o, "name"))
		return -EPROTO;
	key_of(o, key, sizeof(key));
	old = json_incref(json_object_get(w->cache, key));
	if (json_object_set(w->cache, key, o) < 0) {
		json_decref(old);
		return -ENOMEM;
	}
	if (old && strcmp(wb_kube_meta(old, "uid"), wb_kube_meta(o, "uid")) != 0)
		tell(w, w->cb.on_gone, old);
	if (!old || strcmp(wb_kube_meta(old, "resourceVersion"),
			    wb_kube_meta(o, "resourceVersion")) != 0)
		tell(w, w->cb.on_put, o);
	json_decref(old);
	return 0;
}

static void drop(struct wb_kube_watch *w, const char *key)
{
	json_t *old = json_incref(json_object_get(w->cache, key));

	if (!old)
		return;
	json_object_del(w->cache, key);
	tell(w, w->cb.on_gone, old);
	json_decref(old);
}

/* ---- what to do next ---- */

static void start_list(struct wb_kube_watch *w);
static void start_watch(struct wb_kube_watch *w);

static void go_on(struct wb_kube_watch *w)
{
	if (*w->version)
		start_watch(w);
	else
		start_list(w);
}

static void on_timer(void *cookie)
{
	go_on(cookie);
}

/* Wait; then watch from w->version, or list again if the caller has cleared it. */
static void retry(struct wb_kube_watch *w, const char *why, long status, uint64_t retry_after_ns)
{
	uint64_t wait = wb_kube_backoff_next(
		&w->backoff, wb_now_ns(&wb_clock_real), wb_kube_random(), retry_after_ns);

	w->stats.failures++;
	w->stats.last_status = status;
	snprintf(w->stats.last_failure, sizeof(w->stats.last_failure), "%.255s", why);
	WB_LOG_WRN(MOD, "watch interrupted", WB_S("path", w->path), WB_S("why", why),
		WB_U("wait_ms", wait / WB_NS_PER_MS));
	wb_timer_start(w->timer, wait, 0);
}

static int send(struct wb_kube_watch *w, struct wb_kube_call *c, struct wb_buf *path)
{
	int rc = path->rc;

	c->method = "GET";
	c->path = wb_buf_cstr(path);
	c->cookie = w;
	if (rc == 0)
		rc = wb_kube_send(w->k, c, &w->rq);
	wb_buf_finish(path);
	return rc;
}

static void put_version(struct wb_kube_watch *w, const char *version)
{
	if (*version && strlen(version) < sizeof(w->version))
		snprintf(w->version, sizeof(w->version), "%s", version);
}

/* ---- list ---- */

/* The new list becomes the cache. */
static void replace(struct wb_kube_watch *w)
{
	json_t *next = w->next, *o;
	const char *key;
	void *tmp;

	w->next = NULL;
	json_object_foreach_safe(w->cache, tmp, key, o)
	{
		if (!json_object_get(next, key))
			drop(w, key);
	}
	json_object_foreach(next, key, o)
	{
		put(w, o);
	}
	json_decref(next);
	w->is_synced = true;
	if (!w->is_stopped && w->cb.on_synced)
		w->cb.on_synced(w->cb.cookie);
}

static int keep_page(struct wb_kube_watch *w, json_t *list)
{
	json_t *items = json_object_get(list, "items"), *o;
	char key[600];
	size_t i;

	if (!json_is_array(items))
		return -EPROTO;
	json_array_foreach(items, i, o)
	{
		if (!json_is_object(o) || !*wb_kube_meta(o, "name"))
			return -EPROTO;
		key_of(o, key, sizeof(key));
		trim(w, o);
		if (json_object_set(w->next, key, o) < 0)
			return -ENOMEM;
	}
	return 0;
}

static void on_list(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_watch *w = cookie;
	const char *more = wb_kube_meta(r->body, "continue");
	int rc;

	w->rq = NULL;
	w->stats.expired += r->status == 410;
	if (r->err.code == -E2BIG && w->page > 1) { /* ask for fewer of these long objects */
		w->page /= 2;
		start_list(w);
		return;
	}
	if (r->err.code) {
		wb_free(w->more);
		w->more = NULL; /* also 410: a list that took too long starts anew */
		retry(w, r->err.msg, r->status, r->retry_after_ns);
		return;
	}
	rc = keep_page(w, r->body);
	wb_free(w->more);
	w->more = NULL;
	if (rc == 0 && *more && !(w->more = wb_strdup(more)))
		rc = -ENOMEM;
	if (rc < 0) {
		retry(w, rc == -ENOMEM ? "out of memory" : "the answer is no list", 0, 0);
		return;
	}
	if (w->more) {
		start_list(w);
		return;
	}
	put_version(w, wb_kube_meta(r->body, "resourceVersion"));
	enter(w);
	replace(w);
	if (leave(w))
		go_on(w);
}

static void start_list(struct wb_kube_watch *w)
{
	struct wb_kube_call c = {.body_max = WB_KUBE_PAGE_MAX, .done = on_list};
	struct wb_buf b;
	int rc;

	if (!w->more) {
		json_decref(w->next);
		w->next = json_object();
		w->stats.lists++;
	}
	wb_buf_init(&b, 65536);
	wb_buf_printf(&b, "%s?limit=%u%s", w->path, w->page, w->selector);
	if (w->more) {
		wb_buf_printf(&b, "&continue=");
		wb_kube_put_escaped(&b, w->more);
	}
	rc = send(w, &c, &b);
	if (rc < 0 || !w->next)
		retry(w, "out of memory", 0, 0);
}

/* ---- watch ---- */

static int on_error_event(struct wb_kube_watch *w, const json_t *status)
{
	json_int_t code = json_integer_value(json_object_get(status, "code"));
	const char *why = json_string_value(json_object_get(status, "message"));

	w->is_expired = code == 410;
	snprintf(w->stats.last_failure, sizeof(w->stats.last_failure), "the watch says %lld: %s",
		(long long)code, why ? why : "?");
	return -ESTALE;
}

static int on_event(void *cookie, enum wb_kube_event what, json_t *o)
{
	struct wb_kube_watch *w = cookie;
	char key[600];
	int rc = 0;

	if (w->is_stopped)
		return -ECANCELED;
	w->n_event++;
	switch (what) {
	case WB_KUBE_ADDED:
	case WB_KUBE_MODIFIED:
		trim(w, o);
		rc = put(w, o);
		break;
	case WB_KUBE_DELETED:
		key_of(o, key, sizeof(key));
		drop(w, key);
		break;
	case WB_KUBE_BOOKMARK:
		w->stats.bookmarks++;
		break;
	case WB_KUBE_ERROR:
		return on_error_event(w, o);
	case WB_KUBE_OTHER:
		return 0;
	}
	if (rc == 0) {
		w->stats.events += what != WB_KUBE_BOOKMARK;
		put_version(w, wb_kube_meta(o, "resourceVersion"));
	}
	return rc;
}

/* The watch must not be freed while curl calls this: a stop is noted, and carried out in leave().
 */
static int on_chunk(void *cookie, const void *bytes, size_t n)
{
	struct wb_kube_watch *w = cookie;
	struct wb_err err = {0};
	int rc;

	enter(w);
	rc = wb_kube_cursor_feed(&w->cursor, bytes, n, &err);
	if (err.code)
		snprintf(w->stats.last_failure, sizeof(w->stats.last_failure), "%.255s", err.msg);
	else if (rc < 0 && rc != -ESTALE)
		snprintf(w->stats.last_failure, sizeof(w->stats.last_failure), "watch: %s",
			wb_strerror(rc));
	return leave(w) ? rc : 0; /* stopped: the request is cancelled already */
}

static bool is_empty_close(const struct wb_kube_watch *w)
{
	return !w->n_event && wb_now_ns(&wb_clock_real) - w->began_ns < EMPTY_NS;
}

static void on_watch_end(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_watch *w = cookie;
	char why[256];

	w->rq = NULL;
	if (r->err.code == 0) {
		enter(w);
		wb_kube_cursor_end(&w->cursor, NULL);
		if (!leave(w))
			return;
	}
	w->stats.expired += r->status == 410 || w->is_expired;
	if (w->cursor.rc < 0) {
		/* We ended the watch ourselves, and kept the reason. */
		snprintf(why, sizeof(why), "%s", w->stats.last_failure);
		w->version[0] = '\0';
		retry(w, why, 0, 0);
	} else if (r->err.code) {
		/* After a lost connection or a server's error the version is still good. */
		if (r->status >= 400 && r->status <= 499 && r->status != 429)
			w->version[0] = '\0';
		retry(w, r->err.msg, r->status, r->retry_after_ns);
	} else if (is_empty_close(w)) {
		w->stats.empty++;
		w->version[0] = '\0';
		retry(w, "the watch closed at once, without an event", 0, 0);
	} else {
		start_watch(w);
	}
}

static void start_watch(struct wb_kube_watch *w)
{
	uint64_t s = w->watch_s ? w->watch_s : 300 + wb_kube_random() % 301;
	struct wb_kube_call c = {.total_ns = (s + 30) * WB_NS_PER_S,
		.idle_ns = w->idle_ns,
		.on_chunk = on_chunk,
		.done = on_watch_end};
	struct wb_buf b;
	int rc;

	wb_kube_cursor_finish(&w->cursor);
	wb_kube_cursor_init(&w->cursor, WB_KUBE_PAGE_MAX, on_event, w);
	w->began_ns = wb_now_ns(&wb_clock_real);
	w->n_event = 0;
	w->is_expired = false;
	w->stats.watches++;
	wb_buf_init(&b, 65536);
	wb_buf_printf(&b,
		"%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=%llu%s&resourceVersion=",
		w->path, (unsigned long long)s, w->selector);
	wb_kube_put_escaped(&b, w->version);
	rc = send(w, &c, &b);
	if (rc < 0)
		retry(w, "out of memory", 0, 0);
}

/* ---- life ---- */

static char *make_selector(const struct wb_kube_watch_opts *o)
{
	struct wb_buf b;
	uint8_t *out = NULL;
	size_t n;

	wb_buf_init(&b, 16384);
	if (o->label_selector) {
		wb_buf_printf(&b, "&labelSelector=");
		wb_kube_put_escaped(&b, o->label_selector);
	}
	if (o->name) {
		wb_buf_printf(&b, "&fieldSelector=metadata.name%%3D");
		wb_kube_put_escaped(&b, o->name);
	}
	wb_buf_u8(&b, 0);
	wb_buf_take(&b, &out, &n);
	return (char *)out;
}

int wb_kube_watch_start(struct wb_kube *k, const struct wb_kube_watch_opts *o,
	const struct wb_kube_watch_cb *cb, struct wb_kube_watch **out)
{
	struct wb_kube_watch *w = wb_zalloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->k = k;
	w->cb = *cb;
	w->page = o->page ? o->page : 500;
	w->watch_s = o->watch_s;
	w->idle_ns = o->idle_ns ? o->idle_ns : 180 * WB_NS_PER_S;
	w->backoff.min_ns = o->backoff_min_ns ? o->backoff_min_ns : WB_NS_PER_S / 2;
	w->backoff.max_ns = o->backoff_max_ns ? o->backoff_max_ns : 30 * WB_NS_PER_S;
	w->backoff.healthy_ns = 60 * WB_NS_PER_S;
	w->path = wb_strdup(o->path);
	w->selector = make_selector(o);
	w->cache = json_object();
	wb_kube_cursor_init(&w->cursor, WB_KUBE_PAGE_MAX, on_event, w);
	if (!w->path || !w->selector || !w->cache ||
		wb_timer_create(wb_kube_loop(k), on_timer, w, &w->timer) < 0) {
		destroy(w);
		return -ENOMEM;
	}
	wb_timer_start(w->timer, 0, 0);
	*out = w;
	return 0;
}

void wb_kube_watch_stop(struct wb_kube_watch *w)
{
	if (!w || w->is_stopped)
		return;
	w->is_stopped = true;
	wb_kube_cancel(w->rq);
	w->rq = NULL;
	wb_timer_stop(w->timer);
	if (!w->depth)
		destroy(w);
}

bool wb_kube_watch_is_synced(const struct wb_kube_watch *w)
{
	return w->is_synced;
}

json_t *wb_kube_watch_get(const struct wb_kube_watch *w, const char *ns, const char *name)
{
	char key[600];

	snprintf(key, sizeof(key), "%s/%s", ns, name);
	return json_object_get(w->cache, key);
}

void wb_kube_watch_again(struct wb_kube_watch *w, const char *ns)
{
	const char *key;
	json_t *o;

	enter(w);
	json_object_foreach(w->cache, key, o)
	{
		if (!strcmp(wb_kube_meta(o, "namespace"), ns))
			tell(w, w->cb.on_put, o);
	}
	leave(w);
}

size_t wb_kube_watch_count(const struct wb_kube_watch *w)
{
	return json_object_size(w->cache);
}

const struct wb_kube_watch_stats *wb_kube_watch_get_stats(const struct wb_kube_watch *w)
{
	return &w->stats;
}
