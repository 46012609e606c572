# SPDX-License-Identifier: Apache-2.0
"""torch_stubs.py SITE_PACKAGES   Let torch's CUDA wheel be imported where no CUDA library is.

The wheels on PyPI link CUDA's libraries (3 GB of further wheels), of which a benchmark of gloo on
CPUs calls none.  For each library that torch needs and nobody has, a small one of that name is
compiled: the same symbols under the same versions, and each function answers 100, which is CUDA's
"no device".
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

# Versions of symbols that belong to the C library and its neighbours.
SYSTEM = re.compile(r"GLIBC|CXXABI|GCC|GOMP|OMP")


def lines(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def needs(path):
    """(sonames that a file needs, {symbol version: soname that has it})."""
    sonames, versions, provider = set(), {}, None
    for line in lines("objdump", "-p", path):
        words = line.split()
        if words[:1] == ["NEEDED"]:
            sonames.add(words[1])
        elif words[:2] == ["required", "from"]:
            provider = words[2].rstrip(":")
        elif provider and len(words) == 4 and words[0].startswith("0x"):
            versions[words[3]] = provider
        elif not words:
            provider = None
    return sonames, versions


def symbols(path, which):
    """(name, version or '') of the dynamic symbols that a file defines, or wants of others."""
    for line in lines("nm", "-D", which, path):
        kind, symbol = line.split()[-2:]
        if kind not in "wv":
            name, _, version = symbol.partition("@")
            yield name, version.lstrip("@")


def compile_stub(folder, soname, names):
    """`names`: {version: set of symbols}."""
    with tempfile.TemporaryDirectory() as tmp:
        source, script = os.path.join(tmp, "stub.c"), os.path.join(tmp, "stub.map")
        with open(source, "w", encoding="ascii") as f:
            f.write("int wb_stub;\n")
            f.writelines(f"long {n}(void) {{ return 100; }}\n" for n in sorted(set().union(*names.values())))
        with open(script, "w", encoding="ascii") as f:
            f.writelines(f"{v} {{ global: {'; '.join(sorted(n))}; }};\n"
                         for v, n in names.items() if v and n)
        versioned = [f"-Wl,--version-script={script}"] if os.path.getsize(script) else []
        subprocess.run([*os.environ.get("CC", "gcc").split(), "-w", "-fno-builtin", "-shared", "-fPIC", *versioned,
                        f"-Wl,-soname,{soname}", "-o", os.path.join(folder, soname), source],
                       check=True)


def main():
    torch = os.path.join(sys.argv[1], "torch")
    folder = os.path.join(torch, "lib")
    files = glob.glob(os.path.join(folder, "*.so*")) + glob.glob(os.path.join(torch, "_C*.so"))
    have = {os.path.basename(f) for f in files}
    have |= {x.split()[0] for x in lines("/sbin/ldconfig", "-p")[1:] if x.strip()}
    wanted, provider, defined = set(), {}, set()
    for f in files:
        sonames, versions = needs(f)
        wanted |= sonames
        provider.update(versions)
        defined |= {name for name, _ in symbols(f, "--defined-only")}
    missing = sorted(n for n in wanted - have if not n.startswith("ld-linux"))
    if not missing:
        return
    stubs = {n: collections.defaultdict(set) for n in missing}
    for f in files:
        for name, version in symbols(f, "--undefined-only"):
            if name not in defined and not SYSTEM.match(version):
                # A symbol without a version may come from any library.
                owner = provider.get(version, missing[0])
                if owner in stubs:
                    stubs[owner][version].add(name)
    for soname, names in stubs.items():
        compile_stub(folder, soname, names or {"": set()})
    print(f"torch_stubs: {len(missing)} libraries", file=sys.stderr)


if __name__ == "__main__":
    main()
