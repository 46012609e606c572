/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_TABLE_H
#define WB_EXTRACT_TABLE_H
/*
 * A device as extraction uses it: a stream, memory, and tables of work that become launches.
 *
 * A table takes items until it is full.  Then it is copied to the device and run, and what was
 * found is handed to the table's own function, item by item in the order in which they were added;
 * the last part runs at flush.  The memory that a table takes, on the host and on the device, does
 * not depend on the size of parameters.
 *
 * Threads: one at a time for each device (lock), with its context entered: wb__dev_do().  All of it
 * blocks.  Layer: extract.
 */
#include "extract/device.h"
#include "kernels/gpu.h"
#include "mem/gpu.h"

#define WB__TABLE_ITEMS 8192u /* most items of a launch */
#define WB__HITS_STAGE 4096u /* hits that are copied at once */
#define WB__HITS_LEAST 1024u /* hits for which there is room on a device with little memory */

/* Memory for content: of the device, or of the host if kernels can reach it. */
struct wb__store {
	uint64_t addr; /* address for kernels; 0 = none */
	void *host; /* address for the host; NULL: memory of the device */
	uint64_t bytes;
};

/* What a launch reads and writes; there is one on the host (pinned), and a copy on the device. */
struct wb__desk {
	struct wbk_sum_keys keys;
	/* For moves: first tiles for each kernel */
	uint32_t first[WBK_MOVES * (WB__TABLE_ITEMS + 1)];
	void *base[WB__TABLE_ITEMS]; /* base of each op */
	uint8_t item[WB__TABLE_ITEMS * sizeof(struct wbk_op)];
	uint64_t n_hit;
	union {
		struct wbk_found found[WB__TABLE_ITEMS];
		struct wbk_sum sum[WB__TABLE_ITEMS];
	} out;
	struct wbk_hit stage[WB__HITS_STAGE]; /* used only on the host */
};

struct wb__dev {
	struct wb_probe *p;
	struct wb_gpu *gpu; /* owned reference */
	pthread_mutex_t lock;
	void *module[WBK_GPU_COUNT], *fn[WBK_GPU_COUNT];
	void *stream;
	struct wb__desk *desk; /* pinned, owned */
	uint64_t dev; /* address of the device's copy of the desk */
	uint64_t hit; /* address of the device's array of struct wbk_hit */
	uint64_t cap; /* how many hits it has room for */
	struct wb__store before[2]; /* snapshots: on the device, and those that had no room there */
	struct wb__store was, cls;
	/* For each item of the table, the number of its parameter */
	uint32_t owner[WB__TABLE_ITEMS];
	uint64_t out_bytes; /* copied to the host */
};

/** wb__dev_fails - turn @result of the driver into a code; the first failure is kept in dev_err. */
int wb__dev_fails(struct wb__dev *d, int result, const char *what);
/** wb__dev_of - the device of the probe that @addr lies on; NULL: none of them. */
struct wb__dev *wb__dev_of(const struct wb_probe *p, const void *addr);
/** wb__probe_says - keep a failure with a code and sentence of our own, if it is the first; returns
 * @rc. */
int wb__probe_says(struct wb_probe *p, int rc, const char *sentence);
/** wb__dev_says - as wb__probe_says(), for the probe of @d. */
int wb__dev_says(struct wb__dev *d, int rc, const char *sentence);
/** wb__dev_do - run @step with the device locked and its context entered; returns what @step
 * returns, or a negative code. */
int wb__dev_do(struct wb__dev *d, int (*step)(struct wb__dev *d, void *ctx), void *ctx);
/** wb__dev_each - wb__dev_do() for every device, also after a failure; returns the first
 * failure. */
int wb__dev_each(struct wb_probe *p, int (*step)(struct wb__dev *d, void *ctx), void *ctx);

/** wb__dev_next - the device's next parameter after @a (NULL: the first one); NULL at the end. */
struct wb__param *wb__dev_next(const struct wb__dev *d, const struct wb__param *a);
#define for_on_device(d, a)                                                                        \
	for (struct wb__param *a = wb__dev_next(d, NULL); a; a = wb__dev_next(d, a))

/** wb__dense_bytes - size of a parameter's elements in bytes, without gaps. */
uint64_t wb__dense_bytes(const struct wb__param *a);
/** wb__room - @bytes rounded up to full lines, at which parameters begin in a store. */
uint64_t wb__room(uint64_t bytes);
/** wb__store_get - allocate @bytes bytes on the device, or, if it lacks them and @or_host, on the
 * host.  0; -ENOMEM; as wb_gpu_rc().  Call wb__store_put() in any case. */
int wb__store_get(struct wb__dev *d, uint64_t bytes, bool or_host, struct wb__store *out);
/** wb__store_get_host - the same, only on the host. */
int wb__store_get_host(struct wb__dev *d, uint64_t bytes, struct wb__store *out);
/** wb__store_put - free the memory; *@s is zeroed afterwards. */
void wb__store_put(struct wb__dev *d, struct wb__store *s);
/** wb__dev_wait - wait until all work in the device's stream is done; returns the driver's result.
 * If the call fails without having waited it is made once more, since the caller will use the desk
 * again. */
int wb__dev_wait(struct wb__dev *d);
/** wb__dev_out - copy to the host and wait. */
int wb__dev_out(struct wb__dev *d, void *to, uint64_t from, size_t bytes);

/* ---- moving: whole parameters to and from dense memory, and their sums ----------------------- */

struct wb__moves {
	struct wb__dev *d;
	enum wbk_way way;
	uint64_t wire; /* first byte of the dense memory of this launch's ops */
	uint32_t n;
};

/**
 * wb__moves_add - add a move of all elements of @a
 * @data:	where they lie, with its strides
 * @wire:	dense memory; ignored for WBK_WAY_SUM, which adds the sum to the parameter's
 * @store:	the store that contains @wire
 * 0, or a negative code.
 */
int wb__moves_add(struct wb__moves *m, struct wb__param *a, const uint8_t *data, uint64_t wire,
	const struct wb__store *store);
/** wb__moves_flush - run what was added.  Returns as wb__moves_add(). */
int wb__moves_flush(struct wb__moves *m);

/* ---- scans ----------------------------------------------------------------------------------- */

struct wb__scan {
	struct wb__dev *d;
	enum wbk_gpu which;
	uint32_t item_bytes;
	/* Called with what was found in one item; @hit is sorted, and empty when f->is_over.  Must
	 * not use the device.  NULL: the kernel finds nothing. */
	int (*found)(struct wb__scan *s, const void *item, struct wb__param *owner,
		const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit);
	void *ctx; /* of found */
	uint32_t n;
};

/** wb__scan_of - an empty table. */
struct wb__scan wb__scan_of(struct wb__dev *d, enum wbk_gpu which, uint32_t item_bytes);

/* Size of an item's work. */
struct wb__extent {
	uint64_t rows, cols; /* scanned */
	uint32_t times;
};

/** wb__scan_add - add one item, which is copied.  0; -E2BIG: too large for any launch; or what
 * found or the driver returned. */
int wb__scan_add(struct wb__scan *s, const void *item, const struct wb__extent *extent,
	const struct wb__param *owner);
/** wb__scan_flush - run what was added, and hand out what was found.  Returns as wb__scan_add(). */
int wb__scan_flush(struct wb__scan *s);

/** wb__bad_add - add the bad elements @r of a part that begins at @index of the parameter; parts
 * must come in order. */
void wb__bad_add(struct wb__bad *b, const struct wbk_range *r, uint64_t index);

/** wb__plane_of - describe slab @slab of a parameter. */
struct wbk_plane wb__plane_of(const struct wb__param *a, uint64_t slab);
/** wb__scan_planes - add an item for each slab of @a; @item begins with the plane, which is set
 * here. */
int wb__scan_planes(struct wb__scan *s, void *item, const struct wb__param *a,
	void (*at)(void *item, const struct wb__param *a, uint64_t index));

/* ---- counting (device_pass.c) ---------------------------------------------------------------- */

struct wb__count {
	enum wb_pass_kind kind; /* pass of the constant */
	bool has_like; /* compare with snapshots, too */
};

/** wb__count_one - add items that count n_equal and n_unlike of @a, for wb__count_take(). */
int wb__count_one(struct wb__scan *s, struct wb__param *a, const struct wb__count *c);
/** wb__count_take - as wb__scan.found. */
int wb__count_take(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit);
/** wb__count_all - count for all parameters that take part; @ctx: struct wb__count.  For
 * wb__dev_each(). */
int wb__count_all(struct wb__dev *d, void *ctx);
/** wb__check_left - call @changed for each LEFT parameter whose content has changed. */
int wb__check_left(struct wb__dev *d, void (*changed)(struct wb_probe *p, struct wb__param *a));

#endif
