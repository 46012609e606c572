/* SPDX-License-Identifier: Apache-2.0 */
#include "net/psk.h"

#include "base/base.h"
#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_file(int fd, const char *path, struct wb_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return wb_err_set(err, -errno, "key file %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return wb_err_set(err, -EBADMSG, "key file %s: not a regular file", path);
	if (st.st_mode & 077)
		return wb_err_set(err, -EPERM,
			"key file %s: others than its owner can read or write it (mode %04o): run "
			"chmod 600 %s",
			path, st.st_mode & 07777, path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return wb_err_set(err, -EPERM,
			"key file %s: belongs to user %u, this is user %u: run chown %u %s", path,
			(unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid(), path);
	return 0;
}

static int parse_key(char *text, const char *path, struct wb_psk *out, struct wb_err *err)
{
	char *s = text + strspn(text, " \t\r\n");
	size_t n = strlen(s);

	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	out->bytes = n / 2;
	if (n % 2 || out->bytes < WB_PSK_BYTES_MIN || out->bytes > WB_PSK_BYTES_MAX ||
		wb_hex_parse(s, out->key, out->bytes) < 0)
		return wb_err_set(err, -EBADMSG,
			"key file %s: %d to %d hex digits are wanted, an even number: make one "
			"with (umask 077; openssl rand -hex 32 > %s)",
			path, 2 * WB_PSK_BYTES_MIN, 2 * WB_PSK_BYTES_MAX, path);
	return 0;
}

int wb_psk_read(const char *path, const char *id, struct wb_psk *out, struct wb_err *err)
{
	char text[4 * WB_PSK_BYTES_MAX + 2];
	struct wb_psk k = {.bytes = 0};
	int fd, rc;
	ssize_t n;

	if (!*id || strlen(id) >= sizeof(k.id))
		return wb_err_set(err, -EINVAL, "key id \"%.64s\": 1 to %d bytes are allowed", id,
			WB_PSK_ID_MAX - 1);
	strcpy(k.id, id);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return wb_err_set(err, -ENOENT,
			"key file %s: not there: make one with (umask 077; openssl rand -hex 32 > "
			"%s) and copy it to the other side",
			path, path);
	if (fd < 0)
		return wb_err_set(err, -errno, "key file %s: %s", path, strerror(errno));
	rc = check_file(fd, path, err);
	if (!rc) {
		n = read(fd, text, sizeof(text) - 1);
		rc = n < 0 ? wb_err_set(err, -errno, "key file %s: %s", path, strerror(errno)) : 0;
		if (!rc) {
			text[n] = '\0';
			rc = parse_key(text, path, &k, err);
		}
	}
	close(fd);
	if (!rc)
		*out = k;
	OPENSSL_cleanse(text, sizeof(text));
	wb_psk_clear(&k);
	return rc;
}

void wb_psk_clear(struct wb_psk *k)
{
	OPENSSL_cleanse(k, sizeof(*k));
}

int wb_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
	uint8_t out[WB_MAC_BYTES])
{
	unsigned len = 0;

	assert(key_bytes <= INT32_MAX);
	return HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out, &len) &&
			       len == WB_MAC_BYTES
		       ? 0
		       : -ENOMEM;
}

int wb_derive(const void *secret, size_t bytes, const char *purpose, const char *text,
	uint8_t out[WB_MAC_BYTES])
{
	uint8_t key[WB_MAC_BYTES];
	/* In the order of tickets: what is derived for one purpose is no key or MAC of another. */
	int rc = wb_hmac_sha256(purpose, strlen(purpose), secret, bytes, key);

	if (rc == 0)
		rc = wb_hmac_sha256(key, sizeof(key), text, strlen(text), out);
	OPENSSL_cleanse(key, sizeof(key));
	return rc;
}

bool wb_bytes_equal(const void *a, const void *b, size_t bytes)
{
	return CRYPTO_memcmp(a, b, bytes) == 0;
}

int wb_random_bytes(void *out, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = getrandom((uint8_t *)out + at, bytes - at, 0);

		if (n < 0 && errno != EINTR)
			return -EIO;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

int wb_hex_parse(const char *s, void *out, size_t bytes)
{
	if (strlen(s) != 2 * bytes)
		return -EINVAL;
	for (size_t i = 0; i < bytes; i++) {
		int hi = hex_digit(s[2 * i]), lo = hex_digit(s[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		((uint8_t *)out)[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}
