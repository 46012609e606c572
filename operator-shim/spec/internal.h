/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SPEC_INTERNAL_H
#define WB_SPEC_INTERNAL_H
/*
 * Shared by the files of this folder: the collected refusals of one file, and the setters of
 * fields.
 */
#include "base/err.h"
#include "operator-shim/spec/table.h"
#include "operator-shim/spec/yaml.h"

/* Sentences of one file are collected, so that the user sees all of them at once. */
struct wb__spec_check {
	const char *file;
	char text[WB_ERR_MSG_MAX];
	unsigned n;
};

/** wb__spec_refuse - add "file:line: path: sentence". */
void wb__spec_refuse(struct wb__spec_check *c, uint32_t line, const char *path, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
/** wb__spec_set_field - read @v into the field's place in @s, or refuse it. */
void wb__spec_set_field(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, struct wb_spec *s);
/** wb__spec_is_string - @v is a scalar that Kubernetes would read as a string, too. */
bool wb__spec_is_string(const struct wb_yaml_node *v);
/** wb__spec_tolerance - greatest distance at which @word may be a misspelling. */
unsigned wb__spec_tolerance(const char *word);

#endif
