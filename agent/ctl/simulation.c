/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/simulation.h"

#include "base/base.h"
#include "base/cli.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "ctl/model_file.h"
#include "operator-shim/spec/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RAIL_GBIT_MIN 0.001
#define RAIL_GBIT_MAX 100000

/* Settings of a file and of the command line; those of the command line overrule those of the
 * file. */
static const struct {
	const char *key, *option;
	size_t at; /* in struct wb__ctl_simulate */
	const char *dflt; /* NULL: has to be given */
} settings[] = {
	{"name", NULL, offsetof(struct wb__ctl_simulate, name), ""},
	{"model", "--model", offsetof(struct wb__ctl_simulate, model), NULL},
	{"trainer", "--trainer", offsetof(struct wb__ctl_simulate, trainer), NULL},
	{"rollout", "--rollout", offsetof(struct wb__ctl_simulate, rollout), NULL},
	{"engines", "--engines", offsetof(struct wb__ctl_simulate, engines), "1"},
	{"gpusPerNode", "--gpus-per-node", offsetof(struct wb__ctl_simulate, gpus_per_node), "8"},
	{"railGbit", "--rail-gbit", offsetof(struct wb__ctl_simulate, rail_gbit), "400"},
	{"pods", "--pods", offsetof(struct wb__ctl_simulate, pods), "1"},
	{"podMemory", "--pod-memory", offsetof(struct wb__ctl_simulate, pod_memory), "own"},
	{"staging", "--staging", offsetof(struct wb__ctl_simulate, staging), "none"},
	{"mode", "--mode", offsetof(struct wb__ctl_simulate, mode), "weightbridge"},
	{"set", "--set", offsetof(struct wb__ctl_simulate, set), ""},
};

static const char **setting_at(struct wb__ctl_simulate *s, size_t i)
{
	return (const char **)(void *)((char *)s + settings[i].at);
}

/* ---- the file ---- */

static int take_key(struct wb__ctl_simulate *s, const struct wb_yaml_child *c, struct wb_err *err)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(settings); i++) {
		if (strcmp(settings[i].key, c->key) != 0)
			continue;
		if (c->value->kind != WB_YAML_SCALAR || !*c->value->text)
			return wb_err_set(err, -EINVAL, "%s: expected one value", c->key);
		if (!*setting_at(s, i))
			*setting_at(s, i) = c->value->text;
		return 0;
	}
	return wb_err_set(err, -EINVAL,
		"unknown field %s: there are name, model, trainer, rollout, engines, gpusPerNode, "
		"railGbit, pods, podMemory, staging, mode and set",
		c->key);
}

/* @doc: whose texts @s borrows. */
static int take_file(const char *path, struct wb__ctl_simulate *s, struct wb_yaml_node ***doc,
	size_t *n, struct wb_err *err)
{
	size_t bytes;
	uint8_t *text;
	int rc = wb_file_read(path, WB_YAML_BYTES_MAX, &text, &bytes);

	if (rc < 0)
		return wb_err_set(err, rc, "read %s: %s", path, wb_strerror(rc));
	rc = wb_yaml_read(path, text, bytes, doc, n, err);
	wb_free(text);
	if (rc < 0)
		return rc;
	if (*n != 1 || (*doc)[0]->kind != WB_YAML_MAP)
		return wb_err_set(err, -EINVAL, "%s: expected one deployment, a map", path);
	for (uint32_t i = 0; i < (*doc)[0]->n; i++) {
		const struct wb_yaml_child *c = &(*doc)[0]->child[i];

		rc = take_key(s, c, err);
		if (rc < 0)
			return wb_err_wrap(err, rc, "%s:%" PRIu32, path, c->line);
	}
	return 0;
}

/* ---- the deployment ---- */

static int take_number(
	const char *option, const char *text, uint64_t max, uint64_t *out, struct wb_err *err)
{
	return wb_cli_uint(text, 1, max, out) < 0
		       ? wb_err_set(
				 err, -EINVAL, "%s %s: expected 1 to %" PRIu64, option, text, max)
		       : 0;
}

/* A rail may be slower than any NIC: that of agents with a limit, or of a virtual machine. */
static int take_rate(const char *text, uint64_t *bytes_per_s, struct wb_err *err)
{
	char *end;
	double gbit = strtod(text, &end);

	if (end == text || *end || !(gbit >= RAIL_GBIT_MIN && gbit <= RAIL_GBIT_MAX))
		return wb_err_set(err, -EINVAL, "--rail-gbit %s: expected %g to %d", text,
			RAIL_GBIT_MIN, RAIL_GBIT_MAX);
	*bytes_per_s = (uint64_t)llround(gbit * 125e6);
	return 0;
}

static int take_numbers(
	const struct wb__ctl_simulate *s, struct wb_deploy_spec *d, struct wb_err *err)
{
	uint64_t engines, gpus, pods;

	if (take_number("--engines", s->engines, WB_WORKERS_MAX, &engines, err) < 0 ||
		take_number("--gpus-per-node", s->gpus_per_node, WB_WORKERS_MAX, &gpus, err) < 0 ||
		take_number("--pods", s->pods, WB_WORKERS_MAX, &pods, err) < 0 ||
		take_rate(s->rail_gbit, &d->rail_bytes_per_s, err) < 0)
		return -EINVAL;
	d->engines = (uint32_t)engines;
	d->gpus_per_node = (uint32_t)gpus;
	d->pods = (uint32_t)pods;
	d->shares_memory = !strcmp(s->pod_memory, "shared");
	return 0;
}

static int make_spec(struct wb__ctl_simulate *s, struct wb_deploy_spec *d, struct wb_err *err)
{
	int rc;

	for (size_t i = 0; i < WB_ARRAY_SIZE(settings); i++) {
		if (!*setting_at(s, i))
			*setting_at(s, i) = settings[i].dflt;
		if (!*setting_at(s, i))
			return wb_err_set(
				err, -EINVAL, "%s is missing (see --help)", settings[i].option);
	}
	rc = take_numbers(s, d, err);
	if (rc == 0)
		rc = wb__ctl_model(s->model, &d->model, err);
	if (rc == 0)
		rc = wb_parallel_parse(s->trainer, &d->trainer, err);
	if (rc == 0)
		rc = wb_parallel_parse(s->rollout, &d->rollout, err);
	return rc;
}

/* ---- words ---- */

static bool is_one_of(const char *word, const char *const *words)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words != NULL;
}

/* Checks the words, and whether they go together. */
static int check_words(
	const struct wb__ctl_opts *o, const struct wb__ctl_simulate *s, struct wb_err *err)
{
	static const char *const staging[] = {"none", "trainer", "rollout", "both", NULL};
	static const char *const modes[] = {"weightbridge", "paper", NULL};
	static const char *const memory[] = {"own", "shared", NULL};

	if (!is_one_of(s->staging, staging))
		return wb_err_set(err, -EINVAL,
			"--staging %s: expected none, trainer, rollout or both", s->staging);
	if (!is_one_of(s->pod_memory, memory))
		return wb_err_set(
			err, -EINVAL, "--pod-memory %s: expected own or shared", s->pod_memory);
	if (!is_one_of(s->mode, modes))
		return wb_err_set(
			err, -EINVAL, "--mode %s: expected weightbridge or paper", s->mode);
	if (!strcmp(s->mode, "weightbridge"))
		return 0;
	if (strcmp(s->staging, "none") != 0)
		return wb_err_set(err, -EINVAL, "--mode paper has no --staging");
	return o->html ? wb_err_set(err, -EINVAL, "--mode paper has no --html") : 0;
}

/* ---- all of it ---- */

int wb__ctl_simulation_read(
	const struct wb__ctl_opts *o, struct wb__ctl_simulation *out, struct wb_err *err)
{
	int rc;

	*out = (struct wb__ctl_simulation){.as = o->simulate};
	rc = o->file ? take_file(o->file, &out->as, &out->doc, &out->n_doc, err) : 0;
	if (rc == 0)
		rc = make_spec(&out->as, &out->spec, err);
	return rc == 0 ? check_words(o, &out->as, err) : rc;
}

void wb__ctl_simulation_finish(struct wb__ctl_simulation *s)
{
	wb_yaml_free(s->doc, s->n_doc);
}
