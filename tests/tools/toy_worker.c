/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toy_worker - a worker with made-up weights, for tests of whole processes.
 *
 *	toy_worker --socket PATH --role trainer|rollout [--engine NAME] --index I --of N
 *		[--cut rows|cols] [--rows R] [--cols C] [--tensors T] [--heap] [--rank K]
 *		[--object NS/NAME] [--hook-ms N] [--step-ms N] [--collective FILE] [--wait]
 *		[--scribble] [--watch] [--term] [--device legacy|ipc|vmm] [--late MS]
 *
 * The model is T matrices of R x C uint32 (as F32); element k of tensor t in version v is a hash of
 * (v, t, k), so every worker checks what it got by itself.  Part I of N of each matrix, cut by rows
 * or columns, is this worker's parameter.
 *
 * Commands on stdin, one a line; answers on stdout:
 *	fill V		parameters hold version V
 *	send V		fill, send_weights, wait until final	"sent V state=... seconds=..."
 *	doze V		send, and sleep as soon as that may be	"released V", "asleep", then as send
 *	hold V		the same with hold; returns at		"released V"
 *	release		ends the hold, overwrites the parameters "let go", then as send
 *	burst V W	sends V to W, each as soon as the one before has let the parameters go, then
 *			waits for all: "sent V ..." for each
 *	second V	send, and meanwhile again from two threads, which must be refused:
 *			"refused CODE sentence" twice, then as send
 *	vanish V	send, and exit without closing as soon as parameters may change
 *	leave V		the same, but closes in order	"bye"
 *	flip		changes one bit of the parameters	"flipped"
 *	check V		compare				"check V ok" or "check V bad: ..."
 *	hook MS		from now on each hook takes so long	"hooks MS"
 *	quit		close in order			"bye"
 * A rollout worker polls all the time and says "update V ok" (or bad) for each update, "hook V" in
 * hooks that take time, "none: ..." when one aborted.  Failures: "error CODE sentence".  End of
 * stdin: exit without closing.
 * --watch: says how long each update or send blocked the worker, and, by a thread that reads a
 * rollout's parameters all the time, when the first byte changed after before_update_hook.
 * sleep and wake: release the parameters' memory, and acquire other memory, filled with zeros.
 * --floats: elements are numbers from 1 to 2 and their negatives (all workers, for the next one)
 * --round: a rollout's parameters are BF16: what it holds is not what was sent
 * --device: parameters lie on GPU 0, allocated by cudaMalloc, by cudaMalloc in whole blocks, or
 *	by expandable segments.
 * --late: with --device, new values are on the GPU MS after they were asked for.
 * --scribble: a trainer overwrites its parameters as soon as they are released.
 * --term: SIGTERM ends it in order between two commands or polls, as "quit" does.
 */
#include "base/base.h"
#include "base/clock.h"
#include "tests/tools/toy/toy.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void toy_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

void toy_must(int rc, const char *what, const char *sentence)
{
	if (rc >= 0)
		return;
	toy_say("error %d %s: %s", rc, what, sentence);
	exit(1);
}

uint64_t toy_now(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void command(struct toy *t, const char *line)
{
	long long v = 0, to = 0;

	if (sscanf(line, "burst %lld %lld", &v, &to) == 2) {
		toy_burst(t, v, to);
	} else if (sscanf(line, "fill %lld", &v) == 1) {
		toy_fill(t, v);
		toy_say("filled %lld", v);
	} else if (sscanf(line, "send %lld", &v) == 1) {
		toy_send(t, v);
	} else if (sscanf(line, "sendonly %lld", &v) == 1) { /* without parameters */
		toy_send_only(t, v);
	} else if (sscanf(line, "vanish %lld", &v) == 1) {
		toy_send_and_go(t, v, false);
	} else if (sscanf(line, "leave %lld", &v) == 1) {
		toy_send_and_go(t, v, true);
	} else if (sscanf(line, "second %lld", &v) == 1) {
		toy_send_thrice(t, v);
	} else if (sscanf(line, "hold %lld", &v) == 1) {
		toy_hold(t, v);
	} else if (sscanf(line, "doze %lld", &v) == 1) {
		toy_doze(t, v);
	} else if (!strncmp(line, "release", 7) && t->held) {
		toy_release(t);
	} else if (sscanf(line, "check %lld", &v) == 1) {
		toy_say_checked(t, "check", v);
	} else if (!strncmp(line, "sleep", 5)) {
		toy_sleep(t);
	} else if (!strncmp(line, "wake", 4)) {
		toy_wake(t);
	} else if (!strncmp(line, "flip", 4)) {
		t->data[0] ^= 1;
		toy_say("flipped");
	} else if (sscanf(line, "hook %lld", &v) == 1) {
		t->hook_ms = (uint32_t)v;
		toy_say("hooks %lld", v);
	} else if (!strncmp(line, "quit", 4)) {
		toy_quit(t);
	}
}

static void nap(uint32_t ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

	(void)nanosleep(&ts, NULL);
}

static int hook(void *cookie, const struct wb_client_update *u)
{
	const struct toy *t = cookie;

	toy_say("hook %lld", (long long)u->version);
	nap(t->hook_ms);
	return 0;
}

/* A step of the engine: it takes a random time, and with --collective PATH no worker begins the
 * next before all have ended it (counters in a file that the engine's workers share). */
static void step(struct toy *t)
{
	if (t->step_ms)
		nap((uint32_t)wb_rng_below(&t->rng, t->step_ms + 1));
	t->polls++;
	if (!t->steps)
		return;
	__atomic_store_n(&t->steps[t->index], t->polls, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < t->of; i++)
		while (__atomic_load_n(&t->steps[i], __ATOMIC_ACQUIRE) < t->polls)
			nap(1);
}

static void poll_once(struct toy *t)
{
	struct wb_client_hooks hooks = {t->watches ? toy_before : hook, hook, t};
	struct wb_client_update u = {0};
	struct wb_error err = {0};
	int rc;

	if (t->waits) {
		t->polls++; /* a call, not a poll */
		rc = wb_client_update_wait(t->c, 1000000000, NULL, &u, &err);
	} else {
		step(t);
		rc = wb_client_poll_requests(
			t->c, t->hook_ms || t->watches ? &hooks : NULL, &u, &err);
	}
	if (rc == 1 && t->watches)
		toy_say_blocked(t, u.version);
	if (rc == 1 && t->step_ms)
		toy_say("stopped %lld at %llu", (long long)u.version, (unsigned long long)t->polls);
	if (rc == 1)
		toy_say_checked(t, "update", u.version);
	else if (rc < 0)
		toy_say("error %d poll: %s", rc, err.msg);
	else if (u.sentence[0])
		toy_say("none: %s", u.sentence);
	if (rc == -ECONNRESET)
		exit(1);
}

static volatile sig_atomic_t is_told;

static void on_term(int signal)
{
	(void)signal;
	is_told = 1;
}

static void run(struct toy *t)
{
	const struct timespec ms = {0, 1000000};
	struct sigaction sa = {.sa_handler = on_term};
	sigset_t term, none;
	char line[256];

	sigemptyset(&term);
	sigemptyset(&none);
	sigaddset(&term, SIGTERM);
	if (t->terms) { /* it comes while nothing is done, and interrupts nothing */
		sigprocmask(SIG_BLOCK, &term, NULL);
		sigaction(SIGTERM, &sa, NULL);
	}
	setvbuf(stdin, NULL, _IONBF, 0); /* what is read is what poll() knows */
	for (;;) {
		struct pollfd p = {.fd = 0, .events = POLLIN};
		int n = ppoll(&p, 1, t->role == WB_CLIENT_ROLLOUT ? &ms : NULL, &none);

		if (is_told)
			toy_quit(t);
		if (n > 0 && !fgets(line, sizeof(line), stdin))
			_exit(0);
		if (n > 0)
			command(t, line);
		if (t->role == WB_CLIENT_ROLLOUT)
			poll_once(t);
	}
}

static void parse_one(struct toy *t, int c)
{
	switch (c) {
	case 'r':
		t->role = strcmp(optarg, "rollout") ? WB_CLIENT_TRAINER : WB_CLIENT_ROLLOUT;
		break;
	case 'c':
		t->by_cols = !strcmp(optarg, "cols");
		break;
	case 'B':
		t->rounds = t->floats = true;
		break;
	case 'k':
		t->rank = atoi(optarg);
		break;
	default:
		exit(2);
	}
}

static void parse(int argc, char **argv, struct toy *t)
{
	static const struct option longs[] = {{"socket", 1, NULL, 's'}, {"role", 1, NULL, 'r'},
		{"engine", 1, NULL, 'e'}, {"index", 1, NULL, 'i'}, {"of", 1, NULL, 'n'},
		{"cut", 1, NULL, 'c'}, {"rows", 1, NULL, 'R'}, {"cols", 1, NULL, 'C'},
		{"tensors", 1, NULL, 'T'}, {"heap", 0, NULL, 'h'}, {"rank", 1, NULL, 'k'},
		{"object", 1, NULL, 'o'}, {"scribble", 0, NULL, 'x'}, {"watch", 0, NULL, 'w'},
		{"hook-ms", 1, NULL, 'H'}, {"step-ms", 1, NULL, 'S'}, {"collective", 1, NULL, 'L'},
		{"wait", 0, NULL, 'W'}, {"floats", 0, NULL, 'f'}, {"round", 0, NULL, 'B'},
		{"term", 0, NULL, 't'}, {"device", 1, NULL, 'd'}, {"late", 1, NULL, 'l'},
		{NULL, 0, NULL, 0}};
	struct {
		int c;
		uint32_t *number;
		bool *is;
		const char **text;
	} simple[] = {{'i', .number = &t->index}, {'n', .number = &t->of},
		{'R', .number = &t->rows}, {'C', .number = &t->cols}, {'T', .number = &t->tensors},
		{'H', .number = &t->hook_ms}, {'S', .number = &t->step_ms},
		{'l', .number = &t->late_ms}, {'w', .is = &t->watches}, {'h', .is = &t->is_heap},
		{'f', .is = &t->floats}, {'W', .is = &t->waits}, {'x', .is = &t->scribbles},
		{'t', .is = &t->terms}, {'s', .text = &t->socket}, {'e', .text = &t->engine},
		{'o', .text = &t->object}, {'L', .text = &t->collective},
		{'d', .text = &t->device}};
	int c;

	*t = (struct toy){.role = WB_CLIENT_TRAINER,
		.of = 1,
		.rows = 64,
		.cols = 64,
		.tensors = 2,
		.rank = -2,
		.fd = -1};
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		size_t i = 0;

		while (i < WB_ARRAY_SIZE(simple) && simple[i].c != c)
			i++;
		if (i < WB_ARRAY_SIZE(simple) && simple[i].number)
			*simple[i].number = (uint32_t)atoi(optarg);
		else if (i < WB_ARRAY_SIZE(simple) && simple[i].text)
			*simple[i].text = optarg;
		else if (i < WB_ARRAY_SIZE(simple))
			*simple[i].is = true;
		else
			parse_one(t, c);
	}
	if (t->rank == -2)
		t->rank = t->index;
	t->n_row = t->by_cols ? t->rows : t->rows / t->of;
	t->n_col = t->by_cols ? t->cols / t->of : t->cols;
	t->row0 = t->by_cols ? 0 : t->index * t->n_row;
	t->col0 = t->by_cols ? t->index * t->n_col : 0;
}

static void join(struct toy *t)
{
	int fd;

	t->rng.state = (uint64_t)getpid() << 20 ^ t->index;
	if (!t->collective)
		return;
	fd = open(t->collective, O_RDWR | O_CREAT, 0600);
	toy_must(fd, "collective", t->collective);
	toy_must(ftruncate(fd, 4096), "collective", t->collective);
	t->steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	toy_must(t->steps == MAP_FAILED ? -errno : 0, "collective", t->collective);
	close(fd);
}

int main(int argc, char **argv)
{
	struct toy t;

	parse(argc, argv, &t);
	toy_make_memory(&t);
	join(&t);
	toy_fill(&t, 0);
	toy_attach(&t);
	if (t.watches && t.role == WB_CLIENT_ROLLOUT) {
		pthread_t thread;

		toy_must(-pthread_create(&thread, NULL, toy_watch, &t), "watch", "thread");
		toy_watched(&t); /* it knows what there was before the first update */
	}
	run(&t);
	return 0;
}
