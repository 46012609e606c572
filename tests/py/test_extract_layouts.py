# SPDX-License-Identifier: Apache-2.0
"""Source maps of the reference engines: they build what the oracle says, in as many ops as there
are rectangles."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), os.path.join(TOP, "tests"), HERE,
                os.path.join(TOP, "tests", "demo")]

import numpy as np  # noqa: E402

import test_engines as te  # noqa: E402
import weightbridge as wb  # noqa: E402
from engines import make, models, oracle  # noqa: E402


def one(config, spec, ckpt):
    engine = make(spec)
    found = wb.extract(engine.load_weights, models.tensors(config), engine.params, progress=False)
    for array, _ in engine.params.values():
        assert not array.any(), "a parameter was not put back"
    got = found.apply({n: t for n, t in ckpt.items()})
    want = oracle.build(spec, ckpt)
    assert got.keys() == want.keys(), spec
    for name, words in want.items():
        have = np.ascontiguousarray(got[name])
        assert have.tobytes() == words.tobytes(), f"{spec}: {name} differs"
    return found


def main():
    ckpts, worse, digests, n = {}, [], {}, 0
    # Every fourth worker; WB_ALL=1 runs all (half a minute on a quiet core).
    every = list(te.specs())
    some = every if os.environ.get("WB_ALL") else every[::4]
    for config, spec in some:
        key = str(config)
        if key not in ckpts:
            ckpts[key] = te.random_checkpoint(config, 7)
        found = one(config, spec, ckpts[key])
        n += 1
        if found.n_ops > oracle.count(spec)[1] and not spec.get("flat"):
            worse.append((spec, found.n_ops, oracle.count(spec)))
        digests.setdefault(found.digest, spec)
    for spec, ops, count in worse:
        print(f"{ops} ops for {count[1]} rectangles: "
              f"{ {k: v for k, v in spec.items() if k != 'model'} } {spec['model']['arch']}")
    assert not worse
    print(f"{n} workers, {len(digests)} layouts")


main()
