# SPDX-License-Identifier: Apache-2.0
"""wbctl verify: digests that do not depend on the layout, of real agents."""
import re
import subprocess

from cluster import BUILD, Cluster, run
from test_transfer import deploy, send, sent, updated


def verify(c, *agents):
    at = ",".join(f"127.0.0.1:{c.agents[a].http}" for a in agents)
    p = subprocess.run([f"{BUILD}/bin/wbctl", "verify", "--agent", at], capture_output=True,
                       text=True, timeout=60)
    rows = {r.split()[0]: r for r in p.stdout.splitlines()[1:]}
    digest = {n: re.search("sum128:[0-9a-f]{32}", r)[0] for n, r in rows.items()}
    return p.returncode, rows, digest, p.stderr


def every_layout_has_the_trainers_digest():
    """Trainers hold rows, engines columns; one worker each, and two."""
    with Cluster() as c:
        t, r = deploy(c, engines=2)
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"] + r["e1"], 1)
        code, rows, digest, said = verify(c, "t0", "r0", "r1")
        assert code == 0, (rows, said)
        assert len(set(digest.values())) == 1 and len(digest) == 3, rows
        for e in ("e0", "e1"):
            assert "same as the trainers" in rows[e], rows
        code, rows, _, said = verify(c, "t0", "r0")
        assert code == 0 and "e1" not in rows, (rows, said)
        one = digest["e0"]
        r["e1"][1].say("flip")
        r["e1"][1].expect("flipped")
        code, rows, digest, said = verify(c, "t0", "r0", "r1")
        assert code == 1 and "same as the trainers" in rows["e0"], (rows, said)
        assert "differs from the trainers in 1 of" in rows["e1"], rows
        assert "r1/worker" in rows["e1"] and digest["e0"] == one != digest["e1"], rows
        send(t, 2)  # the next version repairs it
        sent(t, 2, "Committed")
        code, rows, digest, said = verify(c, "t0", "r0", "r1")
        assert code == 0 and digest["e0"] != one, (rows, said)


def private_memory_is_said_to_be_private():
    with Cluster() as c:
        t, r = deploy(c, heap=True)
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"], 1)
        code, rows, _, said = verify(c, "t0", "r0")
        assert code == 1 and "nothing was verified" in said, (rows, said)
        assert re.search(r"not verified: (\d+) of \1 classes are in private memory.*: r0/worker \d",
                         rows["e0"]), rows
        assert "t0/worker 1" in rows["(trainers)"], rows


def a_part_that_is_not_known_is_named():
    """Trainers in private memory, engines not; one agent alone; some of an engine's agents."""
    with Cluster() as c:
        t, r = deploy(c, engines=2, worker={"heap": True})
        send(t, 1)
        sent(t, 1, "Committed")
        updated(r["e0"] + r["e1"], 1)
        code, rows, _, said = verify(c, "t0", "r0", "r1")
        assert code == 0 and "same as e0" in rows["e1"], (rows, said)
        assert "in private memory" in rows["(trainers)"], rows
        for alone in (("t0", "r0"), ("r1",)):
            code, rows, _, said = verify(c, *alone)
            assert code == 1 and "nothing was verified" in said, (alone, rows, said)


if __name__ == "__main__":
    run(every_layout_has_the_trainers_digest, private_memory_is_said_to_be_private,
        a_part_that_is_not_known_is_named)
