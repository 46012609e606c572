/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_matrix - who can use memory of a GPU that another process has allocated?
 *
 * A worker exports memory of each kind by wb_mem_export() (dma-bufs by the driver itself, as they
 * have no exporter here yet), an agent imports it by wb_mem_import(), reads what the worker wrote
 * and writes what the worker then looks for.  The agent shares the worker's namespaces of
 * processes, IPC and mounts, or has its own, in all eight ways, with all rights and with none: as
 * user 65534 without capabilities.  An own namespace of mounts has a /dev/shm, and with one of
 * processes a /proc, of its own, as in a container.  Then: what a process that imports costs the
 * GPU and the host.
 *
 * Prints an object of JSON a line, then the imports as a table, and "N passed, N failed, N skipped"
 * at the end.  Passed is what could be tried, also where the driver refuses: which that is is what
 * one wants to know.  Failed: bytes that differ, a process that ended early.  Without a driver it
 * ends with 77 and the reason; what needs root is skipped without.  On the stand-in it says what
 * the stand-in says.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "lane/gpu.h"
#include "mem/gpu.h"
#include "mem/mem.h"
#include "tests/common/fx_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((uint64_t)2 << 20)
#define BYTES BLOCK /* that are shared, of each kind */
#define NOBODY 65534
#define LIMIT_S 115 /* of all of it */
#define WAYS_S 75 /* after which no way is begun */
#define AGENT_S 20 /* of one */
enum { DIED = 2, NO_RIGHT = 3 }; /* exit statuses of children */

/* ---- what is said ---------------------------------------------------------------------------- */

/* A line of JSON under way. */
struct line {
	char text[4096];
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	l->len = WB_MIN(l->len + (size_t)n, sizeof(l->text) - 1);
}

static void put_text(struct line *l, const char *name, const char *value)
{
	put(l, "%s\"%s\": \"", l->len ? ", " : "{", name);
	for (; *value; value++)
		if (*value == '"' || *value == '\\')
			put(l, "\\%c", *value);
		else
			put(l, "%c", (unsigned char)*value < ' ' ? ' ' : *value);
	put(l, "\"");
}

static void put_number(struct line *l, const char *name, double value)
{
	put(l, "%s\"%s\": %.10g", l->len ? ", " : "{", name, value);
}

/* In one piece: several processes share the output. */
static void say(struct line *l)
{
	put(l, "}\n");
	if (write(STDOUT_FILENO, l->text, l->len) < 0)
		exit(1);
}

/* The machine does not let it. */
static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(NO_RIGHT);
}

/* ---- the worker: memory of each kind --------------------------------------------------------- */

static const struct memory {
	const char *name;
	enum wb_mem_kind kind; /* as which it is meant to travel; HEAP: it shall not */
	bool is_vmm, is_exported, is_rdma_capable;
	unsigned n_block; /* allocations of VMM, side by side */
	uint64_t block, offset, bytes; /* of each; what is shared of them */
} memories[] = {
	{"cuMemCreate, two allocations", WB_MEM_CUDA_VMM, true, true, false, 2, BLOCK, BLOCK / 2,
		BYTES},
	{"cuMemAlloc of 4 MiB", WB_MEM_CUDA_IPC, false, true, false, 1, 2 * BLOCK, BLOCK / 2,
		BYTES},
	{"dma-buf of cuMemAlloc", WB_MEM_DMABUF, false, true, false, 1, 2 * BLOCK, BLOCK / 2,
		BYTES},
	{"dma-buf of cuMemCreate", WB_MEM_DMABUF, true, true, false, 1, 2 * BLOCK, BLOCK / 2,
		BYTES},
	{"dma-buf of cuMemCreate for RDMA", WB_MEM_DMABUF, true, true, true, 1, 2 * BLOCK, 0,
		BYTES},
	{"cuMemCreate, not for export", WB_MEM_HEAP, true, false, false, 1, BLOCK, 0, BLOCK},
	{"cuMemAlloc of 64 KiB", WB_MEM_HEAP, false, true, false, 1, 65536, 0, 65536},
};
#define N_MEMORY WB_ARRAY_SIZE(memories)

static const char *kind_name(uint32_t kind)
{
	return kind == WB_MEM_HEAP ? "worker" : wb_mem_ops(kind)->name;
}

static int allocate_vmm(struct wb_gpu *g, const struct memory *m, uint64_t *addr)
{
	struct wbcu_allocation what = {.type = WBCU_ALLOCATION_PINNED,
		.handle_types = m->is_exported ? WBCU_HANDLE_FD : 0,
		.location = {WBCU_LOCATION_DEVICE, g->number},
		.is_rdma_capable = m->is_rdma_capable};
	struct wbcu_access access = {what.location, WBCU_ACCESS_READWRITE};
	uint64_t all = m->n_block * m->block, handle;
	int rc = g->cu->vmm_reserve(addr, all, 0, 0, 0);

	for (unsigned i = 0; !rc && i < m->n_block; i++) {
		rc = g->cu->vmm_create(&handle, m->block, &what, 0);
		if (!rc)
			rc = g->cu->vmm_map(*addr + i * m->block, m->block, 0, handle, 0);
		if (!rc)
			rc = g->cu->vmm_release(handle);
	}
	return rc ? rc : g->cu->vmm_access(*addr, all, &access, 1);
}

static int allocate(struct wb_gpu *g, const struct memory *m, uint64_t *addr, struct wb_err *err)
{
	int rc = m->is_vmm ? allocate_vmm(g, m, addr) : g->cu->mem_alloc(addr, m->block);

	*addr += m->offset;
	return wb_gpu_rc(g, rc, m->name, err);
}

/* What a range holds: another thing for each seed. */
static void pattern(uint8_t *p, uint64_t bytes, unsigned seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 13 + i / 977 + seed);
}

static int write_pattern(
	struct wb_gpu *g, uint64_t addr, uint64_t bytes, unsigned seed, struct wb_err *err)
{
	uint8_t *p = malloc(bytes);
	int rc;

	if (!p)
		return wb_err_set(err, -ENOMEM, "no memory");
	pattern(p, bytes, seed);
	rc = g->cu->copy_in(addr, p, bytes, NULL);
	if (!rc)
		rc = g->cu->stream_sync(NULL);
	free(p);
	return wb_gpu_rc(g, rc, "write", err);
}

/* 0; -EILSEQ: other bytes; as wb_gpu_rc(). */
static int read_pattern(
	struct wb_gpu *g, uint64_t addr, uint64_t bytes, unsigned seed, struct wb_err *err)
{
	uint8_t *p = malloc(bytes), *want = malloc(bytes);
	int rc;

	if (!p || !want)
		exit(1);
	pattern(want, bytes, seed);
	rc = g->cu->copy_out(p, addr, bytes, NULL);
	if (!rc)
		rc = g->cu->stream_sync(NULL);
	rc = wb_gpu_rc(g, rc, "read", err);
	if (!rc && memcmp(p, want, bytes) != 0)
		rc = wb_err_set(err, -EILSEQ, "the bytes differ");
	free(p);
	free(want);
	return rc;
}

/* What an agent asks of the worker, and what it answers. */
struct ask {
	enum { GIVE, CHECK, END } what;
	uint32_t memory; /* of the table */
	unsigned seed; /* GIVE: to be written first; CHECK: that must be there */
};

struct answer {
	int rc, pid; /* pid: of the worker */
	struct wb_mem_desc desc;
	uint64_t piece[WB_MEM_PIECES_MAX];
	char why[512]; /* of rc, or why it cannot travel */
};

static int export_dmabuf(struct wb_gpu *g, uint64_t addr, const struct memory *m,
	struct wb_mem_export *x, struct wb_err *err)
{
	x->desc = (struct wb_mem_desc){.kind = WB_MEM_DMABUF, .fd = -1, .bytes = m->bytes};
	return wb_gpu_rc(g, g->cu->range_export(&x->desc.fd, addr, m->bytes, WBCU_RANGE_DMABUF, 0),
		"cuMemGetHandleForAddressRange", err);
}

static int give(struct wb_gpu *g, uint64_t addr, const struct ask *q, struct wb_mem_export *x,
	struct wb_err *err)
{
	const struct memory *m = &memories[q->memory];
	int rc = write_pattern(g, addr, m->bytes, q->seed, err);

	if (rc)
		return rc;
	return m->kind == WB_MEM_DMABUF ? export_dmabuf(g, addr, m, x, err)
					: wb_mem_export((void *)(uintptr_t)addr, m->bytes, x, err);
}

static void answer(int sock, struct wb_gpu *g, uint64_t addr, const struct ask *q)
{
	struct wb_mem_export x = {.desc.fd = -1};
	struct wb_err err = {0};
	struct answer a = {.pid = getpid()};
	int fds[WB_MEM_PIECES_MAX];
	unsigned n = 0;

	if (q->what == CHECK)
		a.rc = read_pattern(g, addr, memories[q->memory].bytes, q->seed, &err);
	else
		a.rc = give(g, addr, q, &x, &err);
	snprintf(a.why, sizeof(a.why), "%.500s", a.rc ? err.msg : x.why);
	a.desc = x.desc;
	for (uint32_t i = 0; i < x.desc.n_piece; i++, n++) {
		a.piece[i] = x.piece[i].bytes;
		fds[n] = x.piece[i].fd;
	}
	if (x.desc.fd >= 0)
		fds[n++] = x.desc.fd;
	fx_send(sock, &a, sizeof(a), fds, n);
	if (x.desc.fd >= 0)
		close(x.desc.fd);
	wb_mem_export_finish(&x);
}

static void be_worker(int sock)
{
	uint64_t addr[N_MEMORY] = {0};
	struct wb_err err = {0}, why[N_MEMORY] = {0};
	int rc[N_MEMORY];
	struct wb_gpu *g;
	struct ask q;

	if (wb_gpu_get(NULL, &g, &err) || wb_gpu_enter(g, &err)) {
		fprintf(stderr, "worker: %s\n", err.msg);
		exit(1);
	}
	for (size_t i = 0; i < N_MEMORY; i++)
		rc[i] = allocate(g, &memories[i], &addr[i], &why[i]);
	while (recv(sock, &q, sizeof(q), 0) == sizeof(q) && q.what != END) {
		struct answer a = {.rc = rc[q.memory], .desc.fd = -1};

		if (!a.rc) {
			answer(sock, g, addr[q.memory], &q);
			continue;
		}
		snprintf(a.why, sizeof(a.why), "%.500s", why[q.memory].msg);
		fx_send(sock, &a, sizeof(a), NULL, 0);
	}
	exit(0);
}

/* ---- the agent ------------------------------------------------------------------------------- */

/* A way to run it. */
struct way {
	unsigned own; /* which namespaces are not the worker's: 1 pid, 2 IPC, 4 mounts */
	unsigned users; /* of the table */
};

static const struct users {
	const char *worker, *agent;
} users[] = {{"root", "root"}, {"nobody", "nobody"}, {"root", "nobody"}};
#define N_USERS WB_ARRAY_SIZE(users)
#define N_OWN 8u

static bool is_nobody(const char *user)
{
	return !strcmp(user, "nobody");
}

/* What came of each, for the table at the end; shared by all processes. */
static const char *(*results)[N_OWN][N_MEMORY]; /* by users */

/* An answer with its descriptors; those of a description are the caller's. */
static void ask(int sock, const struct ask *q, struct answer *a, struct wb_mem_piece *piece)
{
	int fds[WB_MEM_PIECES_MAX];
	unsigned n;

	fx_send(sock, q, sizeof(*q), NULL, 0);
	/* How many come is in the message that they come with. */
	if (recv(sock, a, sizeof(*a), MSG_PEEK) != sizeof(*a)) {
		fprintf(stderr, "the worker is gone\n");
		exit(1);
	}
	n = a->desc.n_piece + (a->desc.fd >= 0);
	fx_receive(sock, a, sizeof(*a), fds, n);
	for (uint32_t i = 0; i < a->desc.n_piece; i++)
		piece[i] = (struct wb_mem_piece){fds[i], a->piece[i]};
	if (a->desc.fd >= 0)
		a->desc.fd = fds[n - 1];
	a->desc.piece = piece;
}

static void forget(const struct wb_mem_desc *d)
{
	for (uint32_t i = 0; i < d->n_piece; i++)
		close(d->piece[i].fd);
	if (d->fd >= 0)
		close(d->fd);
}

/* Reads what the worker wrote and lets it read what is written here. */
static int use_on_device(int sock, uint32_t memory, struct wb_mem *is, struct wb_err *err)
{
	struct ask q = {CHECK, memory, 2};
	uint64_t addr = (uintptr_t)is->addr;
	struct answer a;
	int rc = wb_gpu_enter(is->gpu, err);

	if (rc)
		return rc;
	rc = read_pattern(is->gpu, addr, is->bytes, 1, err);
	if (!rc)
		rc = write_pattern(is->gpu, addr, is->bytes, 2, err);
	wb_gpu_leave(is->gpu);
	if (rc)
		return rc;
	ask(sock, &q, &a, NULL);
	return a.rc ? wb_err_set(err, a.rc, "in the worker: %s", a.why) : 0;
}

/* A dma-buf is for a network interface; where it can be mapped, its bytes are looked at. */
static int use_mapped(const struct wb_mem *is, struct wb_err *err)
{
	long position = lseek(is->fd, 0, SEEK_CUR); /* the stand-in's is where the range begins */
	uint8_t *p, *want;
	int rc = 0;

	p = mmap(NULL, is->bytes, PROT_READ, MAP_SHARED, is->fd, position < 0 ? 0 : position);
	if (p == MAP_FAILED)
		return wb_err_set(err, -ENOTSUP, "the CPU cannot map it: %s", strerror(errno));
	want = malloc(is->bytes);
	if (!want)
		exit(1);
	pattern(want, is->bytes, 1);
	if (memcmp(p, want, is->bytes) != 0)
		rc = wb_err_set(err, -EILSEQ, "the bytes differ");
	free(want);
	munmap(p, is->bytes);
	return rc;
}

#define DIFFER "DIFFER"

static const char *bytes_word(int rc)
{
	return !rc ? "agree" : rc == -EILSEQ ? DIFFER : "not seen";
}

/* One import; says it, and gives a word for the table. */
static const char *try_import(int sock, uint32_t memory, const struct answer *a, struct line *l)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	struct wb_err err = {0};
	struct wb_mem is;
	int rc = wb_mem_import(&a->desc, &is, &err);

	put_text(l, "import", rc ? "no" : "yes");
	put_number(l, "ms", (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6);
	if (rc) {
		put_number(l, "code", rc);
		put_text(l, "why", err.msg);
		return "no";
	}
	rc = is.access == WB_MEM_AT_DEVICE ? use_on_device(sock, memory, &is, &err)
					   : use_mapped(&is, &err);
	put_text(l, "bytes", bytes_word(rc));
	if (rc)
		put_text(l, "why", err.msg);
	wb_mem_release(&is);
	return !rc ? "yes" : rc == -EILSEQ ? DIFFER : rc == -ENOTSUP ? "unseen" : "error";
}

static void put_way(struct line *l, const struct way *w)
{
	put_text(l, "pid", w->own & 1 ? "separate" : "same");
	put_text(l, "ipc", w->own & 2 ? "separate" : "same");
	put_text(l, "mnt", w->own & 4 ? "separate" : "same");
	put_text(l, "worker", users[w->users].worker);
	put_text(l, "agent", users[w->users].agent);
}

static void try_memory(int sock, const struct way *w, uint32_t memory)
{
	const char **result = &results[w->users][w->own][memory];
	struct ask q = {GIVE, memory, 1};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct line l = {.len = 0};
	struct answer a;

	ask(sock, &q, &a, piece);
	put_text(&l, "memory", memories[memory].name);
	put_way(&l, w);
	put_text(&l, "export", a.rc ? "no" : kind_name(a.desc.kind));
	if (a.rc || a.desc.kind == WB_MEM_HEAP) {
		put_text(&l, "why", a.why);
		*result = "none";
	} else {
		*result = try_import(sock, memory, &a, &l);
	}
	forget(&a.desc);
	say(&l);
}

/* Until it has ended and all that it had is given back. */
static void end_worker(int sock, int pid)
{
	struct ask q = {.what = END};
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	must(fd, "pidfd_open");
	fx_send(sock, &q, sizeof(q), NULL, 0);
	must(poll(&p, 1, AGENT_S * 1000), "poll");
	close(fd);
}

/* Is memory still there when its worker is not?  The last that this worker is asked. */
static void outlive(int sock)
{
	static const uint32_t what[] = {0, 1}; /* VMM, IPC */
	struct ask q = {GIVE, 0, 3};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct wb_mem is[2];
	struct wb_err err[2] = {{0}};
	struct answer a;
	int rc[2];

	for (int i = 0; i < 2; i++) {
		q.memory = what[i];
		ask(sock, &q, &a, piece);
		rc[i] = a.rc ? wb_err_set(&err[i], a.rc, "%s", a.why)
			     : wb_mem_import(&a.desc, &is[i], &err[i]);
		forget(&a.desc);
	}
	end_worker(sock, a.pid);
	for (int i = 0; i < 2; i++) {
		struct line l = {.len = 0};

		if (!rc[i])
			rc[i] = wb_gpu_enter(is[i].gpu, &err[i]);
		if (!rc[i])
			rc[i] = read_pattern(
				is[i].gpu, (uintptr_t)is[i].addr, is[i].bytes, 3, &err[i]);
		put_text(&l, "after the worker's end", memories[what[i]].name);
		put_text(&l, "bytes", bytes_word(rc[i]));
		if (rc[i])
			put_text(&l, "why", err[i].msg);
		say(&l);
	}
}

static void be_agent(int sock, const struct way *w)
{
	bool is_first = !w->own && !w->users; /* says what is the same for all, too */
	struct wb_err err = {0};
	struct wb_gpu *g;

	if (wb_gpu_get(NULL, &g, &err)) {
		struct line l = {.len = 0};

		put_text(&l, "memory", "any");
		put_way(&l, w);
		put_text(&l, "import", "no");
		put_text(&l, "why", err.msg);
		say(&l);
		exit(0);
	}
	for (uint32_t i = 0; i < N_MEMORY; i++)
		if (memories[i].kind != WB_MEM_HEAP || is_first)
			try_memory(sock, w, i);
	if (is_first)
		outlive(sock);
	exit(0);
}

/* ---- what runs it so ------------------------------------------------------------------------- */

/* As a process that was started so by a container runtime. */
static void become_nobody(void)
{
	must(setgroups(0, NULL), "setgroups");
	must(setresgid(NOBODY, NOBODY, NOBODY), "setresgid");
	must(setresuid(NOBODY, NOBODY, NOBODY), "setresuid");
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	must(prctl(PR_SET_DUMPABLE, 1), "dumpable"); /* a change of user takes it, an exec gives it
							back */
}

/* The child ends with its parent, and with it all that it started. */
static pid_t fork_child(unsigned limit_s)
{
	pid_t pid = fork();

	must(pid, "fork");
	if (pid)
		return pid;
	must(prctl(PR_SET_PDEATHSIG, SIGKILL), "pdeathsig");
	(void)alarm(limit_s);
	return 0;
}

static int wait_for(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0), "wait");
	return status;
}

static void own_mounts(unsigned own)
{
	if (!(own & 4))
		return;
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	must(mount("none", "/dev/shm", "tmpfs", 0, NULL), "/dev/shm");
	if (own & 1)
		must(mount("proc", "/proc", "proc", 0, NULL), "/proc");
}

/* In a process of its own.  Only a child is in a new namespace of processes. */
static void start_agent(int sock, const struct way *w)
{
	int status, flags = (w->own & 1 ? CLONE_NEWPID : 0) | (w->own & 2 ? CLONE_NEWIPC : 0) |
			    (w->own & 4 ? CLONE_NEWNS : 0);
	pid_t pid;

	must(unshare(flags), "unshare");
	if (w->own & 1) {
		pid = fork_child(0);
		if (pid) {
			status = wait_for(pid);
			exit(WIFEXITED(status) ? WEXITSTATUS(status) : DIED);
		}
	}
	own_mounts(w->own);
	if (is_nobody(users[w->users].agent))
		become_nobody();
	be_agent(sock, w);
}

/* A worker of its own for each: nothing of the one before is left with it.  Waits for both, and
 * gives the agent's status as wait() does, or the worker's when only that is bad. */
static int run_way(const struct way *w)
{
	pid_t pid[2];
	int pair[2], status[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
	for (int i = 0; i < 2; i++) {
		pid[i] = fork_child(AGENT_S);
		if (pid[i])
			continue;
		close(pair[i]);
		if (i)
			start_agent(pair[0], w);
		if (is_nobody(users[w->users].worker))
			become_nobody();
		be_worker(pair[1]);
	}
	close(pair[0]);
	close(pair[1]);
	status[1] = wait_for(pid[1]);
	status[0] = wait_for(pid[0]);
	return status[1] ? status[1] : status[0];
}

/* ---- what an agent costs --------------------------------------------------------------------- */

/* The agent does one thing after the other; meanwhile another process looks at the device. */
enum step { NOTHING, DRIVER, CONTEXT, VMM, IPC, LANE, STEPS };
static const char *const step_names[STEPS] = {"a process without the driver",
	"the driver is loaded", "a context", "memory is imported, VMM", "memory is imported, IPC",
	"a lane: a stream, the kernels, tables"};

struct said {
	int rc;
	double ms;
	uint64_t rss, free; /* bytes: of the process; of the device */
	char why[512];
};

static uint64_t own_rss(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int import_one(int worker, uint32_t memory, struct wb_err *err)
{
	struct ask q = {GIVE, memory, 1};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	static struct wb_mem is; /* stays */
	struct answer a;
	int rc;

	ask(worker, &q, &a, piece);
	rc = a.rc ? wb_err_set(err, a.rc, "%s", a.why) : wb_mem_import(&a.desc, &is, err);
	forget(&a.desc);
	return rc;
}

static int make_lane(struct wb_err *err)
{
	size_t bytes = (size_t)16 << 20;
	struct wb_lane_gpu *lane; /* stays */
	void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (arena == MAP_FAILED)
		return wb_err_set(err, -ENOMEM, "no memory for slots");
	return wb_lane_gpu_create(NULL, arena, bytes, &lane, err);
}

static int take_step(int worker, enum step step, struct wb_err *err)
{
	const struct wbcu *cu;
	struct wb_gpu *g;

	switch (step) {
	case DRIVER:
		return wbcu_load(&cu, err);
	case CONTEXT:
		return wb_gpu_get(NULL, &g, err);
	case VMM:
	case IPC:
		return import_one(worker, step == VMM ? 0 : 1, err);
	case LANE:
		return make_lane(err);
	case NOTHING:
	case STEPS:
		break;
	}
	return 0;
}

static void be_costly(int sock, int worker)
{
	enum step step;

	while (recv(sock, &step, sizeof(step), 0) == sizeof(step)) {
		uint64_t t0 = wb_now_ns(&wb_clock_real);
		struct wb_err err = {0};
		struct said s = {.rc = take_step(worker, step, &err)};

		s.ms = (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6;
		s.rss = own_rss();
		snprintf(s.why, sizeof(s.why), "%.500s", err.msg);
		fx_send(sock, &s, sizeof(s), NULL, 0);
	}
	exit(0);
}

static void be_observer(int sock)
{
	struct wb_err err = {0};
	struct wb_gpu *g = NULL;
	enum step step;
	uint64_t all;

	while (recv(sock, &step, sizeof(step), 0) == sizeof(step)) {
		struct said s = {.rc = 0};

		if (!g)
			s.rc = wb_gpu_get(NULL, &g, &err);
		if (!s.rc)
			s.rc = wb_gpu_room(g, &s.free, &all, &err);
		snprintf(s.why, sizeof(s.why), "%.500s", err.msg);
		fx_send(sock, &s, sizeof(s), NULL, 0);
	}
	exit(0);
}

static struct said tell(int sock, enum step step)
{
	struct said s;

	fx_send(sock, &step, sizeof(step), NULL, 0);
	fx_receive(sock, &s, sizeof(s), NULL, 0);
	return s;
}

static void say_cost(const char *what, const struct said *is, double used)
{
	struct line l = {.len = 0};

	put_text(&l, "cost", what);
	put_number(&l, "device_bytes", used);
	put_number(&l, "host_rss", (double)is->rss);
	put_number(&l, "ms", is->ms);
	if (is->rc)
		put_text(&l, "why", is->why);
	say(&l);
}

/* A child that serves one end of a socket pair; the other end. */
static int serve(void (*run)(int sock, int worker), int worker, pid_t *pid)
{
	int pair[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
	*pid = fork_child(LIMIT_S);
	if (!*pid) {
		close(pair[1]);
		run(pair[0], worker);
	}
	close(pair[0]);
	return pair[1];
}

static void observer(int sock, int worker)
{
	(void)worker;
	be_observer(sock);
}

static void worker(int sock, int other)
{
	(void)other;
	be_worker(sock);
}

static bool measure_costs(int seen)
{
	pid_t pid[2];
	int w = serve(worker, -1, &pid[0]), agent;
	struct ask warm = {GIVE, 0, 1};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct answer a;
	struct said is, at;
	double before;

	ask(w, &warm, &a, piece); /* it has its memory by now */
	forget(&a.desc);
	before = (double)tell(seen, NOTHING).free;
	agent = serve(be_costly, w, &pid[1]);
	for (int i = 0; i < STEPS; i++) {
		is = tell(agent, (enum step)i);
		at = tell(seen, NOTHING);
		say_cost(step_names[i], &is, before - (double)at.free);
	}
	close(agent);
	wait_for(pid[1]);
	at = tell(seen, NOTHING);
	say_cost("when it has ended", &at, before - (double)at.free);
	close(w);
	return wait_for(pid[0]) == 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static struct {
	unsigned passed, failed, skipped;
} tally;

static void say_not(const struct way *w, const char *what, const char *why)
{
	struct line l = {.len = 0};

	put_text(&l, "memory", "any");
	put_way(&l, w);
	put_text(&l, what, why);
	say(&l);
}

static void count_way(const struct way *w, int status)
{
	bool differs = false;

	for (uint32_t i = 0; i < N_MEMORY; i++) {
		const char *is = results[w->users][w->own][i];

		differs |= is && !strcmp(is, DIFFER);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_RIGHT) {
		say_not(w, "skipped", "this machine does not let it be run so");
		tally.skipped++;
	} else if (status) {
		say_not(w, "died", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "early");
		tally.failed++;
	} else if (differs) {
		tally.failed++;
	} else {
		tally.passed++;
	}
}

/* NULL, or what keeps it from being run. */
static const char *why_not(const struct way *w, uint64_t since)
{
	if (geteuid() != 0 && (w->own || w->users))
		return "it needs root";
	if (wb_now_ns(&wb_clock_real) - since > WAYS_S * WB_NS_PER_S)
		return "no time is left";
	return NULL;
}

static void run_all(void)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);

	for (unsigned u = 0; u < N_USERS; u++)
		for (unsigned own = 0; own < N_OWN; own++) {
			struct way w = {own, u};
			const char *why = why_not(&w, t0);

			if (why) {
				say_not(&w, "skipped", why);
				tally.skipped++;
			} else {
				count_way(&w, run_way(&w));
			}
		}
}

/* What came of the imports; the columns are the namespaces that the agent has of its own. */
static void print_table(void)
{
	printf("%-31s %-14s %8s %8s %8s %8s %8s %8s %8s %8s\n", "memory", "worker, agent", "none",
		"pid", "ipc", "pid+ipc", "mnt", "pid+mnt", "ipc+mnt", "all");
	for (uint32_t i = 0; i < N_MEMORY; i++)
		for (unsigned u = 0; u < N_USERS && memories[i].kind != WB_MEM_HEAP; u++) {
			printf("%-31s %-6s, %-6s", memories[i].name, users[u].worker,
				users[u].agent);
			for (unsigned own = 0; own < N_OWN; own++) {
				const char *is = results[u][own][i];

				printf(" %8s", is ? is : "-");
			}
			printf("\n");
		}
}

/* Is there a driver with a device?  Asked in a child: a driver does not outlive a fork. */
static void say_device(void)
{
	const uint8_t *none = NULL;
	struct line l = {.len = 0};
	struct wb_err err = {0};
	char reach[1024], uuid[48];
	struct wb_gpu *g;
	int version = 0;

	if (wb_gpu_get(NULL, &g, &err)) {
		printf("SKIP %s\n", err.msg);
		fflush(stdout);
		exit(77);
	}
	wb_mem_reach(none, reach, sizeof(reach));
	wb_gpu_text(g->uuid.bytes, uuid, sizeof(uuid));
	g->cu->driver_version(&version);
	put_text(&l, "device", g->name);
	put_text(&l, "uuid", uuid);
	put_number(&l, "driver", version);
	put_text(&l, "reach", reach);
	say(&l);
	exit(0);
}

int main(void)
{
	size_t bytes = N_USERS * sizeof(*results);
	pid_t pid, keeper;
	int status, seen;

	(void)alarm(LIMIT_S); /* and with it all children */
	(void)dlopen("libcuda.so.1", RTLD_NOW); /* before folders change; begun only in children */
	results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(results == MAP_FAILED ? -1 : 0, "mmap");
	pid = fork_child(AGENT_S);
	if (!pid)
		say_device();
	status = wait_for(pid);
	if (status)
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	/* Holds a context all the time: to wake a device costs seconds. */
	seen = serve(observer, -1, &keeper);
	(void)tell(seen, NOTHING);
	run_all();
	if (measure_costs(seen))
		tally.passed++;
	else
		tally.failed++;
	close(seen);
	wait_for(keeper);
	print_table();
	printf("%u passed, %u failed, %u skipped\n", tally.passed, tally.failed, tally.skipped);
	return tally.failed ? 1 : 0;
}
