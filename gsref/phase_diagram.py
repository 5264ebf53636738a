"""Which learning rate does what?  Outcomes of gradient descent from zero over a grid of (D, eta), and their boundaries.

Outcomes of the path (what the recursion of the order parameters does):

    gradually    half of the mean attention reaches the relevant group, the loss never exceeds log 2 on the way, and no
                 single step raises that attention by more than 1/2
    few steps    it is raised by more than 1/2 in one step, and stays
    wrong        the attention on the relevant group falls below half of 1/D and is there at the end
    oscillates   anything else: the loss exceeds log 2, or no group is selected, or a number leaves float64

`leaves` is the fifth: rounding breaks the symmetry (`stability.growth`) before the outcome of the path is reached, so
that a run of all parameters does not follow the path.  The thresholds 1/2 are definitions.  Everything that a
worker runs is a function of plain numbers, so that any `concurrent.futures.Executor` will do.
Source: derivations/10_stability.md.
"""

import math
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import stdtrit

from gsref.arguments import choice, integer, real
from gsref.descent import descend
from gsref.order import OrderParameters
from gsref.population import MODES
from gsref.problem import Problem
from gsref.report import Check
from gsref.second_derivative import second_derivative
from gsref.stability import growth, thinned

OUTCOMES = ("gradually", "few steps", "wrong", "oscillates", "leaves")
LARGE_STEP = 0.5
HORIZON, MOST_STEPS = 60.0, 150                # a path ends at eta n = HORIZON, but not before MOST_STEPS steps
SETTLED = 12                                   # steps without a change of outcome that end a path
FLOW_BELOW = 1.0                               # eta D below which a path is smooth enough to go on as a flow
FULL = {"rtol": 3e-2, "max_nodes": 2**13}      # accuracy of paths in full mode
CERTAIN = 0.5                                  # relative error of the loss beyond which an outcome is uncertain
ROWS_PER_DECADE = 16                           # of second derivatives along a path


@dataclass(frozen=True)
class Cell:
    """What happened at one (mode, D, eta).

    outcome: one of OUTCOMES; path: that of the recursion alone; event: the step at which the path's outcome was
    reached (None if it oscillates); broken: the step at which rounding breaks the symmetry (None: not before the
    event, or within the path); steps taken; attention, loss at the end; highest loss; largest rise of attention in
    one step; error: the largest relative error estimate of the loss on the way (full mode at large steps: rare inputs
    decide, and none is small).
    """

    mode: str
    d: int
    D: int
    sigma: float
    eta: float
    outcome: str
    path: str
    event: int | None
    broken: int | None
    steps: int
    attention: float
    loss: float
    highest: float
    rise: float
    error: float

    @property
    def certain(self):
        """Was the expectation under control all the way?"""
        return self.error <= CERTAIN


@dataclass(frozen=True)
class Law:
    """A boundary eta(D) = factor D^exponent, its brackets low and high (n,) at D (n,), the error of the exponent."""

    name: str
    mode: str
    D: tuple
    low: tuple
    high: tuple
    factor: float
    exponent: float
    error: float


class _Watch:
    """A callback of `descend` that notes attention and loss and ends the path when its outcome is settled."""

    def __init__(self, D):
        self.D, self.rows, self.since = D, [], None

    def __call__(self, step, order, found):
        self.rows.append((step, 1.0 - found.leak, found.loss, found.loss_error / found.loss))
        done = found.leak < 0.5 and found.loss < math.log(2) / 2
        lost = 1.0 - found.leak < 0.5 / self.D
        state = "selected" if done else "lost" if lost else None
        if state is None or self.since is None or self.since[0] != state:
            self.since = (state, step)
        return state is not None and step - self.since[1] >= SETTLED


def classify(D, step, attention, loss, finite=True):
    """(outcome of the path, step at which it was reached or None, largest rise in one step) from rows of a path.

    step, attention (mean over queries of the attention on the relevant group), loss: (n,) each, n >= 1.
    """
    step, attention, loss = map(np.asarray, (step, attention, loss))
    rises = np.diff(attention) / np.maximum(np.diff(step), 1)
    rise = float(np.max(rises, initial=0.0))
    selected = np.flatnonzero(attention > 0.5)
    if finite and attention[-1] < 0.5 / D:
        last = np.flatnonzero(attention >= 0.5 / D)
        return "wrong", int(step[last[-1] + 1]), rise
    if not finite or attention[-1] <= 0.5:
        return "oscillates", None, rise
    below = np.flatnonzero(attention <= 0.5)
    reached = int(step[below[-1] + 1]) if len(below) else int(step[selected[0]])
    if rise > LARGE_STEP:
        return "few steps", reached, rise
    return ("gradually", reached, rise) if loss.max() <= math.log(2) * (1 + 1e-2) else ("oscillates", None, rise)


def cell(mode, d, D, sigma, eta, seed=0):
    """The `Cell` at one (mode, D, eta).  Raises TypeError or ValueError, naming the argument."""
    choice("mode", mode, MODES)
    problem, eta = Problem(d, D, sigma), real("eta", eta, 0.0, open_least=True)
    watch = _Watch(problem.D)
    accuracy = {**FULL, "seed": seed} if mode == "full" else {"rtol": 1e-3}
    if mode == "position_only" and eta < FLOW_BELOW / problem.D:
        accuracy |= {"flow": 1e-2, "flow_from": 100, "per_decade": 40}
    finite = True
    try:
        path = descend(problem, eta, int(max(MOST_STEPS, HORIZON / eta)), mode, callback=watch, **accuracy)
    except (OverflowError, ValueError, FloatingPointError):
        finite, path = False, None             # a state beyond float64
    step, attention, loss, error = zip(*watch.rows)
    outcome, event, rise = classify(problem.D, step, attention, loss, finite)
    broken = break_step(problem, path, eta, mode, event, seed) if path is not None else None
    left = broken is not None and (event is None or broken < event)
    return Cell(mode, d, D, sigma, eta, "leaves" if left else outcome, outcome, event, broken, int(step[-1]),
                float(attention[-1]), float(loss[-1]), float(max(loss)), rise, float(max(error)))


def break_step(problem, path, eta, mode, event, seed):
    """The step at which rounding breaks the symmetry of `path`, or None if not before `event` (None: its end)."""
    def blocks(order):
        return second_derivative(problem, order, mode, rtol=0.1, max_nodes=2**12, seed=seed)
    rows = thinned(path, ROWS_PER_DECADE, event)
    return growth(problem, rows, eta, mode, blocks if mode == "full" else None).broken


# ---- the boundaries: each is where a property of the cell changes as eta grows

BOUNDARIES = {
    "leaves the manifold": lambda cell: cell.outcome == "leaves",
    "no longer gradual": lambda cell: cell.path != "gradually",
    "locks onto wrong groups": lambda cell: cell.path == "wrong",
    "few large steps": lambda cell: cell.path == "few steps",
}
FROM_ABOVE = ("few large steps",)              # all above has the property; the others: all below lacks it


def bracket(name, cells):
    """(low, high) neighbouring rates of one column of cells (one mode and D) between which the boundary lies.

    None if the boundary is not inside the column, or between cells of which one is uncertain.
    """
    ordered = sorted(cells, key=lambda cell: cell.eta)
    has = [BOUNDARIES[name](cell) for cell in ordered]
    if name in FROM_ABOVE:
        first = len(has) - next((i for i, value in enumerate(reversed(has)) if not value), len(has))
    else:
        first = next((i for i, value in enumerate(has) if value), len(has))
    if not 0 < first < len(has) or not (ordered[first - 1].certain and ordered[first].certain):
        return None
    return ordered[first - 1].eta, ordered[first].eta


def bisect(name, mode, d, D, sigma, low, high, seed=0, times=4):
    """The boundary between `low` and `high` to 2^-times of their logarithmic distance: (low, high)."""
    choice("name", name, tuple(BOUNDARIES))
    for _ in range(integer("times", times, 0)):
        middle = math.sqrt(low * high)
        above = BOUNDARIES[name](cell(mode, d, D, sigma, middle, seed))
        low, high = (low, middle) if above else (middle, high)
    return low, high


def power_law(name, mode, D, low, high):
    """A `Law` through at least three brackets: least squares of log eta on log D  [stability.11].

    The error of the exponent is Student's 95 % bound from the scatter about the line, and at least that of the brackets
    (half their widths, at their worst ends: opposite errors at the two ends of the range).
    """
    D, low, high = (np.asarray(x, dtype=float) for x in (D, low, high))
    if len(D) < 3:
        raise ValueError(f"D: got {len(D)} sizes, expected at least 3")
    x, y = np.log(D) - np.log(D).mean(), np.log(low * high) / 2
    slope = x @ y / (x @ x)
    rest = y - y.mean() - slope * x
    scatter = math.sqrt(rest @ rest / (len(D) - 2) / (x @ x)) * stdtrit(len(D) - 2, 0.975)
    width = np.abs(x) @ (np.log(high / low) / 2) / (x @ x)
    return Law(name, mode, tuple(D.astype(int).tolist()), tuple(low.tolist()), tuple(high.tolist()),
               float(np.exp(y.mean() - slope * np.log(D).mean())), float(slope), float(max(scatter, width)))


# ---- what was said before, as checks

def claims(cells, laws, d, sigma):
    """Three statements about the map, measured: a list of `report.Check`, those left out whose cells are not there.

    They are first measurements of our own, not of the literature, in position-only mode at sigma = 1.
    """
    checks = []
    sizes = sorted({found.D for found in cells if found.mode == "position_only"})
    if sizes and sigma == 1.0:
        at_D = [cell("position_only", d, D, sigma, float(D)) for D in sizes if D >= 8]
        if at_D:
            good = [found.path == "few steps" and found.event == 2 for found in at_D]
            checks.append(Check("M1", "at eta = D the second step selects the relevant group (position-only)",
                                "half of the attention after step 2", f"at {sum(good)} of {len(good)} sizes from D = 8",
                                "1e-3 of the attention", "holds" if all(good) else "fails", {"cells": at_D}))
        at_one = [cell("position_only", d, D, sigma, 1.0) for D in sizes if D >= 32]
        if at_one:
            good = [found.path == "wrong" for found in at_one]
            where = ", ".join(f"D = {found.D}: {found.path}" for found in at_one)
            checks.append(Check("M2", "at eta = 1 and D >= 32 it locks onto the wrong groups (position-only)",
                                "wrong at every D", where, "1e-3 of the attention", "holds" if all(good) else "fails",
                                {"cells": at_one}))
    for law in laws:
        if law.name == "leaves the manifold":
            safe = all(low >= 16 / (D**2 * (D + 1)) for D, low in zip(law.D, law.low))
            checks.append(Check(f"M3.{law.mode}", f"a run never leaves the manifold below 16/(D^2 (D+1)) ({law.mode})",
                                "boundary above it at every D", f"boundary D^({law.exponent:.2f} +- {law.error:.2g}); "
                                f"{law.low[-1] * law.D[-1] ** 2 * (law.D[-1] + 1) / 16:.3g} times that rate at "
                                f"D = {law.D[-1]}", "brackets of the boundary", "holds" if safe else "fails"))
    return checks


# ---- many cells on any executor

def run_jobs(function, jobs, executor, done, report):
    """{job: function(*job)} for all `jobs` (tuples of plain numbers) that `done` lacks, on any futures executor.

    `report(job, result)` is called in this process as each one arrives, in any order; `done` (a dict) is filled.  An
    exception of a job, or an interruption here, cancels what has not begun and goes on up; what has begun still fills
    `done` when it ends.
    """
    waiting = {executor.submit(function, *job): job for job in jobs if job not in done}
    try:
        for future in as_completed(waiting):
            job = waiting[future]
            done[job] = future.result()
            report(job, done[job])
    finally:
        for future, job in waiting.items():
            if job not in done and not future.cancel():
                future.add_done_callback(partial(_keep, done, job))
    return done


def _keep(done, job, future):
    if not future.cancelled() and future.exception() is None:
        done[job] = future.result()


def rates(D, count, most=16.0):
    """`count` learning rates for one column of the map: from 4/D^2, below the order of the stable rate, to `most`."""
    return np.geomspace(min(4.0 / D**2, 0.25), most, count)
