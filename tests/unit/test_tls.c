/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "net/listen.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAX (1u << 20)

static struct wb_loop *loop;

/* A frame of these tests: u32 length of the whole, 12 bytes of anything, body. */
static int framer(void *cookie, const uint8_t *head, size_t *total, struct wb_err *err)
{
	uint32_t n;

	(void)cookie;
	memcpy(&n, head, 4);
	if (n < WB_FRAME_HEAD_BYTES || n > FRAME_MAX)
		return wb_err_set(err, -EMSGSIZE, "frame of %u bytes", n);
	*total = n;
	return 0;
}

static const struct wb_chan_limits limits = {
	.framer = framer, .connect_ns = 5 * WB_NS_PER_S, .queue_bytes_max = 4u << 20};

struct end {
	struct wb_chan *ch;
	int opened, frames, closed, code, raw_fd, raws, refused, close_at;
	bool echo;
	uint64_t bytes;
	struct wb_rng rng; /* of the bytes that come */
	char msg[WB_ERR_MSG_MAX], refusal[WB_ERR_MSG_MAX], identity[WB_PSK_ID_MAX];
};

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct end *e = cookie;

	ck_assert_ptr_eq(ch, e->ch);
	e->opened++;
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct end *e = cookie;

	e->frames++;
	e->bytes += bytes;
	for (size_t i = WB_FRAME_HEAD_BYTES; i < bytes; i += 997)
		ck_assert_uint_eq(frame[i], (uint8_t)(e->frames * 31 + (int)(i / 997)));
	if (e->echo)
		ck_assert_int_eq(wb_chan_send(ch, frame, bytes), 0);
	if (e->close_at == e->frames)
		wb_chan_close(ch);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct end *e = cookie;

	ck_assert_ptr_eq(ch, e->ch);
	e->closed++;
	e->code = why->code;
	strcpy(e->msg, why->msg);
	e->ch = NULL;
}

static struct wb_chan_cb cb_of(struct end *e)
{
	return (struct wb_chan_cb){e, on_open, on_frame, on_closed};
}

static void on_chan(void *cookie, struct wb_chan *ch)
{
	struct end *e = cookie;
	const struct wb_chan_cb cb = cb_of(e);

	e->ch = ch;
	e->opened++;
	strcpy(e->identity, wb_chan_identity(ch));
	wb_chan_bind(ch, &cb);
}

static void on_raw(void *cookie, int fd, const char *peer)
{
	struct end *e = cookie;

	ck_assert_int_eq(strncmp(peer, "127.0.0.1:", 10), 0);
	e->raw_fd = fd;
	e->raws++;
}

static void on_refused(void *cookie, const char *peer, const struct wb_err *why)
{
	struct end *e = cookie;

	ck_assert(*peer);
	e->refused++;
	strcpy(e->refusal, why->msg);
}

static void set_up(void)
{
	ck_assert_int_eq(wb_loop_create(&loop, NULL), 0);
}

static void tear_down(void)
{
	wb_loop_destroy(loop);
}

static void too_late(void *cookie)
{
	*(bool *)cookie = true;
}

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

/* ---- pre-shared keys ------------------------------------------------------------------------- */

static struct wb_psk key(const char *id, uint8_t fill)
{
	struct wb_psk k = {.bytes = 48};

	strcpy(k.id, id);
	memset(k.key, fill, k.bytes);
	return k;
}

static struct wb_tls *psk_tls(bool is_server, const char *id, uint8_t fill)
{
	struct wb_psk k = key(id, fill);
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &k};
	struct wb_err err = {0};
	struct wb_tls *t;

	ck_assert_msg(!(is_server ? wb_tls_server_create : wb_tls_client_create)(&o, &t, &err),
		"%s", err.msg);
	return t;
}

static struct wb_listener *listen_with(struct wb_tls *tls, struct end *server, bool has_raw)
{
	const struct wb_listen_opts o = {.host = "127.0.0.1", .tls = tls, .limits = limits};
	const struct wb_listen_cb cb = {server, on_chan, has_raw ? on_raw : NULL, on_refused};
	struct wb_listener *l;
	struct wb_err err = {0};

	ck_assert_msg(!wb_listen(loop, &o, &cb, &l, &err), "%s", err.msg);
	ck_assert_uint_ne(wb_listener_port(l), 0);
	return l;
}

static void dial(struct wb_tls *tls, const char *host, uint16_t port, struct end *client)
{
	const struct wb_chan_cb cb = cb_of(client);

	ck_assert_int_eq(wb_tls_connect(loop, tls, host, port, &limits, &cb, &client->ch), 0);
}

static uint8_t *make_frame(int number, size_t bytes)
{
	uint8_t *f = calloc(bytes, 1);
	uint32_t n = (uint32_t)bytes;

	memcpy(f, &n, 4);
	for (size_t i = WB_FRAME_HEAD_BYTES; i < bytes; i += 997)
		f[i] = (uint8_t)(number * 31 + (int)(i / 997));
	return f;
}

static int send_frame(struct wb_chan *ch, int number, size_t bytes)
{
	uint8_t *f = make_frame(number, bytes);
	int rc = wb_chan_send(ch, f, bytes);

	free(f);
	return rc;
}

struct pair {
	struct wb_tls *st, *ct;
	struct wb_listener *l;
	struct end server, client;
};

static void pair_open(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	p->st = psk_tls(true, "default/llm", 7);
	p->ct = psk_tls(false, "default/llm", 7);
	p->l = listen_with(p->st, &p->server, false);
	dial(p->ct, "127.0.0.1", wb_listener_port(p->l), &p->client);
	run_until(&p->client.opened, 1);
	run_until(&p->server.opened, 1);
}

static void pair_close(struct pair *p)
{
	if (p->client.ch)
		wb_chan_close(p->client.ch);
	if (p->server.ch)
		wb_chan_close(p->server.ch);
	run_until(&p->client.closed, 1);
	run_until(&p->server.closed, 1);
	wb_listener_close(p->l);
	wb_tls_put(p->st);
	wb_tls_put(p->ct);
}

START_TEST(frames_of_all_sizes_arrive_in_order_and_come_back)
{
	const size_t sizes[] = {16, 17, 100, 16384, 16385, 70000, FRAME_MAX, 16};
	struct pair p;
	int n = 0;

	pair_open(&p);
	ck_assert_str_eq(p.server.identity, "default/llm");
	ck_assert_int_eq(strncmp(wb_chan_peer(p.client.ch), "127.0.0.1:", 10), 0);
	p.server.echo = true;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < WB_ARRAY_SIZE(sizes); i++)
			ck_assert_int_eq(send_frame(p.client.ch, ++n, sizes[i]), 0);
		run_until(&p.client.frames, n);
	}
	ck_assert_uint_eq(p.client.bytes, p.server.bytes);
	ck_assert_uint_eq(wb_chan_queued(p.client.ch), 0);
	pair_close(&p);
	ck_assert_int_eq(p.client.code, 0);
	ck_assert_int_eq(p.server.code, 0);
}
END_TEST

START_TEST(a_full_queue_is_eagain_and_nothing_is_lost)
{
	struct pair p;
	int n = 0, rc;

	pair_open(&p);
	while (!(rc = send_frame(p.client.ch, n + 1, 500000)))
		n++;
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_int_eq(send_frame(p.client.ch, n + 1, 5u << 20), -EMSGSIZE);
	ck_assert_int_ge(n, 8);
	run_until(&p.server.frames, n);
	ck_assert_int_eq(send_frame(p.client.ch, ++n, 500000), 0);
	/* Closing sends what is queued first. */
	wb_chan_close(p.client.ch);
	ck_assert_int_eq(send_frame(p.client.ch, 1, 16), -ENOTCONN);
	run_until(&p.server.closed, 1);
	ck_assert_int_eq(p.server.frames, n);
	ck_assert_int_eq(p.server.code, 0);
	pair_close(&p);
}
END_TEST

START_TEST(the_last_frame_before_a_close_arrives_though_much_is_unread)
{
	struct pair p;

	for (int i = 0; i < 5; i++) {
		pair_open(&p);
		p.server.echo = true;
		p.server.close_at = 1;
		for (int n = 1; n <= 8; n++)
			ck_assert_int_eq(send_frame(p.client.ch, n, n == 1 ? 16 : 400000), 0);
		run_until(&p.client.closed, 1);
		ck_assert_int_eq(p.client.frames, 1);
		ck_assert_msg(p.client.code == 0, "%s", p.client.msg);
		pair_close(&p);
	}
}
END_TEST

START_TEST(an_oversized_frame_ends_the_channel_before_memory_is_taken)
{
	uint8_t head[WB_FRAME_HEAD_BYTES] = {0xff, 0xff, 0xff, 0xff};
	struct pair p;

	pair_open(&p);
	ck_assert_int_eq(wb_chan_send(p.client.ch, head, sizeof(head)), 0);
	run_until(&p.server.closed, 1);
	ck_assert_int_eq(p.server.code, -EMSGSIZE);
	ck_assert_msg(strstr(p.server.msg, "127.0.0.1:") != NULL &&
			      strstr(p.server.msg, "frame of 4294967295 bytes") != NULL,
		"%s", p.server.msg);
	pair_close(&p);
}
END_TEST

START_TEST(a_truncated_frame_is_ebadmsg)
{
	static const size_t cut[] = {1, 15, 16, 99};
	uint8_t *f = make_frame(1, 100);
	struct pair p;

	pair_open(&p);
	ck_assert_int_eq(wb_chan_send(p.client.ch, f, cut[_i]), 0);
	wb_chan_close(p.client.ch);
	run_until(&p.server.closed, 1);
	ck_assert_int_eq(p.server.code, -EBADMSG);
	ck_assert_msg(strstr(p.server.msg, "middle of a frame") != NULL, "%s", p.server.msg);
	ck_assert_int_eq(p.server.frames, 0);
	free(f);
	pair_close(&p);
}
END_TEST

static const struct {
	const char *id;
	uint8_t fill;
	const char *client, *server;
} wrong[] = {
	{"default/llm", 8, "does not accept key \"default/llm\": copy the key file of that side",
		"holds another key \"default/llm\" than this side: copy this side's key file"},
	{"default/other", 7, "does not accept key \"default/other\"",
		"names key \"default/other\", which is not known here"},
};

START_TEST(a_wrong_key_says_on_both_sides_what_to_fix)
{
	struct end server = {0}, client = {0};
	struct wb_tls *st = psk_tls(true, "default/llm", 7);
	struct wb_tls *ct = psk_tls(false, wrong[_i].id, wrong[_i].fill);
	struct wb_listener *l = listen_with(st, &server, false);

	dial(ct, "127.0.0.1", wb_listener_port(l), &client);
	run_until(&client.closed, 1);
	run_until(&server.refused, 1);
	ck_assert_int_eq(client.code, -EACCES);
	ck_assert_msg(strstr(client.msg, wrong[_i].client) != NULL, "%s", client.msg);
	ck_assert_msg(strstr(server.refusal, wrong[_i].server) != NULL, "%s", server.refusal);
	ck_assert(!server.opened && !client.opened);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

static int find_key(void *cookie, const char *id, struct wb_psk *out)
{
	int *asked = cookie;

	++*asked;
	if (strncmp(id, "epoch-", 6))
		return -ENOENT;
	*out = key(id, (uint8_t)atoi(id + 6));
	return 0;
}

START_TEST(a_server_looks_keys_up_by_their_id)
{
	int asked = 0;
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk_find = find_key, .psk_cookie = &asked};
	struct end server = {0}, client = {0};
	struct wb_tls *st, *ct = psk_tls(false, "epoch-42", 42);
	struct wb_listener *l;

	ck_assert_int_eq(wb_tls_server_create(&o, &st, NULL), 0);
	l = listen_with(st, &server, false);
	dial(ct, "localhost", wb_listener_port(l), &client);
	run_until(&server.opened, 1);
	ck_assert_str_eq(server.identity, "epoch-42");
	ck_assert_int_ge(asked, 1);
	/* A channel outlives its listener and the caller's reference to the context. */
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
	run_until(&client.opened, 1);
	ck_assert_int_eq(send_frame(client.ch, 1, 1000), 0);
	run_until(&server.frames, 1);
	wb_chan_close(server.ch);
	run_until(&client.closed, 1);
	run_until(&server.closed, 1);
}
END_TEST

/* ---- other bytes on the port ----------------------------------------------------------------- */

static int raw_connect(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

START_TEST(another_first_byte_is_handed_out_raw_and_unread)
{
	struct end server = {0};
	struct wb_tls *st = psk_tls(true, "k", 1);
	struct wb_listener *l = listen_with(st, &server, true);
	int fd = raw_connect(wb_listener_port(l));
	char buf[8];

	ck_assert_int_eq(write(fd, "WBbulk", 6), 6);
	run_until(&server.raws, 1);
	ck_assert_int_eq(read(server.raw_fd, buf, 6), 6);
	ck_assert_mem_eq(buf, "WBbulk", 6);
	close(server.raw_fd);
	close(fd);
	wb_listener_close(l);
	wb_tls_put(st);
}
END_TEST

static const struct {
	const char *bytes;
	size_t n;
	bool leave;
	const char *word;
} rude[] = {
	{"GET / HTTP/1.1\r\n\r\n", 18, false, "does not speak TLS"},
	{"", 0, false, "said nothing"},
	{"", 0, true, "left before it said anything"},
	{"\x16rubbish rubbish", 16, false, "TLS"},
	{"\x16", 1, false, "no answer within 50 ms (TLS handshake)"},
	{"\x16\x03\x01", 3, true, "closed the connection"},
};

START_TEST(connections_that_are_not_peers_are_refused_in_time)
{
	struct end server = {0};
	struct wb_tls *st = psk_tls(true, "k", 1);
	struct wb_listen_opts o = {.host = "127.0.0.1", .tls = st, .limits = limits};
	const struct wb_listen_cb cb = {&server, on_chan, NULL, on_refused};
	struct wb_listener *l;
	int fd;

	o.limits.connect_ns = 50 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_listen(loop, &o, &cb, &l, NULL), 0);
	fd = raw_connect(wb_listener_port(l));
	if (rude[_i].n)
		ck_assert_int_eq(write(fd, rude[_i].bytes, rude[_i].n), (ssize_t)rude[_i].n);
	if (rude[_i].leave)
		close(fd);
	run_until(&server.refused, 1);
	ck_assert_msg(strstr(server.refusal, rude[_i].word) != NULL, "%s", server.refusal);
	if (!rude[_i].leave)
		close(fd);
	wb_listener_close(l);
	wb_tls_put(st);
}
END_TEST

START_TEST(too_many_connections_are_turned_away_and_closing_drops_the_rest)
{
	struct end server = {0};
	struct wb_tls *st = psk_tls(true, "k", 1);
	struct wb_listen_opts o = {
		.host = "127.0.0.1", .tls = st, .limits = limits, .pending_max = 2};
	const struct wb_listen_cb cb = {&server, on_chan, NULL, on_refused};
	struct wb_listener *l;
	int fd[3];
	char c;

	ck_assert_int_eq(wb_listen(loop, &o, &cb, &l, NULL), 0);
	for (int i = 0; i < 3; i++)
		fd[i] = raw_connect(wb_listener_port(l));
	ck_assert_int_eq(write(fd[0], "\x16\x03", 2), 2);
	run_until(&server.refused, 1);
	ck_assert_msg(strstr(server.refusal, "too many") != NULL, "%s", server.refusal);
	for (int i = 0; i < 5; i++)
		wb_loop_run_once(loop, false);
	wb_listener_close(l);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_le(read(fd[i], &c, 1), 0);
		close(fd[i]);
	}
	ck_assert_int_eq(server.refused, 1);
	wb_tls_put(st);
}
END_TEST

START_TEST(nobody_listening_and_no_answer_are_said)
{
	struct wb_chan_limits lim = limits;
	struct sockaddr_in sa = {.sin_family = AF_INET};
	struct end a = {0}, b = {0};
	struct wb_tls *ct = psk_tls(false, "k", 1);
	struct wb_chan_cb cb = cb_of(&b);
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	getsockname(fd, (struct sockaddr *)&sa, &len);
	dial(ct, "127.0.0.1", ntohs(sa.sin_port), &a);
	run_until(&a.closed, 1);
	ck_assert_int_eq(a.code, -ECONNREFUSED);
	ck_assert_msg(strstr(a.msg, "nobody listens there") != NULL, "%s", a.msg);
	ck_assert_int_eq(listen(fd, 1), 0);
	lim.connect_ns = 50 * WB_NS_PER_MS;
	ck_assert_int_eq(
		wb_tls_connect(loop, ct, "127.0.0.1", ntohs(sa.sin_port), &lim, &cb, &b.ch), 0);
	run_until(&b.closed, 1);
	ck_assert_int_eq(b.code, -ETIMEDOUT);
	ck_assert_msg(strstr(b.msg, "(TLS handshake)") != NULL, "%s", b.msg);
	close(fd);
	/* Closing while the name is looked up, and in the handshake. */
	memset(&b, 0, sizeof(b));
	ck_assert_int_eq(wb_tls_connect(loop, ct, "127.0.0.1", 1, &lim, &cb, &b.ch), 0);
	wb_chan_close(b.ch);
	run_until(&b.closed, 1);
	ck_assert_int_eq(b.code, 0);
	ck_assert_int_eq(wb_tls_connect(loop, ct, "", 1, &lim, &cb, &b.ch), -EINVAL);
	ck_assert_int_eq(wb_tls_connect(loop, ct, "h", 0, &lim, &cb, &b.ch), -EINVAL);
	wb_tls_put(ct);
}
END_TEST

START_TEST(a_port_in_use_is_eaddrinuse)
{
	struct end server = {0};
	struct wb_tls *st = psk_tls(true, "k", 1);
	struct wb_listener *l = listen_with(st, &server, false), *m;
	struct wb_listen_opts o = {
		.host = "127.0.0.1", .port = wb_listener_port(l), .tls = st, .limits = limits};
	const struct wb_listen_cb cb = {&server, on_chan, NULL, NULL};
	struct wb_err err = {0};

	ck_assert_int_eq(wb_listen(loop, &o, &cb, &m, &err), -EADDRINUSE);
	ck_assert_msg(strstr(err.msg, "another process has the port") != NULL, "%s", err.msg);
	wb_listener_close(l);
	/* All addresses, whatever the machine has. */
	o.host = NULL;
	o.port = 0;
	ck_assert_msg(!wb_listen(loop, &o, &cb, &m, &err), "%s", err.msg);
	close(raw_connect(wb_listener_port(m)));
	wb_listener_close(m);
	wb_tls_put(st);
}
END_TEST

START_TEST(making_things_without_memory_is_enomem_and_leaks_nothing)
{
	struct wb_psk k = key("k", 1);
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &k};
	struct wb_tls *ct = psk_tls(false, "k", 1), *st;
	struct end e = {0};
	struct wb_listen_opts lo = {.host = "127.0.0.1", .limits = limits};
	const struct wb_listen_cb lcb = {&e, on_chan, NULL, NULL};
	struct wb_chan_cb cb = cb_of(&e);
	struct wb_listener *l;
	int rc = -ENOMEM, at[3] = {0}, step = 0;

	/* Three creations in turn, each with its first, second, ... allocation failing. */
	while (step < 3) {
		wb_mem_fail_at((uint64_t)++at[step]);
		if (step == 0)
			rc = wb_tls_server_create(&o, &st, NULL);
		else if (step == 1)
			rc = wb_listen(loop, &lo, &lcb, &l, NULL);
		else
			rc = wb_tls_connect(loop, ct, "127.0.0.1", 1, &limits, &cb, &e.ch);
		if (wb_mem_failed()) {
			ck_assert_int_eq(rc, -ENOMEM);
			continue;
		}
		wb_mem_fail_at(0);
		ck_assert_int_eq(rc, 0);
		lo.tls = st;
		step++;
	}
	ck_assert(at[0] > 1 && at[1] > 3 && at[2] > 3);
	wb_chan_close(e.ch);
	run_until(&e.closed, 1);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

/* ---- certificates ---------------------------------------------------------------------------- */

static char dir[256];

static void add_ext(X509 *x, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
}

/* A self-signed certificate for @san, which is its own CA. */
static void make_cert(const char *name, const char *san)
{
	char path[512];
	EVP_PKEY *k = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	FILE *f;

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -60);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_set_pubkey(x, k);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
		(const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(x));
	add_ext(x, NID_basic_constraints, "critical,CA:TRUE");
	add_ext(x, NID_subject_alt_name, san);
	X509_sign(x, k, EVP_sha256());
	snprintf(path, sizeof(path), "%s/%s.pem", dir, name);
	f = fopen(path, "w");
	PEM_write_X509(f, x);
	fclose(f);
	snprintf(path, sizeof(path), "%s/%s.key", dir, name);
	f = fopen(path, "w");
	PEM_write_PrivateKey(f, k, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	X509_free(x);
	EVP_PKEY_free(k);
}

static void cert_set_up(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/wbn-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	make_cert("a", "DNS:localhost,IP:127.0.0.1");
	make_cert("b", "DNS:elsewhere");
	set_up();
}

static void cert_tear_down(void)
{
	char cmd[512];

	tear_down();
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static struct wb_tls *cert_tls(bool is_server, const char *cert, const char *name)
{
	char pem[512], pkey[512];
	struct wb_tls_opts o = {.mode = WB_TLS_CERT, .server_name = name};
	struct wb_err err = {0};
	struct wb_tls *t;
	int rc;

	snprintf(pem, sizeof(pem), "%s/%s.pem", dir, cert);
	snprintf(pkey, sizeof(pkey), "%s/%s.key", dir, cert);
	if (is_server)
		o.cert_file = pem, o.key_file = pkey;
	else
		o.ca_file = pem;
	rc = (is_server ? wb_tls_server_create : wb_tls_client_create)(&o, &t, &err);
	ck_assert_msg(!rc, "%s", err.msg);
	return t;
}

static const struct {
	const char *cert, *ca, *name, *host, *word;
} certs[] = {
	{"a", "a", NULL, "localhost", NULL},
	{"a", "a", NULL, "127.0.0.1", NULL},
	{"b", "b", "elsewhere", "127.0.0.1", NULL},
	{"b", "b", NULL, "127.0.0.1", "check the CA file and the name dialled"},
	{"a", "b", NULL, "127.0.0.1", "is not accepted: self"},
};

START_TEST(a_client_takes_only_a_certificate_of_its_ca_and_name)
{
	struct end server = {0}, client = {0};
	struct wb_tls *st = cert_tls(true, certs[_i].cert, NULL);
	struct wb_tls *ct = cert_tls(false, certs[_i].ca, certs[_i].name);
	struct wb_listener *l = listen_with(st, &server, false);

	dial(ct, certs[_i].host, wb_listener_port(l), &client);
	if (certs[_i].word) {
		run_until(&client.closed, 1);
		ck_assert_int_eq(client.code, -EACCES);
		ck_assert_msg(strstr(client.msg, certs[_i].word) != NULL, "%s", client.msg);
		run_until(&server.refused, 1);
	} else {
		run_until(&server.opened, 1);
		ck_assert_str_eq(server.identity, "");
		ck_assert_int_eq(send_frame(server.ch, 1, 100), 0);
		run_until(&client.frames, 1);
		wb_chan_close(server.ch);
		run_until(&client.closed, 1);
		run_until(&server.closed, 1);
	}
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
}
END_TEST

START_TEST(a_key_and_a_certificate_do_not_meet)
{
	struct end server = {0}, client = {0};
	struct wb_tls *st = cert_tls(true, "a", NULL), *ct = psk_tls(false, "k", 1);
	struct wb_tls *st2 = psk_tls(true, "k", 1), *ct2 = cert_tls(false, "a", NULL);
	struct wb_listener *l = listen_with(st, &server, false);

	dial(ct, "127.0.0.1", wb_listener_port(l), &client);
	run_until(&client.closed, 1);
	ck_assert_msg(strstr(client.msg, "shows a certificate") != NULL, "%s", client.msg);
	run_until(&server.refused, 1);
	wb_listener_close(l);
	l = listen_with(st2, &server, false);
	dial(ct2, "127.0.0.1", wb_listener_port(l), &client);
	run_until(&client.closed, 2);
	run_until(&server.refused, 2);
	ck_assert_msg(
		strstr(server.refusal, "offers no pre-shared key") != NULL, "%s", server.refusal);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
	wb_tls_put(st2);
	wb_tls_put(ct2);
}
END_TEST

START_TEST(bad_files_are_named_and_a_reload_keeps_the_old)
{
	char pem[512], other[512];
	struct wb_tls_opts o = {.mode = WB_TLS_CERT, .cert_file = pem, .key_file = other};
	struct wb_tls *t, *st = cert_tls(true, "a", NULL);
	struct wb_err err = {0};
	FILE *f;

	snprintf(pem, sizeof(pem), "%s/a.pem", dir);
	snprintf(other, sizeof(other), "%s/b.key", dir);
	ck_assert_int_eq(wb_tls_server_create(&o, &t, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "b.key") != NULL, "%s", err.msg);
	o.cert_file = "/nonexistent.pem";
	ck_assert_int_eq(wb_tls_server_create(&o, &t, &err), -ENOENT);
	ck_assert_msg(strstr(err.msg, "/nonexistent.pem") != NULL, "%s", err.msg);
	o.mode = WB_TLS_PSK;
	ck_assert_int_eq(wb_tls_server_create(&o, &t, &err), -EINVAL);
	ck_assert_int_eq(wb_tls_reload(st, &err), 0);
	f = fopen(pem, "w");
	fputs("not a certificate\n", f);
	fclose(f);
	ck_assert_int_eq(wb_tls_reload(st, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "a.pem") != NULL, "%s", err.msg);
	wb_tls_put(st);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tls");
	TCase *t = tcase_create("psk");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, frames_of_all_sizes_arrive_in_order_and_come_back);
	tcase_add_test(t, a_full_queue_is_eagain_and_nothing_is_lost);
	tcase_add_test(t, the_last_frame_before_a_close_arrives_though_much_is_unread);
	tcase_add_test(t, an_oversized_frame_ends_the_channel_before_memory_is_taken);
	tcase_add_loop_test(t, a_truncated_frame_is_ebadmsg, 0, 4);
	tcase_add_loop_test(t, a_wrong_key_says_on_both_sides_what_to_fix, 0, WB_ARRAY_SIZE(wrong));
	tcase_add_test(t, a_server_looks_keys_up_by_their_id);
	suite_add_tcase(s, t);
	t = tcase_create("port");
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, another_first_byte_is_handed_out_raw_and_unread);
	tcase_add_loop_test(
		t, connections_that_are_not_peers_are_refused_in_time, 0, WB_ARRAY_SIZE(rude));
	tcase_add_test(t, too_many_connections_are_turned_away_and_closing_drops_the_rest);
	tcase_add_test(t, nobody_listening_and_no_answer_are_said);
	tcase_add_test(t, a_port_in_use_is_eaddrinuse);
	tcase_add_test(t, making_things_without_memory_is_enomem_and_leaks_nothing);
	suite_add_tcase(s, t);
	t = tcase_create("cert");
	tcase_add_checked_fixture(t, cert_set_up, cert_tear_down);
	tcase_add_loop_test(
		t, a_client_takes_only_a_certificate_of_its_ca_and_name, 0, WB_ARRAY_SIZE(certs));
	tcase_add_test(t, a_key_and_a_certificate_do_not_meet);
	tcase_add_test(t, bad_files_are_named_and_a_reload_keeps_the_old);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
