/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIGHTBRIDGE_EXTRACT_H
#define WEIGHTBRIDGE_EXTRACT_H
/*
 * Source maps of a worker, found by probing its load_weights.  Needs no agent.
 *
 *	wb_manifest_open()		the checkpoint's tensors
 *	wb_extract_open()		the worker's parameters
 *	while (wb_extract_next_pass() == 1) {
 *		run load_weights on tensors filled by wb_extract_fill();
 *		wb_extract_end_pass();
 *	}
 *	wb_extract_finish()		the source map
 *	wb_extract_close()
 *
 * Types are named as in safetensors: BF16 F32 F16 F8_E4M3 F8_E5M2 I8 U8 I32.  A tensor is seen as a
 * matrix: the last dimension is its columns, all others are its rows.
 *
 * Probing overwrites the parameters.  They are put back by wb_extract_finish() or, when that is
 * not reached, wb_extract_close().
 *
 * Threads: one thread at a time for each object; wb_extract_fill() may run on several at once.
 */
#include "weightbridge/error.h"
#include "weightbridge/weightbridge.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WB_EXTRACT_NDIM 8

struct wb_manifest; /* opaque */
struct wb_extract; /* opaque */
struct wb_sourcemap; /* opaque */

/* Bytes that the library made; release with wb_extract_free(data). */
struct wb_extract_blob {
	void *data;
	size_t bytes;
};

/** wb_extract_free - free bytes of a wb_extract_blob; NULL is allowed. */
WB_API void wb_extract_free(void *data);

/* ---- manifest --------------------------------------------------------------------------- */

struct wb_extract_tensor {
	const char *name;
	const char *dtype;
	uint32_t ndim;
	uint64_t shape[WB_EXTRACT_NDIM];
};

/**
 * wb_manifest_open - manifest of @n tensors, in the checkpoint's order
 * Returns 0; -EINVAL with the tensor named; -ENOMEM.  Release with wb_manifest_close().
 */
WB_API int wb_manifest_open(const struct wb_extract_tensor *tensor, uint32_t n,
	struct wb_manifest **out, struct wb_error *err);
WB_API void wb_manifest_close(struct wb_manifest *m);
/** wb_manifest_digest - text form into @text (64 bytes). */
WB_API void wb_manifest_digest(const struct wb_manifest *m, char *text);
/** wb_manifest_blob - the encoded manifest, as wb_client_attach() wants it.  0 or -ENOMEM. */
WB_API int wb_manifest_blob(const struct wb_manifest *m, struct wb_extract_blob *out);

/* ---- probing ---------------------------------------------------------------------------- */

struct wb_extract_param {
	const char *name;
	const char *dtype;
	uint32_t ndim;
	uint64_t shape[WB_EXTRACT_NDIM];
	int64_t stride[WB_EXTRACT_NDIM]; /* elements, positive */
	void *data; /* element (0, .., 0); must stay valid until close */
};

/* What a piece of memory is to the worker.  Attributes and witnesses are left alone where they
 * share memory with another one; what is no copy in them is no fault (wb_extract_outside()). */
enum wb_extract_role {
	WB_EXTRACT_PARAM = 0, /* must be a copy, and is in the map */
	WB_EXTRACT_ATTRIBUTE = 1, /* in the map when load_weights writes it and it is a copy */
	WB_EXTRACT_WITNESS = 2, /* never in the map: looked at, and put back */
};

struct wb_extract_opts {
	size_t size; /* sizeof(struct wb_extract_opts) */
	uint32_t threads; /* 0 = 2 */
	uint32_t n_hash; /* hash passes; 0 = 1 */
	uint64_t record_max; /* records a parameter may take; 0 = 4 Mi */
	uint64_t seed; /* of the hash pass; 0 = a fixed one */
	uint32_t reload; /* not 0: no snapshot; the caller loads the parameters again afterwards */
	const char *cache_dir; /* NULL = no cache */
	const char *cache_key; /* what else the map depends on; NULL = nothing */
	const uint8_t *role; /* enum wb_extract_role of each parameter; NULL = all PARAM */
	/* Ranks whose load_weights call each other (collective loaders) run the same passes, each
	 * on its own tensors with the same content.  All ranks call @agree at the same points, once
	 * in wb_extract_open() and once in each wb_extract_next_pass(): it gives the bitwise or of
	 * what all said.  0, or negative, which ends the call with that code.  NULL: alone. */
	int (*agree)(void *cookie, uint32_t said, uint32_t *all);
	void *cookie; /* of agree */
	/* Not 0: parameters, and tensors for wb_extract_fill(), may lie on GPUs.  The driver is
	 * asked about each; without this it is not even opened.  Such parameters are probed where
	 * they lie: what comes to the host is what was found, and snapshots stay on the GPU where
	 * it has room for them.  open, next_pass, end_pass, finish and close wait for all that is
	 * under way on such a GPU, in any stream. */
	uint32_t devices;
};

struct wb_extract_pass {
	uint32_t kind; /* 1 constant, 2 second constant, 3 columns, 4 rows, 5 hash */
	uint32_t index, n_expected, digit;
	char name[32];
};

enum wb_extract_fill_kind {
	WB_EXTRACT_FILL_FULL = 0, /* rows x cols elements */
	WB_EXTRACT_FILL_COLUMNS = 1, /* all rows equal: one row */
	WB_EXTRACT_FILL_ROWS = 2, /* all columns equal: one column */
	WB_EXTRACT_FILL_ONE = 3, /* all equal: one element */
};

/**
 * wb_extract_open - start probing
 * @m:		must stay open until close
 * @param:	borrowed for the call; the data they point to is read and written until close
 * @opts:	NULL = defaults
 * Returns 0; -EINVAL with the parameter named; -ENOMEM; with devices also -ENOTSUP (this build has
 * no code for GPUs), -EIO.  Release with wb_extract_close().
 */
WB_API int wb_extract_open(const struct wb_manifest *m, const struct wb_extract_param *param,
	uint32_t n, const struct wb_extract_opts *opts, struct wb_extract **out,
	struct wb_error *err);
WB_API void wb_extract_close(struct wb_extract *x);

/** wb_extract_next_pass - 1: run this pass; 0: call finish; or a negative code. */
WB_API int wb_extract_next_pass(
	struct wb_extract *x, struct wb_extract_pass *pass, struct wb_error *err);
/** wb_extract_fill_kind - enum wb_extract_fill_kind of a tensor in this pass. */
WB_API int wb_extract_fill_kind(const struct wb_extract *x, uint32_t tensor);
/**
 * wb_extract_fill - write a tensor's content for this pass
 * @expand:	not 0: only what wb_extract_fill_kind() says; the caller makes views with stride 0
 * @out:	memory of the host, or of a GPU that parameters lie on (devices): then it is written
 *		there, by a kernel that is over when this returns
 * Returns 0; -EINVAL (no pass is under way, @bytes is not what is to be written); -ENOTSUP: another
 * GPU; -ENOMEM; -EIO: it failed.
 */
WB_API int wb_extract_fill(
	const struct wb_extract *x, uint32_t tensor, int expand, void *out, size_t bytes);
/** wb_extract_end_pass - after load_weights; @param: as they are now, NULL = not moved. */
WB_API int wb_extract_end_pass(struct wb_extract *x, const struct wb_extract_param *param,
	uint32_t n, struct wb_error *err);
/**
 * wb_extract_gone - memory of parameter @i at @data was freed by load_weights: not touched again
 * @data:	where it was, at open or in the last end_pass
 * A fault of the parameter.  Before the end_pass that follows, or before close.
 */
WB_API void wb_extract_gone(struct wb_extract *x, uint32_t i, const void *data);
/**
 * wb_extract_finish - put the parameters back and hand out the map
 * Returns 0; WB_CODE_NOT_COPY (wb_extract_faults() lists all); -EINVAL, also when nothing of the
 * checkpoint came into parameters that have elements; -ENOMEM; -EIO: a GPU failed, and parameters
 * on it could not be put back (the sentence says so).  Release the map with wb_sourcemap_close();
 * it does not need the manifest or @x any more.
 */
WB_API int wb_extract_finish(struct wb_extract *x, struct wb_sourcemap **out, struct wb_error *err);
/** wb_extract_outside - after finish: what load_weights writes that is not in the map; lines of a
 *  name, a tab and a reason; "" = none. */
WB_API const char *wb_extract_outside(struct wb_extract *x);
/** wb_extract_faults, wb_extract_notes - lines of text, "" = none; valid until the next call. */
WB_API const char *wb_extract_faults(struct wb_extract *x);
WB_API const char *wb_extract_notes(struct wb_extract *x);

/* ---- source map ------------------------------------------------------------------------- */

/** wb_sourcemap_close - free it and all strings that came from it; NULL is allowed. */
WB_API void wb_sourcemap_close(struct wb_sourcemap *s);
/** wb_sourcemap_digest - text form into @text (64 bytes): equal for equal layouts. */
WB_API void wb_sourcemap_digest(const struct wb_sourcemap *s, char *text);
/** wb_sourcemap_manifest_blob - as wb_manifest_blob() of the manifest it was made with. */
WB_API int wb_sourcemap_manifest_blob(const struct wb_sourcemap *s, struct wb_extract_blob *out);
/** wb_sourcemap_map_blob - the encoded map, as wb_client_attach() wants it.  0 or -ENOMEM. */
WB_API int wb_sourcemap_map_blob(const struct wb_sourcemap *s, struct wb_extract_blob *out);
/** wb_sourcemap_blob - everything, for wb_sourcemap_read().  0 or -ENOMEM. */
WB_API int wb_sourcemap_blob(const struct wb_sourcemap *s, struct wb_extract_blob *out);
/** wb_sourcemap_read - from those bytes, which are not trusted.  0, -EBADMSG or -ENOMEM. */
WB_API int wb_sourcemap_read(
	const void *data, size_t bytes, struct wb_sourcemap **out, struct wb_error *err);
/** wb_sourcemap_json, wb_sourcemap_report - text, NUL-terminated.  0 or -ENOMEM. */
WB_API int wb_sourcemap_json(const struct wb_sourcemap *s, struct wb_extract_blob *out);
WB_API int wb_sourcemap_report(const struct wb_sourcemap *s, struct wb_extract_blob *out);
/** wb_sourcemap_gaps - what the map leaves out, a line for each kind of it with at most @shown_max
 * names: tensors that go nowhere, parameters that get nothing.  0 or -ENOMEM. */
WB_API int wb_sourcemap_gaps(
	const struct wb_sourcemap *s, uint32_t shown_max, struct wb_extract_blob *out);

struct wb_sourcemap_param {
	const char *name; /* valid until close */
	const char *dtype;
	uint32_t ndim;
	uint64_t shape[WB_EXTRACT_NDIM];
	int64_t stride[WB_EXTRACT_NDIM]; /* elements */
	uint64_t span; /* elements from the first to one past the last */
	uint32_t n_op, n_constant, n_unwritten; /* ops and regions */
	uint32_t n_nest; /* ops folded into loop nests */
	int64_t owner; /* the parameter this one is a view of, or -1 */
	uint64_t owner_offset; /* elements from the owner's first */
};

/** wb_sourcemap_n_tensor - tensors of its manifest, also those that go nowhere. */
WB_API uint32_t wb_sourcemap_n_tensor(const struct wb_sourcemap *s);
/** wb_sourcemap_tensor - tensor @i of the manifest; strings valid until close.  0 or -ENOENT. */
WB_API int wb_sourcemap_tensor(
	const struct wb_sourcemap *s, uint32_t i, struct wb_extract_tensor *out);
/** wb_sourcemap_n_param - parameters, also those that are views of others. */
WB_API uint32_t wb_sourcemap_n_param(const struct wb_sourcemap *s);
/** wb_sourcemap_param - 0, -ENOENT or -ENOMEM. */
WB_API int wb_sourcemap_param(
	const struct wb_sourcemap *s, uint32_t i, struct wb_sourcemap_param *out);

/**
 * wb_sourcemap_apply - build parameters from checkpoint tensors by the map alone
 * @tensor:	data of each tensor of the manifest, dense; NULL where nothing needs it
 * @param:	first element of each parameter; NULL = leave out (views of others)
 * Constants are written, unwritten elements are left alone.  0, -EINVAL, -ENOMEM.
 */
WB_API int wb_sourcemap_apply(const struct wb_sourcemap *s, const void *const *tensor,
	void *const *param, struct wb_error *err);
/** wb_sourcemap_constants - write only the constants; @param as there.  Transfers do not: a worker
 *  whose memory never held weights needs it once. */
WB_API void wb_sourcemap_constants(const struct wb_sourcemap *s, void *const *param);
/**
 * wb_sourcemap_write_constants - the same where parameters may lie on GPUs
 * Waits for what is under way there, in any stream, before and for its own work after.
 * 0; -ENOMEM; -EINVAL: memory of a GPU that is too short; -ENOTSUP; -ENODEV; -EIO.
 */
WB_API int wb_sourcemap_write_constants(
	const struct wb_sourcemap *s, void *const *param, struct wb_error *err);

#ifdef __cplusplus
}
#endif
#endif
