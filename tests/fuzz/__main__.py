"""`make fuzz`: damage files at random for minutes.

python -m tests.fuzz [TARGET ...] [--minutes 10]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from .damage import damaged, files_of, read_within_limits
from .targets import TARGETS

FOUND = Path("runs/fuzz")


def main() -> None:
    """Fuzz one target here, or several one after the other in processes of their own."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; none: all")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target (10)")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    if len(names) == 1:
        sys.exit(fuzz(names[0], 60 * options.minutes))
    base = [sys.executable, "-m", "tests.fuzz", "--minutes", str(options.minutes)]
    failed = [name for name in names if subprocess.run([*base, name], check=False).returncode]
    print(*failed, sep="\n")
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


def fuzz(name: str, seconds: float) -> int:
    """How many kinds of errors were found that are not ours; each is printed and its file kept."""
    target, kinds, number, started = TARGETS[name], set[str](), 0, time.monotonic()
    with TemporaryDirectory() as place:
        folder = Path(place)
        target.write(folder)
        whole = {path: path.read_bytes() for path in files_of(folder)}
        while time.monotonic() - started < seconds:
            draw = Random(os.urandom(16))
            path = draw.choice(list(whole))
            content = damaged(whole[path], draw)
            path.write_bytes(content)
            number += 1
            try:
                read_within_limits(target, folder)
            except Exception as error:
                kind = f"{type(error).__name__} {traceback.extract_tb(error.__traceback__)[-1]}"
                if kind not in kinds:
                    kinds.add(kind)
                    FOUND.mkdir(parents=True, exist_ok=True)
                    kept = FOUND / f"{name}-{len(kinds)}-{path.name}"
                    kept.write_bytes(content)
                    print(f"{name}: {type(error).__name__}: {str(error)[:200]} ({kept})", flush=True)
            path.write_bytes(whole[path])
    print(f"{name}: {number} damaged files, {len(kinds)} kinds of errors that are not ours", flush=True)
    return len(kinds)


if __name__ == "__main__":
    main()
