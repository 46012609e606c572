/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a set: the transports that are named, or all that this host has. */
#include "xport/set.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define MOD "xport"
#define ADDR_MAX 256
#define WORD_MAX 32
#define AUTO "auto"

/* Open one transport, with rails at the addresses in @o. */
static int open_one(const struct wb_xport_ops *ops, const struct wb_xport_opts *o, uint32_t tag,
	struct wb_xport **out, struct wb_err *err)
{
	struct wb_xport_rail rail[WB_XPORT_RAILS_MAX];
	char addr[WB_XPORT_RAILS_MAX][ADDR_MAX];
	struct wb_xport_opts mine = *o;

	mine.rail = rail;
	mine.tag = tag;
	for (uint32_t i = 0; i < WB_MIN(o->n_rail, (uint32_t)WB_XPORT_RAILS_MAX); i++) {
		int rc = 0;

		rail[i] = o->rail[i];
		if (!ops->rail_addr)
			continue;
		rc = ops->rail_addr(&o->rail[i], o->folder, addr[i], sizeof(addr[i]));
		if (rc < 0)
			return wb_err_set(err, rc, "rail %u: the address is too long", i);
		rail[i].addr = addr[i];
		/* The rate is the cap of a network interface, which this transport does not use. */
		if (ops->caps & WB_XPORT_CAP_LOCAL && o->is_apart)
			rail[i].rate_bytes_per_s = 0;
	}
	return ops->open(&mine, out, err);
}

static int add_member(struct wb__set *s, const struct wb_xport_ops *ops,
	const struct wb_xport_opts *o, struct wb_err *err)
{
	struct wb__member *m = &s->m[s->n];
	int rc = open_one(ops, o, s->n, &m->x, err);
	size_t at = strlen(s->name);

	if (rc < 0)
		return rc;
	s->n++;
	snprintf(s->name + at, sizeof(s->name) - at, "%s%s", at ? "," : "", m->x->ops->name);
	s->ops.caps |= m->x->ops->caps & (WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_THREADS |
						 WB_XPORT_CAP_LANDINGS | WB_XPORT_CAP_GPU);
	if (wb_xport_event_fd(m->x) < 0)
		return 0;
	return epoll_ctl(s->epfd, EPOLL_CTL_ADD, wb_xport_event_fd(m->x),
		       &(struct epoll_event){.events = EPOLLIN}) < 0
		       ? wb_err_set(err, -errno, "transport %s: %s", ops->name, strerror(errno))
		       : 0;
}

static bool names_device(const struct wb_xport_opts *o)
{
	for (uint32_t i = 0; i < o->n_rail; i++)
		if (o->rail[i].device)
			return true;
	return false;
}

static bool uses_devices(const char *name)
{
	return wb_xport_find(name)->caps & WB_XPORT_CAP_LANDINGS;
}

static int add_all(struct wb__set *s, const struct wb_xport_opts *o, struct wb_err *err)
{
	static const char *const best[] = {"shm", "verbs", "tcp"};

	for (uint32_t i = 0; i < WB_ARRAY_SIZE(best); i++) {
		struct wb_err why = {0};
		int rc = add_member(s, wb_xport_find(best[i]), o, &why);

		/* A transport that cannot be opened is left out, with three exceptions.  Want of
		 * memory says nothing about the transport.  What is wrong with the last transport
		 * is mostly wrong with all.  And a rail may name a device that only this transport
		 * uses. */
		if (rc < 0 && (rc == -ENOMEM || i + 1 == WB_ARRAY_SIZE(best) ||
				      (names_device(o) && uses_devices(best[i]))))
			return wb_err_wrap(err, rc, "%s", why.msg);
		if (rc < 0)
			WB_LOG_INFO(MOD, "transport left out", WB_S("transport", best[i]),
				WB_S("reason", why.msg));
	}
	return 0;
}

static int add_named(
	struct wb__set *s, const char *names, const struct wb_xport_opts *o, struct wb_err *err)
{
	char word[WORD_MAX];
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && wb__way_word(names, i, word, sizeof(word)); i++)
		rc = add_member(s, wb_xport_find(word), o, err);
	return rc;
}

int wb_xport_check_names(const char *names, struct wb_err *err)
{
	const struct wb_xport_ops *known[WB_XPORT_SET_MAX];
	uint32_t n = 0, n_word = 1;
	char word[WORD_MAX];

	if (!strcmp(names, AUTO))
		return 0;
	for (const char *s = names; *s; s++)
		n_word += *s == ',';
	if (n_word > WB_XPORT_SET_MAX)
		return wb_err_set(err, -EINVAL, "more than %d transports", WB_XPORT_SET_MAX);
	for (; n < n_word && wb__way_word(names, n, word, sizeof(word)); n++) {
		known[n] = wb_xport_find(word);
		if (!known[n])
			return wb__xport_unknown(word, err);
		for (uint32_t k = 0; k < n; k++)
			if (known[k] == known[n])
				return wb_err_set(
					err, -EINVAL, "transport %s is named twice", word);
	}
	return n == n_word ? 0
			   : wb_err_set(err, -EINVAL,
				     "a name is empty among the transports '%.100s'", names);
}

int wb_xport_open_set(
	const char *names, const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	bool is_auto = !strcmp(names, AUTO);
	int rc = wb_xport_check_names(names, err);
	struct wb__set *s;

	if (rc < 0)
		return rc;
	if (!is_auto && !strchr(names, ','))
		return open_one(wb_xport_find(names), o, 0, out, err);
	s = wb_zalloc(1, sizeof(*s));
	if (!s)
		return wb_err_set(err, -ENOMEM, "no memory for transports");
	s->ops = wb__set_ops;
	s->ops.name = s->name;
	s->base.ops = &s->ops;
	s->epfd = epoll_create1(EPOLL_CLOEXEC);
	rc = s->epfd < 0 ? wb_err_set(err, -errno, "transports: %s", strerror(errno)) : 0;
	if (rc == 0)
		rc = is_auto ? add_all(s, o, err) : add_named(s, names, o, err);
	if (rc < 0) {
		wb__set_close(&s->base);
		return rc;
	}
	*out = &s->base;
	return 0;
}
