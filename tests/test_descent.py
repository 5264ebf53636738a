"""Steps, flow, and runs that are split: on fields with known flows, and on the population path."""

import numpy as np
import pytest
from scipy.linalg import logm

from gsref import OrderParameters, Problem, descend, population
from gsref.descent import (_evaluator, euler_steps, flow_check, follow_flow, last_term, modified_velocity, stops)


class Point:
    def __init__(self, velocity):
        self.velocity = velocity


def linear(H):
    return lambda x: Point(-H @ x)


H = np.array([[0.5, 0.2, 0.0], [0.2, 0.9, 0.1], [0.0, 0.1, 0.3]])
X0 = np.array([1.0, -0.5, 2.0])


@pytest.mark.derives("long.1")
def test_euler_steps_are_matrix_powers():
    seen = []
    step, x = euler_steps(linear(H), X0, 0.3, 7, lambda step, x, point: seen.append(step), first=5)
    np.testing.assert_allclose(x, np.linalg.matrix_power(np.eye(3) - 0.3 * H, 7) @ X0, rtol=1e-14)
    assert seen == list(range(5, 13)) and step == 12
    assert euler_steps(linear(H), X0, 0.3, 7, lambda step, x, point: step == 2)[0] == 2


def test_a_step_beyond_float64_is_an_error_with_its_rate():
    with pytest.raises(OverflowError, match="eta = 1e.300 is too large"):
        euler_steps(linear(1e300 * H), X0, 1e300, 2, lambda *_: False)


@pytest.mark.derives("long.2")
def test_modified_field_is_the_logarithm_to_third_order():
    """On x' = -H x the exact field is log(I - eta H) x; what is left out is of fourth order, not third and not fifth."""
    etas = np.array([0.2, 0.1, 0.05])
    gaps = [np.linalg.norm(modified_velocity(linear(H), X0, eta) - logm(np.eye(3) - eta * H).real @ X0) for eta in etas]
    np.testing.assert_allclose(np.diff(np.log(gaps)) / np.diff(np.log(etas)), 4, atol=0.2)


@pytest.mark.derives("long.3")
@pytest.mark.parametrize("eta_h", [0.01, 0.1, 0.5])
def test_last_term_bounds_what_is_left_out(eta_h):
    x, evaluate = np.array([1.0]), linear(np.array([[1.0]]))
    left_out = abs(modified_velocity(evaluate, x, eta_h)[0] - np.log(1 - eta_h))
    assert left_out <= eta_h * last_term(evaluate, x, eta_h, evaluate(x).velocity)


def test_last_term_sees_an_oscillation():
    x, evaluate = np.array([1.0]), linear(np.array([[1.0]]))
    assert last_term(evaluate, x, 1.9, evaluate(x).velocity) > 1


@pytest.mark.derives("long.4")
def test_flow_in_log_time_passes_through_the_iterates():
    """x <- x + eta (-x^4/3): the late path of alpha in small; a flow without the correction misses by first order."""
    def evaluate(x):
        return Point(-x**4 / 3)
    x = np.array([2.0])
    _, start = euler_steps(evaluate, x, 0.05, 20, lambda *_: False)
    _, end = euler_steps(evaluate, start, 0.05, 480, lambda *_: False)
    flowed = follow_flow(evaluate, start, 0.05, 20, [100, 500], 1e-10)[-1]
    bound = last_term(evaluate, start, 0.05, evaluate(start).velocity) * abs(end - start) + 1e-9
    assert abs(flowed - end) <= bound
    plain = (start**-3 + 0.05 * 480) ** (-1 / 3)
    assert abs(plain - end) > 100 * abs(flowed - end)


def test_stops_do_not_depend_on_where_they_begin():
    whole = stops(10, 5000, 40)
    assert stops(137, 5000, 40) == [step for step in whole if step >= 137]
    assert stops(10, 10, 40) == [10] and stops(11, 10, 40) == []
    first, middle, last = stops(10**20, 10**21, 2)         # no float64 is exact there, and powers differ by a few units
    assert (first, last) == (10**20, 10**21) and abs(middle / 10**20.5 - 1) < 1e-15


PROBLEM, ETA = Problem(4, 16), 0.03
FLOW = {"mode": "position_only", "flow": 1e-3, "rtol": 1e-5}


def test_population_flow_agrees_with_every_step():
    exact = descend(PROBLEM, ETA, 3000, mode="position_only")
    path = descend(PROBLEM, ETA, 3000, **FLOW)
    assert path.switch is not None and path.switch < 100 and len(path.step) < 200
    # what the flow leaves out is below `flow` of the change, and so is the state
    np.testing.assert_allclose(path.order, exact.order[path.step], rtol=1e-3)
    np.testing.assert_allclose(path.loss, exact.loss[path.step], rtol=1e-3)


def test_twenty_exact_steps_at_five_stops():
    path = descend(PROBLEM, ETA, 30000, **FLOW)
    evaluate, coordinates = _evaluator(PROBLEM, "position_only", 1e-5, {})
    first = int(np.searchsorted(path.step, path.switch))
    for row in np.linspace(first, len(path.step) - 2, 5).astype(int):
        x = coordinates.of(OrderParameters.from_array(path.order[row]))
        stepped, flowed, bound = flow_check(evaluate, x, ETA, int(path.step[row]), 1e-10)
        assert np.linalg.norm(stepped - flowed) <= bound <= 0.05 * np.linalg.norm(stepped)
        # planted: gradient flow without the step-size correction is seen wherever the correction matters
        if row == first:
            plain = follow_flow(lambda x: Point(0.99 * evaluate(x).velocity), x, ETA, int(path.step[row]),
                                [int(path.step[row]) + 20], 1e-10)[-1] - x
            assert np.linalg.norm(stepped - plain) > bound


def test_a_split_run_is_the_same_run_bit_for_bit():
    points = []
    whole = descend(PROBLEM, ETA, 20000, checkpoint=lambda rows: points.append(rows()), **FLOW)
    assert len(points) > 20
    for path in (points[3], points[12], points[-4], points[-2]):
        n = int(path.step[-1])
        rest = descend(PROBLEM, ETA, 20000 - n, start=OrderParameters.from_array(path.order[-1]), first_step=n,
                       switch=path.switch, **FLOW)
        joined = path.join(rest)
        for name, value in whole.arrays().items():
            np.testing.assert_array_equal(joined.arrays()[name], value, err_msg=f"{name} split at {n}")


def test_trajectory_of_exact_steps():
    problem, seen = Problem(2, 3), []
    path = descend(problem, 0.2, 6, rtol=1e-3, callback=lambda step, order, found: seen.append((step, order, found.loss)))
    assert path.step.tolist() == [0, 1, 2, 3, 4, 5, 6] and path.order.shape == (7, 6) and path.error.shape == (7, 7)
    assert path.loss[0] == pytest.approx(np.log(2), rel=1e-12) and path.switch is None
    assert [s for s, *_ in seen] == path.step.tolist()
    order = OrderParameters()
    for row in range(7):
        np.testing.assert_array_equal(path.order[row], order.to_array())
        order = order + 0.2 * population(problem, order, rtol=1e-3).velocity
    np.testing.assert_array_equal(path.attention, 1 - path.leak)
    assert descend(problem, 0.2, 6, rtol=1e-3, keep=lambda step: step == 4).step.tolist() == [0, 4, 6]
    assert descend(problem, 0.2, 6, rtol=1e-3, callback=lambda step, *_: step == 2).step.tolist() == [0, 1, 2]


@pytest.mark.parametrize("change, error, message", [
    ({"eta": 0}, ValueError, "eta: got 0.0, expected a finite number > 0"),
    ({"n_steps": -1}, ValueError, "n_steps: got -1"),
    ({"n_steps": 1.5}, TypeError, "n_steps: got 1.5"),
    ({"mode": "half"}, ValueError, "mode: got 'half', expected one of full, position_only"),
    ({"start": np.zeros(6)}, TypeError, "start: got ndarray, expected OrderParameters"),
    ({"rtol": 0}, ValueError, "rtol: got 0.0"),
    ({"flow": 2}, ValueError, "flow: got 2.0"),
    ({"callback": 3}, TypeError, "callback: got int, expected a callable or None"),
    ({"problem": 3}, TypeError, "problem: got int, expected Problem"),
    ({"switch": "soon"}, TypeError, "switch: got 'soon'"),
    ({"switch": 0}, ValueError, "switch: got 0"),
    ({"first_step": 10**400}, ValueError, "first_step: got 1000"),
])
def test_bad_input(change, error, message):
    arguments = {"problem": Problem(2, 3), "eta": 0.1, "n_steps": 1, **change}
    with pytest.raises(error, match=message):
        descend(**arguments)
