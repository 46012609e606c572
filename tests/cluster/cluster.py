# SPDX-License-Identifier: Apache-2.0
"""A real cluster for a test: control plane, CoreDNS and two nodes with kubelet, containerd and kube-proxy.

A test file ends with run(main, __file__), and main gets the cluster.  It runs in network, mount and process
namespaces of its own, with its state in memory: nothing outside can see it, and all of it ends with the
test, also when that is killed.  Needs root; without it, or without a kernel that can, the test is skipped.
"""
import contextlib
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from apiserver import HERE, ApiServer, die_with_parent, libc, patience, patient, programs, skip, wait_for
from external import External
from policy import Policies

BRIDGE = "kube"
NET, SERVICES = "10.244", "10.96.0"
NET6, CABLES6, SERVICES6 = "fd00:244", "fd00:245", "fd00:96::"  # with Cluster(dual=True)
DIR = "/run/k"  # short: sockets lie in it
CGROUPS = ["/sys/fs/cgroup"] + glob.glob("/sys/fs/cgroup/*/")
NODES, CORES = 2, 2
# Programs the nodes need, and their Debian packages.
TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2", "nft": "nftables",
         "iptables": "iptables", "openssl": "openssl", "busybox": "busybox-static",
         "setcap": "libcap2-bin"}


# ---- outside: namespaces, and what they do not take with them ----

def cgroup_name(pid):
    return f"wbk{pid}"


def remove_cgroups(name):
    for root in CGROUPS:
        for top in glob.glob(os.path.join(root, name + "-node*")):
            for _ in range(50):
                for path, _, _ in os.walk(top, topdown=False):
                    try:
                        os.rmdir(path)
                    except OSError:
                        pass  # a process of it is still ending
                if not os.path.exists(top):
                    break
                time.sleep(0.1)


def sweep():
    """Control groups of tests that were killed together with their parent."""
    for root in CGROUPS:
        for path in glob.glob(os.path.join(root, "wbk*-node*")):
            pid = os.path.basename(path)[3:].split("-")[0]
            if pid.isdigit() and not os.path.exists("/proc/" + pid):
                remove_cgroups(cgroup_name(pid))


def check_means():
    if os.geteuid() != 0:
        skip("a cluster with nodes needs root")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [p for t, p in TOOLS.items() if not shutil.which(t)]
    if missing:
        subprocess.run([os.path.join(HERE, "..", "common", "deps.sh"), *missing])
    for tool in TOOLS:
        if not shutil.which(tool):
            skip(f"a cluster with nodes needs the program {tool}")
    probe = ("mount -t tmpfs none /mnt && ip link add br0 type bridge && ip link add veth0 type veth peer name veth1 && nft add table ip t && "
             "nft add chain ip t c '{ type nat hook postrouting priority 100; }' && nft add rule ip t c masquerade && "
             "mkdir /mnt/l /mnt/u /mnt/w /mnt/m && mount -t overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w none /mnt/m")
    r = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", probe], capture_output=True, text=True)
    if r.returncode:
        skip("a cluster with nodes cannot run on this machine: " + (r.stderr.strip().splitlines() or ["?"])[-1])
    if not any(os.access(os.path.join(r, "cgroup.procs"), os.W_OK) for r in CGROUPS):
        skip("a cluster with nodes needs control groups that can be written")


NAMESPACES = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def outside(file):
    check_means()
    prefix = programs("api", "helm", "node")
    sweep()
    env = {**os.environ, "WB_CLUSTER_OUTER": str(os.getpid()), "WB_CLUSTER_PREFIX": prefix}
    p = subprocess.Popen(["unshare", *NAMESPACES, sys.executable, file, *sys.argv[1:]], env=env,
                         preexec_fn=die_with_parent)
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, lambda *_: p.kill())
    rc = p.wait()
    remove_cgroups(cgroup_name(os.getpid()))
    sys.exit(rc if rc >= 0 else 1)


def be_init():
    """The first process of a process namespace: takes in orphans, ends with its child."""
    child = os.fork()
    if child == 0:
        return
    while True:
        pid, st = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(st) if os.WIFEXITED(st) else 1)


def run(main, file, **opts):
    """Run main(cluster) in a cluster of its own, or with EXTERNAL=1 in that of KUBECONFIG."""
    if os.environ.get("EXTERNAL"):
        with External() as c:
            main(c)
        return
    if "WB_CLUSTER_OUTER" not in os.environ:
        outside(file)
    be_init()
    libc.prctl(1, signal.SIGKILL)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    sys.stdout.reconfigure(line_buffering=True)
    t = time.monotonic()
    with Cluster(**opts) as c:
        print(f"cluster up after {time.monotonic() - t:.1f} s")
        main(c)
    print(f"{time.monotonic() - t:.1f} s")
    sys.stdout.flush()
    os._exit(0)


# ---- inside ----

def sh(*args, inside=(), check=True, **kw):
    r = subprocess.run([*inside, *args], capture_output=True, text=True, **kw)
    assert not check or r.returncode == 0, (args, r.stdout, r.stderr)
    return r.stdout


def mount_tmpfs(path, size="256m"):
    sh("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", path)


class Node:
    processors = os.cpu_count()  # of the machine that it is on

    def __init__(self, c, i):
        self.c, self.i, self.name = c, i, f"node{i}"
        self.ip, self.ip6 = f"{NET}.{i}.1", f"{NET6}:{i}::1"
        self.inside = ["nsenter", f"--net=/run/netns/{self.name}"] if i else []
        self.dir = c.path(self.name)
        self.socket = self.dir + "/containerd.sock"
        self.cgroup = f"{cgroup_name(os.environ['WB_CLUSTER_OUTER'])}-{self.name}"
        self.containerd = self.kubelet = self.proxy = None

    def run(self, *args, **kw):
        return sh(*args, inside=self.inside, **kw)

    def network(self):
        """A bridge with an address that pods reach; nodes after the first have a network namespace and a
        cable to the first.  Service addresses need a route, or a process of the node cannot send to them
        before kube-proxy's rules see the packet."""
        if self.i:
            sh("ip", "netns", "add", self.name)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "add", BRIDGE, "type", "bridge")
        self.run("ip", "addr", "replace", self.ip + "/24", "dev", BRIDGE)
        self.run("ip", "link", "set", BRIDGE, "up")
        self.run("ip", "route", "replace", SERVICES + ".0/24", "dev", BRIDGE)
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        # Pods of one node too are seen by kube-proxy's rules and by those of NetworkPolicies.
        for family in ("", "6"):
            self.run("sh", "-c", f"echo 1 > /proc/sys/net/bridge/bridge-nf-call-ip{family}tables", check=False)
        if not self.i:
            return
        first, cable = f"{NET}.0.1", f"to{self.i}"
        sh("ip", "link", "add", cable, "type", "veth", "peer", "name", "uplink", "netns", self.name)
        sh("ip", "link", "set", cable, "up")
        self.run("ip", "link", "set", "uplink", "up")
        sh("ip", "route", "replace", self.ip, "dev", cable, "src", first)
        sh("ip", "route", "replace", f"{NET}.{self.i}.0/24", "via", self.ip, "dev", cable, "onlink")
        self.run("ip", "route", "replace", first, "dev", "uplink", "src", self.ip)
        self.run("ip", "route", "replace", "default", "via", first, "dev", "uplink", "onlink")

    def network6(self):
        """The same in IPv6; a cable has addresses of its own, as nobody answers there for those of the bridge."""
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        self.run("ip", "addr", "replace", self.ip6 + "/64", "dev", BRIDGE, "nodad")
        self.run("ip", "-6", "route", "replace", SERVICES6 + "/112", "dev", BRIDGE)
        if not self.i:
            return
        cable, here, there = f"to{self.i}", f"{CABLES6}:{self.i}::1", f"{CABLES6}:{self.i}::2"
        sh("ip", "addr", "replace", here + "/64", "dev", cable, "nodad")
        self.run("ip", "addr", "replace", there + "/64", "dev", "uplink", "nodad")
        sh("ip", "-6", "route", "replace", f"{NET6}:{self.i}::/64", "via", there, "dev", cable)
        self.run("ip", "-6", "route", "replace", "default", "via", here, "dev", "uplink")

    def make_cgroup(self):
        """In version 1 one a hierarchy, where a new cpuset is empty; in version 2 the root must pass its
        controllers on."""
        for root in CGROUPS:
            if not os.path.ismount(root) or not os.path.exists(os.path.join(root, "cgroup.procs")):
                continue
            try:
                for word in open(os.path.join(root, "cgroup.controllers")).read().split():
                    with open(os.path.join(root, "cgroup.subtree_control"), "w") as f:
                        f.write("+" + word)
            except OSError:
                pass
            mine = os.path.join(root, self.cgroup)
            os.makedirs(mine, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(os.path.join(root, name)):
                    shutil.copyfile(os.path.join(root, name), os.path.join(mine, name))

    def configure(self):
        c, d = self.c, self.dir
        for sub in ("", "cni", "kubelet", "pods"):
            os.makedirs(os.path.join(d, sub), exist_ok=True)
        c.certificate(self.name, f"/O=system:nodes/CN=system:node:{self.name}", f"DNS:{self.name},IP:{self.ip}")
        self.kubeconfig = c.write_kubeconfig(self.name)
        # Without CAP_SYS_RESOURCE nobody lowers an OOM score.  NRI's socket is the machine's.
        with open(d + "/containerd.toml", "w") as f:
            f.write(f"""version = 3
root = '{d}/containerd'
state = '{d}/state'
[grpc]
address = '{self.socket}'
[plugins.'io.containerd.nri.v1.nri']
disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
netns_mounts_under_state_dir = true
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{c.prefix}/runc'
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{c.prefix}/cni']
conf_dir = '{d}/cni'
""")
        self.write("cni/kube.conflist", {"cniVersion": "1.0.0", "name": "kube", "plugins": [
            {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True,
             "ipam": {"type": "host-local", "dataDir": d + "/leases",
                      "ranges": [[{"subnet": f"{NET}.{self.i}.0/24"}]] + [[{"subnet": f"{NET6}:{self.i}::/64"}]] * c.dual,
                      "routes": [{"dst": "0.0.0.0/0"}] + [{"dst": "::/0"}] * c.dual}},
            {"type": "portmap", "capabilities": {"portMappings": True}}]})
        # Images cannot be pulled again, so they are never collected.  A node has two cores, whatever the machine has.
        fast = {} if c.defaults else {"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}, "syncFrequency": "5s"}
        reserved = {"systemReserved": {"cpu": str(self.processors - CORES)}, "enforceNodeAllocatable": []} \
            if self.processors > CORES else {}
        self.write("kubelet.yaml", {
            **fast, **reserved,
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": False,
            "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + self.cgroup,
            "containerRuntimeEndpoint": "unix://" + self.socket, "address": self.ip, "healthzBindAddress": self.ip,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": c.path("pki", "ca.crt")}},
            "authorization": {"mode": "Webhook"}, "tlsCertFile": c.path("pki", self.name + ".crt"),
            "tlsPrivateKeyFile": c.path("pki", self.name + ".key"), "clusterDomain": "cluster.local",
            "clusterDNS": [f"{NET}.0.1"], "podLogsDir": d + "/pods", "volumePluginDir": d + "/plugins",
            "failSwapOn": False, "imageGCHighThresholdPercent": 100, "registryPullQPS": 0,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}})
        self.write("proxy.yaml", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "clientConnection": {"kubeconfig": c.path("proxy.kubeconfig")}, "hostnameOverride": self.name,
            "clusterCIDR": NET + ".0.0/16" + f",{NET6}::/32" * c.dual, "bindAddress": self.ip, "healthzBindAddress": self.ip + ":10256",
            "metricsBindAddress": self.ip + ":10249", "conntrack": {"maxPerCore": 0},
            # Without bridge netfilter a pod that answers another one on the same bridge would bypass the rewriting;
            # with it, whoever is connected to sees who connects.
            "nftables": {"masqueradeAll": not os.path.isdir("/proc/sys/net/bridge")}})

    def write(self, name, data):
        with open(os.path.join(self.dir, name), "w") as f:
            json.dump(data, f)

    def start_containerd(self):
        self.network()
        if self.c.dual:
            self.network6()
        self.make_cgroup()
        self.configure()
        self.containerd = self.c.spawn("containerd", f"containerd{self.i}.log", ["--config", self.dir + "/containerd.toml"],
                                       self.inside)

    def start_kubelet(self):
        self.kubelet = self.c.spawn("kubelet", f"kubelet{self.i}.log", [
            "--config", self.dir + "/kubelet.yaml", "--kubeconfig", self.kubeconfig, "--root-dir",
            self.dir + "/kubelet", "--cert-dir", self.c.path("pki"), "--hostname-override", self.name, "--node-ip",
            self.ip + ("," + self.ip6) * self.c.dual], self.inside)

    def start_proxy(self):
        self.proxy = self.c.spawn("kube-proxy", f"proxy{self.i}.log", ["--config", self.dir + "/proxy.yaml"], self.inside)

    def ctr(self, *args, check=True):
        return sh(os.path.join(self.c.prefix, "ctr"), "-a", self.socket, "-n", "k8s.io", *args, check=check)

    def answers(self):
        """containerd answers"""
        return "Server" in self.ctr("version", check=False)

    def proxied(self):
        """kube-proxy made its table"""
        assert self.proxy.poll() is None, open(self.c.path(f"proxy{self.i}.log")).read()[-2000:]
        return "kube-proxy" in self.run("nft", "list", "table", "ip", "kube-proxy", check=False)


class Cluster(ApiServer):
    owns_nodes = True
    host = NET + ".0.1"

    def __init__(self, dual=False, defaults=False, nodes=NODES, **flags):
        """`dual`: pods and services have addresses of both families, IPv4 first.  `defaults`: kubelets wait between
        restarts and look at their volumes as seldom as they do anywhere, and names live as long; else tests are faster."""
        self.dual, self.defaults = dual, defaults
        if dual:
            flags["service_cluster_ip_range"] = f"{SERVICES}.0/24,{SERVICES6}/112"
        os.environ["CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS"] = "1"
        os.environ["PATH"] = os.environ["WB_CLUSTER_PREFIX"] + ":" + os.environ["PATH"]
        super().__init__(**flags)
        self.port = 6443
        self.nodes = [Node(self, i) for i in range(nodes)]
        self.manager = self.scheduler = self.dns = None

    def make_dir(self):
        """In memory, and hidden with the namespace: also what the programs put elsewhere."""
        mount_tmpfs("/run", "8g")
        for path in ("/var/log", "/var/lib", "/etc/cni"):
            if os.path.isdir(path):
                mount_tmpfs(path)
        os.makedirs(DIR)
        return DIR

    def make_pki(self):
        super().make_pki()
        k = "DNS:kubernetes"
        self.certificate("server", "/O=system:masters/CN=kube-apiserver", ",".join([
            k, k + ".default", k + ".default.svc", k + ".default.svc.cluster.local", "DNS:localhost", "IP:127.0.0.1",
            "IP:" + self.host, f"IP:{SERVICES}.1"]))
        for name, subject in (("manager", "kube-controller-manager"), ("scheduler", "kube-scheduler"),
                              ("proxy", "kube-proxy")):
            self.certificate(name, "/CN=system:" + subject)
            self.write_kubeconfig(name)

    def start_api(self):
        pki = lambda n: self.path("pki", n)
        self.flags.update(
            authorization_mode="Node,RBAC", enable_admission_plugins="NodeRestriction", allow_privileged="true",
            endpoint_reconciler_type="lease", kubelet_client_certificate=pki("admin.crt"),
            kubelet_client_key=pki("admin.key"), kubelet_certificate_authority=pki("ca.crt"),
            kubelet_preferred_address_types="InternalIP")
        super().start_api()

    def __enter__(self):
        self.make_pki()
        for n in self.nodes:
            n.start_containerd()
        self.start_etcd()
        self.start_api()
        pki = lambda n: self.path("pki", n)
        self.manager = self.spawn("kube-controller-manager", "manager.log", [
            "--kubeconfig", self.path("manager.kubeconfig"), "--bind-address", self.host,
            "--use-service-account-credentials", "--root-ca-file", pki("ca.crt"),
            "--service-account-private-key-file", pki("sa.key"), "--leader-elect=false", "--cluster-signing-cert-file",
            pki("ca.crt"), "--cluster-signing-key-file", pki("ca.key"), "--kube-api-qps", "200", "--kube-api-burst", "400"])
        self.scheduler = self.spawn("kube-scheduler", "scheduler.log", [
            "--kubeconfig", self.path("scheduler.kubeconfig"), "--bind-address", self.host, "--leader-elect=false",
            "--kube-api-qps", "200", "--kube-api-burst", "400"])
        self.start_dns()
        self.import_pause()
        for n in self.nodes:
            n.start_kubelet()
        for n in self.nodes:
            self.wait_for_node(n)
            n.start_proxy()
        for n in self.nodes:
            wait_for(n.proxied, 60)
        wait_for(lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, 60)
        self.policies = Policies(self)
        return self

    def wait_for_node(self, n):
        """Nobody calls __exit__ when this fails: what is wrong is said here."""
        try:
            wait_for(lambda: self.kubectl("wait", "--for=condition=Ready", "node/" + n.name, "--timeout=1s",
                                          check=False).returncode == 0, 60)
        except AssertionError as e:
            with open(self.path(f"kubelet{n.i}.log"), errors="replace") as f:
                said = f.read()[-3000:]
            seen = self.kubectl("describe", "node", n.name, check=False)
            raise AssertionError(f"{n.name} is not Ready: {e}\n{seen.stdout}{seen.stderr}\n---- kubelet\n{said}") from None

    def __exit__(self, *exc):
        """After a failure: what a person would ask kubectl first; with WB_CLUSTER_LOG=DIR also all logs."""
        if exc[0]:
            self.explain()
        if os.environ.get("WB_CLUSTER_LOG"):
            for name in os.listdir(self.dir):
                if name.endswith(".log"):
                    shutil.copy(self.path(name), os.environ["WB_CLUSTER_LOG"])
        self.stop()

    def explain(self):
        ask = lambda *a: sys.stderr.write(f"---- {' '.join(a)}\n{self.kubectl(*a, check=False).stdout}\n")
        try:
            ask("get", "wt", "-A", "-o", "wide")
            ask("get", "pods", "-A", "-o", "wide")
            ask("describe", "wt", "-A")
            ask("get", "events", "-A")
            for line in self.kubectl("get", "pods", "-A", "--no-headers", check=False).stdout.splitlines():
                pod = ["-n", *line.split()[:2]]
                ask("logs", *pod, "--all-containers", "--prefix", "--tail=40")
                ask("logs", *pod, "--all-containers", "--prefix", "--tail=20", "--previous")
            for pod in json.loads(self.kubectl("get", "pods", "-A", "-l", "weightbridge.io/name", "-o", "json"))["items"]:
                self.explain_agent(pod["metadata"]["namespace"], pod["metadata"]["name"])
            self.keep_bundle()
        except Exception as e:  # the API server itself may be gone
            sys.stderr.write(f"---- no more to say: {e}\n")

    def explain_agent(self, ns, name):
        """Its state, and last, to be seen: who waits for whom there."""
        r = self.kubectl("-n", ns, "exec", name, "-c", "weightbridge-agent", "--", "wbctl", "status", "--json", check=False)
        sys.stderr.write(f"---- {ns}/{name}\n{r.stdout or r.stderr}\n")
        with contextlib.suppress(ValueError):
            for o in json.loads(r.stdout).get("objects", []):
                for wait in o.get("waits", []):
                    sys.stderr.write(f"{name}: {wait}\n")

    def keep_bundle(self):
        """With WB_CLUSTER_LOG=DIR: the operator's support bundle, for a failure that the text does not explain."""
        if not os.environ.get("WB_CLUSTER_LOG"):
            return
        argv = [os.path.join(self.prefix, "kubectl"), "--kubeconfig", self.kubeconfig, "-n", "weightbridge-system", "exec",
                "deploy/weightbridge-operator", "--", "wbctl", "support-bundle"]
        with open(os.path.join(os.environ["WB_CLUSTER_LOG"], "bundle.tar"), "wb") as f:
            subprocess.run(argv, stdout=f, stderr=subprocess.DEVNULL, timeout=patience(30))

    def start_dns(self):
        with open(self.path("Corefile"), "w") as f:
            f.write(f""".:53 {{
  bind {self.host}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {self.kubeconfig}
    ttl {30 if self.defaults else 1}
  }}
}}
""")
        self.dns = self.spawn("coredns", "dns.log", ["-conf", self.path("Corefile")])

    def import_pause(self):
        from images import pause_image
        file = pause_image(self.path("pause.tar"))
        for n in self.nodes:
            wait_for(n.answers, 30)
        self.import_image(file)

    def import_image(self, file):
        """Into every node, as if it had been pulled."""
        for n in self.nodes:
            n.ctr("images", "import", file)

    def stop(self):
        """The namespaces end with this process; only the first of its programs are asked to."""
        for p in (self.api, self.etcd):
            if p and p.poll() is None:
                p.kill()
                p.wait()
