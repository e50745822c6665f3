"""Conditions that an operator should read: every port reports them in the same form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """Something an operator should read; shown in readiness until `cleared` under the same `code`.

    `fatal` means that the consumer can't go on by itself and has to be made anew, `away` that the
    other side can't be reached, `warning` that everything works all the same.
    """

    code: str
    detail: str
    fatal: bool = False
    cleared: bool = False
    away: bool = False
    warning: bool = False
