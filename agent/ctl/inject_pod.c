/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl inject: adds the sidecar to one pod or pod template. */
#include "ctl/inject.h"

#include "base/base.h"
#include "base/err.h"
#include "proto/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 4096
#define SIDECAR "weightbridge-agent"
/* Its file has the capability IPC_LOCK: else only root would have it in effect. */
#define LOCK_PROGRAM "/usr/bin/weightbridge-agent-ipclock"

/* What is filled in for @words@ of the sidecar's text. */
struct fill {
	char name[64], namespace_[64], memory[64], listen[8], http[8], image[512], operator_[300];
};

struct pod {
	struct wb__inject *j;
	yaml_document_t *d;
	int pod, meta, spec; /* nodes */
	struct fill fill;
	bool has_lock, is_host;
};

/* ---- adding nodes ---- */

static int add_text(yaml_document_t *d, const char *text, bool is_key)
{
	return yaml_document_add_scalar(d, NULL, (yaml_char_t *)(uintptr_t)text, (int)strlen(text),
		is_key ? YAML_PLAIN_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

static bool set_key(yaml_document_t *d, int map, const char *key, int value)
{
	int k = value ? add_text(d, key, true) : 0;

	return k && yaml_document_append_mapping_pair(d, map, k, value);
}

static bool is_mapping(yaml_document_t *d, int at)
{
	const yaml_node_t *n = yaml_document_get_node(d, at);

	return n && n->type == YAML_MAPPING_NODE;
}

/* The mapping or sequence under @key.  It is made if there is none; a value of another kind, such
 * as null, is replaced. */
static int ensure(yaml_document_t *d, int map, const char *key, bool is_list)
{
	int at = wb__yaml_get(d, map, key);
	const yaml_node_t *n = yaml_document_get_node(d, at);
	yaml_node_t *m;
	int made;

	if (!is_mapping(d, map))
		return 0;
	if (n && n->type == (is_list ? YAML_SEQUENCE_NODE : YAML_MAPPING_NODE)) {
		m = yaml_document_get_node(d, at);
		/* If it was written as [] or {}, it becomes like what is added. */
		if (is_list)
			m->data.sequence.style = YAML_BLOCK_SEQUENCE_STYLE;
		else
			m->data.mapping.style = YAML_BLOCK_MAPPING_STYLE;
		return at;
	}
	made = is_list ? yaml_document_add_sequence(d, NULL, YAML_BLOCK_SEQUENCE_STYLE)
		       : yaml_document_add_mapping(d, NULL, YAML_BLOCK_MAPPING_STYLE);
	if (!n)
		return set_key(d, map, key, made) ? made : 0;
	m = yaml_document_get_node(d, map);
	for (yaml_node_pair_t *p = m->data.mapping.pairs.start; p < m->data.mapping.pairs.top; p++)
		if (p->value == at)
			p->value = made;
	return made;
}

static const char *value_of(const struct fill *f, const char *name, size_t n)
{
	const struct {
		const char *name, *value;
	} all[] = {
		{"name", f->name},
		{"namespace", f->namespace_},
		{"memory", f->memory},
		{"listen", f->listen},
		{"http", f->http},
		{"image", f->image},
		{"operator", f->operator_},
	};

	for (size_t i = 0; i < WB_ARRAY_SIZE(all); i++)
		if (strlen(all[i].name) == n && !strncmp(all[i].name, name, n))
			return all[i].value;
	return NULL;
}

static void fill_in(const struct fill *f, const char *text, char out[static TEXT_MAX])
{
	size_t n = 0;

	while (*text && n < TEXT_MAX - 1) {
		const char *end = *text == '@' ? strchr(text + 1, '@') : NULL;
		const char *v = end ? value_of(f, text + 1, (size_t)(end - text - 1)) : NULL;

		if (v) {
			n += (size_t)snprintf(out + n, TEXT_MAX - n, "%s", v);
			n = WB_MIN(n, (size_t)TEXT_MAX - 1);
			text = end + 1;
		} else {
			out[n++] = *text++;
		}
	}
	out[n] = '\0';
}

/* Copies a part of the sidecar's text, filled in.  The text is ours, so its depth is known. */
static int copy(struct pod *p, int from) /* NOLINT(misc-no-recursion) */
{
	yaml_node_t *n = yaml_document_get_node(p->j->text, from);
	char text[TEXT_MAX];
	int to, child;

	if (n->type == YAML_SCALAR_NODE) {
		fill_in(&p->fill, (const char *)n->data.scalar.value, text);
		return yaml_document_add_scalar(
			p->d, NULL, (yaml_char_t *)text, (int)strlen(text), n->data.scalar.style);
	}
	if (n->type == YAML_SEQUENCE_NODE) {
		to = yaml_document_add_sequence(p->d, NULL, YAML_BLOCK_SEQUENCE_STYLE);
		for (int *i = n->data.sequence.items.start; to && i < n->data.sequence.items.top;
			i++) {
			child = copy(p, *i);
			if (!child || !yaml_document_append_sequence_item(p->d, to, child))
				return 0;
		}
		return to;
	}
	to = yaml_document_add_mapping(p->d, NULL, YAML_BLOCK_MAPPING_STYLE);
	for (yaml_node_pair_t *i = n->data.mapping.pairs.start; to && i < n->data.mapping.pairs.top;
		i++) {
		child = copy(p, i->value);
		if (!set_key(p->d, to, wb__yaml_text(p->j->text, i->key), child))
			return 0;
	}
	return to;
}

static bool append_all(struct pod *p, int list, const char *key)
{
	yaml_document_t *t = p->j->text;
	const yaml_node_t *n = yaml_document_get_node(t, wb__yaml_get(t, 1, key));
	int child;

	for (int *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++) {
		child = copy(p, *i);
		if (!child || !yaml_document_append_sequence_item(p->d, list, child))
			return false;
	}
	return true;
}

/* ---- parts of a pod ---- */

static bool add_lock(struct pod *p, int sidecar)
{
	int caps =
		wb__yaml_get(p->d, wb__yaml_get(p->d, sidecar, "securityContext"), "capabilities");
	int list = ensure(p->d, caps, "add", true), word = add_text(p->d, "IPC_LOCK", false);
	int command = ensure(p->d, sidecar, "command", true);
	int program = add_text(p->d, LOCK_PROGRAM, false);

	return list && word && yaml_document_append_sequence_item(p->d, list, word) && command &&
	       program && yaml_document_append_sequence_item(p->d, command, program);
}

static bool add_option(struct pod *p, int sidecar, const char *option)
{
	int args = ensure(p->d, sidecar, "args", true), word = add_text(p->d, option, false);

	return args && word && yaml_document_append_sequence_item(p->d, args, word);
}

static bool add_sidecar(struct pod *p)
{
	yaml_document_t *t = p->j->text;
	int list = ensure(p->d, p->spec, "initContainers", true);
	int sidecar = copy(p, wb__yaml_get(t, 1, "sidecar"));
	yaml_node_t *n;
	int *item;

	if (!list || !sidecar || (p->has_lock && !add_lock(p, sidecar)))
		return false;
	if (p->j->o->asks_for_metrics && !add_option(p, sidecar, "--metrics-auth"))
		return false;
	if (!p->is_host && !set_key(p->d, sidecar, "ports", copy(p, wb__yaml_get(t, 1, "ports"))))
		return false;
	if (!yaml_document_append_sequence_item(p->d, list, sidecar))
		return false;
	/* It becomes the first, so that containers that start after it may already use it. */
	n = yaml_document_get_node(p->d, list);
	item = n->data.sequence.items.start;
	memmove(item + 1, item, (size_t)(n->data.sequence.items.top - item - 1) * sizeof(*item));
	*item = sidecar;
	return true;
}

static bool add_annotations(struct pod *p)
{
	yaml_document_t *t = p->j->text;
	const yaml_node_t *n = yaml_document_get_node(t, wb__yaml_get(t, 1, "annotations"));
	int map = ensure(p->d, p->meta, "annotations", false);

	for (yaml_node_pair_t *i = n->data.mapping.pairs.start;
		map && i < n->data.mapping.pairs.top; i++) {
		const char *key = wb__yaml_text(t, i->key);

		if (!wb__yaml_get(p->d, map, key) && !set_key(p->d, map, key, copy(p, i->value)))
			return false;
	}
	return map != 0;
}

/* Is @name in @list?  "a" is in "a,b". */
static bool is_listed(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (; *list; list += *list == ',') {
		size_t m = strcspn(list, ",");

		if (m == n && !strncmp(list, name, n))
			return true;
		list += m;
	}
	return false;
}

static size_t count(const char *list)
{
	size_t n = 1;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

static bool add_mounts(struct pod *p, const char *meant, size_t *found)
{
	int list = wb__yaml_get(p->d, p->spec, "containers");

	for (size_t i = 0;; i++) {
		const yaml_node_t *n = yaml_document_get_node(p->d, list);
		int c, mounts;

		if (i >= (size_t)(n->data.sequence.items.top - n->data.sequence.items.start))
			return true;
		c = n->data.sequence.items.start[i];
		if (*meant ? !is_listed(meant, wb__yaml_text(p->d, wb__yaml_get(p->d, c, "name")))
			   : i > 0)
			continue;
		(*found)++;
		mounts = ensure(p->d, c, "volumeMounts", true);
		if (!mounts || !append_all(p, mounts, "volumeMounts"))
			return false;
	}
}

/* ---- labels and annotations ---- */

static const char *label(const struct pod *p, const char *key)
{
	return wb__yaml_text(p->d, wb__yaml_get(p->d, wb__yaml_get(p->d, p->meta, "labels"), key));
}

static const char *annotation(const struct pod *p, const char *key)
{
	return wb__yaml_text(
		p->d, wb__yaml_get(p->d, wb__yaml_get(p->d, p->meta, "annotations"), key));
}

static bool is_quantity(const char *s)
{
	size_t n = strspn(s, "0123456789.");

	return n && *s != '.' && (!s[n] || strstr(" Ki Mi Gi Ti Pi k M G T P m ", s + n) != NULL);
}

static int check_containers(const struct pod *p, struct wb_err *err)
{
	const yaml_node_t *n =
		yaml_document_get_node(p->d, wb__yaml_get(p->d, p->spec, "containers"));

	for (int *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++)
		if (!is_mapping(p->d, *i))
			return wb_err_set(err, -EINVAL, "a container of the pod has no fields");
	return 0;
}

/* Every word but "disabled" counts as wanted, and check_labels() refuses all but "enabled": a pod
 * with "true" would else be passed over, and run without an agent. */
static bool is_wanted(const struct pod *p)
{
	const char *inject = label(p, WB__LABEL_INJECT);

	return *inject && strcmp(inject, "disabled") != 0;
}

static int check_labels(const struct pod *p, struct wb_err *err)
{
	const char *inject = label(p, WB__LABEL_INJECT);
	const char *role = label(p, "weightbridge.io/role");
	const char *memory = annotation(p, "weightbridge.io/memory");
	const char *profile = annotation(p, "weightbridge.io/profile");

	if (strcmp(inject, "enabled") != 0)
		return wb_err_set(err, -EINVAL,
			"label " WB__LABEL_INJECT " is %.64s: it has to be enabled, or disabled",
			inject);
	if (!*label(p, "weightbridge.io/name"))
		return wb_err_set(err, -EINVAL,
			"label weightbridge.io/name is missing: it names the WeightTransfer, of "
			"this "
			"namespace, that the pod takes part in");
	if (!*role)
		return wb_err_set(err, -EINVAL,
			"label weightbridge.io/role is missing: it is trainer, rollout or both");
	if (wb_word_number(&wb_role_words, role) < 0 && strcmp(role, "both") != 0)
		return wb_err_set(err, -EINVAL,
			"label weightbridge.io/role is %.64s: it has to be trainer, rollout or "
			"both",
			role);
	if (*memory && !is_quantity(memory))
		return wb_err_set(err, -EINVAL,
			"annotation weightbridge.io/memory is %.64s: it has to be a quantity such "
			"as "
			"8Gi",
			memory);
	if (*profile && strcmp(profile, "Hardened") != 0 && strcmp(profile, "IPCLock") != 0)
		return wb_err_set(err, -EINVAL,
			"annotation weightbridge.io/profile is %.64s: it has to be Hardened or "
			"IPCLock",
			profile);
	return 0;
}

static void set_fill(struct pod *p, const char *ns)
{
	const struct wb__ctl_opts *o = p->j->o;
	yaml_document_t *t = p->j->text;
	struct fill *f = &p->fill;
	const char *memory = annotation(p, "weightbridge.io/memory");

	p->is_host =
		!strcmp(wb__yaml_text(p->d, wb__yaml_get(p->d, p->spec, "hostNetwork")), "true");
	p->has_lock = !strcmp(annotation(p, "weightbridge.io/profile"), "IPCLock");
	if (!*memory)
		memory = wb__yaml_text(t, wb__yaml_get(t, wb__yaml_get(t, 1, "memory"),
						  label(p, "weightbridge.io/role")));
	snprintf(f->name, sizeof(f->name), "%.63s", label(p, "weightbridge.io/name"));
	snprintf(f->namespace_, sizeof(f->namespace_), "%.63s", ns);
	snprintf(f->memory, sizeof(f->memory), "%.63s", memory);
	snprintf(f->listen, sizeof(f->listen), "%s", p->is_host ? "0" : "7444");
	snprintf(f->http, sizeof(f->http), "%s", p->is_host ? "0" : "9402");
	snprintf(f->image, sizeof(f->image), "%s",
		o->image ? o->image : wb__yaml_text(t, wb__yaml_get(t, 1, "image")));
	snprintf(f->operator_, sizeof(f->operator_), "%s",
		o->operator_addr ? o->operator_addr
				 : wb__yaml_text(t, wb__yaml_get(t, 1, "operator")));
}

static bool has_sidecar(const struct pod *p)
{
	const yaml_node_t *n =
		yaml_document_get_node(p->d, wb__yaml_get(p->d, p->spec, "initContainers"));

	if (!n || n->type != YAML_SEQUENCE_NODE)
		return false;
	for (int *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++)
		if (!strcmp(wb__yaml_text(p->d, wb__yaml_get(p->d, *i, "name")), SIDECAR))
			return true;
	return false;
}

int wb__inject_pod(struct wb__inject *j, int pod, const char *ns, struct wb_err *err)
{
	struct pod p = {.j = j,
		.d = j->doc,
		.pod = pod,
		.meta = wb__yaml_get(j->doc, pod, "metadata"),
		.spec = wb__yaml_get(j->doc, pod, "spec")};
	char meant[1024];
	size_t found = 0;
	int volumes, rc;

	if (!is_wanted(&p) || has_sidecar(&p))
		return 0;
	rc = check_labels(&p, err);
	if (rc == 0)
		rc = check_containers(&p, err);
	if (rc < 0)
		return rc;
	if (!*ns)
		return wb_err_set(err, -EINVAL,
			"the object names no namespace, which is part of the token's audience: "
			"give "
			"--namespace NS");
	set_fill(&p, ns);
	snprintf(meant, sizeof(meant), "%s", annotation(&p, "weightbridge.io/containers"));
	volumes = ensure(p.d, p.spec, "volumes", true);
	if (!volumes || !add_sidecar(&p) || !append_all(&p, volumes, "volumes") ||
		!add_annotations(&p) || !add_mounts(&p, meant, &found))
		return wb_err_set(err, -ENOMEM, "out of memory");
	if (*meant && found != count(meant))
		return wb_err_set(err, -EINVAL,
			"annotation weightbridge.io/containers is %.200s: the pod has no container "
			"of "
			"that name",
			meant);
	j->n++;
	return 0;
}
