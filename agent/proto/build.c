/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/build.h"

#include "proto/messages.h"

#include <stdio.h>
#include <string.h>

#define HASH_DIGITS 8
#define HASHES_SINCE 2 /* protocol version; builds without hashes have our layout of version 1 */
#define APP_MESSAGES 0x200 /* smaller numbers are messages of app and agent */

static uint32_t mix(uint32_t hash, uint32_t value)
{
	for (int i = 0; i < 4; i++, value >>= 8)
		hash = (hash ^ (value & 0xff)) * 16777619u; /* FNV-1a */
	return hash;
}

static uint32_t hash_table(uint32_t hash, const struct wb_table *t, uint32_t proto)
{
	for (uint32_t i = 0; i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];

		if (f->since > proto)
			continue;
		hash = mix(hash, f->kind);
		if (f->sub)
			hash = mix(hash_table(hash, f->sub, proto), 0xff);
	}
	return hash;
}

static uint32_t hash_layout(uint32_t proto)
{
	uint32_t hash = mix(2166136261u, WBP_SHARED_ABI);
	const struct wb_msg_info *m;

	for (uint32_t i = 0; (m = wb_msg_at(i)); i++) {
		/* A message that a later version added has only fields of that version. */
		if (m->type >= APP_MESSAGES ||
			(m->table->n_field && m->table->field[0].since > proto))
			continue;
		hash = hash_table(mix(hash, m->type), m->table, proto);
	}
	return hash;
}

const char *wb_build_text(const char *version, uint32_t min, uint32_t max, char out[WB_BUILD_TEXT])
{
	int at = snprintf(out, WB_BUILD_TEXT, "%.32s", version);

	for (uint32_t v = min; v <= max && at < WB_BUILD_TEXT; v++)
		at += snprintf(out + at, (size_t)(WB_BUILD_TEXT - at), "%c%08x",
			v == min ? '+' : '.', hash_layout(v));
	return out;
}

bool wb_build_is_same(const char *theirs, uint32_t their_min, uint32_t proto)
{
	const char *at = strchr(theirs, '+');
	char ours[HASH_DIGITS + 1];

	if (!at && proto < HASHES_SINCE)
		return true;

	for (uint32_t v = their_min; at && v < proto; v++)
		at = strchr(at + 1, '.');
	snprintf(ours, sizeof(ours), "%08x", hash_layout(proto));
	return at && !strncmp(at + 1, ours, HASH_DIGITS) &&
	       (at[1 + HASH_DIGITS] == '\0' || at[1 + HASH_DIGITS] == '.');
}
