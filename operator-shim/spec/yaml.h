/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SPEC_YAML_H
#define WB_SPEC_YAML_H
/*
 * A bounded YAML reader that remembers lines.
 *
 * Reads documents into a tree of maps, lists and scalars.  Refused with a sentence: more than
 * 1 MiB, more than 32 levels, more than 65536 nodes, aliases and anchors (they can blow up), tags,
 * keys that are not scalars, a key twice in one map.  Threads: none shared.  Layer: operator-shim/
 * spec (over base).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB_YAML_BYTES_MAX (1u << 20)
#define WB_YAML_DEPTH_MAX 32
#define WB_YAML_NODES_MAX 65536

enum wb_yaml_kind { WB_YAML_SCALAR, WB_YAML_MAP, WB_YAML_LIST };

struct wb_yaml_child {
	char *key; /* owned; NULL in a list */
	uint32_t line; /* of the key, from 1 */
	struct wb_yaml_node *value; /* owned */
};

struct wb_yaml_node {
	enum wb_yaml_kind kind;
	bool is_plain; /* a scalar without quotes: may be a number, a boolean or null */
	uint32_t line; /* from 1 */
	char *text; /* owned, scalars only, no NUL inside */
	struct wb_yaml_child *child; /* owned */
	uint32_t n;
	size_t cap;
};

/**
 * wb_yaml_read - the documents of a text
 * @file:	name for messages; borrowed for the call
 * @text:	untrusted bytes
 * @doc, @n:	on success: owned array of roots (empty documents left out), and its length; release
 *		with wb_yaml_free()
 * Returns 0; -EINVAL with "file:line: what is wrong"; -E2BIG; -ENOMEM.
 */
int wb_yaml_read(const char *file, const void *text, size_t bytes, struct wb_yaml_node ***doc,
	size_t *n, struct wb_err *err);
void wb_yaml_free(struct wb_yaml_node **doc, size_t n);

/** wb_yaml_get - child of a map, or NULL (also when @node is NULL or no map). */
const struct wb_yaml_node *wb_yaml_get(const struct wb_yaml_node *node, const char *key);
/** wb_yaml_is_null - a plain scalar that means nothing: empty, ~ or null. */
bool wb_yaml_is_null(const struct wb_yaml_node *node);
/** wb_yaml_json - the tree as JSON (new reference), or NULL when memory is short or text is not
 * UTF-8.  Plain true, false, null and decimal numbers become JSON values of these types. */
json_t *wb_yaml_json(const struct wb_yaml_node *node);

#endif
