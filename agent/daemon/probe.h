/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_PROBE_H
#define WB_DAEMON_PROBE_H
/*
 * weightbridge-agent --probe=...: asks a running agent of the same pod, for kubelet's probes.
 *
 * startup: workers can attach.  The operator need not be there, so that its absence delays no job.
 * Probes go over unix sockets (SOCKET, SOCKET.http), which no other pod reaches: whatever somebody
 * does to the ports of this pod, it is not restarted for that.
 * live: the loop turns.  ready: no engine of this pod is Torn; nothing else makes a pod unready.
 *
 * Layer: daemon (L4).
 */
#include "daemon/options.h"

/** wb__probe_is_known - is @what the name of a probe? */
bool wb__probe_is_known(const char *what);
/** wb__probe - 0 = yes; 1 = no, with a sentence on stderr.  Blocks, at most 5 s. */
int wb__probe(const struct wb__options *o);

#endif
