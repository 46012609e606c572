/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests, maps and plans as bytes: kept by digest, taken and given in parts. */
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BLOBS_MAX (1u << 20)

struct blob *wb__serve_find_blob(
	const struct wb_serve *s, struct wb_digest d, enum content_kind kind)
{
	for (size_t i = 0; i < s->n_blob; i++)
		if (s->blob[i]->kind == kind && wb_digest_eq(s->blob[i]->digest, d))
			return s->blob[i];
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
	wb_free(b->data);
	wb_free(b);
}

struct blob *wb__serve_blob_make(
	enum content_kind kind, struct wb_digest d, uint8_t *data_take, size_t bytes)
{
	struct blob *b = wb_zalloc(1, sizeof(*b));

	if (!b) {
		wb_free(data_take);
		return NULL;
	}
	*b = (struct blob){1, kind, d, data_take, bytes};
	return b;
}

void wb__serve_forget_blobs(struct wb_serve *s)
{
	size_t keep = 0;

	for (size_t i = 0; i < s->n_blob; i++) {
		bool is_known = false;

		for (size_t k = 0; k < s->n_object && !is_known; k++)
			is_known = wb_recon_knows(s->object[k]->r, s->blob[i]->digest);
		if (is_known)
			s->blob[keep++] = s->blob[i];
		else
			wb__serve_blob_put(s->blob[i]);
	}
	s->n_blob = keep;
}

static struct upload *find_upload(struct peer *p, struct wb_digest d)
{
	for (size_t i = 0; i < p->n_upload; i++)
		if (wb_digest_eq(p->upload[i].digest, d))
			return &p->upload[i];
	return NULL;
}

void wb__serve_ask_for(struct peer *p, struct object *o, struct wb_digest d, enum content_kind kind)
{
	char text[WB_DIGEST_TEXT];
	const char *list = text;
	struct wb_msg_want m = {.object = o->key, .digests = &list, .n_digests = 1};

	if (!find_upload(p, d)) {
		if (wb_grow(&p->upload, &p->upload_cap, p->n_upload + 1, UPLOADS_MAX,
			    sizeof(*p->upload)) < 0) {
			wb__serve_close_peer(p);
			return;
		}
		p->upload[p->n_upload++] = (struct upload){.kind = kind, .digest = d};
	}
	wb_digest_text(d, text);
	wb__serve_send(p, WBP_WANT, &m);
}

static void drop_upload(struct peer *p, struct upload *u)
{
	wb_free(u->data);
	*u = p->upload[--p->n_upload];
}

/* A whole manifest or map: keep it and tell everybody who waits for it. */
static void keep(struct peer *p, struct upload *u)
{
	struct wb_serve *s = p->s;
	struct wb_digest d = u->digest;
	struct blob *b;
	int rc = 0;

	b = wb__serve_blob_make(u->kind, d, u->data, u->got_bytes);
	u->data = NULL;
	drop_upload(p, u);
	if (!b || wb_grow(&s->blob, &s->blob_cap, s->n_blob + 1, BLOBS_MAX, sizeof(*s->blob)) < 0) {
		wb__serve_blob_put(b);
		rc = -ENOMEM;
	} else {
		s->blob[s->n_blob++] = b;
	}
	for (size_t i = 0; i < s->n_object; i++)
		wb_recon_blob(s->object[i]->r, wb__serve_now(s), d, rc,
			rc ? "out of memory for a source map" : NULL);
}

static int add_part(struct upload *u, const struct wb_msg_content *m)
{
	uint64_t cap = u->kind == CONTENT_MANIFEST ? MANIFEST_BYTES_MAX : MAP_BYTES_MAX;
	int rc;

	if (!u->got_bytes)
		u->total_bytes = m->total_bytes;
	if (m->kind != u->kind || m->total_bytes != u->total_bytes || m->total_bytes > cap ||
		m->offset != u->got_bytes || m->n_data > m->total_bytes - u->got_bytes ||
		(!m->n_data && m->total_bytes))
		return -EBADMSG;
	if (!m->n_data)
		return 0;
	rc = wb_grow(&u->data, &u->cap, u->got_bytes + m->n_data, cap, 1);
	if (rc < 0)
		return rc;
	memcpy(u->data + u->got_bytes, m->data, m->n_data);
	u->got_bytes += m->n_data;
	return 0;
}

void wb__serve_on_content(struct peer *p, const struct wb_msg_content *m)
{
	struct upload *u = find_upload(p, m->digest);
	struct wb_digest got;
	int rc;

	wb_metric_add(p->s->metrics, WB_SM_CONTENT_BYTES, WB_LABELS("in"), m->n_data);
	if (!u)
		return; /* asked for before, and come in the meantime from elsewhere */
	rc = add_part(u, m);
	if (rc < 0) {
		wb__serve_reject(p, rc, true,
			rc == -EBADMSG ? "CONTENT parts do not follow each other, or are too long"
				       : "no memory for CONTENT");
		return;
	}
	if (u->got_bytes < u->total_bytes)
		return;
	got = wb_digest_of(u->data, u->got_bytes);
	if (!wb_digest_eq(got, u->digest)) {
		wb__serve_reject(
			p, WB_ECKSUM, true, "CONTENT does not have the digest it was sent under");
		return;
	}
	keep(p, u);
}

void wb__serve_send_content(struct peer *p, const struct object *o, const struct blob *b)
{
	struct wb_msg_content m = {
		.object = o->key, .kind = b->kind, .digest = b->digest, .total_bytes = b->bytes};

	do {
		m.data = b->data + m.offset;
		m.n_data = (uint32_t)WB_MIN(b->bytes - m.offset, CONTENT_PART_BYTES);
		wb__serve_send(p, WBP_CONTENT, &m);
		m.offset += m.n_data;
	} while (m.offset < b->bytes && p->state == PEER_OPEN);
	wb_metric_add(p->s->metrics, WB_SM_CONTENT_BYTES, WB_LABELS("out"), (double)b->bytes);
}
