"""`ackd report`: service levels from exported traces. Spark is loaded only when it is needed."""

from ackd_reports.command import add_arguments, run

__all__ = ["add_arguments", "run"]
