"""Are results from another language right?  The report of `check`, from files."""

import shlex
import time
from pathlib import Path

import numpy as np

from gsref.files import DamagedFile
from gsref.oracle.compare import FAIL, Comparison
from gsref.oracle.guards import Outcome
from gsref.oracle.precision import precision
from gsref.oracle.system import TRANSFORMER
from gsref.oracle.vectors import load, read
from gsref.oracle.verdict import UnknownCase, conclude, judge


def verify(folder, results, cases=None, system=TRANSFORMER):
    """A Report on the folder `results` for the cases exported to `folder`; `cases`: ids, default all.

    Missing, extra, misshapen and mistyped tensors are failures of their case.  DamagedFile, one line, for a file that
    cannot be read, holds a pickle, or is not what the manifest says; UnknownCase (a ValueError) for an unknown id.
    """
    start, folder, results = time.monotonic(), Path(folder), Path(results)
    manifest, tasks, rejected = read(folder)
    if (manifest["system"], manifest["outputs"]) != (system.name, list(system.outputs)):
        raise DamagedFile(f"{folder / 'manifest.json'}: cases of {manifest['system']!r}, expected {system.name!r}")
    if not results.is_dir():
        raise DamagedFile(f"{results}: no such folder")
    p = precision(manifest["dtype"])
    ids = [task.case.id for task in tasks] + [case.id for case in rejected]
    chosen = set(ids if cases is None else cases)
    for id in sorted(chosen - set(ids)):
        raise UnknownCase(id, ids)
    comparisons, evidence = _strangers(results, set(ids)) if cases is None else [], []
    for task in tasks:
        if task.case.id in chosen:
            found, item = judge(task, _results_of(results, task, system), system, p)
            comparisons += found
            evidence.append(item)
    for case in rejected:
        if case.id in chosen and any((results / name).exists() for name in (case.id, f"{case.id}.npz")):
            comparisons.append(Comparison(case.id, "rejects", FAIL,
                                          f"has a result, but must be rejected: {case.flags[0]}"))
    line = f"python -m gsref.oracle verify {shlex.quote(str(folder))} {shlex.quote(str(results))}"
    repeat = {c.case: f"{line} --case {c.case}" if c.case in ids else line for c in comparisons}
    return conclude(comparisons, evidence, system, p, candidate=str(results), skipped={}, repeat=repeat,
                    seconds=time.monotonic() - start)


def _results_of(results, task, system):
    """The tensors of one case as an Outcome: what is missing, extra or mistyped are its problems."""
    id, outcome = task.case.id, Outcome()
    archive, folder = results / f"{id}.npz", results / id
    if archive.exists():
        tensors = load(archive)
    else:
        tensors = {path.stem: load(path) for path in sorted(folder.glob("*.npy"))}
    for name in system.outputs:
        if name not in tensors:
            outcome.problems.append((name, f"missing: neither {name} in {archive.name} nor {folder.name}/{name}.npy"))
    for name, array in tensors.items():
        if name not in system.outputs:
            outcome.problems.append((name, f"extra tensor, expected {', '.join(system.outputs)}"))
        elif array.dtype.kind != "f":
            outcome.problems.append((name, f"type: got {array.dtype}, wanted floating-point numbers"))
        else:
            outcome.values[name] = np.asarray(array, dtype=np.float64)
    return outcome


def _strangers(results, ids):
    """What lies in the folder and belongs to no case."""
    strange = [path.name for path in sorted(results.iterdir())
               if (path.name if path.is_dir() else path.stem) not in ids or (path.is_file() and path.suffix != ".npz")]
    return [Comparison(name, "results", FAIL, "extra file, no case has this name") for name in strange]
