/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/frame.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

static const char *const label[] = {
	[WB__MAC_ACCEPTOR] = "weightbridge bulk acceptor",
	[WB__MAC_DIALER] = "weightbridge bulk dialer",
};

int wb__mac(const uint8_t key[WB_XPORT_KEY_BYTES], enum wb__mac_role role,
	const uint8_t hello[WBP_BULK_HELLO_BYTES], const uint8_t nonce[WBP_BULK_NONCE],
	uint8_t out[WBP_BULK_MAC])
{
	uint8_t text[32 + WBP_BULK_HELLO_BYTES + WBP_BULK_NONCE] = {0};
	unsigned len = 0;

	/* The label has a field of its own size, so no two inputs give the same text. */
	strncpy((char *)text, label[role], 31);
	memcpy(text + 32, hello, WBP_BULK_HELLO_BYTES);
	memcpy(text + 32 + WBP_BULK_HELLO_BYTES, nonce, WBP_BULK_NONCE);
	if (!HMAC(EVP_sha256(), key, WB_XPORT_KEY_BYTES, text, sizeof(text), out, &len) ||
		len != WBP_BULK_MAC)
		return -EIO;
	return 0;
}

bool wb__mac_eq(const uint8_t a[WBP_BULK_MAC], const uint8_t b[WBP_BULK_MAC])
{
	return CRYPTO_memcmp(a, b, WBP_BULK_MAC) == 0;
}

int wb__random(void *p, size_t bytes)
{
	ssize_t n = getrandom(p, bytes, 0);

	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -EIO;
}
