"""What does `package.module:name` mean?  Imports a candidate or a system, or says in one line why not."""

import importlib

from gsref.commands import UsageError


def load_object(spec, what):
    """The object that `spec` names; UsageError if it cannot be imported."""
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"{what}: got {spec!r}, expected package.module:name")
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as problem:                # the module is the user's code: it may raise anything
        text = str(problem).strip().splitlines()
        raise UsageError(f"{what}: cannot import {module!r} ({type(problem).__name__}: {text[0] if text else ''})") from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{what}: {module!r} has no {part!r}") from None
    return found


def load_candidate(spec):
    candidate = load_object(spec, "candidate")
    if not callable(candidate):
        raise UsageError(f"candidate: {spec!r} is a {type(candidate).__name__}, expected something that can be called")
    return candidate
