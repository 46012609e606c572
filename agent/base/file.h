/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_FILE_H
#define WB_BASE_FILE_H
/*
 * Whole small files, and how many may be open.  Layer: base (L0).
 */
#include <stddef.h>
#include <stdint.h>

/**
 * wb_file_read - read all of a file, pipe or device, until its end
 * @max:	greatest size that is accepted, in bytes
 * @out:	the bytes, followed by a NUL that @bytes does not count; release with wb_free()
 * Memory that is freed meanwhile is wiped first, since files may hold secrets.
 * Returns 0; -EFBIG when there is more than @max; -ENOMEM; or the system's errno.  Blocks.
 */
int wb_file_read(const char *path, size_t max, uint8_t **out, size_t *bytes);

/** wb_open_files_raise - let this process have as many open files as its hard limit allows; returns
 *  how many that is now. */
uint64_t wb_open_files_raise(void);

#endif
