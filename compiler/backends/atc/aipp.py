"""The AIPP file (image preprocessing in the artifact): its text, and the inputs it is for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cannc.compiler.backends.atc.refusal import refuse

_FLAG = "insert_op_conf"
_TOKEN = re.compile(r'\s*(?:#[^\n]*|(?P<key>\w+)\s*(?P<open>:?\s*\{)|(?P<close>\})|'
                    r'(?P<name>\w+)\s*:\s*(?P<value>"[^"]*"|[^\s{}:#]+))')  # fmt: skip
Block = dict[str, list[str]]


def check_aipp(path: Path, options: Mapping[str, str], inputs: Sequence[str]) -> None:
    """Check an AIPP file as far as its form and the inputs that it names.

    Args:
        path: The file.
        options: ATC's options.
        inputs: The model's inputs, in order.

    Raises:
        UsageError: ``ATC061`` no AIPP text, ``ATC062`` an input that the model does not have,
            ``ATC063`` an input that stays float16.
    """
    half = {name.strip() for name in options.get("input_fp16_nodes", "").split(";")}
    for block in parse_aipp(path.read_text(encoding="utf-8")):
        mode = block.get("aipp_mode", [""])[0]
        if mode not in ("static", "dynamic"):
            raise _malformed(f"aipp_mode is '{mode}'", "static or dynamic")
        rank = block.get("related_input_rank", ["0"])[0]
        if not rank.isdigit() or int(rank) >= len(inputs):
            raise refuse(
                "ATC062",
                _FLAG,
                f"the AIPP file is for input {rank}, the model has {len(inputs)}",
                atc="E10052",
                fix="related_input_rank counts inputs from 0",
            )
        name = block.get("related_input_name", [inputs[int(rank)]])[0]
        if name in half:
            raise refuse(
                "ATC063",
                _FLAG,
                f"AIPP is set for input '{name}', which stays float16",
                atc="E10034",
                fix="take it out of --input_fp16_nodes",
            )


def parse_aipp(text: str) -> list[Block]:
    """Return the fields of each ``aipp_op`` block; a field may stand several times.

    Raises:
        UsageError: ``ATC061``.
    """
    blocks: list[Block] = []
    position, inside = 0, False
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise _malformed(f"cannot read line {line}", "aipp_op { aipp_mode: static ... }")
        position = match.end()
        if match["key"]:
            if inside or match["key"] != "aipp_op":
                raise _malformed(f"a block '{match['key']}'", "blocks aipp_op { } only")
            blocks.append({})
            inside = True
        elif match["close"]:
            if not inside:
                raise _malformed("a } without {", "aipp_op { ... }")
            inside = False
        elif match["name"]:
            if not inside:
                raise _malformed(f"'{match['name']}' outside a block", "aipp_op { ... }")
            blocks[-1].setdefault(match["name"], []).append(match["value"].strip('"'))
    if inside or not blocks:
        raise _malformed("a block is not closed" if inside else "no block", "aipp_op { ... }")
    return blocks


def _malformed(found: str, fix: str) -> Exception:
    return refuse(
        "ATC061", _FLAG, f"--{_FLAG}: {found} in the AIPP file", atc="E10052", fix=f"write {fix}"
    )
