/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PREDICT_PARAMS_H
#define WB_PREDICT_PARAMS_H
/*
 * The parameters of the models, one row each: field, word on the command line, default, least,
 * greatest, and a text that says what it is and where the default comes from.
 *
 * Layer: predict (L4).  Any thread.
 */
#include <stddef.h>
#include <stdint.h>

struct wb_err;
struct wb_buf;

/* P(field, word, default, least, greatest, text) */
#define WB_PREDICT_PARAMS(P)                                                                       \
	P(goodput, "goodput", 0.97, 0.01, 1,                                                       \
		"share of a rail's rate that is payload; RoCE v2 has 82 bytes of headers for "     \
		"4096 "                                                                            \
		"(0.98), the rest is acknowledgements")                                            \
	P(latency_us, "latencyUs", 5, 0, 1e6,                                                      \
		"one way, from the call at one agent to the event at the other; 2 us of it the "   \
		"wire")                                                                            \
	P(piece_kib, "pieceKiB", 256, 1, 16384,                                                    \
		"what a rail sends of one chunk before the next has its turn")                     \
	P(pieces, "pieces", 4, 1, 64, "pieces of a chunk that have left and not arrived")          \
	P(lane_gbs, "laneGBs", 1300, 0.1, 1e6,                                                     \
		"GB/s of packing and assembling in device memory: 0.8 of half the 3.35 TB/s of "   \
		"an H100")                                                                         \
	P(lane_us, "laneUs", 10, 0, 1e6, "from submitting a job to a lane to its first byte")      \
	P(fabric_gbs, "fabricGBs", 450, 0.1, 1e6,                                                  \
		"GB/s between two workers of an agent: NVLink 4, one direction")                   \
	P(host_gbs, "hostGBs", 50, 0.1, 1e6,                                                       \
		"GB/s of a worker to and from host memory, when staged: PCIe 5.0 x16 less its "    \
		"headers")                                                                         \
	P(near_gbs, "nearGBs", 8, 0.1, 1e6,                                                        \
		"GB/s of a worker to and from agents of its node, whose memory a thread copies: "  \
		"6.2 over shm were measured where one thread copies 8.4")                          \
	P(loop_us, "loopUs", 5, 0, 1e6,                                                            \
		"processor time of an agent's loop for one event: over tcp 29 us a chunk were "    \
		"measured, with six events to a chunk")                                            \
	P(prepare_ms, "prepareMs", 2, 0, 1e6,                                                      \
		"from the trainers' call to the first chunk asked for: messages, and engines "     \
		"that come "                                                                       \
		"to the same step; two real agents on one host take 1 to 2")                       \
	P(commit_ms, "commitMs", 1, 0, 1e6,                                                        \
		"from an engine's last chunk to its workers going on; `make bench` measures 0.5")  \
	P(release_ms, "releaseMs", 0.2, 0, 1e6,                                                    \
		"from the last chunk that comes from trainers to their going on: two messages")    \
	P(trainer_mib, "trainerMiB", 1024, 1, 1e6, "memory for slots of one trainer worker")       \
	P(rollout_mib, "rolloutMiB", 4096, 1, 1e6, "memory for slots of one rollout worker")       \
	P(round_ms, "roundMs", 2, 0, 10,                                                           \
		"mode paper, fitted: what a round costs whoever takes part; calls and barriers "   \
		"of Python processes, 0.1 to 5 ms together")                                       \
	P(peer_ms, "peerMs", 0.93, 0, 2,                                                           \
		"mode paper, fitted: what a stage of a round costs for each worker that one "      \
		"sends to or takes from; a call and its answer between two Python processes is "   \
		"0.02 ms on one idle host, some ms where one of them is busy")                     \
	P(round_trainer_mib, "roundTrainerMiB", 1331, 1, 1e6,                                      \
		"mode paper, fitted: memory of a trainer worker for two rounds, of the 5 GB that " \
		"the paper says are left at most; 1273 to 1526 make six rounds of deployment (a)") \
	P(window, "window", 0, 0, 256,                                                             \
		"chunks one worker has asked of another and not got; 0 is the agents' own")

struct wb_predict_params {
#define P(field, word, dflt, least, greatest, text) double field;
	WB_PREDICT_PARAMS(P)
#undef P
};

/** wb_predict_defaults - all parameters with their defaults. */
struct wb_predict_params wb_predict_defaults(void);
/** wb_predict_set - apply settings of the form "word=number,word=number".  0; -EINVAL with a
 * sentence that names the word and its range; a part of @text may have been applied then. */
int wb_predict_set(struct wb_predict_params *p, const char *text, struct wb_err *err);
/** wb_predict_list - append a line for each parameter, for --help: word, default, range, text. */
void wb_predict_list(struct wb_buf *out);

#endif
