/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/http.h"
#include "net/internal.h"
#include "net/loop.h"
#include "net/psk.h"
#include "net/seq.h"
#include "tests/common/fx_check.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wb_loop *loop;
static char dir[256];

static void set_up(void)
{
	const char *tmp = getenv("TMPDIR");

	/* Short: a socket's path has 107 bytes. */
	snprintf(dir, sizeof(dir), "%s/wbn-XXXXXX", tmp && strlen(tmp) < 70 ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(wb_loop_create(&loop, NULL), 0);
}

static void tear_down(void)
{
	char cmd[512];

	wb_loop_destroy(loop);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static char *path_of(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void too_late(void *cookie)
{
	*(bool *)cookie = true;
}

/* Run the loop until *@p >= @n. */
static void run_until(const int *p, int n)
{
	struct wb_timer *t;
	bool late = false;

	ck_assert_int_eq(wb_timer_create(loop, too_late, &late, &t), 0);
	wb_timer_start(t, 20 * WB_NS_PER_S, 0);
	while (*p < n && !late)
		wb_loop_run_once(loop, true);
	wb_timer_destroy(t);
	ck_assert_msg(*p >= n, "still at %d of %d after 20 s", *p, n);
}

static void count(void *cookie)
{
	++*(int *)cookie;
}

/* ---- loop ------------------------------------------------------------------------------------ */

static int seen[4], n_seen;
static void note(void *cookie)
{
	seen[n_seen++] = *(int *)cookie;
}

START_TEST(deferred_calls_run_in_order_and_never_inside)
{
	int one = 1, two = 2;

	n_seen = 0;
	ck_assert_int_eq(wb_loop_defer(loop, note, &one), 0);
	ck_assert_int_eq(wb_loop_defer(loop, note, &two), 0);
	ck_assert_int_eq(n_seen, 0);
	wb_loop_run(loop);
	ck_assert(n_seen == 2 && seen[0] == 1 && seen[1] == 2);
}
END_TEST

static void again(void *cookie)
{
	int *n = cookie;

	if (++*n < 5)
		wb_loop_defer(loop, again, n);
}

START_TEST(a_deferred_call_may_defer_the_next)
{
	int n = 0;

	ck_assert_int_eq(wb_loop_defer(loop, again, &n), 0);
	wb_loop_run_once(loop, false);
	ck_assert_int_eq(n, 1);
	wb_loop_run(loop);
	ck_assert_int_eq(n, 5);
}
END_TEST

static struct wb_timer *self_timer;
static void destroy_self(void *cookie)
{
	++*(int *)cookie;
	wb_timer_destroy(self_timer);
}

START_TEST(timers_fire_repeat_stop_and_may_destroy_themselves)
{
	int once = 0, often = 0, never = 0;
	struct wb_timer *a, *b;

	wb_timer_create(loop, destroy_self, &once, &self_timer);
	wb_timer_create(loop, count, &often, &a);
	wb_timer_create(loop, count, &never, &b);
	wb_timer_start(self_timer, 1, 0);
	wb_timer_start(a, WB_NS_PER_MS, WB_NS_PER_MS);
	wb_timer_start(b, WB_NS_PER_MS, 0);
	ck_assert(wb_timer_is_running(b));
	wb_timer_stop(b);
	ck_assert(!wb_timer_is_running(b));
	run_until(&often, 3);
	ck_assert_int_eq(once, 1);
	ck_assert_int_eq(never, 0);
	wb_timer_destroy(a);
	wb_timer_destroy(b);
	wb_timer_destroy(NULL);
}
END_TEST

struct ev {
	int fd, n;
	uint64_t sum;
};
static void eventfd_fired(void *cookie, int events)
{
	struct ev *e = cookie;

	ck_assert_int_eq(events, WB_READABLE);
	eventfd_t n = 0;

	ck_assert_int_eq(eventfd_read(e->fd, &n), 0);
	e->sum += n;
	e->n++;
}

START_TEST(an_eventfd_wakes_the_loop)
{
	struct ev e = {eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), 0, 0};
	struct wb_watch *w;

	ck_assert_int_eq(wb_watch_create(loop, e.fd, WB_READABLE, eventfd_fired, &e, &w), 0);
	ck_assert_int_eq(eventfd_write(e.fd, 1), 0);
	ck_assert_int_eq(eventfd_write(e.fd, 1), 0);
	run_until(&e.n, 1);
	ck_assert_uint_eq(e.sum, 2);
	wb_watch_destroy(w);
	close(e.fd);
}
END_TEST

struct answer {
	int fd;
	int is_read, is_due;
};

static void busy_for_long(void *cookie)
{
	const struct answer *a = cookie;
	uint64_t end = wb_now_ns(&wb_clock_real) + 100 * WB_NS_PER_MS;

	ck_assert_int_eq(write(a->fd, &(uint64_t){1}, 8), 8);
	while (wb_now_ns(&wb_clock_real) < end)
		;
}

static void answer_read(void *cookie, int events)
{
	struct answer *a = cookie;
	uint64_t n;

	(void)events;
	ck_assert_int_eq(read(a->fd, &n, 8), 8);
	a->is_read = 1;
}

static void answer_due(void *cookie)
{
	struct answer *a = cookie;

	a->is_due = 1;
	ck_assert(a->is_read);
}

/* Whether the process was stopped or the loop busy: the answer had come in time. */
START_TEST(a_deadline_is_judged_after_what_came_while_nobody_looked)
{
	struct answer a = {.fd = eventfd(0, EFD_NONBLOCK)};
	struct wb_timer *busy, *due;
	struct wb_watch *w;

	ck_assert_int_eq(wb_watch_create(loop, a.fd, WB_READABLE, answer_read, &a, &w), 0);
	wb_timer_create(loop, busy_for_long, &a, &busy);
	wb_timer_create(loop, answer_due, &a, &due);
	wb_timer_start(busy, WB_NS_PER_MS, 0);
	wb_timer_start(due, 10 * WB_NS_PER_MS, 0);
	run_until(&a.is_due, 1);
	wb_watch_destroy(w);
	wb_timer_destroy(busy);
	wb_timer_destroy(due);
	close(a.fd);
}
END_TEST

static void slow(void *cookie)
{
	uint64_t end = wb_now_ns(&wb_clock_real) + 5 * WB_NS_PER_MS;

	while (wb_now_ns(&wb_clock_real) < end)
		;
	count(cookie);
}

START_TEST(the_lag_is_the_time_of_the_callbacks)
{
	struct wb_loop_lag lag;
	struct wb_timer *t;
	int n = 0;

	wb_timer_create(loop, slow, &n, &t);
	wb_loop_run_once(loop, false); /* what comes before the first turn belongs to none */
	wb_timer_start(t, WB_NS_PER_MS, 0);
	run_until(&n, 1);
	wb_timer_start(t, 20 * WB_NS_PER_MS, 0);
	wb_loop_run_once(loop, false);
	wb_loop_lag(loop, &lag);
	ck_assert_uint_ge(lag.busy_max_ns, 5 * WB_NS_PER_MS);
	ck_assert_uint_ge(lag.busy_ns, lag.busy_max_ns);
	wb_loop_lag(loop, &lag);
	ck_assert_uint_eq(lag.busy_max_ns, 0);
	wb_timer_destroy(t);
}
END_TEST

struct job {
	int work, done;
};
static void job_work(void *cookie)
{
	((struct job *)cookie)->work = 1;
}
static void job_done(void *cookie)
{
	struct job *j = cookie;

	ck_assert_int_eq(j->work, 1);
	j->done = 1;
}

START_TEST(work_runs_on_the_pool_and_signals_arrive)
{
	struct job job = {0, 0};
	struct wb_signal *s;
	int signals = 0;

	ck_assert_int_eq(wb_loop_work(loop, job_work, job_done, &job), 0);
	run_until(&job.done, 1);
	ck_assert_int_eq(wb_signal_create(loop, SIGUSR1, count, &signals, &s), 0);
	raise(SIGUSR1);
	run_until(&signals, 1);
	wb_signal_destroy(s);
}
END_TEST

/* ---- datagrams ------------------------------------------------------------------------------- */

struct side {
	struct wb_seq *s;
	int n_msg, n_closed, kept_fd, accepted;
	size_t bytes;
	uint32_t n_fd;
	char last[64];
	int code;
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

	(void)s;
	d->n_closed++;
	d->code = why->code;
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
	struct wb_seq_listen_opts o = {.path = path_of(name), .mode = 0666};
	struct wb_seq_listener *l;
	struct wb_err err = {0};

	ck_assert_msg(!wb_seq_listen(loop, &o, side_accept, server, &l, &err), "%s", err.msg);
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

	ck_assert_int_eq(stat(path_of("s"), &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0666);
	pid = fork();
	if (!pid) {
		struct wb_loop *own;
		struct wb_seq *s;
		int fd = memfd_create("m", MFD_CLOEXEC);

		if (wb_loop_create(&own, NULL) || ftruncate(fd, 4096) ||
			pwrite(fd, "from the child", 15, 0) != 15 || dial(own, path_of("s"), &s) ||
			wb_seq_send(s, "hello", 6, &fd, 1))
			_exit(1);
		wb_seq_close(s);
		wb_loop_run(own);
		_exit(0);
	}
	run_until(&server.n_closed, 1);
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
	ck_assert_int_eq(stat(path_of("s"), &st), -1);
}
END_TEST

START_TEST(the_peer_is_known_and_descriptors_not_kept_are_closed)
{
	struct side server = {.kept_fd = -1}, client = {.kept_fd = -1};
	struct wb_seq_listener *l = listen_on("s", &server);
	int fds[WB_SEQ_FDS_MAX + 1], before;
	struct wb_seq *s;

	ck_assert_int_eq(dial(loop, path_of("s"), &s), 0);
	side_bind(&client, s);
	run_until(&server.accepted, 1);
	ck_assert_int_eq(wb_seq_peer(server.s)->pid, getpid());
	ck_assert_uint_eq(wb_seq_peer(server.s)->uid, getuid());
	before = n_open_fds();
	for (int i = 0; i < WB_SEQ_FDS_MAX + 1; i++)
		fds[i] = 0;
	ck_assert_int_eq(wb_seq_send(s, "x", 1, fds, WB_SEQ_FDS_MAX + 1), -EMSGSIZE);
	ck_assert_int_eq(wb_seq_send(s, "x", 0, NULL, 0), -EMSGSIZE);
	ck_assert_int_eq(wb_seq_send(s, fds, WB_SEQ_BYTES_MAX + 1, NULL, 0), -EMSGSIZE);
	ck_assert_int_eq(wb_seq_send(s, "x", 1, fds, WB_SEQ_FDS_MAX), 0);
	run_until(&server.n_msg, 1);
	ck_assert_uint_eq(server.n_fd, WB_SEQ_FDS_MAX);
	ck_assert_int_eq(n_open_fds(), before + 1);
	close(server.kept_fd);
	wb_seq_close(server.s);
	ck_assert_int_eq(wb_seq_send(server.s, "x", 1, NULL, 0), -ENOTCONN);
	run_until(&client.n_closed, 1);
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
	ck_assert_int_eq(wb_seq_adopt(loop, sv[0], 300000, &s, NULL), 0);
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
			wb_loop_run_once(loop, true);
	}
	run_until(&server.n_closed, 1);
	ck_assert_int_eq(server.code, 0);
	close(sv[1]);
	ck_assert_int_eq(n_open_fds(), before);
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
	ck_assert_int_eq(wb_seq_adopt(loop, sv[0], 0, &s, NULL), 0);
	side_bind(&server, s);
	ck_assert_int_eq(send(sv[1], big, sizeof(big), 0), sizeof(big));
	run_until(&server.n_closed, 1);
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
	struct wb_seq_listen_opts o = {.path = path_of("s")};
	struct wb_seq_listener *l, *second_one;
	struct wb_err err = {0};
	struct stat st;

	leave_stale(o.path);
	ck_assert_msg(!wb_seq_listen(loop, &o, side_accept, &server, &l, &err), "%s", err.msg);
	ck_assert_int_eq(stat(o.path, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(
		wb_seq_listen(loop, &o, side_accept, &server, &second_one, &err), -EADDRINUSE);
	ck_assert_msg(strstr(err.msg, "another process answers") != NULL, "%s", err.msg);
	ck_assert_int_eq(stat(o.path, &st), 0);
	/* Somebody replaced our file: closing leaves theirs alone. */
	unlink(o.path);
	leave_stale(o.path);
	/* The second one's question was a connection that is gone again. */
	run_until(&server.n_closed, 1);
	wb_seq_listener_close(l);
	ck_assert_int_eq(stat(o.path, &st), 0);
}
END_TEST

START_TEST(agents_that_start_together_in_one_folder_wait_for_each_other)
{
	struct wb_seq_listen_opts o = {.path = path_of("s"), .mode = 0600};
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
	ck_assert_msg(wb_seq_listen(loop, &o, side_accept, NULL, &l, &err) == 0, "%s", err.msg);
	wb_seq_listener_close(l);
	wait(NULL);
	close(at[0]);
	close(at[1]);
}
END_TEST

START_TEST(a_file_in_the_way_or_a_long_path_is_refused)
{
	struct wb_seq_listen_opts o = {.path = path_of("f")};
	struct wb_seq_listener *l;
	struct wb_err err = {0};
	char path[200];

	close(open(o.path, O_CREAT | O_WRONLY, 0600));
	ck_assert_int_eq(wb_seq_listen(loop, &o, side_accept, NULL, &l, &err), -EEXIST);
	ck_assert_msg(strstr(err.msg, "no socket") != NULL, "%s", err.msg);
	ck_assert_int_eq(access(o.path, F_OK), 0);
	memset(path, 'x', sizeof(path));
	path[199] = '\0';
	o.path = path;
	ck_assert_int_eq(wb_seq_listen(loop, &o, side_accept, NULL, &l, &err), -ENAMETOOLONG);
	o.path = path_of("no/such/folder");
	ck_assert_int_eq(wb_seq_listen(loop, &o, side_accept, NULL, &l, &err), -ENOENT);
}
END_TEST

/* ---- keys ------------------------------------------------------------------------------------ */

static void write_key(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
	ck_assert_int_eq(chmod(path, mode), 0);
}

#define HEX32 "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"

static const struct {
	const char *text;
	mode_t mode;
	int rc;
	const char *word;
} key_file[] = {
	{HEX32 "\n", 0600, 0, NULL},
	{"  " HEX32 HEX32 " \r\n", 0400, 0, NULL},
	{HEX32, 0640, -EPERM, "chmod 600 "},
	{HEX32, 0604, -EPERM, "mode 0604"},
	{HEX32, 0620, -EPERM, "chmod 600 "},
	{"0001", 0600, -EBADMSG, "openssl rand -hex 32"},
	{HEX32 "0", 0600, -EBADMSG, "64 to 128 hex digits"},
	{HEX32 HEX32 "00", 0600, -EBADMSG, "64 to 128 hex digits"},
	{HEX32 "\n" HEX32, 0600, -EBADMSG, "hex"},
	{"", 0600, -EBADMSG, "hex"},
};

START_TEST(a_key_file_is_private_hex_or_refused_with_the_fix)
{
	struct wb_psk k = {.bytes = 7};
	struct wb_err err = {0};
	int rc;

	write_key(path_of("key"), key_file[_i].text, key_file[_i].mode);
	rc = wb_psk_read(path_of("key"), "default/llm", &k, &err);
	ck_assert_msg(rc == key_file[_i].rc, "%d: %s", rc, err.msg);
	if (rc) {
		ck_assert_msg(strstr(err.msg, key_file[_i].word) != NULL, "%s", err.msg);
		ck_assert_msg(!strstr(err.msg, "0a0b0c"), "the key is in: %s", err.msg);
		ck_assert_uint_eq(k.bytes, 7);
		return;
	}
	ck_assert_uint_eq(k.bytes, strlen(key_file[_i].text) > 100 ? 64 : 32);
	for (uint8_t i = 0; i < 32; i++)
		ck_assert_uint_eq(k.key[i], i);
	ck_assert_str_eq(k.id, "default/llm");
}
END_TEST

START_TEST(a_missing_or_foreign_key_file_says_what_to_run)
{
	struct wb_err err = {0};
	struct wb_psk k;

	ck_assert_int_eq(wb_psk_read(path_of("nokey"), "x", &k, &err), -ENOENT);
	ck_assert_msg(strstr(err.msg, "umask 077") != NULL, "%s", err.msg);
	ck_assert_int_eq(wb_psk_read(dir, "x", &k, &err) < 0, 1);
	ck_assert_int_eq(wb_psk_read(path_of("nokey"), "", &k, &err), -EINVAL);
	if (geteuid() != 0)
		return;
	write_key(path_of("key"), HEX32, 0600);
	ck_assert_int_eq(chown(path_of("key"), 1234, 1234), 0);
	ck_assert_int_eq(wb_psk_read(path_of("key"), "x", &k, &err), -EPERM);
	ck_assert_msg(strstr(err.msg, "belongs to user 1234") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(hmac_gives_the_published_value)
{
	uint8_t mac[WB_MAC_BYTES], want[WB_MAC_BYTES];

	ck_assert_int_eq(wb_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, mac), 0);
	ck_assert_int_eq(
		wb_hex_parse("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
			want, sizeof(want)),
		0);
	ck_assert(wb_bytes_equal(mac, want, sizeof(mac)));
	ck_assert_int_eq(wb_hex_parse("0g", mac, 1), -EINVAL);
	ck_assert_int_eq(wb_hex_parse("0a1", mac, 1), -EINVAL);
	ck_assert(wb_bytes_equal("ab", "ab", 2) && !wb_bytes_equal("ab", "ac", 2));
	ck_assert_int_eq(wb_random_bytes(mac, sizeof(mac)), 0);
}
END_TEST

/* ---- http ------------------------------------------------------------------------------------ */

struct get {
	uint16_t port;
	const char *request;
	char reply[4096];
	int done;
};

/* On the pool: it waits for the server, which is on the loop. */
static void get(void *cookie)
{
	struct get *g = cookie;
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(g->port)};
	size_t at = 0;
	ssize_t n;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
		write(fd, g->request, strlen(g->request)) > 0)
		while ((n = read(fd, g->reply + at, sizeof(g->reply) - 1 - at)) > 0)
			at += (size_t)n;
	close(fd);
}

static void got(void *cookie)
{
	((struct get *)cookie)->done++;
}

static int serve(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *q = wb_http_query(rq, "name"), *sentence;
	int rc;

	(void)cookie;
	if (!strcmp(path, "/bad"))
		return -EIO;
	if (!strcmp(path, "/known")) { /* what it would wait for is there */
		if (!wb_http_outcome(rq, &rc, &sentence)) {
			wb_http_go_on(wb_http_hold(rq), -EPERM, "not you");
			return -EINPROGRESS;
		}
		r->status = 403;
		wb_buf_printf(&r->body, "%d %s\n", rc, sentence);
		return 0;
	}
	if (strcmp(path, "/metrics"))
		return -ENOENT;
	if (q)
		r->status = 503;
	wb_buf_printf(&r->body, "wb_up{name=\"%s\"} 1\n", q ? q : "-");
	return 0;
}

static const struct wb_http_opts http_opts = {.host = "127.0.0.1", .fn = serve};

static const struct {
	const char *request, *status, *body;
} gets[] = {
	{"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\nwb_up{name=\"-\"} 1\n"},
	{"GET /metrics?name=a%20b HTTP/1.0\r\n\r\n", "503", "{name=\"a b\"}"},
	{"GET /no HTTP/1.0\r\n\r\n", "404", "404 Not Found"},
	{"GET /bad HTTP/1.0\r\n\r\n", "500", "Input/output error"},
	{"GET /known HTTP/1.0\r\n\r\n", "403", "-1 not you"},
	{"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "405", "only GET"},
	{"GET metrics HTTP/1.0\r\n\r\n", "400", "not an address"},
	{"rubbish\r\n\r\n", "", ""},
};

START_TEST(http_answers_get_and_nothing_else)
{
	struct get g = {.request = gets[_i].request};
	struct wb_err err = {0};
	struct wb_http *h;

	ck_assert_msg(!wb_http_start(loop, &http_opts, &h, &err), "%s", err.msg);
	g.port = wb_http_port(h);
	ck_assert_uint_ne(g.port, 0);
	ck_assert_int_eq(wb_loop_work(loop, get, got, &g), 0);
	run_until(&g.done, 1);
	ck_assert_msg(strstr(g.reply, gets[_i].status) != NULL, "%s", g.reply);
	ck_assert_msg(strstr(g.reply, gets[_i].body) != NULL, "%s", g.reply);
	wb_http_stop(h);
}
END_TEST

START_TEST(a_port_in_use_is_said_with_its_address)
{
	struct wb_http_opts o = http_opts;
	struct wb_http *h, *g;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_http_start(loop, &http_opts, &h, &err), 0);
	o.port = wb_http_port(h);
	ck_assert_int_lt(wb_http_start(loop, &o, &g, &err), 0);
	ck_assert_msg(strstr(err.msg, "127.0.0.1:") != NULL, "%s", err.msg);
	wb_http_stop(h);
	o.host = "";
	o.port = 0;
	ck_assert_msg(!wb_http_start(loop, &o, &h, &err), "%s", err.msg);
	wb_http_stop(h);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net");
	TCase *t = tcase_create("loop");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, deferred_calls_run_in_order_and_never_inside);
	tcase_add_test(t, a_deferred_call_may_defer_the_next);
	tcase_add_test(t, timers_fire_repeat_stop_and_may_destroy_themselves);
	tcase_add_test(t, a_deadline_is_judged_after_what_came_while_nobody_looked);
	tcase_add_test(t, an_eventfd_wakes_the_loop);
	tcase_add_test(t, the_lag_is_the_time_of_the_callbacks);
	tcase_add_test(t, work_runs_on_the_pool_and_signals_arrive);
	suite_add_tcase(s, t);
	t = tcase_create("seq");
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, two_processes_share_memory_by_a_descriptor);
	tcase_add_test(t, the_peer_is_known_and_descriptors_not_kept_are_closed);
	tcase_add_test(t, a_peer_that_does_not_read_is_eagain_and_later_gets_all_in_order);
	tcase_add_test(t, a_datagram_above_the_limit_ends_the_connection);
	tcase_add_test(t, a_stale_socket_is_replaced_a_live_one_is_not);
	tcase_add_test(t, agents_that_start_together_in_one_folder_wait_for_each_other);
	tcase_add_test(t, a_file_in_the_way_or_a_long_path_is_refused);
	suite_add_tcase(s, t);
	t = tcase_create("psk");
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(
		t, a_key_file_is_private_hex_or_refused_with_the_fix, 0, WB_ARRAY_SIZE(key_file));
	tcase_add_test(t, a_missing_or_foreign_key_file_says_what_to_run);
	tcase_add_test(t, hmac_gives_the_published_value);
	suite_add_tcase(s, t);
	t = tcase_create("http");
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, http_answers_get_and_nothing_else, 0, WB_ARRAY_SIZE(gets));
	tcase_add_test(t, a_port_in_use_is_said_with_its_address);
	suite_add_tcase(s, t);
	return fx_run(s);
}
