/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_TICKET_H
#define WB_NET_TICKET_H
/*
 * A short text with which a server redirects an authorized reader to another server of its kind: a
 * standby operator to the leader, an agent to another agent of its object.  It is valid for one
 * page, one subject and a minute, and made with a secret that only these servers share: the private
 * key of their certificate, or the key of an epoch.  Pure.  Any thread.  Layer: net (L1).
 */
#include "net/psk.h"

#define WB_TICKET_TEXT 96

struct wb_ticket_key {
	uint8_t key[WB_MAC_BYTES];
	bool is_set;
};

/** wb_ticket_key_set - make the key from @secret, which the servers share. */
void wb_ticket_key_set(struct wb_ticket_key *k, const void *secret, size_t bytes);
/** wb_ticket_make - write "SECONDS.HEX" for @path and @object (the subject; NULL = none), or ""
 * without a key. */
void wb_ticket_make(const struct wb_ticket_key *k, const char *path, const char *object,
	uint64_t wall_ns, char out[static WB_TICKET_TEXT]);
/** wb_ticket_holds - @text is a ticket for @path and @object, and has not expired. */
bool wb_ticket_holds(const struct wb_ticket_key *k, const char *path, const char *object,
	const char *text, uint64_t wall_ns);

#endif
