"""Files that are written whole or not at all: text, tensors, lines. Nothing in them can run code."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of ``path`` at the end, or is removed when something goes wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the contents do
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text; an existing file is replaced, or kept when this fails."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def drop_torn_line(path: Path) -> None:
    """Remove a last line that a crash cut short: what is appended after it could not be read."""
    if not path.is_file():
        return
    with open(path, "r+b") as file:
        whole = file.read()
        if not whole.endswith(b"\n"):
            file.truncate(whole.rfind(b"\n") + 1)


def plain(value: Any) -> Any:
    """The same without what JSON has no word for: a metric that is undefined becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; an existing file is replaced, or kept when this fails."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as partial:
        partial.touch()
        mode = partial.stat().st_mode
        try:
            save_file(_apart(tensors), partial, dict(metadata))
        except SafetensorError as error:  # also when the disk is full
            raise OSError(str(error)) from error
        with contextlib.suppress(OSError):  # safetensors lets nobody else read it, whatever the umask says
            partial.chmod(mode)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, memory-mapped, and its metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path} must be a whole safetensors file, but cannot be read ({error}); make or copy it again."
        ) from error


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, each in memory of its own: safetensors refuses others."""
    seen: set[int] = set()
    result = {}
    for key, tensor in tensors.items():
        tensor = tensor.contiguous()
        memory = tensor.untyped_storage().data_ptr()
        result[key] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return result
