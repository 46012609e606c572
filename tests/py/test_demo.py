# SPDX-License-Identifier: Apache-2.0
"""make demo says in a sentence what is wrong with MODEL, LAYERS or the build, and leaves nothing behind."""
import json
import os
import subprocess
import sys
import tempfile

TOP = os.environ.get("WB_TOP", ".")


def said(build, tmp, **env):
    p = subprocess.run([sys.executable, os.path.join(TOP, "tests/demo/demo.py"), build], capture_output=True, text=True,
                       timeout=60, check=False, env={**os.environ, "TMPDIR": tmp, **env})
    assert p.returncode == 1 and not p.stderr and not os.listdir(tmp), (env, p, os.listdir(tmp))
    return p.stdout.splitlines()[-1]


def main():
    with tempfile.TemporaryDirectory() as d:
        tmp = os.path.join(d, "tmp")
        os.makedirs(tmp)
        for name in ("empty", "other"):
            os.mkdir(os.path.join(d, name))
        with open(os.path.join(d, "other", "config.json"), "w", encoding="ascii") as f:
            json.dump({"model_type": "moon"}, f)
        build = os.environ["WB_BUILD"]
        for b, env, sentence in ((os.path.join(d, "none"), {}, "weightbridge-operator is not there: run `make` first"),
                                 (build, {"MODEL": os.path.join(d, "none")}, "No such file or directory"),
                                 (build, {"MODEL": os.path.join(d, "empty")}, "MODEL names a folder with config.json"),
                                 (build, {"MODEL": os.path.join(d, "other")}, "model_type 'moon' is not supported"),
                                 (build, {"LAYERS": "abc"}, "LAYERS=abc: an even number from 2 to 28"),
                                 (build, {"LAYERS": "3"}, "LAYERS=3: an even number")):
            text = said(b, tmp, **{"MODEL": "", "LAYERS": "", **env})
            assert text.startswith("demo: FAILED: ") and sentence in text, (env, text)


if __name__ == "__main__":
    sys.exit(main())
