# SPDX-License-Identifier: Apache-2.0
"""The command line that trainers and engine share."""
import argparse
import os


def parse(about, args=None):
    p = argparse.ArgumentParser(description=about)
    p.add_argument("--rank", type=int, default=int(os.environ.get("RANK") or os.environ.get("JOB_COMPLETION_INDEX") or 0),
                   help="of a trainer (default: $RANK, or the number of the pod in its Job)")
    p.add_argument("--trainers", type=int, default=2)
    p.add_argument("--store", default="127.0.0.1:29400", help="HOST:PORT of the store that batches go through")
    p.add_argument("--serve", action="store_true", help="trainer 0 is that store")
    p.add_argument("--mode", choices=("sync", "async"), default="sync")
    p.add_argument("--weights", choices=("weightbridge", "broadcast"), default="weightbridge")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--hidden", type=int, default=128, help="width of the model")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--log", help="file for a line of JSON for each step")
    return p.parse_args(args)


def ahead(args):
    """Batches that the engine may be ahead of the trainers."""
    return 1 if args.mode == "sync" else 2
