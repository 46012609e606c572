/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people write of a deployment: the layout of one side, and a model's config.json. The first
 * byte picks a model for the layout, or the second.
 */
#include "base/base.h"
#include "base/err.h"
#include "ctl/model_file.h"
#include "planner/deploy/model.h"
#include "planner/deploy/parallel.h"
#include "planner/plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void layout(const struct wb_model *m, const char *text)
{
	struct wb_parallel p;
	struct wb_err err = {0};
	uint32_t layers = 0;

	if (wb_parallel_parse(text, &p, &err) < 0 || wb_parallel_fit(&p, m, &err) < 0) {
		assert(err.msg[0]);
		return;
	}
	assert(p.world >= 1 && p.world <= WB_WORKERS_MAX && p.world % p.pp == 0);
	assert(p.n_stage == p.pp && p.pp <= WB_PARALLEL_STAGES_MAX && p.tp && p.ep && p.dp);
	for (uint32_t i = 0; i < p.n_stage; i++) {
		assert(p.stage[i]);
		layers += p.stage[i];
	}
	assert(layers == m->layers);
}

static void config(const uint8_t *data, size_t size)
{
	struct wb_model m;
	struct wb_err err = {0};
	char path[64];
	int fd = memfd_create("config", MFD_CLOEXEC);

	assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (wb__ctl_model(path, &m, &err) < 0)
		assert(err.msg[0]);
	else
		assert(wb_model_check(&m, NULL) == 0);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[WB_PARALLEL_TEXT_MAX + 8];

	if (!size)
		return 0;
	if (*data == '{') {
		config(data, size);
		return 0;
	}
	snprintf(text, sizeof(text), "%.*s", (int)WB_MIN(size - 1, sizeof(text) - 1),
		(const char *)data + 1);
	layout(&wb_models[*data % wb_n_model], text);
	return 0;
}
