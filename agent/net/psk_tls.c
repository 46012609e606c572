/* SPDX-License-Identifier: Apache-2.0 */
#include "net/psk_tls.h"

SSL_SESSION *wb_psk_session(SSL *ssl, const uint8_t *key, size_t bytes)
{
	static const unsigned char aes128_sha256[] = {0x13, 0x01};
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes128_sha256);
	SSL_SESSION *sess = SSL_SESSION_new();

	if (sess && cipher && SSL_SESSION_set1_master_key(sess, key, bytes) &&
		SSL_SESSION_set_cipher(sess, cipher) &&
		SSL_SESSION_set_protocol_version(sess, TLS1_3_VERSION))
		return sess;
	SSL_SESSION_free(sess);
	return NULL;
}
