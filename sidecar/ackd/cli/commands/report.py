"""`ackd report`: report service levels from exported traces; loads Spark only when it needs it."""

from ackd_reports.command import add_arguments, run

__all__ = ["add_arguments", "run"]
