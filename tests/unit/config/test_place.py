"""Where keys stand: the report must point at the line that has to be changed."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from ackd.config.mistakes import Path
from ackd.config.place import find_places

TEXT = '''\
# a comment with [brackets] = and "quotes
top = 1
dotted . "key" = """
[not.a.table]
x = 1
"""
list = [
  "a", # one
  [1, 2], {y = 3},
]
[section]
  date = 2026-01-01 08:00:00Z   # a date with a space
  inline = {a = "}", 'b c' = [1], d.e = \'\'\'x = 1\'\'\'}
[[many]]
name = "first"
[[many]]
name = "se\\"cond"
[many.below]
z = \'\'
["quoted.name"."\\u0041"]
'''


def test_every_key_is_found_at_its_place() -> None:
    assert find_places(TEXT) == {
        ("top",): (2, 1),
        ("dotted",): (3, 1),
        ("dotted", "key"): (3, 1),
        ("list",): (7, 1),
        ("list", 0): (8, 3),
        ("list", 1): (9, 3),
        ("list", 1, 0): (9, 4),
        ("list", 1, 1): (9, 7),
        ("list", 2): (9, 11),
        ("list", 2, "y"): (9, 12),
        ("section",): (11, 1),
        ("section", "date"): (12, 3),
        ("section", "inline"): (13, 3),
        ("section", "inline", "a"): (13, 13),
        ("section", "inline", "b c"): (13, 22),
        ("section", "inline", "b c", 0): (13, 31),
        ("section", "inline", "d"): (13, 35),
        ("section", "inline", "d", "e"): (13, 35),
        ("many",): (14, 1),
        ("many", 0): (14, 1),
        ("many", 0, "name"): (15, 1),
        ("many", 1): (16, 1),
        ("many", 1, "name"): (17, 1),
        ("many", 1, "below"): (18, 1),
        ("many", 1, "below", "z"): (19, 1),
        ("quoted.name", "A"): (20, 1),
    }


SCALARS = st.sampled_from(
    (
        *("1", "-0.5e3", "true", "2026-01-01", "2026-01-01 08:00:00Z", "0x1F", "inf"),
        *("''", '""', '"\\""', "'\\'", '"a = [1] # {"', "'[t]'"),
        *('"""x\n[y]\n"""', "'''z = 1\n'''", '""""""', '""""q"""""', '"""a\\"""\n"""'),
    )
)
GAPS = st.sampled_from(("", " ", "\n", " # k = [\n", "\t\n  "))
KEYS = st.sampled_from(
    ("k{}", '"k{} = [#"', "'k{}.x'", "k{}.inner", 'k{} . "deep\\u0041"', "k-{}_")
)


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> str:
    """A value as text: scalars, arrays over several lines, inline tables on one."""
    kind = draw(st.integers(0, 3 if depth else 1))
    if kind < 2 or not depth:
        return draw(SCALARS)
    inner = draw(st.lists(values(depth - 1), max_size=3))
    if kind == 3:
        flat = [draw(SCALARS) for _ in inner]
        pairs = [f"{draw(KEYS).format(index)} = {each}" for index, each in enumerate(flat)]
        return f"{{ {' , '.join(pairs)} }}"
    return "[" + "".join(f"{draw(GAPS)}{each}{draw(GAPS)}," for each in inner) + draw(GAPS) + "]"


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A whole document: keys, headers, arrays of tables, all with names of their own."""
    lines: list[str] = []
    for index in range(draw(st.integers(0, 8))):
        kind = draw(st.integers(0, 5))
        key = draw(KEYS).format(index)
        if kind == 0:
            lines.append(f"[{key}]{draw(st.sampled_from(('', ' # [no]')))}")
        elif kind == 1:
            lines += [f"[[{key}]]", "x = 1", f"[[{key}]]", "y = 2"]
        else:
            lines.append(f"{draw(st.sampled_from(('', '  ')))}{key} = {draw(values())}")
    return "\n".join(lines)


@given(documents())
def test_whatever_the_parser_takes_is_found(text: str) -> None:
    tree = tomllib.loads(text)
    places = find_places(text)
    lines = text.split("\n")
    for path in _paths(tree, ()):
        if path in places:
            line, column = places[path]
            assert not lines[line - 1][column - 1].isspace()
            last = path[-1]
            if isinstance(last, str) and len(path) == 1:
                assert last[:2] in lines[line - 1]
        else:
            # Only a table that was never written itself: `[a.b]` makes `a`.
            assert any(found[: len(path)] == path for found in places)
    assert set(places) <= set(_paths(tree, ()))


def _paths(node: object, path: Path) -> list[Path]:
    found: list[Path] = [path] if path else []
    if isinstance(node, dict):
        for key, each in node.items():
            found += _paths(each, (*path, key))
    elif isinstance(node, list):
        for index, each in enumerate(node):
            found += _paths(each, (*path, index))
    return found
