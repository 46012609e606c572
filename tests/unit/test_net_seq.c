/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/internal.h"
#include "net/seq.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_loop.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct side {
	struct wb_seq *s;
	int n_msg, n_closed, kept_fd, accepted;
	size_t bytes;
	uint32_t n_fd;
	char last[64];
	int code;
	int *process; /* where its descriptor goes at the end; NULL = not asked for */
};

static void side_msg(
	void *cookie, struct wb_seq *s, const uint8_t *msg, size_t bytes, int *fds, uint32_t n_fd)
{
	struct side *d = cookie;

	ck_assert_ptr_eq(s, d->s);
	d->n_msg++;
	d->bytes = bytes;
	d->n_fd = n_fd;
	memcpy(d->last, msg, WB_MIN(bytes, sizeof(d->last)));
	if (n_fd) {
		d->kept_fd = fds[0];
		fds[0] = -1;
	}
}

static void side_closed(void *cookie, struct wb_seq *s, const struct wb_err *why)
{
	struct side *d = cookie;

	d->n_closed++;
	d->code = why->code;
	if (d->process)
		*d->process = wb_seq_peer_process(s);
	d->s = NULL;
}

static void side_bind(struct side *d, struct wb_seq *s)
{
	const struct wb_seq_cb cb = {d, side_msg, side_closed};

	d->s = s;
	wb_seq_bind(s, &cb);
}

/* What the library in the worker does, on a loop. */
static int dial(struct wb_loop *on, const char *path, struct wb_seq **out)
{
	int fd = wb_unix_dial(path);

	return fd < 0 ? fd : wb_seq_adopt(on, fd, 0, out, NULL);
}

static void side_accept(void *cookie, struct wb_seq *s)
{
	struct side *d = cookie;

	d->accepted++;
	side_bind(d, s);
}

static int n_open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct wb_seq_listener *listen_on(const char *name, struct side *server)
{
	struct wb_seq_listen_opts o = {.path = fx_loop_path(name), .mode = 0666};
	struct wb_seq_listener *l;
	struct wb_err err = {0};

	ck_assert_msg(!wb_seq_listen(fx_loop, &o, side_accept, server, &l, &err), "%s", err.msg);
	return l;
}

START_TEST(two_processes_share_memory_by_a_descriptor)
{
	struct side server = {.kept_fd = -1};
	struct wb_seq_listener *l = listen_on("s", &server);
	struct stat st;
	int status;
	char *p;
	pid_t pid;

	ck_assert_int_eq(stat(fx_loop_path("s"), &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0666);
	pid = fork();
	if (!pid) {
		struct wb_loop *own;
		struct wb_seq *s;
		int fd = memfd_create("m", MFD_CLOEXEC);

		if (wb_loop_create(&own, NULL) || ftruncate(fd, 4096) ||
			pwrite(fd, "from the child", 15, 0) != 15 ||
			dial(own, fx_loop_path("s"), &s) || wb_seq_send(s, "hello", 6, &fd, 1))
			_exit(1);
		wb_seq_close(s);
		wb_loop_run(own);
		_exit(0);
	}
	fx_loop_until(&server.n_closed, 1);
	ck_assert_int_eq(server.n_msg, 1);
	ck_assert_str_eq(server.last, "hello");
	ck_assert_int_eq(server.code, 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, server.kept_fd, 0);
	ck_assert_str_eq(p, "from the child");
	munmap(p, 4096);
	close(server.kept_fd);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	wb_seq_listener_close(l);
	ck_assert_int_eq(stat(fx_loop_path("s"), &st), -1);
}
END_TEST

START_TEST(the_peer_is_known_and_descriptors_not_kept_are_closed)
{
	struct side server = {.kept_fd = -1}, client = {.kept_fd = -1};
	struct wb_seq_listener *l = listen_on("s", &server);
	int fds[WB_SEQ_FDS_MAX + 1], before;
	struct wb_seq *s;

	ck_assert_int_eq(dial(fx_loop, fx_loop_path("s"), &s), 0);
	side_bind(&client, s);
	fx_loop_until(&server.accepted, 1);
	ck_assert_int_eq(wb_seq_peer(server.s)->pid, getpid());
	ck_assert_uint_eq(wb_seq_peer(server.s)->uid, getuid());
	before = n_open_fds();
	for (int i = 0; i < WB_SEQ_FDS_MAX + 1; i++)
		fds[i] = 0;
	ck_assert_int_eq(wb_seq_send(s, "x", 1, fds, WB_SEQ_FDS_MAX + 1), -EMSGSIZE);
	ck_assert_int_eq(wb_seq_send(s, "x", 0, NULL, 0), -EMSGSIZE);
	ck_assert_int_eq(wb_seq_send(s, fds, WB_SEQ_BYTES_MAX + 1, NULL, 0), -EMSGSIZE);
	ck_assert_int_eq(wb_seq_send(s, "x", 1, fds, WB_SEQ_FDS_MAX), 0);
	fx_loop_until(&server.n_msg, 1);
	ck_assert_uint_eq(server.n_fd, WB_SEQ_FDS_MAX);
	ck_assert_int_eq(n_open_fds(), before + 1);
	close(server.kept_fd);
	wb_seq_close(server.s);
	ck_assert_int_eq(wb_seq_send(server.s, "x", 1, NULL, 0), -ENOTCONN);
	fx_loop_until(&client.n_closed, 1);
	wb_seq_listener_close(l);
}
END_TEST

/* A child that has connected with @sock, and ends when *@lives is closed. */
static pid_t child_connects(int sock, const char *path, int *lives)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int go[2], done[2];
	char c;
	pid_t pid;

	strcpy(to.sun_path, path);
	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(done), 0);
	pid = fork();
	if (!pid) {
		int rc = connect(sock, (struct sockaddr *)&to, sizeof(to));

		close(sock);
		close(go[1]);
		if (write(done[1], "", rc == 0) != 1)
			_exit(1);
		(void)!read(go[0], &c, 1);
		_exit(0);
	}
	ck_assert_int_eq(read(done[0], &c, 1), 1);
	close(done[0]);
	close(done[1]);
	close(go[0]);
	*lives = go[1];
	return pid;
}

static bool is_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* The connection ends while its process lives (0), or after that was waited for (1). */
START_TEST(the_end_of_a_process_is_told_from_that_of_its_connection)
{
	int process = -1, lives, sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct side server = {.kept_fd = -1, .process = &process};
	struct wb_seq_listener *l = listen_on("s", &server);
	pid_t pid = child_connects(sock, fx_loop_path("s"), &lives);

	fx_loop_until(&server.accepted, 1);
	if (_i) {
		close(lives);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	}
	close(sock);
	fx_loop_until(&server.n_closed, 1);
	if (!_i) {
		ck_assert_int_ge(process, 0);
		ck_assert(!is_readable(process, 0));
		close(lives);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	}
	/* Kernels before 6.16 have no descriptor of a process that was waited for. */
	ck_assert(process == -ESRCH ? _i : is_readable(process, 20000));
	if (process >= 0)
		close(process);
	wb_seq_listener_close(l);
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_eagain_and_later_gets_all_in_order)
{
	struct side server = {.kept_fd = -1};
	static uint8_t msg[32768];
	struct wb_seq *s;
	int sv[2], sent = 0, rc, fd = 0, before = n_open_fds();
	uint8_t got[32768];

	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv), 0);
	ck_assert_int_eq(wb_seq_adopt(fx_loop, sv[0], 300000, &s, NULL), 0);
	side_bind(&server, s);
	do {
		msg[0] = (uint8_t)sent;
		rc = wb_seq_send(s, msg, sizeof(msg), &fd, 1);
		sent += !rc;
	} while (!rc);
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_int_ge(sent, 9);
	wb_seq_close(s);
	for (int i = 0; i < sent;) {
		if (recv(sv[1], got, sizeof(got), 0) == sizeof(got))
			ck_assert_int_eq(got[0], (uint8_t)i++);
		else
			wb_loop_run_once(fx_loop, true);
	}
	fx_loop_until(&server.n_closed, 1);
	ck_assert_int_eq(server.code, 0);
	close(sv[1]);
	ck_assert_int_eq(n_open_fds(), before);
}
END_TEST

/* It says its last word and goes: with something unread, while one sends to it, or both. */
START_TEST(the_last_word_of_a_peer_is_heard)
{
	struct side server = {.kept_fd = -1};
	struct wb_seq *s;
	int sv[2];

	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv), 0);
	ck_assert_int_eq(wb_seq_adopt(fx_loop, sv[0], 0, &s, NULL), 0);
	side_bind(&server, s);
	if (_i & 1)
		ck_assert_int_eq(wb_seq_send(s, "unread", 6, NULL, 0), 0);
	ck_assert_int_eq(send(sv[1], "bye", 3, 0), 3);
	close(sv[1]);
	for (int k = 0; _i & 2 && k < 3; k++)
		ck_assert_int_eq(wb_seq_send(s, "late", 4, NULL, 0), 0);
	fx_loop_until(&server.n_closed, 1);
	ck_assert_int_eq(server.n_msg, 1);
	ck_assert_mem_eq(server.last, "bye", 3);
	ck_assert_int_eq(server.code, 0);
}
END_TEST

START_TEST(a_datagram_above_the_limit_ends_the_connection)
{
	struct side server = {.kept_fd = -1};
	static uint8_t big[WB_SEQ_BYTES_MAX + 1];
	int sv[2], size = 1 << 20;
	struct wb_seq *s;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	ck_assert_int_eq(wb_seq_adopt(fx_loop, sv[0], 0, &s, NULL), 0);
	side_bind(&server, s);
	ck_assert_int_eq(send(sv[1], big, sizeof(big), 0), sizeof(big));
	fx_loop_until(&server.n_closed, 1);
	ck_assert_int_eq(server.code, -EMSGSIZE);
	ck_assert_int_eq(server.n_msg, 0);
	close(sv[1]);
}
END_TEST

static void leave_stale(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strcpy(sa.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(fd);
}

START_TEST(a_stale_socket_is_replaced_a_live_one_is_not)
{
	struct side server = {0};
	struct wb_seq_listen_opts o = {.path = fx_loop_path("s")};
	struct wb_seq_listener *l, *second_one;
	struct wb_err err = {0};
	struct stat st;

	leave_stale(o.path);
	ck_assert_msg(!wb_seq_listen(fx_loop, &o, side_accept, &server, &l, &err), "%s", err.msg);
	ck_assert_int_eq(stat(o.path, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(
		wb_seq_listen(fx_loop, &o, side_accept, &server, &second_one, &err), -EADDRINUSE);
	ck_assert_msg(strstr(err.msg, "another process answers") != NULL, "%s", err.msg);
	ck_assert_int_eq(stat(o.path, &st), 0);
	/* Somebody replaced our file: closing leaves theirs alone. */
	unlink(o.path);
	leave_stale(o.path);
	/* The second one's question was a connection that is gone again. */
	fx_loop_until(&server.n_closed, 1);
	wb_seq_listener_close(l);
	ck_assert_int_eq(stat(o.path, &st), 0);
}
END_TEST

/* This process may open so many descriptors more; returns the limit as it was. */
static struct rlimit allow_descriptors(int n)
{
	int fd[8], most = 0;
	struct rlimit was, few;

	ck_assert_int_le(n, (int)WB_ARRAY_SIZE(fd));
	for (int i = 0; i < n; i++) {
		fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		ck_assert_int_ge(fd[i], 0);
		most = WB_MAX(most, fd[i]);
	}
	while (n--)
		close(fd[n]);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = (struct rlimit){(rlim_t)most + 1, was.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	return was;
}

#define NOBODY 65534

static const struct {
	mode_t mode; /* of a file that a dead process left */
	int descriptors; /* that may be opened; 0 = enough */
	int rc;
	const char *words;
} unknown[] = {
	{0, 0, -EACCES, "(Permission denied)"},
	{0600, 2, -EMFILE, "(Too many open files)"},
};

START_TEST(a_socket_that_cannot_be_asked_is_not_said_to_answer)
{
	struct wb_seq_listen_opts o = {.path = fx_loop_path("s")};
	bool is_root = geteuid() == 0;
	struct wb_seq_listener *l;
	struct wb_err err = {0};
	struct rlimit was = {0};
	int rc;

	if (is_root) /* who may all is asked no permission */
		ck_assert_int_eq(chown(fx_dir, NOBODY, (gid_t)-1) || seteuid(NOBODY), 0);
	leave_stale(o.path);
	ck_assert_int_eq(chmod(o.path, unknown[_i].mode), 0);
	if (unknown[_i].descriptors)
		was = allow_descriptors(unknown[_i].descriptors);
	rc = wb_seq_listen(fx_loop, &o, side_accept, NULL, &l, &err);
	if (unknown[_i].descriptors)
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	if (is_root)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_msg(rc == unknown[_i].rc, "%d: %s", rc, err.msg);
	ck_assert_msg(strstr(err.msg, "cannot be found out") && strstr(err.msg, unknown[_i].words),
		"%s", err.msg);
	ck_assert_int_eq(access(o.path, F_OK), 0);
}
END_TEST

START_TEST(agents_that_start_together_in_one_folder_wait_for_each_other)
{
	struct wb_seq_listen_opts o = {.path = fx_loop_path("s"), .mode = 0600};
	struct wb_seq_listener *l = NULL;
	struct wb_err err = {0};
	char copy[600];
	int at[2];

	snprintf(copy, sizeof(copy), "%s", o.path);
	*strrchr(copy, '/') = '\0';
	ck_assert_int_eq(pipe(at), 0);
	if (!fork()) { /* the other one is between its look and its bind */
		int fd = open(copy, O_RDONLY | O_DIRECTORY);

		_exit(flock(fd, LOCK_EX) || write(at[1], "x", 1) != 1 || usleep(50000));
	}
	ck_assert_int_eq(read(at[0], copy, 1), 1);
	ck_assert_msg(wb_seq_listen(fx_loop, &o, side_accept, NULL, &l, &err) == 0, "%s", err.msg);
	wb_seq_listener_close(l);
	wait(NULL);
	close(at[0]);
	close(at[1]);
}
END_TEST

START_TEST(a_file_in_the_way_or_a_long_path_is_refused)
{
	struct wb_seq_listen_opts o = {.path = fx_loop_path("f")};
	struct wb_seq_listener *l;
	struct wb_err err = {0};
	char path[200];

	close(open(o.path, O_CREAT | O_WRONLY, 0600));
	ck_assert_int_eq(wb_seq_listen(fx_loop, &o, side_accept, NULL, &l, &err), -EEXIST);
	ck_assert_msg(strstr(err.msg, "no socket") != NULL, "%s", err.msg);
	ck_assert_int_eq(access(o.path, F_OK), 0);
	memset(path, 'x', sizeof(path));
	path[199] = '\0';
	o.path = path;
	ck_assert_int_eq(wb_seq_listen(fx_loop, &o, side_accept, NULL, &l, &err), -ENAMETOOLONG);
	o.path = fx_loop_path("no/such/folder");
	ck_assert_int_eq(wb_seq_listen(fx_loop, &o, side_accept, NULL, &l, &err), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net seq");
	TCase *t = tcase_create("seq");

	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_test(t, two_processes_share_memory_by_a_descriptor);
	tcase_add_test(t, the_peer_is_known_and_descriptors_not_kept_are_closed);
	tcase_add_loop_test(t, the_end_of_a_process_is_told_from_that_of_its_connection, 0, 2);
	tcase_add_test(t, a_peer_that_does_not_read_is_eagain_and_later_gets_all_in_order);
	tcase_add_loop_test(t, the_last_word_of_a_peer_is_heard, 0, 4);
	tcase_add_test(t, a_datagram_above_the_limit_ends_the_connection);
	tcase_add_test(t, a_stale_socket_is_replaced_a_live_one_is_not);
	tcase_add_loop_test(t, a_socket_that_cannot_be_asked_is_not_said_to_answer, 0,
		(int)WB_ARRAY_SIZE(unknown));
	tcase_add_test(t, agents_that_start_together_in_one_folder_wait_for_each_other);
	tcase_add_test(t, a_file_in_the_way_or_a_long_path_is_refused);
	suite_add_tcase(s, t);
	return fx_run(s);
}
