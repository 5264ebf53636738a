"""What does the transformer compute?  Scores, attention, logit, loss: one labelled equation a function.

Shapes: X (n, D, d), P (D, D), v (d+D,), W (d+D, d+D), A, S (n, D, D), u (n, D), f (n,).
Axes of A and S: sample, key i, query j; every column of S sums to one.  Source: derivations/02_gradients.md.

The functions with an underscore assume valid arrays and also take complex v and W
(they are analytic in both, for complex-step differentiation); the public ones validate.
"""

import numpy as np

from gsref.arguments import finite, labels, real_array


def _scores(W, X, P):
    """A[i, j] = z_i . W z_j,  z_j = [x_j, p_j], the product taken block by block  [model.1]."""
    d = X.shape[2]
    W11, W12, W21, W22 = W[:d, :d], W[:d, d:], W[d:, :d], W[d:, d:]
    left = X @ W11 + P @ W21                   # (n, D, d): row i is z_i . [W11; W21]
    right = X @ W12 + P @ W22                  # (n, D, D): row i is z_i . [W12; W22]
    return left @ X.transpose(0, 2, 1) + right @ P.T


def _attention(A):
    """S[i, j] = exp(A[i, j]) / sum_k exp(A[k, j])  [model.2]; the shift is each column's own largest score."""
    E = np.exp(A - A.real.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def _values(v, X, P):
    """u_i = v . z_i  [model.3], shape (n, D)."""
    d = X.shape[2]
    return X @ v[:d] + P @ v[d:]


def _logit(S, u):
    """f = sum_j ubar_j,  ubar_j = sum_i S[i, j] u_i  [model.4], shape (n,)."""
    return np.einsum("nij,ni->n", S, u)


def logistic_loss(margin):
    """log(1 + exp(-t)) of an array of margins t = y f, for any size of t, real or complex  [model.5].

    Both branches are the same analytic function, and neither overflows: t < 0 uses log(1 + e^-t) = -t + log(1 + e^t).
    """
    t = np.asarray(margin)
    negative = t.real < 0
    return np.where(negative, -t, 0.0) + np.log1p(np.exp(np.where(negative, t, -t)))


def mean_loss(margin):
    """The mean of `logistic_loss`; each term is divided first, so that the sum of large ones cannot overflow."""
    return (logistic_loss(margin) / len(margin)).sum()


def logistic_factor(margin):
    """s(-t) = 1 / (1 + exp(t)) of an array of real margins t: minus the derivative of the loss  [model.6].

    Relative accuracy at both ends: no 1 - s, no overflow.
    """
    t = np.asarray(margin)
    e = np.exp(-np.abs(t))
    return np.where(t < 0, 1.0, e) / (1.0 + e)


def _states(v, W, X, P):
    A = _scores(W, X, P)
    S = _attention(A)
    u = _values(v, X, P)
    return A, S, u, _logit(S, u)


def _loss(v, W, X, y, P):
    """L = mean_n log(1 + exp(-y f)), analytic in v and W."""
    return mean_loss(y * _states(v, W, X, P)[-1])


def parameters(v, W, X, P):
    """Validated float64 (v, W, X, P), or an error that names the argument."""
    X = real_array("X", X, ("n", "D", "d"))
    _, D, d = X.shape
    return (real_array("v", v, (d + D,)), real_array("W", W, (d + D, d + D)), X, real_array("P", P, (D, D)))


def states(v, W, X, P):
    """Scores A, attention S, values u, logit f of valid real arrays; OverflowError, naming it, if one is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):         # the checks below say it better than a warning
        A, S, u, f = _states(v, W, X, P)
    return finite("scores", A), S, finite("values", u), finite("logit", f)


def forward(v, W, X, P):
    """Logit f (n,) and attention S (n, D, D), S[n, i, j] the attention of query j on key i.

    Raises TypeError or ValueError, naming the argument, for a wrong shape, a complex or object array, an empty
    batch or a non-finite number; OverflowError, naming it, if a score, a value or the logit exceeds float64.
    Inputs are not modified.  Source: derivations/02_gradients.md.
    """
    _, S, _, f = states(*parameters(v, W, X, P))
    return f, S


def loss(v, W, X, y, P):
    """Mean logistic loss, a float.  `y` (n,) holds -1 and +1.  Raises as `forward`."""
    v, W, X, P = parameters(v, W, X, P)
    y = labels("y", y, len(X))
    *_, f = states(v, W, X, P)
    return float(mean_loss(y * f))
