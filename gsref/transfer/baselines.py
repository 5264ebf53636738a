"""What does the pretrained model compete with, and how is each competitor tuned?

Logistic regression on the d D vectorised features, by the same online SGD and by maximum likelihood; and SGD on (v, W)
from zero.  Both SGD baselines run at every step size of a grid on the same samples as the pretrained model, and are
then represented by the best of them *in hindsight*, on the very runs that are reported: better than any user could do.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from gsref.arguments import integer, labels, real, real_array
from gsref.model import logistic_factor, mean_loss
from gsref.transfer.sgd import Run, train_attention, train_linear

# the grids, in units of each method: the best is inside at every size; without a margin small steps are wanted
LINEAR_STEPS = (0.0625, 0.25, 1.0, 4.0, 16.0)
FROM_ZERO_STEPS = (0.25, 1.0, 4.0, 16.0)


def linear_unit(d, D):
    """1 / (d D): the step size at which one step of logistic regression moves its own logit by about 1/2."""
    return 1.0 / (d * D)


def from_zero_unit(d, D):
    """1 / (D (d + kappa)): with uniform attention df/dv = sum_i z_i, of mean squared length near D (d + kappa)."""
    return 1.0 / (D * (d + (D + 1) / 2))


def best_of_grid(train, steps, unit, seeds, at, score):
    """(best multiple, its Run, {multiple: score}): `train(eta (B,), seeds (B,), at)` at steps * unit, in one batch.

    `score(run)` is a number, lower is better.
    """
    members = len(seeds)
    together = train(np.repeat(steps, members) * unit, list(seeds) * len(steps), at)
    runs = {}
    for i, multiple in enumerate(steps):
        rows = slice(i * members, (i + 1) * members)
        runs[multiple] = Run(together.at, together.mistakes[rows],
                             [tuple(part[rows] for part in state) for state in together.states])
    scores = {multiple: float(score(run)) for multiple, run in runs.items()}
    best = min(scores, key=scores.get)
    return best, runs[best], scores


def logistic_sgd(task, seeds, at, score, callback=None):
    """Online SGD of logistic regression at the best step size of the grid; see `best_of_grid`."""
    return best_of_grid(lambda eta, seeds, at: train_linear(task, eta, seeds, at, callback),
                        LINEAR_STEPS, linear_unit(task.d, task.D), seeds, at, score)


def sgd_from_zero(task, seeds, at, score, callback=None):
    """Online SGD on (v, W) from zero at the best step size of the grid; see `best_of_grid`."""
    v, W = np.zeros(task.d + task.D), np.zeros((task.d + task.D, task.d + task.D))
    return best_of_grid(lambda eta, seeds, at: train_attention(task, v, W, eta, seeds, at, callback),
                        FROM_ZERO_STEPS, from_zero_unit(task.d, task.D), seeds, at, score)


@dataclass(frozen=True)
class Fit:
    """Logistic regression by maximum likelihood: w (D, d), mean loss there, L-BFGS iterations, whether w separates.

    `converged` is L-BFGS's own word.  Labels without noise are separable: the likelihood then has no maximum, w grows
    without bound in a direction that tends to the maximum-margin one, and `gtol` decides where it is stopped.
    """

    w: np.ndarray
    loss: float
    iterations: int
    separates: bool
    converged: bool


def maximum_likelihood(X, y, gtol=1e-6, max_iterations=2000):
    """Minimise the mean logistic loss of sum_ji w[j, i] X[n, j, i] over w, from zero, by L-BFGS (scipy), as a `Fit`.

    X (n, D, d), y (n,) of -1 and +1; stops when the largest entry of the gradient is below `gtol`.
    Raises TypeError or ValueError, naming the argument.
    """
    X = real_array("X", X, ("n", "D", "d"))
    n, D, d = X.shape
    yx = labels("y", y, n)[:, None] * X.reshape(n, D * d)
    gtol = real("gtol", gtol, 0.0, open_least=True)

    def loss_and_gradient(w):
        t = yx @ w
        return mean_loss(t), -(logistic_factor(t) @ yx) / n
    found = minimize(loss_and_gradient, np.zeros(D * d), jac=True, method="L-BFGS-B",
                     options={"gtol": gtol, "ftol": 0.0, "maxiter": integer("max_iterations", max_iterations),
                              "maxfun": 10 * max_iterations})
    return Fit(found.x.reshape(D, d), float(found.fun), int(found.nit), bool((yx @ found.x > 0).all()), bool(found.success))
