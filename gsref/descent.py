"""How does gradient descent go on?  Exact steps, the same path as a flow in log time, and the trajectory of both.

The steps and the flow take callables: `evaluate(x)` returns an object whose `.velocity` has the shape of the array x;
anything else that it carries is handed to `observe`.  `gsref.population` is bound to it in `descend` only.  Source: derivations/05_long_times.md.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.integrate import solve_ivp

from gsref.arguments import instance, integer, real
from gsref.order import OrderParameters
from gsref.population import Population, population
from gsref.problem import Problem


LEAST_RTOL = 1e-12                             # LSODA warns and gives up a little below
SPLITS_PER_DECADE = 2                          # the integrator starts anew twice a decade: there a run can be split


@dataclass(frozen=True)
class Trajectory:
    """What gradient descent went through; row i belongs to `step[i]` (0 is the start).

    step (n,) int64 (float64 beyond 2^62); loss (n,); order (n, 6): alpha, a, b, m_rr, m_ro, m_oo; velocity (n, 6) per unit eta; leak (n,): mean over inputs and queries of
    1 - S[r, j]; attention (n,) = 1 - leak; error (n, 7): absolute error estimates of the loss and of the six velocities;
    switch: the step from which the flow was followed instead of single steps, or None.
    """

    step: np.ndarray
    loss: np.ndarray
    order: np.ndarray
    velocity: np.ndarray
    leak: np.ndarray
    error: np.ndarray
    switch: int | None = None

    FIELDS = ("step", "loss", "order", "velocity", "leak", "error")

    @property
    def attention(self):
        return 1.0 - self.leak

    def arrays(self):
        """The fields as a mapping of arrays, for a `.npz`; `Trajectory.from_arrays` reads it back."""
        return {**{name: getattr(self, name) for name in self.FIELDS}, "attention": self.attention,
                "switch": np.array(-1 if self.switch is None else self.switch)}

    @classmethod
    def from_arrays(cls, arrays):
        """What `arrays` has written.  ValueError if one is missing, or not a row of finite numbers for each step."""
        missing = [name for name in (*cls.FIELDS, "switch") if name not in arrays]
        if missing:
            raise ValueError(f"arrays: got no {missing[0]}, expected {', '.join((*cls.FIELDS, 'switch'))}")
        n = arrays["step"].size
        for name in cls.FIELDS:
            tail = {"order": (6,), "velocity": (6,), "error": (7,)}.get(name, ())
            array = arrays[name]
            if n == 0 or array.shape != (n, *tail) or array.dtype.kind not in "if" or not np.isfinite(array).all():
                raise ValueError(f"{name}: got {array.dtype} {array.shape}, expected finite numbers, a row for each step")
        switch = int(arrays["switch"])
        return cls(*(arrays[name] for name in cls.FIELDS), switch=None if switch < 0 else switch)

    def join(self, later):
        """This trajectory and the one that went on from its last row, as one."""
        kept = slice(0, np.searchsorted(self.step, later.step[0]))
        return Trajectory(*(np.concatenate([getattr(self, name)[kept], getattr(later, name)])
                            for name in self.FIELDS), switch=later.switch)


def moved(x, eta, V):
    """x + eta V; OverflowError if that leaves float64 (a learning rate far too large)."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = x + eta * V
    if not np.isfinite(x).all():
        raise OverflowError(f"x + eta V: got {x.tolist()}, expected finite numbers; eta = {eta:g} is too large")
    return x


def euler_steps(evaluate, x, eta, n_steps, observe, first=0):
    """Gradient descent x <- x + eta V(x): n_steps of it, `observe(step, x, evaluation)` before each and after the last.

    A true result of `observe` ends the loop there.  Returns (step, x) of the last observation  [long.1].
    """
    for step in range(first, first + n_steps + 1):
        now = evaluate(x)
        if observe(step, x, now) or step == first + n_steps:
            return step, x
        x = moved(x, eta, now.velocity)


def modified_velocity(evaluate, x, eta, terms=3):
    """The field, per step, whose flow passes through the iterates x0, x1, .. up to their third differences  [long.2].

        F = log(1 + Delta) x0 = Delta x0 - Delta^2 x0 / 2 + Delta^3 x0 / 3 - ..,   Delta x0 = x1 - x0 = eta V(x0), ..

    V(x0) itself is F at infinitely small steps; the rest is the correction for the size of the step.  With `terms` = 2
    the third differences are left out, and with them one of three evaluations.
    """
    V0 = evaluate(x).velocity
    V1 = evaluate(moved(x, eta, V0)).velocity
    if terms == 2:
        return eta * (V0 - (V1 - V0) / 2)
    V2 = evaluate(moved(x, eta, V0 + V1)).velocity
    return eta * (V0 - (V1 - V0) / 2 + (V2 - 2 * V1 + V0) / 3)


def last_term(evaluate, x, eta, V):
    """|Delta^3 x| / (3 |Delta x|), the relative size of the last term that `modified_velocity` keeps  [long.3].

    The terms fall like powers of eta V', so this bounds what is left out wherever the flow is of use at all.
    """
    V1 = evaluate(moved(x, eta, V)).velocity
    V2 = evaluate(moved(x, eta, V + V1)).velocity
    size = np.linalg.norm(V)
    return np.linalg.norm(V2 - 2 * V1 + V) / (3 * size) if size > 0 else 0.0


def follow_flow(evaluate, x, eta, first, stops, rtol):
    """The states at each of `stops` (rising, all above `first`), from x after step `first`, along the modified flow.

        dx/ds = t F(x),   t = exp(s)                                                             [long.4]

    In log time, because the late path is a power law in t; by LSODA (scipy), because the fast directions have decayed
    and the equation is stiff.  `rtol`, but not less than LEAST_RTOL, is its tolerance, relative to each scalar (or 1e-3
    of the largest); the third term of F is left out where it is below a tenth of that.  Raises ArithmeticError if the
    integrator gives up.
    """
    rtol = max(rtol, LEAST_RTOL)
    terms = 2 if last_term(evaluate, x, eta, evaluate(x).velocity) < 0.1 * rtol else 3
    scale = np.maximum(np.abs(x), 1e-3 * np.abs(x).max())
    s = np.log(np.array([first, *stops], dtype=float))
    result = solve_ivp(lambda s, z: math.exp(s) * modified_velocity(evaluate, scale * z, eta, terms) / scale,
                       (s[0], s[-1]), x / scale, method="LSODA", t_eval=s[1:], rtol=rtol, atol=rtol)
    if not result.success:
        raise ArithmeticError(f"follow_flow: LSODA stopped between steps {first} and {stops[-1]}: {result.message}")
    return scale * result.y.T


def flow_check(evaluate, x, eta, first, rtol, n_steps=20):
    """Exact steps against the flow, from x after step `first`: (exact change, change that the flow predicts, bound).

    `bound` is the stated error of the flow's change: the last term that the field keeps, at its largest along the
    way, and the tolerance of the integrator with a margin of 10 for the sum of its local errors (empirical).
    """
    states, terms = [], []

    def observe(step, x, point):
        states.append(x)
        terms.append(last_term(evaluate, x, eta, point.velocity))
    euler_steps(evaluate, x, eta, n_steps, observe, first)
    stepped = states[-1] - x
    flowed = follow_flow(evaluate, x, eta, first, [first + n_steps], rtol)[-1] - x
    return stepped, flowed, np.linalg.norm(stepped) * max(terms) + 10 * rtol * np.linalg.norm(x)


class _Coordinates:
    """The order parameters that are free to move at this d, D and mode, as an array (an integrator varies them all)."""

    def __init__(self, problem, mode):
        there = {"alpha": True, "a": mode == "full", "b": mode == "full" and problem.d > 1,
                 "m_rr": problem.D > 1, "m_ro": problem.D > 1, "m_oo": problem.D > 2}
        self.names = [name for name, free in there.items() if free]
        self.tied = problem.D == 2                                   # m_oo = -m_ro

    def of(self, order):
        return np.array([getattr(order, name) for name in self.names])

    def order(self, x):
        values = dict(zip(self.names, x.tolist()))
        return OrderParameters(**values, m_oo=-values["m_ro"]) if self.tied else OrderParameters(**values)


@dataclass(frozen=True)
class _Point:
    """A population evaluation in the form that this module steps with."""

    velocity: np.ndarray
    result: Population


def _evaluator(problem, mode, rtol, options):
    """(evaluate on free coordinates, the coordinates)."""
    coordinates = _Coordinates(problem, mode)

    def evaluate(x):
        found = population(problem, coordinates.order(x), mode=mode, rtol=rtol, **options)
        return _Point(coordinates.of(found.velocity), found)
    return evaluate, coordinates


class _Recorder:
    """Rows of a trajectory; asks `callback` whether to stop."""

    def __init__(self, coordinates, callback, keep):
        self.rows, self.coordinates, self.callback, self.keep, self.stopped = [], coordinates, callback, keep, False

    def __call__(self, step, x, point):
        self.stopped = bool(self.callback and self.callback(step, self.coordinates.order(x), point.result))
        if self.stopped or self.keep(step):
            self.row(step, x, point)
        return self.stopped

    def row(self, step, x, point):
        if not self.rows or self.rows[-1][0] != step:
            self.rows.append((step, x, point))

    def trajectory(self, switch, n=None):
        steps, states, points = zip(*self.rows[:n])
        found = [point.result for point in points]
        kind = np.int64 if steps[-1] < 2**62 else np.float64             # a flow may go beyond what integers hold
        return Trajectory(np.array(steps, dtype=kind), np.array([one.loss for one in found]),
                          np.array([self.coordinates.order(x).to_array() for x in states]),
                          np.array([one.velocity.to_array() for one in found]), np.array([one.leak for one in found]),
                          np.array([[one.loss_error, *one.velocity_error.to_array()] for one in found]), switch)


def descend(problem, eta, n_steps, mode="full", start=OrderParameters(), rtol=1e-4, callback=None, *,
            first_step=0, flow=None, flow_from=10, max_exact=None, switch=None,
            per_decade=40, keep=None, checkpoint=None, **options):
    """Population gradient descent from `start` with learning rate `eta`, as a `Trajectory`.

    `n_steps` steps are taken; `callback(step, order, population)` is called at every step (with the flow: at every
    stop) and ends the run by returning something true.  `keep(step)` says which exact steps become rows (default: all;
    first and last always do).  `options` go to `gsref.population` (rule, max_nodes, seed).

    `flow`: None takes every step exactly.  A number c > 0 goes on as a flow in log time once the last term of its field
    (`last_term`) is below c.  This is asked, and rows are made, at `per_decade` places in each decade of steps from
    `flow_from` on (while the path still turns, exact steps are the cheaper way); `Trajectory.switch` says where it began.
    `max_exact` ends the run at that step if the flow has not taken over by then (a path that oscillates never lets it).

    `checkpoint(trajectory)` is called wherever the run may be split (after each exact step, and twice a decade in the
    flow) with a function that makes the rows so far a `Trajectory`.  To go on, pass `start`, `first_step` and `switch`
    of its last row: the rows that follow are those of the unbroken run, bit for bit.
    Raises TypeError or ValueError, naming the argument.  Source: derivations/05_long_times.md.
    """
    instance("problem", problem, Problem)
    instance("start", start, OrderParameters)
    eta, n_steps = real("eta", eta, 0.0, open_least=True), integer("n_steps", n_steps, 0, 10**300)
    first_step = integer("first_step", first_step, 0, 10**300)
    per_decade = integer("per_decade", per_decade, 1, 10**6)
    if switch is not None:
        switch = integer("switch", switch, 1, max(first_step, 1))
    flow_from = integer("flow_from", flow_from, 1)
    max_exact = n_steps if max_exact is None else integer("max_exact", max_exact, 1)
    if flow is not None:
        flow = real("flow", flow, 0.0, 1.0, open_least=True)
    for name, value in (("callback", callback), ("keep", keep), ("checkpoint", checkpoint)):
        if value is not None and not callable(value):
            raise TypeError(f"{name}: got {type(value).__name__}, expected a callable or None")
    evaluate, coordinates = _evaluator(problem, mode, rtol, options)
    last = first_step + n_steps
    record = _Recorder(coordinates, callback, lambda step: keep is None or keep(step) or step in (first_step, last, max_exact))
    grid = stops(max(first_step, flow_from), last, per_decade) if flow is not None else []
    asked = set(grid)

    def observe(step, x, point):
        nonlocal switch
        if record(step, x, point):
            return True
        if step in asked and switch is None and last_term(evaluate, x, eta, point.velocity) < flow:
            switch = step
        if switch is not None or checkpoint:
            record.row(step, x, point)
        if checkpoint:
            checkpoint(partial(record.trajectory, switch, len(record.rows)))
        return switch is not None

    step, x = euler_steps(evaluate, coordinates.of(start), eta,
                          min(n_steps, max(max_exact - first_step, 0)), observe, first_step)
    while switch is not None and step < last and not record.stopped:
        end = next((stop for stop in stops(step, last, SPLITS_PER_DECADE) if stop > step))
        rows = [stop for stop in grid if step < stop < end] + [end]
        for stop, state in zip(rows, follow_flow(evaluate, x, eta, step, rows, rtol)):
            if record(stop, state, evaluate(state)):
                break
        else:
            step, x = end, state
            record.row(end, state, evaluate(state))
            if checkpoint:
                checkpoint(partial(record.trajectory, switch, len(record.rows)))
    return record.trajectory(switch)


def stops(first, last, per_decade):
    """The steps round(10^(i/per_decade)) in [first, last], and `last`: the same grid whatever `first` is."""
    if last < first:
        return []
    i = np.arange(math.floor(per_decade * math.log10(first)), math.ceil(per_decade * math.log10(last)) + 1)
    grid = (int(step) for step in np.unique(np.round(10.0 ** (i / per_decade))))
    return [*(step for step in grid if first <= step < last), last]
