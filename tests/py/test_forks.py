# SPDX-License-Identifier: Apache-2.0
"""Workers by fork (tests/frameworks/forks.py), with a framework that is nothing: what a test may rely on from the moment when
it has a worker, that nobody is left behind, and that a model which was not made is not taken for one."""
import os
import shutil
import sys
import tempfile

from fx_run import run_all

TOP = os.environ.get("WB_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKERS = 40
FRAMEWORKS = "class Nothing:\n    @staticmethod\n    def imports():\n        pass\n"
WORKER = ("import os, signal\n\n\ndef run(said):\n    print(said['name'], flush=True)\n"
          "    while said['waits']:\n        signal.pause()\n    os._exit(3)\n")

HERE = tempfile.mkdtemp(prefix="wb-forks-")
shutil.copy(os.path.join(TOP, "tests", "frameworks", "forks.py"), HERE)
for file, text in (("frameworks.py", FRAMEWORKS), ("worker.py", WORKER)):
    with open(os.path.join(HERE, file), "w") as f:
        f.write(text)
sys.path.insert(0, HERE)
sys.path.append(os.path.join(TOP, "tests", "frameworks"))
import forks  # noqa: E402
import fx  # noqa: E402


def forker():
    return forks.Forker(sys.executable, "Nothing", dict(os.environ))


def a_worker_is_heard_and_its_exit_is_known():
    f = forker()
    w = f.fork({"name": "one", "waits": False})
    assert w.stdout.read() == "one\n" and w.wait(60) == 3 and w.poll() == 3
    f.end()


def a_worker_that_a_test_has_can_be_ended_with_all_that_it_starts():
    """It leads its group by then, as tests end that."""
    f = forker()
    for i in range(WORKERS):
        w = f.fork({"name": str(i), "waits": True})
        assert os.getpgid(w.pid) == w.pid, f"worker {i} is still of the group of who forked it"
        w.kill()
        assert w.wait(60) == -9
    f.end()


def nobody_is_left_when_the_process_that_forks_ends():
    f = forker()
    all_ = [f.fork({"name": str(i), "waits": True}) for i in range(WORKERS)]
    f.end()
    assert f.process.returncode == 0
    for w in all_:  # at its end, when nobody holds its output any more
        w.stdout.read()


def a_model_that_one_test_could_not_make_is_made_by_the_next():
    makers = []

    class Maker:
        def __init__(self, _name, _env, said):
            makers.append(said["folder"])
            os.mkdir(said["folder"])  # and no more of it, the first time

        def wait(self, _timeout):
            return len(makers) == 1

        def drain(self):
            return ["it has failed"]

        def kill(self):
            pass

    fx.Forked, was = Maker, fx.Forked
    try:
        try:
            fx.make_model("llama", os.path.join(HERE, "one"))
        except AssertionError as e:
            assert "it has failed" in str(e), e
        for name in ("two", "three"):
            fx.make_model("llama", os.path.join(HERE, name))
            assert os.path.isdir(os.path.join(HERE, name))
        assert len(makers) == 2, makers
    finally:
        fx.Forked = was


if __name__ == "__main__":
    try:
        run_all((a_worker_is_heard_and_its_exit_is_known, a_worker_that_a_test_has_can_be_ended_with_all_that_it_starts,
                 nobody_is_left_when_the_process_that_forks_ends, a_model_that_one_test_could_not_make_is_made_by_the_next))
    finally:
        shutil.rmtree(HERE)
