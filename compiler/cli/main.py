"""The ``cannc`` command: finds subcommands lazily, and turns errors into one block and a code."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

import cannc
from cannc.compiler.core.errors import CanncError, nearest

COMMANDS = {
    "convert": "cannc.compiler.cli.convert",
    "check": "cannc.compiler.cli.check",
    "optimize": "cannc.compiler.cli.optimize",
    "split": "cannc.compiler.cli.split",
    "quantize": "cannc.compiler.cli.quantize",
    "compile": "cannc.compiler.cli.compile",
    "run": "cannc.compiler.cli.run",
    "compare": "cannc.compiler.cli.compare",
    "bisect": "cannc.compiler.cli.bisect",
    "build": "cannc.compiler.cli.build",
    "inspect": "cannc.compiler.cli.inspect",
    "profile": "cannc.compiler.cli.planned",
    "doctor": "cannc.compiler.cli.doctor",
    "targets": "cannc.compiler.cli.targets",
}
"""Subcommand -> module with a click command of that name, in the order of the workflow."""

_BUG = "this is a bug of cannc: please report it with the command and the traceback (--debug)"


class _LazyGroup(click.Group):
    """Imports a subcommand's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            message = f"no command '{args[0]}'{nearest(args[0], COMMANDS)}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cannc.__version__, "--version", prog_name="cannc")
def cli() -> None:
    """Compile PyTorch and ONNX models into .om artifacts for Ascend NPUs.

    Nothing of Ascend is needed: without CANN, models are checked, rewritten, quantized, compiled
    and run on the embedded host backend, which simulates the device's float16.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code (design section 4)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        result = cli.main(arguments, prog_name="cannc", standalone_mode=False)
    except CanncError as error:
        return _report(str(error), error.exit_code, debug=debug)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return _report("error[CLI130]: interrupted", 130, debug=debug)
    except click.ClickException as error:
        return _report(_usage(error), 2, debug=False)
    except BrokenPipeError:
        return 0
    except Exception as error:
        block = f"error[BUG001]: {type(error).__name__}: {error}\n  fix  {_BUG}"
        return _report(block, 70, debug=debug)
    return result if isinstance(result, int) else 0


def entry() -> None:
    """Console-script entry point."""
    sys.exit(main())


def _report(block: str, code: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    click.echo(block, err=True)
    return code


def _usage(error: click.ClickException) -> str:
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
    block = f"error[CLI001]: {error.format_message()}"
    return f"{block}\n  fix  {command or 'cannc'} --help lists what is known"
