/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small texts of users and of the system: WB_FAULT, numbers, sizes and addresses of the command
 * line, key files, base64, hex, digests, control groups, addresses of a plan, and the trace's
 * names. The first byte picks one.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/cli.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/mem.h"
#include "daemon/addr.h"
#include "daemon/trace.h"
#include "mem/cgroup.h"
#include "net/psk.h"
#include "operator-shim/kube/text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fault(const char *text)
{
	struct wb_fault *f = NULL;
	struct wb_err err = {0};

	if (wb_fault_parse(text, &f, &err) < 0 && (!err.msg[0] || f))
		abort();
	wb_fault_destroy(f);
}

static void cli(const char *text)
{
	struct wb_cli_addr a;
	uint64_t v;

	if (wb_cli_uint(text, 3, 1000, &v) == 0 && (v < 3 || v > 1000))
		abort();
	if (wb_cli_size(text, text[0] & 1, &v) == 0 && v > 1ull << 60)
		abort();
	if (wb_cli_addr(text, &a) == 0 && strlen(a.host) >= sizeof(a.host))
		abort();
	if (wb_cli_is_object(text, 64) && (strlen(text) >= 64 || !strchr(text, '/')))
		abort();
}

/* Through /proc, so that no file is left anywhere. */
static void key_file(const char *text, size_t n)
{
	int fd = memfd_create("k", MFD_CLOEXEC);
	struct wb_err err = {0};
	struct wb_psk k;
	char path[64];

	if (fd < 0 || fchmod(fd, 0600) < 0 || write(fd, text, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (wb_psk_read("/proc/self/fd/none", "id", &k, &err) != -ENOENT ||
		(wb_psk_read(path, text, &k, &err) == -EINVAL) !=
			(!*text || strlen(text) >= sizeof(k.id)))
		abort();
	if (wb_psk_read(path, "id", &k, &err) < 0) {
		if (strstr(err.msg, "hex digits") == NULL)
			abort();
	} else if (k.bytes < WB_PSK_BYTES_MIN || k.bytes > WB_PSK_BYTES_MAX) {
		abort();
	}
	close(fd);
}

static void base64(const char *text)
{
	uint8_t *out = NULL;
	size_t n = 0, m = 0;

	if (wb_kube_base64(text, &out, &n) == 0) {
		char *back = wb_kube_to_base64(out, n);
		uint8_t *again = NULL;

		if (!back || wb_kube_base64(back, &again, &m) < 0 || m != n ||
			memcmp(out, again, n))
			abort();
		wb_free(again);
		wb_free(back);
		wb_free(out);
	}
}

static void digits(const char *text)
{
	char back[WB_DIGEST_TEXT];
	uint8_t raw[32], *exact;
	struct wb_digest d;
	size_t n = strlen(text) / 2;

	if (wb_digest_parse(text, &d) == 0 && strcasecmp(wb_digest_text(d, back), text) != 0)
		abort();
	exact = malloc(n + 1);
	if (exact && wb_hex_parse(text, exact, n) == 0 && strlen(text) != 2 * n)
		abort();
	if (wb_hex_parse(text, raw, sizeof(raw)) == 0 && strlen(text) != 64)
		abort();
	free(exact);
}

static void put_file(const char *path, const char *text, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n)
		abort();
	close(fd);
}

/* A first line for memory.max, the rest is /proc/self/cgroup. */
static void cgroup(const char *text)
{
	static char dir[64];
	char max[96], self[96];
	struct wb_cgroup_memory m;
	struct wb_err err = {0};
	size_t n = strcspn(text, "|");

	if (!dir[0]) {
		snprintf(dir, sizeof(dir), "/tmp/fuzz-cgroup-XXXXXX");
		if (!mkdtemp(dir))
			abort();
	}
	snprintf(max, sizeof(max), "%s/memory.max", dir);
	snprintf(self, sizeof(self), "%s/self", dir);
	put_file(max, text, n);
	put_file(self, text[n] ? text + n + 1 : "0::/\n", text[n] ? strlen(text + n + 1) : 5);
	if (wb_cgroup_memory(dir, self, &m, &err) < 0 && !err.msg[0])
		abort();
	unlink(max);
	unlink(self);
}

/* Whatever the names are, the trace is JSON. */
static void trace(const char *text)
{
	struct wb__trace_ring *t = wb__trace_create(text, 4);
	struct wb_buf b;
	json_t *o;

	wb_buf_init(&b, 1 << 20);
	wb__trace_mark(t, text, text, 1, 2);
	wb__trace_span(t, "x", text, 1, 5, 2);
	for (size_t i = 0; i < strlen(text) % 8; i++)
		wb__trace_mark(t, text + i, NULL, i, i);
	wb__trace_json(t, strlen(text) % 3, &b);
	o = json_loadb((const char *)b.data, b.len, 0, NULL);
	if (!json_is_array(json_object_get(o, "traceEvents")))
		abort();
	json_decref(o);
	wb_buf_finish(&b);
	wb__trace_destroy(t);
}

/* What a plan says of an agent: its addresses between spaces, then its endpoint. */
static void addresses(char *text)
{
	static const struct wb__addrs mine = {.a = {"fd00::1", "10.0.0.1"}, .n = 2};
	const char *theirs[WB__ADDRS_MAX];
	char out[256], *save = NULL;
	struct wb__addrs to;
	uint32_t n = 0;

	for (char *s = strtok_r(text, " ", &save); s && n < WB__ADDRS_MAX;
		s = strtok_r(NULL, " ", &save))
		theirs[n++] = s;
	wb__addrs_choose(&mine, theirs, n, &to);
	if (to.n > n || strlen(wb__addrs_text(theirs, n, out, sizeof(out))) >= sizeof(out))
		abort();
	for (uint32_t i = 0; i < to.n; i++)
		if (strlen(to.a[i]) >= WB__ADDR_MAX ||
			(n &&
				wb__addr_rehost(
					theirs[n - 1], theirs[0], to.a[i], out, sizeof(out)) == 0 &&
				strlen(out) >= sizeof(out)))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size || size > 4096)
		return 0;
	text = malloc(size);
	if (!text)
		abort();
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 8) {
	case 0:
		fault(text);
		break;
	case 1:
		cli(text);
		break;
	case 2:
		key_file(text, size - 1);
		break;
	case 3:
		base64(text);
		break;
	case 4:
		digits(text);
		break;
	case 5:
		cgroup(text);
		break;
	case 7:
		addresses(text);
		break;
	default:
		trace(text);
	}
	free(text);
	return 0;
}
