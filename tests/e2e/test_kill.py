# SPDX-License-Identifier: Apache-2.0
"""Some of `make check-kill`: processes killed and stopped at each phase of a transfer, two modes at a time: a job under
fire mostly waits for its deadlines."""
import concurrent.futures
import sys

import kill
from cluster import Proc, SANITIZED

if __name__ == "__main__":
    if SANITIZED:
        print("not with a sanitizer: the phases are timed")
        sys.exit(77)
    Proc.drain_checked = kill.drain_checked
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        failed = list(pool.map(lambda mode, seed: kill.main(4, seed, mode), kill.MODES, range(1, 6)))
    sys.exit(any(failed))
