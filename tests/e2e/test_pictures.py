# SPDX-License-Identifier: Apache-2.0
"""Pictures: the page that wbctl writes and the operator serves draws what it was given, in a real browser (headless
Chromium), at the width of a telephone too, and asks nobody else for anything.  CHROMIUM=PATH names another browser;
KEEP=FOLDER keeps the pages and screenshots.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from cluster import BUILD, Cluster, run

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
         "--allow-file-access-from-files", "--hide-scrollbars")


def browse(url, *args, ms=4000):
    """What the browser prints, and what the page's scripts complained of."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        done = subprocess.run([BROWSER, *QUIET, f"--user-data-dir={home}", f"--virtual-time-budget={ms}", *args, url],
                              capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, [x for x in done.stderr.splitlines() if "CONSOLE" in x]
    return done.stdout


def wbctl(*args):
    return subprocess.run([f"{BUILD}/bin/wbctl", *args], capture_output=True, text=True, check=True)


def count(dom, svg, shape):
    """Shapes of one picture."""
    at = dom.index(f'id="{svg}"')
    return dom[at:dom.index("</svg>", at)].count(f"<{shape} ")


def text_of(dom, name):
    return re.search(rf'id="{name}"[^>]*>([^<]*)<', dom)[1]


def looks_well(path, keep):
    """Nothing is fetched from elsewhere, it fits on a telephone, and a screenshot shows something."""
    with open(path, encoding="utf-8") as f:
        page = f.read()
    assert set(re.findall(r"https?://[^/\"' ]+", page)) <= {"http://www.w3.org"}, "the page names other hosts"
    frame = path + ".frame.html"
    with open(frame, "w", encoding="utf-8") as f:
        f.write(f'<iframe src="{os.path.basename(path)}" style="width:390px;height:800px;border:0" onload="document.title='
                "'wide ' + this.contentDocument.documentElement.scrollWidth\"></iframe>")
    wide = int(re.search(r"<title>wide (\d+)</title>", browse("file://" + frame, "--dump-dom"))[1])
    assert wide <= 390, f"{wide} pixels wide on a screen of 390"
    png = path + ".png"
    browse("file://" + path, "--window-size=1000,1600", f"--screenshot={png}")
    with open(png, "rb") as f:
        head = f.read(24)
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", head[16:]) == (1000, 1600), head
    assert os.path.getsize(png) > 20000, "an empty picture"
    if keep:
        shutil.copy(path, keep)
        shutil.copy(png, keep)


def drawn(path, keep):
    looks_well(path, keep)
    dom = browse("file://" + path, "--dump-dom")
    assert 'data-drawn="yes"' in dom
    return dom


def a_prediction_and_its_plan(folder, keep):
    args = ("simulate", "--model", "Qwen3-0.6B", "--trainer", "megatron:tp2,pp2", "--rollout", "vllm:tp2", "--engines", "2")
    path = os.path.join(folder, "prediction.html")
    wbctl(*args, "--html", path)
    said = json.loads(wbctl(*args, "--json").stdout)
    dom = drawn(path, keep)
    assert count(dom, "rails", "rect") == 4 * said["workers"] and count(dom, "timeline", "path") == 3
    with open(path, encoding="utf-8") as f:
        data = json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', f.read(), re.S)[1])
    tail, rails = data["prediction"]["tail"], data["plan"]["rails"]
    assert f"from {rails[tail['src']]['name']} to {rails[tail['dst']]['name']}" in text_of(dom, "culprit")
    moved = sum(map(sum, data["prediction"]["moved"][:2]))
    assert moved == sum(p[2] for p in data["plan"]["domain_pairs"]) == sum(
        r["receive_bytes"] + r["external_in_bytes"] for r in rails), "what is drawn is what the plan moves"
    assert abs(data["prediction"]["ewtt_ms"] - said["ewtt_ms"]) < 0.01


def text_cannot_leave_its_place(folder):
    """A name that would end the script element, or begin one, is text."""
    nasty = "</script><script>document.title='broken'</script>&<b>"
    deployment, path = os.path.join(folder, "nasty.yaml"), os.path.join(folder, "nasty.html")
    with open(deployment, "w", encoding="utf-8") as f:
        f.write(f'name: "{nasty}"\nmodel: Qwen3-0.6B\ntrainer: transformers:1\nrollout: vllm:tp1\n')
    wbctl("simulate", deployment, "--html", path, "--plan-only")
    dom = browse("file://" + path, "--dump-dom")
    assert "<title>broken" not in dom and "&lt;/script&gt;" in dom


def what_ran(folder, keep):
    with Cluster() as c:
        c.operator(trainers=1, per_engine=2)
        c.agent("t0")
        c.agent("r0")
        workers = [c.worker("t0", "trainer")] + [c.worker("r0", "rollout", i, 2, engine="e0") for i in (0, 1)]
        for w in workers:
            w.expect("planned")
        workers[0].say("send 1")
        workers[0].expect("sent 1")
        operator = ("--operator", f"127.0.0.1:{c.op.http}")
        trace = c.until("a trace of all", lambda: (x := wbctl("trace", *operator).stdout).count('"version 1"') >= 2 and x)
        plan, times = os.path.join(folder, "plan.html"), os.path.join(folder, "trace.html")
        wbctl("plan", "explain", *operator, "--html", plan)
        dom = drawn(plan, keep)
        assert count(dom, "rails", "rect") == 4 * 3 and "r0/worker 2 (rank" in dom
        wbctl("trace", *operator, "--html", times)
        dom = drawn(times, keep)
        spans = [e for e in json.loads(trace)["traceEvents"] if e["ph"] == "X"]
        last = max(spans, key=lambda e: e["ts"] + e["dur"])
        assert count(dom, "trace", "rect") >= len(spans)
        assert f"The tail: {last['name']} of " in text_of(dom, "culprit"), (last, text_of(dom, "culprit"))
        # The operator's own page draws its objects, and says so when it does not answer any more.
        url = f"http://127.0.0.1:{c.op.http}/"
        dom = browse(url, "--dump-dom")
        assert "default/toy" in dom and "1 of 1" in dom and "Ready True" in dom, dom[-3000:]
        if keep:
            browse(url, "--window-size=1000,1000", f"--screenshot={keep}/operator.png")


def pictures():
    with tempfile.TemporaryDirectory() as folder:
        keep = os.environ.get("KEEP")
        a_prediction_and_its_plan(folder, keep)
        text_cannot_leave_its_place(folder)
        what_ran(folder, keep)


if __name__ == "__main__":
    if not BROWSER:
        print("no chromium here (Debian: apt-get install chromium; CHROMIUM=PATH names another)")
        sys.exit(77)
    sys.exit(run(pictures))
