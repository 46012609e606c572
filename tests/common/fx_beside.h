/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_BESIDE_H
#define TESTS_FX_BESIDE_H
/* Libraries that stand in for those of hardware, from where the build puts them. */

/** fx_beside - open @path, below the folder of this build: "fake/libibverbs.so.1".  Kept open; ends
 *  the test with the reason when it cannot be. */
void *fx_beside(const char *path);

#endif
