"""Conditions that an operator should read. Every port reports them in this form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """Something an operator should read. Readiness shows it until it is `cleared` under the same
    `code`.

    `fatal`: who reports it can't go on. Of a consumer the engine makes a new one; for a connection
    it ends the process, to be started again. `away`: the other side can't be reached. `warning`:
    everything works nevertheless.
    """

    code: str
    detail: str
    fatal: bool = False
    cleared: bool = False
    away: bool = False
    warning: bool = False
