/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_NOTES_H
#define WB_TESTS_FX_NOTES_H
/*
 * A transport that only notes what it is asked: the test makes the events, in the order it wants.
 */
#include "xport/xport.h"

#define FX_NOTES_MAX 256

struct fx_notes {
	struct wb_xport x; /* first; what a flow is given */
	struct wb_xport_ops ops; /* its own: caps may be set */
	struct fx_asked {
		wb_conn_t conn;
		struct wb_xport_grant grant;
		bool is_taken_back; /* cancelled while it was not over */
		bool is_over; /* the test says so */
	} asked[FX_NOTES_MAX];
	struct fx_answer {
		wb_conn_t conn;
		uint64_t grant;
		int code; /* of a refusal; 0 = written */
		struct wb_xport_write write;
		bool is_over; /* the test says so */
	} answer[FX_NOTES_MAX];
	int n_asked, n_answer, n_cancel, n_hang_up;
};

/** fx_notes_init - nothing was asked yet. */
void fx_notes_init(struct fx_notes *n);

#endif
