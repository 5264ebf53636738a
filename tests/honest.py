"""400 points at which error estimates are judged, and references for them: `python tests/honest.py` writes the file.

Points 0 to 299 are those on which the empirical factors of the estimates were set.  FRESH points are drawn in
the same way from seeds that nothing was tuned on.

A third on paths of training (moved by 5 %), a third off them, a third on the hard side: large s_irr, large |a|, gaps of
either sign up to 5000.  A reference is the best of three much finer evaluations by different rules, with its own error.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from gsref import OrderParameters, Problem, population
from gsref.files import write_text
from gsref.exchangeable import sparse_grid
from gsref.population import reduced_law, velocity_scales

FILE = Path(__file__).with_name("honest.json")
POINTS, RTOL, BUDGET = 300, 1e-4, 2**17
FRESH = range(450, 550)
# (D, d, alpha, a, b, m_rr, m_ro, m_oo) on paths from zero with a fixed rate, sigma = 1
PATHS = (
    (4, 1, 0.37208, 0.010667, 0.0, 0.11899, 0.11854, -0.039786),
    (4, 1, 0.9947, -0.1418, 0.0, 1.2372, 1.1965, -0.37556),
    (4, 1, 1.4172, -0.19856, 0.0, 1.8582, 1.728, -0.52304),
    (4, 1, 2.1753, -0.25628, 0.0, 2.6108, 2.3967, -0.70275),
    (4, 1, 3.275, -0.29445, 0.0, 3.2812, 3.0329, -0.87234),
    (4, 4, 0.37571, 0.014136, 0.00051676, 0.11931, 0.11876, -0.039904),
    (4, 4, 0.99801, -0.13886, 0.022971, 1.2348, 1.1961, -0.38357),
    (4, 4, 1.4197, -0.19862, 0.034179, 1.8325, 1.7301, -0.54029),
    (4, 4, 2.1763, -0.24956, 0.035053, 2.5549, 2.4099, -0.73412),
    (4, 4, 3.2748, -0.27481, 0.033549, 3.2102, 3.0565, -0.91626),
    (8, 1, 0.19527, 0.0059103, 0.0, 0.077466, 0.077283, -0.011088),
    (8, 1, 0.42419, -0.073975, 0.0, 0.88877, 0.89449, -0.12399),
    (8, 1, 0.81464, -0.18425, 0.0, 2.0413, 1.9665, -0.24921),
    (8, 1, 1.424, -0.2256, 0.0, 3.3305, 3.1141, -0.37201),
    (8, 1, 2.1889, -0.2332, 0.0, 4.1921, 3.969, -0.46399),
    (8, 4, 0.19508, 0.0049463, 0.0011948, 0.077626, 0.077408, -0.011112),
    (8, 4, 0.42749, -0.076632, 0.01163, 0.90105, 0.89606, -0.12525),
    (8, 4, 0.81908, -0.1861, 0.02626, 2.0662, 1.9632, -0.25475),
    (8, 4, 1.4268, -0.23296, 0.03053, 3.3017, 3.112, -0.3849),
    (8, 4, 2.1906, -0.23888, 0.02842, 4.1379, 3.9731, -0.4817),
    (16, 1, 0.077776, 0.0013199, 0.0, 0.017519, 0.017511, -0.0011683),
    (16, 1, 0.11465, -0.0024858, 0.0, 0.18004, 0.17993, -0.012006),
    (16, 1, 0.14183, -0.015474, 0.0, 0.39087, 0.39224, -0.025977),
    (16, 1, 0.57626, -0.20699, 0.0, 2.5488, 2.4734, -0.14167),
    (16, 1, 1.1544, -0.25993, 0.0, 4.4435, 4.1554, -0.21925),
    (16, 4, 0.07959, 0.0015342, 0.00034107, 0.017702, 0.01769, -0.0011805),
    (16, 4, 0.1198, -0.00087441, 0.0032119, 0.18694, 0.18592, -0.012476),
    (16, 4, 0.14895, -0.013144, 0.0063659, 0.41156, 0.40868, -0.027407),
    (16, 4, 0.58764, -0.20351, 0.021641, 2.6735, 2.5077, -0.1505),
    (16, 4, 1.1568, -0.25479, 0.021385, 4.4363, 4.154, -0.23209),
    (32, 4, 0.043359, 0.00086556, 8.716e-05, 0.00912, 0.0091173, -0.00029425),
    (32, 4, 0.063749, 0.0036521, 0.00085418, 0.095663, 0.09534, -0.0030911),
    (32, 4, 0.070195, 0.0046947, 0.0016661, 0.19496, 0.19384, -0.0063027),
    (32, 4, 0.13025, -0.013827, 0.0060427, 0.8945, 0.88276, -0.02869),
    (8, 64, 0.19744, 0.0054136, -0.00030788, 0.077511, 0.077653, -0.011097),
    (8, 64, 0.43478, -0.069083, -0.0011864, 0.85698, 0.91476, -0.11963),
    (8, 64, 0.82338, -0.18305, 0.0053683, 1.9791, 1.981, -0.25731),
    (8, 64, 1.4291, -0.23057, 0.0048586, 3.1438, 3.1294, -0.41516),
    (8, 64, 2.1916, -0.23062, 0.0043994, 3.9656, 3.9939, -0.52657),
)


def point(i):
    """(Problem, OrderParameters) number i."""
    rng = np.random.default_rng([i, 7])
    D, d = int(rng.choice([2, 3, 4, 5, 6, 8, 12, 16, 24, 32])), int(rng.choice([1, 1, 2, 3, 4, 8, 64]))
    n = max(d - 1, 1)
    if i % 3 == 0:
        D, d, *order = PATHS[rng.integers(len(PATHS))]
        order = np.array(order) * np.exp(0.05 * rng.standard_normal(6))
    elif i % 3 == 1:
        order = np.array([8 / np.sqrt(D) * rng.uniform() * rng.uniform(), rng.normal(0, 0.15),
                          rng.normal(0, 0.03) / np.sqrt(n), *rng.normal(0, 2, 3)])
    else:
        kind = rng.integers(3)
        a = rng.normal() * (10**rng.uniform(-1, 2) if kind == 0 else 0.3)
        gap = 10**rng.uniform(0, 3.7) if kind == 1 else 3.0
        order = np.array([10**rng.uniform(-1, 1.5) / np.sqrt(D), a,
                          rng.normal(0, 0.3) * 10**rng.uniform(-2, 0.5) / np.sqrt(n), *(rng.normal(0, 1, 3) * gap)])
    order[2] *= d > 1
    if D == 2:
        order[5] = -order[4]
    return Problem(d, D), OrderParameters(*order)


def numbers(found):
    """(loss, six velocities) and their errors, each (7,)."""
    return (np.array([found.loss, *found.velocity.to_array()]),
            np.array([found.loss_error, *found.velocity_error.to_array()]))


def scale(problem, value):
    """Units (7,) of rtol: the loss, and the largest velocity at equal learning rates."""
    scales = velocity_scales(problem)
    return np.array([abs(value[0]), *(np.max(np.abs(value[1:]) / scales) * scales)])


def grid(problem, order, base):
    """(value, error) (7,) of the sparse grid around `base` at rtol/50, sigma = 1; None if it has nothing to say."""
    law, layer, s_irr = reduced_law(problem, order)
    lengths = 1 / velocity_scales(problem)

    def worst(value, error):
        return np.max(error[:7] / scale(problem, value[:7]))
    with np.errstate(all="ignore"):
        value, error, _ = sparse_grid(law, layer, s_irr, lengths, worst, RTOL / 50, 16 * BUDGET, base)
    if problem.D == 2:
        value[6], error[6] = -value[5], error[5]
    return value[:7], error[:7]


def reference(i):
    """Value and error (7,) of the best of much finer rules: the sparse grid around each of its bases, a tensor rule;
    and, where none of them is known to 2e-5, rqmc at 16 times the budget."""
    problem, order = point(i)
    others = ("few",) if problem.D <= 5 else ("zero",) if reduced_law(problem, order)[2] <= 1 else ()
    candidates = [grid(problem, order, base) for base in (*others, "mean")]
    if problem.D == 2 or (problem.D == 3 and problem.d <= 2):
        candidates.append(numbers(population(problem, order, rule="tensor", rtol=RTOL / 100, max_nodes=16 * BUDGET)))

    def size(pair):
        with np.errstate(all="ignore"):
            worst = np.max(pair[1] / scale(problem, pair[0]))
        return worst if np.isfinite(worst) else np.inf
    if min(map(size, candidates)) > 2e-5:
        candidates.append(numbers(population(problem, order, rule="rqmc", rtol=1e-8, max_nodes=16 * BUDGET,
                                             seed=1000 + i)))
    return min(candidates, key=size)


def stored():
    """{i: (value, error)} of the stored references."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return {int(i): (np.array(value), np.array(error)) for i, (value, error) in rows.items()}


def excess(i, known):
    """|value - reference| / (estimate + error of the reference), the largest of the seven, of rule `auto`."""
    problem, order = point(i)
    value, error = numbers(population(problem, order, rtol=RTOL, max_nodes=BUDGET))
    truth, truth_error = known[i]
    rounding = 1e-13 * scale(problem, truth)
    return float(np.max(np.abs(value - truth) / (error + truth_error + rounding)))


def main():
    """Compute the references of the points given as FIRST LAST (default: all; a quarter of an hour on two cores) and
    write them, one line a point; those of other points stay."""
    known = stored() if FILE.exists() else {}
    chosen = range(*map(int, sys.argv[1:3])) if len(sys.argv) > 2 else (*range(POINTS), *FRESH)
    with ProcessPoolExecutor() as pool:
        known.update(zip(chosen, pool.map(reference, chosen)))
    rows = [f'"{i}": {json.dumps([value.tolist(), error.tolist()])}' for i, (value, error) in sorted(known.items())]
    write_text(FILE, "{" + ",\n".join(rows) + "}\n")


if __name__ == "__main__":
    main()
