/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/content.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ITEMS_MAX 1024

struct item {
	struct wb_digest digest;
	struct wb_manifest *manifest; /* one of the two, owned */
	struct wb_map *map;
};

struct wb__contents {
	struct item item[ITEMS_MAX];
	uint32_t n;
};

struct wb__contents *wb__contents_create(void)
{
	return wb_zalloc(1, sizeof(struct wb__contents));
}

void wb__contents_destroy(struct wb__contents *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->n; i++) {
		wb_manifest_destroy(c->item[i].manifest);
		wb_map_destroy(c->item[i].map);
	}
	wb_free(c);
}

int wb__read_memfd(const char *what, int fd, uint64_t bytes, uint64_t bytes_max, uint8_t **out,
	struct wb_err *err)
{
	struct stat st;
	uint8_t *p;
	uint64_t at = 0;
	ssize_t n;

	if (!bytes || bytes > bytes_max)
		return wb_err_set(err, -EINVAL, "the %s has %llu bytes: 1 to %llu are taken", what,
			(unsigned long long)bytes, (unsigned long long)bytes_max);
	/* Only shared memory knows seals, and reading it does not wait for anybody. */
	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) < 0)
		return wb_err_set(err, -EINVAL, "the descriptor of the %s is no memfd", what);
	if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return wb_err_set(err, -EINVAL, "the %s should have %llu bytes and has %lld", what,
			(unsigned long long)bytes, (long long)st.st_size);
	p = wb_alloc(bytes);
	if (!p)
		return wb_err_set(err, -ENOMEM, "no memory for the %s of %llu bytes", what,
			(unsigned long long)bytes);
	while (at < bytes) {
		n = pread(fd, p + at, bytes - at, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			wb_free(p);
			return wb_err_set(err, n < 0 ? -errno : -EINVAL,
				"the %s ended at byte %llu of %llu", what, (unsigned long long)at,
				(unsigned long long)bytes);
		}
		at += (uint64_t)n;
	}
	assert(at == bytes);
	*out = p;
	return 0;
}

static struct item *find(struct wb__contents *c, struct wb_digest digest)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (wb_digest_eq(c->item[i].digest, digest))
			return &c->item[i];
	return NULL;
}

static int room(const struct wb__contents *c, struct wb_err *err)
{
	if (c->n < ITEMS_MAX)
		return 0;
	return wb_err_set(err, -ENOSPC,
		"this agent has seen %d different manifests and maps since its start: restart it",
		ITEMS_MAX);
}

/* A digest covers the whole encoding, so equal bytes are found before they are decoded. */
int wb__contents_manifest(struct wb__contents *c, int fd, uint64_t bytes,
	const struct wb_manifest **out, struct wb_err *err)
{
	struct wb_manifest *m = NULL;
	struct item *have;
	uint8_t *p;
	int rc = wb__read_memfd("manifest", fd, bytes, WB__MANIFEST_BYTES_MAX, &p, err);

	if (rc < 0)
		return rc;
	have = find(c, wb_digest_of(p, bytes));
	if (have && have->manifest) {
		*out = have->manifest;
		goto out;
	}
	rc = room(c, err);
	if (rc == 0)
		rc = wb_manifest_decode(p, bytes, &m, err);
	if (rc < 0)
		goto out;
	assert(c->n < ITEMS_MAX);
	c->item[c->n++] = (struct item){.digest = m->digest, .manifest = m};
	*out = m;
out:
	wb_free(p);
	return rc;
}

int wb__contents_map(struct wb__contents *c, const struct wb_manifest *m, int fd, uint64_t bytes,
	const struct wb_map **out, struct wb_err *err)
{
	struct wb_map *map = NULL;
	struct item *have;
	uint8_t *p;
	int rc = wb__read_memfd("source map", fd, bytes, WB__MAP_BYTES_MAX, &p, err);

	if (rc < 0)
		return rc;
	have = find(c, wb_digest_of(p, bytes));
	if (have && have->map && wb_digest_eq(have->map->manifest, m->digest)) {
		*out = have->map;
		goto out;
	}
	rc = room(c, err);
	if (rc == 0)
		rc = wb_map_decode(m, p, bytes, &map, err);
	if (rc < 0)
		goto out;
	assert(c->n < ITEMS_MAX);
	c->item[c->n++] = (struct item){.digest = map->digest, .map = map};
	*out = map;
out:
	wb_free(p);
	return rc;
}

int wb__contents_encode(const struct wb__contents *c, struct wb_digest digest,
	enum wb_content *kind_out, struct wb_buf *out)
{
	for (uint32_t i = 0; i < c->n; i++) {
		const struct item *it = &c->item[i];

		if (!wb_digest_eq(it->digest, digest))
			continue;
		assert(!it->map != !it->manifest);
		*kind_out = it->map ? WB_CONTENT_MAP : WB_CONTENT_MANIFEST;
		return it->map ? wb_map_encode(it->map, out)
			       : wb_manifest_encode(it->manifest, out);
	}
	return -ENOENT;
}
