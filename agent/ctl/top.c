/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl top: a line for each worker, from the status pages of agents: phase, bytes, rate, and who
 * waits for whom.  On a terminal each table takes the place of the last; elsewhere tables follow
 * each other. */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "ctl/table.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define AGENTS_MAX 1024
#define ROWS_MAX 65536
#define PATIENCE_MS 3000 /* for one agent, so that the others are still shown */
#define NOT_KNOWN (-1.0)

struct row {
	char agent[128], worker[256], engine[128], phase[32], whom[320], why[160];
	char by[64]; /* transports of its agent's bytes */
	uint64_t transfer;
	int64_t version;
	double in, in_planned, out, out_planned; /* bytes */
	double at_s, age_s, rate; /* when read; of the transfer; bytes/s or NOT_KNOWN */
	bool is_still; /* it has bytes left, and moved none since the table before */
};

/* What was seen at one time. */
struct view {
	struct row *row; /* owned */
	size_t n, cap;
	json_t *away; /* owned: agents that did not answer */
};

struct top {
	char *addr[AGENTS_MAX]; /* point into list */
	size_t n_addr;
	char *list; /* owned */
	struct view now, before;
	double every_s;
	bool is_terminal, has_colour;
};

/* ---- reading ---- */

/* Text that is shown on a terminal must not control it. */
static void take_text(const json_t *v, const char *path, char *out, size_t cap)
{
	wb__ctl_text(v, path, out, cap);
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

static void take_row(const json_t *w, const char *agent, struct row *r)
{
	const json_t *p = json_object_get(w, "progress");

	*r = (struct row){.rate = NOT_KNOWN, .at_s = (double)wb_now_ns(&wb_clock_real) * 1e-9};
	snprintf(r->agent, sizeof(r->agent), "%.127s", agent);
	take_text(w, "name", r->worker, sizeof(r->worker));
	take_text(w, "engine", r->engine, sizeof(r->engine));
	take_text(p, "phase", r->phase, sizeof(r->phase));
	take_text(p, "waitsFor", r->whom, sizeof(r->whom));
	take_text(p, "waitsWhy", r->why, sizeof(r->why));
	r->transfer = (uint64_t)wb__ctl_number(p, "transfer", 0);
	r->version = (int64_t)wb__ctl_number(w, "version", -1);
	r->in = wb__ctl_number(p, "inBytes", 0);
	r->in_planned = wb__ctl_number(p, "inPlannedBytes", 0);
	r->out = wb__ctl_number(p, "outBytes", 0);
	r->out_planned = wb__ctl_number(p, "outPlannedBytes", 0);
	r->age_s = wb__ctl_number(p, "ageMs", 0) / 1e3;
	if (!r->phase[0])
		snprintf(r->phase, sizeof(r->phase), "Unplanned");
}

static bool is_busy(const struct row *r)
{
	return r->transfer && strcmp(r->phase, "Idle") != 0;
}

static const struct row *same_of(const struct view *v, const struct row *r)
{
	for (size_t i = 0; i < v->n; i++)
		if (!strcmp(v->row[i].worker, r->worker) && !strcmp(v->row[i].agent, r->agent))
			return v->row[i].transfer == r->transfer ? &v->row[i] : NULL;
	return NULL;
}

/* The rate since the table before; in the first table since the transfer began. */
static void judge_rate(const struct view *before, struct row *r)
{
	const struct row *b = same_of(before, r);
	double moved = r->in + r->out, s = r->age_s;

	if (b) {
		moved -= b->in + b->out;
		s = r->at_s - b->at_s;
	}
	if (moved >= 0 && s > 0 && is_busy(r))
		r->rate = moved / s;
	r->is_still =
		b && is_busy(r) && moved == 0 && (r->in < r->in_planned || r->out < r->out_planned);
}

/* Adds @word to a list with commas, if it is not there.  "tcp" is another word than "tcp+tls". */
static void add_word(char *out, size_t cap, const char *word)
{
	size_t n = strlen(word), at = strlen(out);
	const char *is = strstr(out, word);

	while (is && is[n] && is[n] != ',')
		is = strstr(is + 1, word);
	if (n && !is && at + n + 2 < cap)
		snprintf(out + at, cap - at, "%s%s", at ? "," : "", word);
}

/* Transports that carry the agent's bytes, with commas. */
static void take_transports(const json_t *page, char *out, size_t cap)
{
	const json_t *o, *p;
	char via[24];
	size_t i, k;

	out[0] = '\0';
	json_array_foreach(json_object_get(page, "objects"), i, o)
	{
		json_array_foreach(json_object_get(o, "peers"), k, p)
		{
			take_text(p, "transport", via, sizeof(via));
			add_word(out, cap, via);
		}
	}
}

static int read_agent(struct top *t, const char *addr, struct wb_err *err)
{
	struct wb_err why = {0};
	json_t *page = NULL;
	const json_t *w;
	char agent[128];
	size_t i;
	int rc = wb__ctl_fetch_json(addr, "/status", NULL, &page, &why);

	if (rc < 0) {
		json_array_append_new(
			t->now.away, json_pack("{s:s, s:s}", "agent", addr, "message", why.msg));
		return 0;
	}
	take_text(page, "agent", agent, sizeof(agent));
	if (!agent[0])
		rc = wb_err_set(err, -EINVAL, "%s is not an agent's page", addr);
	json_array_foreach(json_object_get(page, "workers"), i, w)
	{
		if (rc == 0 && wb_grow(&t->now.row, &t->now.cap, t->now.n + 1, ROWS_MAX,
				       sizeof(*t->now.row)) < 0)
			rc = wb_err_set(err, -E2BIG, "more than %d workers", ROWS_MAX);
		if (rc < 0)
			break;
		take_row(w, agent, &t->now.row[t->now.n]);
		take_transports(page, t->now.row[t->now.n].by, sizeof(t->now.row[0].by));
		judge_rate(&t->before, &t->now.row[t->now.n]);
		t->now.n++;
	}
	json_decref(page);
	return rc;
}

static int look(struct top *t, struct wb_err *err)
{
	struct view old = t->before;
	int rc = 0;

	t->before = t->now;
	json_decref(old.away);
	t->now = (struct view){.row = old.row, .cap = old.cap, .away = json_array()};
	for (size_t i = 0; i < t->n_addr && rc == 0; i++)
		rc = read_agent(t, t->addr[i], err);
	return rc;
}

/* ---- printing ---- */

/* Both numbers are in the unit of the greater: "12.5/64.0 MB 20%". */
static void put_bytes(struct wb__ctl_table *t, double done, double planned)
{
	static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	double most = WB_MAX(done, planned), by = 1;
	size_t u = 0;

	for (; most / by >= 1000 && u + 1 < WB_ARRAY_SIZE(unit); u++)
		by *= 1000;
	if (most <= 0)
		wb__ctl_cell(t, "-");
	else if (planned > 0)
		wb__ctl_cell(t, "%.*f/%.*f %s %.0f%%", u ? 1 : 0, done / by, u ? 1 : 0,
			planned / by, unit[u], 100 * done / planned);
	else
		wb__ctl_cell(t, "%.*f %s", u ? 1 : 0, done / by, unit[u]);
}

static void put_rate(struct wb__ctl_table *t, double rate)
{
	if (rate < 0)
		wb__ctl_cell(t, "-");
	else
		wb__ctl_cell(t, "%.*f MB/s", rate < 1e7 ? 2 : 0, rate / 1e6);
}

static void put_row(struct wb__ctl_table *t, const struct row *r)
{
	wb__ctl_cell(t, "%s", r->worker);
	wb__ctl_cell(t, "%s", r->engine[0] ? r->engine : "(trainer)");
	wb__ctl_cell(t, "%s", r->phase);
	if (r->transfer)
		wb__ctl_cell(t, "%llu", (unsigned long long)r->transfer);
	else
		wb__ctl_cell(t, "-");
	put_bytes(t, r->in, r->in_planned);
	put_bytes(t, r->out, r->out_planned);
	put_rate(t, r->rate);
	wb__ctl_cell(t, "%s", r->by[0] ? r->by : "-");
	wb__ctl_cell(t, "%s%s%s", r->whom[0] ? r->whom : "-", r->why[0] ? ", " : "", r->why);
}

static void put_title(const struct top *t, FILE *out)
{
	char clock[16] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	fprintf(out, "%s  %zu agents, %zu workers\n", clock,
		t->n_addr - json_array_size(t->now.away), t->now.n);
}

/* Prints title, head, a line for each worker, and which agents did not answer. */
static int print_table(const struct top *t, FILE *out)
{
	static const char *const heads[] = {
		"WORKER", "ENGINE", "PHASE", "TRANSFER", "IN", "OUT", "RATE", "BY", "WAITS FOR"};
	struct wb__ctl_table table;
	const json_t *away;
	size_t i;
	int rc;

	put_title(t, out);
	wb__ctl_table_init(&table, WB_ARRAY_SIZE(heads));
	for (i = 0; i < WB_ARRAY_SIZE(heads); i++)
		wb__ctl_cell(&table, "%s", heads[i]);
	for (i = 0; i < t->now.n; i++)
		put_row(&table, &t->now.row[i]);
	rc = wb__ctl_print(&table, "", out);
	wb__ctl_table_finish(&table);
	json_array_foreach(t->now.away, i, away)
	{
		fprintf(out, "%s\n", json_string_value(json_object_get(away, "message")));
	}
	return rc;
}

/* ---- a terminal ---- */

static const char *colour_of(const struct top *t, size_t line)
{
	const struct row *r = line >= 2 && line - 2 < t->now.n ? &t->now.row[line - 2] : NULL;

	if (!t->has_colour)
		return "";
	if (line == 1)
		return "\033[1m";
	if (r && !strcmp(r->phase, "Torn"))
		return "\033[31m";
	return r && r->is_still ? "\033[33m" : "";
}

/* How many bytes of a line fit into @width columns; a character may have several bytes. */
static size_t clip(const char *line, size_t n, size_t width)
{
	size_t i = 0, seen = 0;

	for (; i < n; i++)
		if (((unsigned char)line[i] & 0xc0) != 0x80 && seen++ == width)
			break;
	return i;
}

static void draw(const struct top *t, const char *text)
{
	struct winsize size = {.ws_row = 0};
	size_t line = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row || !size.ws_col)
		size = (struct winsize){.ws_row = 24, .ws_col = 80}; /* the terminal does not say */
	fputs("\033[H", stdout);
	for (const char *at = text; *at && line + 1 < size.ws_row; line++) {
		size_t n = strcspn(at, "\n");
		const char *colour = colour_of(t, line);

		fprintf(stdout, "%s%.*s%s\033[K\n", colour, (int)clip(at, n, size.ws_col), at,
			*colour ? "\033[0m" : "");
		at += n + (at[n] == '\n');
	}
	fputs("\033[J", stdout);
}

static int show_table(const struct top *t)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *f;
	int rc;

	if (!t->is_terminal)
		return print_table(t, stdout);
	f = open_memstream(&text, &bytes);
	if (!f)
		return -ENOMEM;
	rc = print_table(t, f);
	if (fclose(f))
		rc = -ENOMEM;
	if (rc == 0)
		draw(t, text);
	free(text);
	return rc;
}

static int show_json(const struct top *t)
{
	json_t *list = json_array(), *all;

	for (size_t i = 0; i < t->now.n; i++) {
		const struct row *r = &t->now.row[i];
		json_t *o = json_pack(
			"{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s}",
			"agent", r->agent, "worker", r->worker, "engine", r->engine, "phase",
			r->phase, "transfer", (json_int_t)r->transfer, "version",
			(json_int_t)r->version, "inBytes", (json_int_t)r->in, "inPlannedBytes",
			(json_int_t)r->in_planned, "outBytes", (json_int_t)r->out,
			"outPlannedBytes", (json_int_t)r->out_planned, "transports", r->by,
			"waitsFor", r->whom, "waitsWhy", r->why);

		json_object_set_new(
			o, "bytesPerSecond", r->rate < 0 ? json_null() : json_real(r->rate));
		json_array_append_new(list, o);
	}
	all = json_pack("{s:f, s:o, s:O}", "time", (double)wb_wall_ns() * 1e-9, "workers", list,
		"unreachable", t->now.away);
	if (!all || json_dumpf(all, stdout, JSON_COMPACT) < 0)
		return -ENOMEM;
	putchar('\n');
	json_decref(all);
	return 0;
}

/* ---- again and again ---- */

static int wait_until(uint64_t at_ns)
{
	uint64_t now = wb_now_ns(&wb_clock_real);
	uint64_t left = at_ns > now ? at_ns - now : 0;
	struct timespec nap = {(time_t)(left / WB_NS_PER_S), (long)(left % WB_NS_PER_S)};

	return nanosleep(&nap, NULL);
}

static int go_on(struct top *t, const struct wb__ctl_opts *o, struct wb_err *err)
{
	uint64_t begin_ns = wb_now_ns(&wb_clock_real), step_ns = (uint64_t)(t->every_s * 1e9);
	int rc;

	if (t->is_terminal)
		fputs("\033[2J", stdout);
	for (uint64_t n = 0;; n++) {
		rc = look(t, err);
		if (rc == 0 && !n && json_array_size(t->now.away) == t->n_addr)
			rc = wb_err_set(err, -ECONNREFUSED, "%s",
				json_string_value(json_object_get(
					json_array_get(t->now.away, 0), "message")));
		if (rc < 0)
			return rc;
		rc = o->is_json ? show_json(t) : show_table(t);
		if (rc < 0)
			return wb_err_set(err, rc, "no memory for %zu workers", t->now.n);
		if (fflush(stdout))
			return wb_err_set(err, -errno, "write to stdout: %s", strerror(errno));
		if (o->is_once)
			return 0;
		/* Tables for which it is too late are left out. */
		n = WB_MAX(n, (wb_now_ns(&wb_clock_real) - begin_ns) / step_ns);
		wait_until(begin_ns + (n + 1) * step_ns);
		if (!t->is_terminal && !o->is_json)
			putchar('\n');
	}
}

static int take_addresses(struct top *t, const struct wb__ctl_opts *o, struct wb_err *err)
{
	char text[32], *save = NULL;
	const char *given = wb__ctl_agent(o, text);

	if (!given)
		return wb_err_set(err, -EINVAL,
			"top reads agents: --agent HOST:PORT,HOST:PORT... of those to look at");
	t->list = wb_strdup(given);
	if (!t->list)
		return wb_err_set(err, -ENOMEM, "no memory");
	for (char *a = strtok_r(t->list, ",", &save); a; a = strtok_r(NULL, ",", &save)) {
		if (t->n_addr == AGENTS_MAX)
			return wb_err_set(err, -E2BIG, "more than %d agents", AGENTS_MAX);
		t->addr[t->n_addr++] = a;
	}
	return t->n_addr ? 0 : wb_err_set(err, -EINVAL, "--agent names none");
}

/* -n means a namespace in other commands, and seconds in every program called top. */
static int take_interval(struct top *t, const struct wb__ctl_opts *o, struct wb_err *err)
{
	const char *text = o->interval ? o->interval : o->ns;
	char *end;

	t->every_s = text ? strtod(text, &end) : 1;
	if (text && (end == text || *end || !(t->every_s >= 0.1 && t->every_s <= 3600)))
		return wb_err_set(err, -EINVAL, "%s %s: expected 0.1 to 3600 seconds",
			o->interval ? "--interval" : "-n", text);
	return 0;
}

int wb__ctl_top(const struct wb__ctl_opts *o, struct wb_err *err)
{
	const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
	struct top *t = wb_zalloc(1, sizeof(*t));
	int rc;

	if (!t)
		return wb_err_set(err, -ENOMEM, "no memory");
	t->is_terminal = !o->is_json && !o->is_once && isatty(STDOUT_FILENO) && term &&
			 strcmp(term, "dumb") != 0;
	t->has_colour = t->is_terminal && !(plain && *plain);
	wb__ctl_patience(PATIENCE_MS);
	rc = take_addresses(t, o, err);
	if (rc == 0)
		rc = take_interval(t, o, err);
	if (rc == 0)
		rc = go_on(t, o, err);
	json_decref(t->now.away);
	json_decref(t->before.away);
	wb_free(t->now.row);
	wb_free(t->before.row);
	wb_free(t->list);
	wb_free(t);
	return rc;
}
