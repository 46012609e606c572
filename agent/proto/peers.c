/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/peers.h"

#include "base/base.h"
#include "base/err.h"
#include "proto/internal.h"

#include <errno.h>
#include <stddef.h>

/* clang-format off */
#define MAY(field) {#field, offsetof(struct wb_msg_peer, field), false},
#define MUST(field) {#field, offsetof(struct wb_msg_peer, field), true},
#define FIELDS(number, NAME, sender, receiver, fields, words) \
	static const struct wb_peer_field fields_##NAME[] = {fields {NULL, 0, false}};
WB_PEERS(FIELDS, MUST, MAY, MAY)

#define ROW(number, NAME, sender, receiver, fields, words) \
	[number] = {.name = #NAME, \
		.text = (words), \
		.from = WBP_ROLE_##sender, \
		.to = WBP_ROLE_##receiver, \
		.field = fields_##NAME},
static const struct wb_peer_rule rules[] = {
	WB_PEERS(ROW, WB_PEER_SKIP, WB_PEER_SKIP, WB_PEER_SKIP)};

/* Fields of every kind: the epoch that the message belongs to, and what numbers and confirms
 * messages. */
static const struct wb_peer_field of_every_kind[] = {
	MAY(kind) MAY(uid) MAY(term) MAY(number) MAY(seq) MAY(base) MAY(ack) MAY(skipped)
	{NULL, 0, false}};
/* clang-format on */

const struct wb_peer_rule *wb_peer_rule(uint32_t kind)
{
	return kind < WB_ARRAY_SIZE(rules) && rules[kind].name ? &rules[kind] : NULL;
}

static const struct wb_peer_field *find(const struct wb_peer_field *p, uint32_t offset)
{
	while (p->name && p->offset != offset)
		p++;
	return p->name ? p : NULL;
}

int wb_peer_check_fields(const struct wb_msg_peer *m, struct wb_err *err)
{
	const struct wb_table *t = wb_msg_info(WBP_PEER)->table;
	const struct wb_peer_rule *r = wb_peer_rule(m->kind);

	for (uint32_t i = 0; r && i < t->n_field; i++) {
		const struct wb_fdef *f = &t->field[i];
		const struct wb_peer_field *own = find(r->field, f->offset);
		bool is_empty = wb__is_empty(f, m);

		if (own && own->is_required && is_empty)
			return wb_err_set(err, -EBADMSG, "%s without %s", r->name, own->name);
		if (!own && !is_empty && !find(of_every_kind, f->offset))
			return wb_err_set(err, -EBADMSG, "%s with %s, which it does not carry",
				r->name, f->name);
	}
	return 0;
}

int wb_peer_check(const struct wb_msg_peer *m, uint32_t n_engine, uint32_t from, uint32_t to,
	struct wb_err *err)
{
	const struct wb_peer_rule *r = wb_peer_rule(m->kind);

	if (!r)
		return wb_err_set(err, -EBADMSG, "PEER of an unknown kind, %u", m->kind);
	if (m->engine >= n_engine && find(r->field, offsetof(struct wb_msg_peer, engine)))
		return wb_err_set(err, -EBADMSG, "%s of engine %u, and the plan has %u", r->name,
			m->engine, n_engine);
	if (!((from | WBP_ROLE_ANY) & r->from))
		return wb_err_set(err, -EBADMSG, "%s is not the sender's to say", r->name);
	if (!((to | WBP_ROLE_ANY) & r->to))
		return wb_err_set(err, -EBADMSG, "%s is not for this agent", r->name);
	return 0;
}
