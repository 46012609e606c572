/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs: the bytes of manifests, maps, plans and pages, charged to an object.  What agents upload
 * arrives in parts, and is kept by digest, for each object separately. */
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BLOBS_MAX (1u << 16)

struct blob *wb__serve_find_blob(const struct object *o, struct wb_digest d, enum wb_content kind)
{
	for (size_t i = 0; i < o->n_blob; i++)
		if (o->blob[i]->kind == kind && wb_digest_eq(o->blob[i]->digest, d))
			return o->blob[i];
	return NULL;
}

struct blob *wb__serve_blob_get(struct blob *b)
{
	if (b)
		b->refs++;
	return b;
}

void wb__serve_blob_put(struct blob *b)
{
	if (!b || --b->refs)
		return;
	if (b->budget)
		wb_budget_release(b->budget, b->charged, b->account, b->bytes);
	wb_budget_put(b->budget);
	wb_free(b->account);
	if (b->is_secret)
		explicit_bzero(b->data, b->bytes);
	wb_free(b->slice);
	wb_free(b->data);
	wb_free(b);
}

struct blob *wb__serve_blob_make(
	enum wb_content kind, struct wb_digest d, uint8_t *data_take, size_t bytes)
{
	struct blob *b = wb_zalloc(1, sizeof(*b));

	if (!b) {
		wb_free(data_take);
		return NULL;
	}
	*b = (struct blob){.refs = 1, .kind = kind, .digest = d, .data = data_take, .bytes = bytes};
	return b;
}

int wb__serve_blob_charge(struct wb_serve *s, const struct object *o, struct blob *b, bool is_paid,
	struct wb_err *err)
{
	int rc = 0;

	b->charged = b->kind == WB_CONTENT_PLAN ? WB_BUDGET_PLANS
		     : b->kind == CONTENT_PAGE  ? WB_BUDGET_PAGES
						: WB_BUDGET_MAPS;
	b->account = wb_strdup(o->key);
	if (!b->account)
		return wb_err_set(err, -ENOMEM, "the operator is out of memory");
	if (!is_paid)
		rc = wb__serve_charge(s, b->charged, o, b->bytes, err);
	if (rc == 0)
		b->budget = wb_budget_get(s->budget);
	return rc;
}

void wb__serve_forget_blobs(struct object *o)
{
	if (o->n_blob)
		TAILQ_REMOVE(&o->s->keeping, o, keeping);
	for (size_t i = 0; i < o->n_blob; i++)
		wb__serve_blob_put(o->blob[i]);
	wb_free(o->blob);
	o->blob = NULL;
	o->n_blob = o->blob_cap = 0;
}

void wb__serve_prune(struct object *o)
{
	size_t keep = 0, n = o->n_blob;

	for (size_t i = 0; i < o->n_blob; i++) {
		struct blob *b = o->blob[i];

		if (wb_reconcile_forget(o->r, b->digest)) /* readers have references of their own */
			wb__serve_blob_put(b);
		else
			o->blob[keep++] = b;
	}
	o->n_blob = keep;
	if (n && !keep)
		TAILQ_REMOVE(&o->s->keeping, o, keeping);
}

/* ---- uploads ---- */

static struct upload *find_upload(struct peer *p, const struct object *o, struct wb_digest d)
{
	for (size_t i = 0; i < p->n_upload; i++)
		if (p->upload[i].o == o && wb_digest_eq(p->upload[i].digest, d))
			return &p->upload[i];
	return NULL;
}

void wb__serve_ask_for(struct peer *p, struct object *o, struct wb_digest d, enum wb_content kind)
{
	char text[WB_DIGEST_TEXT];
	const char *list = text;
	struct wb_msg_want m = {.object = o->key, .digests = &list, .n_digests = 1};

	if (find_upload(p, o, d))
		return; /* on its way */
	if (wb_grow(&p->upload, &p->upload_cap, p->n_upload + 1, UPLOADS_MAX, sizeof(*p->upload)) <
		0) {
		wb_session_end(&p->session, -EDQUOT, "too much is asked of it");
		return;
	}
	p->upload[p->n_upload++] = (struct upload){.o = o, .kind = kind, .digest = d};
	wb_digest_text(d, text);
	(void)wb_session_send(&p->session, WBP_WANT, &m);
}

static void drop_upload(struct peer *p, struct upload *u)
{
	if (u->is_charged && p->s)
		wb_budget_release(p->s->budget, WB_BUDGET_MAPS, u->o->key, u->total_bytes);
	wb_free(u->data);
	*u = p->upload[--p->n_upload];
}

void wb__serve_drop_uploads(struct peer *p, const struct object *o)
{
	for (size_t i = p->n_upload; i-- > 0;)
		if (!o || p->upload[i].o == o)
			drop_upload(p, &p->upload[i]);
}

/* Keep the upload as a blob of its object.  The blob takes over the bytes, and the charge for
 * them. */
static int keep_blob(struct wb_serve *s, struct upload *u)
{
	struct object *o = u->o;
	struct blob *b = wb__serve_blob_make(u->kind, u->digest, u->data, u->got_bytes);

	u->data = NULL;
	if (!b || wb_grow(&o->blob, &o->blob_cap, o->n_blob + 1, BLOBS_MAX, sizeof(*o->blob)) < 0 ||
		wb__serve_blob_charge(s, o, b, true, NULL) < 0) {
		wb__serve_blob_put(b);
		return -ENOMEM;
	}
	u->is_charged = false;
	if (!o->n_blob)
		TAILQ_INSERT_TAIL(&s->keeping, o, keeping);
	o->blob[o->n_blob++] = b;
	return 0;
}

/* A whole manifest or map has come: keep it, and tell reconcile, which may wait for it. */
static void keep(struct peer *p, struct upload *u)
{
	struct wb_serve *s = p->s;
	struct object *o = u->o;
	struct wb_digest d = u->digest;
	int rc = 0;

	if (!wb__serve_find_blob(o, d, u->kind))
		rc = keep_blob(s, u);
	drop_upload(p, u);
	(void)wb_reconcile_refused(
		wb__serve_touch(o), wb__serve_now(s), WB_REFUSED_BUDGET, p->hello.agent, "");
	wb_reconcile_blob(wb__serve_touch(o), wb__serve_now(s), d, rc,
		rc ? "out of memory for a source map" : NULL);
}

static bool follows(const struct upload *u, const struct wb_msg_content *m)
{
	uint64_t cap = u->kind == WB_CONTENT_MANIFEST ? MANIFEST_BYTES_MAX : MAP_BYTES_MAX;

	return m->kind == u->kind && m->total_bytes == u->total_bytes && m->total_bytes <= cap &&
	       m->offset == u->got_bytes && m->n_data <= m->total_bytes - u->got_bytes &&
	       (m->n_data || !m->total_bytes);
}

/* The whole upload is charged when its first part comes: two uploads that each had room for a half
 * would wait for each other for ever.  Memory is allocated only for the parts that have come. */
static int add_part(
	struct wb_serve *s, struct upload *u, const struct wb_msg_content *m, struct wb_err *err)
{
	int rc = 0;

	if (!u->got_bytes && !u->is_charged)
		u->total_bytes = m->total_bytes;
	if (!follows(u, m))
		return wb_err_set(
			err, -EBADMSG, "CONTENT parts do not follow each other, or are too long");
	if (!u->is_charged)
		rc = wb__serve_charge(s, WB_BUDGET_MAPS, u->o, u->total_bytes, err);
	if (rc < 0)
		return rc;
	u->is_charged = true;
	if (!m->n_data)
		return 0;
	rc = wb_grow(&u->data, &u->cap, u->got_bytes + m->n_data, u->total_bytes, 1);
	if (rc < 0)
		return wb_err_set(err, rc, "no memory for CONTENT");
	memcpy(u->data + u->got_bytes, m->data, m->n_data);
	u->got_bytes += m->n_data;
	return 0;
}

/* CONTENT that was not asked for, or whose object has gone.  It may have been sent before the agent
 * heard of that, so it is ignored; an agent that sends too much of it is rejected. */
static void unasked(struct peer *p, const struct wb_msg_content *m)
{
	p->unasked_bytes += m->n_data;
	if (p->unasked_bytes > UNASKED_BYTES_MAX)
		wb__serve_reject(p, -EPROTO, true, "CONTENT came that nobody had asked for");
}

void wb__serve_on_content(struct peer *p, const struct wb_msg_content *m)
{
	const struct object *o = wb__serve_object_of(p, m->object);
	struct upload *u = o ? find_upload(p, o, m->digest) : NULL;
	struct wb_err err = {0};
	struct wb_digest got;
	int rc;

	wb_metric_add(p->s->metrics, WB_SM_CONTENT_BYTES, WB_LABELS("in"), m->n_data);
	if (!u) {
		unasked(p, m);
		return;
	}
	rc = add_part(p->s, u, m, &err);
	if (rc == -EDQUOT)
		wb__serve_over(p, &err);
	else if (rc < 0)
		wb__serve_reject(p, rc, true, err.msg);
	if (rc < 0 || u->got_bytes < u->total_bytes)
		return;
	got = wb_digest_of(u->data, u->got_bytes);
	if (!wb_digest_eq(got, u->digest)) {
		wb__serve_reject(
			p, WB_ECKSUM, true, "CONTENT does not have the digest it was sent under");
		return;
	}
	keep(p, u);
}
