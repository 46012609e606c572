/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_cuda.h"

#include "base/err.h"
#include "tests/common/fx_beside.h"
#include "tests/common/fx_check.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "fx_cuda: %s: %d\n", what, rc);
	abort();
}

/* ---- which driver ---------------------------------------------------------------------------- */

static int n_device = 2; /* the stand-in's */

bool fx_cuda_is_device(void)
{
	const char *which = getenv("WB_GPU");

	return which && !strcmp(which, "device");
}

/* The exit status of a child that begins with the driver; the parent must not. */
static int count_devices(void)
{
	const struct wbcu *c;
	struct wb_err err = {0};
	int n = 0;

	if (!wbcu_load(&c, &err) && !c->device_count(&n) && n > 0)
		return n;
	printf("%s\n", err.msg[0] ? err.msg : "no GPU: the driver shows none");
	return 0;
}

bool fx_cuda_here(void)
{
	int status = 0;
	pid_t pid;

	if (!fx_cuda_is_device())
		return true;
	fflush(stdout);
	pid = fork();
	must(pid < 0, "fork");
	if (!pid)
		exit(count_devices());
	must(waitpid(pid, &status, 0) != pid || !WIFEXITED(status), "a child that counts devices");
	n_device = WEXITSTATUS(status);
	return n_device > 0;
}

int fx_cuda_devices(void)
{
	return n_device;
}

int fx_cuda_second(void)
{
	return n_device > 1;
}

void fx_cuda_skip(const char *name, const char *why)
{
	printf("skip %s: %s\n", name, why);
	fflush(stdout);
}

static void skip_for(const char *name, const char *what)
{
	char why[128];

	snprintf(why, sizeof(why), "needs %s", what);
	fx_cuda_skip(name, why);
}

void fx_cuda_add_rows(
	TCase *t, const TTest *test, const char *name, int n, const char *(*needs)(int row))
{
	for (int i = fx_first_row(); i < n; i += fx_step_row()) {
		const char *what = needs && fx_cuda_is_device() ? needs(i) : NULL;
		char row[128];

		snprintf(row, sizeof(row), "%s, row %d", name, i);
		if (what)
			skip_for(row, what);
		else
			tcase_add_loop_test(t, test, i, i + 1);
	}
}

void fx_cuda_add(TCase *t, const TTest *test, const char *name, const char *needs)
{
	if (needs && fx_cuda_is_device())
		skip_for(name, needs);
	else
		tcase_add_test(t, test);
}

static int no_script(const char *text)
{
	fprintf(stderr, "fx_cuda: a device takes no script: %s\n", text);
	abort();
}

static void count_nothing(struct fakecuda_counts *out)
{
	*out = (struct fakecuda_counts){0};
}

const struct fx_cuda *fx_cuda(void)
{
	static struct fx_cuda c;

	if (!c.script && fx_cuda_is_device())
		c = (struct fx_cuda){no_script, count_nothing};
	if (!c.script) {
		void *lib = fx_beside("fakecuda/libcuda.so.1"),
		     *script = dlsym(lib, "fakecuda_script");
		void *count = dlsym(lib, "fakecuda_count");

		must(!script || !count, "no stand-in");
		memcpy(&c.script, &script, sizeof(script));
		memcpy(&c.count, &count, sizeof(count));
	}
	return &c;
}

void fx_cuda_do(const char *text)
{
	must(fx_cuda()->script(text), text);
}

const struct wbcu *fx_cuda_driver(int number)
{
	const struct wbcu *cu;
	struct wb_err err = {0};
	void *context;

	fx_cuda();
	if (wbcu_load(&cu, &err)) {
		fprintf(stderr, "fx_cuda: %s\n", err.msg);
		abort();
	}
	must(cu->context_retain(&context, number), "cuDevicePrimaryCtxRetain");
	must(cu->context_push(context), "cuCtxPushCurrent");
	return cu;
}

static const struct wbcu *cu(void)
{
	const struct wbcu *c;

	must(wbcu_load(&c, NULL), "wbcu_load");
	return c;
}

struct wbcu_uuid fx_cuda_uuid(int number)
{
	struct wbcu_uuid u;

	must(cu()->device_uuid(&u, number), "cuDeviceGetUuid");
	return u;
}

static void nap(void *arg)
{
	(void)arg;
	nanosleep(&(struct timespec){0, 50000000}, NULL);
}

void fx_cuda_fill_late(uint64_t addr, uint8_t value, size_t bytes)
{
	must(cu()->stream_call(NULL, nap, NULL), "cuLaunchHostFunc");
	must(cu()->fill(addr, value, bytes, NULL), "cuMemsetD8Async");
}

void fx_cuda_write(uint64_t addr, const void *from, size_t bytes)
{
	must(cu()->copy_in(addr, from, bytes, NULL), "cuMemcpyHtoDAsync");
	must(cu()->stream_sync(NULL), "cuStreamSynchronize");
}

void fx_cuda_read(void *to, uint64_t addr, size_t bytes)
{
	must(cu()->copy_out(to, addr, bytes, NULL), "cuMemcpyDtoHAsync");
	must(cu()->stream_sync(NULL), "cuStreamSynchronize");
}

uint64_t fx_cuda_vmm(int number, size_t bytes, bool is_exported)
{
	struct wbcu_allocation what = {.type = WBCU_ALLOCATION_PINNED,
		.handle_types = is_exported ? WBCU_HANDLE_FD : 0,
		.location = {WBCU_LOCATION_DEVICE, number}};
	struct wbcu_access access = {what.location, WBCU_ACCESS_READWRITE};
	uint64_t handle, addr;

	must(cu()->vmm_create(&handle, bytes, &what, 0), "cuMemCreate");
	must(cu()->vmm_reserve(&addr, bytes, 0, 0, 0), "cuMemAddressReserve");
	must(cu()->vmm_map(addr, bytes, 0, handle, 0), "cuMemMap");
	must(cu()->vmm_access(addr, bytes, &access, 1), "cuMemSetAccess");
	must(cu()->vmm_release(handle), "cuMemRelease");
	return addr;
}

void fx_cuda_vmm_free(uint64_t addr, size_t bytes)
{
	must(cu()->vmm_unmap(addr, bytes), "cuMemUnmap");
	must(cu()->vmm_unreserve(addr, bytes), "cuMemAddressFree");
}

/* ---- between processes ----------------------------------------------------------------------- */

#define FDS_MAX 64

void fx_send(int sock, const void *p, size_t bytes, const int *fds, unsigned n_fd)
{
	char room[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
	struct iovec v = {(void *)(uintptr_t)p, bytes};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	struct cmsghdr *h;

	if (n_fd) {
		m.msg_control = room;
		m.msg_controllen = CMSG_SPACE(n_fd * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(n_fd * sizeof(int));
		memcpy(CMSG_DATA(h), fds, n_fd * sizeof(int));
	}
	must(sendmsg(sock, &m, MSG_NOSIGNAL) != (ssize_t)bytes, "send");
}

void fx_receive(int sock, void *p, size_t bytes, int *fds, unsigned n_fd)
{
	char room[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
	struct iovec v = {p, bytes};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room)};

	must(recvmsg(sock, &m, MSG_WAITALL) != (ssize_t)bytes, "receive");
	if (!n_fd)
		return;
	must(!CMSG_FIRSTHDR(&m) || CMSG_FIRSTHDR(&m)->cmsg_len != CMSG_LEN(n_fd * sizeof(int)),
		"descriptors");
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), n_fd * sizeof(int));
}

void fx_two(void (*a)(int sock, void *arg), void (*b)(int sock, void *arg), void *arg)
{
	int pair[2], status;
	pid_t pid[2];

	fx_cuda();
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		close(pair[!i]); /* who waits for one that died is told */
		(i ? b : a)(pair[i], arg);
		exit(0);
	}
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < 2; i++) {
		must(waitpid(pid[i], &status, 0) != pid[i], "waitpid");
		must(status, i ? "the second process" : "the first process");
	}
}
