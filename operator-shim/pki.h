/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_PKI_H
#define WB_OPERATOR_PKI_H
/*
 * The operator's own certificate authority: decides what must be made anew, and makes it.  Pure,
 * except for randomness.
 *
 * An authority (three years) signs the certificate of the endpoint (90 days).  Each is made anew
 * when a third of its time is left.  A new authority signs a certificate only later, when agents
 * have had time to hear of it; the old authority stays in the list that agents trust until it
 * expires.
 *
 * Threads: any.  Layer: operator-shim.
 */
#include <stddef.h>
#include <stdint.h>

struct wb_err;

/* PEM, owned; NULL = missing.  ca: all authorities, the newest first; ca_key: key of the newest. */
struct wb__pki {
	char *ca, *ca_key, *cert, *key;
};

struct wb__pki_want {
	const char *const *name; /* DNS names of the endpoint */
	size_t n_name; /* at least 1 */
	uint64_t wall_s;
};

enum { WB__PKI_CA = 1, WB__PKI_CERT = 2 };

/** wb__pki_due - which parts have to be made: WB__PKI_CA | WB__PKI_CERT, 0 = none. */
unsigned wb__pki_due(const struct wb__pki *p, const struct wb__pki_want *w);

/**
 * wb__pki_make - make the parts @due anew, in place
 * A new authority is put before those that are still valid.  0; -ENOMEM; -EIO with OpenSSL's
 * reason.  On failure nothing has changed.
 */
int wb__pki_make(struct wb__pki *p, const struct wb__pki_want *w, unsigned due, struct wb_err *err);

/** wb__pki_finish - free; keys are overwritten. */
void wb__pki_finish(struct wb__pki *p);

#endif
