# SPDX-License-Identifier: Apache-2.0
"""Some of `make check-kill`: processes killed and stopped at each phase of a transfer."""
import sys

import kill
from cluster import Proc, SANITIZED

if __name__ == "__main__":
    if SANITIZED:
        print("not with a sanitizer: the phases are timed")
        sys.exit(77)
    Proc.drain_checked = kill.drain_checked
    sys.exit(kill.main(20, 1, None))
