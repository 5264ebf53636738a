"""What do expectations cost, and are their errors what they say?  `python -m gsref.bench population [--point ...]`.

Prints ratios, which carry over between machines, beside the times they come from.
"""

import time

import numpy as np

from gsref.bench.meters import best_time, peak_memory
from gsref.commands import OK, Parser, UsageError
from gsref.exchangeable import ExchangeableGrid
from gsref.order import OrderParameters
from gsref.population import RULES, population, reduced_law, velocity_scales
from gsref.problem import Problem

# a point in the middle of a path of training (D = 8, d = 4, sigma = 1, eta = 0.3, 20 steps)
MIDDLE = OrderParameters(0.8191, -0.1861, 0.0263, 2.0662, 1.9632, -0.2548)
EIGHT = Problem(4, 8)
LEVEL = (3, 3, 2)            # level, fine rule, orthogonal row: what rtol = 1e-4 takes around the mean group


def small_time(call, calls=2000):
    """Seconds a call, of many in a row: the fastest of five rounds."""
    return best_time(lambda: [call() for _ in range(calls)], 5) / calls


def numbers(found):
    """(loss, six velocities) and their errors, each (7,)."""
    return (np.array([found.loss, *found.velocity.to_array()]),
            np.array([found.loss_error, *found.velocity_error.to_array()]))


def relative(problem, difference, value):
    """The size of `difference` (7,) in the sense of rtol: against the loss, and the largest velocity in equal units."""
    scales = velocity_scales(problem)
    return max(abs(difference[0]) / abs(value[0]),
               np.max(np.abs(difference[1:]) / scales) / np.max(np.abs(value[1:]) / scales))


def scaled_up(D):
    """The middle point at another D: the same attention on the relevant group and the same s_irr."""
    shift = np.log((D - 1) / 7)
    return OrderParameters(MIDDLE.alpha * np.sqrt(7 / (D - 1)), MIDDLE.a, MIDDLE.b, MIDDLE.m_rr + shift,
                           MIDDLE.m_ro + shift, MIDDLE.m_oo)


def level_time(D, d):
    """Seconds of the sparse grid around the mean group at LEVEL."""
    law, layer, s_irr = reduced_law(Problem(d, D), scaled_up(D))
    lengths = 1 / velocity_scales(Problem(d, D))
    return best_time(lambda: ExchangeableGrid(law, layer, s_irr, lengths, "mean").estimate(*LEVEL))


def cost_at_error(target=1e-5):
    """(seconds of the sparse grid, seconds of rqmc, exponent or None) at actual error `target`, D = 8, d = 4.

    The truth is the sparse grid at rtol 1e-6.  The error of rqmc is the root mean square over seeds; beyond 2^20 nodes
    it is extrapolated with the rate measured over the last three doublings, and the exponent is returned.
    """
    problem = EIGHT
    truth, _ = numbers(population(problem, MIDDLE, rule="sparse_grid", rtol=2e-6))
    for rtol in (1e-3, 3e-4, 1e-4, 3e-5, 1e-5):
        def call():
            return population(problem, MIDDLE, rule="sparse_grid", rtol=rtol)
        value, _ = numbers(call())
        if relative(problem, value - truth, truth) <= target:
            break
    grid = best_time(call, 3)
    errors, times = [], []
    for nodes in (2**17, 2**18, 2**19, 2**20):
        start = time.perf_counter()
        squares = [relative(problem, numbers(population(problem, MIDDLE, rule="rqmc", rtol=1e-12, max_nodes=3 * nodes,
                                                        seed=seed))[0] - truth, truth)**2 for seed in range(3)]
        times.append((time.perf_counter() - start) / 3)
        errors.append(np.sqrt(np.mean(squares)))
        if errors[-1] <= target:
            return grid, times[-1], None
    rate = min(-np.polyfit(np.log(times), np.log(errors), 1)[0], 1.5)
    return grid, times[-1] * (errors[-1] / target)**(1 / rate), rate


def report(out):
    """Print the table of costs."""
    unit = best_time(lambda: np.exp(np.linspace(0, 1, 10**6))) - best_time(lambda: np.linspace(0, 1, 10**6))
    array = np.ones(8)
    small = small_time(lambda: np.add(array, array))
    flat = OrderParameters(0.8, 0, 0, 2.0, 1.9, -0.25)
    step = small_time(lambda: population(EIGHT, flat, mode="position_only"), 500)
    out(f"np.exp on 10^6 doubles        {1e3 * unit:8.2f} ms        one small NumPy call {1e6 * small:6.2f} us")
    out(f"position-only step            {1e6 * step:8.1f} us        {step / small:6.0f} small calls   (at most 60 us)")
    full = best_time(lambda: population(EIGHT, MIDDLE, rtol=1e-4))
    out(f"full, D = 8, d = 4, rtol 1e-4 {1e3 * full:8.1f} ms        {full / unit:6.1f} np.exp       (at most 20)")
    base = level_time(8, 4)
    out(f"sparse grid at level {LEVEL[0]}: {1e3 * base:.1f} ms at D = 8, d = 4; ratios to it (at most 1.5):")
    ratios = [level_time(D, 4) / base for D in (64, 512, 4096)] + [level_time(8, d) / base for d in (64, 1000)]
    out("    " + "   ".join(f"{name} {ratio:.2f}" for name, ratio in
                          zip(("D=64", "D=512", "D=4096", "d=64", "d=1000"), ratios)))
    grid, rqmc, rate = cost_at_error()
    how = "measured" if rate is None else f"extrapolated with error ~ time^-{rate:.2f}"
    out(f"actual error 1e-5 at D = 8, d = 4: sparse grid {1e3 * grid:.0f} ms, rqmc {rqmc:.1f} s ({how}); "
        f"ratio {rqmc / grid:.0f} (at least 100)")
    out(f"peak memory of this process   {peak_memory():8.0f} MB                              (at most 300)")



def compare(problem, order, rtol, out):
    """Print all rules that apply at one point, side by side; the truth is the finest of them, run 100 times finer."""
    def run(rule, tolerance, nodes):
        start = time.perf_counter()
        found = population(problem, order, rule=rule, rtol=tolerance, max_nodes=nodes, seed=1 if nodes > 2**22 else 0)
        return found, time.perf_counter() - start

    def applies(rule):
        try:
            population(problem, order, rule=rule, rtol=1.0, max_nodes=1024)
        except ValueError:
            return False
        return True
    rules = [rule for rule in RULES[1:] if applies(rule)]
    finest = [run(rule, rtol / 100, 2**23)[0] for rule in rules]
    truth_value, truth_error = min(map(numbers, finest), key=lambda pair: relative(problem, pair[1], pair[0]))
    out(f"D = {problem.D}, d = {problem.d}, sigma = {problem.sigma:g}, rtol = {rtol:g}; errors relative as in rtol; "
        f"the truth is known to {relative(problem, truth_error, truth_value):.1e}")
    out(f"{'rule':12} {'loss':>16} {'estimate':>10} {'true error':>10} {'nodes':>9} {'ms':>9}  converged")
    for rule in rules:
        found, seconds = run(rule, rtol, 2**22)
        value, error = numbers(found)
        out(f"{rule:12} {found.loss:16.10g} {relative(problem, error, value):10.1e} "
            f"{relative(problem, value - truth_value, truth_value):10.1e} {found.n_nodes:9d} {1e3 * seconds:9.1f}  "
            f"{'yes' if found.converged else 'no'}")


def main(argv):
    parser = Parser(prog="python -m gsref.bench population", description=__doc__.splitlines()[0])
    parser.add_argument("--point", nargs=8, type=float, metavar=("D", "d", "ALPHA", "A", "B", "M_RR", "M_RO", "M_OO"),
                        help="compare all rules at one point (sigma = 1)")
    parser.add_argument("--rtol", type=float, default=1e-4, help="accuracy asked for with --point (default 1e-4)")
    args = parser.parse_args(argv)
    try:
        if args.point is None:
            report(print)
        else:
            D, d = (int(size) if size == int(size) else size for size in args.point[:2])
            compare(Problem(d, D), OrderParameters(*args.point[2:]), args.rtol, print)
    except (TypeError, ValueError, UsageError) as problem:
        parser.error(str(problem))
    return OK
