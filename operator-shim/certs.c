/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/certs.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/camaps.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/pki.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

#define MOD "certs"
#define READ_EVERY_NS (5 * WB_NS_PER_S)
#define SOON_NS (WB_NS_PER_S / 2) /* while there is no certificate */

struct wb__certs {
	struct wb_kube *kube;
	struct wb__certs_cb cb;
	char *ns, *secret, *ca_file, **name; /* owned */
	size_t n_name;
	struct wb_timer *timer;
	struct wb_kube_rq *rq;
	struct wb__pki pki; /* what the Secret holds */
	char *version; /* of the Secret, or NULL; owned */
	struct wb__pki fresh; /* being written */
	char *told; /* certificate that was last passed to on_pair; owned */
	struct wb__camaps *maps; /* writes only while leading */
	bool is_leading;
};

/* ---- the Secret ---- */

static void again(struct wb__certs *c)
{
	uint64_t ns = c->secret && !c->told ? SOON_NS : READ_EVERY_NS;

	wb_timer_start(c->timer, ns - wb_kube_random() % (ns / 5), 0);
}

static void tell_pair(struct wb__certs *c)
{
	const struct wb__pki *p = &c->pki;

	if (!p->cert || !p->key || (c->told && !strcmp(c->told, p->cert)))
		return;
	wb_free(c->told);
	c->told = wb_strdup(p->cert);
	c->cb.on_pair(c->cb.cookie, p->cert, p->key);
}

static const struct {
	const char *name;
	size_t at;
} keys[] = {
	{"ca.crt", offsetof(struct wb__pki, ca)},
	{"ca.key", offsetof(struct wb__pki, ca_key)},
	{"tls.crt", offsetof(struct wb__pki, cert)},
	{"tls.key", offsetof(struct wb__pki, key)},
};

static char **part(struct wb__pki *p, size_t i)
{
	return (char **)((char *)p + keys[i].at);
}

static void decode(const json_t *secret, struct wb__pki *out)
{
	const json_t *data = json_object_get(secret, "data");

	for (size_t i = 0; i < WB_ARRAY_SIZE(keys); i++) {
		const char *text = json_string_value(json_object_get(data, keys[i].name));
		uint8_t *bytes = NULL;
		size_t n;

		if (text && wb_kube_base64(text, &bytes, &n) == 0)
			*part(out, i) = (char *)bytes;
	}
}

static json_t *encode(const struct wb__certs *c, struct wb__pki *p)
{
	json_t *data = json_object();

	for (size_t i = 0; i < WB_ARRAY_SIZE(keys); i++) {
		const char *pem = *part(p, i);
		char *text = wb_kube_to_base64(pem, strlen(pem));

		json_object_set_new(data, keys[i].name, json_string(text ? text : ""));
		wb_kube_scrub(text);
	}
	return json_pack("{s:s, s:s, s:{s:s, s:s, s:s*}, s:s, s:o}", "apiVersion", "v1", "kind",
		"Secret", "metadata", "name", c->secret, "namespace", c->ns, "resourceVersion",
		c->version, "type", "Opaque", "data", data);
}

static void secret_path(const struct wb__certs *c, struct wb_buf *b, const char *query)
{
	wb_buf_init(b, 4096);
	wb_buf_printf(b, "/api/v1/namespaces/");
	wb_kube_put_escaped(b, c->ns);
	wb_buf_printf(b, "/secrets/");
	wb_kube_put_escaped(b, c->secret);
	wb_buf_printf(b, "%s", query);
}

static int send(struct wb__certs *c, struct wb_kube_call *call, const char *query)
{
	struct wb_buf b;
	int rc;

	secret_path(c, &b, query);
	call->path = wb_buf_cstr(&b);
	call->cookie = c;
	rc = b.rc ? b.rc : wb_kube_send(c->kube, call, &c->rq);
	wb_buf_finish(&b);
	return rc;
}

static void take_version(struct wb__certs *c, const json_t *secret)
{
	const char *v = secret ? wb_kube_meta(secret, "resourceVersion") : "";

	wb_free(c->version);
	c->version = *v ? wb_strdup(v) : NULL;
}

static void on_written(void *cookie, const struct wb_kube_reply *r)
{
	struct wb__certs *c = cookie;

	c->rq = NULL;
	if (r->err.code) {
		/* 409: somebody else wrote first; the Secret is read again. */
		WB_LOG_WRN(MOD, "certificate not written", WB_S("why", r->err.msg));
		wb__pki_finish(&c->fresh);
		wb_timer_start(c->timer, SOON_NS, 0);
		return;
	}
	wb__pki_finish(&c->pki);
	c->pki = c->fresh;
	memset(&c->fresh, 0, sizeof(c->fresh));
	take_version(c, r->body);
	tell_pair(c);
	wb__camaps_set(c->maps, c->pki.ca);
	again(c);
}

static void clone_fresh(struct wb__certs *c)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(keys); i++)
		*part(&c->fresh, i) = *part(&c->pki, i) ? wb_strdup(*part(&c->pki, i)) : NULL;
}

static void make(struct wb__certs *c, const struct wb__pki_want *w, unsigned due)
{
	struct wb_kube_call call = {
		.method = "PATCH", .content_type = WB_KUBE_APPLY, .done = on_written};
	struct wb_err err = {0};
	int rc;

	clone_fresh(c);
	rc = wb__pki_make(&c->fresh, w, due, &err);
	if (rc == 0) {
		WB_LOG_INFO(MOD, "certificate made", WB_S("secret", c->secret),
			WB_U("authority", due & WB__PKI_CA ? 1 : 0));
		call.body = encode(c, &c->fresh);
		rc = call.body ? send(c, &call, "?force=true&fieldManager=" WB_KUBE_FIELD_MANAGER)
			       : -ENOMEM;
		if (rc < 0)
			wb_err_set(&err, rc, "write it to the Secret: %s", wb_strerror(rc));
		json_decref(call.body);
	}
	if (rc == 0)
		return;
	WB_LOG_ERR(MOD, "certificate not made", WB_S("why", err.msg));
	wb__pki_finish(&c->fresh);
	again(c);
}

static void act(struct wb__certs *c)
{
	struct wb__pki_want w = {
		(const char *const *)c->name, c->n_name, wb_wall_ns() / 1000000000u};
	unsigned due;

	tell_pair(c);
	due = c->is_leading ? wb__pki_due(&c->pki, &w) : 0;
	if (due) {
		make(c, &w, due);
		return;
	}
	wb__camaps_set(c->maps, c->pki.ca);
	again(c);
}

static void on_read(void *cookie, const struct wb_kube_reply *r)
{
	struct wb__certs *c = cookie;

	c->rq = NULL;
	if (r->err.code && r->status != 404) {
		WB_LOG_WRN(MOD, "certificate not read", WB_S("why", r->err.msg));
		again(c);
		return;
	}
	wb__pki_finish(&c->pki);
	take_version(c, r->err.code ? NULL : r->body);
	if (!r->err.code)
		decode(r->body, &c->pki);
	act(c);
}

static void read_file(struct wb__certs *c)
{
	char *text = NULL;
	int rc = *c->ca_file ? wb_kube_read_pem(c->ca_file, &text) : 0;

	if (rc < 0)
		WB_LOG_ERR(MOD, "authority not read", WB_S("file", c->ca_file),
			WB_S("why", wb_strerror(rc)));
	else if (text)
		wb__camaps_set(c->maps, text);
	wb_free(text);
	again(c);
}

static void on_timer(void *cookie)
{
	struct wb__certs *c = cookie;
	struct wb_kube_call call = {.method = "GET", .done = on_read};

	if (c->rq)
		return;
	if (!c->secret)
		read_file(c);
	else if (send(c, &call, "") < 0)
		again(c);
}

/* ---- life ---- */

void wb__certs_lead(struct wb__certs *c)
{
	if (!c)
		return;
	c->is_leading = true;
	wb__camaps_lead(c->maps);
	if (!c->rq)
		wb_timer_start(c->timer, 0, 0);
}

void wb__certs_owner(
	struct wb__certs *c, const char *ns, const char *name, const char *uid, bool is_there)
{
	if (c)
		wb__camaps_owner(c->maps, ns, name, uid, is_there);
}

bool wb__certs_has_pair(const struct wb__certs *c)
{
	return !c || !c->secret || c->told;
}

static int copy_opts(struct wb__certs *c, const struct wb__certs_opts *o)
{
	c->ns = wb_strdup(o->ns);
	c->secret = o->secret ? wb_strdup(o->secret) : NULL;
	c->ca_file = wb_strdup(o->ca_file ? o->ca_file : "");
	c->name = wb_zalloc(o->n_name + 1, sizeof(*c->name));
	if (!c->ns || (o->secret && !c->secret) || !c->ca_file || !c->name)
		return -ENOMEM;
	for (; c->n_name < o->n_name; c->n_name++)
		if (!(c->name[c->n_name] = wb_strdup(o->name[c->n_name])))
			return -ENOMEM;
	return 0;
}

int wb__certs_start(struct wb_kube *kube, const struct wb__certs_opts *o,
	const struct wb__certs_cb *cb, struct wb__certs **out)
{
	struct wb__certs *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->kube = kube;
	c->cb = *cb;
	if (copy_opts(c, o) < 0 ||
		wb_timer_create(wb_kube_loop(kube), on_timer, c, &c->timer) < 0 ||
		wb__camaps_create(kube, o->watched, o->n_watched, &c->maps) < 0) {
		wb__certs_stop(c);
		return -ENOMEM;
	}
	wb_timer_start(c->timer, 0, 0);
	*out = c;
	return 0;
}

void wb__certs_stop(struct wb__certs *c)
{
	if (!c)
		return;
	wb__camaps_destroy(c->maps);
	wb_kube_cancel(c->rq);
	wb_timer_destroy(c->timer);
	wb__pki_finish(&c->pki);
	wb__pki_finish(&c->fresh);
	for (size_t i = 0; i < c->n_name; i++)
		wb_free(c->name[i]);
	wb_free(c->name);
	wb_free(c->told);
	wb_free(c->version);
	wb_free(c->ca_file);
	wb_free(c->secret);
	wb_free(c->ns);
	wb_free(c);
}
