# SPDX-License-Identifier: Apache-2.0
"""Which trainer sends which model to which engine is said in tests/frameworks/matrix.py: every combination runs or has its
reason, no test runs another or leaves one out, and README says the same."""
import os
import sys

TOP = os.environ.get("WB_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(TOP, "tests", "frameworks")
sys.path.insert(0, HERE)
import matrix  # noqa: E402


def every_combination_runs_or_has_one_reason():
    all_ = matrix.combinations()
    assert len(set(matrix.ROWS)) == len(matrix.ROWS) and set(matrix.ROWS) <= set(all_), "a row is there twice, or of nothing"
    for c in all_:
        why = matrix.reason(*c)
        if c in matrix.ROWS:
            assert why in (matrix.PARTS, matrix.APART), f"{c} runs, and it is said that it does not: {why}"
        else:
            assert why, f"{c} does not run, and nobody says why"


def each_row_has_a_test_that_takes_it():
    for row in matrix.ROWS:
        with open(os.path.join(HERE, matrix.test_of(row) + ".py")) as f:
            assert "\n    pairs(__file__)\n" in f.read(), row


def a_rank_is_killed_with_each_kind_of_trainer_and_of_engine():
    assert set(matrix.KILLED) <= set(matrix.ROWS), "killed in no row"
    for at, kinds in ((1, matrix.TRAINERS), (2, matrix.ENGINES)):
        have = {kinds[row[at]][1] for row in matrix.KILLED}
        assert have == {kind for _, kind, _, _ in kinds.values()}, f"a rank is killed with {sorted(have)} alone"


def readme_has_the_table():
    with open(os.path.join(HERE, "README.md")) as f:
        assert "\n" + matrix.table() + "\n" in f.read(), "write the output of tests/frameworks/matrix.py --table into README.md"


if __name__ == "__main__":
    for test in (every_combination_runs_or_has_one_reason, each_row_has_a_test_that_takes_it,
                 a_rank_is_killed_with_each_kind_of_trainer_and_of_engine, readme_has_the_table):
        test()
        print("ok", test.__name__)
