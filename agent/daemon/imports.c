/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/imports.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"
#include "daemon/content.h"
#include "mem/gpu.h"
#include "mem/travel.h"
#include "net/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT_BYTES_MAX (64ull << 20)

/* A memory object as it came, and as it is here. */
struct object {
	struct wb_mem_desc from;
	struct wb_mem_piece *piece; /* pieces of it; owned, as are all descriptors */
	struct wb_mem here;
};

struct wb__imports {
	struct wb__imports_in in; /* loop, lane (ours), arena_fd (ours), on_change, cookie */
	struct object *object; /* owned, n each */
	struct wb_lane_mem *mem;
	uint32_t n;
	char name[16];
	int news; /* eventfd: the state has changed */
	struct wb_watch *watch;
	pthread_t thread;
	bool is_started;
	_Atomic int state; /* written by the thread */
	pthread_mutex_t lock; /* guards: stop, worker */
	bool stop;
	struct wb_lane_worker *worker;
	/* The thread's, for others when it is OVER. */
	void *arena;
	uint64_t arena_bytes;
	struct wb_err err; /* of the import */
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void say(struct wb__imports *i, enum wb__imports_state state)
{
	uint64_t one = 1;
	ssize_t n;

	atomic_store_explicit(&i->state, (int)state, memory_order_release);
	do
		n = write(i->news, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
}

static bool is_stopped(struct wb__imports *i)
{
	bool stop;

	pthread_mutex_lock(&i->lock);
	stop = i->stop;
	pthread_mutex_unlock(&i->lock);
	return stop;
}

/* Once an object is mapped its descriptors are not needed: they would count as open, and keep
 * memory. */
static void close_taken(struct object *o)
{
	for (uint32_t k = 0; k < o->from.n_piece; k++)
		close(o->piece[k].fd);
	wb_free(o->piece);
	o->piece = NULL;
	o->from.n_piece = 0;
	if (o->from.fd >= 0)
		close(o->from.fd);
	o->from.fd = -1;
}

/* A lane has one device at most. */
static int check_device(const struct wb__imports *i, uint32_t at, struct wb_gpu **gpu)
{
	const struct wb_mem *m = &i->object[at].here;

	if (m->access != WB_MEM_AT_DEVICE)
		return 0;
	if (*gpu && *gpu != m->gpu)
		return -EINVAL;
	*gpu = m->gpu;
	return 0;
}

static int import_all(struct wb__imports *i, struct wb_gpu **gpu)
{
	int rc = 0;

	*gpu = NULL;
	for (uint32_t k = 0; !rc && k < i->n; k++) {
		struct object *o = &i->object[k];

		if (is_stopped(i))
			return wb_err_set(&i->err, -ECANCELED, "it is not wanted any more");
		rc = wb_mem_import(&o->from, &o->here, &i->err);
		close_taken(o);
		if (rc)
			return wb_err_wrap(&i->err, rc, "memory object %u", k);
		if (check_device(i, k, gpu))
			return wb_err_set(&i->err, -EINVAL,
				"memory object %u lies on another GPU than those before it", k);
		i->mem[k] = (struct wb_lane_mem){.addr = o->here.addr,
			.bytes = o->here.bytes,
			.is_device = o->here.access == WB_MEM_AT_DEVICE};
	}
	return rc;
}

/* Slots are mapped once more: a driver pins a range of addresses for one lane. */
static int open_lane(struct wb__imports *i, const struct wb_gpu *gpu)
{
	struct wb_lane_worker_opts o = {.fds = i->in.lane, .mem = i->mem, .n_mem = i->n};
	struct wb_lane_worker *worker;
	void *p;
	int rc = wb_memfd_check(i->in.arena_fd, 1, &i->arena_bytes, &i->err);

	if (rc)
		return rc;
	p = mmap(NULL, i->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		i->in.arena_fd, 0);
	if (p == MAP_FAILED)
		return wb_err_set(&i->err, -errno, "map %llu bytes of slots: %s",
			(unsigned long long)i->arena_bytes, strerror(errno));
	i->arena = p;
	o.arena = p;
	o.arena_bytes = i->arena_bytes;
	o.device = gpu ? gpu->uuid.bytes : NULL;
	rc = wb_lane_worker_open(&o, &worker, &i->err);
	if (rc)
		return rc;
	i->in.lane = (struct wb_lane_remote_fds){-1, -1, -1}; /* the lane's now */
	pthread_mutex_lock(&i->lock);
	i->worker = worker;
	if (i->stop)
		wb_lane_worker_stop(worker);
	pthread_mutex_unlock(&i->lock);
	return 0;
}

/* Nothing of the lane runs any more.  The last to let a device go gives its context back. */
static void let_go(struct wb__imports *i)
{
	struct wb_lane_worker *worker = i->worker;

	pthread_mutex_lock(&i->lock);
	i->worker = NULL;
	pthread_mutex_unlock(&i->lock);
	wb_lane_worker_close(worker);
	for (uint32_t k = 0; k < i->n; k++) {
		close_taken(&i->object[k]);
		wb_mem_release(&i->object[k].here);
	}
	if (i->arena)
		munmap(i->arena, i->arena_bytes);
	i->arena = NULL;
}

static void *thread_main(void *arg)
{
	struct wb__imports *i = arg;
	struct wb_gpu *gpu;
	int rc = import_all(i, &gpu);

	if (!rc)
		rc = open_lane(i, gpu);
	if (!rc) {
		say(i, WB__IMPORTS_WORKING);
		/* Rings that make no sense end the lane; jobs are then unanswered, and the worker
		 * is sent away (apps.c). */
		(void)wb_lane_worker_run(i->worker);
	}
	let_go(i);
	say(i, WB__IMPORTS_OVER);
	return NULL;
}

static int start(struct wb__imports *i, struct wb_err *err)
{
	int rc = wb_thread_start(&i->thread, i->name, thread_main, i);

	if (rc)
		return wb_err_set(err, rc, "start the thread of a lane: %s", strerror(-rc));
	i->is_started = true;
	return 0;
}

/* ---- what came ------------------------------------------------------------------------------- */

static int dup_fd(int fd, struct wb_err *err)
{
	int rc = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return rc < 0 ? wb_err_set(err, -errno, "duplicate a descriptor: %s", strerror(errno)) : rc;
}

/* What the loop mapped, for the thread to map by itself. */
static int take_memfd(struct object *o, const struct wb_mem *m, struct wb_err *err)
{
	int fd = dup_fd(m->fd, err);

	if (fd < 0)
		return fd;
	o->from = (struct wb_mem_desc){
		.kind = WB_MEM_MEMFD, .fd = fd, .offset = m->fd_offset, .bytes = m->bytes};
	return 0;
}

static int keep_pieces(struct object *o, const struct wb_mem_taken *t, struct wb_err *err)
{
	o->from = t->desc;
	o->from.n_piece = 0;
	o->piece = wb_memdup(t->piece, t->desc.n_piece * sizeof(t->piece[0]));
	if (!o->piece && t->desc.n_piece)
		return wb_err_set(err, -ENOMEM, "no memory for a memory object");
	o->from.piece = o->piece;
	for (uint32_t k = 0; k < t->desc.n_piece; k++) {
		o->piece[k].fd = dup_fd(t->piece[k].fd, err);
		if (o->piece[k].fd < 0)
			return o->piece[k].fd;
		o->from.n_piece = k + 1;
	}
	return 0;
}

static int take_export(struct object *o, const struct wb_mem *m, struct wb_cursor *c,
	const struct wb__imports_in *in, uint32_t *at, struct wb_err *err)
{
	struct wb_mem_taken t;
	int rc = wb_mem_take(c, in->fds + *at, in->n_fd - *at, &t, err);

	if (!rc && t.desc.bytes != m->bytes)
		rc = wb_err_set(err, -EINVAL, "%llu bytes are described, the table says %llu",
			(unsigned long long)t.desc.bytes, (unsigned long long)m->bytes);
	if (rc)
		return rc;
	*at += t.desc.n_piece;
	return keep_pieces(o, &t, err);
}

static int take_all(struct wb__imports *i, const struct wb__imports_in *in, struct wb_err *err)
{
	const struct wb__table *t = in->table;
	uint8_t *text = NULL;
	struct wb_cursor c;
	uint32_t at = 1;
	int rc = in->n_fd ? wb__read_memfd("descriptions of memory", in->fds[0], in->export_bytes,
				    EXPORT_BYTES_MAX, &text, err)
			  : wb_err_set(err, -EINVAL, "descriptions of memory came without fds");

	if (rc)
		return rc;
	c = wb_cursor(text, in->export_bytes);
	for (uint32_t k = 0; !rc && k < t->n_mem; k++) {
		const struct wb_mem *m = &t->mem[k];

		rc = m->access == WB_MEM_AT_HOST ? take_memfd(&i->object[k], m, err)
						 : take_export(&i->object[k], m, &c, in, &at, err);
		if (rc)
			wb_err_wrap(err, rc, "memory object %u", k);
	}
	if (!rc && (at != in->n_fd || wb_cur_left(&c)))
		rc = wb_err_set(err, -EINVAL,
			"%u descriptors and %zu bytes more than the memory that is described",
			in->n_fd - at, wb_cur_left(&c));
	wb_free(text);
	return rc;
}

static int take_lane(struct wb__imports *i, const struct wb__imports_in *in, struct wb_err *err)
{
	const int from[4] = {in->lane.shared, in->lane.submit, in->lane.complete, in->arena_fd};
	int *to[4] = {
		&i->in.lane.shared, &i->in.lane.submit, &i->in.lane.complete, &i->in.arena_fd};

	for (int k = 0; k < 4; k++) {
		*to[k] = dup_fd(from[k], err);
		if (*to[k] < 0)
			return *to[k];
	}
	return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_news(void *cookie, int events)
{
	struct wb__imports *i = cookie;
	uint64_t n;

	(void)events;
	if (read(i->news, &n, sizeof(n)) == (ssize_t)sizeof(n))
		i->in.on_change(i->in.cookie); /* may destroy the imports */
}

static void discard(struct wb__imports *i)
{
	const int fd[] = {
		i->in.lane.shared, i->in.lane.submit, i->in.lane.complete, i->in.arena_fd, i->news};

	wb_watch_destroy(i->watch);
	for (uint32_t k = 0; i->object && k < i->n; k++)
		close_taken(&i->object[k]);
	for (size_t k = 0; k < WB_ARRAY_SIZE(fd); k++)
		if (fd[k] >= 0)
			close(fd[k]);
	pthread_mutex_destroy(&i->lock);
	wb_free(i->object);
	wb_free(i->mem);
	wb_free(i);
}

static int make(struct wb__imports *i, const struct wb__imports_in *in, struct wb_err *err)
{
	int rc;

	i->n = in->table->n_mem;
	i->object = wb_zalloc(i->n, sizeof(*i->object));
	i->mem = wb_zalloc(i->n, sizeof(*i->mem));
	if (!i->object || !i->mem)
		return wb_err_set(err, -ENOMEM, "no memory for %u memory objects", i->n);
	for (uint32_t k = 0; k < i->n; k++)
		i->object[k].from.fd = i->object[k].here.fd = -1;
	i->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (i->news < 0)
		return wb_err_set(err, -errno, "eventfd for a lane: %s", strerror(errno));
	rc = take_lane(i, in, err);
	if (!rc)
		rc = take_all(i, in, err);
	if (rc)
		return rc;
	rc = wb_watch_create(in->loop, i->news, WB_READABLE, on_news, i, &i->watch);
	return rc ? wb_err_set(err, rc, "watch a lane: %s", wb_strerror(rc)) : start(i, err);
}

int wb__imports_begin(const struct wb__imports_in *in, struct wb__imports **out, struct wb_err *err)
{
	struct wb__imports *i = wb_zalloc(1, sizeof(*i));
	int rc;

	assert(in->table->n_mem && in->on_change);
	if (!i)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	i->in = (struct wb__imports_in){.loop = in->loop,
		.lane = {-1, -1, -1},
		.arena_fd = -1,
		.on_change = in->on_change,
		.cookie = in->cookie};
	i->news = -1;
	snprintf(i->name, sizeof(i->name), "%s", in->name);
	pthread_mutex_init(&i->lock, NULL);
	rc = make(i, in, err);
	if (rc) {
		discard(i);
		return rc;
	}
	*out = i;
	return 0;
}

enum wb__imports_state wb__imports_state(const struct wb__imports *i)
{
	return (enum wb__imports_state)atomic_load_explicit(&i->state, memory_order_acquire);
}

const char *wb__imports_why(const struct wb__imports *i)
{
	return wb__imports_state(i) == WB__IMPORTS_OVER ? i->err.msg : "";
}

void wb__imports_stop(struct wb__imports *i)
{
	pthread_mutex_lock(&i->lock);
	if (!i->stop && i->worker)
		wb_lane_worker_stop(i->worker);
	i->stop = true;
	pthread_mutex_unlock(&i->lock);
}

void wb__imports_destroy(struct wb__imports *i)
{
	if (!i)
		return;
	assert(i->is_started && wb__imports_state(i) == WB__IMPORTS_OVER);
	pthread_join(i->thread, NULL);
	discard(i);
}
