# SPDX-License-Identifier: Apache-2.0
"""extract with the real torch: tensors in, tensors out, no NumPy in that Python.

Runs itself again under a Python that has torch (tests/bench/torch.sh finds one, never downloads
here); without one it is skipped.
"""
import os
import subprocess
import sys

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                               "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python")]


def words(t, torch):
    return t.contiguous().view(torch.uint8).flatten()


def fused(torch):
    """qkv-like fusion with a transpose, a cast, padding, and a parameter that is a view."""
    big = torch.full((40, 128), 7, dtype=torch.bfloat16)
    params = {"ab": big[:32], "n": torch.zeros(32), "q": torch.zeros(16, 8, dtype=torch.int8),
              "half": torch.zeros(32, 16, dtype=torch.float16)}

    def load(tensors):
        for name, t in tensors:
            assert isinstance(t, torch.Tensor), type(t)
            if name == "a.weight":
                params["ab"][:, :64].copy_(t.t())
            elif name == "b.weight":
                params["ab"][:, 64:].data.copy_(t.narrow(0, 0, 64).t())
            elif name == "n":
                params["n"].copy_(t)  # bf16 to fp32
            elif name == "q":
                params["q"][:8].copy_(t)
            else:
                params["half"].data.copy_(t[:, ::2].clone())

    manifest = [("a.weight", (64, 32), "BF16"), ("b.weight", (80, 32), "BF16"),
                ("n", (32,), "BF16"), ("q", (8, 8), "I8"), ("h", (32, 32), "F16")]
    return params, load, manifest


def values(torch, manifest):
    kinds = {"BF16": torch.bfloat16, "I8": torch.int8, "F16": torch.float16}
    g = torch.Generator().manual_seed(3)
    return {n: (torch.randn(s, generator=g) * 20).to(kinds[d]) for n, s, d in manifest}


def inside():
    import torch
    import weightbridge
    params, load, manifest = fused(torch)
    before = {k: words(v, torch).clone() for k, v in params.items()}
    sm = weightbridge.extract(load, manifest, params, framework="torch")
    for k, v in params.items():
        assert torch.equal(words(v, torch), before[k]), f"{k} was not put back"
    given = values(torch, manifest)
    made = sm.apply(given)
    load(iter(given.items()))
    for k, v in params.items():
        assert isinstance(made[k], torch.Tensor), type(made[k])
        if k == "q":  # its lower half is written by nobody
            assert torch.equal(made[k][:8], v[:8])
            continue
        assert torch.equal(words(made[k], torch), words(v, torch)), k
    again = weightbridge.extract(load, manifest, params, framework="torch")
    assert again.digest == sm.digest
    print(f"torch {torch.__version__}: {sm.digest}")


def main():
    if os.environ.get("WB_TEST_TORCH_INSIDE"):
        inside()
        return 0
    found = subprocess.run(["sh", os.path.join(TOP, "tests", "bench", "torch.sh")], text=True,
                           capture_output=True, check=False,
                           env={**os.environ, "WB_TORCH": "off", "LD_PRELOAD": ""})
    if found.returncode:
        print("no Python with torch here; `make bench` gets one")
        return 77
    if os.environ.get("LD_PRELOAD"):
        print("torch under a sanitizer is not what is tested")
        return 77
    return subprocess.run([found.stdout.strip(), os.path.abspath(__file__)], check=False,
                          env={**os.environ, "WB_TEST_TORCH_INSIDE": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
