/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_FAR_H
#define WB_TESTS_FX_FAR_H
/*
 * Memory that the CPU does not reach, as a GPU's is to a transport: addresses without access, whose
 * bytes are in a file that a device finds by a descriptor.  Whoever touches the addresses ends.
 */
#include "tests/common/fx_verbs.h"
#include "tests/common/fx_xport.h"

#define FX_FAR_LEAD 12288u /* bytes of the file before it */

struct fx_far {
	uint8_t *addr; /* without access */
	uint8_t *see; /* the same bytes, for the test */
	size_t bytes;
	int fd; /* its "dma-buf": the file, from its beginning on */
	_Atomic int puts; /* calls of fx_far_put() that moved bytes */
};

/** fx_far_make - zeroed.  Release with fx_far_free(), when no transport has it any more. */
void fx_far_make(struct fx_far *m, size_t bytes);
void fx_far_free(struct fx_far *m);
/** fx_far_region - of FX_OBJECT, with its dma-buf and no place of a GPU. */
struct wb_xport_region fx_far_region(const struct fx_far *m, enum wb_xport_direction direction);
/** fx_region_add - make a region known; its number. */
uint32_t fx_region_add(struct fx_side *side, const struct wb_xport_region *r);
/** fx_far_add - the same, of fx_far_region(). */
uint32_t fx_far_add(
	struct fx_side *side, const struct fx_far *m, enum wb_xport_direction direction);
/** fx_far_settle - wait until the regions of fx_open() are registered, and forget what is scripted:
 *  what is scripted next is for others. */
void fx_far_settle(const struct fx_verbs *v, struct fx_xport *f);
/** fx_far_put - a grant's copy function into the memory that is its ctx. */
void fx_far_put(void *ctx, void *to, const void *from, size_t bytes, uint64_t off);
/** fx_far_path - of region @id of @side, when it is known; @says has room for 400 bytes. */
enum wb_xport_path fx_far_path(struct fx_xport *f, struct fx_side *side, uint32_t id, char *says);
/** fx_far_move - @bytes from @from at the source to @to at the receiver, in one chunk.  @into: what
 *  of such memory is at @to, NULL = the host's.  0, the code with which it was refused, or what
 *  wb_xport_grant() or wb_xport_write() said. */
int fx_far_move(struct fx_xport *f, void *from, void *to, size_t bytes, struct fx_far *into);

#endif
