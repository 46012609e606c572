/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about other processes: IPC handles, descriptors, forks, which devices are seen. */
#include "tests/cuda/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET 3 /* of a peer, to who started it */

/* ---- other processes ------------------------------------------------------------------------- */

/*
 * A peer has memory and does what it is told over the socket, a letter each: 'r' tell the byte at
 * its start, 'n' that of its neighbour, 'f' let go of it.  It never prints, and ends when the
 * socket does.
 */
struct note {
	struct wbcu_ipc ipc;
	uint64_t bytes,
		before; /* before: from a small neighbour's address to it, if it is behind */
	struct wbcu_uuid uuid; /* of the first device there */
	int rc, n; /* of a peer that only looks: cuInit's result, and devices */
};

struct peer {
	pid_t pid;
	int sock, fd; /* fd: a descriptor that came with the note */
	struct note note;
};

static void send_note(const struct note *note, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {(void *)(uintptr_t)note, sizeof(*note)};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	struct cmsghdr *h;

	if (fd >= 0) {
		m.msg_control = room;
		m.msg_controllen = sizeof(room);
		h = CMSG_FIRSTHDR(&m);
		*h = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	if (sendmsg(SOCKET, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(*note))
		exit(1);
}

static bool receive_note(struct peer *p)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {&p->note, sizeof(p->note)};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room)};

	p->fd = -1;
	if (recvmsg(p->sock, &m, MSG_WAITALL | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(p->note))
		return false;
	if (CMSG_FIRSTHDR(&m))
		memcpy(&p->fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return true;
}

/* This program once more, in @role; with CUDA_VISIBLE_DEVICES as @visible when that is given. */
static void peer_spawn(struct peer *p, const char *role, const char *visible)
{
	int pair[2];

	must_be("socketpair", !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	p->sock = pair[0];
	p->pid = fork();
	must_be("fork", p->pid >= 0);
	if (!p->pid) {
		alarm(PATIENCE_S);
		if (visible)
			setenv("CUDA_VISIBLE_DEVICES", visible, 1);
		if (pair[1] == SOCKET)
			fcntl(SOCKET, F_SETFD, 0);
		else
			dup2(pair[1], SOCKET);
		execl("/proc/self/exe", "answers", "peer", role, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
}

/* And wait until it has what the role says. */
static void peer_start(struct peer *p, const char *role)
{
	peer_spawn(p, role, NULL);
	errno = ECONNRESET;
	must_be(role, receive_note(p));
}

static int peer_ask(const struct peer *p, char what)
{
	uint8_t reply = 0;

	if (write(p->sock, &what, 1) != 1 || read(p->sock, &reply, 1) != 1)
		return -1;
	return reply;
}

static void peer_kill(struct peer *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->sock);
}

static void serve(uint64_t addr, uint64_t neighbour, void (*let_go)(uint64_t))
{
	uint8_t reply = 0;
	char what;

	while (read(SOCKET, &what, 1) == 1) {
		if (what == 'r' || what == 'n')
			reply = (uint8_t)byte_at(what == 'r' ? addr : neighbour);
		else
			let_go(addr);
		if (write(SOCKET, &reply, 1) != 1)
			break;
	}
}

static void free_legacy(uint64_t addr)
{
	must("cuMemFree", cu->mem_free(addr));
}

static void have_legacy(size_t bytes)
{
	struct note note = {.bytes = bytes};
	uint64_t before = legacy(1000), addr = legacy(bytes);

	note.before = addr > before ? addr - before : 0;
	write_all(before, 10, 1000);
	write_all(addr, 11, bytes);
	must("cuIpcGetMemHandle", cu->ipc_export(&note.ipc, addr));
	must("cuDeviceGetUuid", cu->device_uuid(&note.uuid, 0));
	send_note(&note, -1);
	serve(addr, before, free_legacy);
}

static size_t piece;

static void free_vmm(uint64_t addr)
{
	must("cuMemUnmap", cu->vmm_unmap(addr, piece));
	must("cuMemAddressFree", cu->vmm_unreserve(addr, piece));
}

static void have_vmm(void)
{
	struct note note = {.bytes = piece_bytes()};
	uint64_t addr = reserved(note.bytes), handle;
	int fd;

	piece = note.bytes;
	map_at(addr, piece, WBCU_HANDLE_FD);
	write_all(addr, 11, piece);
	must("cuMemRetainAllocationHandle", cu->vmm_retain(&handle, (void *)(uintptr_t)addr));
	must("cuMemExportToShareableHandle", cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0));
	must("cuMemRelease", cu->vmm_release(handle));
	send_note(&note, fd);
	close(fd);
	serve(addr, addr, free_vmm);
}

static void look(void)
{
	struct note note = {0};

	(void)wbcu_load(&cu, NULL);
	note.rc = cu->init(0);
	if (!note.rc) {
		cu->device_count(&note.n);
		cu->device_uuid(&note.uuid, 0);
	}
	send_note(&note, -1);
}

int be_peer(const char *role)
{
	name = "peer";
	if (!strcmp(role, "look")) {
		look();
		return 0;
	}
	begin();
	if (!strcmp(role, "vmm"))
		have_vmm();
	else
		have_legacy(!strcmp(role, "small") ? 1000 : 6 * MIB);
	return 0;
}

static bool is_ours(const struct wbcu_uuid *uuid)
{
	struct wbcu_uuid first;

	must("cuDeviceGetUuid", cu->device_uuid(&first, 0));
	return !memcmp(&first, uuid, sizeof(first));
}

static void ipc_own(void)
{
	uint64_t addr = legacy(4 * MIB), again;
	struct wbcu_ipc ipc;

	must("cuIpcGetMemHandle", cu->ipc_export(&ipc, addr));
	result("opening it in its own process", cu->ipc_open(&again, ipc, WBCU_IPC_LAZY_PEER));
	result("closing what was not opened", cu->ipc_close(addr));
}

static void ipc_other(void)
{
	uint64_t addr = 0, again = 0, start = 0;
	struct wbcu_ipc ipc, none = {{0}};
	struct peer p;
	size_t n = 0;
	int rc;

	peer_start(&p, "legacy");
	refused("of zeros", cu->ipc_open(&addr, none, WBCU_IPC_LAZY_PEER));
	yes("the device has the same UUID there", is_ours(&p.note.uuid));
	result("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	result("opening it again", cu->ipc_open(&again, p.note.ipc, WBCU_IPC_LAZY_PEER));
	yes("that is the same address", addr == again);
	rc = cu->mem_range(&start, &n, addr);
	same_place("cuMemGetAddressRange, start", rc, start, addr);
	same_size("cuMemGetAddressRange, bytes", rc, n, p.note.bytes);
	type_of(addr);
	number_of("it is IPC capable", addr, WBCU_POINTER_IS_IPC_CAPABLE);
	say("its first and last byte", "%d, %d", byte_at(addr), byte_at(addr + n - 1));
	write_all(addr, 21, 100);
	say("what was written here, read there", "%d", peer_ask(&p, 'r'));
	refused("a handle of what was opened", cu->ipc_export(&ipc, addr));
	result("closing it", cu->ipc_close(addr));
	say("its first byte after that", "%d", byte_at(addr));
	result("closing it again", cu->ipc_close(addr));
	refused("once more than opened", cu->ipc_close(addr));
	result("opening it once more", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	result("and closing", cu->ipc_close(addr));
	peer_kill(&p);
	refused("opening it when its owner is dead",
		cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	result("the device afterwards", cu->context_sync());
}

static void ipc_small(void)
{
	void *module, *fn = storer(&module);
	struct peer p;
	uint64_t addr;
	bool is_near;

	peer_start(&p, "small");
	must("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	say("the byte at the address", "%s", byte_at(addr) == 11 ? "the allocation's" : "another");
	is_near = p.note.before && p.note.before < 2 * MIB;
	yes("a neighbour's can be copied as well", is_near && byte_at(addr - p.note.before) == 10);
	result("closing it", cu->ipc_close(addr));
	yes("a neighbour is less than 2 MiB before it", is_near);
	if (is_near) { /* this may be the end of the device */
		must("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
		result("a kernel that stores at the neighbour's",
			store(fn, addr - p.note.before, 1, 32));
		result("its end", cu->context_sync());
		say("the neighbour's byte there", "%d", peer_ask(&p, 'n'));
	}
	peer_kill(&p);
}

static void ipc_freed(void)
{
	struct peer p;
	uint64_t addr;

	peer_start(&p, "legacy");
	must_be("freeing it there", peer_ask(&p, 'f') >= 0);
	refused("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	peer_kill(&p);
}

/* What was imported, wherever it came from. */
static uint64_t import_and_map(const struct peer *p)
{
	uint64_t handle = 0, at = reserved(2 * p->note.bytes);
	size_t n = p->note.bytes;
	struct wbcu_allocation is = {0};

	result("importing it", cu->vmm_import(&handle, (void *)(intptr_t)p->fd, WBCU_HANDLE_FD));
	result("what the handle is of", cu->vmm_describe(&is, handle));
	yes("that is the first device",
		is.location.type == WBCU_LOCATION_DEVICE && is.location.id == 0);
	result("mapping more than there is", cu->vmm_map(at, 2 * n, 0, handle, 0));
	result("mapping it", cu->vmm_map(at, n, 0, handle, 0));
	result("access to it", cu->vmm_access(at, n, &both_ways, 1));
	result("releasing the handle", cu->vmm_release(handle));
	say("its first and last byte", "%d, %d", byte_at(at), byte_at(at + n - 1));
	return at;
}

static void vmm_other(void)
{
	struct wbcu_allocation is = {0};
	uint64_t at, handle = 0;
	struct peer p;
	int fd = -1, rc;

	peer_start(&p, "vmm");
	at = import_and_map(&p);
	type_of(at);
	number_of("its handle types", at, WBCU_POINTER_HANDLE_TYPES);
	range_of(at + 100, at, 2 * p.note.bytes);
	block_of(at + 100, at, p.note.bytes);
	result("its handle, from the address", cu->vmm_retain(&handle, (void *)(uintptr_t)at));
	rc = cu->vmm_describe(&is, handle);
	say("the handle types of that", "%d", rc ? -1 : is.handle_types);
	result("exporting it from here", cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0));
	write_all(at, 21, 100);
	say("what was written here, read there", "%d", peer_ask(&p, 'r'));
	say("the owner lets go", "%d", peer_ask(&p, 'f'));
	say("its byte after that", "%d", byte_at(at));
	peer_kill(&p);
	say("its byte when the owner is dead", "%d", byte_at(at));
	result("importing it once more",
		cu->vmm_import(&handle, (void *)(intptr_t)p.fd, WBCU_HANDLE_FD));
	result("unmapping it", cu->vmm_unmap(at, p.note.bytes));
}

static void vmm_freed(void)
{
	struct peer p;

	peer_start(&p, "vmm");
	must_be("freeing it there", peer_ask(&p, 'f') >= 0);
	import_and_map(&p);
	peer_kill(&p);
}

static void vmm_dead(void)
{
	struct peer p;

	peer_start(&p, "vmm");
	peer_kill(&p);
	import_and_map(&p);
}

/* ---- devices and contexts -------------------------------------------------------------------- */

static void visible(void)
{
	char full[64], part[64], strange[64];
	const struct {
		const char *what, *value;
	} views[] = {{"\"\"", ""}, {"-1", "-1"}, {"0", "0"}, {"0,-1", "0,-1"}, {"-1,0", "-1,0"},
		{"77", "77"}, {"nonsense", "nonsense"}, {"its UUID", full},
		{"the beginning of its UUID", part}, {"a UUID of none", strange}};
	struct peer p[COUNT(views)];
	struct wbcu_uuid u;
	int at = 0;

	must("cuDeviceGetUuid", cu->device_uuid(&u, 0));
	at += snprintf(full, sizeof(full), "GPU-");
	for (int i = 0; i < WBCU_UUID_BYTES; i++)
		at += snprintf(full + at, sizeof(full) - (size_t)at, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u.bytes[i]);
	snprintf(part, sizeof(part), "%.12s", full);
	snprintf(strange, sizeof(strange), "%.20s-0123-456789abcdef", full);
	for (size_t i = 0; i < COUNT(views); i++)
		peer_spawn(&p[i], "look", views[i].value);
	for (size_t i = 0; i < COUNT(views); i++) {
		bool is_told = receive_note(&p[i]);

		waitpid(p[i].pid, NULL, 0);
		close(p[i].sock);
		if (!is_told)
			say(views[i].what, "does not return");
		else if (p[i].note.rc)
			result(views[i].what, p[i].note.rc);
		else
			say(views[i].what, "%d, %s", p[i].note.n,
				is_ours(&p[i].note.uuid) ? "the first here" : "another");
	}
}

static void devices(void)
{
	int n, dev;
	struct wbcu_uuid u;

	must("cuDeviceGetCount", cu->device_count(&n));
	result("cuDeviceGet of one too many", cu->device_get(&dev, n));
	result("cuDeviceGetUuid of one too many", cu->device_uuid(&u, n));
	result("cuDeviceGetAttribute of none such", cu->device_attribute(&dev, 100000, 0));
	result("cuInit with flags", cu->init(1));
	result("cuInit again", cu->init(0));
}

static void contexts(void)
{
	void *first, *again, *was = NULL;

	must("cuDevicePrimaryCtxRetain", cu->context_retain(&first, 0));
	must("cuDevicePrimaryCtxRetain", cu->context_retain(&again, 0));
	yes("retaining it again gives the same", first == again);
	result("pushing it on itself", cu->context_push(first));
	result("popping it", cu->context_pop(&was));
	yes("that is what was pushed", was == first);
	result("cuCtxSynchronize", cu->context_sync());
	result("popping the first", cu->context_pop(&was));
	result("popping none", cu->context_pop(&was));
	result("cuCtxSynchronize without one", cu->context_sync());
	while (!cu->context_pop(&was))
		;
	for (int i = 0; i < 3; i++)
		result("releasing it", cu->context_release(0));
	result("releasing it once more than retained", cu->context_release(0));
	result("retaining it anew", cu->context_retain(&first, 0));
	result("pushing that", cu->context_push(first));
	result("cuCtxSynchronize with that", cu->context_sync());
}

static void released(void)
{
	uint64_t at;
	void *was;

	result("releasing what is current", cu->context_release(0));
	result("cuMemAlloc then", cu->mem_alloc(&at, 100));
	result("cuCtxSynchronize then", cu->context_sync());
	result("popping it", cu->context_pop(&was));
}

static const char *const after_a_fork[] = {
	"cuDeviceGetCount", "cuInit", "cuMemAlloc", "cuCtxSynchronize", "cuPointerGetAttribute"};

static int call_after_a_fork(size_t which, uint64_t addr)
{
	uint64_t at;
	unsigned type;
	int n;

	switch (which) {
	case 0:
		return cu->device_count(&n);
	case 1:
		return cu->init(0);
	case 2:
		return cu->mem_alloc(&at, 100);
	case 3:
		return cu->context_sync();
	default:
		return cu->pointer_attribute(&type, WBCU_POINTER_MEMORY_TYPE, addr);
	}
}

/* A child cannot go on with what its parent began.  Each call has a child of its own: one may wait
 * for ever. */
static void forked(void)
{
	uint64_t addr = legacy(100);

	for (size_t i = 0; i < COUNT(after_a_fork); i++) {
		int rc, pipes[2];
		pid_t pid;

		must_be("pipe", !pipe(pipes));
		pid = fork();
		must_be("fork", pid >= 0);
		if (!pid) {
			alarm(2);
			rc = call_after_a_fork(i, addr);
			_exit(write(pipes[1], &rc, sizeof(rc)) != sizeof(rc));
		}
		close(pipes[1]);
		if (read(pipes[0], &rc, sizeof(rc)) == sizeof(rc))
			result(after_a_fork[i], rc);
		else
			say(after_a_fork[i], "does not return");
		waitpid(pid, NULL, 0);
		close(pipes[0]);
	}
	result("the parent afterwards", cu->context_sync());
}

const struct situation of_devices[] = {
	{"devices", devices},
	{"CUDA_VISIBLE_DEVICES", visible},
	{"contexts", contexts},
	{"a context that was released", released},
	{"a forked child", forked},
	{NULL, NULL},
};

const struct situation of_processes[] = {
	{"an IPC handle, own", ipc_own},
	{"an IPC handle, of another process", ipc_other},
	{"an IPC handle, of a small allocation", ipc_small},
	{"an IPC handle, of memory that was freed", ipc_freed},
	{"a descriptor, of another process", vmm_other},
	{"a descriptor, of memory that its owner let go", vmm_freed},
	{"a descriptor, of a process that is dead", vmm_dead},
	{NULL, NULL},
};
