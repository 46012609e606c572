# SPDX-License-Identifier: Apache-2.0
"""wbctl doctor: what this build can do here, the same as README says; what objects ask for that it cannot is named
and is the exit status.  Standard library only."""
import json
import os
import re
import resource
import subprocess
import sys
import tempfile

TOP = os.environ.get("WB_TOP", ".")
BIN = os.path.join(os.environ["WB_BUILD"], "bin", "wbctl")
NO_CIPHERS = "[default]\nopenssl_conf = i\n[i]\nproviders = p\n[p]\nnull = n\n[n]\nactivate = 1\n"


def doctor(*args, env=None, files=None):
    """(exit status, stdout, stderr)"""
    def limit():
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    p = subprocess.run([BIN, "doctor", *args], capture_output=True, text=True, timeout=60, check=False,
                       env={**os.environ, **(env or {})}, preexec_fn=limit)
    return p.returncode, p.stdout, p.stderr


def readme():
    """{name: yes or no} of the table in README."""
    text = open(os.path.join(TOP, "README.md"), encoding="utf-8").read()
    part = re.search(r"## What works in this version\n(.*?)\n## ", text, re.S)[1]
    return dict(re.findall(r"^\| `([a-z-]+)` \| (yes|no) \|", part, re.M))


def machine():
    rc, out, err = doctor("--json")
    assert rc == 0 and not err, (rc, err)
    got = json.loads(out)
    here = {"verbs", "rdma-keys", "memory", "open-files", "locked-memory", "rdma-port", "dma-buf", "peer-memory",
            "transport"}  # of the machine, not of the build
    can = {x["name"]: x["can"] for x in got["checks"] if x["name"] not in here}
    assert got["ok"] is True and can == readme(), (can, readme())
    assert {"memory", "open-files", "locked-memory"} <= {x["name"] for x in got["checks"]}, got
    rc, out, err = doctor()
    assert rc == 0 and re.search(r"^  encryption +yes +TLS 1.3 .* OpenSSL 3", out, re.M), out
    fake = {"LD_LIBRARY_PATH": os.path.join(os.environ["WB_BUILD"], "fake")}
    for env, words in ((fake, "then verbs, then tcp; verbs would use"),
                       ({**fake, "FAKEVERBS_DEVICES": " "}, "shm within a machine, and tcp between machines")):
        rc, out, err = doctor(env=env)
        assert rc == 0 and re.search(rf"^  transport +- +.*{re.escape(words)}", out, re.M), out
    for env, keys in ((fake, "of regions, it has no memory windows 2B"),
                      ({**fake, "FAKEVERBS_WINDOWS": "1"}, "of a queue pair each, by memory windows")):
        rc, out, err = doctor(env=env)
        assert rc == 0 and re.search(rf"^  rdma-keys +- +.*fake0: {keys}; fake1: {keys}", out, re.M), out
    rc, out, err = doctor(files=777)
    assert re.search(r"^  open-files +- +777 at most", out, re.M), out


def an_object(tmp, **transport):
    extra = transport.pop("extra", {})
    path = os.path.join(tmp, "object.yaml")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"apiVersion": "weightbridge.io/v1alpha1", "kind": "WeightTransfer", "metadata": {"name": "grpo"},
                   "spec": {"trainer": {"workers": 4, **extra.get("trainer", {})},
                            "rollout": {"workersPerEngine": 2, "engines": 3}, "transport": transport}}, f)
    return path


def objects(tmp):
    no_ciphers = os.path.join(tmp, "openssl.cnf")
    with open(no_ciphers, "w", encoding="utf-8") as f:
        f.write(NO_CIPHERS)
    tls = {"encryption": "TLS"}
    for transport, kw, check, can, words in (
            ({}, {}, "spec.transport", "yes", "both ends have of shm, verbs, tcp"),
            ({}, {}, "encryption", "yes", "in the clear"),
            (tls, {}, "encryption", "yes", "TLS"),
            (tls, {"env": {"OPENSSL_CONF": no_ciphers}}, "encryption", "no", "not to be had here"),
            ({"protocols": ["Verbs"]}, {}, "spec.transport", "no", "protocols has Verbs alone"),
            ({"gpuDirect": "Required"}, {}, "spec.transport", "no", "gpuDirect is Required"),
            ({"protocols": ["TCP"], "deviceClass": "Hardware"}, {}, "spec.transport", "no", "deviceClass chooses"),
            ({"devicePrefixes": ["mlx5_"]}, {}, "spec.transport", "worse", "devicePrefixes asks for RDMA"),
            ({"extra": {"trainer": {"bufferSize": "16Ti"}}}, {}, "trainer.bufferSize", "no", "raise the memory limit"),
            ({}, {"files": 300}, "open-files", "worse", "and the limit is 300")):
        path = an_object(tmp, **dict(transport))
        rc, out, err = doctor(path, "--json", **kw)
        x = next(x for x in json.loads(out)["checks"] if x.get("object") == "grpo" and x["name"] == check)
        assert x["can"] == can and words in x["says"], (transport, x)
        assert rc == (can == "no") and json.loads(out)["ok"] == (rc == 0), (transport, rc)
        assert (f"grpo: {check} cannot work here: " in err) == (can == "no"), err
        rc, out, err = doctor(path, **kw)
        assert rc == (can == "no") and re.search(rf"^  {check} +{can} ", out.split("grpo asks for:")[1], re.M), out
    rc, _, err = doctor("/nonexistent.yaml")
    assert rc == 1 and "No such file" in err, err
    rc, _, err = doctor("--object", "x", "--operator", "127.0.0.1:1")
    assert rc == 1 and "nobody answers at 127.0.0.1:1" in err, err


def main():
    machine()
    with tempfile.TemporaryDirectory() as tmp:
        objects(tmp)


if __name__ == "__main__":
    sys.exit(main())
