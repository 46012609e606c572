/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl bench --listen: lends memory to one receiver, and tells what that cost here. */
#include "base/base.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/bench.h"
#include "ctl/json.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ANSWERS_MAX 1024 /* four connections of the deepest */
#define FIRST_WAIT_S 600.0 /* for somebody to come */
#define REJECTED_MAX 8 /* strangers that are told of */
#define EVENTS 64

/* One chunk that was asked for. */
struct answer {
	struct source *of;
	wb_conn_t conn;
	uint64_t grant;
	uint32_t cls;
	bool is_busy, is_unsent; /* busy: until WRITE_DONE; unsent: the transport had no room */
	struct iovec iov; /* where it begins, and all its bytes */
	struct wbk_sum sum;
};

struct source {
	struct wb__bench_end end;
	uint32_t n_rail, n_conn, n_unsent, n_rejected;
	uint64_t offset; /* of the next answer: the memory is gone through */
	uint64_t bytes; /* sent */
	uint64_t first_wait_ns; /* for somebody to come */
	bool is_through;
	char reason[WB_ERR_MSG_MAX]; /* of the last connection that went */
	struct iovec read[WB__BENCH_READS]; /* what a chunk of READs is of: one page, all over */
	struct answer answer[ANSWERS_MAX];
};

/* ---- answers (rail threads) --------------------------------------------------------------------
 */

static void observe(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	struct answer *a = ctx;

	wbk_sum_add(&a->of->end.keys, wire_off, data, bytes, &a->sum);
}

static void trailer(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	const struct answer *a = ctx;
	uint64_t word[4] = {a->sum.lane[0], a->sum.lane[1]};

	if (a->cls == WB__BENCH_FACTS) {
		word[0] = WB__BENCH_MAGIC;
		word[1] = a->of->n_rail;
		word[2] = a->of->end.bytes;
		word[3] = wb__bench_cpu_ns();
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(word); i++)
		word[i] = htole64(word[i]);
	memcpy(out, word, sizeof(word));
}

/* ---- answers (loop) ----------------------------------------------------------------------------
 */

static void send_answer(struct source *s, struct answer *a)
{
	struct wb_xport_write w = {.grant = a->grant,
		.cookie = (uint64_t)(a - s->answer),
		.iov = a->cls == WB__BENCH_READ ? s->read : &a->iov,
		.n_iov = a->cls == WB__BENCH_READ ? WB__BENCH_READS : 1,
		.observe = a->cls == WB__BENCH_SUMMED ? observe : NULL,
		.trailer = trailer,
		.ctx = a};
	int rc = wb_xport_write(s->end.x, a->conn, &w);

	s->n_unsent += (rc == -EAGAIN) - a->is_unsent;
	a->is_unsent = rc == -EAGAIN;
	a->is_busy = rc == 0 || rc == -EAGAIN; /* else nobody waits for it any more */
}

static bool has(const struct source *s, const struct wb_xport_chunk *c)
{
	if (c->cls == WB__BENCH_READ)
		return c->bytes == WB__BENCH_READS * WB__BENCH_READ_BYTES;
	return c->bytes <= s->end.bytes;
}

static void answer(struct source *s, const struct wb_xport_event *ev)
{
	struct answer *a = NULL;

	for (size_t i = 0; i < ANSWERS_MAX && !a; i++)
		a = s->answer[i].is_busy ? NULL : &s->answer[i];
	if (!a || !has(s, &ev->chunk)) {
		(void)wb_xport_refuse(s->end.x, ev->conn, ev->grant, a ? -EMSGSIZE : -EBUSY);
		return;
	}
	if (s->offset + ev->chunk.bytes > s->end.bytes)
		s->offset = 0;
	*a = (struct answer){.of = s,
		.conn = ev->conn,
		.grant = ev->grant,
		.cls = ev->chunk.cls,
		.iov = {s->end.mem + s->offset, ev->chunk.bytes}};
	s->offset = wb_align_up(s->offset + ev->chunk.bytes, 4096);
	/* It may hang up as soon as it has this answer, before we hear that it does. */
	s->is_through = s->is_through || a->cls == WB__BENCH_END;
	send_answer(s, a);
}

static void send_unsent(struct source *s)
{
	for (size_t i = 0; i < ANSWERS_MAX && s->n_unsent; i++)
		if (s->answer[i].is_unsent)
			send_answer(s, &s->answer[i]);
}

static void done(struct source *s, const struct wb_xport_event *ev)
{
	struct answer *a = &s->answer[ev->cookie];

	a->is_busy = false;
	if (ev->code == 0)
		s->bytes += a->iov.iov_len;
}

/* True: of a receiver that holds the key. */
static bool heard(struct source *s, const struct wb_xport_event *ev)
{
	switch (ev->kind) {
	case WB_XP_CONN_UP:
		s->n_conn++;
		break;
	case WB_XP_CONN_DOWN:
		s->n_conn--;
		snprintf(s->reason, sizeof(s->reason), "%s",
			ev->reason ? ev->reason : wb_strerror(ev->code));
		break;
	case WB_XP_REJECTED:
		if (s->n_rejected++ < REJECTED_MAX)
			fprintf(stderr, "wbctl: somebody was refused: %s\n",
				ev->reason ? ev->reason : wb_strerror(ev->code));
		return false;
	case WB_XP_GRANT:
		answer(s, ev);
		break;
	case WB_XP_WRITE_DONE:
		done(s, ev);
		break;
	default:
		break;
	}
	return true;
}

/* ---- the program -------------------------------------------------------------------------------
 */

/* What to type at the other end. */
static void show(
	const struct source *s, const struct wb__ctl_opts *o, const char *endpoint, const char *key)
{
	if (o->is_json) {
		json_t *all = json_pack("{s:s, s:s, s:b}", "transport", s->end.transport, "to",
			endpoint, "encrypted", s->end.epoch.is_encrypted);

		json_object_set_new(all, "key", *key ? json_string(key) : json_null());
		wb__ctl_dump(all, o->is_yaml);
		json_decref(all);
	} else {
		printf("Waiting for one receiver.  Where it is to be, run:\n\n  %s%s%swbctl bench "
		       "--transport %s --to %s%s%s\n\n",
			*key ? "WEIGHTBRIDGE_BENCH_KEY=" : "", key, *key ? " " : "",
			s->end.transport, endpoint, s->end.epoch.is_encrypted ? " --encrypt" : "",
			*key ? "" : " --key-file FILE");
	}
	fflush(stdout);
}

static int serve(struct source *s, const char *endpoint, struct wb_err *err)
{
	uint64_t until = wb_now_ns(&wb_clock_real) + s->first_wait_ns;
	struct wb_xport_event ev[EVENTS];
	bool had_one = false;

	while (!s->is_through || s->n_conn) {
		int n = wb__bench_take(&s->end, ev, EVENTS, until);

		for (int i = 0; i < n; i++)
			if (heard(s, &ev[i]))
				until = wb_now_ns(&wb_clock_real) + s->end.patience_ns;
		send_unsent(s);
		had_one = had_one || s->n_conn;
		if (!n && s->is_through)
			return 0; /* it has all it wanted, and does not hang up */
		if (!n && had_one)
			return wb_err_set(err, -ETIMEDOUT,
				"the receiver has asked for nothing for %.0f s (--timeout): it is "
				"stopped, or cut off",
				(double)s->end.patience_ns / 1e9);
		if (!n)
			return wb_err_set(err, -ETIMEDOUT,
				"no receiver came to %s in %.0f s: does the network let it "
				"through?",
				endpoint, (double)s->first_wait_ns / 1e9);
		if (had_one && !s->n_conn && !s->is_through)
			return wb_err_set(err, -ECONNRESET,
				"the receiver went away before it was through: %s", s->reason);
	}
	return 0;
}

/* The greatest number in the list: a receiver may be given the same one. */
static int rails_of(const struct wb__ctl_bench *b, uint32_t *out, struct wb_err *err)
{
	const struct wb__ctl_bench only = {.rails = b->rails};
	struct wb__bench_sweep *sweep = wb_zalloc(1, sizeof(*sweep));
	uint32_t listed = 1;
	int rc = sweep ? wb__bench_sweep(&only, sweep, err) : wb_err_set(err, -ENOMEM, "no memory");

	for (const char *c = b->listen; *c; c++)
		listed += *c == ',';
	if (rc == 0)
		*out = WB_MAX(listed, sweep->rails_max);
	if (rc == 0 && *out > WB__BENCH_RAILS_MAX)
		rc = wb_err_set(err, -EINVAL, "--listen has %u addresses: at most %d", listed,
			WB__BENCH_RAILS_MAX);
	wb_free(sweep);
	return rc;
}

/* Ends when the process that has started it does, however that ends. */
static int follow_parent(const char *text, struct wb_err *err)
{
	uint64_t pid;

	if (!text)
		return 0;
	if (wb_cli_uint(text, 1, INT_MAX, &pid) < 0)
		return wb_err_set(err, -EINVAL, "--parent %s: expected a process", text);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != (pid_t)pid)
		return wb_err_set(
			err, -ESRCH, "--parent %s: this process was not started by it", text);
	return 0;
}

int wb__bench_memory(const struct wb__ctl_bench *b, uint64_t *bytes, struct wb_err *err)
{
	if (b->memory &&
		(wb_cli_size(b->memory, false, bytes) < 0 || *bytes < 4096 || *bytes >> 40))
		return wb_err_set(
			err, -EINVAL, "--memory %s: expected a size such as 256Mi", b->memory);
	return 0;
}

static int listen_and_serve(struct source *s, const struct wb__ctl_opts *o, struct wb_err *err)
{
	const struct wb__ctl_bench *b = &o->bench;
	char key[65], endpoint[WB_XPORT_ENDPOINT_MAX], size[32];
	uint64_t bytes = WB__BENCH_MEMORY;
	int rc = follow_parent(b->parent, err);

	if (rc == 0)
		rc = rails_of(b, &s->n_rail, err);
	if (rc == 0)
		rc = wb__bench_memory(b, &bytes, err);
	if (rc == 0)
		rc = wb__bench_seconds("wait", b->wait, 0.1, FIRST_WAIT_S, &s->first_wait_ns, err);
	if (rc == 0)
		rc = wb__bench_key(b, s->end.epoch.key, key, err);
	s->end.what = WB_XPORT_SOURCE;
	if (rc == 0)
		rc = wb__bench_open(&s->end, b, b->listen, s->n_rail, 0, err);
	if (rc == 0)
		rc = wb__bench_fill(&s->end, bytes, err);
	if (rc == 0)
		rc = wb_xport_listen(s->end.x, endpoint, sizeof(endpoint), err);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < WB__BENCH_READS; i++)
		s->read[i] = (struct iovec){
			s->end.mem + (size_t)i * WB__BENCH_READ_BYTES % 4096, WB__BENCH_READ_BYTES};
	show(s, o, endpoint, key);
	explicit_bzero(key, sizeof(key));
	rc = serve(s, endpoint, err);
	if (rc == 0 && !o->is_json)
		printf("The receiver is through; %s were sent.\n",
			wb__bench_size_text(s->bytes, size));
	return rc;
}

int wb__bench_source(const struct wb__ctl_opts *o, struct wb_err *err)
{
	struct source *s = wb_zalloc(1, sizeof(*s));
	int rc = s ? 0 : wb_err_set(err, -ENOMEM, "no memory");

	if (rc == 0) {
		s->end.fd = -1;
		rc = listen_and_serve(s, o, err);
		wb__bench_close(&s->end);
	}
	wb_free(s);
	return rc;
}
