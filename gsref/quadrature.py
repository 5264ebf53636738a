"""Which nodes and weights?  One-dimensional rules, and scrambled Sobol points for many dimensions.

Every rule is a pair (nodes, weights) of read-only arrays, cached as the pure function of its arguments that it is.
Knows no model.  Source: derivations/06_quadrature.md.
"""

from functools import lru_cache

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import ndtri, roots_hermitenorm, roots_legendre


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
def normal_trapezoid(n, reach):
    """n equally spaced nodes on [-reach, reach] for E h(x), x ~ N(0, 1): for analytic functions that change fast.

    With spacing s the error falls as exp(-2 pi^2/s^2), or as exp(-2 pi w/s) for a nearest singularity at distance w
    from the real line; where Gauss-Hermite needs about (1/w)^2 nodes, this needs 1/w.  The cut leaves exp(-reach^2/2).
    """
    x = np.linspace(-reach, reach, n)
    w = np.exp(-0.5 * x * x)
    return _frozen(x, w / w.sum())


def _gauss(diagonal, squares):
    """Gauss rule of a probability measure from the recurrence of its orthogonal polynomials (Golub and Welsch).

    Weights are squares of eigenvector components and sum to one: nothing overflows, as moments of other scalings do.
    """
    nodes, vectors = eigh_tridiagonal(diagonal, np.sqrt(squares))
    return _frozen(nodes, vectors[0]**2)


@lru_cache(maxsize=256)
def chi_square_rule(n, freedom):
    """n-node Gauss rule for E h(rho), rho ~ chi^2 with `freedom` degrees: exact for degree 2n - 1 in rho.

    At no degree of freedom rho is the constant 0, and so is the one node.
    """
    if freedom == 0:
        return _frozen(np.zeros(1), np.ones(1))
    k = np.arange(n)
    return _gauss(4.0 * k + freedom, 4.0 * k[1:] * (k[1:] + freedom / 2 - 1))


@lru_cache(maxsize=256)
def cosine_rule(n, dimension):
    """n-node Gauss rule for E h(cos theta), theta the angle of independent uniform directions in R^dimension."""
    if dimension == 1:
        return _frozen(np.array([-1.0, 1.0]), np.array([0.5, 0.5]))
    k = np.arange(2, n)
    squares = k * (k + dimension - 3) / ((2 * k + dimension - 2) * (2 * k + dimension - 4.0))
    return _gauss(np.zeros(n), np.concatenate([[1 / dimension], squares])[:n - 1])


@lru_cache(maxsize=64)
def angle_rule(q, n, n_cosine):
    """Gram matrices (C, q+1, q+1) of q + 1 independent uniform directions in R^n, and weights (C,)  [quad.7].

    Cosines c_i of q directions with the first one by the Gauss rule; what is left of them are q directions in R^(n-1):
    c_ij = c_i c_j + sqrt(1 - c_i^2) sqrt(1 - c_j^2) c'_ij.  All moments are right up to degree 2 n_cosine - 1 in each
    direction, the triangle moment E[c_12 c_23 c_31] = 1/n^2 among them.
    """
    if q == 0:
        return np.ones((1, 1, 1)), np.ones(1)
    values, probabilities = cosine_rule(n_cosine, n)
    rest, rest_weights = angle_rule(q - 1, n - 1, n_cosine) if n > 1 else (np.ones((1, q, q)), np.ones(1))
    index = np.indices((len(values),) * q).reshape(q, -1)
    c = values[index].T
    s = np.sqrt(1 - c * c)
    gram = np.ones((len(c), len(rest), q + 1, q + 1))
    gram[:, :, 0, 1:] = gram[:, :, 1:, 0] = c[:, None]
    gram[:, :, 1:, 1:] = (c[:, :, None] * c[:, None, :])[:, None] + (s[:, :, None] * s[:, None, :])[:, None] * rest
    weights = np.multiply.outer(probabilities[index].prod(axis=0), rest_weights)
    return gram.reshape(-1, q + 1, q + 1), weights.ravel()


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


def shifted_half_normal_rule(n, layer, shift, reach=9.0):
    """Trapezoidal rule with a shift, 0 <= shift < 1, for the expectation that `half_normal_rule` is for.

    n equally spaced nodes in t, x = layer exp(t - exp(-t)): exponentially accurate for analytic functions at any shift,
    and for a uniformly random shift unbiased for every function, also one that jumps (up to the cut: x < 1e-8 layer).
    """
    low, high = -2.8, np.log(reach / min(layer, 1.0)) + 0.1
    step = (high - low) / n
    t = low + step * (np.arange(n) + shift)
    x = min(layer, 1.0) * np.exp(t - np.exp(-t))
    return x, step * x * (1 + np.exp(-t)) * np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x)


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
