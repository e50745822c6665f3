"""`ackd serve`: run the sidecar until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys

from ackd import malloc
from ackd.cli import common, exit_codes
from ackd.errors import AckdError
from ackd.telemetry import log

LOG = logging.getLogger("ackd.cli")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd serve`."""
    common.add_config(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal stops the sidecar. Raises AckdError or OSError if it can't start."""
    settings = common.settings_of(arguments)
    output = log.set_up(settings.telemetry)
    malloc.few_arenas()
    # Native code of a client library may kill the process: print where each thread was.
    faulthandler.enable()
    try:
        from ackd.serve import serve  # noqa: PLC0415  loaded after the configuration was found to be right

        common.run_loop(serve(settings))
    except (AckdError, OSError, KeyboardInterrupt):
        raise
    except BaseExceptionGroup as group:
        expected = _only_expected(group)
        if expected is not None:
            raise expected from group
        LOG.critical("ackd ends on a bug of its own; please report it", exc_info=group)
        return exit_codes.FAILED
    except Exception:
        LOG.critical("ackd ends on a bug of its own; please report it", exc_info=sys.exception())
        return exit_codes.FAILED
    finally:
        output.close()
    return exit_codes.DONE


def _only_expected(group: BaseExceptionGroup) -> AckdError | OSError | None:
    """The first failure of a group, if `main` can explain all failures of it in a sentence."""
    rest = group.split((AckdError, OSError))
    if rest[0] is None or rest[1] is not None:
        return None
    first: BaseException = rest[0]
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, AckdError | OSError) else None
