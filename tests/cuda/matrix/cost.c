/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent costs the device and the host. */
#include "tests/cuda/matrix/matrix.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "lane/gpu.h"
#include "tests/common/fx_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* The agent does one thing after the other; meanwhile another process looks at the device. */
enum step { NOTHING, DRIVER, CONTEXT, VMM, IPC, LANE, STEPS };
static const char *const step_names[STEPS] = {"a process without the driver",
	"the driver is loaded", "a context", "memory is imported, VMM", "memory is imported, IPC",
	"a lane: a stream, the kernels, tables"};

struct said {
	int rc;
	double ms;
	uint64_t rss, free; /* bytes: of the process; of the device */
	char why[512];
};

static uint64_t own_rss(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int import_one(int worker, uint32_t memory, struct wb_err *err)
{
	struct mx_question q = {MX_GIVE, memory, 1};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	static struct wb_mem is; /* stays */
	struct mx_answer a;
	int rc;

	mx_ask(worker, &q, &a, piece);
	rc = a.rc ? wb_err_set(err, a.rc, "%s", a.why) : wb_mem_import(&a.desc, &is, err);
	mx_forget(&a.desc);
	return rc;
}

static int make_lane(struct wb_err *err)
{
	size_t bytes = (size_t)16 << 20;
	struct wb_lane_gpu *lane; /* stays */
	void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (arena == MAP_FAILED)
		return wb_err_set(err, -ENOMEM, "no memory for slots");
	return wb_lane_gpu_create(NULL, arena, bytes, &lane, err);
}

static int take_step(int worker, enum step step, struct wb_err *err)
{
	const struct wbcu *cu;
	struct wb_gpu *g;

	switch (step) {
	case DRIVER:
		return wbcu_load(&cu, err);
	case CONTEXT:
		return wb_gpu_get(NULL, &g, err);
	case VMM:
	case IPC:
		return import_one(worker, step == VMM ? MX_VMM : MX_IPC, err);
	case LANE:
		return make_lane(err);
	case NOTHING:
	case STEPS:
		break;
	}
	return 0;
}

static void be_costly(int sock, int worker)
{
	enum step step;

	while (recv(sock, &step, sizeof(step), 0) == sizeof(step)) {
		uint64_t t0 = wb_now_ns(&wb_clock_real);
		struct wb_err err = {0};
		struct said s = {.rc = take_step(worker, step, &err)};

		s.ms = (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6;
		s.rss = own_rss();
		snprintf(s.why, sizeof(s.why), "%.500s", err.msg);
		fx_send(sock, &s, sizeof(s), NULL, 0);
	}
	exit(0);
}

void mx_observer(int sock, int none)
{
	struct wb_err err = {0};
	struct wb_gpu *g = NULL;
	enum step step;
	uint64_t all;

	(void)none;
	while (recv(sock, &step, sizeof(step), 0) == sizeof(step)) {
		struct said s = {.rc = 0};

		if (!g)
			s.rc = wb_gpu_get(NULL, &g, &err);
		if (!s.rc)
			s.rc = wb_gpu_room(g, &s.free, &all, &err);
		snprintf(s.why, sizeof(s.why), "%.500s", err.msg);
		fx_send(sock, &s, sizeof(s), NULL, 0);
	}
	exit(0);
}

static struct said tell(int sock, enum step step)
{
	struct said s;

	fx_send(sock, &step, sizeof(step), NULL, 0);
	fx_receive(sock, &s, sizeof(s), NULL, 0);
	return s;
}

static void say_cost(const char *what, const struct said *is, double used)
{
	struct mx_line l = {.len = 0};

	mx_text(&l, "cost", what);
	mx_number(&l, "device_bytes", used);
	mx_number(&l, "host_rss", (double)is->rss);
	mx_number(&l, "ms", is->ms);
	if (is->rc)
		mx_text(&l, "why", is->why);
	mx_say(&l);
}

void mx_wake(int seen)
{
	(void)tell(seen, NOTHING);
}

bool mx_costs(int seen)
{
	pid_t pid[2];
	int w = mx_serve(mx_worker, -1, &pid[0]), agent;
	struct mx_question warm = {MX_GIVE, MX_VMM, 1};
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct mx_answer a;
	struct said is, at;
	double before;
	bool ok;

	mx_ask(w, &warm, &a, piece); /* it has its memory by now */
	mx_forget(&a.desc);
	before = (double)tell(seen, NOTHING).free;
	agent = mx_serve(be_costly, w, &pid[1]);
	for (int i = 0; i < STEPS; i++) {
		is = tell(agent, (enum step)i);
		at = tell(seen, NOTHING);
		say_cost(step_names[i], &is, before - (double)at.free);
	}
	close(agent);
	ok = mx_wait(pid[1]) == 0;
	at = tell(seen, NOTHING);
	say_cost("when it has ended", &at, before - (double)at.free);
	close(w);
	return mx_wait(pid[0]) == 0 && ok;
}
