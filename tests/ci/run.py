# SPDX-License-Identifier: Apache-2.0
"""Run the tiers of tiers.py within a budget of minutes.

    run.py [--all] [--list] [TIER...]     CI_MINUTES=75 FLAKES=3

A tier that passed leaves a stamp in the user's cache folder, named by the content of all it depends on and by the
versions of the tools. While nothing of that changes it is skipped with a sentence. What is left runs in this order:
tiers that always run, then those marked first, then those whose paths changed since the last run, then those that
have waited longest. A tier that needs what another one makes comes after it, and waits while that has not passed. A tier
begins only when its minutes (what it took last) fit into what is left of the budget; who
did not fit is named, and comes before others next time. --all knows neither stamps nor budget; named tiers run
whatever their stamps say.

A test that fails is run once more, alone. One that passes then is flaky: it is named at the end, and with more than
FLAKES=3 of them in a run the run has failed. What failed in each tier is written down for counts.py, and the last words
of each are said again at the end: of a long output often only that is at hand.

Exit 0 when nothing failed. The last line is "N passed, N failed, N skipped" over all tiers; a tier that did not run
is one skip.
"""
import argparse
import collections
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

from counts import Ledger, cache
from tiers import ALWAYS, FIRST, TIERS

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAKY = re.compile(r"FLAKY (\S+):")
FAILED = re.compile(r"FAIL (?:fuzz )?([\w-]+)")
COUNTS = re.compile(r"(?:lint: )?(\d+) passed, (\d+) failed, (\d+) skipped")
KEPT = 16  # stamps a tier
LAST = 12  # lines of a failed test that are said again at the end
OVERTIME = 8  # minutes beyond the budget after which a tier that began is ended
TOOLS = ["gcc --version", "clang --version", "clang-tidy --version", "cppcheck --version", "python3 --version", "uname -mr",
         "ldd --version", "pkg-config --modversion libuv libcurl jansson yaml-0.1 openssl libmicrohttpd libxxhash check"]


def first_line(command):
    try:
        r = subprocess.run(command.split(), capture_output=True, text=True, timeout=20)
        return (r.stdout if command.startswith("pkg-config") else r.stdout.split("\n", 1)[0]).strip()
    except OSError:
        return "none"


def tools():
    return "\n".join(f"{c}: {first_line(c)}" for c in TOOLS)


def content(paths):
    """One digest of all files under git pathspecs, as they lie in the work tree, those not yet added among them."""
    r = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
                        *paths], cwd=TOP, capture_output=True, check=True)
    h = hashlib.sha256()
    for name in sorted(set(r.stdout.split(b"\0")) - {b""}):
        path = os.path.join(os.fsencode(TOP), name)
        if os.path.islink(path):
            data = os.readlink(path)
        elif os.path.isfile(path):
            with open(path, "rb") as f:
                data = f.read()
        else:
            continue  # deleted, not yet said so to git
        mode = b"x" if os.access(path, os.X_OK) else b"-"
        h.update(b"%s\0%s\0%s\0" % (name, mode, hashlib.sha256(data).digest()))
    return h.hexdigest()


def key(tier, env, tool_versions):
    knobs = " ".join(f"{k}={env.get(k, v)}" for k, v in sorted(tier.knobs.items()))
    text = "\n".join([tier.command, knobs, content(tier.paths), tool_versions])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Stamps:
    """What is known of each tier from runs before: DIR/NAME.json, replaced whole."""

    def __init__(self, dir):
        self.dir = dir
        os.makedirs(dir, exist_ok=True)

    def read(self, name):
        try:
            with open(os.path.join(self.dir, name + ".json")) as f:
                known = json.load(f)
            if isinstance(known.get("passed"), dict):
                return known
        except (OSError, ValueError, AttributeError):
            pass  # never ran here, or cut short: as if it had never run
        return {"passed": {}, "seen": "", "passed_at": 0, "minutes": None}

    def write(self, name, known):
        path = os.path.join(self.dir, name + ".json")
        with open(f"{path}.{os.getpid()}", "w") as f:
            json.dump(known, f, indent=1)
        os.replace(f.name, path)

    def seen(self, name, key):
        """A run looked at this content, whether or not the tier had its turn."""
        self.write(name, {**self.read(name), "seen": key})

    def took(self, name, minutes):
        self.write(name, {**self.read(name), "minutes": minutes})

    def passed(self, name, key, counts, now):
        known = self.read(name)
        known["passed"][key] = {"at": now, "counts": counts}
        newest = sorted(known["passed"], key=lambda k: known["passed"][k]["at"])[-KEPT:]
        known["passed"] = {k: known["passed"][k] for k in newest}
        self.write(name, {**known, "passed_at": now})


def order(tiers, keys, known):
    """The tiers in the order in which they have their turn; known is what the stamps say of each."""
    named = {t.name: t for t in tiers}

    def rank(tier):
        k = known[tier.name]
        place = (ALWAYS, FIRST).index(tier.when) if tier.when in (ALWAYS, FIRST) else 2
        own = (place, 0, 0) if place < 2 else (place, k["seen"] == keys[tier.name], k["passed_at"])
        if tier.after in named and keys[tier.after] not in known[tier.after]["passed"]:
            return max(own, rank(named[tier.after]))  # what it needs is still owed
        return own
    return sorted(tiers, key=rank)  # stable: the table's order decides the rest


def stamp_sentence(tier, stamp):
    p, f, s = stamp["counts"]
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(stamp["at"]))
    return f"{tier.name}: skipped, it passed with the same content and tools at {at} UTC ({p} passed, {s} skipped)"


class Run:
    def __init__(self, tiers, stamps, env, everything=False, out=sys.stdout, started=None):
        self.tiers, self.stamps, self.env, self.everything, self.out = tiers, stamps, env, everything, out
        self.started = started or time.time()
        self.budget = float(env.get("CI_MINUTES") or 75)
        self.flakes = int(env.get("FLAKES") or 3)
        self.total, self.lines, self.late, self.flaky, self.broken = [0, 0, 0], [], [], [], set()
        self.ledger, self.failed = Ledger(stamps.dir), []
        self.words, self.speaks = {}, None  # of what failed: its last lines; who said the last line, if it failed

    def say(self, text):
        print(text, file=self.out, flush=True)

    def elapsed(self):
        return (time.time() - self.started) / 60

    def go(self, chosen=()):
        versions = tools()
        tiers = [t for t in self.tiers if not chosen or t.name in chosen]
        keys = {t.name: key(t, self.env, versions) for t in tiers}
        known = {t.name: self.stamps.read(t.name) for t in tiers}
        for tier in order(tiers, keys, known):
            stamp = known[tier.name]["passed"].get(keys[tier.name])
            if stamp and tier.when != ALWAYS and not self.everything and not chosen:
                self.skip(stamp_sentence(tier, stamp))
            elif not self.fits(tier, known[tier.name]) and not chosen:
                self.postpone(tier, known[tier.name])
            elif tier.after in keys and not chosen and not self.has_passed(tier.after, keys):
                self.wait(tier)
            else:
                self.one(tier, keys[tier.name])
            if not chosen:
                self.stamps.seen(tier.name, keys[tier.name])
        if len(self.flaky) > self.flakes:
            self.total[1] += 1
        self.end()
        return 1 if self.total[1] else 0

    def fits(self, tier, known):
        if self.everything or tier.when == ALWAYS:
            return True
        return self.elapsed() + (known["minutes"] or tier.minutes) <= self.budget

    def has_passed(self, name, keys):
        return name not in self.broken and keys[name] in self.stamps.read(name)["passed"]

    def wait(self, tier):
        if tier.after not in self.broken:
            self.late.append(tier.name)
        self.skip(f"{tier.name}: skipped, {tier.after} has not passed, which it needs")

    def skip(self, sentence):
        self.say(f"=== {sentence}")
        self.lines.append(sentence)
        self.total[2] += 1

    def postpone(self, tier, known):
        self.late.append(tier.name)
        self.skip(f"{tier.name}: skipped, its {known['minutes'] or tier.minutes:.0f} minutes do not fit: "
                  f"{self.elapsed():.0f} of CI_MINUTES={self.budget:.0f} are gone; it comes earlier next time")

    def one(self, tier, key):
        t0 = time.time()
        rc, counts, cut = self.command(tier)
        minutes = (time.time() - t0) / 60
        p, f, s = counts
        if cut:
            f = max(f, 1) if tier.when == ALWAYS else f
            s += 1
            self.late.append(tier.name)
        elif rc:
            f = max(f, 1)  # a build that breaks is one result
        elif p + f + s == 0:
            p = 1  # so is a command that counts nothing
        self.total = [a + b for a, b in zip(self.total, (p, f, s))]
        self.lines.append(f"{tier.name}: {minutes:.1f} min, {p} passed, {f} failed, {s} skipped"
                          + (", cut by the end of the budget" if cut else ""))
        self.stamps.took(tier.name, minutes)
        if not cut:
            self.ledger.add(tier.name, None, t0, 60 * minutes, p, self.failed or ["(the command)"] * (f > 0), s)
        if f and not cut:
            self.broken.add(tier.name)
        if not f and not cut:
            self.stamps.passed(tier.name, key, [p, f, s], time.time())

    def command(self, tier):
        """Run it to its end or the budget's; returns its exit status, the counts that it printed, whether it was cut."""
        text = tier.command.format(jobs=os.cpu_count() or 1)
        self.say(f"=== {tier.name}: {text}")
        env = {"RERUN": "1", **self.env, **{k: self.env.get(k) or v for k, v in tier.knobs.items()}}
        proc = subprocess.Popen(text.split(), cwd=TOP, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return self.follow(proc, tier)
        finally:  # also when we are told to stop: nothing runs on without us
            if proc.poll() is None:
                end_group(proc)

    def follow(self, proc, tier):
        ends = None if self.everything else time.time() + max(1, (self.budget + OVERTIME - self.elapsed()) * 60)
        cut, tail, counts, self.failed = False, b"", [0, 0, 0], []
        while True:
            piece = read_some(proc)
            lines = (tail + piece).split(b"\n")
            tail = lines.pop()
            ended = not piece and proc.poll() is not None
            for line in lines + ([tail] if ended and tail else []):
                text = line.decode(errors="replace")
                self.say(text)
                m = FLAKY.match(text)
                if m:
                    self.flaky.append(f"{tier.name}/{m[1]}")
                self.heard(tier, text)
                m = COUNTS.match(text)
                if m:
                    counts = [a + int(b) for a, b in zip(counts, m.groups())]
            if ended:
                return proc.returncode, counts, cut
            if ends and time.time() > ends and not cut:
                cut = True
                end_group(proc)

    def heard(self, tier, text):
        """A line that tells of a failure, or one moved in behind it: what the test said."""
        m = FAILED.match(text)
        if m:
            self.failed.append(m[1])
            self.speaks = self.words[f"{tier.name}/{m[1]}"] = collections.deque([text], LAST)
        elif self.speaks and text.startswith("    "):
            self.speaks.append(text)
        else:
            self.speaks = None

    def end(self):
        for name, words in self.words.items():
            self.say(f"--- the last words of {name}:")
            for text in words:
                self.say(text)
        self.say("")
        for line in self.lines:
            self.say(line)
        if self.late:
            self.say(f"did not fit into CI_MINUTES={self.budget:.0f}: {' '.join(self.late)}")
        if self.flaky:
            self.say(f"flaky, passed only when run again alone: {' '.join(self.flaky)}"
                     + (f": more than FLAKES={self.flakes}, which fails the run" if len(self.flaky) > self.flakes else ""))
        self.say(f"all: {self.elapsed():.1f} min")
        p, f, s = self.total
        self.say(f"{p} passed, {f} failed, {s} skipped")


def read_some(proc):
    """What the command printed within a second. A child of it that lives on with its output does not hold us."""
    if not select.select([proc.stdout], [], [], 1)[0]:
        return b""
    piece = os.read(proc.stdout.fileno(), 65536)
    if not piece:
        proc.wait()
    return piece


def end_group(proc):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(proc.pid, sig)
            proc.wait(20)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def main(argv):
    ap = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--all", action="store_true", help="every tier, whatever its stamp and the budget")
    ap.add_argument("--list", action="store_true", help="print the tiers and whether they would run")
    ap.add_argument("tier", nargs="*", help="only these, whatever their stamps")
    a = ap.parse_args(argv)
    unknown = set(a.tier) - {t.name for t in TIERS}
    if unknown:
        ap.error(f"no tier {', '.join(sorted(unknown))}; there are: {' '.join(t.name for t in TIERS)}")
    stamps = Stamps(cache())
    if a.list:
        versions = tools()
        for t in TIERS:
            stamp = stamps.read(t.name)["passed"].get(key(t, os.environ, versions))
            print(stamp_sentence(t, stamp) if stamp and t.when != ALWAYS else f"{t.name}: would run `{t.command}`")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = float(os.environ.get("CI_STARTED") or time.time())
    return Run(TIERS, stamps, dict(os.environ), a.all, started=started).go(a.tier)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
