/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_AGENT_H
#define TESTS_FX_AGENT_H
/*
 * The agent's side of one worker's connection, played by a test step by step.
 *
 * Everything blocks, at most 20 s, and aborts the test with a sentence when something else comes
 * than the script wants.  One thread for each.
 */
#include "proto/build.h"
#include "proto/messages.h"
#include "proto/pollword.h"

#include "weightbridge/weightbridge.h"

#include <pthread.h>
#include <stdbool.h>

struct fx_agent {
	char path[108]; /* of the socket */
	int listen_fd, fd; /* -1 */
	int page_fd;
	struct wb_poll_page *page; /* of the present attachment */
	int fds[32]; /* that came with the last message */
	unsigned n_fd;
	union wb_msg m; /* the last message received */
	uint16_t type;
	bool imports; /* what WELCOME says */
};

/** fx_agent_start - choose a path and listen; fx_agent_name - choose it without listening. */
void fx_agent_start(struct fx_agent *a);
void fx_agent_name(struct fx_agent *a);
void fx_agent_listen(struct fx_agent *a);
/** fx_agent_stop - close all and remove the socket. */
void fx_agent_stop(struct fx_agent *a);
void fx_agent_accept(struct fx_agent *a);
/** fx_agent_recv - the next message into a->m; its type, 0 when the worker closed. */
uint16_t fx_agent_recv(struct fx_agent *a);
/** fx_agent_expect - the next message, which must be of @type. */
union wb_msg *fx_agent_expect(struct fx_agent *a, uint16_t type);
void fx_agent_send(struct fx_agent *a, uint16_t type, const void *msg);
void fx_agent_send_fds(
	struct fx_agent *a, uint16_t type, const void *msg, const int *fds, unsigned n_fd);
void fx_agent_send_bytes(struct fx_agent *a, const void *p, size_t bytes);
/** fx_agent_hello - accept, HELLO, WELCOME; fx_agent_page - a new poll page. */
void fx_agent_hello(struct fx_agent *a);
void fx_agent_page(struct fx_agent *a);
/** fx_agent_attached - answer ATTACH with a new page. */
void fx_agent_attached(struct fx_agent *a);
void fx_agent_planned(struct fx_agent *a);
/** fx_agent_up - all of the above. */
void fx_agent_up(struct fx_agent *a);
/** fx_agent_drop - close the connection, as a killed agent does. */
void fx_agent_drop(struct fx_agent *a);
/** fx_agent_wait_closed - read until the worker closes. */
void fx_agent_wait_closed(struct fx_agent *a);

void fx_agent_go(struct fx_agent *a, uint32_t stop); /* set stop, then GO */
void fx_agent_begin(struct fx_agent *a, uint64_t transfer);
void fx_agent_end(struct fx_agent *a, uint64_t transfer, uint32_t result, const char *sentence);
/** fx_agent_update - promise, wake, park, begin, end (clears the stop before), resumed. */
void fx_agent_update(struct fx_agent *a, uint64_t transfer, uint32_t result);

/* ---- the worker's side ---- */

/** fx_opts - options of a worker at @a: short waits, no staging, rank 0. */
struct wb_client_opts fx_opts(const struct fx_agent *a, int role);
/** fx_attach - attach two parameters, 128 bytes each, in heap memory. */
extern float fx_heap[64];
int fx_attach(struct wb_client *c, struct wb_error *err);
/** fx_worker - open, attach, wait for the plan, against a script that does fx_agent_up(). */
struct wb_client *fx_worker(const struct wb_client_opts *o);

/* A script that plays the agent in its own thread. */
struct fx_script {
	struct fx_agent a;
	void (*run)(struct fx_agent *a);
	pthread_t thread;
};
void fx_script_start(struct fx_script *s, void (*run)(struct fx_agent *a));
/** fx_script_stop - join and clean up. */
void fx_script_stop(struct fx_script *s);

#endif
