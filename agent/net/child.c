/* SPDX-License-Identifier: Apache-2.0 */
#include "net/child.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 512
#define UNKNOWN 0xff00 /* status of one that others have reaped: it did not end well */
#define REAP_MS 2000
#define READS_MAX 16 /* an event: one that writes faster than we read does not keep the loop */

/* What comes from one of its descriptors. */
struct stream {
	struct wb_child *c;
	struct wb_watch *watch;
	int fd; /* owned; -1 = none */
	char *text; /* owned; with a NUL */
	size_t len, max;
	bool is_cut;
};

struct wb_child {
	struct stream out, err;
	struct wb_watch *watch; /* of process */
	pid_t pid;
	int process; /* pidfd, owned; -1 = none */
	int status;
	bool is_over;
	wb_loop_fn on_news;
	void *cookie;
};

/* ---- what it says ----------------------------------------------------------------------------
 */

static void keep(struct stream *s, const char *data, size_t n)
{
	size_t room = s->max - s->len, take = WB_MIN(n, room);

	memcpy(s->text + s->len, data, take);
	s->len += take;
	s->text[s->len] = '\0';
	s->is_cut |= take < n;
}

static void end_stream(struct stream *s)
{
	wb_watch_destroy(s->watch);
	s->watch = NULL;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* At most so many reads.  True: something came. */
static bool read_some(struct stream *s, uint64_t reads)
{
	bool is_new = false;
	char data[4096];

	for (; s->fd >= 0 && reads; reads--) {
		ssize_t n = read(s->fd, data, sizeof(data));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			end_stream(s);
			break;
		}
		keep(s, data, (size_t)n);
		is_new = true;
	}
	return is_new;
}

static void stream_fired(void *cookie, int events)
{
	struct stream *s = cookie;
	struct wb_child *c = s->c;

	(void)events;
	if (read_some(s, READS_MAX))
		c->on_news(c->cookie);
}

const char *wb_child_output(const struct wb_child *c)
{
	return c->out.text;
}

bool wb_child_is_cut(const struct wb_child *c)
{
	return c->out.is_cut;
}

const char *wb_child_words(const struct wb_child *c)
{
	c->err.text[strcspn(c->err.text, "\r\n")] = '\0';
	return c->err.text;
}

/* ---- its end ---------------------------------------------------------------------------------
 */

/* @how: WNOHANG, or 0: until it has ended. */
static bool reap(struct wb_child *c, int how)
{
	pid_t got = 0;

	if (c->is_over || c->pid <= 0)
		return c->is_over;
	do
		got = waitpid(c->pid, &c->status, how);
	while (got < 0 && errno == EINTR);
	c->is_over = got != 0;
	if (got < 0) /* ECHILD: the kernel, or somebody in this process, has reaped it */
		c->status = UNKNOWN;
	return c->is_over;
}

/* All that is kept of what it left.  What others hold of its output, who may live on and write, is
 * not waited for. */
static void read_rest(struct stream *s)
{
	while (s->fd >= 0 && !s->is_cut && read_some(s, 1))
		;
	end_stream(s);
}

static void process_fired(void *cookie, int events)
{
	struct wb_child *c = cookie;

	(void)events;
	if (!reap(c, WNOHANG))
		return;
	wb_watch_set(c->watch, 0);
	read_rest(&c->out);
	read_rest(&c->err);
	c->on_news(c->cookie);
}

bool wb_child_is_over(const struct wb_child *c)
{
	return c->is_over;
}

bool wb_child_is_well(const struct wb_child *c)
{
	return c->is_over && WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0;
}

void wb_child_kill(struct wb_child *c)
{
	if (c->is_over || c->pid <= 0)
		return;
	/* A pidfd is never that of another process, whoever has reaped ours.  Some containers allow
	 * to open one and not to signal by it. */
	if (c->process < 0 ||
		(syscall(SYS_pidfd_send_signal, c->process, SIGKILL, NULL, 0) && errno != ESRCH))
		(void)kill(c->pid, SIGKILL);
}

static void stream_finish(struct stream *s)
{
	end_stream(s);
	wb_free(s->text);
}

void wb_child_destroy(struct wb_child *c)
{
	struct pollfd p;

	if (!c)
		return;
	wb_child_kill(c);
	p = (struct pollfd){.fd = c->process, .events = POLLIN};
	/* Without a pidfd it could not be followed, and has only just begun: its end is near. */
	if (!reap(c, c->process >= 0 ? WNOHANG : 0) && c->process >= 0) {
		(void)poll(&p, 1, REAP_MS);
		(void)reap(c, WNOHANG);
	}
	wb_watch_destroy(c->watch);
	if (c->process >= 0)
		close(c->process);
	stream_finish(&c->out);
	stream_finish(&c->err);
	wb_free(c);
}

/* ---- its beginning ---------------------------------------------------------------------------
 */

static int prepare(const int fd[3], posix_spawn_file_actions_t *files, posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int rc = 0;

	sigemptyset(&none);
	sigfillset(&all);
	for (int i = 0; i < 3 && !rc; i++)
		rc = posix_spawn_file_actions_adddup2(files, fd[i], i);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
	if (!rc) /* ours are closed by execve() as well; those of drivers may not be */
		rc = posix_spawn_file_actions_addclosefrom_np(files, 3);
#endif
	if (!rc)
		rc = posix_spawnattr_setsigmask(attr, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (!rc)
		rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return -rc;
}

static int spawn(struct wb_child *c, const struct wb_child_opts *o, const int fd[3])
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc = -posix_spawn_file_actions_init(&files);

	if (rc < 0)
		return rc;
	rc = -posix_spawnattr_init(&attr);
	if (rc == 0) {
		rc = prepare(fd, &files, &attr);
		if (rc == 0)
			rc = -posix_spawn(&c->pid, o->file, &files, &attr, o->argv, o->env);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&files);
	if (rc < 0)
		c->pid = 0;
	return rc;
}

static int follow(struct wb_child *c, struct wb_loop *loop)
{
	int rc;

	c->process = (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (c->process < 0)
		return -errno;
	rc = wb_watch_create(loop, c->process, WB_READABLE, process_fired, c, &c->watch);
	if (rc == 0)
		rc = wb_watch_create(
			loop, c->out.fd, WB_READABLE, stream_fired, &c->out, &c->out.watch);
	if (rc == 0)
		rc = wb_watch_create(
			loop, c->err.fd, WB_READABLE, stream_fired, &c->err, &c->err.watch);
	return rc;
}

/* Where SIGCHLD is ignored, which execve() hands down, the kernel reaps what ends, and nobody hears
 * how it did. */
static void want_children(void)
{
	struct sigaction now;

	if (sigaction(SIGCHLD, NULL, &now) < 0 ||
		(now.sa_handler != SIG_IGN && !(now.sa_flags & SA_NOCLDWAIT)))
		return;
	now = (struct sigaction){.sa_handler = SIG_DFL};
	(void)sigaction(SIGCHLD, &now, NULL);
}

/* The pipes, the program, and what it is to read. */
static int start(struct wb_child *c, struct wb_loop *loop, const struct wb_child_opts *o)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, said[2] = {-1, -1}, rc = 0;

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(said, O_CLOEXEC))
		rc = -errno;
	c->out.fd = out[0];
	c->err.fd = said[0];
	want_children();
	if (rc == 0)
		rc = spawn(c, o, (const int[]){in[0], out[1], said[1]});
	if (rc == 0) {
		wb_mem_offer(c->pid);
		rc = follow(c, loop);
	}
	/* One that has ended already is told of as any other. */
	if (rc == 0 && o->input_bytes)
		(void)!write(in[1], o->input, o->input_bytes);
	for (int i = 0; i < 2; i++)
		if (in[i] >= 0)
			close(in[i]);
	if (out[1] >= 0)
		close(out[1]);
	if (said[1] >= 0)
		close(said[1]);
	return rc;
}

static int keep_room(struct stream *s, struct wb_child *c, size_t max)
{
	s->c = c;
	s->fd = -1;
	s->max = max;
	s->text = wb_zalloc(1, max + 1);
	return s->text ? 0 : -ENOMEM;
}

int wb_child_start(struct wb_loop *loop, const struct wb_child_opts *o, struct wb_child **out,
	struct wb_err *err)
{
	struct wb_child *c = wb_zalloc(1, sizeof(*c));
	int rc;

	assert(o->input_bytes <= WB_CHILD_INPUT_MAX);
	if (!c)
		return wb_err_set(err, -ENOMEM, "no memory to start %s", o->file);
	c->process = -1;
	c->on_news = o->on_news;
	c->cookie = o->cookie;
	rc = keep_room(&c->out, c, o->output_max);
	if (keep_room(&c->err, c, WORDS_MAX) < 0)
		rc = -ENOMEM;
	if (rc < 0) {
		wb_free(c->out.text);
		wb_free(c->err.text);
		wb_free(c);
		return wb_err_set(err, rc, "no memory to start %s", o->file);
	}
	rc = start(c, loop, o);
	if (rc < 0) {
		wb_child_destroy(c);
		return wb_err_set(err, rc, "%s cannot be started: %s", o->file, strerror(-rc));
	}
	*out = c;
	return 0;
}
