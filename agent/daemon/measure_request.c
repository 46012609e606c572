/* SPDX-License-Identifier: Apache-2.0 */
/* A measurement as a text, its memory, and the addresses of this agent's rails. */
#include "base/base.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/err.h"
#include "daemon/agent.h"
#include "daemon/measure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (1u << 20)

/* Names have no slash in them. */
void wb__measure_text(const struct wb__measure_request *q, char out[static WB__MEASURE_TEXT])
{
	snprintf(out, WB__MEASURE_TEXT, "%s/%s/%" PRIu32 "/%" PRIu64 "/%c%c%c/%s/%s", q->nonce,
		q->transport, q->rails, q->memory, q->is_v6 ? '6' : '4',
		q->is_encrypted ? 'e' : '-', q->is_forced ? 'f' : '-', q->from, q->to);
}

/* Up to the next slash, or the end of the last part; false: it is empty, or there is no room. */
static bool part(const char **at, char *out, size_t cap, bool is_last)
{
	size_t n = strcspn(*at, "/");

	if (!n || n >= cap || ((*at)[n] == '\0') != is_last)
		return false;
	memcpy(out, *at, n);
	out[n] = '\0';
	*at += n + !is_last;
	return true;
}

static bool is_hex(const char *s)
{
	return strspn(s, "0123456789abcdef") == WB__MEASURE_NONCE && !s[WB__MEASURE_NONCE];
}

int wb__measure_parse(const char *text, struct wb__measure_request *out)
{
	char rails[8], memory[24], how[4];
	uint64_t n;

	memset(out, 0, sizeof(*out));
	if (!part(&text, out->nonce, sizeof(out->nonce), false) || !is_hex(out->nonce) ||
		!part(&text, out->transport, sizeof(out->transport), false) ||
		!part(&text, rails, sizeof(rails), false) ||
		!part(&text, memory, sizeof(memory), false) ||
		!part(&text, how, sizeof(how), false) ||
		!part(&text, out->from, sizeof(out->from), false) ||
		!part(&text, out->to, sizeof(out->to), true))
		return -EINVAL;
	if (!wb_xport_find(out->transport) || wb_cli_uint(rails, 1, WB_XPORT_RAILS_MAX, &n) < 0 ||
		wb_cli_uint(memory, 4096, WB__MEASURE_MEMORY_MAX, &out->memory) < 0 ||
		strlen(how) != 3)
		return -EINVAL;
	out->rails = (uint32_t)n;
	out->is_v6 = how[0] == '6';
	out->is_encrypted = how[1] == 'e';
	out->is_forced = how[2] == 'f';
	return 0;
}

uint64_t wb__measure_left(int rc, const struct wb_cgroup_memory *m, uint64_t due)
{
	uint64_t left;

	if (rc < 0 || m->limit_bytes == UINT64_MAX)
		return UINT64_MAX;
	left = m->used_bytes < m->limit_bytes ? m->limit_bytes - m->used_bytes : 0;
	return left > due ? left - due : 0;
}

int wb__measure_room(uint64_t bytes, uint64_t left, struct wb_err *err)
{
	if (bytes > WB__MEASURE_MEMORY_MAX)
		return wb_err_set(err, -ENOMEM,
			"a source of %" PRIu64 " MiB is asked for, and an agent starts none of "
			"more than %llu MiB: ask for smaller --sizes, or less --memory",
			bytes / MIB, WB__MEASURE_MEMORY_MAX / MIB);
	if (bytes > left / 2)
		return wb_err_set(err, -ENOMEM,
			"a source of %" PRIu64 " MiB is asked for, and of the memory of this "
			"agent's container %" PRIu64 " MiB are left beside its buffers, of which a "
			"measurement may have half: ask for less (--memory, and no larger "
			"--sizes), or give the container more",
			bytes / MIB, left / MIB);
	return 0;
}

int wb__measure_landing(uint64_t bytes, uint64_t left, struct wb_err *err)
{
	if (bytes > left / 2)
		return wb_err_set(err, -ENOMEM,
			"the receiver takes %" PRIu64 " MiB (the largest of --sizes times the "
			"most of --depths), and of the memory of this agent's container %" PRIu64
			" MiB are left beside its buffers, of which a measurement may have half: "
			"lower --sizes or --depths, or give the container more",
			bytes / MIB, left / MIB);
	return 0;
}

/* ---- tickets that were used --------------------------------------------------------------------
 */

int wb__measure_may_use(const struct wb__measure_used *u, const char *nonce, uint64_t now_ns)
{
	const uint64_t holds_ns = WB__MEASURE_HOLDS_S * WB_NS_PER_S;

	for (uint32_t i = 0; i < WB_MIN(u->n, WB__MEASURE_USED_MAX); i++)
		if (!strcmp(u->last[i].nonce, nonce))
			return -EEXIST;
	if (u->n < WB__MEASURE_USED_MAX)
		return 0;
	return now_ns - u->last[u->n % WB__MEASURE_USED_MAX].at_ns < holds_ns ? -EAGAIN : 0;
}

void wb__measure_use(struct wb__measure_used *u, const char *nonce, uint64_t now_ns)
{
	uint32_t at = u->n % WB__MEASURE_USED_MAX;

	snprintf(u->last[at].nonce, sizeof(u->last[at].nonce), "%s", nonce);
	u->last[at].at_ns = now_ns;
	u->n++;
}

/* ---- addresses ---------------------------------------------------------------------------------
 */

/* An own address that others dial, of the family that the receiver has. */
static const char *host_of(const struct wb__agent *a, bool is_v6)
{
	for (uint32_t i = 0; i < a->addrs.n; i++)
		if (!strchr(a->addrs.a[i], ':') == !is_v6)
			return a->addrs.a[i];
	return a->o.advertise;
}

/* Device @i of --rail-device; "" = none is named. */
static void device_of(const struct wb__agent *a, uint32_t i, char out[static WB__DEVICE_MAX])
{
	const char *s = a->o.rail_device;

	for (; i && *s; i--) {
		s += strcspn(s, ",");
		s += *s == ',';
	}
	snprintf(out, WB__DEVICE_MAX, "%.*s", (int)strcspn(s, ","), s);
}

/* A rail over shm: a name of its own where agents find each other. */
static int shm_rail(const struct wb__agent *a, const struct wb__measure_request *q, uint32_t i,
	char *out, size_t cap)
{
	if (!q || !a->o.shm_folder[0])
		return snprintf(out, cap, "%s@", i ? "," : "");
	return snprintf(out, cap, "%s%s/wb-bench-%.16s.%" PRIu32, i ? "," : "", a->o.shm_folder,
		q->nonce, i);
}

static int network_rail(const struct wb__agent *a, const char *transport, bool is_v6, uint32_t i,
	char *out, size_t cap)
{
	const char *host = a->rails.is_named ? a->rails.rail[i].addr : host_of(a, is_v6);
	char device[WB__DEVICE_MAX] = "";

	if (!strcmp(transport, "verbs"))
		device_of(a, i, device);
	return snprintf(out, cap, "%s%s%s%s", i ? "," : "", device, *device ? "@" : "", host);
}

int wb__measure_rails(const struct wb__agent *a, const char *transport, bool is_v6,
	const struct wb__measure_request *q, char out[static WB__MEASURE_LIST])
{
	bool is_shm = !strcmp(transport, "shm");
	uint32_t n = is_shm && q ? q->rails : a->rails.n;
	size_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		size_t left = WB__MEASURE_LIST - at;
		int took = is_shm ? shm_rail(a, q, i, out + at, left)
				  : network_rail(a, transport, is_v6, i, out + at, left);

		if (took < 0 || (size_t)took >= left)
			return -ENOSPC;
		at += (size_t)took;
	}
	return 0;
}
