/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_matrix - who can use memory of a GPU that another process has allocated?
 *
 * A worker exports memory of each kind by wb_mem_export() (dma-bufs by the driver itself, as they
 * have no exporter here yet), an agent imports it by wb_mem_import(), reads what the worker wrote
 * and writes what the worker then looks for.  The agent shares the worker's namespaces of
 * processes, IPC and mounts, or has its own, in all eight ways, with all rights and with none: as
 * user 65534 without capabilities.  An own namespace of mounts has a /dev/shm, and with one of
 * processes a /proc, of its own, as in a container.  Then: is memory still there when its worker
 * has ended, and what does a process that imports cost the GPU and the host?
 *
 * Prints an object of JSON a line, then the imports as a table, and "N passed, N failed, N skipped"
 * at the end.  Passed is what could be tried, also where the driver refuses: which that is is what
 * one wants to know.  Failed: bytes that differ, a process that ended early.  Without a driver it
 * ends with 77 and the reason; what needs root is skipped without.  On the stand-in it says what
 * the stand-in says.
 */
#include "tests/cuda/matrix/matrix.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"

#include <dlfcn.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static bool is_nobody(const char *user)
{
	return !strcmp(user, "nobody");
}

/* As a process that was started so by a container runtime. */
static void become_nobody(void)
{
	mx_must(setgroups(0, NULL), "setgroups");
	mx_must(setresgid(NOBODY, NOBODY, NOBODY), "setresgid");
	mx_must(setresuid(NOBODY, NOBODY, NOBODY), "setresuid");
	mx_must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	mx_must(prctl(PR_SET_PDEATHSIG, SIGKILL), "pdeathsig"); /* a change of user takes it */
	mx_must(prctl(PR_SET_DUMPABLE, 1), "dumpable"); /* and this, which an exec gives back */
}

static void own_mounts(unsigned own)
{
	if (!(own & MX_OWN_MNT))
		return;
	mx_must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	mx_must(mount("none", "/dev/shm", "tmpfs", 0, NULL), "/dev/shm");
	if (own & MX_OWN_PID)
		mx_must(mount("proc", "/proc", "proc", 0, NULL), "/proc");
}

/* In a process of its own.  Only a child is in a new namespace of processes. */
static void start_agent(int sock, const struct mx_way *w)
{
	int status, flags = (w->own & MX_OWN_PID ? CLONE_NEWPID : 0) |
			    (w->own & MX_OWN_IPC ? CLONE_NEWIPC : 0) |
			    (w->own & MX_OWN_MNT ? CLONE_NEWNS : 0);
	pid_t pid;

	mx_must(unshare(flags), "unshare");
	if (w->own & MX_OWN_PID) {
		pid = mx_fork(0);
		if (pid) {
			status = mx_wait(pid);
			exit(WIFEXITED(status) ? WEXITSTATUS(status) : MX_DIED);
		}
	}
	own_mounts(w->own);
	if (is_nobody(mx_users[w->users].agent))
		become_nobody();
	mx_agent(sock, w);
}

/* A worker of its own for each: nothing of the one before is left with it.  Waits for both, and
 * gives the agent's status as wait() does, or the worker's when only that is bad. */
static int run_way(const struct mx_way *w)
{
	pid_t pid[2];
	int pair[2], status[2];

	mx_must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
	for (int i = 0; i < 2; i++) {
		pid[i] = mx_fork(MX_ONE_S);
		if (pid[i])
			continue;
		close(pair[i]);
		if (i)
			start_agent(pair[0], w);
		if (is_nobody(mx_users[w->users].worker))
			become_nobody();
		mx_worker(pair[1], -1);
	}
	close(pair[0]);
	close(pair[1]);
	status[1] = mx_wait(pid[1]);
	status[0] = mx_wait(pid[0]);
	return status[1] ? status[1] : status[0];
}

static struct {
	unsigned passed, failed, skipped;
} tally;

static void say_not(const struct mx_way *w, const char *what, const char *why)
{
	struct mx_line l = {.len = 0};

	mx_text(&l, "memory", "any");
	mx_put_way(&l, w);
	mx_text(&l, what, why);
	mx_say(&l);
}

static void count_way(const struct mx_way *w, int status)
{
	bool differs = false;

	for (uint32_t i = 0; i < MX_MEMORIES; i++) {
		const char *is = (*mx_result)[w->users][w->own][i];

		differs |= is && !strcmp(is, MX_DIFFER);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == MX_NO_RIGHT) {
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
static const char *why_not(const struct mx_way *w, uint64_t since)
{
	if (geteuid() != 0 && (w->own || w->users))
		return "it needs root";
	if (wb_now_ns(&wb_clock_real) - since > MX_WAYS_S * WB_NS_PER_S)
		return "no time is left";
	return NULL;
}

static void run_all(void)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);

	for (unsigned u = 0; u < MX_USERS; u++)
		for (unsigned own = 0; own < MX_OWN; own++) {
			struct mx_way w = {own, u};
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
	for (uint32_t i = 0; i < MX_MEMORIES; i++)
		for (unsigned u = 0; u < MX_USERS && mx_memories[i].kind != WB_MEM_HEAP; u++) {
			printf("%-31s %-6s, %-6s", mx_memories[i].name, mx_users[u].worker,
				mx_users[u].agent);
			for (unsigned own = 0; own < MX_OWN; own++) {
				const char *is = (*mx_result)[u][own][i];

				printf(" %8s", is ? is : "-");
			}
			printf("\n");
		}
}

/* Is there a driver with a device?  Asked in a child: a driver does not outlive a fork. */
static void say_device(void)
{
	const uint8_t *none = NULL;
	struct mx_line l = {.len = 0};
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
	mx_text(&l, "device", g->name);
	mx_text(&l, "uuid", uuid);
	mx_number(&l, "driver", version);
	mx_text(&l, "reach", reach);
	mx_say(&l);
	exit(0);
}

int main(void)
{
	size_t bytes = sizeof(*mx_result);
	pid_t pid, keeper;
	int status, seen;

	(void)alarm(MX_LIMIT_S); /* and with it all children */
	(void)dlopen("libcuda.so.1", RTLD_NOW); /* before folders change; begun only in children */
	mx_result = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mx_must(mx_result == MAP_FAILED ? -1 : 0, "mmap");
	pid = mx_fork(MX_ONE_S);
	if (!pid)
		say_device();
	status = mx_wait(pid);
	if (status)
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	/* Holds a context all the time: to wake a device costs seconds. */
	seen = mx_serve(mx_observer, -1, &keeper);
	mx_wake(seen);
	run_all();
	if (mx_costs(seen))
		tally.passed++;
	else
		tally.failed++;
	close(seen);
	mx_wait(keeper);
	print_table();
	printf("%u passed, %u failed, %u skipped\n", tally.passed, tally.failed, tally.skipped);
	return tally.failed ? 1 : 0;
}
