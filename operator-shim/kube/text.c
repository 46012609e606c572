/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/text.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RETRY_AFTER_MAX_NS (600 * WB_NS_PER_S)

void wb_kube_put_escaped(struct wb_buf *b, const char *s)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				    "-._~";

	for (; *s; s++) {
		if (strchr(plain, *s))
			wb_buf_put(b, s, 1);
		else
			wb_buf_printf(b, "%%%02X", (unsigned)(unsigned char)*s);
	}
}

static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

int wb_kube_base64(const char *text, uint8_t **out, size_t *bytes)
{
	uint8_t *data = wb_alloc(strlen(text) / 4 * 3 + 4);
	uint32_t bits = 0;
	unsigned n_char = 0, n_pad = 0;
	size_t n = 0;

	if (!data)
		return -ENOMEM;
	for (; *text; text++) {
		int v = value_of(*text);

		if (*text == '\n' || *text == '\r')
			continue;
		if (*text == '=' && n_char % 4 >= 2)
			v = 0, n_pad++;
		else if (v < 0 || n_pad)
			goto bad;
		bits = bits << 6 | (uint32_t)v;
		if (++n_char % 4)
			continue;
		data[n++] = (uint8_t)(bits >> 16);
		data[n++] = (uint8_t)(bits >> 8);
		data[n++] = (uint8_t)bits;
	}
	if (n_char % 4 || n_pad > 2)
		goto bad;
	n -= n_pad;
	data[n] = 0;
	*out = data;
	*bytes = n;
	return 0;
bad:
	wb_free(data);
	return -EINVAL;
}

char *wb_kube_to_base64(const void *data, size_t bytes)
{
	static const char digit[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
	const uint8_t *d = data;
	char *text = wb_alloc((bytes + 2) / 3 * 4 + 1), *at = text;

	for (size_t i = 0; text && i < bytes; i += 3) {
		size_t left = bytes - i;
		uint32_t v = (uint32_t)d[i] << 16 | (left > 1 ? (uint32_t)d[i + 1] << 8 : 0) |
			     (left > 2 ? d[i + 2] : 0);

		*at++ = digit[v >> 18];
		*at++ = digit[v >> 12 & 63];
		*at++ = digit[left > 1 ? v >> 6 & 63 : 64];
		*at++ = digit[left > 2 ? v & 63 : 64];
	}
	if (text)
		*at = '\0';
	return text;
}

const char *wb_kube_time(uint64_t wall_ns, char out[static WB_KUBE_TIME_TEXT])
{
	time_t s = (time_t)(wall_ns / WB_NS_PER_S);
	struct tm tm;
	size_t n;

	gmtime_r(&s, &tm);
	n = strftime(out, WB_KUBE_TIME_TEXT, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, WB_KUBE_TIME_TEXT - n, ".%06uZ",
		(unsigned)(wall_ns % WB_NS_PER_S / WB_NS_PER_US));
	return out;
}

const char *wb_kube_seconds(uint64_t wall_ns, char out[static WB_KUBE_TIME_TEXT])
{
	wb_kube_time(wall_ns, out);
	memcpy(strchr(out, '.'), "Z", 2);
	return out;
}

uint64_t wb_kube_read_time(const char *text)
{
	struct tm tm = {0};
	time_t t;

	if (!strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
		return 0;
	t = timegm(&tm);
	return t > 0 ? (uint64_t)t * WB_NS_PER_S : 0;
}

uint64_t wb_kube_backoff_next(
	struct wb_kube_backoff *b, uint64_t now_ns, uint64_t random, uint64_t at_least_ns)
{
	uint64_t wait;

	if (!b->next_ns || now_ns - b->failed_at_ns >= b->healthy_ns + b->next_ns)
		b->next_ns = b->min_ns;
	wait = b->min_ns / 2 + random % (b->next_ns + 1);
	b->next_ns = WB_MIN(b->next_ns * 2, b->max_ns);
	b->failed_at_ns = now_ns;
	wait = WB_MIN(wait, b->max_ns);
	return WB_MAX(wait, WB_MIN(at_least_ns, RETRY_AFTER_MAX_NS));
}
