/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_JSON_H
#define WB_CTL_JSON_H
/*
 * Reading JSON that daemons wrote: what is absent shows as absent, nothing fails.  Layer: ctl (L4).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** wb__ctl_at - value at a path such as "status.plan.rounds"; NULL when there is none.  Borrowed.
 */
const json_t *wb__ctl_at(const json_t *v, const char *path);
/** wb__ctl_text - string, number or boolean at @path as text in @out; "" when absent.  Returns
 *  @out. */
const char *wb__ctl_text(const json_t *v, const char *path, char *out, size_t bytes);
/** wb__ctl_number - number at @path; @absent when there is none. */
double wb__ctl_number(const json_t *v, const char *path, double absent);
/** wb__ctl_condition - the condition called @type of an object; NULL when there is none. */
const json_t *wb__ctl_condition(const json_t *object, const char *type);
/** wb__ctl_since - seconds since the RFC 3339 time at @path; -1 when absent. */
double wb__ctl_since(const json_t *v, const char *path);
/** wb__ctl_is_meant - whether @asked, NAME, NAMESPACE/NAME or NULL for any, is object @key. */
bool wb__ctl_is_meant(const char *key, const char *asked);
/** wb__ctl_dump - print to stdout, as indented JSON or as a YAML document. */
void wb__ctl_dump(const json_t *v, bool is_yaml);

#endif
