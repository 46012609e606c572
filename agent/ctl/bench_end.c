/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl bench: what both ends are made of: a key, memory, a transport, and waiting. */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "ctl/bench.h"
#include "mem/mem.h"
#include "net/psk.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define KEY_VARIABLE "WEIGHTBRIDGE_BENCH_KEY"
#define PURPOSE "weightbridge bench 1" /* the key of a cluster would be another one here */
#define OBJECT 0x62656e6368u /* "bench" */
#define PATIENCE_S 10.0
#define SPIN_NS WB_NS_PER_S
#define CONNS_MAX 4 /* the receiver makes the next connection before it ends the last */

/* ---- keys --------------------------------------------------------------------------------------
 */

static int parse_key(const char *from, char *text, struct wb_psk *k, struct wb_err *err)
{
	text[strcspn(text, " \t\r\n")] = '\0';
	k->bytes = strlen(text) / 2;
	if (k->bytes < WB_PSK_BYTES_MIN || k->bytes > WB_PSK_BYTES_MAX ||
		wb_hex_parse(text, k->key, k->bytes) < 0)
		return wb_err_set(err, -EBADMSG,
			"the key of %s has to be %d to %d hex digits, as openssl rand -hex 32 "
			"makes them",
			from, 2 * WB_PSK_BYTES_MIN, 2 * WB_PSK_BYTES_MAX);
	return 0;
}

static int new_key(char text[static 65], struct wb_psk *k, struct wb_err *err)
{
	k->bytes = WB_PSK_BYTES_MIN;
	if (wb_random_bytes(k->key, k->bytes) < 0)
		return wb_err_set(err, -EIO, "the system has no random bytes for a key");
	for (size_t i = 0; i < k->bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", k->key[i]);
	return 0;
}

int wb__bench_key(const struct wb__ctl_bench *b, uint8_t out[static WB_XPORT_KEY_BYTES],
	char text[static 65], struct wb_err *err)
{
	const char *variable = getenv(KEY_VARIABLE);
	struct wb_psk k = {.bytes = 0};
	char line[4 * WB_PSK_BYTES_MAX] = "";
	int rc;

	text[0] = '\0';
	if (b->key) {
		snprintf(line, sizeof(line), "%s", b->key);
		rc = parse_key("the agent", line, &k, err);
	} else if (b->key_file && strcmp(b->key_file, "-") != 0)
		rc = wb_psk_read(b->key_file, "bench", &k, err);
	else if (b->key_file && !fgets(line, sizeof(line), stdin))
		rc = wb_err_set(err, -EBADMSG, "--key-file -: there is no key on standard input");
	else if (b->key_file || (variable && *variable)) {
		if (!b->key_file)
			snprintf(line, sizeof(line), "%s", variable);
		rc = parse_key(b->key_file ? "standard input" : KEY_VARIABLE, line, &k, err);
	} else if (b->listen)
		rc = new_key(text, &k, err);
	else
		rc = wb_err_set(err, -EINVAL,
			"--to needs the key of the other end, which that one prints or was given: "
			"--key-file FILE (- = standard input), or " KEY_VARIABLE);
	if (rc == 0 && wb_hmac_sha256(k.key, k.bytes, PURPOSE, strlen(PURPOSE), out) < 0)
		rc = wb_err_set(err, -ENOMEM, "no memory for a key");
	wb_psk_clear(&k);
	explicit_bzero(line, sizeof(line));
	return rc;
}

/* ---- memory and transport ----------------------------------------------------------------------
 */

/* Every page is there before anything is measured. */
static int make_memory(struct wb__bench_end *e, uint64_t bytes, struct wb_err *err)
{
	char size[32];

	e->bytes = wb_align_up(bytes, 4096);
	e->fd = wb_memfd_create("bench", e->bytes, err);
	if (e->fd < 0)
		return e->fd;
	e->mem = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
	if (e->mem == MAP_FAILED) {
		e->mem = NULL;
		return wb_err_set(err, -errno, "no memory of %s: %s",
			wb__bench_size_text(e->bytes, size), strerror(errno));
	}
	for (uint64_t i = 0; i < e->bytes / 8; i++)
		((uint64_t *)(void *)e->mem)[i] = i * 0x9e3779b97f4a7c15u;
	return 0;
}

/* Who is told this address cannot dial it. */
static bool is_any(const char *addr)
{
	const char *host = strchr(addr, '@') ? strchr(addr, '@') + 1 : addr;

	return !strncmp(host, "0.0.0.0:", 8) || !strncmp(host, "[::]:", 5);
}

static int open_transport(struct wb__bench_end *e, const struct wb__ctl_bench *b, const char *addr,
	uint32_t n_rail, uint32_t reads_max, struct wb_err *err)
{
	const unsigned has = 1u << WB_FAULT_WIRE | 1u << WB_FAULT_RAIL;
	char text[WB__BENCH_RAILS_MAX][WB__BENCH_ADDR_MAX];
	struct wb_xport_rail rail[WB__BENCH_RAILS_MAX] = {0};
	struct wb_xport_opts o = {.name = b->listen ? WB__BENCH_SOURCE : WB__BENCH_RECEIVER,
		.rail = rail,
		.n_rail = n_rail,
		.conns_max = CONNS_MAX,
		.handshake_timeout_ns = e->patience_ns,
		.spin_ns = b->is_spinning ? SPIN_NS : 0,
		.is_apart = b->is_apart,
		.traffic_class = (uint8_t)b->traffic_class,
		.service_level = (uint8_t)b->service_level,
		.no_windows = b->no_windows,
		.reads_max = reads_max};
	int rc = wb_fault_parse(getenv("WB_FAULT"), &e->fault, err);

	if (rc == 0)
		rc = wb_fault_check(e->fault, "wbctl bench", has, n_rail, err);
	if (rc < 0)
		return wb_err_wrap(err, rc, "WB_FAULT");
	o.fault = e->fault;
	for (uint32_t i = 0; i < n_rail && rc == 0; i++) {
		rc = wb__bench_rail(e->transport, addr, i, text[i], err);
		rail[i].addr = text[i];
		if (rc == 0 && b->listen && is_any(text[i]))
			rc = wb_err_set(err, -EINVAL,
				"--listen %s: the receiver needs an address that it can dial: name "
				"one of this machine",
				b->listen);
	}
	return rc < 0 ? rc : wb_xport_open(e->transport, &o, &e->x, err);
}

int wb__bench_open(struct wb__bench_end *e, const struct wb__ctl_bench *b, const char *addr,
	uint32_t n_rail, uint32_t reads_max, struct wb_err *err)
{
	int rc = wb__bench_seconds("timeout", b->timeout, 0.1, PATIENCE_S, &e->patience_ns, err);

	e->fd = -1;
	e->transport = wb__bench_transport(b);
	e->is_spinning = b->is_spinning;
	e->epoch.id = (struct wb_epoch_id){wb_object_id_of(OBJECT), 1, 1};
	e->epoch.is_encrypted = b->is_encrypted;
	wbk_sum_keys_init(&e->keys, WB__BENCH_SUM_SEED);
	if (rc == 0)
		rc = open_transport(e, b, addr, n_rail, reads_max, err);
	return rc < 0 ? rc : wb_xport_epoch_add(e->x, &e->epoch, err);
}

int wb__bench_fill(struct wb__bench_end *e, uint64_t bytes, struct wb_err *err)
{
	struct wb_xport_region r;
	uint32_t id;
	int rc = make_memory(e, bytes, err);

	if (rc < 0)
		return rc;
	r = (struct wb_xport_region){.object = e->epoch.id.object.hash,
		.fd = e->fd,
		.base = e->mem,
		.bytes = e->bytes,
		.direction = e->what};
	return wb_xport_region_add(e->x, &r, &id, err);
}

void wb__bench_close(struct wb__bench_end *e)
{
	wb_xport_close(e->x);
	wb_fault_destroy(e->fault);
	if (e->mem)
		munmap(e->mem, e->bytes);
	if (e->fd >= 0)
		close(e->fd);
	explicit_bzero(&e->epoch, sizeof(e->epoch));
	e->x = NULL;
	e->fault = NULL;
	e->mem = NULL;
	e->fd = -1;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

int wb__bench_take(struct wb__bench_end *e, struct wb_xport_event *ev, int max, uint64_t until_ns)
{
	struct pollfd p = {.fd = wb_xport_event_fd(e->x), .events = POLLIN};

	for (;;) {
		int n = wb_xport_poll(e->x, ev, max);
		uint64_t now = wb_now_ns(&wb_clock_real),
			 left = until_ns > now ? until_ns - now : 0;
		struct timespec nap = {(time_t)(left / WB_NS_PER_S), (long)(left % WB_NS_PER_S)};

		if (n || !left)
			return n;
		if (!e->is_spinning)
			(void)ppoll(&p, 1, &nap, NULL);
	}
}

uint64_t wb__bench_cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * WB_NS_PER_S +
	       ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * WB_NS_PER_US;
}
