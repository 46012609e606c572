# SPDX-License-Identifier: Apache-2.0
"""Attacks from restricted pods of one namespace (tests/common/attack.py), and a job in another that must see nothing:
its transfers take at most 1.2 times as long as when it is quiet, status follows them within 2 s, no operator is
restarted or falls out of its Service.  Limits of time grow with the machine's load.  CASES="uploads" runs one alone,
OBJECTS=5000 makes so many of one namespace; tests/e2e/test_attacks.py makes 5,000 each time.

Both nodes are this machine.  In a real cluster attackers, operators and the API server take processor time on their own
nodes, not on the victim's: so the victim's pods have one processor, and everything else the others, when it is quiet as
in the attacks.  What its processes ran and waited for a processor is printed too.

tests/e2e/test_attacks.py makes the same attacks on an operator beside the test, in a minute and without a cluster.
"""
import collections
import concurrent.futures
import datetime
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import TOP, patience, wait_for  # noqa: E402
from cluster import run  # noqa: E402
from images import python_tree, write_image  # noqa: E402
from job import SYSTEM, Job, add_images, apply, install_operator, namespace, weight_transfer  # noqa: E402
from processors import Waits, apart  # noqa: E402
from test_faults import leader, uid_of  # noqa: E402

IMAGE = "localhost/weightbridge/attack:1"
NS, PODS, MAPS = "mallory", 3, 512
TENSORS = 200000  # of a manifest of several MiB, which nobody reads at once
SLOWER = 1.2  # than when it is quiet
LATE_S, ATTACK_S = 2.0, 20
MANY = int(os.environ.get("OBJECTS", "1000"))  # the API server takes 40 ms of a processor for each
OWN = ("TransferCompleted", "PlanActivated", "EngineFed")  # what the victim's job makes happen itself
LARGE = "--rows 1024 --cols 1024 --tensors 8"  # 32 MiB


def attack_image(c):
    t = python_tree(modules=())
    t.file("opt/attack.py", os.path.join(TOP, "tests/common/attack.py"))
    c.import_image(write_image(c.path("attack.tar"), IMAGE, t, ["python3"]))


def attacker(i, ns=NS, name="own"):
    """A pod that any tenant may have: its namespace's restricted profile, a token for its own object."""
    auth = [{"serviceAccountToken": {"audience": f"weightbridge.io/{ns}/{name}", "expirationSeconds": 3600, "path": "token"}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": f"pod-{i}", "namespace": ns, "labels": {"weightbridge.io/name": name, "weightbridge.io/role": "both"}}, "spec": {
            "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "app", "image": IMAGE, "command": ["python3", "-c", "import time; time.sleep(1e5)"],
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                            "volumeMounts": [{"name": "auth", "mountPath": "/var/run/auth"}]}],
            "volumes": [{"name": "auth", "projected": {"sources": auth}}]}}


class Attack:
    """attack.py in a pod, for so many seconds."""

    def __init__(self, c, i, kind, *args, seconds=ATTACK_S, ns=NS):
        self.kind = kind
        self.p = subprocess.Popen([
            os.path.join(c.prefix, "kubectl"), "--kubeconfig", c.kubeconfig, "-n", ns, "exec", f"pod-{i}", "--", "python3",
            "/opt/attack.py", kind, "--seconds", str(seconds), "--listen", f"{leading(c)}:7443", *map(str, args)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "HOME": c.dir})
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.p.stdout), daemon=True).start()

    def end(self):
        self.p.wait(patience(ATTACK_S + 60))
        counted = [json.loads(x) for x in self.lines if x.startswith("{")]
        assert counted, (self.kind, self.lines[-5:])
        return counted[-1]


def operators(c):
    """Pods that are there to stay."""
    items = json.loads(c.kubectl("-n", SYSTEM, "get", "pods", "-l", "app.kubernetes.io/name=weightbridge-operator", "-o", "json"))["items"]
    return [p for p in items if "deletionTimestamp" not in p["metadata"]]


def leading(c):
    """Address of the operator that leads: a standby only sends agents there."""
    name = leader(c)
    return next(p["status"]["podIP"] for p in operators(c) if p["metadata"]["name"] == name)


def health(c):
    """Of each operator: restarts, and when it became Ready, by name."""
    out = {}
    for p in operators(c):
        ready = next(x for x in p["status"]["conditions"] if x["type"] == "Ready")
        out[p["metadata"]["name"]] = (sum(s["restartCount"] for s in p["status"]["containerStatuses"]), ready["status"],
                                      ready["lastTransitionTime"])
    return out


def loop_lag(c):
    """Seconds of the longest round of the leader's loop since this was last asked."""
    with urllib.request.urlopen(f"http://{leading(c)}:9402/metrics", timeout=patience(10)) as r:
        return float(re.search(r"^wb_loop_lag_seconds (\S+)$", r.read().decode(), re.M)[1])


def why_restarted(c):
    """What is known of containers of operators that ended: how, the last lines they wrote, and kubelet's probes."""
    said = []
    for p in operators(c):
        for s in p["status"]["containerStatuses"]:
            if s.get("lastState"):
                name = p["metadata"]["name"]
                said += [f"{name}: {s['lastState']}", c.kubectl("-n", SYSTEM, "logs", name, "--previous", "--tail=8", check=False).stdout]
    probes = c.kubectl("-n", SYSTEM, "get", "events", "--field-selector", "reason=Unhealthy", check=False).stdout
    return "\n".join(said + [probes])


class Victim(Job):
    """A job whose trainer sends for ever; what its workers and its status say, with the time."""

    def __init__(self, c):
        super().__init__(c, "victim", shape=LARGE)
        self.ready(90)
        self.first_seen, self.over = {}, threading.Event()
        self.uids = [uid_of(c, self.ns, p) for p in self.pods()]
        self.waits = Waits(("toy_worker", "weightbridge-agent"), self.uids)
        self.exec("trainer-0", "sh", "-c", "(v=1; while :; do echo send $v; sleep 0.7; v=$((v+1)); done >/tmp/in) >/dev/null 2>&1 </dev/null &")
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        """When each version was first in the status."""
        path = f"/apis/weightbridge.io/v1alpha1/namespaces/{self.ns}/weighttransfers/{self.name}"
        while not self.over.wait(0.1):
            try:
                v = self.c.get(path).get("status", {}).get("version")
            except (OSError, http.client.HTTPException):  # an answer that was cut short is asked for again
                continue
            if v:
                self.first_seen.setdefault(v, time.time())

    def sent(self, since, until):
        """(version, seconds, when it was over) of transfers that ended between two times."""
        out = []
        for line in self.kubectl("logs", "trainer-0", "-c", "worker", "--timestamps").splitlines():
            stamp, _, text = line.partition(" ")
            m = re.match(r"sent (\d+) seconds=(\S+) ", text)
            assert not text.startswith("error"), text
            at = datetime.datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp()
            if m and since <= at <= until:
                assert text.count("Committed") >= 2, text
                out.append((int(m[1]), float(m[2]), at))
        return out

    def figures(self, since, until):
        """Median seconds of a transfer, and the longest that status came after one; a version that was followed by
        another before status was written counts by that one."""
        got = self.sent(since, until)
        assert len(got) >= 5, f"{len(got)} transfers in {until - since:.0f} s"
        self.transfers, self.longest = len(got), max(x[1] for x in got)
        late = 0
        for v, _, at in got:
            def seen():
                """status has this version, or a later one"""
                return [t for w, t in list(self.first_seen.items()) if w >= v]
            late = max(late, min(wait_for(seen, 15, 0.1)) - at)
        return statistics.median(x[1] for x in got), late


def events_about(c, ns):
    """By object and reason, without what a job makes happen itself: how often each was said."""
    found = {}
    for e in c.get(f"/api/v1/namespaces/{ns}/events?limit=5000")["items"]:
        about = e.get("involvedObject", {})
        if about.get("kind") == "WeightTransfer" and e["reason"] not in OWN:
            key = (about["name"], e["reason"], e.get("message", "")[:200])
            found[key] = found.get(key, 0) + e.get("count", 1)
    return found


def each(now, seen, transfers):
    """Milliseconds that a transfer's processes ran, and waited for a processor, of all that they did so."""
    return "ran {:.0f} ms and waited {:.0f}".format(*(1000 * (a - b) / transfers for a, b in zip(now, seen)))


def under(c, victim, quiet, what, begin):
    """The claim, for what begin() starts and ends."""
    before, events = health(c), events_about(c, "victim")
    operator = Waits(("weightbridge-operator",), [uid_of(c, SYSTEM, name) for name in before])
    loop_lag(c)
    since, seen, seen_operator = time.time(), victim.waits.so_far(), operator.so_far()
    counted = begin()
    until, now, now_operator = time.time(), victim.waits.so_far(), operator.so_far()
    after = health(c)
    assert after == before, f"{what}: operators were {before} and are {after}\n{why_restarted(c)}"
    lag = loop_lag(c)
    took, late = victim.figures(since, until)
    work = each(now, seen, victim.transfers)
    strangers = {k: n for k, n in events_about(c, "victim").items() if events.get(k) != n}
    print(f"{what}: {victim.transfers} transfers, {1000 * took:.1f} ms ({1000 * victim.longest:.0f} at most), {took / quiet:.2f} x quiet; its processes {work}; "
          f"operators {each(now_operator, seen_operator, 1)} in {until - since:.0f} s, longest round of the loop {lag:.3f} s; "
          f"status after {late:.2f} s at most; {len(strangers)} events about the victim; operators {list(after.values())}; "
          f"attack {[dict(x) for x in counted]}", flush=True)
    assert took <= patience(SLOWER * quiet), f"{what}: {1000 * took:.1f} ms a transfer, {1000 * quiet:.1f} when it is quiet"
    assert late <= patience(LATE_S), f"{what}: status came {late:.2f} s late"
    assert not strangers, f"{what}: events about the victim: {strangers}"
    return counted


def together(*attacks):
    return [a.end() for a in attacks]


def slow_headers(c, hold):
    """On the pages of each operator at once."""
    ips = [p["status"]["podIP"] for p in operators(c)]
    counted = hold(lambda: together(*(Attack(c, i, "slow_headers", "--http", f"{ip}:9402", "--sockets", 200, seconds=60)
                                      for i, ip in enumerate(ips))))
    assert all(x["opened"] >= 100 for x in counted), counted


def idle_floods(c, hold):
    """From every pod at once; an agent of a third tenant's that comes then is let in."""
    guest = Job(c, "guest", rollouts=1)
    guest.ready(90)

    def begin():
        attacks = [Attack(c, i, "idle", "--sockets", 400) for i in range(PODS)]
        time.sleep(ATTACK_S / 4)
        t = time.monotonic()
        guest.kubectl("scale", "statefulset", "rollout", "--replicas=2")
        wait_for(lambda: any("operator connected" in x for x in guest.lines("rollout-1", "weightbridge-agent")), ATTACK_S, 0.2)
        took = time.monotonic() - t
        counted = together(*attacks)
        print(f"a new pod's agent connected {took:.1f} s after it was asked for")
        return counted
    counted = hold(begin)
    c.kubectl("delete", "namespace", "guest", "--wait=false")
    assert sum(x["opened"] for x in counted) >= 600, counted


def uploads(c, hold):
    counted = hold(lambda: together(Attack(c, 0, "uploads", "--object", f"{NS}/own", "--agent", "pod-0", "--token",
                                           "/var/run/auth/token", "--threads", 1, "--maps", MAPS)))
    assert counted[0].get("mib", 0) >= 64, counted


def random_names(c, hold):
    """For the victim's object without a token, and for the own one with one."""
    counted = hold(lambda: together(Attack(c, 0, "names", "--object", "victim/wt"), Attack(
        c, 1, "names", "--object", f"{NS}/own", "--token", "/var/run/auth/token")))
    assert sum(x.get("rejected", 0) for x in counted) >= 100, counted
    mine = events_about(c, NS)
    assert len(mine) <= 20, f"{len(mine)} events about agents that proved nothing"


def chatter(c, hold):
    """Two agents of the attacker's that never stop talking."""
    counted = hold(lambda: together(*(Attack(c, i, "chatter", "--object", f"{NS}/own", "--agent", f"pod-{i}", "--token",
                                             "/var/run/auth/token", "--threads", 1) for i in range(2))))
    assert all(x.get("messages", 0) >= 4 for x in counted), counted


def slow_readers(c, hold):
    """A tenant's own large page, which pods of his ask the leader for and do not take."""
    large = Job(c, "large", rollouts=1, shape=f"--rows 2 --cols 1 --tensors {TENSORS}")
    apply(c, *(attacker(i, "large", "wt") for i in range(PODS)))
    large.ready(180)
    c.kubectl("-n", "large", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    counted = hold(lambda: together(*(Attack(c, i, "readers", "--page", "/manifest?object=large/wt", "--token", "/var/run/auth/token",
                                             "--http", f"{leading(c)}:9402", "--sockets", 16, ns="large") for i in range(PODS))))
    c.kubectl("delete", "namespace", "large", "--wait=false")
    assert all(x.get("opened", 0) >= 16 for x in counted), counted


def many_objects(c, hold):
    """As fast as the API server takes them from its administrator: a new object of the victim's has its status all the
    same, and who leads goes on leading."""
    path = f"/apis/weightbridge.io/v1alpha1/namespaces/{NS}/weighttransfers"
    first, counted = leader(c), collections.Counter()

    def make(i):
        c.post(path, weight_transfer(NS, f"o-{i}"))
        counted["made"] += 1

    def drop(i):
        c.raw(f"{path}/o-{i}", "DELETE")
        counted["deleted"] += 1

    def begin():
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            made = [pool.submit(make, i) for i in range(MANY)]
            wait_for(lambda: counted["made"] > MANY * 0.9, 600, 0.1)
            t = time.monotonic()
            apply(c, weight_transfer("victim", "late"))
            late = "/apis/weightbridge.io/v1alpha1/namespaces/victim/weighttransfers/late"
            wait_for(lambda: c.get(late).get("status", {}).get("conditions"), 60, 0.05)
            took = time.monotonic() - t
            for x in made:
                x.result()
            print(f"status of a new object after {took:.2f} s, with kubectl apply, beside {counted['made']} objects", flush=True)
            assert took <= patience(LATE_S + 1), f"a new object's status came after {took:.1f} s"
            for x in [pool.submit(drop, i) for i in range(MANY)]:
                x.result()
        return [counted]
    hold(begin)
    assert leader(c) == first, f"{first} led, {leader(c)} does now"


TESTS = [slow_headers, idle_floods, uploads, random_names, chatter, slow_readers, many_objects]


def main(c):
    add_images(c)
    attack_image(c)
    install_operator(c)
    c.explain = lambda: None  # what failed is said below
    victim = Victim(c)
    apply(c, namespace(NS), weight_transfer(NS, "own", trainers=MAPS - 1))
    wait_for(lambda: c.kubectl("-n", NS, "get", "serviceaccount", "default", check=False).returncode == 0, 30)
    apply(c, *(attacker(i) for i in range(PODS)))
    c.kubectl("-n", NS, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    apart(victim.uids)
    time.sleep(3)
    since, seen = time.time(), victim.waits.so_far()
    time.sleep(ATTACK_S)
    now = victim.waits.so_far()
    quiet, late = victim.figures(since, time.time())
    print(f"quiet: {victim.transfers} transfers, {1000 * quiet:.1f} ms ({1000 * victim.longest:.0f} at most), its processes {each(now, seen, victim.transfers)}; "
          f"status after {late:.2f} s at most")
    failed = []
    named = os.environ.get("CASES", "").split()
    for case in TESTS:
        if named and case.__name__ not in named:
            continue
        try:
            case(c, lambda begin: under(c, victim, quiet, case.__name__.replace("_", " "), begin))
        except Exception as e:
            failed.append(f"{case.__name__}: {e}")
            print("FAILED", failed[-1], flush=True)
            # The next attack finds a healthy operator.
            c.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/weightbridge-operator")
            c.kubectl("-n", SYSTEM, "rollout", "status", "deployment/weightbridge-operator", "--timeout=120s")
            wait_for(lambda: all(h[1] == "True" for h in health(c).values()) and len(health(c)) == 2, 60, 0.5)
            time.sleep(5)
            victim.ready(90)
    assert not failed, failed


if __name__ == "__main__":
    run(main, __file__)
