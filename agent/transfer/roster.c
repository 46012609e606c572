/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/roster.h"

#include "base/mem.h"

#include <string.h>

void wb_roster_finish(struct wb_roster *r)
{
	for (uint32_t i = 0; r->agent && i < r->n_agent; i++) {
		wb_free(r->agent[i].name);
		wb_free(r->agent[i].control);
		wb_free(r->agent[i].bulk);
		for (uint32_t k = 0; k < r->agent[i].n_addr; k++) {
			wb_free(r->agent[i].addr[k]);
			if (k)
				wb_free(r->agent[i].more_bulk[k - 1]);
		}
		wb_free(r->agent[i].addr);
		wb_free(r->agent[i].more_bulk);
	}
	for (uint32_t i = 0; r->engine && i < r->n_engine; i++)
		wb_free(r->engine[i].name);
	for (uint32_t i = 0; r->worker && i < r->n_worker; i++)
		wb_free(r->worker[i].name);
	wb_free(r->agent);
	wb_free(r->engine);
	wb_free(r->worker);
	wb_free(r->uid);
	wb_free(r->object);
	memset(r, 0, sizeof(*r)); /* the key too */
}
