"""What does the oracle need to know of a model?  One small object; the transformer's is here.

Another model is checked in the same way by building a System of its own and passing it as `system=`.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Callable

import gsref.oracle.cases as cases
import gsref.oracle.reference as reference
import gsref.oracle.tolerance as tolerance


@dataclass(frozen=True)
class System:
    """A model as the oracle sees it.

    `where`: package.module:name of this object, for the lines that repeat a failure.
    `inputs`: names of a candidate's arguments, in order.  `outputs`: names of the tuple that it returns, in order.
    `steps`: names of all quantities in the order of the computation (a candidate may return a mapping of any of them);
    `labels`: how a step is called in a report, where that differs.
    `evaluate(**inputs)`: the right values of outputs and steps, float64.
    `tolerances(**inputs, p=, careful=)`: two mappings with the same keys, tolerances and sizes of the terms.
    `blocks(values, d)`: outputs cut into steps, d the last axis of the input named `split`.
    `cases(seed, thorough)`: a tuple of `cases.Case`; `rejected(seed)`: cases whose inputs must be rejected, the reason as
    their first flag.
    `faults()`: the known faults, see `mutants.Fault`; `known_wrong(dtype)`: candidates that have them, by name.
    `conventions`: what an implementer must know, for the manifest of an export.
    """

    name: str
    where: str
    version: int
    inputs: tuple
    outputs: tuple
    steps: tuple
    labels: dict
    evaluate: Callable
    tolerances: Callable
    blocks: Callable
    split: str
    cases: Callable
    faults: Callable
    known_wrong: Callable
    rejected: Callable
    conventions: dict

    def label(self, step):
        return self.labels.get(step, step)

    def cut(self, values, inputs):
        return self.blocks(values, inputs[self.split].shape[-1])

    @property
    def checked(self):
        """The steps that a candidate must get right to pass: the loss and the blocks of the gradient."""
        return tuple(step for step in self.steps if step == "loss" or step in self.labels)


def _evaluate(v, W, X, y, P):
    return {name: reference.floats(value) for name, value in reference.evaluate(v, W, X, y, P).items()}


def _faults():
    from gsref.oracle.mutants import FAULTS          # the table is large, and only a failure or `mutants` needs it
    return FAULTS


def _known_wrong(dtype):
    from gsref.oracle.mutants import known_wrong
    return known_wrong(dtype)


CONVENTIONS = MappingProxyType({
    "inputs": "v (d+D,), W (d+D, d+D), X (n, D, d), y (n,), P (D, D); features first, then positions",
    "token": "z_j = [x_j, p_j], x_j = X[n, j, :], p_j = P[j, :]",
    "scores": "A[n, i, j] = z_i . W z_j: score of key i for query j, not divided by anything",
    "attention": "softmax over the key i: sum over i of S[n, i, j] is 1",
    "logit": "f[n] = sum over i and j of S[n, i, j] (v . z_i), not divided by D",
    "labels": "y is -1 or +1",
    "reduction": "loss = mean over n of log(1 + exp(-y f)), natural logarithm; dv and dW are its derivatives",
    "orientation": "dW[a, b] = d loss / d W[a, b], with a on the key's side and b on the query's side",
    "axis order": "C order: the last axis runs fastest",
})

TRANSFORMER = System(
    name="transformer", where="gsref.oracle:TRANSFORMER", version=cases.VERSION,
    inputs=("v", "W", "X", "y", "P"), outputs=("loss", "dv", "dW"),
    steps=("scores", "attention", "values", "logit", "loss", "factor", "G", "dv1", "dv2", "dW11", "dW12", "dW21", "dW22"),
    labels=MappingProxyType({f"d{name}": name for name in ("v1", "v2", "W11", "W12", "W21", "W22")}),
    evaluate=_evaluate, tolerances=tolerance.tolerances, blocks=reference.blocks, split="X",
    cases=cases.transformer_cases, faults=_faults, known_wrong=_known_wrong, rejected=cases.rejected_cases,
    conventions=CONVENTIONS)
