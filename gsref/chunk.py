"""What does one chunk of samples add to the loss and its gradient?  The closed forms, arranged for speed.

Shapes: X (m, D, d); A, E, S, G, C (m, D, D) with axes sample, *query j, key i* (transposed against `model`, so that
sums over keys run along memory); u, ubar, Z, T (m, D); t, c (m,).  Source: derivations/11_second_order.md.
"""

from dataclasses import dataclass

import numpy as np


HUGE = {4: 1e8, 8: 1e100}      # largest sum of exponentials taken without a shift, by the bytes of a number
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
        return np.tile(a.ravel(), -(-BUFFER // a.size))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = v[:d], P @ v[d:], W11.T, repeated(P @ W12.T), (P @ W21).T, repeated((P @ W22 @ P.T).T)
        return Prepared(*(np.ascontiguousarray(part, dtype=dtype) for part in parts))


class Workspace:
    """Arrays that the chunks of one thread share, so that none is allocated twice."""

    def __init__(self, m, D, d, dtype, room=None):
        shapes = [(m, D, D), (m, D, D), (m, D, d), (m, d, D)]
        room = np.empty(self.size(m, D, d, dtype), np.uint8) if room is None else room
        start = -room.ctypes.data % LINE       # on cache lines sums are a fifth to a third faster
        arrays = []
        for shape in shapes:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            arrays.append(room[start:start + size].view(dtype).reshape(shape))
            start += -(-size // LINE) * LINE
        self.A, self.E, self.L, self.XT = arrays
        self.large = room[start:start + m * D * D].view(bool).reshape(m, D, D)
        self.left, self.means = np.empty((m, 2, D), dtype), np.empty((m, D, 2), dtype)
        self.right, self.pair = np.ones((m, 2, D), dtype), np.ones((m, D, 2), dtype)
        self.ones = np.ones(max(m, D), dtype)

    @staticmethod
    def size(m, D, d, dtype):
        """Bytes of a `room` for the large arrays."""
        return np.dtype(dtype).itemsize * 2 * m * D * (D + d) + m * D * D + 5 * LINE


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


def exponentials(A, E):
    """E = exp(A - shift), one each.  Extreme if a score is not finite.

    No shift is needed while every E is a normal number and every Z of moderate size, since E / Z does not depend on
    it; the shift costs more than the exponential.  Otherwise each column is shifted by its own largest score.
    """
    D, info = A.shape[2], np.finfo(A.dtype)
    np.exp(A, out=E)
    if not (E.min() > 1e4 * info.tiny and E.max() < HUGE[A.dtype.itemsize] / D):        # `not >`: NaN comes here too
        if not np.isfinite(A).all():
            raise Extreme
        np.exp(A - A.max(axis=2, keepdims=True), out=E)


def restore_dominating(G, large, ones):
    """In place: entries of keys with more than half of a query's attention, from the sum of the others  [batch.1].

    `large` (m, D, D) marks them.  There u_i - ubar_j cancels, and there alone; columns of G sum to zero.
    """
    D = G.shape[2]
    if large.any():
        at = np.flatnonzero(large)             # one key a query at most
        flat = G.reshape(-1)
        flat[at] = 0
        flat[at] = -(G.reshape(-1, D) @ ones[:D])[at // D]


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
    v1, T, W11, K, Y, C = np.split(parts, np.cumsum([d, D, d * d, D * d, D * d]))
    dW = np.empty((d + D, d + D))
    dW[:d, :d] = W11.reshape(d, d)
    dW[:d, d:] = K.reshape(D, d).T @ P
    dW[d:, :d] = P.T @ Y.reshape(D, d)
    dW[d:, d:] = P.T @ C.reshape(D, D).T @ P
    return np.concatenate([v1, P.T @ T]), dW


def forward(part, X, work):
    """E (in `work`), Z, u, ubar and f of a chunk; Extreme if anything is not finite."""
    m, D, d = X.shape
    rows, A, E, u = X.reshape(m * D, d), work.A[:m], work.E[:m], work.right[:m, 0]
    if not np.isfinite(np.vdot(rows, rows)):               # also when squares overflow: the plain formulas will see
        raise Extreme
    scores(part, X, work, out=A)
    exponentials(A, E)
    np.add((rows @ part.v1).reshape(m, D), part.u2, out=u)
    alike = u[:, 0] == u[:, -1]
    if alike.any():
        alike = (u == u[:, :1]).all(axis=1)                # equal values: G is exactly zero, see below
    pair, means = work.pair[:m], work.means[:m]
    pair[:, :, 0] = u
    np.matmul(E, pair, out=means)
    Z = np.ascontiguousarray(means[:, :, 1])
    ubar = means[:, :, 0] / Z
    f = ubar @ work.ones[:D]
    if not np.isfinite(f).all():
        raise Extreme
    return E, Z, u, ubar, f, alike


def loss_and_gradient(part, X, y, weights, work):
    """The sums of a chunk: loss, then those of `sums`, a list of arrays  [batch.3]."""
    m, D, d = X.shape
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        E, Z, u, ubar, f, alike = forward(part, X, work)
        loss, s = factors(y * f)
        c = -y * s * weights
        least, largest = MARGIN[c.itemsize] * np.finfo(c.dtype).tiny, np.abs(u).max()
        if min(1, largest or 1) * np.abs(c).max() < least:             # the whole chunk would come near underflow
            raise Extreme
        left, right, A, large = work.left[:m], work.right[:m], work.A[:m], work.large[:m]
        leftT = left.transpose(0, 2, 1)
        left[:, 0] = 0                         # numpy compares with a whole array faster than with a column
        np.multiply(0.5, Z, out=left[:, 1])
        np.greater(E, np.matmul(leftT, right, out=A), out=large)
        scale = np.divide(c[:, None], Z, out=left[:, 0])                       # c / Z_j
        np.negative(scale * ubar, out=left[:, 1])
        T = np.matmul(scale[:, None, :], E)[:, 0]
        if alike.any():
            left[alike] = 0
        C = np.matmul(leftT, right, out=A)                                     # c / Z_j (u_i - ubar_j)
        C *= E
        restore_dominating(C, large, work.ones)
        return [loss @ weights, *sums(T, C, X, work)]
