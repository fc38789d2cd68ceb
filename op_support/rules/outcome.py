"""What a condition says about a node."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """The node is affected, certainly or perhaps."""

    why: str
    sure: bool


def certain(why: str) -> Outcome:
    """The condition holds."""
    return Outcome(why, sure=True)


def possible(why: str) -> Outcome:
    """The condition may hold: a shape or value that decides it is not known."""
    return Outcome(why, sure=False)
