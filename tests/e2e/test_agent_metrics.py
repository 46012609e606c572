# SPDX-License-Identifier: Apache-2.0
"""Who may read an agent's metrics, with --metrics-auth: the agent asks the operator, which asks a scripted API server
(tests/cluster/test_rbac asks a real one)."""
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.environ.get("WB_TOP", "."), "tests", "common"))
from fakeapi import FakeApi, Operator, pod, review, transfer, until  # noqa: E402

BIN = os.path.join(os.environ["WB_BUILD"], "bin", "weightbridge-agent")
STRANGER = "127.0.0.66"  # as from another pod
PATH = "/metrics/weightbridge"
PEOPLE = {"scraper": True, "somebody": False}  # token: may get that path


class Api(FakeApi):
    """Judges tokens of people, too; `reviews` and `accesses` are what it was asked about them."""

    def __init__(self, folder):
        self.reviews, self.accesses, self.is_broken, self.held = [], [], False, None
        super().__init__(folder)

    def answer(self, rq, conn):
        body = json.loads(rq.body) if rq.path.endswith(("/tokenreviews", "/subjectaccessreviews")) else None
        if rq.path.endswith("/subjectaccessreviews"):
            self.accesses.append(body["spec"])
            is_path = body["spec"]["nonResourceAttributes"] == {"path": PATH, "verb": "get"}
            return conn.reply(201, {"status": {"allowed": is_path and PEOPLE[body["spec"]["user"]]}})
        if not body or body["spec"]["token"].startswith("pod "):
            return super().answer(rq, conn)
        token = body["spec"]["token"]
        self.reviews.append(token)
        if self.held:
            self.held.wait(60)
        if self.is_broken:
            return conn.status(500, "InternalError")
        if token not in PEOPLE:
            return conn.reply(201, review(body))
        return conn.reply(201, {"status": {"authenticated": True, "audiences": ["api"], "user": {"username": token}}})


class Agent:
    def __init__(self, api, op, name, *args):
        meta = api.put("pods", pod("n", name, "t"))["metadata"]
        token, ports, self.log = (os.path.join(api.dir, name + end) for end in (".token", ".ports", ".log"))
        with open(token, "w", encoding="utf-8") as f:
            f.write(f"pod n {name} {meta['uid']}")
        self.p = subprocess.Popen(
            [BIN, "--name", name, "--socket", os.path.join(api.dir, name + ".sock"), "--operator",
             f"127.0.0.1:{op.ports['listen']}", "--token-file", token, "--ca-file", op.cert[0], "--operator-name",
             "operator.test", "--object", "n/t", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--port-file", ports,
             "--log-format", "text", *args], stderr=open(self.log, "wb"))
        until("its ports", lambda: os.path.exists(ports) or self.p.poll() is not None)
        self.port = int(dict(line.split() for line in open(ports, encoding="utf-8"))["http"])

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def get(self, token=None, path="/metrics", source=STRANGER):
        web = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(source, 0))
        web.request("GET", path, headers={"Authorization": "Bearer " + token} if token else {})
        r = web.getresponse()
        return r.status, r.read().decode()

    def stop(self):
        self.p.kill()
        self.p.wait()


def expect(got, status, words):
    assert got[0] == status and words in got[1] and ("wb_build_info" in got[1]) == (status == 200), (got[0], got[1][:600])


def who_may(api, op, a):
    until("the operator is there", lambda: "operator connected" in a.text())
    expect(a.get(), 401, "show a token of who may get the path " + PATH)
    expect(a.get("nonsense"), 401, "invalid bearer token")
    expect(a.get("somebody"), 403, f"may not get {PATH}")
    expect(a.get("scraper"), 200, "")
    assert a.get(path="/healthz")[0] == 200  # probes are everybody's
    assert a.get(source="127.0.0.1")[0] == 200  # from within the pod
    assert api.accesses[-1]["nonResourceAttributes"]["path"] == PATH, api.accesses
    # A right to the agents' metrics, whose token all of them see, is none to the operator's, and none to objects.
    assert a.get("scraper", "/status")[0] == 401


def one_question_for_all(api, agents):
    """Agents that are read at a time by one reader cost one review, and who asks meanwhile gets its answer."""
    PEOPLE["another"] = True
    api.held, api.reviews = threading.Event(), []
    got = []
    threads = [threading.Thread(target=lambda x=x: got.append(x.get("another")[0])) for x in agents for _ in range(3)]
    for t in threads:
        t.start()
    until("it is asked", lambda: api.reviews)
    api.held.set()
    for t in threads:
        t.join()
    api.held = None
    assert got == [200] * len(threads) and api.reviews == ["another"], (got, api.reviews)
    print(f"{len(threads)} readings, {len(api.reviews)} review")


def floods_are_bounded(api, a):
    """Made-up tokens are not all asked about, and one who may read can again."""
    api.reviews = []
    got = [a.get(f"made-up-{i}")[0] for i in range(60)]
    assert set(got) == {401, 503} and len(api.reviews) == got.count(401), (got, api.reviews)
    assert got.count(503) > 10, got
    until("good ones", lambda: a.get("scraper", source="127.0.0.67")[0] == 200)
    print(f"{len(api.reviews)} of {len(got)} made-up tokens were asked about")


def floods_do_not_keep_out_who_may(api, a):
    """From another address, with a token that is new, and again and again with one that was good."""
    over, asked = threading.Event(), []

    def flood():
        while not over.is_set():
            asked.append(a.get(f"invented-{len(asked)}", source="127.0.0.68")[0])
    t = threading.Thread(target=flood)
    t.start()
    try:
        until("some are refused", lambda: 503 in asked)
        PEOPLE["late"] = True
        got = [a.get("late", source="127.0.0.70")[0] for _ in range(30)]
    finally:
        over.set()
        t.join()
    assert set(got) == {200}, got
    print(f"{len(got)} readings beside {len(asked)} made-up tokens")


def nobody_knows(api, a):
    api.is_broken = True
    expect(a.get("yet-another", source="127.0.0.69"), 503, "could not be checked")
    api.is_broken = False


def no_operator(op, a):
    """Also a token that was good a moment ago: the agent remembers nothing."""
    expect(a.get("scraper"), 200, "")
    op.p.kill()
    op.p.wait()

    def refused():
        """From the first moment; the sentence follows what the agent knows."""
        got = a.get("scraper")
        expect(got, 503, "the operator says who may read metrics")
        return "and it is not connected" in got[1]
    until("it has seen that it is gone", refused)
    expect(a.get(), 401, "show a token")
    assert a.get(source="127.0.0.1")[0] == 200


def main():
    with tempfile.TemporaryDirectory() as folder, Api(folder) as api:
        api.put("weighttransfers", transfer("n", "t"))
        with Operator(api) as op:
            agents = [Agent(api, op, f"a-{i}", "--metrics-auth") for i in range(3)]
            plain = Agent(api, op, "plain")
            try:
                who_may(api, op, agents[0])
                for a in agents:
                    until("all are there", lambda a=a: "operator connected" in a.text())
                one_question_for_all(api, agents)
                nobody_knows(api, agents[0])
                floods_are_bounded(api, agents[1])
                floods_do_not_keep_out_who_may(api, agents[1])
                assert plain.get()[0] == 200  # without the option
                no_operator(op, agents[2])
            finally:
                for a in [*agents, plain]:
                    a.stop()


if __name__ == "__main__":
    main()
