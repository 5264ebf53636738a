"""What are the population expectations, by an independent rule?  The margin given the radial variables is normal.

With a = Pi muhat and b = (I - Pi) muhat, rotations leave four independent variables: the shrinkage s, the component
a_1 = s R + g / sqrt(N) of a along mu, and the squared lengths rho^2/N, chi^2/N of the rest of a and of b. Given them,

    t ~ N(p R a_1, p^2 (a_1^2 + rho^2/N) + q^2 chi^2/N),   rho^2 ~ chi^2_{k-1},  chi^2 ~ chi^2_{d-k}.

A product of Gauss rules over (g, rho^2, chi^2), and Gauss-Legendre on both sides of t = 0 for the normal variable.
It shares nothing with the contour integral, which it checks; its error is twice the change from half as many nodes,
large where the integrand is not smooth (p A in the hundreds, or a context mean that often passes near the origin).

Shapes: every radial variable (n,), flattened over the product.  Source: derivations/08_metalearner.md.
"""

import numpy as np
from scipy.special import ndtr, roots_legendre

from gsref.model import logistic_factor, logistic_loss
from gsref.quadrature import chi_square_rule, normal_rule

LEVELS = ((20, 14, 64), (40, 28, 128))         # nodes for g, for each squared length, for each side of t = 0
REACH = 9.8                                    # the normal density beyond is below 1e-21


def radial_rule(problem, q, N, n_g, n_square):
    """Nodes a_1, |a|^2, |b|^2 and weights, each (n,), of the product rule over the radial variables  [meta.8]."""
    g, w_g = normal_rule(n_g)
    s, w_s = problem.shrinkage_law(N)
    rho2, w_rho = chi_square_rule(n_square, problem.k - 1)
    chi2, w_chi = chi_square_rule(n_square, problem.d - problem.k if q != 0.0 else 0)
    s, g, rho2, chi2 = (v.ravel() for v in np.meshgrid(s, g, rho2, chi2, indexing="ij"))
    weight = np.einsum("i,j,k,l->ijkl", w_s, w_g, w_rho, w_chi).ravel()
    keep = weight > 1e-22                      # 1e6 such terms stay below 1e-15
    a1 = s * problem.R + g / np.sqrt(N)
    return a1[keep], (a1 ** 2 + rho2 / N)[keep], (chi2 / N)[keep], weight[keep]


def _normal_means(mean, sd, n):
    """E log(1+e^-t), E s(-t), E s'(t) for t ~ N(mean, sd^2), each (len(mean),): both sides of t = 0 on their own."""
    x, w = roots_legendre(n)
    with np.errstate(divide="ignore"):
        kink = np.clip(np.where(sd > 0, -mean / np.where(sd > 0, sd, 1.0), REACH), -REACH, REACH)[:, None]
    sums = np.zeros((3, len(mean)))
    for low, high in ((-REACH, kink), (kink, REACH)):
        half = (high - low) / 2.0
        xi = low + half * (x + 1.0)
        weight = half * w * np.exp(-xi ** 2 / 2.0) / np.sqrt(2.0 * np.pi)
        t = mean[:, None] + sd[:, None] * xi
        c = logistic_factor(t)
        sums += np.stack([(weight * f).sum(axis=1) for f in (logistic_loss(t), c, c * (1.0 - c))])
    return sums


def _expectations(problem, p, q, N, level):
    n_g, n_square, n = level
    a1, a_square, b_square, weight = radial_rule(problem, q, N, n_g, n_square)
    total = np.zeros(3)
    for start in range(0, len(a1), 4096):      # blocks bound the memory
        a1_, a2, b2, w = (v[start:start + 4096] for v in (a1, a_square, b_square, weight))
        mean = p * problem.R * a1_
        loss, c, slope = _normal_means(mean, np.sqrt(p ** 2 * a2 + q ** 2 * b2), n)
        # E[c A | radial] by Stein's identity: c and A are jointly normal through t
        total += [w @ loss, w @ (problem.R * a1_ * c - p * a2 * slope), -q * (w @ (b2 * slope))]
    return total, len(a1) * 2 * n


def expectations(problem, p, q, N):
    """(E loss, E[c A], E[c T]), their errors, and the number of nodes."""
    coarse, _ = _expectations(problem, p, q, N, LEVELS[0])
    fine, n = _expectations(problem, p, q, N, LEVELS[1])
    return fine, 2.0 * np.abs(fine - coarse) + 1e-14 * (1.0 + np.abs(fine)), n


def error_rate(problem, p, q, M):
    """P(t < 0) = E Phi(-mean/sd) and its error."""
    def value(level):
        a1, a2, b2, w = radial_rule(problem, q, M, 2 * level[0], 2 * level[1])
        return float(w @ ndtr(-p * problem.R * a1 / np.sqrt(p ** 2 * a2 + q ** 2 * b2)))
    fine, coarse = value(LEVELS[1]), value(LEVELS[0])
    return fine, 2.0 * abs(fine - coarse) + 1e-14
