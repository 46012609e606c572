# SPDX-License-Identifier: Apache-2.0
"""What `make release` makes: all of it is there, adds up and names what is in it; the wheel and the Debian packages work in
a Debian without a compiler.  The Debian comes from mmdebstrap and is kept in the user's cache."""
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("WB_BUILD") or os.path.join(TOP, "build", "release")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weightbridge", "packages")
BARE = ["--quiet", "--variant=minbase", "--include=python3-minimal,libpython3-stdlib", "bookworm"]


def skip(why):
    print(why)
    sys.exit(77)


def sh(*args, **more):
    r = subprocess.run(args, capture_output=True, text=True, **more)
    assert r.returncode == 0, (args[:4], r.stdout[-2000:], r.stderr[-2000:])
    return r.stdout


def bare(folder):
    """A Debian with a Python, no compiler, no pip and none of our libraries."""
    tar = os.path.join(CACHE, "bare-2.tar")
    if not os.path.exists(tar):
        os.makedirs(CACHE, exist_ok=True)
        r = subprocess.run(["mmdebstrap", "--format=tar", *BARE, tar + ".new"], capture_output=True, text=True,
                           env={**os.environ, "TMPDIR": "/var/tmp"})
        if r.returncode:
            skip("no Debian: " + (r.stderr.strip().splitlines() or ["?"])[-1])
        os.rename(tar + ".new", tar)
    os.mkdir(folder)
    sh("tar", "-xf", tar, "-C", folder, "--exclude=./dev/*")
    for tool in ("cc", "gcc", "make", "pip"):
        assert not os.path.exists(os.path.join(folder, "usr", "bin", tool)), tool


def inside(root, *args, check=True):
    """Runs that in the Debian: processes and mounts of its own, this machine's network."""
    script = 'mount -t proc none "$1/proc" && mount --bind /dev "$1/dev" && exec chroot "$@"'
    r = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", root, *args],
                       capture_output=True, text=True, timeout=300, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root",
                                                                         "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"})
    assert not check or r.returncode == 0, (args, r.stdout[-3000:], r.stderr[-3000:])
    return r.stdout + r.stderr


def made(folder):
    """The release, and its version."""
    r = subprocess.run([os.path.join(TOP, "charts", "release", "release.sh"), BUILD, folder], capture_output=True, text=True)
    if r.returncode == 77:
        skip(r.stderr.strip().splitlines()[-1])
    assert r.returncode == 0, r.stderr[-3000:]
    return sh("sed", "-n", 's/^#define WB_VERSION "\\(.*\\)"/\\1/p',
              os.path.join(TOP, "agent", "include", "weightbridge", "version.h")).strip()


def adds_up(folder, v):
    names = set(os.listdir(folder))
    wheel, = glob.glob(os.path.join(folder, "*.whl"))
    assert "manylinux_2_" in wheel, wheel
    arch = sh("dpkg", "--print-architecture").strip()
    want = {f"weightbridge-{v}.tar.gz", f"weightbridge_{v}_{arch}.deb", f"libweightbridge0_{v}_{arch}.deb",
            f"libweightbridge-dev_{v}_{arch}.deb", f"weightbridge-{v}.tgz", f"weightbridge-operator-{v}.tgz", "CHANGELOG.md",
            f"weightbridge-{v}.spdx.json", "SHA256SUMS", os.path.basename(wheel)}
    assert names == want, names ^ want
    sh("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)
    with open(os.path.join(folder, f"weightbridge-{v}.spdx.json"), encoding="utf-8") as f:
        bom = json.load(f)
    for x in bom["files"]:
        with open(os.path.join(folder, x["fileName"]), "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == x["checksums"][0]["checksumValue"], x
    assert {x["fileName"][2:] for x in bom["files"]} == want - {"SHA256SUMS", f"weightbridge-{v}.spdx.json"}
    # Each library in the wheel is a file of a package that the SBOM names, whose licence is in the wheel.
    named = {p["name"] for p in bom["packages"]}
    with zipfile.ZipFile(wheel) as z:
        inside_it = z.namelist()
    libraries = [n for n in inside_it if ".libs/" in n and ".so" in n]
    licenses = {os.path.basename(n)[:-4] for n in inside_it if "/licenses/" in n and n.endswith(".txt")}
    known = {}
    for line in sh(os.path.join(TOP, "charts", "release", "libraries.sh"), BUILD).splitlines():
        package, _, _, *paths = line.split()
        known.update({os.path.basename(p): package for p in paths})
    of = {n: known.get(re.sub(r"-[0-9a-f]{8}(?=[.-])", "", os.path.basename(n))) for n in libraries}
    assert set(of.values()) <= named and None not in of.values(), [n for n, p in of.items() if p not in named]
    assert len(libraries) > 10 and licenses == named - {"weightbridge"}, (len(libraries), licenses ^ named)
    assert not any("libibverbs" in n or "libc.so" in n for n in libraries), libraries
    print(f"{len(names)} files, {os.path.getsize(wheel) >> 20} MiB of wheel, {len(libraries)} libraries of {len(licenses)} packages")
    return wheel


def wheel_works(root, wheel):
    """Installed by this machine's pip, as the Debian has none, for its Python."""
    minor = inside(root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    r = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary=:all:",
                        "--python-version", minor, "--implementation", "cp", "--target", os.path.join(root, "site"), wheel],
                       capture_output=True, text=True)
    if r.returncode and "numpy" in r.stderr:
        skip("NumPy cannot be had from PyPI: " + r.stderr.strip().splitlines()[-1])
    assert r.returncode == 0, r.stderr
    shutil.copytree(os.path.join(TOP, "agent", "python", "examples", "numpy"), os.path.join(root, "numpy-example"))
    shutil.copy(os.path.join(TOP, "tests", "packages", "driver.py"), root)
    env = ["env", "PYTHONPATH=/site", "PATH=/site/bin:/usr/bin:/bin"]
    for program in ("wbctl", "weightbridge-agent", "weightbridge-operator"):
        said = inside(root, *env, "python3", f"/site/bin/{program}", "--version")
        assert program in said, said
    assert "moved" in inside(root, *env, "python3", "/driver.py", "/numpy-example")
    print("wheel: programs start, a trainer and an engine moved versions")


def debs_work(root, folder, v):
    """By apt, which brings what they depend on; without it they say what is missing."""
    names = [p for p in glob.glob(os.path.join(folder, "*.deb"))]
    for p in names:
        shutil.copy(p, root)
    sources = os.path.join(root, "etc", "apt")
    for p in glob.glob("/etc/apt/sources.list*") + glob.glob("/etc/apt/apt.conf.d/*prox*"):
        (shutil.copytree if os.path.isdir(p) else shutil.copy)(p, os.path.join(sources, os.path.relpath(p, "/etc/apt")),
                                                               **({"dirs_exist_ok": True} if os.path.isdir(p) else {}))
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc", "resolv.conf"))
    inside(root, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "update")
    inside(root, "sh", "-c", "apt-get -qq -y --no-install-recommends install /*.deb")
    for program in ("wbctl", "weightbridge-agent", "weightbridge-operator"):
        said = inside(root, program, "--version")
        assert v in said, said
    shutil.rmtree(os.path.join(root, "tmp", "wb"), ignore_errors=True)
    said = inside(root, "sh", "-c", "apt-get -qq -y purge weightbridge libweightbridge0 libweightbridge-dev && ls /usr/bin/wbctl",
                  check=False)
    assert "No such file" in said, said
    print("Debian packages: installed with what they need, started, purged")


def main():
    if os.geteuid():
        skip("needs root, to run programs in another root folder")
    if not shutil.which("mmdebstrap"):
        subprocess.run([os.path.join(TOP, "tests", "common", "deps.sh"), "mmdebstrap", "dpkg-dev", "binutils"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if not shutil.which("mmdebstrap"):
        skip("mmdebstrap is not here and cannot be had")
    with tempfile.TemporaryDirectory(prefix="wbp", dir="/var/tmp") as d:
        folder, root = os.path.join(d, "release"), os.path.join(d, "root")
        version = made(folder)
        wheel = adds_up(folder, version)
        bare(root)
        wheel_works(root, wheel)
        debs_work(root, folder, version)


if __name__ == "__main__":
    main()
