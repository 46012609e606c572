/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of GPUs over verbs, on devices and a driver that do as they are told: by its dma-buf, by
 * its address as a peer's, or by way of the host; and which devices carry it. */
#include "mem/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "tests/common/fx_far.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"
#include "xport/verbs/verbs.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)
#define KIB 1024u
#define FAR_BYTES (4u * MIB)
#define DEVICES 2
#define TEXT 400

static void open_pair(struct fx_xport *f, const char *sysfs)
{
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = FAR_BYTES, .sysfs = sysfs});
	fx_join(f);
}

static struct fakeverbs_counts counts(const struct fx_verbs *v)
{
	struct fakeverbs_counts n;

	v->count(&n);
	return n;
}

static struct wb_xport_stats stats(struct wb_xport *x)
{
	struct wb_xport_stats s = {0};

	ck_assert_int_eq(wb_xport_rail_stats(x, 0, &s), 0);
	return s;
}

/* READs over that device fail. */
static void break_reads(const struct fx_verbs *v, int device)
{
	v->rule(&(struct fakeverbs_rule){.device = device,
		.port = FAKEVERBS_ANY,
		.opcode = FAKEVERBS_ANY,
		.status = IBV_WC_RETRY_EXC_ERR});
}

/* ---- steps --------------------------------------------------------------------------------------
 */

static const struct {
	int dmabuf; /* what each device says of it */
	bool has_none; /* no dma-buf */
	bool has_peer; /* the kernel knows its address */
	int peer; /* what each device says then */
	enum wb_xport_path path;
	const char *says;
} steps[] = {
	{.path = WB_XPORT_PATH_DMABUF, .says = "fake0 dma-buf, near; fake1 dma-buf, near"},
	{.dmabuf = EOPNOTSUPP,
		.has_peer = true,
		.path = WB_XPORT_PATH_PEER,
		.says = "fake0 peer memory, near (dma-buf: Operation not supported); fake1 peer"},
	{.dmabuf = EINVAL,
		.has_peer = true,
		.path = WB_XPORT_PATH_PEER,
		.says = "fake1 peer memory, near (dma-buf: Invalid argument)"},
	{.has_none = true,
		.has_peer = true,
		.path = WB_XPORT_PATH_PEER,
		.says = "(dma-buf: the GPU's driver gave none)"},
	{.dmabuf = EOPNOTSUPP,
		.path = WB_XPORT_PATH_BOUNCE,
		.says = "fake0 no (dma-buf: Operation not supported; peer memory: Bad address)"},
	{.has_none = true,
		.path = WB_XPORT_PATH_BOUNCE,
		.says = "fake1 no (dma-buf: the GPU's driver gave none; peer memory: Bad address)"},
	{.dmabuf = ENOMEM,
		.has_peer = true,
		.peer = ENOMEM,
		.path = WB_XPORT_PATH_BOUNCE,
		.says = "peer memory: Cannot allocate memory"},
};

static void script_step(const struct fx_verbs *v, const struct fx_far *m, int i)
{
	v->dmabuf(FAKEVERBS_ANY, steps[i].dmabuf);
	if (steps[i].has_peer)
		v->peer(m->addr, m->bytes, m->fd, FX_FAR_LEAD);
	if (steps[i].peer)
		v->break_calls("ibv_reg_mr", steps[i].peer, DEVICES);
}

static struct wb_xport_region region_of_step(
	const struct fx_far *m, enum wb_xport_direction direction, int i)
{
	struct wb_xport_region r = fx_far_region(m, direction);

	if (steps[i].has_none) {
		r.gpu.dmabuf_fd = -1;
		r.gpu.dmabuf_off = 0;
	}
	return r;
}

static void check_asked(const struct fakeverbs_counts *n, const struct fx_far *m)
{
	struct stat st;

	ck_assert_int_eq(fstat(m->fd, &st), 0);
	ck_assert_uint_eq(n->dmabuf_inode, st.st_ino);
	ck_assert_uint_eq(n->dmabuf_off, FX_FAR_LEAD);
	ck_assert_uint_eq(n->dmabuf_bytes, m->bytes);
	ck_assert_uint_eq(n->dmabuf_iova, (uintptr_t)m->addr);
}

/* By the first step that works; where none does a write from it is refused, and the same bytes by
 * way of the host's memory go on that connection. */
START_TEST(memory_of_a_gpu_is_read_by_the_best_step_that_works)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	bool is_bounce = steps[_i].path == WB_XPORT_PATH_BOUNCE;
	struct wb_xport_region r;
	struct fakeverbs_counts n;
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];
	uint32_t id;

	open_pair(&f, NULL);
	fx_far_make(&m, FAR_BYTES);
	fx_fill(m.see, m.bytes, 7);
	fx_far_settle(v, &f);
	script_step(v, &m, _i);
	r = region_of_step(&m, WB_XPORT_SOURCE, _i);
	id = fx_region_add(&f.src, &r);
	ck_assert_int_eq(fx_far_path(&f, &f.src, id, says), steps[_i].path);
	ck_assert_msg(strstr(says, steps[_i].says) != NULL, "%s", says);
	if (steps[_i].path == WB_XPORT_PATH_BOUNCE)
		ck_assert_msg(strstr(says, steps[_i].peer ? "IPC_LOCK" : "modprobe nvidia_peermem"),
			"no remedy: %s", says);
	n = counts(v);
	ck_assert_int_eq(n.dmabufs, steps[_i].path == WB_XPORT_PATH_DMABUF ? DEVICES : 0);
	ck_assert_int_eq(n.peers, steps[_i].path == WB_XPORT_PATH_PEER ? DEVICES : 0);
	if (n.dmabufs)
		check_asked(&n, &m);
	ck_assert_int_eq(
		fx_far_move(&f, m.addr + 100, f.dst.mem, 3 * MIB, NULL), is_bounce ? -ENOTSUP : 0);
	if (is_bounce) {
		memcpy(f.src.mem, m.see + 100, 3 * MIB);
		ck_assert_int_eq(fx_far_move(&f, f.src.mem, f.dst.mem, 3 * MIB, NULL), 0);
	}
	ck_assert(!memcmp(f.dst.mem, m.see + 100, 3 * MIB));
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	fx_close(&f);
	ck_assert_int_eq(counts(v).mrs, 0);
	fx_far_free(&m);
}
END_TEST

/* At the receiver: a device puts them there, or the grant's copy function, from the host. */
START_TEST(what_lands_in_a_gpu_goes_by_the_best_step_that_works)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];
	uint32_t id;

	open_pair(&f, NULL);
	fx_far_make(&m, FAR_BYTES);
	fx_fill(f.src.mem, FAR_BYTES, 9);
	fx_far_settle(v, &f);
	script_step(v, &m, _i);
	r = region_of_step(&m, WB_XPORT_LANDING, _i);
	id = fx_region_add(&f.dst, &r);
	ck_assert_int_eq(fx_far_path(&f, &f.dst, id, says), steps[_i].path);
	ck_assert_int_eq(fx_far_move(&f, f.src.mem, m.addr + 4096, 3 * MIB, &m), 0);
	ck_assert(!memcmp(m.see + 4096, f.src.mem, 3 * MIB));
	ck_assert_int_eq(m.puts > 0, steps[_i].path == WB_XPORT_PATH_BOUNCE);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

START_TEST(an_old_library_has_no_dmabufs_and_it_is_said)
{
	const struct fx_verbs *v;
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];

	fx_verbs_old();
	v = fx_verbs_fresh();
	open_pair(&f, NULL);
	fx_far_make(&m, FAR_BYTES);
	fx_far_settle(v, &f);
	ck_assert_int_eq(fx_far_path(&f, &f.src, fx_far_add(&f.src, &m, WB_XPORT_SOURCE), says),
		WB_XPORT_PATH_BOUNCE);
	ck_assert_msg(strstr(says, "rdma-core 34") != NULL, "%s", says);
	ck_assert_int_eq(fx_far_move(&f, f.src.mem, f.dst.mem, MIB, NULL), 0);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

/* ---- devices that differ ------------------------------------------------------------------------
 */

/* One device has it, and carries all of it, at either side. */
START_TEST(devices_that_cannot_have_it_carry_nothing_of_it)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_far from, to;
	char says[TEXT];
	uint32_t a, b;

	open_pair(&f, NULL);
	fx_far_make(&from, FAR_BYTES);
	fx_far_make(&to, FAR_BYTES);
	fx_fill(from.see, FAR_BYTES, 3);
	fx_far_settle(v, &f);
	v->dmabuf(1 - _i, EOPNOTSUPP);
	a = fx_far_add(&f.src, &from, WB_XPORT_SOURCE);
	b = fx_far_add(&f.dst, &to, WB_XPORT_LANDING);
	ck_assert_int_eq(fx_far_path(&f, &f.src, a, says), WB_XPORT_PATH_DMABUF);
	ck_assert_int_eq(fx_far_path(&f, &f.dst, b, says), WB_XPORT_PATH_DMABUF);
	break_reads(v, 1 - _i);
	ck_assert_int_eq(fx_far_move(&f, from.addr, f.dst.mem, FAR_BYTES, NULL), 0);
	ck_assert(!memcmp(f.dst.mem, from.see, FAR_BYTES));
	ck_assert_int_eq(fx_far_move(&f, f.src.mem, to.addr, FAR_BYTES, &to), 0);
	ck_assert(!memcmp(to.see, f.src.mem, FAR_BYTES));
	ck_assert_int_eq(to.puts, 0);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 0);
	fx_close(&f);
	fx_far_free(&from);
	fx_far_free(&to);
}
END_TEST

/* The device that has one side's is not the one that has the other's: where queue pairs join them
 * crosswise nothing can go straight, and the copy function is asked. */
START_TEST(a_landing_without_a_device_in_common_is_filled_from_the_host)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_far from, to;
	char says[TEXT];
	uint32_t b;

	open_pair(&f, NULL);
	fx_far_make(&from, FAR_BYTES);
	fx_far_make(&to, FAR_BYTES);
	fx_fill(from.see, FAR_BYTES, 3);
	fx_far_settle(v, &f);
	v->dmabuf(1, EOPNOTSUPP);
	(void)fx_far_path(&f, &f.src, fx_far_add(&f.src, &from, WB_XPORT_SOURCE), says);
	v->dmabuf(1, 0);
	v->dmabuf(0, EOPNOTSUPP);
	b = fx_far_add(&f.dst, &to, WB_XPORT_LANDING);
	ck_assert_int_eq(fx_far_path(&f, &f.dst, b, says), WB_XPORT_PATH_DMABUF);
	ck_assert_int_eq(fx_far_move(&f, from.addr, to.addr, FAR_BYTES, &to), 0);
	ck_assert(!memcmp(to.see, from.see, FAR_BYTES));
	ck_assert_int_gt(to.puts, 0);
	fx_close(&f);
	fx_far_free(&from);
	fx_far_free(&to);
}
END_TEST

/* Where rails are apart a connection has sockets whose queue pairs are all on one device: one that
 * cannot have it says so for that chunk, and stays. */
START_TEST(a_rail_whose_device_cannot_have_it_refuses_and_stays)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	uint32_t n_moved = 0, n_refused = 0;
	struct fx_xport f;
	struct fx_far from;
	char says[TEXT];

	fx_open(&f, "verbs",
		&(struct fx_opts){
			.mem_bytes = FAR_BYTES, .n_rail = 2, .sockets = 2, .is_apart = true});
	fx_join(&f);
	fx_far_make(&from, FAR_BYTES);
	fx_far_settle(v, &f);
	v->dmabuf(1, EOPNOTSUPP);
	(void)fx_far_path(&f, &f.src, fx_far_add(&f.src, &from, WB_XPORT_SOURCE), says);
	for (int i = 0; i < 8; i++) {
		int rc = fx_far_move(&f, from.addr, f.dst.mem, MIB, NULL);

		n_moved += !rc;
		n_refused += rc == -ENOTSUP;
	}
	ck_assert_uint_eq(n_moved + n_refused, 8);
	ck_assert(n_moved && n_refused);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_close(&f);
	fx_far_free(&from);
}
END_TEST

/* ---- near and far -------------------------------------------------------------------------------
 */

struct tree {
	char root[200];
};

static void make_folders(const char *path)
{
	char at[400];

	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(at, sizeof(at), "%.*s", (int)(p - path), path);
		(void)mkdir(at, 0777);
	}
}

static void put_device(const struct tree *t, const char *link, const char *folder)
{
	char from[400], to[400];

	snprintf(to, sizeof(to), "%s/%s/", t->root, folder);
	make_folders(to);
	snprintf(from, sizeof(from), "%s/%s", t->root, link);
	make_folders(from);
	ck_assert_int_eq(symlink(to, from), 0);
}

#define SWITCH_A "devices/pci0000:00/0000:00:01.0/0000:0e:00.0"
#define SWITCH_B "devices/pci0000:80/0000:80:01.0/0000:8e:00.0"

/* A GPU and a NIC below each of two switches. */
static void make_tree(struct tree *t)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(t->root, sizeof(t->root), "%.150s/near-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(t->root));
	put_device(t, "bus/pci/devices/0000:10:00.0", SWITCH_A "/0000:0f:00.0/0000:10:00.0");
	put_device(t, "bus/pci/devices/0000:90:00.0", SWITCH_B "/0000:8f:00.0/0000:90:00.0");
	put_device(t, "class/infiniband/fake0/device", SWITCH_A "/0000:0f:01.0/0000:11:00.0");
	put_device(t, "class/infiniband/fake1/device", SWITCH_B "/0000:8f:01.0/0000:91:00.0");
}

static int let_go(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void drop_tree(const struct tree *t)
{
	ck_assert_int_eq(nftw(t->root, let_go, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static const struct {
	const char *pci;
	bool any_nic;
	int near; /* the device, -1 = both */
	const char *says;
} places[] = {
	{"0000:10:00.0", false, 0, "fake0 dma-buf, near; fake1 dma-buf"},
	{"0000:90:00.0", false, 1, "fake0 dma-buf; fake1 dma-buf, near"},
	{"0000:90:00.0", true, -1, "fake0 dma-buf, near; fake1 dma-buf, near"},
	{"0000:77:00.0", false, -1, "fake0 dma-buf, near; fake1 dma-buf, near"},
	{"", false, -1, "fake0 dma-buf, near; fake1 dma-buf, near"},
};

static struct wb_xport_region near_region(
	const struct fx_far *m, enum wb_xport_direction direction, int i)
{
	struct wb_xport_region r = fx_far_region(m, direction);

	snprintf(r.gpu.pci, sizeof(r.gpu.pci), "%s", places[i].pci);
	r.gpu.any_nic = places[i].any_nic;
	return r;
}

START_TEST(the_nearest_device_carries_a_gpu_s_memory)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region out, in;
	struct tree t;
	struct fx_xport f;
	struct fx_far from, to;
	char says[TEXT];
	uint32_t a, b;

	make_tree(&t);
	open_pair(&f, t.root);
	fx_far_make(&from, FAR_BYTES);
	fx_far_make(&to, FAR_BYTES);
	fx_fill(from.see, FAR_BYTES, 3);
	fx_far_settle(v, &f);
	out = near_region(&from, WB_XPORT_SOURCE, _i);
	in = near_region(&to, WB_XPORT_LANDING, _i);
	a = fx_region_add(&f.src, &out);
	b = fx_region_add(&f.dst, &in);
	ck_assert_int_eq(fx_far_path(&f, &f.src, a, says), WB_XPORT_PATH_DMABUF);
	ck_assert_str_eq(says, places[_i].says);
	ck_assert_int_eq(fx_far_path(&f, &f.dst, b, says), WB_XPORT_PATH_DMABUF);
	if (places[_i].near >= 0)
		break_reads(v, 1 - places[_i].near);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fx_far_move(&f, from.addr, f.dst.mem, FAR_BYTES, NULL), 0);
		ck_assert_int_eq(fx_far_move(&f, from.addr, to.addr, FAR_BYTES, &to), 0);
		ck_assert_int_eq(fx_far_move(&f, f.src.mem, to.addr, FAR_BYTES, &to), 0);
	}
	ck_assert(!memcmp(f.dst.mem, from.see, FAR_BYTES));
	ck_assert_int_eq(to.puts, 0);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 0);
	fx_close(&f);
	drop_tree(&t);
	fx_far_free(&from);
	fx_far_free(&to);
}
END_TEST

/* What is far carries it as long as what is near is down. */
START_TEST(a_far_device_stands_in_for_a_near_one)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region out;
	struct tree t;
	struct fx_xport f;
	struct fx_far from;
	char says[TEXT];

	make_tree(&t);
	open_pair(&f, t.root);
	fx_far_make(&from, FAR_BYTES);
	fx_fill(from.see, FAR_BYTES, 3);
	fx_far_settle(v, &f);
	out = near_region(&from, WB_XPORT_SOURCE, 0);
	(void)fx_far_path(&f, &f.src, fx_region_add(&f.src, &out), says);
	ck_assert_int_eq(fx_far_move(&f, from.addr, f.dst.mem, FAR_BYTES, NULL), 0);
	v->port(0, 1, false);
	while (counts(v).qps != WBP_BULK_QPS) /* half of both sides' */
		fx_pump_some(&f);
	memset(f.dst.mem, 0, FAR_BYTES);
	ck_assert_int_eq(fx_far_move(&f, from.addr, f.dst.mem, FAR_BYTES, NULL), 0);
	ck_assert(!memcmp(f.dst.mem, from.see, FAR_BYTES));
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_close(&f);
	drop_tree(&t);
	fx_far_free(&from);
}
END_TEST

/* Nobody waits for a device that is gone while others, which are up, cannot have the memory. */
START_TEST(the_last_device_that_has_it_ends_the_connection)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_far from;
	char says[TEXT];
	int rc;

	open_pair(&f, NULL);
	fx_far_make(&from, FAR_BYTES);
	fx_far_settle(v, &f);
	v->dmabuf(1, EOPNOTSUPP);
	(void)fx_far_path(&f, &f.src, fx_far_add(&f.src, &from, WB_XPORT_SOURCE), says);
	break_reads(v, 0);
	rc = fx_far_move(&f, from.addr, f.dst.mem, FAR_BYTES, NULL);
	ck_assert_int_lt(rc, 0);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_msg(strstr(f.dst.reason, "reaches the memory") != NULL, "%s", f.dst.reason);
	fx_close(&f);
	fx_far_free(&from);
}
END_TEST

/* ---- what is said -------------------------------------------------------------------------------
 */

static int times(const char *in, const char *what)
{
	int n = 0;

	while ((in = strstr(in, what))) {
		n++;
		in++;
	}
	return n;
}

/* Adds three regions, and returns what was logged meanwhile. */
static const char *log_of_three(struct fx_xport *f, const struct fx_far *m)
{
	static char said[16384];
	int was = dup(STDERR_FILENO), to = memfd_create("log", MFD_CLOEXEC);
	char says[TEXT];

	ck_assert_int_ge(dup2(to, STDERR_FILENO), 0);
	for (int i = 0; i < 3; i++)
		(void)fx_far_path(f, &f->src, fx_far_add(&f->src, m, WB_XPORT_SOURCE), says);
	memset(said, 0, sizeof(said));
	ck_assert_int_ge(pread(to, said, sizeof(said) - 1, 0), 0);
	ck_assert_int_ge(dup2(was, STDERR_FILENO), 0);
	close(was);
	close(to);
	return said;
}

START_TEST(each_step_is_said_once_a_device_and_the_last_with_limit_and_remedy)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_far m;
	const char *said;

	open_pair(&f, NULL);
	fx_far_make(&m, FAR_BYTES);
	fx_far_settle(v, &f);
	said = log_of_three(&f, &m);
	ck_assert_msg(times(said, "memory of a GPU is registered") == DEVICES &&
			      times(said, "by=dma-buf") == DEVICES &&
			      times(said, "device=fake1") == 1,
		"%s", said);
	v->dmabuf(FAKEVERBS_ANY, EOPNOTSUPP);
	said = log_of_three(&f, &m);
	ck_assert_msg(times(said, "goes by way of the host") == DEVICES &&
			      times(said, "Operation not supported") == DEVICES &&
			      times(said, "Bad address") == DEVICES &&
			      times(said, "memlock=") == DEVICES &&
			      times(said, "nvidia_peermem") == DEVICES,
		"%s", said);
	v->peer(m.addr, m.bytes, m.fd, FX_FAR_LEAD);
	said = log_of_three(&f, &m);
	ck_assert_msg(times(said, "by=\"peer memory\"") == DEVICES, "%s", said);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

START_TEST(a_limit_on_locked_memory_is_named_with_the_capability)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	struct fx_far m;
	const char *said;

	open_pair(&f, NULL);
	fx_far_make(&m, FAR_BYTES);
	fx_far_settle(v, &f);
	v->dmabuf(FAKEVERBS_ANY, EOPNOTSUPP);
	v->peer(m.addr, m.bytes, m.fd, FX_FAR_LEAD);
	v->break_calls("ibv_reg_mr", ENOMEM, 3 * DEVICES);
	said = log_of_three(&f, &m);
	ck_assert_msg(
		times(said, "RLIMIT_MEMLOCK") == DEVICES && strstr(said, "IPC_LOCK"), "%s", said);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

/* ---- with a driver ------------------------------------------------------------------------------
 */

static struct wb_xport_region region_of_gpu(
	uint64_t addr, size_t bytes, enum wb_xport_direction direction)
{
	struct wb_xport_region r = {.object = FX_OBJECT,
		.fd = -1,
		.base = (void *)(uintptr_t)addr,
		.bytes = bytes,
		.direction = direction,
		.gpu = {.is_there = true}};
	struct wb_mem_nic nic;
	struct wb_err err = {0};

	ck_assert_msg(wb_mem_nic(r.base, bytes, &nic, &err) == 0, "%s", err.msg);
	ck_assert_msg(nic.dmabuf_fd >= 0, "%s", nic.why);
	r.gpu.dmabuf_fd = nic.dmabuf_fd;
	r.gpu.dmabuf_off = nic.dmabuf_off;
	snprintf(r.gpu.pci, sizeof(r.gpu.pci), "%s", nic.pci);
	return r;
}

/* From one GPU into another, by what the driver exported, with an offset in a page. */
START_TEST(what_a_driver_exports_is_registered_and_read)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	size_t bytes = 2 * MIB;
	uint64_t from, to;
	uint8_t *want = malloc(bytes), *got = malloc(bytes);
	struct wb_xport_region out, in;
	struct fx_xport f;
	struct fx_far none = {0};
	char says[TEXT];

	(void)fx_cuda_driver(0);
	from = fx_cuda_vmm(0, 2 * bytes, true) + 12288 + 512;
	to = fx_cuda_vmm(1, 2 * bytes, true) + 8192 + 256;
	fx_fill(want, bytes, 11);
	fx_cuda_write(from, want, bytes);
	open_pair(&f, NULL);
	fx_far_settle(v, &f);
	out = region_of_gpu(from, bytes, WB_XPORT_SOURCE);
	in = region_of_gpu(to, bytes, WB_XPORT_LANDING);
	ck_assert_uint_eq(out.gpu.dmabuf_off, 512);
	ck_assert_int_eq(
		fx_far_path(&f, &f.src, fx_region_add(&f.src, &out), says), WB_XPORT_PATH_DMABUF);
	ck_assert_int_eq(
		fx_far_path(&f, &f.dst, fx_region_add(&f.dst, &in), says), WB_XPORT_PATH_DMABUF);
	close(out.gpu.dmabuf_fd);
	close(in.gpu.dmabuf_fd);
	ck_assert_int_eq(fx_far_move(&f, out.base, f.dst.mem, bytes, NULL), 0);
	ck_assert(!memcmp(f.dst.mem, want, bytes));
	ck_assert_int_eq(fx_far_move(&f, out.base, in.base, bytes, &none), 0);
	(void)fx_cuda_driver(1);
	fx_cuda_read(got, to, bytes);
	ck_assert(!memcmp(got, want, bytes));
	fx_close(&f);
	free(want);
	free(got);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_gpu");
	TCase *c = tcase_create("xport_verbs_gpu");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, memory_of_a_gpu_is_read_by_the_best_step_that_works, 0,
		(int)WB_ARRAY_SIZE(steps));
	tcase_add_loop_test(c, what_lands_in_a_gpu_goes_by_the_best_step_that_works, 0,
		(int)WB_ARRAY_SIZE(steps));
	if (fx_forks()) /* a process has one library */
		tcase_add_test(c, an_old_library_has_no_dmabufs_and_it_is_said);
	tcase_add_loop_test(c, devices_that_cannot_have_it_carry_nothing_of_it, 0, DEVICES);
	tcase_add_test(c, a_rail_whose_device_cannot_have_it_refuses_and_stays);
	tcase_add_test(c, a_landing_without_a_device_in_common_is_filled_from_the_host);
	tcase_add_loop_test(
		c, the_nearest_device_carries_a_gpu_s_memory, 0, (int)WB_ARRAY_SIZE(places));
	tcase_add_test(c, a_far_device_stands_in_for_a_near_one);
	tcase_add_test(c, the_last_device_that_has_it_ends_the_connection);
	tcase_add_test(c, each_step_is_said_once_a_device_and_the_last_with_limit_and_remedy);
	tcase_add_test(c, a_limit_on_locked_memory_is_named_with_the_capability);
	tcase_add_test(c, what_a_driver_exports_is_registered_and_read);
	return fx_run(s);
}
