# SPDX-License-Identifier: Apache-2.0
"""200 random loaders: the map alone, applied to a checkpoint, gives the bytes that the loader gave
in another process that imports nothing of the project."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
ORACLE = os.path.join(TOP, "tests", "oracle")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), ORACLE]

import numpy as np  # noqa: E402

import composition  # noqa: E402
import weightbridge as wb  # noqa: E402

FIRST = int(os.environ.get("WB_SEED", "1"))
COUNT = int(os.environ.get("WB_COUNT", "200"))


def read(path, made):
    """Checkpoint values, and bytes of each parameter, as the oracle wrote them."""
    with open(path, "rb") as f:
        values = {name: np.frombuffer(f.read(int(np.prod(shape, dtype=np.int64))
                                             * composition.TYPES[dtype].itemsize),
                                      composition.TYPES[dtype]).reshape(shape)
                  for name, shape, dtype in made.manifest}
        return values, {name: f.read(array.nbytes) for name, (array, _) in made.params.items()}


def one(seed, folder):
    made = composition.Composition(seed)
    values, want = read(os.path.join(folder, f"{seed}.bin"), made)
    rng = np.random.default_rng(seed)
    for array, _ in made.params.values():  # what lies in the parameters must come back
        array[...] = np.frombuffer(rng.bytes(array.size), np.uint8).reshape(
            array.shape).astype(array.dtype)
    before = {n: a.tobytes() for n, (a, _) in made.params.items()}
    found = wb.extract(made.load_weights, made.manifest, made.params,
                       expand_bytes=[None, 0][seed % 2], use_ml_dtypes=True)
    got = found.apply(values)
    for name, (array, _) in made.params.items():
        assert array.tobytes() == before[name], f"seed {seed}: {name} was not put back"
        assert got[name].tobytes() == want[name], f"seed {seed}: {name} differs"
    return found.n_ops


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-I", "-c",
                        f"import sys; sys.path.insert(0, {ORACLE!r}); sys.argv[0] = 'run.py'; "
                        "import run", str(FIRST), str(FIRST + COUNT), folder],
                       check=True, stdin=subprocess.DEVNULL)
        ops = [one(seed, folder) for seed in range(FIRST, FIRST + COUNT)]
    print(f"{COUNT} compositions from seed {FIRST}, {sum(ops)} ops, at most {max(ops)}")


main()
