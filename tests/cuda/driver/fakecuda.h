/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FAKECUDA_H
#define WB_TESTS_FAKECUDA_H
/*
 * A CUDA driver without devices: libcuda.so.1 as far as this project uses it (mem/cuda.h lists the
 * functions).
 *
 * It is built as build/VARIANT/fakecuda/libcuda.so.1.  What opens the library by its name gets it
 * where that was loaded before (dlopen() by path), or where LD_LIBRARY_PATH names the folder: the
 * products as well, which cannot tell it from a driver.
 *
 * Devices.  FAKECUDA_DEVICES says how many (2); number i has the UUID "fakecuda" and i as eight
 * bytes, big-endian.  CUDA_VISIBLE_DEVICES hides and renumbers them, by numbers or by GPU-UUID.
 * As with a driver a forked child cannot use what its parent began, and a process that does not
 * find itself in /proc, as that is of another namespace of processes, cannot begin.
 *
 * Memory is memfds.  It is mapped where device addresses point to, and only while the device works:
 * a program that touches it from the host ends with SIGSEGV.  Allocations of VMM are exported as
 * those memfds and keep their device's UUID; legacy allocations are parts of blocks of 2 MiB, and
 * an IPC handle gives away the whole block, opened at the allocation's place in it.  Copies and
 * fills stay within one legacy allocation, kernels reach all that is mapped.  Handles are
 * opened while the exporter lives, in whatever namespaces and by whatever user, never by the
 * exporter itself.  Free memory is counted over all processes that name the same file in
 * FAKECUDA_WORLD (else this process alone), until the last holder of an allocation lets go or dies.
 *
 * Work.  A thread of the library runs what streams hold, one piece after another: pieces of one
 * stream in order, streams among each other in any order (by `order`), never inside the call that
 * queued them.  A second thread runs functions of the host: one that waits keeps only what is
 * behind it waiting.  Kernels are the CPU's build of kernels/ (shim.h), found by their names, and
 * that of tests/cuda/answers.c: an image counts when it begins as a fatbin or as PTX does, whatever
 * is in it.  Copies from and to host memory that is not pinned are over when the call returns, as
 * they are with a driver; one of memory that is not pinned any more when its turn comes ends the
 * device.  The legacy stream and streams that block on it wait for each other.
 *
 * Errors are those of a driver for the same misuse (answers.txt says which driver).  What went
 * wrong in a stream is found by a later call, and from then on by all that work on the device or
 * its memory; contexts and questions about pointers and devices go on.
 *
 * What it does not show: speed; how a device orders its accesses to memory, and the host's to it;
 * kernels that run side by side; a kernel that reaches memory which a device could not (host memory
 * that is not pinned, memory of another device); what contexts cost in device memory.
 */

/*
 * fakecuda_script - what happens from now on; FAKECUDA_SCRIPT is run first, at cuInit()
 * With FAKECUDA_SAY set, each call that is made to fail is told on stderr.
 * Statements end with a newline or ';'.  FUNCTION is a symbol ("cuMemCreate"), * any.
 *
 *	fail FUNCTION RESULT [TIMES [AFTER]]
 *			calls return RESULT (0 TIMES = always), the first AFTER of them as usual
 *	late FUNCTION NS [TIMES [AFTER]]
 *			what the call queues takes NS more
 *	lose RESULT [AFTER]
 *			the device fails with RESULT at the next piece of work, after AFTER pieces;
 *			nothing works any more
 *	hold		queued work stays queued
 *	go [N]		and goes on (N pieces of it)
 *	order SEED	which stream goes next; 0 = oldest work first (at first)
 *	device NUMBER ATTRIBUTE VALUE
 *			what cuDeviceGetAttribute() says of it
 *	memory BYTES	of each device (1 GiB at first); for the whole world
 *	reset		forget all of it; lost devices stay lost
 *
 * 0; -EINVAL when a statement is not understood: those before it count.  Any thread.
 */
int fakecuda_script(const char *text);

/* Pieces of work that streams hold, and what there is now in this process. */
struct fakecuda_counts {
	long queued, done; /* pieces of work; done: in all */
	long launches, copies; /* done in all */
	long contexts; /* references to primary contexts */
	long handles, blocks, mappings, reservations, imports; /* of memory */
	long streams, events, modules, pinned;
	long strays; /* calls of a forked child */
};

/** fakecuda_count - any thread. */
void fakecuda_count(struct fakecuda_counts *out);

#endif
