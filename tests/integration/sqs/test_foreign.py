"""Clients that can't be in the environment of the tests: an older boto3, which speaks the query
protocol, and Celery. Each runs in a process of its own, as its users run it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sqs.conftest import SqsSidecar
from tests.support.other import BOTO3_QUERY, CELERY, packages

pytestmark = pytest.mark.timeout(400)
HERE = Path(__file__).parent


def run(script: str, name: str, *words: str) -> str:
    """The last line that a script prints with the packages of this set."""
    lib = packages(name)
    env = {**os.environ, "PYTHONPATH": str(lib), "AWS_EC2_METADATA_DISABLED": "true"}
    argv = [sys.executable, str(HERE / script), *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    return done.stdout.strip().splitlines()[-1]


def test_the_query_protocol(sqs: SqsSidecar) -> None:
    assert run("query_client.py", BOTO3_QUERY, sqs.url) == "all of it"


def test_celery_tasks_run_and_are_tried_again(sqs: SqsSidecar, tmp_path: Path) -> None:
    """A worker with kombu's transport for SQS: tasks, one that fails twice, one with a delay."""
    found = run("celery_tasks.py", CELERY, str(sqs.port), str(tmp_path))
    assert found == "5 done, 3 tries of the one that fails"
