"""The integrand of the sparse grid: the model itself when all groups are given, a measure of the rest when not."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem, loss_and_gradient
from gsref.mean_token import ORDER, Base, integrand, outcome, polynomials
from gsref.population import reduced_law
from gsref.quadrature import chi_square_rule, normal_rule, normal_trapezoid

ORDER_PARAMETERS = OrderParameters(0.7, -0.2, 0.05, 0.9, 0.6, 0.2)


def base(n, nodes=7, n_rho=2, n_y=41, reach=7.0):
    (x, wx), (rho, wr) = normal_rule(nodes), chi_square_rule(n_rho, n) if n else (np.zeros(1), np.ones(1))
    return Base(np.repeat(x, len(rho)), np.tile(rho, len(x)), np.outer(wx, wr).ravel(), *normal_trapezoid(n_y, reach))


@pytest.mark.parametrize("d, D, r", [(4, 5, 2), (1, 3, 0), (2, 6, 5), (3, 2, 1)])
def test_all_groups_given_is_the_gradient_of_the_model(d, D, r):
    """At q = k each point is one input; loss and gradient come from (v, W) and the closed form of the full model."""
    problem, rng, k = Problem(d, D, relevant=r), np.random.default_rng(d * D), D - 1
    values = ORDER_PARAMETERS.to_array()
    values[2] *= d > 1
    if D == 2:
        values[5] = -values[4]
    order = OrderParameters.from_array(values)
    v, W = order.to_params(problem)
    X = rng.standard_normal((4, D, d))
    X *= np.where(X[:, r, 0] < 0, -1, 1)[:, None, None]                   # label +1; v* is the first axis
    others = [j for j in range(D) if j != r]
    tokens = X[:, [r, *others]]
    w = tokens[:, :, 1:]
    gram = w @ w.transpose(0, 2, 1)
    rho = np.einsum("nii->in", gram)
    length = np.sqrt(np.maximum(rho, 1e-300))
    cosines = np.moveaxis(gram, 0, -1) / (length[:, None] * length[None])
    law = reduced_law(problem, order)[0]
    m = tokens[:, 1:, 0].T
    found = integrand(law, tokens[:, 0, 0], m, rho[0], rho[1:], cosines if d > 1 else None, base(d - 1))
    for i in range(4):
        loss, dv, dW = loss_and_gradient(v, W, X[i:i + 1], np.ones(1), problem.positions)
        wanted = [loss, *OrderParameters.from_params(-dv, -dW, problem)[0].to_array()]
        np.testing.assert_allclose(found[:7, i], wanted, rtol=1e-11, atol=1e-13)


def brute(law, m_r, m, rho_r, rho, base, y):
    """Outputs for the measure  sum_given delta + rest nu + y x nu  by explicit sums over a fine rule for nu.

    Own code: one point, plain loops over queries, keys of the rest by quadrature, no expansion in y.
    """
    D, n, alpha, a, b = law[:5]
    k, q = D - 1, len(m)
    rest = k - q
    node, weight = normal_rule(40)
    keys = [(m_r, rho_r), *zip(m, rho)]

    def column(i, x, r, own_key, fellows, total):
        """mean, variance, Cov_j, pulls of key r and of the own key, leak of one query; i: index of a given query."""
        entries = []                                                       # (weight, m, K)
        for j, (mj, rj) in enumerate(keys):
            M = (law.m_rr if j == i == 0 else law.m_oo if j == i else
                 law.m_or if i == 0 else law.m_ro if j == 0 else law.m_ox)
            same = j == i
            K = r if same else b * rj * r / max(n, 1)
            score = a * mj * x + M + (b * r if same else 0.5 * b * b * rj * r / max(n, 1))
            entries.append((np.exp(score), mj, K))
        M = law.m_or if i == 0 else law.m_ox
        tilt = weight * (fellows + total * node) * np.exp(a * node * x + M + 0.5 * b * b * r)
        entries += [(t, s, b * r) for t, s in zip(tilt, node)]
        if own_key is not None:
            entries.append((np.exp(a * x * x + b * r + law.m_oo), x, r))
        w, v, K = (np.array(part) for part in zip(*entries))
        w = w / w.sum()
        mean = w @ v
        own = w[i] * (v[i] - mean) if i else w[-1] * (x - mean) if own_key is not None else 0.0
        return mean, w @ (v - mean)**2, w @ ((v - mean) * K), w[0] * (m_r - mean), own, 1 - w[0]
    sums = np.zeros(6)
    pull_rr = None
    for i, (x, r) in enumerate(keys):
        mean, variance, turn, pull, own, leak = column(i, x, r, None, rest, y)
        sums += [mean, x * variance, turn, pull, own, leak]
        pull_rr = pull if i == 0 else pull_rr
    for x, r, w in zip(base.x, base.rho, base.weights):
        mean, variance, turn, pull, own, leak = column(None, x, r, True, rest - 1, y - x)
        sums += w * (rest + y * x) * np.array([mean, x * variance, turn, pull, own, leak])
    kappa2 = ((D + 1) / 2)**2
    c = 1 / (1 + np.exp(alpha * sums[0]))
    gain = alpha * c
    return np.array([np.log1p(np.exp(-alpha * sums[0])), c * sums[0], gain * sums[1], gain * sums[2] / max(n, 1),
                     kappa2 * gain * pull_rr, kappa2 * gain * (sums[3] - pull_rr) / k, kappa2 * gain * sums[4] / k,
                     sums[5] / D])


@pytest.mark.derives("quad.4", "quad.5")
@pytest.mark.parametrize("q, n", [(0, 3), (1, 3), (2, 0), (3, 5)])
def test_rest_is_a_measure_expanded_in_its_sum(q, n):
    """The remainder after third order falls like y^4, down to rounding, against sums that do not expand."""
    problem = Problem(n + 1, 24)
    order = OrderParameters(0.4, -0.15, 0.03 * (n > 0), 1.5, 1.2, -0.1)
    law, rng = reduced_law(problem, order)[0], np.random.default_rng(q)
    m, m_r = rng.standard_normal((q, 1)), np.array([0.8])
    rho, rho_r = n * rng.uniform(0.5, 1.5, (q, 1)), np.array([1.2 * n])
    # nodes of the rest close to their mean: x enters as y - x, and here the remainder in y is wanted
    rest = base(n)._replace(x=np.array([-0.02, 0.03]), rho=np.full(2, float(n)), weights=np.array([0.6, 0.4]))
    found = polynomials(law, m_r, m, rho_r, rho, None, rest)
    assert found.shape == (ORDER + 2, 7, 1)
    gaps = []
    for y in (1.0, 0.5, 0.25):
        exact = brute(law, m_r[0], m[:, 0], rho_r[0], rho[:, 0], rest, y)
        gaps.append(np.abs(outcome(law, found, np.array([y]))[:, 0, 0] - exact))
    slopes = np.log2(np.max(gaps[:-1], axis=1) / np.max(gaps[1:], axis=1))
    assert np.all(slopes > 3.3), slopes                                    # 4 in the limit
    assert np.max(gaps[-1]) < 1e-6


@pytest.mark.derives("quad.6")
def test_sum_of_the_rest_is_integrated():
    """Against Gauss-Hermite of 120 nodes on the outcome at given y; a rule of three nodes is told apart."""
    law = reduced_law(Problem(4, 12), OrderParameters(0.9, -0.2, 0.03, 1.5, 1.2, -0.1))[0]
    rng = np.random.default_rng(1)
    m_r, m, rho_r, rho = rng.uniform(0, 2, 5), rng.standard_normal((2, 5)), np.full(1, 3.0), np.full((2, 1), 3.0)
    t, w = normal_rule(120)
    found = polynomials(law, m_r, m, rho_r, rho, None, base(3))
    wanted = np.einsum("t,qtn->qn", w, outcome(law, found, np.sqrt(9) * t))
    np.testing.assert_allclose(integrand(law, m_r, m, rho_r, rho, None, base(3)), wanted, rtol=1e-7)
    coarse = integrand(law, m_r, m, rho_r, rho, None, base(3, n_y=3, reach=3.0))
    assert np.max(np.abs(coarse / wanted - 1)) > 1e-3
