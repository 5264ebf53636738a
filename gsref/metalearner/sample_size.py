"""How many examples in the context does a learner need for a given accuracy?

M is a positive real number here: the law of the context mean extends to it, and exponents need no rounding.
Source: derivations/08_metalearner.md.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from gsref.arguments import real
from gsref.metalearner.population import error_rate

SMALLEST, LARGEST = 1e-6, 1e9                  # the search interval


def target(accuracy, problem):
    """`accuracy` if a known mean would do better, i.e. accuracy < Phi(R); else ValueError."""
    accuracy = real("accuracy", accuracy, 0.5, 1.0, open_least=True)
    if not accuracy < ndtr(problem.R):
        raise ValueError(f"accuracy: got {accuracy:g}, expected less than Phi(R) = {ndtr(problem.R):.4g}, which a known "
                         f"mean of norm R = {problem.R:g} gives")
    return accuracy


def examples_needed(problem, order, accuracy=0.9):
    """The M at which W = p Pi + q (I - Pi) has this accuracy, exact to 1e-9, no label being flipped.

    inf where no M up to LARGEST does.  Raises ValueError for an accuracy that even a known mean does not give.
    """
    accuracy = target(accuracy, problem)
    problem = replace(problem, label_noise=0.0)

    def miss(log_M):                           # in normal quantiles, which are nearly linear in log M
        return float(ndtri(1.0 - accuracy) - ndtri(error_rate(problem, order, math.exp(log_M))[0]))
    least, most = math.log(SMALLEST), math.log(LARGEST)
    dimension = problem.k + (problem.d - problem.k) * min(order.q ** 2 / order.p ** 2 if order.p else math.inf, 1.0)
    low = high = math.log(1.0 + float(needed_law(dimension, problem.R, accuracy)))
    step = 0.7
    while low > least and miss(low) > 0.0:     # a bracket around the law, which is near where p > |q|
        low, high, step = max(low - step, least), low, 2.0 * step
    while miss(high) <= 0.0:
        if high >= most:
            return math.inf
        low, high, step = high, min(high + step, most), 2.0 * step
    return math.exp(brentq(miss, low, high, xtol=1e-11, rtol=1e-11))


def needed_law(dimension, R, accuracy=0.9):
    """The leading law M = z^2 (dimension - 1) / (R^2 (R^2 - z^2)), z = Phi^-1(accuracy)  [meta.15].

    dimension = k for a learner that knows the subspace, d for one that sees the context alone; valid for large
    dimension and M above 1.  inf where R <= z: no context is long enough.
    """
    z2, R2 = ndtri(accuracy) ** 2, np.asarray(R, dtype=float) ** 2
    return np.where(R2 > z2, z2 * (dimension - 1) / (R2 * np.where(R2 > z2, R2 - z2, 1.0)), np.inf)


def noise_of_one_step(problem, N, B, M):
    """delta, by which the noise of B tasks lengthens w = W^T muhat after one step from zero  [meta.16].

    delta = E|E^T muhat|^2 / E|(R^2/k) Pi muhat|^2 for W_1 = (eta/2) ((R^2/k) Pi + E), contexts of N examples in training
    and M at test, no flipped labels. For d >> k and small delta the trained model needs the share
    delta/(1 - z^2/R^2) of examples more than the projected MLE.
    """
    d, k, R2 = problem.d, problem.k, problem.R ** 2
    spread = (R2 / k + 1.0 / N) * (R2 + k / M) + (d - k) / (N * M)                 # E muhat.C muhat
    return ((R2 + d) * (k / R2) ** 2 * spread / (R2 + k / M) - 1.0) / B


def examples_needed_sampled(contexts, W, accuracy=0.9):
    """(M, standard error) at which the mean accuracy of W over the drawn contexts is `accuracy`; inf if never.

    The error is that of the mean accuracy at this M over the slope there.
    """
    accuracy = target(accuracy, contexts.problem)
    moments = contexts.moments(W)

    def miss(log_M):
        return float(contexts.accuracies(moments, math.exp(log_M)).mean()) - accuracy
    low, high = math.log(SMALLEST), math.log(LARGEST)
    if miss(high) < 0.0:
        return math.inf, math.nan
    log_M = brentq(miss, low, high, xtol=1e-9)
    each = contexts.accuracies(moments, math.exp(log_M))
    slope = (miss(log_M + 0.02) - miss(log_M - 0.02)) / 0.04
    return math.exp(log_M), math.exp(log_M) * float(each.std(ddof=1)) / math.sqrt(len(each)) / slope

