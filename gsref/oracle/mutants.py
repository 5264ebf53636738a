"""Which known faults must be caught?  A table of wrong candidates, each one fault in an otherwise right one.

The same candidates, in float64, are the patterns that `diagnose` compares an unknown error with.
Shapes as in `gsref.oracle.plain`.
"""

from dataclasses import dataclass, replace
from typing import Callable

import numpy as np

from gsref.oracle.plain import Arithmetic, Plain
from gsref.oracle.precision import PRECISIONS


@dataclass(frozen=True)
class Fault:
    """A known fault: `make(arithmetic)` is a candidate that has it; `says` is the line of a diagnosis.

    `pattern`: whether its float64 values can be compared with an unknown candidate's.
    """

    name: str
    says: str
    make: Callable
    pattern: bool = True


def in_step_of(plain, name, says, **steps):
    """A fault in one step: methods of the class `plain` that are replaced."""
    return Fault(name, says, type("Faulty", (plain,), steps))


def in_step(name, says, **steps):
    """A fault in one step of the transformer."""
    return in_step_of(Plain, name, says, **steps)


def afterwards(name, says, change, pattern=True):
    """A fault in what is returned: `change(ar, loss, dv, dW, v, W, X, y, P)` gives the wrong (loss, dv, dW)."""
    def make(arithmetic):
        right = Plain(arithmetic)
        return lambda v, W, X, y, P: change(arithmetic, *right(v, W, X, y, P), *map(_float, (v, W, X, y, P)))
    return Fault(name, says, make, pattern)


def beforehand(name, says, change):
    """A fault in what is read: the right candidate on `change(v, W, X, y, P)`."""
    def make(arithmetic):
        right = Plain(arithmetic)
        return lambda *inputs: right(*change(*map(_float, inputs)))
    return Fault(name, says, make)


def _float(x):
    return np.array(x, dtype=np.float64)


def _zeroed(dv, dW, d, block):
    dv, dW = dv.copy(), dW.copy()
    side = {"1": slice(None, d), "2": slice(d, None)}
    if block[0] == "v":
        dv[side[block[1]]] = 0.0
    else:
        dW[side[block[1]], side[block[2]]] = 0.0
    return dv, dW


def _block(W, d, block):
    return _zeroed(np.zeros(len(W)), W, d, block)[1]


def _missing(block):
    def change(ar, loss, dv, dW, v, W, X, y, P):
        return (loss, *_zeroed(dv, dW, X.shape[2], block))
    return afterwards(f"zero-d{block}", f"the block {block} of the gradient is missing (zero)", change)


def _without(block):
    return beforehand(f"scores-without-{block}", f"the block {block} of W does not reach the scores",
                      lambda v, W, X, y, P: (v, _block(W, X.shape[2], block), X, y, P))


def _times(name, says, factor, what=("dv", "dW")):
    """The gradient times a constant; factor(n, D, d)."""
    def change(ar, loss, dv, dW, v, W, X, y, P):
        k = factor(*X.shape)
        out = {"loss": loss, "dv": dv, "dW": dW}
        out.update({name: ar.round(k * out[name]) for name in what})
        return float(out["loss"]), out["dv"], out["dW"]
    return afterwards(name, says, change)


def _block_times(name, says, block, factor):
    def change(ar, loss, dv, dW, v, W, X, y, P):
        d = X.shape[2]
        rest = _zeroed(dv, dW, d, block)
        k = factor(*X.shape)
        return loss, ar.round(rest[0] + k * (dv - rest[0])), ar.round(rest[1] + k * (dW - rest[1]))
    return afterwards(name, says, change)


def _one_entry(ar, loss, dv, dW, v, W, X, y, P):
    """The largest entry is wrong by one per cent, or by 128 units of rounding where one per cent is rounding."""
    dW = dW.copy()
    where = np.unravel_index(np.argmax(np.abs(dW)), dW.shape)
    dW[where] *= 1 + max(0.01, 128 * max(ar.precision.unit, ar.precision.operand))
    return loss, dv, dW


def _swapped_blocks(ar, loss, dv, dW, v, W, X, y, P):
    d, out = X.shape[2], dW.copy()
    out[:d, d:], out[d:, :d] = dW[d:, :d].T, dW[:d, d:].T
    return loss, dv, out


def _transposed_block(block):
    def change(ar, loss, dv, dW, v, W, X, y, P):
        d, out = X.shape[2], dW.copy()
        side = slice(None, d) if block == "W11" else slice(d, None)
        out[side, side] = dW[side, side].T
        return loss, dv, out
    return afterwards(f"d{block}-transposed", f"the block {block} of the gradient is transposed", change)


def _swapped_entries(ar, loss, dv, dW, v, W, X, y, P):
    dW = dW.copy()
    dW[0, [0, -1]] = dW[0, [-1, 0]]
    return loss, dv, dW


def _nan_entry(ar, loss, dv, dW, v, W, X, y, P):
    dW = dW.copy()
    dW[-1, -1] = np.nan
    return loss, dv, dW


def _step_query_key(change):
    """query_key_gradient with Z replaced on one side: change(Z, D) gives (left, right)."""
    def query_key_gradient(self, c, S, u, Z):
        ar = self.arithmetic
        G = ar.round(c[:, None, None] * self.score_gradient(S, u))
        left, right = change(Z, Z.shape[1])
        return ar.sum(ar.matmul(left.transpose(0, 2, 1), ar.matmul(G, right)), axis=0)
    return query_key_gradient


def _without_features(Z, D):
    out = Z.copy()
    out[:, :, :Z.shape[2] - D] = 0.0
    return out


def _without_positions(Z, D):
    out = Z.copy()
    out[:, :, Z.shape[2] - D:] = 0.0
    return out


def _unshifted(self, A, shift=0.0):
    ar = self.arithmetic
    E = ar.exp(ar.round(A - shift))
    return ar.round(E / ar.sum(E, 1)[:, None, :])


def _hard(self, A):
    S = Plain.attention(self, A)
    top = S.max(axis=1, keepdims=True)
    return np.where(top > 0.75, np.where(S == top, 1.0, 0.0), S)


def _cut(self, t):
    """Margins clipped at 20, where exp(-20) is below what the type resolves at 6."""
    most = 20.0 if self.arithmetic.precision.unit < 1e-6 else 6.0
    return np.clip(t, -most, most)


def _shared_coefficient(self, y, t, n):
    c = Plain.coefficient(self, y, t, n)
    return np.full_like(c, c.mean())


def _with_queries(self, S, u):
    ar = self.arithmetic
    over_queries = ar.round(ar.sum(S * u[:, :, None], 2))
    return ar.round(S * ar.round(u[:, :, None] - over_queries[:, :, None]))


def _half_the_digits(arithmetic):
    p = arithmetic.precision
    coarse = replace(p, bits=(p.bits + 1) // 2, unit=2.0**-((p.bits + 1) // 2), operand=0.0)
    right = Plain(replace(arithmetic, precision=coarse))
    return lambda *inputs: right(*(coarse.round(a) for a in inputs[:3]), inputs[3], coarse.round(inputs[4]))


def _changes_input(arithmetic):
    right = Plain(arithmetic)

    def candidate(v, W, X, y, P):
        result = right(v, W, X, y, P)
        W *= 1.0 + 2.0**-4
        W[0, 0] = 0.5
        return result
    return candidate


def _reuses_buffers(arithmetic):
    right, buffers = Plain(arithmetic), {}

    def candidate(v, W, X, y, P):
        loss, dv, dW = right(v, W, X, y, P)
        out = buffers.setdefault(len(v), (np.empty_like(dv), np.empty_like(dW)))
        out[0][:], out[1][:] = dv, dW
        return (loss, *out)
    return candidate


def _accumulates(arithmetic):
    right, before = Plain(arithmetic), {}

    def candidate(v, W, X, y, P):
        loss, dv, dW = right(v, W, X, y, P)
        dW = before[len(v)] = dW + before.get(len(v), 0.0)
        return loss, dv, dW
    return candidate


def _step(method):
    """The method with the emulated rounding of its result."""
    return lambda self, *args: self.arithmetic.round(method(self, *args))


FAULTS = (
    # scales, and means against sums
    _times("sum-for-mean", "the gradient is n times what it should be: a sum over the batch for the mean", lambda n, D, d: n),
    _times("mean-twice", "the gradient is divided by n twice", lambda n, D, d: 1 / n),
    _times("loss-summed", "the loss is a sum over the batch, not the mean", lambda n, D, d: n, ("loss",)),
    _times("all-summed", "loss and gradient are sums over the batch, not means", lambda n, D, d: n, ("loss", "dv", "dW")),
    _times("sign", "the gradient has the wrong sign", lambda n, D, d: -1),
    _times("sign-of-dW", "dW has the wrong sign", lambda n, D, d: -1, ("dW",)),
    _times("dW-doubled", "dW is twice what it should be (counted once as key and once as query)", lambda n, D, d: 2, ("dW",)),
    _times("dW-over-D", "dW is divided by D", lambda n, D, d: 1 / D, ("dW",)),
    _times("loss-in-bits", "the loss is a logarithm to base 2", lambda n, D, d: 1 / np.log(2.0), ("loss",)),
    _block_times("dW22-without-kappa", "the block W22 is divided by kappa = (D + 1)/2", "W22", lambda n, D, d: 2 / (D + 1)),
    in_step("scores-over-root", "the scores are divided by sqrt(d + D)",
            scores=_step(lambda self, W, Z: Plain.scores(self, W, Z) / np.sqrt(Z.shape[2]))),
    in_step("logit-mean", "the logit is the mean over queries, not the sum",
            logit=_step(lambda self, S, u: Plain.logit(self, S, u) / S.shape[2])),
    # the softmax
    in_step("wrong-axis", "the softmax runs over queries instead of keys",
            attention=lambda self, A: self.arithmetic.softmax(A, axis=2)),
    in_step("attention-transposed", "the attention is applied transposed: sum over j of S[i, j] u_j",
            averages=lambda self, S, u: self.arithmetic.matmul(S, u[:, :, None])[:, :, 0]),
    in_step("whole-softmax", "the softmax is normalised over keys and queries together",
            attention=lambda self, A: self.arithmetic.softmax(A.reshape(len(A), -1), axis=1).reshape(A.shape)),
    in_step("diagonal-jacobian", "only the diagonal of the softmax Jacobian is used: G = S u (1 - S)",
            score_gradient=_step(lambda self, S, u: S * u[:, :, None] * (1 - S))),
    in_step("no-jacobian", "the softmax Jacobian misses its second term: G = S u",
            score_gradient=_step(lambda self, S, u: S * u[:, :, None])),
    in_step("jacobian-without-S", "the softmax Jacobian misses its factor S: G = u - ubar",
            score_gradient=_step(lambda self, S, u: u[:, :, None] - self.averages(S, u)[:, None, :])),
    in_step("jacobian-axis", "the softmax Jacobian averages over queries instead of keys", score_gradient=_with_queries),
    in_step("one-maximum", "one maximum for the whole batch: samples with small scores underflow",
            attention=lambda self, A: _unshifted(self, A, A.max())),
    in_step("no-shift", "exp of the scores without subtracting the largest: overflow", attention=_unshifted),
    in_step("hard-attention", "where one score dominates the others are taken as exactly zero", attention=_hard),
    in_step("uniform-attention", "the attention is uniform: the scores do not reach it",
            attention=_step(lambda self, A: np.full_like(A, 1 / A.shape[1]))),
    afterwards("no-attention-gradient", "no gradient flows through the attention (dW = 0)",
               lambda ar, loss, dv, dW, *inputs: (loss, dv, np.zeros_like(dW))),
    # orientation
    afterwards("dW-transposed", "dW is transposed", lambda ar, loss, dv, dW, *inputs: (loss, dv, dW.T.copy())),
    beforehand("W-transposed", "W is read transposed, dW is not", lambda v, W, X, y, P: (v, W.T.copy(), X, y, P)),
    in_step("keys-and-queries", "keys and queries are swapped: scores z_j . W z_i",
            scores=lambda self, W, Z: Plain.scores(self, W.T, Z),
            outer=lambda self, G, Z: Plain.outer(self, G, Z).T.copy()),
    _transposed_block("W11"),
    _transposed_block("W22"),
    afterwards("W12-and-W21", "the blocks W12 and W21 of the gradient are exchanged", _swapped_blocks),
    # blocks and paths
    *(_missing(block) for block in ("v1", "v2", "W11", "W12", "W21", "W22")),
    *(_without(block) for block in ("W11", "W12", "W21", "W22")),
    in_step("values-without-positions", "the values leave out the positions (v2)",
            values=lambda self, v, Z: Plain.values(self, np.r_[v[:-Z.shape[1]], np.zeros(Z.shape[1])], Z)),
    in_step("query-without-positions", "the query's positions are missing from dW",
            query_key_gradient=_step_query_key(lambda Z, D: (Z, _without_positions(Z, D)))),
    in_step("key-without-features", "the key's features are missing from dW",
            query_key_gradient=_step_query_key(lambda Z, D: (_without_features(Z, D), Z))),
    in_step("dv-without-attention", "dv averages the tokens instead of weighting them by attention",
            received=_step(lambda self, S: np.ones(S.shape[:2]))),
    beforehand("positions-shifted", "the positions are shifted by one (counted from 0)",
               lambda v, W, X, y, P: (v, W, X, y, np.roll(P, 1, axis=0))),
    beforehand("tokens-reversed", "the tokens are read in the opposite order",
               lambda v, W, X, y, P: (v, W, X[:, ::-1].copy(), y, P)),
    # entries
    afterwards("one-entry", "one entry of dW is wrong by a small factor", _one_entry, pattern=False),
    afterwards("two-entries-swapped", "two entries of dW are exchanged", _swapped_entries),
    afterwards("last-row", "the last row of dW is missing (zero)",
               lambda ar, loss, dv, dW, *inputs: (loss, dv, np.vstack([dW[:-1], np.zeros_like(dW[:1])]))),
    afterwards("nan-entry", "one entry is NaN", _nan_entry, pattern=False),
    # labels
    beforehand("labels-01", "labels 0/1 in a formula for -1/+1", lambda v, W, X, y, P: (v, W, X, (y + 1) / 2, P)),
    beforehand("labels-flipped", "the labels have the opposite sign", lambda v, W, X, y, P: (v, W, X, -y, P)),
    beforehand("labels-ignored", "the labels are not used (all taken as +1)",
               lambda v, W, X, y, P: (v, W, X, np.ones_like(y), P)),
    in_step("sign-of-one-label", "the sign of the gradient is wrong for samples with label -1 only",
            coefficient=lambda self, y, t, n: Plain.coefficient(self, np.ones_like(y), t, n)),
    in_step("one-label-dropped", "samples with label -1 do not reach the gradient",
            coefficient=lambda self, y, t, n: np.where(y > 0, Plain.coefficient(self, y, t, n), 0.0)),
    in_step("labels-broadcast", "labels or factors of shape (n, 1) broadcast: every sample gets the batch's mean factor",
            coefficient=_shared_coefficient),
    # the loss
    in_step("factor-at-0", "the loss factor is wrong exactly at margin 0 (1 or 0 for 1/2)",
            loss_factor=lambda self, t: np.where(np.abs(t) < 2.0**-8, 1.0, Plain.loss_factor(self, t))),
    in_step("factor-of-f", "the loss factor is taken at f, not at y f",
            coefficient=lambda self, y, t, n: Plain.coefficient(self, y, t * y, n)),
    in_step("factor-reversed", "the loss factor is s(t) for s(-t)", loss_factor=lambda self, t: self.arithmetic.factor(-t)),
    in_step("factor-cut", "margins are clipped (at 20, or at 6 in a coarse type) in the loss factor", loss_factor=lambda self, t: Plain.loss_factor(self, _cut(self, t))),
    in_step("loss-cut", "margins are clipped (at 20, or at 6 in a coarse type) in the loss", losses=lambda self, t: Plain.losses(self, _cut(self, t))),
    in_step("loss-overflow", "log(1 + exp(-t)) without a shift: overflow for wrong answers, cut-off for right ones",
            losses=lambda self, t: self.arithmetic.round(np.log(self.arithmetic.round(1 + self.arithmetic.exp(-t))))),
    in_step("one-minus-sigmoid", "1 - sigmoid(t) loses the factor at large margins",
            loss_factor=_step(lambda self, t: 1 - self.arithmetic.factor(-t))),
    in_step("hinge", "the loss is the hinge loss", losses=lambda self, t: np.maximum(1 - t, 0.0),
            loss_factor=lambda self, t: np.where(t < 1, 1.0, 0.0)),
    in_step("exponential", "the loss is exp(-t)", losses=lambda self, t: self.arithmetic.exp(-t),
            loss_factor=lambda self, t: self.arithmetic.exp(-t)),
    # the batch
    beforehand("last-sample", "the last sample is replaced by the first",
               lambda v, W, X, y, P: (v, W, np.concatenate([X[:-1], X[:1]]), np.r_[y[:-1], y[:1]], P)),
    in_step("last-sample-dropped", "the last sample does not reach the gradient",
            coefficient=lambda self, y, t, n: Plain.coefficient(self, y, t, n) * (np.arange(n) < n - 1)),
    # what a candidate does besides
    afterwards("zeros", "the gradient is zero", lambda ar, loss, dv, dW, *inputs: (loss, 0 * dv, 0 * dW)),
    afterwards("loss-of-shape-1", "the loss has shape (1,)",
               lambda ar, loss, dv, dW, *inputs: (np.array([loss]), dv, dW), pattern=False),
    afterwards("squeezed", "an axis of length 1 is dropped",
               lambda ar, loss, dv, dW, *inputs: (loss, np.squeeze(dv[:, None]), dW.reshape(-1)), pattern=False),
    Fault("half-the-digits", "computed with half the digits of the working precision", _half_the_digits, pattern=False),
    Fault("changes-input", "changes an input", _changes_input, pattern=False),
    Fault("reuses-buffers", "returns the same buffers at every call", _reuses_buffers, pattern=False),
    Fault("accumulates", "adds to the gradient of the call before", _accumulates, pattern=False),
)


def known_wrong(dtype):
    """The wrong candidates in the precision `dtype`: a mapping from name to candidate."""
    arithmetic = Arithmetic(PRECISIONS[dtype], "wide")
    return {fault.name: fault.make(arithmetic) for fault in FAULTS}
