"""Which pretrained model?  From the population recursion at its T*, or the arrays of a file; checked against the pattern.

Source: derivations/09_transfer.md.
"""

import zipfile
from dataclasses import dataclass

import numpy as np

from gsref.arguments import real_array
from gsref.descent import descend
from gsref.order import OrderParameters

LARGEST = 1e100                                # of an entry: products with features, and sums of them, stay finite


@dataclass(frozen=True)
class Pretrained:
    """v (d+D,), W (d+D, d+D), and in words where they come from; `details` holds the numbers of that."""

    v: np.ndarray
    W: np.ndarray
    source: str
    details: dict


class NotReached(ArithmeticError):
    """The recursion did not come to the loss asked for in the steps allowed."""


def pretrain(problem, eta, eps, mode="position_only", n_steps=10**8, rtol=1e-3, callback=None):
    """The model at T*, the first place of the population recursion from zero where the loss is at most `eps`.

    The recursion is `gsref.descend` with learning rate `eta`, continued as a flow, which is looked at 40 times a decade
    of steps.  `callback(step, loss)` reports progress.  Raises NotReached, with the loss that was reached.
    """
    def reached(step, order, found):
        if callback:
            callback(step, found.loss)
        return found.loss <= eps
    path = descend(problem, eta, n_steps, mode=mode, rtol=rtol, callback=reached, flow=1e-3, keep=lambda step: False)
    step, loss, order = int(path.step[-1]), float(path.loss[-1]), OrderParameters.from_array(path.order[-1])
    if loss > eps:
        raise NotReached(f"pretraining at d={problem.d}, D={problem.D}, eta={eta:g}: loss {loss:.3g} after {step} steps, "
                         f"expected {eps:.3g} or less")
    v, W = order.to_params(problem)
    return Pretrained(v, W, f"population recursion ({mode}), eta = {eta:.4g}, T* = {step}, loss {loss:.3g}",
                      {"mode": mode, "eta": eta, "T_star": step, "loss": loss, "attention": float(path.attention[-1]),
                       "order": path.order[-1]})


def read_pretrained(path, problem):
    """The model in the `.npz` file `path`: arrays `v` (d+D,) and `W` (d+D, d+D) of numbers up to LARGEST; no pickles.

    Raises ValueError, one line that names the file, for a file that cannot be read or does not fit `problem`.
    """
    size = problem.d + problem.D
    at = f"at d={problem.d}, D={problem.D}"
    try:
        # opened here: numpy leaves the file open if it is not what it expects; and ZipFile refuses what is no zip
        with open(path, "rb") as opened, zipfile.ZipFile(opened), np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("v", "W") if name in file.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as failure:
        raise ValueError(f"{path}: cannot be read ({failure.strerror or failure})") from None
    except Exception as failure:               # zip, zlib and the npy header each have errors of their own
        raise ValueError(f"{path}: not a readable .npz file ({type(failure).__name__}: {failure})") from None
    missing = [name for name in ("v", "W") if name not in arrays]
    if missing:
        raise ValueError(f"{path}: no array named {' or '.join(missing)}, expected v ({size},) and W ({size}, {size}) {at}")
    try:
        v, W = real_array("v", arrays["v"], (size,)), real_array("W", arrays["W"], (size, size))
    except (TypeError, ValueError) as misfit:
        raise ValueError(f"{path}: {misfit} {at}") from None
    for name, array in (("v", v), ("W", W)):
        if np.abs(array).max() > LARGEST:
            raise ValueError(f"{path}: {name}: got an entry of {np.abs(array).max():.3g}, expected at most {LARGEST:g}")
    return Pretrained(v, W, f"file {path}", {})
