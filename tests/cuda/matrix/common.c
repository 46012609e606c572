/* SPDX-License-Identifier: Apache-2.0 */
/* Lines and processes. */
#include "tests/cuda/matrix/matrix.h"

#include "base/base.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void mx_must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(MX_NO_RIGHT);
}

__attribute__((format(printf, 2, 3))) static void put(struct mx_line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	l->len = WB_MIN(l->len + (size_t)n, sizeof(l->text) - 1);
}

void mx_text(struct mx_line *l, const char *name, const char *value)
{
	put(l, "%s\"%s\": \"", l->len ? ", " : "{", name);
	for (; *value; value++)
		if (*value == '"' || *value == '\\')
			put(l, "\\%c", *value);
		else
			put(l, "%c", (unsigned char)*value < ' ' ? ' ' : *value);
	put(l, "\"");
}

void mx_number(struct mx_line *l, const char *name, double value)
{
	put(l, "%s\"%s\": %.10g", l->len ? ", " : "{", name, value);
}

void mx_say(struct mx_line *l)
{
	put(l, "}\n");
	if (write(STDOUT_FILENO, l->text, l->len) < 0)
		exit(1);
}

pid_t mx_fork(unsigned limit_s)
{
	pid_t pid = fork();

	mx_must(pid, "fork");
	if (pid)
		return pid;
	mx_must(prctl(PR_SET_PDEATHSIG, SIGKILL), "pdeathsig");
	(void)alarm(limit_s);
	return 0;
}

int mx_wait(pid_t pid)
{
	int status;

	mx_must(waitpid(pid, &status, 0), "wait");
	return status;
}

int mx_serve(void (*run)(int sock, int more), int more, pid_t *pid)
{
	int pair[2];

	mx_must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
	*pid = mx_fork(MX_LIMIT_S);
	if (!*pid) {
		close(pair[1]);
		run(pair[0], more);
	}
	close(pair[0]);
	return pair[1];
}
