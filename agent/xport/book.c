/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/book.h"

#include "base/mem.h"
#include "net/psk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONNS_FIRST 64u
#define PLACE_BITS 16 /* enough for WB_XPORT_CONNS_MAX places */
#define PAGE_MIN 4096u /* the smallest page size of any host */
#define GEN_MASK ((1u << (WB__TAG_SHIFT - PLACE_BITS)) - 1)

_Static_assert(WB_XPORT_SET_MAX <= 1u << (32 - WB__TAG_SHIFT), "a tag for each of a set");

void wb__book_init(struct wb__book *b, uint32_t conns_max, uint32_t caps)
{
	assert(conns_max && conns_max <= WB_XPORT_CONNS_MAX);
	b->conns_max = conns_max;
	b->needs_regions = caps & WB_XPORT_CAP_REGIONS;
	b->moves_gpu = caps & WB_XPORT_CAP_GPU;
	b->dying_tail = &b->dying;
}

void wb__book_finish(struct wb__book *b)
{
	explicit_bzero(b->epoch, sizeof(b->epoch));
	wb_free(b->conn);
	b->conn = NULL;
	b->conn_cap = b->n_conn = 0;
}

/* ---- epochs -----------------------------------------------------------------------------------
 */

const struct wb_xport_epoch *wb__book_epoch_find(
	const struct wb__book *b, const struct wb_epoch_id *id)
{
	for (uint32_t i = 0; i < b->n_epoch; i++)
		if (wb_epoch_id_eq(&b->epoch[i].id, id))
			return &b->epoch[i];
	return NULL;
}

const struct wb_xport_epoch *wb__book_epoch_named(
	const struct wb__book *b, uint64_t object, uint64_t term, uint64_t number)
{
	for (uint32_t i = 0; i < b->n_epoch; i++) {
		const struct wb_epoch_id *id = &b->epoch[i].id;

		if (id->object.hash == object && id->term == term && id->number == number)
			return &b->epoch[i];
	}
	return NULL;
}

int wb__book_epoch_known(
	const struct wb__book *b, const struct wb_xport_epoch *e, struct wb_err *err)
{
	const struct wb_xport_epoch *known = wb__book_epoch_find(b, &e->id);

	if (!known)
		return 0;
	if (wb_bytes_equal(known->key, e->key, sizeof(e->key)) &&
		known->is_encrypted == e->is_encrypted)
		return 1;
	return wb_err_set(err, -EEXIST, "epoch %llu.%llu is known with another key or encryption",
		(unsigned long long)e->id.term, (unsigned long long)e->id.number);
}

int wb__book_epoch_put(struct wb__book *b, const struct wb_xport_epoch *e, struct wb_err *err)
{
	assert(!wb__book_epoch_find(b, &e->id));
	if (b->n_epoch == WB__EPOCHS_MAX)
		return wb_err_set(err, -ENOSPC, "more than %d epochs at once", WB__EPOCHS_MAX);
	b->epoch[b->n_epoch++] = *e;
	return 0;
}

int wb__book_epoch_forget(struct wb__book *b, const struct wb_epoch_id *id)
{
	const struct wb_xport_epoch *known = wb__book_epoch_find(b, id);

	if (!known)
		return -ENOENT;
	b->epoch[known - b->epoch] = b->epoch[--b->n_epoch];
	explicit_bzero(&b->epoch[b->n_epoch], sizeof(b->epoch[0]));
	return 0;
}

/* ---- regions ----------------------------------------------------------------------------------
 */

static int check_gpu(const struct wb_xport_region *r, struct wb_err *err)
{
	const struct wb_xport_gpu *g = &r->gpu;

	if (!memchr(g->pci, '\0', sizeof(g->pci)) || strchr(g->pci, '/'))
		return wb_err_set(
			err, -EINVAL, "a region's GPU has a PCI address that sysfs does not know");
	if (!g->is_there)
		return g->pci[0] || g->dmabuf_off || g->any_nic
			       ? wb_err_set(err, -EINVAL,
					 "a region is the host's memory, and says where a GPU is")
			       : 0;
	if (r->fd >= 0)
		return wb_err_set(err, -EINVAL,
			"a region of a GPU has a memfd: what it has is gpu.dmabuf_fd");
	if (g->dmabuf_fd >= 0 && (g->dmabuf_off ^ (uintptr_t)r->base) & (PAGE_MIN - 1))
		return wb_err_set(err, -EINVAL,
			"a region of a GPU begins at %#llx of its dma-buf, which is another place "
			"in a page than its address has",
			(unsigned long long)g->dmabuf_off);
	return 0;
}

int wb__region_check(const struct wb_xport_region *r, struct wb_err *err)
{
	if (!r->bytes || !r->base || r->bytes > (uintptr_t)-1 - (uintptr_t)r->base)
		return wb_err_set(err, -EINVAL, "an empty region");
	if ((unsigned)r->direction > WB_XPORT_LANDING)
		return wb_err_set(err, -EINVAL, "a region has no direction %d", (int)r->direction);
	return check_gpu(r, err);
}

int wb__book_region_put(
	struct wb__book *b, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	uint32_t i = 0;
	int rc = wb__region_check(r, err);

	if (rc)
		return rc;
	while (i < WB__REGIONS_MAX && b->region[i].is_used)
		i++;
	if (i == WB__REGIONS_MAX)
		return wb_err_set(err, -ENOSPC, "more than %d regions", WB__REGIONS_MAX);
	b->region[i] = (struct wb__region){.is_used = true, .r = *r};
	b->n_region = WB_MAX(b->n_region, i + 1);
	if (wb__region_is_source(r))
		wb__regions_put(&b->by_address, i, r);
	if (r->gpu.is_there)
		wb__regions_put(&b->of_gpu, i, r);
	*id = i;
	return 0;
}

const struct wb_xport_region *wb__book_region_get(const struct wb__book *b, uint32_t id)
{
	return id < b->n_region && b->region[id].is_used ? &b->region[id].r : NULL;
}

int wb__book_region_drop(struct wb__book *b, uint32_t id)
{
	if (!wb__book_region_get(b, id))
		return -ENOENT;
	if (b->region[id].refs)
		return -EBUSY;
	wb__regions_drop(&b->by_address, id);
	wb__regions_drop(&b->of_gpu, id);
	b->region[id].is_used = false;
	return 0;
}

/* Add @by to the use count of each range's region.  Stops at the first range that is in no region,
 * and returns how many ranges came before it. */
static uint32_t count_ranges(
	struct wb__book *b, uint64_t object, const struct iovec *iov, uint32_t n_iov, uint32_t by)
{
	uint32_t i;

	for (i = 0; i < n_iov; i++) {
		uint32_t id =
			wb__regions_find(&b->by_address, object, iov[i].iov_base, iov[i].iov_len);

		if (id == WB__REGION_NONE)
			return i;
		assert(by != (uint32_t)-1 || b->region[id].refs);
		b->region[id].refs += by;
	}
	return i;
}

bool wb__book_in_regions(
	struct wb__book *b, uint64_t object, const struct iovec *iov, uint32_t n_iov)
{
	return count_ranges(b, object, iov, n_iov, 0) == n_iov;
}

/* Is memory of a GPU among the ranges?  1, 0, or -EINVAL: a range touches such memory, but no
 * region holds all of the range. */
static int is_gpu(struct wb__book *b, uint64_t object, const struct iovec *iov, uint32_t n_iov)
{
	int is = 0;

	for (uint32_t i = 0; b->of_gpu.n && i < n_iov; i++) {
		if (!wb__regions_touch(&b->of_gpu, object, iov[i].iov_base, iov[i].iov_len))
			continue;
		is = 1;
		if (wb__regions_find(&b->of_gpu, object, iov[i].iov_base, iov[i].iov_len) ==
			WB__REGION_NONE)
			return -EINVAL;
	}
	return is;
}

/* Check a grant or write by what is_gpu() has returned (@is).  The CPU must not touch memory of a
 * GPU, so a grant or write there has no observer (@is_looked_at), and a grant has a copy function
 * (@is_put).  0: it is memory of the host; 1: it is a GPU's, and all is well. */
static int check_ranges(const struct wb__book *b, int is, bool is_looked_at, bool is_put)
{
	if (is <= 0)
		return is;
	if (!b->moves_gpu)
		return -ENOTSUP;
	return is_looked_at || !is_put ? -EINVAL : 1;
}

static int hold(struct wb__book *b, uint64_t object, const struct iovec *iov, uint32_t n_iov)
{
	uint32_t n = b->needs_regions ? count_ranges(b, object, iov, n_iov, 1) : n_iov;

	if (n == n_iov)
		return 0;
	count_ranges(b, object, iov, n, (uint32_t)-1);
	return -EINVAL;
}

static void let_go(struct wb__book *b, const struct wb__account *c, const struct wb__op *op)
{
	if (b->needs_regions)
		count_ranges(b, c->info.epoch.object.hash, op->iov, op->n_iov, (uint32_t)-1);
}

/* ---- the table of connections -----------------------------------------------------------------
 */

/* Make the table larger when it is half full, so that a free place is found at once, and a walk
 * through the table takes time in proportion to the number of connections. */
static int make_room(struct wb__book *b)
{
	uint32_t cap = WB_MAX(2 * b->conn_cap, CONNS_FIRST);
	struct wb__account **conn;

	if (b->n_conn == b->conns_max)
		return -ENOSPC;
	cap = WB_MIN(cap, b->conns_max);
	if (2 * b->n_conn < b->conn_cap || cap == b->conn_cap)
		return 0;
	conn = wb_realloc_array(b->conn, cap, sizeof(struct wb__account *));
	if (!conn)
		return -ENOMEM;
	memset(conn + b->conn_cap, 0, (cap - b->conn_cap) * sizeof(struct wb__account *));
	b->conn = conn;
	b->conn_cap = cap;
	return 0;
}

static int make_slots(struct wb__account *c)
{
	uint32_t n = c->n_lane * c->n_slot;

	c->op = wb_zalloc(n, sizeof(*c->op));
	if (c->info.is_dialer)
		c->free_slot = wb_zalloc(n, sizeof(*c->free_slot));
	else
		c->ask = wb_zalloc(n, sizeof(*c->ask));
	if (!c->op || (!c->free_slot && !c->ask))
		return -ENOMEM;
	for (uint32_t i = 0; c->info.is_dialer && i < n; i++)
		c->free_slot[i] = (uint16_t)(c->n_slot - 1 - i % c->n_slot);
	for (uint32_t i = 0; i < c->n_lane; i++)
		c->n_free[i] = (uint16_t)c->n_slot;
	return 0;
}

static uint32_t place_of(wb_conn_t id)
{
	return id & ((1u << PLACE_BITS) - 1);
}

/* Places are used in turn, and the upper bits count up, so no number comes back soon. */
static void give_number(struct wb__book *b, struct wb__account *c)
{
	uint32_t at = b->conn_hint % b->conn_cap;

	while (b->conn[at])
		at = (at + 1) % b->conn_cap;
	b->conn_gen = (b->conn_gen + 1) & GEN_MASK;
	if (!b->conn_gen)
		b->conn_gen = 1;
	c->id = b->tag << WB__TAG_SHIFT | b->conn_gen << PLACE_BITS | at;
	c->info.conn = c->id;
	b->conn[at] = c;
	b->n_conn++;
	b->conn_hint = at + 1;
}

int wb__book_open(struct wb__book *b, struct wb__account *c, const struct wb_xport_conn_info *info,
	uint32_t n_lane, uint32_t n_slot)
{
	int rc = make_room(b);

	assert(n_lane && n_lane <= WB_XPORT_SOCKETS_MAX && n_slot && n_slot <= UINT16_MAX);
	assert(n_lane * n_slot >= info->depth);
	if (rc)
		return rc;
	c->info = *info;
	if (!c->info.via)
		c->info.via = b->via;
	c->n_lane = n_lane;
	c->n_slot = n_slot;
	rc = make_slots(c);
	if (rc) {
		wb__account_finish(c);
		return rc;
	}
	give_number(b, c);
	return 0;
}

void wb__account_finish(struct wb__account *c)
{
	wb_free(c->op);
	wb_free(c->free_slot);
	wb_free(c->ask);
	c->op = NULL;
	c->free_slot = NULL;
	c->ask = NULL;
}

void wb__book_drop(struct wb__book *b, struct wb__account *c)
{
	assert(wb__book_get(b, c->id) == c);
	b->conn[place_of(c->id)] = NULL;
	b->n_conn--;
}

struct wb__account *wb__book_get(const struct wb__book *b, wb_conn_t id)
{
	uint32_t at = place_of(id);

	if (at >= b->conn_cap || !b->conn[at] || b->conn[at]->id != id)
		return NULL;
	return b->conn[at];
}

struct wb__account *wb__book_next(const struct wb__book *b, uint32_t *at)
{
	while (*at < b->conn_cap) {
		struct wb__account *c = b->conn[(*at)++];

		if (c)
			return c;
	}
	return NULL;
}

struct wb__account *wb__book_of_epoch(
	const struct wb__book *b, const struct wb_epoch_id *id, uint32_t *at)
{
	struct wb__account *c;

	while ((c = wb__book_next(b, at)))
		if (wb_epoch_id_eq(&c->info.epoch, id))
			return c;
	return NULL;
}

/* ---- a connection comes and goes --------------------------------------------------------------
 */

void wb__book_up(struct wb__account *c, struct wb_xport_event *ev)
{
	assert(c->state == WB__C_OPENING);
	c->state = WB__C_UP;
	c->was_announced = true;
	ev->kind = WB_XP_CONN_UP;
	ev->conn = c->id;
	ev->info = &c->info;
}

bool wb__book_close(struct wb__account *c, int code, const char *reason)
{
	if (c->state >= WB__C_CLOSING)
		return false;
	c->state = WB__C_CLOSING;
	c->code = code;
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
	return true;
}

void wb__book_down(struct wb__book *b, struct wb__account *c)
{
	assert(c->state == WB__C_CLOSING);
	c->state = WB__C_DYING;
	c->told = 0;
	c->next = NULL;
	*b->dying_tail = c;
	b->dying_tail = &c->next;
}

static void end_write(struct wb__book *b, struct wb__account *c, struct wb__op *op)
{
	let_go(b, c, op);
	op->state = WB__OP_FREE;
	c->ask[op - c->op].state = WB__ASK_NONE;
}

/* End an op because its connection is down.  false: the user has heard of its end already. */
static bool tell_op(
	struct wb__book *b, struct wb__account *c, struct wb__op *op, struct wb_xport_event *ev)
{
	if (op->state == WB__OP_FREE || op->state == WB__OP_CANCELLED)
		return false;
	ev->kind = c->info.is_dialer ? WB_XP_LOST : WB_XP_WRITE_DONE;
	ev->cookie = op->cookie;
	if (!c->info.is_dialer)
		end_write(b, c, op);
	op->state = WB__OP_FREE;
	return true;
}

bool wb__book_tell(struct wb__book *b, struct wb_xport_event *ev, struct wb__account **ended)
{
	struct wb__account *c = b->dying;

	*ended = NULL;
	if (!c)
		return false;
	ev->conn = c->id;
	ev->code = c->code;
	while (c->told < c->n_lane * c->n_slot) {
		if (tell_op(b, c, &c->op[c->told++], ev))
			return true;
	}
	b->dying = c->next;
	if (!b->dying)
		b->dying_tail = &b->dying;
	wb__book_drop(b, c);
	ev->kind = c->was_announced ? WB_XP_CONN_DOWN : WB_XP_REJECTED;
	ev->conn = c->was_announced ? c->id : 0;
	ev->info = &c->info;
	ev->reason = c->reason;
	*ended = c;
	return true;
}

/* ---- what the user asks for -------------------------------------------------------------------
 */

static int sum_iov(const struct iovec *iov, uint32_t n_iov, uint64_t bytes)
{
	uint64_t sum = 0;

	if (!n_iov || n_iov > WB_XPORT_IOV_MAX || bytes > WB_XPORT_CHUNK_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_iov; i++) {
		if (!iov[i].iov_base || !iov[i].iov_len || iov[i].iov_len > bytes - sum)
			return -EINVAL;
		sum += iov[i].iov_len;
	}
	return sum == bytes ? 0 : -EINVAL;
}

/* Pick the lane that has a free slot and the fewest bytes to move; false: none has a free slot.
 * Equally loaded lanes take turns, so that all lanes work even when there are fewer grants than
 * lanes. */
static bool pick_lane(const struct wb__account *c, uint32_t *lane)
{
	bool found = false;

	for (uint32_t k = 0; k < c->n_lane; k++) {
		uint32_t i = (c->turn + k) % c->n_lane;

		if (!c->n_free[i] || (found && c->load[i] >= c->load[*lane]))
			continue;
		found = true;
		*lane = i;
	}
	return found;
}

static void begin(struct wb__op *op)
{
	op->at = op->seen = (struct wb__at){0};
	op->flip_bit = UINT64_MAX;
	op->is_dead = op->is_answered = false;
}

int wb__book_grant(
	struct wb__book *b, wb_conn_t conn, const struct wb_xport_grant *g, struct wb__entry *out)
{
	struct wb__account *c = wb__book_get(b, conn);
	struct wb__op *op;
	uint32_t lane = 0, slot;
	int rc;

	if (!c || c->state >= WB__C_CLOSING)
		return -ENOTCONN;
	if (!c->info.is_dialer || c->state != WB__C_UP || sum_iov(g->iov, g->n_iov, g->chunk.bytes))
		return -EINVAL;
	rc = check_ranges(
		b, is_gpu(b, c->info.epoch.object.hash, g->iov, g->n_iov), g->observe, g->copy);
	if (rc < 0)
		return rc;
	if (c->outstanding >= c->info.depth || !pick_lane(c, &lane))
		return -EAGAIN;
	slot = c->free_slot[lane * c->n_slot + c->n_free[lane] - 1];
	op = &c->op[lane * c->n_slot + slot];
	assert(op->state == WB__OP_FREE);
	op->gen++;
	op->id = slot | (uint64_t)op->gen << 16;
	op->cookie = g->cookie;
	op->bytes = g->chunk.bytes;
	op->iov = g->iov;
	op->n_iov = g->n_iov;
	op->observe = g->observe;
	op->copy = g->copy;
	op->is_gpu = rc;
	op->ctx = g->ctx;
	begin(op);
	*out = (struct wb__entry){WB__ENTRY_GRANT, c, op, lane, op->id, &g->chunk, 0};
	return 0;
}

int wb__book_cancel(struct wb__book *b, wb_conn_t conn, uint64_t cookie, struct wb__entry *out)
{
	struct wb__account *c = wb__book_get(b, conn);

	if (!c || c->state >= WB__C_CLOSING)
		return -ENOTCONN;
	if (!c->info.is_dialer)
		return -ENOENT;
	for (uint32_t k = 0; k < c->n_lane * c->n_slot; k++) {
		struct wb__op *op = &c->op[k];

		if (op->state == WB__OP_FREE || op->state == WB__OP_CANCELLED ||
			op->cookie != cookie)
			continue;
		if (op->state == WB__OP_CANCELLING)
			return -EALREADY;
		*out = (struct wb__entry){WB__ENTRY_CANCEL, c, op, k / c->n_slot, op->id, NULL, 0};
		return 0;
	}
	return -ENOENT;
}

static struct wb__ask *ask_of(struct wb__account *c, uint32_t lane, uint64_t id)
{
	struct wb__ask *ask;

	if (c->info.is_dialer || lane >= c->n_lane || wb__book_slot(id) >= c->n_slot)
		return NULL;
	ask = &c->ask[lane * c->n_slot + wb__book_slot(id)];
	return ask->state == WB__ASK_OPEN && ask->id == id ? ask : NULL;
}

/* The open grant that the user calls @grant, and its lane; NULL: there is none. */
static struct wb__ask *open_ask(struct wb__account *c, uint64_t grant, uint32_t *lane)
{
	*lane = (uint32_t)(grant >> WB__LANE_SHIFT);
	return ask_of(c, *lane, grant & ((1ull << WB__LANE_SHIFT) - 1));
}

int wb__book_write(
	struct wb__book *b, wb_conn_t conn, const struct wb_xport_write *w, struct wb__entry *out)
{
	struct wb__account *c = wb__book_get(b, conn);
	struct wb__ask *ask;
	struct wb__op *op;
	uint32_t lane;
	int rc;

	if (!c || c->state != WB__C_UP)
		return -ENOTCONN;
	ask = open_ask(c, w->grant, &lane);
	if (!ask)
		return -ENOENT;
	rc = check_ranges(
		b, is_gpu(b, c->info.epoch.object.hash, w->iov, w->n_iov), w->observe, true);
	if (rc < 0)
		return rc;
	if (sum_iov(w->iov, w->n_iov, ask->bytes) ||
		hold(b, c->info.epoch.object.hash, w->iov, w->n_iov))
		return -EINVAL;
	op = &c->op[ask - c->ask];
	assert(op->state == WB__OP_FREE);
	op->id = ask->id;
	op->cookie = w->cookie;
	op->bytes = ask->bytes;
	op->iov = w->iov;
	op->n_iov = w->n_iov;
	op->observe = w->observe;
	op->copy = NULL;
	op->is_gpu = rc;
	op->trailer = w->trailer;
	op->ctx = w->ctx;
	begin(op);
	*out = (struct wb__entry){WB__ENTRY_WRITE, c, op, lane, ask->id, NULL, 0};
	return 0;
}

int wb__book_refuse(
	struct wb__book *b, wb_conn_t conn, uint64_t grant, int code, struct wb__entry *out)
{
	struct wb__account *c = wb__book_get(b, conn);
	struct wb__ask *ask;
	uint32_t lane;

	if (!c || c->state != WB__C_UP)
		return -ENOTCONN;
	if (code >= 0)
		return -EINVAL;
	ask = open_ask(c, grant, &lane);
	if (!ask)
		return -ENOENT;
	*out = (struct wb__entry){WB__ENTRY_REFUSE, c, NULL, lane, ask->id, NULL, code};
	return 0;
}

static void commit_grant(struct wb__account *c, struct wb__op *op, uint32_t lane)
{
	assert(op->state == WB__OP_FREE && c->n_free[lane] && c->outstanding < c->info.depth);
	op->state = WB__OP_OUT;
	c->turn = (lane + 1) % c->n_lane;
	c->n_free[lane]--;
	c->load[lane] += op->bytes;
	c->outstanding++;
}

void wb__book_commit(struct wb__book *b, const struct wb__entry *e)
{
	struct wb__account *c = e->c;

	(void)b;
	switch (e->kind) {
	case WB__ENTRY_GRANT:
		commit_grant(c, e->op, e->lane);
		break;
	case WB__ENTRY_CANCEL:
		assert(e->op->state == WB__OP_OUT);
		e->op->state = WB__OP_CANCELLING;
		break;
	case WB__ENTRY_WRITE:
		assert(c->ask[e->op - c->op].state == WB__ASK_OPEN);
		e->op->state = WB__OP_OUT;
		c->ask[e->op - c->op].state = WB__ASK_ANSWERED;
		break;
	case WB__ENTRY_REFUSE:
		ask_of(c, e->lane, e->id)->state = WB__ASK_NONE;
		break;
	}
}

void wb__book_abandon(struct wb__book *b, const struct wb__entry *e)
{
	if (e->kind == WB__ENTRY_WRITE)
		let_go(b, e->c, e->op);
}

/* ---- what the other side says -----------------------------------------------------------------
 */

struct wb__op *wb__book_op(const struct wb__account *c, uint32_t lane, uint64_t id)
{
	struct wb__op *op;

	if (lane >= c->n_lane || wb__book_slot(id) >= c->n_slot)
		return NULL;
	op = &c->op[lane * c->n_slot + wb__book_slot(id)];
	return op->state != WB__OP_FREE && op->id == id ? op : NULL;
}

static void free_slot(struct wb__account *c, struct wb__op *op)
{
	uint32_t lane = wb__book_lane(c, op);

	assert(c->outstanding && c->n_free[lane] < c->n_slot && c->load[lane] >= op->bytes);
	op->state = WB__OP_FREE;
	c->load[lane] -= op->bytes;
	c->outstanding--;
	c->free_slot[lane * c->n_slot + c->n_free[lane]++] =
		(uint16_t)((uint32_t)(op - c->op) % c->n_slot);
}

bool wb__book_ended(
	struct wb__account *c, struct wb__op *op, enum wb__end end, struct wb_xport_event *ev)
{
	assert(c->info.is_dialer);
	if (end == WB__RETIRED) {
		assert(op->state == WB__OP_CANCELLED);
		free_slot(c, op);
		return false;
	}
	ev->cookie = op->cookie;
	if (end == WB__CANCELLED) {
		assert(op->state == WB__OP_CANCELLING);
		ev->kind = WB_XP_CANCELLED;
		op->state = WB__OP_CANCELLED; /* the slot is not free yet */
		return true;
	}
	/* A cancel that comes too late changes nothing. */
	assert(op->state == WB__OP_OUT || op->state == WB__OP_CANCELLING);
	ev->kind = end == WB__ARRIVED ? WB_XP_ARRIVED : WB_XP_REFUSED;
	c->info.n_arrived += end == WB__ARRIVED;
	free_slot(c, op);
	return true;
}

int wb__book_asked(struct wb__account *c, uint32_t lane, uint64_t id,
	const struct wb_xport_chunk *chunk, struct wb_xport_event *ev)
{
	uint32_t k = lane * c->n_slot + wb__book_slot(id);

	if (c->state != WB__C_UP)
		return 0;
	if (c->info.is_dialer || lane >= c->n_lane || wb__book_slot(id) >= c->n_slot ||
		id >> WB__LANE_SHIFT || c->ask[k].state != WB__ASK_NONE)
		return -EPROTO;
	c->ask[k] = (struct wb__ask){.id = id, .bytes = chunk->bytes, .state = WB__ASK_OPEN};
	ev->kind = WB_XP_GRANT;
	ev->grant = id | (uint64_t)lane << WB__LANE_SHIFT;
	ev->chunk = *chunk;
	return 1;
}

bool wb__book_gone(struct wb__account *c, uint32_t lane, uint64_t id, struct wb_xport_event *ev)
{
	struct wb__ask *ask = c->state == WB__C_UP ? ask_of(c, lane, id) : NULL;

	if (!ask)
		return false; /* we answered before the cancel came */
	ask->state = WB__ASK_NONE;
	ev->kind = WB_XP_GRANT_GONE;
	ev->grant = id | (uint64_t)lane << WB__LANE_SHIFT;
	return true;
}

void wb__book_written(struct wb__book *b, struct wb__account *c, struct wb__op *op, int code,
	struct wb_xport_event *ev)
{
	assert(!c->info.is_dialer && op->state == WB__OP_OUT);
	assert(c->ask[op - c->op].state == WB__ASK_ANSWERED);
	end_write(b, c, op);
	ev->kind = WB_XP_WRITE_DONE;
	ev->cookie = op->cookie;
	ev->code = code;
}
