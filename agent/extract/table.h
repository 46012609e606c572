/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_TABLE_H
#define WB_EXTRACT_TABLE_H
/*
 * A device as extraction uses it: a stream, memory, and tables of work that become launches.
 *
 * A table takes items until it is full, then it is copied to the device, run, and what was found is
 * handed to the table's own function, item by item in the order in which they were added; the last
 * part runs at flush.  What a table costs in memory, here and there, does not depend on how large
 * parameters are.
 *
 * Threads: one at a time a device (lock), with its context entered: wb__dev_do().  All of it
 * blocks.  Layer: extract.
 */
#include "extract/device.h"
#include "kernels/gpu.h"
#include "mem/gpu.h"

#define WB__TABLE_ITEMS 8192u /* of a launch */
#define WB__HITS_STAGE 4096u /* that are copied at once */
#define WB__HITS_LEAST 1024u /* that there is room for on a device with little memory */

/* Memory for content: of the device, or of the host where kernels reach it. */
struct wb__store {
	uint64_t addr; /* for kernels; 0 = none */
	void *host; /* NULL: of the device */
	uint64_t bytes;
};

/* What a launch reads and writes, here (pinned) and on the device alike. */
struct wb__desk {
	struct wbk_sum_keys keys;
	uint32_t first[WBK_MOVES * (WB__TABLE_ITEMS + 1)]; /* of moves: for each kernel */
	void *base[WB__TABLE_ITEMS]; /* of each op */
	uint8_t item[WB__TABLE_ITEMS * sizeof(struct wbk_op)];
	uint64_t n_hit;
	union {
		struct wbk_found found[WB__TABLE_ITEMS];
		struct wbk_sum sum[WB__TABLE_ITEMS];
	} out;
	struct wbk_hit stage[WB__HITS_STAGE]; /* used here alone */
};

struct wb__dev {
	struct wb_probe *p;
	struct wb_gpu *gpu; /* owned reference */
	pthread_mutex_t lock;
	void *module[WBK_GPU_COUNT], *fn[WBK_GPU_COUNT];
	void *stream;
	struct wb__desk *desk; /* pinned, owned */
	uint64_t dev; /* the device's copy */
	uint64_t hit; /* wbk_hit of the device */
	uint64_t cap; /* how many */
	struct wb__store before[2]; /* snapshots: on the device, and what had no room there */
	struct wb__store was, cls;
	uint32_t owner[WB__TABLE_ITEMS]; /* of the items of the table: a parameter's number */
	uint64_t out_bytes; /* copied to the host */
};

/** wb__dev_fails - @result of the driver as a code; the first one that is none goes to dev_err. */
int wb__dev_fails(struct wb__dev *d, int result, const char *what);
/** wb__dev_of - the device of the probe that @addr lies on; NULL: none of them. */
struct wb__dev *wb__dev_of(const struct wb_probe *p, const void *addr);
/** wb__probe_says - the same for a code and a sentence of our own; returns @rc. */
int wb__probe_says(struct wb_probe *p, int rc, const char *sentence);
/** wb__dev_says - the same. */
int wb__dev_says(struct wb__dev *d, int rc, const char *sentence);
/** wb__dev_do - @step with the device locked and its context entered. */
int wb__dev_do(struct wb__dev *d, int (*step)(struct wb__dev *d, void *ctx), void *ctx);
/** wb__dev_each - wb__dev_do() for every device; the first failure, after all had their turn. */
int wb__dev_each(struct wb_probe *p, int (*step)(struct wb__dev *d, void *ctx), void *ctx);

/** wb__dev_next - the parameter of the device after @a; NULL: the first, and at the end. */
struct wb__param *wb__dev_next(const struct wb__dev *d, const struct wb__param *a);
#define for_on_device(d, a)                                                                        \
	for (struct wb__param *a = wb__dev_next(d, NULL); a; a = wb__dev_next(d, a))

/** wb__dense_bytes - of a parameter's elements. */
uint64_t wb__dense_bytes(const struct wb__param *a);
/** wb__room - @bytes up to full lines: parameters begin there in what is kept of them. */
uint64_t wb__room(uint64_t bytes);
/** wb__store_get - @bytes bytes of the device, or when it lacks them and @or_host of the host.  0;
 *  -ENOMEM; as wb_gpu_rc().  wb__store_put() in any case. */
int wb__store_get(struct wb__dev *d, uint64_t bytes, bool or_host, struct wb__store *out);
/** wb__store_get_host - the same, of the host alone. */
int wb__store_get_host(struct wb__dev *d, uint64_t bytes, struct wb__store *out);
/** wb__store_put - give it back; zeroed after. */
void wb__store_put(struct wb__dev *d, struct wb__store *s);
/** wb__dev_wait - until all in the device's stream is done; the driver's result.  What fails
 * without having waited is asked once more: whoever goes on uses the desk anew. */
int wb__dev_wait(struct wb__dev *d);
/** wb__dev_out - copy to the host and wait. */
int wb__dev_out(struct wb__dev *d, void *to, uint64_t from, size_t bytes);

/* ---- moving: whole parameters to and from dense memory, and their sums ----------------------- */

struct wb__moves {
	struct wb__dev *d;
	enum wbk_way way;
	uint64_t wire; /* first byte of what ops of this launch lie in */
	uint32_t n;
};

/**
 * wb__moves_add - all elements of @a
 * @data:	where they lie, in its strides
 * @wire:	dense memory; for WBK_WAY_SUM ignored: the sum is added to the parameter's
 * @store:	of which @wire is a part
 * 0, or a negative code.
 */
int wb__moves_add(struct wb__moves *m, struct wb__param *a, const uint8_t *data, uint64_t wire,
	const struct wb__store *store);
/** wb__moves_flush - run what was added.  As wb__moves_add(). */
int wb__moves_flush(struct wb__moves *m);

/* ---- scans ----------------------------------------------------------------------------------- */

struct wb__scan {
	struct wb__dev *d;
	enum wbk_gpu which;
	uint32_t item_bytes;
	/* What was found in one item; @hit sorted, none when it is over.  Must not use the device.
	 * NULL: nothing is looked for. */
	int (*found)(struct wb__scan *s, const void *item, struct wb__param *owner,
		const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit);
	void *ctx; /* of found */
	uint32_t n;
};

/** wb__scan_of - an empty table. */
struct wb__scan wb__scan_of(struct wb__dev *d, enum wbk_gpu which, uint32_t item_bytes);

/* What an item takes. */
struct wb__extent {
	uint64_t rows, cols; /* looked at */
	uint32_t times;
};

/** wb__scan_add - one item more, copied.  0, -E2BIG: too large for any launch; what found and the
 *  driver return. */
int wb__scan_add(struct wb__scan *s, const void *item, const struct wb__extent *extent,
	const struct wb__param *owner);
/** wb__scan_flush - run what was added, and hand out what was found.  As wb__scan_add(). */
int wb__scan_flush(struct wb__scan *s);

/** wb__bad_add - elements of a part that begins at @index of the parameter; parts come in
 *  order. */
void wb__bad_add(struct wb__bad *b, const struct wbk_range *r, uint64_t index);

/** wb__plane_of - slab @slab of a parameter. */
struct wbk_plane wb__plane_of(const struct wb__param *a, uint64_t slab);
/** wb__scan_planes - an item for each slab of @a; the item begins with the plane, which is set. */
int wb__scan_planes(struct wb__scan *s, void *item, const struct wb__param *a,
	void (*at)(void *item, const struct wb__param *a, uint64_t index));

/* ---- counting (device_pass.c) ---------------------------------------------------------------- */

struct wb__count {
	enum wb_pass_kind kind; /* of the constant */
	bool has_like; /* compare with snapshots as well */
};

/** wb__count_one - items that count n_equal and n_unlike of @a, for wb__count_take(). */
int wb__count_one(struct wb__scan *s, struct wb__param *a, const struct wb__count *c);
/** wb__count_take - as wb__scan.found. */
int wb__count_take(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit);
/** wb__count_all - of all parameters that take part; @ctx: struct wb__count.  For wb__dev_each().
 */
int wb__count_all(struct wb__dev *d, void *ctx);
/** wb__check_left - call @changed for each parameter that is no longer as it was LEFT. */
int wb__check_left(struct wb__dev *d, void (*changed)(struct wb_probe *p, struct wb__param *a));

#endif
