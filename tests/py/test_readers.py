# SPDX-License-Identifier: Apache-2.0
"""Who may read the operator's pages from another pod: tokens and accesses that a scripted API server judges."""
import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.environ.get("WB_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "common"))
from kubefake import Server, kubeconfig, make_certificate  # noqa: E402

BIN = os.path.join(os.environ["WB_BUILD"], "bin")
STRANGER = "127.0.0.66"  # as from another pod
SA = "system:serviceaccount:"
# token: (who it is, its audiences, groups)
TOKENS = {"of-rl": (SA + "rl:default", ["weightbridge.io/rl/grpo"], []),
          "of-rl-for-other": (SA + "rl:default", ["weightbridge.io/rl/other"], []),
          "of-eve": (SA + "eve:default", ["weightbridge.io/rl/grpo"], []),
          "a-person": ("alice", ["weightbridge.io/rl/grpo", "api"], ["people"]),
          "prometheus": (SA + "monitoring:prometheus", ["api"], ["scrapers"])}


class Api:
    """Reviews and nothing else; `reviews` and `accesses` have what came.  Unless `goes_on`, wrong tokens wait."""

    def __init__(self):
        self.broken, self.reviews, self.accesses, self.goes_on = False, [], [], threading.Event()
        self.goes_on.set()

    def __call__(self, rq, conn):
        if self.broken or rq.method != "POST" or "review" not in rq.path:
            conn.status(404 if not self.broken else 500, "NotFound")
        elif rq.path.endswith("/tokenreviews"):
            spec = json.loads(rq.body)["spec"]
            self.reviews.append(spec)
            who = TOKENS.get(spec["token"])
            if not who:
                self.goes_on.wait()
            audiences = [a for a in who[1] if a in (spec["audiences"] or ["api"])] if who else []
            status = {"authenticated": False, "error": "invalid bearer token"}
            if audiences:
                status = {"authenticated": True, "audiences": audiences, "user": {"username": who[0], "uid": "u", "groups": who[2]}}
            conn.reply(201, {"kind": "TokenReview", "status": status})
        else:
            spec = json.loads(rq.body)["spec"]
            self.accesses.append(spec)
            conn.reply(201, {"kind": "SubjectAccessReview", "status": {"allowed": "scrapers" in spec.get("groups", [])}})


def get(port, path, token=None, source=STRANGER):
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))) as s:
        head = ["GET " + path + " HTTP/1.1", "Host: x", *([f"Authorization: Bearer {token}"] if token else []), "", ""]
        s.sendall("\r\n".join(head).encode())
        text = b""
        while part := s.recv(65536):
            text += part
    head, _, body = text.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


@contextlib.contextmanager
def operator(d, api, *args):
    crt, key = make_certificate(d, "api", "IP:127.0.0.1")
    server = Server((crt, key), api)
    config = kubeconfig(os.path.join(d, "config"), f"https://127.0.0.1:{server.port}", crt)
    ports, log = os.path.join(d, "ports"), open(os.path.join(d, "log"), "w")
    psk = os.path.join(d, "key")
    with open(os.open(psk, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write("a7" * 32)
    p = subprocess.Popen([os.path.join(BIN, "weightbridge-operator"), "--kubeconfig", config, "--psk-file", psk, "--listen", "127.0.0.1:0",
                          "--http", "127.0.0.1:0", "--port-file", ports, "--lease", "system/operator", *args], stderr=log)
    try:
        end = time.monotonic() + 60
        while not os.path.exists(ports) and p.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        yield int(dict(line.split() for line in open(ports))["http"])
        assert not server.errors, server.errors
    finally:
        p.kill()
        p.wait()
        log.close()
        server.close()


# Of a page of rl/grpo, which is not there: 404 is for who may know that.
PAGES = [(None, 401, "show a token of the object's namespace"), ("of-rl", 404, "404"), ("of-rl-for-other", 401, "not valid for audience"),
         ("of-eve", 401, "is of namespace eve, object rl/grpo is in another"), ("a-person", 401, "not of a service account"),
         ("prometheus", 401, "not valid for audience"), ("nonsense", 401, "invalid bearer token")]


def pages(d):
    api = Api()
    with operator(d, api) as port:
        for page in ("status", "objects", "plan", "manifest", "trace"):
            for token, status, words in PAGES:
                got = get(port, f"/{page}?object=rl/grpo", token)
                assert got[0] == status and words in got[1], (page, token, got)
            assert get(port, f"/{page}", "of-rl")[0] == 401
        assert all(r["audiences"] == ["weightbridge.io/rl/grpo"] for r in api.reviews), api.reviews
        n = len(api.reviews)
        assert get(port, "/objects", source="127.0.0.1")[0] == 200 and get(port, "/metrics")[0] == 200
        assert len(api.reviews) == n and not api.accesses  # nobody was asked
        api.broken = True
        got = get(port, "/status?object=rl/grpo", "never-shown-before")
        assert got[0] == 503 and "could not be checked" in got[1], got


def wbctl_shows_a_token_and_names_the_object(d):
    """Also where a standby sends it on to."""
    seen, leader = [], None

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            self.send_response(307 if self.server is standby else 200)
            if self.server is standby:
                self.send_header("Location", f"http://127.0.0.1:{leader.server_port}{self.path}")
            self.end_headers()
            self.wfile.write(b'{"kind": "WeightTransferList", "items": []}')

        def log_message(self, *_):
            pass

    standby, leader = [http.server.HTTPServer(("127.0.0.1", 0), Pages) for _ in range(2)]
    for s in (standby, leader):
        threading.Thread(target=s.serve_forever, daemon=True).start()
    file = os.path.join(d, "token")
    with open(file, "w") as f:
        f.write("tok\n")
    wbctl = [os.path.join(BIN, "wbctl"), "get", "rl/grpo", "--operator", f"127.0.0.1:{standby.server_port}"]
    subprocess.run([*wbctl, "--token-file", file], capture_output=True, timeout=60, check=False)
    assert seen == [("/objects?object=rl%2Fgrpo", "Bearer tok")] * 2, seen
    seen.clear()
    subprocess.run(wbctl, capture_output=True, timeout=60, check=False)
    assert seen == [("/objects", None)] * 2, seen
    seen.clear()  # an agent is anybody's pod
    agent = [wbctl[0], "status", "--agent", f"127.0.0.1:{leader.server_port}", *wbctl[3:], "--token-file", file]
    subprocess.run(agent, capture_output=True, timeout=60, check=False)
    assert seen == [("/status", None)], seen
    r = subprocess.run([*wbctl, "--token-file", file + ".not"], capture_output=True, text=True, timeout=60, check=False)
    assert r.returncode == 1 and "there is no token in it" in r.stderr, r
    for s in (standby, leader):
        s.shutdown()
        s.server_close()


METRICS = [(None, 401), ("prometheus", 200), ("of-rl", 401), ("a-person", 403), ("nonsense", 401)]


def metrics(d):
    api = Api()
    with operator(d, api, "--metrics-auth") as port:
        for token, status in METRICS:
            got = get(port, "/metrics", token)
            assert got[0] == status and ("wb_objects" in got[1]) == (status == 200), (token, got)
        n = len(api.reviews)
        for token, status in METRICS * 3:  # what was said holds for some seconds
            assert get(port, "/metrics", token)[0] == status
        assert len(api.reviews) <= n + len(METRICS) - 1, api.reviews[n:]
        assert api.accesses[0] == {"user": SA + "monitoring:prometheus", "uid": "u", "groups": ["scrapers"],
                                   "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}, api.accesses
        assert get(port, "/metrics", source="127.0.0.1")[0] == 200
        assert get(port, "/healthz")[0] == 200


def send(port, path, token, source):
    s = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return s


CROWD, AT_ONCE = 4, 8  # addresses, with all places of the page among them; questions under way


def who_asks_with_wrong_tokens_keeps_nobody_else_waiting(d):
    """Four addresses have all places, and wait for an API server that does not answer: whoever else comes has a place,
    and its question goes in turn with those of the four."""
    api = Api()
    with operator(d, api, "--metrics-auth") as port, contextlib.ExitStack() as crowd:
        api.goes_on.clear()
        crowd.callback(api.goes_on.set)
        for i in range(16 * CROWD):
            crowd.enter_context(contextlib.closing(send(port, "/metrics", f"wrong-{i}", f"127.0.0.{70 + i // 16}")))
        got = get(port, "/metrics", source="127.0.0.1")
        assert got[0] == 200, got
        with contextlib.closing(send(port, "/metrics", "prometheus", STRANGER)) as mine:
            assert get(port, "/metrics", source="127.0.0.1")[0] == 200  # so what came before was read
            api.goes_on.set()
            text = mine.recv(65536).decode()
        assert text.startswith("HTTP/1.1 200"), text
        before = [r["token"] for r in api.reviews].index("prometheus")
        # Those under way go on in any order, and as many may be asked after them before this one's is noted.
        assert before <= 2 * AT_ONCE + CROWD, f"it waited for {before} of {16 * CROWD} others"


for claim in (pages, metrics, who_asks_with_wrong_tokens_keeps_nobody_else_waiting, wbctl_shows_a_token_and_names_the_object):
    with tempfile.TemporaryDirectory() as folder:
        t0 = time.monotonic()
        claim(folder)
        print(f"{claim.__name__}: {time.monotonic() - t0:.1f} s", flush=True)
