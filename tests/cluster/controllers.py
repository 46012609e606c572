# SPDX-License-Identifier: Apache-2.0
"""The controllers of JobSet, LeaderWorkerSet, KubeRay and TrainJob beside an API server, with the kinds and the webhooks
of their charts, as processes of an administrator.  Standard library only.

    with ApiServer() as c:
        wanted = Controllers(c)     # they and kube-controller-manager, ready

They end with the test.  build.sh's parts helm and controllers have to be there.
"""
import base64
import glob
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import helm  # noqa: E402
from apiserver import die_with_parent, free_ports, patience, programs, wait_for  # noqa: E402

WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def config_of(group, health, port, certs):
    """The configuration file that all but KubeRay read: no leader to be elected, certificates that are there."""
    webhook = {"port": port, "host": "127.0.0.1"}
    if group == "trainer.kubeflow.org":  # finds its certificate in TMPDIR, and has another word for whose it is
        more = {"certManagement": {"enable": False}, "statusServer": {"port": free_ports(1)[0]}}
    else:
        webhook["certDir"] = certs
        more = {"internalCertManagement": {"enable": False}}
    return {"apiVersion": f"config.{group}/v1alpha1", "kind": "Configuration", "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}, "webhook": webhook,
            "leaderElection": {"leaderElect": False}, **more}


class Controllers:
    GROUPS = {"jobset": "jobset.x-k8s.io", "lws": "lws.x-k8s.io", "trainer": "trainer.kubeflow.org", "ray-operator": None}

    def __init__(self, c, manager=True):
        """manager: start kube-controller-manager, too, which a whole cluster has."""
        self.c = c
        self.prefix = programs("api", "helm", "controllers")
        self.procs = {}
        if manager:
            self.start_manager()
        for name, group in self.GROUPS.items():
            self.start(name, group)
        for name, (p, health) in self.procs.items():
            wait_for(lambda: self.is_ready(name, p, health), 60, 0.1)

    def files(self, name):
        """Where build.sh put a controller and what belongs to it; its version is in the folder's name."""
        found = glob.glob(os.path.join(self.prefix, "controllers", name + "-[0-9]*"))
        assert found, f"no {name} in {self.prefix}/controllers"
        return sorted(found)[-1]

    def start_manager(self):
        c = self.c
        pki = lambda n: c.path("pki", n)
        c.certificate("manager", "/CN=system:kube-controller-manager")
        c.manager = c.spawn("kube-controller-manager", "manager.log", [
            "--kubeconfig", c.write_kubeconfig("manager"), "--bind-address", "127.0.0.1", "--secure-port",
            str(free_ports(1)[0]), "--use-service-account-credentials", "--root-ca-file", pki("ca.crt"),
            "--service-account-private-key-file", pki("sa.key"), "--leader-elect=false"])

    def start(self, name, group):
        c, home = self.c, c_folder(self.c, name)
        port, health = free_ports(2)
        certs = os.path.join(home, "k8s-webhook-server", "serving-certs")
        os.makedirs(certs)
        c.certificate(name, f"/CN={name}", "DNS:localhost,IP:127.0.0.1")
        for ext, file in ((".crt", "tls.crt"), (".key", "tls.key")):
            shutil.copy(c.path("pki", name + ext), os.path.join(certs, file))
        c.install_crd(os.path.join(self.files(name), "crds"))
        args = ["--kubeconfig", c.kubeconfig]
        if group:
            with open(os.path.join(home, "config.json"), "w") as f:
                json.dump(config_of(group, health, port, certs), f)
            args += ["--config", f.name]
        else:
            args += ["--enable-leader-election=false", "--metrics-addr", "127.0.0.1:0", "--health-probe-bind-address",
                     f"127.0.0.1:{health}"]
        out = open(c.path(name + ".log"), "ab")
        self.procs[name] = subprocess.Popen(
            [os.path.join(self.files(name), name), *args], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent, cwd=home,
            # KubeRay's workers otherwise wait for a head that answers, by an image with Ray in it.
            env={**os.environ, "TMPDIR": home, "HOME": home, "ENABLE_INIT_CONTAINER_INJECTION": "false"}), health
        self.webhooks(name, port)

    def webhooks(self, name, port):
        """Those of its chart, called where this process listens."""
        chart = os.path.join(self.files(name), "chart")
        if not os.path.isdir(chart):
            return
        with open(self.c.path("pki", "ca.crt"), "rb") as f:
            bundle = base64.b64encode(f.read()).decode()
        for d in helm.load(helm.run("template", name, chart, "-n", name)):
            if not d or d["kind"] not in WEBHOOKS:
                continue
            for w in d["webhooks"]:
                path = w["clientConfig"]["service"]["path"]
                w["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            self.c.kubectl("apply", "-f", "-", stdin=json.dumps(d))

    def is_ready(self, name, p, health):
        """a controller is ready"""
        assert p.poll() is None, open(self.c.path(name + ".log"), errors="replace").read()[-4000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=patience(5)) as r:
                return r.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def stop(self):
        for p, _ in self.procs.values():
            p.kill()
            p.wait()
        if getattr(self.c, "manager", None):
            self.c.manager.kill()
            self.c.manager.wait()


def c_folder(c, name):
    folder = c.path("controller-" + name)
    os.mkdir(folder)
    return folder
