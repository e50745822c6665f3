"""What Spark and Hadoop say about storage that cannot be used, as one sentence.

They tell it as a Java exception with a stack of a hundred lines. Only what a user can mend is told
plainly; everything else stays as it is, for it is a mistake of ours or needs its stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

_ADDRESS: Final = re.compile(r"\b[a-z][a-z0-9]+://[^\s,:;'\"\]]+")
_CODE: Final = re.compile(r"\):(\w+)$|(?:ClassNotFoundException|NoClassDefFoundError): (.+)$")
"""S3A ends its messages with the server's code, as `InvalidAccessKeyId`; or what is missing."""
_CAUSES_MAX: Final = 20
_READ_MORE: Final = "see 'Traces and lakes in S3' in docs/operate/reports.md"
_NO_JAR: Final = r"ClassNotFound|NoClassDefFound|UnsupportedFileSystem|No FileSystem for scheme"
"""A missing jar shows as any of these, by which part of it is asked for first."""
_DENIED: Final = r"AccessDenied|NoAuthWithAWS|NoAwsCredentials|CredentialInit|AWSBadRequest"
_NO_BUCKET: Final = "UnknownStoreException|NoSuchBucket"
_SILENT: Final = r"UnknownHost|Connect(Timeout)?Exception|SocketTimeout|NoHttpResponse|SSLException"
_BROKEN: Final = r"EOFException|ZipException|[Ee]rror while reading file"
_RULES: Final = (
    (_NO_JAR, f"Spark lacks a jar for addresses of this kind; {_READ_MORE}"),
    (_DENIED, f"access was denied: no credentials, or not the right ones; {_READ_MORE}"),
    (_NO_BUCKET, "there is no such bucket"),
    (_SILENT, f"the storage does not answer; is its endpoint right? {_READ_MORE}"),
    (_BROKEN, "cannot be read to its end; put a whole one in its place, or take it away"),
)


@contextmanager
def explained(*addresses: str) -> Iterator[None]:
    """Raise `OSError` with a sentence for storage that cannot be used; other errors pass.

    `addresses` are named where the exception has none. What the server said is not repeated but
    for its code, as it may hold what belongs to the credentials.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        sentence = _sentence(_causes(error), addresses)
        if sentence is None:
            raise
        raise OSError(sentence) from None


def is_broken_file(error: BaseException) -> bool:
    """Whether Spark gave up because of what a file holds, or seems to hold."""
    return any(re.search(_BROKEN, each) for each in _causes(error))


def _causes(error: BaseException) -> list[str]:
    """An exception and its causes, the outermost first, each as its class and message."""
    found = []
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
    else:
        found.append(f"{type(error).__name__}: {error}")
        cause = getattr(error, "_origin", None)
    while cause is not None and len(found) < _CAUSES_MAX:
        found.append(str(cause.toString()))
        cause = cause.getCause()
    return found


def _sentence(causes: list[str], addresses: tuple[str, ...]) -> str | None:
    for pattern, plain in _RULES:
        for each in causes:
            if re.search(pattern, each):
                return f"{_where(causes, addresses)}{plain}{_code(each)}"
    return None


def _where(causes: list[str], addresses: tuple[str, ...]) -> str:
    named = next((each for text in causes for each in _ADDRESS.findall(text)), None)
    remote = [each for each in addresses if "://" in each]
    # An endpoint is no address of a user's.
    if named is not None and not named.startswith("http"):
        return f"{named.rstrip('.')}: "
    return f"{', '.join(remote)}: " if remote else ""


def _code(text: str) -> str:
    found = _CODE.search(text)
    return f" ({found[1] or found[2]})" if found else ""
