/* SPDX-License-Identifier: Apache-2.0 */
/* What a test tells the driver to do. */
#include "tests/cuda/driver/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULES 64

struct rule {
	char function[64];
	long long what; /* a result, or ns */
	long times, after; /* times: 0 = always; -1 = used up */
};

static struct {
	struct rule rule[RULES];
	int n;
} fails, lates;

static bool fires(struct rule *r, const char *function)
{
	if (r->times < 0 || (strcmp(r->function, "*") != 0 && strcmp(r->function, function) != 0))
		return false;
	if (r->after > 0) {
		r->after--;
		return false;
	}
	if (r->times > 0 && --r->times == 0)
		r->times = -1;
	return true;
}

int fc_script_fail(const char *function)
{
	for (int i = 0; i < fails.n; i++)
		if (fires(&fails.rule[i], function)) {
			if (getenv("FAKECUDA_SAY"))
				fprintf(stderr, "fakecuda: %s fails with %lld\n", function,
					fails.rule[i].what);
			return (int)fails.rule[i].what;
		}
	return 0;
}

uint64_t fc_script_late(const char *function)
{
	for (int i = 0; i < lates.n; i++)
		if (fires(&lates.rule[i], function))
			return (uint64_t)lates.rule[i].what;
	return 0;
}

static void forget(void)
{
	fails.n = lates.n = 0;
	fc.is_held = false;
	fc.go = 0;
	fc.order = 0;
	fc.lose_after = -1;
}

static int statement(const char *s)
{
	struct rule r = {.times = 0};
	char word[16] = "";
	long long a = 0, b = 0, c = 0;
	int n = sscanf(s, "%15s %63s %lld %ld %ld", word, r.function, &r.what, &r.times, &r.after);
	int m = sscanf(s, "%*s %lld %lld %lld", &a, &b, &c);

	if (n <= 0)
		return 0;
	if ((!strcmp(word, "fail") || !strcmp(word, "late")) && n >= 3) {
		int *to = *word == 'f' ? &fails.n : &lates.n;

		if (*to == RULES)
			return -EINVAL;
		(*word == 'f' ? fails.rule : lates.rule)[(*to)++] = r;
	} else if (!strcmp(word, "lose") && m >= 1) {
		fc.lose_with = (int)a;
		fc.lose_after = (long)b;
	} else if (!strcmp(word, "hold")) {
		fc.is_held = true;
		fc.go = 0;
	} else if (!strcmp(word, "go")) {
		fc.is_held = m >= 1;
		fc.go = (long)a;
	} else if (!strcmp(word, "order") && m == 1) {
		fc.order = (uint64_t)a;
	} else if (!strcmp(word, "device") && m == 3 && a >= 0 && a < FC_DEVICES && b >= 0 &&
		   b < FC_ATTRIBUTES) {
		fc.device[a].attribute[b] = (int)c;
	} else if (!strcmp(word, "memory") && m == 1 && a > 0) {
		fc_world_memory((uint64_t)a);
	} else if (!strcmp(word, "reset")) {
		forget();
	} else {
		return -EINVAL;
	}
	return 0;
}

FC_API int fakecuda_script(const char *text)
{
	char *copy = strdup(text), *save = NULL;
	int rc = copy ? 0 : -ENOMEM;

	pthread_mutex_lock(&fc.lock);
	for (char *s = copy ? strtok_r(copy, ";\n", &save) : NULL; s && !rc;
		s = strtok_r(NULL, ";\n", &save))
		rc = statement(s);
	pthread_cond_broadcast(&fc.changed);
	pthread_mutex_unlock(&fc.lock);
	free(copy);
	return rc;
}

FC_API void fakecuda_count(struct fakecuda_counts *out)
{
	pthread_mutex_lock(&fc.lock);
	*out = fc.count;
	pthread_mutex_unlock(&fc.lock);
}
