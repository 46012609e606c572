/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_LENT_H
#define WB_BASE_LENT_H
/*
 * Bytes that many send at once, and nobody copies.
 *
 * The lender keeps them as they are until each borrower has given them back; borrowers are on the
 * lender's thread.  Layer: base.
 */
#include <stddef.h>

struct wb_lent {
	const void *data;
	size_t bytes;
	void (*put)(void *cookie); /* give them back, once; never NULL */
	void *cookie;
};

#endif
