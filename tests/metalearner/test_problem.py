"""The data law of the metalearner: what is drawn has the stated law, and bad input is refused by name."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import ks_2samp, kstest, norm

from gsref.metalearner.problem import MetaProblem, context_length

FALSE_ALARM = 1e-5                             # of each sampled check below


def orthonormal(d, k, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, k)))[0]


def law_of_means(problem, N, B, rng, draw):
    """(length of the context mean along mu, length across) of B tasks: what the law of the mean is about."""
    tasks = problem.sample_tasks(B, N, rng, draw=draw)
    along = np.einsum("bd,bd->b", tasks.muhat, tasks.mu) / problem.R
    return along, np.linalg.norm(tasks.muhat - along[:, None] * tasks.mu / problem.R, axis=1)


@pytest.mark.derives("meta.1")
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_means_drawn_from_their_law_and_from_examples_have_one_law(noise):
    problem, N, B = MetaProblem(5, 3, 2.0, noise, orthonormal(5, 3)), 6, 4000
    rng = np.random.default_rng(1)
    by_law, by_examples = (law_of_means(problem, N, B, rng, draw) for draw in ("law", "examples"))
    for a, b in zip(by_law, by_examples):
        assert ks_2samp(a, b).pvalue > FALSE_ALARM


def test_a_wrong_law_would_be_seen():
    rng = np.random.default_rng(1)
    a = law_of_means(MetaProblem(5, 3, 2.0, 0.2), 6, 20000, rng, "examples")[0]
    for wrong in (MetaProblem(5, 3, 2.0, 0.25), MetaProblem(5, 3, 2.15, 0.2)):
        assert ks_2samp(a, law_of_means(wrong, 6, 20000, rng, "law")[0]).pvalue < FALSE_ALARM


@given(d=st.integers(1, 7), data=st.data())
def test_means_lie_on_the_sphere_of_the_subspace(d, data):
    k = data.draw(st.integers(1, d))
    R = data.draw(st.floats(0.01, 100.0))
    problem = MetaProblem(d, k, R, basis=orthonormal(d, k) if data.draw(st.booleans()) else None)
    mu = problem.sample_means(20, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(mu, axis=1), R, rtol=1e-12)
    np.testing.assert_allclose(mu @ problem.projector, mu, atol=1e-12 * R)


def test_means_are_uniform_on_the_sphere():
    # on the 2-sphere every coordinate is uniform (Archimedes)
    mu = MetaProblem(4, 3, 2.0, basis=orthonormal(4, 3)).sample_means(5000, np.random.default_rng(3))
    for axis in orthonormal(4, 3).T:
        assert kstest(mu @ axis / 2.0, "uniform", (-1.0, 2.0)).pvalue > FALSE_ALARM


def test_queries_and_labels_have_their_law():
    tasks = MetaProblem(3, 2, 1.5).sample_tasks(5000, 4, np.random.default_rng(5))
    z = tasks.x - tasks.y[:, None] * tasks.mu
    for column in z.T:
        assert kstest(column, norm.cdf).pvalue > FALSE_ALARM
    assert abs(tasks.y.mean()) < norm.isf(FALSE_ALARM / 2) / np.sqrt(5000)
    assert len(tasks) == 5000 and set(np.unique(tasks.y)) == {-1.0, 1.0}


def test_share_of_flipped_labels():
    problem = MetaProblem(3, 2, 1.5, 0.2)
    _, shown, clean = problem.sample_context(problem.sample_means(200, np.random.default_rng(0)), 50,
                                             np.random.default_rng(1), with_clean=True)
    share = (shown != clean).mean()
    assert abs(share - 0.2) < norm.isf(FALSE_ALARM / 2) * np.sqrt(0.2 * 0.8 / 10000)


def test_shrinkage_law_is_the_binomial():
    s, weight = MetaProblem(3, 2, 1.0, 0.3).shrinkage_law(7)
    assert weight.sum() == pytest.approx(1.0, abs=1e-14)
    assert weight @ s == pytest.approx(1.0 - 2.0 * 0.3, abs=1e-14)
    assert weight @ (s - 0.4) ** 2 == pytest.approx(4.0 * 0.3 * 0.7 / 7, abs=1e-14)


def test_same_seed_same_tasks():
    problem = MetaProblem(4, 2, 1.0, 0.1)
    one, two = (problem.sample_tasks(5, 3, np.random.default_rng(7)) for _ in range(2))
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("muhat", "x", "y", "mu"))


@pytest.mark.parametrize("arguments, message", [
    ((3, 4, 1.0), "k: got 4, expected an integer from 1 to 3"),
    ((0, 1, 1.0), "d: got 0"),
    ((3, 2, 0.0), "R: got 0.0"),
    ((3, 2, -1.0), "R: got -1.0"),
    ((3, 2, np.nan), "R: got nan"),
    ((3, 2, 1.0, 0.5), "label_noise: got 0.5, expected a probability below 1/2"),
    ((3, 2, 1.0, -0.1), "label_noise: got -0.1"),
    ((3, 2, 1.0, 0.0, np.ones((3, 2))), "basis: got columns that are off orthonormal by 3"),
    ((3, 2, 1.0, 0.0, np.eye(3)), r"basis: got shape \(3, 3\), expected \(3, 2\)"),
    ((3, 2, 1.0, 0.0, [[1.0, 0.0], [0.0, np.inf], [0.0, 0.0]]), "basis: got inf"),
])
def test_bad_problem(arguments, message):
    with pytest.raises(ValueError, match=message):
        MetaProblem(*arguments)


@pytest.mark.parametrize("B, N, options, error, message", [
    (0, 3, {}, ValueError, "B: got 0"),
    (3, 0, {}, ValueError, "N: got 0"),
    (2.5, 3, {}, TypeError, "B: got 2.5"),
    (3, 3, {"draw": "guess"}, ValueError, "draw: got 'guess'"),
    (1000, 3, {"memory": 1e4}, MemoryError, "1000 tasks of dimension 4: needs 0.00016 GB, allowed are 1e-05 GB"),
])
def test_bad_sample(B, N, options, error, message):
    with pytest.raises(error, match=message):
        MetaProblem(4, 2, 1.0).sample_tasks(B, N, np.random.default_rng(0), **options)


def test_generator_is_needed():
    with pytest.raises(TypeError, match="rng: got int"):
        MetaProblem(4, 2, 1.0).sample_tasks(3, 3, 0)


def test_context_length_counts_where_labels_flip():
    assert context_length("N", 2.5, 0.0) == 2.5 and context_length("N", 2.0, 0.1) == 2
    with pytest.raises(ValueError, match="N: got 2.5, expected a whole number"):
        context_length("N", 2.5, 0.1)


def test_basis_is_copied_and_frozen():
    basis = np.eye(3)[:, :2].copy()
    problem = MetaProblem(3, 2, 1.0, basis=basis)
    basis[0, 0] = 7.0
    assert problem.basis[0, 0] == 1.0 and not problem.basis.flags.writeable
