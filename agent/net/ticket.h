/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_TICKET_H
#define WB_NET_TICKET_H
/*
 * A word with which one who may read sends a reader on to others of its kind: a standby to the
 * leader, an agent to another of its object.  Good for one page, one subject and a minute, and made
 * with what they have in common and nobody else: the private key of their certificate, the key of
 * an epoch. Pure.  Any thread.  Layer: net (L1).
 */
#include "net/psk.h"

#define WB_TICKET_TEXT 96

struct wb_ticket_key {
	uint8_t key[WB_MAC_BYTES];
	bool is_set;
};

/** wb_ticket_key_set - @secret: what they have in common. */
void wb_ticket_key_set(struct wb_ticket_key *k, const void *secret, size_t bytes);
/** wb_ticket_make - "SECONDS.HEX" for @path and @object (what it is about; NULL = none), or ""
 * without a key. */
void wb_ticket_make(const struct wb_ticket_key *k, const char *path, const char *object,
	uint64_t wall_ns, char out[static WB_TICKET_TEXT]);
/** wb_ticket_holds - @text is one for these, and its time is not over. */
bool wb_ticket_holds(const struct wb_ticket_key *k, const char *path, const char *object,
	const char *text, uint64_t wall_ns);

#endif
