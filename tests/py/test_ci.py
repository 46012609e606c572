# SPDX-License-Identifier: Apache-2.0
"""What tests/ci/run.py promises: stamps, the order of tiers, the budget, the counts."""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time

TOP = os.environ.get("WB_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "ci"))
import counts  # noqa: E402
import flakes  # noqa: E402
import run  # noqa: E402
from tiers import ALWAYS, FIRST, LATER, TIERS, Tier  # noqa: E402


def tier(name, script="echo 2 passed, 0 failed, 1 skipped", minutes=1, paths=("README.md",), when=LATER, knobs=None, after=""):
    path = os.path.join(os.environ["CI_TEST_DIR"], name + ".sh")
    with open(path, "w") as f:
        f.write(f"echo {name} >> {os.environ['CI_TEST_DIR']}/ran\n{script}\n")
    return Tier(name, f"sh {path}", minutes, list(paths), when, knobs or {}, after)


def go(tiers, everything=False, chosen=(), spent=0, **env):
    """Runs them; exit status, what was printed, which had their turn."""
    dir = os.environ["CI_TEST_DIR"]
    open(os.path.join(dir, "ran"), "w").close()
    out = io.StringIO()
    mine = {k: v for k, v in os.environ.items() if k not in ("CI_MINUTES", "FLAKES")}
    r = run.Run(tiers, run.Stamps(os.path.join(dir, "stamps")), {**mine, **env}, everything, out,
                started=time.time() - 60 * spent)
    rc = r.go(chosen)
    return rc, out.getvalue(), open(os.path.join(dir, "ran")).read().split()


def what_passed_unchanged_is_skipped_with_a_sentence():
    tiers = [tier("a"), tier("always", when=ALWAYS)]
    assert go(tiers)[2] == ["always", "a"]
    rc, out, ran = go(tiers)
    assert rc == 0 and ran == ["always"], ran
    assert "a: skipped, it passed with the same content and tools at 20" in out and "(2 passed, 1 skipped)" in out, out
    assert out.endswith("\n2 passed, 0 failed, 2 skipped\n"), out


def a_tier_waits_for_the_one_that_makes_what_it_needs():
    tiers = [tier("programs", minutes=38), tier("pods", minutes=8, after="programs"), tier("other", minutes=8)]
    rc, out, ran = go(tiers, spent=50)
    assert rc == 0 and ran == ["other"] and "pods: skipped, programs has not passed" in out, out
    assert "did not fit into CI_MINUTES=75: programs pods" in out, out
    # Next time, on a machine where it takes a moment; and when it is changed while what needs it has waited longer.
    rc, out, ran = go(tiers)
    assert ran == ["programs", "pods"], (ran, out)
    tiers[1] = tiers[1]._replace(knobs={"x": "2"})
    go(tiers, spent=80)  # seen, and no time for it
    tiers[0] = tiers[0]._replace(knobs={"x": "2"})
    rc, out, ran = go(tiers)
    assert ran == ["programs", "pods"], (ran, out)
    broken = [tier("programs", "echo 0 passed, 1 failed, 0 skipped; exit 1", knobs={"x": "3"}), tiers[1]._replace(knobs={"x": "3"})]
    rc, out, ran = go(broken)
    assert rc == 1 and ran == ["programs"] and "pods: skipped" in out and "did not fit" not in out, out
    # What it needs has passed long ago: it has its turn among those that changed.
    tiers = [tier("old"), tier("programs"), tier("pods", after="programs")]
    go(tiers, spent=80)
    go(tiers)
    assert go([tiers[0], tiers[1], tiers[2]._replace(knobs={"x": "4"})])[2] == ["pods"]
    changed = [tiers[0]._replace(knobs={"x": "5"}), tiers[1], tiers[2]._replace(knobs={"x": "5"})]
    go([changed[0]], spent=80)  # seen before
    assert go(changed)[2] == ["pods", "old"]


def another_knob_command_or_content_is_another_key():
    t = tier("a", knobs={"KILLS": "60"})
    base = run.key(t, {}, "gcc 1")
    assert run.key(t, {"KILLS": "60"}, "gcc 1") == base
    others = [run.key(t, {"KILLS": "61"}, "gcc 1"), run.key(t, {}, "gcc 2"),
              run.key(t._replace(command="true"), {}, "gcc 1"), run.key(t._replace(paths=["Makefile"]), {}, "gcc 1")]
    assert len({base, *others}) == 5


def content_is_what_lies_in_the_work_tree():
    run.TOP, was = os.path.join(os.environ["CI_TEST_DIR"], "tree"), run.TOP
    try:
        subprocess.run(["git", "init", "-q", run.TOP], check=True)
        seen = [run.content(["."])]
        for name, text in (("new", "x"), ("new", "y"), ("not here.md", "z"), (".gitignore", "ignored"), ("ignored", "1")):
            with open(os.path.join(run.TOP, name), "w") as f:
                f.write(text)
            seen.append(run.content([".", ":!*.md"]))
        os.chmod(os.path.join(run.TOP, "new"), 0o755)
        seen.append(run.content(["."]))
        assert [a == b for a, b in zip(seen, seen[1:])] == [False, False, True, False, True, False], seen
    finally:
        run.TOP = was


def what_failed_or_broke_leaves_no_stamp():
    for script in ("echo 1 passed, 1 failed, 0 skipped; exit 1", "exit 3"):
        name = f"bad{len(script)}"
        rc, out, ran = go([tier(name, script)])
        assert rc == 1 and f"{name}: " in out and " 1 failed" in out, out
        assert go([tier(name, script)])[2] == [name]


def a_command_that_counts_nothing_is_one_test():
    assert go([tier("mute", "true")])[1].endswith("\n1 passed, 0 failed, 0 skipped\n")


def changed_comes_before_what_waited_and_that_by_how_long():
    t = {n: tier(n) for n in ("old", "older", "changed", "never")}
    first = tier("first", when=FIRST)
    known = {"old": {"seen": "k", "passed_at": 200}, "older": {"seen": "k", "passed_at": 100},
             "never": {"seen": "k", "passed_at": 0}, "changed": {"seen": "j", "passed_at": 300},
             "first": {"seen": "k", "passed_at": 400}}
    got = run.order([*t.values(), first], dict.fromkeys(known, "k"), known)
    assert [x.name for x in got] == ["first", "changed", "never", "older", "old"], got


def what_does_not_fit_is_named_and_smaller_ones_still_run():
    tiers = [tier("big", minutes=30), tier("small", minutes=1), tier("must", minutes=30, when=ALWAYS)]
    rc, out, ran = go(tiers, spent=60, CI_MINUTES="75")
    assert rc == 0 and ran == ["must", "small"], ran
    assert "big: skipped, its 30 minutes do not fit: 60 of CI_MINUTES=75 are gone" in out, out
    assert "did not fit into CI_MINUTES=75: big" in out, out


def what_it_took_last_counts_not_the_table():
    dir = os.path.join(os.environ["CI_TEST_DIR"], "stamps")
    run.Stamps(dir).took("slow", 40)
    assert go([tier("slow", minutes=1)], spent=60, CI_MINUTES="75")[2] == []


def a_tier_beyond_the_budget_is_ended_with_its_children():
    run.OVERTIME, was = -0.95, run.OVERTIME  # a minute to begin in, however slow this machine is, and 3 s to run
    try:
        pidfile = os.path.join(os.environ["CI_TEST_DIR"], "pid")
        t = [tier("long", f"sleep 300 & echo $! > {pidfile}; echo 1 passed, 0 failed, 0 skipped; wait", minutes=0)]
        rc, out, _ = go(t, spent=74, CI_MINUTES="75")
        assert rc == 0 and "cut by the end of the budget" in out, out
        assert "did not fit into CI_MINUTES=75: long" in out, out
        pid = int(open(pidfile).read())
        for _ in range(500):
            if not os.path.exists(f"/proc/{pid}") or open(f"/proc/{pid}/stat").read().split()[2] == "Z":
                break
            time.sleep(0.01)
        else:
            raise AssertionError("its child runs on")
        # Of a tier that every run owes, that is a failure.
        t = [tier("owed", "sleep 300", when=ALWAYS)]
        assert go(t, spent=74, CI_MINUTES="75")[0] == 1
    finally:
        run.OVERTIME = was


def who_is_told_to_stop_ends_the_tier_that_runs():
    pidfile = os.path.join(os.environ["CI_TEST_DIR"], "pid")

    def stopped(proc, read=run.read_some):
        if os.path.exists(pidfile):
            sys.exit(143)
        return read(proc)
    run.read_some, was = stopped, run.read_some
    try:
        go([tier("long", f"echo $$ > {pidfile}.new; mv {pidfile}.new {pidfile}; sleep 300")])
        raise AssertionError("it was not stopped")
    except SystemExit:
        pid = int(open(pidfile).read())
        assert not os.path.exists(f"/proc/{pid}"), "it runs on"
    finally:
        run.read_some = was


def all_knows_no_stamps_and_no_budget():
    tiers = [tier("a"), tier("b", minutes=500)]
    go(tiers)
    assert sorted(go(tiers, everything=True, spent=100)[2]) == ["a", "b"]


def a_named_tier_runs_whatever_its_stamp():
    tiers = [tier("a"), tier("b")]
    go(tiers)
    assert go(tiers, chosen=("b",))[2] == ["b"]


def damaged_stamps_are_as_none():
    dir = os.path.join(os.environ["CI_TEST_DIR"], "stamps")
    for text in ("", "{", "[]", '{"passed": 3}', "null"):
        go([tier("d")])
        with open(os.path.join(dir, "d.json"), "w") as f:
            f.write(text)
        assert go([tier("d")])[2] == ["d"], text
        json.load(open(os.path.join(dir, "d.json")))


def what_fails_once_is_run_again_alone_and_named():
    """tests/run.sh: the first test fails when it runs the first time, the second each time."""
    dir = os.environ["CI_TEST_DIR"]
    for name, script in (("once", f'[ -e {dir}/was ] || {{ touch {dir}/was; echo "of first"; exit 1; }}'), ("ever", "exit 1"),
                         ("never", "exit 0"), ("skips", "echo no such machine; exit 77")):
        with open(os.path.join(dir, "test_" + name), "w") as f:
            f.write("#!/bin/sh\n" + script + "\n")
        os.chmod(f.name, 0o755)
    env = {k: v for k, v in os.environ.items() if k not in ("RERUN", "STRICT")}
    env["TESTS"] = " ".join(os.path.join(dir, "test_" + n) for n in ("once", "ever", "never", "skips"))

    def lines(**more):
        os.path.exists(f"{dir}/was") and os.unlink(f"{dir}/was")
        r = subprocess.run([os.path.join(TOP, "tests", "run.sh"), dir], env={**env, **more}, capture_output=True, text=True)
        assert r.returncode == 1, r
        return r.stdout.splitlines()

    out = lines()
    assert out[-1] == "1 passed, 2 failed, 1 skipped" and not any("FLAKY" in x for x in out), out
    out = lines(RERUN="1")
    assert out[-1] == "2 passed, 1 failed, 1 skipped", out
    assert [x.split(":")[0] for x in out if "FLAKY" in x] == ["FLAKY test_once"], out
    with open(f"{dir}/log/test_once.first.log") as f:
        assert f.read() == "of first\n"


def what_a_failed_test_says_is_no_result_of_another():
    """Tests of several cases name those like tests, and a test of runners prints what they print."""
    dir = os.environ["CI_TEST_DIR"]
    path = os.path.join(dir, "test_cases")
    with open(path, "w") as f:
        f.write("#!/bin/sh\necho ok one_case\necho FAIL other_case\necho FLAKY third: x\necho 7 passed, 7 failed, 7 skipped\nexit 1\n")
    os.chmod(path, 0o755)
    command = f"env TESTS={path} {TOP}/tests/run.sh {dir}"
    rc, out, _ = go([Tier("cases", command, 1, ["README.md"], LATER, {})], everything=True)
    assert rc == 1 and "    FAIL other_case\n" in out and out.endswith("\n0 passed, 1 failed, 0 skipped\n"), out
    assert "--- the last words of cases/test_cases:\nFAIL test_cases (exit 1)\n    ok one_case\n" in out, out
    assert "run again alone" not in out, out
    row = next(counts.table(counts.Ledger(os.path.join(dir, "stamps")).runs(), 1))
    assert (row["tests"], row["failed"]) == (0, {"test_cases": 1}), row
    assert list(flakes.once(command.split())[0]) == ["test_cases"]


def a_busy_process_that_ends_by_itself_is_told_of():
    script = os.path.join(os.environ["CI_TEST_DIR"], "busy")
    for text, told in (("exit 0", 2), ("exec sleep 300", 0)):
        with open(script, "w") as f:
            f.write(text + "\n")
        said = io.StringIO()
        with contextlib.redirect_stderr(said), flakes.Load(2, script) as load:
            for p in load.procs * (told > 0):
                os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
        assert said.getvalue().count("ended by itself") == told, said.getvalue()
        assert all(p.returncode is not None for p in load.procs)


def all_the_tests_that_are_named_run_and_no_others():
    dir = os.environ["CI_TEST_DIR"]
    for name in ("one", "one_more", "other"):
        with open(os.path.join(dir, "test_" + name), "w") as f:
            f.write("#!/bin/sh\nexit 0\n")
        os.chmod(f.name, 0o755)
    tests = " ".join(os.path.join(dir, "test_" + n) for n in ("one", "one_more", "other"))
    for names, ran in (((), 3), (("test_one",), 1), (("test_one", "test_other"), 2)):
        r = subprocess.run([os.path.join(TOP, "tests", "run.sh"), dir, *names], env={**os.environ, "TESTS": tests},
                           capture_output=True, text=True)
        assert r.stdout.endswith(f"{ran} passed, 0 failed, 0 skipped\n"), (names, r)


FUZZER = """#!/bin/bash
for a; do case $a in -artifact_prefix=*) prefix=${a#*=} ;; esac; file=$a; done
if [ -n "${prefix:-}" ]; then echo it broke; [ "$KIND" = silent ] || echo input > "${prefix}crash-1"; exit 77; fi
grep -q input "$file" && [ "$KIND" = passes ]
"""


def what_a_fuzzer_found_is_tried_again():
    """It is a failure if it fails then, or if there is nothing to try; small inputs are printed."""
    dir = os.environ["CI_TEST_DIR"]
    fuzzer = os.path.join(dir, "fuzz_it")
    with open(fuzzer, "w") as f:
        f.write(FUZZER)
    os.chmod(fuzzer, 0o755)
    for kind, again, line in (("passes", "1", "FLAKY fuzz_it: "), ("passes", "", "FAIL fuzz fuzz_it"), ("fails", "1", "FAIL fuzz fuzz_it"),
                              ("silent", "1", "FAIL fuzz fuzz_it")):
        last = "1 passed, 0 failed" if "FLAKY" in line else "0 passed, 1 failed"
        out = os.path.join(dir, f"fuzz-{kind}-{again}")
        r = subprocess.run([os.path.join(TOP, "tests", "fuzz", "run.sh"), out, fuzzer], capture_output=True, text=True,
                           env={**os.environ, "KIND": kind, "RERUN": again})
        assert f"\n{line}" in r.stdout and r.stdout.endswith(f"\n{last}, 0 skipped\n"), (kind, r)
        assert (r.returncode == 0) == ("FLAKY" in line), (kind, r)
        assert ("aW5wdXQK" in r.stdout) == ("FAIL" in line and kind != "silent"), (kind, r)


def flaky_tests_are_named_and_more_than_a_few_fail_the_run():
    flaky = "".join(f"echo FLAKY test_{i}: failed beside others, passed alone; " for i in range(2))
    t = tier("a", flaky + "echo 9 passed, 0 failed, 0 skipped")
    rc, out, _ = go([t], FLAKES="2")
    assert rc == 0 and "run again alone: a/test_0 a/test_1\n" in out, out
    rc, out, _ = go([t], FLAKES="1", everything=True)
    assert rc == 1 and "more than FLAKES=1" in out and out.endswith("9 passed, 1 failed, 0 skipped\n"), out


def each_run_is_written_down_and_the_newest_are_added_up():
    """What passed only when run again is a failure there; what a damaged line says is not counted."""
    stamps = os.path.join(os.environ["CI_TEST_DIR"], "stamps")
    good, broken = "echo 9 passed, 0 failed, 1 skipped", "exit 1"
    flaky = "echo 'FAIL test_x (exit 1)'; echo 'FLAKY test_x: passed alone'; " + good
    for name, script in (("a", good), ("a", flaky), ("a", flaky), ("a", broken), ("b", good)):
        go([tier(name, script)], everything=True)
    with open(os.path.join(stamps, "runs.jsonl"), "a") as f:
        f.write('{"tier": "a"}\nnull\n{"tier": "a", "besi')
    ledger = counts.Ledger(stamps)
    ledger.add("a", 8, 0, 61.2, 9, ["test_y", "test_y"], 0)
    rows = {(r["tier"], r["beside"]): r for r in counts.table(ledger.runs(), 10)}
    assert list(rows) == [("a", "ci"), ("b", "ci"), ("a", 8)], rows
    a = rows["a", "ci"]
    assert (a["runs"], a["clean_runs"], a["failed"]) == (4, 1, {"test_x": 2, "(the command)": 1}), a
    assert a["tests"] == 9, a  # of runs that were not broken
    assert rows["a", 8]["failed"] == {"test_y": 1} and rows["a", 8]["seconds"] == [61, 61], rows
    assert 0 <= rows["a", 8]["load"][0] == rows["a", 8]["load"][1] and f"load {rows['a', 8]['load'][0]} to" in counts.text(rows["a", 8])
    a = next(counts.table(ledger.runs(), 2))
    assert (a["runs"], a["failed"]) == (2, {"test_x": 1, "(the command)": 1}), a
    assert "4 runs (1 clean)" in counts.text(rows["a", "ci"]) and "test_x in 2" in counts.text(rows["a", "ci"])


def each_tier_of_the_table_names_paths_that_exist():
    above = set()
    for t in TIERS:
        assert not t.after or t.after in above, t
        above.add(t.name)
    for t in TIERS:
        assert t.when in (ALWAYS, FIRST, LATER), t
        for path in t.paths:
            if not path.startswith(":!"):
                assert path == "." or run.content([path]) != run.content(["no-such-file"]), (t.name, path)


if __name__ == "__main__":
    for name, claim in list(globals().items()):
        if callable(claim) and getattr(claim, "__module__", "") == "__main__" and name not in ("tier", "go"):
            with tempfile.TemporaryDirectory() as d:
                os.environ["CI_TEST_DIR"] = d
                claim()
                print("ok", name)
