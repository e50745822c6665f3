"""What is said to whoever types a wrong argument, or asks where nobody is."""

import time
from pathlib import Path

import pytest

from ackd.cli import exit_codes
from ackd.cli.argument_types import duration_ms, offset, past_ms, time_ms
from ackd.cli.main import build_parser, main
from ackd_torture.ports import free_port


def test_what_the_kinds_are() -> None:
    assert duration_ms("1m30s") == 90_000
    assert time_ms("1700000000000") == 1_700_000_000_000
    assert time_ms("1970-01-01T01:00:00+01:00") == 0
    assert offset("a/b/3=2101") == {"topic": "a/b", "partition": 3, "offset": 2101}
    before = time.time_ns() // 1_000_000
    assert before - 7_200_000 <= past_ms("2h") <= time.time_ns() // 1_000_000 - 7_200_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("inflight orders --older soon", "'soon' is not a duration like 500ms, 10s or 1m30s"),
        ("lease retry v1.x --delay 5", "'5' is not a duration"),
        ("release-group orders --drain x", "'x' is not a duration"),
        ("top --older x", "'x' is not a duration"),
        ("top --every 1ms", "between 200ms and 1h"),
        ("seek orders --time yesterday", "'yesterday' is not a date-time with an offset like"),
        ("seek orders --time \u00b2", "is not a date-time"),
        ("seek orders --time 9999999999999999999", "is not a date-time"),
        ("seek orders --position orders=3", "'orders=3' is not a position like orders/3=2101"),
        ("dead redrive orders --before 2x", "'2x' is not a duration"),
        ("dead purge orders --after 2026-01-01T08:00:00", "is not a date-time"),
    ],
)
def test_a_wrong_argument_is_shown_how_one_looks(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words.split()
    with pytest.raises(SystemExit) as ended:
        build_parser(given[0]).parse_args(given)
    assert ended.value.code == exit_codes.CONFIG
    assert said in capsys.readouterr().err


def test_who_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert main(["lag", "orders", "--url", f"http://{address}"]) == exit_codes.UNREACHABLE
    assert f"no sidecar answers at {address}: " in capsys.readouterr().err


def test_a_token_that_is_no_text_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe")
    assert main(["lag", "orders", "--token-file", str(file)]) == exit_codes.CONFIG
    assert f"{file} is not a text" in capsys.readouterr().err


def test_a_description_keeps_the_case_of_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["progress", "--help"])
    assert "Export and import a group's progress as JSON." in capsys.readouterr().out
