# SPDX-License-Identifier: Apache-2.0
"""Container images without an engine: a tree of files becomes an archive that containerd and Docker import."""
import glob
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile

from apiserver import TOP

PAUSE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void reap(int s) { (void)s; while (waitpid(-1, 0, WNOHANG) > 0); }
static void end(int s) { (void)s; _exit(0); }
int main(void)
{
	signal(SIGCHLD, reap);
	signal(SIGTERM, end);
	signal(SIGINT, end);
	for (;;)
		pause();
}
"""


class Tree:
    """The files of an image: path in it -> (bytes or file outside, mode), or a link."""

    def __init__(self):
        self.entries = {}

    def directory(self, path, mode=0o755):
        self.entries[path.strip("/")] = ("dir", None, mode)

    def file(self, path, source, mode=0o644):
        parts = path.strip("/").split("/")
        for i in range(1, len(parts)):
            self.entries.setdefault("/".join(parts[:i]), ("dir", None, 0o755))
        self.entries["/".join(parts)] = ("file", source, mode)

    def link(self, path, to):
        self.file(path, b"")
        self.entries[path.strip("/")] = ("link", to, 0o777)

    def program(self, path, source):
        """A program with the libraries it is linked with."""
        self.file(path, source, 0o755)
        self.linked(source)

    def linked(self, source):
        """The libraries that a program or a library is linked with."""
        for line in subprocess.run(["ldd", source], capture_output=True, text=True).stdout.splitlines():
            words = [w for w in line.split() if w.startswith("/")]
            if words and "/../" not in words[0]:  # else it lies beside it, and comes with its folder
                self.file(words[0], os.path.realpath(words[0]), 0o755)

    def folder(self, path, source, skip=lambda name: False):
        for top, dirs, files in os.walk(source):
            dirs[:] = sorted(d for d in dirs if not skip(d))
            at = os.path.join(path, os.path.relpath(top, source))
            for name in sorted(files):
                full = os.path.join(top, name)
                if not skip(name) and os.path.isfile(full):
                    self.file(os.path.normpath(os.path.join(at, name)), os.path.realpath(full),
                              0o755 if os.access(full, os.X_OK) else 0o644)

    def layer(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as t:
            for path, (kind, what, mode) in sorted(self.entries.items()):
                info = tarfile.TarInfo(path)
                info.mode = mode
                if kind == "dir":
                    info.type = tarfile.DIRTYPE
                    t.addfile(info)
                elif kind == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, what
                    t.addfile(info)
                else:
                    data = what if isinstance(what, bytes) else open(what, "rb").read()
                    info.size = len(data)
                    t.addfile(info, io.BytesIO(data))
        return out.getvalue()


def write_image(file, name, tree, entrypoint, user="65532:65532", env=(), path="/usr/bin:/bin"):
    layer = tree.layer()
    config = {"architecture": "amd64", "os": "linux",
              "config": {"Entrypoint": entrypoint, "User": user, "Env": [f"PATH={path}", *env]},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as t:
        for n, data in (("manifest.json", json.dumps(manifest).encode()), ("config.json", json.dumps(config).encode()),
                        ("layer.tar", layer)):
            info = tarfile.TarInfo(n)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return file


def pause_image(file):
    """What holds a pod's namespaces: it waits, reaps what is handed to it and ends when told to."""
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/pause.c", "w") as f:
            f.write(PAUSE)
        subprocess.run([*os.environ.get("CC", "cc").split(), "-O2", "-static", "-o", d + "/pause", d + "/pause.c"], check=True)
        t = Tree()
        t.file("pause", d + "/pause", 0o755)
        return write_image(file, "localhost/pause:1", t, ["/pause"])


def interpreter(program, lib):
    """A Python with its standard library `lib`, which keeps its place, so that nothing has to be told where it is."""
    t = Tree()
    t.program("usr/bin/python3", os.path.realpath(program))
    drop = {"__pycache__", "test", "tests", "site-packages", "dist-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "config"}
    t.folder(lib, lib, lambda name: name in drop or name.startswith("config-") or name.endswith(".a"))
    t.directory("tmp", 0o1777)
    return t


def link_extensions(t):
    for path, (kind, source, _) in list(t.entries.items()):
        if kind == "file" and isinstance(source, str) and ".so" in os.path.basename(source):
            t.linked(source)


def python_tree(modules=("numpy", "numpy.libs", "ml_dtypes")):
    """The Python that runs this test with its standard library, the given modules in /opt/site, and what extensions are
    linked with: a base for images whose programs are scripts."""
    t = interpreter(sys.executable, os.path.join(sys.base_prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}"))
    for name in modules:
        site = os.path.dirname(os.path.dirname(importlib.util.find_spec(name.split(".")[0]).origin))
        t.folder("opt/site/" + name, os.path.join(site, name), lambda name: name in ("__pycache__", "tests") or name.endswith(".a"))
    link_extensions(t)
    return t


def client_library(t, build):
    """The Python package, as `pip install` would leave it."""
    t.folder("opt/site/weightbridge", os.path.join(TOP, "agent/python/weightbridge"), lambda name: name == "__pycache__")
    library = os.path.realpath(os.path.join(build, "lib", "libweightbridge.so.0"))
    t.file("opt/site/weightbridge/libweightbridge.so.0", library)
    t.linked(library)


def job_image(file, name, build):
    """What charts/examples/rl-job/Dockerfile puts into an image, as values.yaml of that chart names it."""
    t = python_tree()
    at = "opt/weightbridge/"
    t.file(at + "job.py", os.path.join(TOP, "charts/examples/rl-job/job.py"))
    t.file(at + "tests/models.json", os.path.join(TOP, "tests/models.json"))
    for d in ("engines", "demo"):
        t.folder(at + "tests/" + d, os.path.join(TOP, "tests", d), lambda name: name == "__pycache__")
    client_library(t, build)
    return write_image(file, name, t, ["python3", "/opt/weightbridge/job.py"], env=["PYTHONPATH=/opt/site", "PYTHONDONTWRITEBYTECODE=1"])


def loop_image(file, name, build, python):
    """What agent/python/examples/rl/Dockerfile puts into an image, but for torch: /venv is a link to the environment of
    `python`, which is 1.4 GB, and each node would keep it in memory.  A pod mounts `engines` (tests/frameworks/env.py), where
    it lies here.  Bytecode is taken from there, too, or each start would compile torch anew; no_amx.py there says why oneDNN
    is told to leave AMX alone."""
    said = "import sys, sysconfig as s; print(sys._base_executable, s.get_path('stdlib'), s.get_path('purelib'), sep='\\n')"
    program, lib, site = subprocess.check_output([python, "-c", said], text=True).split("\n")[:3]
    venv = os.path.dirname(os.path.dirname(python))
    t = interpreter(program, lib)
    t.file(program, os.path.realpath(program), 0o755)  # where the environment looks for it
    t.link("venv", venv)
    t.folder("opt/weightbridge/rl", os.path.join(TOP, "agent/python/examples/rl"), lambda name: name == "__pycache__")
    client_library(t, build)
    link_extensions(t)
    for so in glob.glob(os.path.join(site, "**", "*.so*"), recursive=True):
        t.linked(so)
    t.entries = {path: e for path, e in t.entries.items() if not path.startswith(site.strip("/"))}
    return write_image(file, name, t, ["python3"], path="/venv/bin:/usr/bin:/bin", env=[
        "PYTHONPATH=/opt/site", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
        f"PYTHONPYCACHEPREFIX={os.path.dirname(venv)}/bytecode", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"])
