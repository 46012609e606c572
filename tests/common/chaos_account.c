/* SPDX-License-Identifier: Apache-2.0 */
/* One account of a transfer's end: what trainers are told is what engines are told. */
#include "base/base.h"
#include "base/err.h"
#include "tests/common/chaos.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct chaos_account *account_of(struct chaos *c, uint64_t transfer)
{
	struct chaos_account *a = &c->account[transfer % WB_ARRAY_SIZE(c->account)];

	if (a->transfer != transfer)
		*a = (struct chaos_account){.transfer = transfer};
	return a;
}

void chaos_account_begin(struct chaos *c, uint64_t transfer)
{
	*account_of(c, transfer) = (struct chaos_account){.transfer = transfer};
}

static void compare(struct chaos *c, const struct chaos_account *a)
{
	char why[300];

	if (!a->has_no_effect || (!a->is_torn && !a->is_committed))
		return;
	snprintf(why, sizeof(why),
		"trainers are told that transfer %llu left the old weights as they were "
		"('%.150s'), "
		"but an engine is %s",
		(unsigned long long)a->transfer, a->why, a->is_torn ? "torn by it" : "committed");
	chaos_wrong(c, why);
}

/* As the library does: a deadline that the agent missed is an abort. */
static bool is_abort(int64_t code)
{
	return code == WB_EABORTED || code == -ETIMEDOUT || code == -EAGAIN || code == -EINTR;
}

void chaos_account_told(struct chaos *c, const struct world_worker *k)
{
	struct chaos_account *a = account_of(c, k->send_transfer);

	if (k->send_state != WB_APP_SEND_FINAL || !k->send_transfer || !is_abort(k->send_code))
		return;
	a->has_no_effect = true;
	snprintf(a->why, sizeof(a->why), "%.199s", k->why);
	compare(c, a);
}

void chaos_account_torn(struct chaos *c, const struct world_worker *k)
{
	struct chaos_account *a = account_of(c, k->transfer);

	a->is_torn = true;
	compare(c, a);
}

void chaos_account_committed(struct chaos *c, uint64_t transfer)
{
	struct chaos_account *a = account_of(c, transfer);

	a->is_committed = true;
	compare(c, a);
}
