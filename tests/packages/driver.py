# SPDX-License-Identifier: Apache-2.0
"""driver.py EXAMPLES   Inside the bare Debian: what a newcomer does with an installed wheel.  The operator and two agents by
`weightbridge local`, then the two programs of the NumPy example; prints "moved" when both have ended well."""
import os
import re
import subprocess
import sys


def main(examples):
    local = subprocess.Popen([sys.executable, "-m", "weightbridge", "local", "--dir", "/tmp/wb", "--file",
                              os.path.join(examples, "transfer.yaml")], stdout=subprocess.PIPE, text=True)
    text = ""
    for line in local.stdout:
        text += line
        if "wbctl verify" in line:
            break
    socket = dict(re.findall(r"(\S+) +export WEIGHTBRIDGE_SOCKET=(\S+)", text))
    assert len(socket) == 2, text
    run = [subprocess.Popen([sys.executable, os.path.join(examples, f"{role}.py")],
                            env={**os.environ, "WEIGHTBRIDGE_SOCKET": path}) for path, role in
           ((next(v for k, v in socket.items() if side in k), role) for side, role in (("trainer", "trainer"), ("engine", "rollout")))]
    status = [p.wait(120) for p in run]
    local.terminate()
    local.wait(60)
    assert status == [0, 0], status
    print("moved")


if __name__ == "__main__":
    main(sys.argv[1])
