/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_RAW_H
#define WB_TESTS_FX_RAW_H
/* A dialer made by hand, that holds the key of fx_epoch and says what it likes to f->src. */
#include "tests/common/fx_xport.h"
#include "xport/frame.h"

struct fx_raw {
	int fd;
	uint8_t hello[WBP_BULK_HELLO_BYTES];
	uint8_t nonce[WBP_BULK_NONCE]; /* of the CHALLENGE */
};

void fx_raw_send(int fd, const struct wb__frame *f);
/** fx_raw_recv - the next frame; false: the other side closed. */
bool fx_raw_recv(int fd, struct wb__frame *f);
/** fx_raw_hello - one that is right, for a session of one socket. */
struct wb__hello fx_raw_hello(uint16_t over);
/** fx_raw_prove - HELLO .. PROOF; what is wrong with @h shows in the answers. */
void fx_raw_prove(struct fx_xport *f, struct fx_raw *r, const struct wb__hello *h);

#endif
