/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_verbs.h"

#include "tests/common/fx_beside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void find(void *lib, const char *name, void *out)
{
	void *f = dlsym(lib, name);

	if (!f)
		abort();
	memcpy(out, &f, sizeof(f));
}

static const char *library = "fake/libibverbs.so.1";

void fx_verbs_old(void)
{
	library = "fake/old/libibverbs.so.1";
}

const struct fx_verbs *fx_verbs(void)
{
	static struct fx_verbs v;

	if (!v.reset) {
		void *lib = fx_beside(library);

		find(lib, "fakeverbs_rule", &v.rule);
		find(lib, "fakeverbs_port", &v.port);
		find(lib, "fakeverbs_remove", &v.remove);
		find(lib, "fakeverbs_fatal", &v.fatal);
		find(lib, "fakeverbs_folder", &v.folder);
		find(lib, "fakeverbs_regid", &v.regid);
		find(lib, "fakeverbs_apart", &v.apart);
		find(lib, "fakeverbs_fail", &v.break_calls);
		find(lib, "fakeverbs_slow", &v.slow);
		find(lib, "fakeverbs_dmabuf", &v.dmabuf);
		find(lib, "fakeverbs_peer", &v.peer);
		find(lib, "fakeverbs_limit", &v.limit);
		find(lib, "fakeverbs_mtu", &v.mtu);
		find(lib, "fakeverbs_windows", &v.windows);
		find(lib, "fakeverbs_count", &v.count);
		find(lib, "fakeverbs_reset", &v.reset);
	}
	return &v;
}

/* ---- devices of this machine ------------------------------------------------------------------
 */

static const char *devices(void)
{
	return getenv("FX_DEVICES");
}

const struct fx_verbs *fx_verbs_fresh(void)
{
	const struct fx_verbs *v = fx_verbs();

	v->reset();
	return v;
}

bool fx_verbs_is_left_out(const char *kind)
{
	return devices() && strcmp(kind, "verbs") != 0;
}

void fx_verbs_open(void)
{
	if (devices())
		fprintf(stderr, "fx_verbs: on devices\n");
	else
		fx_verbs();
}

void fx_verbs_rail(int side, uint32_t i, char *out, size_t cap)
{
	char text[256], *at, *name;

	snprintf(out, cap, "127.0.0.1:0");
	if (!devices())
		return;
	snprintf(text, sizeof(text), "%s", devices());
	at = strtok(text, " ");
	for (int s = 0; at && s < side; s++)
		at = strtok(NULL, " ");
	for (name = strtok(at, ","); name && i > 0; i--)
		name = strtok(NULL, ",");
	if (!name) {
		fprintf(stderr, "fx_verbs: FX_DEVICES=%s: too few for a rail\n", devices());
		abort();
	}
	snprintf(out, cap, "%s@127.0.0.1:0", name);
}
