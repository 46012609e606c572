# SPDX-License-Identifier: Apache-2.0
"""What `make install` leaves is enough for a program in C: headers, library, pkg-config, man pages, an example."""
import glob
import os
import re
import subprocess
import sys

from cluster import BUILD, SANITIZED, Cluster, run

TOP = os.environ["WB_TOP"]
PREFIX = "/usr"


def install(c):
    root = c.path("root")
    variant = os.path.basename(os.path.realpath(BUILD))
    r = subprocess.run(["make", "-C", TOP, "install", f"DESTDIR={root}", f"PREFIX={PREFIX}", f"VARIANT={variant}"],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    return root


def flags(root, *args):
    env = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": root, "PKG_CONFIG_PATH": f"{root}{PREFIX}/lib/pkgconfig"}
    r = subprocess.run(["pkg-config", *args, "weightbridge"], capture_output=True, text=True, env=env)
    assert r.returncode == 0, r.stderr
    return r.stdout.split()


def built(c, root, name, libs):
    out = c.path(name)
    subprocess.run([*os.environ.get("CC", "gcc").split(), "-std=c11", "-Wall", "-Wextra", "-Werror", *flags(root, "--cflags"),
                    f"{root}{PREFIX}/share/doc/weightbridge/worker.c", *libs, "-o", out], check=True)
    return out


def the_example_is_built_by_what_is_installed_and_moves_weights():
    with Cluster() as c:
        root = install(c)
        shared = built(c, root, "worker", flags(root, "--libs"))
        archive = f"{root}{PREFIX}/lib/libweightbridge.a"
        static = built(c, root, "worker-static", [archive, "-lpthread"])
        c.operator(trainers=1, per_engine=1, engines=1)
        for pod in ("t0", "r0"):
            c.agent(pod)
        env = {"LD_LIBRARY_PATH": f"{root}{PREFIX}/lib"}
        t = c._start("trainer", [shared, "trainer", "3"], env={**env, "WEIGHTBRIDGE_SOCKET": c.agents["t0"].socket})
        r = c._start("rollout", [static, "rollout", "3"], env={"WEIGHTBRIDGE_SOCKET": c.agents["r0"].socket})
        for version in (1, 2, 3):
            t.expect(f"sent version {version} in", reject="wrong")
            r.expect(f"have version {version}$", reject="wrong")
        assert t.wait() == 0 and r.wait() == 0


def each_function_of_the_headers_is_in_a_man_page():
    for header, page in (("weightbridge.h", "weightbridge.3"), ("extract.h", "weightbridge_extract.3")):
        with open(f"{TOP}/agent/include/weightbridge/{header}") as f:
            declared = set(re.findall(r"^WB_API .*?\b(wb_\w+)\(", f.read(), re.M))
        with open(f"{TOP}/agent/client/{page}") as f:
            text = f.read()
        assert len(declared) > 20, declared
        name, body = text.split(".SH NAME")[1].split(".SH SYNOPSIS")
        for fn in declared:
            assert re.search(rf"\b{fn}\b", name), f"{fn} is not in NAME of {page}"
            assert re.search(rf"\b{fn}\b", body), f"{fn} is not described in {page}"
        assert set(re.findall(r"\bwb_\w+", name)) == declared, f"{page} names what the header has not"


def each_man_page_is_installed():
    with Cluster() as c:
        root = install(c)
        have = {os.path.basename(p) for p in glob.glob(f"{root}{PREFIX}/share/man/man*/*")}
        want = {os.path.basename(p) for p in subprocess.run(["git", "-c", "safe.directory=*", "-C", TOP, "ls-files", "*.1", "*.3",
                "*.8"], capture_output=True, text=True, check=True).stdout.split()}
        assert want and want == have, want ^ have


if __name__ == "__main__":
    if SANITIZED:
        print("a library with a sanitizer is not for other programs")
        sys.exit(77)
    run(the_example_is_built_by_what_is_installed_and_moves_weights, each_function_of_the_headers_is_in_a_man_page,
        each_man_page_is_installed)
