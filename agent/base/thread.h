/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_THREAD_H
#define WB_BASE_THREAD_H
/*
 * Threads that take no signals, since these are for the loop, or for the application in whose
 * process we are.
 *
 * Any thread.  Layer: base (L0).
 */
#include <pthread.h>

/**
 * wb_thread_start - run @main(@arg) in a thread of its own, to be joined by the caller
 * @name:	as tools show it; cut to 15 bytes
 * 0 or a negative errno; *thread is written only with 0.
 */
int wb_thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *arg);

#endif
