/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_DEPLOY_PARALLEL_H
#define WB_PLANNER_DEPLOY_PARALLEL_H
/*
 * How the workers of a trainer, or of one rollout engine, share a model.
 *
 * Written as FRAMEWORK:SETTING,SETTING..., where a setting is a word followed by its number:
 *
 *	megatron:tp4,pp4,cp2,ep16,dp2	ranks in the order tp, cp, ep, dp, pp; experts are not
 *					split over tp.  dp: the least that ep divides, if absent
 *	fsdp2:256			every parameter cut on dimension 0 over 256 ranks
 *	transformers:8			8 ranks that each hold the whole model
 *	vllm:tp8,pp2,dp2,ep16		tp * dp workers a stage, dp copies of the attention; ep is 1
 *					(experts are split) or tp * dp (they are dealt out)
 *	sglang:tp32,dp8,ep32		tp workers a stage; attention over tp / dp of them
 *
 * More settings: uneven pipeline stages ("last22", or "layers24+24+24+22"); fsdp2 and transformers:
 * "stacked" (the experts of a layer are one parameter), fsdp2: "masters" (F32 parameters); sglang:
 * "dense_tp1" (dense MLPs are whole on each worker).
 *
 * Threads: any; no shared state.  Layer: planner/deploy (over planner).
 */
#include <stdbool.h>
#include <stdint.h>

struct wb_err;
struct wb_model;

#define WB_PARALLEL_STAGES_MAX 256
#define WB_PARALLEL_TEXT_MAX 2048

enum wb_framework {
	WB_MEGATRON = 1,
	WB_FSDP2,
	WB_TRANSFORMERS,
	WB_VLLM,
	WB_SGLANG,
};

struct wb_parallel {
	enum wb_framework framework;
	/* Numbers of ranks of each kind, as written; 0 = not given. */
	uint32_t tp, pp, cp, ep, dp, dense_tp;
	uint32_t world; /* workers: of the trainer, or of one engine */
	uint32_t last; /* layers of the last pipeline stage; 0 = not given */
	uint32_t n_stage; /* stages whose layers are given; 0 = none: stages are even */
	uint32_t stage[WB_PARALLEL_STAGES_MAX]; /* layers of each pipeline stage */
	bool is_stacked, has_masters;
};

/** wb_framework_name - as it is written: "megatron". */
const char *wb_framework_name(enum wb_framework f);
/** wb_framework_is_trainer - is it a framework for training?  The others serve. */
bool wb_framework_is_trainer(enum wb_framework f);

/**
 * wb_parallel_parse - read the text of one side
 * @text:	untrusted
 * Returns 0, or -EINVAL with a sentence that names the part of the text and what may stand there;
 * @out is unchanged then.
 */
int wb_parallel_parse(const char *text, struct wb_parallel *out, struct wb_err *err);

/**
 * wb_parallel_fit - fill in what was not given, and check that the model can be split this way
 * @p:		as wb_parallel_parse() left it; changed in place: no count is 0 afterwards, and
 *		n_stage is pp (FSDP2 and Transformers: 1)
 * Returns 0, or -EINVAL with a sentence that names the setting, the length that it does not divide,
 * and settings that divide it ("tp 3 does not divide 64 heads; 2 and 4 do").
 */
int wb_parallel_fit(struct wb_parallel *p, const struct wb_model *m, struct wb_err *err);

#endif
