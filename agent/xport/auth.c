/* SPDX-License-Identifier: Apache-2.0 */
/* The MACs of the challenge, and the key of the TLS handshake after it (frame.h). */
#include "net/psk.h"
#include "xport/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const char *const label[] = {
	[WB__MAC_ACCEPTOR] = "weightbridge bulk acceptor",
	[WB__MAC_DIALER] = "weightbridge bulk dialer",
	[WB__MAC_TLS] = "weightbridge bulk tls",
};

int wb__mac(const uint8_t key[WB_XPORT_KEY_BYTES], enum wb__mac_role role,
	const uint8_t hello[WBP_BULK_HELLO_BYTES], const uint8_t nonce[WBP_BULK_NONCE],
	uint8_t out[WBP_BULK_MAC])
{
	uint8_t text[32 + WBP_BULK_HELLO_BYTES + WBP_BULK_NONCE] = {0};

	static_assert(WBP_BULK_MAC == WB_MAC_BYTES, "the frame has room for a whole HMAC");
	/* The label has a field of fixed size, so different inputs never give the same text. */
	strncpy((char *)text, label[role], 31);
	memcpy(text + 32, hello, WBP_BULK_HELLO_BYTES);
	memcpy(text + 32 + WBP_BULK_HELLO_BYTES, nonce, WBP_BULK_NONCE);
	return wb_hmac_sha256(key, WB_XPORT_KEY_BYTES, text, sizeof(text), out) < 0 ? -EIO : 0;
}
