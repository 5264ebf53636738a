"""What does one chunk of samples add to the loss and its gradient?  The closed forms, arranged for speed.

Shapes: X (m, D, d); A, E, S, G, C (m, D, D) with axes sample, *query j, key i* (transposed against `model`, so that
sums over keys run along memory); u, ubar, Z, T (m, D); t, c (m,).  Source: derivations/11_second_order.md.
"""

import math
from dataclasses import dataclass

import numpy as np


HUGE = {4: 1e8, 8: 1e100}      # largest sum of exponentials taken without a shift, by the bytes of a number
MOST = 3 / 4                   # keys with more of a query's attention have their entry of G restored
LINE = 64                      # bytes of a cache line
BUFFER = 8192                  # elements of numpy's buffer
SMALL = 1 << 19                # products of fewer multiplications are done by OpenBLAS without packing: measured
MARGIN = {4: 1e18, 8: 1e120}   # c and c u exceed the smallest normal number by that: c / Z keeps its digits


class Extreme(ArithmeticError):
    """The chunk holds NaN, inf, or numbers whose products leave the range: the plain formulas have to decide."""


@dataclass(frozen=True)
class Prepared:
    """(v, W) with the shared positions multiplied in.

    A[n, j, i] = L_nj . x_i + x_j . K_i + M[j, i],  L_nj = W11 x_j + Q_j
    """

    v1: np.ndarray
    u2: np.ndarray             # P v2
    W11T: np.ndarray
    Q: np.ndarray              # P W12^T, repeated for `add_row`
    KT: np.ndarray             # (P W21)^T
    M: np.ndarray              # P W22^T P^T, repeated


def prepare(v, W, P, d, dtype):
    """The `Prepared` of (v, W) in `dtype`; C order, which the products below need to be fast."""
    W11, W12, W21, W22 = W[:d, :d], W[:d, d:], W[d:, :d], W[d:, d:]

    def repeated(a):                           # for `add_row`
        return np.broadcast_to(a.ravel(), (-(-BUFFER // a.size), a.size)).reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = v[:d], P @ v[d:], W11.T, repeated(P @ W12.T), (P @ W21).T, repeated((P @ W22 @ P.T).T)
        return Prepared(*(np.ascontiguousarray(part, dtype=dtype) for part in parts))


class Workspace:
    """Arrays that the chunks of one thread share, so that none is allocated twice."""

    def __init__(self, m, D, d, dtype, room=None):
        shapes = [(m, D, D), (m, D, D), (m, D, d), (m, d, D), (m, D, 4), (4, m, D), (2, m, D), (2, m, D)]
        room = np.empty(self.size(m, D, d, dtype), np.uint8) if room is None else room
        start = -room.ctypes.data % LINE       # on cache lines sums are a fifth to a third faster
        arrays = []
        for shape in shapes:
            size = math.prod(shape) * np.dtype(dtype).itemsize
            arrays.append(room[start:start + size].view(dtype).reshape(shape))
            start += -(-size // LINE) * LINE
        self.A, self.E, self.L, self.XT, self.columns, self.sums, self.left, self.right = arrays
        self.columns[:, :, 1:] = np.array([np.ones(D), *signs(D)]).T
        self.right[1] = 1
        self.ones = np.ones(max(m, D), dtype)

    @staticmethod
    def size(m, D, d, dtype):
        """Bytes of a `room` for the arrays."""
        return np.dtype(dtype).itemsize * 2 * m * D * (D + d + 6) + 9 * LINE


def workspaces(count, m, D, d, dtype):
    """`count` workspaces in one allocation: the C library gives a large one back to the system and takes it anew at the
    next call, which costs more than the work; but after the first it keeps one of the same size."""
    rooms = np.empty((count, Workspace.size(m, D, d, dtype)), np.uint8)
    return [Workspace(m, D, d, dtype, room) for room in rooms]


def add_row(rows, repeated):
    """In place: to each of the `rows` (k, l) the same row, of which `repeated` holds several.

    numpy adds a row at half speed unless it is longer than its buffer.
    """
    k, l = rows.shape
    t = len(repeated) // l
    whole = k // t * t
    for part, t in ((rows[:whole], t), (rows[whole:], 1)):
        part = part.reshape(-1, t * l)
        np.add(part, repeated[:t * l], out=part)


def product(rows, B, out):
    """rows (k, a) @ B (a, b) to `out`, in pieces that BLAS multiplies without copying them first."""
    k, (a, b) = len(rows), B.shape
    r = max(8, SMALL // (a * b))
    whole = k // r * r
    if whole:
        np.matmul(rows[:whole].reshape(-1, r, a), B, out=out[:whole].reshape(-1, r, b))
    if whole < k:
        np.matmul(rows[whole:], B, out=out[whole:])


def transposed_product(C, rows):
    """C^T (a, k) @ rows (k, b), in such pieces where they are long enough to be worth the sum over them."""
    k, a, b = len(C), C.shape[1], rows.shape[1]
    r = SMALL // (a * b)
    whole = k // r * r if r >= max(a, b) else 0
    parts = []
    if whole:
        pieces = np.matmul(C[:whole].reshape(-1, r, a).transpose(0, 2, 1), rows[:whole].reshape(-1, r, b))
        parts.append(pieces.sum(axis=0))
    if whole < k or not k:
        parts.append(C[whole:].T @ rows[whole:])
    return sum(parts[1:], start=parts[0])


def scores(part, X, work, out):
    """A, without any sum over samples in it."""
    m, D, d = X.shape
    rows, L, XT, scratch = X.reshape(m * D, d), work.L[:m], X.transpose(0, 2, 1), work.E[:m]
    if d <= 2 * D and D * D * d < 2 * SMALL:   # a small transposed right factor halves the speed of BLAS
        XT = work.XT[:m]
        np.copyto(XT, X.transpose(0, 2, 1))
    product(rows, part.W11T, out=L.reshape(m * D, d))
    add_row(L.reshape(m, D * d), part.Q)
    np.matmul(L, XT, out=out)
    product(rows, part.KT, out=scratch.reshape(m * D, D))
    np.add(out, scratch, out=out)
    add_row(out.reshape(m, D * D), part.M)


def signs(D):
    """Two rows of +1 and -1 over the keys, of periods two and four."""
    i = np.arange(D)
    return np.array([1 - 2 * (i % 2), 1 - (i // 2) % 2 * 2])


def attention(A, work):
    """E = exp(A - shift), one each, and its sums over keys: E u, Z, and two with `signs`, shape (4, m, D).

    No shift is needed while every E is a normal number and every Z of moderate size, since E / Z does not depend on
    it; the shift costs more than the exponential.  Otherwise each column is shifted by its own largest score.
    Extreme if a score is not finite.
    """
    m, D, _ = A.shape
    E, columns, sums = work.E[:m], work.columns[:m], work.sums[:, :m]
    columns[:, :, 0] = work.right[0, :m]
    np.exp(A, out=E)
    np.matmul(E, columns, out=sums.transpose(1, 2, 0))
    if not (E.min() > 1e4 * np.finfo(A.dtype).tiny and sums[1].max() < HUGE[A.dtype.itemsize]):  # `not >`: NaN comes here
        if not np.isfinite(A).all():
            raise Extreme
        np.exp(A - A.max(axis=2, keepdims=True), out=E)
        np.matmul(E, columns, out=sums.transpose(1, 2, 0))
    return E, sums


def dominating(E, sums):
    """(queries, keys), two arrays of integers: the keys with more than MOST of the attention of a query  [batch.5].

    Queries are counted over all samples.  |sum_i r_i E_i| >= 2 E_k - Z for every key k and signs r: if both signed sums
    are smaller than (2 MOST - 1) Z there is none, and no array of the size of E has to be searched.
    """
    bound = (2 * MOST - 1) * sums[1]
    queries = np.flatnonzero((np.abs(sums[2]) >= bound) & (np.abs(sums[3]) >= bound))
    if not len(queries):
        return queries, queries
    rows = E.reshape(-1, E.shape[2])[queries]
    keys = rows.argmax(axis=1)
    found = rows[np.arange(len(rows)), keys] > MOST * sums[1].reshape(-1)[queries]
    return queries[found], keys[found]


def restore(G, queries, keys):
    """In place: the entries of `dominating` keys from the sum of the others of their query  [batch.1].

    There u_i - ubar_j cancels, and there alone; columns of G sum to zero.
    """
    rows = G.reshape(-1, G.shape[2])
    rows[queries, keys] = 0
    rows[queries, keys] = -rows[queries].sum(axis=1)


def factors(t):
    """log(1 + e^-t) and s(-t) from one exponential, in the range of `t`'s type."""
    e = np.exp(-np.abs(t))
    return np.log1p(e) + np.maximum(-t, 0), np.where(t < 0, 1, e) / (1 + e)


def sums(T, C, X, work):
    """sum_n of T_i z_i and of C[j, i] z_i z_j^T, but for the common products with P: six arrays  [batch.2]."""
    m, D, d = X.shape
    rows, ones = X.reshape(m * D, d), work.ones[:m]
    K = np.matmul(C, X, out=work.L[:m])
    return [T.reshape(m * D) @ rows, ones @ T, transposed_product(K.reshape(m * D, d), rows),
            ones @ K.reshape(m, D * d), transposed_product(C.reshape(m * D, D), rows), ones @ C.reshape(m, D * D)]


def gradient_blocks(parts, P, d):
    """dv, dW of the summed `parts` of `sums`: the products with P, once for all samples."""
    D = len(P)
    at = np.cumsum([0, d, D, d * d, D * d, D * d, D * D])
    v1, T, W11, K, Y, C = (parts[i:j] for i, j in zip(at, at[1:]))
    dv, dW = np.empty(d + D), np.empty((d + D, d + D))
    dv[:d] = v1
    dv[d:] = P.T @ T
    dW[:d, :d] = W11.reshape(d, d)
    dW[:d, d:] = K.reshape(D, d).T @ P
    dW[d:, :d] = P.T @ Y.reshape(D, d)
    dW[d:, d:] = P.T @ C.reshape(D, D).T @ P
    return dv, dW


def forward(part, X, work):
    """E and its sums (as in `attention`), ubar and f of a chunk, u in `work.right`; Extreme if f is not finite.

    Every X that is not finite gives such an f: its u is not finite, and nor is any average of u.
    """
    m, D, d = X.shape
    A, u = work.A[:m], work.right[0, :m]
    scores(part, X, work, out=A)
    np.matmul(X.reshape(m * D, d), part.v1, out=u.reshape(m * D))
    u += part.u2
    E, sums = attention(A, work)
    ubar = np.divide(sums[0], sums[1], out=sums[0])
    f = ubar @ work.ones[:D]
    if not np.isfinite(f).all():
        raise Extreme
    return E, sums, u, ubar, f


def loss_and_gradient(part, X, y, weights, work):
    """The sums of a chunk: loss, then those of `sums`, a list of arrays  [batch.3]."""
    m, D, d = X.shape
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        E, sums_of_E, u, ubar, f = forward(part, X, work)
        loss, s = factors(y * f)
        c = -y * s * weights
        least, largest = MARGIN[c.itemsize] * np.finfo(c.dtype).tiny, max(u.max(), -u.min())
        if min(1, largest or 1) * np.abs(c).max() < least:             # the whole chunk would come near underflow
            raise Extreme
        queries, keys = dominating(E, sums_of_E)
        left, right = work.left[:, :m], work.right[:, :m]              # right: u and 1
        scale = np.divide(c[:, None], sums_of_E[1], out=left[0])       # c / Z_j
        np.multiply(scale, ubar, out=left[1])
        np.negative(left[1], out=left[1])
        T = np.matmul(scale[:, None, :], E)[:, 0]
        alike = u[:, 0] == u[:, -1]
        if alike.any():
            left[:, (u == u[:, :1]).all(axis=1)] = 0                   # equal values: G is exactly zero
        C = np.matmul(left.transpose(1, 2, 0), right.transpose(1, 0, 2), out=work.A[:m])       # c / Z_j (u_i - ubar_j)
        C *= E
        if len(queries):
            restore(C, queries, keys)
        return [loss @ weights, *sums(T, C, X, work)]
