"""Downloads from a server that breaks off, changes its mind or lies."""

import errno
import gzip
import hashlib
import os
import threading
from pathlib import Path

import pytest

from pprgnn.data import download as module
from pprgnn.data.download import DownloadError, download
from pprgnn.errors import DataError

from .server import Server

CONTENT = os.urandom(300_000)
OTHER = os.urandom(300_000)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "TIMEOUT", 5.0)
    server = Server()
    server.files["file.bin"] = CONTENT
    yield server
    server.close()


def silent(name, done, total):
    pass


def interrupt(name, done, total):
    raise KeyboardInterrupt


def part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def assert_only(target: Path, content: bytes = CONTENT) -> None:
    assert target.read_bytes() == content
    assert list(target.parent.iterdir()) == [target]


def test_whole_file_with_progress(server, tmp_path):
    target, seen = tmp_path / "new" / "folder" / "file.bin", []
    download(server.url("file.bin"), target, lambda *facts: seen.append(facts))
    assert_only(target)
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "validators",
    [
        {"ETag": '"a"'},
        {"Last-Modified": "Mon, 16 Nov 2026 00:00:00 GMT"},
        {"ETag": 'W/"a"', "Last-Modified": "Mon"},
    ],
    ids=["etag", "last-modified", "weak etag and last-modified"],
)
def test_a_broken_download_is_resumed_where_it_broke(server, tmp_path, validators):
    server.validators = validators
    server.troubles.extend([("cut", 100_000), ("cut", 50_000)])
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")
    assert [request.get("Range") for request in server.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert server.requests[1]["If-Range"] == validators.get("Last-Modified", validators.get("ETag"))
    assert server.sent == len(CONTENT)


def test_ctrl_c_keeps_the_part_and_the_next_call_resumes(server, tmp_path):
    target = tmp_path / "file.bin"
    with pytest.raises(KeyboardInterrupt, match=r"file\.bin: 65,536 bytes are kept, and the same command resumes"):
        download(server.url("file.bin"), target, interrupt)
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[: 1 << 16]
    download(server.url("file.bin"), target, silent)
    assert_only(target)
    assert server.requests[1]["Range"] == "bytes=65536-"


def test_ctrl_c_promises_nothing_that_it_cannot_keep(server, tmp_path):
    server.validators = {}
    with pytest.raises(KeyboardInterrupt, match="the same command starts it again"):
        download(server.url("file.bin"), tmp_path / "file.bin", interrupt)


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    server.troubles.append(("cut", 100_000))
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")
    assert server.sent == 100_000 + len(CONTENT)


@pytest.mark.parametrize("validators", [{}, {"ETag": 'W/"1"'}], ids=["none", "weak"])
def test_without_a_validator_nothing_is_resumed(server, tmp_path, validators):
    server.validators = validators
    server.troubles.append(("cut", 100_000))
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")
    assert "Range" not in server.requests[1]


def test_a_changed_file_is_not_glued_to_an_old_half(server, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        download(server.url("file.bin"), tmp_path / "file.bin", interrupt)
    server.files["file.bin"], server.validators = OTHER, {"ETag": '"2"'}
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin", OTHER)


def test_a_half_from_another_address_is_not_resumed(server, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        download(server.url("file.bin"), tmp_path / "file.bin", interrupt)
    server.files["moved.bin"] = OTHER
    download(server.url("moved.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin", OTHER)


def test_a_part_without_its_note_is_not_resumed(server, tmp_path):
    part_of(tmp_path / "file.bin").write_bytes(b"something else")
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")


@pytest.mark.parametrize("note", ["", "[]", "{", '{"url": "x"}'])
def test_a_damaged_note_does_no_harm(server, tmp_path, note):
    part_of(tmp_path / "file.bin").write_bytes(b"something else")
    (tmp_path / "file.bin.part.json").write_text(note)
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")


def test_an_answer_with_another_range_is_thrown_away(server, tmp_path):
    server.troubles.extend([("cut", 100_000), "wrong range"])
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")


def test_a_part_as_long_as_the_file_starts_over(server, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        download(server.url("file.bin"), tmp_path / "file.bin", interrupt)
    part_of(tmp_path / "file.bin").write_bytes(CONTENT + b"more")
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")


def test_two_that_write_the_same_part_do_not_spoil_it(server, tmp_path):
    def meddle(name, done, total):
        if len(server.requests) == 1:
            with open(part_of(tmp_path / "file.bin"), "ab") as file:
                file.write(b"from another process")

    download(server.url("file.bin"), tmp_path / "file.bin", meddle)
    assert_only(tmp_path / "file.bin")
    assert "Range" not in server.requests[1]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_errors_are_tried_again(server, tmp_path, status):
    server.troubles.extend([status] * 3)
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")
    assert len(server.requests) == 4


def test_waiting_grows(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(module, "PAUSE", 1.0)
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    server.troubles.extend([503] * 3)
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert pauses == [1, 2, 4]


def test_it_gives_up_when_nothing_more_arrives(server, tmp_path):
    server.troubles.extend([("cut", 1000)] + [503] * 50)
    with pytest.raises(DownloadError, match=r"again and again \(the server answered 503\).*1,000 bytes are kept"):
        download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert len(server.requests) == 1 + module.ATTEMPTS - 1
    assert not (tmp_path / "file.bin").exists()


def test_attempts_that_bring_something_do_not_count(server, tmp_path):
    server.troubles.extend([("cut", 10_000)] * 20)
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert_only(tmp_path / "file.bin")
    assert len(server.requests) == 21


def test_a_stalled_server_is_asked_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    release = threading.Event()
    server.troubles.append(("stall", release))
    download(server.url("file.bin"), tmp_path / "file.bin", silent)
    release.set()
    assert_only(tmp_path / "file.bin")


@pytest.mark.parametrize("status", [403, 404, 410])
def test_final_errors_are_final(server, tmp_path, status):
    server.troubles.append(status)
    with pytest.raises(DownloadError, match=f"the server answers {status}"):
        download(server.url("file.bin"), tmp_path / "file.bin", silent)
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_no_connection(server, tmp_path):
    url = server.url("file.bin")
    server.close()
    with pytest.raises(DownloadError, match=r"no connection to 127\.0\.0\.1 \(Connection refused\)"):
        download(url, tmp_path / "file.bin", silent)


def test_a_wrong_checksum_leaves_the_old_file_alone(server, tmp_path):
    target = tmp_path / "file.bin"
    target.write_bytes(b"old")
    with pytest.raises(DownloadError, match="does not have the expected SHA-256"):
        download(server.url("file.bin"), target, silent, hashlib.sha256(OTHER).hexdigest())
    assert_only(target, b"old")
    download(server.url("file.bin"), target, silent, hashlib.sha256(CONTENT).hexdigest())
    assert_only(target)


@pytest.mark.parametrize("level", [1, 9])
def test_of_compressed_files_the_content_is_checked(server, tmp_path, level):
    server.files["file.gz"] = gzip.compress(CONTENT, level)
    download(server.url("file.gz"), tmp_path / "file.gz", silent, hashlib.sha256(CONTENT).hexdigest())
    assert_only(tmp_path / "file.gz", server.files["file.gz"])


def test_a_damaged_compressed_file_is_refused(server, tmp_path):
    server.files["file.gz"] = gzip.compress(CONTENT)[:-1000]
    with pytest.raises(DownloadError, match="SHA-256"):
        download(server.url("file.gz"), tmp_path / "file.gz", silent, hashlib.sha256(CONTENT).hexdigest())
    assert list(tmp_path.iterdir()) == []


class FullDisk:
    def __init__(self, *args):
        self.file = open(*args)  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, block):
        self.file.write(block[:1000])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_sentence_and_can_be_resumed(server, tmp_path, monkeypatch):
    target = tmp_path / "file.bin"
    with monkeypatch.context() as patch:
        patch.setattr(module, "open", FullDisk, raising=False)
        with pytest.raises(DataError, match=f"no space left in {tmp_path}; free some, or set PPRGNN_DATA"):
            download(server.url("file.bin"), target, silent)
    assert not target.exists()
    download(server.url("file.bin"), target, silent)
    assert_only(target)
    assert server.requests[1]["Range"] == "bytes=1000-"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_read_only_root_is_one_sentence(server, tmp_path, monkeypatch, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataError, match=r"sub cannot be written \(.*\); set PPRGNN_DATA to a folder that can"):
        download(server.url("file.bin"), tmp_path / "sub" / "file.bin", silent)
    assert server.requests == []


def test_a_target_that_cannot_be_replaced(server, tmp_path):
    (tmp_path / "file.bin").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        download(server.url("file.bin"), tmp_path / "file.bin", silent)
