/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_INTERNAL_H
#define WB_MEM_INTERNAL_H
/* The kinds with a file of their own.  Layer: mem (L1). */
#include "mem/mem.h"

extern const struct wb_mem_ops wb__mem_memfd;
extern const struct wb_mem_ops wb__mem_cuda_vmm, wb__mem_cuda_ipc, wb__mem_dmabuf;

#endif
