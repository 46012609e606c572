# SPDX-License-Identifier: Apache-2.0
"""A scripted HTTPS API server that can misbehave, and the client under test.  Standard library only."""
import json
import os
import queue
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

BIN = os.path.join(os.environ["WB_BUILD"], "tools", "kube_watch")


def openssl(*args):
    if not shutil.which("openssl"):  # a bare Debian has the library alone
        subprocess.run([os.path.join(os.path.dirname(__file__), "deps.sh"), "openssl"], check=True)
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def make_certificate(d, name, alt):
    """A certificate that is its own authority: NAME.crt, NAME.key."""
    out = [os.path.join(d, name + ext) for ext in (".crt", ".key")]
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", out[1],
            "-out", out[0], "-subj", "/CN=" + name, "-days", "2", "-addext", "subjectAltName=" + alt)
    return out


class Request:
    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        url = urllib.parse.urlsplit(target)
        self.path = url.path
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))


class Conn:
    """What a handler answers with."""

    def __init__(self, sock):
        self.sock = sock
        self.closing = False

    def send(self, data):
        self.sock.sendall(data)

    def reply(self, status, obj=None, headers=(), body=None):
        body = json.dumps(obj).encode() if body is None else body
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.send((head + "".join(h + "\r\n" for h in headers) + "\r\n").encode() + body)

    def status(self, code, reason, message="no", headers=()):
        self.reply(code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                          "message": message}, headers)

    def listing(self, items, version, more=None):
        meta = {"resourceVersion": version}
        if more:
            meta["continue"] = more
        self.reply(200, {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})

    def begin(self):
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data):
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self):
        self.send(b"0\r\n\r\n")

    def cut(self):
        self.closing = True


def event(kind, obj):
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def thing(name, version, uid=None):
    return {"kind": "Thing", "metadata": {"name": name, "namespace": "n", "uid": uid or "u-" + name,
                                          "resourceVersion": str(version), "managedFields": [{"x": 1}]}}


class Server:
    """handler(request, conn) for each request, each connection in its own thread."""

    def __init__(self, cert, handler, plain_delay=None):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*cert)
        self.handler, self.mute = handler, False
        self.requests = []
        self.errors = []
        self.stopped = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.stopped.is_set():
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            if self.mute:
                self.stopped.wait(30)
                return
            sock = self.context.wrap_socket(sock, server_side=True)
            f = sock.makefile("rb")
            conn = Conn(sock)
            while not conn.closing:
                rq = self.read(f)
                if not rq:
                    return
                self.requests.append(rq)
                self.handler(rq, conn)
        except (OSError, ssl.SSLError):
            pass
        except Exception as e:  # a claim of the test
            self.errors.append(e)
            raise
        finally:
            sock.close()

    @staticmethod
    def read(f):
        line = f.readline().split()
        if len(line) != 3:
            return None
        headers = {}
        while True:
            h = f.readline().strip()
            if not h:
                break
            k, v = h.split(b":", 1)
            headers[k.decode().lower()] = v.strip().decode()
        body = f.read(int(headers.get("content-length", 0)))
        return Request(line[0].decode(), line[1].decode(), headers, body)

    def close(self):
        self.stopped.set()
        self.listener.close()


def kubeconfig(path, server, ca, user=None, cluster=None):
    with open(path, "w") as f:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                   "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                   "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": ca,
                                                          **(cluster or {})}}],
                   "users": [{"name": "u", "user": user or {"token": "secret"}}]}, f)
    return path


class Client:
    """kube_watch; what it prints is read by next() and until()."""

    def __init__(self, config, path, **options):
        args = [f"{k}={v}" for k, v in {"backoff_ms": 20, "backoff_max_ms": 80, **options}.items()]
        self.p = subprocess.Popen([BIN, config, path, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.p.stderr), daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self, seconds=30):
        got = self.lines.get(timeout=seconds)
        assert got is not None, "the client ended: " + "".join(self.log)
        return got

    def until(self, what, **fields):
        end = time.monotonic() + 30
        while True:
            got = self.next(max(0.1, end - time.monotonic()))
            if got["what"] == what and all(got.get(k) == v for k, v in fields.items()):
                return got

    def short(self):
        o = self.next()
        return {"put": "+", "gone": "-", "synced": "="}[o["what"]] + str(o.get("name", o.get("count")))

    def ask(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def stats(self):
        self.ask("stats")
        return self.until("stats")

    def call(self, method, path, content_type=None, body=None):
        self.ask(" ".join(["call", method, path] + ([content_type, json.dumps(body)] if content_type else [])))
        return self.until("reply")

    def close(self):
        self.p.stdin.close()
        rc = self.p.wait(timeout=30)
        assert rc == 0, (rc, "".join(self.log))
