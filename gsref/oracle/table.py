"""Which case catches which known fault?"""

from gsref.oracle.compare import PASS
from gsref.oracle.guards import call
from gsref.oracle.precision import precision
from gsref.oracle.system import TRANSFORMER
from gsref.oracle.verdict import judge, prepare, select


def catches(dtype, system=TRANSFORMER, seed=0, thorough=False, first=False):
    """A mapping from each known fault to the ids of the cases that catch it, in the precision `dtype`.

    `first`: stop at the first case that does.
    """
    p = precision(dtype)
    tasks = [task for task in prepare(select(system.cases(seed, True), None, thorough), p, system) if not task.skip]
    out = {}
    for name, candidate in system.known_wrong(dtype).items():
        out[name] = []
        for task in tasks:
            if any(c.verdict != PASS for c in judge(task, call(candidate, task.inputs, system, p), system, p)[0]):
                out[name].append(task.case.id)
                if first:
                    break
    return out


def text(found):
    """`{dtype: catches(dtype)}` as a table: a fault a line, how many cases catch it in each precision, and the first."""
    dtypes = list(found)
    names = list(next(iter(found.values())))
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
