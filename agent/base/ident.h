/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_IDENT_H
#define WB_BASE_IDENT_H
/*
 * Identities of objects and epochs: each is made once and passed on whole, so that no code derives
 * one of its names from another.  These are values; two are the same when the _eq() function below
 * says so.
 * Layer: base (L0).  Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#define WB_OBJECT_TEXT 32

/* A transfer object, as the operator's WELCOME names it.  An object that is deleted and made again
 * is another one. */
struct wb_object_id {
	uint64_t uid; /* the operator's number for it; 0 = none yet */
	uint64_t hash; /* hash of text: used by bulk connections and in names of files */
	char text[WB_OBJECT_TEXT]; /* 16 hex digits: used in messages of agents and names of keys */
};

/* A plan of an object; numbers rise within a term. */
struct wb_epoch_id {
	struct wb_object_id object;
	uint64_t term, number;
};

/** wb_object_id_of - the object with the operator's number @uid. */
struct wb_object_id wb_object_id_of(uint64_t uid);

/** wb_object_id_eq - the same object? */
static inline bool wb_object_id_eq(const struct wb_object_id *a, const struct wb_object_id *b)
{
	return a->uid == b->uid;
}

/** wb_epoch_id_eq - are they the same epoch of the same object? */
static inline bool wb_epoch_id_eq(const struct wb_epoch_id *a, const struct wb_epoch_id *b)
{
	return a->term == b->term && a->number == b->number &&
	       wb_object_id_eq(&a->object, &b->object);
}

/** wb_epoch_id_is_newer - is @a, of the same object, a later plan than @b? */
static inline bool wb_epoch_id_is_newer(const struct wb_epoch_id *a, const struct wb_epoch_id *b)
{
	return a->term > b->term || (a->term == b->term && a->number > b->number);
}

#endif
