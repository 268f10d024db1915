"""Whole files are read; damaged ones are read or refused, and nothing else happens."""

import sys
from random import Random

import pytest

from pprgnn.errors import DataError

from .damage import damaged, files_of, read_within_limits
from .targets import TARGETS

TIMES = 100  # a target; `make fuzz` goes on for minutes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits time and memory as Linux does")


@pytest.mark.parametrize("name", TARGETS)
def test_whole_files_are_read(name, tmp_path):
    TARGETS[name].write(tmp_path)
    assert not isinstance(read_within_limits(TARGETS[name], tmp_path), DataError)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_read_or_refused(name, tmp_path):
    TARGETS[name].write(tmp_path)
    files = files_of(tmp_path)
    refused = 0
    for number in range(TIMES):
        draw = Random(f"{name} {number}")
        path = draw.choice(files)
        content = path.read_bytes()
        path.write_bytes(damaged(content, draw))
        try:
            refused += isinstance(read_within_limits(TARGETS[name], tmp_path), DataError)
        except BaseException as error:
            error.add_note(f"Damage {number} of {path.relative_to(tmp_path)}, target {name}.")
            raise
        path.write_bytes(content)
    assert refused
