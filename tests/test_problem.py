"""The data law: positions, samples, and a description that cannot be wrong or changed."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from gsref import Problem
from gsref.problem import positions

EPS = np.finfo(float).eps


@pytest.mark.derives("setting.2")
@pytest.mark.parametrize("D", [1, 2, 3, 4, 7, 16, 65, 512])
def test_positions_are_symmetric_and_orthogonal(D):
    P = positions(D)
    assert P.shape == (D, D) and (P == P.T).all()
    # D products of numbers with errors of 4 units (argument, pi, sine), each at most 1
    assert np.abs(P @ P.T - (D + 1) / 2 * np.eye(D)).max() <= 8 * EPS * D


def test_positions_are_the_sines_of_the_definition_and_exact_for_large_D():
    # the formula as written loses digits with i j; sin(pi k / N) from 30 digits of pi does not
    from decimal import Decimal, localcontext
    D, N = 300, 301
    P = positions(D)
    with localcontext() as context:
        context.prec = 40
        pi = Decimal("3.14159265358979323846264338327950288419716939937510")
        for i, j in [(1, 1), (17, 250), (299, 300), (300, 300), (150, 151)]:
            x = pi * ((i * j) % (2 * N)) / N
            sine = sum((-1) ** k * x ** (2 * k + 1) / _factorial(2 * k + 1) for k in range(30))
            assert abs(float(Decimal(P[i - 1, j - 1]) - sine)) <= 4 * EPS
    assert np.abs(np.sin(np.pi * np.outer(np.arange(1, N), np.arange(1, N)) / N) - P).max() > 40 * EPS


def _factorial(k):
    return 1 if k < 2 else k * _factorial(k - 1)


def test_positions_that_are_not_orthogonal_are_noticed():
    D = 5
    k = np.arange(1, D + 1)
    planted = np.sin(np.pi * np.outer(k, k) / D)                         # D for D + 1
    assert np.abs(planted @ planted.T - (D + 1) / 2 * np.eye(D)).max() > 0.1


@pytest.mark.parametrize("bad", [0, -1, 2.0, "3", None, True])
def test_positions_name_a_bad_D(bad):
    with pytest.raises((TypeError, ValueError), match=f"^D: got {bad!r}, expected an integer >= 1"):
        positions(bad)


def test_problem_has_the_properties_of_its_parameters():
    problem = Problem(3, 5, sigma=2, relevant=4, direction=[0, -0.6, 0.8])
    assert (problem.d, problem.D, problem.sigma, problem.relevant, problem.kappa) == (3, 5, 2.0, 4, 3.0)
    assert problem.direction.tolist() == [0, -0.6, 0.8] and problem.positions.shape == (5, 5)
    assert Problem(2, 3).direction.tolist() == [1, 0] and Problem(2, 3).relevant == 0 and Problem(2, 3).sigma == 1.0


def test_problem_does_not_change():
    direction = np.array([1.0, 0.0])
    problem = Problem(2, 3, direction=direction)
    direction[0] = 7.0
    assert problem.direction.tolist() == [1, 0] and direction.flags.writeable
    with pytest.raises(FrozenInstanceError):
        problem.D = 4
    for array in (problem.direction, problem.positions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize("changed, message", [
    ({"d": 0}, "^d: got 0"), ({"d": 2.0}, "^d: got 2.0"), ({"D": 0}, "^D: got 0"), ({"D": True}, "^D: got True"),
    ({"sigma": 0.0}, "^sigma: got 0.0, expected a finite number > 0$"), ({"sigma": -1}, "^sigma: got -1.0"),
    ({"sigma": np.nan}, "^sigma: got nan"), ({"sigma": "1"}, "^sigma: got '1'"), ({"sigma": 1j}, "^sigma: got 1j"),
    ({"relevant": 3}, "^relevant: got 3, expected an integer from 0 to 2$"), ({"relevant": -1}, "^relevant: got -1"),
    ({"relevant": 0.0}, "^relevant: got 0.0"),
    ({"direction": [1, 0, 0]}, r"^direction: got shape \(3,\), expected \(2,\)$"),
    ({"direction": [1, 1]}, "^direction: got norm 1.41421356, expected a unit vector$"),
    ({"direction": [0, 0]}, "^direction: got norm 0"),
    ({"direction": [np.nan, 1]}, r"^direction: got nan at index \(0,\)"),
    ({"direction": [1j, 0]}, "^direction: got dtype complex128"), ({"direction": "ab"}, "^direction: got dtype"),
])
def test_problem_names_a_bad_parameter(changed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Problem(**{"d": 2, "D": 3, **changed})


def test_direction_is_normalised():
    problem = Problem(2, 3, direction=[0.6 * (1 + 1e-9), 0.8 * (1 + 1e-9)])
    assert abs(np.linalg.norm(problem.direction) - 1) <= 2 * EPS


@pytest.mark.derives("setting.1")
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2 ** 32 - 1))
def test_sample_has_shapes_and_labels_of_the_relevant_group(n, D, d, seed):
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(d)
    problem = Problem(d, D, relevant=seed % D, direction=direction / np.linalg.norm(direction))
    X, y = problem.sample(n, rng)
    assert X.shape == (n, D, d) and y.shape == (n,) and y.dtype == np.float64
    assert (y == np.sign(X[:, problem.relevant] @ problem.direction)).all()


@pytest.mark.derives("setting.1")
def test_sample_follows_the_law():
    # 4e4 samples of a fixed seed; each statistic is standard normal, and the largest of its 47 entries exceeds 5 with
    # probability below 47 * 6e-7 = 3e-5
    problem = Problem(3, 4, sigma=1.5, relevant=2, direction=[0.6, 0.0, 0.8])
    n = 40_000
    X, y = problem.sample(n, np.random.default_rng(20))
    x = X.reshape(n, 12) / problem.sigma
    mean = x.mean(axis=0) * np.sqrt(n)
    second = (x.T @ x / n - np.eye(12)) * np.sqrt(n) / np.sqrt(1 + np.eye(12))
    assert np.abs(mean).max() < 5 and np.abs(second).max() < 5 and abs(y.mean()) * np.sqrt(n) < 5
    assert stats.kstest(x.ravel()[:n], "norm").pvalue > 1e-5
    # only the relevant group knows the label: E[y x_j] = sigma sqrt(2/pi) v* for j = r, and 0 for the others
    z = (y @ x / n).reshape(4, 3) * np.sqrt(n)
    z[2] -= np.sqrt(n * 2 / np.pi) * problem.direction
    assert np.abs(z).max() < 5
    planted = np.where(X[:, 1] @ problem.direction >= 0, 1.0, -1.0)       # the label of another group: noticed
    assert np.abs((planted @ x / n).reshape(4, 3)[1]).max() * np.sqrt(n) > 5


@pytest.mark.parametrize("sigma", [5e-324, 1e-300, 1e300])
def test_labels_do_not_depend_on_sigma(sigma):
    _, y = Problem(3, 2, sigma=sigma).sample(200, np.random.default_rng(2))
    assert (y == Problem(3, 2).sample(200, np.random.default_rng(2))[1]).all()


def test_features_that_exceed_float64_are_an_error():
    with pytest.raises(OverflowError, match="^X: overflow at index"):
        Problem(3, 2, sigma=1e308).sample(200, np.random.default_rng(2))


def test_sample_depends_on_the_generator_alone():
    problem = Problem(2, 3)
    first, second = (problem.sample(5, np.random.default_rng(3)) for _ in range(2))
    assert (first[0] == second[0]).all() and (first[1] == second[1]).all()


@pytest.mark.parametrize("n, rng, message", [
    (0, np.random.default_rng(0), "^n: got 0"), (2.0, np.random.default_rng(0), "^n: got 2.0"),
    (3, 0, "^rng: got int, expected Generator$"), (3, None, "^rng: got NoneType"),
    (3, np.random.RandomState(0), "^rng: got RandomState, expected Generator$")])
def test_sample_names_a_bad_argument(n, rng, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Problem(2, 3).sample(n, rng)
