/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_RESUME_H
#define WB_TRANSFER_RESUME_H
/*
 * Resuming: what an engine's parties say about their staging areas under a new plan, and the
 * transfer that its lead takes up from there.  Owned by the lead.
 *
 * Invariant: nothing is taken up before all parties have been heard.
 */
#include "transfer/internal.h"

struct resume {
	bool *heard; /* owned, by agent; NULL = nobody yet */
	uint64_t transfer;
	int64_t version;
	bool is_pending; /* in some area it is not committed */
	bool is_whole; /* in all areas it is whole */
	bool is_installing; /* a parameter may have changed */
};

/** wb__transfer_resume_end_old - end runs of the plan before that cannot end there; comes before
 * anybody says what its areas hold. */
void wb__transfer_resume_end_old(struct epoch *e);
/** wb__transfer_resume - tell the leads what areas here hold; after wb__transfer_doubt(), since
 * what is in doubt is answered first. */
void wb__transfer_resume(struct epoch *e);
/** wb__transfer_resume_look - if all parties have said what their areas hold, and nobody is in
 * doubt any more, the lead takes the transfer up. */
void wb__transfer_resume_look(struct epoch *e, uint32_t engine);

#endif
