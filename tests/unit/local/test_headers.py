"""Headers survive the file: order, repeats, null, empty, every byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd_adapters.local.headers import NAME_BYTES_MAX, decode, encode

NAMES = st.text(st.characters(exclude_categories=["Cs"]))
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary())).map(tuple)


@given(HEADERS)
def test_there_and_back(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert decode(encode(headers)) == headers


def test_none_is_none() -> None:
    assert encode(()) is None
    assert decode(None) == ()


@pytest.mark.parametrize("name", ["x" * (NAME_BYTES_MAX + 1), "\ud800"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        encode(((name, b""),))
