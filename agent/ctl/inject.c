/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl inject: reads YAML documents and writes them with the sidecar added.  Scalars keep their
 * style, so that what was there keeps its meaning; comments are lost. */
#include "ctl/inject.h"

#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64

struct walk {
	struct wb__inject *j;
	uint8_t *seen; /* a flag for each node, since aliases may make circles */
	size_t n_seen;
	struct wb_err *err;
};

int wb__yaml_get(yaml_document_t *d, int at, const char *key)
{
	const yaml_node_t *n = yaml_document_get_node(d, at);

	if (!n || n->type != YAML_MAPPING_NODE)
		return 0;
	for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
		if (!strcmp(wb__yaml_text(d, p->key), key))
			return p->value;
	return 0;
}

const char *wb__yaml_text(yaml_document_t *d, int at)
{
	const yaml_node_t *n = yaml_document_get_node(d, at);

	return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : "";
}

static bool is_pod(yaml_document_t *d, int at)
{
	const yaml_node_t *list = yaml_document_get_node(
		d, wb__yaml_get(d, wb__yaml_get(d, at, "spec"), "containers"));

	return list && list->type == YAML_SEQUENCE_NODE;
}

static int walk(struct walk *w, int at, const char *ns, int depth);

static int walk_children(struct walk *w, int at, const char *ns, int depth)
{
	yaml_document_t *d = w->j->doc;
	int rc = 0;

	/* The node is looked up each time, since adding a sidecar may move it. */
	for (size_t i = 0; rc == 0; i++) {
		const yaml_node_t *n = yaml_document_get_node(d, at);
		size_t count =
			n->type == YAML_SEQUENCE_NODE
				? (size_t)(n->data.sequence.items.top -
					   n->data.sequence.items.start)
				: (size_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);

		if (i >= count)
			break;
		rc = walk(w,
			n->type == YAML_SEQUENCE_NODE ? n->data.sequence.items.start[i]
						      : n->data.mapping.pairs.start[i].value,
			ns, depth + 1);
	}
	return rc;
}

static int walk(struct walk *w, int at, const char *ns, int depth)
{
	yaml_document_t *d = w->j->doc;
	const yaml_node_t *n = yaml_document_get_node(d, at);
	char own[256];
	int rc = 0;

	if (!n || n->type == YAML_SCALAR_NODE || (size_t)at >= w->n_seen || w->seen[at])
		return 0;
	if (depth > DEPTH_MAX)
		return wb_err_set(
			w->err, -EINVAL, "nested more than %d deep: no manifest", DEPTH_MAX);
	w->seen[at] = 1;
	snprintf(own, sizeof(own), "%.255s",
		wb__yaml_text(d, wb__yaml_get(d, wb__yaml_get(d, at, "metadata"), "namespace")));
	if (*own)
		ns = own;
	if (is_pod(d, at))
		rc = wb__inject_pod(w->j, at, ns, w->err);
	return rc == 0 ? walk_children(w, at, ns, depth) : rc;
}

static int change(struct wb__inject *j, struct wb_err *err)
{
	const char *ns = j->o->ns ? j->o->ns : "";
	struct walk w = {.j = j, .err = err};
	int rc;

	w.n_seen = (size_t)(j->doc->nodes.top - j->doc->nodes.start) + 1;
	w.seen = wb_zalloc(w.n_seen, 1);
	if (!w.seen)
		return wb_err_set(err, -ENOMEM, "out of memory");
	rc = walk(&w, 1, ns, 0);
	wb_free(w.seen);
	return rc;
}

/* @doc belongs to the emitter afterwards, also on failure. */
static int emit(yaml_emitter_t *e, yaml_document_t *doc, struct wb_err *err)
{
	doc->start_implicit = 0; /* "---" before each document */
	doc->end_implicit = 1;
	return yaml_emitter_dump(e, doc)
		       ? 0
		       : wb_err_set(err, -EIO, "write: %s", e->problem ? e->problem : "failed");
}

static int next(yaml_parser_t *p, yaml_document_t *doc, const char *name, struct wb_err *err)
{
	if (!yaml_parser_load(p, doc))
		return wb_err_set(err, -EINVAL, "%s:%zu: %s", name, p->problem_mark.line + 1,
			p->problem ? p->problem : "not YAML");
	if (yaml_document_get_root_node(doc))
		return 1;
	yaml_document_delete(doc); /* the end of the stream */
	return 0;
}

static int run(struct wb__inject *j, yaml_parser_t *p, yaml_emitter_t *e, struct wb_err *err)
{
	const char *name = j->o->file ? j->o->file : "stdin";
	int rc;

	while ((rc = next(p, j->doc, name, err)) > 0) {
		size_t line = j->doc->start_mark.line + 1;

		rc = change(j, err);
		if (rc < 0) {
			yaml_document_delete(j->doc);
			return wb_err_wrap(err, rc, "%s, document at line %zu", name, line);
		}
		rc = emit(e, j->doc, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}

static int load_text(yaml_document_t *out, struct wb_err *err)
{
	yaml_parser_t p;
	int rc = 0;

	if (!yaml_parser_initialize(&p))
		return wb_err_set(err, -ENOMEM, "out of memory");
	yaml_parser_set_input_string(
		&p, (const unsigned char *)wb__ctl_sidecar_text, strlen(wb__ctl_sidecar_text));
	if (!yaml_parser_load(&p, out))
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	yaml_parser_delete(&p);
	return rc;
}

/* All or nothing: documents are written when all of them have been changed. */
static int run_buffered(struct wb__inject *j, FILE *in, FILE *to, struct wb_err *err)
{
	yaml_parser_t p = {0};
	yaml_emitter_t e = {0};
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int rc;

	if (!out || !yaml_parser_initialize(&p) || !yaml_emitter_initialize(&e)) {
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	} else {
		yaml_parser_set_input_file(&p, in);
		yaml_emitter_set_output_file(&e, out);
		yaml_emitter_set_unicode(&e, 1);
		yaml_emitter_set_width(&e, -1);
		yaml_emitter_open(&e);
		rc = run(j, &p, &e, err);
		yaml_emitter_close(&e);
	}
	yaml_emitter_delete(&e);
	yaml_parser_delete(&p);
	if (out)
		fclose(out);
	if (rc == 0)
		fwrite(text, 1, bytes, to);
	free(text);
	return rc;
}

int wb__inject_stream(
	const struct wb__ctl_opts *o, FILE *in, FILE *to, size_t *n_out, struct wb_err *err)
{
	yaml_document_t text, doc;
	struct wb__inject j = {.o = o, .text = &text, .doc = &doc};
	int rc = load_text(&text, err);

	if (rc < 0)
		return rc;
	rc = run_buffered(&j, in, to, err);
	yaml_document_delete(&text);
	*n_out = j.n;
	return rc;
}

int wb__ctl_inject(const struct wb__ctl_opts *o, struct wb_err *err)
{
	FILE *in = o->file ? fopen(o->file, "re") : stdin;
	size_t n = 0;
	int rc;

	if (!in)
		return wb_err_set(err, -errno, "open %s: %s", o->file, strerror(errno));
	rc = wb__inject_stream(o, in, stdout, &n, err);
	if (in != stdin)
		fclose(in);
	if (rc == 0)
		fprintf(stderr, "%zu pod template%s with label " WB__LABEL_INJECT "=enabled\n", n,
			n == 1 ? "" : "s");
	return rc;
}
