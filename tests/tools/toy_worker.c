/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toy_worker - a worker with made-up weights, for tests of whole processes.
 *
 *	toy_worker --socket PATH --role trainer|rollout [--engine NAME] --index I --of N
 *		[--cut rows|cols] [--rows R] [--cols C] [--tensors T] [--heap] [--rank K]
 *		[--object NS/NAME] [--hook-ms N] [--step-ms N] [--collective FILE] [--wait]
 *		[--scribble] [--watch] [--term]
 *
 * The model is T matrices of R x C uint32 (as F32); element k of tensor t in version v is a hash of
 * (v, t, k), so every worker checks what it got by itself.  Part I of N of each matrix, cut by rows
 * or columns, is this worker's parameter.
 *
 * Commands on stdin, one a line; answers on stdout:
 *	fill V		parameters hold version V
 *	send V		fill, send_weights, wait until final	"sent V state=... seconds=..."
 *	hold V		the same with hold; returns at		"released V"
 *	release		ends the hold, overwrites the parameters "let go", then as send
 *	burst V W	sends V to W, each as soon as the one before has let the parameters go, then
 *			waits for all: "sent V ..." for each
 *	second V	send, and meanwhile again from two threads, which must be refused:
 *			"refused CODE sentence" twice, then as send
 *	vanish V	send, and exit without closing as soon as parameters may change
 *	leave V		the same, but closes in order	"bye"
 *	flip		changes one bit of the parameters	"flipped"
 *	check V		compare				"check V ok" or "check V bad: ..."
 *	hook MS		from now on each hook takes so long	"hooks MS"
 *	quit		close in order			"bye"
 * A rollout worker polls all the time and says "update V ok" (or bad) for each update, "hook V" in
 * hooks that take time, "none: ..." when one aborted.  Failures: "error CODE sentence".  End of
 * stdin: exit without closing.
 * --watch: says how long each update or send blocked the worker, and, by a thread that reads a
 * rollout's parameters all the time, when the first byte changed after before_update_hook.
 * sleep and wake: release the parameters' memory, and acquire other memory, filled with zeros.
 * --floats: elements are numbers from 1 to 2 and their negatives (all workers, for the next one)
 * --round: a rollout's parameters are BF16: what it holds is not what was sent
 * --scribble: a trainer overwrites its parameters as soon as they are released.
 * --term: SIGTERM ends it in order between two commands or polls, as "quit" does.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "mem/mem.h"
#include "planner/map.h"
#include "weightbridge/weightbridge.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct toy {
	const char *socket, *engine, *object;
	int role;
	uint32_t index, of, rows, cols, tensors;
	int64_t rank;
	uint32_t hook_ms, step_ms;
	const char *collective;
	uint64_t polls, *steps; /* steps: of all workers of the engine, shared; NULL = none */
	struct wb_rng rng;
	bool waits;
	bool by_cols, is_heap, scribbles;
	bool floats, rounds; /* elements are numbers; parameters are BF16 */
	bool terms; /* SIGTERM is "quit" */
	/* derived: this worker's part */
	uint32_t row0, n_row, col0, n_col;
	uint32_t *data; /* tensors x n_row x n_col */
	size_t bytes;
	int fd;
	struct wb_client *c;
	struct wb_client_transfer *held;
	/* --watch: a thread reads the parameters all the time */
	bool watches;
	uint64_t first_ns, begin_ns; /* first changed byte since the last update; hook before it */
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static void must(int rc, const char *what, const char *sentence)
{
	if (rc >= 0)
		return;
	say("error %d %s: %s", rc, what, sentence);
	exit(1);
}

static uint32_t element(int64_t version, uint32_t tensor, uint64_t k)
{
	return (uint32_t)wb_mix64((uint64_t)version << 48 ^ (uint64_t)tensor << 40 ^ k);
}

static uint64_t key(const struct toy *t, uint32_t r, uint32_t c)
{
	return (uint64_t)(t->row0 + r) * t->cols + t->col0 + c;
}

static uint64_t now(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* Reads while others write: that is the point. */
__attribute__((no_sanitize("thread"))) static void *watch(void *arg)
{
	struct toy *t = arg;
	const volatile uint32_t *p = t->data;
	size_t n = t->bytes / sizeof(uint32_t);
	uint32_t *last = wb_zalloc(n, sizeof(*last));
	struct timespec pause = {0, 500000};

	for (size_t i = 0; i < n; i++)
		last[i] = p[i];
	for (;;) {
		for (size_t i = 0; i < n; i++) {
			if (last[i] == p[i])
				continue;
			last[i] = p[i];
			if (!__atomic_load_n(&t->first_ns, __ATOMIC_ACQUIRE))
				__atomic_store_n(&t->first_ns, now(), __ATOMIC_RELEASE);
		}
		(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

static int before(void *cookie, const struct wb_client_update *u)
{
	struct toy *t = cookie;

	(void)u;
	t->begin_ns = now();
	/* A byte that changed before the hook ran would stay for all to see. */
	if (__atomic_load_n(&t->first_ns, __ATOMIC_ACQUIRE))
		say("bad: a byte changed before before_update_hook");
	return 0;
}

static void say_blocked(struct toy *t, int64_t version)
{
	uint64_t end = now();
	struct timespec pause = {0, 20000000};

	(void)nanosleep(&pause, NULL); /* the thread has seen it all by then */
	say("blocked %lld ms=%.1f first=%.1f", (long long)version,
		(double)(end - t->begin_ns) / 1e6,
		((double)t->first_ns - (double)t->begin_ns) / 1e6);
	__atomic_store_n(&t->first_ns, 0, __ATOMIC_RELEASE);
}

/* What a parameter has for an element: itself, or rounded to BF16 (to nearest, ties to even). */
static uint32_t stored(const struct toy *t, int64_t version, uint32_t tensor, uint64_t k)
{
	uint32_t x = element(version, tensor, k);

	if (t->floats)
		x = (x & 0x807fffff) | 0x3f800000;
	return t->rounds ? (x + 0x7fff + (x >> 16 & 1)) >> 16 : x;
}

static uint32_t held(const struct toy *t, size_t i)
{
	return t->rounds ? ((const uint16_t *)t->data)[i] : t->data[i];
}

static void fill(struct toy *t, int64_t version)
{
	size_t i = 0;

	for (uint32_t x = 0; x < t->tensors; x++)
		for (uint32_t r = 0; r < t->n_row; r++)
			for (uint32_t c = 0; c < t->n_col; c++, i++) {
				uint32_t e = stored(t, version, x, key(t, r, c));

				if (t->rounds)
					((uint16_t *)t->data)[i] = (uint16_t)e;
				else
					t->data[i] = e;
			}
}

/* Number of wrong elements; the first one is described. */
static uint64_t check(const struct toy *t, int64_t version, char *what, size_t cap)
{
	uint64_t bad = 0;
	size_t i = 0;

	what[0] = '\0';
	for (uint32_t x = 0; x < t->tensors; x++)
		for (uint32_t r = 0; r < t->n_row; r++)
			for (uint32_t c = 0; c < t->n_col; c++, i++)
				if (held(t, i) != stored(t, version, x, key(t, r, c)) && !bad++)
					snprintf(what, cap, "tensor %u row %u col %u", x, r, c);
	return bad;
}

static void say_checked(const struct toy *t, const char *verb, int64_t version)
{
	char what[96];
	uint64_t bad = check(t, version, what, sizeof(what));

	if (bad)
		say("%s %lld bad: %llu elements, first at %s", verb, (long long)version,
			(unsigned long long)bad, what);
	else
		say("%s %lld ok", verb, (long long)version);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static size_t elem_bytes(const struct toy *t)
{
	return t->rounds ? sizeof(uint16_t) : sizeof(uint32_t);
}

static void make_manifest(const struct toy *t, struct wb_manifest **out)
{
	struct wb_tensor *x = wb_zalloc(t->tensors, sizeof(*x));
	struct wb_err err = {0};
	char name[32];

	for (uint32_t i = 0; i < t->tensors; i++) {
		snprintf(name, sizeof(name), "layers.%u.weight", i);
		x[i].name = wb_strdup(name);
		x[i].dtype = wb_dtype_parse("F32");
		x[i].ndim = 2;
		x[i].shape[0] = t->rows;
		x[i].shape[1] = t->cols;
	}
	must(wb_manifest_create(x, t->tensors, out, &err), "manifest", err.msg);
	for (uint32_t i = 0; i < t->tensors; i++)
		wb_free(x[i].name);
	wb_free(x);
}

static void make_map(const struct toy *t, const struct wb_manifest *m, struct wb_map **out)
{
	struct wb_map map = {.n_param = t->tensors, .n_op = t->tensors};
	struct wb_err err = {0};
	char name[32];

	map.param = wb_zalloc(t->tensors, sizeof(*map.param));
	map.op = wb_zalloc(t->tensors, sizeof(*map.op));
	for (uint32_t i = 0; i < t->tensors; i++) {
		struct wb_param *p = &map.param[i];

		snprintf(name, sizeof(name), "part.%u", i);
		p->name = wb_strdup(name);
		p->dtype = wb_dtype_parse(t->rounds ? "BF16" : "F32");
		p->ndim = 2;
		p->shape[0] = t->n_row;
		p->shape[1] = t->n_col;
		p->stride[0] = t->n_col;
		p->stride[1] = 1;
		p->span = (uint64_t)t->n_row * t->n_col;
		map.op[i] = (struct wb_op){.param = i,
			.tensor = i,
			.row = t->row0,
			.col = t->col0,
			.n_row = t->n_row,
			.n_col = t->n_col,
			.row_step = 1,
			.col_step = 1,
			.dst_row_stride = t->n_col,
			.dst_col_stride = 1,
			.repeat = 1};
	}
	must(wb_map_create(m, &map, out, &err), "map", err.msg);
}

static void make_memory(struct toy *t)
{
	struct wb_err err = {0};
	void *p;

	t->bytes = (size_t)t->tensors * t->n_row * t->n_col * elem_bytes(t);
	t->fd = -1;
	if (!t->is_heap) {
		t->fd = wb_memfd_create("toy", t->bytes, &err);
		must(t->fd, "memory", err.msg);
	}
	p = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
		t->is_heap ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, t->fd, 0);
	must(p == MAP_FAILED ? -errno : 0, "memory", "mmap");
	t->data = p;
}

static void make_table(
	const struct toy *t, struct wb_client_mem *mem, struct wb_client_param *param)
{
	*mem = (struct wb_client_mem){.kind = t->is_heap ? WB_CLIENT_MEM_HEAP : WB_CLIENT_MEM_MEMFD,
		.fd = t->fd,
		.base = t->data,
		.bytes = t->bytes};
	for (uint32_t i = 0; i < t->tensors; i++)
		param[i] = (struct wb_client_param){
			.offset = (uint64_t)i * t->n_row * t->n_col * elem_bytes(t)};
}

/* As vLLM's sleep: the memory goes, and comes back elsewhere with nothing in it. */
static void sleep_memory(struct toy *t)
{
	struct wb_error err = {0};
	int rc = wb_client_release_memory(t->c, 10000000000ull, &err);

	if (rc < 0) {
		say("error %d sleep: %s", rc, err.msg);
		return;
	}
	if (!t->data) { /* it sleeps already */
		say("asleep");
		return;
	}
	/* What comes back shall lie elsewhere, so nothing else is put here. */
	if (mmap(t->data, t->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		MAP_FAILED)
		must(-errno, "memory", "mmap");
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->data = NULL;
	say("asleep");
}

static void wake_memory(struct toy *t)
{
	struct wb_client_param *param = wb_zalloc(t->tensors, sizeof(*param));
	struct wb_client_mem mem;
	struct wb_client_acquire a = {
		.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = param, .n_param = t->tensors};
	struct wb_error err = {0};
	int rc;

	make_memory(t);
	make_table(t, &mem, param);
	rc = wb_client_acquire_memory(t->c, &a, 10000000000ull, &err);
	say(rc < 0 ? "error %d wake: %s" : "awake", rc, err.msg);
	wb_free(param);
}

static void say_progress(void *cookie, const char *sentence)
{
	(void)cookie;
	say("status %s", sentence);
}

static void attach(struct toy *t)
{
	struct wb_client_opts o = {.size = sizeof(o),
		.socket = t->socket,
		.object = t->object,
		.engine = t->engine,
		.role = t->role,
		.rank = t->rank,
		.connect_timeout = 10000000000ull,
		.reconnect_timeout = 10000000000ull};
	struct wb_client_mem mem;
	struct wb_client_param *param = wb_zalloc(t->tensors, sizeof(*param));
	struct wb_manifest *m;
	struct wb_map *map;
	struct wb_buf mb, pb;
	struct wb_error err = {0};
	struct wb_client_attach a = {.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = param};

	make_manifest(t, &m);
	make_map(t, m, &map);
	wb_buf_init(&mb, 1u << 28);
	wb_buf_init(&pb, 1u << 28);
	must(wb_manifest_encode(m, &mb), "manifest", "encode");
	must(wb_map_encode(map, &pb), "map", "encode");
	make_table(t, &mem, param);
	a.manifest = mb.data;
	a.manifest_bytes = mb.len;
	a.map = pb.data;
	a.map_bytes = pb.len;
	a.n_param = t->tensors;
	must(wb_client_open(&o, &t->c, &err), "open", err.msg);
	must(wb_client_attach(t->c, &a, &err), "attach", err.msg);
	say("attached %s", wb_client_worker(t->c));
	must(wb_client_wait_planned(t->c, WB_FOREVER, say_progress, NULL, NULL, &err), "plan",
		err.msg);
	say("planned");
	wb_buf_finish(&mb);
	wb_buf_finish(&pb);
	wb_map_destroy(map);
	wb_manifest_destroy(m);
	wb_free(param);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Until its parameters may change or, with hold, until the receive stage is over. */
static struct wb_client_transfer *start_send(struct toy *t, int64_t version, uint32_t flags)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	int rc;

	fill(t, version);
	t->begin_ns = now();
	rc = wb_client_send(t->c, version, flags, WB_FOREVER, &x, &err);
	if (rc == 0)
		rc = wb_client_transfer_wait(x, WB_CLIENT_TRANSFER_RELEASED, WB_FOREVER, &err);
	if (rc == 0) {
		if (t->watches)
			say("blocked %lld ms=%.1f", (long long)version,
				(double)(now() - t->begin_ns) / 1e6);
		say("released %lld", (long long)version);
		return x;
	}
	say("error %d send: %s", rc, err.msg);
	wb_client_transfer_free(x);
	return NULL;
}

static void end_send(struct wb_client_transfer *x)
{
	struct wb_client_transfer_info info;
	struct wb_error err = {0};
	char text[512] = "", name[64], state[32];
	int rc = wb_client_transfer_wait(x, WB_CLIENT_TRANSFER_FINAL, WB_FOREVER, &err);

	if (rc < 0) {
		say("error %d send: %s", rc, err.msg);
		wb_client_transfer_free(x);
		return;
	}
	wb_client_transfer_get(x, &info);
	for (uint32_t i = 0; i < info.n_engine; i++) {
		size_t at = strlen(text);

		(void)wb_client_transfer_engine(x, i, name, sizeof(name), state, sizeof(state));
		snprintf(text + at, sizeof(text) - at, " %s=%s", name, state);
	}
	say("sent %lld seconds=%.3f%s", (long long)info.version, info.seconds, text);
	wb_client_transfer_free(x);
}

static void send_version(struct toy *t, int64_t version)
{
	struct wb_client_transfer *x = start_send(t, version, 0);

	if (x && t->scribbles)
		memset(t->data, 0xee, t->bytes);
	if (x)
		end_send(x);
}

#define BURST_MAX 64

static void burst(struct toy *t, int64_t first, int64_t last)
{
	struct wb_client_transfer *x[BURST_MAX];
	uint32_t n = 0;

	for (int64_t v = first; v <= last && n < BURST_MAX; v++, n++) {
		x[n] = start_send(t, v, 0);
		if (!x[n])
			exit(1);
	}
	for (uint32_t i = 0; i < n; i++)
		end_send(x[i]);
}

#define SECOND_NS 300000000ull /* a second send waits so long for the first to end */

/* Parameters are not touched: these sends must not come to anything. */
static void *send_again(void *cookie)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	struct toy *t = cookie;
	int rc = wb_client_send(t->c, 99, 0, SECOND_NS, &x, &err);

	say(rc ? "refused %d %s" : "error %d sent twice %s", rc, err.msg);
	return NULL;
}

static void send_thrice(struct toy *t, int64_t version)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	pthread_t thread[2];
	int rc;

	fill(t, version);
	rc = wb_client_send(t->c, version, 0, WB_FOREVER, &x, &err);
	must(rc, "send", err.msg);
	for (int i = 0; i < 2; i++)
		must(-pthread_create(&thread[i], NULL, send_again, t), "thread", "");
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	end_send(x);
}

static void release(struct toy *t)
{
	struct wb_client_transfer *x = t->held;
	struct wb_error err = {0};
	int rc = wb_client_release(x, &err);

	t->held = NULL;
	if (rc < 0) {
		say("error %d release: %s", rc, err.msg);
		wb_client_transfer_free(x);
		return;
	}
	memset(t->data, 0xee, t->bytes);
	say("let go");
	end_send(x);
}

static void quit(struct toy *t)
{
	struct wb_error err = {0};

	must(wb_client_close(t->c, 10000000000ull, &err), "close", err.msg);
	say("bye");
	exit(0);
}

/* The last send of a job: nothing is done any more once the parameters may change. */
static void send_and_go(struct toy *t, int64_t version, bool closes)
{
	if (!start_send(t, version, 0))
		exit(1);
	if (!closes)
		_exit(0);
	quit(t);
}

static void command(struct toy *t, const char *line)
{
	struct wb_error err = {0};
	long long v = 0, to = 0;

	if (sscanf(line, "burst %lld %lld", &v, &to) == 2) {
		burst(t, v, to);
	} else if (sscanf(line, "fill %lld", &v) == 1) {
		fill(t, v);
		say("filled %lld", v);
	} else if (sscanf(line, "send %lld", &v) == 1) {
		send_version(t, v);
	} else if (sscanf(line, "sendonly %lld", &v) == 1) { /* without parameters */
		struct wb_client_transfer *x = NULL;
		int rc = wb_client_send(t->c, v, 0, 0, &x, &err);

		say("error %d sendonly: %s", rc, err.msg);
		wb_client_transfer_free(x);
	} else if (sscanf(line, "vanish %lld", &v) == 1) {
		send_and_go(t, v, false);
	} else if (sscanf(line, "leave %lld", &v) == 1) {
		send_and_go(t, v, true);
	} else if (sscanf(line, "second %lld", &v) == 1) {
		send_thrice(t, v);
	} else if (sscanf(line, "hold %lld", &v) == 1) {
		t->held = start_send(t, v, WB_CLIENT_SEND_HOLD);
	} else if (!strncmp(line, "release", 7) && t->held) {
		release(t);
	} else if (sscanf(line, "check %lld", &v) == 1) {
		say_checked(t, "check", v);
	} else if (!strncmp(line, "sleep", 5)) {
		sleep_memory(t);
	} else if (!strncmp(line, "wake", 4)) {
		wake_memory(t);
	} else if (!strncmp(line, "flip", 4)) {
		t->data[0] ^= 1;
		say("flipped");
	} else if (sscanf(line, "hook %lld", &v) == 1) {
		t->hook_ms = (uint32_t)v;
		say("hooks %lld", v);
	} else if (!strncmp(line, "quit", 4)) {
		quit(t);
	}
}

static void nap(uint32_t ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

	(void)nanosleep(&ts, NULL);
}

static int hook(void *cookie, const struct wb_client_update *u)
{
	const struct toy *t = cookie;

	say("hook %lld", (long long)u->version);
	nap(t->hook_ms);
	return 0;
}

/* A step of the engine: it takes a random time, and with --collective PATH no worker begins the
 * next before all have ended it (counters in a file that the engine's workers share). */
static void step(struct toy *t)
{
	if (t->step_ms)
		nap((uint32_t)wb_rng_below(&t->rng, t->step_ms + 1));
	t->polls++;
	if (!t->steps)
		return;
	__atomic_store_n(&t->steps[t->index], t->polls, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < t->of; i++)
		while (__atomic_load_n(&t->steps[i], __ATOMIC_ACQUIRE) < t->polls)
			nap(1);
}

static void poll_once(struct toy *t)
{
	struct wb_client_hooks hooks = {t->watches ? before : hook, hook, t};
	struct wb_client_update u = {0};
	struct wb_error err = {0};
	int rc;

	if (t->waits) {
		t->polls++; /* a call, not a poll */
		rc = wb_client_update_wait(t->c, 1000000000, NULL, &u, &err);
	} else {
		step(t);
		rc = wb_client_poll_requests(
			t->c, t->hook_ms || t->watches ? &hooks : NULL, &u, &err);
	}
	if (rc == 1 && t->watches)
		say_blocked(t, u.version);
	if (rc == 1 && t->step_ms)
		say("stopped %lld at %llu", (long long)u.version, (unsigned long long)t->polls);
	if (rc == 1)
		say_checked(t, "update", u.version);
	else if (rc < 0)
		say("error %d poll: %s", rc, err.msg);
	else if (u.sentence[0])
		say("none: %s", u.sentence);
	if (rc == -ECONNRESET)
		exit(1);
}

static volatile sig_atomic_t is_told;

static void on_term(int signal)
{
	(void)signal;
	is_told = 1;
}

static void run(struct toy *t)
{
	const struct timespec ms = {0, 1000000};
	struct sigaction sa = {.sa_handler = on_term};
	sigset_t term, none;
	char line[256];

	sigemptyset(&term);
	sigemptyset(&none);
	sigaddset(&term, SIGTERM);
	if (t->terms) { /* it comes while nothing is done, and interrupts nothing */
		sigprocmask(SIG_BLOCK, &term, NULL);
		sigaction(SIGTERM, &sa, NULL);
	}
	setvbuf(stdin, NULL, _IONBF, 0); /* what is read is what poll() knows */
	for (;;) {
		struct pollfd p = {.fd = 0, .events = POLLIN};
		int n = ppoll(&p, 1, t->role == WB_CLIENT_ROLLOUT ? &ms : NULL, &none);

		if (is_told)
			quit(t);
		if (n > 0 && !fgets(line, sizeof(line), stdin))
			_exit(0);
		if (n > 0)
			command(t, line);
		if (t->role == WB_CLIENT_ROLLOUT)
			poll_once(t);
	}
}

static void parse_one(struct toy *t, int c)
{
	switch (c) {
	case 'r':
		t->role = strcmp(optarg, "rollout") ? WB_CLIENT_TRAINER : WB_CLIENT_ROLLOUT;
		break;
	case 'c':
		t->by_cols = !strcmp(optarg, "cols");
		break;
	case 'B':
		t->rounds = t->floats = true;
		break;
	case 'k':
		t->rank = atoi(optarg);
		break;
	default:
		exit(2);
	}
}

static void parse(int argc, char **argv, struct toy *t)
{
	static const struct option longs[] = {{"socket", 1, NULL, 's'}, {"role", 1, NULL, 'r'},
		{"engine", 1, NULL, 'e'}, {"index", 1, NULL, 'i'}, {"of", 1, NULL, 'n'},
		{"cut", 1, NULL, 'c'}, {"rows", 1, NULL, 'R'}, {"cols", 1, NULL, 'C'},
		{"tensors", 1, NULL, 'T'}, {"heap", 0, NULL, 'h'}, {"rank", 1, NULL, 'k'},
		{"object", 1, NULL, 'o'}, {"scribble", 0, NULL, 'x'}, {"watch", 0, NULL, 'w'},
		{"hook-ms", 1, NULL, 'H'}, {"step-ms", 1, NULL, 'S'}, {"collective", 1, NULL, 'L'},
		{"wait", 0, NULL, 'W'}, {"floats", 0, NULL, 'f'}, {"round", 0, NULL, 'B'},
		{"term", 0, NULL, 't'}, {NULL, 0, NULL, 0}};
	struct {
		int c;
		uint32_t *number;
		bool *is;
		const char **text;
	} simple[] = {{'i', .number = &t->index}, {'n', .number = &t->of},
		{'R', .number = &t->rows}, {'C', .number = &t->cols}, {'T', .number = &t->tensors},
		{'H', .number = &t->hook_ms}, {'S', .number = &t->step_ms},
		{'w', .is = &t->watches}, {'h', .is = &t->is_heap}, {'f', .is = &t->floats},
		{'W', .is = &t->waits}, {'x', .is = &t->scribbles}, {'t', .is = &t->terms},
		{'s', .text = &t->socket}, {'e', .text = &t->engine}, {'o', .text = &t->object},
		{'L', .text = &t->collective}};
	int c;

	*t = (struct toy){.role = WB_CLIENT_TRAINER,
		.of = 1,
		.rows = 64,
		.cols = 64,
		.tensors = 2,
		.rank = -2,
		.fd = -1};
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		size_t i = 0;

		while (i < WB_ARRAY_SIZE(simple) && simple[i].c != c)
			i++;
		if (i < WB_ARRAY_SIZE(simple) && simple[i].number)
			*simple[i].number = (uint32_t)atoi(optarg);
		else if (i < WB_ARRAY_SIZE(simple) && simple[i].text)
			*simple[i].text = optarg;
		else if (i < WB_ARRAY_SIZE(simple))
			*simple[i].is = true;
		else
			parse_one(t, c);
	}
	if (t->rank == -2)
		t->rank = t->index;
	t->n_row = t->by_cols ? t->rows : t->rows / t->of;
	t->n_col = t->by_cols ? t->cols / t->of : t->cols;
	t->row0 = t->by_cols ? 0 : t->index * t->n_row;
	t->col0 = t->by_cols ? t->index * t->n_col : 0;
}

static void join(struct toy *t)
{
	int fd;

	t->rng.state = (uint64_t)getpid() << 20 ^ t->index;
	if (!t->collective)
		return;
	fd = open(t->collective, O_RDWR | O_CREAT, 0600);
	must(fd, "collective", t->collective);
	must(ftruncate(fd, 4096), "collective", t->collective);
	t->steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(t->steps == MAP_FAILED ? -errno : 0, "collective", t->collective);
	close(fd);
}

int main(int argc, char **argv)
{
	struct toy t;

	parse(argc, argv, &t);
	make_memory(&t);
	join(&t);
	fill(&t, 0);
	attach(&t);
	if (t.watches && t.role == WB_CLIENT_ROLLOUT) {
		pthread_t thread;

		must(-pthread_create(&thread, NULL, watch, &t), "watch", "thread");
	}
	run(&t);
	return 0;
}
