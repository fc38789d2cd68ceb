"""A stand-in for ATC, for tests only: checks flags and the model file as the facts tell ATC does.

Run as a program it needs nothing but Python. `install` copies it into a folder as ``bin/atc`` with
a ``behaviour.json`` that chooses the outcome; every call leaves ``calls/N.json`` there.

Known from atc-cli.md and parser-run.md; it compiles nothing.
"""

import json
import os
import shutil
import signal
import stat
import sys
import time
from pathlib import Path

LISTED = "ATC start working now, please wait for a moment."
EXCLUSIVE = {
    "E10009": ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims", "input_shape_range"),
    "E10056": ("precision_mode", "precision_mode_v2"),
}
REQUIRED = {"framework": "E10007", "model": "E10054", "output": "E10054", "soc_version": "E10054"}


class AtcError(Exception):
    """ATC ends with an error block."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def install(
    root: Path, om: Path | None = None, version: str | None = "8.3.RC1", **behaviour
) -> Path:
    """Make a toolkit folder with a stand-in ``atc``; return the executable."""
    program = root / "bin" / "atc"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = Path(__file__).read_text(encoding="utf-8")
    program.write_text(f"#!{shutil.which('python3')}\n{text}", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (root / "calls").mkdir(exist_ok=True)
    (root / "opp").mkdir(exist_ok=True)
    if version:
        (root / "ascend_toolkit_install.info").write_text(
            f"package_name=toolkit\nversion={version}\n"
        )
    behave(program, **({"om": str(om)} if om else {}), **behaviour)
    return program


def behave(program: Path, **behaviour) -> None:
    """Change what a stand-in does from now on; what is not named stays."""
    file = program.parent.parent / "behaviour.json"
    old = json.loads(file.read_text()) if file.exists() else {"outcome": "success"}
    file.write_text(json.dumps({**old, **behaviour}))


def calls(program: Path) -> list[dict]:
    """Return what each call got: arguments, folder, environment, files of the folder."""
    folder = program.parent.parent / "calls"
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def main(root: Path) -> int:
    behaviour = json.loads((root / "behaviour.json").read_text())
    record(root)
    say(LISTED)
    try:
        flags = parse(sys.argv[1:])
        check_flags(flags)
        check_model(Path(flags["model"]), behaviour)
        return act(behaviour, flags)
    except AtcError as failure:
        say("ATC run failed, Please check the detail log, Try 'atc --help' for more information")
        for code, text in ((failure.code, failure.message), ("E19999", "Inner Error!")):
            say(f"{code}: [PID: {os.getpid()}] 2026-01-02-03:04:05.678.901 {text}")
            say("        Possible Cause: see above.\n        Solution: mend it.")
            say("        TraceBack (most recent call last):\n        inner[FUNC:Parse][LINE:12]")
        return 255


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def record(root: Path) -> None:
    facts = {
        "arguments": sys.argv[1:],
        "folder": str(Path.cwd()),
        "files": sorted(file.name for file in Path.cwd().iterdir()),
        "environment": dict(os.environ),
    }
    (root / "calls" / f"{time.time_ns()}_{os.getpid()}.json").write_text(json.dumps(facts))


def parse(arguments: list) -> dict:
    flags = {}
    for argument in arguments:
        flag, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not equals:
            raise AtcError("E10001", f"Value [{argument}] for parameter [argument] is invalid.")
        flags[flag] = value
    return flags


def check_flags(flags: dict) -> None:
    for flag, code in REQUIRED.items():
        if not flags.get(flag):
            raise AtcError(code, f"The value of parameter [--{flag}] is required but empty.")
    if flags["framework"] != "5":
        raise AtcError("E10007", f"[--framework] is {flags['framework']}")
    for code, group in EXCLUSIVE.items():
        given = [flag for flag in group if flag in flags]
        if len(given) > 1:
            raise AtcError(code, f"Parameters [{', '.join(given)}] are mutually exclusive.")
    for flag in ("model", "output"):
        allowed = all(c.isalnum() or c in "_-./" for c in flags[flag])
        if not allowed or not all(c.isalnum() or c in "_-./" for c in str(Path.cwd())):
            raise AtcError("E10001", f"Value [{flags[flag]}] for parameter [--{flag}] is invalid.")
    for flag in ("fusion_switch_file", "keep_dtype", "insert_op_conf"):
        if flag in flags and not Path(flags[flag]).is_file():
            raise AtcError("E10001", f"Value [{flags[flag]}] for parameter [--{flag}] is invalid.")


def fields(data: bytes):
    """Yield (field number, value) of a protobuf message: an int, or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, data[at : at + size]
        at += size


def all_of(data: bytes, number: int) -> list:
    return [value for field, value in fields(data) if field == number]


def text_of(data: bytes, number: int) -> str:
    return b"".join(all_of(data, number)[:1]).decode()


def check_model(path: Path, behaviour: dict) -> None:
    data = path.read_bytes()
    graph = all_of(data, 7)[0]
    imports = {text_of(entry, 1) or "ai.onnx": all_of(entry, 2)[0] for entry in all_of(data, 8)}
    if all_of(data, 14) or all_of(data, 25):
        say("W00000: metadata or functions were handed over")
    nodes = all_of(graph, 1)
    if behaviour.get("single_import") and len(imports) > 1:
        raise AtcError("E16005", f"opset_import has several domains: {sorted(imports)}")
    inputs = [text_of(value, 1) for value in all_of(graph, 11)]
    names = [text_of(node, 3) for node in nodes]
    for name in names:
        if not name or names.count(name) > 1 or name in inputs:
            raise AtcError("E13009", f"The op name [{name}] is duplicated.")
    for node in nodes:
        domain, op_type = text_of(node, 7) or "ai.onnx", text_of(node, 4)
        opset = imports[domain]
        if op_type in behaviour.get("unsupported", ()) or (domain == "ai.onnx" and opset > 18):
            origin = f"{domain}::{opset}::{op_type}"
            code = behaviour.get("unsupported_code", "E13010")
            raise AtcError(
                code, f"No parser is registered for Op [{text_of(node, 3)}, optype [{origin}]]."
            )
        if "" in [value.decode() for value in all_of(node, 2)]:
            raise AtcError("E19999", f"op [{text_of(node, 3)}] has an empty output name")
    for tensor in all_of(graph, 5):
        stored = {text_of(entry, 1): text_of(entry, 2) for entry in all_of(tensor, 13)}
        location = stored.get("location", "")
        if set(stored) - {"location", "offset", "length"} or location.startswith(("/", "..")):
            raise AtcError("E10001", f"external data [{stored}] is invalid")
        if location:
            end = int(stored.get("offset", 0)) + int(stored.get("length", 0))
            if (path.parent / location).stat().st_size < end:
                raise AtcError("E10041", f"weight file [{location}] cannot be loaded")


def act(behaviour: dict, flags: dict) -> int:
    outcome = behaviour["outcome"]
    Path("kernel_meta").mkdir()  # fails when another compile works in this folder
    Path("kernel_meta/te_relu.json").write_text("{}")
    time.sleep(behaviour.get("seconds", 0))
    if outcome in ("SIGKILL", "SIGSEGV"):
        os.kill(os.getpid(), getattr(signal, outcome))
    if outcome == "fails":
        raise AtcError(behaviour["code"], behaviour["message"])
    if outcome == "silent":
        return 1
    if outcome == "error, rc 0":
        say("E10001: Value [x] for parameter [--log] is invalid. Reason: none.")
        return 0
    suffix = "_linux_x86_64" if outcome == "renamed" else ""
    if outcome != "no file":
        target = Path(f"{flags['output']}{suffix}.om")
        shutil.copyfile(behaviour["om"], target)
        if outcome == "damaged":
            target.write_bytes(target.read_bytes()[:300])
    if flags.get("external_weight") == "1":
        Path("weight").mkdir()
        Path("weight/weight_123").write_bytes(b"123")
    say("ATC run success, welcome to the next use.")
    if behaviour.get("warning"):
        say(behaviour["warning"])
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
