# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster that is a virtual machine with soft-RoCE devices: tests/roce/vm.sh's, in which machine.sh runs a
kubelet and containerd.  Their processor may be emulated: use few pods.

The device rxe_a0 is shown to device plugins as part of the PCI device behind eth0, rxe_b0 as part of that behind eth1
(machine.sh says why).  A container may lock 64 KiB of memory.
"""
import os
import subprocess
import sys

from apiserver import HERE, TOP, die_with_parent, skip, wait_for
from cluster import NET, Node, sh

VM = os.path.join(TOP, "tests", "roce", "vm.sh")
TAP = "totap"


def need():
    """Before there is a cluster, which has no way to packages: what the machine needs, or the test is skipped."""
    if not os.path.exists("/dev/net/tun"):
        skip("a virtual machine as a node needs /dev/net/tun")
    r = subprocess.run([VM, "--ready"], capture_output=True, text=True)
    if r.returncode:
        skip((r.stderr.strip().splitlines() or ["no virtual machine"])[-1])


class Ended(Exception):
    """The machine is gone: where its processor is emulated, its kernel may fail over code that it changes while it runs."""


class Machine(Node):
    # With two emulated processors the kernel failed in two boots of three ("Oops: int3", in code that it changes).
    processors = 1

    def __init__(self, c, i, images):
        """`images`: archives that are in its containerd, when it has begun, beside the pause image of the cluster."""
        super().__init__(c, i)
        self.inside, self.cgroup, self.out = [], "", c.path("machine")
        self.images = [c.path("pause.tar"), *images]

    def start(self, limit=1500):
        """Returns when the API server has it as Ready.  `limit`: seconds until it ends, whatever happens."""
        first = f"{NET}.0.1"
        sh("ip", "tuntap", "add", TAP, "mode", "tap")
        sh("ip", "link", "set", TAP, "up")
        sh("ip", "route", "replace", self.ip, "dev", TAP, "src", first)
        sh("ip", "route", "replace", f"{NET}.{self.i}.0/24", "via", self.ip, "dev", TAP, "onlink")
        self.configure()
        nic = "model=virtio-net-pci"
        env = {**os.environ, "OUT": self.out, "VM_LIMIT": str(limit), "VM_CPUS": str(self.processors),
               "VM_NET": f"tap,ifname={TAP},script=no,downscript=no,{nic} hubport,hubid=1,{nic}"}
        with open(self.c.path("machine.log"), "ab") as out:
            self.p = subprocess.Popen([VM, "bash", os.path.join(HERE, "machine.sh"), self.dir, self.c.prefix, self.ip, first,
                                       *self.images], cwd=TOP, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                      preexec_fn=die_with_parent)

        def ready():
            """the virtual machine is a node"""
            if self.p.poll() is not None:
                why = f"the virtual machine ended by itself, with {self.p.returncode}, before it was a node"
                # vm.sh: 125 is a machine that ended without a code; any other is what machine.sh ended with.
                raise Ended(why) if self.p.returncode == 125 else AssertionError(why)
            return self.c.kubectl("wait", "--for=condition=Ready", "node/" + self.name, "--timeout=1s",
                                  check=False).returncode == 0
        wait_for(ready, 180, 0.5)

    def explain(self):
        """The last that the machine, its containerd and its kubelet said."""
        for file in (self.c.path("machine.log"), *(os.path.join(self.out, n) for n in ("containerd.log", "kubelet.log"))):
            if os.path.exists(file):
                sys.stderr.write(f"---- {file}\n{open(file, errors='replace').read()[-4000:]}\n")
