/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl support-bundle: writes the pages that can be had here as a tar file.  No page shows tokens
 * or keys, and no other files and no environment variables go into it. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "weightbridge-support/"
#define BLOCK 512

struct bundle {
	struct wb_buf log; /* what was taken, and what was not */
	unsigned n; /* pages that were taken */
};

static void put_octal(char *at, size_t bytes, uint64_t v)
{
	char text[32];

	snprintf(text, sizeof(text), "%0*" PRIo64, (int)bytes - 1, v);
	memcpy(at, text, bytes);
}

/* One file in the format of POSIX 1003.1-1990, which every tar reads. */
static void put_file(const char *name, const void *data, size_t bytes)
{
	static const char zero[BLOCK];
	char h[BLOCK] = {0};
	unsigned sum = 0;

	snprintf(h, 100, "%s", name);
	put_octal(h + 100, 8, 0644);
	put_octal(h + 108, 8, 0);
	put_octal(h + 116, 8, 0);
	put_octal(h + 124, 12, bytes);
	put_octal(h + 136, 12, wb_wall_ns() / WB_NS_PER_S);
	h[156] = '0';
	memcpy(h + 257,
		"ustar\0"
		"00",
		8);
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += (unsigned char)h[i];
	put_octal(h + 148, 7, sum);
	fwrite(h, 1, BLOCK, stdout);
	fwrite(data, 1, bytes, stdout);
	fwrite(zero, 1, (BLOCK - bytes % BLOCK) % BLOCK, stdout);
}

static int take(
	struct bundle *b, const char *addr, const char *path, const char *object, const char *name)
{
	char full[128];
	struct wb_err err = {0};
	struct wb_buf page;
	int rc;

	wb_buf_init(&page, WB_CTL_PAGE_MAX);
	rc = wb__ctl_fetch(addr, path, object, &page, &err);
	if (rc == 0) {
		snprintf(full, sizeof(full), FOLDER "%.90s", name);
		put_file(full, page.data, page.len);
		b->n++;
	}
	wb_buf_printf(&b->log, "%s: %s\n", name, rc ? err.msg : "taken");
	wb_buf_finish(&page);
	return rc;
}

static const struct {
	const char *path, *suffix;
} object_pages[] = {
	{"/status", "status.json"},
	{"/trace", "trace.json"},
	{"/plan", "plan.bin"},
};

static void take_objects(struct bundle *b, const char *addr)
{
	struct wb_err err = {0};
	json_t *list = NULL;
	const json_t *o;
	size_t i;

	if (wb__ctl_fetch_json(addr, "/objects", NULL, &list, &err) < 0)
		return;
	json_array_foreach(json_object_get(list, "items"), i, o)
	{
		char ns[64], name[254], key[320], file[100];

		wb__ctl_text(o, "metadata.namespace", ns, sizeof(ns));
		wb__ctl_text(o, "metadata.name", name, sizeof(name));
		snprintf(key, sizeof(key), "%s/%s", ns, name);
		for (size_t p = 0; p < WB_ARRAY_SIZE(object_pages); p++) {
			snprintf(file, sizeof(file), "object-%zu-%.40s-%s", i, name,
				object_pages[p].suffix);
			take(b, addr, object_pages[p].path, key, file);
		}
	}
	json_decref(list);
}

static void take_all(struct bundle *b, const struct wb__ctl_opts *o)
{
	char text[32];
	const char *agent = wb__ctl_agent(o, text), *addr = wb__ctl_operator(o);

	if (agent) {
		take(b, agent, "/status", NULL, "agent-status.json");
		take(b, agent, "/metrics", NULL, "agent-metrics.txt");
		take(b, agent, "/trace", NULL, "agent-trace.json");
	}
	/* Beside an agent no operator is asked, unless one was named. */
	if (agent && !o->operator_addr)
		return;
	take(b, addr, "/readyz", NULL, "operator-readyz.txt");
	take(b, addr, "/metrics", NULL, "operator-metrics.txt");
	if (take(b, addr, "/objects", NULL, "operator-objects.json") == 0)
		take_objects(b, addr);
}

int wb__ctl_bundle(const struct wb__ctl_opts *o, struct wb_err *err)
{
	static const char end[2 * BLOCK];
	struct bundle b = {.n = 0};
	int rc = 0;

	if (isatty(STDOUT_FILENO))
		return wb_err_set(err, -EINVAL,
			"this writes a tar file: add > support.tar (with kubectl exec, not -t)");
	wb_buf_init(&b.log, 1u << 20);
	wb_buf_printf(&b.log, "wbctl %s\n", WB_VERSION);
	take_all(&b, o);
	put_file(FOLDER "about.txt", b.log.data, b.log.len);
	fwrite(end, 1, sizeof(end), stdout);
	if (!b.n)
		rc = wb_err_set(err, -ENOENT, "nothing was reached:\n%.1500s", wb_buf_cstr(&b.log));
	wb_buf_finish(&b.log);
	return rc;
}
