/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_DEPLOY_INTERNAL_H
#define WB_PLANNER_DEPLOY_INTERNAL_H
/*
 * Shared by the files of this folder: the positions of a model's tensors in its manifest, and maps
 * under construction.
 */
#include "base/err.h"
#include "planner/deploy/deploy.h"

/* The tensors of a layer.  An expert has three: gate, up, down. */
enum wb__slot {
	WB__MTP_EMBED, /* only of MTP layers */
	WB__ENORM,
	WB__HNORM,
	WB__EH_PROJ,
	WB__INPUT_NORM, /* of all layers */
	WB__Q_A,
	WB__Q_A_NORM,
	WB__Q_B,
	WB__Q,
	WB__KV_A,
	WB__KV_A_NORM,
	WB__KV_B,
	WB__K,
	WB__V,
	WB__O,
	WB__Q_NORM,
	WB__K_NORM,
	WB__POST_NORM,
	WB__MLP, /* gate, up, down */
	WB__ROUTER = WB__MLP + 3,
	WB__ROUTER_BIAS,
	WB__SHARED, /* gate, up, down */
	/* gate, up, down of the first expert; the other experts follow */
	WB__EXPERTS = WB__SHARED + 3,
	WB__SHARED_HEAD_NORM,
	WB__MTP_HEAD,
	WB__SLOTS
};

/* Numbers of tensors in the manifest. */
struct wb__tensors {
	const struct wb_model *model; /* borrowed */
	const struct wb_manifest *m; /* borrowed */
	uint32_t embed, norm, head; /* head: UINT32_MAX if the checkpoint has none */
	uint32_t (*layer)[WB__SLOTS]; /* owned; MTP layers follow the others */
};

/** wb__tensors_list - pass all tensors of @model to @add, in manifest order; 0, or what @add
 * returned.  @slots: where each tensor's number is stored, or NULL. */
struct wb__new_tensor {
	const char *name;
	enum wb_dtype dtype;
	uint64_t rows, cols; /* rows 0: a vector */
};
int wb__tensors_list(const struct wb_model *model, struct wb__tensors *slots,
	int (*add)(void *ctx, const struct wb__new_tensor *t), void *ctx);

/* A map under construction.  After a failure everything is a no-op, and rc says why. */
struct wb__maker {
	const struct wb__tensors *t;
	const struct wb_model *model;
	struct wb_map map;
	size_t cap_param, cap_op, cap_region;
	int rc;
	char prefix[96]; /* prefix of the names of parameters */
	uint32_t layer; /* whose tensors wb__slot() numbers */
};

/* A part of a parameter whose rows are @pitch elements apart. */
struct wb__part {
	uint32_t param;
	uint64_t at, pitch; /* elements */
	bool is_transposed; /* tensor rows become columns of the part */
};

/** wb__in - set the prefix of the names of the parameters that follow. */
void wb__in(struct wb__maker *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** wb__slot - number of the tensor in @slot of the maker's present layer. */
uint32_t wb__slot(const struct wb__maker *k, uint32_t slot);
/** wb__tensor - a tensor of the model by its number; borrowed, for as long as the tensors live. */
const struct wb_tensor *wb__tensor(const struct wb__maker *k, uint32_t tensor);
/** wb__param - add a dense parameter of @ndim dimensions; returns the part at its beginning. */
struct wb__part wb__param(struct wb__maker *k, const char *name, enum wb_dtype dtype, uint32_t ndim,
	const uint64_t shape[3]);
/** wb__matrix - the same of two dimensions, in the model's dtype. */
struct wb__part wb__matrix(struct wb__maker *k, const char *name, uint64_t rows, uint64_t cols);
/** wb__rows_at - the part from row @row on. */
struct wb__part wb__rows_at(struct wb__part p, uint64_t row);
/** wb__copy - add an op: tensor rows [row, +n_row) and columns [col, +n_col) go to where @p
 * begins. */
struct wb__box {
	uint64_t row, n_row, col, n_col;
};
void wb__copy(struct wb__maker *k, struct wb__part p, uint32_t tensor, struct wb__box b);
/** wb__rows, wb__columns - part @i of @n of a tensor's rows or columns goes to where @p begins. */
void wb__rows(struct wb__maker *k, struct wb__part p, uint32_t tensor, uint64_t i, uint64_t n);
void wb__columns(struct wb__maker *k, struct wb__part p, uint32_t tensor, uint64_t i, uint64_t n);

/* Add a parameter that is one whole tensor. */
void wb__whole(struct wb__maker *k, const char *name, uint32_t tensor);
/** wb__row_shard, wb__column_shard - add a parameter that is part @i of @n of the tensor's rows
 * (columns). */
void wb__row_shard(struct wb__maker *k, const char *name, uint32_t tensor, uint64_t i, uint64_t n);
void wb__column_shard(
	struct wb__maker *k, const char *name, uint32_t tensor, uint64_t i, uint64_t n);
/** wb__vocab_shard - the same for the rows of a vocabulary that is padded with zeros to a multiple
 * of @multiple. */
void wb__vocab_shard(struct wb__maker *k, const char *name, uint32_t tensor, uint64_t i, uint64_t n,
	uint64_t multiple);
/** wb__gate_up - part @i of @n of the gate, and below it part @i of the up projection: [gate_i;
 * up_i].  @mlp: tensor number of the gate; that of up follows. */
void wb__gate_up(struct wb__maker *k, struct wb__part p, uint32_t mlp, uint64_t i, uint64_t n);

/** wb__maker_done - finish the map: 0 with it in @out, or negative with the sentence in @err; the
 * maker is empty afterwards. */
int wb__maker_done(struct wb__maker *k, struct wb_map **out, struct wb_err *err);

/* Add what rank @rank holds with Megatron. */
void wb__megatron(struct wb__maker *k, const struct wb_parallel *p, uint32_t rank);
/** wb__fsdp2 - the same with FSDP2, each tensor cut among all ranks by its rows; or with
 * Transformers, which has it whole. */
void wb__fsdp2(struct wb__maker *k, const struct wb_parallel *p, uint32_t rank);
/** wb__rollout - the same in a rollout engine: its pipeline stage, cut by its attention and expert
 * groups. */
void wb__rollout(struct wb__maker *k, const struct wb_parallel *p, uint32_t rank);

/** wb__twin - the lowest rank that holds the same as @rank. */
uint32_t wb__twin(const struct wb_parallel *p, const struct wb_model *m, uint32_t rank);
/** wb__stage_begin - first layer of pipeline stage @stage; for the number after the last stage, the
 * end of the layers. */
uint32_t wb__stage_begin(const struct wb_parallel *p, uint32_t stage);

#endif
