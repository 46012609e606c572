# SPDX-License-Identifier: Apache-2.0
"""A real etcd and kube-apiserver for a test: no node, no controller.  Standard library only.

with ApiServer() as c:  starts both on free ports of 127.0.0.1, with their state in a temporary folder;
c.kubeconfig is an administrator's.  The programs come from build.sh.  Both end with the test, also when
it is killed.
"""
import atexit
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
libc = ctypes.CDLL(None, use_errno=True)


def skip(why):
    print(why)
    sys.exit(77)


def programs(*parts):
    r = subprocess.run([os.path.join(HERE, "build.sh"), *parts], capture_output=True, text=True)
    if r.returncode:
        skip("the programs of a cluster are not built: " + (r.stderr.strip().splitlines() or ["?"])[-1])
    return r.stdout.strip()


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def patience(seconds):
    """What so many seconds of a quiet machine are now: on one with more to do than it has processors a test is late,
    not wrong.  Every limit of this folder goes through here, bars that a figure is held to apart."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def patient(args):
    """Arguments of kubectl or helm with --timeout=30s, or --timeout and 30s, as long as patience() says."""
    longer = lambda m: f"{m[1]}{round(patience(float(m[2])))}s"
    return [re.sub(r"^(--timeout=)(\d+)s$", longer, a) if i == 0 or args[i - 1] != "--timeout" else
            re.sub(r"^()(\d+)s$", longer, a) for i, a in enumerate(args)]


def wait_for(what, seconds=60, step=0.02):
    """Call what() until it returns something true, and return that."""
    begin = time.monotonic()
    while True:
        got = what()
        if got:
            return got
        assert time.monotonic() < begin + patience(seconds), \
            f"still not so after {time.monotonic() - begin:.0f} s: {getattr(what, '__doc__', None) or what}"
        time.sleep(step)


def die_with_parent():
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class HttpError(Exception):
    def __init__(self, code, body):
        super().__init__(f"{code}: {body.get('message', body)}")
        self.code, self.body = code, body


class ApiServer:
    host = "127.0.0.1"

    def __init__(self, **flags):
        self.prefix = programs()
        self.dir = self.make_dir()
        atexit.register(self.stop)
        self.flags = flags  # further flags of kube-apiserver, with _ for -
        self.etcd = self.api = None
        os.mkdir(self.path("pki"))
        self.etcd_port, self.peer_port, self.port = free_ports(3)

    def make_dir(self):
        return tempfile.mkdtemp(prefix="wbk")

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def __enter__(self):
        self.make_pki()
        self.start_etcd()
        self.start_api()
        return self

    def __exit__(self, *exc):
        if exc[0]:  # what the programs said, the API server only when asked
            for name in sorted(os.listdir(self.dir)):
                if name.endswith(".log") and (name not in ("apiserver.log", "etcd.log") or
                                              os.environ.get("WB_CLUSTER_LOG")):
                    text = open(self.path(name), errors="replace").read()
                    sys.stderr.write(f"---- {name}\n{text[-3000:]}\n")
        self.stop()

    # ---- certificates ----

    def openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)

    def make_pki(self):
        p = lambda n: self.path("pki", n)
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                     p("ca.key"), "-subj", "/CN=kube-ca", "-days", "2", "-out", p("ca.crt"))
        self.openssl("genrsa", "-out", p("sa.key"), "2048")
        self.openssl("rsa", "-in", p("sa.key"), "-pubout", "-out", p("sa.pub"))
        self.certificate("server", "/CN=kube-apiserver", "DNS:localhost,DNS:kubernetes,IP:127.0.0.1,IP:::1")
        self.certificate("admin", "/O=system:masters/CN=admin")
        self.kubeconfig = self.write_kubeconfig("admin")

    def certificate(self, name, subject, alt=None):
        p = lambda ext: self.path("pki", name + ext)
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                     p(".key"), "-subj", subject, "-out", p(".csr"))
        with open(p(".ext"), "w") as f:
            f.write(f"extendedKeyUsage=clientAuth,serverAuth\nsubjectAltName={alt or 'DNS:' + name}\n")
        self.openssl("x509", "-req", "-in", p(".csr"), "-CA", self.path("pki", "ca.crt"), "-CAkey",
                     self.path("pki", "ca.key"), "-CAcreateserial", "-days", "2", "-extfile", p(".ext"),
                     "-out", p(".crt"))

    def write_kubeconfig(self, name, user=None, server=None):
        """A kubeconfig with the certificate NAME, or with the given user entry (JSON)."""
        user = user or {"client-certificate": self.path("pki", name + ".crt"),
                        "client-key": self.path("pki", name + ".key")}
        file = self.path(name + ".kubeconfig")
        with open(file, "w") as f:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                       "clusters": [{"name": "c", "cluster": {"server": server or self.url(),
                                                              "certificate-authority": self.path("pki", "ca.crt")}}],
                       "users": [{"name": "u", "user": user}]}, f)
        os.chmod(file, 0o600)
        return file

    # ---- programs ----

    def spawn(self, program, log, args, inside=()):
        out = open(self.path(log), "ab")
        return subprocess.Popen([*inside, os.path.join(self.prefix, program), *args], stdout=out, stderr=out,
                                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, cwd=self.dir)

    def start_etcd(self):
        url, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        self.etcd = self.spawn("etcd", "etcd.log", [
            "--name", "e", "--data-dir", self.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
            "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"e={peer}"])

    def start_api(self):
        """Start kube-apiserver and wait until it is ready."""
        pki = lambda n: self.path("pki", n)
        flags = {
            "etcd-servers": f"http://127.0.0.1:{self.etcd_port}", "bind-address": self.host,
            "advertise-address": self.host, "endpoint-reconciler-type": "none", "secure-port": str(self.port),
            "tls-cert-file": pki("server.crt"), "tls-private-key-file": pki("server.key"),
            "client-ca-file": pki("ca.crt"), "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc", "service-account-key-file": pki("sa.pub"),
            "service-account-signing-key-file": pki("sa.key"), "service-cluster-ip-range": "10.96.0.0/24",
            "etcd-compaction-interval": "0", "shutdown-delay-duration": "0s",
        }
        flags.update({k.replace("_", "-"): v for k, v in self.flags.items()})
        self.api = self.spawn("kube-apiserver", "apiserver.log", [f"--{k}={v}" for k, v in flags.items()])

        def ready():
            """kube-apiserver is ready"""
            assert self.api.poll() is None, open(self.path("apiserver.log")).read()[-4000:]
            try:
                return self.raw("/readyz") == b"ok"
            except (OSError, HttpError):
                return False
        wait_for(ready, 120, 0.1)

    def stop_api(self, how=signal.SIGKILL):
        self.api.send_signal(how)
        self.api.wait(timeout=patience(120))

    def stop(self):
        for p in (self.api, self.etcd):
            if p and p.poll() is None:
                p.kill()
                p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- requests ----

    def url(self):
        return f"https://{self.host}:{self.port}"

    def context(self, cert="admin"):
        c = ssl.create_default_context(cafile=self.path("pki", "ca.crt"))
        if cert:
            c.load_cert_chain(self.path("pki", cert + ".crt"), self.path("pki", cert + ".key"))
        return c

    def raw(self, path, method="GET", body=None, content_type="application/json", token=None):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        if token:
            headers["Authorization"] = "Bearer " + token
        rq = urllib.request.Request(self.url() + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(rq, timeout=patience(60), context=self.context(None if token else "admin")) as r:
                return r.read()
        except urllib.error.HTTPError as e:
            text = e.read()
            try:
                raise HttpError(e.code, json.loads(text)) from None
            except ValueError:
                raise HttpError(e.code, {"message": text.decode(errors="replace")}) from None

    def get(self, path):
        return json.loads(self.raw(path))

    def post(self, path, body):
        return json.loads(self.raw(path, "POST", body))

    def kubectl(self, *args, stdin=None, check=True):
        r = subprocess.run([os.path.join(self.prefix, "kubectl"), "--kubeconfig", self.kubeconfig, *patient(args)],
                           input=stdin, capture_output=True, text=True, timeout=patience(300),
                           env={**os.environ, "HOME": self.dir, "KUBECACHEDIR": self.path("cache")})
        assert not check or r.returncode == 0, (args, r.stdout, r.stderr)
        return r.stdout if check else r

    def helm(self, *args, check=True, stdin=None, warns=False):
        """warns: of charts of another commit, which may."""
        r = subprocess.run([os.path.join(self.prefix, "helm"), "--kubeconfig", self.kubeconfig, *patient(args)],
                           input=stdin, capture_output=True, text=True, timeout=patience(300),
                           env={**os.environ, "HOME": self.dir, "HELM_CACHE_HOME": self.path("helm"),
                                "HELM_CONFIG_HOME": self.path("helm"), "HELM_DATA_HOME": self.path("helm")})
        assert not check or r.returncode == 0, (args, r.stdout, r.stderr)
        assert not check or warns or not r.stderr, f"helm {args[0]} warns: {r.stderr}"
        return r.stdout if check else r

    def install_crd(self, path=os.path.join(TOP, "crds", "weighttransfer.yaml")):
        """The kinds of a file or folder.  kubectl wait fails on one that has no conditions yet."""
        self.kubectl("apply", "--server-side", "-f", path)
        wait_for(lambda: self.kubectl("wait", "--for=condition=Established", "-f", path, "--timeout=5s",
                                      check=False).returncode == 0, 30, 0.1)

    def revision(self):
        return int(self.get("/api/v1/namespaces")["metadata"]["resourceVersion"])

    def compact(self):
        """Compact etcd to now: watches from before are told 410."""
        rev = self.revision()
        rq = urllib.request.Request(f"http://127.0.0.1:{self.etcd_port}/v3/kv/compaction",
                                    json.dumps({"revision": str(rev), "physical": True}).encode())
        with urllib.request.urlopen(rq, timeout=patience(30)) as r:
            r.read()
        return rev
