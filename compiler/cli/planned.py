"""Commands of the contract that are not built yet: listed, so that nobody looks for them twice."""

from __future__ import annotations

import click

from cannc.compiler.core.errors import UsageError


def _planned(name: str, summary: str) -> click.Command:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    @click.command(name, help=summary, short_help=f"{summary} (not yet)", context_settings=settings)
    @click.argument("arguments", nargs=-1)
    def command(arguments: tuple[str, ...]) -> None:
        raise UsageError("CLI900", f"'cannc {name}' is not there yet", fix="see CHANGELOG.md")

    return command


profile = _planned("profile", "Cost per layer against the roofline.")
