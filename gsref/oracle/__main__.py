"""python -m gsref.oracle: check, cases, mutants, export, verify.  Arguments to calls, nothing else.

Exit status: 0 pass, 1 fail, 2 usage (one line on stderr says what and where), 3 inconclusive.
"""

import math
import os
import sys
from pathlib import Path

from gsref.commands import INTERRUPTED, Parser, Progress, UsageError, integer_option, option
from gsref.files import DamagedFile
from gsref.oracle import table
from gsref.oracle.loading import load_candidate, load_object
from gsref.oracle.precision import PRECISIONS
from gsref.oracle.system import TRANSFORMER, System
from gsref.oracle.vectors import FORMATS, export
from gsref.oracle.verdict import UnknownCase, check
from gsref.oracle.verify import verify

STATUS = {"pass": 0, "fail": 1, "inconclusive": 3}


def parser():
    top = Parser(prog="python -m gsref.oracle", description="Check another implementation of the model and its gradient. "
                 "Exit status: 0 pass, 1 fail, 2 usage, 3 inconclusive.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name, body, text):
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(body=body)
        sub.add_argument("--system", default=None, metavar="M:S", help="another model: package.module:name of its System")
        return sub

    def cases(sub, ids=True):
        if ids:
            sub.add_argument("--case", action="append", metavar="ID", help="only this case (may be repeated)")
        sub.add_argument("--thorough", action="store_true", help="the larger set of cases")
        sub.add_argument("--seed", type=integer_option(0), default=0, metavar="N", help="another draw of the same set")

    def dtype(sub):
        sub.add_argument("--dtype", choices=tuple(PRECISIONS), default="float64", help="the working precision (default float64)")

    def files(sub):
        sub.add_argument("--json", type=Path, metavar="F", help="write the report as JSON")
        sub.add_argument("--junit", type=Path, metavar="F", help="write the report as JUnit XML")

    sub = command("check", _check, "check a Python function candidate(v, W, X, y, P) -> (loss, dv, dW)")
    sub.add_argument("candidate", metavar="package.module:function")
    dtype(sub), cases(sub), files(sub)
    sub.add_argument("--strict", action="store_true",
                     help="no allowance for the cancellation in u_i - ubar_j when one score dominates")
    sub.add_argument("--rejects", action="store_true", help="also: unusable inputs must raise an exception")
    sub.add_argument("--tolerance", default=1.0, metavar="X",
                     type=option(float, "a number > 0", lambda x: 0 < x < math.inf), help="a multiple of the derived tolerances")

    sub = command("cases", _cases, "list the cases: sizes, what each is for, what it cannot show")
    dtype(sub), cases(sub, ids=False)

    sub = command("mutants", _mutants, "run the known-wrong candidates and print which case catches which")
    sub.add_argument("--dtype", action="append", choices=tuple(PRECISIONS), help="may be repeated; default: every precision")
    cases(sub, ids=False)

    sub = command("export", _export, "write inputs and expected values for other languages")
    sub.add_argument("folder", type=Path, metavar="DIR")
    sub.add_argument("--format", choices=FORMATS, default="npy", help="one .npy a tensor (default) or one .npz a case")
    dtype(sub), cases(sub, ids=False)

    sub = command("verify", _verify, "check results that another language computed from an export")
    sub.add_argument("folder", type=Path, metavar="DIR")
    sub.add_argument("results", type=Path, metavar="RESULTS")
    sub.add_argument("--case", action="append", metavar="ID", help="only this case (may be repeated)")
    files(sub)
    return top


def _check(args, system):
    _writable(args)
    candidate = load_candidate(args.candidate)
    report = check(candidate, args.dtype, cases=args.case, thorough=args.thorough, seed=args.seed, strict=args.strict,
                   rejects=args.rejects, tolerance=args.tolerance, system=system, name=args.candidate)
    return _finish(report, args)


def _verify(args, system):
    _writable(args)
    return _finish(verify(args.folder, args.results, args.case, system), args)


def _finish(report, args):
    if args.json:
        report.to_json(args.json)
    if args.junit:
        report.to_junit(args.junit)
    print(report, flush=True)
    return STATUS[report.verdict]


def _writable(args):
    """Refuse a report file that cannot be written before anything is computed."""
    for name in ("json", "junit"):
        path = getattr(args, name)
        if path is not None and (path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK)):
            raise UsageError(f"--{name}: cannot write {str(path)!r}, expected a file in a writable folder")


def _cases(args, system):
    print(table.listing(args.dtype, system, args.seed, args.thorough), flush=True)
    return 0


def _mutants(args, system):
    progress, found = Progress(), {}
    dtypes = list(dict.fromkeys(args.dtype or PRECISIONS))
    for k, dtype in enumerate(dtypes):
        def show(fraction):
            progress.show(f"known faults in {dtype}", (k + fraction) / len(dtypes))
        found[dtype] = table.catches(dtype, system, args.seed, args.thorough, progress=show)
    progress.close()
    print(table.text(found), flush=True)
    return 0 if all(ids for caught in found.values() for ids in caught.values()) else 1


def _export(args, system):
    manifest = export(args.folder, args.dtype, args.format, system, args.seed, args.thorough)
    refused = sum(entry["result"] == "reject" for entry in manifest["cases"])
    print(f"{args.folder}: {len(manifest['cases']) - refused} cases and {refused} inputs to be rejected, {args.dtype}; "
          f"results go to one folder, see manifest.json; then: python -m gsref.oracle verify {args.folder} RESULTS")
    return 0


def main(argv=None):
    """Parse, run, return the exit status."""
    top = parser()
    args = top.parse_args(argv)
    try:
        system = TRANSFORMER if args.system is None else load_object(args.system, "--system")
        if not isinstance(system, System):
            raise UsageError(f"--system: {args.system!r} is a {type(system).__name__}, expected a System")
        return args.body(args, system)
    except (UsageError, DamagedFile) as problem:
        top.error(str(problem))
    except UnknownCase as problem:
        top.error(f"--{problem}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())     # the reader (head, less) has seen enough
        return STATUS["fail"]
    except OSError as problem:
        top.error(f"{problem.filename}: {problem.strerror}")
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{top.prog}: interrupted\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
