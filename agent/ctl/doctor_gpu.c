/* SPDX-License-Identifier: Apache-2.0 */
/* How RDMA devices reach memory of a GPU here: a sample is registered and released. */
#include "base/base.h"
#include "base/err.h"
#include "ctl/doctor.h"
#include "mem/mem.h"
#include "xport/xport.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#define SAMPLE_BYTES ((uint64_t)2 << 20)
#define STEP_MS 20

static const char *const way[] = {[WB_XPORT_PATH_PENDING] = "not known, registering takes too long",
	[WB_XPORT_PATH_HOST] = "as the host's",
	[WB_XPORT_PATH_DMABUF] = "by dma-buf",
	[WB_XPORT_PATH_PEER] = "as peer memory",
	[WB_XPORT_PATH_BOUNCE] = "not, only by way of the host",
	[WB_XPORT_PATH_FAILED] = "not"};

static enum wb_xport_path wait_for(
	struct wb_xport *x, uint32_t id, uint64_t patience_ns, char *says, size_t cap)
{
	uint64_t until = wb_now_ns(&wb_clock_real) + patience_ns;
	struct pollfd p = {.fd = wb_xport_event_fd(x), .events = POLLIN};
	enum wb_xport_path path;

	for (;;) {
		struct wb_xport_event ev[8];

		(void)wb_xport_poll(x, ev, (int)WB_ARRAY_SIZE(ev));
		path = wb_xport_region_path(x, id, says, cap);
		if (path != WB_XPORT_PATH_PENDING || wb_now_ns(&wb_clock_real) >= until)
			return path;
		(void)poll(&p, 1, STEP_MS);
	}
}

static int try_it(struct wb_xport *x, const struct wb_mem_sample *s, struct wb__ctl_sheet *t,
	uint64_t patience_ns, struct wb_err *err)
{
	struct wb_xport_region r = {.object = 1,
		.fd = -1,
		.base = s->addr,
		.bytes = s->bytes,
		.direction = WB_XPORT_SOURCE,
		.gpu = {.is_there = true}};
	enum wb_xport_path path;
	struct wb_mem_nic nic;
	char says[512] = "";
	uint32_t id;
	int rc = wb_mem_nic(s->addr, s->bytes, &nic, err);

	if (rc)
		return rc;
	r.gpu.dmabuf_fd = nic.dmabuf_fd;
	r.gpu.dmabuf_off = nic.dmabuf_off;
	snprintf(r.gpu.pci, sizeof(r.gpu.pci), "%s", nic.pci);
	rc = wb_xport_region_add(x, &r, &id, err);
	wb_mem_nic_finish(&nic);
	if (rc)
		return rc;
	path = wait_for(x, id, patience_ns, says, sizeof(says));
	wb__ctl_say(t, "gpu-memory", WB_CTL_INFO, "RDMA devices reach it %s: GPU %s: %s%s%s",
		way[path], nic.pci, says, nic.why[0] ? "; " : "", nic.why);
	return 0;
}

/* The transport is closed before the sample is freed, so that no device has it then. */
void wb__ctl_look_gpu(struct wb__ctl_sheet *t, struct wb_xport *x_take, uint64_t patience_ns)
{
	struct wb_mem_sample s;
	struct wb_err err = {0};
	int rc = wb_mem_sample(SAMPLE_BYTES, &s, &err);
	bool is_there = !rc;

	if (is_there)
		rc = try_it(x_take, &s, t, patience_ns, &err);
	wb_xport_close(x_take);
	if (is_there)
		wb_mem_sample_finish(&s);
	if (rc < 0 && (is_there || (rc != -ENOTSUP && rc != -ENODEV)))
		wb__ctl_say(t, "gpu-memory", WB_CTL_INFO, "RDMA devices could not be tried: %s",
			err.msg);
}
