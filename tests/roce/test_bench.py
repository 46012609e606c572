# SPDX-License-Identifier: Apache-2.0
"""wbctl bench on devices: what it counts has crossed the wires, with one rail and with two."""
from bench import measure
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


run([what_is_counted_has_crossed_the_wires])
