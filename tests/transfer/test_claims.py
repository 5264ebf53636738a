"""Verdicts on made-up results whose laws are known; samples needed and their errors."""

from types import SimpleNamespace

import numpy as np
import pytest

from gsref.scaling import Exponents
from gsref.transfer.claims import Cell, Results, at_most_verdict, checks, exponent_table, gains, sampled_exponents
from gsref.transfer.experiments import METHODS, Measured, lengths, measure, online_mistakes, seeds_of
from gsref.transfer.pretrained import Pretrained
from gsref.transfer.sgd import default_step, train_attention
from gsref.transfer.task import DownstreamTask
from gsref import OrderParameters, Problem, forward

EPS = (0.05, 0.02, 0.01)


def made(method, total, at, noise, seed, power=1.0):
    """A method that makes Poisson(`total`) mistakes in all and whose last iterate has the error (total/n)^power."""
    rng = np.random.default_rng(seed)
    mistakes = np.minimum(total * (1 + noise * rng.standard_normal((24, 1))) * np.minimum(1, at / (4 * total)), at / 2)
    last = 0.5 * np.minimum(1, (total / at) ** power) * np.ones((24, 1)) * (1 + noise * rng.standard_normal((24, 1)))
    return Measured(method, at, mistakes, last, 0 * last, 1.0,
                    {"attention_before": (0.9, 1e-4), "attention_after": (0.91, 1e-4)})


def results(ours=1.0, theirs=1.0, margin_power=1.5, power=1.0, sizes=(4, 8, 16), after=None):
    """Results in which the pretrained model makes 0.4 (d + D)^ours mistakes and logistic regression 0.3 (d D)^theirs."""
    cells, at, main = {}, np.unique(np.round(8 * 2 ** (np.arange(34) / 2)).astype(int)), Cell(8, 8)
    chosen = [Cell(d, D) for d in sizes for D in sizes] + [Cell(8, 8, "gaussian", 1.0), Cell(8, 8, "gaussian", 0.25),
                                                           Cell(8, 8, "rademacher"), Cell(8, 8, "uniform")]
    for k, cell in enumerate(chosen):
        scale = (0.5 / cell.margin) ** margin_power
        few, many = 0.4 * (cell.d + cell.D) ** ours * scale, 0.3 * (cell.d * cell.D) ** theirs * scale
        totals = {"pretrained": few, "logistic_sgd": many, "from_zero": 40 * few, "max_likelihood": many}
        cells[cell] = {m: made(m, totals[m], at, 0.05, [k, i], power) for i, m in enumerate(METHODS)}
        if after:
            cells[cell]["pretrained"].details["attention_after"] = (after, 1e-4)
    return Results(cells, main, EPS)


def verdicts(found):
    return {check.id: check.verdict for check in checks(found)}


def test_results_made_as_claimed_hold():
    got = verdicts(results())
    assert set(got.values()) == {"holds"}, got


def test_without_a_margin_the_claims_about_one_are_not_in_their_regime():
    found = results()
    free = {Cell(cell.d, cell.D, cell.law, 0.0): methods for cell, methods in found.cells.items() if cell.margin == 0.5}
    got = verdicts(Results(free, Cell(8, 8, "gaussian", 0.0), EPS))
    assert {id for id, verdict in got.items() if verdict == "not in regime"} == {"A6", "A6.size", "A6.eps", "A6.law"}
    assert got["A7.size"] == "holds"


def test_both_errors_of_every_method_are_in_the_table_of_exponents():
    rows = {(row["method"], row["statistic"], row["variable"]): row for row in exponent_table(results())}
    assert set(rows) >= {(method, which, variable) for method in METHODS if method != "from_zero" for which in ("online", "last")
                         for variable in ("d + D", "d D", "1/eps")}
    ours, theirs = rows["pretrained", "online", "d + D"], rows["max_likelihood", "last", "d D"]
    assert np.all(np.abs(ours["exponent"] - 1) <= 4 * ours["error"]) and np.all(ours["error"] > 0)
    assert np.all(np.abs(theirs["exponent"] - 1) <= 4 * theirs["error"])


def test_curves_are_those_of_the_statistic_asked_for():
    found = results().cells[Cell(8, 8)]["logistic_sgd"]
    for which, rows in (("online", found.mistakes / found.at), ("last", found.last)):
        got, mean, error = found.curve(which)
        np.testing.assert_array_equal(got, rows)
        np.testing.assert_allclose(mean, rows.mean(axis=0))
        np.testing.assert_allclose(error, rows.std(axis=0, ddof=1) / np.sqrt(24))
    assert not np.allclose(found.curve("online")[1], found.curve("last")[1])


def test_pretrained_W_and_the_step_size_matter():
    problem = Problem(2, 3, relevant=1)
    task = DownstreamTask(problem, [0.6, 0.8], "gaussian", 0.4)
    v, W = OrderParameters(0, 0, 0, 8.0, 8.0, -4.0).to_params(problem)
    run = measure("pretrained", task, Pretrained(v, W, "", {}), [4, 5], [8, 200], multiple=0.5)
    S = forward(v, W, np.zeros((1, 3, 2)), problem.positions)[1]
    assert run.details["attention_before"][0] == pytest.approx(S[0, 1].mean(), rel=1e-12)
    alone = train_attention(task, 0 * v, W, 0.5 * default_step(2, 3), [4, 5], [8, 200])
    np.testing.assert_array_equal(run.mistakes, alone.mistakes)
    assert run.last[:, -1].max() < 0.05


@pytest.mark.parametrize("changes, text", [
    ({"method": "guessing"}, "method: got 'guessing'"), ({"last": np.zeros((3, 3))}, "last: got shape"),
    ({"mistakes": np.full((2, 2), np.nan)}, "mistakes: got nan"), ({"at": None}, "at: missing"),
    ({"last": np.zeros((3, 2))}, "expected equal numbers"), ({"details/attention_after": np.zeros(3)}, "attention_after: got shape")])
def test_arrays_that_are_not_measured_are_refused(changes, text):
    table = np.ones((2, 2))
    whole = Measured("pretrained", np.array([8, 11]), table, table, table, 1.0,
                     {"attention_before": (0.5, 0.1), "attention_after": (0.6, 0.1)}).arrays()
    assert Measured.from_arrays(whole).method == "pretrained"
    altered = {name: value for name, value in (whole | changes).items() if value is not None}
    with pytest.raises(ValueError, match=text):
        Measured.from_arrays(altered)


@pytest.mark.parametrize("method, d, D, margin, eps", [("pretrained", 8, 8, 0.5, 1e-9), ("logistic_sgd", 8, 8, 1e-4, 0.01),
                                                       ("logistic_sgd", 8, 8, 1e-308, 0.01),
                                                       ("max_likelihood", 256, 64, 0.5, 0.01)])
def test_runs_beyond_memory_or_patience_are_refused(method, d, D, margin, eps):
    with pytest.raises(ValueError, match=rf"eps {eps:g} at d = {d}, D = {D}.*takes .* samples \({method}\), expected at most"):
        lengths(method, d, D, margin, eps)


def test_gains_are_ratios_of_samples_needed():
    cells, gain, error = gains(results(), "logistic_sgd", "last")
    assert [(cell.d, cell.D) for cell in cells] == [(4, 4), (8, 8), (16, 16)]
    np.testing.assert_array_less(np.abs(gain - [0.3 * s * s / (0.4 * 2 * s) for s in (4, 8, 16)]), 4 * error)


def test_expected_mistakes_are_the_sum_of_the_errors_before_each_sample():
    error = 1 / np.sqrt(1 + np.arange(40.0))                           # after 0, 1, 2, .. samples
    at = np.arange(1, 40)
    np.testing.assert_allclose(online_mistakes(at, error[None, 1:])[0], np.cumsum(error)[:-1], rtol=1e-14)
    # where few places are looked at, a straight line between them; every sum of a straight line is exact
    straight = 1 - np.arange(31.0) / 60
    few = np.array([1, 2, 5, 13, 30])
    np.testing.assert_allclose(online_mistakes(few, straight[None, few])[0], np.cumsum(straight)[few - 1], rtol=1e-14)


@pytest.mark.parametrize("changes, id", [
    ({"ours": 2.0}, "A6.size"), ({"ours": 2.5}, "A6"), ({"margin_power": 3.0}, "A6.gamma"), ({"theirs": 0.5}, "A7.size"),
    ({"theirs": 1.5}, "A7.size.ML"), ({"power": 2.5}, "A7.eps.ML"), ({"power": 2.5}, "A7.eps.last"),
    ({"theirs": 0.6}, "A7.gain"), ({"after": 0.8}, "A6.S")])
def test_results_made_otherwise_fail(changes, id):
    assert verdicts(results(**changes))[id] == "fails"


def test_too_few_sizes_are_undecided():
    got = verdicts(results(sizes=(8,)))
    assert got["A6.size"] == got["A7.size"] == got["A7.gain"] == got["A6"] == "undecided"


@pytest.mark.parametrize("values, error, verdict", [
    ([0.8, 0.9], 0.01, "holds"), ([0.9, 1.02], 0.01, "holds"), ([1.0, 1.2], 0.01, "fails"), ([1.5, 1.2], 0.01, "undecided"),
    ([1.21, 1.2], 0.01, "fails"), ([0.9], 0.01, "undecided")])
def test_verdict_on_an_upper_bound(values, error, verdict):
    values = np.array(values)
    assert at_most_verdict(Exponents(values, values, np.full(len(values), error)), 1.0) == verdict


@pytest.mark.parametrize("error", [0.34, 5.0, np.nan, np.inf])
def test_exponents_that_are_not_known_decide_nothing(error):
    values = np.array([0.9, 0.8])
    assert at_most_verdict(Exponents(values, values, np.full(2, error)), 1.0) == "undecided"


def test_errors_of_exponents_add_in_squares():
    found = sampled_exponents([1, 2, 4], [10, 20, 40], [1, 2, 4])
    np.testing.assert_allclose(found.value, 1)
    np.testing.assert_allclose(found.error, np.hypot(0.1, 0.1) / np.log(2))


def test_samples_needed_are_those_of_the_mean_curve():
    at = np.array([8, 16, 32, 64, 128, 256, 512])
    measured = Measured("logistic_sgd", at, np.full((6, 7), 4.0), np.ones((6, 7)), np.zeros((6, 7)), 1.0)
    n, error = measured.needed(0.05)
    assert n == pytest.approx(80, rel=1e-12) and error == pytest.approx(0, abs=1e-9)
    assert measured.needed(0.001) is None and measured.needed(0.05, "last") is None
    again = Measured.from_arrays(measured.arrays())
    assert again.needed(0.05) == (n, error) and again.method == "logistic_sgd"


def test_bootstrap_error_is_that_of_the_mean():
    # samples needed = mistakes / eps: their standard error is that of a mean of 400 numbers (bootstrap scatter: 5 %)
    rng = np.random.default_rng(0)
    mistakes = 10 + rng.standard_normal((400, 1)) * np.ones(9)
    measured = Measured("pretrained", 20 * 2 ** np.arange(9), mistakes, mistakes, mistakes, 1.0)
    n, error = measured.needed(0.05)
    assert error == pytest.approx(mistakes[:, 0].std(ddof=1) / 20 / 0.05, rel=0.2)


def test_units_of_work_have_seeds_of_their_own():
    assert seeds_of(0, 1, count=5) == seeds_of(0, 1, count=8)[:5]
    assert not set(seeds_of(0, 1, count=50)) & set(seeds_of(0, 2, count=50))


def test_lengths_rise_and_grow_as_the_claims_do():
    short, long = (lengths("pretrained", d, d, 0.5, 0.01) for d in (4, 16))
    assert (np.diff(short) > 0).all() and long[-1] >= 4 * short[-1] / 1.5
    assert lengths("pretrained", 4, 4, 0.25, 0.01)[-1] >= 4 * short[-1] / 1.5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("law", ["gaussian", "uniform"])
def test_measuring_twice_gives_the_same_numbers(method, law):
    task = DownstreamTask(Problem(2, 3, relevant=1), [0.6, 0.8], law, 0.4)
    model = Pretrained(np.full(5, 0.1), 0.3 * np.random.default_rng(0).standard_normal((5, 5)), "", {})
    a, b = (measure(method, task, model, [4, 5, 6], [8, 30]) for _ in range(2))
    assert (a.last == b.last).all() and a.last.shape == (3, 2)
    assert method == "max_likelihood" or (a.mistakes == b.mistakes).all()


def test_where_the_value_vector_starts_matters():
    task = DownstreamTask(Problem(2, 3, relevant=1), [0.6, 0.8], "gaussian", 0.4)
    model = Pretrained(np.array([0.6, 0.8, 0, 0, 0]), np.zeros((5, 5)), "", {})
    zero, warm = (measure("pretrained", task, model, [4, 5], [8], start=start) for start in ("zero", "pretrained"))
    assert zero.mistakes[:, 0].min() >= 1 and warm.last.mean() < zero.last.mean()


def test_the_errors_of_a_quotient_add_in_relative_squares():
    cell = Cell(4, 4)
    methods = {name: SimpleNamespace(needed=lambda eps, which, n=n: n)
               for name, n in (("logistic_sgd", (400.0, 40.0)), ("pretrained", (100.0, 5.0)))}
    cells, gain, error = gains(Results({cell: methods}, cell, (0.1,)), "logistic_sgd", "online")
    assert cells == [cell] and gain == [4.0]
    assert error[0] == pytest.approx(4.0 * np.hypot(0.1, 0.05), rel=1e-12)
