/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBT_PLAY_H
#define WBT_PLAY_H
/*
 * The kernels as the CPU plays them (shim.h), in the order of enum wbk_gpu.
 *
 * X(name, type): wbk_gpu_NAME takes a struct TYPE, and play_NAME() is called with a pointer to one,
 * which may lie askew.
 */
#include "kernels/gpu.h"

#include <string.h>

/* clang-format off */
#define WBT_KERNELS(X) \
	X(rows, wbk_move_args) \
	X(turns, wbk_move_args) \
	X(image, wbk_move_args) \
	X(diff2, wbk_scan_args) \
	X(equal, wbk_scan_args) \
	X(classify, wbk_scan_args) \
	X(put, wbk_scan_args) \
	X(fill, wbk_scan_args) \
	X(check, wbk_scan_args)

#define WBT__PLAY(name, type) \
	void wbt_wbk_gpu_##name(struct type a); \
	static inline void play_##name(const void *args) \
	{ \
		struct type a; \
\
		memcpy(&a, args, sizeof(a)); \
		wbt_wbk_gpu_##name(a); \
	}
/* clang-format on */
WBT_KERNELS(WBT__PLAY)

#endif
