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
/** wb_manifest_close - free it; NULL is allowed. */
WB_API void wb_manifest_close(struct wb_manifest *m);
/** wb_manifest_digest - write the digest as text into @text (64 bytes). */
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

/* What a piece of memory is to the worker.  Attributes and witnesses that share memory with another
 * piece are left alone; that load_weights does something other than copy into them is no fault
 * (wb_extract_outside()). */
enum wb_extract_role {
	WB_EXTRACT_PARAM = 0, /* must be a copy, and is in the map */
	WB_EXTRACT_ATTRIBUTE = 1, /* in the map when load_weights writes it and it is a copy */
	WB_EXTRACT_WITNESS = 2, /* never in the map: looked at, and put back */
};

struct wb_extract_opts {
	size_t size; /* sizeof(struct wb_extract_opts) */
	uint32_t threads; /* 0 = 2 */
	uint32_t n_hash; /* hash passes; 0 = 1 */
	uint64_t record_max; /* most records of one parameter; 0 = 4 Mi */
	uint64_t seed; /* seed of the hash pass; 0 = a fixed one */
	uint32_t reload; /* not 0: no snapshot; the caller loads the parameters again afterwards */
	const char *cache_dir; /* NULL = no cache */
	const char *cache_key; /* names what else the map depends on; NULL = nothing */
	const uint8_t *role; /* enum wb_extract_role of each parameter; NULL = all PARAM */
	/* Ranks whose load_weights call each other (collective loaders) run the same passes, each
	 * on its own tensors with the same content.  All ranks call @agree at the same points, once
	 * in wb_extract_open() and once in each wb_extract_next_pass().  It sets *@all to the
	 * bitwise or of what all ranks said, and returns 0; or negative, which ends the call with
	 * that code.  NULL: this rank is alone. */
	int (*agree)(void *cookie, uint32_t said, uint32_t *all);
	void *cookie; /* of agree */
	/* Not 0: parameters, and tensors for wb_extract_fill(), may lie on GPUs.  The driver is
	 * asked about each; with 0 it is not even opened.  Such parameters are probed where they
	 * lie: only what was found comes to the host, and snapshots stay on the GPU if it has room
	 * for them.  open, next_pass, end_pass, finish and close wait for all that is under way on
	 * such a GPU, in any stream. */
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
/** wb_extract_close - free it, and put the parameters back if that was not done; NULL is
 * allowed. */
WB_API void wb_extract_close(struct wb_extract *x);

/** wb_extract_next_pass - 1: run this pass; 0: call finish; or a negative code. */
WB_API int wb_extract_next_pass(
	struct wb_extract *x, struct wb_extract_pass *pass, struct wb_error *err);
/** wb_extract_fill_kind - enum wb_extract_fill_kind of a tensor in this pass. */
WB_API int wb_extract_fill_kind(const struct wb_extract *x, uint32_t tensor);
/**
 * wb_extract_fill - write a tensor's content for this pass
 * @expand:	not 0: write only as much as wb_extract_fill_kind() says; the caller makes views
 *		with stride 0
 * @out:	memory of the host, or of a GPU that parameters lie on (devices): then a kernel
 *		writes there, and is done when this returns
 * Returns 0; -EINVAL (no pass is under way, or @bytes is not what is to be written); -ENOTSUP: it
 * is on another GPU; -ENOMEM; -EIO: the GPU failed.
 */
WB_API int wb_extract_fill(
	const struct wb_extract *x, uint32_t tensor, int expand, void *out, size_t bytes);
/** wb_extract_end_pass - call it after load_weights.  @param: the parameters as they are now, NULL
 * = not moved. */
WB_API int wb_extract_end_pass(struct wb_extract *x, const struct wb_extract_param *param,
	uint32_t n, struct wb_error *err);
/**
 * wb_extract_gone - memory of parameter @i at @data was freed by load_weights: not touched again
 * @data:	where it was, at open or in the last end_pass
 * This counts as a fault of the parameter.  Call it before the end_pass that follows, or before
 * close.
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
/** wb_extract_outside - after finish: what load_weights writes that is not in the map, as lines of
 * a name, a tab and a reason; "" = none. */
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
/** wb_sourcemap_read - read a source map from the bytes of wb_sourcemap_blob(), which are not
 * trusted.  0, -EBADMSG or -ENOMEM. */
WB_API int wb_sourcemap_read(
	const void *data, size_t bytes, struct wb_sourcemap **out, struct wb_error *err);
/** wb_sourcemap_json, wb_sourcemap_report - text, NUL-terminated.  0 or -ENOMEM. */
WB_API int wb_sourcemap_json(const struct wb_sourcemap *s, struct wb_extract_blob *out);
WB_API int wb_sourcemap_report(const struct wb_sourcemap *s, struct wb_extract_blob *out);
/** wb_sourcemap_gaps - what the map leaves out (tensors that go nowhere, parameters that get
 * nothing): one line for each kind, with at most @shown_max names.  0 or -ENOMEM. */
WB_API int wb_sourcemap_gaps(
	const struct wb_sourcemap *s, uint32_t shown_max, struct wb_extract_blob *out);

struct wb_sourcemap_param {
	const char *name; /* valid until close */
	const char *dtype;
	uint32_t ndim;
	uint64_t shape[WB_EXTRACT_NDIM];
	int64_t stride[WB_EXTRACT_NDIM]; /* elements */
	uint64_t span; /* elements from the first to one past the last */
	/* Numbers of ops, constant regions, unwritten regions. */
	uint32_t n_op, n_constant, n_unwritten;
	uint32_t n_nest; /* loop nests that its ops fold into */
	int64_t owner; /* the parameter this one is a view of, or -1 */
	uint64_t owner_offset; /* elements from the owner's first */
};

/** wb_sourcemap_n_tensor - number of tensors of its manifest, including those that go nowhere. */
WB_API uint32_t wb_sourcemap_n_tensor(const struct wb_sourcemap *s);
/** wb_sourcemap_tensor - tensor @i of the manifest; strings valid until close.  0 or -ENOENT. */
WB_API int wb_sourcemap_tensor(
	const struct wb_sourcemap *s, uint32_t i, struct wb_extract_tensor *out);
/** wb_sourcemap_n_param - number of parameters, including those that are views of others. */
WB_API uint32_t wb_sourcemap_n_param(const struct wb_sourcemap *s);
/** wb_sourcemap_param - fill in @out for parameter @i.  0, -ENOENT or -ENOMEM. */
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
/** wb_sourcemap_constants - write only the constants; @param as in wb_sourcemap_apply().  Transfers
 * do not write them, so a worker whose memory never held weights needs this once. */
WB_API void wb_sourcemap_constants(const struct wb_sourcemap *s, void *const *param);
/**
 * wb_sourcemap_write_constants - the same where parameters may lie on GPUs
 * Before it writes it waits for all that is under way there, in any stream, and afterwards for its
 * own work.  0; -ENOMEM; -EINVAL: memory of a GPU is too short; -ENOTSUP; -ENODEV; -EIO.
 */
WB_API int wb_sourcemap_write_constants(
	const struct wb_sourcemap *s, void *const *param, struct wb_error *err);

#ifdef __cplusplus
}
#endif
#endif
