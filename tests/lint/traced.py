# SPDX-License-Identifier: Apache-2.0
"""What one version costs in files, messages and encodings, as a deployment of processes shows it.

The tree is built for coverage in a temporary folder. Operator, four agents, two trainer workers and one
engine of two (tests/e2e/test_control.py) run; after two versions counters are set to zero, nothing is
done for a while and the counts are read ("idle": heartbeats, ticks); then the same around one version.
  files on the path   product .c files with a function that ran more often while the version passed
                      than in the idle time, which is longer
  messages            wb_control_messages_total of all agents: those between agents as they are sent, and
                      those with the operator and the workers, which have no such count, in both directions
  encodings           calls of the codecs' encoders in all processes, without what idle time has of them"""
import glob
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

ZERO, KEEP = signal.SIGRTMIN + 6, signal.SIGRTMIN + 7
ENCODERS = ("wb_table_encode_bin", "wb_table_encode_json")
TOPS = ("agent/", "kernels/", "planner/", "operator-shim/")
# In each program: a thread that sets its counters to zero or writes them when it is told to.
HOOK = """
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
void __gcov_reset(void);
void __gcov_dump(void);
static int ends[2];
static void on_signal(int n)
{
	char c = n == SIGRTMIN + 7;

	if (write(ends[1], &c, 1) < 0)
		_exit(1);
}
static void *serve(void *arg)
{
	char keep;

	while (read(ends[0], &keep, 1) == 1) {
		if (keep)
			__gcov_dump();
		__gcov_reset();
	}
	return arg;
}
__attribute__((constructor)) static void begin(void)
{
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t id;

	if (pipe(ends) || pthread_create(&id, 0, serve, 0))
		_exit(1);
	sigaction(SIGRTMIN + 6, &a, 0);
	sigaction(SIGRTMIN + 7, &a, 0);
}
"""


def version(root):
    """({figure: number}, {name: list}) of the tree at root."""
    with tempfile.TemporaryDirectory(prefix="wb-traced-") as tmp:
        hook = os.path.join(tmp, "hook.c")
        with open(hook, "w", encoding="utf-8") as f:
            f.write(HOOK)
        subprocess.run(["gcc", "-c", "-o", hook[:-1] + "o", hook], check=True)
        out = os.path.join(tmp, "build", "cov")
        subprocess.run(["make", "-s", "-C", root, f"-j{os.cpu_count()}", "VARIANT=cov", f"BUILD={tmp}/build",
                        f"LDFLAGS={hook[:-1]}o", "all", f"{out}/tools/toy_worker"], check=True, stdout=sys.stderr)
        said = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), root, out], check=True,
                              env={**os.environ, "WB_BUILD": out}, stdout=subprocess.PIPE, text=True).stdout
    got = json.loads(said.splitlines()[-1])
    return got["figures"], got["lists"]


def tell(cluster, number):
    for p in [cluster.op, *cluster.agents.values(), *cluster.workers]:
        os.kill(p.p.pid, number)


def counts(root, out):
    """{(file, function): calls} of all that was written since, which goes."""
    found = {}
    for data in glob.glob(os.path.join(out, "obj", "**", "*.gcda"), recursive=True):
        said = subprocess.run(["gcov", "--json-format", "--stdout", data], cwd=root, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        said = gzip.decompress(said) if said[:2] == b"\x1f\x8b" else said
        for line in said.splitlines():
            for f in json.loads(line)["files"]:
                path = os.path.relpath(os.path.join(root, f["file"]), root)
                if path.startswith(TOPS) and path.endswith(".c"):
                    for fn in f["functions"]:
                        key = path, fn["name"]
                        found[key] = found.get(key, 0) + fn["execution_count"]
        os.unlink(data)
    return found


def window(cluster, root, out, work):
    """What ran while work() did, and for how long it did."""
    tell(cluster, ZERO)
    time.sleep(0.2)
    begun = time.monotonic()
    work()
    took = time.monotonic() - begun
    tell(cluster, KEEP)
    last = None
    while True:  # until all have written theirs
        time.sleep(1)
        now = {p: os.stat(p).st_mtime_ns for p in glob.glob(os.path.join(out, "obj", "**", "*.gcda"), recursive=True)}
        if now and now == last:
            return counts(root, out), took
        last = now


def run(root, out):
    sys.path.insert(0, os.path.join(root, "tests", "e2e"))
    import cluster
    import test_control as control

    def sent(c):
        return sum(v for m in control.settled(c).values() for k, v in m.items() if k[0] ==
                   "wb_control_messages_total" and ('dir="tx"' in k[1] or 'channel="agent"' not in k[1]))

    with cluster.Cluster() as c:
        t, r = control.deploy(c, 512, 512)
        c.workers = t + r
        for v in (1, 2):
            control.transfer(t, r, v)
        before = sent(c)

        def one():
            control.transfer(t, r, 3)
            time.sleep(0.5)  # what confirms and reports comes a moment later

        passed, took = window(c, root, out, one)
        after = sent(c)
        idle, idle_took = window(c, root, out, lambda: time.sleep(3 * took + 3))
    files = sorted({f for (f, fn), n in passed.items() if n > idle.get((f, fn), 0)})
    encoded = sum(n - idle.get(k, 0) * took / idle_took for k, n in passed.items() if k[1] in ENCODERS)
    print(json.dumps({
        "figures": {"files on the path of a version": len(files), "messages a version": int(after - before),
                    "encodings a version": round(encoded)},
        "lists": {"files on the path of a version": files}}))


if __name__ == "__main__":
    run(*map(os.path.abspath, sys.argv[1:]))
