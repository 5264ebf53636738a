"""Which case catches which known fault, and what can a case not show?"""

from gsref.oracle.compare import PASS
from gsref.oracle.guards import call
from gsref.oracle.precision import precision
from gsref.oracle.system import TRANSFORMER
from gsref.oracle.verdict import judge, prepare, select


def catches(dtype, system=TRANSFORMER, seed=0, thorough=False, first=False, progress=lambda fraction: None):
    """A mapping from each known fault to the ids of the cases that catch it, in the precision `dtype`.

    `first`: stop at the first case that does.  Faults that show in one call are called once.
    """
    p = precision(dtype)
    tasks = [task for task in prepare(select(system.cases(seed, True), None, thorough), p, system) if not task.skip]
    out, faults, wrong = {}, system.faults(), system.known_wrong(dtype)
    for k, fault in enumerate(faults):
        progress(k / len(faults))
        out[fault.name] = []
        for task in tasks:
            outcome = call(wrong[fault.name], task.inputs, system, p, times=1 if fault.pattern else 2)
            if any(c.verdict != PASS for c in judge(task, outcome, system, p)[0]):
                out[fault.name].append(task.case.id)
                if first:
                    break
    return out


def text(found):
    """`{dtype: catches(dtype)}` as a table: a fault a line, how many cases catch it in each precision, and the first."""
    dtypes = list(found)
    names = list(found[dtypes[0]])
    wide = max(map(len, names))
    lines = ["  ".join(["fault".ljust(wide), *(dtype.rjust(8) for dtype in dtypes), "caught by"])]
    for name in names:
        ids = [id for id in found[dtypes[0]][name] if all(id in found[dtype][name] for dtype in dtypes)] \
            or found[dtypes[0]][name]
        shown = ", ".join(ids[:3]) + (" ..." if len(ids) > 3 else "")
        lines.append("  ".join([name.ljust(wide), *(str(len(found[dtype][name])).rjust(8) for dtype in dtypes), shown]))
    missed = [f"{name} in {dtype}" for dtype in dtypes for name in names if not found[dtype][name]]
    lines.append(f"{len(names)} known faults, {'all caught' if not missed else 'NOT CAUGHT: ' + ', '.join(missed)} "
                 f"in {', '.join(dtypes)}")
    return "\n".join(lines)


def discriminates(case, dtype, system=TRANSFORMER):
    """Whether an error of any block of the gradient could show in this case: a tuple of the steps that it can show.

    Empty where the type's range ends before the case's numbers do.
    """
    p = precision(dtype)
    task = next(prepare([case], p, system))
    if task.skip:
        return ()
    outcome = call(lambda *inputs: tuple(task.wanted[name] for name in system.outputs), task.inputs, system, p, times=1)
    seen = {c.block for c in judge(task, outcome, system, p)[0] if c.seen}
    return tuple(step for step in system.checked if system.label(step) in seen)


def listing(dtype, system=TRANSFORMER, seed=0, thorough=False):
    """The cases as text: id, sizes, what each is for, and which blocks it cannot show to be wrong in this precision."""
    rows = []
    for case in select(system.cases(seed, True), None, thorough):
        can = discriminates(case, dtype, system)
        hidden = [system.label(step) for step in system.checked if step not in can]
        verdict = "cannot discriminate" if not can else f"hides {' '.join(hidden)}" if hidden else ""
        sizes = " ".join(f"{name}={value:g}" for name, value in case.sizes.items() if name.isalpha() and name != "kappa")
        rows.append((case.id, sizes, ", ".join(case.flags), verdict))
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows]
    return "\n".join([f"{system.name} case set {system.version}, seed {seed}, {dtype}: {len(rows)} cases", *lines])
