/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ident.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

struct wb_object_id wb_object_id_of(uint64_t uid)
{
	struct wb_object_id id = {.uid = uid};

	snprintf(id.text, sizeof(id.text), "%016llx", (unsigned long long)uid);
	id.hash = wb_hash64(id.text, strlen(id.text), 0);
	return id;
}
