"""What are the laws of the late phase?  Attention is on the relevant group, f = D alpha m_r, and alpha grows slowly.

Source: derivations/05_long_times.md.
"""

import math

import numpy as np

# int_0^inf log(1 + e^-x) dx = int_0^inf x / (1 + e^x) dx = pi^2 / 12, times the half-normal density at 0, sqrt(2/pi)
LATE_CONSTANT = math.sqrt(2 / math.pi) * math.pi**2 / 12


def late_loss(problem, alpha):
    """L ~ C / (sigma D alpha),  C = sqrt(2/pi) pi^2/12 = 0.656..: from above, by a share <= 7 pi^2/(60 h^2)  [late.1].

    h = sigma D alpha.
    """
    with np.errstate(over="ignore", divide="ignore"):          # inf where sigma D alpha underflows: far from late
        return LATE_CONSTANT / (problem.sigma * problem.D * np.asarray(alpha, dtype=float))


def late_alpha(problem, eta, step):
    """alpha^3 ~ 3 C eta t / (sigma D)  [late.2]."""
    return np.cbrt(3 * LATE_CONSTANT * eta * np.asarray(step, dtype=float) / (problem.sigma * problem.D))


def late_time(problem, eta, eps):
    """t ~ C^2 / (3 eta sigma^2 D^2 eps^3), the steps until the loss is eps  [late.3]."""
    return LATE_CONSTANT**2 / (3 * eta * problem.sigma**2 * problem.D**2 * np.asarray(eps, dtype=float) ** 3)


def late_leak(problem, alpha):
    """1 - S ~ 2 x (D-1) / (kappa^2 alpha^2), x + 2 beta x^2 = 1, beta = 6 sigma^2 D^2 / (pi^2 kappa^2)  [late.4].

    In position-only mode.  It does not depend on the learning rate.
    """
    beta = 6 * (problem.sigma * problem.D / (math.pi * problem.kappa))**2
    x = 2 / (1 + math.sqrt(1 + 8 * beta))      # the positive root, without cancellation
    return 2 * x * (problem.D - 1) / (problem.kappa * np.asarray(alpha, dtype=float))**2
