"""Is a whole training run right, are stochastic gradients unbiased?  Against the exact recursion and population gradient."""

import math
from dataclasses import astuple, dataclass, fields

import numpy as np
from scipy.stats import norm, t as student

from gsref.arguments import choice, instance, integer, real, real_array
from gsref.descent import descend
from gsref.oracle.reference import blocks
from gsref.order import OrderParameters
from gsref.population import MODES, population
from gsref.problem import Problem

SIGMAS = 5.0         # multiples of the candidate's own standard error: a false alarm has odds 6e-7 a step


@dataclass(frozen=True)
class TrajectoryReport:
    """What `check_trajectory` found: `first` is the first step that departs by more than its `allowed` difference.

    `steps`, `got`, `wanted`, `error` (stated error of `wanted`) and `allowed` are arrays of one length.
    """

    verdict: str
    first: int
    reason: str
    steps: np.ndarray
    got: np.ndarray
    wanted: np.ndarray
    error: np.ndarray
    allowed: np.ndarray

    def __str__(self):
        return f"{self.verdict}: {self.reason}"


def check_trajectory(losses, problem, eta, *, steps=None, errors=None, start=OrderParameters(), mode="full", rtol=1e-4):
    """A training curve against the exact recursion of population gradient descent, as a TrajectoryReport  [oracle.11].

    `losses` (k,): the candidate's loss at `steps` (k,) (default 0, 1, 2, ..), each before the step of that number is
    taken, so that losses[0] is the loss at `start`; `errors`: their standard errors, a number or an array (default 0).
    The exact loss is stated with the error estimate of its quadrature and with what the whole path changes when it is
    followed with a tenfold rougher quadrature of another seed.  A step departs if |got - wanted| > error + 5 errors.
    Verdict: "fails" with the first step that departs; "undecided" if none does but the allowed difference is more than
    a tenth of the whole fall of the loss; else "holds".  Raises TypeError or ValueError, naming the argument.
    """
    instance("problem", problem, Problem)
    losses = real_array_or_nan("losses", losses)
    k = len(losses)
    steps = np.arange(k) if steps is None else np.array([integer("steps", step, 0) for step in np.asarray(steps).tolist()])
    if len(steps) != k or (np.diff(steps) <= 0).any():
        raise ValueError(f"steps: got {len(steps)} steps for {k} losses, expected as many, strictly rising")
    errors = np.zeros(k) if errors is None else np.broadcast_to(np.asarray(errors, dtype=np.float64), (k,))
    if not (np.isfinite(errors).all() and (errors >= 0).all()):
        raise ValueError("errors: expected finite numbers >= 0")
    rtol = real("rtol", rtol, 0.0, 0.01, open_least=True)
    fine, rough = (descend(problem, eta, int(steps[-1]), mode, start, tolerance, seed=seed)
                   for tolerance, seed in ((rtol, 0), (10 * rtol, 1)))
    wanted = fine.loss[steps]
    error = fine.error[steps, 0] + np.abs(rough.loss[steps] - wanted) + 4 * 2.0**-53 * wanted
    allowed = error + SIGMAS * errors
    departs = ~(np.abs(losses - wanted) <= allowed)                    # NaN departs
    if departs.any():
        i = int(np.argmax(departs))
        reason = (f"departs first at step {steps[i]}: got {losses[i]:.9g}, wanted {wanted[i]:.9g} +- {error[i]:.2g}, "
                  f"allowed difference {allowed[i]:.2g}; {int(departs.sum())} of {k} steps depart")
        return TrajectoryReport("fails", int(steps[i]), reason, steps, losses, wanted, error, allowed)
    fall = float(np.abs(wanted - wanted[0]).max())
    if k > 1 and allowed.max() > 0.1 * fall:
        reason = f"within the allowed difference, but that is up to {allowed.max():.2g} and the loss changes by {fall:.2g} only"
        return TrajectoryReport("undecided", None, reason, steps, losses, wanted, error, allowed)
    worst = int(np.argmax(np.abs(losses - wanted) / allowed))
    reason = (f"all {k} steps within the allowed difference (at most {allowed.max():.2g}); the nearest to it is step "
              f"{steps[worst]}: off by {abs(losses[worst] - wanted[worst]):.2g} of {allowed[worst]:.2g}")
    return TrajectoryReport("holds", None, reason, steps, losses, wanted, error, allowed)


def real_array_or_nan(name, value):
    """`value` as a float64 vector that may hold NaN or inf: a run that broke is to be judged, not refused."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name}: got dtype {array.dtype} and shape {array.shape}, expected real numbers of shape (steps,)")
    return array.astype(np.float64)


@dataclass(frozen=True)
class BlockBias:
    """One block of the gradient: `worst` statistic, its `critical` value, where; and what the test can see.

    `detects`: the bias of a single entry that is found with the stated power (the largest over entries); `scale`: the
    largest exact entry; `detects_factor`: the relative error of the whole block that is found with that power
    (None where the exact block is 0).
    """

    block: str
    biased: bool
    worst: float
    critical: float
    index: tuple
    mean: float
    exact: float
    standard_error: float
    detects: float
    scale: float
    detects_factor: float


@dataclass(frozen=True)
class UnbiasedReport:
    """What `check_unbiased` found: `verdict`, `biased` block names, one BlockBias a block, the stated rates."""

    verdict: str
    biased: tuple
    blocks: tuple
    false_alarm: float
    power: float
    count: int

    def __str__(self):
        lines = [f"{self.verdict}: {', '.join(self.biased) + ' biased' if self.biased else 'no bias seen'} in {self.count} "
                 f"gradients; false-alarm rate {self.false_alarm:g}, power {self.power:g} at the sizes under `detects`",
                 "block  worst |t|  critical  at         mean       exact   std.err   detects (entry, factor)"]
        for b in self.blocks:
            factor = "-" if b.detects_factor is None else f"{b.detects_factor:.2g}"
            lines.append(f"{b.block:5s}  {b.worst:9.2f}  {b.critical:8.2f}  {'whole' if b.index is None else str(list(b.index)):6s} "
                         f"{b.mean:11.4g} {b.exact:11.4g} {b.standard_error:9.2g}   {b.detects:.2g}, {factor}")
        return "\n".join(lines)


def exact_gradient(problem, order, mode="full", rtol=1e-4):
    """(dv, dW) of the population loss at `order`, and a bound on the error of each entry: minus the velocity, unfolded."""
    point = population(problem, order, mode, rtol=rtol)
    v, W = point.velocity.to_params(problem)
    error_v, error_W = np.zeros_like(v), np.zeros_like(W)
    sizes = dict(zip((f.name for f in fields(OrderParameters)), astuple(point.velocity_error)))
    for name, size in sizes.items():
        unit = {name: 1.0}
        if problem.D == 2 and name in ("m_ro", "m_oo"):
            unit = {"m_ro": 1.0, "m_oo": -1.0} if name == "m_ro" else {}
        if size > 0 and unit:
            dv, dW = OrderParameters(**unit).to_params(problem)
            error_v += abs(size) * np.abs(dv)
            error_W += abs(size) * np.abs(dW)
    return -v, -W, error_v, error_W


def check_unbiased(gradients, problem, order, *, mode="full", false_alarm=1e-3, power=0.9, rtol=1e-4):
    """Are many independent stochastic gradients unbiased for the exact population gradient at `order`?  [oracle.12]

    `gradients`: a sequence of at least 100 pairs (dv, dW), or a pair of arrays (N, d+D), (N, d+D, d+D), all at the same
    parameters order.to_params(problem), from any batch size.  Each entry's mean is compared with the exact value by
    Student's t, and so is each block's projection on the exact gradient (a wrong factor); the chance of any false alarm
    is at most `false_alarm` (Bonferroni; exact for normal gradients, and for others as their means become normal).
    Verdict: "fails", naming the biased blocks; "undecided" if none is but a factor of 2 in some block would not be seen
    with the stated `power`; else "holds".  Raises TypeError or ValueError, naming the argument.
    """
    instance("problem", problem, Problem), instance("order", order, OrderParameters), choice("mode", mode, MODES)
    false_alarm = real("false_alarm", false_alarm, 0.0, 0.5, open_least=True)
    power = real("power", power, 0.5, 0.9999)
    m = problem.d + problem.D
    pair = isinstance(gradients, tuple) and len(gradients) == 2
    try:
        dv, dW = gradients if pair else ([g[0] for g in gradients], [g[1] for g in gradients])
    except (TypeError, IndexError):
        raise TypeError("gradients: expected a sequence of pairs (dv, dW), or a pair of arrays") from None
    dv = real_array("gradients: dv", dv, ("N", m))
    dW = real_array("gradients: dW", dW, (len(dv), m, m))
    N = len(dv)
    if N < 100:
        raise ValueError(f"gradients: got {N}, expected at least 100")
    exact_v, exact_W, error_v, error_W = exact_gradient(problem, order, mode, rtol)
    d = problem.d
    samples = _blocks(dv, dW, d)
    exact, error = (blocks({"dv": a, "dW": b}, d) for a, b in ((exact_v, exact_W), (error_v, error_W)))
    tests = m + m * m + sum(bool(x.any()) for x in exact.values())
    critical = float(student.ppf(1 - false_alarm / (2 * tests), N - 1))
    reach = critical + float(norm.ppf(power))
    found = tuple(_block_bias(step[1:], samples[step].reshape(N, -1), exact[step], error[step], critical, reach)
                  for step in exact)
    biased = tuple(b.block for b in found if b.biased)
    weak = any(b.detects_factor is not None and b.detects_factor > 1 for b in found)
    return UnbiasedReport("fails" if biased else "undecided" if weak else "holds", biased, found, false_alarm, power, N)


def _blocks(dv, dW, d):
    return {"dv1": dv[:, :d], "dv2": dv[:, d:], "dW11": dW[:, :d, :d], "dW12": dW[:, :d, d:], "dW21": dW[:, d:, :d],
            "dW22": dW[:, d:, d:]}


def _block_bias(name, samples, exact, error, critical, reach):
    """The tests of one block: samples (N, entries)."""
    N = len(samples)
    shape, exact, error = exact.shape, exact.ravel(), error.ravel()
    mean, se = samples.mean(axis=0), samples.std(axis=0, ddof=1) / math.sqrt(N)
    off = np.maximum(np.abs(mean - exact) - error, 0.0)                 # the error of the exact value is not held against it
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(off == 0, 0.0, off / se)
    i = int(np.argmax(t))
    result = [t[i], tuple(int(k) for k in np.unravel_index(i, shape)), mean[i], exact[i], se[i]]
    factor = None
    if exact.any():
        weight = exact / (exact @ exact)
        along = samples @ weight                                         # its mean is 1 if the block is unbiased
        spread = along.std(ddof=1) / math.sqrt(N)
        off = max(abs(along.mean() - 1) - float(np.abs(weight) @ error), 0.0)
        t_along = 0.0 if off == 0 else off / spread if spread > 0 else math.inf
        factor = float(reach * spread + np.abs(weight) @ error)
        if t_along > result[0]:
            result = [t_along, None, along.mean(), 1.0, spread]
    worst, index, mean_, exact_, se_ = result
    return BlockBias(name, bool(worst > critical), float(worst), critical, index, float(mean_), float(exact_), float(se_),
                     float((reach * se + error).max()), float(np.abs(exact).max()), factor)
