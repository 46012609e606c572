# SPDX-License-Identifier: Apache-2.0
"""wbctl bench on devices: what it counts has crossed the wires, with one rail and with two, by hand and by agents."""
import json
import os
import subprocess

from bench import WBCTL, measure
from wire import Crossing, run


def what_is_counted_has_crossed_the_wires():
    for pairs in (1, 2):
        with Crossing() as c:
            sheet = measure("--rails", str(pairs), "--sizes", "64Ki,1Mi", "--depths", "1,4", "--seconds", "4",
                            pairs=pairs)
        counted = sum(x["chunks"] * x["bytes"] for x in sheet["bandwidth"])
        assert len(sheet["bandwidth"]) == 8 and sheet["transport"] == "verbs", sheet
        assert all(x["bytesPerSecond"] > 0 and x["receiverPerGiB"]["workRequests"] > 0 for x in sheet["bandwidth"]), sheet
        assert c["vb0"] + c["vb1"] > counted and c["lo"] < 1 << 20, (c.bytes, counted)
        assert (c["vb1"] > counted / 8) == (pairs == 2), (c.bytes, counted)
        print(f"{pairs} rails: counted {counted}, sent {c.bytes}", flush=True)


def between_the_places_of_two_agents_it_crosses_their_wires():
    """r0 is on the ends `b`, and t0, which starts the source, on the ends `a`: each has two devices."""
    from rdma import Wired  # its names are taken at the import
    from test_agents import all_end, start
    with Wired() as c:
        t, r = start(c, 1, engines=1)
        env = {**os.environ, "WEIGHTBRIDGE_AGENT_PAGES": f"{c.agents['r0'].socket}.http"}
        with Crossing() as wires:
            p = subprocess.run([WBCTL, "bench", "--to", "t0", "--agent", f"127.0.0.1:{c.agents['t0'].http}", "--transport",
                                "verbs", "--memory", "4Mi", "--sizes", "64Ki,1Mi", "--depths", "1,4", "--seconds", "4",
                                "--timeout", "30", "--json"], capture_output=True, text=True, timeout=150, check=False, env=env)
        assert p.returncode == 0, p.stderr
        sheet = json.loads(p.stdout)
        counted = sum(x["chunks"] * x["bytes"] for x in sheet["bandwidth"])
        assert sheet["transport"] == "verbs" and sheet["agents"] == {"from": "t0", "to": "r0"}, sheet
        assert sheet["source"]["rails"] == 2 and sheet["readLatency"], sheet
        assert all(x["rails"] == 2 and x["bytesPerSecond"] > 0 for x in sheet["bandwidth"]), sheet
        assert wires["va0"] + wires["va1"] > counted and min(wires["va0"], wires["va1"]) > counted / 8, (wires.bytes, counted)
        assert wires["lo"] < counted / 4, (wires.bytes, counted)  # words
        print(f"counted {counted}, sent {wires.bytes}", flush=True)
        all_end(c, t + r)


run([what_is_counted_has_crossed_the_wires, between_the_places_of_two_agents_it_crosses_their_wires])
