/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a model's shapes from the config.json of a Hugging Face checkpoint. */
#include "ctl/model_file.h"

#include "base/base.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "planner/deploy/model.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_BYTES_MAX (1u << 20)

enum { QWEN3 = 1 << WB_ARCH_QWEN3, QWEN3_MOE = 1 << WB_ARCH_QWEN3_MOE };
enum { DEEPSEEK_V3 = 1 << WB_ARCH_DEEPSEEK_V3, QWEN = QWEN3 | QWEN3_MOE };
enum { ALL = QWEN | DEEPSEEK_V3, MOE = QWEN3_MOE | DEEPSEEK_V3 };

static const struct {
	const char *model_type;
	enum wb_arch arch;
} types[] = {
	{"qwen3", WB_ARCH_QWEN3},
	{"qwen3_moe", WB_ARCH_QWEN3_MOE},
	{"deepseek_v3", WB_ARCH_DEEPSEEK_V3},
	{"kimi_k2", WB_ARCH_DEEPSEEK_V3},
};

#define FIELD(name) offsetof(struct wb_model, name)

static const struct {
	const char *key;
	unsigned of; /* a bit for each enum wb_arch */
	bool is_required; /* else 0 where absent or null */
	size_t at;
} fields[] = {
	{"num_hidden_layers", ALL, true, FIELD(layers)},
	{"hidden_size", ALL, true, FIELD(hidden)},
	{"vocab_size", ALL, true, FIELD(vocab)},
	{"num_attention_heads", ALL, true, FIELD(heads)},
	{"num_key_value_heads", ALL, false, FIELD(kv_heads)},
	{"intermediate_size", ALL, true, FIELD(intermediate)},
	{"head_dim", QWEN, false, FIELD(head_dim)},
	{"moe_intermediate_size", MOE, true, FIELD(moe_intermediate)},
	{"num_experts", QWEN3_MOE, true, FIELD(experts)},
	{"n_routed_experts", DEEPSEEK_V3, true, FIELD(experts)},
	{"n_shared_experts", DEEPSEEK_V3, false, FIELD(shared_experts)},
	{"first_k_dense_replace", DEEPSEEK_V3, false, FIELD(first_dense_layers)},
	{"q_lora_rank", DEEPSEEK_V3, false, FIELD(q_lora_rank)},
	{"kv_lora_rank", DEEPSEEK_V3, true, FIELD(kv_lora_rank)},
	{"qk_nope_head_dim", DEEPSEEK_V3, true, FIELD(qk_nope_head_dim)},
	{"qk_rope_head_dim", DEEPSEEK_V3, true, FIELD(qk_rope_head_dim)},
	{"v_head_dim", DEEPSEEK_V3, true, FIELD(v_head_dim)},
	{"num_nextn_predict_layers", DEEPSEEK_V3, false, FIELD(mtp_layers)},
};

/* Settings that change the tensors of a checkpoint: other values than these are refused. */
static const struct {
	const char *key;
	unsigned of;
	int value; /* of an integer or a boolean; absent and null are allowed */
	const char *says;
} refused[] = {
	{"attention_bias", ALL, 0, "biases of the attention are not supported"},
	{"moe_layer_freq", DEEPSEEK_V3, 1,
		"layers without experts between others are not supported"},
	{"decoder_sparse_step", QWEN3_MOE, 1,
		"layers without experts between others are not supported"},
};

static int take_type(const json_t *o, struct wb_model *m, struct wb_err *err)
{
	const char *type = json_string_value(json_object_get(o, "model_type"));
	char known[96] = "";
	size_t n = 0;

	for (size_t i = 0; i < WB_ARRAY_SIZE(types); i++) {
		if (type && !strcmp(types[i].model_type, type))
			m->arch = types[i].arch;
		n += (size_t)snprintf(
			known + n, sizeof(known) - n, "%s%s", i ? ", " : "", types[i].model_type);
	}
	return m->arch ? 0
		       : wb_err_set(err, -EINVAL, "model_type is %s: %s are supported",
				 type ? type : "missing", known);
}

static int take_dtype(const json_t *o, struct wb_model *m, struct wb_err *err)
{
	const json_t *v = json_object_get(o, "torch_dtype");
	const char *name = json_string_value(v ? v : json_object_get(o, "dtype"));

	m->dtype = !name || !strcmp(name, "bfloat16") ? WB_BF16
		   : !strcmp(name, "float16")         ? WB_F16
		   : !strcmp(name, "float32")         ? WB_F32
						      : WB_DT_NONE;
	return m->dtype ? 0
			: wb_err_set(err, -EINVAL,
				  "torch_dtype is %s: bfloat16, float16 and float32 are supported",
				  name);
}

static int check_refused(const json_t *o, const struct wb_model *m, struct wb_err *err)
{
	if (json_object_size(json_object_get(o, "quantization_config")))
		return wb_err_set(err, -EINVAL,
			"quantised weights are not supported: without quantization_config the model"
			" is planned in its torch_dtype");
	if (m->arch == WB_ARCH_QWEN3_MOE && json_array_size(json_object_get(o, "mlp_only_layers")))
		return wb_err_set(err, -EINVAL, "mlp_only_layers is not supported");
	for (size_t i = 0; i < WB_ARRAY_SIZE(refused); i++) {
		const json_t *v = json_object_get(o, refused[i].key);
		int64_t has = json_is_boolean(v) ? json_is_true(v) : json_integer_value(v);

		if (v && !json_is_null(v) && has != refused[i].value &&
			refused[i].of & 1u << m->arch)
			return wb_err_set(err, -EINVAL, "%s: %s", refused[i].key, refused[i].says);
	}
	return 0;
}

static int take_fields(const json_t *o, struct wb_model *m, struct wb_err *err)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(fields); i++) {
		const json_t *v = json_object_get(o, fields[i].key);
		int64_t n = json_integer_value(v);

		if (!(fields[i].of & 1u << m->arch))
			continue;
		if ((!v || json_is_null(v)) && !fields[i].is_required)
			continue;
		if (!v)
			return wb_err_set(err, -EINVAL, "%s is missing", fields[i].key);
		if (!json_is_integer(v) || n < 0 || n > UINT32_MAX)
			return wb_err_set(
				err, -EINVAL, "%s: expected a number from 0 on", fields[i].key);
		*(uint32_t *)(void *)((char *)m + fields[i].at) = (uint32_t)n;
	}
	m->kv_heads = m->kv_heads ? m->kv_heads : m->heads;
	if (m->arch != WB_ARCH_DEEPSEEK_V3 && !m->head_dim && m->heads)
		m->head_dim = m->hidden / m->heads;
	m->tie_word_embeddings = json_is_true(json_object_get(o, "tie_word_embeddings"));
	return 0;
}

/* The model of DIR/config.json is named after DIR, that of another file after the file. */
static void set_name(const char *path, struct wb_model *m)
{
	static const char end[] = "/config.json";
	size_t n = strlen(path), last = sizeof(end) - 1;
	const char *begin = path;

	if (n > last && !strcmp(path + n - last, end))
		n -= last;
	for (size_t i = 0; i + 1 < n; i++)
		if (path[i] == '/')
			begin = path + i + 1;
	snprintf(m->name, sizeof(m->name), "%.*s", (int)(n - (size_t)(begin - path)), begin);
}

static int read_config(const char *path, struct wb_model *m, struct wb_err *err)
{
	json_error_t e;
	uint8_t *text;
	size_t bytes;
	json_t *o;
	int rc = wb_file_read(path, CONFIG_BYTES_MAX, &text, &bytes);

	if (rc < 0)
		return wb_err_set(err, rc, "read %s: %s", path, wb_strerror(rc));
	o = json_loadb((const char *)text, bytes, JSON_REJECT_DUPLICATES, &e);
	wb_free(text);
	if (!json_is_object(o)) {
		json_decref(o);
		return wb_err_set(err, -EINVAL, "%s is not the JSON of a model%s%s", path,
			o ? "" : ": ", o ? "" : e.text);
	}
	set_name(path, m);
	rc = take_type(o, m, err);
	if (rc == 0)
		rc = take_dtype(o, m, err);
	if (rc == 0)
		rc = check_refused(o, m, err);
	if (rc == 0)
		rc = take_fields(o, m, err);
	if (rc == 0)
		rc = wb_model_check(m, err);
	json_decref(o);
	return rc < 0 ? wb_err_wrap(err, rc, "%s", path) : 0;
}

static int refuse_name(const char *name, struct wb_err *err)
{
	char known[512] = "";
	size_t n = 0;

	for (uint32_t i = 0; i < wb_n_model && n < sizeof(known); i++)
		n += (size_t)snprintf(
			known + n, sizeof(known) - n, "%s%s", i ? ", " : "", wb_models[i].name);
	return wb_err_set(err, -EINVAL,
		"no model '%s': built in are %s; others by the path of their config.json", name,
		known);
}

int wb__ctl_model(const char *name, struct wb_model *out, struct wb_err *err)
{
	const struct wb_model *known = wb_model_find(name);
	struct wb_model m = {.name = ""};
	struct stat st;
	char path[4096];
	int rc;

	if (known) {
		*out = *known;
		return 0;
	}
	if (stat(name, &st) < 0 && !strchr(name, '/') && !strstr(name, ".json"))
		return refuse_name(name, err);
	if (stat(name, &st) == 0 && S_ISDIR(st.st_mode))
		snprintf(path, sizeof(path), "%s/config.json", name);
	else
		snprintf(path, sizeof(path), "%s", name);
	rc = read_config(path, &m, err);
	if (rc == 0)
		*out = m;
	return rc;
}
