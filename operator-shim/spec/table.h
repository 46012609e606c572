/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SPEC_TABLE_H
#define WB_SPEC_TABLE_H
/*
 * The one table of WeightTransfer fields and rules.  Constant.  Layer: operator-shim/spec.
 */
#include "operator-shim/spec/spec.h"

enum wb_spec_type {
	WB_SPEC_OBJECT,
	WB_SPEC_BOOL,
	WB_SPEC_INT, /* uint32_t; 0 = not given */
	WB_SPEC_QUANTITY, /* uint64_t bytes */
	WB_SPEC_STRING, /* char[max + 1] */
	WB_SPEC_WORD, /* uint32_t, an index into words */
	WB_SPEC_WORDS, /* struct wb_spec_words */
	WB_SPEC_STRINGS, /* struct wb_spec_strings */
};

struct wb_spec_field {
	const char *path; /* "spec.rollout.bufferSize"; a parent stands before its children */
	enum wb_spec_type type;
	bool is_required;
	const char *dflt; /* JSON text, or NULL */
	int64_t min, max; /* INT: value; lists: number of items; STRING: max is the length */
	const struct wb_words *words; /* WORD and WORDS */
	const char *pattern; /* QUANTITY */
	uint32_t len_min, len_max; /* QUANTITY and items of STRINGS: length; 0 = not limited */
	size_t off; /* in struct wb_spec */
};

struct wb_spec_rule {
	const char *path; /* where the CRD has the rule; "" = the object itself */
	const char *cel; /* the rule as Kubernetes evaluates it */
	const char *message;
	const char *blame; /* field whose line a refusal names */
	/* The same rule here: true when @now (changed from @old, which may be NULL) breaks it. */
	bool (*is_broken)(const struct wb_spec *now, const struct wb_spec *old);
};

extern const struct wb_spec_field wb_spec_fields[];
extern const size_t wb_spec_n_field;
extern const struct wb_spec_rule wb_spec_rules[];
extern const size_t wb_spec_n_rule;

#define WB_SPEC_API_VERSION "weightbridge.io/v1alpha1"
#define WB_SPEC_KIND "WeightTransfer"
#define WB_SPEC_BUFFER_MIN (64u << 20)
#define WB_SPEC_BUFFER_MAX (16ull << 40)

/** wb_spec_leaf - last part of a path. */
const char *wb_spec_leaf(const char *path);
/** wb_spec_distance - number of edits from @a to @b: insert, delete, replace, or swap neighbours,
 * each counts one.  Words longer than 64 are cut. */
unsigned wb_spec_distance(const char *a, const char *b);

#endif
