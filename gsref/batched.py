"""What is the loss and its gradient, fast?  Chunks of samples that fit the cache, threads over chunks, one result.

The formulas are those of `model` and `gradients`, which stay the text that derivations cite; `chunk` arranges them for
speed, and whatever leaves the range of its arrangement is left to the plain ones.
"""

import threading

import numpy as np

from gsref import chunk as kernel, curvature, model
from gsref.arguments import finite, integer, labels, real_array, shaped
from gsref.threads import SINGLE_BLAS, number, run

# From sweeps over the shapes of `bench.gradient`, two cores.
ELEMENTS = 1 << 18     # of the largest array of a chunk: one thread gains nothing beyond 2^17, two do up to 2^18, since calls
                       # of less than some 10 us spend their time waiting for the interpreter
MEMORY = 48 << 20      # bytes of all workspaces: more threads than fit are not started
WORTH_THREADS = 4e7    # operations: there two threads break even; from 1e8 they gain a third or more


class Pairwise:
    """Sums vectors in a binary tree over their indices 0, 1, ..: rounding grows like log2 of their number  [batch.4].

    The tree does not depend on the order of arrival, nor a sum of two on theirs: the result is the same to the last
    bit for any number of threads.
    """

    def __init__(self):
        self._waiting, self._lock = {}, threading.Lock()

    def add(self, index, vector):
        level = 0
        while True:
            with self._lock:
                other = self._waiting.pop((level, index ^ 1), None)
                if other is None:
                    self._waiting[level, index] = vector
                    return
            vector = other + vector
            level, index = level + 1, index >> 1

    def total(self):
        rest = [self._waiting[key] for key in sorted(self._waiting)]
        total = rest[0]
        for vector in rest[1:]:
            total = total + vector
        return total


def loss_and_gradient(v, W, X, y, P, *, weights=None, dtype=None, threads=None, chunk=None, out=None,
                      squared_norms=False, direction=None):
    """Mean logistic loss and its closed-form gradient; on request squared gradient norms and a Hessian-vector product.

    v (d+D,), W (d+D, d+D), X (n, D, d), y (n,) of -1 and +1, P (D, D); returns loss (float), dv (d+D,), dW (d+D, d+D).

    weights        (n,), >= 0, not all zero: the mean becomes sum_n w_n l_n / sum_n w_n
    dtype          float32 or float64; by default float32 if v, W, X and P all are, else float64.  float32 is right to
                   some 1e-5 of a block's scale, times the size of scores and margins
    threads        at most that many; by default the environment variable GSREF_THREADS, or all cores if threadpoolctl
                   (extra `fast`) can keep BLAS to one thread, or 1; never more than fit 48 MiB.  Results do not depend
                   on it
    chunk          samples worked on together, by default what fits the cache; results depend on it by rounding only
    out            (dv, dW), arrays of the dtype to write the gradient to
    squared_norms  appends (n,): the squared norm of the gradient in (v, W) of each sample's own, unweighted loss
    direction      (a, B) like (v, W): appends (Hv, HW), the Hessian of the loss times it

    Raises TypeError or ValueError, naming the argument, for a wrong shape, a complex or object array, an empty batch,
    a non-finite number or another label; OverflowError, naming it, for a result that exceeds the dtype.
    Inputs are not modified.  Source: derivations/02_gradients.md, derivations/11_second_order.md.
    """
    X = shaped("X", X, ("n", "D", "d"))
    n, D, d = X.shape
    kind = working_type(dtype, v, W, X, P)
    with SINGLE_BLAS:                          # once for all: entering it takes some 15 us
        call = Call(v, W, P, D, d, kind, threads, chunk, direction)
        y = labels("y", y, n)
        q = np.full(n, 1.0 / n) if weights is None else _shares(weights, n)
        out = None if out is None else _buffers(out, d + D, kind, (v, W, X, y, P, weights))
        norms = np.empty(n, kind) if squared_norms else None
        call.add(X, y, q, norms)
        loss, dv, dW, *product = call.results(1.0)
    if norms is not None:
        finite("squared_norms", norms)
    if out is not None:
        out[0][...], out[1][...] = dv, dW
        dv, dW = out
    return (loss, dv, dW, *([norms] if squared_norms else []), *([tuple(product)] if direction is not None else []))


def stream_loss_and_gradient(v, W, batches, P, *, dtype=None, threads=None, chunk=None, direction=None):
    """As `loss_and_gradient`, of samples that come in batches: `batches` yields (X, y) or (X, y, weights).

    Memory does not grow with the number of samples.  Sums are divided at the end: OverflowError if one exceeds the
    range, though the mean would not.  The first batch decides `dtype` if it is not given.
    """
    call, total, count = None, 0.0, 0
    for batch in batches:
        X, y, *weights = batch
        X = shaped("X", X, ("n", "D", "d") if call is None else ("n", call.D, call.d))
        n, D, d = X.shape
        if call is None:
            call = Call(v, W, P, D, d, working_type(dtype, v, W, X, P), threads, chunk, direction)
        w = np.ones(n) if not weights else _weights(weights[0], n)
        call.add(X, labels("y", y, n), w, None, before=count)
        total, count = total + float(w.sum()), count + n
    if call is None:
        raise ValueError("batches: got none, expected at least one")
    if not total > 0:
        raise ValueError("weights: got only zeros, expected a positive sum")
    loss, dv, dW, *product = call.results(1.0 / total)
    return (loss, dv, dW, *([tuple(product)] if direction is not None else []))


class Call:
    """One evaluation: parameters, and the sums over the samples added so far.

    Every product is inside SINGLE_BLAS: a thread of BLAS that was woken for one keeps its core busy for a while after.
    """

    def __init__(self, v, W, P, D, d, dtype, threads, size, direction):
        self.D, self.d, self.dtype = D, d, dtype
        self.v, self.W = real_array("v", v, (d + D,)), real_array("W", W, (d + D, d + D))
        self.P = real_array("P", P, (D, D))
        self.threads = number(threads)
        self.size = None if size is None else integer("chunk", size)
        with SINGLE_BLAS:
            self.part = kernel.prepare(self.v, self.W, self.P, d, dtype)
        self.along = None
        if direction is not None:
            a, B = _pair("direction", direction)
            self.a, self.B = real_array("direction[0]", a, (d + D,)), real_array("direction[1]", B, (d + D, d + D))
            with SINGLE_BLAS:
                self.along = kernel.prepare(self.a, self.B, self.P, d, dtype)
        self.sum, self.chunks = Pairwise(), 0

    def add(self, X, y, weights, norms, before=0):
        """Add samples; `weights` multiply their losses; `norms` receives squared norms; `before`: samples before."""
        n, D, d = X.shape
        m = min(n, self.size) if self.size else self.chunk(n)
        starts = range(0, n, m)
        first, self.chunks = self.chunks, self.chunks + len(starts)
        second = norms is not None or self.along is not None
        most = max(1, MEMORY // kernel.Workspace.size(m, D, d, self.dtype))
        threads = min(self.threads, most, len(starts)) if self.work(n) > WORTH_THREADS else 1
        counter, lock, extreme = iter(range(len(starts))), threading.Lock(), []

        def work(space):
            while True:
                with lock:
                    k = next(counter, None)
                if k is None:
                    return
                at = slice(starts[k], min(starts[k] + m, n))
                with np.errstate(over="ignore"):               # beyond float32: inf, and the plain formulas decide
                    part = np.ascontiguousarray(X[at], dtype=self.dtype)
                signs, q = y[at].astype(self.dtype), weights[at].astype(self.dtype)
                try:
                    sums = (curvature.second_order(self.part, self.along, part, signs, q, self.P, space,
                                                   None if norms is None else norms[at])
                            if second else kernel.loss_and_gradient(self.part, part, signs, q, space))
                except kernel.Extreme:
                    with lock:
                        extreme.append(k)
                    continue
                self.sum.add(first + k, _flat(sums))

        with SINGLE_BLAS:
            run(work, kernel.workspaces(threads, m, D, d, self.dtype))
            if extreme:
                self.check(X, m, before)
            for k in sorted(extreme):
                at = slice(starts[k], min(starts[k] + m, n))
                part = np.asarray(X[at], dtype=np.float64)
                along = None if self.along is None else kernel.prepare(self.a, self.B, self.P, d, np.float64)
                self.sum.add(first + k, _flat(curvature.plain(self.v, self.W, part, y[at], weights[at], self.P, along,
                                                              None if norms is None else norms[at])))

    def chunk(self, n):
        """Samples worked on together: equal shares, of an even number if they are worth two threads, whatever threads
        there are."""
        most = max(1, ELEMENTS // max(self.D * self.D, self.D * self.d))
        parts = -(-n // most)
        return -(-n // (parts + parts % 2 if self.work(n) > WORTH_THREADS else parts))

    def work(self, n):
        """Floating-point operations, about."""
        D, d = self.D, self.d
        return n * (4 * D * d * d + 8 * D * D * d + 60 * D * D)

    def check(self, X, m, before):
        """Raise what the plain version raises, if it does, chunk by chunk: finite X, then scores, values, logit."""
        for at in range(0, len(X), m):
            bad = ~np.isfinite(X[at:at + m])
            if bad.any():
                k, j, i = (int(a) for a in np.argwhere(bad)[0])
                raise ValueError(f"X: got {X[at + k, j, i]} at index {(before + at + k, j, i)}, "
                                 "expected finite numbers")
        for name, which in (("scores", 0), ("values", 2), ("logit", 3)):
            for at in range(0, len(X), m):
                with np.errstate(over="ignore", invalid="ignore"):
                    found = model._states(self.v, self.W, np.asarray(X[at:at + m], dtype=np.float64), self.P)[which]
                finite(name, found, before + at)

    def results(self, factor):
        """loss, dv, dW and, with a direction, Hv, HW: the sums times `factor`."""
        D, d = self.D, self.d
        with SINGLE_BLAS, np.errstate(over="ignore", invalid="ignore"):
            total = self.sum.total() * factor
            size = 1 + (d + D) ** 2 + d + D
            parts = [kernel.gradient_blocks(part, self.P, d) for part in
                     ([total[1:]] if self.along is None else [total[1:size], total[size:]])]
            names = ["dv", "dW", "Hv", "HW"]
            arrays = [array.astype(self.dtype) for pair in parts for array in pair]
        if not np.isfinite(total[0]):
            raise OverflowError("loss: overflow, expected margins whose sum stays in range")
        return float(total[0]), *(finite(name, array) for name, array in zip(names, arrays))


def working_type(dtype, *arrays):
    """float32 if asked for, or if all `arrays` are; else float64."""
    if dtype is None:
        return np.dtype(np.float32 if all(getattr(a, "dtype", None) == np.float32 for a in arrays) else np.float64)
    try:                                       # other strings are not tried: numpy warns of some that it deprecates
        if (not isinstance(dtype, str) or dtype in ("float32", "float64", "f4", "f8", "single", "double")) \
                and np.dtype(dtype).name in ("float32", "float64"):
            return np.dtype(dtype)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"dtype: got {dtype!r}, expected float32 or float64")


def _flat(sums):
    """Arrays as one float64 vector: also float32 chunks are summed in float64."""
    return np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in sums])


def _weights(weights, n):
    w = real_array("weights", weights, (n,))
    if (w < 0).any():
        k = int(np.argmax(w < 0))
        raise ValueError(f"weights: got {w[k]:.17g} at index {k}, expected numbers >= 0")
    return w


def _shares(weights, n):
    w = _weights(weights, n)
    if not w.any():
        raise ValueError("weights: got only zeros, expected a positive sum")
    w = w / w.max()                            # so that their sum cannot overflow
    return w / w.sum()


def _pair(name, value):
    try:
        first, second = value
    except (TypeError, ValueError):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a pair of arrays") from None
    return first, second


def _buffers(out, size, dtype, inputs):
    """(dv, dW) of `out` if they can be written to and share no memory with an input or each other."""
    dv, dW = _pair("out", out)
    for name, array, shape in (("out[0]", dv, (size,)), ("out[1]", dW, (size, size))):
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"{name}: got {got}, expected a {dtype} array of shape {shape}")
        if not array.flags.writeable:
            raise ValueError(f"{name}: got a read-only array, expected a writable one")
        if any(np.may_share_memory(array, a) for a in inputs if isinstance(a, np.ndarray)):
            raise ValueError(f"{name}: shares memory with an argument, expected a buffer of its own")
    if np.may_share_memory(dv, dW):
        raise ValueError("out: the two buffers share memory, expected separate ones")
    return dv, dW
