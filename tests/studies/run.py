#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [STUDY...] [--draw] [--out FOLDER]   Predict the deployments of the studies, or of those that are named, with
wbctl simulate, write down what it says in FOLDER/results.json, and draw FOLDER/STUDY.svg. FOLDER is the one of this file
unless another is given; --draw: from results.json alone. $WB_BUILD: where bin/wbctl is (build/release)."""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import studies  # noqa: E402 (beside this file)

BIN = os.path.join(os.environ.get("WB_BUILD", os.path.join(HERE, "../../build/release")), "bin", "wbctl")
# What is kept of a line: not how long planning took here.
KEPT = ("workers", "nodes", "engines", "model_bytes", "peers_max", "t_min_ms", "ewtt_ms", "agst_ms", "trainer_ms",
        "ewtt_over_tmin", "ewtt_over_tmin_loop", "agst_over_tmin", "agst_over_tmin_loop", "agst_early_over_tmin",
        "ewtt_over_tmin_paper", "agst_over_tmin_paper", "busiest", "busiest_share")


def predict(case):
    """What wbctl simulate says of a case; studies that share one ask once (run())."""
    done = subprocess.run([BIN, "simulate", "--json", *case.args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(case.args)}: {done.stderr}")
    line = json.loads(done.stdout)
    print(f"{' '.join(os.path.basename(a) for a in case.args)}: EWTT {line['ewtt_over_tmin_loop']:.3f}, "
          f"AGST {line['agst_over_tmin_loop']:.3f} x T_min", flush=True)
    return {k: line[k] for k in KEPT}


def run(chosen, results):
    cases = {c.args: c for s in chosen for c in s.cases}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = dict(zip(cases, pool.map(predict, cases.values())))
    for s in chosen:
        results[s.name] = [lines[c.args] for c in s.cases]


def draw(chosen, results, out):
    with open(os.path.join(HERE, "paper.json"), encoding="utf-8") as f:
        paper = json.load(f)
    for s in chosen:
        with open(os.path.join(out, s.name + ".svg"), "w", encoding="utf-8") as f:
            f.write(s.draw(results[s.name], s.cases, paper).svg())


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("study", nargs="*")
    p.add_argument("--draw", action="store_true")
    p.add_argument("--out", default=HERE)
    o = p.parse_args()
    known = {s.name: s for s in (*studies.STUDIES, studies.SMALL)}
    for name in o.study:
        if name not in known:
            p.error(f"no study {name}: there are {', '.join(known)}")
    chosen = [known[n] for n in o.study] or studies.STUDIES
    path, results = os.path.join(o.out, "results.json"), {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            results = json.load(f)
    if not o.draw:
        run(chosen, results)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
    draw(chosen, results, o.out)


if __name__ == "__main__":
    main()
