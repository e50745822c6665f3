"""One Spark session for all tests of a run that need one."""

import gc
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from ackd_reports.frames.session import BRIEF, session

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ActiveProcessorCount=1"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Work of seconds: most of it is loading and compiling classes, which are those of releases and so
need no check of their bytes. Others run beside it.
"""
UNCOMPILED = {name: value for name, value in BRIEF.items() if "codegen" in name}
"""What `session` sets where there is little to read on this machine. For files elsewhere it can't
tell how much there is: tests can.
"""
SESSION = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "768m",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}


def started() -> Iterator[SparkSession]:
    """A session on two cores; its JVM is gone at the end."""
    found = session("local[2]", SESSION, brief=True)
    found.sparkContext.setLogLevel("ERROR")
    context: Any = found.sparkContext
    gateway = context._gateway
    yield found
    found.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    # Sockets to the JVM are closed by the collector; they must not warn in a later test.
    del found, context, gateway
    gc.collect()
