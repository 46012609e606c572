/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/status.h"

#include "base/buf.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/metrics.h"
#include "daemon/oplink.h"
#include "daemon/peers.h"
#include "weightbridge/version.h"
#include "xport/xport.h"

#include <inttypes.h>

static void text(struct wb_buf *b, const char *key, const char *value)
{
	wb_buf_printf(b, ",\"%s\":", key);
	wb_buf_json_str(b, value);
}

static void worker(struct wb__agent *a, const struct wb__worker *w, struct wb_buf *b)
{
	int64_t version;
	uint64_t transfer = wb_transfer_held(a->core, w->id, &version);
	char digest[WB_DIGEST_TEXT];

	wb_buf_printf(b, "{\"id\":%" PRIu32, w->id);
	text(b, "name", w->name);
	text(b, "role", wb_word(&wb_role_words, w->role));
	text(b, "engine", w->engine);
	text(b, "map", wb_digest_text(w->map->digest, digest));
	text(b, "lane",
		!w->is_lane_known            ? "none"
		: wb__worker_lane_is_here(w) ? "agent"
					     : "worker");
	text(b, "laneReason", w->lane_why);
	wb_buf_printf(b,
		",\"asleep\":%s,\"rank\":%" PRId64 ",\"pid\":%" PRIu32 ",\"params\":%" PRIu32
		",\"planned\":%s,\"leaving\":%s,\"transfer\":%" PRIu64 ",\"version\":%" PRId64
		",\"progress\":",
		wb_transfer_is_asleep(a->core, w->id) ? "true" : "false", w->rank, w->pid,
		w->map->n_param, w->is_planned ? "true" : "false", w->is_leaving ? "true" : "false",
		transfer, version);
	wb_transfer_progress_json(a->core, w->id, b);
	wb_buf_u8(b, '}');
}

void wb__status_json(struct wb__agent *a, struct wb_buf *out)
{
	struct wb__oplink_state op;
	const char *comma = "";
	char keys[512] = "";

	wb__oplink_all(a, &op);
	wb_buf_printf(out, "{\"version\":\"%s\"", WB_VERSION);
	text(out, "agent", a->o.name);
	text(out, "node", a->o.node);
	text(out, "transport", wb_xport_name(a->xport));
	(void)wb_xport_keys(a->xport, keys, sizeof(keys));
	text(out, "rdmaKeys", keys);
	text(out, "bulk", a->bulk);
	text(out, "host", a->o.advertise);
	wb_buf_printf(out,
		",\"port\":%u,\"draining\":%s,\"busy\":%s,\"bufferBytes\":%" PRIu64
		",\"peers\":%" PRIu32,
		a->port, wb__agent_is_draining(a) ? "true" : "false",
		wb_transfer_is_busy(a->core) ? "true" : "false", wb__env_arena_used(a->env),
		wb__peers_n_up(a->peers));
	wb_buf_printf(out, ",\"operator\":{\"up\":%s", op.is_up ? "true" : "false");
	text(out, "object", op.object);
	text(out, "trouble", op.trouble);
	wb_buf_printf(out,
		",\"term\":%" PRIu64 ",\"number\":%" PRIu64 ",\"clockOffsetNs\":%" PRId64
		",\"clockErrorNs\":%" PRIu64 "},\"workers\":[",
		op.term, op.number, op.clock_offset_ns, op.clock_error_ns);
	for (struct wb__worker *w = wb__apps_first(a->apps); w; w = w->next) {
		wb_buf_printf(out, "%s", comma);
		worker(a, w, out);
		comma = ",";
	}
	wb_buf_printf(out, "],\"mismatches\":");
	wb__metrics_mismatches_json(a->http, out);
	text(out, "lastMismatch", a->mismatch);
	wb_buf_printf(out, ",\"objects\":");
	wb_transfer_status_json(a->core, out);
	wb_buf_printf(out, "}\n");
}
