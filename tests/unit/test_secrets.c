/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets leave no copies in memory that was freed.  The whole writable memory of this process is
 * searched for one; it is never spelled out but where the code under test has it.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "net/http.h"
#include "net/loop.h"
#include "operator-shim/kube/http.h"
#include "operator-shim/kube/token.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES 64 /* of the secret; a freed block loses its first 16 to the allocator */
#define WINDOW (1u << 20)
#define REGION_MAX (1ull << 30) /* larger ones are a sanitizer's */

static uint8_t key[BYTES]; /* the secret is this, turned over */
static char *window; /* not searched itself */

static char letter(size_t i)
{
	return (char)('a' + (key[i] ^ 0x5a) % 26);
}

/* The caller's: it wipes it. */
static char *tell(void)
{
	char *text = malloc(BYTES + 1);

	for (size_t i = 0; i < BYTES; i++)
		text[i] = letter(i);
	text[BYTES] = '\0';
	return text;
}

static void forget(char *text)
{
	explicit_bzero(text, BYTES);
	free(text);
}

/* Places where the second half of the secret stands. */
static unsigned search(const char *p, size_t n)
{
	unsigned found = 0;

	for (size_t at = 0; at + BYTES / 2 <= n; at++) {
		size_t i = 0;

		while (i < BYTES / 2 && p[at + i] == letter(BYTES / 2 + i))
			i++;
		found += i == BYTES / 2;
	}
	return found;
}

static unsigned copies(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	unsigned long long from, to;
	unsigned found = 0;
	char line[512], mode[8];

	ck_assert(maps && mem >= 0);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx %7s", &from, &to, mode) != 3 || mode[1] != 'w' ||
			to - from > REGION_MAX || strstr(line, "[stack") ||
			((uintptr_t)window >= from && (uintptr_t)window < to))
			continue;
		for (; from < to; from += WINDOW - BYTES) {
			ssize_t n = pread(mem, window, WINDOW, (off_t)from);

			found += n > 0 ? search(window, (size_t)n) : 0;
		}
	}
	memset(window, 0, WINDOW);
	fclose(maps);
	close(mem);
	return found;
}

static void secrets_set_up(void)
{
	FILE *f = fopen("/dev/urandom", "re");

	ck_assert(f && fread(key, 1, sizeof(key), f) == sizeof(key));
	fclose(f);
	/* Pages of its own, with one that cannot be read on each side: no neighbour is merged. */
	window = mmap(NULL, WINDOW + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(window, MAP_FAILED);
	window += 4096;
	ck_assert_int_eq(mprotect(window, WINDOW, PROT_READ | PROT_WRITE), 0);
}

static void secrets_tear_down(void)
{
	munmap(window - 4096, WINDOW + 8192);
}

/* Nothing below means anything if a copy is not found. */
START_TEST(a_copy_is_found)
{
	char *token = tell(), *freed;

	ck_assert_uint_eq(copies(), 1);
	freed = strdup(token);
	ck_assert_uint_eq(copies(), 2);
	free(freed);
	ck_assert_uint_ge(copies(), 2);
	forget(token);
}
END_TEST

START_TEST(a_review_of_a_token_leaves_none)
{
	const char *object = "default/a";
	char *token = tell(), *text;
	json_t *body;

	wb_kube_wipe_json();
	body = wb_kube_review_body(token, &object, 1);
	forget(token);
	text = json_dumps(body, JSON_COMPACT);
	ck_assert(body && text);
	ck_assert_uint_eq(copies(), 2);
	json_decref(body);
	wb_free_wiped(text);
	ck_assert_uint_eq(copies(), 0);
}
END_TEST

START_TEST(a_parsed_answer_leaves_none)
{
	char *token = tell();
	struct wb_buf b;
	json_t *answer;

	wb_kube_wipe_json();
	wb_buf_init(&b, 1 << 20);
	b.is_secret = true;
	wb_buf_printf(&b, "{\"data\": {\"tls.key\": \"%s\"}, \"more\": \"", token);
	forget(token);
	for (int i = 0; i < 20000; i++) /* it grows, and is copied on the way */
		wb_buf_u8(&b, 'x');
	wb_buf_printf(&b, "\"}");
	answer = json_loadb((char *)b.data, b.len, 0, NULL);
	ck_assert_ptr_nonnull(answer);
	ck_assert_uint_eq(copies(), 2);
	json_decref(answer);
	wb_buf_finish(&b);
	ck_assert_uint_eq(copies(), 0);
}
END_TEST

START_TEST(a_file_that_is_too_large_leaves_none)
{
	char path[200], *token = tell();
	uint8_t *data;
	size_t bytes;
	int pipe_[2];

	/* More than one read's worth, through a pipe: the buffer grows. */
	ck_assert_int_eq(pipe(pipe_), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pipe_[0]);
	ck_assert_int_eq(write(pipe_[1], token, BYTES), BYTES);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(
			write(pipe_[1], "0123456789012345678901234567890123456789", 40), 40);
	close(pipe_[1]);
	ck_assert_int_eq(wb_file_read(path, 7000, &data, &bytes), -EFBIG);
	close(pipe_[0]);
	forget(token);
	ck_assert_uint_eq(copies(), 0);
}
END_TEST

/* An agent that showed a token, and was refused or let in. */
START_TEST(the_hello_of_an_agent_leaves_none)
{
	const char *object = _i ? "default/a" : "default/nope";
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = "train",
		.instance = 11,
		.objects = &object,
		.n_objects = 1};
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_HELLO};
	char *token = tell();
	struct wire w;
	struct wb_buf b;

	wb_kube_wipe_json();
	set_up_serve();
	wb_buf_init(&b, 1 << 20);
	b.is_secret = true;
	h.token = token;
	ck_assert_int_eq(wb_msg_encode(&f, &h, &b, NULL), 0);
	forget(token);
	open_wire(&w);
	w.ch.cb.on_frame(w.ch.cb.cookie, &w.ch, b.data, b.len);
	wb_buf_finish(&b);
	end_wire(&w);
	tear_down_serve();
	ck_assert_uint_eq(copies(), 0);
}
END_TEST

/* What somebody showed an agent who wants its metrics. */
START_TEST(the_question_about_a_reader_leaves_none)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_READER};
	struct wb_msg_reader q = {.number = 1};
	char *token = tell();
	struct wire w;
	struct wb_buf b;

	wb_kube_wipe_json();
	set_up_serve();
	open_wire(&w);
	hello(&w, "train", 11);
	wb_buf_init(&b, 1 << 20);
	b.is_secret = true;
	q.token = token;
	ck_assert_int_eq(wb_msg_encode(&f, &q, &b, NULL), 0);
	forget(token);
	w.ch.cb.on_frame(w.ch.cb.cookie, &w.ch, b.data, b.len);
	wb_buf_finish(&b);
	end_wire(&w);
	tear_down_serve();
	ck_assert_uint_eq(copies(), 0);
}
END_TEST

/* ---- a page ------------------------------------------------------------------------------------
 */

static int serve_secret(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	char *token = tell();

	(void)cookie;
	(void)path;
	(void)rq;
	r->body.is_secret = true;
	wb_buf_printf(&r->body, "{\"key\":\"%s\"}\n", token);
	forget(token);
	return 0;
}

/* As the ticket and key of a measurement, which the agent has for as long as it sends them. */
START_TEST(a_page_that_was_sent_leaves_none)
{
	const struct wb_http_opts o = {.host = "127.0.0.1", .fn = serve_secret};
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *page = calloc(1, 4096);
	struct wb_err err = {0};
	struct wb_loop *loop;
	struct wb_http *h;
	size_t n = 0;

	ck_assert_int_eq(wb_loop_create(&loop, &err), 0);
	ck_assert_msg(wb_http_start(loop, &o, &h, &err) == 0, "%s", err.msg);
	sa.sin_port = htons(wb_http_port(h));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_gt(write(fd, "GET / HTTP/1.0\r\n\r\n", 18), 0);
	while (!strstr(page, "\"}\n")) {
		ssize_t got = recv(fd, page + n, 4095 - n, MSG_DONTWAIT);

		ck_assert(got > 0 || (got < 0 && errno == EAGAIN));
		n += got > 0 ? (size_t)got : 0;
		wb_loop_run_once(loop, got < 0);
	}
	ck_assert_uint_eq(search(page, n), 1);
	explicit_bzero(page, 4096);
	free(page);
	close(fd);
	wb_http_stop(h);
	wb_loop_destroy(loop);
	ck_assert_uint_eq(copies(), 0);
}
END_TEST

int main(void)
{
	Suite *su = suite_create("secrets");
	TCase *t = tcase_create("secrets");

	tcase_add_checked_fixture(t, secrets_set_up, secrets_tear_down);
	tcase_add_test(t, a_copy_is_found);
	tcase_add_test(t, a_review_of_a_token_leaves_none);
	tcase_add_test(t, a_parsed_answer_leaves_none);
	tcase_add_test(t, a_file_that_is_too_large_leaves_none);
	tcase_add_loop_test(t, the_hello_of_an_agent_leaves_none, 0, 2);
	tcase_add_test(t, the_question_about_a_reader_leaves_none);
	tcase_add_test(t, a_page_that_was_sent_leaves_none);
	suite_add_tcase(su, t);
	return fx_run(su);
}
