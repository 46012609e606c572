# SPDX-License-Identifier: Apache-2.0
"""Programs and charts of the commit that file compat names, built once from this repository's own objects.

compat.tree() gives a folder in the user's cache with charts/ and build/release/{bin,lib,tools} of that commit; where
the repository does not have it (a shallow clone, a release archive) the test is skipped. As a program: build it now
and print the folder.
"""
import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile

from apiserver import HERE, TOP, skip

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weightbridge")


def commit():
    lines = [x.strip() for x in open(os.path.join(HERE, "compat"))]
    return next(x for x in lines if x and not x.startswith("#"))


def git(*args, **kw):
    # Root may test in a folder of somebody else's.
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", TOP, *args], capture_output=True, **kw)


def extract(at, to):
    """The files of a commit: what git archive writes, which is this project's own."""
    with tempfile.TemporaryFile() as f:
        p = subprocess.run(["git", "-c", "safe.directory=*", "-C", TOP, "archive", at], stdout=f)
        assert p.returncode == 0, f"git archive {at}"
        f.seek(0)
        with tarfile.open(fileobj=f) as t:
            t.extractall(to)


def tree():
    at = commit()
    if not shutil.which("git") or git("cat-file", "-e", at + "^{commit}").returncode:
        skip(f"the repository here does not have commit {at[:12]}, which tests/cluster/compat names")
    dir = os.path.join(CACHE, "compat-" + at[:12])
    os.makedirs(CACHE, exist_ok=True)
    with open(dir + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(dir):
            return dir
        new = dir + ".new"
        shutil.rmtree(new, ignore_errors=True)
        extract(at, new)
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VARIANT", "O", "BUILD")}
        r = subprocess.run(["make", "-s", f"-j{os.cpu_count()}", "all", "build/release/tools/toy_worker"], cwd=new, env=env,
                           capture_output=True, text=True)
        assert r.returncode == 0, f"commit {at[:12]} does not build:\n{r.stdout[-2000:]}{r.stderr[-4000:]}"
        for part in ("obj", "tests", "fuzz"):
            shutil.rmtree(os.path.join(new, "build", "release", part), ignore_errors=True)
        os.rename(new, dir)
    return dir


if __name__ == "__main__":
    print(tree())
