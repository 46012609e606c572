# SPDX-License-Identifier: Apache-2.0
"""wbctl bench --to AGENT: one command measures between the places of two agents of a plan, and what is said when it cannot."""
import concurrent.futures
import contextlib
import errno
import glob
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

from cluster import BUILD, SANITIZED, SLOW, Cluster, OnTerminal, run
from test_transfer import deploy, engine, send, sent, updated

WBCTL = os.path.join(BUILD, "bin", "wbctl")
QUICK = ("--seconds", "1", "--sizes", "64Ki", "--depths", "1,4")
LONG = ("--seconds", "500", "--sizes", "1Mi", "--depths", "4", "--sums", "on")


def env_of(c, name, **more):
    """As in the container of an agent."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEIGHTBRIDGE_")}
    return {**env, "WEIGHTBRIDGE_AGENT_PAGES": f"{c.agents[name].socket}.http", **more}


def command(c, to, *args, at=None):
    """Pages of agents of one machine are at ports of their own."""
    where = ["--agent", f"127.0.0.1:{c.agents[at or to].http}"] if (at or to) in c.agents else []
    return [WBCTL, "bench", "--to", to, *where, *args]


def bench(c, here, to, *args, at=None, **env):
    p = subprocess.run(command(c, to, *args, at=at), capture_output=True, text=True, timeout=90 * SLOW, check=False,
                       env=env_of(c, here, **env))
    return p.returncode, p.stdout, p.stderr


def good(c, here, to, *args, **kw):
    c.until("the last source is gone", lambda: not children(c.agents[to].p.pid))
    rc, out, err = bench(c, here, to, *QUICK, "--json", *args, **kw)
    assert rc == 0 and not err, (rc, out, err)
    return json.loads(out)


def refused(c, here, to, *args, words, **kw):
    rc, out, err = bench(c, here, to, *QUICK, *args, **kw)
    assert rc == 1 and not out and words in err, (rc, out, err)
    assert len(err.splitlines()) == 1 and "ticket=" not in err, err
    return err


# Of an agent whose sources are shell scripts: the sanitizer that Python preloads ends a shell.
BARE = {"LD_PRELOAD": ""}


@contextlib.contextmanager
def two(*args, **kw):
    """A trainer pod t0 and an engine's pod r0, in one plan."""
    with Cluster() as c:
        c.t, c.r = deploy(c, trainers=1, per_engine=1, args=args, **kw)
        yield c


@contextlib.contextmanager
def own_wbctl(script, **kw):
    """As two(), where the program beside t0's agent is @script: {} is the folder, and there is a FIFO "go" in it."""
    with Cluster() as c:
        alone = c.path("weightbridge-agent")
        shutil.copy(os.path.join(BUILD, "bin", "weightbridge-agent"), alone)
        os.mkfifo(c.path("go"))
        with open(c.path("wbctl"), "w", encoding="ascii") as f:
            f.write(script.format(c.dir))
        os.chmod(c.path("wbctl"), 0o755)
        agent = c.agent
        c.agent = lambda name, *args: agent(name, *args, **({"program": os.path.relpath(alone, BUILD), "env": BARE} if name == "t0" else {}))
        c.t, c.r = deploy(c, trainers=1, per_engine=1, **kw)
        yield c


def let_go(fifo, later=False):
    """Whoever reads there, or will, goes on."""
    def write():
        with open(fifo, "w", encoding="ascii") as f:
            f.write("\n")
    if later:
        threading.Thread(target=write, daemon=True).start()
        return
    end = time.monotonic() + 10 * SLOW  # nobody comes when the agent has ended who would
    while True:
        try:
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as e:
            assert e.errno == errno.ENXIO and time.monotonic() < end, f"nobody reads {fifo}: {e}"
            time.sleep(0.01)
    os.write(fd, b"\n")
    os.close(fd)


def check(sheet, transport, rails, here="r0", there="t0", encrypted=False):
    assert sheet["agents"] == {"from": there, "to": here}, sheet
    assert sheet["transport"] == transport and sheet["encrypted"] is encrypted and sheet["spinning"] is False, sheet
    assert sheet["source"]["rails"] == rails and sheet["source"]["memoryBytes"] >= 64 << 20, sheet
    assert sheet["version"] and sheet["from"] and sheet["memcpyBytesPerSecond"] > 0, sheet
    assert [x["rails"] for x in sheet["latency"]] == [rails], sheet
    assert len(sheet["readLatency"]) == (transport == "verbs"), sheet
    assert {(x["rails"], x["sums"], x["bytes"], x["depth"]) for x in sheet["bandwidth"]} == \
        {(rails, sums, 65536, depth) for sums in (False, True) for depth in (1, 4)}, sheet
    for x in sheet["latency"] + sheet["bandwidth"]:
        assert x["chunks"] >= 4 and 0 < x["minMicroseconds"] <= x["medianMicroseconds"] <= x["p99Microseconds"], x
    for x in sheet["bandwidth"]:
        assert x["bytesPerSecond"] > 0 and x["receiverPerGiB"]["controlBytes"] > 0, x


def children(pid):
    """Processes that this one has started and that live."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as f:
            rest = f.read().rsplit(") ", 1)[1].split()
            if int(rest[1]) == pid and rest[0] != "Z":
                found.append(int(path.split("/")[2]))
    return found


def source_of(c, name):
    """The source of an agent, as soon as there is one."""
    return c.until("a source", lambda: children(c.agents[name].p.pid))[0]


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


@contextlib.contextmanager
def measuring(c, here="r0", to="t0", *args):
    """A long measurement; its receiver and the process id of its source.  Both ends are connected."""
    r = OnTerminal("receiver", command(c, to, *LONG, *args), env_of(c, here))
    try:
        r.expect(r"2 of 2: 1 MiB, 4 deep")
        yield r, source_of(c, to)
    finally:
        r.end()


def figures_come_over_tcp_and_memory_in_both_directions():
    with two("--rails", "2") as c:
        check(good(c, "r0", "t0"), "tcp", 2)
        check(good(c, "t0", "r0", "--transport", "shm", "--rails", "1"), "shm", 1, here="t0", there="r0")
        check(good(c, "r0", "t0", "--encrypt"), "tcp", 2, encrypted=True)
        c.agents["t0"].expect(r"measurement begins for=r0 transport=tcp rails=2", reject=None)
        c.agents["t0"].expect(r"measurement ended for=r0 how=\"?it is through", reject=None)
        rc, out, err = bench(c, "r0", "t0", *QUICK)
        assert rc == 0 and "from agent t0 to agent r0, 2 rails there" in out and " GB/s " in out, (out, err)
        for name in ("t0", "r0"):
            c.until(f"the source of {name} is gone", lambda name=name: not children(c.agents[name].p.pid))


def status(c, name):
    return json.loads(c.get(c.agents[name], "/status")[1])


def without_a_transport_the_one_that_weights_take_is_measured():
    for args, spec in (("auto", {}), ("tcp,shm", {}), ("tcp", {}), ("tcp", {"transport": {"encryption": "TLS"}})):
        with two("--transport", args, operator=spec) as c:
            send(c.t, 1)
            sent(c.t, 1, "Committed")
            updated(c.r["e0"], 1)
            by = next(p["transport"] for o in status(c, "r0")["objects"] for p in o["peers"] if p["gets"])
            c.until("t0 is through", lambda c=c: not status(c, "t0")["busy"])
            check(good(c, "r0", "t0"), by.removesuffix("+tls"), 1, encrypted=by.endswith("+tls"))


def over_memory_in_a_folder_nothing_is_left_there():
    with tempfile.TemporaryDirectory() as tmp, two("--transport", "shm,tcp", "--shm-folder", tmp) as c:
        before = os.listdir(tmp)
        sheet = good(c, "r0", "t0", "--rails", "2")
        check(sheet, "shm", 2)
        assert sheet["from"].count(f"unix:{tmp}/wb-bench-") == 2, sheet
        with measuring(c, "r0", "t0", "--rails", "2") as (_, pid):
            os.kill(pid, signal.SIGKILL)
            c.agents["t0"].expect("measurement ended .*without a word", reject=None)
        assert os.listdir(tmp) == before, os.listdir(tmp)


def over_verbs_devices_are_those_of_the_agents():
    with Cluster() as c:
        env = {"LD_LIBRARY_PATH": os.path.join(BUILD, "fake"), "FAKEVERBS_WORLD": c.path("world")}
        c.operator(trainers=1, per_engine=1)
        for name in ("t0", "r0"):
            c.agent(name, "--transport", "verbs,tcp", "--rail-device", "fake0,fake1", env=env)
        w = [c.worker("t0", "trainer"), c.worker("r0", "rollout", engine="e0")]
        for x in w:
            x.expect("planned")
        check(good(c, "r0", "t0", **env), "verbs", 2)


def pages_of_the_other_agent_are_looked_for_at_the_own_port():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("t0")
        c.agent("r0", "--listen", "127.0.0.2:0", "--http", f"127.0.0.2:{c.agents['t0'].http}")
        w = [c.worker("t0", "trainer"), c.worker("r0", "rollout", engine="e0")]
        for x in w:
            x.expect("planned")
        p = subprocess.run([WBCTL, "bench", "--to", "r0", *QUICK, "--json"], capture_output=True, text=True,
                           timeout=90 * SLOW, check=False, env=env_of(c, "t0"))
        assert p.returncode == 0, p.stderr
        check(json.loads(p.stdout), "tcp", 1, here="t0", there="r0")
        assert json.loads(p.stdout)["from"].startswith("127.0.0.2:"), p.stdout


def agents_that_are_not_known_are_answered_with_those_that_are():
    with two(engines=2) as c:
        err = refused(c, "r0", "r7", words="no plan of agent r0 has an agent r7; there are: ")
        assert {"t0", "r1"} == set(re.findall(r"\b[tr][01]\b", err.split("there are: ")[1])), err
        refused(c, "r0", "r0", words="agent r0 is the one of this container")
        refused(c, "r0", "t0", at="r1", words="this is agent r1 and not t0: --agent HOST:PORT has to name")
    p = subprocess.run([WBCTL, "bench", "--to", "t0"], capture_output=True, text=True, timeout=60, check=False,
                       env={k: v for k, v in os.environ.items() if not k.startswith("WEIGHTBRIDGE_")})
    assert p.returncode == 1 and "it is no address" in p.stderr and "kubectl exec POD" in p.stderr, p.stderr


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30 * SLOW)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def page(path, sock=None, port=None):
    """(status, text); over the socket of an agent, or its port."""
    h = Unix(sock) if sock else http.client.HTTPConnection("127.0.0.1", port, timeout=30 * SLOW)
    with contextlib.closing(h):
        h.request("GET", path)
        r = h.getresponse()
        return r.status, r.read().decode()


def ask(c, to, t, **change):
    q = {"for": t["for"], "ticket": t["ticket"], **change}
    return page("/bench?" + urllib.parse.urlencode(q), port=c.agents[to].http)


def a_source_is_started_by_a_ticket_for_every_word_of_it_and_once():
    """And no secret goes over a port."""
    with two(engines=2) as c:
        sock = f"{c.agents['r0'].socket}.http"
        status, text = page("/tickets?bench=t0", sock=sock)
        assert status == 200, text
        t = json.loads(text)
        assert len(t["key"]) == 64 and t["key"] not in t["for"] and t["hosts"] == ["127.0.0.1"], t
        status, said = page("/tickets?bench=t0", port=c.agents["r0"].http)
        assert status == 401 and "on the agent's socket alone" in said and t["key"] not in said, said
        other = json.loads(page("/tickets?bench=t0", sock=sock)[1])
        digest = page("/tickets", sock=sock)[1].strip()
        words = t["for"].split("/")
        for forged in ({"ticket": ""}, {"ticket": t["ticket"][:-1] + "x"}, {"ticket": other["ticket"]}, {"ticket": digest},
                       {"for": other["for"]}, {"for": ""}, {"for": t["for"].replace("/t0", "/r1")},
                       *({"for": "/".join([*words[:i], new, *words[i + 1:]])}
                         for i, new in ((1, "shm"), (2, "16"), (3, "268435456"), (4, "4-f"), (5, "r1")))):
            status, said = ask(c, "t0", t, **forged)
            assert status == 401 and "it is for agents of a plan with this one" in said, (forged, status, said)
        assert not children(c.agents["t0"].p.pid)
        status, said = page("/digest?ticket=" + t["ticket"], port=c.agents["t0"].http)
        assert status == 200, said  # from this pod; and the ticket opens no other page elsewhere
        status, said = ask(c, "t0", t)
        assert status == 200 and t["key"] not in said, said
        assert json.loads(said)["source"]["key"] is None and json.loads(said)["agent"] == "t0", said
        os.kill(source_of(c, "t0"), signal.SIGKILL)
        c.agents["t0"].expect("measurement ended", reject=None)
        status, said = ask(c, "t0", t)
        assert status == 403 and "this ticket was used before" in said, said


def a_source_that_nobody_comes_to_ends():
    with two() as c:
        t = json.loads(page("/tickets?bench=t0", sock=f"{c.agents['r0'].socket}.http")[1])
        assert ask(c, "t0", t)[0] == 200
        said = c.agents["t0"].expect("measurement ended .*", reject=None)[0]
        assert "no receiver came to 127.0.0.1:" in said and "in 5 s" in said, said
        assert not children(c.agents["t0"].p.pid)


def one_that_goes_away_while_its_source_starts_is_out_of_the_way_soon():
    """A page that waits does not notice that.  A second one is told who measures, and may try again."""
    with own_wbctl(f"#!/bin/sh\nread go <{{}}/go\nexec {WBCTL} \"$@\"\n", engines=2) as c:
        t = json.loads(page("/tickets?bench=t0", sock=f"{c.agents['r0'].socket}.http")[1])
        h = http.client.HTTPConnection("127.0.0.1", c.agents["t0"].http)
        h.request("GET", "/bench?" + urllib.parse.urlencode({"for": t["for"], "ticket": t["ticket"]}))
        source_of(c, "t0")
        h.close()
        refused(c, "r1", "t0", words="agent t0 measures already, for agent r0 since ")
        let_go(c.path("go"))
        said = c.agents["t0"].expect("measurement ended .*", reject=None)[0]
        assert "in 5 s" in said, said
        let_go(c.path("go"), later=True)
        check(good(c, "r1", "t0"), "tcp", 1, here="r1")


def who_waits_for_a_source_gets_it_although_the_plan_is_another_by_then():
    """The epoch of its ticket goes with the second plan after it."""
    script = "#!/bin/sh\nread go <{0}/go\nprintf '{{\n \"to\": \"here\"\n}}\n'\nread go <{0}/stay\n"
    with own_wbctl(script, engines=2) as c, concurrent.futures.ThreadPoolExecutor(1) as pool:
        def another_plan(w):
            w.kill()
            new = engine(c, 1, 1)[0]
            new.expect("planned")
            return new

        os.mkfifo(c.path("stay"))
        t, late = (json.loads(page("/tickets?bench=t0", sock=f"{c.agents['r0'].socket}.http")[1]) for _ in range(2))
        w = another_plan(c.r["e1"][0])
        answer = pool.submit(ask, c, "t0", t)
        source_of(c, "t0")
        assert ask(c, "t0", late)[0] == 409
        another_plan(w)
        c.until("that epoch is over", lambda: ask(c, "t0", late)[0] == 401)
        let_go(c.path("go"))
        status, said = answer.result()
        assert status == 200 and json.loads(said)["source"]["to"] == "here", (status, said)
        let_go(c.path("stay"))


def a_receiver_says_how_much_memory_it_takes_and_is_told_when_that_is_not_there():
    with tempfile.TemporaryDirectory() as tmp, socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.join(tmp, "s.http"))
        s.listen()
        for args, landing in (((), 64 << 20), (("--sizes", "64Mi", "--depths", "64"), 4 << 30),
                              (("--sizes", "64Mi", "--depths", "2", "--rails", "1,2"), 256 << 20)):
            env = {**os.environ, "WEIGHTBRIDGE_AGENT_PAGES": os.path.join(tmp, "s.http")}
            p = subprocess.Popen([WBCTL, "bench", "--to", "t0", *args], stderr=subprocess.PIPE, text=True, env=env)
            conn = s.accept()[0]
            with conn:
                asked = conn.recv(4096).decode()
                conn.sendall(b"HTTP/1.0 503 x\r\nContent-Length: 14\r\n\r\nagent r0: less")
            assert f"&landing={landing}&" in asked.split()[1] + "&", (args, asked)
            said = p.communicate(timeout=60 * SLOW)[1]
            assert p.returncode == 1 and "agent r0: less" in said, said


def one_who_waits_for_another_measurement_takes_one_ticket():
    """Each sets memory aside at the agent that gives it."""
    asked = []

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path.split("?")[0])
            body = json.dumps({"agent": "r0", "hosts": ["127.0.0.1"], "http": pages.server_port, "for": "x", "ticket": "y"})
            busy = self.server is pages
            self.send_response(409 if busy else 200)
            self.end_headers()
            self.wfile.write(b"agent t0 measures already" if busy else body.encode())

        def address_string(self):
            return "here"

        def log_message(self, *_):
            pass

    class OnSocket(http.server.HTTPServer):
        address_family = socket.AF_UNIX

        def server_bind(self):
            self.socket.bind(self.server_address)

    with tempfile.TemporaryDirectory() as tmp:
        pages, own = http.server.HTTPServer(("127.0.0.1", 0), Pages), OnSocket(os.path.join(tmp, "s.http"), Pages)
        for s in (pages, own):
            threading.Thread(target=s.serve_forever, daemon=True).start()
        env = {**os.environ, "WEIGHTBRIDGE_AGENT_PAGES": os.path.join(tmp, "s.http")}
        r = subprocess.run([WBCTL, "bench", "--to", "t0"], capture_output=True, text=True, timeout=60 * SLOW, check=False, env=env)
        assert r.returncode == 1 and "agent t0 measures already" in r.stderr, r
        assert asked.count("/tickets") == 1 and asked.count("/bench") > 1, asked
        for s in (pages, own):
            s.shutdown()
            s.server_close()


def a_second_measurement_is_refused_with_the_name_of_the_first():
    with two(engines=2) as c, measuring(c) as (p, pid):
        for one in (p.p.pid, pid):  # the kernel takes them before the agent
            with open(f"/proc/{one}/oom_score_adj", encoding="ascii") as f:
                assert f.read().strip() == "1000", one
        refused(c, "r1", "t0", words="agent t0 measures already, for agent r0 since ")
        check(good(c, "t0", "r1"), "tcp", 1, here="t0", there="r1")  # another agent is another place


def a_transfer_under_way_is_not_disturbed_unless_that_is_asked_for():
    """The engine is stopped, so that the transfer waits for it.  At both agents, whoever has the source."""
    with two() as c:
        t = json.loads(page("/tickets?bench=t0", sock=f"{c.agents['r0'].socket}.http")[1])
        e0 = c.r["e0"][0]
        os.kill(e0.p.pid, signal.SIGSTOP)
        send(c.t, 1)
        for name in ("t0", "r0"):
            c.until(f"{name} is busy", lambda name=name: status(c, name)["busy"])
        words = "a transfer is under way at agent {}, and a measurement would take from its links: wait for its end"
        code, said = ask(c, "t0", t)
        assert code == 503 and words.format("t0") in said, (code, said)
        refused(c, "r0", "t0", words=words.format("r0"))
        check(good(c, "r0", "t0", "--force"), "tcp", 1)
        os.kill(e0.p.pid, signal.SIGCONT)
        sent(c.t, 1, "Committed")
        updated([e0], 1)
        c.until("both are through", lambda: not status(c, "t0")["busy"] and not status(c, "r0")["busy"])
        check(good(c, "r0", "t0"), "tcp", 1)


def an_agent_that_does_not_want_to_is_not_measured():
    with Cluster() as c:
        c.operator(trainers=1, per_engine=1)
        c.agent("t0", "--no-bench")
        c.agent("r0")
        w = [c.worker("t0", "trainer"), c.worker("r0", "rollout", engine="e0")]
        for x in w:
            x.expect("planned")
        refused(c, "r0", "t0", words="agent t0 does not take part in measurements: it was started with --no-bench")
        refused(c, "t0", "r0", words="agent t0 does not take part in measurements: it was started with --no-bench")


def without_wbctl_beside_the_agent_that_is_said():
    """Or where what is there is none, or speaks without an end."""
    with Cluster() as c:
        alone = c.path("weightbridge-agent")
        shutil.copy(os.path.join(BUILD, "bin", "weightbridge-agent"), alone)
        c.operator(trainers=1, per_engine=1)
        c.agent("t0", program=os.path.relpath(alone, BUILD), env=BARE)
        c.agent("r0")
        w = [c.worker("t0", "trainer"), c.worker("r0", "rollout", engine="e0")]
        for x in w:
            x.expect("planned")
        t = json.loads(page("/tickets?bench=t0", sock=f"{c.agents['r0'].socket}.http")[1])
        status, said = ask(c, "t0", t)
        assert status == 503 and f"there is no wbctl beside its program ({c.path('wbctl')}): install it there" in said, said
        assert ask(c, "t0", t)[0] == 403  # a ticket is for one try
        for script, words in (("echo 'wbctl: it has no such option' >&2; exit 2", "wbctl: it has no such option"),
                              ("exec yes", "what it said was no answer"), ("exit 0", "its source ended without a word"),
                              ("kill -9 $$", "its source ended without a word")):
            with open(c.path("wbctl.new"), "w", encoding="ascii") as f:
                f.write(f"#!/bin/sh\n{script}\n")
            os.chmod(c.path("wbctl.new"), 0o755)
            os.rename(c.path("wbctl.new"), c.path("wbctl"))
            refused(c, "r0", "t0", words=f"agent t0 could not start a source: {words}")
        assert not children(c.agents["t0"].p.pid)


def more_memory_than_there_may_be_is_refused():
    with two() as c:
        refused(c, "r0", "t0", "--memory", "512Mi", words="an agent starts none of more than 256 MiB")
        refused(c, "r0", "t0", "--memory", "32Ki", words="has 32 KiB of memory and 64 KiB are asked for")
        sheet = good(c, "r0", "t0", "--memory", "1Mi")
        assert sheet["source"]["memoryBytes"] == 1 << 20, sheet


def an_agent_that_stops_takes_its_source_with_it():
    for how, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -9)):
        with two() as c, measuring(c) as (p, pid):
            a = c.agents["t0"].p
            a.send_signal(how)
            p.expect(r"the source at 127.0.0.1:\d+ went away, at 1 MiB, 4 deep")
            assert p.p.wait() == 1 and a.wait(30 * SLOW) == code
            c.until("the source is gone", lambda pid=pid: gone(pid))


def a_receiver_that_is_killed_frees_the_agent_at_once():
    with two() as c, measuring(c) as (p, pid):
        p.p.kill()
        said = c.agents["t0"].expect("measurement ended .*", reject=None)[0]
        assert "the receiver went away before it was through" in said, said
        assert gone(pid) and c.agents["t0"].p.poll() is None
        check(good(c, "r0", "t0"), "tcp", 1)


def options_of_one_form_are_refused_in_another():
    for args, words in ((("--to", "t0", "--key-file", "-"), "--key-file goes with addresses"),
                        (("--to", "t0", "--wait", "3"), "--wait goes with --listen"),
                        (("--to", "@x", "--force"), "--force goes with --to AGENT"),
                        (("--to", "t0", "--seconds", "3600"), "an agent ends a measurement after ten minutes"),
                        (("--listen", "127.0.0.1", "--parent", "1"), "was not started by it")):
        p = subprocess.run([WBCTL, "bench", *args], capture_output=True, text=True, timeout=60 * SLOW, check=False,
                           stdin=subprocess.DEVNULL)
        assert p.returncode == 1 and words in p.stderr, (args, p.returncode, p.stderr)


# What a source is started, followed and ended by; the other tests are of wbctl and of transports, which have their own.
OF_AGENTS = (a_source_is_started_by_a_ticket_for_every_word_of_it_and_once,
             one_that_goes_away_while_its_source_starts_is_out_of_the_way_soon,
             who_waits_for_a_source_gets_it_although_the_plan_is_another_by_then,
             without_wbctl_beside_the_agent_that_is_said, an_agent_that_stops_takes_its_source_with_it,
             a_receiver_that_is_killed_frees_the_agent_at_once)
OTHERS = (figures_come_over_tcp_and_memory_in_both_directions, without_a_transport_the_one_that_weights_take_is_measured,
          over_memory_in_a_folder_nothing_is_left_there, over_verbs_devices_are_those_of_the_agents,
          pages_of_the_other_agent_are_looked_for_at_the_own_port,
          agents_that_are_not_known_are_answered_with_those_that_are, a_source_that_nobody_comes_to_ends,
          a_receiver_says_how_much_memory_it_takes_and_is_told_when_that_is_not_there,
          one_who_waits_for_another_measurement_takes_one_ticket,
          a_second_measurement_is_refused_with_the_name_of_the_first,
          a_transfer_under_way_is_not_disturbed_unless_that_is_asked_for, an_agent_that_does_not_want_to_is_not_measured,
          more_memory_than_there_may_be_is_refused, options_of_one_form_are_refused_in_another)

run(*OF_AGENTS, *(() if SANITIZED else OTHERS), together=3)
