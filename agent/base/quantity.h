/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_QUANTITY_H
#define WB_BASE_QUANTITY_H
/*
 * Numbers of bytes as Kubernetes writes them, for command lines and WeightTransfers alike.
 *
 * Pure; any thread.  Layer: base (L0).
 */
#include <stdint.h>

/** wb_quantity - read 1000, 512Mi, 1.5Gi or 10M as bytes: digits, optionally a fraction, then
 * nothing, k, M, G, T (powers of 1000), Ki, Mi, Gi or Ti (of 1024).  A part of a byte counts as one
 * byte.
 * 0; -EINVAL for anything else; -ERANGE above 2^63 - 1.  @out is written only on success. */
int wb_quantity(const char *s, uint64_t *out);

#endif
