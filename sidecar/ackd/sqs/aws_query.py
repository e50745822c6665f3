"""The query protocol of SQS, which older clients speak: a form in, XML out.

https://smithy.io/2.0/aws/protocols/aws-query-protocol.html; lists are flattened, with names of
their own in both directions (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
sqs-dg.pdf, version 2012-11-05).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from ackd.http.server.reply import Reply
from ackd.sqs.action_call import Result
from ackd.sqs.fault import Fault
from ackd.sqs.parameters import Parameters

FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 2_000
DEPTH_MAX = 6
_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_XML = "text/xml"
_ENTRIES = "BatchRequestEntry"
# How lists are named in a form -> their member in the JSON protocol.
_LISTS = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
}
# Maps likewise: a list of pairs `Name` (or `Key`) and `Value`.
_MAPS = {
    "Attribute": "Attributes",
    "MessageAttribute": "MessageAttributes",
    "MessageSystemAttribute": "MessageSystemAttributes",
    "Tag": "Tags",
}
# Members of an answer -> the element of each of their items; of maps with names and values.
_LIST_ELEMENTS = {
    "Failed": "BatchResultErrorEntry",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
}
_MAP_ELEMENTS = {"Attributes": "Attribute", "MessageAttributes": "MessageAttribute", "Tags": "Tag"}


def read(body: bytes) -> tuple[str, Parameters]:
    """The action and its parameters, as the JSON protocol has them. Raises Fault."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise Fault("MalformedQueryString", f"The body is not a form: {error}.") from error
    tree: dict[str, object] = {}
    for name, value in pairs:
        _put(tree, name.split("."), value)
    action = tree.pop("Action", None)
    if not isinstance(action, str):
        raise Fault("MissingAction", "The form has no Action.")
    return action, Parameters(_members(tree))


def _put(tree: dict[str, object], path: list[str], value: str) -> None:
    """Put a value where its name says: `Entry.1.Id`."""
    if len(path) > DEPTH_MAX:
        raise Fault("MalformedQueryString", f"{'.'.join(path)[:200]} is too deep.")
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise Fault("MalformedQueryString", f"{'.'.join(path)[:200]} is two things.")
        tree = below
    if path[-1] in tree:
        raise Fault("MalformedQueryString", f"{'.'.join(path)[:200]} is there twice.")
    tree[path[-1]] = value


def _members(tree: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in tree.items():
        if isinstance(value, str):
            found[name] = value
        elif name in _LISTS:
            found[_LISTS[name]] = list(_items(value))
        elif name in _MAPS:
            found[_MAPS[name]] = dict(_pairs(name, _items(value)))
        elif name.endswith(_ENTRIES):
            found["Entries"] = [
                _members(each) if isinstance(each, dict) else each for each in _items(value)
            ]
        else:
            found[name] = value
    return found


def _items(value: object) -> Iterator[object]:
    """The items of a list, by their numbers."""
    if isinstance(value, dict):
        for number in sorted(value, key=lambda each: (len(each), each)):
            yield value[number]


def _pairs(name: str, items: Iterator[object]) -> Iterator[tuple[str, object]]:
    for item in items:
        key = item.get("Name", item.get("Key")) if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(key, str):
            raise Fault("MalformedQueryString", f"{name} needs Name and Value.")
        yield key, item.get("Value")


def answer(action: str, result: Result, request_id: str) -> Reply:
    """Write what an action gives."""
    inside = "".join(_elements(action, result))
    body = (
        f'<?xml version="1.0"?><{action}Response xmlns="{_NAMESPACE}">'
        f"<{action}Result>{inside}</{action}Result>"
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    )
    return Reply(body.encode(), content_type=_XML)


def failure(fault: Fault, request_id: str) -> Reply:
    """Write an error."""
    blame = "Sender" if fault.by_sender else "Receiver"
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{blame}</Type>'
        f"<Code>{escape(fault.query_code)}</Code><Message>{_text(fault.message)}</Message>"
        f"<Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Reply(body.encode(), status=fault.status, content_type=_XML)


def _elements(action: str, members: Mapping[str, object]) -> Iterator[str]:
    for name, value in members.items():
        if isinstance(value, list):
            element = _LIST_ELEMENTS.get(name, f"{action}ResultEntry")
            for each in value:
                yield _element(action, element, each)
        elif name in _MAP_ELEMENTS and isinstance(value, Mapping):
            for key, each in value.items():
                below = {"Name": key, "Value": each}
                yield _element(action, _MAP_ELEMENTS[name], below)
        else:
            yield _element(action, name, value)


def _element(action: str, name: str, value: object) -> str:
    if isinstance(value, Mapping):
        inside = "".join(_elements(action, value))
    elif isinstance(value, bool):
        inside = "true" if value else "false"
    else:
        inside = _text(str(value))
    return f"<{name}>{inside}</{name}>"


def _text(text: str) -> str:
    # A reader of XML makes a line feed of a carriage return that is not escaped.
    return escape(text, {"\r": "&#13;"})
