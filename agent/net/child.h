/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_CHILD_H
#define WB_NET_CHILD_H
/*
 * A program that runs beside this process for a while: started, read and reaped from the loop.
 *
 * It gets a text on its standard input.  What it writes to standard output is kept up to a bound,
 * of standard error the beginning; what is more is read and thrown away, so that it never waits for
 * us.  It has no other descriptor of ours, and no signal blocked.
 *
 * Memory: where the kernel ends one process for want of it, it takes this one first.  Where it ends
 * all of a control group at once (memory.oom.group, as kubelet sets it for containers) it takes us
 * as well: who starts a program has to know that there is room for it.
 *
 * It is started without a copy of this process's memory (posix_spawn, which shares it until the new
 * program runs) and not by uv_spawn, which forks: a fork of a process with gigabytes takes long,
 * and before Linux 5.12 it lets a device and the process part ways over pages that are registered
 * with the device.
 *
 * Threads: the loop's.  Layer: net (L1).
 */
#include "net/loop.h"

#include <stddef.h>

struct wb_child;

#define WB_CHILD_INPUT_MAX 4096 /* as much as a pipe takes at once */

struct wb_child_opts {
	const char *file; /* path of the program */
	char *const *argv, *const *env; /* as execve() takes them */
	const char *input; /* borrowed for the call; then its standard input ends */
	size_t input_bytes;
	size_t output_max; /* bytes of its standard output that are kept */
	/* Called from the loop when it has written something, and once when it has ended. */
	wb_loop_fn on_news;
	void *cookie;
};

/** wb_child_start - start a program.  SIGCHLD, if it is ignored, is not any more: how the program
 *  ends could not be known.  0; -ENOENT, -EACCES, ... of the program, -ENOSYS (a kernel
 *  without pidfd), -EMFILE, -EAGAIN, -ENOMEM, with a sentence.  Release with wb_child_destroy(). */
int wb_child_start(struct wb_loop *loop, const struct wb_child_opts *o, struct wb_child **out,
	struct wb_err *err);
/** wb_child_output - what it has written to standard output so far; valid until the loop turns. */
const char *wb_child_output(const struct wb_child *c);
/** wb_child_is_cut - it has written more than is kept. */
bool wb_child_is_cut(const struct wb_child *c);
/** wb_child_words - the first line that it has written to standard error, or "". */
const char *wb_child_words(const struct wb_child *c);
/** wb_child_is_over - it has ended, and all that it has written is here, as far as it is kept. */
bool wb_child_is_over(const struct wb_child *c);
/** wb_child_is_well - it has ended by itself, with exit status 0; false where somebody else in this
 *  process has reaped it. */
bool wb_child_is_well(const struct wb_child *c);
/** wb_child_kill - SIGKILL; its end is told as any other.  Nothing when it is over. */
void wb_child_kill(struct wb_child *c);
/** wb_child_destroy - kill it if it is not over, and reap it: waits two seconds at most for that,
 *  and milliseconds as a rule.  on_news is not called any more.  NULL is allowed; may be called
 * from inside on_news. */
void wb_child_destroy(struct wb_child *c);

#endif
