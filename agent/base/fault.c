/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RULES_MAX 32
#define TEXT_MAX 4096

struct rule {
	unsigned action;
	enum wb_fault_place place;
	uint64_t rail, version, transfer, chunk; /* WB_FAULT_ANY = any; chunk: 0 = any */
	uint64_t ns;
	uint64_t threshold; /* fires when a random 64-bit number is below it; 0 = always */
	uint64_t seed;
	_Atomic uint64_t hits;
};

struct wb_fault {
	unsigned places; /* a bit for each place that a rule names */
	uint32_t n_rule;
	struct rule rule[RULES_MAX];
};

static const char *const action_name[] = {"drop", "delay", "flip", "kill", "stall", "misplace"};
#define MOVES (WB_FAULT_DROP | WB_FAULT_DELAY | WB_FAULT_STALL)

enum { KNOWS_NOTHING, KNOWS_RAIL, KNOWS_TRANSFER /* and its version */ };

/* For each place: the actions that the caller of wb_fault_hit() can carry out there, and what the
 * caller knows.  kill is not listed, since wb_fault_hit() carries it out itself. */
static const struct {
	const char *name;
	unsigned actions;
	int knows;
} places[] = {
	[WB_FAULT_WIRE] = {"wire", MOVES | WB_FAULT_FLIP, KNOWS_RAIL},
	[WB_FAULT_SEND] = {"send", WB_FAULT_DROP, KNOWS_TRANSFER},
	[WB_FAULT_RECV] = {"recv", 0, KNOWS_TRANSFER},
	[WB_FAULT_RELAY] = {"relay", WB_FAULT_FLIP, KNOWS_TRANSFER},
	[WB_FAULT_SLOT] = {"slot", WB_FAULT_FLIP, KNOWS_TRANSFER},
	[WB_FAULT_ASSEMBLE] = {"assemble", WB_FAULT_MISPLACE, KNOWS_TRANSFER},
	[WB_FAULT_INSTALL] = {"install", WB_FAULT_FLIP, KNOWS_TRANSFER},
	[WB_FAULT_COPY] = {"copy", WB_FAULT_FLIP, KNOWS_TRANSFER},
	[WB_FAULT_RAIL] = {"rail", MOVES, KNOWS_RAIL},
	[WB_FAULT_CTRL] = {"ctrl", WB_FAULT_DROP, KNOWS_TRANSFER},
	[WB_FAULT_ATTACH] = {"attach", 0, KNOWS_NOTHING},
	[WB_FAULT_PLAN] = {"plan", 0, KNOWS_NOTHING},
	[WB_FAULT_READY] = {"ready", 0, KNOWS_NOTHING},
	[WB_FAULT_ACTIVATE] = {"activate", 0, KNOWS_NOTHING},
	[WB_FAULT_PREPARE] = {"prepare", 0, KNOWS_TRANSFER},
	[WB_FAULT_RELEASE] = {"release", 0, KNOWS_TRANSFER},
	[WB_FAULT_COMMIT] = {"commit", 0, KNOWS_TRANSFER},
};

static bool parse_number(const char *s, uint64_t *out)
{
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return !errno && !*end;
}

/* "2s", "1.5ms", "100us", "7ns" */
static bool parse_time(const char *s, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
	char *end;
	double v;

	if (*s < '0' || *s > '9')
		return false;
	v = strtod(s, &end);
	for (size_t i = 0; i < WB_ARRAY_SIZE(units); i++) {
		if (!strcmp(end, units[i].unit) && v >= 0 && v * units[i].ns < 1e18) {
			*ns = (uint64_t)(v * units[i].ns);
			return true;
		}
	}
	return false;
}

static bool parse_probability(const char *s, uint64_t *threshold)
{
	char *end;
	double v;

	if (*s != '.' && (*s < '0' || *s > '9'))
		return false;
	v = strtod(s, &end);
	if (*end || !(v > 0) || v > 1)
		return false;
	*threshold = v == 1 ? 0 : WB_MAX((uint64_t)(v * 18446744073709551616.0), 1u);
	return true;
}

#define PROPERTIES                                                                                 \
	"chunk=K (from 1), version=V, transfer=T, rail=N, seed=S, a probability above 0 and up "   \
	"to 1, or a time such as 2s, 5ms or 100us"

static bool parse_property(struct rule *r, char *s)
{
	static const struct {
		const char *name;
		size_t offset;
	} props[] = {
		{"chunk", offsetof(struct rule, chunk)},
		{"version", offsetof(struct rule, version)},
		{"transfer", offsetof(struct rule, transfer)},
		{"rail", offsetof(struct rule, rail)},
		{"seed", offsetof(struct rule, seed)},
	};
	char *eq = strchr(s, '=');

	if (!eq)
		return parse_time(s, &r->ns) || parse_probability(s, &r->threshold);
	*eq = 0;
	for (size_t i = 0; i < WB_ARRAY_SIZE(props); i++) {
		uint64_t *at = (uint64_t *)(void *)((char *)r + props[i].offset);

		if (!strcmp(s, props[i].name))
			return parse_number(eq + 1, at) && *at != WB_FAULT_ANY &&
			       (*at || at != &r->chunk);
	}
	return false;
}

static bool parse_head(struct rule *r, char *s)
{
	char *eq = strchr(s, '=');
	bool known = false;

	if (!eq)
		return false;
	*eq++ = 0;
	for (size_t i = 0; i < WB_ARRAY_SIZE(action_name); i++) {
		if (!strcmp(s, action_name[i]))
			r->action = 1u << i;
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(places); i++) {
		if (!strcmp(eq, places[i].name)) {
			r->place = (enum wb_fault_place)i;
			known = true;
		}
	}
	if (!known && !strncmp(eq, "rail", 4) && parse_number(eq + 4, &r->rail)) {
		r->place = WB_FAULT_RAIL;
		known = true;
	}
	return r->action && known;
}

/* @s is modified; @shown: the rule as the user wrote it. */
static int parse_rule(struct rule *r, char *s, const char *shown, struct wb_err *err)
{
	char *save = NULL;
	char *part = strtok_r(s, ":", &save);
	char was[40];

	r->rail = r->version = r->transfer = WB_FAULT_ANY;
	r->ns = 1000000000;
	if (!part || !parse_head(r, part))
		return wb_err_set(err, -EINVAL,
			"WB_FAULT rule '%s' is not ACTION=PLACE[:PROPERTY]...; actions are "
			"drop delay flip kill stall misplace; places are wire send recv "
			"relay slot assemble install copy railN ctrl attach plan ready activate "
			"prepare release commit; e.g. flip=wire:0.01 or stall=rail0:2s",
			shown);
	while ((part = strtok_r(NULL, ":", &save))) {
		snprintf(was, sizeof(was), "%s", part);
		if (!parse_property(r, part))
			return wb_err_set(err, -EINVAL,
				"WB_FAULT rule '%s': '%s' is no property: " PROPERTIES, shown, was);
	}
	return 0;
}

static bool has_effect(const struct rule *r)
{
	return r->action & (places[r->place].actions | WB_FAULT_KILL);
}

/* A rule that does nothing is refused: its user would believe that the system withstood the
 * fault. */
static int no_effect(const struct rule *r, const char *shown, struct wb_err *err)
{
	char can[64] = "";
	size_t at = 0;

	for (size_t i = 0; i < WB_ARRAY_SIZE(action_name); i++) {
		if ((places[r->place].actions | WB_FAULT_KILL) & 1u << i)
			at += (size_t)snprintf(
				can + at, sizeof(can) - at, "%s%s", at ? " " : "", action_name[i]);
	}
	return wb_err_set(err, -EINVAL, "WB_FAULT rule '%s' would do nothing: at %s one can %s",
		shown, places[r->place].name, can);
}

/* A rule with a property that is not known at its place is refused too: it would never match. */
static int check_known(const struct rule *r, const char *shown, struct wb_err *err)
{
	bool has_transfer = r->version != WB_FAULT_ANY || r->transfer != WB_FAULT_ANY;
	int knows = places[r->place].knows;
	const char *what = has_transfer && knows != KNOWS_TRANSFER ? "version and transfer are"
			   : r->rail != WB_FAULT_ANY && knows != KNOWS_RAIL ? "the rail is"
									    : NULL;

	return what ? wb_err_set(err, -EINVAL,
			      "WB_FAULT rule '%s' would do nothing: at %s %s not known", shown,
			      places[r->place].name, what)
		    : 0;
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\n");
	n = strlen(s);
	while (n && strchr(" \t\n", s[n - 1]))
		s[--n] = 0;
	return s;
}

int wb_fault_parse(const char *text, struct wb_fault **out, struct wb_err *err)
{
	struct wb_fault *f;
	char *copy, *save = NULL, *s;
	char shown[80];
	int rc = 0;

	if (!text || !*text) {
		*out = NULL;
		return 0;
	}
	if (strnlen(text, TEXT_MAX) == TEXT_MAX)
		return wb_err_set(err, -EINVAL, "WB_FAULT is longer than %d bytes", TEXT_MAX);
	f = wb_zalloc(1, sizeof(*f));
	copy = wb_strdup(text);
	if (!f || !copy) {
		rc = wb_err_set(err, -ENOMEM, "no memory for WB_FAULT");
		goto fail;
	}
	for (s = strtok_r(copy, ";", &save); s; s = strtok_r(NULL, ";", &save)) {
		s = trim(s);
		if (!*s)
			continue;
		strncpy(shown, s, sizeof(shown) - 1);
		shown[sizeof(shown) - 1] = 0;
		if (f->n_rule == RULES_MAX) {
			rc = wb_err_set(err, -EINVAL, "WB_FAULT has more than %d rules", RULES_MAX);
			goto fail;
		}
		rc = parse_rule(&f->rule[f->n_rule], s, shown, err);
		if (rc == 0 && !has_effect(&f->rule[f->n_rule]))
			rc = no_effect(&f->rule[f->n_rule], shown, err);
		if (rc == 0)
			rc = check_known(&f->rule[f->n_rule], shown, err);
		if (rc < 0)
			goto fail;
		f->places |= 1u << f->rule[f->n_rule].place;
		f->n_rule++;
	}
	wb_free(copy);
	if (!f->n_rule) {
		wb_free(f);
		f = NULL;
	}
	*out = f;
	return 0;
fail:
	wb_free(copy);
	wb_free(f);
	return rc;
}

static int no_place(const struct rule *r, unsigned has, const char *who, struct wb_err *err)
{
	char list[160] = "";
	size_t at = 0;

	for (size_t i = 0; i < WB_ARRAY_SIZE(places); i++)
		if (has & 1u << i)
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", at ? " " : "",
				places[i].name);
	return wb_err_set(err, -EINVAL,
		"WB_FAULT has a rule for %s, which %s does not have: its places are %s",
		places[r->place].name, who, list);
}

int wb_fault_check(const struct wb_fault *f, const char *who, unsigned has, uint32_t n_rail,
	struct wb_err *err)
{
	for (uint32_t i = 0; f && i < f->n_rule; i++) {
		const struct rule *r = &f->rule[i];

		if (!(has & 1u << r->place))
			return no_place(r, has, who, err);
		if (r->rail != WB_FAULT_ANY && r->rail >= n_rail)
			return wb_err_set(err, -EINVAL,
				"WB_FAULT has a rule for rail %llu, which %s does not have: its "
				"rails are 0 to %u",
				(unsigned long long)r->rail, who, n_rail - 1);
	}
	return 0;
}

void wb_fault_destroy(struct wb_fault *f)
{
	wb_free(f);
}

static bool matches(uint64_t want, uint64_t have)
{
	return want == WB_FAULT_ANY || want == have;
}

unsigned wb__fault_hit(struct wb_fault *f, enum wb_fault_place place, const struct wb_fault_at *at,
	struct wb_fault_hit *hit)
{
	*hit = (struct wb_fault_hit){0};
	if (!(f->places & (1u << place)))
		return 0;
	for (uint32_t i = 0; i < f->n_rule; i++) {
		struct rule *r = &f->rule[i];
		uint64_t n, random;

		if (r->place != place || !matches(r->rail, at->rail) ||
			!matches(r->version, at->version) || !matches(r->transfer, at->transfer))
			continue;
		n = atomic_fetch_add_explicit(&r->hits, 1, memory_order_relaxed) + 1;
		random = wb_mix64(wb_mix64(r->seed + 1) ^ n);
		if (r->chunk && n != r->chunk)
			continue;
		if (r->threshold && random >= r->threshold)
			continue;
		/* A stall with neither probability nor chunk= happens once: a rail passes here all
		 * the time. */
		if (r->action == WB_FAULT_STALL && !r->threshold && !r->chunk && n != 1)
			continue;
		if (r->action == WB_FAULT_KILL)
			kill(getpid(), SIGKILL);
		hit->actions |= r->action;
		if (r->action & (WB_FAULT_DELAY | WB_FAULT_STALL))
			hit->delay_ns = WB_MAX(hit->delay_ns, r->ns);
		hit->bit = wb_mix64(random);
	}
	return hit->actions;
}
