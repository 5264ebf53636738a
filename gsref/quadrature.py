"""Which nodes and weights?  One-dimensional rules, and scrambled Sobol points for many dimensions.

Every rule is a pair (nodes, weights) of read-only arrays, cached as the pure function of its arguments that it is.
Knows no model.  Source: derivations/06_quadrature.md.
"""

from functools import lru_cache

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import ndtri, roots_genlaguerre, roots_hermitenorm, roots_jacobi, roots_legendre


def _frozen(*arrays):
    for array in arrays:
        array.flags.writeable = False
    return arrays


@lru_cache(maxsize=256)
def normal_rule(n):
    """n-node Gauss rule for E h(x), x ~ N(0, 1): exact for polynomials of degree 2n - 1."""
    x, w = roots_hermitenorm(n)
    return _frozen(x, w / w.sum())


@lru_cache(maxsize=256)
def chi_square_rule(n, freedom):
    """n-node Gauss rule for E h(rho), rho ~ chi^2 with `freedom` degrees: exact for degree 2n - 1 in rho.

    Beyond 300 degrees scipy's weights overflow (they sum to Gamma(freedom/2)); those of Golub and Welsch, squares of
    the first entries of the unit eigenvectors of the Jacobi matrix, sum to one at any freedom.  0 degrees: rho = 0.
    """
    if freedom == 0:
        return _frozen(np.zeros(1), np.ones(1))
    a = freedom / 2 - 1
    if freedom <= 300:
        x, w = roots_genlaguerre(n, a)
    else:
        i = np.arange(n)
        x, vectors = eigh_tridiagonal(2 * i + a + 1, np.sqrt(i[1:] * (i[1:] + a)))
        w = vectors[0] ** 2
    return _frozen(2 * x, w / w.sum())


@lru_cache(maxsize=256)
def cosine_rule(n, dimension):
    """n-node Gauss rule for E h(cos theta), theta the angle of independent uniform directions in R^dimension."""
    if dimension == 1:
        return _frozen(np.array([-1.0, 1.0]), np.array([0.5, 0.5]))
    x, w = roots_jacobi(n, (dimension - 3) / 2, (dimension - 3) / 2)
    return _frozen(x, w / w.sum())


@lru_cache(maxsize=64)
def _legendre(n):
    return _frozen(*roots_legendre(n))


def half_normal_rule(n, layer, reach=9.0):
    """n-node rule for E h(|x|), x ~ N(0, 1), where h changes over a width `layer` at 0 and slowly beyond.

    Gauss-Legendre in t, x = layer sinh(t) up to `reach` standard deviations: even spacing inside the layer,
    even in log x outside.  For `layer` >= 1 this is nearly Gauss-Legendre in x.
    """
    t, w = _legendre(n)
    top = np.arcsinh(reach / layer)
    t, w = 0.5 * top * (t + 1), 0.5 * top * w
    x = layer * np.sinh(t)
    return x, w * layer * np.cosh(t) * np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x)


@lru_cache(maxsize=64)
def log_rule(decades):
    """Trapezoidal rule in t for an integral over x > 0, x = exp(t - exp(-t)), up to x = 10^decades.

    For integrands that are analytic in log x, whatever the scales on which they change: the error is squared when the
    step is halved, so the rule of every second node (of twice the weights) tells the error of the full one.
    The node spacing 1/10 in t is empirical: errors are at rounding from 1/8 on for every integrand of `population`.
    """
    step = 1 / 10
    t = np.arange(-3.8, np.log(10.0) * decades + step, step)   # below t = -3.8, x < 1e-21
    x = np.exp(t - np.exp(-t))
    return _frozen(x, step * x * (1 + np.exp(-t)))


@lru_cache(maxsize=32)
def sobol_normals(dimension, first, count, seed):
    """Points first..first+count-1 of a scrambled Sobol sequence, as standard normals, shape (count, dimension).

    Sobol covers the first 256 coordinates; any further ones are pseudo-random (both are unbiased).
    """
    from scipy.stats import qmc                # here, because importing scipy.stats takes longer than all of gsref

    quasi = min(dimension, 256)
    engine = qmc.Sobol(quasi, scramble=True, seed=np.random.default_rng([seed, 0]))
    if first:
        engine.fast_forward(first)
    # the generator has 30 bits: half of the last one keeps every point inside (0, 1)
    points = ndtri(engine.random(count) + 2.0**-31)
    if dimension > quasi:
        more = np.random.default_rng([seed, 1, first, count]).standard_normal((count, dimension - quasi))
        points = np.hstack([points, more])
    return _frozen(points)[0]
