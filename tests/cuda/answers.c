/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers [SITUATION...]   What a CUDA driver says in the situations that we rely on.
 *
 * One line an answer, "situation: question: answer", without addresses, sizes or names of devices,
 * so that all drivers print the same; answers.txt holds what a driver printed.  The stand-in
 * (tests/cuda/driver) and drivers have to agree: nothing here knows which of them it is.  What
 * drivers may do one way or the other is not asked.
 *
 * Each situation has a process of its own, several run at a time: one that ends by a signal, waits
 * for ever or loses its device costs the lines that it had yet to print, and one of "ended by
 * signal N" is printed instead.  Exit status: 0, whatever the answers; 77 no GPU.
 */
#include "tests/cuda/answers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

#define AT_A_TIME 8
#define SITUATIONS_MAX 100

const struct wbcu *cu;
const char *name;

/* ---- saying ---------------------------------------------------------------------------------- */

void say(const char *what, const char *format, ...)
{
	va_list ap;

	printf("%s: %s: ", name, what);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout); /* what comes next may end the process */
}

void result(const char *what, int rc)
{
	const char *text = NULL, *prefix = "CUDA_ERROR_";

	if (!rc) {
		say(what, "SUCCESS");
		return;
	}
	if (cu->error_name(rc, &text) || !text) {
		say(what, "%d", rc);
		return;
	}
	say(what, "%s", strncmp(text, prefix, strlen(prefix)) ? text : text + strlen(prefix));
}

/* For what is refused in words that differ between drivers. */
void refused(const char *what, int rc)
{
	say(what, "%s", rc ? "refused" : "SUCCESS");
}

void yes(const char *what, bool is)
{
	say(what, "%s", is ? "yes" : "no");
}

/* What a situation needs before its questions: without, it has no more to say. */
void must(const char *what, int rc)
{
	if (!rc)
		return;
	result(what, rc);
	exit(0);
}

void must_be(const char *what, bool is)
{
	if (is)
		return;
	say(what, "%s", strerror(errno));
	exit(0);
}

/* ---- a device -------------------------------------------------------------------------------- */

void begin(void)
{
	void *context;

	if (wbcu_load(&cu, NULL))
		must("cuInit", cu->init(0));
	must("cuDevicePrimaryCtxRetain", cu->context_retain(&context, 0));
	must("cuCtxPushCurrent", cu->context_push(context));
}

struct wbcu_allocation described(int handle_types)
{
	return (struct wbcu_allocation){.type = WBCU_ALLOCATION_PINNED,
		.handle_types = handle_types,
		.location = {WBCU_LOCATION_DEVICE, 0}};
}

const struct wbcu_access both_ways = {{WBCU_LOCATION_DEVICE, 0}, WBCU_ACCESS_READWRITE};

/* Two pieces as large as the driver deals in: the least whose parts can be told apart. */
size_t piece_bytes(void)
{
	struct wbcu_allocation what = described(WBCU_HANDLE_FD);
	size_t n = 0;

	must("cuMemGetAllocationGranularity", cu->vmm_granularity(&n, &what, 0));
	return n < 2 * MIB ? 2 * MIB : n;
}

uint64_t legacy(size_t bytes)
{
	uint64_t addr;

	must("cuMemAlloc", cu->mem_alloc(&addr, bytes));
	return addr;
}

uint64_t created(size_t bytes, int handle_types)
{
	struct wbcu_allocation what = described(handle_types);
	uint64_t handle;

	must("cuMemCreate", cu->vmm_create(&handle, bytes, &what, 0));
	return handle;
}

uint64_t reserved(size_t bytes)
{
	uint64_t addr;

	must("cuMemAddressReserve", cu->vmm_reserve(&addr, bytes, 0, 0, 0));
	return addr;
}

/* An allocation at @addr, in a reservation; its handle is released. */
void map_at(uint64_t addr, size_t bytes, int handle_types)
{
	uint64_t handle = created(bytes, handle_types);

	must("cuMemMap", cu->vmm_map(addr, bytes, 0, handle, 0));
	must("cuMemSetAccess", cu->vmm_access(addr, bytes, &both_ways, 1));
	must("cuMemRelease", cu->vmm_release(handle));
}

void write_all(uint64_t addr, uint8_t value, size_t bytes)
{
	must("cuMemsetD8Async", cu->fill(addr, value, bytes, NULL));
	must("cuStreamSynchronize", cu->stream_sync(NULL));
}

/* The byte at @addr; -1 = it cannot be read. */
int byte_at(uint64_t addr)
{
	uint8_t b = 0;

	if (cu->copy_out(&b, addr, 1, NULL) || cu->stream_sync(NULL))
		return -1;
	return b;
}

/* ---- what a pointer is ----------------------------------------------------------------------- */

void type_of(uint64_t addr)
{
	static const char *const types[] = {"none", "host", "device"};
	unsigned type = 77;
	int device = 77, what[] = {WBCU_POINTER_MEMORY_TYPE, WBCU_POINTER_DEVICE};
	void *to[] = {&type, &device};
	int rc = cu->pointer_attribute(&type, WBCU_POINTER_MEMORY_TYPE, addr);

	if (rc)
		result("its memory type", rc);
	else
		say("its memory type", "%s", type < COUNT(types) ? types[type] : "another");
	type = 77;
	rc = cu->pointer_attributes(2, what, to, addr);
	if (rc)
		result("its memory type, asked with others", rc);
	else
		say("its memory type, asked with others", "%s",
			type < COUNT(types) ? types[type] : "another");
	if (!rc && type == WBCU_MEMORY_DEVICE)
		yes("it is of the first device", device == 0);
}

void number_of(const char *what, uint64_t addr, int attribute)
{
	uint64_t n = 0; /* of an int, or 8 bytes */
	int rc = cu->pointer_attribute(&n, attribute, addr);

	if (rc)
		result(what, rc);
	else
		say(what, "%d", (int)n);
}

void same_place(const char *what, int rc, uint64_t is, uint64_t want)
{
	if (rc)
		result(what, rc);
	else
		say(what, "%s", is == want ? "as expected" : is < want ? "before" : "behind");
}

void same_size(const char *what, int rc, size_t is, size_t want)
{
	if (rc)
		result(what, rc);
	else
		say(what, "%s", is == want ? "as expected" : is < want ? "less" : "more");
}

/* Of an address: which range it is in. */
void range_of(uint64_t addr, uint64_t start, size_t bytes)
{
	uint64_t is = 0;
	size_t n = 0;
	int rc = cu->pointer_attribute(&is, WBCU_POINTER_RANGE_START, addr);

	same_place("the start of its range", rc, is, start);
	rc = cu->pointer_attribute(&n, WBCU_POINTER_RANGE_BYTES, addr);
	same_size("the bytes of its range", rc, n, bytes);
}

void block_of(uint64_t addr, uint64_t start, size_t bytes)
{
	uint64_t is = 0;
	size_t n = 0;
	int rc = cu->pointer_attribute(&is, WBCU_POINTER_BLOCK_START, addr);

	same_place("the start of its mapping", rc, is, start);
	rc = cu->pointer_attribute(&n, WBCU_POINTER_BLOCK_BYTES, addr);
	same_size("the bytes of its mapping", rc, n, bytes);
	rc = cu->mem_range(&is, &n, addr);
	same_place("cuMemGetAddressRange, start", rc, is, start);
	same_size("cuMemGetAddressRange, bytes", rc, n, bytes);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static struct situation all[SITUATIONS_MAX];
static size_t n_all;

static void gather(void)
{
	const struct situation *const tables[] = {of_devices, of_memory, of_processes, of_work};

	for (size_t t = 0; t < COUNT(tables); t++)
		for (const struct situation *s = tables[t]; s->name; s++)
			if (n_all < SITUATIONS_MAX)
				all[n_all++] = *s;
}

static int be_situation(const char *which)
{
	for (size_t i = 0; i < n_all; i++) {
		if (strcmp(all[i].name, which) != 0)
			continue;
		name = which;
		begin();
		all[i].run();
		return 0;
	}
	fprintf(stderr, "answers: no situation \"%s\"\n", which);
	return 2;
}

struct job {
	pid_t pid; /* 0 = not under way */
	int out, status;
	bool is_over;
};

static void job_start(struct job *j, const char *which)
{
	j->out = memfd_create("answers", MFD_CLOEXEC);
	j->pid = j->out < 0 ? -1 : fork();
	if (j->pid < 0) {
		perror("answers");
		exit(2);
	}
	if (j->pid)
		return;
	alarm(PATIENCE_S);
	dup2(j->out, STDOUT_FILENO);
	execl("/proc/self/exe", "answers", "situation", which, (char *)NULL);
	_exit(127);
}

static void job_print(struct job *j, const char *which)
{
	char buf[4096];
	ssize_t n;

	fflush(stdout);
	lseek(j->out, 0, SEEK_SET);
	while ((n = read(j->out, buf, sizeof(buf))) > 0)
		if (write(STDOUT_FILENO, buf, (size_t)n) != n)
			exit(2);
	close(j->out);
	if (WIFSIGNALED(j->status))
		printf("%s: ended by signal %d\n", which, WTERMSIG(j->status));
	else if (WEXITSTATUS(j->status))
		printf("%s: ended with status %d\n", which, WEXITSTATUS(j->status));
}

static bool is_wanted(const char *which, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], which))
			return true;
	return argc < 2;
}

static void job_reap(struct job *jobs, size_t n)
{
	int status;
	pid_t pid = wait(&status);

	for (size_t i = 0; i < n; i++)
		if (pid > 0 && jobs[i].pid == pid) {
			jobs[i].status = status;
			jobs[i].is_over = true;
		}
}

/* What runs is a window of the list; what is over at its beginning is printed. */
static void run_all(int argc, char **argv)
{
	static struct job jobs[SITUATIONS_MAX];
	size_t printed = 0, started = 0;

	while (printed < n_all) {
		if (printed < started && jobs[printed].is_over) {
			if (jobs[printed].pid)
				job_print(&jobs[printed], all[printed].name);
			printed++;
		} else if (started < n_all && started < printed + AT_A_TIME) {
			if (is_wanted(all[started].name, argc, argv))
				job_start(&jobs[started], all[started].name);
			else
				jobs[started].is_over = true;
			started++;
		} else {
			job_reap(jobs, started);
		}
	}
}

int main(int argc, char **argv)
{
	struct wb_err err = {0};

	gather();
	if (argc == 3 && !strcmp(argv[1], "peer"))
		return be_peer(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "situation"))
		return be_situation(argv[2]);
	if (wbcu_load(&cu, &err)) {
		printf("%s\n", err.msg);
		return 77;
	}
	run_all(argc, argv);
	return 0;
}
