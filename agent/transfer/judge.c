/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges: the agents of trainer workers keep the decision on a joint transfer, COMMIT or ABORT, in
 * one Paxos register for each transfer.  A judge answers only after what it says is in its file, so
 * that a judge that is killed and restarted keeps its word.  The same file keeps the greatest
 * number that a coordinator here has given to a transfer: no number may be used twice.
 */
#include "transfer/judge.h"

#include "base/log.h"
#include "proto/peers.h"
#include "transfer/ballot.h"
#include "transfer/epoch.h"
#include "transfer/hears.h"
#include "transfer/object.h"

#include <stdio.h>
#include <string.h>

/* The file: forgotten, issued, then the verdicts, all numbers in this machine's byte order. */
#define HEAD 16
#define FILE_CAP (HEAD + TRANSFER_VERDICTS_MAX * sizeof(struct verdict))

static void file_name(const struct object *o, char out[WB_DIGEST_TEXT + 16])
{
	snprintf(out, WB_DIGEST_TEXT + 16, "decisions-%016llx", (unsigned long long)o->id.hash);
}

void wb__transfer_judge_load(struct object *o)
{
	const struct wb_transfer_store *s = o->core->o.store;
	uint8_t data[FILE_CAP];
	char name[WB_DIGEST_TEXT + 16];
	int64_t n;

	o->is_judge = true;
	if (!s)
		return;
	file_name(o, name);
	n = s->load(s->ctx, name, data, sizeof(data));
	if (n == 0)
		return;
	/* A judge that does not know what it promised must not speak. */
	if (n < HEAD || (size_t)(n - HEAD) % sizeof(struct verdict)) {
		o->is_judge = false;
		WB_LOG_ERR("transfer",
			"the file of decisions is damaged or cannot be read: this agent decides no "
			"transfer any more; remove it when no transfer runs, and restart the agent",
			WB_S("object", o->name), WB_S("file", name),
			WB_S("reason", n < 0 ? wb_strerror((int)n) : "not of its size"));
		return;
	}
	memcpy(&o->forgotten, data, 8);
	memcpy(&o->given, data + 8, 8);
	o->issued = WB_MAX(o->issued, o->given);
	o->n_verdict = (uint32_t)((size_t)(n - HEAD) / sizeof(struct verdict));
	memcpy(o->verdict, data + HEAD, o->n_verdict * sizeof(struct verdict));
}

static int save(const struct object *o)
{
	const struct wb_transfer_store *s = o->core->o.store;
	uint8_t data[FILE_CAP];
	char name[WB_DIGEST_TEXT + 16];

	if (!s)
		return 0;
	file_name(o, name);
	memcpy(data, &o->forgotten, 8);
	memcpy(data + 8, &o->given, 8);
	memcpy(data + HEAD, o->verdict, o->n_verdict * sizeof(struct verdict));
	return s->save(s->ctx, name, data, HEAD + o->n_verdict * sizeof(struct verdict));
}

/* If the number cannot be kept, engines, areas and the operator still know it. */
void wb__transfer_judge_number(struct object *o, uint64_t transfer)
{
	o->given = transfer;
	if (o->is_judge && save(o) < 0)
		WB_LOG_WRN("transfer", "the number of a transfer cannot be kept");
}

/* NULL: the transfer is too old to know anything of it. */
static struct verdict *verdict_of(struct object *o, uint64_t transfer)
{
	uint32_t at = 0;

	while (at < o->n_verdict && o->verdict[at].transfer < transfer)
		at++;
	if (at < o->n_verdict && o->verdict[at].transfer == transfer)
		return &o->verdict[at];
	if (transfer <= o->forgotten || !o->is_judge)
		return NULL;
	if (o->n_verdict == TRANSFER_VERDICTS_MAX) {
		if (at == 0)
			return NULL;
		o->forgotten = o->verdict[0].transfer;
		memmove(o->verdict, o->verdict + 1, --o->n_verdict * sizeof(*o->verdict));
		at--;
	}
	memmove(o->verdict + at + 1, o->verdict + at, (o->n_verdict - at) * sizeof(*o->verdict));
	o->n_verdict++;
	o->verdict[at] = (struct verdict){.transfer = transfer};
	return &o->verdict[at];
}

/* The fields of either answer, taken from judge()'s variables. */
#define ANSWER                                                                                     \
	.transfer = m->transfer, .code = code, .ballot = ballot, .accepted = v->accepted,          \
	.decision = (uint32_t)v->value

static void judge(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct verdict *v = verdict_of(e->obj, m->transfer), was;
	uint64_t ballot = m->ballot;
	int64_t code = 0;

	if (!v || (m->kind == WBP_PEER_ACCEPT && m->decision != DECIDE_COMMIT &&
			  m->decision != DECIDE_ABORT))
		return;
	was = *v;
	if (m->kind == WBP_PEER_BALLOT && m->ballot > v->promised) {
		v->promised = m->ballot;
	} else if (m->kind == WBP_PEER_ACCEPT && m->ballot >= v->promised) {
		v->promised = v->accepted = m->ballot;
		v->value = m->decision;
	} else {
		code = WB_ESTALE;
		ballot = v->promised;
	}
	if (code == 0 && save(e->obj) < 0) {
		*v = was;
		return;
	}
	wb__transfer_send(e, from,
		m->kind == WBP_PEER_BALLOT ? WB_PEER(BALLOTED, ANSWER) : WB_PEER(ACCEPTED, ANSWER));
}

void wb__transfer_on_BALLOT(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	judge(e, from, m);
}

void wb__transfer_on_ACCEPT(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	judge(e, from, m);
}
