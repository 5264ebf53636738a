"""Which known faults of a metalearner must be caught?  A right candidate in emulated arithmetic, and what can go wrong.

The same candidates, in float64, are the patterns that the oracle's diagnosis compares an unknown error with.
Shapes as in `gsref.metalearner.oracle`.
"""

from dataclasses import dataclass

import numpy as np

from gsref.oracle.mutants import Fault, in_step_of
from gsref.oracle.plain import Arithmetic, LogisticLoss
from gsref.oracle.precision import PRECISIONS


@dataclass(frozen=True)
class Plain(LogisticLoss):
    """A right candidate (W, X, Y, x, y) -> (loss, dW); `queries_first`: muhat (W x) instead of (muhat W) x."""

    queries_first: bool = False

    def __call__(self, W, X, Y, x, y):
        W, X, Y, x, y = (np.asarray(a, dtype=np.float64) for a in (W, X, Y, x, y))
        with np.errstate(all="ignore"):                    # overflow is what some of the known-wrong candidates are about
            muhat = self.context_mean(X, Y)
            t = self.margins(W, muhat, x, y)
            return float(self.mean(self.losses(t))), self.gradient(self.coefficient(y, t, len(t)), muhat, x)

    def context_mean(self, X, Y):
        ar = self.arithmetic
        return ar.round(ar.matmul(Y[:, None, :], X)[:, 0, :] / X.shape[1])

    def margins(self, W, muhat, x, y):
        ar = self.arithmetic
        left, right = (muhat, ar.matmul(x, W.T)) if self.queries_first else (ar.matmul(muhat, W), x)
        return y * ar.matmul(left[:, None, :], right[:, :, None])[:, 0, 0]

    def gradient(self, c, muhat, x):
        ar = self.arithmetic
        return ar.matmul(muhat.T, ar.round(c[:, None] * x))


def right_candidates(dtype):
    """Right candidates in the precision `dtype`: a mapping from name to candidate, each another order of operation."""
    return {f"{sums}, {'muhat (W x)' if first else '(muhat W) x'}": Plain(Arithmetic(PRECISIONS[dtype], sums), first)
            for sums in ("forward", "backward", "pairwise", "wide") for first in (False, True)}


def step(name, says, **steps):
    return in_step_of(Plain, name, says, **steps)


def after(name, says, change, pattern=True):
    """A fault in what is returned: `change(arithmetic, loss, dW, B, N)` gives the wrong (loss, dW)."""
    def make(arithmetic):
        right = Plain(arithmetic)
        return lambda W, X, Y, x, y: change(arithmetic, *right(W, X, Y, x, y), *np.shape(X)[:2])
    return Fault(name, says, make, pattern)


def before(name, says, change):
    """A fault in what is read: the right candidate on `change(W, X, Y, x, y)`."""
    def make(arithmetic):
        right = Plain(arithmetic)
        return lambda *inputs: right(*change(*(np.array(a, dtype=np.float64) for a in inputs)))
    return Fault(name, says, make)


def _one_entry(ar, loss, dW, B, N):
    dW = dW.copy()
    where = np.unravel_index(np.argmax(np.abs(dW)), dW.shape)
    dW[where] *= 1 + max(0.01, 128 * max(ar.precision.unit, ar.precision.operand))
    return loss, dW


def _accumulates(arithmetic):
    right, kept = Plain(arithmetic), {}

    def candidate(W, X, Y, x, y):
        loss, dW = right(W, X, Y, x, y)
        dW = kept[len(W)] = dW + kept.get(len(W), 0.0)
        return loss, dW
    return candidate


def _changes_input(arithmetic):
    right = Plain(arithmetic)

    def candidate(W, X, Y, x, y):
        result = right(W, X, Y, x, y)
        X *= 2.0
        return result
    return candidate


FAULTS = (
    after("sign", "dW has the wrong sign", lambda ar, loss, dW, B, N: (loss, -dW)),
    after("sum-for-mean", "dW misses 1/B: a sum over the tasks for the mean",
          lambda ar, loss, dW, B, N: (loss, ar.round(B * dW))),
    after("mean-twice", "dW is divided by B twice", lambda ar, loss, dW, B, N: (loss, ar.round(dW / B))),
    after("loss-summed", "the loss misses 1/B: a sum over the tasks for the mean",
          lambda ar, loss, dW, B, N: (float(ar.round(np.float64(B * loss))), dW)),
    after("all-summed", "loss and dW miss 1/B: sums over the tasks for means",
          lambda ar, loss, dW, B, N: (float(ar.round(np.float64(B * loss))), ar.round(B * dW))),
    after("dW-transposed", "dW is transposed", lambda ar, loss, dW, B, N: (loss, dW.T.copy())),
    before("W-transposed", "W is read transposed, dW is not", lambda W, X, Y, x, y: (W.T.copy(), X, Y, x, y)),
    step("context-summed", "the context mean is not divided by N",
         context_mean=lambda self, X, Y: self.arithmetic.matmul(Y[:, None, :], X)[:, 0, :]),
    step("context-over-N-1", "the context mean is divided by N - 1 instead of N",
         context_mean=lambda self, X, Y: self.arithmetic.round(
             Plain.context_mean(self, X, Y) * X.shape[1] / max(X.shape[1] - 1, 1))),
    before("context-labels-missing", "the labels of the context are missing: muhat is the mean of x_i, not of y_i x_i",
           lambda W, X, Y, x, y: (W, X, np.ones_like(Y), x, y)),
    before("query-labels-missing", "the label of the query is missing everywhere (all taken as +1)",
           lambda W, X, Y, x, y: (W, X, Y, x, np.ones_like(y))),
    step("label-missing-in-dW", "the label of the query is missing from dW",
         coefficient=lambda self, y, t, n: Plain.coefficient(self, np.ones_like(y), t, n)),
    step("label-missing-in-t", "the label of the query is missing from the margin",
         margins=lambda self, W, muhat, x, y: y * Plain.margins(self, W, muhat, x, y)),
    before("labels-01", "query labels 0/1 in a formula for -1/+1", lambda W, X, Y, x, y: (W, X, Y, x, (y + 1) / 2)),
    before("context-labels-01", "context labels 0/1 in a formula for -1/+1", lambda W, X, Y, x, y: (W, X, (Y + 1) / 2, x, y)),
    before("labels-flipped", "the labels of the query have the opposite sign", lambda W, X, Y, x, y: (W, X, Y, x, -y)),
    step("loss-in-bits", "the loss is a logarithm to base 2",
         losses=lambda self, t: self.arithmetic.round(Plain.losses(self, t) / np.log(2.0))),
    step("factor-reversed", "the loss factor is s(t) for s(-t)", loss_factor=lambda self, t: self.arithmetic.factor(-t)),
    step("factor-at-0", "the loss factor is wrong exactly at margin 0 (1 or 0 for 1/2)",
         loss_factor=lambda self, t: np.where(t == 0.0, 1.0, Plain.loss_factor(self, t))),
    step("one-minus-sigmoid", "1 - sigmoid(t) loses the factor at large margins",
         loss_factor=lambda self, t: self.arithmetic.round(1.0 - self.arithmetic.factor(-t))),
    step("loss-overflow", "log(1 + exp(-t)) without a shift: overflow for wrong answers, cut-off for right ones",
         losses=lambda self, t: self.arithmetic.round(np.log(self.arithmetic.round(1.0 + self.arithmetic.exp(-t))))),
    step("hinge", "the loss is the hinge loss", losses=lambda self, t: np.maximum(1.0 - t, 0.0),
         loss_factor=lambda self, t: np.where(t < 1.0, 1.0, 0.0)),
    step("exponential", "the loss is exp(-t)", losses=lambda self, t: self.arithmetic.exp(-t),
         loss_factor=lambda self, t: self.arithmetic.exp(-t)),
    step("no-factor", "dW misses the loss factor s(-t)", loss_factor=lambda self, t: np.ones_like(t)),
    step("query-for-mean", "dW takes the query on both sides instead of the context mean",
         gradient=lambda self, c, muhat, x: Plain.gradient(self, c, x, x)),
    step("last-task-dropped", "the last task does not reach dW",
         coefficient=lambda self, y, t, n: Plain.coefficient(self, y, t, n) * (np.arange(n) < n - 1)),
    step("mean-factor", "one loss factor for all tasks: labels or factors of shape (B, 1) broadcast",
         coefficient=lambda self, y, t, n: np.full_like(t, Plain.coefficient(self, y, t, n).mean())),
    after("zeros", "dW is zero", lambda ar, loss, dW, B, N: (loss, 0.0 * dW)),
    after("one-entry", "one entry of dW is wrong by a small factor", _one_entry, pattern=False),
    after("loss-of-shape-1", "the loss has shape (1,)", lambda ar, loss, dW, B, N: (np.array([loss]), dW), pattern=False),
    Fault("accumulates", "adds to the gradient of the call before", _accumulates, pattern=False),
    Fault("changes-input", "changes an input", _changes_input, pattern=False),
)


def known_wrong(dtype):
    """The wrong candidates in the precision `dtype`: a mapping from name to candidate."""
    arithmetic = Arithmetic(PRECISIONS[dtype], "wide")
    return {fault.name: fault.make(arithmetic) for fault in FAULTS}
