/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, and the thread that does what they hold. */
#include "tests/cuda/driver/internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- doing it -------------------------------------------------------------------------------- */

/* Of a copy or a fill: may the device touch what it names?  Asked by the call as well. */
static bool is_allowed(const struct fc_piece *p)
{
	if (p->to_device && !fc_is_one(p->to, p->bytes) && !fc_is_pinned(p->to, p->bytes))
		return false;
	return !p->from_device || fc_is_one(p->from, p->bytes) || fc_is_pinned(p->from, p->bytes);
}

/* The host's side of a copy is pinned. */
static bool has_pinned(const struct fc_piece *p)
{
	return (p->to_device || fc_is_pinned(p->to, p->bytes)) &&
	       (p->from_device || p->kind != FC_COPY || fc_is_pinned(p->from, p->bytes));
}

static int run_copy(const struct fc_piece *p)
{
	if (!is_allowed(p) || (!p->is_waited_for && !has_pinned(p)))
		return WBCU_ILLEGAL_ADDRESS;
	memmove((void *)(uintptr_t)p->to, (const void *)(uintptr_t)p->from, p->bytes);
	return WBCU_SUCCESS;
}

/* Without the lock, which the piece does not need: nobody takes it away while it runs. */
static int run_unlocked(const struct fc_piece *p)
{
	pthread_mutex_unlock(&fc.lock);
	if (p->kind == FC_LAUNCH)
		fc_kernel_run(p->kernel, p->args, p->grid, p->threads);
	else
		p->fn(p->arg);
	pthread_mutex_lock(&fc.lock);
	return WBCU_SUCCESS;
}

static int run(struct fc_piece *p)
{
	int rc = WBCU_SUCCESS;

	if (fc.lose_after == 0)
		return fc.lose_with;
	fc.lose_after -= fc.lose_after > 0;
	if (p->kind == FC_CALL)
		return run_unlocked(p);
	fc_open(true);
	if (p->kind == FC_COPY)
		rc = run_copy(p);
	else if (p->kind == FC_FILL && !is_allowed(p))
		rc = WBCU_ILLEGAL_ADDRESS;
	else if (p->kind == FC_FILL)
		memset((void *)(uintptr_t)p->to, p->value, p->bytes);
	else if (p->kind == FC_LAUNCH && !fc_kernel_reaches(p->kernel, p->args))
		rc = WBCU_ILLEGAL_ADDRESS;
	else if (p->kind == FC_LAUNCH)
		rc = run_unlocked(p);
	fc_open(false);
	fc.count.launches += p->kind == FC_LAUNCH;
	fc.count.copies += p->kind == FC_COPY;
	return rc;
}

/* ---- which is next --------------------------------------------------------------------------- */

static bool is_in_the_way(const struct fc_piece *before, const struct fc_piece *p)
{
	if (before->stream == p->stream)
		return true;
	if (!before->stream)
		return p->stream->is_blocking;
	return !p->stream && before->stream->is_blocking;
}

bool fc_is_done(uint64_t id)
{
	for (const struct fc_piece *p = fc.piece; p; p = p->next)
		if (p->id == id)
			return false;
	return true;
}

static bool is_ready(const struct fc_piece *p, uint64_t now, uint64_t *next_ns)
{
	for (const struct fc_piece *b = fc.piece; b != p; b = b->next)
		if (is_in_the_way(b, p))
			return false;
	if (p->kind == FC_WAIT && !fc_is_done(p->wait_for))
		return false;
	if (p->ready_ns <= now)
		return true;
	*next_ns = p->ready_ns < *next_ns ? p->ready_ns : *next_ns;
	return false;
}

/* The oldest, or any one by the script's number; of functions of the host, or of all else. */
static struct fc_piece *pick(bool is_call, uint64_t *next_ns)
{
	struct fc_piece *found = NULL;
	uint64_t now = fc_now();
	unsigned n = 0;

	*next_ns = UINT64_MAX;
	if (fc.is_held && !fc.go)
		return NULL;
	for (struct fc_piece *p = fc.piece; p; p = p->next) {
		if (p->runs || (p->kind == FC_CALL) != is_call || !is_ready(p, now, next_ns))
			continue;
		n++;
		if (found && !fc.order)
			return found;
		fc.order = fc.order ? fc.order * 6364136223846793005u + 1442695040888963407u : 0;
		if (!found || (fc.order >> 33) % n == 0)
			found = p;
	}
	return found;
}

static void take_out(struct fc_piece *p)
{
	struct fc_piece **at = &fc.piece;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
	fc.count.queued--;
	fc.count.done++;
}

/* A lost device drops what it was to do; who waits hears of it.  A function of the host that runs
 * ends by itself. */
static void lose(int rc)
{
	fc.lost = rc;
	for (struct fc_piece *p = fc.piece, *next; p; p = next) {
		next = p->next;
		if (!p->runs)
			take_out(p);
	}
}

static void wait_until(uint64_t ns)
{
	uint64_t left = ns - fc_now();
	struct timespec t;

	if (ns == UINT64_MAX) {
		pthread_cond_wait(&fc.changed, &fc.lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &t);
	left = (int64_t)left < 0 ? 0 : left;
	left += (uint64_t)t.tv_nsec;
	t.tv_sec += (time_t)(left / 1000000000u);
	t.tv_nsec = (long)(left % 1000000000u);
	pthread_cond_timedwait(&fc.changed, &fc.lock, &t);
}

/* Two of them: a function of the host that waits keeps what is behind it waiting and no more. */
static void *engine(void *is_call)
{
	pthread_mutex_lock(&fc.lock);
	for (;;) {
		uint64_t next_ns;
		struct fc_piece *p = pick(is_call != NULL, &next_ns);
		int rc;

		if (!p) {
			wait_until(next_ns);
			continue;
		}
		fc.go -= fc.is_held;
		p->runs = true;
		rc = run(p);
		take_out(p);
		if (rc)
			lose(rc);
		pthread_cond_broadcast(&fc.changed);
	}
	return NULL;
}

void fc_work_start(void)
{
	sigset_t all, old;
	pthread_t t;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int i = 0; i < 2; i++) {
		if (pthread_create(&t, NULL, engine, i ? &fc : NULL))
			abort();
		pthread_detach(t);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int fc_wait(uint64_t id)
{
	while (!fc.lost && (id ? !fc_is_done(id) : fc.piece != NULL))
		pthread_cond_wait(&fc.changed, &fc.lock);
	return fc.lost;
}

/* ---- queueing it ----------------------------------------------------------------------------- */

static bool is_stream(const void *stream)
{
	const struct fc_stream *s = fc.stream;

	while (s && s != stream)
		s = s->next;
	return !stream || s;
}

int fc_queue(const char *function, void *stream, const struct fc_piece *what, uint64_t *id_out)
{
	struct fc_piece *p, **end = &fc.piece;

	if (!is_stream(stream))
		return WBCU_INVALID_HANDLE;
	p = malloc(sizeof(*p));
	if (!p)
		abort();
	*p = *what;
	p->next = NULL;
	p->id = fc.next_id++;
	p->ready_ns = fc_now() + fc_script_late(function);
	p->stream = stream;
	while (*end)
		end = &(*end)->next;
	*end = p;
	fc.count.queued++;
	if (id_out)
		*id_out = p->id;
	pthread_cond_broadcast(&fc.changed);
	return WBCU_SUCCESS;
}

/* Of host memory that is not pinned: over before the call is. */
static int queue_copy(const char *function, void *stream, struct fc_piece *p, bool waits)
{
	uint64_t id;
	int rc = fc_enter(function, true);

	if (rc)
		return rc;
	if (!p->bytes)
		return fc_leave(WBCU_SUCCESS);
	if (!is_allowed(p))
		return fc_leave(WBCU_INVALID_VALUE);
	p->is_waited_for = waits || !has_pinned(p);
	rc = fc_queue(function, stream, p, &id);
	if (!rc && p->is_waited_for)
		rc = fc_wait(id);
	return fc_leave(rc);
}

static struct fc_piece copy_of(uint64_t to, uint64_t from, size_t bytes, bool in, bool out)
{
	return (struct fc_piece){.kind = FC_COPY,
		.to = to,
		.from = from,
		.bytes = bytes,
		.to_device = !out,
		.from_device = !in};
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
	struct fc_piece p = copy_of(to, (uintptr_t)from, bytes, true, false);

	return queue_copy(__func__, stream, &p, false);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
	struct fc_piece p = copy_of((uintptr_t)to, from, bytes, false, true);

	return queue_copy(__func__, stream, &p, false);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	struct fc_piece p = copy_of(to, from, bytes, false, false);

	return queue_copy(__func__, stream, &p, false);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
	struct fc_piece p = copy_of(to, (uintptr_t)from, bytes, true, false);

	return queue_copy(__func__, NULL, &p, true);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
	struct fc_piece p = copy_of((uintptr_t)to, from, bytes, false, true);

	return queue_copy(__func__, NULL, &p, true);
}

int cuMemsetD8Async(uint64_t addr, uint8_t value, size_t bytes, void *stream)
{
	struct fc_piece p = {
		.kind = FC_FILL, .to = addr, .bytes = bytes, .to_device = true, .value = value};

	return queue_copy(__func__, stream, &p, false);
}

int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg)
{
	struct fc_piece p = {.kind = FC_CALL, .fn = fn, .arg = arg};
	int rc = fc_enter(__func__, FC_CONTEXT);

	return rc ? rc : fc_leave(fc_queue(__func__, stream, &p, NULL));
}

/* ---- streams --------------------------------------------------------------------------------- */

static bool is_busy(const void *stream)
{
	for (const struct fc_piece *p = fc.piece; p; p = p->next)
		if (p->stream == stream)
			return true;
	return false;
}

int cuStreamCreate(void **stream, unsigned flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_stream *s;

	if (rc)
		return rc;
	if (flags > WBCU_STREAM_NON_BLOCKING)
		return fc_leave(WBCU_INVALID_VALUE);
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	*s = (struct fc_stream){fc.stream, flags != WBCU_STREAM_NON_BLOCKING};
	fc.stream = s;
	fc.count.streams++;
	*stream = s;
	return fc_leave(WBCU_SUCCESS);
}

/* What it holds is done first.  A driver does not wait for that here; nobody can tell. */
int cuStreamDestroy_v2(void *stream)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_stream **at = &fc.stream;

	if (rc)
		return rc;
	if (!stream || !is_stream(stream))
		return fc_leave(WBCU_INVALID_HANDLE);
	while (!fc.lost && is_busy(stream))
		pthread_cond_wait(&fc.changed, &fc.lock);
	while (*at != stream)
		at = &(*at)->next;
	*at = (*at)->next;
	free(stream);
	fc.count.streams--;
	return fc_leave(fc.lost);
}

int cuStreamQuery(void *stream)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (!is_stream(stream))
		return fc_leave(WBCU_INVALID_HANDLE);
	return fc_leave(is_busy(stream) ? WBCU_NOT_READY : WBCU_SUCCESS);
}

int cuStreamSynchronize(void *stream)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (!is_stream(stream))
		return fc_leave(WBCU_INVALID_HANDLE);
	while (!fc.lost && is_busy(stream))
		pthread_cond_wait(&fc.changed, &fc.lock);
	return fc_leave(fc.lost);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct fc_event *event_of(void *event)
{
	struct fc_event *e = fc.event;

	while (e && e != event)
		e = e->next;
	return e;
}

int cuEventCreate(void **event, unsigned flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_event *e;

	if (rc)
		return rc;
	if (flags & ~7u)
		return fc_leave(WBCU_INVALID_VALUE);
	e = calloc(1, sizeof(*e));
	if (!e)
		abort();
	e->next = fc.event;
	fc.event = e;
	fc.count.events++;
	*event = e;
	return fc_leave(WBCU_SUCCESS);
}

int cuEventDestroy_v2(void *event)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_event **at = &fc.event;

	if (rc)
		return rc;
	if (!event_of(event))
		return fc_leave(WBCU_INVALID_HANDLE);
	while (*at != event)
		at = &(*at)->next;
	*at = (*at)->next;
	free(event);
	fc.count.events--;
	return fc_leave(WBCU_SUCCESS);
}

int cuEventRecord(void *event, void *stream)
{
	struct fc_piece p = {.kind = FC_RECORD};
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (!event_of(event))
		return fc_leave(WBCU_INVALID_HANDLE);
	return fc_leave(fc_queue(__func__, stream, &p, &event_of(event)->piece));
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	struct fc_piece p = {.kind = FC_WAIT};
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (!event_of(event) || flags)
		return fc_leave(WBCU_INVALID_HANDLE);
	p.wait_for = event_of(event)->piece;
	return fc_leave(fc_queue(__func__, stream, &p, NULL));
}

int cuEventQuery(void *event)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	const struct fc_event *e;

	if (rc)
		return rc;
	e = event_of(event);
	if (!e)
		return fc_leave(WBCU_INVALID_HANDLE);
	return fc_leave(fc_is_done(e->piece) ? WBCU_SUCCESS : WBCU_NOT_READY);
}

int cuEventSynchronize(void *event)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	const struct fc_event *e;

	if (rc)
		return rc;
	e = event_of(event);
	if (!e)
		return fc_leave(WBCU_INVALID_HANDLE);
	return fc_leave(e->piece ? fc_wait(e->piece) : WBCU_SUCCESS);
}

/* ---- modules: kernels are found by name, whatever the image holds -----------------------------
 */

#define FATBIN 0xBA55ED50u

struct fc_module {
	struct fc_module *next;
};

/* A fatbin, or PTX. */
static bool is_image(const char *image)
{
	uint32_t magic = FATBIN;

	return !strncmp(image, ".version", 8) || !memcmp(image, &magic, sizeof(magic));
}

int cuModuleLoadData(void **module, const void *image)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_module *m;

	if (rc)
		return rc;
	if (!is_image(image))
		return fc_leave(WBCU_INVALID_IMAGE);
	m = malloc(sizeof(*m));
	if (!m)
		abort();
	m->next = fc.module;
	fc.module = m;
	fc.count.modules++;
	*module = m;
	return fc_leave(WBCU_SUCCESS);
}

int cuModuleUnload(void *module)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_module **at = &fc.module;

	if (rc)
		return rc;
	while (*at && *at != module)
		at = &(*at)->next;
	if (!*at)
		return fc_leave(WBCU_INVALID_HANDLE);
	*at = (*at)->next;
	rc = fc_wait(0);
	free(module);
	fc.count.modules--;
	return fc_leave(rc);
}

int cuModuleGetFunction(void **fn, void *module, const char *name)
{
	int rc = fc_enter(__func__, FC_CONTEXT), at = fc_kernel_find(name);

	(void)module;
	if (rc)
		return rc;
	if (at < 0)
		return fc_leave(WBCU_NOT_FOUND);
	*fn = (void *)(uintptr_t)(at + 1);
	return fc_leave(WBCU_SUCCESS);
}

int cuLaunchKernel(void *fn, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
	unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **args,
	void **extra)
{
	struct fc_piece p = {.kind = FC_LAUNCH, .grid = grid_x, .threads = block_x};
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	p.kernel = (int)(uintptr_t)fn - 1;
	if (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_x % 32 ||
		block_y != 1 || block_z != 1 || shared_bytes || !args || extra)
		return fc_leave(WBCU_INVALID_VALUE);
	memcpy(p.args, args[0], fc_kernel_bytes(p.kernel));
	return fc_leave(fc_queue(__func__, stream, &p, NULL));
}
