"""Attributes as headers and back, and the digests that clients check."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.sqs.fault import Fault
from ackd.sqs.message_attributes import (
    Attribute,
    attributes_digest,
    attributes_of,
    headers_of,
    read_attributes,
    read_system_attributes,
    selected,
    text_of,
)
from ackd.sqs.parameters import Parameters

NAMES = st.from_regex(r"[a-z0-9_.-]{1,20}", fullmatch=True).filter(
    lambda name: not name.startswith(("aws.", "amazon.", "sqs-"))
)
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).filter(
    lambda text: text_of(text.encode()) is not None
)
ATTRIBUTES = st.dictionaries(
    NAMES,
    st.one_of(
        st.builds(lambda text: Attribute("String", text.encode()), TEXTS),
        st.builds(lambda text: Attribute("String.label", text.encode()), TEXTS),
        st.builds(lambda n: Attribute("Number.int", b"%d" % n), st.integers()),
        st.builds(lambda raw: Attribute("Binary", raw), st.binary(min_size=1, max_size=20)),
    ),
    max_size=10,
)


@given(ATTRIBUTES)
def test_what_is_sent_comes_back(attributes: dict[str, Attribute]) -> None:
    """As a client sent it, with its types: through headers, and through the form of an answer."""
    assert attributes_of(tuple(headers_of(attributes))) == attributes
    members = {name: each.members() for name, each in attributes.items()}
    assert read_attributes(Parameters({"MessageAttributes": members})) == attributes


def test_the_digest_sees_names_types_and_values_in_any_order() -> None:
    attributes = {
        "n": Attribute("Number.int", b"5"),
        "a": Attribute("String", b"x"),
        "raw": Attribute("Binary", b"\x00\xff"),
    }
    shuffled = dict(sorted(attributes.items(), reverse=True))
    assert attributes_digest(attributes) == attributes_digest(shuffled)
    others = [Attribute("Number", b"1"), Attribute("Binary", b"1"), Attribute("String", b"2")]
    plain = attributes_digest({"a": Attribute("String", b"1")})
    assert plain not in {attributes_digest({"a": each}) for each in others}
    assert plain != attributes_digest({"b": Attribute("String", b"1")})


def test_headers_of_others_are_attributes() -> None:
    """Of any producer: bytes that are no text are binary, a repeated name counts once, one without
    a value does not, and types that nobody can mean are not believed.
    """
    headers = (
        ("text", b"one"),
        ("text", b"two"),
        ("raw", b"\xff"),
        ("none", None),
        ("empty", b""),
        ("odd", b"x"),
        ("sqs-types", b'{"odd": "Object", "text": 5, "raw": "String"}'),
        ("AWSTraceHeader", b"Root=1"),
    )
    assert attributes_of(headers) == {
        "text": Attribute("String", b"two"),
        "raw": Attribute("Binary", b"\xff"),
        "odd": Attribute("String", b"x"),
    }
    for wrong in (b"no json", b"[]", b"\xff", b"5"):
        assert attributes_of((("a", b"1"), ("sqs-types", wrong))) == {
            "a": Attribute("String", b"1")
        }


def test_a_receive_chooses_attributes() -> None:
    found = {name: Attribute("String", b"1") for name in ("shop.id", "shop.name", "size")}
    assert selected(found, ()) == {}
    assert selected(found, ["All"]) == selected(found, [".*"]) == found
    assert list(selected(found, ["size", "other"])) == ["size"]
    assert list(selected(found, ["shop.*"])) == ["shop.id", "shop.name"]


@pytest.mark.parametrize(
    "attribute",
    [
        {"a": {"DataType": "String"}},
        {"a": {"DataType": "String", "StringValue": ""}},
        {"a": {"DataType": "String", "StringValue": "\x00"}},
        {"a": {"DataType": "Text", "StringValue": "1"}},
        {"a": {"StringValue": "1"}},
        {"a": {"DataType": "Binary", "BinaryValue": "not base64!"}},
        {"a b": {"DataType": "String", "StringValue": "1"}},
        {"AWS.a": {"DataType": "String", "StringValue": "1"}},
        {"sqs-types": {"DataType": "String", "StringValue": "1"}},
        {"a": "1"},
        {f"a{n}": {"DataType": "String", "StringValue": "1"} for n in range(11)},
        ["a"],
    ],
)
def test_wrong_attributes_are_refused(attribute: object) -> None:
    with pytest.raises(Fault):
        read_attributes(Parameters({"MessageAttributes": attribute}))


def test_one_system_attribute_can_be_sent() -> None:
    value = {"DataType": "String", "StringValue": "Root=1"}
    asked = Parameters({"MessageSystemAttributes": {"AWSTraceHeader": value}})
    assert read_system_attributes(asked) == {"AWSTraceHeader": Attribute("String", b"Root=1")}
    with pytest.raises(Fault):
        read_system_attributes(Parameters({"MessageSystemAttributes": {"Other": value}}))


def test_binary_values_are_base64() -> None:
    assert Attribute("Binary", b"\x00\xff").members() == {
        "DataType": "Binary",
        "BinaryValue": b64encode(b"\x00\xff").decode(),
    }
