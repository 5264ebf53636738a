"""What do learners do that are told more, or less, than the trained model?

- full MLE `sign(muhat . x)`: knows the law but not the subspace (p = q = 1 in the language of `population`);
- projected MLE `sign(Pi muhat . x)`: knows the subspace (p = 1, q = 0), and is the optimal rule then;
- linear SVM, hard margin, with or without an intercept: knows the context alone.

Shapes: X (M, d) the examples of one context, y (M,) their labels, w (d,).  Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve

from gsref.arguments import instance, labels, real_array
from gsref.metalearner.accuracy import linear_accuracy
from gsref.metalearner.max_margin import nonnegative_quadratic
from gsref.metalearner.population import Order
from gsref.metalearner.problem import MetaProblem

FULL_MLE = Order(1.0, 1.0)
PROJECTED_MLE = Order(1.0, 0.0)


def optimal_rule(problem):
    """The Bayes rule of a learner that knows the law and the subspace, as an `Order`  [meta.10].

    Without flipped labels the posterior odds of y are I(R |M Pi muhat + Pi x|) / I(R |M Pi muhat - Pi x|) with an
    increasing function I, so the rule is the projected MLE; a learner that does not know the subspace, if that is
    uniformly random, has the same odds without Pi: the full MLE is optimal among all that see the context alone.
    Raises ValueError for label_noise > 0: the odds then are no function of the context mean.
    """
    if instance("problem", problem, MetaProblem).label_noise > 0.0:
        raise ValueError(f"label_noise: got {problem.label_noise:g}, expected 0: with flipped labels the optimal rule "
                         "is no function of the context mean")
    return PROJECTED_MLE


@dataclass(frozen=True)
class LinearRule:
    """The rule sign(w . x + b), and the largest violation of the conditions that make it the solution."""

    w: np.ndarray
    b: float
    residual: float

    def accuracy(self, mu):
        """P(y (w . x + b) > 0) for x = y mu + z; a constant rule (w = 0) is right half of the time."""
        return linear_accuracy(self.w, self.b, mu)


def svm(X, y, intercept=True, most=20):
    """Hard-margin SVM: least |w| with y_i (w . x_i + b) >= 1, a `LinearRule`  [meta.14].

    w = sum alpha_i y_i x_i, alpha >= 0, sum alpha_i y_i = 0, which needs inner products of the M examples only.
    Without intercept (b = 0, and no condition on sum alpha_i y_i) this is one call of `nonnegative_quadratic`. A free
    intercept fits no least-squares problem as it is: a proximal term (b - b_0)^2/(2c) makes one, whose support gives
    w and b by one linear system; if that breaks a condition, the intercept found becomes the next b_0. Proximal steps
    converge, and end where every condition holds to rounding.
    With an intercept a context of one class answers with that class (w = 0, b = that label).
    Raises TypeError or ValueError, also for M > d examples; ArithmeticError if `most` proximal steps did not do.
    """
    X = real_array("X", X, ("M", "d"))
    M, d = X.shape
    y = labels("y", y, M)
    if intercept and (y == y[0]).all():
        return LinearRule(np.zeros(d), float(y[0]), 0.0)
    if M > d:
        raise ValueError(f"X: got {M} examples of dimension {d}, expected at most {d}: a separating plane need not "
                         "exist")
    Q = np.outer(y, y) * (X @ X.T)
    if not intercept:
        alpha = nonnegative_quadratic(Q, np.ones(M))
        residual = max(float((1.0 - Q @ alpha).max()), float(np.abs(alpha * (Q @ alpha - 1.0)).max() / alpha.sum()))
        return LinearRule(X.T @ (alpha * y), 0.0, residual)
    c = 10.0 * np.trace(Q) / M
    b = 0.0
    for _ in range(most):
        alpha = nonnegative_quadratic(Q + c * np.outer(y, y), 1.0 - b * y)
        b = b + c * float(y @ alpha)
        on = np.flatnonzero(alpha > 0)
        exact = solve(np.block([[Q[np.ix_(on, on)], y[on, None]], [y[None, on], np.zeros((1, 1))]]),
                      np.append(np.ones(len(on)), 0.0), assume_a="sym")
        t = Q[:, on] @ exact[:-1] + y * exact[-1]
        residual = max(float((1.0 - t).max()), float(-exact[:-1].min() / np.abs(exact[:-1]).max()),
                       abs(float(y[on] @ exact[:-1])) / np.abs(exact[:-1]).sum())
        if residual < 1e-9:
            return LinearRule(X[on].T @ (exact[:-1] * y[on]), float(exact[-1]), residual)
    raise ArithmeticError(f"svm: {most} proximal steps left a condition violated by {residual:.3g} (M = {M}, d = {d})")
