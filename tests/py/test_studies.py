# SPDX-License-Identifier: Apache-2.0
"""tests/studies: the script predicts and draws, and its pictures are those of its results.  Standard library only."""
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

TOP = os.environ.get("WB_TOP", ".")
STUDIES = os.path.join(TOP, "tests", "studies")
SVG = "{http://www.w3.org/2000/svg}"


def run(*args):
    return subprocess.run([sys.executable, "-B", os.path.join(STUDIES, "run.py"), *args], capture_output=True, text=True, check=False)


def a_study_is_predicted_and_drawn(folder):
    done = run("small", "--out", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("T_min") == 2, done.stdout  # a line a deployment, as they end
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as f:
        one, two = json.load(f)["small"]
    assert (one["engines"], two["engines"]) == (1, 2) and two["ewtt_ms"] > one["ewtt_ms"] > one["t_min_ms"] > 0, (one, two)
    picture = ET.parse(os.path.join(folder, "small.svg")).getroot()
    lines = {g.find(SVG + "title").text: g.find(SVG + "polyline") for g in picture.iter(SVG + "g")}
    points = [tuple(map(float, p.split(","))) for p in lines["EWTT"].get("points").split()]
    assert len(points) == 2 and points[0][0] < points[1][0] and points[0][1] > points[1][1], points  # y grows downwards


def the_pictures_are_those_of_the_results(folder):
    shutil.copy(os.path.join(STUDIES, "results.json"), folder)
    done = run("--draw", "--out", folder)
    assert done.returncode == 0, done.stderr
    drawn = sorted(n for n in os.listdir(STUDIES) if n.endswith(".svg"))
    assert len(drawn) == 8, drawn
    for name in drawn:
        assert filecmp.cmp(os.path.join(folder, name), os.path.join(STUDIES, name), shallow=False), f"{name}: run.py --draw"


def a_study_that_is_not_there_is_refused():
    done = run("smal")
    assert done.returncode == 2 and "no study smal: there are deployments" in done.stderr, done


def main():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        a_study_is_predicted_and_drawn(folder)
        the_pictures_are_those_of_the_results(other)
        a_study_that_is_not_there_is_refused()
    print("ok")


main()
