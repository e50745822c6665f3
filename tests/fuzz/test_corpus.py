"""Every input that is kept: its reader says what it should, in little time and memory."""

import importlib
import time
import tracemalloc

import pytest

from tests.fuzz import TARGETS
from tests.fuzz.corpus import inputs

CPU_S_MAX = 1.0
BYTES_MAX = 8 << 20


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_kept_is_read_as_it_should(target: str) -> None:
    run = importlib.import_module(f"tests.fuzz.{target}").run
    run(b"")  # what is made once counts for nobody
    for data in inputs(target):
        begun_s = time.process_time()
        run(data)
        assert time.process_time() - begun_s < CPU_S_MAX, data
    tracemalloc.start()
    try:
        for data in inputs(target):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            run(data)
            _, most = tracemalloc.get_traced_memory()
            assert most - before < BYTES_MAX, data
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("target", TARGETS)
def test_there_are_good_inputs_to_begin_with(target: str) -> None:
    assert len(list(importlib.import_module(f"tests.fuzz.{target}").seeds())) >= 3
