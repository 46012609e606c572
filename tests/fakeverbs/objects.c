/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, memory regions, completion queues and their channels. */
#include "tests/fakeverbs/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct fv_context *context_of(struct ibv_context *c)
{
	return (struct fv_context *)c;
}

/* ---- protection domains -------------------------------------------------------------------------
 */

FV_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct fv_pd *p;

	if (fv_fails("ibv_alloc_pd"))
		return NULL;
	p = calloc(1, sizeof(*p));
	p->p.context = c;
	fv_lock();
	p->number = ++fv.w->next_pd;
	context_of(c)->users++;
	fv.n.pds++;
	fv_unlock();
	return &p->p;
}

FV_API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct fv_pd *p = (struct fv_pd *)pd;

	fv_lock();
	if (p->users) {
		fv_unlock();
		return EBUSY;
	}
	context_of(pd->context)->users--;
	fv.n.pds--;
	fv_unlock();
	free(p);
	return 0;
}

/* ---- memory regions -----------------------------------------------------------------------------
 */

int64_t fv_free_region(void)
{
	for (uint32_t i = 1; i < FV_MRS; i++)
		if (!fv.w->mr[i].is_used)
			return i;
	return -ENOMEM;
}

/* What [addr, +length) of a region is, and where its bytes are. */
struct memory {
	uint64_t addr, length;
	void *map; /* NULL = at addr */
	size_t map_bytes;
	uint64_t skip; /* bytes of the map before it */
};

static struct ibv_mr *fail(int err)
{
	errno = err;
	return NULL;
}

static struct ibv_mr *add_region(struct ibv_pd *pd, const struct memory *is, int access)
{
	struct fv_pd *p = (struct fv_pd *)pd;
	struct fv_mr *m = calloc(1, sizeof(*m));
	int64_t i;

	fv_lock();
	i = context_of(pd->context)->dev->is_removed ? -EIO : fv_free_region();
	if (i < 0) {
		fv_unlock();
		free(m);
		return fail((int)-i);
	}
	m->index = (uint32_t)i;
	m->map = is->map;
	m->map_bytes = is->map_bytes;
	fv.w->mr[i] = (struct fv_wmr){.is_used = true,
		.tag = (uint8_t)(fv.w->mr[i].tag + 1),
		.pid = getpid(),
		.pd = p->number,
		.access = (uint32_t)access,
		.addr = is->addr,
		.length = is->length,
		.at = is->map ? (uintptr_t)is->map + is->skip : is->addr};
	p->users++;
	fv.n.mrs++;
	fv.n.registered_bytes += is->length;
	fv.n.region_rights |= (uint32_t)access;
	m->m = (struct ibv_mr){.context = pd->context,
		.pd = pd,
		.addr = (void *)(uintptr_t)is->addr,
		.length = is->length,
		.lkey = (uint32_t)i << 8 | fv.w->mr[i].tag,
		.rkey = (uint32_t)i << 8 | fv.w->mr[i].tag};
	fv_unlock();
	return &m->m;
}

/* The bytes of a file, for the devices: 0, or an errno. */
static int map_file(struct memory *m, int fd, uint64_t at)
{
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size < at || (uint64_t)st.st_size - at < m->length)
		return EINVAL;
	m->skip = at % 4096;
	m->map_bytes = m->skip + m->length;
	m->map = mmap(
		NULL, m->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(at - m->skip));
	return m->map == MAP_FAILED ? errno : 0;
}

static bool is_reached(uint64_t addr)
{
	char byte;
	struct iovec mine = {&byte, 1}, there = {(void *)(uintptr_t)addr, 1};

	return process_vm_readv(getpid(), &mine, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

#define WRITES                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |             \
		IBV_ACCESS_MW_BIND)

/* Is all of it mapped with the right to write?  The kernel asks so also where windows may be bound.
 */
static bool is_writable(uint64_t addr, uint64_t length)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	uint64_t at = addr;
	char rights[8], line[512];

	while (f && at < addr + length && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && from <= at && at < to &&
			rights[1] == 'w')
			at = to;
	if (f)
		fclose(f);
	return at >= addr + length;
}

/* 1: a peer's; 0: the host's; an errno below 0. */
static int find_memory(struct memory *m, int access)
{
	int rc = 0;

	fv_lock();
	for (int i = 0; i < fv.n_peer && !rc; i++) {
		const struct fv_peer *p = &fv.peer[i];

		if (m->addr < p->addr || m->addr + m->length > p->addr + p->bytes)
			continue;
		rc = -map_file(m, p->fd, p->off + (m->addr - p->addr));
		rc = rc ? rc : 1;
	}
	fv_unlock();
	if (rc)
		return rc;
	if (access & WRITES && !is_writable(m->addr, m->length))
		return -EFAULT;
	return is_reached(m->addr) && is_reached(m->addr + m->length - 1) ? 0 : -EFAULT;
}

static void take_time(void)
{
	uint64_t ns;

	fv_lock();
	ns = fv.reg_ns;
	fv_unlock();
	if (ns)
		nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)},
			NULL);
}

static bool is_asked_well(int access)
{
	return !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) ||
	       access & IBV_ACCESS_LOCAL_WRITE;
}

#undef ibv_reg_mr
FV_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct memory is = {.addr = (uintptr_t)addr, .length = length};
	struct ibv_mr *m;
	int kind;

	if (fv_fails("ibv_reg_mr"))
		return NULL;
	take_time();
	kind = is_asked_well(access) ? find_memory(&is, access) : -EINVAL;
	if (kind < 0)
		return fail(-kind);
	m = add_region(pd, &is, access);
	if (m && kind) {
		fv_lock();
		fv.n.peers++;
		fv_unlock();
	}
	return m;
}

FV_API struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (iova != (uintptr_t)addr) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ibv_reg_mr(pd, addr, length, (int)(access & ~IBV_ACCESS_OPTIONAL_RANGE));
}

FV_API struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t off, size_t length, uint64_t iova, int fd, int access)
{
	struct memory is = {.addr = iova, .length = length};
	off_t begin = lseek(fd, 0, SEEK_CUR);
	struct stat st;
	struct ibv_mr *m;
	int rc;

	if (fv_fails("ibv_reg_dmabuf_mr"))
		return NULL;
	take_time();
	fv_lock();
	rc = fv.dmabuf_errno[context_of(pd->context)->dev->index];
	fv_unlock();
	if (rc)
		return fail(rc);
	if (begin < 0 || fstat(fd, &st))
		return fail(EBADF);
	if ((off ^ iova) & 4095 || !is_asked_well(access))
		return fail(EINVAL);
	rc = map_file(&is, fd, (uint64_t)begin + off);
	if (rc)
		return fail(rc);
	m = add_region(pd, &is, access);
	fv_lock();
	fv.n.dmabufs += m != NULL;
	fv.n.dmabuf_inode = st.st_ino;
	fv.n.dmabuf_off = off;
	fv.n.dmabuf_bytes = length;
	fv.n.dmabuf_iova = iova;
	fv_unlock();
	if (m)
		((struct fv_mr *)m)->is_dmabuf = true;
	return m;
}

void fv_wait_for_copies(void)
{
	for (int i = 0; i < 2000; i++) {
		bool is_busy = false;

		for (struct fv_qp *q = fv.qp; q; q = q->next)
			is_busy |= q->is_moving || q->w->busy;
		if (!is_busy)
			return;
		fv_unlock();
		nanosleep(&(struct timespec){0, 500000}, NULL);
		fv_lock();
	}
}

FV_API int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fv_mr *m = (struct fv_mr *)mr;

	fv_lock();
	if (fv.w->mr[m->index].windows) {
		fv_unlock();
		return EBUSY;
	}
	fv.w->mr[m->index].is_used = false;
	fv_wait_for_copies();
	((struct fv_pd *)mr->pd)->users--;
	fv.n.mrs--;
	fv.n.registered_bytes -= mr->length;
	fv.n.dmabufs -= m->is_dmabuf;
	fv.n.peers -= m->map && !m->is_dmabuf;
	fv_unlock();
	if (m->map)
		munmap(m->map, m->map_bytes);
	free(m);
	return 0;
}

/* ---- completion queues --------------------------------------------------------------------------
 */

FV_API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fv_channel *h;

	if (fv_fails("ibv_create_comp_channel"))
		return NULL;
	h = calloc(1, sizeof(*h));
	h->c.context = c;
	h->c.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	h->tail = &h->head;
	fv_lock();
	context_of(c)->users++;
	fv.n.channels++;
	fv_unlock();
	return &h->c;
}

FV_API int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	fv_lock();
	if (channel->refcnt) {
		fv_unlock();
		return EBUSY;
	}
	context_of(channel->context)->users--;
	fv.n.channels--;
	fv_unlock();
	close(channel->fd);
	free(channel);
	return 0;
}

FV_API struct ibv_cq *ibv_create_cq(
	struct ibv_context *c, int cqe, void *user, struct ibv_comp_channel *channel, int vector)
{
	struct fv_cq *q;

	(void)vector;
	if (fv_fails("ibv_create_cq"))
		return NULL;
	q = calloc(1, sizeof(*q));
	q->cap = (uint32_t)cqe;
	q->wc = calloc(q->cap, sizeof(*q->wc));
	q->c.context = c;
	q->c.channel = channel;
	q->c.cq_context = user;
	q->c.cqe = cqe;
	fv_lock();
	if (channel)
		channel->refcnt++;
	context_of(c)->users++;
	fv.n.cqs++;
	fv_unlock();
	return &q->c;
}

static void unqueue(struct fv_cq *q)
{
	struct fv_channel *h = (struct fv_channel *)q->c.channel;
	struct fv_cq **at = &h->head;
	eventfd_t v;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	if (h->tail == &q->next)
		h->tail = at;
	eventfd_read(h->c.fd, &v);
}

FV_API int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fv_cq *q = (struct fv_cq *)cq;

	fv_lock();
	if (q->users) {
		fv_unlock();
		return EBUSY;
	}
	if (q->events != q->acked)
		abort(); /* the real one waits for ever */
	if (q->is_queued)
		unqueue(q);
	if (cq->channel)
		cq->channel->refcnt--;
	context_of(cq->context)->users--;
	fv.n.cqs--;
	fv_unlock();
	free(q->wc);
	free(q);
	return 0;
}

void fv_complete(struct fv_cq *q, const struct ibv_wc *wc)
{
	struct fv_channel *h = (struct fv_channel *)q->c.channel;

	if (q->n == q->cap) {
		fv_raise(context_of(q->c.context), IBV_EVENT_CQ_ERR, NULL, 0);
		return;
	}
	q->wc[(q->at + q->n++) % q->cap] = *wc;
	fv.n.completions++;
	if (!q->is_armed || !h)
		return;
	q->is_armed = false;
	if (q->is_queued)
		return;
	q->is_queued = true;
	q->next = NULL;
	*h->tail = q;
	h->tail = &q->next;
	eventfd_write(h->c.fd, 1);
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct fv_cq *q = (struct fv_cq *)cq;
	int n = 0;

	fv_lock();
	while (n < max && q->n) {
		wc[n++] = q->wc[q->at];
		q->at = (q->at + 1) % q->cap;
		q->n--;
	}
	fv_unlock();
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)solicited_only;
	fv_lock();
	((struct fv_cq *)cq)->is_armed = true;
	fv.n.arms++;
	fv_unlock();
	return 0;
}

FV_API int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	struct fv_channel *h = (struct fv_channel *)channel;
	struct fv_cq *q;
	eventfd_t v;

	fv_lock();
	fv.n.looks++;
	fv_unlock();
	if (eventfd_read(channel->fd, &v))
		return -1;
	fv_lock();
	q = h->head;
	h->head = q->next;
	if (!h->head)
		h->tail = &h->head;
	q->is_queued = false;
	q->events++;
	fv_unlock();
	*cq = &q->c;
	*user = q->c.cq_context;
	return 0;
}

FV_API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	fv_lock();
	((struct fv_cq *)cq)->acked += n;
	fv_unlock();
}

void fv_fill_ops(struct ibv_context_ops *ops)
{
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	ops->post_send = fv_post_send;
	ops->post_recv = fv_post_recv;
	ops->alloc_mw = fv_alloc_mw;
	ops->dealloc_mw = fv_dealloc_mw;
}
