#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images: the one made without an engine is the one of the Dockerfile, is small, runs as no root from
its own files alone, and comes out the same twice."""
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

TOP = os.environ.get("WB_TOP", ".")
BUILD = os.environ.get("WB_BUILD", "build/release")
MAX_BYTES = 28 << 20

if BUILD.rstrip("/").rsplit("/", 1)[-1] != "release":
    print("images hold release programs")
    sys.exit(77)


need = [p for p, f in (("libcap2-bin", "/usr/sbin/setcap"), ("ca-certificates", "/etc/ssl/certs/ca-certificates.crt"))
        if not os.path.exists(f) and not os.path.exists(f.replace("/usr", ""))]
if need and subprocess.run([os.path.join(TOP, "tests/common/deps.sh"), *need]).returncode:
    print("missing packages: " + " ".join(need))
    sys.exit(77)


def dockerfile():
    """Stages of the Dockerfile: {name: [(instruction, rest)]}."""
    text = open(os.path.join(TOP, "charts/images/Dockerfile")).read().replace("\\\n", " ")
    stages, now = {}, None
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            now = stages[name] = [("FROM", base)]
        else:
            now.append((word, " ".join(rest.split())))
    return stages


def image(dir, part):
    """Make the image twice; its parts."""
    sums = []
    for n in (1, 2):
        file = os.path.join(dir, f"{part}{n}.tar")
        out = subprocess.run([os.path.join(TOP, "charts/image.sh"), part, file], check=True, capture_output=True,
                             text=True, env={**os.environ, "BUILD": BUILD}).stdout.split()
        sums.append(hashlib.sha256(open(file, "rb").read()).hexdigest())
    assert sums[0] == sums[1], f"{part}: two runs, two images"
    t = tarfile.open(file)
    read = lambda name: t.extractfile(name).read()
    blob = lambda d: read("blobs/sha256/" + d.split(":")[1])
    index = json.loads(read("index.json"))["manifests"][0]
    manifest = json.loads(blob(index["digest"]))
    for d in (index, manifest["config"], *manifest["layers"]):
        b = blob(d["digest"])
        assert len(b) == d["size"] and "sha256:" + hashlib.sha256(b).hexdigest() == d["digest"], d
    config = json.loads(blob(manifest["config"]["digest"]))
    assert config["rootfs"]["diff_ids"] == [l["digest"] for l in manifest["layers"]]
    assert out == [index["annotations"]["io.containerd.image.name"], index["digest"]]
    assert re.fullmatch(rf"localhost/weightbridge/{part}:\d+\.\d+\.\d+", out[0]), out
    assert os.path.getsize(file) < MAX_BYTES, os.path.getsize(file)
    layer = os.path.join(dir, part + ".layer")
    with open(layer, "wb") as f:
        f.write(blob(manifest["layers"][0]["digest"]))
    return config["config"], layer


def same_as_dockerfile(stages, part, config):
    # Both take one folder that the same script makes of the same programs.
    build = stages["build"]
    assert ("RUN", f"charts/images/rootfs.sh {part} build/release /rootfs/{part}") in build, build
    script = open(os.path.join(TOP, "charts/image.sh")).read()
    assert '"$top/charts/images/rootfs.sh" "$part" "$build" "$work/root"' in script
    assert stages[part] == [
        ("FROM", "scratch"), ("COPY", f"--from=build /rootfs/{part} /"), ("USER", config["User"]),
        ("ENTRYPOINT", json.dumps(config["Entrypoint"]))], stages[part]


def packages(stages):
    # What the Makefile wants to build with is what the Dockerfile installs.
    make = open(os.path.join(TOP, "Makefile")).read().replace("\\\n", " ")
    wanted = set(re.search(r"^DEPS_DEBIAN := (.*)$", make, re.M).group(1).split())
    got = next(rest for word, rest in stages["build"] if "apt-get install" in rest).split("recommends ")[1].split()
    assert wanted <= set(got), wanted - set(got)


def example():
    # tests/cluster/test_dockerfile.py builds the first one; here: all that they copy is there.
    for name in ("charts/examples/rl-job/Dockerfile", "agent/python/examples/rl/Dockerfile"):
        text = open(os.path.join(TOP, name)).read()
        for words in (line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ")):
            for w in words:
                assert w.startswith("--") or w == "/venv" or os.path.exists(os.path.join(TOP, w)), (name, w)


def runs(dir, part, layer, config):
    if os.getuid() != 0:
        return "not root: images were not run"
    root = os.path.join(dir, part)
    os.mkdir(root)
    with tarfile.open(layer) as t:
        for m in t:
            assert m.isdir() or m.isfile(), (m.name, "neither file nor folder")
            assert (m.uid, m.gid, m.mtime) == (0, 0, 0) and not m.mode & 0o6000, m.name
            assert not m.mode & 0o002 or m.name == "./tmp", m.name
            # One program may lock memory, where the pod lets it: in a file of its own.
            cap = m.pax_headers.get("SCHILY.xattr.security.capability")
            assert (cap is not None) == m.name.endswith("-ipclock"), (m.name, cap)
        t.extractall(root)
    uid, gid = map(int, config["User"].split(":"))
    assert uid == gid == 65532

    def inside(*command):
        def enter():
            os.chroot(root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        return subprocess.run(command, preexec_fn=enter, env={}, capture_output=True, text=True)
    for program in (config["Entrypoint"][0], "/usr/bin/wbctl"):
        r = inside(program, "--version")
        assert r.returncode == 0 and re.fullmatch(rf"{os.path.basename(program)} \d+\.\d+\.\d+\n", r.stdout), r
    if part == "agent":
        rdma(root, inside)
    return None


def rdma(root, inside):
    """The agent opens libibverbs, that looks for devices, and each of its providers finds what it is linked with."""
    said = inside("/usr/bin/wbctl", "doctor").stdout
    assert "no device that may be opened" in said, said
    providers = glob.glob(root + "/usr/lib/*/libibverbs/*.so")
    named = {open(f).read().split()[1] for f in glob.glob(root + "/etc/libibverbs.d/*.driver")}
    assert {re.fullmatch(r"lib(.*)-rdmav\d+\.so", os.path.basename(p))[1] for p in providers} == named >= {"mlx5", "rxe"}, named
    loader = glob.glob(root + "/lib*/ld-linux*")[0].removeprefix(root)
    for p in providers:
        r = inside(loader, "--list", p.removeprefix(root))
        assert r.returncode == 0 and "libibverbs.so.1 =>" in r.stdout and "not found" not in r.stdout, r


def main():
    stages = dockerfile()
    assert list(stages) == ["build", "agent", "operator"]
    packages(stages)
    example()
    why = None
    with tempfile.TemporaryDirectory() as dir:
        os.chmod(dir, 0o755)
        for part in ("agent", "operator"):
            config, layer = image(dir, part)
            assert config["Entrypoint"] == [f"/usr/bin/weightbridge-{part}"]
            same_as_dockerfile(stages, part, config)
            why = runs(dir, part, layer, config)
    if why:
        print(why)
        return 77
    return 0


sys.exit(main())
