/* SPDX-License-Identifier: Apache-2.0 */
/* What others may know of the objects here: for HELLO, for status pages, and for those who wait for
 * an end. */
#include "transfer/coordinator.h"
#include "transfer/epoch.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/states.h"
#include "transfer/trainers.h"

#include <stdio.h>
#include <string.h>

uint64_t wb_transfer_highest(const struct wb_transfer_core *c, const char *object)
{
	uint64_t highest = 0;

	for (const struct object *o = c->objects; o; o = o->next)
		if (!object || !strcmp(o->name, object))
			highest = WB_MAX(highest, WB_MAX(o->highest, o->issued));
	for (uint32_t i = 0; i < c->n_worker; i++)
		if (!object || !strcmp(c->worker[i]->w.object, object))
			highest = WB_MAX(highest, c->worker[i]->seen_transfer);
	return highest;
}

struct wb_roster *wb_transfer_running(
	const struct wb_transfer_core *c, const struct wb_object_id *object)
{
	const struct object *o = wb__transfer_object(c, object);
	const struct epoch *e = o ? active_epoch(o) : NULL;

	return e ? e->r : NULL;
}

struct wb_roster *wb_transfer_ready(
	const struct wb_transfer_core *c, const struct wb_object_id *object)
{
	const struct object *o = wb__transfer_object(c, object);

	return o && o->cur && !o->cur->is_active ? o->cur->r : NULL;
}

bool wb_transfer_is_sending(const struct wb_transfer_core *c, const struct wb_object_id *object)
{
	const struct object *o = wb__transfer_object(c, object);

	return o && o->trainers.state >= TRAINERS_SERVING;
}

size_t wb_transfer_arena_used(const struct wb_transfer_core *c, const struct wb_object_id *object)
{
	const struct object *o = wb__transfer_object(c, object);

	return o ? o->slots_bytes : 0;
}

bool wb__transfer_is_moving(const struct object *o)
{
	if (o->coordinator.state != COORDINATOR_IDLE || o->feeds ||
		o->trainers.state != TRAINERS_IDLE)
		return true;
	/* A transfer may have begun under the plan before. */
	for (int k = 0; k < 2; k++) {
		const struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t i = 0; e && i < e->r->n_engine; i++)
			if (e->party[i].state != PARTY_NONE)
				return true;
	}
	return false;
}

bool wb__transfer_has_flow(struct object *o)
{
	for_flow (o, x)
		return true;
	return false;
}

bool wb_transfer_is_busy(const struct wb_transfer_core *c)
{
	for (const struct object *o = c->objects; o; o = o->next)
		if (wb__transfer_is_moving(o))
			return true;
	for (uint32_t i = 0; i < c->n_worker; i++)
		if (c->worker[i]->repair_ns && !c->worker[i]->gone)
			return true;
	return false;
}

bool wb__transfer_engine_is_torn(const struct epoch *e, uint32_t engine)
{
	for_party_worker (e, engine, i)
		if (e->member[i] && !e->member[i]->gone && e->member[i]->past.is_torn)
			return true;
	return false;
}

static void put_engine(const struct epoch *e, uint32_t en, struct wb_buf *out)
{
	const char *phase = wb__transfer_party_name(e->party[en].state);
	uint64_t transfer = 0;
	int64_t version = -1;

	for_party_worker (e, en, i) {
		if (!e->member[i])
			continue;
		transfer = e->member[i]->held_transfer;
		version = e->member[i]->held_version;
	}
	if (e->party[en].state == PARTY_NONE && wb__transfer_engine_is_torn(e, en))
		phase = "Torn";
	wb_buf_printf(out, "{\"engine\":");
	wb_buf_json_str(out, e->r->engine[en].name);
	wb_buf_printf(out, ",\"transfer\":%llu,\"version\":%lld,\"phase\":\"%s\"}",
		(unsigned long long)transfer, (long long)version, phase);
}

const char *wb_transfer_torn(const struct wb_transfer_core *c)
{
	for (const struct object *o = c->objects; o; o = o->next)
		for (uint32_t en = 0; o->cur && en < o->cur->r->n_engine; en++)
			if (wb__transfer_engine_is_torn(o->cur, en))
				return o->cur->r->engine[en].name;
	return NULL;
}

/* Is @word among the words of @list, which commas separate? */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; (s = strstr(s, word)); s += n)
		if ((s == list || s[-1] == ',') && (!s[n] || s[n] == ','))
			return true;
	return false;
}

const char *wb_transfer_via(
	const struct wb_transfer_core *c, const struct wb_epoch_id *id, char *out, size_t cap)
{
	size_t at = 0;

	out[0] = '\0';
	for (int gets = 1; gets >= 0 && !at; gets--)
		for (size_t i = 0; i < c->n_conn; i++) {
			const char *via = c->conn[i].via;

			if (c->conn[i].is_dialer != gets ||
				!wb_epoch_id_eq(&c->conn[i].e->r->id, id) || has_word(out, via) ||
				at + strlen(via) + 2 > cap)
				continue;
			at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? "," : "", via);
		}
	return out;
}

/* Which peers are reached by which transport: those that this agent gets bytes from, or gives them
 * to. */
static void put_peers(const struct wb_transfer_core *c, const struct object *o, struct wb_buf *out)
{
	const char *comma = "";

	for (size_t i = 0; i < c->n_conn; i++) {
		const struct epoch *e = c->conn[i].e;

		if (e->obj != o || c->conn[i].agent >= e->r->n_agent)
			continue;
		wb_buf_printf(out, "%s{\"agent\":", comma);
		wb_buf_json_str(out, e->r->agent[c->conn[i].agent].name);
		wb_buf_printf(out, ",\"transport\":\"%s\",\"gets\":%s,\"number\":%llu}",
			c->conn[i].via, c->conn[i].is_dialer ? "true" : "false",
			(unsigned long long)e->r->id.number);
		comma = ",";
	}
}

void wb_transfer_status_json(const struct wb_transfer_core *c, struct wb_buf *out)
{
	wb_buf_u8(out, '[');
	for (const struct object *o = c->objects; o; o = o->next) {
		bool first = true;

		wb_buf_printf(out, "%s{\"object\":", o == c->objects ? "" : ",");
		wb_buf_json_str(out, o->name);
		wb_buf_printf(out, ",\"highestTransfer\":%llu",
			(unsigned long long)WB_MAX(o->highest, o->issued));
		if (o->cur)
			wb_buf_printf(out,
				",\"epoch\":{\"term\":%llu,\"number\":%llu,\"active\":%s}",
				(unsigned long long)o->cur->r->id.term,
				(unsigned long long)o->cur->r->id.number,
				o->cur->is_active ? "true" : "false");
		wb_buf_printf(
			out, ",\"trainers\":\"%s\"", wb__transfer_trainers_name(o->trainers.state));
		wb_buf_printf(out, ",\"engines\":[");
		for (uint32_t en = 0; o->cur && en < o->cur->r->n_engine; en++) {
			bool here = false;

			for_party_worker (o->cur, en, i)
				here = true;
			if (!here)
				continue;
			wb_buf_printf(out, "%s", first ? "" : ",");
			first = false;
			put_engine(o->cur, en, out);
		}
		wb_buf_printf(out, "],\"peers\":[");
		put_peers(c, o, out);
		wb_buf_printf(out, "]");
		wb__transfer_waits_json(o, out);
		wb_buf_u8(out, '}');
	}
	wb_buf_u8(out, ']');
}
