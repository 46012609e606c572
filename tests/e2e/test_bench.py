# SPDX-License-Identifier: Apache-2.0
"""wbctl bench: two processes, over each transport, and what each says when the other is not as it should be."""
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile

from cluster import BUILD, SLOW, OnTerminal, Proc, run

TOP = os.environ.get("WB_TOP", os.path.join(os.path.dirname(__file__), "../.."))
WBCTL = os.path.join(BUILD, "bin", "wbctl")
KEYS = {"a": "11" * 32, "b": "22" * 32}
QUICK = ("--seconds", "1", "--sizes", "64Ki,1Mi", "--depths", "1,4")
LONG = ("--seconds", "3600", "--sizes", "1Mi", "--depths", "4", "--sums", "on")


@contextlib.contextmanager
def source(where, *args, key="a", env=None):
    """A source, and the address that it has printed."""
    p = Proc("source", [WBCTL, "bench", "--listen", where, "--json", *args],
             env={"WEIGHTBRIDGE_BENCH_KEY": KEYS[key], **(env or {})})
    try:
        yield p, p.expect(r'"to": "(.*)"')[1]
    finally:
        p.p.kill()
        p.p.wait()


def receive(to, *args, key="a", env=None):
    """(exit status, stdout, stderr) of a receiver."""
    p = subprocess.run([WBCTL, "bench", "--to", to, *args], capture_output=True, text=True, timeout=60 * SLOW,
                       check=False, env={**os.environ, "WEIGHTBRIDGE_BENCH_KEY": KEYS[key], **(env or {})})
    return p.returncode, p.stdout, p.stderr


def good(to, *args, **kw):
    rc, out, err = receive(to, *args, "--json", **kw)
    assert rc == 0 and not err, (rc, out, err)
    return json.loads(out)


def check(sheet, transport, rails=(1,)):
    """All points of QUICK are there, and each has moved something."""
    assert sheet["transport"] == transport and sheet["memcpyBytesPerSecond"] > 0, sheet
    assert [x["rails"] for x in sheet["latency"]] == list(rails), sheet
    reads = sheet["readLatency"]
    assert [(x["bytes"], x["depth"]) for x in reads] == ([(64, 1)] if transport == "verbs" else []), sheet
    assert all(x["reads"] >= 4 and x["reads"] % 511 == 0 for x in reads), sheet
    want = {(r, sums, size, depth) for r in rails for sums in (False, True) for size in (65536, 1 << 20)
            for depth in (1, 4)}
    assert {(x["rails"], x["sums"], x["bytes"], x["depth"]) for x in sheet["bandwidth"]} == want, sheet
    for x in sheet["latency"] + sheet["bandwidth"]:
        assert x["chunks"] >= 4, x
    for x in reads + sheet["latency"] + sheet["bandwidth"]:
        assert x["seconds"] > 0, x
        assert 0 < x["minMicroseconds"] <= x["medianMicroseconds"] <= x["p99Microseconds"], x
    for x in sheet["bandwidth"]:
        assert abs(x["bytesPerSecond"] * x["seconds"] / (x["chunks"] * x["bytes"]) - 1) < 1e-6, x
        assert x["receiverCpuSecondsPerGiB"] >= 0 and x["sourceCpuSecondsPerGiB"] >= 0, x
        assert x["receiverPerGiB"]["controlBytes"] > 0, x
        assert (x["receiverPerGiB"]["workRequests"] > 0) == (transport == "verbs"), x


def over_tcp_and_both_ends_end():
    with source("127.0.0.1", "--rails", "2") as (p, to):
        check(good(to, *QUICK, "--rails", "1,2"), "tcp", (1, 2))
        assert p.p.wait(timeout=30 * SLOW) == 0, p.drain()


def over_tcp_encrypted():
    with source("127.0.0.1", "--encrypt") as (p, to):
        sheet = good(to, *QUICK, "--encrypt")
        check(sheet, "tcp")
        assert sheet["encrypted"] is True
        assert p.p.wait(timeout=30 * SLOW) == 0, p.drain()


def within_the_host():
    with tempfile.TemporaryDirectory() as tmp:
        for where in ("@", os.path.join(tmp, "bench")):
            with source(where) as (p, to):
                check(good(to, *QUICK), "shm")
                assert p.p.wait(timeout=30 * SLOW) == 0, p.drain()


def over_verbs():
    with tempfile.TemporaryDirectory() as tmp:
        env = {"LD_LIBRARY_PATH": os.path.join(BUILD, "fake"), "FAKEVERBS_WORLD": os.path.join(tmp, "world")}
        with source("fake0@127.0.0.1,fake1@127.0.0.1", "--transport", "verbs", env=env) as (p, to):
            check(good(to, *QUICK, "--rails", "1,2", env=env), "verbs", (1, 2))
            assert p.p.wait(timeout=30 * SLOW) == 0, p.drain()


KUBECTL = """#!/bin/sh
# kubectl exec .. -- COMMAND runs it, here.
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def manual():
    """The commands for Kubernetes of wbctl(1): for the key, the source and the receiver."""
    with open(os.path.join(TOP, "agent", "ctl", "wbctl.1"), encoding="utf-8") as f:
        text = f.read().split("In Kubernetes, in the agents' containers", 1)[1].split(".nf\n")[1].split("\n.fi")[0]
    return [line.strip().replace("\\-", "-") for line in text.splitlines()]


def in_pods_as_the_manual_says():
    """Its very commands, with a kubectl that runs them on this machine."""
    key, listen, to = manual()
    with tempfile.TemporaryDirectory() as tmp:
        with open(os.path.join(tmp, "kubectl"), "w", encoding="utf-8") as f:
            f.write(KUBECTL)
        os.chmod(os.path.join(tmp, "kubectl"), 0o755)
        env = {k: v for k, v in os.environ.items() if k != "WEIGHTBRIDGE_BENCH_KEY"}
        env["PATH"] = os.pathsep.join((tmp, os.path.dirname(WBCTL), env["PATH"]))
        there = {"shell": True, "cwd": tmp, "env": env, "text": True}
        subprocess.run(key, check=True, timeout=60 * SLOW, **there)
        assert os.stat(os.path.join(tmp, "key")).st_mode & 0o77 == 0
        with subprocess.Popen("exec " + listen.replace("POD-A-IP", "127.0.0.1"), stdout=subprocess.PIPE, **there) as p:
            try:
                line = next(x for x in p.stdout if "wbctl bench" in x)
                to = to.replace("POD-A-IP:PORT", re.search(r"--to (\S+)", line)[1])
                out = subprocess.run(to.replace(" < key", " --json --seconds 1 < key"), capture_output=True,
                                     timeout=60 * SLOW, check=True, **there).stdout
                assert all(x["chunks"] > 0 for x in json.loads(out)["bandwidth"]), out
                assert p.wait(timeout=30 * SLOW) == 0
            finally:
                p.kill()


def help_says_that_no_agent_is_asked():
    out = subprocess.run([WBCTL, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "not with running" in out and "kubectl exec" in out, out


def text_has_units_and_the_key_that_was_printed_works():
    env = {k: v for k, v in os.environ.items() if k != "WEIGHTBRIDGE_BENCH_KEY"}
    with subprocess.Popen([WBCTL, "bench", "--listen", "127.0.0.1"], stdout=subprocess.PIPE, text=True, env=env) as p:
        try:
            line = next(x for x in p.stdout if "wbctl bench" in x).split()
            key, command = line[0].split("=")[1], line[3:]
            out = subprocess.run([WBCTL, "bench", *command, *QUICK, "--key-file", "-"], input=key + "\n", text=True,
                                 capture_output=True, timeout=60 * SLOW, check=True, env=env).stdout
            assert "one thread copies" in out and " GB/s " in out and " MiB " in out and " us " in out, out
            assert "were sent" in p.stdout.read()
            assert p.wait(timeout=30 * SLOW) == 0
        finally:
            p.kill()


def who_does_not_hold_the_key_gets_nothing_and_the_source_waits_on():
    with source("127.0.0.1") as (p, to):
        rc, _, err = receive(to, *QUICK, key="b")
        assert rc == 1 and "does not hold our key" in err and "the same key" in err, err
        p.expect("somebody was refused")
        check(good(to, *QUICK), "tcp")


def another_transport_at_the_far_end_is_named():
    with source("127.0.0.1") as (_, to):
        rc, _, err = receive(to, "--encrypt", *QUICK)
        assert rc == 1 and "wants TLS" in err and "--encrypt" in err, err
        rc, _, err = receive("verbs:" + to, "--transport", "tcp", *QUICK)
        assert rc == 1 and "is an address of verbs, and --transport is tcp" in err, err
        with tempfile.TemporaryDirectory() as tmp:
            env = {"LD_LIBRARY_PATH": os.path.join(BUILD, "fake"), "FAKEVERBS_WORLD": os.path.join(tmp, "world")}
            rc, _, err = receive(to, "--transport", "verbs", *QUICK, env=env)
        assert rc == 1 and "another transport" in err and "the same key, --transport" in err, err


def what_the_source_lacks_is_refused_before_anything_is_measured():
    for args, words in ((("--sizes", "8Mi"), "has 4 MiB of memory and 8 MiB are asked for"),
                        (("--sizes", "1Mi", "--rails", "1,3"), "has 1: start it with --rails 3")):
        with source("127.0.0.1", "--memory", "4Mi") as (p, to):
            rc, _, err = receive(to, *args)
            assert rc == 1 and words in err, err
            p.expect("the receiver went away before it was through", reject=None)
            assert p.p.wait(timeout=30 * SLOW) == 1


@contextlib.contextmanager
def pair(where, *args, of_source=()):
    with source(where, *of_source) as (p, to):
        r = OnTerminal("receiver", [WBCTL, "bench", "--to", to, *LONG, *args],
                       {**os.environ, "WEIGHTBRIDGE_BENCH_KEY": KEYS["a"]})
        try:
            r.expect(r"2 of 2: 1 MiB, 4 deep, 1 rail, sums on")
            yield p, r
        finally:
            r.end()


def an_end_that_is_killed_is_named_at_once_by_the_other():
    for where in ("127.0.0.1", "@"):
        with pair(where, "--timeout", "3600") as (p, r):
            p.p.kill()
            r.expect(r"the source at .* went away, at 1 MiB, 4 deep, 1 rail, sums on: ")
            assert r.p.wait() == 1
        with pair(where, of_source=("--timeout", "3600")) as (p, r):
            r.p.kill()
            p.expect(r"the receiver went away before it was through: ", reject=None)
            assert p.p.wait() == 1


def an_end_that_is_stopped_is_named_within_the_deadline():
    with pair("127.0.0.1", "--timeout", "1") as (p, r):
        p.p.send_signal(signal.SIGSTOP)
        r.expect(r"has sent nothing for 1\.0 s \(--timeout\), at 1 MiB, .*: it is stopped, or cut off")
        assert r.p.wait() == 1
    with pair("127.0.0.1", of_source=("--timeout", "1")) as (p, r):
        r.p.send_signal(signal.SIGSTOP)
        p.expect(r"has asked for nothing for 1 s \(--timeout\)", reject=None)
        assert p.p.wait() == 1


def bytes_that_change_on_the_way_are_noticed_by_their_sums():
    with source("127.0.0.1", env={"WB_FAULT": "flip=wire:0.05"}) as (_, to):
        rc, _, err = receive(to, *QUICK, "--sums", "on")
        assert rc == 1 and re.search(r"came with another sum than they left with, at .*, sums on", err), err


def options_that_do_not_fit_are_refused():
    for args, rc, words in (((), 1, "bench has two ends"), (("--listen", "@", "--to", "@x"), 1, "bench has two ends"),
                            (("--listen", "@", "--sizes", "1Mi"), 1, "--sizes goes with --to"),
                            (("--to", "@x", "--memory", "1Mi"), 1, "--memory goes with --listen"),
                            (("--to", "@x", "--encrypt"), 1, "--encrypt goes with --transport tcp, not shm"),
                            (("--listen", "0.0.0.0"), 1, "needs an address that it can dial"),
                            (("--to", "@x", "--transport", "ib"), 2, "tcp, shm or verbs"),
                            (("--to", "127.0.0.1:1"), 1, "does wbctl bench --listen wait there")):
        p = subprocess.run([WBCTL, "bench", *args], capture_output=True, text=True, timeout=60 * SLOW, check=False,
                           env={**os.environ, "WEIGHTBRIDGE_BENCH_KEY": KEYS["a"]})
        assert p.returncode == rc and words in p.stderr, (args, p.returncode, p.stderr)


run(over_tcp_and_both_ends_end, over_tcp_encrypted, within_the_host, over_verbs,
    in_pods_as_the_manual_says, help_says_that_no_agent_is_asked,
    text_has_units_and_the_key_that_was_printed_works,
    who_does_not_hold_the_key_gets_nothing_and_the_source_waits_on, another_transport_at_the_far_end_is_named,
    what_the_source_lacks_is_refused_before_anything_is_measured,
    an_end_that_is_killed_is_named_at_once_by_the_other, an_end_that_is_stopped_is_named_within_the_deadline,
    bytes_that_change_on_the_way_are_noticed_by_their_sums,
    options_that_do_not_fit_are_refused)
