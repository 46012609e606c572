/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/peers.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <stddef.h>

#define ROW(number, kind, sender, receiver, what, words)                                           \
	[number] = {.name = #kind,                                                                 \
		.text = (words),                                                                   \
		.from = WBP_ROLE_##sender,                                                         \
		.to = WBP_ROLE_##receiver,                                                         \
		.needs = WBP_NEEDS_##what},

static const struct wb_peer_rule rules[] = {WB_PEERS(ROW)};

const struct wb_peer_rule *wb_peer_rule(uint32_t kind)
{
	return kind < WB_ARRAY_SIZE(rules) && rules[kind].name ? &rules[kind] : NULL;
}

int wb_peer_check(const struct wb_msg_peer *m, uint32_t n_engine, uint32_t from, uint32_t to,
	struct wb_err *err)
{
	const struct wb_peer_rule *r = wb_peer_rule(m->kind);

	if (!r)
		return wb_err_set(err, -EBADMSG, "PEER of an unknown kind, %u", m->kind);
	if ((r->needs & WBP_NEEDS_ENGINE) && m->engine >= n_engine)
		return wb_err_set(err, -EBADMSG, "%s of engine %u, and the plan has %u", r->name,
			m->engine, n_engine);
	if ((r->needs & WBP_NEEDS_TRANSFER) && !m->transfer)
		return wb_err_set(err, -EBADMSG, "%s of no transfer", r->name);
	if (!((from | WBP_ROLE_ANY) & r->from))
		return wb_err_set(err, -EBADMSG, "%s is not the sender's to say", r->name);
	if (!((to | WBP_ROLE_ANY) & r->to))
		return wb_err_set(err, -EBADMSG, "%s is not for this agent", r->name);
	return 0;
}
