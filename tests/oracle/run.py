# SPDX-License-Identifier: Apache-2.0
"""run.py FIRST END DIR: run the compositions of seeds FIRST <= s < END on random values.

Writes DIR/<seed>.bin: the checkpoint's tensors in the manifest's order, then the parameters, each
dense and row-major.  Imports nothing of the project.
"""
import os
import sys

import composition


def main():
    first, end, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for seed in range(first, end):
        c = composition.Composition(seed)
        values = c.values(seed + 1000003)
        c.load_weights(iter(values.items()))
        with open(os.path.join(folder, f"{seed}.bin"), "wb") as f:
            for name, _, _ in c.manifest:
                f.write(values[name].tobytes())
            for array, _ in c.params.values():
                f.write(array.tobytes())


main()
