/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_agent.h"

#include "base/buf.h"
#include "base/err.h"
#include "client/seq.h"
#include "mem/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_MS 20000

static void fail(const char *what, const char *detail)
{
	fprintf(stderr, "fake agent: %s: %s\n", what, detail);
	abort();
}

static void need(bool is_ok, const char *what)
{
	if (!is_ok)
		fail(what, strerror(errno));
}

void fx_agent_name(struct fx_agent *a)
{
	static unsigned n;
	const char *dir = getenv("TMPDIR");

	memset(a, 0, sizeof(*a));
	a->listen_fd = a->fd = a->page_fd = -1;
	snprintf(a->path, sizeof(a->path), "%s/wb-fx-%d-%u", dir ? dir : "/tmp", (int)getpid(),
		__atomic_fetch_add(&n, 1, __ATOMIC_RELAXED));
	if (strlen(a->path) > 100) /* a deep build folder: sun_path is short */
		snprintf(a->path, sizeof(a->path), "/tmp/wb-fx-%d-%u", (int)getpid(), n);
}

void fx_agent_listen(struct fx_agent *a)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	memcpy(sa.sun_path, a->path, strlen(a->path) + 1);
	unlink(a->path);
	a->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	need(a->listen_fd >= 0, "socket");
	need(!bind(a->listen_fd, (struct sockaddr *)&sa, sizeof(sa)), "bind");
	need(!listen(a->listen_fd, 16), "listen");
}

void fx_agent_start(struct fx_agent *a)
{
	fx_agent_name(a);
	fx_agent_listen(a);
}

static void forget(struct fx_agent *a)
{
	if (a->type)
		wb_msg_free(a->type, &a->m);
	for (unsigned i = 0; i < a->n_fd; i++)
		close(a->fds[i]);
	a->type = 0;
	a->n_fd = 0;
}

void fx_agent_drop(struct fx_agent *a)
{
	forget(a);
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
}

void fx_agent_stop(struct fx_agent *a)
{
	fx_agent_drop(a);
	if (a->listen_fd >= 0)
		close(a->listen_fd);
	if (a->page)
		munmap(a->page, WB_POLL_PAGE_BYTES);
	if (a->page_fd >= 0)
		close(a->page_fd);
	unlink(a->path);
	a->listen_fd = a->page_fd = -1;
	a->page = NULL;
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, PATIENCE_MS) == 1;
}

void fx_agent_accept(struct fx_agent *a)
{
	fx_agent_drop(a);
	need(readable(a->listen_fd), "no worker connects");
	a->fd = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	need(a->fd >= 0, "accept");
}

uint16_t fx_agent_recv(struct fx_agent *a)
{
	static __thread uint8_t buf[1u << 17];
	const uint8_t *body;
	struct wb_err err = {0};
	struct wb_frame f;
	int64_t n;

	forget(a);
	need(readable(a->fd), "no message comes");
	n = wb__client_seq_recv(a->fd, buf, sizeof(buf), a->fds, &a->n_fd);
	if (n == -ECONNRESET)
		return 0;
	need(n > 0, "recv");
	if (wb_frame_check(buf, (size_t)n, &f, &body, &err) ||
		wb_msg_decode_bin(&f, body, &a->m, &err))
		fail("message", err.msg);
	a->type = f.type;
	return f.type;
}

union wb_msg *fx_agent_expect(struct fx_agent *a, uint16_t type)
{
	uint16_t got = fx_agent_recv(a);

	if (got != type) {
		fprintf(stderr, "fake agent: wants %s, gets %s\n", wb_msg_name(type),
			got ? wb_msg_name(got) : "the end");
		abort();
	}
	return &a->m;
}

void fx_agent_send_bytes(struct fx_agent *a, const void *p, size_t bytes)
{
	wb__client_seq_send(a->fd, p, bytes, NULL, 0, PATIENCE_MS);
}

void fx_agent_send_fds(
	struct fx_agent *a, uint16_t type, const void *msg, const int *fds, unsigned n_fd)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, 1u << 17);
	if (wb_msg_encode_bin(&f, msg, &b, &err))
		fail("encode", err.msg);
	/* A worker that is gone already is the test's affair. */
	wb__client_seq_send(a->fd, b.data, b.len, fds, n_fd, PATIENCE_MS);
	wb_buf_finish(&b);
}

void fx_agent_send(struct fx_agent *a, uint16_t type, const void *msg)
{
	fx_agent_send_fds(a, type, msg, NULL, 0);
}

void fx_agent_hello(struct fx_agent *a)
{
	char build[WB_BUILD_TEXT], name[] = "agent-x";
	struct wb_msg_app_welcome m = {WBP_VERSION_MAX, build, name, a->imports};

	wb_build_text("test", WBP_VERSION_MAX, WBP_VERSION_MAX, build);
	fx_agent_accept(a);
	fx_agent_expect(a, WBP_APP_HELLO);
	fx_agent_send(a, WBP_APP_WELCOME, &m);
}

void fx_agent_page(struct fx_agent *a)
{
	if (a->page)
		munmap(a->page, WB_POLL_PAGE_BYTES);
	if (a->page_fd >= 0)
		close(a->page_fd);
	a->page_fd = wb_memfd_create("poll page", WB_POLL_PAGE_BYTES, NULL);
	need(a->page_fd >= 0, "poll page");
	a->page = mmap(NULL, WB_POLL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a->page_fd, 0);
	need(a->page != MAP_FAILED, "map the poll page");
}

void fx_agent_attached(struct fx_agent *a)
{
	char name[] = "worker-x";
	struct wb_msg_app_attached m = {7, name, WB_APP_LANE_AGENT};

	fx_agent_page(a);
	fx_agent_send_fds(a, WBP_APP_ATTACHED, &m, &a->page_fd, 1);
}

void fx_agent_planned(struct fx_agent *a)
{
	char digest[] = "xxh128:00000000000000000000000000000001";
	struct wb_msg_app_planned m = {3, 5, digest, -1, false};

	fx_agent_send(a, WBP_APP_PLANNED, &m);
}

void fx_agent_up(struct fx_agent *a)
{
	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_attached(a);
	fx_agent_planned(a);
}

void fx_agent_wait_closed(struct fx_agent *a)
{
	while (fx_agent_recv(a))
		;
}

void fx_agent_go(struct fx_agent *a, uint32_t stop)
{
	struct wb_msg_app_go m = {stop};

	wb_poll_set_stop(&a->page->word, stop);
	fx_agent_send(a, WBP_APP_GO, &m);
}

void fx_agent_begin(struct fx_agent *a, uint64_t transfer)
{
	struct wb_msg_app_begin m = {.transfer = transfer, .version = (int64_t)transfer * 10};

	fx_agent_send(a, WBP_APP_BEGIN, &m);
}

void fx_agent_end(struct fx_agent *a, uint64_t transfer, uint32_t result, const char *sentence)
{
	char text[512], digest[] = "xxh128:00000000000000000000000000000002";
	struct wb_msg_app_end m = {.transfer = transfer,
		.version = (int64_t)transfer * 10,
		.result = result,
		.digest = digest,
		.code = result == WB_APP_END_COMMITTED ? 0 : WB_EABORTED,
		.sentence = text};

	snprintf(text, sizeof(text), "%s", sentence);
	if (result == WB_APP_END_COMMITTED || result == WB_APP_END_ABORTED)
		wb_poll_set_stop(&a->page->word, 0);
	fx_agent_send(a, WBP_APP_END, &m);
}

void fx_agent_update(struct fx_agent *a, uint64_t transfer, uint32_t result)
{
	struct wb_msg_app_wake wake = {0};

	wb_poll_promise(&a->page->word);
	fx_agent_send(a, WBP_APP_WAKE, &wake);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, transfer);
	fx_agent_expect(a, WBP_APP_BEGUN);
	fx_agent_end(a, transfer, result, result == WB_APP_END_COMMITTED ? "" : "a test ended it");
	if (result == WB_APP_END_COMMITTED)
		fx_agent_expect(a, WBP_APP_RESUMED);
}

struct wb_client_opts fx_opts(const struct fx_agent *a, int role)
{
	return (struct wb_client_opts){.size = sizeof(struct wb_client_opts),
		.socket = a->path,
		.object = "ns/wt",
		.engine = role == WB_CLIENT_ROLLOUT ? "e0" : NULL,
		.role = role,
		.rank = 0,
		.connect_timeout = 5000000000,
		.update_timeout = 5000000000,
		.repair_timeout = 5000000000,
		.reconnect_timeout = 5000000000};
}

float fx_heap[64];

int fx_attach(struct wb_client *c, struct wb_error *err)
{
	struct wb_client_mem mem = {WB_CLIENT_MEM_HEAP, 0, -1, fx_heap, sizeof(fx_heap)};
	struct wb_client_param param[2] = {{0, 0}, {0, 128}};
	struct wb_client_attach at = {.size = sizeof(at),
		.manifest = "manifest",
		.manifest_bytes = 8,
		.map = "source map",
		.map_bytes = 10,
		.mem = &mem,
		.n_mem = 1,
		.param = param,
		.n_param = 2};

	return wb_client_attach(c, &at, err);
}

struct wb_client *fx_worker(const struct wb_client_opts *o)
{
	struct wb_error err = {0};
	struct wb_client *c = NULL;

	if (wb_client_open(o, &c, &err) || fx_attach(c, &err) ||
		wb_client_wait_planned(c, 5000000000, NULL, NULL, NULL, &err))
		fail("worker", err.msg);
	return c;
}

static void *script_main(void *arg)
{
	struct fx_script *s = arg;

	s->run(&s->a);
	return NULL;
}

void fx_script_start(struct fx_script *s, void (*run)(struct fx_agent *a))
{
	s->run = run;
	fx_agent_start(&s->a);
	need(!pthread_create(&s->thread, NULL, script_main, s), "thread");
}

void fx_script_stop(struct fx_script *s)
{
	pthread_join(s->thread, NULL);
	fx_agent_stop(&s->a);
}
