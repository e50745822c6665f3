"""Names in the code: the words that the glossary replaced do not come back."""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Source

OLD_WORDS = {
    r"brakes?|braking|braked": "circuit breaker, `breaker`",
    r"bury|buried|burying": "dead-letter, `mark_dead`, `exhausted`",
    r"carriers?": "`retry_copy`",
    r"couriers?": "`push_delivery`",
    r"dead_topic": "`dead_letter_topic`",
    r"doubtful": "`in_doubt`",
    r"give_up_ms": "`message_ttl_ms`",
    r"hand_out|handout": "deliver, `dispatcher`",
    r"hearsay": "`finished_by_commit`",
    r"homes?|homed|homeless": "origin record, `origin`",
    r"lengthen\w*": "extend",
    r"nominat\w*": "`assigned`",
    r"parked_(?:keys?|leases?|lines?|messages?)|unpark\w*": "blocked key, forwarded lease",
    r"own_acks": "`broker_side_acks`",
    r"parcels?": "`messages`, by what is done with them",
    r"put_off": "foreign delay",
    r"rterm": "`rollback_epoch`",
    r"scattered": "`unordered`",
    r"sieve": "`copy_filter`",
    r"troubles?": "condition",
}
"""Word, as a part of a name -> what it is now."""
VAGUE_WORDS = {
    r"(?<!left_)behind": "`waiting` if it counts, `blocked_by`, `unread`: what it is",
    r"business_keys?": "`deduplication_key`, `dedup`",
    r"(?<!cert_)chains?": "ordering key, `key`",
    r"desks?": "`Api`, by what is asked",
    r"filling": "window pressure, `pressure`",
    r"gates?": "`call_limit`, `pause_unhealthy`, circuit breaker",
    r"growth|grown": "`increase` of partitions; a backoff has a `factor`",
    r"held_ends?": "`stable_offset_lag`",
    r"intern(?:ed)?": "`assign`: a message id gets a place",
    r"land(?:ed|s)?": "`on_reply`",
    r"let_go": "`released`, `release`, `close`: what is done",
    r"place_of": "`position_of` in the order; elsewhere what the place is",
    r"presence": "heartbeat, `membership`",
    r"pushes": "`push_manager`",
    r"stir(?:red|s)?": "`wake_if_idle`",
    r"stretch(?:es)?": "fetch attempt, `attempt`",
    r"tickets?": "idempotency key, `outbox_key`",
    r"told|said|heard": "`reported`, `reason`, `received`, `on_...`: what it is",
}
"""The same, for names of the product; tests may have them."""
FOLDERS = ("tests.support.", "tests.node.")
"""They start servers and tools, which call their folder a home."""
_REASON = re.compile(r"(?:#|--) tidy: word -- \S+")
_LUA_TEXT = re.compile(r"--\[\[.*?\]\]|--[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def old_words(sources: Iterable[Source]) -> Iterator[str]:
    """Names with an old word. One that must keep it (a variable that the system names, say) has a
    reason in its line: `# tidy: word -- why`.
    """
    for source in sources:
        if source.module.startswith(FOLDERS):
            continue
        words = OLD_WORDS | VAGUE_WORDS if source.shipped else OLD_WORDS
        lines = source.text.splitlines()
        names = {
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
            if token.type == tokenize.NAME
        }
        for number, name in sorted(names):
            if not name.startswith("test_") and not _REASON.search(lines[number - 1]):
                yield from _complaints(f"{source.path}:{number}", name, words)


def lua_old_words(scripts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The same for the scripts."""
    for path, text in scripts:
        bare = _LUA_TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
        for number, line in enumerate(bare.split("\n"), 1):
            for name in sorted(set(re.findall(r"[A-Za-z_]\w*", line))):
                if not _REASON.search(text.split("\n")[number - 1]):
                    yield from _complaints(f"{path}:{number}", name, OLD_WORDS | VAGUE_WORDS)


def _complaints(place: str, name: str, words: dict[str, str]) -> Iterator[str]:
    plain = _HUMP.sub("_", name).lower()
    for old, new in words.items():
        if re.search(rf"(?:^|_)(?:{old})(?:_|$)", plain):
            yield f"{place}: {name}: the word is {new}"
