# SPDX-License-Identifier: Apache-2.0
"""weightbridge.extract with loaders that do what loaders should not: nothing silently wrong, the
parameters as before, no memory touched that is gone."""

import gc
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("WB_TOP") or os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(TOP, "agent", "python"), HERE]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import weightbridge as wb  # noqa: E402
from test_extract import raises  # noqa: E402

TESTS = []
SHAPE = (8, 16)
ONE = [("t", SHAPE, "F32")]
LARGE = 4 << 20  # elements: memory that malloc gives back to the kernel at once


def test(f):
    TESTS.append(f)
    return f


def zeros(dtype=np.float32):
    return np.zeros(SHAPE, dtype)


# ---- memory that goes away


@test
def iterator_kept_after_probing_is_refused():
    p, held = zeros(), []

    def load(weights):
        held.append(weights)
        p[:] = next(weights)[1]

    wb.extract(load, [*ONE, ("u", SHAPE, "F32")], {"p": p})
    raises(wb.WeightBridgeError, "tensor u taken after probing had ended", next, held[-1])


class Tensor:
    """Like torch's: another storage may come under the same object."""

    class device:  # noqa: N801
        type = "cpu"

    def __init__(self, data):
        self.data = data
        self.shape, self.dtype = data.shape, data.dtype

    def data_ptr(self):
        return self.data.ctypes.data

    def stride(self):
        return tuple(s // self.data.itemsize for s in self.data.strides)

    def element_size(self):
        return self.data.itemsize

    def detach(self):
        return Tensor(self.data)


@test
def storage_replaced_under_a_tensor_outlives_the_probe():
    p = Tensor(np.zeros(LARGE, np.float32))

    def load(weights):
        for _, t in weights:
            p.data = np.zeros(LARGE, np.float32)
            gc.collect()
            p.data[:t.size] = t.reshape(-1)

    raises(wb.NotCopyError, "its storage was moved", wb.extract, load, ONE, {"p": p})


@test
def storage_replaced_again_before_an_exception_outlives_the_probe():
    params, calls = {"p": np.zeros(LARGE, np.float32)}, []

    def load(weights):
        calls.append(1)
        list(weights)
        params["p"] = np.zeros(LARGE, np.float32)
        gc.collect()
        if len(calls) == 2:
            raise KeyError("no such layer")

    raises(wb.LoadWeightsError, "KeyError", wb.extract, load, ONE, params)


@test
def loader_that_has_not_run_is_told_so():
    p = zeros()

    def lazy(weights):
        for name, t in weights:
            p[:] = t
            yield name

    async def later(weights):
        lazy(weights)

    raises(wb.WeightBridgeError, "returned a generator, which has not run", wb.extract, lazy, ONE,
           {"p": p})
    raises(wb.WeightBridgeError, "returned a coroutine, which has not run", wb.extract, later, ONE,
           {"p": p})

    def names(weights):  # has run, and returns something lazy
        done = list(lazy(weights))
        return (n for n in done)

    assert wb.extract(names, ONE, {"p": p}).n_ops == 1


def main():
    for f in TESTS:
        try:
            f()
        except BaseException:
            print(f"FAIL {f.__name__}", flush=True)
            raise
        print(f"ok {f.__name__}", flush=True)
    print(f"{len(TESTS)} tests")


if __name__ == "__main__":
    main()
