/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_MESSAGES_H
#define WB_PROTO_MESSAGES_H
/*
 * Every message has one block here.  The C struct, the field table of both codecs and the test of
 * PROTOCOL.md are made from it.
 *
 * To add a message: write its block WBF_<name>(F, S, X), name it in WB_MESSAGES with a number never
 * used before, and describe it in PROTOCOL.md (a test compares).  To add a field to a message that
 * has shipped: append it with the protocol version that adds it as `since`, and make it OPT.
 *
 *	F(X, KIND, name, max, REQ|OPT, since, doc)
 *		KIND: BOOL U32 U64 I64 STR DIGEST BLOB U32S U64S STRS; PEER_... (enum wb_fkind)
 *		max: bytes of a string or blob, elements of an array; numbers: greatest, 0 = any
 *	S(X, STRUCT|STRUCTS|WORD|WORDS, name, sub, max, REQ|OPT, since, doc)
 *		sub: for structs a block of WB_SUBS above it; for words a vocabulary of words.h
 *	M(number, NAME, name, BIN|JSON, cap, "who > whom", doc)
 *		cap: greatest body in bytes
 *
 * X is the struct that the block is expanded for; blocks pass it on.
 * The struct of message NAME is struct wb_msg_name, that of a sub-block struct wb_p_sub.  Arrays
 * and blobs have their count in n_<field>.  Everything is pure; any thread.  Layer: proto (L1).
 */
#include "proto/codec.h"
#include "proto/frame.h"
#include "proto/words.h"

/* The protocol version of this build and the oldest it still speaks (the version before).  Tests
 * make builds with other ranges, and run this build beside builds of the commit in
 * tests/cluster/compat.
 */
#ifndef WBP_VERSION_MAX
#define WBP_VERSION_MAX 2
#define WBP_VERSION_MIN 1
#endif

/* Id of the key that agents and a standalone operator share. */
#define WBP_OPERATOR_PSK_ID "weightbridge"

#define WBP_NAME_MAX 256
#define WBP_TEXT_MAX 1024
#define WBP_HOST_MAX 256
#define WBP_TOKEN_MAX 16384
#define WBP_HOSTS_MAX 8 /* addresses of an agent */
#define WBP_RAILS_MAX 16 /* rails of an agent */
#define WBP_WAYS_MAX 4 /* better transports of an agent, beside that of bulk */
#define WBP_WORKERS_MAX 16384
#define WBP_READER_SINCE 2
#define WBP_PARTS_SINCE 2 /* agents get a plan's head and their part, not all of it */
#define WBP_LACK_SINCE 2 /* agents answer LACK */
#define WBP_LACK_MAX 16384 /* chunks in an answer; an agent that lacks more refuses to answer */
#define WBP_LACK_ALL UINT32_MAX /* in place of a chunk: the worker lacks all that it is to get */
#define WBP_READER_PATH "/metrics/weightbridge" /* who may get it may read agents' metrics */
#define WBP_DATAGRAM_MAX (128u << 10) /* greatest app message: it is one SEQPACKET datagram */

/* Values inside app messages. */
enum wb_app_mem_kind { WB_APP_MEM_MEMFD = 1, WB_APP_MEM_HEAP = 2 };
enum wb_app_lane { WB_APP_LANE_AGENT = 0, WB_APP_LANE_WORKER = 1 }; /* who packs and assembles */
enum wb_app_send_flag {
	WB_APP_SEND_HOLD = 1,
	WB_APP_SEND_KEEP = 2, /* the library sends APP_RELEASE also after the final state */
};
enum wb_app_send_progress {
	WB_APP_SEND_STARTED = 1,
	WB_APP_SEND_RELEASED = 2, /* send_weights returns */
	WB_APP_SEND_FINAL = 3, /* every engine has an outcome */
};
enum wb_app_end_result {
	WB_APP_END_COMMITTED = 1,
	WB_APP_END_ABORTED = 2,
	WB_APP_END_TORN = 3, /* the worker waits for a repair: another BEGIN or END comes */
	WB_APP_END_TORN_FINAL = 4, /* the library raises */
};

/* clang-format off */

/* ---- parts --------------------------------------------------------------------------------- */

#define WBF_epoch(F, S, X) \
	F(X, U64, term, 0, REQ, 1, "term of the operator that made the plan") \
	F(X, U64, number, 0, REQ, 1, "rises within the term")

#define WBF_engine_state(F, S, X) \
	F(X, STR, engine, WBP_NAME_MAX, REQ, 1, "engine name") \
	S(X, WORD, state, engine_state, 64, REQ, 1, "how it ended") \
	F(X, I64, version, 0, REQ, 1, "committed version, -1 = none") \
	F(X, U64, transfer, 0, REQ, 1, "committed transfer, 0 = none") \
	F(X, I64, code, 0, OPT, 1, "why it failed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people")

#define WBF_worker(F, S, X) \
	F(X, U32, id, 0, REQ, 1, "number of the worker at its agent") \
	F(X, STR, name, WBP_NAME_MAX, REQ, 1, "name for people") \
	F(X, U32, role, 2, REQ, 1, "1 trainer, 2 rollout") \
	F(X, STR, engine, WBP_NAME_MAX, OPT, 1, "engine of a rollout worker") \
	F(X, I64, rank, 0, REQ, 1, "rank as claimed, -1 = none") \
	F(X, DIGEST, manifest, 0, REQ, 1, "manifest of its model") \
	F(X, DIGEST, map, 0, REQ, 1, "its source map") \
	F(X, U32, mem_kind, 0, REQ, 1, "kind of its parameters' memory") \
	F(X, U32, sender_staging, 2, OPT, 1, "0 unset, 1 None, 2 HostMemory") \
	F(X, U32, receiver_staging, 2, OPT, 1, "the same for receiving") \
	F(X, I64, version, 0, REQ, 1, "version its parameters hold, -1 = unknown") \
	F(X, U64, transfer, 0, OPT, 1, "transfer that brought it") \
	F(X, U32, plan_worker, 0, OPT, 1, "its number in the running plan + 1; 0 = in none") \
	F(X, BOOL, torn, 0, OPT, 1, "its parameters are a mix of two versions") \
	F(X, U32, ready_worker, 0, OPT, 1, "its number + 1 in the plan that waits for ACTIVATE; 0 = in none") \
	F(X, U32, rails, 0, OPT, 2, "rails of the agent that carry its bytes, a bit each; 0 = all")

#define WBF_endpoint(F, S, X) \
	F(X, STR, agent, WBP_NAME_MAX, REQ, 1, "agent name") \
	F(X, STR, host, WBP_HOST_MAX, REQ, 1, "address peers dial") \
	F(X, U32, port, 65535, REQ, 1, "control port; 0 = absent: only the plan's geometry has it") \
	F(X, STR, bulk, WBP_TEXT_MAX, OPT, 1, "endpoint text of the transport") \
	F(X, U32S, workers, WBP_WORKERS_MAX, REQ, 1, "plan numbers of its workers") \
	F(X, U32S, ids, WBP_WORKERS_MAX, REQ, 1, "their numbers at the agent, same order") \
	F(X, STRS, names, WBP_WORKERS_MAX, OPT, 1, "their names, same order") \
	F(X, STRS, hosts, WBP_HOSTS_MAX, OPT, 2, "all addresses of the agent, its first family first; empty: host alone") \
	F(X, U32S, rails, WBP_WORKERS_MAX, OPT, 2, "of each worker, the addresses in bulk that are its rails, a bit each; 0 = all; empty: all of all") \
	F(X, STRS, ways, WBP_WAYS_MAX, OPT, 2, "endpoint texts of better transports than that of bulk, best first; each has as many addresses") \
	F(X, U32, version, 0, OPT, 2, "protocol version that the operator and it speak; 0 = not known")

#define WBF_phase(F, S, X) \
	F(X, STR, name, 64, REQ, 1, "phase: drain, before, wire, install, after") \
	F(X, U64, start_ns, 0, REQ, 1, "agent's monotonic clock") \
	F(X, U64, end_ns, 0, REQ, 1, "the same")

#define WBF_worker_report(F, S, X) \
	F(X, U32, worker, 0, REQ, 1, "plan number") \
	F(X, U64, stop_ns, 0, REQ, 1, "when it stopped for the transfer, agent's clock") \
	F(X, U64, resume_ns, 0, REQ, 1, "when it resumed") \
	F(X, U64, sent_bytes, 0, REQ, 1, "wire bytes it sent") \
	F(X, U64, received_bytes, 0, REQ, 1, "wire bytes it received and verified") \
	F(X, U64, resent_chunks, 0, OPT, 1, "chunks asked for again") \
	F(X, U64, mismatched_chunks, 0, OPT, 1, "of those, because of their checksum") \
	F(X, STR, mismatch, WBP_TEXT_MAX, OPT, 1, "the last one, by name") \
	S(X, STRUCTS, phases, phase, 32, OPT, 1, "times by phase")

#define WBF_object(F, S, X) \
	F(X, STR, name, WBP_NAME_MAX, REQ, 1, "namespace/name") \
	F(X, U64, uid, 0, REQ, 1, "hash of the object's uid") \
	F(X, STR, model, WBP_NAME_MAX, REQ, 1, "model name") \
	F(X, U32, sender_staging, 2, REQ, 1, "1 None, 2 HostMemory") \
	F(X, U32, receiver_staging, 2, REQ, 1, "the same for receiving") \
	F(X, U32, overlap, 2, REQ, 1, "1 Wait, 2 Supersede") \
	F(X, U32, commit, 2, REQ, 1, "1 EachEngine, 2 AllEngines") \
	F(X, U64, trainer_buffer_bytes, 0, REQ, 1, "slots of one trainer worker") \
	F(X, U64, rollout_buffer_bytes, 0, REQ, 1, "slots of one rollout worker") \
	F(X, U64, transfer_deadline_ns, 0, REQ, 1, "bound of all byte movement") \
	F(X, U64, step_deadline_ns, 0, REQ, 1, "bound of a wait for user code") \
	F(X, U64, plan_deadline_ns, 0, REQ, 1, "from first attach to Planned") \
	F(X, BOOL, checksums, 0, REQ, 1, "sums of every chunk on its way; one without is refused") \
	F(X, BOOL, read_back, 0, OPT, 1, "sum installed parameters again") \
	F(X, U64, last_transfer, 0, REQ, 1, "highest transfer the operator knows") \
	F(X, BOOL, encrypted, 0, OPT, 2, "bulk connections over tcp are TLS, or there are none") \
	F(X, STR, allowed, 64, OPT, 2, "transports that may carry weights, best first, with commas; empty: all")

/* Sub-structs in order of use: a block names only those above it. */
#define WB_SUBS(T) \
	T(epoch) T(engine_state) T(worker) T(endpoint) T(phase) T(worker_report) \
	T(object)

/* ---- app and agent ------------------------------------------------------------------------- */

/* Each message is one SEQPACKET datagram.  The poll page is in pollword.h.  A worker may get WELCOME,
 * REJECT, STATUS and PLANNED several times: it attaches again when its agent has restarted, and each
 * new plan is told. */

#define WBF_app_hello(F, S, X) \
	F(X, U32, proto_min, 0, REQ, 1, "oldest protocol version the library speaks") \
	F(X, U32, proto_max, 0, REQ, 1, "newest") \
	F(X, STR, lib_version, 64, REQ, 1, "the library's build (build.h)") \
	F(X, U32, pid, 0, REQ, 1, "process as the worker sees it, for people")

#define WBF_app_welcome(F, S, X) \
	F(X, U32, proto, 0, REQ, 1, "version agreed on") \
	F(X, STR, agent_version, 64, REQ, 1, "the agent's build (build.h)") \
	F(X, STR, agent, WBP_NAME_MAX, REQ, 1, "agent name") \
	F(X, BOOL, imports, 0, OPT, 2, "it works on memory of a GPU itself where it can: describe it")

#define WBF_app_reject(F, S, X) \
	F(X, I64, code, 0, REQ, 1, "negative errno or WB_E*") \
	F(X, STR, sentence, WBP_TEXT_MAX, REQ, 1, "what to fix; the agent closes")

/* fds, in this order: manifest; map; table; a memfd for each memory of kind memfd; if there are
 * exports, one with their descriptions and then the descriptors that belong to them; the area.
 * The table is packed: n_mem x {u32 kind (enum wb_app_mem_kind), u32 device, u64 bytes, u64 address in
 * the worker}, n_param x {u32 mem, u32 0, u64 offset in bytes}.  Its row i of n_param is parameter i of
 * the map.  The exports describe each memory of kind heap, in order (agent/mem/travel.h). */
#define WBF_app_attach(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, OPT, 1, "transfer object; empty = the agent's only one") \
	F(X, STR, model, WBP_NAME_MAX, OPT, 1, "model; empty = the object's only one") \
	F(X, U32, role, 2, REQ, 1, "1 trainer, 2 rollout") \
	F(X, STR, engine, WBP_NAME_MAX, OPT, 1, "engine of a rollout worker") \
	F(X, I64, rank, 0, REQ, 1, "hint; -1 = none") \
	F(X, U32, sender_staging, 2, REQ, 1, "0 unset, 1 None, 2 HostMemory") \
	F(X, U32, receiver_staging, 2, REQ, 1, "the same for receiving") \
	F(X, U64, manifest_bytes, 0, REQ, 1, "length of the manifest in fd 0") \
	F(X, U64, map_bytes, 0, REQ, 1, "of the source map in fd 1") \
	F(X, U64, table_bytes, 0, REQ, 1, "of the table in fd 2") \
	F(X, U32, n_mem, 0, REQ, 1, "memory objects in the table") \
	F(X, U32, n_param, 0, REQ, 1, "parameters in the table") \
	F(X, U32, count, 0, OPT, 1, "polls of a rollout worker so far: one that attaches again goes on") \
	F(X, U64, area_bytes, 0, OPT, 1, "staging area of an earlier attachment, in one more fd; 0 = none") \
	F(X, U64, begun, 0, OPT, 2, "transfer whose update began under an earlier agent, and whose end it has not heard; 0 = none") \
	F(X, I64, begun_version, 0, OPT, 2, "its version") \
	F(X, U32, begun_at, 0, OPT, 2, "poll count at which it stopped for it") \
	F(X, BOOL, is_touched, 0, OPT, 2, "parameters may have been written since") \
	F(X, BOOL, is_torn, 0, OPT, 2, "its parameters are a mix, known to be") \
	F(X, U64, done, 0, OPT, 2, "last transfer that it saw committed") \
	F(X, U32, done_at, 0, OPT, 2, "poll count at which it stopped for that") \
	F(X, U32, numa, 0, OPT, 2, "NUMA node + 1 of the CPUs that it runs on; 0 = several, or not known") \
	F(X, U64, export_bytes, 0, OPT, 2, "descriptions of memory of a GPU, in one more fd; 0 = none") \
	F(X, U32, export_fds, 0, OPT, 2, "that fd and those of what is described") \
	F(X, STR, unshared, WBP_TEXT_MAX, OPT, 2, "why there are none for an agent that imports")

/* fds: the poll page; for lane 1 then lane memfd, submit eventfd, complete eventfd, slot arena. */
#define WBF_app_attached(F, S, X) \
	F(X, U32, worker, 0, REQ, 1, "number of the worker at this agent") \
	F(X, STR, name, WBP_NAME_MAX, REQ, 1, "its name") \
	F(X, U32, lane, 1, REQ, 1, "enum wb_app_lane")

#define WBF_app_status(F, S, X) \
	F(X, STR, sentence, WBP_TEXT_MAX, REQ, 1, "what is awaited")

#define WBF_app_planned(F, S, X) \
	F(X, U64, term, 0, REQ, 1, "epoch now active: term") \
	F(X, U64, number, 0, REQ, 1, "and number") \
	F(X, STR, digest, 64, REQ, 1, "digest of the plan") \
	F(X, I64, version, 0, REQ, 1, "committed version of the engine, -1 = none") \
	F(X, BOOL, supersede, 0, OPT, 1, "a trainer may send when it is released, before the end of the transfer before")

#define WBF_app_send(F, S, X) \
	F(X, I64, version, 0, REQ, 1, "caller's number, -1 = the transfer's own") \
	F(X, U32, flags, 0, REQ, 1, "enum wb_app_send_flag")

#define WBF_app_send_state(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "number of the transfer, 0 = not started") \
	F(X, I64, version, 0, REQ, 1, "its version") \
	F(X, U32, state, 3, REQ, 1, "enum wb_app_send_progress") \
	F(X, I64, code, 0, REQ, 1, "< 0: it failed, and state is final") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people") \
	F(X, STRS, engine, 1024, REQ, 1, "engines with news") \
	S(X, WORDS, engine_state, engine_state, 1024, REQ, 1, "their states, same order") \
	F(X, U64, seconds_x1e6, 0, REQ, 1, "microseconds since it was asked for") \
	F(X, BOOL, held, 0, OPT, 1, "released, but held: parameters stay until APP_RELEASE is answered by one without")

#define WBF_app_release(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "held transfer; parameters may change now")

#define WBF_app_parked(F, S, X) \
	F(X, U32, count, 0, REQ, 1, "poll at which the worker stopped")

#define WBF_app_go(F, S, X) \
	F(X, U32, stop, 0, OPT, 1, "for traces; the poll word holds")

#define WBF_app_wake(F, S, X) \
	F(X, U32, stop, 0, OPT, 1, "for traces; the poll word holds")

#define WBF_app_begin(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "transfer") \
	F(X, I64, version, 0, REQ, 1, "version that comes") \
	F(X, BOOL, staged, 0, OPT, 1, "no parameter changes before APP_INSTALL")

#define WBF_app_begun(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "transfer") \
	F(X, I64, code, 0, REQ, 1, "0, or why before_update_hook failed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "what it raised")

#define WBF_app_end(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "transfer") \
	F(X, I64, version, 0, REQ, 1, "version the parameters hold, when committed") \
	F(X, U32, result, 4, REQ, 1, "enum wb_app_end_result") \
	F(X, STR, digest, 64, OPT, 1, "of the plan and version") \
	F(X, I64, code, 0, REQ, 1, "why, when not committed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people, naming the culprit")

#define WBF_app_resumed(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "transfer") \
	F(X, I64, code, 0, REQ, 1, "0, or why after_update_hook failed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "what it raised")

/* fd: the area (agent/lane/area.h), for the worker to keep. */
#define WBF_app_area(F, S, X) \
	F(X, U64, bytes, 0, REQ, 1, "of the staging area")

#define WBF_app_install(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "transfer, whole in the staging area") \
	F(X, I64, version, 0, REQ, 1, "its version") \
	F(X, BOOL, read_back, 0, OPT, 2, "compare the parameters with the area after the copy") \
	F(X, U64, flip, 0, OPT, 2, "WB_FAULT: number + 1 of a bit that goes bad after the copy; 0 = none")

#define WBF_app_installed(F, S, X) \
	F(X, U64, transfer, 0, REQ, 1, "transfer that the parameters hold") \
	F(X, I64, code, 0, REQ, 1, "0, or why it could not be installed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people") \
	F(X, U32, mismatched, 0, OPT, 2, "pieces that differed from the area and were copied again") \
	F(X, U32, param, 0, OPT, 2, "parameter of the first of them")

#define WBF_app_mem_release(F, S, X) \
	F(X, U32, reason, 0, OPT, 1, "0 = release_memory was called")

#define WBF_app_mem_released(F, S, X) \
	F(X, I64, code, 0, REQ, 1, "0: nothing of the worker's memory is used or mapped any more; -EBUSY: not now") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "why not")

/* fds: those of APP_ATTACH from the table on, without the area. */
#define WBF_app_mem_acquire(F, S, X) \
	F(X, U64, table_bytes, 0, REQ, 1, "length of the table in fd 0") \
	F(X, U32, n_mem, 0, REQ, 1, "memory objects in the table") \
	F(X, U32, n_param, 0, REQ, 1, "parameters in the table, as attached") \
	F(X, BOOL, kept, 0, OPT, 1, "the parameters are what they were when they were released") \
	F(X, U64, export_bytes, 0, OPT, 2, "as in APP_ATTACH, as is what follows") \
	F(X, U32, export_fds, 0, OPT, 2, "how many") \
	F(X, STR, unshared, WBP_TEXT_MAX, OPT, 2, "why not")

/* fds: for a lane in the worker those of APP_ATTACHED without the poll page. */
#define WBF_app_mem_acquired(F, S, X) \
	F(X, U32, lane, 1, REQ, 1, "who packs and assembles: 0 agent, 1 worker") \
	F(X, I64, code, 0, REQ, 1, "0, or why the memory cannot be used") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people")

#define WBF_app_detach(F, S, X) \
	F(X, U32, reason, 0, OPT, 1, "0 = clean close; the agent answers by closing")

/* ---- agent and operator -------------------------------------------------------------------- */

#define WBF_hello(F, S, X) \
	F(X, U32, version_min, 0, REQ, 1, "oldest protocol version the agent speaks") \
	F(X, U32, version_max, 0, REQ, 1, "newest") \
	F(X, STR, build, 64, REQ, 1, "version of the program, for people") \
	F(X, STR, agent, WBP_NAME_MAX, REQ, 1, "agent name, unique within its objects") \
	F(X, STR, token, WBP_TOKEN_MAX, OPT, 1, "projected token; not with a pre-shared key") \
	F(X, STRS, objects, 64, REQ, 1, "transfer objects it serves; empty = all it is told") \
	F(X, STR, node, WBP_NAME_MAX, REQ, 1, "node, for people") \
	F(X, STR, host, WBP_HOST_MAX, REQ, 1, "address peers dial") \
	F(X, U32, port, 65535, REQ, 1, "control port") \
	F(X, STR, bulk, WBP_TEXT_MAX, REQ, 1, "endpoint text of its transport") \
	F(X, STRS, transports, 16, REQ, 1, "transports it has, best first") \
	F(X, U64, rail_bytes_per_s, 0, OPT, 1, "of all its rails, each direction; 0 = unknown") \
	F(X, U64, memory_limit_bytes, 0, OPT, 1, "of its control group; 0 = none") \
	F(X, U64, last_transfer, 0, OPT, 1, "highest transfer it has seen") \
	F(X, U64, instance, 0, OPT, 1, "random, of this run of the agent") \
	F(X, U64, term, 0, OPT, 1, "highest term it has heard of") \
	F(X, U64, term_operator, 0, OPT, 1, "operator_id that it heard it from") \
	F(X, STR, binding, 64, OPT, 2, "with a token: the TLS connection it was made for (wb_chan_binding), in hex") \
	F(X, STRS, hosts, WBP_HOSTS_MAX, OPT, 2, "all addresses peers may dial, host among them; empty: host alone") \
	F(X, U64S, rails, WBP_RAILS_MAX, OPT, 2, "bytes a second of each rail, each direction, 0 = unknown; empty: not told") \
	F(X, STRS, ways, WBP_WAYS_MAX, OPT, 2, "endpoint texts of better transports than that of bulk, best first") \
	F(X, STR, memory, 64, OPT, 2, "the same for agents that reach each other's memory, and take routes through it; empty: none does") \
	F(X, U64, memory_bytes_per_s, 0, OPT, 2, "that one thread copies of another agent's; 0 = unknown") \
	F(X, U64S, nics, WBP_RAILS_MAX, OPT, 2, "of each rail the number of the network interface that sets its rate, the same for the same one; 0 = another thing does; empty: not told")

#define WBF_welcome(F, S, X) \
	F(X, U32, version, 0, REQ, 1, "version agreed on") \
	F(X, STR, operator_name, WBP_NAME_MAX, REQ, 1, "who answered") \
	F(X, U64, term, 0, REQ, 1, "its term") \
	F(X, U64, heartbeat_ns, 0, REQ, 1, "send one so often; gone after two and a half of these") \
	S(X, STRUCTS, objects, object, 64, REQ, 1, "objects this agent serves") \
	F(X, U64, operator_id, 0, OPT, 1, "random, of this run of the operator")

#define WBF_reject(F, S, X) \
	F(X, I64, code, 0, REQ, 1, "negative errno or WB_E*") \
	F(X, STR, sentence, WBP_TEXT_MAX, REQ, 1, "what to fix") \
	F(X, BOOL, retry, 0, REQ, 1, "false: the same again cannot succeed") \
	F(X, STR, object, WBP_NAME_MAX, OPT, 1, "object concerned; empty = the connection") \
	F(X, U32, worker, 0, OPT, 1, "the refused worker's id + 1; 0 = the whole sender")

#define WBF_redirect(F, S, X) \
	F(X, STR, host, WBP_HOST_MAX, REQ, 1, "the leader's address") \
	F(X, U32, port, 65535, REQ, 1, "its port")

#define WBF_workers(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	S(X, STRUCTS, workers, worker, 1024, REQ, 1, "all workers attached now; replaces the list before") \
	S(X, STRUCT, running, epoch, 0, OPT, 1, "active epoch, 0 = none") \
	F(X, DIGEST, plan, 0, OPT, 1, "digest of its plan") \
	F(X, U32, plan_workers, 0, OPT, 1, "number of its workers, all agents together") \
	S(X, STRUCT, ready, epoch, 0, OPT, 1, "epoch that was READY here and is not active, 0 = none") \
	F(X, DIGEST, ready_plan, 0, OPT, 1, "digest of its plan") \
	F(X, U32, ready_workers, 0, OPT, 1, "number of its workers") \
	F(X, STR, library, WBP_TEXT_MAX, OPT, 2, "why the last worker that came was refused for its library") \
	F(X, STR, reduced, WBP_TEXT_MAX, OPT, 2, "a port that rails go by and that is down; empty: none is") \
	F(X, STR, lane, WBP_TEXT_MAX, OPT, 2, "who packs and assembles for them: agent, worker, both; and why not the agent")

#define WBF_want(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	F(X, STRS, digests, 4096, REQ, 1, "maps and manifests nobody has uploaded yet")

#define WBF_content(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	F(X, U32, kind, 5, REQ, 1, "1 manifest, 2 map, 3 plan; since version 2 in place of 3: 4 head, 5 part") \
	F(X, DIGEST, digest, 0, REQ, 1, "of the whole content") \
	F(X, U64, total_bytes, 0, REQ, 1, "its length") \
	F(X, U64, offset, 0, REQ, 1, "of this part; parts come in order") \
	F(X, BLOB, data, 4u << 20, REQ, 1, "the part")

#define WBF_progress(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	F(X, STR, sentence, WBP_TEXT_MAX, REQ, 1, "what is awaited, for workers that wait") \
	F(X, I64, code, 0, OPT, 1, "0: it goes on; else why workers that wait should give up")

#define WBF_plan(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	S(X, STRUCT, epoch, epoch, 0, REQ, 1, "epoch of the plan") \
	F(X, DIGEST, digest, 0, REQ, 1, "of the plan; CONTENT came before: all of it, or head and part") \
	F(X, STR, key, 64, REQ, 1, "32-byte key of the epoch, hex") \
	S(X, STRUCTS, agents, endpoint, 4096, REQ, 1, "all agents of the plan") \
	F(X, STRS, engines, 4096, REQ, 1, "engine names in plan order") \
	F(X, U64, last_transfer, 0, OPT, 1, "highest transfer the operator knows of") \
	F(X, DIGEST, head, 0, OPT, 2, "of its head, which holds those of the parts")

#define WBF_ready(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	S(X, STRUCT, epoch, epoch, 0, REQ, 1, "epoch") \
	F(X, DIGEST, digest, 0, REQ, 1, "of the plan it checked")

#define WBF_refuse(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	S(X, STRUCT, epoch, epoch, 0, REQ, 1, "epoch that cannot run here") \
	F(X, I64, code, 0, REQ, 1, "why") \
	F(X, STR, sentence, WBP_TEXT_MAX, REQ, 1, "the same for people, with figures")

#define WBF_activate(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	S(X, STRUCT, epoch, epoch, 0, REQ, 1, "epoch every agent has said READY for") \
	F(X, U32S, feed, 4096, OPT, 1, "engines that must be fed before they serve, by plan number") \
	F(X, U32S, feed_source, 4096, OPT, 1, "the engine that feeds each, same order") \
	F(X, U32S, feed_attempt, 4096, OPT, 1, "same order, not 0; another number is another try") \
	F(X, U64, last_transfer, 0, OPT, 1, "highest transfer the operator knows of") \
	F(X, BOOL, suspended, 0, OPT, 1, "send_weights fails at once")

#define WBF_report(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, REQ, 1, "transfer object") \
	S(X, STRUCT, epoch, epoch, 0, REQ, 1, "epoch") \
	F(X, U64, transfer, 0, REQ, 1, "transfer") \
	F(X, I64, version, 0, REQ, 1, "its version") \
	S(X, WORD, state, report, 64, REQ, 1, "what it tells; when final 3 and the result") \
	F(X, I64, code, 0, OPT, 1, "why it failed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people") \
	F(X, I64, clock_offset_ns, 0, OPT, 1, "this agent's clock less the operator's") \
	F(X, U64, clock_error_ns, 0, OPT, 1, "greatest error of the offset") \
	S(X, STRUCTS, engines, engine_state, 4096, OPT, 1, "engines led here; from the coordinator: all") \
	S(X, STRUCTS, workers, worker_report, 1024, OPT, 1, "workers of this agent") \
	F(X, BOOL, is_final, 0, OPT, 1, "the whole transfer has ended; else one engine has") \
	F(X, BOOL, is_feed, 0, OPT, 1, "one engine fed another; no trainer took part") \
	F(X, STR, culprit, WBP_NAME_MAX, OPT, 1, "who failed, by name") \
	F(X, U64, begin_wall_ns, 0, OPT, 1, "wall clock of the agent") \
	F(X, U64, end_wall_ns, 0, OPT, 1, "the same") \
	F(X, U64, stall_ns, 0, OPT, 1, "mean stall of the workers concerned") \
	F(X, U64S, bytes, 8, OPT, 1, "verified bytes by stage") \
	F(X, STR, transport, 64, OPT, 1, "transport that carried them; +tls: encrypted") \
	F(X, STR, memory_path, 64, OPT, 1, "who wrote the parameters: agent or worker") \
	F(X, STR, fallback, WBP_TEXT_MAX, OPT, 2, "a peer that a better transport did not reach, and why; empty: none")

#define WBF_heartbeat(F, S, X) \
	F(X, U64, sent_ns, 0, REQ, 1, "sender's monotonic clock; 0: no answer is wanted") \
	F(X, U64, echo_ns, 0, OPT, 1, "sent_ns of the heartbeat this one answers") \
	F(X, U64, echo_received_ns, 0, OPT, 1, "when that one came, this sender's clock")

#define WBF_drain(F, S, X) \
	F(X, STR, object, WBP_NAME_MAX, OPT, 1, "transfer object; empty = all") \
	F(X, STR, sentence, WBP_TEXT_MAX, REQ, 1, "why the sender leaves")

/* Not sent to an operator of a version before WBP_READER_SINCE, which would not know it. */
#define WBF_reader(F, S, X) \
	F(X, U64, number, 0, REQ, 2, "of the question; the answer repeats it") \
	F(X, STR, token, WBP_TOKEN_MAX, REQ, 2, "what somebody showed who asks the agent for its metrics; secret")

#define WBF_reader_answer(F, S, X) \
	F(X, U64, number, 0, REQ, 2, "of the question") \
	F(X, I64, code, 0, OPT, 2, "0: it may; -EACCES: no token of this cluster; -EPERM: its owner may not; else: not found out") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 2, "the same for people")

/* ---- agent and agent ----------------------------------------------------------------------- */

#define WBF_peer_hello(F, S, X) \
	F(X, U32, version_min, 0, REQ, 1, "oldest protocol version") \
	F(X, U32, version_max, 0, REQ, 1, "newest") \
	F(X, STR, agent, WBP_NAME_MAX, REQ, 1, "who dials") \
	F(X, STR, to, WBP_NAME_MAX, REQ, 1, "whom it means to reach") \
	F(X, U64, object, 0, REQ, 1, "uid of the transfer object") \
	S(X, STRUCT, epoch, epoch, 0, REQ, 1, "epoch whose key this connection uses")

#define WBF_peer_welcome(F, S, X) \
	F(X, U32, version, 0, REQ, 1, "version agreed on") \
	F(X, STR, agent, WBP_NAME_MAX, REQ, 1, "who answers") \
	F(X, U64, last_transfer, 0, REQ, 1, "highest transfer it has seen")

/* One message of a transfer between agents; kind says which fields there are (peers.h). */
#define WBF_peer(F, S, X) \
	F(X, U32, kind, 64, REQ, 1, "enum wbp_peer: the last table") \
	F(X, STR, uid, WBP_NAME_MAX, REQ, 1, "uid of the transfer object") \
	F(X, U64, term, 0, REQ, 1, "epoch") \
	F(X, U64, number, 0, REQ, 1, "epoch") \
	F(X, U64, transfer, 0, REQ, 1, "transfer; 0: asks the coordinator to start one") \
	F(X, I64, version, 0, OPT, 1, "caller's version") \
	F(X, U32, engine, 0, OPT, 1, "engine, by its number in the plan") \
	F(X, PEER_FEEDER, feeder, 0, OPT, 1, "feeds: the engine that holds the version; LOST: the one that is lost") \
	F(X, U32, coordinator, 0, OPT, 1, "PREPARE, STOP: agent that leads the transfer") \
	F(X, PEER_POLL, poll, 0, OPT, 1, "PROMISE, TARGET: a poll count; DOUBT and its answers: the one of that stop; TRIGGER, FINAL: refusals") \
	F(X, PEER_HOW, how, 0, OPT, 1, "ENGINE: engine state; END, OUTCOME: result; PROGRESS: stage; STOPPED: 1 = asks for ALL_STOPPED; RESUME, DOUBT, RECALLED: bits; TRIGGER, SERVE, FINAL: number of the call; LACK, LACKED: of the question") \
	F(X, U32, losses, 0, OPT, 1, "number of LOST orders taken in") \
	F(X, BOOL, feed, 0, OPT, 1, "a feed: no trainer takes part") \
	F(X, I64, code, 0, OPT, 1, "why it failed") \
	F(X, STR, sentence, WBP_TEXT_MAX, OPT, 1, "the same for people, naming the culprit") \
	F(X, U64, highest, 0, OPT, 1, "REFUSED, TRIGGER: highest transfer seen") \
	F(X, U64, sum0, 0, OPT, 1, "content sum of the sender's share, lane 0") \
	F(X, U64, sum1, 0, OPT, 1, "lane 1") \
	F(X, PEER_BYTES, bytes, WBP_LACK_MAX, OPT, 1, "ENGINE, ENDED: verified bytes by stage, 8 at most; LACKED: worker that sends << 32, global number of a chunk; or worker that lacks all << 32, 0xffffffff") \
	F(X, U64, stall_ns, 0, OPT, 1, "stall of the workers concerned, summed") \
	F(X, U32, n_stall, 0, OPT, 1, "how many workers") \
	F(X, U64, elapsed_ns, 0, OPT, 1, "FINAL: of the whole transfer") \
	F(X, STRS, engines, 4096, OPT, 1, "FINAL: engine names") \
	S(X, WORDS, states, engine_state, 4096, OPT, 1, "FINAL: their states") \
	F(X, U64, seq, 0, OPT, 1, "number of the message between these two agents in this epoch; 0: none") \
	F(X, U64, base, 0, OPT, 1, "first number that the sender still keeps: whoever misses one below calls it down") \
	F(X, U64, ack, 0, OPT, 1, "last number that the sender has taken in") \
	F(X, U64, ballot, 0, OPT, 1, "BALLOT, ACCEPT and their answers: (round, proposer)") \
	F(X, U64, accepted, 0, OPT, 1, "BALLOTED: ballot of the value, 0 = none") \
	F(X, PEER_DECISION, decision, 0, OPT, 1, "the decision: 1 commit, 2 abort; STOP: 1 = decided already; CANCEL, ENGINE: 1 = superseded; PROMISE, STOPPED, PROGRESS, RESUME: 1 = workers here are torn") \
	F(X, U64, skipped, 0, OPT, 2, "highest transfer that messages below base are about; 0 = any")

/* ---- the list ------------------------------------------------------------------------------ */

#define WB_MESSAGES(M) \
	M(0x101, APP_HELLO, app_hello, BIN, 16384, "app > agent", "first message of a worker") \
	M(0x102, APP_WELCOME, app_welcome, BIN, 16384, "agent > app", "reply to APP_HELLO") \
	M(0x103, APP_REJECT, app_reject, BIN, 16384, "agent > app", "APP_HELLO or APP_ATTACH is refused") \
	M(0x104, APP_ATTACH, app_attach, BIN, 16384, "app > agent", "registers parameters; carries fds") \
	M(0x105, APP_ATTACHED, app_attached, BIN, 16384, "agent > app", "reply to APP_ATTACH; carries fds") \
	M(0x106, APP_STATUS, app_status, BIN, 16384, "agent > app", "news for a worker that waits") \
	M(0x107, APP_PLANNED, app_planned, BIN, 16384, "agent > app", "a plan is active") \
	M(0x108, APP_SEND, app_send, BIN, 16384, "app > agent", "send_weights was called") \
	M(0x109, APP_SEND_STATE, app_send_state, BIN, 120000, "agent > app", "state of that transfer") \
	M(0x10a, APP_RELEASE, app_release, BIN, 16384, "app > agent", "end of a hold") \
	M(0x10b, APP_GO, app_go, BIN, 16384, "agent > app", "the stop of the poll word changed") \
	M(0x10c, APP_WAKE, app_wake, BIN, 16384, "agent > app", "an update wants this engine: poll") \
	M(0x10d, APP_PARKED, app_parked, BIN, 16384, "app > agent", "the worker stands at its stop") \
	M(0x10e, APP_BEGIN, app_begin, BIN, 16384, "agent > app", "run before_update_hook") \
	M(0x10f, APP_BEGUN, app_begun, BIN, 16384, "app > agent", "it has run") \
	M(0x110, APP_END, app_end, BIN, 16384, "agent > app", "the update ended: see result") \
	M(0x111, APP_RESUMED, app_resumed, BIN, 16384, "app > agent", "after_update_hook has run") \
	M(0x112, APP_DETACH, app_detach, BIN, 16384, "app > agent", "the worker closes") \
	M(0x113, APP_AREA, app_area, BIN, 16384, "agent > app", "a staging area; carries its fd") \
	M(0x114, APP_INSTALL, app_install, BIN, 16384, "agent > app", "copy the staging area into the parameters") \
	M(0x115, APP_INSTALLED, app_installed, BIN, 16384, "app > agent", "that is done") \
	M(0x116, APP_MEM_RELEASE, app_mem_release, BIN, 16384, "app > agent", "let go of the parameters' memory") \
	M(0x117, APP_MEM_RELEASED, app_mem_released, BIN, 16384, "agent > app", "reply to APP_MEM_RELEASE") \
	M(0x118, APP_MEM_ACQUIRE, app_mem_acquire, BIN, 16384, "app > agent", "the memory is there again; carries fds") \
	M(0x119, APP_MEM_ACQUIRED, app_mem_acquired, BIN, 16384, "agent > app", "reply to APP_MEM_ACQUIRE; carries fds") \
	M(0x201, HELLO, hello, JSON, 65536, "agent > operator", "first message of an agent") \
	M(0x202, WELCOME, welcome, JSON, 262144, "operator > agent", "reply to HELLO") \
	M(0x203, REJECT, reject, JSON, 16384, "any > any", "reply to any request that is refused") \
	M(0x204, REDIRECT, redirect, JSON, 16384, "operator > agent", "a standby names the leader") \
	M(0x205, WORKERS, workers, JSON, 4194304, "agent > operator", "workers attached to this agent") \
	M(0x206, WANT, want, JSON, 262144, "operator > agent", "content the operator lacks") \
	M(0x207, CONTENT, content, BIN, 4194304 + 4096, "any > any", "part of a manifest, map or plan") \
	M(0x208, PROGRESS, progress, JSON, 16384, "operator > agent", "what planning waits for") \
	M(0x209, PLAN, plan, JSON, 4194304, "operator > agent", "a plan to check, its key and agents") \
	M(0x20a, READY, ready, JSON, 16384, "agent > operator", "the plan can run here") \
	M(0x20b, REFUSE, refuse, JSON, 16384, "agent > operator", "it cannot") \
	M(0x20c, ACTIVATE, activate, JSON, 262144, "operator > agent", "all are READY") \
	M(0x20d, REPORT, report, JSON, 4194304, "agent > operator", "times and outcome of a transfer") \
	M(0x20e, HEARTBEAT, heartbeat, JSON, 16384, "any > any", "alive; estimates the clock offset") \
	M(0x20f, DRAIN, drain, JSON, 16384, "any > any", "the sender leaves in order") \
	M(0x210, READER, reader, JSON, 65536, "agent > operator", "asks whether the owner of a token may read the agent's metrics") \
	M(0x211, READER_ANSWER, reader_answer, JSON, 16384, "operator > agent", "reply to READER") \
	M(0x301, PEER_HELLO, peer_hello, JSON, 16384, "agent > agent", "first message of the agent that dialled") \
	M(0x302, PEER_WELCOME, peer_welcome, JSON, 16384, "agent > agent", "reply to PEER_HELLO") \
	M(0x303, PEER, peer, BIN, 1048576, "agent > agent", "a step of a transfer")

/* ---- from blocks to C ---------------------------------------------------------------------- */

#define WB__DECL_BOOL(name) bool name;
#define WB__DECL_U32(name) uint32_t name;
#define WB__DECL_U64(name) uint64_t name;
/* Some fields of PEER mean something else in each kind of message.  On the wire such a field is one
 * U32; in C it is a union, which has a name for each meaning.  The row has the first of these names. */
#define WB__DECL_PEER_FEEDER(name) union { \
	uint32_t name; /* feeds: engine that holds the version */ \
	uint32_t lost; /* LOST: engine that is lost */ \
};
#define WB__DECL_PEER_POLL(name) union { \
	uint32_t name; /* PROMISE, TARGET: poll count; DOUBT and its answers: that of the stop of the run in doubt */ \
	uint32_t refusals; /* TRIGGER, FINAL of no transfer: refusals that the trainers know of, or the coordinator has made */ \
};
#define WB__DECL_PEER_HOW(name) union { \
	uint32_t name; /* ENGINE, END, OUTCOME: enum wb_engine_state */ \
	uint32_t progress; /* PROGRESS: enum progress of transfer/party.h */ \
	uint32_t says; /* RESUME, DOUBT, RECALLED: bits of resume.c and doubt.c */ \
	uint32_t asks; /* STOPPED: 1 = asks for ALL_STOPPED; 0 = from an older agent */ \
	uint32_t call; /* TRIGGER, and SERVE, RELEASE and FINAL that answer it: number of the call; 0 = from an older agent */ \
	uint32_t question; /* LACK, LACKED: number of the question */ \
};
/* The same for a U64S. */
#define WB__DECL_PEER_BYTES(name) union { \
	const uint64_t *name; /* ENGINE, ENDED: verified bytes by stage */ \
	const uint64_t *lacked; /* LACKED: WB_FLOW_LACK() */ \
}; union { \
	uint32_t n_##name; \
	uint32_t n_lacked; \
};
#define WB__DECL_PEER_DECISION(name) union { \
	uint32_t name; /* ACCEPT, BALLOTED, ACCEPTED: enum decision */ \
	uint32_t is_decided; /* STOP: 1 = the transfer is decided already */ \
	uint32_t is_superseded; /* CANCEL, ENGINE: 1 = because the next version was there */ \
	uint32_t is_torn; /* RESUME and all replies of parties: 1 = workers of the sender are torn */ \
};
#define WB__DECL_I64(name) int64_t name;
#define WB__DECL_STR(name) const char *name;
#define WB__DECL_DIGEST(name) struct wb_digest name;
#define WB__DECL_BLOB(name) const uint8_t *name; uint32_t n_##name;
#define WB__DECL_U32S(name) const uint32_t *name; uint32_t n_##name;
#define WB__DECL_U64S(name) const uint64_t *name; uint32_t n_##name;
#define WB__DECL_STRS(name) const char **name; uint32_t n_##name;
#define WB__DECL_WORD(name, words) uint32_t name;
#define WB__DECL_WORDS(name, words) const uint32_t *name; uint32_t n_##name;
#define WB__DECL_STRUCT(name, sub) struct wb_p_##sub name;
#define WB__DECL_STRUCTS(name, sub) struct wb_p_##sub *name; uint32_t n_##name;
#define WB__DECL_F(x, kind, name, max, opt, since, doc) WB__DECL_##kind(name)
#define WB__DECL_S(x, kind, name, sub, max, opt, since, doc) WB__DECL_##kind(name, sub)
#define WB__SUB_STRUCT(sub) struct wb_p_##sub { WBF_##sub(WB__DECL_F, WB__DECL_S, ) };
WB_SUBS(WB__SUB_STRUCT)
#define WB__MSG_STRUCT(no, NAME, lower, enc, cap, who, doc) \
	struct wb_msg_##lower { WBF_##lower(WB__DECL_F, WB__DECL_S, ) };
WB_MESSAGES(WB__MSG_STRUCT)

#define WB__MSG_ENUM(no, NAME, lower, enc, cap, who, doc) WBP_##NAME = no,
enum wb_msg_type { WBP_NONE = 0, WB_MESSAGES(WB__MSG_ENUM) };

/* Room for any message; decode into it and switch on the frame's type. */
#define WB__MSG_MEMBER(no, NAME, lower, enc, cap, who, doc) struct wb_msg_##lower lower;
union wb_msg { WB_MESSAGES(WB__MSG_MEMBER) };
/* clang-format on */

enum wb_encoding { WB_ENC_BIN = 1, WB_ENC_JSON = 2 };

struct wb_msg_info {
	uint16_t type;
	uint8_t encoding; /* enum wb_encoding */
	uint32_t cap; /* greatest body, bytes */
	const char *name; /* "HELLO" */
	const char *who; /* "agent > operator" */
	const struct wb_table *table;
};

/** wb_msg_info - the row of a message number; NULL when it is unknown. */
const struct wb_msg_info *wb_msg_info(uint32_t type);
/** wb_msg_at - the @i-th message of the list, NULL beyond its end. */
const struct wb_msg_info *wb_msg_at(uint32_t i);
/** wb_msg_name - "HELLO", or "?".  Static text. */
const char *wb_msg_name(uint32_t type);
/** wb_msg_free - free what the message owns and zero it; @type must be known. */
void wb_msg_free(uint32_t type, void *msg);

/**
 * wb_msg_encode_bin - append header and body of a BIN message
 * @f:		version, flags, type and id read; bytes ignored
 * @msg:	struct of that type
 * Returns 0; -EINVAL (a value out of its bounds, or a PEER without a field that its kind requires
 * or with one that it does not carry: the sentence names it); -E2BIG; -ENOMEM.  libc only.
 */
int wb_msg_encode_bin(
	const struct wb_frame *f, const void *msg, struct wb_buf *out, struct wb_err *err);
/** wb_msg_encode_head - the same for a message whose last field is a blob, up to the blob's bytes:
 *  the caller sends @rest of these after it, and @msg has none. */
int wb_msg_encode_head(const struct wb_frame *f, const void *msg, uint32_t rest, struct wb_buf *out,
	struct wb_err *err);
/**
 * wb_msg_decode_bin - decode the body of a BIN message
 * @f:		header, checked by wb_frame_decode(); @body: f->bytes bytes, untrusted
 * @msg:	struct of f->type (or union wb_msg); filled on success, then release with
 *		wb_msg_free(); else zeroed
 * Returns 0; -EBADMSG naming message and field (also: not a BIN message; a PEER without what its
 * kind requires, or with what it does not carry, peers.h); -ENOMEM.  libc only.
 */
int wb_msg_decode_bin(const struct wb_frame *f, const void *body, void *msg, struct wb_err *err);
/**
 * wb_msg_patch_u64 - overwrite a number in an encoded BIN message
 * @frame:	a whole one, from wb_msg_encode_bin()
 * @field:	a U64 with nothing but numbers behind it; nothing happens when the frame's version
 *		does not have it
 */
void wb_msg_patch_u64(uint8_t *frame, size_t bytes, const char *field, uint64_t v);
/** wb_msg_encode / wb_msg_decode - the same for both encodings; json.c, needs jansson. */
int wb_msg_encode(
	const struct wb_frame *f, const void *msg, struct wb_buf *out, struct wb_err *err);
int wb_msg_decode(const struct wb_frame *f, const void *body, void *msg, struct wb_err *err);

#endif
