# SPDX-License-Identifier: Apache-2.0
"""What continuous integration runs, as one table: see Tier for the columns, run.py for who reads it."""
import collections

# name      what people call it
# command   what runs, from the top of the tree; prints "N passed, N failed, N skipped" (a command that prints no
#           such line counts as one test)
# minutes   on two quiet cores with caches warm; replaced by what it took here last
# paths     its result depends on these and on nothing else of the tree: git pathspecs
# when      ALWAYS: in each run, first, whatever its stamp. FIRST: before the others. LATER: as the budget allows
# knobs     environment variables that change what it tests, with their defaults
# after     a tier above that makes what this one needs: while that has not passed, this one waits
Tier = collections.namedtuple("Tier", "name command minutes paths when knobs after", defaults=("",))
ALWAYS, FIRST, LATER = "always", "first", "later"

TEXT = [":!*.md", ":!*.1", ":!*.3", ":!*.8"]
PRODUCT = ["Makefile", "agent", "planner", "kernels", "operator-shim", "crds/*.yaml"] + TEXT
UNITS = PRODUCT + ["tests/run.sh", "tests/unit", "tests/common", "tests/golden", "tests/models.json"]
PROCESSES = PRODUCT + ["tests/run.sh", "tests/common", "tests/tools", "tests/e2e", "tests/py", "tests/engines", "tests/oracle",
                       "tests/demo"]
CLUSTER = PRODUCT + ["charts", "crds", "tests/run.sh", "tests/common", "tests/tools", "tests/cluster"]
MACHINE = ["tests/roce/vm.sh", "tests/roce/init.sh", "tests/roce/guest.sh"]

TIERS = [
    Tier("build", "make -j{jobs} all", 1, ["."], ALWAYS, {}),
    Tier("check", "make -j{jobs} check", 6, ["."], ALWAYS, {}),
    Tier("lint", "make lint", 3, ["."], FIRST, {}),
    # Its seeds are others in each run, so that a stamp says nothing.
    Tier("sim", "make -j{jobs} check-sim", 3, UNITS, ALWAYS, {"SEEDS": "10000"}),
    # Deployments of more kinds, with faults of more kinds.
    Tier("sim-wide", "make -j{jobs} check-sim", 1, UNITS, ALWAYS, {"SEEDS": "2000", "WIDE": "1"}),
    Tier("asan-units", "make -j{jobs} asan-units", 3, UNITS, FIRST, {}),
    Tier("tsan-units", "make -j{jobs} tsan-units", 3, UNITS, LATER, {}),
    Tier("asan-processes", "make -j{jobs} asan-processes", 3, PROCESSES, LATER, {}),
    Tier("tsan-processes", "make -j{jobs} tsan-processes", 3, PROCESSES, LATER, {}),
    Tier("kill", "make -j{jobs} check-kill", 5, PROCESSES, LATER, {"KILLS": "60"}),
    Tier("fuzz", "make -j{jobs} fuzz", 6, PRODUCT + ["tests/fuzz"], LATER, {"FUZZ_S": "30"}),
    Tier("roce", "make -j{jobs} check-roce", 4, PRODUCT + ["tests/run.sh", "tests/common", "tests/tools", "tests/unit/test_xport*.c", "tests/roce", "tests/cuda"], LATER, {}),
    # The CUDA compiler comes from PyPI and is kept outside the tree; a device is not needed.
    Tier("cuda", "make -j{jobs} check-cuda", 1, ["Makefile", "kernels", "agent/base", "tests/cuda", "tests/common",
         "tests/unit/test_kernels_gpu.c"] + TEXT, LATER, {}),
    # helm is built where it is not (2 min); a Debian to install in comes from its mirror.
    Tier("packages", "make -j{jobs} check-packages", 4, PRODUCT + ["charts", ".github/CHANGELOG.md", "tests/packages",
         "tests/run.sh", "tests/common", "tests/cluster/build.sh"], LATER, {}),
    # Frameworks come from PyPI and are kept outside the tree; what cannot be had is a skip with its reason.
    Tier("engines", "make -j{jobs} check-engines", 20, PRODUCT + ["tests/run.sh", "tests/common", "tests/e2e/cluster.py",
         "tests/bench/torch_stubs.py", "tests/frameworks"], LATER, {}),
    # The programs of a cluster are built once a machine; what is built stays when the budget ends this.
    Tier("cluster-programs", "tests/cluster/build.sh api helm node rdma", 39, ["tests/cluster/build.sh"], LATER, {}),
    Tier("cluster-api", "make -j{jobs} check-cluster PART=api", 8, CLUSTER, LATER, {}, "cluster-programs"),
    # JobSet's, LeaderWorkerSet's, TrainJob's and KubeRay's; 10 minutes once to build them.
    Tier("cluster-controllers", "make -j{jobs} check-cluster PART=controllers", 12, CLUSTER, LATER, {},
         "cluster-programs"),
    # One test takes torch from the environment of the tier engines, where that is.
    Tier("cluster-nodes", "make -j{jobs} check-cluster PART=nodes", 16, CLUSTER + MACHINE + ["tests/frameworks/env.py",
         "tests/bench/torch_stubs.py"], LATER, {}, "cluster-programs"),
]
