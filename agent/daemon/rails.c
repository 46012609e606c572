/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rails.h"

#include "base/base.h"
#include "base/cli.h"
#include "base/err.h"
#include "mem/nic.h"
#include "mem/numa.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SPEC_MAX 512

/* ---- which they are ---------------------------------------------------------------------------
 */

static bool to_text(const struct sockaddr *a, char out[WB__ADDR_MAX])
{
	socklen_t len =
		a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

	return !getnameinfo(a, len, out, WB__ADDR_MAX, NULL, 0, NI_NUMERICHOST);
}

/* An address of the interface, of the family of @like before others. */
static bool address_of(const char *interface, const char *like, char out[WB__ADDR_MAX])
{
	struct ifaddrs *all = NULL;
	bool is_found = false, is_best = false;

	if (getifaddrs(&all))
		return false;
	for (const struct ifaddrs *a = all; a && !is_best; a = a->ifa_next) {
		char text[WB__ADDR_MAX];

		if (!a->ifa_addr || strcmp(a->ifa_name, interface) ||
			(a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6) ||
			!to_text(a->ifa_addr, text) || strchr(text, '%')) /* for one link only */
			continue;
		is_best = !like[0] || !strchr(like, ':') == !strchr(text, ':');
		if (is_best || !is_found)
			memcpy(out, text, sizeof(text));
		is_found = true;
	}
	freeifaddrs(all);
	return is_found;
}

/* The interface that has the address; "" = none says so, as for 127.0.0.2. */
static void interface_of(const char *addr, char *out, size_t cap)
{
	struct ifaddrs *all = NULL;

	out[0] = '\0';
	if (getifaddrs(&all))
		return;
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		char text[WB__ADDR_MAX];

		if (a->ifa_addr &&
			(a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6) &&
			to_text(a->ifa_addr, text) && !strcmp(text, addr)) {
			snprintf(out, cap, "%s", a->ifa_name);
			break;
		}
	}
	freeifaddrs(all);
}

static bool is_ours(const char *addr)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	struct addrinfo *a = NULL;
	bool is = false;
	int fd;

	if (getaddrinfo(addr, NULL, &hint, &a))
		return false;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		is = !bind(fd, a->ai_addr, a->ai_addrlen);
		close(fd);
	}
	freeaddrinfo(a);
	return is;
}

static int find_address(
	const char *name, const char *family, struct wb__rail *out, struct wb_err *err)
{
	if (if_nametoindex(name)) {
		if (!address_of(name, family, out->addr))
			return wb_err_set(err, -EADDRNOTAVAIL,
				"--rail %s: this interface has no address", name);
		snprintf(out->interface, sizeof(out->interface), "%s", name);
		return 0;
	}
	if (wb__addr_numeric(name, out->addr, NULL) < 0)
		return wb_err_set(err, -ENOENT,
			"--rail %s: it is no address, and no network interface of this host", name);
	if (wb__addr_is_any(out->addr) || !is_ours(out->addr))
		return wb_err_set(err, -EADDRNOTAVAIL,
			"--rail %s: no network interface of this host has this address", name);
	interface_of(out->addr, out->interface, sizeof(out->interface));
	return 0;
}

/* "0+1+4" */
static bool parse_places(const char *s, uint64_t *out)
{
	for (;;) {
		char *end;
		unsigned long v = strtoul(s, &end, 10);

		if (*s < '0' || *s > '9' || v >= WB__RAIL_PLACES_MAX || (*end && *end != '+'))
			return false;
		*out |= 1ull << v;
		if (!*end)
			return true;
		s = end + 1;
	}
}

static bool parse_word(char *word, struct wb__rail *out)
{
	char *value = strchr(word, '=');
	uint64_t v;

	if (!value)
		return false;
	*value++ = '\0';
	if (!strcmp(word, "rate"))
		return !wb_cli_size(value, true, &out->bytes_per_s);
	if (!strcmp(word, "workers"))
		return parse_places(value, &out->places);
	if (strcmp(word, "numa") || wb_cli_uint(value, 0, WB_NUMA_NODES_MAX - 1, &v) < 0)
		return false;
	out->numa = (int)v;
	return true;
}

static int parse(const char *spec, const char *family, struct wb__rail *out, struct wb_err *err)
{
	char text[SPEC_MAX], *save = NULL, *name, *word;
	int rc;

	snprintf(text, sizeof(text), "%s", spec);
	name = strtok_r(text, ",", &save);
	if (strlen(spec) >= sizeof(text) || !name || spec[0] == ',')
		return wb_err_set(err, -EINVAL,
			"--rail %.100s: expected ADDRESS or INTERFACE, and what it is like", spec);
	rc = find_address(name, family, out, err);
	if (rc < 0)
		return rc;
	out->numa = wb_numa_of_interface(NULL, out->interface);
	out->link_bytes_per_s = wb_nic_bytes_per_s(NULL, out->interface);
	while ((word = strtok_r(NULL, ",", &save))) {
		char was[SPEC_MAX];

		snprintf(was, sizeof(was), "%s", word);
		if (!parse_word(word, out))
			return wb_err_set(err, -EINVAL,
				"--rail %s: '%.100s' is none of rate=BYTES/s, numa=NODE and "
				"workers=PLACE[+PLACE]...",
				name, was);
	}
	return 0;
}

int wb__rails_find(const struct wb__options *o, const char *listen, const char *family,
	struct wb__rails *out, struct wb_err *err)
{
	memset(out, 0, sizeof(*out));
	out->n = o->n_rail;
	out->is_named = o->n_named != 0;
	for (uint32_t i = 0; i < out->n; i++) {
		struct wb__rail *r = &out->rail[i];
		int rc;

		r->bytes_per_s = o->rail_bytes_per_s;
		r->numa = WB_NUMA_UNKNOWN;
		if (!out->is_named) {
			snprintf(r->addr, sizeof(r->addr), "%s", listen);
			continue;
		}
		rc = parse(o->named[i], family, r, err);
		if (rc < 0)
			return rc;
		(void)wb_numa_cpus(NULL, r->numa, &r->cpus);
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(out->rail[k].addr, r->addr))
				return wb_err_set(err, -EINVAL,
					"--rail: %s is given twice; each rail has an address of "
					"its own",
					r->addr);
	}
	return 0;
}

/* ---- whose they are ---------------------------------------------------------------------------
 */

static int compare(const void *a, const void *b)
{
	const struct wb__rails_worker *x = a, *y = b;
	int c = (x->role > y->role) - (x->role < y->role);

	if (!c)
		c = strcmp(x->engine ? x->engine : "", y->engine ? y->engine : "");
	if (!c)
		c = (x->rank > y->rank) - (x->rank < y->rank);
	return c ? c : (x->id > y->id) - (x->id < y->id);
}

#define ANY (-2)

/* Deal the @rails, a bit each, in turn to the workers that have none yet and run on @numa.  If
 * there are more workers, some share a rail; if there are more rails, some workers have several. */
static void deal(struct wb__rails_worker *w, uint32_t n, int numa, uint32_t rails)
{
	uint32_t bit[WB_XPORT_RAILS_MAX], n_rail = 0, n_w = 0, i = 0;

	for (; rails; rails &= rails - 1)
		bit[n_rail++] = rails & -rails;
	for (uint32_t k = 0; k < n; k++)
		n_w += !w[k].rails && (numa == ANY || w[k].numa == numa);
	for (uint32_t k = 0; n_rail && k < n; k++) {
		if (w[k].rails || (numa != ANY && w[k].numa != numa))
			continue;
		for (uint32_t at = i++; at < WB_MAX(n_w, n_rail); at += n_w)
			w[k].rails |= bit[at % n_rail];
	}
}

/* When all of these workers have a rail: each rail of a node where none of them runs goes to one
 * worker. */
static void add(struct wb__rails_worker *w, uint32_t n, uint32_t rails)
{
	for (uint32_t i = 0; rails && n; rails &= rails - 1)
		w[i++ % n].rails |= rails & -rails;
}

static uint32_t used_by(const struct wb__rails_worker *w, uint32_t n)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < n; i++)
		used |= w[i].rails;
	return used;
}

/* Share the rails among the workers of one role, which are in the order of their places. */
static void share(const struct wb__rails *r, struct wb__rails_worker *w, uint32_t n)
{
	uint32_t free = 0, of_node[WB_NUMA_NODES_MAX] = {0}, left;

	for (uint32_t k = 0; k < r->n; k++) {
		const struct wb__rail *x = &r->rail[k];

		for (uint32_t i = 0; i < WB_MIN(n, WB__RAIL_PLACES_MAX); i++)
			w[i].rails |= x->places >> i & 1 ? 1u << k : 0;
		free |= x->places ? 0 : 1u << k;
		if (!x->places && x->numa >= 0)
			of_node[x->numa] |= 1u << k;
	}
	for (int node = 0; node < WB_NUMA_NODES_MAX; node++)
		deal(w, n, node, of_node[node]);
	left = free & ~used_by(w, n);
	deal(w, n, ANY, left ? left : free);
	add(w, n, free & ~used_by(w, n));
}

void wb__rails_share(const struct wb__rails *r, struct wb__rails_worker *w, uint32_t n)
{
	uint32_t all = r->n < 32 ? (1u << r->n) - 1 : UINT32_MAX;

	for (uint32_t i = 0; i < n; i++)
		w[i].rails = 0;
	if (!r->is_named)
		return;
	qsort(w, n, sizeof(*w), compare);
	for (uint32_t from = 0, to; from < n; from = to) {
		for (to = from; to < n && w[to].role == w[from].role; to++)
			;
		share(r, w + from, to - from);
	}
	for (uint32_t i = 0; i < n; i++)
		if (w[i].rails == all)
			w[i].rails = 0;
}
