/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains and registered memory of a host, and the thread that registers memory. */
#include "xport/verbs/host.h"

#include "base/log.h"
#include "base/mem.h"
#include "mem/nic.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- domains ------------------------------------------------------------------------------------
 */

/* The caller holds the lock. */
static int64_t number_of(struct wb__host *h, uint64_t object)
{
	for (uint32_t i = 0; i < h->n_object; i++)
		if (h->object[i] == object)
			return i;
	if (h->n_object == WB__DOMAINS_MAX)
		return -1;
	h->object[h->n_object] = object;
	return h->n_object++;
}

struct ibv_pd *wb__host_pd(struct wb__host *h, uint32_t d, uint64_t object)
{
	struct wb__device *dev = &h->device[d];
	struct ibv_pd *pd = NULL;
	int64_t n;

	pthread_mutex_lock(&h->lock);
	n = number_of(h, object);
	if (n >= 0 && !dev->pd[n])
		dev->pd[n] = h->ibv->alloc_pd(dev->ctx);
	if (n >= 0)
		pd = dev->pd[n];
	pthread_mutex_unlock(&h->lock);
	return pd;
}

/* ---- registering --------------------------------------------------------------------------------
 */

#define LOCK_REMEDY "raise RLIMIT_MEMLOCK or give the container IPC_LOCK"

static const char *memlock(char out[static 32])
{
	struct rlimit lim = {0};

	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (lim.rlim_cur == RLIM_INFINITY)
		snprintf(out, 32, "unlimited");
	else
		snprintf(out, 32, "%llu", (unsigned long long)lim.rlim_cur);
	return out;
}

static void say_failed(const struct wb__device *d, const struct wb__memory *m)
{
	char most[32];

	WB_LOG_ERR("verbs", "memory cannot be registered", WB_S("device", d->name),
		WB_U("bytes", m->r.bytes), WB_S("error", strerror(-m->code)),
		WB_S("memlock", memlock(most)),
		WB_S("remedy", m->code == -ENOMEM ? LOCK_REMEDY : "see the kernel's log"));
}

/* The fewest rights: others may read a source, or a window may be bound to it; devices here may
 * write a landing. */
static int rights_of(const struct wb__memory *m, bool by_window)
{
	int read = by_window ? IBV_ACCESS_MW_BIND : IBV_ACCESS_REMOTE_READ;

	return (m->r.direction != WB_XPORT_LANDING ? read : 0) |
	       (m->is_readonly ? 0 : IBV_ACCESS_LOCAL_WRITE);
}

/* Register memory of the host on device @d.  Memory that is mapped without the right to write is
 * refused at first.  It is then registered as a source only, and without windows. */
static struct ibv_mr *reg(struct wb__host *h, struct ibv_pd *pd, struct wb__memory *m, uint32_t d)
{
	bool by_window = h->device[d].has_windows && m->r.direction != WB_XPORT_LANDING;
	struct ibv_mr *mr = h->ibv->mr_reg(pd, m->r.base, m->r.bytes, rights_of(m, by_window));

	if (mr && by_window)
		m->by_window |= 1u << d;
	if (mr || (errno != EFAULT && errno != EACCES) ||
		(!by_window && (m->r.direction != WB_XPORT_BOTH || m->is_readonly)))
		return mr;
	m->is_readonly |= m->r.direction == WB_XPORT_BOTH;
	mr = h->ibv->mr_reg(pd, m->r.base, m->r.bytes, rights_of(m, false));
	if (mr && by_window)
		WB_LOG_INFO("verbs",
			"memory has no window: its key holds for all queue pairs of its object",
			WB_S("device", h->device[d].name), WB_U("bytes", m->r.bytes),
			WB_S("because", "it is mapped without the right to write"));
	return mr;
}

static int register_on(struct wb__host *h, struct wb__memory *m, uint32_t d)
{
	struct ibv_pd *pd;

	if (atomic_load(&h->device[d].is_over))
		return -ENODEV;
	errno = 0;
	pd = wb__host_pd(h, d, m->r.object);
	m->mr[d] = pd ? reg(h, pd, m, d) : NULL;
	if (m->mr[d])
		return 0;
	return errno ? -errno : -ENOMEM;
}

static void say_left_out(const struct wb__device *d, const struct wb__memory *m, int rc)
{
	if (!atomic_load(&d->is_over))
		WB_LOG_WRN("verbs",
			"memory goes without a device, which answers as one that is gone",
			WB_S("device", d->name), WB_U("bytes", m->r.bytes),
			WB_S("error", strerror(-rc)),
			WB_S("remedy",
				"see the kernel's log; start the agent again when it is back"));
}

/* Register on all devices.  One that is gone is left out: this may be noticed here before the
 * device or the kernel reports it. */
static void register_host(struct wb__host *h, struct wb__memory *m)
{
	bool is_any = false;

	m->near = ~0u;
	for (uint32_t d = 0; d < h->n_device; d++) {
		int rc = register_on(h, m, d);

		is_any |= !rc;
		m->code = rc ? rc : m->code;
		if (!rc)
			continue;
		if ((rc == -ENODEV || rc == -EIO) && (is_any || d + 1 < h->n_device)) {
			say_left_out(&h->device[d], m, rc);
			continue;
		}
		m->state = WB__MEM_FAILED;
		m->path = WB_XPORT_PATH_FAILED;
		say_failed(&h->device[d], m);
		return;
	}
	m->code = 0;
	m->state = WB__MEM_READY;
	m->path = WB_XPORT_PATH_HOST;
}

/* ---- memory of a GPU ----------------------------------------------------------------------------
 */

enum step { BY_DMABUF, BY_PEER, BY_HOST };

/* The step that worked for a device, and why the steps before it failed. */
struct tried {
	enum step step;
	const char *dmabuf, *peer; /* static texts */
	int peer_errno;
};

static const char *text_of(int code)
{
	const char *text = strerrordesc_np(code);

	return text ? text : "an error that has no name";
}

static void try_dmabuf(
	struct wb__host *h, struct ibv_pd *pd, struct wb__memory *m, uint32_t d, struct tried *t)
{
	if (m->r.gpu.dmabuf_fd < 0) {
		t->dmabuf = "the GPU's driver gave none";
		return;
	}
	if (!h->ibv->dmabuf_mr_reg) {
		t->dmabuf = "libibverbs has no ibv_reg_dmabuf_mr: rdma-core 34 or newer has";
		return;
	}
	errno = 0;
	m->mr[d] = h->ibv->dmabuf_mr_reg(pd, m->r.gpu.dmabuf_off, m->r.bytes, (uintptr_t)m->r.base,
		m->r.gpu.dmabuf_fd, rights_of(m, false));
	if (!m->mr[d])
		t->dmabuf = text_of(errno);
}

static void try_peer(
	struct wb__host *h, struct ibv_pd *pd, struct wb__memory *m, uint32_t d, struct tried *t)
{
	errno = 0;
	m->mr[d] = h->ibv->mr_reg(pd, m->r.base, m->r.bytes, rights_of(m, false));
	if (m->mr[d])
		return;
	t->peer_errno = errno;
	t->peer = text_of(errno);
}

static struct tried try_device(struct wb__host *h, struct wb__memory *m, uint32_t d)
{
	struct ibv_pd *pd = wb__host_pd(h, d, m->r.object);
	struct tried t = {.step = BY_DMABUF, .dmabuf = "", .peer = ""};

	if (!pd) {
		t.step = BY_HOST;
		t.dmabuf = t.peer = "no protection domain";
		return t;
	}
	try_dmabuf(h, pd, m, d, &t);
	if (m->mr[d])
		return t;
	t.step = BY_PEER;
	try_peer(h, pd, m, d, &t);
	if (!m->mr[d])
		t.step = BY_HOST;
	return t;
}

static const char *remedy_of(const struct tried *t)
{
	return t->peer_errno == ENOMEM ? LOCK_REMEDY
				       : "for dma-buf Linux 5.12, a NIC's driver that has it and "
					 "the GPU's open kernel modules; for peer memory modprobe "
					 "nvidia_peermem";
}

/* Log each step once for each device, since it treats the memory of all GPUs alike. */
static void say_step(struct wb__device *d, const struct wb__memory *m, const struct tried *t)
{
	char most[32];

	if (d->said & 1u << t->step)
		return;
	d->said |= (uint8_t)(1u << t->step);
	if (t->step == BY_HOST)
		WB_LOG_WRN("verbs", "memory of a GPU goes by way of the host",
			WB_S("device", d->name), WB_S("gpu", m->r.gpu.pci),
			WB_U("bytes", m->r.bytes), WB_S("dmabuf", t->dmabuf), WB_S("peer", t->peer),
			WB_S("memlock", memlock(most)), WB_S("remedy", remedy_of(t)));
	else if (t->step == BY_PEER)
		WB_LOG_INFO("verbs", "memory of a GPU is registered", WB_S("device", d->name),
			WB_S("gpu", m->r.gpu.pci), WB_U("bytes", m->r.bytes),
			WB_S("by", "peer memory"), WB_S("dmabuf", t->dmabuf));
	else
		WB_LOG_INFO("verbs", "memory of a GPU is registered", WB_S("device", d->name),
			WB_S("gpu", m->r.gpu.pci), WB_U("bytes", m->r.bytes),
			WB_S("by", "dma-buf"));
}

/* The devices in @has that are nearest to the GPU; all of @has if no distance is known, or @any_nic
 * is set. */
static uint32_t nearest(const struct wb__host *h, const struct wb__memory *m, uint32_t has)
{
	uint32_t least = WB_PCI_UNKNOWN, near = 0;

	for (uint32_t d = 0; d < h->n_device && !m->r.gpu.any_nic; d++) {
		char folder[sizeof(h->sysfs) + 100];
		uint32_t far;

		snprintf(folder, sizeof(folder), "%s/class/infiniband/%.64s/device", h->sysfs,
			h->device[d].name);
		far = has & 1u << d ? wb_pci_distance(h->sysfs, m->r.gpu.pci, folder)
				    : WB_PCI_UNKNOWN;
		if (far < least)
			near = 0;
		least = WB_MIN(least, far);
		if (far == least && far != WB_PCI_UNKNOWN)
			near |= 1u << d;
	}
	return near ? near : has;
}

/* Describe all devices in m->says, such as "mlx5_0 dma-buf, near; mlx5_1 peer memory (dma-buf:
 * ..)". */
static void describe(const struct wb__host *h, struct wb__memory *m, const struct tried *t)
{
	size_t at = 0;

	for (uint32_t d = 0; d < h->n_device && at < sizeof(m->says); d++) {
		at += (size_t)snprintf(m->says + at, sizeof(m->says) - at, "%s%s ", d ? "; " : "",
			h->device[d].name);
		if (at >= sizeof(m->says))
			return;
		if (t[d].step == BY_HOST)
			at += (size_t)snprintf(m->says + at, sizeof(m->says) - at,
				"no (dma-buf: %s; peer memory: %s)", t[d].dmabuf, t[d].peer);
		else
			at += (size_t)snprintf(m->says + at, sizeof(m->says) - at, "%s%s%s%s%s",
				t[d].step == BY_DMABUF ? "dma-buf" : "peer memory",
				m->near & 1u << d ? ", near" : "",
				t[d].step == BY_PEER ? " (dma-buf: " : "", t[d].dmabuf,
				t[d].step == BY_PEER ? ")" : "");
	}
	if (m->state == WB__MEM_FAILED && at < sizeof(m->says))
		snprintf(m->says + at, sizeof(m->says) - at, "; %s", remedy_of(t));
}

/* The descriptor is not needed once devices have the memory. */
static void close_dmabuf(struct wb__memory *m)
{
	if (m->r.gpu.is_there && m->r.gpu.dmabuf_fd >= 0)
		close(m->r.gpu.dmabuf_fd);
	m->r.gpu.dmabuf_fd = -1;
}

static void register_gpu(struct wb__host *h, struct wb__memory *m)
{
	struct tried t[WB__DEVICES_MAX];
	uint32_t has = 0, by_dmabuf = 0;

	for (uint32_t d = 0; d < h->n_device; d++) {
		t[d] = try_device(h, m, d);
		say_step(&h->device[d], m, &t[d]);
		has |= m->mr[d] ? 1u << d : 0;
		by_dmabuf |= t[d].step == BY_DMABUF ? 1u << d : 0;
	}
	close_dmabuf(m);
	m->near = nearest(h, m, has);
	m->state = has ? WB__MEM_READY : WB__MEM_FAILED;
	describe(h, m, t);
	m->code = has ? 0 : -ENOTSUP;
	m->path = !has                  ? WB_XPORT_PATH_BOUNCE
		  : by_dmabuf & m->near ? WB_XPORT_PATH_DMABUF
					: WB_XPORT_PATH_PEER;
}

static void register_it(struct wb__host *h, struct wb__memory *m)
{
	assert(m->state == WB__MEM_PENDING);
	m->is_readonly = m->r.direction == WB_XPORT_SOURCE;
	if (m->r.gpu.is_there)
		register_gpu(h, m);
	else
		register_host(h, m);
}

static void free_memory(struct wb__host *h, struct wb__memory *m)
{
	for (uint32_t d = 0; d < h->n_device; d++)
		if (m->mr[d])
			h->ibv->dereg_mr(m->mr[d]);
	close_dmabuf(m);
	pthread_mutex_lock(&h->lock);
	*m->all_back = m->all_next;
	if (m->all_next)
		m->all_next->all_back = m->all_back;
	pthread_mutex_unlock(&h->lock);
	wb_free(m);
}

static void put_done(struct wb__host *h, struct wb__memory *m)
{
	pthread_mutex_lock(&h->lock);
	m->next = NULL;
	*h->done_tail = m;
	h->done_tail = &m->next;
	atomic_fetch_add(&h->n_done, 1);
	pthread_mutex_unlock(&h->lock);
	if (!atomic_exchange(h->done_signalled, 1))
		eventfd_write(h->done_fd, 1);
}

static struct wb__memory *take_todo(struct wb__host *h)
{
	struct wb__memory *m;

	pthread_mutex_lock(&h->lock);
	while (!h->todo && !h->is_stopping)
		pthread_cond_wait(&h->work, &h->lock);
	m = h->is_stopping ? NULL : h->todo;
	if (m) {
		h->todo = m->next;
		if (!h->todo)
			h->todo_tail = &h->todo;
	}
	pthread_mutex_unlock(&h->lock);
	return m;
}

void *wb__host_thread(void *arg)
{
	struct wb__host *h = arg;
	struct wb__memory *m;

	while ((m = take_todo(h))) {
		if (!atomic_load(&m->refs)) {
			free_memory(h, m);
			continue;
		}
		register_it(h, m);
		put_done(h, m);
	}
	return NULL;
}

static void put_todo(struct wb__host *h, struct wb__memory *m)
{
	m->next = NULL;
	*h->todo_tail = m;
	h->todo_tail = &m->next;
	pthread_cond_signal(&h->work);
}

struct wb__memory *wb__host_register(
	struct wb__host *h, uint32_t id, const struct wb_xport_region *r, uint32_t refs)
{
	struct wb__memory *m = wb_zalloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->id = id;
	m->r = *r;
	atomic_init(&m->refs, refs);
	pthread_mutex_lock(&h->lock);
	m->serial = ++h->serial;
	m->all_next = h->all;
	m->all_back = &h->all;
	if (h->all)
		h->all->all_back = &m->all_next;
	h->all = m;
	put_todo(h, m);
	pthread_mutex_unlock(&h->lock);
	return m;
}

struct wb__memory *wb__host_done(struct wb__host *h)
{
	struct wb__memory *m;

	/* This is asked at each poll, also while chunks move, so an empty list must not cost a
	 * lock.  Memory that is added after this look signals the loop again. */
	if (!atomic_load(&h->n_done))
		return NULL;
	pthread_mutex_lock(&h->lock);
	m = h->done;
	assert(m);
	h->done = m->next;
	if (!h->done)
		h->done_tail = &h->done;
	atomic_fetch_sub(&h->n_done, 1);
	pthread_mutex_unlock(&h->lock);
	return m;
}

void wb__host_let_go(struct wb__host *h, struct wb__memory *m)
{
	uint32_t before = atomic_fetch_sub(&m->refs, 1);

	assert(before);
	if (before > 1)
		return;
	pthread_mutex_lock(&h->lock);
	put_todo(h, m);
	pthread_mutex_unlock(&h->lock);
}

/* ---- the end ------------------------------------------------------------------------------------
 */

void wb__host_close(struct wb__host *h)
{
	if (h->is_started) {
		pthread_mutex_lock(&h->lock);
		h->is_stopping = true;
		pthread_cond_signal(&h->work);
		pthread_mutex_unlock(&h->lock);
		pthread_join(h->thread, NULL);
	}
	while (h->all)
		free_memory(h, h->all);
	for (uint32_t d = 0; d < h->n_device; d++) {
		for (uint32_t i = 0; i < h->n_object; i++)
			if (h->device[d].pd[i])
				h->ibv->dealloc_pd(h->device[d].pd[i]);
		h->ibv->close_device(h->device[d].ctx);
	}
	if (h->alarm_fd >= 0)
		close(h->alarm_fd);
	pthread_cond_destroy(&h->work);
	pthread_mutex_destroy(&h->lock);
}
