/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIGHTBRIDGE_H
#define WEIGHTBRIDGE_H
/*
 * libweightbridge: what a worker process (one trainer or inference rank) calls.
 *
 * Life of a client:
 *	open -> attach -> wait_planned -> { send ... | poll ... } -> close
 * A trainer worker sends; a rollout worker polls.  An agent restarted underneath is attached again
 * by itself, with the map, manifest and memory table of the first attach.
 *
 * Safe in a trainer: links libc alone; no signals, no global state; no thread, except one when the
 * agent cannot map the parameters (private heap), which then packs and assembles inside this
 * process.  Sockets, files and memory it makes are close-on-exec.
 *
 * Fork: a child must not use its parent's client.  Every call in the child fails with -EPERM and a
 * sentence; only wb_client_close() is of use there (it frees memory, and leaves the parent's
 * connection alone).
 *
 * Threads: only one thread at a time may poll (the update calls are that thread's, too).  The other
 * calls may come from any thread at once, except close, which must be the last call.
 *
 * Time: nanoseconds.  A timeout of WB_FOREVER never ends; 0 looks once.  Waits end early with
 * -EINTR when a signal handler ran, so that a language runtime can run its own: call again.
 *
 * ABI: option structs begin with their own size; fields are only ever appended.
 */
#include "weightbridge/error.h"
#include "weightbridge/version.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WB_API __attribute__((visibility("default")))
#else
#define WB_API
#endif

#define WB_FOREVER UINT64_MAX
#define WB_SOCKET_DEFAULT "/run/weightbridge/agent.sock"

struct wb_client; /* opaque */
struct wb_client_transfer; /* opaque */

/** wb_version - the library's version, WB_VERSION of the build.  Static text. */
WB_API const char *wb_version(void);

/* ---- open ------------------------------------------------------------------------------- */

enum wb_client_role { WB_CLIENT_TRAINER = 1, WB_CLIENT_ROLLOUT = 2 };

/* UNSET: the transfer object's spec decides.  Else it must agree with the spec. */
enum wb_client_staging {
	WB_CLIENT_STAGING_UNSET = 0,
	WB_CLIENT_STAGING_NONE = 1,
	WB_CLIENT_STAGING_HOST_MEMORY = 2,
};

struct wb_client_opts {
	size_t size; /* sizeof(struct wb_client_opts) */
	const char *socket; /* agent's socket; NULL: $WEIGHTBRIDGE_SOCKET, else WB_SOCKET_DEFAULT */
	const char *object; /* WeightTransfer's name; NULL: $WEIGHTBRIDGE_OBJECT, else "" = the
			       agent's only one */
	const char *model; /* NULL or "": the object's only one */
	const char *engine; /* rollout: the engine of this worker; NULL for a trainer */
	int role; /* enum wb_client_role */
	int64_t rank; /* hint; -1 = none */
	int sender_staging, receiver_staging; /* enum wb_client_staging */
	/* How long to wait at most, ns; 0 = the default in parentheses. */
	/* For an agent that is not there yet, for answers to hello and attach (60 s). */
	uint64_t connect_timeout;
	uint64_t update_timeout; /* parked or in an update without hearing from the agent (600 s) */
	uint64_t repair_timeout; /* torn, for a repair (300 s) */
	/* For an agent that is gone while this worker needs it (60 s). */
	uint64_t reconnect_timeout;
};

/**
 * wb_client_open - connect to the agent of this pod and agree on a protocol version
 * @opts:	borrowed for the call; strings are copied
 * @out:	on success the client; untouched on failure
 * Blocks, at most connect_timeout (it waits for an agent that is not there yet).  Returns 0;
 * -EINVAL; -ETIMEDOUT (names the socket and the last cause); WB_CODE_VERSION; when the agent
 * refuses, its code and sentence; -ENOMEM; -EINTR.  Release with wb_client_close().
 */
WB_API int wb_client_open(
	const struct wb_client_opts *opts, struct wb_client **out, struct wb_error *err);

/**
 * wb_client_close - finish and release
 * @c:		NULL is allowed; freed whatever is returned
 * @timeout:	how long to wait for the last transfer to become final on all engines
 * Blocks.  If the agent itself works on memory of a GPU, blocks up to five seconds longer, until
 * the agent has let that go: the memory may be freed after this call.  Returns 0; -ETIMEDOUT or the
 * transfer's code when the last transfer did not end well and no call has reported that yet;
 * -EINTR (closed without waiting further).
 */
WB_API int wb_client_close(struct wb_client *c, uint64_t timeout, struct wb_error *err);

/* ---- attach ----------------------------------------------------------------------------- */

enum wb_client_mem_kind {
	WB_CLIENT_MEM_MEMFD = 1, /* the agent maps it */
	WB_CLIENT_MEM_HEAP = 2, /* private memory: packed and assembled in this process */
	WB_CLIENT_MEM_DEVICE = 3, /* memory of a GPU: packed and assembled on it, by this process,
				     or by an agent that imports it */
};

struct wb_client_mem {
	uint32_t kind; /* enum wb_client_mem_kind */
	uint32_t device; /* 0 */
	int fd; /* memfd, mapped shared, sealed F_SEAL_SHRINK (the seal is set when it is missing);
		   duplicated.  -1 for the others */
	void *base; /* where this process sees it, or the address on the GPU; must stay valid until
		       close */
	uint64_t bytes;
};

struct wb_client_param {
	uint32_t mem; /* index of the memory object it lies in */
	uint64_t offset; /* bytes from that object's start to the parameter's lowest byte */
};

struct wb_client_attach {
	size_t size; /* sizeof(struct wb_client_attach) */
	const void *manifest; /* encoded manifest (weightbridge/extract.h) */
	size_t manifest_bytes;
	const void *map; /* encoded source map */
	size_t map_bytes;
	const struct wb_client_mem *mem;
	uint32_t n_mem;
	const struct wb_client_param *param; /* parameter i of the map */
	uint32_t n_param;
};

/**
 * wb_client_attach - register this worker's parameters with the agent
 * @a:		borrowed for the call; blobs are copied, memfds duplicated
 * Blocks, at most connect_timeout.  Returns 0; -EINVAL (a parameter outside its memory, a
 * short memfd, more than WB_CLIENT_MEMFDS_MAX of them, no memory of a GPU, or of two of them);
 * -EPERM (a memfd that cannot be sealed); -ENOTSUP (memory of a GPU: no driver, or a build without
 * device code); -EIO (the GPU failed);
 * -EALREADY; -ETIMEDOUT; the agent's
 * code and sentence when it refuses; -ECONNRESET; -ENOMEM; -EINTR.
 */
WB_API int wb_client_attach(
	struct wb_client *c, const struct wb_client_attach *a, struct wb_error *err);

#define WB_CLIENT_MEMFDS_MAX 28

/* How memory of a GPU was allocated decides who can use it; numbers as in mem/mem.h. */
enum wb_client_device_kind {
	WB_CLIENT_DEVICE_WORKER = 2, /* nobody but this process */
	/* Whoever gets descriptors of it (expandable segments); at most 64 allocations. */
	WB_CLIENT_DEVICE_VMM = 3,
	WB_CLIENT_DEVICE_IPC = 4, /* other processes, by a handle (cudaMalloc) */
};

struct wb_client_device_info {
	size_t size; /* sizeof(struct wb_client_device_info) */
	int kind; /* enum wb_client_device_kind */
	char device[48]; /* "GPU-..." */
	char why[512]; /* WB_CLIENT_DEVICE_WORKER: one sentence, with the setting that helps */
};

/**
 * wb_client_device_memory - find out from the driver how memory of a GPU was allocated
 * @base:	address on the GPU; @bytes from there are of one allocation, or of neighbours
 * @out:	size set by the caller; the rest written on success
 * 0; -EINVAL: no memory of a GPU; -ENOTSUP: no driver here (the sentence says what is missing);
 * -EIO.  Any thread.  Blocks.
 */
WB_API int wb_client_device_memory(
	const void *base, uint64_t bytes, struct wb_client_device_info *out, struct wb_error *err);

/** wb_client_worker - name the agent gave this worker ("" before attach).  Valid until close. */
WB_API const char *wb_client_worker(struct wb_client *c);

/* on_progress: @sentence is the agent's; called only from inside the waiting call. */
typedef void (*wb_client_progress_fn)(void *cookie, const char *sentence);

struct wb_client_plan {
	uint64_t term, number; /* the epoch */
	int64_t version; /* version that the engine had committed at that time, -1 = none */
	char digest[64]; /* text */
};

/**
 * wb_client_wait_planned - wait until all members have attached and the plan is active
 * @on_progress: may be NULL
 * @plan:	written on success; may be NULL
 * Blocks.  Returns 0; -ETIMEDOUT (with the agent's last word: who is missing); the agent's code
 * and sentence when it refuses; -ECONNRESET when the agent stays away; -EINTR.
 */
WB_API int wb_client_wait_planned(struct wb_client *c, uint64_t timeout,
	wb_client_progress_fn on_progress, void *cookie, struct wb_client_plan *plan,
	struct wb_error *err);

/**
 * wb_client_progress - what the agent says is awaited ("" = nothing).  Valid until the next call.
 * For a trainer also while a transfer does not begin: which other trainer worker is missing.
 */
WB_API const char *wb_client_progress(struct wb_client *c);

/* ---- memory that goes and comes ------------------------------------------------------------ */

/**
 * wb_client_release_memory - the parameters' memory is about to go away (sleep, a colocated
 * trainer).  On return nothing of it is used by anybody, nor mapped or registered by the agent or
 * this library; other agents of the node that read it over shared memory unmap it a moment later.
 * Staging memory of this worker is given back; the worker keeps its place in the plan: no probe, no
 * new plan, same epoch.  Until wb_client_acquire_memory() a trainer worker cannot send, and a
 * transfer leaves this worker's engine behind at once, with a sentence that names it.  Polls still
 * count and find nothing.  Blocks while a transfer needs the memory: -ETIMEDOUT at @timeout says
 * which (0 tries once; a release under way goes on: call again).  Releasing twice is 0.  -EINVAL
 * before attach.
 */
WB_API int wb_client_release_memory(struct wb_client *c, uint64_t timeout, struct wb_error *err);

enum wb_client_acquire_flags {
	WB_CLIENT_ACQUIRE_KEPT = 1, /* the parameters hold what they held at release */
};

struct wb_client_acquire {
	size_t size; /* sizeof(struct wb_client_acquire) */
	const struct wb_client_mem *mem; /* as in attach; may be other objects at other addresses */
	uint32_t n_mem;
	const struct wb_client_param *param; /* the same parameters in the same order */
	uint32_t n_param;
	uint32_t flags; /* enum wb_client_acquire_flags */
};

/**
 * wb_client_acquire_memory - the memory is there again
 * Without WB_CLIENT_ACQUIRE_KEPT nothing is fed from this worker until the next transfer.
 * Blocks, at most @timeout.  0; -EALREADY when it is not released; -EINVAL (sizes do not fit the
 * attached parameters, named; shared where private was attached or the other way round), and as
 * attach.  After -ETIMEDOUT and -EINTR it goes on, and the agent may take the memory yet: call
 * again with the same memory (-EBUSY: it is other memory).  After any other failure the memory
 * stays released. Memory of a GPU: work that went to the default stream before is waited for.
 */
WB_API int wb_client_acquire_memory(struct wb_client *c, const struct wb_client_acquire *a,
	uint64_t timeout, struct wb_error *err);

/* ---- trainer worker --------------------------------------------------------------------- */

enum wb_client_send_flags {
	WB_CLIENT_SEND_HOLD = 1, /* parameters stay untouched until wb_client_release() */
};

enum wb_client_transfer_state {
	WB_CLIENT_TRANSFER_ASKED = 0, /* the agent has not started it yet */
	WB_CLIENT_TRANSFER_STARTED = 1,
	WB_CLIENT_TRANSFER_RELEASED = 2, /* the trainer's parameters may change (unless held) */
	WB_CLIENT_TRANSFER_FINAL = 3, /* every engine has an outcome */
};

struct wb_client_transfer_info {
	uint64_t transfer; /* 0 until started */
	int64_t version;
	int state; /* enum wb_client_transfer_state */
	int code; /* 0, or why it failed (WB_CODE_ABORTED ...) */
	double seconds; /* since it was asked for, as the agent measured */
	uint32_t n_engine;
	char sentence[WB_ERROR_MSG_MAX]; /* "" or the cause */
};

/**
 * wb_client_send - all trainer workers call this to send their parameters
 * @version:	the caller's number, the same on all workers; -1 = the transfer's own
 * @flags:	enum wb_client_send_flags
 * @timeout:	bound of the wait for an earlier transfer that is still in flight (overlap: Wait)
 * @out:	on success a handle; release with wb_client_transfer_free() before close
 * Blocks only for the earlier transfer: until its end or, with overlap: Supersede, until it has let
 * this worker's parameters go (then engines that have not begun to install it drop it, and it ends
 * with code 0 and their states "Superseded").  Returns 0; -EBUSY when another thread is inside
 * wb_client_send(); -EINVAL on a rollout worker or before the plan; -ETIMEDOUT; -ECONNRESET;
 * -ENOMEM; -EINTR.
 */
WB_API int wb_client_send(struct wb_client *c, int64_t version, uint32_t flags, uint64_t timeout,
	struct wb_client_transfer **out, struct wb_error *err);

/**
 * wb_client_transfer_wait - wait until the transfer is at least in @state
 * @state:	WB_CLIENT_TRANSFER_RELEASED or _FINAL
 * Blocks.  Returns 0; WB_CODE_ABORTED or another code of the transfer when it failed;
 * WB_CODE_UNKNOWN also when the agent went away meanwhile; -ETIMEDOUT (the transfer goes on; the
 * sentence says what it waits for, if the agent has said so); -EINTR.
 */
WB_API int wb_client_transfer_wait(
	struct wb_client_transfer *t, int state, uint64_t timeout, struct wb_error *err);

/** wb_client_transfer_get - fill in @out with what is known now; takes in news without blocking. */
WB_API void wb_client_transfer_get(
	struct wb_client_transfer *t, struct wb_client_transfer_info *out);

/** wb_client_transfer_engine - name and outcome of engine @i < n_engine; -ENOENT beyond.  The
 *  buffers are NUL-terminated. */
WB_API int wb_client_transfer_engine(struct wb_client_transfer *t, uint32_t i, char *name,
	size_t name_bytes, char *state, size_t state_bytes);

/** wb_client_release - end a hold: on return nobody reads the parameters any more, and they may
 * change.  0; -EINTR (call again), -EINVAL (sent without hold), -ETIMEDOUT (no answer for 60 s) or
 * as wb_client_send().  Blocks while somebody still reads.  A hold does not end with its transfer:
 * an engine that comes later may still be brought to the version. */
WB_API int wb_client_release(struct wb_client_transfer *t, struct wb_error *err);

/** wb_client_transfer_free - drop the handle; the transfer itself goes on.  NULL is allowed. */
WB_API void wb_client_transfer_free(struct wb_client_transfer *t);

/* ---- rollout worker --------------------------------------------------------------------- */

enum wb_client_step {
	WB_CLIENT_STEP_NONE = 0, /* go on serving; u->sentence says why when a transfer aborted */
	WB_CLIENT_STEP_BEFORE = 1, /* run before_update_hook, then wb_client_update_begun() */
	WB_CLIENT_STEP_AFTER = 2, /* committed: run after_update_hook, then _resumed() */
};

struct wb_client_update {
	uint64_t transfer;
	int64_t version;
	char digest[64]; /* of the plan and version, text; AFTER only */
	char sentence[WB_ERROR_MSG_MAX]; /* NONE after an abort: why; else "" */
	uint32_t torn; /* BEFORE: the parameters are a mix, which this update is to repair; AFTER:
			* they were, and it has */
};

/**
 * wb_client_poll - count one poll; tell whether this worker has to stop here
 * Call it once in every decoding step, on every worker of the engine alike.  It takes a few
 * nanoseconds and no system call when there is nothing to do.
 * Returns 0 (go on); 1: call wb_client_update_step() until it is done; -EPERM in a forked child,
 * -EINVAL on a trainer worker or before attach.  Any one thread.
 */
WB_API int wb_client_poll(struct wb_client *c);

/**
 * wb_client_update_step - after poll gave 1: wait for what comes next
 * @u:		written on success
 * Blocks until the engine's workers have agreed, or the update has ended, or @timeout.
 * Returns an enum wb_client_step >= 0.  After BEFORE call wb_client_update_begun() and then this
 * again; after AFTER call wb_client_update_resumed() and serve; after NONE serve.
 * WB_CODE_TORN: parameters are a mix and repair did not come within repair_timeout (do not serve;
 * the next poll waits for repair again).  An update that leaves a mix runs no after_update_hook;
 * the one that repairs it is an update like any other, with @u->torn set.  -EAGAIN: @timeout
 * passed, call again.  -ETIMEDOUT: update_timeout passed (the sentence says what was awaited), the
 * worker may serve on. -ECONNRESET: the agent stayed away for reconnect_timeout.  -EINTR: call
 * again.
 */
WB_API int wb_client_update_step(
	struct wb_client *c, uint64_t timeout, struct wb_client_update *u, struct wb_error *err);

/** wb_client_update_begun - answer BEFORE: the hook returned (@code 0) or raised (@code < 0, which
 * aborts the transfer; @sentence says why, NULL is allowed).  0 or -EINVAL. */
WB_API int wb_client_update_begun(
	struct wb_client *c, int code, const char *sentence, struct wb_error *err);

/** wb_client_update_resumed - answer AFTER in the same way.  The new weights stay in either
 * case. */
WB_API int wb_client_update_resumed(
	struct wb_client *c, int code, const char *sentence, struct wb_error *err);

struct wb_client_hooks {
	int (*before_update)(void *cookie, const struct wb_client_update *u); /* 0 or a code */
	int (*after_update)(void *cookie, const struct wb_client_update *u);
	void *cookie;
};

/**
 * wb_client_poll_requests - poll, step and hooks in one call, for C programs
 * @hooks:	may be NULL, and so may its functions
 * Returns 1 and fills @u when the worker now runs a new version; 0 to go on; else as update_step
 * (-EINTR is retried).
 */
WB_API int wb_client_poll_requests(struct wb_client *c, const struct wb_client_hooks *hooks,
	struct wb_client_update *u, struct wb_error *err);

/**
 * wb_client_idle - the middle of a blocking update: wait until an update wants this engine
 * For engines that do not poll in a loop.  A collective update(timeout) on all workers is
 *	poll; when it gave 0: idle(timeout), then poll again
 * so that each call counts twice, or ends at a stop, on every worker alike (aligned by call).
 * Returns 1 when a stop is set, 0 at @timeout, else as update_step.
 */
WB_API int wb_client_idle(struct wb_client *c, uint64_t timeout, struct wb_error *err);

/**
 * wb_client_update_wait - such a collective update(timeout) with hooks, for C programs
 * With WB_FOREVER it returns only with an update (or an error).  A finite timeout may end early,
 * with 0, when another worker's has.  Returns as wb_client_poll_requests().
 */
WB_API int wb_client_update_wait(struct wb_client *c, uint64_t timeout,
	const struct wb_client_hooks *hooks, struct wb_client_update *u, struct wb_error *err);

/**
 * wb_client_fileno - a descriptor that is readable when the worker should poll
 * It stays the same over agent restarts; owned by the client; only to be waited on.  Negative on
 * failure.
 */
WB_API int wb_client_fileno(struct wb_client *c);

#ifdef __cplusplus
}
#endif
#endif
