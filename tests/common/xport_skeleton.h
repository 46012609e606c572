/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_XPORT_SKELETON_H
#define WB_TESTS_XPORT_SKELETON_H
/*
 * The least that a transport is: what to begin a new one with.
 *
 * Transport "skeleton" joins agents of one process and one thread.  A word is a call, and bytes are
 * copied inside wb_xport_write(); their ends are told by polls, as everywhere.  What is promised in
 * xport.h the book keeps, and most of the table is the desk's (xport/book.h, xport/desk.h): here
 * stands what a transport adds.  A real one asks the other side, challenges it, and has something
 * under way: a cancelled grant is then over only when the source has said so.
 */

/** fx_skeleton_register - make "skeleton" known to wb_xport_open(); its endpoints are
 *  "skeleton:NAME". */
void fx_skeleton_register(void);

#endif
