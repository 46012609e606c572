/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/fill.h"

#include "base/base.h"
#include "base/mem.h"
#include "net/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define AT_ONCE (16ull << 20) /* a few milliseconds: not worth a thread */
#define PIECE (256ull << 20) /* between two looks whether anybody still wants the pages */

struct wb__fill {
	int fd; /* our own */
	uint64_t off, bytes;
	_Atomic bool is_dropped;
	/* the thread's until it is done */
	int rc;
	bool is_done; /* loop */
};

static int take(int fd, uint64_t off, uint64_t bytes)
{
	int rc;

	do {
		rc = posix_fallocate(fd, (off_t)off, (off_t)bytes);
	} while (rc == EINTR);
	return -rc;
}

static void work(void *cookie)
{
	struct wb__fill *f = cookie;

	for (uint64_t at = 0; at < f->bytes && !f->rc && !atomic_load(&f->is_dropped); at += PIECE)
		f->rc = take(f->fd, f->off + at, WB_MIN(PIECE, f->bytes - at));
}

static void done(void *cookie)
{
	struct wb__fill *f = cookie;

	assert(!f->is_done);
	close(f->fd);
	f->is_done = true;
	if (atomic_load(&f->is_dropped))
		wb_free(f);
}

static int start(struct wb_loop *loop, struct wb__fill **at, int fd, uint64_t off, uint64_t bytes)
{
	struct wb__fill *f = wb_zalloc(1, sizeof(*f));
	int rc;

	assert(bytes && !*at);
	if (!f)
		return -ENOMEM;
	f->off = off;
	f->bytes = bytes;
	f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	rc = f->fd < 0 ? -errno : wb_loop_work(loop, work, done, f);
	if (rc < 0) {
		if (f->fd >= 0)
			close(f->fd);
		wb_free(f);
		return rc;
	}
	*at = f;
	return -EINPROGRESS;
}

int wb__fill(struct wb_loop *loop, struct wb__fill **at, int fd, uint64_t off, uint64_t bytes)
{
	struct wb__fill *f = *at;
	int rc;

	if (f && !f->is_done)
		return -EINPROGRESS;
	if (f) {
		bool is_this = f->off == off && f->bytes == bytes;

		rc = f->rc;
		wb_free(f);
		*at = NULL;
		if (is_this)
			return rc;
	}
	return bytes <= AT_ONCE ? take(fd, off, bytes) : start(loop, at, fd, off, bytes);
}

void wb__fill_drop(struct wb__fill *f)
{
	if (!f)
		return;
	assert(!atomic_load(&f->is_dropped));
	if (f->is_done)
		wb_free(f);
	else
		atomic_store(&f->is_dropped, true);
}
