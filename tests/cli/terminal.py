"""A terminal for tests: a window of some width, somebody who reads along and presses keys."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
import time
from dataclasses import dataclass

from tests import warm

# Several commands in one process, since importing torch takes seconds; each has its width and tells how it ended.
SEVERAL = """
import fcntl, json, os, struct, sys, termios
from pprgnn.cli.main import run
for columns, arguments, environment in json.loads(sys.argv[1]):
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code = 0
    try:
        run()
    except SystemExit as end:
        code = end.code or 0
    for name in environment:
        del os.environ[name]
    print(f"<<<{code}>>>", flush=True)
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
DEADLINE = 120.0  # seconds


@dataclass
class Shown:
    """What one command showed, and how it ended."""

    raw: str
    code: int

    @property
    def lines(self):
        """Every state of every line, without colours; what a moving line showed counts, too."""
        return [line.rstrip() for line in re.split(r"[\r\n]+", ESCAPE.sub("", self.raw))]

    @property
    def text(self):
        return "\n".join(self.lines)

    @property
    def widest(self):
        return max(map(len, self.lines))


def on_terminal(*arguments, columns=80, folder=None, keys=()):
    """Run one command; each of ``keys`` is a text to wait for and what is pressed then."""
    return _run(warm.ENTRY, arguments, columns, folder, keys)


def several_on_terminal(commands, folder):
    """Run ``(columns, arguments, environment)`` one after the other."""
    words = [(columns, [str(word) for word in arguments], extra) for columns, arguments, extra in commands]
    whole = _run(SEVERAL, [json.dumps(words)], 80, folder, ())
    parts = re.split(r"<<<(\d+)>>>\r\n", whole.raw)
    assert len(parts) == 2 * len(commands) + 1, whole.raw
    return [Shown(text, int(code)) for text, code in zip(parts[::2], parts[1::2], strict=False)]


def _run(code, arguments, columns, folder, keys):
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    without = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PPRGNN_DEBUG")
    environment = {key: value for key, value in os.environ.items() if key not in without}
    environment["TERM"] = "xterm-256color"
    process = warm.start(
        code, *arguments, files=(inside,) * 3, folder=folder, environment=environment, terminal=True
    )
    os.close(inside)
    try:
        raw = _read(terminal, list(keys), time.monotonic() + DEADLINE)
        process.join(30)
        return Shown(raw, process.exitcode)
    finally:
        process.kill()
        os.close(terminal)


def _read(terminal, keys, deadline):
    shown, seen = b"", 0
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError(shown.decode(errors="replace"))
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            block = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        shown += block
        if keys and (place := shown.find(keys[0][0].encode(), seen)) >= 0:
            seen = place + 1
            os.write(terminal, keys.pop(0)[1])
    assert not keys, f"never saw {keys[0][0]!r} in {shown.decode(errors='replace')}"
    return shown.decode(errors="replace")
