# SPDX-License-Identifier: Apache-2.0
"""peers_stubs.py FOLDER OUT   Let a package that was built for CUDA be imported where no CUDA library is.

For each library named libcu* that an extension module in FOLDER needs, one of that name is compiled into OUT, for
LD_LIBRARY_PATH: every function that the module wants of CUDA answers 100, which is CUDA's "no device"."""
import collections
import glob
import os
import sys

from torch_stubs import SYSTEM, compile_stub, lines, needs, symbols


def main(folder, out):
    os.makedirs(out, exist_ok=True)
    have = {x.split()[0] for x in lines("/sbin/ldconfig", "-p")[1:] if x.strip()}
    wanted, provider, names = set(), {}, collections.defaultdict(lambda: collections.defaultdict(set))
    files = [f for f in glob.glob(os.path.join(folder, "**", "*.so*"), recursive=True) if os.path.isfile(f)]
    for f in files:
        sonames, versions = needs(f)
        wanted |= {n for n in sonames - have if n.startswith("libcu")}
        provider.update(versions)
    for f in files:
        for name, version in symbols(f, "--undefined-only"):
            if name.startswith(("cu", "__cuda")) and not SYSTEM.match(version):
                owners = [provider[version]] if provider.get(version) in wanted else wanted if not version else []
                for owner in owners:
                    names[owner][version].add(name)
    for soname in sorted(wanted):
        compile_stub(out, soname, names[soname] or {"": set()})


if __name__ == "__main__":
    main(*sys.argv[1:])
