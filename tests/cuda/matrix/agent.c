/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: imports what a worker has. */
#include "tests/cuda/matrix/matrix.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "tests/common/fx_cuda.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

const struct mx_users mx_users[MX_USERS] = {
	{"root", "root"}, {"nobody", "nobody"}, {"root", "nobody"}};

mx_results *mx_result;

static const char *kind_name(uint32_t kind)
{
	return kind == WB_MEM_HEAP ? "worker" : wb_mem_ops(kind)->name;
}

void mx_ask(int sock, const struct mx_question *q, struct mx_answer *a, struct wb_mem_piece *piece)
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

void mx_forget(const struct wb_mem_desc *d)
{
	for (uint32_t i = 0; i < d->n_piece; i++)
		close(d->piece[i].fd);
	if (d->fd >= 0)
		close(d->fd);
}

/* Reads what the worker wrote and lets it read what is written here. */
static int use_on_device(int sock, uint32_t memory, struct wb_mem *is, struct wb_err *err)
{
	struct mx_question q = {MX_CHECK, memory, 2};
	uint64_t addr = (uintptr_t)is->addr;
	struct mx_answer a;
	int rc = wb_gpu_enter(is->gpu, err);

	if (rc)
		return rc;
	rc = mx_read(is->gpu, addr, is->bytes, 1, err);
	if (!rc)
		rc = mx_write(is->gpu, addr, is->bytes, 2, err);
	wb_gpu_leave(is->gpu);
	if (rc)
		return rc;
	mx_ask(sock, &q, &a, NULL);
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
	mx_pattern(want, is->bytes, 1);
	if (memcmp(p, want, is->bytes) != 0)
		rc = wb_err_set(err, -EILSEQ, "the bytes differ");
	free(want);
	munmap(p, is->bytes);
	return rc;
}

static const char *bytes_word(int rc)
{
	return !rc ? "agree" : rc == -EILSEQ ? MX_DIFFER : "not seen";
}

/* One import; says it, and gives a word for the table. */
static const char *try_import(
	int sock, uint32_t memory, const struct mx_answer *a, struct mx_line *l)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	struct wb_err err = {0};
	struct wb_mem is;
	int rc = wb_mem_import(&a->desc, &is, &err);

	mx_text(l, "import", rc ? "no" : "yes");
	mx_number(l, "ms", (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6);
	if (rc) {
		mx_number(l, "code", rc);
		mx_text(l, "why", err.msg);
		return "no";
	}
	rc = is.access == WB_MEM_AT_DEVICE ? use_on_device(sock, memory, &is, &err)
					   : use_mapped(&is, &err);
	mx_text(l, "bytes", bytes_word(rc));
	if (rc)
		mx_text(l, "why", err.msg);
	wb_mem_release(&is);
	return !rc ? "yes" : rc == -EILSEQ ? MX_DIFFER : rc == -ENOTSUP ? "unseen" : "error";
}

void mx_put_way(struct mx_line *l, const struct mx_way *w)
{
	mx_text(l, "pid", w->own & MX_OWN_PID ? "separate" : "same");
	mx_text(l, "ipc", w->own & MX_OWN_IPC ? "separate" : "same");
	mx_text(l, "mnt", w->own & MX_OWN_MNT ? "separate" : "same");
	mx_text(l, "worker", mx_users[w->users].worker);
	mx_text(l, "agent", mx_users[w->users].agent);
}

static void try_memory(int sock, const struct mx_way *w, uint32_t memory)
{
	const char **result = &(*mx_result)[w->users][w->own][memory];
	struct mx_question q = {MX_GIVE, memory, 1};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct mx_line l = {.len = 0};
	struct mx_answer a;

	mx_ask(sock, &q, &a, piece);
	mx_text(&l, "memory", mx_memories[memory].name);
	mx_put_way(&l, w);
	mx_text(&l, "export", a.rc ? "no" : kind_name(a.desc.kind));
	if (a.rc || a.desc.kind == WB_MEM_HEAP) {
		mx_text(&l, "why", a.why);
		*result = "none";
	} else {
		*result = try_import(sock, memory, &a, &l);
	}
	mx_forget(&a.desc);
	mx_say(&l);
}

/* Until it has ended and all that it had is given back. */
static void end_worker(int sock, int pid)
{
	struct mx_question q = {.what = MX_END};
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	mx_must(fd, "pidfd_open");
	fx_send(sock, &q, sizeof(q), NULL, 0);
	mx_must(poll(&p, 1, MX_ONE_S * 1000), "poll");
	close(fd);
}

/* Is memory still there when its worker is not?  The last that this worker is asked. */
static void outlive(int sock)
{
	static const uint32_t what[] = {MX_VMM, MX_IPC};
	struct mx_question q = {MX_GIVE, 0, 3};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct wb_mem is[2];
	struct wb_err err[2] = {{0}};
	struct mx_answer a;
	int rc[2];

	for (int i = 0; i < 2; i++) {
		q.memory = what[i];
		mx_ask(sock, &q, &a, piece);
		rc[i] = a.rc ? wb_err_set(&err[i], a.rc, "%s", a.why)
			     : wb_mem_import(&a.desc, &is[i], &err[i]);
		mx_forget(&a.desc);
	}
	end_worker(sock, a.pid);
	for (int i = 0; i < 2; i++) {
		struct mx_line l = {.len = 0};

		if (!rc[i])
			rc[i] = wb_gpu_enter(is[i].gpu, &err[i]);
		if (!rc[i])
			rc[i] = mx_read(is[i].gpu, (uintptr_t)is[i].addr, is[i].bytes, 3, &err[i]);
		mx_text(&l, "after the worker's end", mx_memories[what[i]].name);
		mx_text(&l, "bytes", bytes_word(rc[i]));
		if (rc[i])
			mx_text(&l, "why", err[i].msg);
		mx_say(&l);
	}
}

void mx_agent(int sock, const struct mx_way *w)
{
	bool is_first = !w->own && !w->users; /* says what is the same for all, too */
	struct wb_err err = {0};
	struct wb_gpu *g;

	if (wb_gpu_get(NULL, &g, &err)) {
		struct mx_line l = {.len = 0};

		mx_text(&l, "memory", "any");
		mx_put_way(&l, w);
		mx_text(&l, "import", "no");
		mx_text(&l, "why", err.msg);
		mx_say(&l);
		for (uint32_t i = 0; i < MX_MEMORIES; i++)
			(*mx_result)[w->users][w->own][i] = "no GPU";
		exit(0);
	}
	for (uint32_t i = 0; i < MX_MEMORIES; i++)
		if (mx_memories[i].kind != WB_MEM_HEAP || is_first)
			try_memory(sock, w, i);
	if (is_first)
		outlive(sock);
	exit(0);
}
