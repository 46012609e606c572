# SPDX-License-Identifier: Apache-2.0
"""weightbridge extract MODULE:FUNCTION   show what a loader does.
weightbridge local                      an operator and its agents on this machine.

Also as python -m weightbridge."""

import argparse
import importlib
import os
import sys
import traceback

from . import local
from .errors import WeightBridgeError
from .probing import LoadWeightsError, extract


def _where(e):
    """Where an exception of the user's code comes from, in brackets."""
    at = traceback.extract_tb(e.__traceback__)[-1] if e.__traceback__ else None
    return f" ({os.path.basename(at.filename)}, line {at.lineno})" if at and not isinstance(e, SyntaxError) else ""


def _told(e):
    """An exception of the user's code in one line: what, and where."""
    return f"{type(e).__name__}: {e}{_where(e)}"


def _target(text):
    """What MODULE:FUNCTION returns."""
    module, _, function = text.partition(":")
    if not module or not function:
        raise WeightBridgeError(f"{text!r} is not MODULE:FUNCTION")
    if module.endswith(".py") or "/" in module:
        raise WeightBridgeError(f"{module} is a file: name the module, as import does (it is looked "
                                "for in the current folder and in PYTHONPATH)")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ImportError as e:
        raise WeightBridgeError(f"module {module}: {e}") from e
    except (Exception, SystemExit) as e:
        raise WeightBridgeError(f"module {module} cannot be imported: {_told(e)}") from e
    for part in function.split("."):
        if not hasattr(found, part):
            raise WeightBridgeError(f"module {module} has no {function}")
        found = getattr(found, part)
    if not callable(found):
        raise WeightBridgeError(f"{text} is {type(found).__name__}, not a function")
    try:
        made = found()
    except (Exception, SystemExit) as e:
        raise WeightBridgeError(f"{text}() raised {_told(e)}; it is called without arguments") from e
    if isinstance(made, dict):
        missing = {"load_weights", "manifest", "params"} - set(made)
        if missing:
            raise WeightBridgeError(f"{text}() returned a dict without {', '.join(missing)}")
        return dict(made)
    try:
        load_weights, manifest, params = made
    except (TypeError, ValueError) as e:
        raise WeightBridgeError(
            f"{text}() must return (load_weights, manifest, params), or a dict of them") from e
    return {"load_weights": load_weights, "manifest": manifest, "params": params}


def _extract(args):
    try:
        options = _target(args.target)
        if args.framework:
            options["framework"] = args.framework
        if args.cache_dir:
            options["cache_dir"] = args.cache_dir
        found = extract(**options)
    except LoadWeightsError as e:
        print(f"weightbridge: {e}{_where(e.__cause__)}", file=sys.stderr)
        return 1
    except (WeightBridgeError, ImportError, TypeError, ValueError) as e:  # the last: what FUNCTION() returned
        print(f"weightbridge: {e}", file=sys.stderr)
        return 1
    except Exception as e:  # reload, progress
        print(f"weightbridge: {_told(e)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("weightbridge: interrupted", file=sys.stderr)
        return 130
    for line in found.notes.splitlines():
        print(f"weightbridge: {line}", file=sys.stderr)
    try:
        sys.stdout.write(found.to_json() if args.json else found.report())
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _local(args):
    try:
        return local.main(args)
    except (WeightBridgeError, OSError) as e:
        print(f"weightbridge: {e}", file=sys.stderr)
        return 1


def main(argv=None):
    prog = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=prog if prog == "weightbridge" else "python -m weightbridge", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser(
        "extract", allow_abbrev=False, help="show which checkpoint element each parameter element is a copy of",
        description="Probes the load_weights that FUNCTION() returns: a tuple (load_weights, "
                    "manifest, params), or a dict of these and other arguments of "
                    "weightbridge.extract.")
    p.add_argument("target", metavar="MODULE:FUNCTION")
    p.add_argument("--json", action="store_true", help="the whole map as JSON")
    p.add_argument("--framework", choices=("numpy", "torch"))
    p.add_argument("--cache-dir", metavar="DIR", help="keep maps there")
    p.set_defaults(run=_extract)
    p = commands.add_parser(
        "local", allow_abbrev=False, help="run an operator and its agents on this machine",
        description="Runs an operator, an agent for the trainer workers and one for each engine, "
                    "and prints their sockets.  Ctrl-C ends them all.")
    local.add_arguments(p)
    p.set_defaults(run=_local)
    args = parser.parse_args(argv)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
