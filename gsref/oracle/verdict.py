"""Does a candidate pass?  The loop over cases, and the report."""

import difflib
import sys
import time
from dataclasses import dataclass

import numpy as np

from gsref.arguments import instance, integer, real
from gsref.files import write_text
import gsref.oracle.render as render
from gsref.oracle.compare import FAIL, INCONCLUSIVE, PASS, Comparison, compare
from gsref.oracle.diagnose import Evidence, diagnose
from gsref.oracle.guards import call
from gsref.oracle.precision import precision
from gsref.oracle.system import TRANSFORMER, System


@dataclass(frozen=True)
class Report:
    """What `check` found.  `comparisons` in the order of the cases and of the computation.

    `verdict` is "pass", "fail" or "inconclusive"; `diagnosis` lines of text; `unseen` the blocks that no case could see;
    `skipped` maps ids of cases outside the range of the type to the reason; `repeat` maps a case id to the command that
    runs it alone.
    """

    candidate: str
    system: str
    version: int
    dtype: str
    verdict: str
    comparisons: tuple
    diagnosis: tuple
    unseen: tuple
    skipped: dict
    first_wrong: str
    repeat: dict
    seconds: float
    tolerance: float = 1.0
    strict: bool = False

    @property
    def passed(self):
        return self.verdict == PASS

    def __str__(self):
        return render.text(self)

    def to_json(self, path):
        """Write the whole report as JSON, atomically.  OSError if it cannot be written."""
        write_text(path, render.json_text(self))

    def to_junit(self, path):
        """Write one JUnit test case a case and block, atomically.  OSError if it cannot be written."""
        write_text(path, render.junit_text(self))


def check(candidate, dtype="float64", *, cases=None, thorough=False, seed=0, strict=False, rejects=False, tolerance=1.0,
          system=TRANSFORMER, name=None):
    """Check `candidate` on the system's cases; returns a Report.

    `candidate(v, W, X, y, P)` gets writable NumPy arrays (float64; float32 for float32, tf32 and bfloat16; float16) and
    returns (loss, dv, dW), or a mapping with any of the steps `scores`, `attention`, `values`, `logit`, `loss`,
    `factor`, `G`, `dv`, `dv1`, `dv2`, `dW`, `dW11`, `dW12`, `dW21`, `dW22`; anything that NumPy converts will do.
    `dtype` is its working precision: float64, float32, tf32, float16 or bfloat16.  `cases`: ids, default all;
    `thorough`: the larger set; `seed`: another draw of the same set; `strict`: no allowance for the cancellation in
    u_i - ubar_j when one score dominates; `rejects`: unusable inputs must raise; `tolerance`: a multiple of the derived
    tolerances, above 0; `name`: how to import the candidate, for the lines that repeat a failure.
    Raises TypeError or ValueError, naming the argument.
    """
    if not callable(candidate):
        raise TypeError(f"candidate: got {candidate!r}, expected something that can be called")
    p, seed = precision(dtype), integer("seed", seed, 0)
    instance("system", system, System)
    tolerance = real("tolerance", tolerance, 0.0, open_least=True)
    chosen = select(system.cases(seed, True), cases, thorough)
    start, evidence, comparisons, skipped, repeat = time.monotonic(), [], [], {}, {}
    for task in prepare(chosen, p, system, strict, tolerance):
        if task.skip:
            skipped[task.case.id] = task.skip
            continue
        found, item = judge(task, call(candidate, task.inputs, system, p), system, p)
        comparisons += found
        evidence.append(item)
    if rejects:
        comparisons += [_rejects(candidate, item, system, p) for item in system.rejected(seed)]
    name = name or _name(candidate)
    for c in comparisons:
        if c.verdict != PASS:
            repeat[c.case] = render.repeat_line(name, dtype, c.case, seed, strict, tolerance, system,
                                                c.block == "rejects")
    return conclude(comparisons, evidence, system, p, candidate=name or repr(candidate), skipped=skipped, repeat=repeat,
                    seconds=time.monotonic() - start, tolerance=tolerance, strict=strict)


class UnknownCase(ValueError):
    """A case id that the set does not have."""

    def __init__(self, id, known):
        near = difflib.get_close_matches(str(id), known, 3, 0.3) or list(known)[:3]
        super().__init__(f"case: got {id!r}, expected one of {len(known)} ids such as {', '.join(near)}")


def select(cases, ids, thorough):
    """The cases named by `ids` (default: the small set, or all if `thorough`); UnknownCase (a ValueError) for another id."""
    if ids is None:
        return [case for case in cases if thorough or not case.thorough]
    known = {case.id: case for case in cases}
    ids = [ids] if isinstance(ids, str) else list(ids)
    for id in ids:
        if id not in known:
            raise UnknownCase(id, tuple(known))
    return [known[id] for id in dict.fromkeys(ids)]


@dataclass(frozen=True)
class Task:
    """One case in one precision: inputs on its grid, right values, tolerances; or why it is not run (`skip`)."""

    case: object
    inputs: dict
    wanted: dict = None
    allowed: dict = None
    source: str = ""
    skip: str = ""


def prepare(cases, p, system, strict=False, tolerance=1.0):
    """A Task for each case, made when it is asked for."""
    for case in cases:
        inputs = case.on_grid(p)
        allowed, sizes = system.tolerances(**inputs, p=p, careful=strict)
        largest = max(float(np.max(np.abs(x))) for x in (*sizes.values(), *inputs.values()))
        if largest > p.largest / 4:
            yield Task(case, inputs, skip=f"numbers of size {largest:.3g}, {p.name} ends at {p.largest:.3g}")
            continue
        yield Task(case, inputs, system.evaluate(**inputs), {key: tolerance * x for key, x in allowed.items()},
                   _source(p, strict, tolerance))


def judge(task, outcome, system, p):
    """Comparisons of one case, and the Evidence for a diagnosis."""
    id, inputs, wanted = task.case.id, task.inputs, task.wanted
    found = [Comparison(id, system.label(name), FAIL, text) for name, text in outcome.problems]
    got, again = {}, {}
    for name, x in outcome.values.items():
        if name in system.outputs and x.shape != wanted[name].shape:
            found.append(Comparison(id, system.label(name), FAIL, f"shape: got {x.shape}, wanted {wanted[name].shape}",
                                    entries=wanted[name].size))
        else:
            got[name] = x
            if name in outcome.again and outcome.again[name].shape == x.shape:
                again[name] = outcome.again[name]
    got, again = system.cut(got, inputs), system.cut(again, inputs)
    wanted, allowed = system.cut(wanted, inputs), system.cut(task.allowed, inputs)
    found += [compare(id, system.label(step), got[step], wanted[step], allowed[step], p, again.get(step), task.source)
              for step in system.steps if step in got]
    usable = {step: x for step, x in got.items() if x.shape == wanted[step].shape}
    return found, Evidence(task.case, inputs, usable, wanted, allowed)


def conclude(comparisons, evidence, system, p, **rest):
    """The Report that these comparisons amount to."""
    compared = {c.block for c in comparisons}
    unseen = tuple(label for label in map(system.label, system.checked)
                   if label in compared and not any(c.seen for c in comparisons if c.block == label))
    steps = {system.label(step): step for step in system.steps}
    failed = [c for c in comparisons if c.verdict == FAIL]
    wrong = {(c.case, steps[c.block]) for c in failed if c.index is not None}
    if failed:
        verdict = FAIL
    elif unseen or not compared or any(c.verdict == INCONCLUSIVE for c in comparisons):
        verdict = INCONCLUSIVE
    else:
        verdict = PASS
    first = next((system.label(step) for step in system.steps if any(step == block for _, block in wrong)), None)
    lines = diagnose(evidence, wrong, failed, system, p) if failed else ()
    return Report(system=system.name, version=system.version, dtype=p.name, verdict=verdict, comparisons=tuple(comparisons),
                  diagnosis=lines, unseen=unseen, first_wrong=first, **rest)


def assert_matches(candidate, dtype="float64", **options):
    """`check` for a test suite: AssertionError with the report's text unless the verdict is pass; returns the Report."""
    report = check(candidate, dtype, **options)
    if not report.passed:
        raise AssertionError(str(report))
    return report


def _rejects(candidate, item, system, p):
    """A Comparison for an input that must be rejected."""
    arrays = [np.array(array, dtype=p.container) for array in item.inputs.values()]
    try:
        candidate(*arrays)
    except Exception:
        return Comparison(item.id, "rejects", PASS, f"rejected: {item.flags[0]}", seen=True)
    return Comparison(item.id, "rejects", FAIL, f"accepted an input that must be rejected: {item.flags[0]}")


def _source(p, strict, tolerance):
    text = f"4 x root-sum-square of the {p.name} rounding errors of this entry (u = {p.unit:.2g}"
    text += f", operands {p.operand:.2g})" if p.operand else ")"
    return text + (", without cancellation in u_i - ubar_j" if strict else "") + (f", times {tolerance:g}" if tolerance != 1 else "")


def _name(candidate):
    """module:function if that imports the same object, else None."""
    module, name = getattr(candidate, "__module__", None), getattr(candidate, "__qualname__", "")
    if module and module != "__main__" and getattr(sys.modules.get(module), name, None) is candidate:
        return f"{module}:{name}"
    return None
