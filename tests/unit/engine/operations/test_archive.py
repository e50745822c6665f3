"""Operations are kept as text, and say how far they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.api.dead_letters import DeadFilter, DeadRequest, Kind, Progress, To
from ackd.engine.operations.archive import RedriveDocument, read_document
from ackd.engine.retry.dead_letter_reader import read_id
from ackd.errors import BadParameterError, StoreDataError

texts = st.text(max_size=20)
numbers = st.integers(0, 1 << 50)
requests = st.builds(
    DeadRequest,
    st.sampled_from(Kind),
    ids=st.lists(texts, max_size=3).map(tuple),
    filter=st.builds(
        DeadFilter, topic=st.none() | texts, key=st.none() | texts, after_ms=st.none() | numbers
    ),
    max=st.none() | numbers,
    rate_per_s=st.none() | numbers,
    to=st.sampled_from(To),
    set_headers=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    remove_headers=st.lists(texts, max_size=3).map(tuple),
)
documents = st.builds(
    RedriveDocument,
    texts,
    texts,
    requests,
    texts,
    starts=st.lists(numbers, min_size=2, max_size=2),
    ends=st.lists(numbers, min_size=2, max_size=2),
    created_ms=numbers,
    state=st.sampled_from([Progress.RUNNING, Progress.DONE]),
    pending=st.lists(numbers, max_size=3),
    error=st.none() | texts,
)


@given(documents)
def test_what_is_kept_comes_back(document: RedriveDocument) -> None:
    assert read_document(document.text()) == document


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"request": {}}', b"\xff"])
def test_what_is_none_is_told(raw: bytes) -> None:
    with pytest.raises(StoreDataError):
        read_document(raw)


def test_progress() -> None:
    request = DeadRequest(Kind.REDRIVE, max=9)
    document = RedriveDocument("1", "orders", request, "", [10, 0], [30, 5], created_ms=1)
    document.offset, document.moved, document.skipped = 14, 3, 1
    view = document.view(cancelling=True)
    assert (view.total, view.scanned, view.state, view.to) == (25, 4, "cancelling", "group")
    assert document.left == 5
    document.partition, document.offset = 1, 2
    assert document.view().scanned == 22
    document.partition, document.offset, document.state = 2, 0, Progress.DONE
    view = document.view(cancelling=True)
    assert (view.scanned, view.state) == (25, "done")
    purge = RedriveDocument(
        "2", "orders", DeadRequest(Kind.PURGE, ids=("0-1", "0-2")), "", [0], [5], 1
    )
    purge.moved = 1
    view = purge.view()
    assert (view.total, view.scanned, view.to) == (2, 1, None)


@pytest.mark.parametrize(
    "text", ["", "1", "-", "1-", "-1", "a-1", "1-2-3", "\u0661-1", "1" * 19 + "-1"]
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(BadParameterError):
        read_id(text)


def test_an_id() -> None:
    assert read_id("3-2101") == (3, 2101)
