# SPDX-License-Identifier: Apache-2.0
"""The whole vLLM under verl's worker extension as weightbridge.adapters.verl_vllm changes it: its workers receive themselves.
After each update it generates what a vLLM generates that was started from the checkpoint that the trainer exported."""
import os

from fx import SHARDED, VERSIONS, WAIT, Cluster, Deployment, make_model, python, run


def vllm_receives_in_its_own_workers():
    """Two of them; verl's stream of tensors, which is empty, is sent by verl's own sender beside it."""
    python("verl")
    with Cluster() as c:
        folder = c.path("model")
        make_model("llama", folder)
        os.mkdir(c.path("exports"))
        d = Deployment(c, 2, 2)
        common = {"model": folder, "exports": c.path("exports"), "versions": VERSIONS}
        t = d.trainers(*SHARDED, 2, dtype="float32", **common)
        r = d.worker("verl", "llm", "serve", script="verl_llm.py", engine="replica-0", group="e0", n=2, wait=WAIT, **common)
        for version in range(1, VERSIONS + 1):
            r.expect(f"updated {version}", WAIT)
            for w in t:
                w.expect(f"sent {version}", WAIT)
        for version in range(1, VERSIONS + 1):
            print(r.expect(f"equal {version}: .*", WAIT)[0], flush=True)
        for w in (*t, r):
            assert w.wait(WAIT) == 0, w.name


if __name__ == "__main__":
    run(vllm_receives_in_its_own_workers)
