/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_PLACES_H
#define WB_NET_PLACES_H
/*
 * Who may stay when more come than there is room for: strangers at a port, of whom nothing is known
 * but the address they come from.
 *
 * So many in all, and of one address (but from within this pod, which nobody else can be).  When
 * all places are taken, the address that has most of them gives one to an address that has fewer,
 * its oldest; else the oldest goes that has had its time, of an address that has more than who
 * comes: who has many would crowd out who is slow once else; else the oldest of an address that
 * has far more, also a firm one, and one that waits for us: a few addresses that ask for what
 * takes long would have all places else.  Of many that come at once those before stay: they are
 * nearly through. No sockets and no clock in here.  Threads: the loop's.  Layer: net (L1),
 * internal.
 */
#include "net/internal.h"

struct wb__place { /* embedded in what it is about */
	struct wb__place *next, **prev; /* oldest first; prev NULL = in no list */
	struct wb__source source;
	uint64_t since_ns;
	uint64_t patience_ns; /* it has had its time so long after since_ns; UINT64_MAX = never */
	bool is_firm; /* before that it does not make room for an address with somewhat fewer */
};

struct wb__places {
	struct wb__place *first, **tail;
	uint32_t n, n_max, source_max;
};

/** wb__places_init - @n_max places in all, @source_max of one address. */
void wb__places_init(struct wb__places *s, uint32_t n_max, uint32_t source_max);
/** wb__places_room - may one from @source come?  @out: who has to go for it, or NULL.  False: no.
 */
bool wb__places_room(const struct wb__places *s, const struct wb__source *source, uint64_t now_ns,
	struct wb__place **out);
/** wb__place_take - @p with source, since_ns and patience_ns set. */
void wb__place_take(struct wb__places *s, struct wb__place *p);
/** wb__place_leave - again does nothing. */
void wb__place_leave(struct wb__places *s, struct wb__place *p);

#endif
