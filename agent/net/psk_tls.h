/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_PSK_TLS_H
#define WB_NET_PSK_TLS_H
/*
 * A pre-shared key in the form that OpenSSL's callbacks for TLS 1.3 require.
 *
 * Any thread.  Layer: net (L1).
 */
#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

/* The suite whose hash (SHA-256) such keys are bound to. */
#define WB_PSK_TLS_SUITE "TLS_AES_128_GCM_SHA256"

/** wb_psk_session - make a session of @ssl that represents the key (copied).  New reference; NULL:
 * no memory. */
SSL_SESSION *wb_psk_session(SSL *ssl, const uint8_t *key, size_t bytes);

#endif
