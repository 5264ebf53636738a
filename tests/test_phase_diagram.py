"""Outcomes on made-up and on real paths, boundaries, laws, and jobs on several executors."""

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsref.phase_diagram import (BOUNDARIES, OUTCOMES, Cell, bisect, bracket, cell, claims, classify, power_law, rates,
                                 run_jobs)
from gsref.run_phase_diagram import process_pool

LOG2 = math.log(2)


def position_only(D, eta):
    return cell("position_only", 1, D, 1.0, eta)


@pytest.mark.parametrize("attention, loss, outcome, event", [
    ([0.1, 0.2, 0.4, 0.6, 0.8], [LOG2, 0.6, 0.5, 0.3, 0.2], "gradually", 3),
    ([0.1, 0.1, 0.7, 0.9], [LOG2, 5.0, 0.3, 0.2], "few steps", 2),
    ([0.1, 0.3, 0.5, 0.7], [LOG2, 1.5, 0.5, 0.3], "oscillates", None),        # selects, but the loss exceeds its start
    ([0.1, 0.04, 0.01], [LOG2, 2.0, 3.0], "wrong", 1),
    ([0.1, 0.04, 0.2, 0.03, 0.01], [LOG2, 2.0, 3.0, 2.0, 3.0], "wrong", 3),   # the last time that it fell
    ([0.1, 0.3, 0.2], [LOG2, 0.6, 0.7], "oscillates", None),
    ([0.1, 0.6, 0.4, 0.6], [LOG2, 0.6, 0.6, 0.3], "gradually", 3),
])
def test_outcome_of_a_made_up_path(attention, loss, outcome, event):
    found = classify(10, range(len(attention)), attention, loss)
    assert found[:2] == (outcome, event) and found[2] == pytest.approx(max(0, *np.diff(attention)))


def test_a_rise_between_distant_rows_is_not_a_large_step():
    assert classify(10, [0, 1000], [0.1, 0.9], [LOG2, 0.1])[0] == "gradually"
    assert classify(10, [0, 1], [0.1, 0.9], [LOG2, 0.1])[0] == "few steps"


def test_a_path_beyond_float64_diverges():
    assert classify(10, [0, 1], [0.1, 0.9], [LOG2, 0.1], finite=False)[0] == "oscillates"


@pytest.mark.parametrize("D, eta, path, outcome", [
    (8, 0.1, "gradually", "gradually"), (8, 8.0, "few steps", "few steps"), (32, 1.0, "wrong", "wrong"),
    (64, 0.2, "oscillates", "leaves"), (64, 0.03, "gradually", "leaves"), (64, 0.001, "gradually", "gradually")])
def test_known_cells(D, eta, path, outcome):
    found = position_only(D, eta)
    assert (found.path, found.outcome) == (path, outcome)
    if outcome == "leaves":
        assert found.event is None or found.broken < found.event
    assert json.loads(json.dumps(found.__dict__)) == found.__dict__           # plain numbers: any executor can carry it


def test_full_mode_cell():
    found = cell("full", 1, 3, 1.0, 0.5)
    assert found.path == found.outcome == "gradually" and found.broken is None


def column(*pairs):
    base = Cell("full", 1, 8, 1.0, 1.0, "gradually", "gradually", 1, None, 1, 0.9, 0.1, 0.7, 0.1, 0.0)
    return [replace(base, eta=eta, path=path, outcome=path if path != "leaves" else "leaves") for eta, path in pairs]


def test_brackets():
    cells = column((4.0, "few steps"), (0.1, "gradually"), (0.2, "gradually"), (0.5, "leaves"), (1.0, "wrong"),
                   (8.0, "few steps"))
    assert bracket("leaves the manifold", cells) == (0.2, 0.5)
    assert bracket("no longer gradual", cells) == (0.2, 0.5)
    assert bracket("locks onto wrong groups", cells) == (0.5, 1.0)
    assert bracket("few large steps", cells) == (1.0, 4.0)
    assert bracket("locks onto wrong groups", cells[:1]) is None
    assert bracket("no longer gradual", [replace(found, error=0.6) for found in cells]) is None
    assert bracket("few large steps", column((1.0, "few steps"), (2.0, "gradually"))) is None
    assert bracket("few large steps", column((1.0, "few steps"), (2.0, "few steps"))) is None


def test_bisection_keeps_the_boundary_inside():
    low, high = bisect("few large steps", "position_only", 1, 16, 1.0, 2.0, 4.0, times=3)
    assert 2.0 <= low < high <= 4.0 and high / low == pytest.approx(2 ** (1 / 8))
    assert position_only(16, low).path != "few steps" and position_only(16, high).path == "few steps"
    with pytest.raises(ValueError, match="name: got 'x'"):
        bisect("x", "position_only", 1, 16, 1.0, 2.0, 4.0)


@pytest.mark.derives("stability.11")
@given(st.floats(-4, 4), st.floats(-5, 5), st.floats(0.001, 0.2))
def test_power_law_recovers_exponents_within_its_error(exponent, log_factor, width):
    D = np.array([4, 8, 16, 64, 256])
    exact = np.exp(log_factor) * D.astype(float) ** exponent
    law = power_law("x", "full", D, exact * np.exp(-width), exact * np.exp(width))
    assert law.exponent == pytest.approx(exponent, abs=1e-9)
    assert law.factor == pytest.approx(np.exp(log_factor), rel=1e-8)
    # any line through the brackets has an exponent within the error; the two extreme ones reach it
    x = np.log(D) - np.log(D).mean()
    tilted = exact * np.exp(width * np.sign(x) * 0.999)
    moved = np.polyfit(np.log(D), np.log(tilted), 1)[0]
    assert 0.9 * law.error < abs(moved - exponent) <= law.error * (1 + 1e-9)


def test_power_law_error_sees_scatter_and_refuses_two_points():
    D, bend = [4, 8, 16, 32, 64], np.array([0.0, 0.3, 0.4, 0.3, 0.0])
    eta = np.exp(-1.5 * np.log(D) + bend)
    law = power_law("x", "full", D, eta * 0.999, eta * 1.001)
    assert law.error > 0.1
    with pytest.raises(ValueError, match="got 2 sizes"):
        power_law("x", "full", D[:2], eta[:2], eta[:2])


JOBS = [("position_only", 1, D, 1.0, eta, 0) for D in (4, 8) for eta in (0.5, 4.0)]


def test_any_executor_gives_the_same_cells_and_done_ones_are_not_repeated():
    seen, done = [], {}
    with ThreadPoolExecutor(2) as pool:
        run_jobs(cell, JOBS[:2], pool, done, lambda job, found: seen.append(job))
    assert set(seen) == set(JOBS[:2]) == set(done)
    with process_pool(1) as pool:
        run_jobs(cell, JOBS, pool, done, lambda job, found: seen.append(job))
    assert sorted(seen) == sorted(JOBS)                    # each once
    assert done == {job: cell(*job) for job in JOBS}


def test_an_interruption_cancels_what_has_not_begun():
    ran, free, done = [], threading.Event(), {}

    def work(k):
        ran.append(k)
        assert k == 0 or free.wait(10)
        return k

    def interrupt(job, found):
        raise KeyboardInterrupt
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            run_jobs(work, [(k,) for k in range(30)], pool, done, interrupt)
        free.set()
    assert ran in ([0], [0, 1]) and set(done) == {(k,) for k in ran}       # the other one had begun


def test_what_had_begun_at_an_interruption_is_kept():
    begun, free, done = threading.Event(), threading.Event(), {}

    def slow(k):
        if k == 1:
            begun.set()
            assert free.wait(10)
        return 10 * k

    def interrupt(job, found):
        assert begun.wait(10)
        raise KeyboardInterrupt
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            run_jobs(slow, [(0,), (1,), (2,)], pool, done, interrupt)
        assert done == {(0,): 0}
        free.set()
    assert done == {(0,): 0, (1,): 10}


def test_claims_speak_of_what_is_there():
    cells = [position_only(D, 1.0) for D in (8, 32)]
    found = {check.id: check for check in claims(cells, [], 1, 1.0)}
    assert found["M1"].verdict == "holds" and found["M2"].verdict == "holds" and set(found) == {"M1", "M2"}
    assert {check.id for check in claims([position_only(512, 1.0)], [], 1, 1.0) if check.verdict == "fails"} == {"M2"}
    law = power_law("leaves the manifold", "full", [4, 8, 16], [1, 0.1, 0.01], [2, 0.2, 0.02])
    low = power_law("leaves the manifold", "full", [4, 8, 16], [1e-3, 1e-4, 1e-5], [2e-3, 2e-4, 2e-5])
    assert [claims([], [one], 1, 1.0)[0].verdict for one in (law, low)] == ["holds", "fails"]


def test_rates_cover_the_stable_and_the_wild():
    for D in (4, 64, 512):
        found = rates(D, 9)
        assert len(found) == 9 and found[0] <= 16 / (D * (D + 1)) and found[-1] == 16.0
    assert set(BOUNDARIES) and len(OUTCOMES) == 5
