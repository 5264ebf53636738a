"""Show whether the symmetric path is stable: `python -m gsref.run_stability`.

At D = 8 it runs gradient descent of all parameters on a sample that is closed under the symmetries, at a learning
rate that breaks them and at the stable one, beside the growth of rounding that the multipliers predict, for the
sample and for the law. Then tabulates the stable learning rate, the extreme multipliers with their blocks at three
stages, and the predicted step of the break for several D. Prints tables, writes report.json and the picture (PNG,
SVG, JSON) to --out. Takes about a minute and a half; --quick, at d = 1, about ten seconds. Exit status: 0,
also when claims fail (--strict: 1 then), 2 for a bad option, 130 when interrupted.
"""

import sys
from dataclasses import asdict

import numpy as np

from gsref.commands import (FAILED_CLAIM, OK, Parser, Progress, add_run_options, integer_option, output_folder,
                            positive_option, run)
from gsref.descent import descend
from gsref.files import write_text
from gsref.full_run import GROUPS, LED, closed_sample, full_run, growth_compared, predicted_growth
from gsref.order import OrderParameters
from gsref.problem import Problem
from gsref.report import Check, table, to_json, versions
from gsref.stability import PATH_NODES, PATH_RTOL, extreme_multipliers, growth, stable_eta, stable_path, thinned

SIZES = {"position_only": (4, 8, 16, 64, 256, 1024), "full": (4, 8)}
QUICK = {"position_only": (4, 16), "full": ()}
LINEAR = 0.01                                  # what terms of second order in a residual below 1e-3 may add up to
STAGES = (("start", 0), ("transition", 0.5), ("late", 0.1))


def parser():
    parse = Parser(prog="python -m gsref.run_stability", description=__doc__.split("\n\n")[1])
    parse.add_argument("--d", type=integer_option(1, 3), default=None, metavar="N",
                       help="features a group (default 2; --quick: 1)")
    parse.add_argument("--eta", type=positive_option(10), default=0.5, metavar="X",
                       help="the rate that breaks the symmetry at D = 8 (default 0.5)")
    parse.add_argument("--points", type=integer_option(8, 4096), default=32, metavar="N",
                       help="points of the closed sample, before their images (default 32)")
    add_run_options(parse, "stability-out", resume=False)
    return parse


def demonstration(problem, eta, n_steps, points, seed, every):
    """At one rate: the run of all parameters, the growth that its sample predicts (H at every `every` steps), and the
    one of the law."""
    X, y = closed_sample(problem, points, seed)
    measured = full_run(problem, X, y, eta, n_steps)
    projected = full_run(problem, X, y, eta, n_steps, project=True)
    path = descend(problem, eta, n_steps, rtol=PATH_RTOL, max_nodes=PATH_NODES, seed=seed)
    return {"eta": eta, "measured": measured, "broken": measured.broken,
            "predicted": predicted_growth(problem, X, y, eta, projected, every),
            "law": growth(problem, thinned(path), eta, until_broken=False, seed=seed)}


def stage_rows(problem, mode, eta_of_rows, seed):
    """Extreme multipliers at each rate and stage along the stable path of one problem: a list of mappings."""
    stable = eta_of_rows["stable"]
    path, rows = stable_path(problem, stable, mode), []
    for name, leak in STAGES:
        i = 0 if name == "start" else int(np.argmin(np.abs(path.leak - leak)))
        order = OrderParameters.from_array(path.order[i])
        for rate, eta in eta_of_rows.items():
            low, high = extreme_multipliers(problem, order, eta, mode, seed=seed)
            rows.append({"mode": mode, "D": problem.D, "stage": name, "attention": path.attention[i], "rate": rate,
                         "eta": eta, "lowest": low, "highest": high})
    return rows


def growth_check(breaking):
    """S1: rounding grows in the run of all parameters by the factor that its sample predicts, until it breaks."""
    found, law = (breaking[name].broken for name in ("measured", "law"))
    compared = growth_compared(breaking["measured"], breaking["predicted"])
    ends = f"broken at step {found}" if found else "not broken"
    text = f"{ends} (the law with rounding of 2^-52 a step: {law or 'never'})"
    if compared is None:                       # nothing to compare: neither of them has grown, or one has
        quiet = breaking["predicted"].residual[-1] <= LED * breaking["predicted"].size[-1]
        verdict = "holds" if quiet and not found else "undecided"
        return Check("S1", f"at eta = {breaking['eta']:g} rounding grows as predicted", "stays at rounding", text,
                     "-", verdict)
    first, last, measured, said = compared
    return Check("S1", f"at eta = {breaking['eta']:g} rounding grows as predicted, until it breaks the symmetry",
                 f"x {said:.4g} from step {first} to {last}", f"x {measured:.4g}; {text}", f"{LINEAR:.0%}, not linear",
                 "holds" if abs(measured / said - 1) <= LINEAR else "fails")


def checks_of(breaking, stable):
    """The demonstration as `report.Check`s."""
    largest, allowed = stable["measured"].residual.max(), stable["predicted"].residual.max()
    return [growth_check(breaking),
            Check("S2", f"at the stable rate {stable['eta']:.4g} it does not", f"residual below 30 x {allowed:.1g}",
                  f"largest residual {largest:.2g} in {stable['measured'].step[-1]} steps",
                  "exact", "holds" if stable["broken"] is None and largest <= 30 * allowed else "fails")]


def body(args):
    args.d = args.d or (1 if args.quick else 2)
    output_folder(args.out)
    progress, rows, rates = Progress(), [], []
    problem = Problem(args.d, GROUPS)
    stable = stable_eta(problem, seed=args.seed)
    progress.show("stable rate at D = 8", 0.2)
    points = min(args.points, 16) if args.quick else args.points
    breaking = demonstration(problem, args.eta, 45, points, args.seed, every=1)
    progress.show("the run that breaks", 0.4)
    calm = demonstration(problem, stable, 40 if args.quick else 120, points, args.seed, every=10)
    for mode, sizes in (QUICK if args.quick else SIZES).items():
        for D in sizes:
            one = Problem(args.d, D)
            eta = stable_eta(one, mode, seed=args.seed)
            start = 16 / (D * (D + 1))
            rates.append({"mode": mode, "D": D, "stable_eta": eta, "start": start, "bound": start / D})
            rows += stage_rows(one, mode, {"stable": eta, "0.5": 0.5}, args.seed)
            progress.show(f"{mode} D = {D}", 0.6)
    progress.close()
    checks = checks_of(breaking, calm)
    print(table(checks))
    print("\nStable rates (no multiplier below -1 on the path), and 16/(D (D+1)), 16/(D^2 (D+1)):")
    for r in rates:
        print(f"  {r['mode']:14s}D = {r['D']:<6d}{r['stable_eta']:10.4g}{r['start']:12.4g}{r['bound']:12.4g}")
    print("\nLowest and highest multiplier off the manifold, along the stable path:")
    for r in rows:
        print(f"  {r['mode']:14s}D = {r['D']:<6d}{r['stage']:12s}S = {r['attention']:<7.3f}eta = {r['eta']:<10.4g}"
              + "  ".join(f"{mu:9.4g} +- {error:.1g} ({block})" for mu, block, error in (r["lowest"], r["highest"])))
    from gsref import plots                    # here: a bad option need not wait for matplotlib

    picture, data = plots.symmetry_breaking([breaking, calm])
    plots.save(picture, args.out, "stability", data)
    write_text(args.out / "report.json", to_json({
        "d": args.d, "D": GROUPS, "seed": args.seed, "versions": versions(), "points": points, "stable_rates": rates,
        "multipliers": rows, "checks": [asdict(check) for check in checks]}))
    print(f"\nwritten to {args.out}: report.json, stability.png, .svg and .json")
    return FAILED_CLAIM if args.strict and any(check.verdict == "fails" for check in checks) else OK


def main(argv=None):
    return run(parser(), argv, body)


if __name__ == "__main__":
    sys.exit(main())
