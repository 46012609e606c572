/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_PEERS_H
#define WB_DAEMON_PEERS_H
/*
 * Control channels to other agents, one for each agent of an epoch, dialled when first needed.
 *
 * Both sides prove that they hold the epoch's key.  A channel that is lost is dialled again.  The
 * core is told that the agent is gone when it refuses us for good; when for a second all tries got
 * an answer that a process of this epoch does not give (nobody listens there, no such key); and
 * when it has said nothing for as long as the roster bears with it.  A connection that is not
 * answered, or is ended in the midst of its opening, says no more than that somebody is busy.
 *
 * Either side's channel serves both directions; when both dial at once each keeps sending on its
 * own.  Loop thread.  Layer: daemon (L4).
 */
#include "net/psk.h"
#include "proto/messages.h"
#include "transfer/roster.h"

#include <stdbool.h>

struct wb__agent;
struct wb_buf;
struct wb__peers;
struct wb_chan;
struct wb_err;

/** wb__peers_start - no epochs yet.  0 or -ENOMEM; wb__peers_destroy(). */
int wb__peers_start(struct wb__agent *a, struct wb__peers **out, struct wb_err *err);
/** wb__peers_close - close all channels; their ends follow from the loop. */
void wb__peers_close(struct wb__peers *p);
/** wb__peers_is_empty - no connection is left, also none that is closing. */
bool wb__peers_is_empty(const struct wb__peers *p);
void wb__peers_destroy(struct wb__peers *p);

/** wb__peers_epoch_add - know the agents and the key of an epoch, until wb__peers_epoch_over().
 *  @r is borrowed until then.  0; -EEXIST when one of that id is known; -ENOMEM, -EINVAL. */
int wb__peers_epoch_add(struct wb__peers *p, const struct wb_roster *r, struct wb_err *err);
/** wb__peers_epoch_over - its key is refused from now on, its channels end in order, and what was
 *  kept for its agents is dropped.  Nothing when it is not known. */
void wb__peers_epoch_over(struct wb__peers *p, const struct wb_roster *r);
/** wb__peers_send - a message of the core, as its env's to_peer; queued until the channel is up. */
void wb__peers_send(struct wb__peers *p, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes);
/** wb__peers_psk_find - wb_psk_find_fn of the listener; cookie = the peers. */
int wb__peers_psk_find(void *cookie, const char *id, struct wb_psk *out);
/** wb__peers_tickets - append a line for each object: a ticket of its newest epoch for the page
 * @path of its other agents. */
void wb__peers_tickets(const struct wb__peers *p, const char *path, struct wb_buf *out);
/** wb__peers_ticket_holds - @text is such a ticket, of an agent that has an epoch of ours. */
bool wb__peers_ticket_holds(struct wb__peers *p, const char *path, const char *text);
/** wb__peers_accept - a channel the listener handed out. */
void wb__peers_accept(struct wb__peers *p, struct wb_chan *ch);
/** wb__peers_n_up - channels that are up. */
uint32_t wb__peers_n_up(const struct wb__peers *p);

#endif
