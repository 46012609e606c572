#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What measure.py says of a small tree whose figures were counted by hand."""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402
import source  # noqa: E402

HEADER = """/* SPDX-License-Identifier: Apache-2.0 */
#ifndef A_H
#define A_H
#define A_LOOP(x) for (int i = 0; i < (x); i++) { int not_a_function(int y); }
typedef int (*a_type)(int of_no_function);
struct a {
	int (*member)(void); /* no function either */
};
/** with_contract - says what it does. */
int with_contract(const char *s, int (*cb)(void *))
	__attribute__((format(printf, 1, 2)));
int behind(void); /* says it too */
int bare(void);
/* one, other - named, though only one stands below at once. */
int one(void);
int other(void);
int not_named(void);

int after_a_blank_line(void);
/* file.c */
int under_a_file_name(void);
/** first_of_two,
 *  second_of_two - said of both. */
int first_of_two(void);

int second_of_two(void);
extern int (*a_variable)(void);
/* Inline: declared and defined. */
static inline struct a *inlined(int x)
{
	return x ? (struct a *)0 : (struct a *){0};
}
static const int a_table[] = {sizeof(int), (2)};
#endif
"""
BODY = r"""/* SPDX-License-Identifier: Apache-2.0 */
#include "a.h"
/* int in_a_comment(void) { } assert(0); */
static const char *text = "int in_text(void) { assert(0) }";
static struct a value = {.member = 0};
struct a *straight(int x)
{
	assert(x);
	return &(struct a){0};
}
int
deep(int a,
     int b)
{
	if (a) {
		straight(1);
	} else if (b) {
		while (a)
			A_LOOP(b) {
				do {
					switch (a) {
					case 1:
						wb_dassert(b);
					}
				} while (0);
			}
	} else
		straight('"');
	return 0;
}
"""


def expect(what, is_, should):
    if is_ != should:
        print(f"measure: {what}: {is_!r}, should be {should!r}")
        return 1
    return 0


def tree(root, parts):
    for name, text in parts.items():
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "w", encoding="utf-8") as f:
            f.write(text)


def main():
    with tempfile.TemporaryDirectory() as root:
        long = "int f(void)\n{\n" + "\t;\n" * 68 + "}\n"  # 71 lines
        tree(root, {"agent/base/a.h": HEADER, "agent/base/sub/a.c": BODY, "planner/b.c": long,
                    "tests/c.c": long, "agent/doc.md": "int f(void)\n{\n}\n"})
        figures, lists = measure.measure(root)
    header, body = HEADER.count("\n"), BODY.count("\n")
    bad = 0
    for what, should in {
        "product lines": header + body + 71,
        "functions": 4,  # inlined 4, straight 5, deep 20, f 71 lines
        "median function, lines": 5,
        "90th percentile, lines": 71,
        "functions > 70 lines": 1,
        "share > 70 lines, %": 25.0,
        "deepest nesting": 5,
        "asserts a kloc": round(2000 / (header + body + 71), 2),
        "header functions": 11,
        "header functions without contract": 4,
        "lines by folder": {"agent/base": header + body, "planner": 71},
    }.items():
        bad += expect(what, figures[what], should)
    bad += expect("without contract", [x.split()[-1] for x in lists["without contract"]],
                  ["bare", "not_named", "after_a_blank_line", "under_a_file_name"])
    deep = [f for f in source.functions("a.c", BODY) if f.name == "deep"][0]
    bad += expect("a head of three lines", (deep.first, deep.lines, deep.nesting), (11, 20, 5))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
