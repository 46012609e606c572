/* SPDX-License-Identifier: Apache-2.0 */
/* Domains and registered memory of a host, and the thread that registers. */
#include "xport/verbs/host.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- domains ------------------------------------------------------------------------------------
 */

/* Under the lock. */
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

static void say_failed(const struct wb__device *d, const struct wb__memory *m)
{
	struct rlimit lim = {0};
	char most[32];

	getrlimit(RLIMIT_MEMLOCK, &lim);
	snprintf(most, sizeof(most), "%llu", (unsigned long long)lim.rlim_cur);
	WB_LOG_ERR("verbs", "memory cannot be registered", WB_S("device", d->name),
		WB_U("bytes", m->r.bytes), WB_S("error", strerror(-m->code)),
		WB_S("memlock", lim.rlim_cur == RLIM_INFINITY ? "unlimited" : most),
		WB_S("remedy", m->code == -ENOMEM
				       ? "raise RLIMIT_MEMLOCK or give the container IPC_LOCK"
				       : "see the kernel's log"));
}

/* The least right for others: to read.  Memory that is mapped without the right to write can only
 * be a source. */
static struct ibv_mr *reg(struct wb__host *h, struct ibv_pd *pd, struct wb__memory *m)
{
	struct ibv_mr *mr = NULL;

	if (!m->is_readonly)
		mr = h->ibv->mr_reg(
			pd, m->r.base, m->r.bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	if (mr || (errno != EFAULT && errno != EACCES && !m->is_readonly))
		return mr;
	m->is_readonly = true;
	return h->ibv->mr_reg(pd, m->r.base, m->r.bytes, IBV_ACCESS_REMOTE_READ);
}

static void register_it(struct wb__host *h, struct wb__memory *m)
{
	assert(m->state == WB__MEM_PENDING);
	m->state = WB__MEM_READY;
	for (uint32_t d = 0; d < h->n_device; d++) {
		struct ibv_pd *pd = wb__host_pd(h, d, m->r.object);

		errno = 0;
		m->mr[d] = pd ? reg(h, pd, m) : NULL;
		if (m->mr[d])
			continue;
		m->state = WB__MEM_FAILED;
		m->code = errno ? -errno : -ENOMEM;
		say_failed(&h->device[d], m);
		return;
	}
}

static void free_memory(struct wb__host *h, struct wb__memory *m)
{
	for (uint32_t d = 0; d < h->n_device; d++)
		if (m->mr[d])
			h->ibv->dereg_mr(m->mr[d]);
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

	/* Asked at every poll, where chunks go by.  Who is counted later signals later. */
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
