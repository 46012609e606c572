/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/verbs/host.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "xport/inet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GIDS_MAX 256 /* of a port; more are not looked at */
#define IB_SUBNET_BITS 64 /* leading bits of an InfiniBand GID that are its subnet */

/* ---- ports ------------------------------------------------------------------------------------
 */

static bool is_mapped_ipv4(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(g->raw, prefix, sizeof(prefix));
}

/* How good a GID is for RoCE; 0 = not at all.  Best is RoCE v2 (over UDP) with an IPv4 address,
 * then with a global address, then with a link-local one.  RoCE v1 is last, since no router
 * forwards it. */
static int rank_gid(const struct ibv_gid_entry *e)
{
	static const union ibv_gid none;

	if (!memcmp(&e->gid, &none, sizeof(none)))
		return 0;
	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	if (is_mapped_ipv4(&e->gid))
		return 4;
	return e->gid.raw[0] == 0xfe ? 2 : 3;
}

static void scan_gids(struct wb__host *h, struct ibv_context *ctx, uint8_t num,
	const struct ibv_port_attr *a, struct wb__port_at *at)
{
	int best = 0, n = WB_MIN(a->gid_tbl_len, GIDS_MAX);

	at->gid_index = a->link_layer == IBV_LINK_LAYER_ETHERNET ? 0 : -1;
	for (int i = 0; i < n; i++) {
		struct ibv_gid_entry e = {.gid_type = IBV_GID_TYPE_ROCE_V2};
		int rank;

		if (h->ibv->query_gid_ex
				? h->ibv->query_gid_ex(ctx, num, (uint32_t)i, &e, 0, sizeof(e))
				: h->ibv->query_gid(ctx, num, i, &e.gid))
			continue;
		rank = rank_gid(&e);
		if (rank <= best)
			continue;
		best = rank;
		at->gid = e.gid;
		if (at->gid_index >= 0)
			at->gid_index = i;
	}
}

/* Ask the device for the state of the port; true: it is active. */
static bool query(struct wb__host *h, const struct wb__port *p, struct wb__port_at *at)
{
	const struct wb__device *d = &h->device[p->device];
	struct ibv_context *ctx = d->ctx;
	struct ibv_port_attr a;

	memset(&a, 0, sizeof(a));
	memset(at, 0, sizeof(*at));
	if (d->is_over || h->ibv->port_query(ctx, p->num, &a) || a.state != IBV_PORT_ACTIVE)
		return false;
	at->lid = a.lid;
	at->mtu = (uint8_t)a.active_mtu;
	at->max_msg = a.max_msg_sz;
	scan_gids(h, ctx, p->num, &a, at);
	at->net_bits = at->gid_index < 0 ? IB_SUBNET_BITS : wb__inet_net_bits(at->gid.raw);
	return true;
}

static void refresh(struct wb__host *h, uint32_t i)
{
	struct wb__port *p = &h->port[i];
	struct wb__port_at at;
	bool is_up = query(h, p, &at);
	char name[160];

	pthread_mutex_lock(&h->lock);
	if (is_up)
		p->at = at;
	pthread_mutex_unlock(&h->lock);
	if (atomic_exchange(&p->is_up, is_up) != is_up) {
		wb__host_name_port(h, i, name, sizeof(name));
		WB_LOG_INFO("verbs", "port", WB_S("port", name), WB_S("is", is_up ? "up" : "down"));
	}
	atomic_fetch_add(&p->turn, 1);
}

struct wb__port_at wb__host_at(struct wb__host *h, uint32_t i)
{
	struct wb__port_at at;

	assert(i < h->n_port);
	pthread_mutex_lock(&h->lock);
	at = h->port[i].at;
	pthread_mutex_unlock(&h->lock);
	return at;
}

bool wb__host_is_near(struct wb__host *h, uint32_t i, const uint8_t gid[16])
{
	struct wb__port_at at = wb__host_at(h, i);
	uint32_t whole = at.net_bits / 8, rest = at.net_bits % 8;

	return at.net_bits && !memcmp(at.gid.raw, gid, whole) &&
	       (!rest || !((at.gid.raw[whole] ^ gid[whole]) >> (8 - rest)));
}

void wb__host_name_gid(
	const struct wb__host *h, uint32_t i, const union ibv_gid *gid, char *out, size_t cap)
{
	char text[INET6_ADDRSTRLEN];

	assert(i < h->n_port && h->port[i].device < h->n_device);
	inet_ntop(AF_INET6, gid->raw, text, sizeof(text));
	snprintf(out, cap, "%s port %u (GID %s)", h->device[h->port[i].device].name, h->port[i].num,
		text);
}

void wb__host_name_port(struct wb__host *h, uint32_t i, char *out, size_t cap)
{
	struct wb__port_at at = wb__host_at(h, i);

	wb__host_name_gid(h, i, &at.gid, out, cap);
}

bool wb__host_reduced(struct wb__host *h, uint32_t used, char *out, size_t cap)
{
	uint32_t n = 0, n_up = 0, down = h->n_port;
	char name[160];

	for (uint32_t i = 0; i < h->n_port; i++) {
		if (!(used & 1u << i))
			continue;
		n++;
		if (atomic_load(&h->port[i].is_up))
			n_up++;
		else if (down == h->n_port)
			down = i;
	}
	if (down == h->n_port)
		return false;
	wb__host_name_port(h, down, name, sizeof(name));
	snprintf(out, cap, "%s is down, %u of %u ports are up", name, n_up, n);
	return true;
}

void wb__host_look(struct wb__host *h, struct wb__device *d)
{
	struct ibv_async_event e;
	bool is_any = false;

	while (!h->ibv->get_async_event(d->ctx, &e)) {
		int type = (int)e.event_type, num = e.element.port_num;

		if (type == IBV_EVENT_DEVICE_FATAL)
			d->is_over = true;
		for (uint32_t i = 0; i < h->n_port; i++) {
			if (&h->device[h->port[i].device] != d)
				continue;
			if (type == IBV_EVENT_DEVICE_FATAL ||
				((type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE ||
					 type == IBV_EVENT_GID_CHANGE ||
					 type == IBV_EVENT_LID_CHANGE) &&
					h->port[i].num == num)) {
				refresh(h, i);
				is_any = true;
			}
		}
		h->ibv->ack_async_event(&e);
	}
	if (is_any)
		eventfd_write(h->alarm_fd, 1);
}

/* The device is being removed, which its driver does not report.  All its ports are down from now
 * on. */
static void leave(struct wb__host *h, struct wb__device *d)
{
	d->is_over = true;
	WB_LOG_WRN("verbs", "a device is being removed", WB_S("device", d->name),
		WB_S("remedy", "start the agent again: it holds the device open until it ends"));
	for (uint32_t i = 0; i < h->n_port; i++)
		if (&h->device[h->port[i].device] == d)
			refresh(h, i);
	eventfd_write(h->alarm_fd, 1);
}

void wb__host_find(struct wb__host *h)
{
	for (uint32_t i = 0; i < h->n_device; i++) {
		struct wb__device *d = &h->device[i];

		if (d->folder[0] && !d->is_over && access(d->folder, F_OK) && errno == ENOENT)
			leave(h, d);
	}
}

/* ---- devices ------------------------------------------------------------------------------------
 */

static size_t device_length(const char *addr)
{
	const char *at = addr ? strchr(addr, '@') : NULL;

	return at ? (size_t)(at - addr) : 0;
}

const char *wb__host_address(const char *addr)
{
	size_t n = device_length(addr);

	return n ? addr + n + 1 : addr;
}

static bool names_device(const char *addr, const char *device)
{
	size_t n = device_length(addr), m = strlen(device);

	return n >= m && !strncmp(addr, device, m) && (addr[m] == '@' || addr[m] == '/');
}

/* Does a rail's address name this port ("DEVICE" or "DEVICE/PORT")? */
static bool names(const char *addr, const char *device, uint8_t num)
{
	const char *port = addr + strlen(device);

	return names_device(addr, device) && (*port == '@' || strtoul(port + 1, NULL, 10) == num);
}

uint32_t wb__host_port_of(struct wb__host *h, const struct wb__rail *r)
{
	union ibv_gid gid;

	for (uint32_t i = 0; i < h->n_port; i++)
		if (names(r->addr, h->device[h->port[i].device].name, h->port[i].num))
			return i;
	/* With RoCE a GID is an address of the port's network interface. */
	if (r->x->o.is_apart && wb__inet_ip(r->addr, gid.raw))
		for (uint32_t i = 0; i < h->n_port; i++) {
			struct wb__port_at at = wb__host_at(h, i);

			if (!memcmp(&at.gid, &gid, sizeof(gid)))
				return i;
		}
	return r->index % h->n_port;
}

static bool is_wanted(const struct wb_xport_opts *o, const char *device, uint8_t num)
{
	bool is_any = false;

	for (uint32_t i = 0; i < o->n_rail; i++) {
		is_any |= device_length(o->rail[i].addr) > 0;
		if (names(o->rail[i].addr, device, num))
			return true;
	}
	return !is_any;
}

static void add_ports(struct wb__host *h, uint32_t device, const struct wb_xport_opts *o)
{
	struct wb__device *d = &h->device[device];

	for (unsigned num = 1; num <= d->attr.phys_port_cnt && h->n_port < WB__PORTS_MAX; num++) {
		struct wb__port *p = &h->port[h->n_port];

		p->device = device;
		p->num = (uint8_t)num;
		if (!is_wanted(o, d->name, p->num) || !query(h, p, &p->at))
			continue;
		atomic_store(&p->is_up, true);
		h->n_port++;
	}
}

static void say_left_out(const struct wb__device *d, const char *why)
{
	WB_LOG_WRN("verbs", "device cannot be opened", WB_S("device", d->name), WB_S("error", why));
}

/* Logs the reason if not. */
static bool is_usable(struct wb__host *h, struct wb__device *d, const struct wb_xport_opts *o)
{
	bool can;

	if (h->ibv->query_device(d->ctx, &d->attr)) {
		say_left_out(d, strerror(errno));
		return false;
	}
	if (d->attr.max_cqe < WB__COMPLETIONS_MIN) {
		say_left_out(d, "its completion queues hold too little");
		return false;
	}
	can = d->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B && d->ctx->ops.alloc_mw &&
	      d->ctx->ops.dealloc_mw;
	d->has_windows = can && !o->no_windows;
	d->keys = d->has_windows ? "of a queue pair each, by memory windows"
		  : can          ? "of regions, memory windows are turned off"
				 : "of regions, it has no memory windows 2B";
	return true;
}

static void leave_out(struct wb__host *h, struct wb__device *d)
{
	h->ibv->close_device(d->ctx);
	d->ctx = NULL;
}

/* rxe and siw have this file, which names their network interface. */
static bool is_software(const struct wb__host *h, const char *device)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/class/infiniband/%.64s/parent", h->sysfs, device);
	return !access(path, F_OK);
}

bool wb__host_is_soft(const struct wb__host *h)
{
	bool is = h->n_device > 0;

	for (uint32_t i = 0; i < h->n_device; i++)
		is &= h->device[i].is_soft;
	return is;
}

void wb__host_keys(const struct wb__host *h, char *out, size_t cap)
{
	size_t at = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < h->n_device && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%s: %s", i ? "; " : "",
			h->device[i].name, h->device[i].keys);
}

static void open_device(struct wb__host *h, struct ibv_device *dev, const struct wb_xport_opts *o)
{
	struct wb__device *d = &h->device[h->n_device];
	uint32_t before = h->n_port;

	snprintf(d->name, sizeof(d->name), "%s", h->ibv->get_device_name(dev));
	d->ctx = h->ibv->open_device(dev);
	if (!d->ctx) {
		say_left_out(d, strerror(errno));
		return;
	}
	if (!is_usable(h, d, o)) {
		leave_out(h, d);
		return;
	}
	d->is_soft = is_software(h, d->name);
	if (!access(dev->dev_path, F_OK))
		snprintf(d->folder, sizeof(d->folder), "%s", dev->dev_path);
	h->n_device++;
	(void)fcntl(d->ctx->async_fd, F_SETFL, fcntl(d->ctx->async_fd, F_GETFL) | O_NONBLOCK);
	add_ports(h, h->n_device - 1, o);
	if (h->n_port > before) {
		WB_LOG_INFO(
			"verbs", "device is used", WB_S("device", d->name), WB_S("keys", d->keys));
		return;
	}
	h->n_device--;
	leave_out(h, d);
}

/* Index of the first rail whose device this host does not have; n_rail: there is none. */
static uint32_t find_stray(
	struct wb__host *h, struct ibv_device **list, const struct wb_xport_opts *o)
{
	for (uint32_t i = 0; i < o->n_rail; i++) {
		bool is_here = !device_length(o->rail[i].addr);

		for (int k = 0; list && list[k]; k++)
			is_here |= names_device(o->rail[i].addr, h->ibv->get_device_name(list[k]));
		if (!is_here)
			return i;
	}
	return o->n_rail;
}

static int open_devices(struct wb__host *h, const struct wb_xport_opts *o, struct wb_err *err)
{
	struct ibv_device **list = h->ibv->get_device_list(NULL);
	uint32_t stray = find_stray(h, list, o);

	for (int i = 0; list && list[i] && h->n_device < WB__DEVICES_MAX; i++)
		open_device(h, list[i], o);
	if (list)
		h->ibv->free_device_list(list);
	if (stray == o->n_rail)
		return 0;
	return wb_err_set(err, -ENODEV,
		"no RDMA: this host has no device '%.*s', which rail %u names",
		(int)device_length(o->rail[stray].addr), o->rail[stray].addr, stray);
}

int wb__host_open(struct wb__host *h, const struct wb_xport_opts *o, struct wb_err *err)
{
	int rc;

	snprintf(h->sysfs, sizeof(h->sysfs), "%s", o->sysfs ? o->sysfs : "/sys");
	h->alarm_fd = -1;
	h->todo_tail = &h->todo;
	h->done_tail = &h->done;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->work, NULL);
	rc = wb__ibv_load(&h->ibv, err);
	if (rc)
		return rc;
	h->alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->alarm_fd < 0)
		return wb_err_set(err, -errno, "no descriptor: %s", strerror(errno));
	rc = open_devices(h, o, err);
	if (rc)
		return rc;
	if (!h->n_port)
		return wb_err_set(err, -ENODEV,
			"no RDMA: no device that may be opened has an active port%s",
			device_length(o->rail[0].addr) ? " of those that rails name" : "");
	rc = wb_thread_start(&h->thread, "wb-memory", wb__host_thread, h);
	h->is_started = !rc;
	return rc ? wb_err_set(err, rc, "no thread to register memory") : 0;
}
