"""How does online SGD go on the downstream task, for many seeds at once?

Every step uses one fresh sample.  The leading axis of every array is the member of the batch: a seed, or a seed with a
step size of its own.  A member's numbers do not depend on the other members.

    Shapes: B members; v (B, d+D), W (B, d+D, d+D), X (B, D, d), y (B,), A, S, G (B, D, D), eta (B,)

Source: derivations/09_transfer.md.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import integer, real_array
from gsref.gradients import score_gradient
from gsref.model import _attention, _logit, logistic_factor
from gsref.problem import positions

CHUNK = 128                                    # samples are drawn by so many a seed; part of what a seed means


def default_step(d, D):
    """The step size of SGD on (v, W) from a pretrained model: 2 / (D^2 (d + kappa)), the same rule at all sizes.

    With all attention on the relevant group the logit is linear in v with the feature D [x_r, p_r]  [transfer.5], whose
    mean squared length is D^2 (d + kappa): one step changes the logit of its own sample by about twice the logistic factor.  The 2 is
    empirical: on Gaussian tasks of margin 1/2, d and D from 4 to 16, mistakes are nearly the same from 1 to 4.
    """
    return 2.0 / (D**2 * (d + (D + 1) / 2))


@dataclass(frozen=True)
class Run:
    """What online SGD went through.

    `at` (K,): numbers of samples; `mistakes` (B, K): how many of the first at[k] samples were on the wrong side
    (y f <= 0) when they came, before they were learned from; `states`: a list of K tuples of parameter arrays, the
    state after at[k] samples.
    """

    at: np.ndarray
    mistakes: np.ndarray
    states: list

    @property
    def online_error(self):
        """Mistakes / n, shape (B, K), an unbiased estimate of (1/n) sum_i Prob(y f_i <= 0)  [transfer.7]."""
        return self.mistakes / self.at


def mistake_bound(n, margin, squared_length, eta):
    """At most so many mistakes in n steps of logistic regression by SGD from zero  [transfer.6].

    `margin`: some unit vector u has y <u, phi> >= margin for every feature phi; `squared_length` >= |phi|^2; eta times
    it must be below 2 (ValueError otherwise).
    """
    room = 1 - eta * squared_length / 2
    if not room > 0:
        raise ValueError(f"eta: got {eta:g}, expected less than {2 / squared_length:g} (2 / squared_length)")
    return ((np.log(n) / margin) ** 2 / (2 * eta) + 1) / (room * np.log(2))


def attention_step(blocks, X, y, eta, root):
    """One step of SGD on (v, W) for each member, in place; returns the margins y f (B,) before it  [transfer.4].

    `blocks` = v1 (B, d), v2 (B, D), W11 (B, d, d), W12 (B, d, D), W21 (B, D, d), W22 (B, D, D) in coordinates where the
    position of group j is root e_j, root = sqrt(kappa).
    """
    v1, v2, W11, W12, W21, W22 = blocks
    XT = X.transpose(0, 2, 1)
    A = (X @ W11 + root * W21) @ XT + root * (X @ W12) + root**2 * W22
    S = _attention(A)
    u = (X @ v1[:, :, None])[:, :, 0] + root * v2
    t = y * _logit(S, u)
    c = -y * logistic_factor(t)
    change = (eta * c)[:, None, None]
    G = change * score_gradient(A, S, u)
    T = change[:, 0] * S.sum(axis=2)
    GX = G @ X
    v1 -= (XT @ T[:, :, None])[:, :, 0]
    v2 -= root * T
    W11 -= XT @ GX
    W12 -= root * (XT @ G)
    W21 -= root * GX
    W22 -= root**2 * G
    return t


def linear_step(blocks, X, y, eta):
    """One step of logistic regression on the vectorised features, in place; returns the margins before it."""
    (w,) = blocks
    x = X.reshape(len(X), -1)
    t = y * (x * w).sum(axis=1)
    w += (eta * y * logistic_factor(t))[:, None] * x
    return t


def rotated(v, W, P):
    """The six blocks of (v, W), with positions rotated by P/sqrt(kappa) on the axes; the last axes are features."""
    d = v.shape[-1] - len(P)
    Q = P / np.sqrt((len(P) + 1) / 2)
    return [v[..., :d].copy(), v[..., d:] @ Q, W[..., :d, :d].copy(), W[..., :d, d:] @ Q, Q @ W[..., d:, :d],
            Q @ W[..., d:, d:] @ Q]


def unrotated(blocks, P):
    """(v, W) of the six blocks: the inverse of `rotated`."""
    v1, v2, W11, W12, W21, W22 = blocks
    Q = P / np.sqrt((len(P) + 1) / 2)
    # one product a member: a matrix product over all members would round differently for one than for many
    v = np.concatenate([v1, (v2[..., None, :] @ Q)[..., 0, :]], axis=-1)
    W = np.concatenate([np.concatenate([W11, W12 @ Q], axis=-1), np.concatenate([Q @ W21, Q @ W22 @ Q], axis=-1)], axis=-2)
    return v, W


def train_attention(task, v, W, eta, seeds, at, callback=None):
    """Online SGD on (v, W) of every member, from one start v (d+D,), W (d+D, d+D), as a `Run` with states (v, W).

    `task` has d, D and sample(n, rng); `eta` (B,) or a number; `seeds`: B non-negative integers (repeated ones share
    their samples); `at`: rising numbers of samples at which states are kept, the last is where the run ends;
    `callback(n)` is called now and then.
    Raises TypeError or ValueError, naming the argument.
    """
    d, D = task.d, task.D
    v, W = real_array("v", v, (d + D,)), real_array("W", W, (d + D, d + D))
    seeds = integers("seeds", seeds, 0)
    P = positions(D)
    root = np.sqrt((D + 1) / 2)
    blocks = [np.repeat(block[None], len(seeds), axis=0) for block in rotated(v, W, P)]
    return _train(task, blocks, lambda X, y, eta: attention_step(blocks, X, y, eta, root), eta, seeds, at,
                  lambda: unrotated(blocks, P), callback)


def train_linear(task, eta, seeds, at, callback=None):
    """Online SGD of logistic regression on the d D vectorised features, from zero, as a `Run` with states (w,).

    w (B, D, d).  Arguments and errors as in `train_attention`.
    """
    seeds = integers("seeds", seeds, 0)
    blocks = [np.zeros((len(seeds), task.D * task.d))]
    return _train(task, blocks, lambda X, y, eta: linear_step(blocks, X, y, eta), eta, seeds, at,
                  lambda: (blocks[0].reshape(-1, task.D, task.d).copy(),), callback)


def integers(name, values, least, fewest=1):
    """`values` as a list of at least `fewest` integers >= least.  TypeError or ValueError, naming the argument."""
    if np.ndim(values) != 1:
        raise TypeError(f"{name}: got {values!r}, expected a sequence of integers >= {least}")
    values = [integer(name, value, least) for value in values]
    if len(values) < fewest:
        raise ValueError(f"{name}: got {len(values)} of them, expected at least {fewest}")
    return values


def rising(name, values):
    """`values` as an array of rising integers >= 1, at least one.  TypeError or ValueError, naming the argument."""
    values = np.array(integers(name, values, 1))
    if (np.diff(values) <= 0).any():
        raise ValueError(f"{name}: got {values.tolist()}, expected rising numbers of samples, at least one")
    return values


def _train(task, blocks, step, eta, seeds, at, state, callback):
    at = rising("at", at)
    if np.ndim(eta) == 0:
        eta = [eta] * len(seeds)
    eta = real_array("eta", eta, (len(seeds),))
    if (eta <= 0).any():
        raise ValueError(f"eta: got {eta.min():g}, expected step sizes > 0")
    distinct = sorted(set(seeds))
    member = [distinct.index(seed) for seed in seeds]
    streams = [np.random.default_rng(seed) for seed in distinct]
    wrong, mistakes, states = np.zeros(len(seeds), dtype=np.int64), [], []
    n, stops = 0, set(at.tolist())
    while n < at[-1]:
        if callback:
            callback(n)
        X, y = (np.stack(part, axis=1) for part in zip(*(task.sample(CHUNK, rng) for rng in streams)))
        for i in range(min(CHUNK, at[-1] - n)):
            wrong += ~(step(X[i][member], y[i][member], eta) > 0)        # `not >`: a NaN is a mistake, and 0 is one
            n += 1
            if n in stops:
                mistakes.append(wrong.copy())
                states.append(state())
    return Run(at, np.stack(mistakes, axis=1), states)
