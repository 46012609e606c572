/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/intake.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void clear(struct wb__incoming *c)
{
	wb_free(c->data);
	*c = (struct wb__incoming){0};
}

void wb__intake_clear(struct wb__intake *x)
{
	clear(&x->list);
	clear(&x->head);
	clear(&x->part);
}

static struct wb__incoming *of_kind(struct wb__intake *x, uint32_t kind)
{
	switch (kind) {
	case WB_CONTENT_PLAN:
		return &x->list;
	case WB_CONTENT_HEAD:
		return &x->head;
	case WB_CONTENT_PART:
		return &x->part;
	default:
		return NULL;
	}
}

/* Bytes of all that has begun to come. */
static uint64_t all(const struct wb__intake *x)
{
	uint64_t sum = x->head.total;

	return wb_add_u64(sum, x->part.total, &sum) && wb_add_u64(sum, x->list.total, &sum)
		       ? sum
		       : UINT64_MAX;
}

static bool is_too_large(const struct wb__intake *x, uint64_t memory_max)
{
	return all(x) > WB_MIN(memory_max, WB__PLAN_BYTES_MAX);
}

static bool follows(const struct wb__incoming *c, const struct wb_msg_content *m)
{
	return c->total && m->total_bytes == c->total && m->offset == c->got && m->n_data &&
	       m->n_data <= c->total - c->got;
}

int wb__intake_add(struct wb__intake *x, const struct wb_msg_content *m, uint64_t memory_max,
	struct wb_err *err)
{
	struct wb__incoming *c = of_kind(x, m->kind);
	int rc;

	if (!c)
		return wb_err_set(err, -EBADMSG, "CONTENT of kind %u is not for agents", m->kind);
	if (!m->offset || !wb_digest_eq(c->digest, m->digest)) {
		clear(c);
		c->digest = m->digest;
		c->total = m->total_bytes;
	}
	if (!follows(c, m)) {
		wb__intake_clear(x);
		return wb_err_set(err, -EBADMSG, "the pieces of a plan do not follow each other");
	}
	if (is_too_large(x, memory_max)) {
		wb_free(c->data);
		c->data = NULL;
		c->cap = 0;
	} else if (c->got == 0 || c->data) {
		/* Grows with what has come, never on the sender's word. */
		rc = wb_grow(&c->data, &c->cap, c->got + m->n_data, WB__PLAN_BYTES_MAX, 1);
		if (rc < 0)
			return wb_err_set(
				err, rc, "no memory for a plan of %" PRIu64 " bytes", c->total);
		memcpy(c->data + c->got, m->data, m->n_data);
	}
	c->got += m->n_data;
	assert(c->got <= c->total && (!c->data || c->got <= c->cap));
	return 0;
}

/* Has the content come whole, under the digest that is wanted? */
static int check(const struct wb__incoming *c, struct wb_digest digest, struct wb_err *err)
{
	if (!wb_digest_eq(c->digest, digest) || !c->total || c->got != c->total)
		return wb_err_set(err, -EBADMSG, "the content of the plan has not come whole");
	return 0;
}

/* Was all of it kept?  There may be more memory by now than there was. */
static int check_memory(
	const struct wb__intake *x, bool has_parts, uint64_t memory_max, struct wb_err *err)
{
	bool is_kept = has_parts ? x->head.data && x->part.data : x->list.data != NULL;

	if (is_kept)
		return 0;
	return wb_err_set(err, -EFBIG,
		"this agent's part of the plan comes in %" PRIu64 " bytes, and %" PRIu64
		" are left for it",
		all(x), WB_MIN(memory_max, WB__PLAN_BYTES_MAX));
}

static int read_list(const struct wb__intake *x, struct wb_plan **out, struct wb_err *err)
{
	return wb_plan_decode(x->list.data, x->list.got, out, err);
}

static int read_part(
	const struct wb__intake *x, uint64_t memory_max, struct wb_plan **out, struct wb_err *err)
{
	struct wb_plan_piece head = {x->head.data, x->head.got};
	struct wb_plan_piece part = {x->part.data, x->part.got};

	if (!wb_digest_eq(x->head.digest, wb_digest_of(head.data, head.bytes)))
		return wb_err_set(err, WB_EPLAN,
			"the head of the plan does not have the digest it came under");
	return wb_plan_unpack(head, part, memory_max, out, err);
}

int wb__intake_plan(const struct wb__intake *x, const struct wb_msg_plan *m, uint64_t memory_max,
	struct wb_plan **out, struct wb_err *err)
{
	bool has_parts = !wb_digest_is_none(m->head);
	struct wb_plan *p = NULL;
	int rc = has_parts ? check(&x->head, m->head, err) : check(&x->list, m->digest, err);

	if (rc == 0 && has_parts)
		rc = check(&x->part, x->part.digest, err);
	if (rc == 0)
		rc = check_memory(x, has_parts, memory_max, err);
	if (rc == 0)
		rc = has_parts ? read_part(x, memory_max, &p, err) : read_list(x, &p, err);
	if (rc < 0)
		return rc;
	if (!wb_digest_eq(p->digest, m->digest)) {
		wb_plan_destroy(p);
		return wb_err_set(err, WB_EPLAN, "the plan does not have the digest it came under");
	}
	*out = p;
	return 0;
}
