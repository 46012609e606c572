/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, ports, events, and what tests do to them. */
#include "tests/fakeverbs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct fv fv;

/* ---- the world ---------------------------------------------------------------------------------
 */

static void make_lock(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

static void make_world(void)
{
	const char *file = getenv("FAKEVERBS_WORLD");
	int fd = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
		      : memfd_create("fakeverbs", MFD_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX) || ftruncate(fd, sizeof(struct fv_world)))
		abort();
	fv.w = mmap(NULL, sizeof(struct fv_world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fv.w == MAP_FAILED)
		abort();
	if (!fv.w->is_ready)
		make_lock(&fv.w->lock);
	fv.w->is_ready = true;
	flock(fd, LOCK_UN); /* the mapping keeps the file open, and would keep its lock */
	close(fd);
}

static void make_devices(void)
{
	const char *names = getenv("FAKEVERBS_DEVICES");
	char copy[256], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", names ? names : "fake0:1 fake1:1");
	for (char *s = strtok_r(copy, " ", &save); s && fv.n_dev < FV_DEVICES;
		s = strtok_r(NULL, " ", &save)) {
		struct fv_device *d = &fv.dev[fv.n_dev];
		char *colon = strchr(s, ':');

		d->index = fv.n_dev++;
		d->mtu = IBV_MTU_4096;
		d->has_windows = getenv("FAKEVERBS_WINDOWS") != NULL;
		d->n_port = colon ? atoi(colon + 1) : 1;
		if (colon)
			*colon = 0;
		d->d.node_type = IBV_NODE_CA;
		d->d.transport_type = IBV_TRANSPORT_IB;
		snprintf(d->d.name, sizeof(d->d.name), "%s", s);
		snprintf(d->d.dev_name, sizeof(d->d.dev_name), "uverbs%d", d->index);
		snprintf(d->d.ibdev_path, sizeof(d->d.ibdev_path), "/sys/class/infiniband/%s", s);
	}
}

static void make_all(void)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&fv.work, &a);
	pthread_cond_init(&fv.moved, &a);
	pthread_condattr_destroy(&a);
	make_world();
	make_devices();
}

void fv_lock(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_all);
	if (pthread_mutex_lock(&fv.w->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&fv.w->lock);
}

void fv_unlock(void)
{
	pthread_mutex_unlock(&fv.w->lock);
}

uint64_t fv_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool fv_fails(const char *function)
{
	bool is_so;

	fv_lock();
	is_so = fv.fail_times && !strcmp(fv.fail, function);
	fv.fail_times -= is_so;
	if (is_so)
		errno = fv.fail_errno;
	fv_unlock();
	return is_so;
}

/* ---- what tests do ------------------------------------------------------------------------------
 */

FV_API void fakeverbs_reset(void)
{
	fv_lock();
	fv.n_rule = 0;
	memset(fv.hits, 0, sizeof(fv.hits));
	fv.fail_times = 0;
	fv.reg_ns = 0;
	fv.rd_atomic = 0;
	fv.max_msg = 0;
	fv.max_cqe = 0;
	fv.is_apart = false;
	memset(fv.dmabuf_errno, 0, sizeof(fv.dmabuf_errno));
	while (fv.n_peer)
		close(fv.peer[--fv.n_peer].fd);
	memset(fv.n.traffic_class, 0, sizeof(fv.n.traffic_class));
	memset(fv.n.service_level, 0, sizeof(fv.n.service_level));
	memset(fv.n.path_mtu, 0, sizeof(fv.n.path_mtu));
	fv.n.traffic_class[0] = fv.n.service_level[0] = fv.n.path_mtu[0] = UINT8_MAX;
	fv.n.region_rights = fv.n.qp_rights = fv.n.both_ways = fv.n.window_rights = 0;
	fv.n.in_flight_max = fv.n.all_in_flight_max = 0;
	for (int d = 0; d < fv.n_dev; d++) {
		fv.dev[d].is_removed = false;
		fv.dev[d].d.dev_path[0] = 0;
		fv.dev[d].mtu = IBV_MTU_4096;
		fv.dev[d].has_windows = getenv("FAKEVERBS_WINDOWS") != NULL;
	}
	fv_unlock();
	for (int d = 0; d < fv.n_dev; d++) {
		for (int p = 1; p <= fv.dev[d].n_port; p++) {
			fakeverbs_port(d, p, true);
			if (fv.w->port[d][p - 1].last)
				fakeverbs_regid(d, p, 0);
		}
	}
}

FV_API void fakeverbs_rule(const struct fakeverbs_rule *r)
{
	fv_lock();
	if (fv.n_rule == FV_RULES)
		abort();
	fv.rule[fv.n_rule++] = *r;
	fv_unlock();
}

FV_API void fakeverbs_port(int device, int port, bool is_up)
{
	struct fv_wport *p;

	fv_lock();
	p = &fv.w->port[device][port - 1];
	if (p->is_down == is_up) {
		p->is_down = !is_up;
		p->changes++;
	}
	fv_tell_ports(&fv.dev[device]);
	pthread_cond_broadcast(&fv.work);
	fv_unlock();
}

FV_API void fakeverbs_regid(int device, int port, uint8_t last)
{
	fv_lock();
	fv.w->port[device][port - 1].last = last;
	fv.w->port[device][port - 1].gid_changes++;
	fv_tell_ports(&fv.dev[device]);
	pthread_cond_broadcast(&fv.work);
	fv_unlock();
}

FV_API void fakeverbs_fatal(int device)
{
	fv_lock();
	for (struct fv_context *c = fv.dev[device].first; c; c = c->next)
		fv_raise(c, IBV_EVENT_DEVICE_FATAL, NULL, 0);
	fv_unlock();
}

FV_API void fakeverbs_remove(int device)
{
	struct fv_device *d;

	fv_lock();
	d = &fv.dev[device];
	d->is_removed = true;
	for (struct fv_context *c = d->first; c; c = c->next)
		fv_raise(c, IBV_EVENT_DEVICE_FATAL, NULL, 0);
	for (struct fv_qp *q = fv.qp; q; q = q->next)
		if (q->ctx->dev == d)
			fv_qp_error(q);
	fv_unlock();
}

FV_API void fakeverbs_folder(int device, const char *path)
{
	fv_lock();
	snprintf(fv.dev[device].d.dev_path, sizeof(fv.dev[device].d.dev_path), "%s", path);
	fv_unlock();
}

FV_API void fakeverbs_apart(bool is_so)
{
	fv_lock();
	fv.is_apart = is_so;
	fv_unlock();
}

FV_API void fakeverbs_fail(const char *function, int err, uint32_t times)
{
	fv_lock();
	snprintf(fv.fail, sizeof(fv.fail), "%s", function);
	fv.fail_errno = err;
	fv.fail_times = times;
	fv_unlock();
}

FV_API void fakeverbs_slow(uint64_t reg_ns)
{
	fv_lock();
	fv.reg_ns = reg_ns;
	fv_unlock();
}

FV_API void fakeverbs_dmabuf(int device, int err)
{
	fv_lock();
	for (int i = 0; i < FV_DEVICES; i++)
		if (device == FAKEVERBS_ANY || device == i)
			fv.dmabuf_errno[i] = err;
	fv_unlock();
}

FV_API void fakeverbs_peer(const void *addr, uint64_t bytes, int fd, uint64_t off)
{
	fv_lock();
	if (fv.n_peer == FV_PEERS)
		abort();
	fv.peer[fv.n_peer++] = (struct fv_peer){(uintptr_t)addr, bytes, off, dup(fd)};
	fv_unlock();
}

FV_API void fakeverbs_limit(int rd_atomic, uint32_t max_msg, int max_cqe)
{
	fv_lock();
	fv.rd_atomic = rd_atomic;
	fv.max_msg = max_msg;
	fv.max_cqe = max_cqe;
	fv_unlock();
}

FV_API void fakeverbs_mtu(int device, int mtu)
{
	fv_lock();
	fv.dev[device].mtu = (enum ibv_mtu)mtu;
	fv_unlock();
}

FV_API void fakeverbs_windows(int device, bool has)
{
	fv_lock();
	fv.dev[device].has_windows = has;
	fv_unlock();
}

FV_API void fakeverbs_count(struct fakeverbs_counts *out)
{
	fv_lock();
	*out = fv.n;
	fv_unlock();
}

/* ---- devices ------------------------------------------------------------------------------------
 */

FV_API struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(FV_DEVICES + 1, sizeof(*list));
	int n = 0;

	if (fv_fails("ibv_get_device_list")) {
		free(list);
		return NULL;
	}
	fv_lock();
	for (int i = 0; i < fv.n_dev; i++)
		if (!fv.dev[i].is_removed)
			list[n++] = &fv.dev[i].d;
	fv_unlock();
	if (num)
		*num = n;
	return list;
}

FV_API void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

FV_API const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

FV_API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fv_device *d = (struct fv_device *)device;
	struct fv_context *c;

	if (fv_fails("ibv_open_device"))
		return NULL;
	c = calloc(1, sizeof(*c));
	c->c.device = device;
	c->c.cmd_fd = -1;
	c->c.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->c.num_comp_vectors = 1;
	c->dev = d;
	c->tail = &c->head;
	fv_fill_ops(&c->c.ops);
	pthread_mutex_init(&c->c.mutex, NULL);
	fv_lock();
	for (int p = 0; p < d->n_port; p++) {
		d->seen[p] = d->first ? d->seen[p] : fv.w->port[d->index][p].changes;
		d->seen_gid[p] = d->first ? d->seen_gid[p] : fv.w->port[d->index][p].gid_changes;
	}
	c->next = d->first;
	d->first = c;
	fv.n.contexts++;
	fv_engine_start();
	fv_unlock();
	return &c->c;
}

FV_API int ibv_close_device(struct ibv_context *context)
{
	struct fv_context *c = (struct fv_context *)context, **at;

	fv_lock();
	if (c->users) {
		fv_unlock();
		return EBUSY;
	}
	for (at = &c->dev->first; *at != c;)
		at = &(*at)->next;
	*at = c->next;
	while (c->head) {
		struct fv_event *e = c->head;

		c->head = e->next;
		free(e);
	}
	fv.n.contexts--;
	fv_unlock();
	close(c->c.async_fd);
	pthread_mutex_destroy(&c->c.mutex);
	free(c);
	return 0;
}

FV_API int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 4096;
	a->max_qp = FV_QPS;
	a->max_qp_wr = FV_WR_MAX;
	a->max_sge = FV_SGE;
	a->max_sge_rd = FV_SGE;
	a->max_cq = 1024;
	a->max_cqe = fv.max_cqe ? fv.max_cqe : 65536;
	a->max_mr = FV_MRS;
	a->max_pd = 1024;
	if (((struct fv_context *)c)->dev->has_windows) {
		a->max_mw = FV_MRS;
		a->device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	}
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = fv.rd_atomic ? fv.rd_atomic : 16;
	a->phys_port_cnt = (uint8_t)((struct fv_context *)c)->dev->n_port;
	return 0;
}

#undef ibv_query_port
FV_API int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
	struct fv_device *d = ((struct fv_context *)c)->dev;
	struct ibv_port_attr a = {.max_mtu = IBV_MTU_4096,
		.active_mtu = d->mtu,
		.gid_tbl_len = 2,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.active_speed = 32,
		.active_width = 2};

	if (d->is_removed || port < 1 || port > d->n_port)
		return errno = d->is_removed ? EIO : EINVAL;
	fv_lock();
	a.max_msg_sz = fv.max_msg ? fv.max_msg : 1u << 30;
	a.state = fv.w->port[d->index][port - 1].is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	fv_unlock();
	/* What old callers have room for. */
	memcpy(out, &a, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

void fv_gid_of(int device, int port, int index, union ibv_gid *out)
{
	uint8_t last = fv.w->port[device][port - 1].last;

	memset(out, 0, sizeof(*out));
	if (index == 0) {
		out->raw[0] = 0xfe;
		out->raw[1] = 0x80;
		out->raw[15] = (uint8_t)(device * 16 + port);
		return;
	}
	out->raw[10] = out->raw[11] = 0xff;
	out->raw[12] = 127;
	out->raw[13] = 99;
	out->raw[14] = (uint8_t)device;
	out->raw[15] = last ? last : (uint8_t)port;
}

FV_API int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	struct fv_device *d = ((struct fv_context *)c)->dev;

	if (d->is_removed || port < 1 || port > d->n_port || index < 0 || index > 1)
		return -1;
	fv_lock();
	fv_gid_of(d->index, port, index, gid);
	fv_unlock();
	return 0;
}

FV_API int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
	struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry e = {.gid_index = index,
		.port_num = port,
		.gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1};

	(void)flags;
	if (index > 1)
		return ENODATA;
	if (ibv_query_gid(c, (uint8_t)port, (int)index, &e.gid))
		return EIO;
	memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
	return 0;
}

FV_API int ibv_fork_init(void)
{
	return 0;
}

/* ---- asynchronous events ------------------------------------------------------------------------
 */

void fv_raise(struct fv_context *c, enum ibv_event_type type, struct ibv_qp *qp, int port)
{
	struct fv_event *e = calloc(1, sizeof(*e));

	e->e.event_type = type;
	if (qp)
		e->e.element.qp = qp;
	else
		e->e.element.port_num = port;
	*c->tail = e;
	c->tail = &e->next;
	eventfd_write(c->c.async_fd, 1);
}

FV_API int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *out)
{
	struct fv_context *c = (struct fv_context *)context;
	struct fv_event *e;
	eventfd_t v;

	fv_lock();
	fv.n.looks++;
	fv_unlock();
	if (eventfd_read(c->c.async_fd, &v))
		return -1;
	fv_lock();
	e = c->head;
	*out = e->e;
	c->head = e->next;
	if (!c->head)
		c->tail = &c->head;
	fv_unlock();
	free(e);
	return 0;
}

FV_API void ibv_ack_async_event(struct ibv_async_event *e)
{
	(void)e;
}

FV_API const char *ibv_event_type_str(enum ibv_event_type t)
{
	static const char *const name[] = {[IBV_EVENT_CQ_ERR] = "CQ error",
		[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
		[IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
		[IBV_EVENT_DEVICE_FATAL] = "CA fatal error",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error",
		[IBV_EVENT_GID_CHANGE] = "GID table change"};

	return t < sizeof(name) / sizeof(name[0]) && name[t] ? name[t] : "event";
}

FV_API const char *ibv_wc_status_str(enum ibv_wc_status s)
{
	static const char *const name[] = {[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_MW_BIND_ERR] = "memory bind operation error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded"};

	return s < sizeof(name) / sizeof(name[0]) && name[s] ? name[s] : "error";
}
