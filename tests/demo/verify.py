# SPDX-License-Identifier: Apache-2.0
"""verify.py --image FILE --checkpoint DIR --spec FILE --version N

Compare a worker's parameters with an independent oracle, byte for byte, straight from the
checkpoint's files, and look at the canaries round them.  Runs in a process of its own, imports
nothing of the project.  FILEs are JSON: an arena's describe(), and the worker's spec; "-" reads a
{"image": .., "spec": ..} from stdin.  Prints one JSON object; exit 0 same, 1 different, 2 not
comparable.
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from engines import arena, oracle, oracle_generic, safetensors_io  # noqa: E402


def verify_worker(image, checkpoint, spec, version):
    """Compare an arena.Image (or Arena with .params) with a Checkpoint: a dict for people and JSON.

    "wrong": sentences, none when all is well.
    """
    start = time.monotonic()
    if spec["framework"] == "generic":
        wrong = oracle_generic.verify_params(image.params, checkpoint, spec, version)
    else:
        wrong = [m.what for m in oracle.verify_params(image.params, checkpoint, spec, version)]
    gone = image.check()
    if gone:
        wrong.append(f"{len(gone)} canary bytes overwritten, the first at {gone[0]}")
    return {"version": version, "params": len(image.params),
            "bytes": sum(a.nbytes for a, _ in image.params.values()), "wrong": wrong,
            "seconds": round(time.monotonic() - start, 3)}


def main():
    p = argparse.ArgumentParser(description="compare a worker's parameters with the oracle")
    p.add_argument("--image", default="-")
    p.add_argument("--spec")
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--version", type=int, required=True)
    a = p.parse_args()
    try:
        if a.image == "-":
            both = json.load(sys.stdin)
            image, spec = both["image"], both["spec"]
        else:
            image = a.image
            with open(a.spec, encoding="utf-8") as f:
                spec = json.load(f)
        result = verify_worker(arena.Image(image), safetensors_io.Checkpoint(a.checkpoint), spec,
                               a.version)
    except (OSError, ValueError, KeyError, TypeError) as e:
        print(f"verify: {type(e).__name__}: {e}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(result))
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
