# SPDX-License-Identifier: Apache-2.0
"""Who can use another process's memory of a GPU (tests/cuda/matrix), on the driver without devices, and with
WB_GPU=device on the one that is there: no namespace and no user is in the way of descriptors and handles, but a process
has to find itself in /proc (580.159 on an H200, which the driver without devices follows)."""
import json
import os
import subprocess
import sys
import unittest

BUILD = os.environ.get("WB_BUILD", os.path.join(os.path.dirname(__file__), "../../build/release"))
DEVICE = os.environ.get("WB_GPU") == "device"
SPACES = ("pid", "ipc", "mnt")


def run(**env):
    return subprocess.run([f"{BUILD}/tools/cuda_matrix"], stdout=subprocess.PIPE, text=True, env={**os.environ, **env})


class Matrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = run(**({} if DEVICE else {"LD_LIBRARY_PATH": f"{BUILD}/fakecuda"}))
        print(done.stdout if DEVICE else done.stdout.splitlines()[-1], flush=True)
        if done.returncode == 77:
            print(done.stdout.splitlines()[-1])
            sys.exit(77)
        cls.rc = done.returncode
        cls.lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
        cls.imports = [x for x in cls.lines if "import" in x]
        if any("skipped" in x for x in cls.lines):
            print(next(x["skipped"] for x in cls.lines if "skipped" in x))
            sys.exit(77)

    def test_every_way_was_tried(self):
        self.assertEqual(self.rc, 0)
        ways = {tuple(x[k] for k in (*SPACES, "worker", "agent")) for x in self.imports}
        self.assertEqual(len(ways), 24)

    def test_what_was_imported_has_the_workers_bytes(self):
        for x in self.imports:
            self.assertNotEqual(x.get("bytes"), "DIFFER", x)

    def test_what_was_not_has_a_reason(self):
        for x in self.imports:
            self.assertTrue(x["import"] == "yes" or x["why"], x)

    def test_what_cannot_travel_has_the_setting_that_helps(self):
        kept = [x for x in self.lines if x.get("export") == "worker"]
        self.assertEqual(len(kept), 2)
        for x in kept:
            self.assertIn("expandable_segments:True", x["why"])

    def test_whoever_finds_itself_in_proc_can_import(self):
        for x in self.imports:
            strange = x["pid"] == "separate" and x["mnt"] == "same"
            self.assertEqual(x["import"], "no" if strange else "yes", x)
            if strange:
                self.assertIn("(304)", x["why"])

    def test_what_was_imported_outlives_its_worker(self):
        after = {x["after the worker's end"]: x["bytes"] for x in self.lines if "after the worker's end" in x}
        self.assertEqual(after, {"cuMemCreate, two allocations": "agree", "cuMemAlloc of 4 MiB": "agree"})

    def test_what_an_agent_costs_is_told_step_by_step(self):
        costs = [x for x in self.lines if "cost" in x]
        self.assertEqual(len(costs), 7)
        for x in costs[:-1]:
            self.assertGreater(x["host_rss"], 0, x)


class NoDriver(unittest.TestCase):
    @unittest.skipIf(DEVICE, "there is one")
    def test_without_a_driver_it_says_so(self):
        done = run(LD_LIBRARY_PATH="/nonexistent")
        if done.returncode == 0:
            self.skipTest("there is one")
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stdout, "^SKIP no GPU: ")


if __name__ == "__main__":
    unittest.main()
