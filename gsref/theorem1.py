"""What does the published theorem claim, and what does the population say?

One claim, one function: it takes the runs of one mode, smallest D first, and returns a `report.Check`.  The claims
(numbers A1 to A5) are those of Zhang, Meng and Cao, "Transformer Learns Optimal Variable Selection in Group-Sparse
Classification", ICLR 2025, Theorem 1, in our words; hidden constants are fitted on the smaller sizes and tested on the
larger.  A verdict speaks of the learning-rate rule of its runs.
"""

from dataclasses import dataclass

import numpy as np

from gsref.descent import Trajectory
from gsref.gradients import loss_and_gradient
from gsref.late_phase import late_leak, late_loss
from gsref.learning_rate import LearningRate
from gsref.order import OrderParameters
from gsref.problem import Problem
from gsref.report import Check
from gsref.scaling import crossing, exponent_verdict, local_exponents, scaled

@dataclass(frozen=True)
class Run:
    """One population path: the problem, the mode, the learning-rate rule and what it gave here, the trajectory."""

    problem: Problem
    mode: str
    rate: LearningRate
    eta: float
    trajectory: Trajectory

    @property
    def target(self):
        """1/D^2, the loss at the theorem's T* when eps is not larger."""
        return 1.0 / self.problem.D**2

    def order(self, row):
        return OrderParameters.from_array(self.trajectory.order[row])

    def time_to(self, eps):
        """(steps until the loss is eps, its error), or None if the run does not get there.

        The relative error adds that of the loss, divided by the slope d log L / d log t, and the largest relative
        error of the velocity of alpha over the last decade of steps, along which the time was spent.
        """
        path = self.trajectory
        found = crossing(path.step, path.loss, eps)
        if found is None:
            return None
        t, slope = found
        decade = (path.step >= t / 10) & (path.step <= t)
        i = int(np.searchsorted(path.step, t))
        if not np.isfinite(slope) or not decade.any():
            return t, 1.0
        drift = np.max(path.error[decade, 1] / np.abs(path.velocity[decade, 0]))
        return t, t * (path.error[min(i, len(path.loss) - 1), 0] / eps / abs(slope) + drift) + 0.5

    def at_step(self, values, step):
        """`values` (one positive number a row) at a step between rows, by log-log interpolation; None if outside."""
        steps = self.trajectory.step
        if len(steps) < 2 or not steps[1] <= step <= steps[-1]:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):             # a value that has underflowed to 0 gives 0 or NaN
            return float(np.exp(np.interp(np.log(step), np.log(steps[1:]), np.log(values[1:]))))

    def stages(self):
        """Rows of three moments: one step in, the transition (half of the mean attention is on the group), the end."""
        leak = self.trajectory.leak
        return min(1, len(leak) - 1), int(np.argmin(np.abs(leak - 0.5))), len(leak) - 1


def mirrored_gradient(problem, order, n, seed):
    """Gradient on n samples completed by their mirror images, and the mean size of a sample's gradient: four arrays.

    Returns (dv, dW, |dv| size, |dW| size).  The images are the flip (X, y) -> (-X, -y) and the half-turn about v*
    (x -> 2 <x, v*> v* - x): the law has both symmetries, so the completed sample is as fair as the first.  Gradient
    parts that symmetry forbids cancel between a sample and its images, to rounding, and not in the mean only.
    """
    rng = np.random.default_rng(seed)
    v, W = order.to_params(problem)
    X, y = problem.sample(n, rng)
    along = (X @ problem.direction)[..., None] * problem.direction
    X = np.concatenate([X, -X, 2 * along - X, X - 2 * along])
    y = np.concatenate([y, -y, y, -y])
    _, dv, dW = loss_and_gradient(v, W, X, y, problem.positions)
    singles = [loss_and_gradient(v, W, X[i:i + 1], y[i:i + 1], problem.positions)[1:] for i in range(min(n, 64))]
    return dv, dW, np.mean([np.abs(g) for g, _ in singles], axis=0), np.mean([np.abs(h) for _, h in singles], axis=0)


def _forbidden(values, size):
    """Largest |value| among entries that symmetry forbids, relative to the mean size of one sample's entry there."""
    return float(np.max(np.abs(values)) / np.max(size)) if size.size and np.max(size) > 0 else 0.0


SAMPLED_D = 64                                 # larger sizes are not sampled in the full (v, W)
ROUNDING = 1e3 * np.finfo(float).eps           # forbidden entries: a mean of some thousand terms, each right to rounding


def _largest_small(runs):
    """The run with the largest D that full-parameter arrays are cheap for, and a number of samples to match."""
    run = max((run for run in runs if run.problem.D <= SAMPLED_D), key=lambda run: run.problem.D, default=None)
    return (run, 2 ** max(4, 16 - 2 * int(np.log2(run.problem.D)))) if run else (None, 0)


def check_A1(runs, seed=0):
    """v2 = 0, W12 = 0, W21 = 0: the gradient at the symmetric states has no such part.

    Measured at three stages of the run with the largest D <= 64, on samples completed by their mirror images.
    """
    run, n = _largest_small(runs)
    claim = "v2 = 0, W12 = 0, W21 = 0 throughout"
    if run is None:
        return Check("A1", claim, "gradient entries 0", f"no D up to {SAMPLED_D}", None, "undecided")
    d, worst = run.problem.d, 0.0
    for row in run.stages():
        dv, dW, size_v, size_W = mirrored_gradient(run.problem, run.order(row), n, [seed, row])
        worst = max(worst, _forbidden(dv[d:], size_v[d:]), _forbidden(dW[:d, d:], size_W[:d, d:]),
                    _forbidden(dW[d:, :d], size_W[d:, :d]))
    return Check("A1", claim, "gradient entries 0",
                 f"largest entry {worst:.1e} of a sample's entry there, D = {run.problem.D}",
                 f"rounding, up to {ROUNDING:.1e}", "holds" if worst <= ROUNDING else "fails",
                 {"worst": worst, "bound": ROUNDING, "D": run.problem.D, "samples": 4 * n})


def check_A2(runs, seed=0):
    """v1 is a positive multiple of v*: alpha > 0 after the first step of every run, nothing across v*.

    alpha is compared with the error that its path can have collected; the part across v* is measured as in A1.
    """
    lowest, error = np.inf, 0.0
    for run in runs:
        path = run.trajectory
        collected = run.eta * np.cumsum(path.error[:-1, 1] * np.diff(path.step))
        if len(path.step) > 1 and np.min(path.order[1:, 0]) < lowest:
            row = 1 + int(np.argmin(path.order[1:, 0]))
            lowest, error = float(path.order[row, 0]), float(collected[row - 1])
    run, n = _largest_small(runs)
    worst, rows = 0.0, run.stages() if run else ()
    for row in rows:
        d, v_star = run.problem.d, run.problem.direction
        dv, _, size, _ = mirrored_gradient(run.problem, run.order(row), n, [seed, row])
        worst = max(worst, _forbidden(dv[:d] - v_star * (v_star @ dv[:d]), size[:d]))
    verdict = "fails" if worst > ROUNDING or lowest < -3 * error else "holds" if 3 * error < lowest < np.inf else "undecided"
    smallest = f"smallest alpha {lowest:.4g}" if lowest < np.inf else "no step was taken"
    return Check("A2", "v1 is a positive multiple of v* throughout", "alpha > 0, no part across v*",
                 f"{smallest}; gradient across v* {worst:.1e} of a sample's",
                 f"alpha +- {error:.1g}; rounding, up to {ROUNDING:.1e}", verdict,
                 {"alpha": lowest, "alpha_error": error, "worst": worst, "bound": ROUNDING})


def check_A3(runs, worst_leak=None):
    """At T*, S[r, j] >= 1 - exp(-c D): log(1/(1 - S)) / D must not fall as D grows.

    T* is taken as the step where the loss is 1/D^2 (later than the theorem's wherever that fails, which favours the
    claim).  Judged by the local exponents of log(1/leak) in D, which must tend to 1 or more; beside it the leak that the
    smaller half of the sizes predicts for the largest, c being their smallest log(1/leak)/D.
    """
    reached = [(run, run.time_to(run.target)) for run in runs]
    reached = [(run, *time) for run, time in reached if time]
    claim, claimed = "S[r, j] >= 1 - exp(-Theta(D)) for every query at T*", "log(1/(1 - S)) grows like D"
    if len(reached) < 3:
        return Check("A3", claim, claimed, f"{len(reached)} sizes reach 1/D^2", None, "undecided")
    D = np.array([run.problem.D for run, *_ in reached], dtype=float)
    leak = np.array([run.at_step(run.trajectory.leak, max(t, 1)) for run, t, _ in reached])
    if not np.all((leak > 0) & (leak < 1)):
        return Check("A3", claim, claimed, "a leak is 0 or 1 to rounding", None, "undecided", {"D": D, "leak": leak})
    error = leak * np.array([e / t for _, t, e in reached])          # the leak falls no faster than about 1/t
    bits = -np.log(leak)
    c = np.min(bits[:len(D) // 2] / D[:len(D) // 2])
    growth = local_exponents(D, bits, error / leak)
    verdict = "holds" if growth.value[-1] >= 1 - 3 * growth.error[-1] else exponent_verdict(growth, 1.0)
    fall = local_exponents(D, leak, error)
    law = np.array([late_leak(run.problem, late_loss(run.problem, 1) / run.target) for run, *_ in reached])    # L ~ 1/alpha
    ours = f"our late law {law[-1]:.3g}; " if runs[0].mode == "position_only" else ""
    return Check("A3", claim, claimed,
                 f"1 - S = {leak[-1]:.3g} at D = {D[-1]:.0f}, exp(-c D) = {np.exp(-c * D[-1]):.3g}; {ours}"
                 + scaled("1 - S falls as D to the", fall), f"relative {np.max(error / leak):.1g}", verdict,
                 {"D": D, "leak": leak, "leak_error": error, "c": c, "log_growth": growth, "power": fall,
                  "worst_leak": worst_leak, "late_law_position_only": law})


def check_A3_time(runs):
    """T* = Theta(D^3) for eps = 1/D^2: the steps until the loss is 1/D^2 grow like D^3."""
    reached = [(run.problem.D, *run.time_to(run.target)) for run in runs if run.time_to(run.target)]
    claim = f"loss 1/D^2 after Theta(D^3) steps (eta = {runs[0].rate.text})"
    if len(reached) < 2:
        return Check("A3.T", claim, "exponent of D: 3", "fewer than two sizes", None, "undecided")
    D, t, error = np.array(reached, dtype=float).T
    exponents = local_exponents(D, t, error)
    return Check("A3.T", claim, "exponent of D: 3", scaled("exponents", exponents), f"time +- {np.max(error / t):.1g}",
                 exponent_verdict(exponents, 3.0), {"D": D, "t": t, "t_error": error, "exponents": exponents})


def check_A3_eps(runs, eps):
    """T* = Theta(1/(D^3 eps^3)) for eps < 1/D^2: exponents -3 in eps, at the largest D that reaches three of them.

    Beside it the exponent in D at the smallest common eps, claimed -3.
    """
    eps = np.sort(np.asarray(eps, dtype=float))[::-1]
    claim = f"loss eps after Theta(1/(D^3 eps^3)) steps, eps < 1/D^2 (eta = {runs[0].rate.text})"
    claimed = "exponents: eps -3, D -3"
    tables = [(run, np.array([(1 / e, *run.time_to(e)) for e in eps if e <= run.target and run.time_to(e)]).T)
              for run in runs]
    tables = [(run, rows) for run, rows in tables if rows.size >= 2 * 3]
    best = max(tables, key=lambda pair: (pair[1].shape[1] >= 3, pair[0].problem.D), default=None)
    if best is None:
        return Check("A3.eps", claim, claimed, "no run goes below 1/D^2 twice", None, "not in regime")
    run, (inverse, t, error) = best
    in_eps = local_exponents(inverse, t, error)
    verdict = exponent_verdict(in_eps, 3.0)
    text = scaled(f"1/eps (D = {run.problem.D})", in_eps)
    smallest = [e for e in eps if sum(bool(r.time_to(e)) and e <= r.target for r in runs) >= 2]
    details = {"inverse_eps": inverse, "t": t, "t_error": error, "in_eps": in_eps, "D_of_eps": run.problem.D}
    if smallest:
        rows = np.array([(r.problem.D, *r.time_to(smallest[-1])) for r in runs
                         if r.time_to(smallest[-1]) and smallest[-1] <= r.target]).T
        in_D = local_exponents(*rows)
        text += "; " + scaled(f"D (eps = {smallest[-1]:g})", in_D)
        details |= {"in_D": in_D, "D": rows[0], "t_of_D": rows[1], "eps_of_D": smallest[-1]}
        other = exponent_verdict(in_D, -3.0)
        verdict = "fails" if "fails" in (verdict, other) else verdict if verdict == other else "undecided"
    return Check("A3.eps", claim, claimed, text, f"time +- {np.max(error / t):.1g}", verdict, details)


def check_A4(runs):
    """At T* = C D^3, C1/D^2 <= L <= 1/D^2: with C fitted on the smaller half of the sizes, L falls like D^-2."""
    claim = f"C1/D^2 <= L <= 1/D^2 at T* = C D^3 (eta = {runs[0].rate.text})"
    times = [(run, run.time_to(run.target)) for run in runs]
    half = [time[0] / run.problem.D**3 for run, time in times[:max(1, len(times) // 2)] if time]
    if not half:
        return Check("A4", claim, "L D^2 <= 1", "the smaller sizes do not reach 1/D^2", None, "undecided")
    C = max(half)
    rows = []
    for run in runs:
        loss = run.at_step(run.trajectory.loss, C * run.problem.D**3)
        if loss is not None and np.isfinite(loss) and loss > 0:
            rows.append((run.problem.D, loss, np.max(run.trajectory.error[:, 0] / run.trajectory.loss) * loss))
    if len(rows) < 2:
        return Check("A4", claim, "L D^2 <= 1", "fewer than two sizes", None, "undecided", {"C": C})
    D, loss, error = np.array(rows, dtype=float).T
    exponents = local_exponents(D, loss, error)
    scaled_loss = loss * D**2
    return Check("A4", claim, "L D^2 <= 1; exponent of D: -2",
                 f"L D^2 = {scaled_loss[-1]:.4g} at D = {D[-1]:.0f} (C = {C:.3g}); " + scaled("exponents", exponents),
                 f"loss +- {np.max(error / loss):.1g}", exponent_verdict(exponents, -2.0),
                 {"C": C, "D": D, "loss": loss, "loss_error": error, "exponents": exponents})


def check_A5(runs):
    """The condition D >= C log^2(1/eps), eps the loss of T*: how the runs stand to it at C = 1, and what lies outside.

    A condition is not a measurement: it holds for these runs or they are not in its regime.  Losses that are reached
    outside it show that it is not necessary for reaching them.
    """
    D = np.array([run.problem.D for run in runs], dtype=float)
    ratio = D / np.log(D**2) ** 2
    lowest = np.array([run.trajectory.loss.min() for run in runs])
    reached = D / np.log(1 / lowest) ** 2
    i = int(np.argmin(reached))
    return Check("A5", "D is at least of order log^2(1/eps)", "D / log^2(1/eps) >= C",
                 f"at eps = 1/D^2 from {ratio.min():.2g} to {ratio.max():.2g}; loss {lowest[i]:.2g} is reached at "
                 f"D = {D[i]:.0f}, ratio {reached[i]:.2g}", "exact, C = 1 taken",
                 "holds" if ratio.min() >= 1 else "not in regime", {"D": D, "ratio": ratio, "lowest_loss": lowest})


def check_late(runs):
    """Our own law of the late phase, L sigma D alpha -> 0.656: the ratio at the end of each run tends to one."""
    run = min(runs, key=lambda run: run.trajectory.loss[-1] * run.problem.D)
    path = run.trajectory
    alpha = path.order[:, 0]
    late = np.full(len(alpha), np.inf)         # no law where alpha <= 0: ratio 0
    late[alpha > 0] = late_loss(run.problem, alpha[alpha > 0])
    with np.errstate(over="ignore", divide="ignore"):          # at an absurd alpha the law underflows: ratio inf
        ratio = path.loss / late
    error = path.error[-1, 0] / path.loss[-1] * ratio[-1]
    earlier = run.at_step(np.maximum(ratio, 1e-300), max(path.step[-1] / 10, 1))
    if earlier is None or path.loss[-1] > 0.1:
        verdict = "not in regime"
    else:
        away, before = abs(ratio[-1] - 1), abs(earlier - 1)
        verdict = "holds" if away <= max(0.5 * before, 3 * error) else "undecided" if away < before else "fails"
    return Check("late", "L ~ 0.656/(sigma D alpha) once attention is on the group (our law)", "ratio -> 1, by half or "
                 "more in each decade of steps", f"ratio {ratio[-1]:.4f} at the end (D = {run.problem.D}), "
                 f"{'-' if earlier is None else f'{earlier:.4f}'} a decade before", error, verdict,
                 {"ratio": ratio[-1], "earlier": earlier, "D": run.problem.D})


def checks(runs, eps, seed=0, worst_leak=None):
    """All claims on the runs of one mode (any order of D), as a list of Check."""
    runs = sorted(runs, key=lambda run: run.problem.D)
    return [check_A1(runs, seed), check_A2(runs, seed), check_A3(runs, worst_leak), *scaling_checks(runs, eps)[1:]]


def scaling_checks(runs, eps):
    """The claims that are scaling statements, and our late law, on the runs of one mode."""
    runs = sorted(runs, key=lambda run: run.problem.D)
    return [check_A3(runs), check_A3_time(runs), check_A3_eps(runs, eps), check_A4(runs), check_A5(runs),
            check_late(runs)]
