/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "mem/cgroup.h"
#include "mem/mem.h"
#include "mem/nic.h"
#include "mem/numa.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wb_mem_desc desc(int fd, uint64_t offset, uint64_t bytes)
{
	return (struct wb_mem_desc){
		.kind = WB_MEM_MEMFD, .fd = fd, .offset = offset, .bytes = bytes};
}

START_TEST(a_memfd_is_shared_with_its_worker)
{
	int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct wb_mem_desc d = desc(fd, 4096, 5000);
	struct wb_err err = {0};
	struct wb_mem m;
	char *p;

	ck_assert_int_eq(ftruncate(fd, 12288), 0);
	p = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_msg(!wb_mem_import(&d, &m, &err), "%s", err.msg);
	p[4096 + 4999] = 'x';
	ck_assert(((char *)m.addr)[4999] == 'x' && m.bytes == 5000);
	ck_assert(m.access == WB_MEM_AT_HOST);
	ck_assert_int_eq(ftruncate(fd, 4096), -1); /* sealed */
	close(fd);
	ck_assert_int_eq(((char *)m.addr)[4999], 'x');
	wb_mem_release(&m);
	wb_mem_release(&m);
	munmap(p, 12288);
}
END_TEST

START_TEST(an_object_that_could_shrink_is_refused)
{
	char path[] = "/tmp/wb-mem-XXXXXX";
	int sealed = memfd_create("t", MFD_CLOEXEC), file = mkstemp(path);
	int fds[] = {sealed, file};
	struct wb_err err = {0};
	struct wb_mem m;

	unlink(path);
	for (size_t i = 0; i < WB_ARRAY_SIZE(fds); i++) {
		struct wb_mem_desc d = desc(fds[i], 0, 4096);

		ck_assert_int_eq(ftruncate(fds[i], 8192), 0);
		ck_assert_int_eq(wb_mem_import(&d, &m, &err), -EPERM);
		ck_assert_msg(strstr(err.msg, "MFD_ALLOW_SEALING") != NULL, "%s", err.msg);
		close(fds[i]);
	}
}
END_TEST

static const struct {
	uint64_t offset, bytes;
	const char *word;
} bad_range[] = {
	{0, 0, "0 bytes at offset 0"},
	{1, 10, "multiples of"},
	{0, 8193, "8192 bytes long, 8193 were registered"},
	{8192, 1, "8192 bytes long, 8193 were registered"},
	{UINT64_MAX - 4095, 8192, "offset"},
};

START_TEST(a_range_outside_the_object_is_einval)
{
	int fd = wb_memfd_create("t", 8192, NULL);
	struct wb_mem_desc d = desc(fd, bad_range[_i].offset, bad_range[_i].bytes);
	struct wb_err err = {0};
	struct wb_mem m;

	ck_assert_int_eq(wb_mem_import(&d, &m, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, bad_range[_i].word) != NULL, "%s", err.msg);
	close(fd);
}
END_TEST

START_TEST(every_kind_says_what_it_can)
{
	struct wb_mem_desc d = {.kind = WB_MEM_HEAP, .fd = -1, .bytes = 10};
	struct wb_err err = {0};
	struct wb_mem m;

	ck_assert_int_eq(wb_mem_import(&d, &m, &err), 0);
	ck_assert(!m.addr && m.access == WB_MEM_AT_WORKER);
	wb_mem_release(&m);
	for (uint32_t k = WB_MEM_MEMFD; k < WB_MEM_KINDS; k++)
		ck_assert(wb_mem_ops(k)->kind == k && wb_mem_ops(k)->name);
	d.kind = 77;
	ck_assert_int_eq(wb_mem_import(&d, &m, &err), -EINVAL);
}
END_TEST

/* ---- control groups -------------------------------------------------------------------------- */

static char top[256];

static void put(const char *path, const char *text)
{
	char name[1024], *p;
	FILE *f;

	snprintf(name, sizeof(name), "%s/%s", top, path);
	for (p = name + strlen(top) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(name, 0700);
		*p = '/';
	}
	f = fopen(name, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static int read_fixture(struct wb_cgroup_memory *out, struct wb_err *err)
{
	char root[512], self[512];

	snprintf(root, sizeof(root), "%s/cg", top);
	snprintf(self, sizeof(self), "%s/self", top);
	return wb_cgroup_memory(root, self, out, err);
}

static void make_top(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(top, sizeof(top), "%s/wb-mem-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(top));
}

static void drop_top(void)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	ck_assert_int_eq(system(cmd), 0);
}

START_TEST(the_smallest_limit_up_the_tree_counts)
{
	struct wb_cgroup_memory m;
	struct wb_err err = {0};

	put("self", "12:pids:/old\n0::/pod/app\n");
	put("cg/pod/app/memory.max", "max\n");
	put("cg/pod/app/memory.current", "111\n");
	put("cg/pod/memory.max", "1073741824\n");
	put("cg/pod/memory.current", "222\n");
	ck_assert_msg(!read_fixture(&m, &err), "%s", err.msg);
	ck_assert_uint_eq(m.limit_bytes, 1073741824);
	ck_assert_uint_eq(m.used_bytes, 222);
	put("cg/pod/app/memory.max", "4096\n");
	ck_assert_int_eq(read_fixture(&m, &err), 0);
	ck_assert(m.limit_bytes == 4096 && m.used_bytes == 111);
}
END_TEST

START_TEST(no_limit_is_uint64_max)
{
	struct wb_cgroup_memory m;
	struct wb_err err = {0};

	put("self", "0::/\n");
	put("cg/memory.max", "max\n");
	put("cg/memory.current", "5\n");
	ck_assert_int_eq(read_fixture(&m, &err), 0);
	ck_assert(m.limit_bytes == UINT64_MAX && m.used_bytes == 5);
}
END_TEST

START_TEST(a_container_that_sees_the_hosts_path_reads_its_root)
{
	struct wb_cgroup_memory m;
	struct wb_err err = {0};

	put("self", "0::/kubepods/pod1/c1\n");
	put("cg/memory.max", "8192\n");
	put("cg/memory.current", "5\n");
	ck_assert_int_eq(read_fixture(&m, &err), 0);
	ck_assert_uint_eq(m.limit_bytes, 8192);
	put("self", "0::/../other\n");
	ck_assert_int_eq(read_fixture(&m, &err), 0);
	ck_assert_uint_eq(m.limit_bytes, 8192);
}
END_TEST

START_TEST(what_is_not_version_2_is_said)
{
	struct wb_cgroup_memory m;
	struct wb_err err = {0};

	ck_assert_int_eq(read_fixture(&m, &err), -ENOENT);
	put("self", "3:memory:/x\n");
	ck_assert_int_eq(read_fixture(&m, &err), -ENOENT);
	ck_assert_uint_eq(m.limit_bytes, UINT64_MAX);
	put("self", "0::/\n");
	put("cg/memory.max", "12 GB\n");
	ck_assert_int_eq(read_fixture(&m, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "12 GB") != NULL, "%s", err.msg);
}
END_TEST

/* ---- NUMA ------------------------------------------------------------------------------------ */

static cpu_set_t cpus(unsigned first, unsigned last)
{
	cpu_set_t s;

	CPU_ZERO(&s);
	for (unsigned i = first; i <= last; i++)
		CPU_SET(i, &s);
	return s;
}

START_TEST(a_node_is_known_by_its_processors)
{
	cpu_set_t s = cpus(0, 3), is;

	put("devices/system/node/node0/cpulist", "0-3,8-11\n");
	ck_assert_int_eq(wb_numa_of_cpus(top, &s), WB_NUMA_UNKNOWN); /* there is no other */
	put("devices/system/node/node2/cpulist", "4-7\n"); /* numbers have gaps */
	put("devices/system/node/node3/cpulist", "\n"); /* memory alone */
	ck_assert_int_eq(wb_numa_of_cpus(top, &s), 0);
	s = cpus(5, 5);
	ck_assert_int_eq(wb_numa_of_cpus(top, &s), 2);
	s = cpus(3, 4);
	ck_assert_int_eq(wb_numa_of_cpus(top, &s), WB_NUMA_UNKNOWN); /* of both */
	ck_assert_int_eq(wb_numa_cpus(top, 2, &is), 0);
	s = cpus(4, 7);
	ck_assert(CPU_EQUAL(&is, &s));
	ck_assert_int_eq(wb_numa_cpus(top, 3, &is), -ENOENT);
	ck_assert_int_eq(wb_numa_cpus(top, WB_NUMA_UNKNOWN, &is), -ENOENT);
}
END_TEST

static const struct {
	const char *name, *text;
	int node;
} interfaces[] = {
	{"ib0", "1\n", 1},
	{"ib1", "-1\n", WB_NUMA_UNKNOWN}, /* the firmware does not say */
	{"ib2", "x\n", WB_NUMA_UNKNOWN},
	{"ib3", "64\n", WB_NUMA_UNKNOWN},
	{"veth0", NULL, WB_NUMA_UNKNOWN}, /* no device */
	{"../ib0", NULL, WB_NUMA_UNKNOWN},
	{"", NULL, WB_NUMA_UNKNOWN},
};

START_TEST(the_node_of_an_interface_is_that_of_its_device)
{
	char path[128];

	snprintf(path, sizeof(path), "class/net/%s/device/numa_node", interfaces[_i].name);
	if (interfaces[_i].text)
		put(path, interfaces[_i].text);
	ck_assert_int_eq(wb_numa_of_interface(top, interfaces[_i].name), interfaces[_i].node);
}
END_TEST

static const char *const bad_list[] = {"0-", "3-1", "1,", "0-99999999", "-2", "a"};

START_TEST(a_list_that_is_not_understood_is_no_node)
{
	cpu_set_t is;

	put("devices/system/node/node0/cpulist", bad_list[_i]);
	ck_assert_int_eq(wb_numa_cpus(top, 0, &is), -ENOENT);
	ck_assert_int_eq(CPU_COUNT(&is), 0);
}
END_TEST

static const struct {
	const char *file, *text;
	uint64_t bytes_per_s;
} links[] = {
	{"class/net/nic/speed", "200000\n", 25000000000}, {"class/net/nic/speed", "1\n", 125000},
	{"class/net/nic/speed", "-1\n", 0}, /* not known */
	{"class/net/nic/speed", "", 0}, {"class/net/nic/carrier", "0\n", 0},
	{"class/net/veth/speed", "10000\n", 0}, /* no device: the number means nothing */
};

START_TEST(an_interface_is_as_fast_as_its_link_if_it_is_a_device)
{
	put("class/net/nic/device/vendor", "0x15b3\n");
	put(links[_i].file, links[_i].text);
	ck_assert_uint_eq(wb_nic_bytes_per_s(top, "nic"), links[_i].bytes_per_s);
	ck_assert_uint_eq(wb_nic_bytes_per_s(top, "veth"), 0);
	ck_assert_uint_eq(wb_nic_bytes_per_s(top, "none"), 0);
	ck_assert_uint_eq(wb_nic_bytes_per_s(top, "../nic"), 0);
}
END_TEST

#define PORT "devices/pci0000:00/0000:00:01.0/"
#define NIC PORT "0000:01:00.0/"

static const struct {
	const char *speed, *width, *port_speed, *port_width;
	uint64_t pci, bytes_per_s; /* of the path, and of the interface, whose link has 400 Gb/s */
} paths[] = {
	{"32.0 GT/s PCIe\n", "16\n", "32.0 GT/s PCIe\n", "16\n", 63015384615, 50000000000},
	{"16.0 GT/s PCIe\n", "16\n", "32.0 GT/s PCIe\n", "16\n", 31507692307, 31507692307},
	{"16 GT/s\n", "8\n", NULL, NULL, 15753846153, 15753846153},
	{"5.0 GT/s PCIe\n", "8\n", "5.0 GT/s PCIe\n", "8\n", 4000000000, 4000000000},
	{"32.0 GT/s PCIe\n", "16\n", "8.0 GT/s PCIe\n", "4\n", 3938461538, 3938461538},
	{"Unknown\n", "0\n", "16.0 GT/s PCIe\n", "16\n", 31507692307, 31507692307}, /* a VF */
	{"Unknown\n", "0\n", NULL, NULL, 0, 50000000000}, /* a virtual machine */
	{"x\n", "-4\n", "nan\n", "1e300\n", 0, 50000000000},
	{NULL, NULL, NULL, NULL, 0, 50000000000}, /* another bus */
	/* A device of another bus, in one that says its link: virtio, USB.  That link is none of
	 * its own. */
	{NULL, NULL, "2.5 GT/s PCIe\n", "1\n", 0, 50000000000},
};

START_TEST(an_interface_is_no_faster_than_its_way_to_the_processor)
{
	char link[512], to[512];

	put(NIC "vendor", "0x15b3\n");
	put("class/net/nic/speed", "400000\n");
	snprintf(link, sizeof(link), "%s/class/net/nic/device", top);
	snprintf(to, sizeof(to), "%s/" NIC, top);
	ck_assert_int_eq(symlink(to, link), 0);
	if (paths[_i].speed) {
		put(NIC "current_link_speed", paths[_i].speed);
		put(NIC "current_link_width", paths[_i].width);
	}
	if (paths[_i].port_speed) {
		put(PORT "current_link_speed", paths[_i].port_speed);
		put(PORT "current_link_width", paths[_i].port_width);
	}
	ck_assert_uint_eq(wb_pci_bytes_per_s(link), paths[_i].pci);
	ck_assert_uint_eq(wb_nic_bytes_per_s(top, "nic"), paths[_i].bytes_per_s);
}
END_TEST

#define LEAF "devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/"
#define GPU_AT LEAF "0000:10:00.0"

static const struct {
	const char *folder, *node; /* of the NIC; "" = it names none */
	uint32_t far;
} places[] = {
	{LEAF "0000:11:00.0", "0", 2}, /* below the same port of a switch */
	{"devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:11:00.0", "0", 4},
	{"devices/pci0000:00/0000:00:01.0/0000:11:00.0", "0", 4}, /* at the root's port itself */
	{"devices/pci0000:00/0000:00:02.0/0000:11:00.0", "0", 100},
	{"devices/pci0000:00/0000:11:00.0", "1", 100},
	{"devices/pci0000:40/0000:40:01.0/0000:11:00.0", "0", 200},
	{"devices/pci0000:80/0000:80:01.0/0000:11:00.0", "1", 300},
	{"devices/pci0000:80/0000:80:01.0/0000:11:00.0", "", 300},
	{"devices/pci0000:80/0000:80:01.0/0000:11:00.0", "-1", 300},
	{"devices/platform/nic", "0", WB_PCI_UNKNOWN}, /* another bus */
	{"devices/virtual/net/x", "0", WB_PCI_UNKNOWN},
};

static void link_to(const char *name, const char *folder)
{
	char from[512], to[512], keep[512];

	snprintf(keep, sizeof(keep), "%s", name);
	*strrchr(keep, '/') = '\0';
	snprintf(from, sizeof(from), "%.400s/x", keep);
	put(from, "");
	snprintf(from, sizeof(from), "%s/%.200s", top, name);
	snprintf(to, sizeof(to), "%s/%.200s", top, folder);
	ck_assert_int_eq(symlink(to, from), 0);
}

START_TEST(the_fewer_bridges_between_two_devices_the_nearer_they_are)
{
	char path[512], nic[512];

	put(GPU_AT "/numa_node", "0\n");
	snprintf(path, sizeof(path), "%s/%s", places[_i].folder,
		places[_i].node[0] ? "numa_node" : "vendor");
	put(path, places[_i].node);
	link_to("bus/pci/devices/0000:10:00.0", GPU_AT);
	link_to("class/infiniband/nic/device", places[_i].folder);
	snprintf(nic, sizeof(nic), "%s/class/infiniband/nic/device", top);
	ck_assert_uint_eq(wb_pci_distance(top, "0000:10:00.0", nic), places[_i].far);
	ck_assert_uint_eq(wb_pci_distance(top, "0000:10:00.1", nic), WB_PCI_UNKNOWN);
	ck_assert_uint_eq(wb_pci_distance(top, "", nic), WB_PCI_UNKNOWN);
	ck_assert_uint_eq(wb_pci_distance(top, "../devices/0000:10:00.0", nic), WB_PCI_UNKNOWN);
	ck_assert_uint_eq(wb_pci_distance(top, "0000:10:00.0", "none"), WB_PCI_UNKNOWN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mem");
	TCase *t = tcase_create("kinds");

	tcase_add_test(t, a_memfd_is_shared_with_its_worker);
	tcase_add_test(t, an_object_that_could_shrink_is_refused);
	tcase_add_loop_test(t, a_range_outside_the_object_is_einval, 0, WB_ARRAY_SIZE(bad_range));
	tcase_add_test(t, every_kind_says_what_it_can);
	suite_add_tcase(s, t);
	t = tcase_create("cgroup");
	tcase_add_checked_fixture(t, make_top, drop_top);
	tcase_add_test(t, the_smallest_limit_up_the_tree_counts);
	tcase_add_test(t, no_limit_is_uint64_max);
	tcase_add_test(t, a_container_that_sees_the_hosts_path_reads_its_root);
	tcase_add_test(t, what_is_not_version_2_is_said);
	suite_add_tcase(s, t);
	t = tcase_create("numa");
	tcase_add_checked_fixture(t, make_top, drop_top);
	tcase_add_test(t, a_node_is_known_by_its_processors);
	tcase_add_loop_test(t, the_node_of_an_interface_is_that_of_its_device, 0,
		(int)WB_ARRAY_SIZE(interfaces));
	tcase_add_loop_test(
		t, a_list_that_is_not_understood_is_no_node, 0, (int)WB_ARRAY_SIZE(bad_list));
	tcase_add_loop_test(t, an_interface_is_as_fast_as_its_link_if_it_is_a_device, 0,
		(int)WB_ARRAY_SIZE(links));
	tcase_add_loop_test(t, the_fewer_bridges_between_two_devices_the_nearer_they_are, 0,
		WB_ARRAY_SIZE(places));
	tcase_add_loop_test(t, an_interface_is_no_faster_than_its_way_to_the_processor, 0,
		(int)WB_ARRAY_SIZE(paths));
	suite_add_tcase(s, t);
	return fx_run(s);
}
