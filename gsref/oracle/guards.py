"""What does a candidate do besides computing?  Calls it twice and watches its inputs and outputs."""

import traceback
from dataclasses import dataclass, field

import numpy as np

from gsref.oracle.compare import as_numbers, first_line


@dataclass
class Outcome:
    """What two calls gave: `values` and `again` map names to float64 arrays; `problems` are (block, text) pairs."""

    values: dict = field(default_factory=dict)
    again: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)


def call(candidate, inputs, system, precision, times=2):
    """Call `candidate` (twice, unless `times` is 1) on copies of `inputs` (a mapping, in call order) and watch.

    Problems: an exception; an input that is not bit for bit what it was; an output that shares memory with an input or
    with an output of the other call, or that the second call has changed; a result of the wrong kind.
    """
    outcome = Outcome()
    given, before, raw = [], [], []
    for attempt in range(times):
        arrays = [np.array(array, dtype=precision.container, order="C") for array in inputs.values()]
        given.append(arrays)
        before.append([array.tobytes() for array in arrays])
        try:
            result = candidate(*arrays)
        except (Exception, SystemExit) as problem:
            frames = traceback.extract_tb(problem.__traceback__)[1:]              # the first is this one
            where = f" (in {frames[-1].name}, line {frames[-1].lineno})" if frames else ""
            outcome.problems.append(("call", f"raised {type(problem).__name__}: {first_line(problem)}{where}"))
            return outcome
        for name, array, old in zip(inputs, arrays, before[attempt]):
            if array.tobytes() != old:
                outcome.problems.append(("call", f"changes its input {name}"))
        named, problem = _named(result, system)
        if problem:
            outcome.problems.append(("call", problem))
            return outcome
        raw.append(named)
        values = outcome.values if attempt == 0 else outcome.again
        for name, x in named.items():
            array, problem = as_numbers(x)
            if problem is None:
                values[name] = array.copy()
            elif attempt == 0:
                outcome.problems.append((name, problem))
    if times == 2:
        _aliases(raw, given, list(inputs), outcome)
    outcome.problems = list(dict.fromkeys(outcome.problems))
    return outcome


def _named(result, system):
    """The result of a call as a mapping from names to whatever the candidate returned, or what is wrong with it."""
    names = (*system.steps, *system.outputs)
    if isinstance(result, dict):
        unknown = [name for name in result if name not in names]
        if unknown or not result:
            return None, f"returned {'an empty mapping' if not result else f'unknown names {unknown}'}, " \
                         f"wanted any of {', '.join(dict.fromkeys(names))}"
        return result, None
    if not isinstance(result, (tuple, list)) or len(result) != len(system.outputs):
        kind = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
        return None, f"returned {kind}, wanted a tuple ({', '.join(system.outputs)}) or a mapping"
    return dict(zip(system.outputs, result)), None


def _aliases(raw, given, input_names, outcome):
    first, second = ({name: np.asarray(x) for name, x in named.items() if name in outcome.values} for named in raw)
    for name, x in first.items():
        for k, array in zip(input_names, given[0]):
            if np.shares_memory(x, array):
                outcome.problems.append((name, f"shares memory with the input {k}"))
        for other, z in second.items():
            if x.size and np.shares_memory(x, z):
                outcome.problems.append((name, f"shares memory with {other} of the next call"))
        now = as_numbers(x)[0]
        if now is not None and now.tobytes() != outcome.values[name].tobytes():
            outcome.problems.append((name, "changes when the candidate is called again"))
