"""What is claimed about transfer, and what was measured?

One claim, one function, from the same mapping {Cell: {method: Measured}} to a `report.Check`.  The claims (A6 and A7) are
those of Zhang, Meng and Cao, "Transformer Learns Optimal Variable Selection in Group-Sparse Classification", ICLR 2025,
in our words.  Hidden constants are fitted on the smaller sizes and tested on the larger ones; exponents are local.
"Samples" n(eps) are those after which the mean over seeds of the average online error is eps, unless said otherwise.
"""

from dataclasses import dataclass, replace

import numpy as np

from gsref.report import Check
from gsref.scaling import Exponents, exponent_verdict, local_exponents, scaled

STATISTICS = ("online", "last")                # average online error; test error of the last state
SIZES = {"d + D": lambda cell: cell.d + cell.D, "d D": lambda cell: cell.d * cell.D}
NEEDS_MARGIN = ("A6", "A6.size", "A6.eps", "A6.law")


@dataclass(frozen=True, order=True)
class Cell:
    """A downstream task but for its direction and relevant group: d, D, law and margin."""

    d: int
    D: int
    law: str = "gaussian"
    margin: float = 0.5

    @property
    def text(self):
        return f"d = {self.d}, D = {self.D}, {self.law}, margin {self.margin:g}"


@dataclass(frozen=True)
class Results:
    """cells {Cell: {method: Measured}}; `main` the Cell around which margin and law vary; eps, falling."""

    cells: dict
    main: Cell
    eps: tuple

    def sizes(self):
        """The cells of the grid of sizes (margin and law of the main cell), smallest d + D first."""
        return sorted((cell for cell in self.cells if (cell.law, cell.margin) == (self.main.law, self.main.margin)),
                      key=lambda cell: (cell.d + cell.D, cell.d * cell.D, cell.d))

    def diagonal(self):
        """The cells along which d and D grow together: those of the smallest |log(d/D)| for each d + D, D/d constant."""
        by_ratio = {}
        for cell in self.sizes():
            by_ratio.setdefault(cell.D / cell.d, []).append(cell)
        return max(by_ratio.values(), key=lambda cells: (len(cells), -abs(np.log(cells[0].D / cells[0].d))))

    def needed(self, cells, method, eps, which="online"):
        """(cells that get there, samples, errors) of a method."""
        found = [(cell, self.cells[cell][method].needed(eps, which)) for cell in cells if method in self.cells[cell]]
        found = [(cell, n) for cell, n in found if n]
        return [cell for cell, _ in found], np.array([n[0] for _, n in found]), np.array([n[1] for _, n in found])


def at_most_verdict(exponents, claimed):
    """Verdict on an upper bound of a growth exponent, from local exponents towards the limit.

    holds      the last is at most the claim, or above it by no more than three errors
    undecided  it is above, but four more changes of the last size would bring it down; or there are fewer than two; or
               three errors are one or more, so that the claim cannot be told from the next power
    fails      neither
    """
    value, error = exponents.value, exponents.error
    if len(value) < 2 or not 3 * error[-1] < 1:
        return "undecided"
    above, change = value[-1] - claimed - 3 * error[-1], value[-1] - value[-2]
    return "holds" if above <= 0 else "undecided" if above <= -4 * change else "fails"


def sampled_exponents(x, n, error):
    """`local_exponents` of points whose errors are independent (each from seeds of its own): they add in squares."""
    exponents, relative = local_exponents(x, n), np.asarray(error) / np.asarray(n)
    step = np.diff(np.log(np.asarray(x, dtype=float)))
    return Exponents(exponents.x, exponents.value, np.hypot(relative[1:], relative[:-1]) / step)


def _worst(*verdicts):
    for verdict in ("fails", "undecided", "not in regime"):
        if verdict in verdicts:
            return verdict
    return "holds"


def _few(id, claim, claimed, what, details=None):
    return Check(id, claim, claimed, what, None, "undecided", details or {})


def claimed_bound(cell, n):
    """(d + D) log^2(n) / (gamma^2 n)."""
    return (cell.d + cell.D) * np.log(n) ** 2 / (cell.margin**2 * n)


def check_bound(results):
    """A6: average online error <= C (d + D) log^2 n / (gamma^2 n), for every n and size, with one C.

    C is the largest ratio on the smaller half of the sizes, from n = (d + D)/gamma^2 on (before, the bound with a
    constant of 1 exceeds 1 and says nothing); it is tested on the larger half, within three standard errors of the mean
    over seeds.  The confidence term log(1/delta)/n is left out: the measured error is a
    mean, not a bound that holds with probability 1 - delta.
    """
    claim = "average online error <= C (d + D) log^2(n) / (gamma^2 n)"
    cells = [cell for cell in results.sizes() if "pretrained" in results.cells[cell]]
    if len(cells) < 2 or results.main.margin == 0:
        return _few("A6", claim, "one C for all sizes", "fewer than two sizes" if len(cells) < 2 else "no margin, no bound")
    ratio, error = {}, {}
    for cell in cells:
        found = results.cells[cell]["pretrained"]
        _, mean, se = found.curve("online")
        bound = claimed_bound(cell, found.at)
        vacuous = found.at < (cell.d + cell.D) / cell.margin**2
        ratio[cell], error[cell] = np.where(vacuous, 0.0, mean / bound), se / bound
    half = len(cells) // 2
    C = max(ratio[cell].max() for cell in cells[:half])
    worst = max(cells[half:], key=lambda cell: ratio[cell].max())
    k = int(np.argmax(ratio[worst]))
    above = (ratio[worst][k] - C) / error[worst][k] if error[worst][k] > 0 else np.inf * (ratio[worst][k] - C)
    verdict = "holds" if ratio[worst][k] <= C else "undecided" if above <= 3 else "fails"
    return Check("A6", claim, "ratio to the bound <= C, fitted on the smaller sizes",
                 f"C = {C:.3g}; largest ratio on the larger sizes {ratio[worst][k]:.3g} (d = {worst.d}, D = {worst.D}, "
                 f"n = {results.cells[worst]['pretrained'].at[k]})", f"s.e. {error[worst][k]:.1g}", verdict,
                 {"C": C, "cells": [cell.text for cell in cells], "ratio": [ratio[cell] for cell in cells]})


def _size_exponents(results, method, eps, size, which="online", chain=None):
    cells, n, error = results.needed(results.diagonal() if chain is None else chain, method, eps, which)
    return (sampled_exponents([size(cell) for cell in cells], n, error) if len(cells) >= 2 else None), cells, n, error


def check_size(results):
    """A6: n(eps) grows at most like d + D, for d and D growing together; each of them alone in the details."""
    eps = results.eps[-1]
    claim, claimed = f"pretrained: samples to average online error {eps:g} of order d + D", "exponent of d + D at most 1"
    exponents, cells, n, error = _size_exponents(results, "pretrained", eps, SIZES["d + D"])
    last, *_ = _size_exponents(results, "pretrained", eps, SIZES["d + D"], "last")
    if exponents is None:
        return _few("A6.size", claim, claimed, f"{len(cells)} sizes reach it")
    return Check("A6.size", claim, claimed, _both(exponents, last), f"samples +- {np.max(error / n):.1g}",
                 at_most_verdict(exponents, 1.0),
                 {"cells": [cell.text for cell in cells], "n": n, "n_error": error, "exponents": exponents, "last": last,
                  "fit": _fit(results, "pretrained", eps), **_alone(results, eps)})


def _both(average, last):
    """The exponents of both statistics in words: average online error, and test error of the last state."""
    return "; ".join(scaled(name, found) for name, found in (("average", average), ("last state", last)) if found is not None)


def _alone(results, eps):
    """Exponents in d at the smallest D and in D at the smallest d, for the pretrained model (not claimed)."""
    found, cells = {}, results.sizes()
    for name, other in (("d", "D"), ("D", "d")):
        least = min(getattr(cell, other) for cell in cells)
        chain = sorted((cell for cell in cells if getattr(cell, other) == least), key=lambda cell: getattr(cell, name))
        exponents, *_ = _size_exponents(results, "pretrained", eps, lambda cell: getattr(cell, name), chain=chain)
        found[f"in {name} alone, {other} = {least}"] = exponents
    return found


def _fit(results, method, eps, which="online"):
    """Least squares over all sizes of log n on log(d + D), and on log(d D): slope, and scatter about the line."""
    cells, n, _ = results.needed(results.sizes(), method, eps, which)
    fits = {}
    for name, size in SIZES.items():
        x = np.log([size(cell) for cell in cells]) if cells else np.zeros(0)
        if len(np.unique(x)) < 3:
            continue
        slope, offset = np.polyfit(x, np.log(n), 1)
        fits[name] = {"exponent": slope, "scatter": float(np.std(np.log(n) - slope * x - offset)), "sizes": len(cells)}
    return fits


def eps_exponents(measured, eps, which="online"):
    """Local exponents of the samples needed in 1/eps, or None if fewer than two of `eps` are reached.

    Their standard errors come from resamples of the seeds, the same for both ends of an exponent: the numbers of
    samples at two eps go up and down together.
    """
    eps = [e for e in eps if measured.needed(e, which)]
    if len(eps) < 2:
        return None
    n, again = measured.resampled(eps, which)
    exponents = local_exponents(1 / np.array(eps), n)
    return Exponents(exponents.x, exponents.value, np.nanstd(np.diff(again, axis=1), axis=0, ddof=1)
                     / np.diff(-np.log(np.array(eps))))


def check_eps(results):
    """A6: n(eps) grows at most like 1/eps at fixed size (the main cell); the last iterate beside it."""
    claim, claimed = "pretrained: samples of order 1/eps at fixed d, D", "exponent of 1/eps at most 1 (average online error)"
    found = results.cells[results.main]["pretrained"]
    exponents, last = eps_exponents(found, results.eps), eps_exponents(found, results.eps, "last")
    if exponents is None:
        return _few("A6.eps", claim, claimed, "fewer than two eps reached")
    return Check("A6.eps", claim, claimed, _both(exponents, last), f"exponents +- {exponents.error.max():.1g}",
                 at_most_verdict(exponents, 1.0), {"average": exponents, "last": last, "cell": results.main.text})


def check_margin(results):
    """A6: n(eps) grows at most like 1/gamma^2; margin 0 is outside the claim and reported beside it."""
    eps, main = results.eps[-1], results.main
    claim, claimed = f"pretrained: samples to {eps:g} of order 1/gamma^2", "exponent of 1/gamma at most 2"
    cells = sorted((cell for cell in results.cells if (cell.d, cell.D, cell.law) == (main.d, main.D, main.law)),
                   key=lambda cell: -cell.margin)
    cells, n, error = results.needed(cells, "pretrained", eps)
    free = [float(k) for cell, k in zip(cells, n) if cell.margin == 0]
    with_margin = np.array([cell.margin > 0 for cell in cells], dtype=bool)
    if with_margin.sum() < 2:
        return _few("A6.gamma", claim, claimed, "fewer than two margins reach it")
    gamma = np.array([cell.margin for cell in cells])[with_margin]
    exponents = sampled_exponents(1 / gamma, n[with_margin], error[with_margin])
    return Check("A6.gamma", claim, claimed, scaled("exponents", exponents) +
                 (f"; margin 0: {free[0]:.0f} samples" if free else "; margin 0: not reached"),
                 f"samples +- {np.max(error / n):.1g}", at_most_verdict(exponents, 2.0),
                 {"gamma": gamma, "n": n[with_margin], "n_error": error[with_margin], "exponents": exponents,
                  "n_without_margin": free})


def check_law(results):
    """A6 asks for sub-Gaussian data only: under each law the samples needed grow at most like 1/eps.

    A constant that depends on the law cannot be refuted by one size; the factor against the Gaussian is reported.
    """
    claim, claimed = "the same for any sub-Gaussian law", "exponent of 1/eps at most 1 for each law"
    main, rows = results.main, []
    gaussian = results.cells[main]["pretrained"].needed(results.eps[-1])
    for cell in results.cells:
        if (cell.d, cell.D, cell.margin) == (main.d, main.D, main.margin) and cell.law != main.law:
            found = results.cells[cell]["pretrained"]
            n, exponents = found.needed(results.eps[-1]), eps_exponents(found, results.eps)
            if n and gaussian and exponents:
                factor = n[0] / gaussian[0]
                rows.append((cell.law, factor, factor * np.hypot(n[1] / n[0], gaussian[1] / gaussian[0]), exponents))
    if not rows:
        return _few("A6.law", claim, claimed, "no other law was run, or none gets there")
    text = "; ".join(f"{law}: {scaled('exponents', e)}, {factor:.2f} +- {error:.1g} times the samples of the {main.law} law"
                     for law, factor, error, e in rows)
    return Check("A6.law", claim, claimed, text, "standard errors over seeds",
                 _worst(*(at_most_verdict(e, 1.0) for *_, e in rows)), {"rows": rows, "cell": main.text})


def check_attention(results):
    """What A6 rests on: SGD downstream leaves the attention on the relevant group where pretraining put it."""
    rows = []
    for cell in results.cells:
        details = results.cells[cell]["pretrained"].details
        before, after = details["attention_before"], details["attention_after"]
        rows.append((cell, before[0], after[0], np.hypot(before[1], after[1])))
    cell, before, after, error = min(rows, key=lambda row: row[2] - row[1])
    lowest = min(rows, key=lambda row: row[2])
    # a loss of attention counts if it is beyond chance and more than a tenth of what leaked before
    lost = before - after - 3 * error > 0.1 * (1 - before)
    return Check("A6.S", "attention on the relevant group survives downstream training (what A6 rests on)",
                 "mean S[r, j] after >= before, to a tenth of 1 - S", f"largest loss {before:.5f} to {after:.5f} "
                 f"({cell.text}); lowest after {lowest[2]:.4f} ({lowest[0].text})", f"s.e. {error:.1g}",
                 "fails" if lost else "holds",
                 {"rows": [(c.text, b, a, e) for c, b, a, e in rows]})


def check_baseline_size(results, method, which, name):
    """A7: logistic regression needs samples of order d D (d and D growing together); `which` error is judged, both told."""
    eps = results.eps[-1]
    measure = "average online error" if which == "online" else "test error"
    claim, claimed = f"{name}: samples to {measure} {eps:g} of order d D", "exponent of d D: 1"
    id = "A7.size" if method == "logistic_sgd" else "A7.size.ML"
    exponents, cells, n, error = _size_exponents(results, method, eps, SIZES["d D"], which)
    if exponents is None:
        return _few(id, claim, claimed, f"{len(cells)} sizes reach it")
    both = [_size_exponents(results, method, eps, SIZES["d D"], one)[0] for one in STATISTICS]
    return Check(id, claim, claimed, _both(*both), f"samples +- {np.max(error / n):.1g}",
                 exponent_verdict(exponents, 1.0),
                 {"cells": [cell.text for cell in cells], "n": n, "n_error": error, "exponents": exponents,
                  "fit": _fit(results, method, eps, which),
                  "multiples": [results.cells[cell][method].multiple for cell in cells]})


def check_baseline_eps(results, method, which, name, cell=None):
    """A7: logistic regression needs samples of order 1/eps at fixed size.

    The published statement bounds from below; as it is read with A6, of the same order, an exponent well off 1 on either
    side fails.
    """
    cell = results.main if cell is None else cell
    suffix = {"online": "", "last": ".last"}[which] if method == "logistic_sgd" else ".ML"
    id = f"A7.eps{suffix}" + (".free" if cell.margin == 0 else "")
    measure = "average online error" if which == "online" else "test error"
    claim, claimed = f"{name}: samples of order 1/eps in {measure}, margin {cell.margin:g}", "exponent of 1/eps: 1"
    measured = results.cells.get(cell, {}).get(method)
    exponents = None if measured is None else eps_exponents(measured, results.eps, which)
    if exponents is None:
        return _few(id, claim, claimed, "fewer than two eps reached")
    return Check(id, claim, claimed, scaled("exponents", exponents), f"exponents +- {exponents.error.max():.1g}",
                 exponent_verdict(exponents, 1.0), {"exponents": exponents, "cell": cell.text})


def check_gain(results):
    """A6 with A7: what pretraining saves, n(eps) of logistic SGD over that of the pretrained model, like d D/(d + D).

    Beside it the same factor for the test error of the last state, and over maximum likelihood.
    """
    eps = results.eps[-1]
    claim, claimed = "pretraining saves a factor of order d D/(d + D)", "exponent of d D/(d + D): 1"
    cells, gain, error = gains(results, "logistic_sgd", "online")
    if len(cells) < 2:
        return _few("A7.gain", claim, claimed, f"{len(cells)} sizes")
    x = np.array([cell.d * cell.D / (cell.d + cell.D) for cell in cells])
    exponents = sampled_exponents(x, gain, error)
    others = {(method, which): gains(results, method, which) for method in ("logistic_sgd", "max_likelihood")
              for which in STATISTICS if (method, which) != ("logistic_sgd", "online")}
    names = {("logistic_sgd", "last"): "last state", ("max_likelihood", "online"): "over max. likelihood",
             ("max_likelihood", "last"): "over max. likelihood, last state"}
    beside = "".join(f"; {names[key]} {found[1][-1]:.3g}" for key, found in others.items()
                     if len(found[0]) and found[0][-1] == cells[-1])
    return Check("A7.gain", claim, claimed, f"factor {gain[-1]:.3g} at d D/(d + D) = {x[-1]:.3g}{beside}; "
                 + scaled("exponents", exponents), f"factor +- {np.max(error / gain):.1g}", exponent_verdict(exponents, 1.0),
                 {"eps": eps, "x": x, "gain": gain, "gain_error": error, "exponents": exponents,
                  **{f"{method}, {which}": {"cells": [cell.text for cell in found[0]], "gain": found[1], "error": found[2]}
                     for (method, which), found in others.items()}})


def gains(results, method, which):
    """(cells, factors, standard errors) along the diagonal: samples to the smallest eps of `method` over those of the
    pretrained model, for the sizes at which both get there."""
    rows = []
    for cell in results.diagonal():
        both = [results.cells[cell].get(one) for one in (method, "pretrained")]
        theirs, ours = (found.needed(results.eps[-1], which) if found else None for found in both)
        if ours and theirs:
            gain = theirs[0] / ours[0]
            rows.append((cell, gain, gain * np.hypot(theirs[1] / theirs[0], ours[1] / ours[0])))
    return [row[0] for row in rows], np.array([row[1] for row in rows]), np.array([row[2] for row in rows])


def exponent_table(results):
    """All local exponents of the samples needed, as rows {method, statistic, variable, x, exponent, error}: in d + D and
    in d D along the diagonal at the smallest eps, and in 1/eps at the main cell."""
    rows = []
    for method in dict.fromkeys(method for methods in results.cells.values() for method in methods):
        for which in STATISTICS:
            found = {name: _size_exponents(results, method, results.eps[-1], size, which)[0] for name, size in SIZES.items()}
            measured = results.cells[results.main].get(method)
            found["1/eps"] = None if measured is None else eps_exponents(measured, results.eps, which)
            rows += [{"method": method, "statistic": which, "variable": name, "x": one.x, "exponent": one.value,
                      "error": one.error} for name, one in found.items() if one is not None]
    return rows


def checks(results):
    """All claims, as a list of Check.  Without a margin those that are about one are not in their regime."""
    free = Cell(results.main.d, results.main.D, results.main.law, 0.0)
    sgd, likelihood = "logistic regression by SGD", "logistic regression by maximum likelihood"
    rows = [check_bound(results), check_size(results), check_eps(results), check_margin(results), check_law(results),
            check_attention(results),
            check_baseline_size(results, "logistic_sgd", "online", sgd),
            check_baseline_size(results, "max_likelihood", "last", likelihood),
            check_baseline_eps(results, "logistic_sgd", "online", sgd),
            check_baseline_eps(results, "logistic_sgd", "last", sgd),
            check_baseline_eps(results, "max_likelihood", "last", likelihood)]
    if "max_likelihood" in results.cells.get(free, ()):
        rows.append(check_baseline_eps(results, "max_likelihood", "last", likelihood, free))
    if results.main.margin == 0:
        rows = [replace(row, verdict="not in regime") if row.id in NEEDS_MARGIN else row for row in rows]
    return [*rows, check_gain(results)]
