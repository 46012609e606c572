# SPDX-License-Identifier: Apache-2.0
"""The manifest of the RL example, without a cluster: wbctl gives each of its Jobs an agent, and what its workers are
started with are files and options that the example has."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402

EXAMPLE = os.path.join(helm.TOP, "agent", "python", "examples", "rl")
WBCTL = os.path.join(os.environ.get("WB_BUILD", os.path.join(helm.TOP, "build", "release")), "bin", "wbctl")


def main():
    helm.need()
    sys.path.insert(0, EXAMPLE)
    import options

    done = subprocess.run([WBCTL, "inject", "-f", os.path.join(helm.CHARTS, "examples", "rl-loop.yaml")],
                          stdout=subprocess.PIPE, text=True, check=True)
    docs = helm.load(done.stdout)
    jobs = {d["metadata"]["name"]: d["spec"] for d in docs if d["kind"] == "Job"}
    spec = next(d["spec"] for d in docs if d["kind"] == "WeightTransfer")
    assert sorted(jobs) == ["counting-engine", "counting-trainer"], jobs.keys()
    assert spec["trainer"]["workers"] == jobs["counting-trainer"]["completions"], spec
    for name, job in jobs.items():
        pod = job["template"]["spec"]
        assert [i["name"] for i in pod["initContainers"]] == ["weightbridge-agent"], name
        worker = pod["containers"][0]
        assert os.path.exists(os.path.join(EXAMPLE, os.path.basename(worker["command"][1]))), worker["command"]
        said = options.parse(name, worker["args"])
        assert said.serve == ("trainer" in name) and said.trainers == spec["trainer"]["workers"], said
        assert said.store.split(".")[0] == "counting-trainer-0" and said.mode == "async", said


if __name__ == "__main__":
    main()
