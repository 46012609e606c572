/* SPDX-License-Identifier: Apache-2.0 */
/* What wbctl doctor says of RDMA, over trees of files as kernels show them. */
#include "base/base.h"
#include "ctl/doctor.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "tests/common/fx_verbs.h"
#include "xport/xport.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[200];
static struct wb__ctl_sheet sheet;

/* ---- a tree of files ----------------------------------------------------------------------------
 */

static void make_folders(char *path)
{
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
		*p = '/';
	}
}

static void put(const char *name, const char *text)
{
	char path[400];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	make_folders(path);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

static void put_link(const char *name, const char *to)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	make_folders(path);
	ck_assert_int_eq(symlink(to, path), 0);
}

__attribute__((format(printf, 2, 3))) static void put_at(const char *text, const char *fmt, ...)
{
	char name[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	put(name, text);
}

static void take_away(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	ck_assert_int_eq(unlink(path), 0);
}

/* A NIC with one Ethernet port: index 0 is RoCE v1, 1 and 2 link-local, 3 an address of IPv4. */
static void put_nic(const char *device, int uverbs, const char *net)
{
	static const char *const gid[] = {"fe80:0000:0000:0000:0e42:a1ff:fe00:0001",
		"fe80:0000:0000:0000:0e42:a1ff:fe00:0001",
		"0000:0000:0000:0000:0000:0000:0000:0000",
		"0000:0000:0000:0000:0000:ffff:0a00:0005"};
	static const char *const type[] = {"IB/RoCE v1", "RoCE v2", "", "RoCE v2"};

#define AT "sys/class/infiniband/%s/"
	put_at("4: ACTIVE", AT "ports/1/state", device);
	put_at("Ethernet", AT "ports/1/link_layer", device);
	put_at("400 Gb/sec (4X NDR)", AT "ports/1/rate", device);
	put_at("1", AT "device/numa_node", device);
	put_at("16", AT "device/current_link_width", device);
	for (int i = 0; i < 4; i++) {
		put_at(gid[i], AT "ports/1/gids/%d", device, i);
		if (!type[i][0])
			continue;
		put_at(type[i], AT "ports/1/gid_attrs/types/%d", device, i);
		put_at(net, AT "ports/1/gid_attrs/ndevs/%d", device, i);
	}
	put_at("9000", "sys/class/net/%s/mtu", net);
	put_at(device, "sys/class/infiniband_verbs/uverbs%d/ibdev", uverbs);
	put_at("", "dev/infiniband/uverbs%d", uverbs);
}

static void put_limits(const char *locked, const char *caps)
{
	char text[200];

	snprintf(text, sizeof(text),
		"Max open files            1024                 4096      files\n"
		"Max locked memory         %-20s %-20s bytes",
		locked, locked);
	put("proc/self/limits", text);
	snprintf(text, sizeof(text), "Name:\twbctl\nCapEff:\t%s", caps);
	put("proc/self/status", text);
}

static void set_up(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.150s/rdma-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(root));
	memset(&sheet, 0, sizeof(sheet));
	put_limits("unlimited", "0000000000000000");
	put("proc/sys/kernel/osrelease", "6.12.0-1-amd64");
}

static int let_go(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void tear_down(void)
{
	nftw(root, let_go, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what is said -------------------------------------------------------------------------------
 */

static const struct wb__ctl_line *line(const char *name, const char *words)
{
	for (size_t i = 0; i < sheet.n; i++)
		if (!strcmp(sheet.line[i].name, name) && strstr(sheet.line[i].says, words))
			return &sheet.line[i];
	return NULL;
}

static void says(const char *name, enum wb__ctl_can can, const char *words)
{
	const struct wb__ctl_line *l = line(name, words);

	for (size_t i = 0; !l && i < sheet.n; i++)
		printf("%s: %s\n", sheet.line[i].name, sheet.line[i].says);
	ck_assert_msg(l != NULL, "no line of %s says: %s", name, words);
	ck_assert_msg(l->can == can, "%s: can is %d: %s", name, l->can, l->says);
}

START_TEST(without_devices_only_the_limit_is_told)
{
	put_limits("65536", "0");
	ck_assert_uint_eq(wb__ctl_look_rdma(&sheet, root), 0);
	ck_assert_uint_eq(sheet.n, 1);
	says("locked-memory", WB_CTL_INFO, "65536 bytes");
}
END_TEST

START_TEST(a_port_that_can_be_used_is_described)
{
	put_nic("mlx5_0", 0, "eth0");
	ck_assert_uint_eq(wb__ctl_look_rdma(&sheet, root), 1);
	says("rdma-port", WB_CTL_YES,
		"mlx5_0/1 (Ethernet, 400 Gb/sec (4X NDR), GID 3 ::ffff:10.0.0.5 (RoCE v2 on eth0), "
		"MTU 4096, NUMA node 1)");
	says("locked-memory", WB_CTL_YES, "no limit");
}
END_TEST

START_TEST(an_infiniband_port_needs_no_gid_of_a_network)
{
	put_nic("mlx5_0", 0, "ib0");
	put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
	for (int i = 0; i < 4; i++)
		put_at("fe80:0000:0000:0000:0000:0000:0000:0000",
			"sys/class/infiniband/mlx5_0/ports/1/gids/%d", i);
	ck_assert_uint_eq(wb__ctl_look_rdma(&sheet, root), 1);
	says("rdma-port", WB_CTL_YES, "mlx5_0/1 (InfiniBand");
}
END_TEST

/* What is wrong with one of two NICs, and the remedy. */
static const struct {
	const char *file, *text; /* NULL: taken away */
	enum wb__ctl_can can;
	const char *words;
} wrongs[] = {
	{"sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN", WB_CTL_NO,
		"mlx5_1/1 is DOWN: look at cable and switch, ip link set LINK up"},
	{"sys/class/infiniband/mlx5_1/ports/1/state", NULL, WB_CTL_NO, "mlx5_1/1 is not up"},
	{"sys/class/net/eth1/mtu", "1500", WB_CTL_WORSE, "ip link set eth1 mtu 4200"},
	{"sys/class/infiniband/mlx5_1/device/current_link_speed", "16.0 GT/s PCIe", WB_CTL_WORSE,
		"its PCI Express path carries 252 Gb/s, less than the port"},
	{"sys/class/infiniband/mlx5_1/device/current_link_speed", "32.0 GT/s PCIe", WB_CTL_YES,
		"mlx5_1/1 (Ethernet"},
	{"sys/class/infiniband/mlx5_1/ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000",
		WB_CTL_WORSE, "give the link an IP address (ip addr add ADDRESS dev eth1)"},
	{"sys/class/net/eth1/mtu", "4192", WB_CTL_YES, "mlx5_1/1 (Ethernet"},
	{"dev/infiniband/uverbs1", NULL, WB_CTL_NO,
		"/dev/infiniband/uverbs1 is not there: load ib_uverbs; in a pod ask for the device "
		"plugin's resource (charts: rdma.resourceName)"},
	{"sys/class/infiniband_verbs/uverbs1/ibdev", NULL, WB_CTL_NO,
		"/dev/infiniband/uverbs* is not there"},
};

START_TEST(what_is_wrong_with_a_port_is_said_with_its_remedy)
{
	bool is_no = wrongs[_i].can == WB_CTL_NO;

	put_nic("mlx5_0", 0, "eth0");
	put_nic("mlx5_1", 1, "eth1");
	if (wrongs[_i].text)
		put(wrongs[_i].file, wrongs[_i].text);
	else
		take_away(wrongs[_i].file);
	ck_assert_uint_eq(wb__ctl_look_rdma(&sheet, root), is_no ? 1 : 2);
	says("rdma-port", wrongs[_i].can, wrongs[_i].words);
	says("rdma-port", WB_CTL_YES, "mlx5_0/1 (");
	ck_assert_str_eq(sheet.ports, is_no ? "mlx5_0/1" : "mlx5_0/1, mlx5_1/1");
}
END_TEST

START_TEST(a_port_without_any_gid_needs_an_address)
{
	put_nic("mlx5_0", 0, "eth0");
	for (int i = 0; i < 4; i++)
		put_at("0000:0000:0000:0000:0000:0000:0000:0000",
			"sys/class/infiniband/mlx5_0/ports/1/gids/%d", i);
	ck_assert_uint_eq(wb__ctl_look_rdma(&sheet, root), 0);
	says("rdma-port", WB_CTL_NO, "has no GID: give its network link an address");
}
END_TEST

START_TEST(a_device_in_software_is_named_so)
{
	put_nic("rxe0", 0, "va0");
	put("sys/class/infiniband/rxe0/parent", "va0");
	wb__ctl_look_rdma(&sheet, root);
	says("rdma-port", WB_CTL_YES, "rxe0/1 (software, ");
}
END_TEST

/* @first: the first process of the container, or machine. */
static const struct {
	const char *limit, *caps, *first;
	enum wb__ctl_can can;
	const char *words;
} locks[] = {
	{"unlimited", "0000000000000000", "", WB_CTL_YES, "no limit"},
	{"8388608", "0000000000004000", "", WB_CTL_YES, "the capability IPC_LOCK"},
	{"8388608", "0000000000003fff", "", WB_CTL_WORSE, "give IPC_LOCK (charts: rdma.ipcLock)"},
	{"0", "0000000000000000", "", WB_CTL_WORSE, "LimitMEMLOCK=infinity"},
	{"8388608", "0000000000000000", "Name:\tweightbridge-ag\nCapEff:\t0000000000004000",
		WB_CTL_YES, "the capability IPC_LOCK"},
	{"8388608", "0000000000000000", "Name:\tweightbridge-ag\nCapEff:\t0000000000000000",
		WB_CTL_WORSE, "no capability IPC_LOCK"},
	{"8388608", "0000000000000000", "Name:\tsystemd\nCapEff:\t000001ffffffffff", WB_CTL_WORSE,
		"no capability IPC_LOCK"},
};

START_TEST(too_little_lockable_memory_is_said_with_its_remedy)
{
	put_nic("mlx5_0", 0, "eth0");
	put_limits(locks[_i].limit, locks[_i].caps);
	put("proc/1/status", locks[_i].first);
	wb__ctl_look_rdma(&sheet, root);
	says("locked-memory", locks[_i].can, locks[_i].words);
}
END_TEST

START_TEST(who_can_reach_memory_of_gpus_is_told)
{
	put_nic("mlx5_0", 0, "eth0");
	put_nic("hns_0", 1, "eth1");
	put_link("sys/class/infiniband/mlx5_0/device/driver", "../../bus/pci/drivers/mlx5_core");
	put_link("sys/class/infiniband/hns_0/device/driver", "../../bus/pci/drivers/hns3");
	wb__ctl_look_rdma(&sheet, root);
	says("dma-buf", WB_CTL_INFO, "1 of 2 RDMA devices");
	says("peer-memory", WB_CTL_INFO, "none, and no GPU");
	sheet.n = 0;
	put("proc/sys/kernel/osrelease", "5.11.22");
	put("proc/driver/nvidia/version", "NVRM version: NVIDIA");
	wb__ctl_look_rdma(&sheet, root);
	says("dma-buf", WB_CTL_INFO, "0 of 2 RDMA devices");
	says("peer-memory", WB_CTL_INFO, "modprobe nvidia_peermem");
	sheet.n = 0;
	put("sys/module/nvidia_peermem/version", "1");
	wb__ctl_look_rdma(&sheet, root);
	says("peer-memory", WB_CTL_INFO, "is loaded");
}
END_TEST

static const struct {
	const char *script; /* of the GPU's driver */
	int dmabuf; /* what devices say of it */
	uint64_t slow_ns, patience_ns;
	const char *says;
} tried[] = {
	{"", 0, 0, 5 * WB_NS_PER_S, "reach it by dma-buf: GPU 0000:10:00.0: fake0 dma-buf"},
	{"", EOPNOTSUPP, 0, 5 * WB_NS_PER_S,
		"not, only by way of the host: GPU 0000:10:00.0: fake0 no (dma-buf: Operation"},
	{"device 0 124 0", 0, 0, 5 * WB_NS_PER_S, "(dma-buf: the GPU's driver gave none"},
	{"fail cuMemAlloc_v2 2", 0, 0, 5 * WB_NS_PER_S, "could not be tried: Stand-in 0: cuMemAl"},
	{"", 0, 100 * WB_NS_PER_MS, WB_NS_PER_MS, "not known, registering takes too long"},
};

/* And nothing of it is left. */
START_TEST(how_devices_reach_a_gpu_is_tried)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_rail rail = {.addr = "127.0.0.1:0"};
	struct wb_xport_opts o = {.name = "a", .rail = &rail, .n_rail = 1};
	struct fakecuda_counts gpu;
	const struct wbcu *cu;
	struct fakeverbs_counts n;
	struct wb_err err = {0};
	struct wb_xport *x;

	fx_cuda();
	ck_assert_int_eq(wbcu_load(&cu, NULL), 0); /* what it is as begun a script changes */
	fx_cuda_do("reset");
	fx_cuda_do(tried[_i].script);
	v->dmabuf(FAKEVERBS_ANY, tried[_i].dmabuf);
	v->slow(tried[_i].slow_ns);
	ck_assert_msg(wb_xport_open("verbs", &o, &x, &err) == 0, "%s", err.msg);
	wb__ctl_look_gpu(&sheet, x, tried[_i].patience_ns);
	says("gpu-memory", WB_CTL_INFO, tried[_i].says);
	v->count(&n);
	fx_cuda()->count(&gpu);
	ck_assert_int_eq(n.contexts + n.mrs, 0);
	ck_assert_int_eq(gpu.contexts + gpu.mappings, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl_rdma");
	TCase *c = tcase_create("ctl_rdma");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, without_devices_only_the_limit_is_told);
	tcase_add_test(c, a_port_that_can_be_used_is_described);
	tcase_add_test(c, an_infiniband_port_needs_no_gid_of_a_network);
	tcase_add_loop_test(
		c, what_is_wrong_with_a_port_is_said_with_its_remedy, 0, WB_ARRAY_SIZE(wrongs));
	tcase_add_test(c, a_port_without_any_gid_needs_an_address);
	tcase_add_test(c, a_device_in_software_is_named_so);
	tcase_add_loop_test(
		c, too_little_lockable_memory_is_said_with_its_remedy, 0, WB_ARRAY_SIZE(locks));
	tcase_add_test(c, who_can_reach_memory_of_gpus_is_told);
	tcase_add_loop_test(c, how_devices_reach_a_gpu_is_tried, 0, WB_ARRAY_SIZE(tried));
	suite_add_tcase(s, c);
	return fx_run(s);
}
