/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the fields and rules of a WeightTransfer. */
#include "operator-shim/spec/table.h"

#include "base/base.h"

#include <string.h>

#define WORDS(n, ...)                                                                              \
	&(const struct wb_words)                                                                   \
	{                                                                                          \
		(const char *const[n]){__VA_ARGS__}, n                                             \
	}

static const char quantity_pattern[] = "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$";

#define AT(member) .off = offsetof(struct wb_spec, member)
#define SECONDS(lo, hi) .type = WB_SPEC_INT, .min = (lo), .max = (hi)
#define SIZE(text)                                                                                 \
	.type = WB_SPEC_QUANTITY, .dflt = "\"" text "\"", .pattern = quantity_pattern, .len_max = 24
#define WORD(list, text) .type = WB_SPEC_WORD, .words = (list), .dflt = "\"" text "\""

const struct wb_spec_field wb_spec_fields[] = {
	{"spec", WB_SPEC_OBJECT, .is_required = true},
	{"spec.suspend", WB_SPEC_BOOL, .dflt = "false", AT(suspend)},
	{"spec.trainer", WB_SPEC_OBJECT, .is_required = true},
	{"spec.trainer.workers", WB_SPEC_INT, .is_required = true, .min = 1, .max = 16384,
		AT(trainer_workers)},
	{"spec.trainer.bufferSize", SIZE("1Gi"), AT(trainer_buffer_bytes)},
	{"spec.rollout", WB_SPEC_OBJECT, .is_required = true},
	{"spec.rollout.workersPerEngine", WB_SPEC_INT, .is_required = true, .min = 1, .max = 1024,
		AT(workers_per_engine)},
	{"spec.rollout.engines", WB_SPEC_INT, .min = 1, .max = 512, AT(engines)},
	{"spec.rollout.engineLabelKey", WB_SPEC_STRING, .dflt = "\"weightbridge.io/engine\"",
		.max = WB_SPEC_LABEL_KEY_MAX, AT(engine_label_key)},
	{"spec.rollout.bufferSize", SIZE("4Gi"), AT(rollout_buffer_bytes)},
	{"spec.staging", WB_SPEC_OBJECT, .dflt = "{}"},
	{"spec.staging.trainer", WORD(&wb_staging_words, "None"), AT(trainer_staging)},
	{"spec.staging.rollout", WORD(&wb_staging_words, "None"), AT(rollout_staging)},
	{"spec.commitPolicy", WORD(&wb_commit_words, "EachEngine"), AT(commit_policy)},
	{"spec.overlap", WORD(&wb_overlap_words, "Wait"), AT(overlap)},
	{"spec.checksums", WORD(WORDS(3, "None", "Wire", "Installed"), "Wire"), AT(checksums)},
	{"spec.transport", WB_SPEC_OBJECT, .dflt = "{}"},
	{"spec.transport.protocols", WB_SPEC_WORDS, .words = WORDS(2, "Verbs", "TCP"),
		.dflt = "[\"Verbs\", \"TCP\"]", .min = 1, .max = 2, AT(protocols)},
	{"spec.transport.deviceClass", WORD(WORDS(3, "Hardware", "Software", "Any"), "Any"),
		AT(device_class)},
	{"spec.transport.gpuDirect", WORD(WORDS(3, "Auto", "Required", "Disabled"), "Auto"),
		AT(gpu_direct)},
	{"spec.transport.encryption", WORD(WORDS(2, "None", "TLS"), "None"), AT(encryption)},
	{"spec.transport.devicePrefixes", WB_SPEC_STRINGS, .max = WB_SPEC_PREFIXES_MAX,
		.len_min = 1, .len_max = WB_SPEC_PREFIX_MAX, AT(device_prefixes)},
	{"spec.planDeadlineSeconds", SECONDS(1, 86400), .dflt = "600", AT(plan_deadline_s)},
	{"spec.transferDeadlineSeconds", SECONDS(1, 86400), .dflt = "120", AT(transfer_deadline_s)},
	{"spec.engineStepDeadlineSeconds", SECONDS(1, 86400), .dflt = "600",
		AT(engine_step_deadline_s)},
	{"spec.heartbeatTimeoutSeconds", SECONDS(5, 3600), .dflt = "15", AT(heartbeat_timeout_s)},
};
const size_t wb_spec_n_field = WB_ARRAY_SIZE(wb_spec_fields);

static bool name_too_long(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return strlen(s->name) > 52;
}

static bool all_engines_unstaged(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->commit_policy == WB_COMMIT_ALL_ENGINES &&
	       s->rollout_staging != WB_STAGING_HOST_MEMORY;
}

static bool supersede_unstaged(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->overlap == WB_OVERLAP_SUPERSEDE && s->rollout_staging != WB_STAGING_HOST_MEMORY;
}

static bool trainer_buffer_small(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->trainer_buffer_bytes < WB_SPEC_BUFFER_MIN;
}

static bool rollout_buffer_small(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->rollout_buffer_bytes < WB_SPEC_BUFFER_MIN;
}

static bool trainer_buffer_large(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->trainer_buffer_bytes > WB_SPEC_BUFFER_MAX;
}

static bool rollout_buffer_large(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->rollout_buffer_bytes > WB_SPEC_BUFFER_MAX;
}

static bool label_key_changed(const struct wb_spec *s, const struct wb_spec *old)
{
	return old && strcmp(s->engine_label_key, old->engine_label_key) != 0;
}

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* Whether the first @n characters of @s are all in @allowed, and the first and last of them in
 * @ends. */
static bool is_name(const char *s, size_t n, const char *allowed, const char *ends)
{
	return n && strspn(s, allowed) >= n && strchr(ends, s[0]) && strchr(ends, s[n - 1]);
}

/* Whether this is the key of a label as Kubernetes defines it: a DNS name and a slash, which may be
 * missing, and a name. */
static bool is_label_key(const char *key)
{
	const char *slash = strchr(key, '/'), *name = slash ? slash + 1 : key;
	size_t n = strlen(name);

	if (slash && slash - key > 253)
		return false;
	for (const char *s = key; slash && s <= slash; s++) {
		size_t part = strcspn(s, "./");

		if (!is_name(s, part, LOWER DIGITS "-", LOWER DIGITS))
			return false;
		s += part;
	}
	return n <= 63 && is_name(name, n, LOWER UPPER DIGITS "-_.", LOWER UPPER DIGITS);
}

static bool not_a_label_key(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return !is_label_key(s->engine_label_key);
}

static bool software_gpu_direct(const struct wb_spec *s, const struct wb_spec *old)
{
	(void)old;
	return s->device_class == WB_DEVICE_SOFTWARE && s->gpu_direct == WB_GPU_DIRECT_REQUIRED;
}

#define NEEDS_ROLLOUT_STAGING                                                                      \
	" || (has(self.staging) && has(self.staging.rollout) && self.staging.rollout == "          \
	"'HostMemory')"
#define AT_LEAST_64MI                                                                              \
	"type(self) == int ? self >= 67108864 : quantity(self).compareTo(quantity('64Mi')) >= 0"
#define AT_MOST_16TI                                                                               \
	"type(self) == int ? self <= 17592186044416 : "                                            \
	"quantity(self).compareTo(quantity('16Ti')) <= 0"

#define IS_LABEL_KEY                                                                               \
	"self.indexOf('/') <= 253 && self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-" \
	"a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')"

const struct wb_spec_rule wb_spec_rules[] = {
	{"", "size(self.metadata.name) <= 52", "metadata.name must be no more than 52 characters",
		"metadata.name", name_too_long},
	{"spec",
		"!(has(self.commitPolicy) && self.commitPolicy == "
		"'AllEngines')" NEEDS_ROLLOUT_STAGING,
		"commitPolicy AllEngines needs staging.rollout HostMemory, parameters written in "
		"place cannot be held back",
		"spec.commitPolicy", all_engines_unstaged},
	{"spec", "!(has(self.overlap) && self.overlap == 'Supersede')" NEEDS_ROLLOUT_STAGING,
		"overlap Supersede needs staging.rollout HostMemory", "spec.overlap",
		supersede_unstaged},
	{"spec.trainer.bufferSize", AT_LEAST_64MI, "must be at least 64Mi",
		"spec.trainer.bufferSize", trainer_buffer_small},
	{"spec.trainer.bufferSize", AT_MOST_16TI, "must be at most 16Ti", "spec.trainer.bufferSize",
		trainer_buffer_large},
	{"spec.rollout.engineLabelKey", "self == oldSelf", "Value is immutable",
		"spec.rollout.engineLabelKey", label_key_changed},
	{"spec.rollout.engineLabelKey", IS_LABEL_KEY,
		"must be the key of a label, such as example.com/engine",
		"spec.rollout.engineLabelKey", not_a_label_key},
	{"spec.rollout.bufferSize", AT_LEAST_64MI, "must be at least 64Mi",
		"spec.rollout.bufferSize", rollout_buffer_small},
	{"spec.rollout.bufferSize", AT_MOST_16TI, "must be at most 16Ti", "spec.rollout.bufferSize",
		rollout_buffer_large},
	{"spec.transport",
		"!(has(self.deviceClass) && self.deviceClass == 'Software' && has(self.gpuDirect) "
		"&& "
		"self.gpuDirect == 'Required')",
		"gpuDirect must not be Required when deviceClass is Software",
		"spec.transport.gpuDirect", software_gpu_direct},
};
const size_t wb_spec_n_rule = WB_ARRAY_SIZE(wb_spec_rules);
