/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>

int wb_thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *arg)
{
	sigset_t all, old;
	char short_name[16];
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* a new thread inherits the mask */
	rc = pthread_create(thread, NULL, main, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return -rc;
	snprintf(short_name, sizeof(short_name), "%s", name);
	pthread_setname_np(*thread, short_name);
	return 0;
}
