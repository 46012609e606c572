/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/answers.h"

#include <stdio.h>
#include <string.h>

static const struct wb_kube_answer *find(
	const struct wb_kube_answer *list, const uint8_t *key, uint64_t now_ns)
{
	for (size_t i = 0; i < WB_KUBE_ANSWERS; i++)
		if (list[i].until_ns > now_ns && !memcmp(list[i].key, key, sizeof(list[i].key)))
			return &list[i];
	return NULL;
}

const struct wb_kube_answer *wb_kube_answers_find(
	const struct wb_kube_answers *a, const uint8_t key[WB_KUBE_ANSWER_KEY], uint64_t now_ns)
{
	const struct wb_kube_answer *yes = find(a->yes, key, now_ns);

	return yes ? yes : find(a->no, key, now_ns);
}

void wb_kube_answers_put(struct wb_kube_answers *a, const uint8_t key[WB_KUBE_ANSWER_KEY], int rc,
	const char *sentence, uint64_t now_ns)
{
	struct wb_kube_answer *list = rc ? a->no : a->yes, *at = list;

	for (size_t i = 1; i < WB_KUBE_ANSWERS; i++)
		if (list[i].until_ns < at->until_ns)
			at = &list[i];
	memcpy(at->key, key, sizeof(at->key));
	at->until_ns = now_ns + (rc ? WB_KUBE_ANSWER_NO_NS : WB_KUBE_ANSWER_YES_NS);
	at->rc = rc;
	snprintf(at->sentence, sizeof(at->sentence), "%s", sentence);
}
