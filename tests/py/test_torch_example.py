# SPDX-License-Identifier: Apache-2.0
"""The torch example of the Python package, with the real torch: the engine computes what the trainer
does.  Skipped where no Python has torch (tests/bench/torch.sh finds one, never downloads here)."""
import os
import re
import subprocess
import sys

from test_local import TOP, example


def main():
    found = subprocess.run(["sh", os.path.join(TOP, "tests", "bench", "torch.sh")], text=True,
                           capture_output=True, check=False,
                           env={**os.environ, "WB_TORCH": "off", "LD_PRELOAD": ""})
    if found.returncode:
        print("no Python with torch here; `make bench` gets one")
        return 77
    if os.environ.get("LD_PRELOAD"):
        print("torch under a sanitizer is not what is tested")
        return 77
    said = example("torch", found.stdout.strip())
    numbers = {who: [float(x) for x in re.findall(r"version \d, which says ([\d.]+)", text)]
               for who, text in said.items()}
    print(numbers)
    assert len(set(numbers["trainer"])) > 1, said
    assert all(abs(a - b) < 0.001 for a, b in zip(*numbers.values())), said
    return 0


if __name__ == "__main__":
    sys.exit(main())
