/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_PSK_H
#define WB_NET_PSK_H
/*
 * Pre-shared keys and the little cryptography around them (OpenSSL underneath).
 *
 * Keys never go to logs, errors or the environment.  Any thread.  Layer: net (L1).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB_PSK_BYTES_MIN 32
#define WB_PSK_BYTES_MAX 64
#define WB_PSK_ID_MAX 128
#define WB_MAC_BYTES 32

struct wb_psk {
	char id[WB_PSK_ID_MAX]; /* travels in the clear; names the key */
	uint8_t key[WB_PSK_BYTES_MAX];
	size_t bytes;
};

/**
 * wb_psk_read - read a key from a file of 64..128 hex digits (white space around them is allowed)
 * @id:		names the key to peers, at most WB_PSK_ID_MAX - 1 bytes
 * Blocks.  Returns 0; -EPERM when group or others may read or write the file, or it belongs to
 * somebody else than this user or root (the sentence has the command that fixes it); -ENOENT (with
 * the command that makes one), -EACCES, ...; -EBADMSG for other content.
 */
int wb_psk_read(const char *path, const char *id, struct wb_psk *out, struct wb_err *err);
/** wb_psk_clear - overwrite the key. */
void wb_psk_clear(struct wb_psk *k);

/** wb_hmac_sha256 - compute the HMAC of @data into @out.  0 or -ENOMEM. */
int wb_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
	uint8_t out[WB_MAC_BYTES]);
/** wb_derive - a key that whoever has @secret can make again, of one @purpose and for one @text:
 * says nothing of @secret, or of what is derived for others.  0 or -ENOMEM. */
int wb_derive(const void *secret, size_t bytes, const char *purpose, const char *text,
	uint8_t out[WB_MAC_BYTES]);
/** wb_bytes_equal - compare in constant time. */
bool wb_bytes_equal(const void *a, const void *b, size_t bytes);
/** wb_random_bytes - fill @out from the system's generator.  0 or -EIO. */
int wb_random_bytes(void *out, size_t bytes);
/** wb_hex_parse - read @bytes bytes from exactly 2 * @bytes hex digits.  0 or -EINVAL. */
int wb_hex_parse(const char *s, void *out, size_t bytes);

#endif
