/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_PLACES_H
#define WB_NET_PLACES_H
/*
 * Decides who may stay when more connections come than there is room for: strangers at a port, of
 * whom nothing is known except the address from which they come.
 *
 * Places are bounded in all and for each address (except this pod itself, which nobody else can
 * be).  When all places are taken, the address that has most of them gives its oldest one to an
 * address that has fewer.  If that cannot be, the oldest goes that has had its time, of an address
 * that has more than the newcomer's: otherwise an address with many could displace one that is slow
 * once.  If there is none, the oldest goes of the address that has most, if this has far more, even
 * one that is firm or waits for us: otherwise a few addresses that ask for what takes long could
 * hold all places.  Of many that come at once, the earlier ones stay, since they are nearly done.
 * No sockets and no clock in here.  Threads: the loop's.  Layer: net (L1), internal.
 */
#include "net/internal.h"

struct wb__place { /* embedded in the struct that it concerns */
	struct wb__place *next, **prev; /* oldest first; prev NULL = in no list */
	struct wb__source source;
	uint64_t since_ns;
	uint64_t patience_ns; /* it has had its time this long after since_ns; UINT64_MAX = never */
	/* Until it has had its time it does not make room for an address with somewhat fewer */
	bool is_firm;
};

struct wb__places {
	struct wb__place *first, **tail;
	uint32_t n, n_max, source_max;
};

/** wb__places_init - @n_max places in all, @source_max of one address. */
void wb__places_init(struct wb__places *s, uint32_t n_max, uint32_t source_max);
/** wb__places_room - may one more from @source come?  @out: the place that has to go for it, or
 * NULL.  False: no. */
bool wb__places_room(const struct wb__places *s, const struct wb__source *source, uint64_t now_ns,
	struct wb__place **out);
/** wb__place_take - add @p, in which source, since_ns and patience_ns are set. */
void wb__place_take(struct wb__places *s, struct wb__place *p);
/** wb__place_leave - take @p out of the list; a second call does nothing. */
void wb__place_leave(struct wb__places *s, struct wb__place *p);

#endif
