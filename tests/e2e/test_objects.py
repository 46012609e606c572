# SPDX-License-Identifier: Apache-2.0
"""Several objects in one pod (actor, reference, draft), several engines in one pod, trainer and
rollout in one pod.  The versions of one object are nobody else's, so a mix-up is seen."""
import json
import re

from cluster import BUILD, Cluster, Proc, run
from test_modes import MODES
from test_transfer import quit_all, send, sent, updated

NAMES = ("actor", "reference", "draft")
BASE = {"actor": 100, "reference": 200, "draft": 300}


def objects(n, **modes):
    return [Cluster.body(1, 1, name=name, **MODES[modes.get(name, "none")]) for name in NAMES[:n]]


def start(c, n, args=(), modes=None, **size):
    """One trainer pod and one rollout pod for n objects; ({object: trainer}, {object: rollout})."""
    first, *more = objects(n, **(modes or {}))
    spec = dict(first["spec"])
    c.operator(1, 1, name="actor", more=more, **{k: v for k, v in spec.items()
                                                 if k not in ("trainer", "rollout")})
    mine = [x for name in NAMES[:n] for x in ("--object", f"default/{name}")]
    for pod in ("t0", "r0"):
        c.agent(pod, *mine, *args)
    t, r = {}, {}
    for name in NAMES[:n]:
        of = ["--object", f"default/{name}"]
        t[name] = c.worker("t0", "trainer", args=of, **size)
        r[name] = c.worker("r0", "rollout", engine="e0", cut="cols", args=of, **size)
        t[name].name = f"{name} trainer"
        r[name].name = f"{name} rollout"
    for w in (*t.values(), *r.values()):
        w.expect("planned")
    return t, r


def three_objects_in_one_pod_each_in_its_own_mode():
    with Cluster() as c:
        t, r = start(c, 3, modes={"reference": "both", "draft": "joint"})
        for v in (1, 2, 3):
            for name in NAMES:
                send([t[name]], BASE[name] + v)
            for name in NAMES:
                sent([t[name]], BASE[name] + v, "e0=Committed")
                updated([r[name]], BASE[name] + v)
        items = {x["metadata"]["name"]: x["status"] for x in
                 json.loads(c.get(c.op, "/objects")[1])["items"]}
        for name in NAMES:
            c.until(f"{name} is shown", lambda n=name: {
                x["metadata"]["name"]: x["status"] for x in
                json.loads(c.get(c.op, "/objects")[1])["items"]}[n].get("version") == BASE[n] + 3)
        assert set(items) == set(NAMES), items
        # Transfers are numbered for each object by itself.
        for name in NAMES:
            held = {o["object"]: o for o in json.loads(c.get(c.agents["r0"], "/status")[1])["objects"]}
            assert held[f"default/{name}"]["engines"][0]["transfer"] == 3, held
            assert held[f"default/{name}"]["engines"][0]["version"] == BASE[name] + 3, held
        # One object's end is not the others'.
        quit_all([t["reference"], r["reference"]])
        for name in ("actor", "draft"):
            send([t[name]], BASE[name] + 4)
            sent([t[name]], BASE[name] + 4, "e0=Committed")
            updated([r[name]], BASE[name] + 4)
        quit_all([w for n in ("actor", "draft") for w in (t[n], r[n])])
        for a in c.agents.values():
            assert a.stop() == 0, a.drain()


def three_objects_over_shared_memory_from_private_heaps():
    with Cluster() as c:
        t, r = start(c, 2, args=("--transport", "shm"), heap=True)
        for v in (1, 2):
            for name in NAMES[:2]:
                send([t[name]], BASE[name] + v)
            for name in NAMES[:2]:
                sent([t[name]], BASE[name] + v, "e0=Committed")
                updated([r[name]], BASE[name] + v)


def spans(c, agent):
    """{version: (begin, end)} of the transfers an agent led, as it logged them."""
    c.agents[agent].drain()
    out = {}
    for x in c.agents[agent].seen:
        m = re.match(r"(\S+)Z info .* transfer (begins|ended) transfer=\d+ version=(\d+)", x)
        if m:
            out.setdefault(int(m[3]), []).append(m[1])
    return out


def two_objects_transfer_in_parallel_and_one_object_does_not():
    """786 KB at 1 MB/s take most of a second."""
    with Cluster() as c:
        t, r = start(c, 2, args=("--rail-rate", "1M"))
        for v in (1, 2):
            for name in NAMES[:2]:
                send([t[name]], BASE[name] + v)  # the second waits in the worker for the first
        for v in (1, 2):
            for name in NAMES[:2]:
                sent([t[name]], BASE[name] + v, "e0=Committed")
                updated([r[name]], BASE[name] + v)
        s = c.until("all have ended", lambda: len(x := spans(c, "t0")) == 4 and all(
            len(y) == 2 for y in x.values()) and x)
        for v in (1, 2):
            a, b = s[100 + v], s[200 + v]
            assert max(a[0], b[0]) < min(a[1], b[1]), ("not at the same time", a, b)
            print(f"  version {v}: actor {a[0][14:23]} to {a[1][14:23]}, reference {b[0][14:23]} to "
                  f"{b[1][14:23]}", flush=True)
        for base in (100, 200):
            assert s[base + 1][1] <= s[base + 2][0], ("one object, two at once", s)


def everything_in_one_pod(mode):
    """Two trainer workers and two engines of two share an agent."""
    def test():
        with Cluster() as c:
            c.operator(2, 2, engines=2, **MODES[mode])
            c.agent("pod")
            t = [c.worker("pod", "trainer", i, 2) for i in (0, 1)]
            r = [c.worker("pod", "rollout", i, 2, engine=f"e{e}", cut="cols")
                 for e in (0, 1) for i in (0, 1)]
            for w in t + r:
                w.expect("planned")
            for v in (1, 2, 3):
                send(t, v)
                sent(t, v, "e0=Committed e1=Committed")
                updated(r, v)
            quit_all(t + r)
            assert c.agents["pod"].stop() == 0
    test.__name__ = f"everything_in_one_pod: {mode}"
    return test


def three_engines_of_one_pod_and_one_that_dies():
    with Cluster() as c:
        c.operator(1, 1, engines=1)
        for pod in ("t0", "r0"):
            c.agent(pod)
        t = [c.worker("t0", "trainer")]
        r = [c.worker("r0", "rollout", engine=f"e{e}", cut="cols") for e in range(3)]
        for w in t + r:
            w.expect("planned")
        for v in (1, 2):
            send(t, v)
            sent(t, v, "Committed")
            updated(r, v)
        r[1].kill()
        send(t, 3)
        sent(t, 3, "e0=Committed", reject=None)
        updated([r[0], r[2]], 3)
        again = c.worker("r0", "rollout", engine="e1", cut="cols")
        updated([again], 3)  # from its neighbours
        send(t, 4)
        sent(t, 4, "e0=Committed e1=Committed e2=Committed", reject=None)
        updated([r[0], again, r[2]], 4)


def staging_of_all_objects_together_is_held_against_the_limit():
    """Each object's snapshots take 786432 bytes; the limit is enough for one."""
    with Cluster() as c:
        first, second = objects(2, actor="trainer", reference="trainer")
        c.operator(1, 1, name="actor", more=[second], **MODES["trainer"])
        a = c.agent("t0", "--staging-limit", "1Mi", "--object", "default/actor", "--object",
                    "default/reference")
        c.agent("r0", "--object", "default/actor", "--object", "default/reference")
        for name in NAMES[:2]:
            of = ["--object", f"default/{name}"]
            t = c.worker("t0", "trainer", args=of)
            r = c.worker("r0", "rollout", engine="e0", args=of)
            if name == "actor":
                for w in (t, r):
                    w.expect("planned")
                send([t], 1)
                sent([t], 1, "e0=Committed")
        a.expect(r"plan refused.*staging takes 786432 bytes at agent t0 .*beside 786432 of other objects"
                 r".*--staging-limit is 1048576", reject=None)
        assert first


def a_worker_that_names_no_object_is_told_which_there_are():
    with Cluster() as c:
        c.operator(1, 1, name="actor", more=objects(2)[1:])
        c.agent("t0", "--object", "default/actor", "--object", "default/reference")
        w = c.worker("t0", "trainer")
        w.expect(r"error .*several objects \(default/actor, default/reference\)", reject=None)
        w = c.worker("t0", "trainer", args=["--object", "default/critic"])
        w.expect(r"error .*serves object default/actor, default/reference, not default/critic",
                 reject=None)


def keys_that_do_not_go_with_the_objects_are_refused():
    with Cluster() as c:
        argv = [f"{BUILD}/bin/weightbridge-agent", "--operator", "127.0.0.1:1", "--name", "a"]
        for n in range(3):
            argv += ["--object", f"default/o{n}"]
        p = Proc("agent", argv + ["--psk-file", c.key, "--psk-file", c.key])
        p.expect("3 objects and 2 key files: give one for each", reject=None)
        assert p.wait() != 0
        p = Proc("agent", argv + ["--object", "default/o1", "--psk-file", c.key])
        p.expect("--object", reject=None)
        assert p.wait() != 0


TESTS = [three_objects_in_one_pod_each_in_its_own_mode,
         three_objects_over_shared_memory_from_private_heaps,
         two_objects_transfer_in_parallel_and_one_object_does_not,
         *[everything_in_one_pod(m) for m in ("none", "both", "joint")],
         three_engines_of_one_pod_and_one_that_dies,
         staging_of_all_objects_together_is_held_against_the_limit,
         a_worker_that_names_no_object_is_told_which_there_are,
         keys_that_do_not_go_with_the_objects_are_refused]

if __name__ == "__main__":
    import sys
    run(*[t for t in TESTS if not sys.argv[1:] or any(x in t.__name__ for x in sys.argv[1:])],
        together=2)
