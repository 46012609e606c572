# SPDX-License-Identifier: Apache-2.0
"""plot.py FOLDER   Reward and stalls of the runs whose logs lie in a folder, against time: loop.svg and loop.png there."""
import json
import os
import sys

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402 (after the choice of what draws)

COLOURS = {"weightbridge": "#0072b2", "broadcast": "#d55e00"}
LINES = {"sync": "-", "async": "--"}
PANELS = (("reward", "reward", 1), ("trainer_stall", "trainer's stall (ms)", 1e3), ("engine_stall", "engine's stall (ms)", 1e3))


def read(folder):
    """(mode, way) -> lines as trainer.py writes them, of the logs that are there."""
    found = {}
    for mode in LINES:
        for way in COLOURS:
            path = os.path.join(folder, f"{mode}-{way}.jsonl")
            if os.path.exists(path):
                with open(path) as f:
                    found[mode, way] = [json.loads(line) for line in f]
    return found


def draw(results, path):
    """results: as read() gives them."""
    figure, axes = pyplot.subplots(len(PANELS), 1, sharex=True, figsize=(8, 9), layout="constrained")
    for (key, title, factor), axis in zip(PANELS, axes):
        for (mode, way), lines in results.items():
            points = [(x["seconds"] - lines[0]["seconds"], x[key] * factor) for x in lines if x[key] is not None]
            axis.plot(*zip(*points), LINES[mode], color=COLOURS[way], linewidth=1.5, label=f"{mode}, {way}")
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        if factor != 1:
            axis.set_yscale("log")
    axes[0].legend(loc="lower right")
    axes[-1].set_xlabel("seconds since the first step")
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.endswith("svg") else None)
    pyplot.close(figure)


if __name__ == "__main__":
    for kind in ("svg", "png"):
        draw(read(sys.argv[1]), os.path.join(sys.argv[1], "loop." + kind))
