/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_SPEC_JSON_H
#define WB_OPERATOR_SPEC_JSON_H
/*
 * Text for people in JSON.  Sentences are cut to the space that there is, perhaps in the middle of
 * a character.  json_string() returns NULL for such text, and the API server refuses a whole status
 * without a required message.  Layer: operator-shim/spec.  Pure; any thread.
 */
#include <jansson.h>

/** wb_json_text - @s as a JSON string; bytes that are no UTF-8 become '?'.  A new reference; NULL
 *  when memory is short. */
json_t *wb_json_text(const char *s);

#endif
