/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_LENT_H
#define WB_BASE_LENT_H
/*
 * Bytes that several senders use at once, and none of them copies.
 *
 * The lender keeps the bytes unchanged until each borrower has given them back; borrowers are on
 * the lender's thread.  Layer: base.
 */
#include <stddef.h>

struct wb_lent {
	const void *data;
	size_t bytes;
	void (*put)(void *cookie); /* give them back, once; never NULL */
	void *cookie;
};

#endif
