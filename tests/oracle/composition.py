# SPDX-License-Identifier: Apache-2.0
"""Random loaders: parameters composed of checkpoint tensors by NumPy alone, from a seed.

Imports nothing of the project.
"""
import numpy as np
import ml_dtypes

TYPES = {"BF16": np.dtype(ml_dtypes.bfloat16), "F32": np.dtype(np.float32),
         "F16": np.dtype(np.float16), "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
         "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2), "I8": np.dtype(np.int8),
         "U8": np.dtype(np.uint8), "I32": np.dtype(np.int32)}
WIDE = ("BF16", "F32", "F16")
NARROW = ("F8_E4M3", "F8_E5M2", "I8", "U8", "I32")


class Composition:
    """One loader.  manifest: list of (name, shape, dtype); params: dict of name -> (array, dtype),
    made anew by each object; load_weights copies into them."""

    def __init__(self, seed):
        self.rng = r = np.random.default_rng(seed)
        floats = [["BF16"], ["BF16", "F32"], ["BF16"], ["F32", "F16"], ["BF16", "F32", "F16"],
                  [NARROW[r.integers(len(NARROW))]]][r.integers(6)]
        self.manifest = [(f"layers.{i}.weight", self._shape(), floats[r.integers(len(floats))])
                         for i in range(r.integers(1, 9))]
        self.params, self._made = {}, {}
        for i in range(r.integers(1, 6)):
            self._param(f"param.{i}", floats)

    def _shape(self):
        r, ndim = self.rng, int(self.rng.choice([1, 2, 2, 2, 2, 3]))
        if ndim == 3:
            return tuple(int(n) for n in r.integers(1, 13, 3))
        return tuple(int(n) for n in r.integers(1, 65, ndim))

    # Expressions: functions from {name: array} to an array.

    def _leaf(self, names):
        r = self.rng
        name, shape, _ = names[r.integers(len(names))]

        def cut(n):
            a = int(r.integers(n))
            b = int(r.integers(a, n)) + 1
            step = int(r.choice([1, 1, 1, 1, 2, 3]))
            return slice(a, b, step)
        index = tuple(cut(n) if r.random() < 0.5 else slice(None) for n in shape)
        if len(shape) == 3 and r.random() < 0.5:  # one expert
            index = (int(r.integers(shape[0])),) + index[1:]
        return lambda t: t[name][index]

    def _tree(self, names, depth):
        r = self.rng
        if depth == 0 or r.random() < 0.15:
            return self._leaf(names)
        a = self._tree(names, depth - 1)
        kind = int(r.integers(12))
        if kind < 5:
            return self._join(a, self._tree(names, depth - 1), kind)
        return self._shape_of_one(a, kind)

    def _join(self, a, b, kind):
        def fit(x, y, axis):
            """y with x's other sizes, by repeating and cutting."""
            x, y = np.atleast_2d(x), np.atleast_2d(y)
            x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
            other = 1 - axis
            n = x.shape[other]
            times = -(-n // y.shape[other])
            y = np.concatenate([y] * times, other)
            return x, y[:n] if other == 0 else y[:, :n]

        def rows(t):
            return np.concatenate(fit(a(t), b(t), 0), 0)

        def columns(t):
            return np.concatenate(fit(a(t), b(t), 1), 1)

        def interleave(t, axis):
            x, y = fit(a(t), b(t), axis)
            n = min(x.shape[axis], y.shape[axis])
            x, y = (x[:n], y[:n]) if axis == 0 else (x[:, :n], y[:, :n])
            shape = list(x.shape)
            shape[axis] *= 2
            return np.stack([x, y], axis + 1).reshape(shape)
        return [rows, rows, columns, lambda t: interleave(t, 0),
                lambda t: interleave(t, 1)][kind]

    def _shape_of_one(self, a, kind):
        r = self.rng
        pick = [int(r.integers(1 << 30)) for _ in range(4)]

        def reshape(t):
            x = a(t)
            n = x.size
            sizes = [d for d in range(1, n + 1) if n % d == 0]
            d = sizes[pick[0] % len(sizes)]
            return np.ascontiguousarray(x).reshape(d, n // d)

        def pad(t):
            x = a(t)
            return np.pad(x, [(0, pick[i % 4] % 4) for i in range(x.ndim)])

        def permute(t):
            x = a(t)
            axis = pick[0] % x.ndim
            order = np.random.default_rng(pick[1]).permutation(x.shape[axis])
            return np.take(x, order, axis)

        def heads(t):
            x = np.atleast_2d(a(t))
            return np.repeat(x, 1 + pick[0] % 3, axis=pick[1] % 2)
        return {5: lambda t: a(t).T, 6: lambda t: a(t).T, 7: lambda t: a(t)[::-1], 8: reshape,
                9: pad, 10: permute, 11: heads}[kind]

    def _param(self, name, floats):
        r = self.rng
        dtype = floats[r.integers(len(floats))]
        usable = [m for m in self.manifest if m[2] == dtype or
                  (dtype in WIDE and m[2] in WIDE)]
        if not usable:
            return
        # One tensor type a tree: joining two would cast one to the other first.
        kind = usable[r.integers(len(usable))][2]
        make = self._tree([m for m in usable if m[2] == kind], int(r.integers(1, 5)))
        blank = {n: np.zeros(s, TYPES[d]) for n, s, d in self.manifest}
        shape = make(blank).shape
        if not 0 < np.prod(shape, dtype=np.int64) < 60000:
            return
        self.params[name] = (self._array(shape, TYPES[dtype]), dtype)
        self._made[name] = make

    def _array(self, shape, dtype):
        """Zeros, dense or with a row pitch or with another order of dimensions."""
        r = self.rng
        if len(shape) >= 2 and r.random() < 0.2:
            return np.zeros(shape[:-1] + (shape[-1] + int(r.integers(1, 5)),),
                            dtype)[..., :shape[-1]]
        if len(shape) >= 2 and r.random() < 0.15:
            return np.zeros(shape[::-1], dtype).T
        return np.zeros(shape, dtype)

    def load_weights(self, weights):
        tensors = {name: t if t.dtype.kind != "u" or t.itemsize != 2
                   else t.view(TYPES["BF16"]) for name, t in weights}
        for name, make in self._made.items():
            array, _ = self.params[name]
            with np.errstate(all="ignore"):
                array[...] = make(tensors).astype(array.dtype)

    def values(self, seed):
        """A random checkpoint: {name: array}."""
        r = np.random.default_rng(seed)
        out = {}
        for name, shape, dtype in self.manifest:
            if dtype in ("I8", "U8", "I32"):
                info = np.iinfo(TYPES[dtype])
                out[name] = r.integers(info.min, info.max, shape, endpoint=True).astype(
                    TYPES[dtype])
            else:
                out[name] = (r.standard_normal(shape) * 10.0 ** r.integers(-3, 3)).astype(
                    TYPES[dtype])
        return out
