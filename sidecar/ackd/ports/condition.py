"""Conditions that an operator should read. Every port reports them in this form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """Something an operator should read. Readiness shows it until it is `cleared` under the same
    `code`.

    `fatal`: the consumer can't go on, and the engine has to make a new one. `away`: the other side
    can't be reached. `warning`: everything works nevertheless.
    """

    code: str
    detail: str
    fatal: bool = False
    cleared: bool = False
    away: bool = False
    warning: bool = False
