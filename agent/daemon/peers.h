/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_PEERS_H
#define WB_DAEMON_PEERS_H
/*
 * Control channels to other agents, one for each agent of an epoch, dialled when first needed.
 *
 * Both sides prove that they hold the epoch's key.  A channel that is lost is dialled again.  The
 * core is told that an agent is gone in three cases: when it refuses us for good; when for a second
 * all tries got an answer that a process of this epoch does not give (nobody listens there, no such
 * key); and when it has said nothing for as long as the roster's patience.  A connection that is
 * not answered, or ends while it is being opened, only shows that somebody is busy.
 *
 * A channel serves both directions, whoever dialled it; when both sides dial at once, each keeps
 * sending on its own.  Loop thread.  Layer: daemon (L4).
 */
#include "net/psk.h"
#include "net/ticket.h"
#include "proto/messages.h"
#include "transfer/roster.h"

#include <stdbool.h>

struct wb__agent;
struct wb_buf;
struct wb__peers;
struct wb_chan;
struct wb_err;

/** wb__peers_start - begin without any epoch.  0 or -ENOMEM; release with wb__peers_destroy(). */
int wb__peers_start(struct wb__agent *a, struct wb__peers **out, struct wb_err *err);
/** wb__peers_close - close all channels; their ends follow from the loop. */
void wb__peers_close(struct wb__peers *p);
/** wb__peers_is_empty - no connection is left, not even one that is closing. */
bool wb__peers_is_empty(const struct wb__peers *p);
void wb__peers_destroy(struct wb__peers *p);

/** wb__peers_epoch_add - know the agents and the key of an epoch, until wb__peers_epoch_over().  @r
 * is borrowed until then.  0; -EEXIST: an epoch with that id is known; -ENOMEM, -EINVAL. */
int wb__peers_epoch_add(struct wb__peers *p, const struct wb_roster *r, struct wb_err *err);
/** wb__peers_epoch_over - refuse the epoch's key from now on, end its channels in order, and drop
 * what was kept for its agents.  Does nothing when the epoch is not known. */
void wb__peers_epoch_over(struct wb__peers *p, const struct wb_roster *r);
/** wb__peers_send - send a message of the core (its env's to_peer); it is queued until the channel
 * is up. */
void wb__peers_send(struct wb__peers *p, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes);
/** wb__peers_psk_find - the listener's wb_psk_find_fn; @cookie: the peers. */
int wb__peers_psk_find(void *cookie, const char *id, struct wb_psk *out);
/** wb__peers_tickets - append a line for each object: a ticket, made with its newest epoch's key,
 * for the page @path of its other agents. */
void wb__peers_tickets(const struct wb__peers *p, const char *path, struct wb_buf *out);
/** wb__peers_ticket_holds - is @text such a ticket, from an agent that has an epoch of ours? */
bool wb__peers_ticket_holds(struct wb__peers *p, const char *path, const char *text);
#define WB__PEERS_TICKET (WB_PSK_ID_MAX + WB_TICKET_TEXT)
/** wb__peers_newest - the newest epoch of the @i-th object here, borrowed until the loop turns;
 * NULL: there are fewer. */
const struct wb_roster *wb__peers_newest(const struct wb__peers *p, uint32_t i);
/** wb__peers_ticket - one such ticket, of epoch @r; "" when it is none of ours. */
void wb__peers_ticket(const struct wb__peers *p, const struct wb_roster *r, const char *path,
	char out[static WB__PEERS_TICKET]);
/** wb__peers_derive - what agents of the epoch that @ticket names can make of its key, for one
 * @purpose and @text, and nobody else (wb_derive()).  0; -ENOENT: no such epoch; -ENOMEM. */
int wb__peers_derive(const struct wb__peers *p, const char *ticket, const char *purpose,
	const char *text, uint8_t out[WB_MAC_BYTES]);
/** wb__peers_accept - take a channel that the listener has accepted. */
void wb__peers_accept(struct wb__peers *p, struct wb_chan *ch);
/** wb__peers_n_up - how many channels are up. */
uint32_t wb__peers_n_up(const struct wb__peers *p);

#endif
