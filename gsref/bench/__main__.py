"""`python -m gsref.bench NAME [options]`: arguments to calls, nothing else."""

import importlib
import pkgutil
import sys

import gsref.bench
from gsref.commands import OK, USAGE

HELPERS = ("growth", "meters", "peers")


def main(argv):
    """Run the benchmark that the first argument names; exit status 2 and the list of names if there is none such, the list alone for --help."""
    found = (module.name for module in pkgutil.iter_modules(gsref.bench.__path__))
    names = sorted(name for name in found if not name.startswith("_") and name not in HELPERS)
    if argv and argv[0] in ("-h", "--help"):
        print("usage: python -m gsref.bench NAME [options]\n\nTimes printed as tables; NAME --help says which.\n")
        for name in names:
            print(f"  {name:12s}{importlib.import_module(f'gsref.bench.{name}').__doc__.splitlines()[0]}")
        return OK
    if not argv or argv[0] not in names:
        got = f"got {argv[0]!r}" if argv else "no benchmark named"
        sys.stderr.write(f"python -m gsref.bench: {got}, expected one of {', '.join(names)}\n")
        return USAGE
    return importlib.import_module(f"gsref.bench.{argv[0]}").main(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
