/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_xport.h"

#include "base/base.h"
#include "base/hash.h"
#include "tests/common/fx_verbs.h"
#include "tests/common/xport_skeleton.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GIVE_UP_NS (40 * WB_NS_PER_S)

const struct wb_xport_epoch fx_epoch = {
	.id = {{.uid = FX_OBJECT, .hash = FX_OBJECT}, 3, 7}, .key = {1, 2, 3, 4, 5}};

struct wb_xport_epoch fx_epoch_of(const char *kind)
{
	struct wb_xport_epoch e = fx_epoch;

	e.is_encrypted = !strcmp(kind, "tls");
	return e;
}

const char *fx_transport(const char *kind)
{
	return strcmp(kind, "tls") ? kind : "tcp";
}

static void die(const char *what, const char *why)
{
	fprintf(stderr, "fx_xport: %s: %s\n", what, why);
	abort();
}

static void must(int rc, const struct wb_err *err, const char *what)
{
	if (rc)
		die(what, err->msg);
}

int fx_xport_open(const char *kind, bool is_dst, const struct wb_xport_opts *o,
	struct wb_xport **out, struct wb_err *err)
{
	char names[64];

	if (!strncmp(kind, "set", 3)) {
		const char *s = kind[3] ? kind + 4 : "shm,tcp/tcp,shm";
		size_t n = strcspn(s, "/");

		snprintf(names, sizeof(names), "%.*s", is_dst ? (int)strlen(s) : (int)n,
			is_dst ? s + n + 1 : s);
		return wb_xport_open_set(names, o, out, err);
	}
	return wb_xport_open(fx_transport(kind), o, out, err);
}

static void open_side(struct fx_xport *f, struct fx_side *s, const char *name,
	const struct fx_opts *o, struct wb_fault *fault)
{
	struct wb_xport_rail rail[WB_XPORT_RAILS_MAX] = {0};
	struct wb_xport_opts xo = {.name = name,
		.rail = rail,
		.n_rail = o->n_rail ? o->n_rail : 1,
		.sockets = o->sockets,
		.depth = o->depth,
		.is_apart = o->is_apart,
		.traffic_class = o->traffic_class,
		.service_level = o->service_level,
		.reads_max = o->reads_max,
		.no_windows = o->no_windows,
		.sysfs = o->sysfs,
		.handshake_timeout_ns = o->handshake_ns,
		.clock = o->clock,
		.rekey_bytes = o->rekey_bytes,
		.fault = fault,
		.medium = f->net};
	struct wb_xport_region r = {.object = FX_OBJECT};
	struct wb_xport_epoch e = fx_epoch_of(f->kind);
	char addr[WB_XPORT_RAILS_MAX][80];
	struct wb_err err = {0};

	for (uint32_t i = 0; i < xo.n_rail; i++) {
		snprintf(addr[i], sizeof(addr[i]),
			strcmp(f->kind, "shm") ? "127.0.0.1:0" : "unix:@");
		if (o->src_addr && s == &f->src)
			snprintf(addr[i], sizeof(addr[i]), "%s", o->src_addr[i]);
		else if (o->addr)
			snprintf(addr[i], sizeof(addr[i]), "%s", o->addr);
		else if (!strcmp(f->kind, "verbs"))
			fx_verbs_rail(s == &f->dst, i, addr[i], sizeof(addr[i]));
		rail[i].addr = addr[i];
		rail[i].rate_bytes_per_s = o->rate;
	}
	must(fx_xport_open(f->kind, s == &f->dst, &xo, &s->x, &err), &err, "open");
	must(wb_xport_listen(s->x, s->endpoint, sizeof(s->endpoint), &err), &err, "listen");
	must(wb_xport_epoch_add(s->x, &e, &err), &err, "epoch");
	s->mem_bytes = wb_align_up(o->mem_bytes ? o->mem_bytes : 1u << 20, 4096);
	s->mem_fd = memfd_create("fx", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->mem_fd < 0 || ftruncate(s->mem_fd, (off_t)s->mem_bytes))
		die("memfd", "failed");
	s->mem = mmap(NULL, s->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->mem_fd, 0);
	if (s->mem == MAP_FAILED)
		die("mmap", "failed");
	r.fd = s->mem_fd;
	r.base = s->mem;
	r.bytes = s->mem_bytes;
	must(wb_xport_region_add(s->x, &r, &s->region, &err), &err, "region");
}

void fx_open(struct fx_xport *f, const char *kind, const struct fx_opts *o)
{
	struct wb_sim_opts so = {.seed = 1, .jitter_ns = 10000};

	memset(f, 0, sizeof(*f));
	f->kind = kind;
	f->heard_ns = wb_now_ns(&wb_clock_real);
	fx_skeleton_register();
	if (fx_verbs_is_left_out(kind))
		exit(0);
	if (strstr(kind, "verbs"))
		fx_verbs_open();
	if (!strcmp(kind, "sim") && wb_sim_net_create(&so, &f->net))
		die("sim", "no memory");
	open_side(f, &f->src, "src", o, o->src_fault);
	open_side(f, &f->dst, "dst", o, o->dst_fault);
}

wb_conn_t fx_dial(struct fx_xport *f, const struct wb_xport_epoch *e, const char *name)
{
	struct wb_xport_peer p = {
		.name = name, .endpoint = f->src.endpoint, .epoch = &e->id, .user = 42};
	struct wb_err err = {0};
	wb_conn_t c;

	must(wb_xport_connect(f->dst.x, &p, &c, &err), &err, "connect");
	return c;
}

void fx_join(struct fx_xport *f)
{
	int at = 0;

	f->conn = fx_dial(f, &fx_epoch, "src");
	fx_wait(f, &f->dst, WB_XP_CONN_UP, 1);
	fx_wait(f, &f->src, WB_XP_CONN_UP, 1);
	f->src_conn = fx_take(&f->src, WB_XP_CONN_UP, &at)->conn;
}

static void close_side(struct fx_side *s)
{
	wb_xport_close(s->x);
	munmap(s->mem, s->mem_bytes);
	close(s->mem_fd);
	s->x = NULL;
}

void fx_close(struct fx_xport *f)
{
	if (f->dst.x)
		close_side(&f->dst);
	if (f->src.x)
		close_side(&f->src);
	if (f->net)
		wb_sim_net_destroy(f->net);
}

static int collect(struct fx_side *s)
{
	struct wb_xport_event ev[16];
	int n, all = 0;

	do {
		n = wb_xport_poll(s->x, ev, 16);
		for (int i = 0; i < n; i++) {
			if (s->n_ev == FX_EVENTS)
				die("events", "too many");
			s->count[ev[i].kind]++;
			if (ev[i].kind == WB_XP_CONN_UP)
				snprintf(s->via, sizeof(s->via), "%s", ev[i].info->via);
			if (ev[i].reason)
				snprintf(s->reason, sizeof(s->reason), "%s", ev[i].reason);
			ev[i].reason = NULL;
			s->ev[s->n_ev++] = ev[i];
		}
		all += n;
	} while (n == 16);
	return all;
}

void fx_pump_some(struct fx_xport *f)
{
	struct pollfd p[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
	int got = 0;

	if (f->net) {
		(void)wb_sim_step(f->net);
	} else {
		p[0].fd = f->is_quiet ? -1 : wb_xport_event_fd(f->src.x);
		p[1].fd = wb_xport_event_fd(f->dst.x);
		ppoll(p, 2, &(struct timespec){0, 50000}, NULL);
	}
	if (!f->is_quiet)
		got += collect(&f->src);
	got += collect(&f->dst);
	if (got)
		f->heard_ns = wb_now_ns(&wb_clock_real);
}

void fx_pump(struct fx_xport *f)
{
	struct pollfd p[2];
	int n = 0, got = 0;

	if (f->net) {
		if (!wb_sim_step(f->net))
			die("pump", "nothing is left to happen in the simulated net");
		if (f->src.x && !f->is_quiet)
			collect(&f->src);
		if (f->dst.x)
			collect(&f->dst);
		return;
	}
	if (f->src.x && !f->is_quiet)
		p[n++] = (struct pollfd){wb_xport_event_fd(f->src.x), POLLIN, 0};
	if (f->dst.x)
		p[n++] = (struct pollfd){wb_xport_event_fd(f->dst.x), POLLIN, 0};
	poll(p, (nfds_t)n, 1000);
	if (f->src.x && !f->is_quiet)
		got += collect(&f->src);
	if (f->dst.x)
		got += collect(&f->dst);
	if (got)
		f->heard_ns = wb_now_ns(&wb_clock_real);
	else if (wb_now_ns(&wb_clock_real) - f->heard_ns > GIVE_UP_NS)
		die("pump", "nothing happened for too long");
}

void fx_wait(struct fx_xport *f, struct fx_side *side, enum wb_xport_event_kind kind, int n)
{
	while (side->count[kind] < n)
		fx_pump(f);
}

struct wb_xport_event *fx_take(struct fx_side *side, enum wb_xport_event_kind kind, int *from)
{
	while (*from < side->n_ev) {
		struct wb_xport_event *e = &side->ev[(*from)++];

		if (e->kind == kind)
			return e;
	}
	return NULL;
}

void fx_fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)wb_mix64(seed * 0x10001 + i);
}
