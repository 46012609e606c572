/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer's sends, in order and out of it. */
#include "tests/tools/toy/toy.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Says once what the agent says is awaited, if anything is. */
static int wait_released(const struct toy *t, struct wb_client_transfer *x, struct wb_error *err)
{
	bool has_said = false;
	int rc;

	while ((rc = wb_client_transfer_wait(x, WB_CLIENT_TRANSFER_RELEASED, 500000000, err)) ==
		-ETIMEDOUT) {
		if (!has_said && wb_client_progress(t->c)[0]) {
			toy_say("awaits %s", err->msg);
			has_said = true;
		}
	}
	return rc;
}

/* Until its parameters may change or, with hold, until the receive stage is over. */
static struct wb_client_transfer *start_send(struct toy *t, int64_t version, uint32_t flags)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	int rc;

	toy_fill(t, version);
	t->begin_ns = toy_now();
	rc = wb_client_send(t->c, version, flags, WB_FOREVER, &x, &err);
	if (rc == 0)
		rc = wait_released(t, x, &err);
	if (rc == 0) {
		if (t->watches)
			toy_say("blocked %lld ms=%.1f", (long long)version,
				(double)(toy_now() - t->begin_ns) / 1e6);
		toy_say("released %lld", (long long)version);
		return x;
	}
	toy_say("error %d send: %s", rc, err.msg);
	wb_client_transfer_free(x);
	return NULL;
}

static void end_send(struct wb_client_transfer *x)
{
	struct wb_client_transfer_info info;
	struct wb_error err = {0};
	char text[1 << 14] = "", name[64], state[32]; /* of hundreds of engines */
	int rc = wb_client_transfer_wait(x, WB_CLIENT_TRANSFER_FINAL, WB_FOREVER, &err);

	if (rc < 0) {
		toy_say("error %d send: %s", rc, err.msg);
		wb_client_transfer_free(x);
		return;
	}
	wb_client_transfer_get(x, &info);
	for (uint32_t i = 0; i < info.n_engine; i++) {
		size_t at = strlen(text);

		(void)wb_client_transfer_engine(x, i, name, sizeof(name), state, sizeof(state));
		snprintf(text + at, sizeof(text) - at, " %s=%s", name, state);
	}
	toy_say("sent %lld seconds=%.3f%s", (long long)info.version, info.seconds, text);
	wb_client_transfer_free(x);
}

void toy_send(struct toy *t, int64_t version)
{
	struct wb_client_transfer *x = start_send(t, version, 0);

	if (x && t->scribbles)
		memset(t->data, 0xee, t->bytes);
	if (x && t->scribbles)
		toy_device_push(t);
	if (x)
		end_send(x);
}

void toy_doze(struct toy *t, int64_t version)
{
	struct wb_client_transfer *x = start_send(t, version, 0);

	if (!x)
		return;
	toy_sleep(t);
	end_send(x);
}

#define BURST_MAX 64

void toy_burst(struct toy *t, int64_t first, int64_t last)
{
	struct wb_client_transfer *x[BURST_MAX];
	uint32_t n = 0;

	for (int64_t v = first; v <= last && n < BURST_MAX; v++, n++) {
		x[n] = start_send(t, v, 0);
		if (!x[n])
			exit(1);
	}
	for (uint32_t i = 0; i < n; i++)
		end_send(x[i]);
}

#define SECOND_NS 300000000ull /* a second send waits so long for the first to end */

/* Parameters are not touched: these sends must not come to anything. */
static void *send_again(void *cookie)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	struct toy *t = cookie;
	int rc = wb_client_send(t->c, 99, 0, SECOND_NS, &x, &err);

	toy_say(rc ? "refused %d %s" : "error %d sent twice %s", rc, err.msg);
	return NULL;
}

void toy_send_thrice(struct toy *t, int64_t version)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	pthread_t thread[2];
	int rc;

	toy_fill(t, version);
	rc = wb_client_send(t->c, version, 0, WB_FOREVER, &x, &err);
	toy_must(rc, "send", err.msg);
	for (int i = 0; i < 2; i++)
		toy_must(-pthread_create(&thread[i], NULL, send_again, t), "thread", "");
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	end_send(x);
}

void toy_hold(struct toy *t, int64_t version)
{
	t->held = start_send(t, version, WB_CLIENT_SEND_HOLD);
}

void toy_release(struct toy *t)
{
	struct wb_client_transfer *x = t->held;
	struct wb_error err = {0};
	int rc = wb_client_release(x, &err);

	t->held = NULL;
	if (rc < 0) {
		toy_say("error %d release: %s", rc, err.msg);
		wb_client_transfer_free(x);
		return;
	}
	memset(t->data, 0xee, t->bytes);
	toy_say("let go");
	end_send(x);
}

void toy_send_only(struct toy *t, int64_t version)
{
	struct wb_client_transfer *x = NULL;
	struct wb_error err = {0};
	int rc = wb_client_send(t->c, version, 0, 0, &x, &err);

	toy_say("error %d sendonly: %s", rc, err.msg);
	wb_client_transfer_free(x);
}

void toy_quit(struct toy *t)
{
	struct wb_error err = {0};

	toy_must(wb_client_close(t->c, 10000000000ull, &err), "close", err.msg);
	toy_say("bye");
	exit(0);
}

/* The last send of a job: nothing is done any more once the parameters may change. */
void toy_send_and_go(struct toy *t, int64_t version, bool closes)
{
	if (!start_send(t, version, 0))
		exit(1);
	if (!closes)
		_exit(0);
	toy_quit(t);
}
