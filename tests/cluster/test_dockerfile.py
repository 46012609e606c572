# SPDX-License-Identifier: Apache-2.0
"""The Dockerfiles, built by a real builder (buildah, no daemon) on a Debian made by mmdebstrap, as no registry is
needed: the same files as charts/image.sh gives, programs that start from them as uid 65532, and an image of the
example job whose worker starts.  The base image is kept in the user's cache."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, skip  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weightbridge", "buildah")
BASE = "docker.io/library/debian:12-slim"
CA = "/etc/ssl/certs/ca-certificates.crt"
# Versions of Debian's own packages may differ between the machine and the base; the list of files may not.
OURS = {"agent": ["weightbridge-agent", "weightbridge-agent-ipclock", "wbctl"],
        "operator": ["weightbridge-operator", "wbctl"]}


class Builder:
    def __init__(self, run_dir):
        self.root = ["--root", os.path.join(CACHE, "store"), "--runroot", run_dir]
        self.env = {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": run_dir}
        self.images = []

    def __call__(self, *args):
        r = subprocess.run(["buildah", *self.root, *args], capture_output=True, text=True, env=self.env, cwd=TOP)
        assert r.returncode == 0, (args, r.stdout[-3000:], r.stderr[-3000:])
        return r.stdout.strip()

    def base(self):
        """debian:12-slim as a registry would give it, with the machine's own authorities for pip."""
        if BASE.rsplit(":", 1)[0] in self("images", "--format", "{{.Name}}").split():
            return
        tar = os.path.join(CACHE, "base.tar")
        r = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", tar], capture_output=True, text=True)
        if r.returncode:
            skip("no Debian for a base image: " + (r.stderr.strip().splitlines() or ["?"])[-1])
        c = self("from", "scratch")
        self("add", "-q", c, tar, "/")
        if os.path.exists(CA):
            self("copy", "-q", c, CA, "/etc/ssl/machine.crt")
            self("config", "--env", "PIP_CERT=/etc/ssl/machine.crt", c)
        self("commit", "-q", "--rm", c, BASE)
        os.unlink(tar)

    def build(self, file, name, *args):
        t = time.monotonic()
        self("bud", "-q", "--pull=never", "--layers", "-f", file, "-t", name, *args, ".")
        print(f"{name} built in {time.monotonic() - t:.0f} s", flush=True)
        self.images.append(name)
        container = self("from", "--pull=never", "localhost/" + name)
        return container, self("mount", container)

    def end(self):
        self("rm", "--all")
        if self.images:
            self("rmi", "--prune", "--force")
            self("rmi", "--force", *["localhost/" + i for i in self.images])
            self("rmi", "--prune", "--force")


def inside(root, *command, env=None):
    """A program from the image, as the image's user."""
    return subprocess.run([shutil.which("chroot"), "--userspec=65532:65532", "--groups=", root, *command], capture_output=True,
                          text=True, env=env or {})


def listing(root):
    return sorted(os.path.relpath(os.path.join(d, n), root) for d, _, names in os.walk(root) for n in names)


def same_as_the_script(build, part, dir):
    container, root = build.build("charts/images/Dockerfile", f"weightbridge/{part}:test", "--target", part)
    want = os.path.join(dir, part)
    subprocess.run([os.path.join(TOP, "charts/images/rootfs.sh"), part,
                    os.environ.get("WB_BUILD", os.path.join(TOP, "build/release")), want], check=True)
    assert listing(root) == listing(want), set(listing(root)) ^ set(listing(want))
    for program in OURS[part]:
        path = os.path.join("usr/bin", program)
        has = [subprocess.run(["getcap", os.path.join(r, path)], capture_output=True, text=True).stdout.split()[1:]
               for r in (root, want)]
        assert has[0] == has[1] and bool(has[0]) == program.endswith("-ipclock"), (program, has)
        if not has[0]:
            r = inside(root, "/" + path, "--version")
            assert r.returncode == 0 and r.stdout.startswith(program + " "), r
    config = build("inspect", "--format", "{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}", container)
    assert config == f"65532:65532 [/usr/bin/weightbridge-{part}]", config


def the_example_job_starts(build):
    container, root = build.build("charts/examples/rl-job/Dockerfile", "weightbridge/rl-job:test")
    env = {"PATH": "/venv/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    r = inside(root, "/venv/bin/python3", "-c", "import weightbridge, numpy, ml_dtypes; print(weightbridge.__file__)",
               env=env)
    assert r.returncode == 0 and r.stdout.startswith("/venv/"), r
    # It loads its checkpoint and waits for its agent, who is not there.
    r = inside(root, "/usr/bin/timeout", "15", "/venv/bin/python3", "/opt/weightbridge/job.py", env={
        **env, "ROLE": "rollout", "WORKERS": "1", "TRAINERS": "1", "POD_NAME": "x-0", "LAYERS": "1",
        "WEIGHTBRIDGE_SOCKET": "/nowhere/agent.sock", "TMPDIR": "/tmp", "HOME": "/tmp"})
    assert r.returncode == 124 and not r.stderr and os.listdir(os.path.join(root, "tmp/checkpoint")), r


def main():
    if os.getuid():
        skip("not root")
    need = [p for p in ("buildah", "mmdebstrap") if not shutil.which(p)]
    if need and subprocess.run([os.path.join(TOP, "tests/common/deps.sh"), *need]).returncode:
        skip("missing packages: " + " ".join(need))
    os.makedirs(CACHE, exist_ok=True)
    with tempfile.TemporaryDirectory() as dir:
        os.chmod(dir, 0o755)
        build = Builder(os.path.join(dir, "run"))
        try:
            build.base()
            for part in ("agent", "operator"):
                same_as_the_script(build, part, dir)
            the_example_job_starts(build)
        finally:
            build.end()


if __name__ == "__main__":
    main()
