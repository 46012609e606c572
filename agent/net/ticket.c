/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ticket.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALID_S 60

void wb_ticket_key_set(struct wb_ticket_key *k, const void *secret, size_t bytes)
{
	static const char purpose[] = "weightbridge pages";

	k->is_set = wb_hmac_sha256(purpose, sizeof(purpose), secret, bytes, k->key) == 0;
}

static int sign(const struct wb_ticket_key *k, const char *path, const char *object,
	uint64_t until_s, uint8_t out[WB_MAC_BYTES])
{
	char text[600];
	int n = snprintf(
		text, sizeof(text), "%" PRIu64 "\n%s\n%s", until_s, path, object ? object : "");

	if (!k->is_set || n < 0 || (size_t)n >= sizeof(text))
		return -1;
	return wb_hmac_sha256(k->key, sizeof(k->key), text, (size_t)n, out);
}

void wb_ticket_make(const struct wb_ticket_key *k, const char *path, const char *object,
	uint64_t wall_ns, char out[static WB_TICKET_TEXT])
{
	uint64_t until_s = wall_ns / WB_NS_PER_S + VALID_S;
	uint8_t mac[WB_MAC_BYTES];
	int n;

	out[0] = '\0';
	if (sign(k, path, object, until_s, mac) < 0)
		return;
	n = snprintf(out, WB_TICKET_TEXT, "%" PRIu64 ".", until_s);
	for (size_t i = 0; i < sizeof(mac); i++)
		n += snprintf(out + n, WB_TICKET_TEXT - (size_t)n, "%02x", mac[i]);
}

bool wb_ticket_holds(const struct wb_ticket_key *k, const char *path, const char *object,
	const char *text, uint64_t wall_ns)
{
	uint64_t now_s = wall_ns / WB_NS_PER_S, until_s;
	uint8_t want[WB_MAC_BYTES], got[WB_MAC_BYTES];
	char *end;

	if (!text)
		return false;
	until_s = strtoull(text, &end, 10);
	/* Clocks of nodes differ a little, so @text may end later than a ticket made here now. */
	if (*end != '.' || now_s > until_s || until_s > now_s + 2 * (uint64_t)VALID_S)
		return false;
	return wb_hex_parse(end + 1, got, sizeof(got)) == 0 &&
	       sign(k, path, object, until_s, want) == 0 && wb_bytes_equal(want, got, sizeof(got));
}
