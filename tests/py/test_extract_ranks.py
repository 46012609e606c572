# SPDX-License-Identifier: Apache-2.0
"""weightbridge.extract in ranks whose loaders call each other, each a process: same passes on all,
maps in one cache folder, and what one rank does wrong is heard by all."""

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import traceback

TOP = os.environ.get("WB_TOP") or os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                               "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python")]

import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402

TESTS = []
N = 8
ROWS = 16  # of each rank
TENSORS = 6
MANIFEST = [(f"t{i}", (N * ROWS, 12), "F32") for i in range(TENSORS)]
BOUND = 120.0  # s, for all ranks to end, whatever happens


def test(f):
    TESTS.append(f)
    return f


class Channel:
    """All-gather over a pipe to the test's process."""

    def __init__(self, pipe):
        self._pipe = pipe

    def all_gather(self, data):
        self._pipe.send_bytes(data)
        return [self._pipe.recv_bytes() for _ in range(N)]


def serve(pipes):
    """Rounds of one channel; when a rank's end is lost all the others lose theirs."""
    try:
        while True:
            said = [p.recv_bytes() for p in pipes]
            for p in pipes:
                for data in said:
                    p.send_bytes(data)
    except (EOFError, OSError):
        for p in pipes:
            p.close()


class Loader:
    """Each rank reads the tensors of its turn and gives them to the others; all keep their rows."""

    def __init__(self, rank, channel, dtype, swap=False):
        self.rank, self.channel, self.calls, self.swap = rank, channel, 0, swap
        r = np.random.default_rng(rank)
        self.params = {f"p{i}": r.integers(1, 99, (ROWS, 12)).astype(dtype)
                       for i in range(TENSORS)}
        self.before = self.content()

    def content(self):
        return {n: p.tobytes() for n, p in self.params.items()}

    def load(self, weights):
        self.calls += 1
        self.begin()
        for i, (_, tensor) in enumerate(weights):
            mine = tensor.tobytes() if i % N == self.rank else b""
            whole = np.frombuffer(self.channel.all_gather(mine)[i % N], tensor.dtype)
            rows = whole.reshape(N * ROWS, 12)[self.rank * ROWS:][:ROWS]
            self.params[f"p{i}"][...] = rows[::-1] if self.swap else rows

    def begin(self):
        pass


def child(rank, pipes, scenario, folder, out):
    try:
        group, channel = (Channel(p) for p in pipes)
        loader, options = scenario(rank, channel)
        try:
            options = {"group": group, "cache_dir": folder, **options}
            m = wb.extract(loader.load, MANIFEST, loader.params, **options)
            said = ("ok", m.digest, m.notes)
        except Exception as e:
            said = (type(e).__name__, str(e), "")
        assert loader.content() == loader.before, "parameters are not as before"
        out.send((*said, loader.calls))
    except BaseException:
        out.send(("broken", traceback.format_exc(), "", 0))
    os._exit(0)


def together(scenario, folder=None):
    """What became of each rank: (kind, text, notes, calls), None: it was killed."""
    context = multiprocessing.get_context("fork")
    ends = [[context.Pipe() for _ in range(2)] for _ in range(N)]
    outs = [context.Pipe(duplex=False) for _ in range(N)]
    ranks = []
    for i in range(N):
        p = context.Process(target=begin, args=(i, ends, scenario, folder, outs))
        p.start()
        ranks.append(p)
    for i in range(N):
        for e in ends[i]:
            e[1].close()
        outs[i][1].close()
    for k in range(2):
        threading.Thread(target=serve, args=([e[k][0] for e in ends],), daemon=True).start()
    said = []
    for i, p in enumerate(ranks):
        said.append(receive(outs[i][0]))
    for p in ranks:
        p.join(10)
        p.kill()
    return said


def receive(pipe):
    if not pipe.poll(BOUND):
        return ("hangs", f"nothing was heard for {BOUND} s", "", 0)
    try:
        return pipe.recv()
    except EOFError:
        return None


def begin(rank, ends, scenario, folder, outs):
    for i in range(N):
        for near, far in ends[i]:
            near.close()
            if i != rank:
                far.close()
        outs[i][0].close()
        if i != rank:
            outs[i][1].close()
    child(rank, [far for _, far in ends[rank]], scenario, folder, outs[rank][1])


def plain(rank, channel):
    return Loader(rank, channel, np.float32), {}


def alone(rank, dtype=np.float32):
    """The map of a rank's rows, found by a loader that needs nobody."""
    loader = Loader(rank, None, dtype)

    def load(weights):
        for i, (_, tensor) in enumerate(weights):
            loader.params[f"p{i}"][...] = tensor[rank * ROWS:][:ROWS]
    return wb.extract(load, MANIFEST, loader.params).digest


@test
def all_run_the_same_passes_and_find_their_own_rows():
    said = together(plain)
    assert [s[0] for s in said] == ["ok"] * N, said
    assert [s[1] for s in said] == [alone(i) for i in range(N)]
    assert len({s[3] for s in said}) == 1, said


@test
def types_of_one_rank_are_those_of_all():
    def scenario(rank, channel):
        return Loader(rank, channel, np.float16 if rank == 5 else np.float32), {}

    said = together(scenario)
    assert [s[0] for s in said] == ["ok"] * N, said
    assert said[5][1] == alone(5, np.float16) and said[4][1] == alone(4)


@test
def digits_that_one_rank_needs_again_are_run_by_all():
    class Stack(Loader):
        """One parameter of all tensors; rank 2 has its rows in another order."""

        def __init__(self, rank, channel):
            super().__init__(rank, channel, np.float32)
            self.params = {"p": np.zeros((TENSORS, ROWS, 12), np.float32)}
            self.before = self.content()
            self.order = [r * 5 % ROWS if rank == 2 else r for r in range(ROWS)]

        def load(self, weights):
            self.calls += 1
            for i, (_, tensor) in enumerate(weights):
                mine = tensor.tobytes() if i % N == self.rank else b""
                whole = np.frombuffer(self.channel.all_gather(mine)[i % N], tensor.dtype)
                rows = whole.reshape(N * ROWS, 12)[self.rank * ROWS:][:ROWS]
                self.params["p"][i] = rows[self.order]

    def scenario(rank, channel):
        return Stack(rank, channel), {"record_max": 60}

    said = together(scenario)
    assert [s[0] for s in said] == ["ok"] * N, said
    assert {s[3] for s in said} == {together(plain)[0][3] + 2}, said


@test
def a_map_is_used_when_all_have_one():
    with tempfile.TemporaryDirectory() as d:
        first = together(plain, d)
        assert [s[0] for s in first] == ["ok"] * N and first[0][3] > 1, first
        files = sorted(os.listdir(d))
        assert len(files) == N, files  # equal shapes, and none overwrites another's
        again = together(plain, d)
        assert [s[3] for s in again] == [1] * N and [s[1] for s in again] == [s[1] for s in first]
        for spoil in (os.unlink, lambda f: os.truncate(f, 100), lambda f: os.truncate(f, 0)):
            spoil(os.path.join(d, files[3]))
            some = together(plain, d)
            assert [s[3] for s in some] == [first[0][3]] * N, some
            assert [s[1] for s in some] == [s[1] for s in first]
            assert sum("another rank has no map" in s[2] for s in some) == N - 1, some


@test
def a_folder_that_cannot_be_written_costs_only_the_cache():
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "file")
        open(file, "w").close()
        for _ in range(2):
            said = together(plain, os.path.join(file, "folder"))
            assert [s[0] for s in said] == ["ok"] * N, said
            assert all("map not kept in" in s[2] for s in said), said

        def full(rank, channel):
            if rank in (1, 7):  # as on a disk that is full
                resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
            return plain(rank, channel)

        for _ in range(2):
            said = together(full, d)
            assert [s[0] for s in said] == ["ok"] * N, said
            assert ["not kept" in s[2] for s in said] == [i in (1, 7) for i in range(N)], said
            assert sorted(f[-4:] for f in os.listdir(d)) == [".map"] * (N - 2) + ["file"]


@test
def two_that_write_one_map_at_a_time_leave_a_whole_one():
    def same(rank, channel):
        return Loader(0, None, np.float32), {"group": None}

    def load(self, weights):
        self.calls += 1
        for i, (_, tensor) in enumerate(weights):
            self.params[f"p{i}"][...] = tensor[:ROWS]

    collective, Loader.load = Loader.load, load
    try:
        with tempfile.TemporaryDirectory() as d:
            for calls in (None, {1}):
                said = together(same, d)
                assert [s[0] for s in said] == ["ok"] * N, said
                assert not calls or {s[3] for s in said} == calls, said
                assert len(os.listdir(d)) == 1
    finally:
        Loader.load = collective


@test
def a_map_that_holds_no_more_at_one_rank_is_found_anew_by_all():
    def scenario(rank, channel):
        return Loader(rank, channel, np.float32, swap=rank == 2), {}

    with tempfile.TemporaryDirectory() as d:
        first = together(plain, d)
        said = together(scenario, d)
        assert [s[3] for s in said] == [1 + first[0][3]] * N, said
        assert [s[1] == f[1] for s, f in zip(said, first)] == [i != 2 for i in range(N)]
        assert sum("of another rank" in s[2] for s in said) == N - 1, said


@test
def what_one_rank_raises_is_raised_by_all():
    class Raises(Loader):
        def begin(self):
            if self.rank == 4 and self.calls == 3:
                raise ValueError("no such file")

    def scenario(rank, channel):
        return Raises(rank, channel, np.float32), {}

    said = together(scenario)
    # The others stand in their collective when it raises, and are freed when it ends.
    assert said[4][0] == "LoadWeightsError" and "no such file" in said[4][1], said
    assert all(s[0] in ("LoadWeightsError", "WeightBridgeError") for s in said), said


@test
def what_is_no_copy_at_one_rank_fails_all_by_its_words():
    class Doubles(Loader):
        def load(self, weights):
            super().load(weights)
            if self.rank == 1:
                self.params["p2"] *= 2

    def scenario(rank, channel):
        return Doubles(rank, channel, np.float32), {}

    said = together(scenario)
    assert said[1][0] == "NotCopyError", said
    for i, s in enumerate(said):
        assert "p2" in s[1] and (i == 1 or "rank 1 failed" in s[1]), said


@test
def a_rank_that_is_killed_is_not_waited_for():
    class Dies(Loader):
        def begin(self):
            if self.rank == 6 and self.calls == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    def scenario(rank, channel):
        return Dies(rank, channel, np.float32), {}

    said = together(scenario)
    assert said[6] is None, said
    for i, s in enumerate(said):
        assert i == 6 or s[0] in ("LoadWeightsError", "WeightBridgeError"), said


@test
def ranks_that_do_not_probe_the_same_are_named():
    def scenario(rank, channel):
        return Loader(rank, channel, np.float32), {"n_hash": 2 if rank == 3 else 1}

    for s in together(scenario):
        assert s[0] == "WeightBridgeError" and "rank 3 has" in s[1] and "n_hash 2" in s[1], s


@test
def a_group_gathers_or_is_refused():
    for group, part in ((3, "int has not"), (object(), "object has not")):
        try:
            wb.extract(lambda w: None, MANIFEST, {"p": np.zeros(2)}, group=group)
        except TypeError as e:
            assert part in str(e), e
        else:
            raise AssertionError(group)
    try:
        wb.extract(lambda w: None, MANIFEST, {"p": np.zeros(2)}, group=lambda data: [])
    except wb.WeightBridgeError as e:
        assert "0 times" in str(e), e
    else:
        raise AssertionError("no rank")


def main():
    only = sys.argv[1:]
    for f in TESTS:
        if not only or any(x in f.__name__ for x in only):
            f()
            print("ok", f.__name__, flush=True)


if __name__ == "__main__":
    main()
