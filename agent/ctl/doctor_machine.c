/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do: each thing is tried where that is cheap, else the system is asked. */
#include "base/base.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "ctl/doctor.h"
#include "mem/cgroup.h"
#include "mem/mem.h"
#include "xport/xport.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define NAMES_MAX 200
#define GPU_PATIENCE_NS (5 * WB_NS_PER_S)

static int open_transport(
	const char *name, const char *addr, struct wb_xport **out, struct wb_err *err)
{
	struct wb_xport_rail rail = {.addr = addr};
	struct wb_xport_opts o = {.name = "doctor", .rail = &rail, .n_rail = 1};
	char endpoint[WB_XPORT_ENDPOINT_MAX];
	int rc = wb_xport_open(name, &o, out, err);

	if (rc == 0)
		rc = wb_xport_listen(*out, endpoint, sizeof(endpoint), err);
	return rc;
}

static void look_tcp(struct wb__ctl_sheet *t)
{
	struct wb_xport_epoch e = {.id = {wb_object_id_of(1), 1, 1}, .is_encrypted = true};
	struct wb_xport *x = NULL;
	struct wb_err err = {0};

	t->has_tcp = open_transport("tcp", "127.0.0.1:0", &x, &err) == 0;
	wb__ctl_say(t, "tcp", t->has_tcp ? WB_CTL_YES : WB_CTL_NO, "%s",
		t->has_tcp ? "weights between agents, wherever they are" : err.msg);
	t->has_tls = t->has_tcp && wb_xport_epoch_add(x, &e, &err) == 0;
	wb__ctl_say(t, "encryption", t->has_tls ? WB_CTL_YES : WB_CTL_NO, "%s%s",
		t->has_tls ? "TLS 1.3 over tcp, in user space, by " : err.msg,
		t->has_tls ? OpenSSL_version(OPENSSL_VERSION) : "");
	wb_xport_close(x);
}

/* The memfd allows sealing, since memory that a peer may map is sealed against shrinking when it is
 * registered. */
static void look_shm(struct wb__ctl_sheet *t)
{
	struct wb_xport_region r = {.object = 1, .bytes = 4096};
	struct wb_xport *x = NULL;
	struct wb_err err = {0};
	uint32_t id;
	int rc = open_transport("shm", "unix:@", &x, &err);

	r.fd = memfd_create("wbctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (rc == 0 && (r.fd < 0 || ftruncate(r.fd, (off_t)r.bytes) < 0))
		rc = wb_err_set(&err, -errno, "no memfd: %s", strerror(errno));
	if (rc == 0) {
		r.base = mmap(NULL, r.bytes, PROT_READ, MAP_SHARED, r.fd, 0);
		rc = r.base == MAP_FAILED
			     ? wb_err_set(&err, -errno, "no memory: %s", strerror(errno))
			     : wb_xport_region_add(x, &r, &id, &err);
	}
	wb_xport_close(x);
	if (r.base && r.base != MAP_FAILED)
		munmap(r.base, r.bytes);
	if (r.fd >= 0)
		close(r.fd);
	wb__ctl_say(t, "shm", rc < 0 ? WB_CTL_NO : WB_CTL_YES, "%s",
		rc < 0 ? err.msg
		       : "weights between agents of one machine; nothing "
			 "travels, nothing is encrypted");
}

/* Names in a folder that begin with @prefix, with commas between; "" = none. */
static const char *names_in(const char *path, const char *prefix, char out[static NAMES_MAX])
{
	DIR *d = opendir(path);
	const struct dirent *e;
	size_t at = 0;

	out[0] = '\0';
	while (d && (e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.' || strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		if (at + strlen(e->d_name) + 3 >= NAMES_MAX)
			break;
		at += (size_t)snprintf(out + at, NAMES_MAX - at, "%s%s", at ? ", " : "", e->d_name);
	}
	if (d)
		closedir(d);
	return out;
}

static void look_devices(struct wb__ctl_sheet *t)
{
	char gpu[NAMES_MAX], reach[200] = "", keys[512] = "";
	size_t ports = wb__ctl_look_rdma(t, "");

	struct wb_xport *x = NULL;
	struct wb_err err = {0};

	t->has_verbs = open_transport("verbs", "127.0.0.1:0", &x, &err) == 0;
	if (t->has_verbs)
		wb__ctl_look_gpu(t, x, GPU_PATIENCE_NS);
	wb__ctl_say(t, "verbs", t->has_verbs ? WB_CTL_YES : WB_CTL_NO, "%s (%zu ports here)",
		t->has_verbs ? "weights between agents over RDMA" : err.msg, ports);
	if (t->has_verbs && wb_xport_keys(x, keys, sizeof(keys)))
		wb__ctl_say(t, "rdma-keys", WB_CTL_INFO,
			"by which peers read memory of this host: %s (agents: --no-rdma-windows)",
			keys);
	wb__ctl_say(t, "transport", WB_CTL_INFO, "%s%s%s",
		t->has_verbs ? "an agent takes shm within a machine, then verbs, then tcp; verbs "
			       "would use "
			     : "an agent takes shm within a machine, and tcp between machines",
		!t->has_verbs ? ""
		: t->ports[0] ? t->ports
			      : "what the library shows",
		t->has_verbs ? " (--rail-device chooses)" : "");
	names_in("/proc/driver/nvidia/gpus", "", gpu);
	if (gpu[0])
		wb_mem_reach(NULL, reach, sizeof(reach));
	wb__ctl_say(t, "gpu", WB_CTL_NO,
		"agents move host memory; a worker packs and assembles a GPU's itself; GPUs here: "
		"%s%s%s",
		gpu[0] ? gpu : "none", gpu[0] ? "; memory that can be shared: " : "", reach);
}

static void look_ktls(struct wb__ctl_sheet *t)
{
	uint8_t *text = NULL;
	size_t n = 0;
	bool has;

	(void)wb_file_read("/proc/sys/net/ipv4/tcp_available_ulp", 4096, &text, &n);
	has = text && strstr((const char *)text, "tls");
	wb__ctl_say(t, "kernel-tls", WB_CTL_NO,
		"this version encrypts in user space; this kernel %s the tls module%s",
		has ? "has" : "has not loaded, or lacks,", has ? " loaded" : "");
	wb_free(text);
}

/* Memory that processes here may have: of the machine, or of the control group. */
static void look_memory(struct wb__ctl_sheet *t)
{
	struct wb_cgroup_memory m = {.limit_bytes = UINT64_MAX};
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	t->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
	(void)wb_cgroup_memory(NULL, NULL, &m, NULL);
	if (m.limit_bytes < t->memory_bytes)
		wb__ctl_say(t, "memory", WB_CTL_INFO,
			"%" PRIu64 " bytes, the control group's limit; %" PRIu64 " are used",
			m.limit_bytes, m.used_bytes);
	else
		wb__ctl_say(t, "memory", WB_CTL_INFO,
			"%" PRIu64 " bytes, the machine's; no limit of the control group",
			t->memory_bytes);
	t->memory_bytes = WB_MIN(t->memory_bytes, m.limit_bytes);
	wb__ctl_say(t, "staging", WB_CTL_YES,
		"HostMemory: copies in this memory, beside bufferSize of each worker");
}

static void look_limits(struct wb__ctl_sheet *t)
{
	struct rlimit files = {0};

	getrlimit(RLIMIT_NOFILE, &files);
	t->open_files = files.rlim_max;
	wb__ctl_say(t, "open-files", WB_CTL_INFO,
		"%" PRIu64 " at most (ulimit -Hn), to which agents raise theirs",
		(uint64_t)files.rlim_max);
}

void wb__ctl_look(struct wb__ctl_sheet *t)
{
	look_tcp(t);
	look_ktls(t);
	look_shm(t);
	look_devices(t);
	look_memory(t);
	look_limits(t);
}
