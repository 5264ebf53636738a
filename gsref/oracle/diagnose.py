"""What is wrong with a candidate that fails?  Its error against every known fault, across all cases at once."""

import math
from dataclasses import dataclass

import numpy as np

from gsref.oracle.plain import Arithmetic
from gsref.oracle.precision import PRECISIONS
from gsref.oracle.tolerance import RESOLVES

EXPLAINED = 0.85      # share of what is wrong that a fault must reproduce to be named (empirical: coarse types blur some)
CLOSEST = 0.5          # below this share a fault is not even mentioned
_LOWER = {"float64": ("float32",), "float32": ("tf32", "float16", "bfloat16"), "tf32": ("bfloat16",), "float16": ("bfloat16",)}
_REGIMES = {"large margin": "large margins", "large scores": "large scores or score gaps"}


@dataclass(frozen=True)
class Evidence:
    """What a candidate gave in one case: mappings from step to float64 arrays.  `got` may miss some steps."""

    case: object
    inputs: dict
    got: dict
    wanted: dict
    tolerance: dict


def diagnose(evidence, failing, failed, system, precision):
    """Lines that say what is wrong, the best explanation first; the line "no known pattern" if there is none.

    `failing`: the set of (case id, step) whose numbers are wrong; `failed`: all failed Comparisons.
    """
    lines = _behaviour(failed, evidence)
    if not failing:
        return tuple(lines)
    named = _faults(evidence, failing, system, precision)
    found = _precision(evidence, failing, system, precision) + [text for share, text in named if share >= EXPLAINED]
    for look in (_ratios, _zeros, _entries, _rounding):
        found = found or look(evidence, failing, system)
    lines += found + _regime(evidence, failing)
    if not lines and named and named[0][0] >= CLOSEST:
        share, text = named[0]
        lines.append(f"no known pattern; the closest: {text}, which explains {100 * share:.0f} % of what is wrong")
    return tuple(lines) or ("no known pattern",)


def _behaviour(failed, evidence):
    """What fails besides numbers: exceptions, shapes, types, inputs that change, buffers that are shared, state."""
    lines = []
    reasons = {}
    for c in failed:
        if c.index is None:
            reasons.setdefault(f"{c.block}: {c.reason}" if c.block not in ("call", "rejects") else c.reason, []).append(c.case)
    for reason, cases in list(reasons.items())[:4]:
        lines.append(f"{reason} (in {len(cases)} case{'s' * (len(cases) > 1)}: {', '.join(cases[:3])}{' ...' * (len(cases) > 3)})")
    if any(c.tolerance is not None and c.noise > c.tolerance for c in failed):
        lines.append("two calls with the same input differ by more than the tolerance: something is kept between calls")
    return lines


def _agree(a, b, slack):
    """Whether two arrays are the same up to `slack`, non-finite numbers in the same places."""
    fa, fb = np.isfinite(a), np.isfinite(b)
    return a.shape == b.shape and bool((fa == fb).all() and (np.abs(a - b)[fa] <= slack[fa]).all())


def _explains(got, pattern, wanted, tolerance, p):
    """Whether `got` is the pattern up to rounding, and at least twice as near to it as to the right value."""
    with np.errstate(all="ignore"):
        slack = 3 * tolerance + 32 * p.unit * np.abs(pattern)
        near = _agree(got, pattern, slack)
        return near and (not np.isfinite(got).all()
                         or 2 * np.max(np.abs(got - pattern) / tolerance) <= np.max(np.abs(got - wanted) / tolerance)
                         or np.array_equal(got, pattern))


def _faults(evidence, failing, system, p):
    """(share explained, text) of the known faults, best first: the share of wrong blocks that the fault reproduces."""
    wrong = [e for e in evidence if any((e.case.id, step) in failing for step in e.got)]
    right = [e for e in evidence if e not in wrong]
    chosen = wrong[:24] + right[:8]
    found = []
    for fault in system.faults():
        if not fault.pattern:
            continue
        candidate = fault.make(Arithmetic())
        hits = total = 0
        for e in chosen:
            values = {name: np.asarray(x, dtype=np.float64) for name, x in zip(system.outputs, candidate(*e.inputs.values()))}
            for step, pattern in system.cut(values, e.inputs).items():
                if step not in e.got:
                    continue
                tolerance = e.tolerance[step]
                if (e.case.id, step) in failing:
                    total += 1
                    hits += _explains(e.got[step], pattern, e.wanted[step], tolerance, p)
                elif not _agree(pattern, e.wanted[step], 4 * tolerance):
                    total += 1                                     # the fault would show here, and does not
        if total:
            found.append((hits / total, fault.says))
    found.sort(key=lambda item: -item[0])
    best = found[0][0] if found else 0.0
    return [item for item in found if item[0] >= best - 0.01][:3]


def _ratios(evidence, failing, system):
    """Steps that are a constant times what they should be, and what the constant usually is."""
    by_text = {}
    for step in system.checked:
        ratios = []
        for e in evidence:
            if step not in e.got or e.got[step].shape != e.wanted[step].shape:
                continue
            got, wanted, tolerance = e.got[step], e.wanted[step], e.tolerance[step]
            with np.errstate(all="ignore"):
                weight = np.where(tolerance > 0, np.abs(wanted) / tolerance, 0.0)
            if not np.isfinite(got).all() or not weight.max(initial=0) >= RESOLVES:
                continue
            top = np.unravel_index(np.argmax(weight), weight.shape)
            ratio = float(got[top] / wanted[top])
            error = 1.5 * (1 + abs(ratio)) / float(weight.max())
            if ratio == 0 or not (np.abs(got - ratio * wanted) <= 1.5 * (1 + abs(ratio)) * tolerance).all():
                break
            if error < 0.1 * abs(ratio):
                ratios.append((ratio, error, e.case.sizes))
        else:
            text = _name(ratios)
            if text and any((e.case.id, step) in failing for e in evidence):
                by_text.setdefault(text, []).append(system.label(step))
    return [f"{', '.join(steps)}: {text}" for text, steps in by_text.items()]


def _name(ratios):
    if len(ratios) < 2 or all(abs(ratio - 1) <= error for ratio, error, _ in ratios):
        return None
    for power in (1, -1, 0.5, -0.5, 2, -2):
        for name in ratios[0][2]:
            for sign in (1, -1):
                values = [sign * sizes[name]**power for _, _, sizes in ratios]
                if len(set(values)) > 1 and all(abs(r - q) <= error for (r, error, _), q in zip(ratios, values)):
                    return f"{'minus ' if sign < 0 else ''}{_power(name, power)} times what it should be"
    r = [ratio for ratio, _, _ in ratios]
    middle = sorted(r)[len(r) // 2]
    if all(abs(ratio - middle) <= error + min(e for _, e, _ in ratios) for ratio, error, _ in ratios):
        known = {-1.0: "the sign", 2.0: "counted twice, or a factor of 0/1 labels", 0.5: "halved",
                 1 / math.log(2): "a logarithm to base 2", math.log(2): "a logarithm to base 2"}
        why = next((f" ({text})" for value, text in known.items() if abs(middle - value) <= 1e-3 * abs(value)), "")
        return f"a constant {middle:.6g} times what it should be in every case{why}"
    if all(abs(ratio - 1) > 0.02 for ratio in r):
        return f"proportional to what it should be, with a factor that changes from case to case ({min(r):.4g} to {max(r):.4g})"
    return None


def _power(name, power):
    name = f"({name})" if " " in name else name
    return {1: name, -1: f"1/{name}", 0.5: f"sqrt({name.strip('()')})", -0.5: f"1/sqrt({name.strip('()')})",
            2: f"{name}^2", -2: f"1/{name}^2"}[power]


def _zeros(evidence, failing, system):
    steps = [step for step in system.checked if any((e.case.id, step) in failing for e in evidence)]
    zero = [step for step in steps if all(not e.got[step].any() for e in evidence if step in e.got)]
    return [f"{', '.join(map(system.label, zero))}: zero in every case"] if zero and len(zero) == len(steps) else []


def _entries(evidence, failing, system):
    """A few entries at the same place of a block, case after case."""
    places = {}
    for e in evidence:
        for step in system.checked:
            if (e.case.id, step) in failing and step in e.got and e.got[step].shape == e.wanted[step].shape:
                bad = ~(np.abs(e.got[step] - e.wanted[step]) <= e.tolerance[step])       # NaN is bad, too
                if bad.size == 1 or bad.sum() > max(1, bad.size // 10):
                    return []
                for where in np.argwhere(bad):
                    where = tuple(int(i) for i in where)
                    ratio = e.got[step][where] / e.wanted[step][where] if e.wanted[step][where] else math.nan
                    places.setdefault((step, where), []).append((e.case.id, ratio))
    if not places:
        return []
    lines = []
    for (step, where), found in sorted(places.items(), key=lambda item: -len(item[1]))[:3]:
        ratios = [ratio for _, ratio in found]
        how = f"{min(ratios):.4g} to {max(ratios):.4g} times what they should be" if np.isfinite(ratios).all() else "NaN or inf"
        lines.append(f"single entries are wrong: {system.label(step)}{list(where)} in {len(found)} case"
                     f"{'s' * (len(found) > 1)} ({found[0][0]}), {how}")
    return lines


def _precision(evidence, failing, system, p):
    """The lower precision, if every error fits its tolerance."""
    for lower in _LOWER.get(p.name, ()):
        worst, fits, least = 0.0, True, 2.0**24 * PRECISIONS[lower].tiny        # below `least` underflow is the larger part
        for e in evidence:
            if not fits:
                break
            tolerance = system.cut(system.tolerances(**e.inputs, p=PRECISIONS[lower])[0], e.inputs)
            for step in e.got:
                if (e.case.id, step) in failing:
                    fits = fits and _agree(e.got[step], e.wanted[step], tolerance[step])
                    with np.errstate(all="ignore"):
                        scale = np.abs(e.wanted[step]).max()
                        worst = max(worst, np.abs(e.got[step] - e.wanted[step]).max() / scale if scale > least else 0.0)
        if fits and worst < 64 * max(PRECISIONS[lower].unit, PRECISIONS[lower].operand):
            hint = " (jax computes in float32 unless jax_enable_x64 is set)" if p.name == "float64" else ""
            return [f"rounding errors of {lower}: some step is computed in {lower}, not in {p.name}{hint}"]
    return []


def _rounding(evidence, failing, system):
    """Errors that follow the tolerance everywhere, only larger: too few digits somewhere, not a wrong formula."""
    ratios = []
    for e in evidence:
        for step, got in e.got.items():
            wanted, tolerance = e.wanted[step], e.tolerance[step]
            scale = np.abs(wanted).max()
            usable = np.isfinite(got).all() and np.isfinite(tolerance).all() and scale >= RESOLVES * tolerance.max()
            if usable and (tolerance > 0).all():
                error = np.abs(got - wanted)
                if error.max() > 0.1 * scale:
                    return []
                ratios.append(float((error / tolerance).max()))
    if len(ratios) < 5 or np.median(ratios) < max(1.0, max(ratios) / 300):
        return []
    return [f"errors of rounding, not of a formula: up to {max(ratios):.2g} times the tolerance, about "
            f"{math.log2(max(ratios)) + 2:.0f} bits too few, and alike in all cases"]


def _regime(evidence, failing):
    """One regime that all failing cases belong to, while cases outside it pass."""
    bad = [e.case for e in evidence if any(id == e.case.id for id, _ in failing)]
    good = [e.case for e in evidence if e.case not in bad]
    for flag, text in _REGIMES.items():
        if bad and good and all(flag in case.flags for case in bad):
            nonfinite = any(not np.isfinite(x).all() for e in evidence if e.case in bad for x in e.got.values())
            what = "overflow (inf or NaN)" if nonfinite else "wrong"
            return [f"{what} in one regime only: {text} ({', '.join(case.id for case in bad[:4])}{' ...' * (len(bad) > 4)})"]
    return []
