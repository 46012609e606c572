# SPDX-License-Identifier: Apache-2.0
"""Tests that are functions: one after the other, by name, until one fails."""


def run_all(tests, where=""):
    for f in tests:
        try:
            f()
        except BaseException:
            print(f"FAIL {f.__name__}", flush=True)
            raise
        print(f"ok {f.__name__}", flush=True)
    print(f"{len(tests)} tests{where}")
