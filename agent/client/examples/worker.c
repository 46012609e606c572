/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer and a rollout worker in C, with one tensor.
 *
 *	worker trainer VERSIONS		sends versions 1 to VERSIONS
 *	worker rollout VERSIONS		serves until it has the last of them
 *
 * The agent's socket comes from WEIGHTBRIDGE_SOCKET, the object's name from WEIGHTBRIDGE_OBJECT.
 * The trainer holds the tensor as it is in the checkpoint, the rollout worker transposed, so that
 * something has to be found out and done.  Build, once installed:
 *
 *	cc worker.c $(pkg-config --cflags --libs weightbridge) -o worker
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <weightbridge/extract.h>
#include <weightbridge/weightbridge.h>

enum { ROWS = 512, COLS = 96 };
#define BYTES (sizeof(float) * ROWS * COLS)

static struct wb_error err;

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s (%d)\n", what, err.msg, rc);
	exit(1);
}

/* What the application does with a checkpoint: its own code, which the library watches. */
static void load_weights(int is_trainer, float *param, const float *tensor)
{
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLS; c++)
			param[is_trainer ? r * COLS + c : c * ROWS + r] = tensor[r * COLS + c];
}

static struct wb_sourcemap *find_map(int is_trainer, float *param)
{
	const struct wb_extract_tensor tensor = {
		.name = "w", .dtype = "F32", .ndim = 2, .shape = {ROWS, COLS}};
	struct wb_extract_param p = {.name = "weight",
		.dtype = "F32",
		.ndim = 2,
		.shape = {ROWS, COLS},
		.stride = {COLS, 1},
		.data = param};
	struct wb_extract_pass pass;
	struct wb_sourcemap *map = NULL;
	struct wb_manifest *m = NULL;
	struct wb_extract *x = NULL;
	float *filled = malloc(BYTES);

	if (!is_trainer) {
		p.shape[0] = COLS;
		p.shape[1] = ROWS;
		p.stride[0] = ROWS;
	}
	check(filled ? 0 : -ENOMEM, "memory");
	check(wb_manifest_open(&tensor, 1, &m, &err), "manifest");
	check(wb_extract_open(m, &p, 1, NULL, &x, &err), "extract");
	for (;;) {
		int more = wb_extract_next_pass(x, &pass, &err);

		check(more, "next pass");
		if (!more)
			break;
		check(wb_extract_fill(x, 0, 0, filled, BYTES), "fill");
		load_weights(is_trainer, param, filled);
		check(wb_extract_end_pass(x, NULL, 0, &err), "end of the pass");
	}
	check(wb_extract_finish(x, &map, &err), "source map");
	wb_extract_close(x);
	wb_manifest_close(m);
	free(filled);
	return map;
}

static struct wb_client *attach(int is_trainer, int fd, float *param)
{
	struct wb_client_opts o = {.size = sizeof(o),
		.role = is_trainer ? WB_CLIENT_TRAINER : WB_CLIENT_ROLLOUT,
		.engine = is_trainer ? NULL : "engine-0",
		.rank = 0};
	struct wb_client_mem mem = {
		.kind = WB_CLIENT_MEM_MEMFD, .fd = fd, .base = param, .bytes = BYTES};
	struct wb_client_param place = {0};
	struct wb_client_attach a = {
		.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = &place, .n_param = 1};
	struct wb_sourcemap *map = find_map(is_trainer, param);
	struct wb_extract_blob manifest, blob;
	struct wb_client *c = NULL;

	check(wb_sourcemap_manifest_blob(map, &manifest), "manifest");
	check(wb_sourcemap_map_blob(map, &blob), "map");
	a.manifest = manifest.data;
	a.manifest_bytes = manifest.bytes;
	a.map = blob.data;
	a.map_bytes = blob.bytes;
	check(wb_client_open(&o, &c, &err), "open");
	check(wb_client_attach(c, &a, &err), "attach");
	wb_extract_free(manifest.data);
	wb_extract_free(blob.data);
	wb_sourcemap_close(map);
	check(wb_client_wait_planned(c, WB_FOREVER, NULL, NULL, NULL, &err), "plan");
	return c;
}

static void train(struct wb_client *c, float *param, int versions)
{
	for (int v = 1; v <= versions; v++) {
		struct wb_client_transfer_info info;
		struct wb_client_transfer *t = NULL;

		for (int i = 0; i < ROWS * COLS; i++)
			param[i] = (float)(v + i % 1000);
		check(wb_client_send(c, v, 0, WB_FOREVER, &t, &err), "send");
		/* From RELEASED on the parameters may change; FINAL says what became of it. */
		check(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, WB_FOREVER, &err),
			"transfer");
		wb_client_transfer_get(t, &info);
		printf("sent version %d in %.1f ms\n", v, info.seconds * 1e3);
		wb_client_transfer_free(t);
	}
}

static void serve(struct wb_client *c, const float *param, int versions)
{
	const struct timespec step = {0, 1000000}; /* in place of a decoding step */
	struct wb_client_update u = {0};

	while (u.version < versions) {
		int rc = wb_client_poll_requests(c, NULL, &u, &err);

		check(rc, "poll");
		if (rc != 1) {
			nanosleep(&step, NULL);
			continue;
		}
		for (int r = 0; r < ROWS; r++)
			for (int k = 0; k < COLS; k++)
				if (param[k * ROWS + r] !=
					(float)(u.version + (r * COLS + k) % 1000)) {
					fprintf(stderr, "element (%d, %d) is wrong\n", r, k);
					exit(1);
				}
		printf("have version %lld\n", (long long)u.version);
	}
}

int main(int argc, char **argv)
{
	int is_trainer = argc == 3 && !strcmp(argv[1], "trainer"), fd;
	struct wb_client *c;
	float *param;

	if (argc != 3 || (!is_trainer && strcmp(argv[1], "rollout") != 0)) {
		fprintf(stderr, "usage: %s trainer|rollout VERSIONS\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Parameters in memory that the agent can map, so that nothing is copied on their way. */
	fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, BYTES) < 0) {
		perror("memfd");
		return 1;
	}
	param = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (param == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	c = attach(is_trainer, fd, param);
	if (is_trainer)
		train(c, param, atoi(argv[2]));
	else
		serve(c, param, atoi(argv[2]));
	check(wb_client_close(c, WB_FOREVER, &err), "close");
	return 0;
}
