/* SPDX-License-Identifier: Apache-2.0 */
/* A WeightTransfer file from anywhere: refused with a sentence, or what was read obeys the rules
 * and reads back the same from its own JSON. */
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/spec/table.h"
#include "operator-shim/spec/yaml.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_back(const struct wb_spec *s)
{
	json_t *o = json_pack("{s:s, s:s, s:{s:s, s:s}, s:o}", "apiVersion", WB_SPEC_API_VERSION,
		"kind", WB_SPEC_KIND, "metadata", "name", s->name, "namespace", s->namespace_,
		"spec", wb_spec_json(s));
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	struct wb_spec *back = NULL;
	struct wb_err err = {0};
	size_t n = 0;

	/* NULL: a string that is not UTF-8 cannot be, libyaml refuses it. */
	if (!text || wb_spec_load("f", text, strlen(text), &back, &n, &err) != 0 || n != 1 ||
		memcmp(s, back, sizeof(*s)) != 0)
		abort();
	wb_free(back);
	free(text);
	json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wb_yaml_node **doc = NULL;
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};
	size_t n = 0;

	if (wb_yaml_read("f", data, size, &doc, &n, &err) == 0) {
		for (size_t i = 0; i < n; i++)
			json_decref(wb_yaml_json(doc[i]));
		wb_yaml_free(doc, n);
	} else if (!err.msg[0]) {
		abort();
	}
	n = 0;
	if (wb_spec_load("f", data, size, &spec, &n, &err) == 0)
		for (size_t i = 0; i < n; i++)
			read_back(&spec[i]);
	wb_free(spec);
	return 0;
}
