# SPDX-License-Identifier: Apache-2.0
"""RDMA in pods: a virtual machine with soft-RoCE devices is a node of the cluster, k8s-rdma-shared-dev-plugin hands its
devices out there, and the charts' sidecars get them by `rdma.resourceName` without any privilege.

One node is like those of other tests and has control plane, operator and whatever asks for no device; the machine
has the plugin and the job's two pods, which the scheduler puts there for what they ask for.  The trainer's sidecar has one
end of a pair of devices and the rollout's the other, so that weights cross the wire between them.
"""
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import machine  # noqa: E402
from apiserver import programs, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from images import Tree, write_image  # noqa: E402
from job import ChartJob, add_images, apply, columns, helm, install_operator, namespace, rendered, toy_values  # noqa: E402

MIB = 1 << 20
NS, NAME, PLUGIN = "rl", "wt", "daemonset/rdma-shared-dp-ds"
RESOURCE = {"trainer": "rdma/soft_a", "rollout": "rdma/soft_b"}
DEVICE = {"trainer": "rxe_a0", "rollout": "rxe_b0"}
IMAGE = "localhost/k8s-rdma-shared-dev-plugin:1"
# What it reads of the list of PCI ids that its own image has from the distribution.
PCI_IDS = b"1af4  Red Hat, Inc.\n\t1000  Virtio network device\nC 02  Network controller\n\t00  Ethernet controller\n"


# ---- the plugin ----

def plugin_image(c):
    """The program alone, and busybox for this test to look with."""
    t = Tree()
    t.program("bin/k8s-rdma-shared-dp", os.path.join(c.prefix, "rdma", "k8s-rdma-shared-dp"))
    t.program("bin/busybox", shutil.which("busybox"))
    t.link("bin/cat", "busybox")
    t.file("usr/share/misc/pci.ids", PCI_IDS)
    return write_image(c.path("plugin.tar"), IMAGE, t, ["/bin/k8s-rdma-shared-dp"], user="0:0")


def start_plugin(c, node):
    """Its DaemonSet and ConfigMap with a resource for each end of the pair; and the folder that stands for the bus."""
    part = lambda name: helm.load(open(os.path.join(c.prefix, "rdma", name)).read())[0]
    config, daemons = part("configmap.yaml"), part("daemonset.yaml")
    config["data"] = {"config.json": json.dumps({"configList": [
        {"resourceName": r.split("/")[1], "rdmaHcaMax": 4, "selectors": {"ifNames": [nic]}}
        for r, nic in zip(RESOURCE.values(), ("eth0", "eth1"))]})}
    pod = daemons["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    pod["containers"][0]["image"] = IMAGE
    pod["containers"][0]["volumeMounts"].append({"name": "bus", "mountPath": "/sys/bus/pci/devices"})
    pod["volumes"].append({"name": "bus", "hostPath": {"path": "/run/pci"}})
    apply(c, config, daemons)

    def handed_out():
        """the node has what the plugin hands out"""
        has = json.loads(c.kubectl("get", "node", node, "-o", "json"))["status"]["allocatable"]
        return {r: has.get(r) for r in RESOURCE.values()} == dict.fromkeys(RESOURCE.values(), "4") and has
    has = wait_for(handed_out, 120, 0.5)
    print("allocatable:", {k: v for k, v in has.items() if k.startswith("rdma/")})


class Counters:
    """What the machine counted: packets that a device sent, bytes that a link sent."""

    FILES = {f"rxe_{end}0": f"/sys/class/infiniband/rxe_{end}0/ports/1/hw_counters/sent_pkts" for end in "ab"} | {
        f"v{end}0": f"/sys/class/net/v{end}0/statistics/tx_bytes" for end in "ab"}

    def __init__(self, c):
        self.c, self.before = c, self.read(c)

    @classmethod
    def read(cls, c):
        text = c.kubectl("-n", "kube-system", "exec", PLUGIN, "--", "cat", *cls.FILES.values())
        return dict(zip(cls.FILES, map(int, text.split())))

    def since(self):
        return {k: v - self.before[k] for k, v in self.read(self.c).items()}


# ---- the job ----

def parts(resource, lock):
    """The objects of charts/examples/rl-job with these sidecars."""
    values = {**toy_values(rollouts=1), "transfer": {"transport": {"protocols": ["Verbs"], "deviceClass": "Software"}},
              "weightbridge": {"rdma": {"resourceName": resource, "ipcLock": lock}}}
    return rendered(NS, NAME, values)


class RdmaJob(ChartJob):
    """As the chart makes it, but that each role asks for the resource of its end of the wire.  IPC_LOCK is no capability
    of a restricted namespace."""

    def __init__(self, c):
        self.c, self.ns, self.name, self.trainers, self.last = c, NS, NAME, 1, 0
        self.trainer, self.engine = f"{NAME}-trainer-0", f"{NAME}-rollout-0"
        apply(c, namespace(NS, "privileged"))
        for role, resource in RESOURCE.items():
            objects = parts(resource, True)
            apply(c, *([objects["WeightTransfer", NAME]] if role == "trainer" else []), objects["Service", f"{NAME}-{role}"],
                  objects["StatefulSet", f"{NAME}-{role}"])

    def transports(self):
        return {e["name"]: e.get("transport") for e in self.status().get("engines", [])}

    def update_ok(self, pod, version):
        self.heard(pod, f"update {version} ok")


def asked_for(job, node):
    """Both pods run where the devices are.  Their sidecar has its device and no privilege; the worker beside it none."""
    for role, pod in (("trainer", job.trainer), ("rollout", job.engine)):
        p = json.loads(job.kubectl("get", "pod", pod, "-o", "json"))["spec"]
        side, worker = p["initContainers"][0], p["containers"][0]
        assert p["nodeName"] == node and not p.get("hostNetwork"), p["nodeName"]
        assert side["resources"]["limits"][RESOURCE[role]] == "1" and "limits" not in worker["resources"], side["resources"]
        s = side["securityContext"]
        assert (s["privileged"], s["runAsUser"], s["capabilities"]) == (False, 65532, {"drop": ["ALL"], "add": ["IPC_LOCK"]}), s
        doctor = job.exec(pod, "wbctl", "doctor", container="weightbridge-agent")
        ports = {x[2].split("/")[0]: x[1] for x in map(str.split, doctor.splitlines()) if x[0] == "rdma-port"}
        # The class's folder shows all that the node has; only what was handed out can be opened.
        assert ports == {f"rxe_{end}{i}": "yes" if f"rxe_{end}{i}" == DEVICE[role] else "no" for end in "ab" for i in range(2)}, doctor
        r = job.exec(pod, "ls", "/dev/infiniband", check=False)
        assert r.returncode and "No such file" in r.stderr, r


def versions_cross_the_wire(job):
    for v in (1, 2):
        n = Counters(job.c)
        line = job.send(v, 120)
        assert "0=Committed" in line, line
        job.update_ok(job.engine, v)
        moved = n.since()
        print(f"version {v}:", moved)
        # 2 MiB, in packets of 4 KiB at most.
        assert moved["va0"] >= 2 * MIB and moved["rxe_a0"] >= 2 * MIB / 4096, moved
    job.settled(2, 60)
    assert job.transports() == {"0": "verbs+soft"}, job.transports()
    row = columns(job.kubectl("get", "wt"))[0]
    print("kubectl get wt:", row)
    assert (row["NAME"], row["READY"], row["VERSION"]) == (NAME, "True", "2"), row


def another(job, number, name, resource, lock, node):
    """A rollout more, of a name of its own, whose engine has this number."""
    s = parts(resource, lock)["StatefulSet", f"{NAME}-rollout"]
    s["metadata"]["name"] = name
    s["spec"]["selector"]["matchLabels"]["app"] = s["spec"]["template"]["metadata"]["labels"]["app"] = name
    s["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    s["spec"]["ordinals"] = {"start": number}  # which is a label of the pod, and that calls the engine
    apply(job.c, s)
    return f"{name}-{number}"


def logged(job, pod, message):
    """A line that the pod's agent has logged, once it has."""
    def look():
        for line in job.lines(pod, "weightbridge-agent"):
            if json.loads(line)["msg"] == message:
                return json.loads(line)
        return None
    look.__doc__ = f"the agent of {pod} logs {message}"
    return wait_for(look, 120, 0.5)


def no_device_no_verbs(job):
    """A rollout that asks for no device: with Verbs alone it is refused by name, and the plan of the others stays; with
    TCP, too, it gets its weights by that, which is told, and the other goes on with Verbs."""
    pod = another(job, 1, "plain", "", False, "node0")
    why = logged(job, pod, "worker refused")["reason"]
    print("Verbs alone:", why)
    assert "protocols has Verbs alone" in why and f"agent {pod} moves weights over TCP alone" in why, why

    def others_stay():
        """the engine that was refused is in the status no more"""
        return [e["name"] for e in job.status()["engines"]] == ["0"]
    wait_for(others_stay, 60, 0.2)
    job.kubectl("patch", "wt", NAME, "--type=merge", "-p", '{"spec": {"transport": {"protocols": ["Verbs", "TCP"]}}}')

    def fell_back():
        """the object says that an engine is reached by TCP"""
        status, reason, message = job.condition("Degraded")
        return (status, reason) == ("True", "TCPFallback") and message
    print("with TCP:", wait_for(fell_back, 90, 0.5))
    n = Counters(job.c)
    line = job.send(3, 120)
    assert "0=Committed" in line and "1=Committed" in line, line
    for p in (job.engine, pod):
        job.update_ok(p, 3)
    ways, moved = job.transports(), n.since()
    print("version 3:", moved, ways)
    # Engines pass on to each other what they have, and between these two that goes by TCP.
    assert "verbs+soft" in ways["0"].split(",") and ways["1"] == "tcp", ways
    assert moved["rxe_a0"] >= MIB / 4 / 4096, moved


def no_lock_no_verbs(job, node):
    """A rollout with a device and without IPC_LOCK: what it may lock is too little to register a buffer, so that it gets
    the version by TCP, and its agent says what would help."""
    pod = another(job, 2, "unlocked", RESOURCE["rollout"], False, node)
    said = logged(job, pod, "memory cannot be registered")
    print("without IPC_LOCK:", said)
    assert said["memlock"] == "65536" and "IPC_LOCK" in said["remedy"], said

    def fed():
        """its engine runs the version that the others have"""
        return next((e for e in job.status()["engines"] if e["name"] == "2" and e.get("version") == 3), None)
    assert wait_for(fed, 90, 0.5)["transport"] == "tcp", job.status()


def main(c):
    add_images(c)
    install_operator(c)
    t = time.monotonic()
    vm = machine.Machine(c, 1, [plugin_image(c), c.path("agent.tar"), c.path("toy.tar")])
    try:
        vm.start()
        print(f"the machine is a node after {time.monotonic() - t:.1f} s")
        start_plugin(c, vm.name)
        t = time.monotonic()
        job = RdmaJob(c)
        job.ready(90)
        print(f"job ready after {time.monotonic() - t:.1f} s")
        asked_for(job, vm.name)
        versions_cross_the_wire(job)
        no_device_no_verbs(job)
        no_lock_no_verbs(job, vm.name)
    except machine.Ended as e:
        vm.explain()
        sys.stderr.flush()
        print(e)
        sys.exit(77)
    except BaseException:
        vm.explain()
        raise


if __name__ == "__main__":
    if "WB_CLUSTER_OUTER" not in os.environ:  # inside there is no network
        programs("rdma")
        machine.need()
    run(main, __file__, nodes=1)
