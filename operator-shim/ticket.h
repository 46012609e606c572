/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_TICKET_H
#define WB_OPERATOR_TICKET_H
/*
 * A standby sends who may read on to the leader, whom it does not reach from within: with a word of
 * its own that it may, good for one page, one object and a minute.  What all replicas have, and
 * nobody else, is the private key of their certificate.  Pure.  Threads: any.  Layer:
 * operator-shim.
 */
#include "net/psk.h"

#define WB__TICKET_TEXT 96

struct wb__ticket_key {
	uint8_t key[WB_MAC_BYTES];
	bool is_set;
};

/** wb__ticket_key_set - @secret: what all replicas have, and nobody else. */
void wb__ticket_key_set(struct wb__ticket_key *k, const void *secret, size_t bytes);
/** wb__ticket_make - "SECONDS.HEX" for @path and @object (NULL = none), or "" without a key. */
void wb__ticket_make(const struct wb__ticket_key *k, const char *path, const char *object,
	uint64_t wall_ns, char out[static WB__TICKET_TEXT]);
/** wb__ticket_holds - @text is one for these, and its time is not over. */
bool wb__ticket_holds(const struct wb__ticket_key *k, const char *path, const char *object,
	const char *text, uint64_t wall_ns);

#endif
