# SPDX-License-Identifier: Apache-2.0
"""How often an operator writes the status of an object whose versions follow each other: the end of a transfer does not
wait for the second that everything else waits for, and no object has more than two writes a second."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../common"))
from cluster import run  # noqa: E402
from test_away import KEY, Job  # noqa: E402

VERSIONS = range(2, 9)


def the_end_of_a_transfer_does_not_wait_for_the_second():
    with Job() as c:
        c.start()
        c.move(1)
        c.shows(1)
        for v in VERSIONS:
            c.move(v)
            c.until(f"version {v} in status", lambda v=v: c.api.status(KEY).get("version") == v)
        writes = [(t, s.get("version")) for t, key, s in c.api.writes if key == KEY and s.get("version")]
        gaps = [b[0] - a[0] for a, b in zip(writes, writes[1:])]
        news = [b[0] - a[0] for a, b in zip(writes, writes[1:]) if a[1] != b[1]]
        print(f"{len(writes)} writes, {min(gaps):.2f} s apart at least, {min(news):.2f} s before a version")
        assert min(news) < 0.95, news
        assert min(gaps) > 0.4, gaps


if __name__ == "__main__":
    run(the_end_of_a_transfer_does_not_wait_for_the_second)
