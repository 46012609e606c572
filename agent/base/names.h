/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_NAMES_H
#define WB_BASE_NAMES_H
/*
 * A table of things by name, over libc's balanced tree (tsearch): with n names a lookup costs log
 * n, no matter who chose the names; a hash table would need a secret key against names that were
 * made to collide.
 *
 * The table keeps a pointer to the name, which lies in the thing (wb_container_of() finds the
 * thing).  Threads: one at a time.  Layer: base.
 */

/* All zero = empty. */
struct wb_names {
	void *root;
};

/** wb_names_add - @name: borrowed until wb_names_drop().  0, -ENOMEM; -EEXIST when another entry
 * has this name. */
int wb_names_add(struct wb_names *t, const char *name);
/** wb_names_find - the pointer that was added; NULL = nothing has this name. */
const char *wb_names_find(const struct wb_names *t, const char *name);
/** wb_names_drop - take @name out; does nothing when the table has another pointer for this name,
 * or none. */
void wb_names_drop(struct wb_names *t, const char *name);

#endif
