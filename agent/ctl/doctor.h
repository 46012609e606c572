/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_DOCTOR_H
#define WB_CTL_DOCTOR_H
/*
 * What this build can do on this machine, and whether that is what objects ask for.
 * Layer: ctl (L4).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_spec;
struct wb_xport;

#define WB_CTL_LINES_MAX 64

enum wb__ctl_can { WB_CTL_YES, WB_CTL_NO, WB_CTL_WORSE, WB_CTL_INFO };

struct wb__ctl_line {
	const char *name; /* static */
	const char *object; /* that asks for it; NULL = of the machine; borrowed */
	enum wb__ctl_can can;
	char says[800];
};

struct wb__ctl_sheet {
	struct wb__ctl_line line[WB_CTL_LINES_MAX];
	size_t n;
	/* Found on the way; what objects ask for is held against it. */
	bool has_tcp, has_tls, has_verbs;
	char ports[200]; /* of RDMA that an agent here can use: "mlx5_0/1, mlx5_1/1" */
	uint64_t memory_bytes; /* that processes here may have */
	uint64_t open_files; /* that one may have */
};

/** wb__ctl_say - append a line; beyond WB_CTL_LINES_MAX it is left out. */
void wb__ctl_say(struct wb__ctl_sheet *t, const char *name, enum wb__ctl_can can, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
/**
 * wb__ctl_look_rdma - a line for each port of an RDMA device, the memory that may be
 * locked for them, and what of GPUs they could reach
 * @root:	"" for this machine; else a folder with sys, proc and dev below it
 *
 * Ports that an agent can use are yes; those that work badly are worse, with the remedy; those that
 * cannot be used are no, with the remedy.  Without devices only the limit of locked memory is told.
 * Only reads files, and opens device nodes and closes them.  Returns how many ports can be used;
 * @t->ports has their names, as far as there is room.
 */
size_t wb__ctl_look_rdma(struct wb__ctl_sheet *t, const char *root);
/**
 * wb__ctl_look_gpu - a line on how RDMA devices reach memory of the first GPU: it is tried
 * @x_take:	an open transport that moves such memory (verbs); closed here
 * @patience_ns: registering is waited for so long
 * Nothing is said where there is no GPU.  Blocks: a context of the GPU may be made, and is given
 * back.
 */
void wb__ctl_look_gpu(struct wb__ctl_sheet *t, struct wb_xport *x_take, uint64_t patience_ns);
/** wb__ctl_look - the machine.  Blocks for milliseconds, or as long as
 *  wb__ctl_look_gpu(): transports are opened and closed. */
void wb__ctl_look(struct wb__ctl_sheet *t);

#endif
