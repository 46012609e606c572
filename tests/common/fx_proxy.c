/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS_MAX 16

struct way {
	uint8_t *kept;
	size_t n_kept;
	uint64_t passed;
	bool is_over; /* its reader is at the end, or it is held */
};

struct link {
	int fd[2]; /* the dialer's, the acceptor's */
	struct way way[2];
};

struct fx_proxy {
	char endpoint[64];
	struct sockaddr_in target;
	struct fx_tamper tamper;
	size_t keep;
	int listen_fd, stop_fd;
	struct link link[LINKS_MAX];
	int n_link;
	bool is_meddled, is_stopped;
	pthread_t thread;
};

static void die(const char *what)
{
	perror(what);
	abort();
}

static void take_link(struct fx_proxy *p)
{
	struct link *l = &p->link[p->n_link];

	if (p->n_link == LINKS_MAX)
		die("fx_proxy: too many links");
	l->fd[0] = accept(p->listen_fd, NULL, NULL);
	l->fd[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (l->fd[0] < 0 || l->fd[1] < 0 ||
		connect(l->fd[1], (struct sockaddr *)&p->target, sizeof(p->target)))
		die("fx_proxy: connect");
	for (int i = 0; i < 2; i++) {
		l->way[i].kept = malloc(p->keep);
		if (!l->way[i].kept)
			die("fx_proxy: memory");
	}
	p->n_link++;
}

static void push(int fd, const uint8_t *b, size_t n)
{
	while (n) {
		ssize_t k = send(fd, b, n, MSG_NOSIGNAL);

		if (k <= 0)
			return; /* the other end is gone: its reader sees it */
		b += k;
		n -= (size_t)k;
	}
}

static void end_way(struct link *l, int dir)
{
	l->way[dir].is_over = true;
	shutdown(l->fd[dir], SHUT_RD);
	shutdown(l->fd[1 - dir], SHUT_WR);
}

/* True: these @n bytes were dealt with. */
static bool meddle(struct fx_proxy *p, struct link *l, int dir, uint8_t *b, size_t n)
{
	const struct fx_tamper *t = &p->tamper;
	uint64_t from = l->way[dir].passed;
	size_t at = (size_t)(t->at - from);

	if (t->what == FX_PASS || p->is_meddled || l != p->link || dir != t->dir || t->at < from ||
		t->at >= from + n)
		return false;
	p->is_meddled = true;
	if (t->what == FX_FLIP) {
		b[at] ^= 0x10;
		return false;
	}
	push(l->fd[1 - dir], b, at);
	if (t->what == FX_INSERT) {
		push(l->fd[1 - dir], t->insert, t->insert_bytes);
		push(l->fd[1 - dir], b + at, n - at);
	} else if (t->what == FX_CUT) {
		end_way(l, dir);
		end_way(l, 1 - dir);
	} else {
		l->way[dir].is_over = true;
	}
	return true;
}

static void pass_on(struct fx_proxy *p, struct link *l, int dir)
{
	struct way *w = &l->way[dir];
	uint8_t b[65536];
	ssize_t n = recv(l->fd[dir], b, sizeof(b), 0);
	size_t k;

	if (n <= 0) {
		end_way(l, dir);
		return;
	}
	k = p->keep - w->n_kept < (size_t)n ? p->keep - w->n_kept : (size_t)n;
	memcpy(w->kept + w->n_kept, b, k);
	w->n_kept += k;
	if (!meddle(p, l, dir, b, (size_t)n))
		push(l->fd[1 - dir], b, (size_t)n);
	w->passed += (uint64_t)n;
}

static void *run(void *arg)
{
	struct fx_proxy *p = arg;
	struct pollfd f[2 + 2 * LINKS_MAX];

	for (;;) {
		int n = p->n_link;

		f[0] = (struct pollfd){p->stop_fd, POLLIN, 0};
		f[1] = (struct pollfd){p->listen_fd, POLLIN, 0};
		for (int i = 0; i < 2 * n; i++) {
			struct link *l = &p->link[i / 2];

			f[2 + i] = (struct pollfd){
				l->way[i % 2].is_over ? -1 : l->fd[i % 2], POLLIN, 0};
		}
		if (poll(f, (nfds_t)(2 + 2 * n), -1) < 0)
			die("fx_proxy: poll");
		if (f[0].revents)
			return NULL;
		for (int i = 0; i < 2 * n; i++)
			if (f[2 + i].revents && !p->link[i / 2].way[i % 2].is_over)
				pass_on(p, &p->link[i / 2], i % 2);
		if (f[1].revents)
			take_link(p);
	}
}

struct fx_proxy *fx_proxy_open(const char *target, const struct fx_tamper *t, size_t keep)
{
	struct fx_proxy *p = calloc(1, sizeof(*p));
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	const char *colon = strrchr(target, ':');

	if (!p || !colon)
		die("fx_proxy: target");
	p->target = a;
	p->target.sin_port = htons((uint16_t)atoi(colon + 1));
	p->tamper = t ? *t : (struct fx_tamper){0};
	p->keep = keep;
	p->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	p->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (p->listen_fd < 0 || p->stop_fd < 0 ||
		bind(p->listen_fd, (struct sockaddr *)&a, sizeof(a)) ||
		listen(p->listen_fd, LINKS_MAX) ||
		getsockname(p->listen_fd, (struct sockaddr *)&a, &len))
		die("fx_proxy: listen");
	snprintf(p->endpoint, sizeof(p->endpoint), "127.0.0.1:%d", ntohs(a.sin_port));
	if (pthread_create(&p->thread, NULL, run, p))
		die("fx_proxy: thread");
	return p;
}

const char *fx_proxy_endpoint(const struct fx_proxy *p)
{
	return p->endpoint;
}

bool fx_proxy_saw(const struct fx_proxy *p, const void *bytes, size_t n)
{
	for (int i = 0; i < 2 * p->n_link; i++) {
		const struct way *w = &p->link[i / 2].way[i % 2];

		if (memmem(w->kept, w->n_kept, bytes, n))
			return true;
	}
	return false;
}

uint64_t fx_proxy_passed(const struct fx_proxy *p, int dir)
{
	return p->n_link ? p->link[0].way[dir].passed : 0;
}

const uint8_t *fx_proxy_kept(const struct fx_proxy *p, int dir, size_t *bytes)
{
	*bytes = p->n_link ? p->link[0].way[dir].n_kept : 0;
	return p->n_link ? p->link[0].way[dir].kept : NULL;
}

void fx_proxy_stop(struct fx_proxy *p)
{
	uint64_t one = 1;

	if (p->is_stopped)
		return;
	p->is_stopped = true;
	if (write(p->stop_fd, &one, sizeof(one)) != sizeof(one))
		die("fx_proxy: stop");
	pthread_join(p->thread, NULL);
	for (int i = 0; i < 2 * p->n_link; i++)
		close(p->link[i / 2].fd[i % 2]);
	close(p->listen_fd);
	close(p->stop_fd);
}

void fx_proxy_close(struct fx_proxy *p)
{
	fx_proxy_stop(p);
	for (int i = 0; i < 2 * p->n_link; i++)
		free(p->link[i / 2].way[i % 2].kept);
	free(p);
}
