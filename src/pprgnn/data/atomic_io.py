"""Files that are written whole or not at all: text, tensors, lines. Nothing in them can run code."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import math
import os
import platform
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


DIGEST = "digest"  # in the metadata of a file of tensors
HERE = hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()  # short: names of files have a limit


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of ``path`` at the end, or is removed when something goes wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    partial = path.with_name(f"{path.name}.{HERE}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the contents do
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what processes of this machine that were killed left of the same file."""
    for left in path.parent.glob(f"{glob.escape(f'{path.name}.{HERE}.')}*.part"):
        process = left.name.rsplit(".", 3)[1]
        if process.isdigit() and not _is_alive(int(process)):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


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
    """Write a safetensors file with a digest of all that is in it; an existing one is kept when this fails."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as partial:
        partial.touch()
        mode = partial.stat().st_mode
        try:
            save_file(_apart(tensors), partial, {**metadata, DIGEST: digest(tensors, metadata)})
        except SafetensorError as error:  # also when the disk is full
            raise OSError(str(error)) from error
        with contextlib.suppress(OSError):  # safetensors lets nobody else read it, whatever the umask says
            partial.chmod(mode)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, memory-mapped, and its metadata.

    All of it is read once: a file whose contents are not those of its digest is refused. Files without a digest
    are taken as they are.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path} must be a whole safetensors file, but cannot be read ({error}); make or copy it again."
        ) from error
    written = metadata.get(DIGEST)
    if written is not None and written != digest(tensors, metadata):
        raise DataError(
            f"{path} is damaged: its contents are not those that were written (their digests differ); make or "
            f"copy it again."
        )
    return tensors, metadata


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Of names, types, shapes and bytes of tensors, and of texts."""
    import torch

    found = hashlib.blake2b(digest_size=16)
    for key in sorted(metadata.keys() - {DIGEST}):
        found.update(f"{key!r} {metadata[key]!r}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


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
