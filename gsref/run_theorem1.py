"""Check the published theorem on population gradient descent: `python -m gsref.run_theorem1`.

Follows population gradient descent from zero for each number of groups D until the loss is below 1/D^2 and below the
smallest --eps, judges the claims A1 to A5 of the theorem (and our law of the late phase), prints them as a table, and
writes report.json, trajectory.npz and pictures (PNG, SVG, each with its numbers as JSON) to --out. Takes about two
minutes with the default sizes. Exit status: 0, also when claims fail (--strict: 1 then), 2 for a bad option, 130 when
interrupted.
"""

import sys
import time
from dataclasses import asdict, replace

import numpy as np

from gsref import stability, theorem1
from gsref.attention import attention_law, mean_attention
from gsref.commands import (FAILED_CLAIM, OK, Parser, Progress, UsageError, add_run_options, integer_option,
                            number_option, open_checkpoint, option, output_folder, positive_option, run, unusable)
from gsref.descent import Trajectory, descend
from gsref.files import write_arrays, write_text
from gsref.learning_rate import ALLOWED, LearningRate
from gsref.order import OrderParameters
from gsref.population import MODES
from gsref.problem import Problem
from gsref.report import table, to_json, versions

FLOW = 1e-3                                    # the flow takes over when its last term is below a thousandth of a step
SAVE_EVERY = 5.0                               # seconds between checkpoints
MAX_EXACT = 20_000                             # a path that still jumps about after so many steps is left there
MAX_STEPS = {"full": 10**15, "position_only": 10**30}
FLOW_FROM = {"full": 100, "position_only": 10}  # steps before which exact steps are the cheaper way
PER_DECADE = {"full": 20, "position_only": 40}  # rows of a trajectory
MAP_ROWS = 64                                  # of a picture of the attention matrix: more are not readable
LAW_SIZES = (16, 64, 256, 1024, 4096)          # position-only sizes beside the full runs, for the laws in D
LAW_EPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)


def parser():
    parse = Parser(prog="python -m gsref.run_theorem1", description=__doc__.split("\n\n")[1])
    sizes = option(lambda text: sorted({int(part) for part in text.split(",")}), "integers from 2 to 65536, as in 4,6,8",
                   lambda D: 2 <= D[0] and D[-1] <= 65536)
    losses = option(lambda text: sorted({float(part) for part in text.split(",")}, reverse=True),
                    "numbers between 0 and 0.69, as in 0.1,0.01", lambda eps: 0 < eps[-1] and eps[0] < 0.69)
    parse.add_argument("--d", type=integer_option(1, 4096), default=None, metavar="N",
                       help="features a group (default 4; --quick: 1)")
    parse.add_argument("--D", type=sizes, default=None, metavar="LIST", help="numbers of groups (default 8,16,32)")
    parse.add_argument("--eps", type=losses, default=None, metavar="LIST",
                       help="losses whose times are tabulated; a run goes on to the smallest (default 0.1,0.03,0.01,1e-3,1e-4; "
                       "where full mode has a D below 8, whose late expectations are expensive, to 0.01)")
    parse.add_argument("--eta", type=option(LearningRate.parse, ALLOWED), default=LearningRate.parse("0.5/D"),
                       metavar="RULE", help=f"learning rate: {ALLOWED} (default 0.5/D)")
    parse.add_argument("--sigma", type=number_option(1e-100, 1e3), default=1.0, metavar="X",
                       help="standard deviation of a feature (default 1)")
    parse.add_argument("--mode", choices=MODES, default="full", help="full, or position_only: W11 frozen at zero")
    parse.add_argument("--rtol", type=positive_option(0.1), default=2e-3, metavar="X",
                       help="relative accuracy asked of each expectation (default 2e-3)")
    parse.add_argument("--steps", type=integer_option(1, 10**40), default=None, metavar="N",
                       help="give up on a run after N steps (default 10^15, position-only 10^30: late steps are followed "
                       "as a flow)")
    add_run_options(parse, "theorem1-out")
    return parse


def follow(args, problem, eta, mode, target, resumed, save, progress):
    """The trajectory of one problem until its loss is `target`, from the rows of `resumed` if there are any."""
    saved, latest = [time.monotonic()], [None]

    def callback(step, order, found):
        progress(step, found.loss, target)
        return found.loss <= target

    def checkpoint(rows):
        latest[0] = rows
        if time.monotonic() - saved[0] > SAVE_EVERY:
            keep()

    def keep():
        path = latest[0]()
        save(resumed.join(path) if resumed else path)
        saved[0] = time.monotonic()

    go_on = {} if resumed is None else {"start": OrderParameters.from_array(resumed.order[-1]),
                                        "first_step": int(resumed.step[-1]), "switch": resumed.switch}
    steps = args.steps or MAX_STEPS[mode]
    try:
        path = descend(problem, eta, max(steps - go_on.get("first_step", 0), 0), mode, rtol=args.rtol, callback=callback,
                       flow=FLOW, flow_from=FLOW_FROM[mode], per_decade=PER_DECADE[mode], max_exact=MAX_EXACT,
                       checkpoint=checkpoint, seed=args.seed, **go_on)
    except KeyboardInterrupt:
        if latest[0]:
            keep()
        raise
    except (ValueError, ArithmeticError) as trouble:               # the path left what float64 holds
        if not latest[0]:
            raise
        path = latest[0]()
        sys.stderr.write(f"{mode} D = {problem.D}: left after step {path.step[-1]:,} ({trouble})\n")
    return resumed.join(path) if resumed else path


def plan(args):
    """What to run: (mode, D, target loss), the runs of the report first."""
    rows = [(args.mode, D, min(1 / D**2, min(args.eps))) for D in args.D]
    return rows + [("position_only", D, min(1 / D**2, min(LAW_EPS))) for D in args.laws]


def check_rates(args):
    """UsageError if a rule for the learning rate gives 0 or inf at one of the sizes."""
    for D in () if args.eta.stable else (*args.D, *args.laws):
        try:
            eta = args.eta.at(Problem(args.d, D, args.sigma))
        except OverflowError:
            eta = np.inf
        if not 0 < eta < np.inf:
            raise UsageError(f"--eta: got {args.eta.text!r}, which is {eta:g} at D = {D}, expected a finite number > 0")


def paths(args, progress):
    """All runs of the plan, each going on from the checkpoint where there is one."""
    checkpoint, kept = open_checkpoint(args)
    rows, runs = plan(args), []
    for k, (mode, D, target) in enumerate(rows):
        problem, prefix = Problem(args.d, D, args.sigma), f"{mode}_D{D}/"
        eta = stability.stable_eta(problem, mode, seed=args.seed) if args.eta.stable else args.eta.at(problem)
        mine = {key.removeprefix(prefix): value for key, value in kept.items() if key.startswith(prefix)}
        try:
            resumed = Trajectory.from_arrays(mine) if mine else None
        except ValueError as damage:
            raise unusable(checkpoint, damage) from None

        def save(path):
            kept.update({prefix + key: value for key, value in path.arrays().items()})
            checkpoint.save(kept)
        done = resumed is not None and resumed.loss[-1] <= target
        path = resumed if done else follow(args, problem, eta, mode, target, resumed, save,
                                           lambda *state: progress.step(k, len(rows), f"{mode} D = {D}", *state))
        save(path)
        runs.append(theorem1.Run(problem, mode, args.eta, eta, path))
    return runs, checkpoint


class RunProgress:
    """Progress of several runs: how far each is from log 2 to its target on a log scale."""

    def __init__(self):
        self.line, self.started = Progress(), None

    def step(self, k, n, name, step, loss, target):
        share = np.clip(np.log(np.log(2) / loss) / np.log(np.log(2) / target), 0, 1)
        self.line.show(f"{name}: step {step:,}, loss {loss:.3g} (to {target:.3g})", (k + share) / n)


def quantiles(run, per_decade, seed):
    """(rows, worst leak) of a run, on a thin grid of rows: the 1 % quantile of the attention, as a leak."""
    step = run.trajectory.step
    n = max(2, int(per_decade * np.log10(max(step[-1], 10))))
    rows = np.unique(np.searchsorted(step, np.unique(np.round(np.geomspace(1, max(step[-1], 1), n)))))
    rows = np.unique([0, *np.clip(rows, 0, len(step) - 1)])
    size = 4096 if run.problem.D <= 16 else 1024
    return rows, np.array([attention_law(run.problem, run.order(i), run.mode, size, seed).worst_leak for i in rows])


def body(args):
    args.d = args.d or (1 if args.quick else 4)
    args.D = args.D or ([4, 6] if args.quick else [8, 16, 32])
    deep = args.mode == "position_only" or args.D[0] >= 8
    args.eps = args.eps or ([0.1] if args.quick else [0.1, 0.03, 0.01, 1e-3, 1e-4] if deep else [0.1, 0.03, 0.01])
    args.laws = () if args.quick or args.mode != "full" else LAW_SIZES
    check_rates(args)
    output_folder(args.out)
    progress = RunProgress()
    runs, checkpoint = paths(args, progress)
    main, laws_of_D = runs[:len(args.D)], runs[len(args.D):]
    laws = [quantiles(r, 6 if args.quick else 12, args.seed) for r in main]
    checks = theorem1.checks(main, args.eps, args.seed, [law[1][-1] for law in laws])
    stable = None if args.quick else max((r for r in main if r.problem.D <= 64), key=lambda r: r.problem.D, default=None)
    try:
        lines = stability.describe(stable.problem, stable.trajectory, stable.eta, stable.mode, args.seed) if stable else []
    except ArithmeticError as trouble:         # absurd learning rates: the state itself is reported, its curvature is not
        lines = [f"not known: the second derivative leaves float64 on this path ({trouble})"]
    checks[0] = replace(checks[0], details=checks[0].details | {"stability": lines})
    if laws_of_D:
        checks += [replace(check, id=f"{check.id}/position-only")
                   for check in theorem1.scaling_checks(laws_of_D, LAW_EPS)]
    progress.line.close()
    print(table(checks))
    if lines:
        print(f"\nA1, is the symmetric path stable?  (D = {stable.problem.D}, eta = {stable.eta:.4g})", *lines, sep="\n  ")
    write_outputs(args, main, laws_of_D, laws, checks)
    checkpoint.remove()
    print(f"\nwritten to {args.out}: report.json, trajectory.npz, pictures")
    return FAILED_CLAIM if args.strict and any(check.verdict == "fails" for check in checks) else OK


def write_outputs(args, runs, laws_of_D, laws, checks):
    from gsref import plots                    # here: a bad option or an unwritable folder need not wait for matplotlib

    arrays = {}
    for r, (rows, worst) in zip(runs, laws):
        prefix = f"{r.mode}_D{r.problem.D}/"
        arrays |= {prefix + name: value for name, value in r.trajectory.arrays().items()}
        arrays |= {prefix + "quantile_step": r.trajectory.step[rows], prefix + "attention_1pct": 1 - worst,
                   prefix + "worst_leak_99pct": worst}
    for r in laws_of_D:
        arrays |= {f"{r.mode}_D{r.problem.D}/{name}": value for name, value in r.trajectory.arrays().items()}
    write_arrays(args.out / "trajectory.npz", arrays)
    drawn = {"times_position_only": plots.times_to_loss(laws_of_D, LAW_EPS)} if laws_of_D else {}
    largest = max((r for r in runs if r.problem.D <= MAP_ROWS), key=lambda r: r.problem.D, default=None)
    if largest:
        maps = [(row, mean_attention(largest.problem, largest.order(row), largest.mode, 4096, args.seed))
                for row in (0, *largest.stages()[1:])]
        drawn["attention"] = plots.attention_maps(largest, maps)
    else:
        sys.stderr.write(f"no picture of the attention matrix: every D is above {MAP_ROWS}\n")
    for name, (picture, data) in {
            **drawn, "loss": plots.loss_against_steps(runs), "leak": plots.leak_against_steps(runs, laws),
            "order": plots.order_parameters(runs), "times": plots.times_to_loss(runs, args.eps)}.items():
        plots.save(picture, args.out, name, data)
    write_text(args.out / "report.json", to_json({
        "problem": {"d": args.d, "D": args.D, "sigma": args.sigma, "relevant": 0, "mode": args.mode},
        "learning_rate_rule": args.eta.text, "eps": args.eps,
        "rtol": args.rtol, "seed": args.seed, "versions": versions(),
        "runs": [{"mode": r.mode, "D": r.problem.D, "eta": r.eta, "steps": int(r.trajectory.step[-1]),
                  "loss": r.trajectory.loss[-1], "flow_from_step": r.trajectory.switch} for r in [*runs, *laws_of_D]],
        "checks": [asdict(check) for check in checks]}))


def main(argv=None):
    return run(parser(), argv, body)


if __name__ == "__main__":
    sys.exit(main())
