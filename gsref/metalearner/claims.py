"""What is claimed about the metalearner, and what do the measurements say?

One claim, one function: it takes measurements (mappings of arrays, see `experiments`) and returns a `report.Check`.
The claims (numbers B1 to B6) are those of Magen and Vardi, "Transformers are almost optimal metalearners for linear
classification", NeurIPS 2025, in our words.  Sampled comparisons are decided at SIGMAS standard errors.
"""

import numpy as np
from scipy.special import ndtri

from gsref.metalearner.experiments import ACCURACY
from gsref.metalearner.sample_size import needed_law
from gsref.report import Check
from gsref.scaling import local_exponents

SIGMAS = 4.0                                   # one-sided false-alarm rate 3e-5 a comparison
SOLVED = 1e-6                                  # KKT residuals beyond: what GD is compared with is not the solution


def limit_exponent(x, exponents):
    """(exponent in the limit x -> 0, its error) from local exponents at x (n,), n >= 3, x falling to 0.

    A parabola through the last three points; the error is its distance there from the line through the last two, and
    1e-9, to which examples needed are exact.
    """
    x, e = np.asarray(x, dtype=float)[-3:], np.asarray(exponents, dtype=float)[-3:]
    line = e[-1] - x[-1] * (e[-1] - e[-2]) / (x[-1] - x[-2])
    parabola = float(np.polynomial.Polynomial.fit(x, e, 2)(0.0))
    return parabola, abs(parabola - float(line)) + 1e-9


def b1(every, some, published):
    """B1: the direction of gradient descent goes to that of the maximal margin, like 1/log n.

    Judged where every task is on the support, so that the rate has a law without fitted constants: the gap must fall at
    every stop, and from n = 100 on its distance from the law too, by a factor of 10 in all. Fails if the gap rises, or
    ends farther from the law than it was at n = 100 (a gap that stays, too: the law goes to 0).
    """
    n, gap = every["steps"], every["gap"]
    late = n >= 100
    off = np.abs(gap / every["predicted"] - 1.0)[late]
    exponents = local_exponents(np.log(n[late]), gap[late])
    falls = bool((np.diff(gap) < 0).all() and (np.diff(some["gap"]) < 0).all())
    to_law = bool((np.diff(off) < 0).all() and off[-1] < off[0] / 10.0)
    steps, accuracy = int(published["steps"]), published["accuracy"]
    residual = max(run["kkt"].max() for run in (every, some, published))
    if residual > SOLVED:
        verdict = "undecided"
    else:
        verdict = "fails" if not falls or off[-1] > off[0] else "holds" if to_law else "undecided"
    return Check(
        "B1", "GD converges in direction to the max-margin solution", "gap -> 0, like 1/log n",
        f"gap {gap[0]:.3g} at n = 1, {gap[-1]:.3g} at n = {n[-1]:.0e}; last exponent in log n {exponents.value[-1]:.3f}. "
        f"But the published {steps} steps are early stopping: cosine {float(published['cosine_first']):.3f} with step 1, "
        f"{float(published['cosine_margin']):.3f} with the limit; accuracy of step 1, step {steps}, limit: "
        + ", ".join(f"{a:.4f}" for a in accuracy),
        f"gap is {off[-1]:.1e} off the derived law (at n = 100: {off[0]:.1e}); accuracy +- "
        f"{published['accuracy_error'].max():.1g}; KKT residuals below {residual:.0e}", verdict,
        {"steps": n, "gap": gap, "derived_law": every["predicted"], "gap_with_tasks_off_the_support": some["gap"],
         "exponents": exponents, "kkt_residuals": {"all_on_support": every["kkt"], "some_off": some["kkt"],
                                                   "published": published["kkt"]}, "published_steps": published})


def size_law(grid, needed, sizes, name):
    """How examples needed (R, size) grow, over the part of the grid with M >= 1 (fewer than one is no context).

    Returns ratio = M R^4/size (nan outside), regime (boolean), whether the exponents in the limit are 1 and -4 within
    three errors, a text, and the details.  Exponents in the size at the R with most sizes, in R at the largest size.
    """
    R, regime = grid["R"], needed >= 1.0
    row = int(np.argmax(regime.sum(axis=1)))
    in_size = local_exponents(sizes[regime[row]], needed[row][regime[row]])
    in_R = local_exponents(R[regime[:, -1]], needed[regime[:, -1], -1])
    ratio = np.where(regime, needed * R[:, None] ** 4 / sizes, np.nan)
    limits = {name: limit_exponent(1.0 / in_size.x, in_size.value), "R": limit_exponent(in_R.x ** -2.0, in_R.value)}
    text = "; ".join(f"in {variable} {local.value[-1]:.4f}, in the limit {limit:.4f} +- {error:.1g}"
                     for (variable, (limit, error)), local in zip(limits.items(), (in_size, in_R)))
    agree = all(abs(limit - claim) <= 3.0 * error for (limit, error), claim in zip(limits.values(), (1.0, -4.0)))
    details = {f"examples_needed (R, {name})": needed, "R": R, name: sizes, f"M R^4/{name}": ratio,
               f"exponents_in_{name}": in_size, "exponents_in_R": in_R, "limits": limits,
               "derived_law": needed_law(sizes, R[:, None], ACCURACY)}
    return ratio, regime, agree, text, details


def b2(grid, tasks):
    """B2: after enough tasks M = O~(k/R^4) examples suffice, whatever d.

    Infinitely many tasks: exact; the constant of M <= C k/R^4 is fitted on the smaller half of the k and of the R and
    tested on the rest. Finitely many: the excess over the optimum must fall as B grows, at each d; it fails if it rises.
    """
    ratio, regime, agree, text, details = size_law(grid, grid["known"], grid["k"], "k")
    small = np.zeros_like(regime)
    small[:(len(grid["R"]) + 1) // 2, :(len(grid["k"]) + 1) // 2] = True
    constant = float(np.max(ratio[regime & small]))
    bounded = bool((ratio[regime & ~small] <= constant).all())
    reached = np.isfinite(tasks["ratio"]) & np.isfinite(tasks["ratio_error"])        # else no context is long enough
    excess, error = np.where(reached, tasks["ratio"] - 1.0, np.inf), np.where(reached, tasks["ratio_error"], np.inf)
    with np.errstate(invalid="ignore"):        # inf - inf is neither a fall nor a rise
        fall, fall_error = excess[:, :-1] - excess[:, 1:], np.hypot(error[:, :-1], error[:, 1:])
    falls, rises = bool((fall > SIGMAS * fall_error).all()), bool((fall < -SIGMAS * fall_error).any())
    clear = (reached & (excess > SIGMAS * error)).all(axis=1)
    in_B = {int(d): local_exponents(tasks["B"], row, e)
            for d, row, e, seen in zip(tasks["d"], excess, error, clear) if seen}
    in_d = local_exponents(tasks["d"], tasks["ratio"][:, -1], error[:, -1]) if reached[:, -1].all() else None
    rates = "; ".join(f"d = {d}: " + ", ".join(f"{v:.2f} +- {e:.1g}" for v, e in zip(x.value, x.error))
                      for d, x in in_B.items())
    return Check(
        "B2", "after enough tasks, M = O~(k/R^4) examples suffice, independent of d",
        "exponents 1 in k, -4 in R, 0 in d",
        f"B = inf: {text}; in d 0 exactly (q = 0)"
        + (f". B = {tasks['B'][-1]}: in d " + ", ".join(f"{v:.3f} +- {e:.1g}" for v, e in zip(in_d.value, in_d.error))
           if in_d else f". B = {tasks['B'][-1]} tasks are too few at some d: no M does")
        + (f"; the excess over B = inf {'falls' if falls else 'does not clearly fall'} with B, exponents {rates}; its derived "
           f"law is off by at most {np.abs(tasks['law'] / excess - 1.0)[clear].max():.0%}" if in_B else
           "; no excess over B = inf is clear of its error at every B"),
        f"B = inf exact to 1e-9; the constant {constant:.3g} of the smaller sizes bounds the larger: {bounded}; "
        "B finite: jackknife", "fails" if not bounded or rises else "holds" if agree and falls else "undecided",
        details | {"constant_fitted": constant, "trained": {
            "d": tasks["d"], "B": tasks["B"], "excess": excess, "excess_error": error, "derived_law": tasks["law"],
            "exponents_in_d": in_d,
            "exponents_of_excess_in_B": {str(d): x for d, x in in_B.items()}}})


def b3(figures, tasks):
    """B3: this almost matches the optimal learner that knows the subspace, the projected MLE.

    Equal to it in the population limit. At finite B, at every d: the ratio of examples needed must be nearer to 1 than
    to that of the best learner that does not know the subspace, at the last B; and not rise on the way there.
    """
    ratio, error = tasks["ratio"], tasks["ratio_error"]
    with np.errstate(invalid="ignore"):        # inf - inf is no rise
        rises = bool((np.diff(ratio, axis=1) > SIGMAS * np.hypot(error[:, 1:], error[:, :-1])).any())
    ignorant = tasks["context_only"] / tasks["projected"]
    beyond = ratio[:, -1] - (1.0 + ignorant) / 2.0
    near, far = bool((beyond < -SIGMAS * error[:, -1]).all()), bool((beyond > SIGMAS * error[:, -1]).any())
    lost = {R: float((f["projected"] - f["trained"]).max()) for R, f in figures.items()}
    return Check(
        "B3", "almost matches the optimal learner that knows the subspace", "ratio of examples needed near 1",
        f"B = inf: equal after one step. M ratio at d = {tasks['d'][-1]}: "
        + ", ".join(f"{r:.3f} +- {e:.1g} (B = {B})" for r, e, B in zip(ratio[-1], error[-1], tasks["B"]))
        + f"; of the best that sees the context alone: {ignorant[-1]:.3g}. Accuracy lost in figure 1: up to "
        + ", ".join(f"{w:.3f} (R = {R:g})" for R, w in lost.items()),
        f"jackknife; accuracies +- {max(f['trained_error'].max() for f in figures.values()):.1g}",
        "fails" if rises or far else "holds" if near else "undecided",
        {"ratio": ratio, "ratio_error": error, "d": tasks["d"], "B": tasks["B"], "context_only_ratio": ignorant,
         "accuracy_lost": lost})


def b4(grid):
    """B4: a learner that sees only the context needs Omega(d/R^4).

    The full MLE is the best of them, so its M is exact and a lower bound for all. The constant is derived, not fitted:
    M R^4/d > z^2 (1 - 1/d), z = Phi^-1(accuracy).
    """
    ratio, regime, agree, text, details = size_law(grid, grid["context_only"], grid["d"], "d")
    z2 = float(ndtri(ACCURACY)) ** 2
    above = bool((ratio > z2 * (1.0 - 1.0 / grid["d"]))[regime].all())
    return Check(
        "B4", "a learner that sees only the context needs Omega(d/R^4)", "exponents 1 in d, -4 in R",
        f"the best such learner: {text}", f"exact to 1e-9; M R^4/d from {np.nanmin(ratio):.3f} to {np.nanmax(ratio):.3f}, "
        f"above the derived constant {z2:.3f}: {above}", "fails" if not above else "holds" if agree else "undecided",
        details | {"derived_constant": z2})


class Tally:
    """Comparisons of sampled numbers, each decided at SIGMAS standard errors: won, lost, or too close."""

    def __init__(self):
        self.won, self.lost, self.close = 0, [], []

    def add(self, what, M, difference, error):
        """`difference` (n,) at context lengths M (n,), positive as claimed, with standard errors (n,)."""
        for m, value, e in zip(M, difference, error):
            if value > SIGMAS * e:
                self.won += 1
            else:
                row = f"{what}, M = {m:g}: {value:+.5f} +- {e:.1g}"
                (self.lost if value < -SIGMAS * e else self.close).append(row)

    @property
    def total(self):
        return self.won + len(self.lost) + len(self.close)

    @property
    def verdict(self):
        """Fails on a comparison clearly the other way; holds if most are clear and the rest too close to tell."""
        return "fails" if self.lost else "holds" if self.won > len(self.close) else "undecided"

    def text(self):
        """How many, and up to two of those that did not come out as claimed."""
        parts = [f"{self.won} of {self.total} comparisons as claimed"]
        for name, rows in (("reversed", self.lost), ("too close to tell", self.close)):
            if rows:
                parts.append(f"{len(rows)} {name} ({'; '.join(rows[:2])}{' ..' if len(rows) > 2 else ''})")
        return ", ".join(parts)


def at_sizes(verdict, published_sizes):
    """The verdict on a published figure; at other sizes than the published ones it says nothing of that figure."""
    return verdict if published_sizes else "not in regime"


def b5(figures, svms, published_sizes):
    """B5, figure 1: the trained model is near the projected MLE, and above the full MLE and an SVM on the context.

    Near: nearer to it than to the full MLE.  `figures`, `svms` map R to a measurement.
    """
    above, near = Tally(), Tally()
    for R, f in figures.items():
        above.add(f"R = {R:g}, full MLE", f["M"], f["minus_full"], f["minus_full_error"])
        near.add(f"R = {R:g}", f["M"], f["minus_full"] + f["minus_projected"],
                 f["minus_full_error"] + f["minus_projected_error"])
        for name, key in (("SVM", "svm"), ("SVM through the origin", "svm_origin")):
            above.add(f"R = {R:g}, {name}", f["M"], f["trained"] - svms[R][key],
                      np.hypot(f["trained_error"], svms[R][f"{key}_error"]))
    verdicts = (above.verdict, near.verdict)

    def end(f, i):
        return f"{f['trained'][i]:.3f} ({f['full'][i]:.3f}, {f['projected'][i]:.3f}) at M = {f['M'][i]:g}"
    ends = "; ".join(f"R = {R:g}: {end(f, 0)}, {end(f, -1)}" for R, f in figures.items())
    return Check(
        "B5", "figure 1: near projected MLE, above full MLE and an SVM", "above, and near, at every M and R",
        ("" if published_sizes else "at other sizes than published: ")
        + f"above: {above.text()}. Nearer to the projected than to the full MLE: {near.text()}. Accuracy (full, "
        f"projected MLE): {ends}",
        f"+- {max(f['trained_error'].max() for f in figures.values()):.1g} over contexts, for one training set",
        at_sizes("fails" if "fails" in verdicts else "undecided" if "undecided" in verdicts else "holds", published_sizes),
        {"published_sizes": published_sizes, "above": {"reversed": above.lost, "too_close": above.close},
         "near": {"reversed": near.lost, "too_close": near.close}})


def b6(figures, published_sizes):
    """B6, figure 2: accuracy is better for larger R and smaller k.  `figures` maps (k, R) to a measurement."""
    k, R = sorted({key[0] for key in figures}), sorted({key[1] for key in figures})
    better = Tally()

    def compare(first, second, what):
        a, b = figures[first], figures[second]
        better.add(what, a["M"], a["trained"] - b["trained"], np.hypot(a["trained_error"], b["trained_error"]))
    for r in R:
        for small, large in zip(k, k[1:]):
            compare((small, r), (large, r), f"k = {small} over {large} at R = {r:g}")
    for small, large in zip(R, R[1:]):
        for dim in k:
            compare((dim, large), (dim, small), f"R = {large:g} over {small:g} at k = {dim}")
    beaten = Tally()
    for (dim, r), f in figures.items():
        beaten.add(f"k = {dim}, R = {r:g}", f["M"], f["minus_full"], f["minus_full_error"])
    worst = max(-float(f["minus_full"].min()) for f in figures.values())
    return Check(
        "B6", "figure 2: better for larger R and smaller k", "better at every M",
        ("" if published_sizes else "at other sizes than published (--figure2 takes those): ") + better.text()
        + f". It loses to the full MLE, which needs no training, in {len(beaten.lost)} of {beaten.total} places"
        + (f", by up to {worst:.3f}" if beaten.lost else ""),
        f"+- {max(f['trained_error'].max() for f in figures.values()):.1g} over contexts, for one training set each",
        at_sizes(better.verdict, published_sizes),
        {"reversed": better.lost, "too_close": better.close, "below_full_MLE": beaten.lost,
         "published_sizes": published_sizes})
