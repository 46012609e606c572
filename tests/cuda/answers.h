/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_ANSWERS_H
#define WB_TESTS_ANSWERS_H
/*
 * Inside tests/cuda/answers: what situations say their answers with, and a device to ask for them.
 *
 * A situation is a function that runs in a process of its own, with the context of the first device
 * current.  One thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/cuda.h"

#define PATIENCE_S 15
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct situation {
	const char *name;
	void (*run)(void);
};

/* In the order of answers.txt; the last has no name. */
extern const struct situation of_devices[], of_memory[], of_processes[], of_work[];

extern const struct wbcu *cu;
extern const char *name; /* of the situation, as its lines begin */

/* ---- saying ---- */

/** say - a line: the situation, @what, the answer. */
__attribute__((format(printf, 2, 3))) void say(const char *what, const char *format, ...);
/** result - a result of the driver, by its name. */
void result(const char *what, int rc);
/** refused - the same for what is refused in words that differ between drivers. */
void refused(const char *what, int rc);
void yes(const char *what, bool is);
/** must, must_be - what a situation needs before its questions: if it is not so, that is said, and
 *  the process ends. */
void must(const char *what, int rc);
void must_be(const char *what, bool is);

/* ---- a device ---- */

extern const struct wbcu_access both_ways; /* to the first device */

/** begin - load the driver and make a context current. */
void begin(void);
/** described - an allocation of the first device. */
struct wbcu_allocation described(int handle_types);
/** piece_bytes - the least that allocations of VMM can have. */
size_t piece_bytes(void);
/** legacy, created, reserved - memory by cuMemAlloc, a handle by cuMemCreate, addresses. */
uint64_t legacy(size_t bytes);
uint64_t created(size_t bytes, int handle_types);
uint64_t reserved(size_t bytes);
/** map_at - an allocation at reserved addresses; its handle is released. */
void map_at(uint64_t addr, size_t bytes, int handle_types);
/** write_all - fill memory, and wait for that. */
void write_all(uint64_t addr, uint8_t value, size_t bytes);
/** byte_at - the byte at @addr; -1 = it cannot be read. */
int byte_at(uint64_t addr);

/* ---- a kernel ---- */

/** storer - the function of a kernel that stores 7 at an address, and its module. */
void *storer(void **module);
/** store - launch it. */
int store(void *fn, uint64_t at, unsigned grid, unsigned block);

/* ---- what a pointer is ---- */

void type_of(uint64_t addr);
/** number_of - an attribute that is a number. */
void number_of(const char *what, uint64_t addr, int attribute);
/** same_place, same_size - how an answer, unless @rc refuses it, is to what is expected. */
void same_place(const char *what, int rc, uint64_t is, uint64_t want);
void same_size(const char *what, int rc, size_t is, size_t want);
/** range_of, block_of - of an address: the range and the mapping that it is in. */
void range_of(uint64_t addr, uint64_t start, size_t bytes);
void block_of(uint64_t addr, uint64_t start, size_t bytes);

/* ---- peers ---- */

/** be_peer - what a process does that a situation started in @role (answers_processes.c). */
int be_peer(const char *role);

#endif
