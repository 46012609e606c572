# SPDX-License-Identifier: Apache-2.0
"""make demo says in a sentence what is wrong with MODEL, LAYERS or the build, and leaves nothing behind."""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

TOP = os.environ.get("WB_TOP", ".")
sys.path.insert(0, os.path.join(TOP, "tests"))

from engines import deploy, generic, make, oracle_generic, safetensors_io  # noqa: E402


def said(build, tmp, **env):
    p = subprocess.run([sys.executable, os.path.join(TOP, "tests/demo/demo.py"), build], capture_output=True, text=True,
                       timeout=60, check=False, env={**os.environ, "TMPDIR": tmp, **env})
    assert p.returncode == 1 and not p.stderr and not os.listdir(tmp), (env, p, os.listdir(tmp))
    return p.stdout.splitlines()[-1]


ODD = [("scale", (), "F32"), ("one.row", (1, 37), "BF16"), ("empty", (0, 8), "BF16"), ("empty.too", (8, 0), "F32"),
       ("bias", (5,), "F16"), ("w", (257, 129), "BF16"), ("conv", (7, 3, 5, 5), "F32"), ("fp8", (64, 32), "F8_E4M3"),
       ("fp8.too", (2, 2, 2), "F8_E5M2"), ("step", (), "I64"), ("ids", (9,), "U64"), ("double", (3, 5), "F64"),
       ("mask", (11, 13), "BOOL"), ("bytes", (33, 31), "I8"), ("u16", (3, 4), "U16"), ("i32", (1, 1), "I32"),
       ("one.column", (40, 1), "F32")]


def write(folder, parts):
    """A checkpoint of several files with an index, of random bytes."""
    where = {}
    os.makedirs(folder)
    for i, tensors in enumerate(parts):
        name = f"part-{i}.safetensors"
        size = sum(math.prod(s) * np.dtype(safetensors_io.WORDS[d]).itemsize for _, s, d in tensors)
        safetensors_io.write(os.path.join(folder, name), tensors,
                             iter([np.frombuffer(np.random.default_rng(i).bytes(size), np.uint8)]))
        where.update((t[0], name) for t in tensors)
    with open(os.path.join(folder, safetensors_io.INDEX), "w", encoding="ascii") as f:
        json.dump({"weight_map": where}, f)


def its_oracle_finds_each_wrong_byte(folder):
    checkpoint = generic.Words(safetensors_io.Checkpoint(folder))
    model = generic.Model(safetensors_io.Checkpoint(folder).info())
    tensors = dict(checkpoint.items())
    for spec in deploy.generic(model, "rollout", 2):
        engine = make(spec)
        engine.load_weights(tensors.items())
        engine.set_version(5)

        def wrong(version=5):
            return oracle_generic.verify_params(engine.params, safetensors_io.Checkpoint(folder), spec, version)
        assert not wrong() and len(wrong(4)) == len(engine.params)
        for name, (array, _) in engine.params.items():
            last = array.reshape(-1).view(np.uint8)[-1:]
            last ^= 1
            assert [x for x in wrong() if x.startswith(name + ":")] == wrong() != [], name
            last ^= 1
    for spec in deploy.generic(model, "trainer", 4):
        engine = make(spec)
        engine.load_weights(tensors.items())
        assert engine.params and all(a.size for a, _ in engine.params.values())


def any_checkpoint_is_taken(build, d):
    folder = os.path.join(d, "odd")
    write(folder, [ODD[::2], ODD[1::2]])
    its_oracle_finds_each_wrong_byte(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as f:
        json.dump({"model_type": "moon"}, f)
    p = subprocess.run([sys.executable, os.path.join(TOP, "tests/demo/demo.py"), build], capture_output=True, text=True,
                       timeout=280, check=False, env={**os.environ, "MODEL": folder})
    lines = p.stdout.splitlines()
    assert p.returncode == 0 and lines[-1] == "demo: OK", p.stdout + p.stderr
    layout = [x for x in lines if x.startswith("  layout")]
    assert len(layout) == 1 and "'moon' is not supported" in layout[0] and "2 tensors without elements" in layout[0]
    assert f", {len(ODD) - 2} tensors" in p.stdout, p.stdout
    print("\n".join(lines[:3]))


def main():
    with tempfile.TemporaryDirectory() as d:
        tmp = os.path.join(d, "tmp")
        os.makedirs(tmp)
        for name in ("empty", "other"):
            os.mkdir(os.path.join(d, name))
        with open(os.path.join(d, "other", "config.json"), "w", encoding="ascii") as f:
            json.dump({"model_type": "moon"}, f)
        build = os.environ["WB_BUILD"]
        write(os.path.join(d, "few"), [[("a", (1, 3), "F32")]])
        for b, env, sentence in ((os.path.join(d, "none"), {}, "weightbridge-operator is not there: run `make` first"),
                                 (build, {"MODEL": os.path.join(d, "none")}, "No such file or directory"),
                                 (build, {"MODEL": os.path.join(d, "empty")}, "no *.safetensors in it"),
                                 (build, {"MODEL": os.path.join(d, "other")}, "no *.safetensors in it"),
                                 (build, {"MODEL": os.path.join(d, "few")}, "nothing is left for 3 of 4 trainer workers"),
                                 (build, {"LAYERS": "abc"}, "LAYERS=abc: an even number from 2 to 28"),
                                 (build, {"LAYERS": "3"}, "LAYERS=3: an even number")):
            text = said(b, tmp, **{"MODEL": "", "LAYERS": "", **env})
            assert text.startswith("demo: FAILED: ") and sentence in text, (env, text)
        any_checkpoint_is_taken(build, d)


if __name__ == "__main__":
    sys.exit(main())
