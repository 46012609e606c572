/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SPEC_SPEC_H
#define WB_SPEC_SPEC_H
/*
 * A WeightTransfer: what the user wants, checked and with defaults filled in.
 *
 * One table of fields drives parsing, defaults and refusals; a test holds it against
 * crds/weighttransfer.yaml in both directions.  A refusal names file, line and path, and what was
 * probably meant; all refusals of a file are reported together, one per line.
 *
 * Invariant: a struct wb_spec from wb_spec_load() obeys every rule of the table.
 * Threads: any; no shared state.  Layer: operator-shim/spec (over base, proto).
 */
#include "proto/words.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB_SPEC_NAME_MAX 253
#define WB_SPEC_NAMESPACE_MAX 63
#define WB_SPEC_LABEL_KEY_MAX 317
#define WB_SPEC_PREFIXES_MAX 32
#define WB_SPEC_PREFIX_MAX 64
#define WB_SPEC_OBJECTS_MAX 64

/* Words of this resource alone, by their position in the table's lists. */
/* What has checksums: nothing; every chunk on its way; every chunk, and what was installed. */
enum wb_checksums { WB_CHECKSUMS_NONE, WB_CHECKSUMS_WIRE, WB_CHECKSUMS_INSTALLED };
enum wb_protocol { WB_PROTOCOL_VERBS, WB_PROTOCOL_TCP };
enum wb_device_class { WB_DEVICE_HARDWARE, WB_DEVICE_SOFTWARE, WB_DEVICE_ANY };
enum wb_gpu_direct { WB_GPU_DIRECT_AUTO, WB_GPU_DIRECT_REQUIRED, WB_GPU_DIRECT_DISABLED };
enum wb_encryption { WB_ENCRYPTION_NONE, WB_ENCRYPTION_TLS };

struct wb_spec_words {
	uint32_t n;
	uint32_t v[2];
};

struct wb_spec_strings {
	uint32_t n;
	char v[WB_SPEC_PREFIXES_MAX][WB_SPEC_PREFIX_MAX + 1];
};

struct wb_spec {
	char name[WB_SPEC_NAME_MAX + 1];
	char namespace_[WB_SPEC_NAMESPACE_MAX + 1];
	bool suspend;
	uint32_t trainer_workers;
	uint64_t trainer_buffer_bytes;
	uint32_t workers_per_engine;
	uint32_t engines; /* 0 = not given */
	char engine_label_key[WB_SPEC_LABEL_KEY_MAX + 1];
	uint64_t rollout_buffer_bytes;
	uint32_t trainer_staging, rollout_staging; /* enum wb_staging */
	uint32_t commit_policy; /* enum wb_commit */
	uint32_t overlap; /* enum wb_overlap */
	uint32_t checksums; /* enum wb_checksums */
	struct wb_spec_words protocols; /* enum wb_protocol, best first */
	uint32_t device_class, gpu_direct, encryption; /* enums above */
	struct wb_spec_strings device_prefixes;
	uint32_t plan_deadline_s, transfer_deadline_s, engine_step_deadline_s;
	uint32_t heartbeat_timeout_s;
};

/**
 * wb_spec_load - every WeightTransfer of a YAML text
 * @file:	name for messages
 * @text:	untrusted bytes; several documents give several objects
 * @spec, @n:	on success: owned array (wb_free()), at least one element
 * Returns 0; -EINVAL with one sentence per line ("transfer.yaml:12: spec.rollout.workersPerEngin:
 * unknown field, did you mean workersPerEngine?"); -E2BIG; -ENOMEM.
 */
int wb_spec_load(const char *file, const void *text, size_t bytes, struct wb_spec **spec, size_t *n,
	struct wb_err *err);

/** wb_spec_load_file - the same from a file.  Blocks. */
int wb_spec_load_file(const char *path, struct wb_spec **spec, size_t *n, struct wb_err *err);

/** wb_spec_check_update - 0, or -EINVAL when a field that must not change differs. */
int wb_spec_check_update(const struct wb_spec *old, const struct wb_spec *now, struct wb_err *err);

/** wb_spec_json - the value under "spec", defaults filled in.  New reference; NULL = no memory. */
json_t *wb_spec_json(const struct wb_spec *spec);

/** wb_spec_uid - identity of a standalone object: a hash of namespace/name, so that a restart of
 *  the operator keeps it.  Never 0. */
uint64_t wb_spec_uid(const struct wb_spec *spec);

#endif
