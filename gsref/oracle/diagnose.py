"""What is wrong with a candidate that fails?  Its error against every known fault, across all cases at once."""

import math
from dataclasses import dataclass

import numpy as np

from gsref.oracle.plain import Arithmetic
from gsref.oracle.precision import PRECISIONS
from gsref.oracle.tolerance import RESOLVES

EXPLAINED = 0.97       # share of what is wrong that a fault must reproduce to be named (empirical: rounding blurs a few)
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


def diagnose(evidence, failing, system, precision):
    """Lines that say what is wrong, the best explanation first; the line "no known pattern" if there is none.

    `failing`: the set of (case id, step) that failed; a case that raised has the step "call".
    """
    lines = []
    lines += _precision(evidence, failing, system, precision)
    named = _faults(evidence, failing, system, precision)
    lines += [text for share, text in named if share >= EXPLAINED]
    if not lines:
        lines += _ratios(evidence, failing, system)
    if not lines:
        lines += _zeros(evidence, failing, system)
    if not lines:
        lines += _entries(evidence, failing, system)
    lines += _regime(evidence, failing)
    if not lines and named and named[0][0] >= CLOSEST:
        share, text = named[0]
        lines.append(f"no known pattern; the closest: {text}, which explains {100 * share:.0f} % of what is wrong")
    return tuple(lines) or ("no known pattern",)


def _agree(a, b, slack):
    """Whether two arrays are the same up to `slack`, non-finite numbers in the same places."""
    fa, fb = np.isfinite(a), np.isfinite(b)
    return a.shape == b.shape and bool((fa == fb).all() and (np.abs(a - b)[fa] <= slack[fa]).all())


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
                shows = not _agree(pattern, e.wanted[step], 4 * tolerance)
                if shows or (e.case.id, step) in failing:
                    total += 1
                    with np.errstate(all="ignore"):
                        hits += _agree(e.got[step], pattern, 2 * tolerance + 32 * p.unit * np.abs(pattern))
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
            if ratio == 0 or not (np.abs(got - ratio * wanted) <= 3 * (1 + abs(ratio)) * tolerance).all():
                break
            ratios.append((ratio, 3 * (1 + abs(ratio)) / float(weight.max()), e.case.sizes))
        else:
            text = _name(ratios)
            if text and any((e.case.id, step) in failing for e in evidence):
                by_text.setdefault(text, []).append(system.label(step))
    return [f"{', '.join(steps)}: {text}" for text, steps in by_text.items()]


def _name(ratios):
    if not ratios:
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
    return f"proportional to what it should be, with a factor that changes from case to case ({min(r):.4g} to {max(r):.4g})"


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
                bad = ~(np.abs(e.got[step] - e.wanted[step]) <= e.tolerance[step])
                if bad.sum() > max(1, bad.size // 10):
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
        lines.append(f"single entries are wrong: {system.label(step)}{list(where)} in {len(found)} case"
                     f"{'s' * (len(found) > 1)} ({found[0][0]}), {min(ratios):.4g} to {max(ratios):.4g} times what it should be")
    return lines


def _precision(evidence, failing, system, p):
    """The lower precision, if every error fits its tolerance."""
    for lower in _LOWER.get(p.name, ()):
        worst, fits = 0.0, bool(evidence) and not any(step == "call" for _, step in failing)
        for e in evidence:
            if not fits:
                break
            tolerance = system.cut(system.tolerances(**e.inputs, p=PRECISIONS[lower])[0], e.inputs)
            for step in e.got:
                if (e.case.id, step) in failing:
                    fits = fits and _agree(e.got[step], e.wanted[step], tolerance[step])
                    with np.errstate(all="ignore"):
                        scale = np.abs(e.wanted[step]).max()
                        worst = max(worst, np.abs(e.got[step] - e.wanted[step]).max() / scale if scale else 0.0)
        if fits and worst < 64 * max(PRECISIONS[lower].unit, PRECISIONS[lower].operand):
            hint = " (jax computes in float32 unless jax_enable_x64 is set)" if p.name == "float64" else ""
            return [f"rounding errors of {lower}: some step is computed in {lower}, not in {p.name}{hint}"]
    return []


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
