"""A server on this machine alone, and how it ends."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable

from pprgnn.explore.answers import Answers
from pprgnn.explore.guard import LONGEST_HEADERS, LONGEST_URL
from pprgnn.training.errors import TrainingError

PORT = 8471
PATIENCE = 1  # seconds that an answer under way is waited for at the end
NAMES = ("127.0.0.1", "localhost", "[::1]")


def listen(host: str, port: int | None) -> socket.socket:
    """A socket of this machine's own; without a port, the usual one or any that is free."""
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        found = None
    if found is None or not found.is_loopback:
        raise TrainingError(
            f"The explorer serves this machine alone, so --host must be 127.0.0.1, ::1 or localhost, but came as "
            f"{host!r}; from elsewhere, use `ssh -L {port or PORT}:127.0.0.1:{port or PORT}`."
        )
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        # The protocol is named because only then asyncio sends at once (TCP_NODELAY): each answer is 40 ms faster.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, wanted))
            sock.listen()
        except OSError as error:
            sock.close()
            reason = error.strerror or str(error)
            continue
        return sock
    raise TrainingError(
        f"The explorer cannot use port {wanted} of {host} ({reason}); choose another with --port, or leave it out."
    )


def url_of(sock: socket.socket) -> str:
    """Where the page is."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def serve(
    answers: Answers,
    sock: socket.socket,
    ready: Callable[[], None],
    ended: Callable[[], None],
    debug: bool = False,
) -> None:
    """Answer until Ctrl-C or SIGTERM; tells when it is ready, and when it has ended."""
    import uvicorn

    from pprgnn.explore.server import build_app

    url, port = url_of(sock), sock.getsockname()[1]
    hosts = {url.removeprefix("http://").rstrip("/"), *(f"{name}:{port}" for name in NAMES)}
    app, desk = build_app(answers, hosts, debug)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=PATIENCE,
        h11_max_incomplete_event_size=LONGEST_URL + LONGEST_HEADERS,
    )
    # Uvicorn ends at a signal, and then raises it once more for whoever would handle it without it: nobody should.
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: None) for each in signals]
    ready()
    uvicorn.Server(config).run(sockets=[sock])
    for each, handler in zip(signals, before, strict=True):
        signal.signal(each, handler)
    ended()
    if desk.busy:  # it cannot be interrupted, and nobody waits for it any more
        sys.stdout.flush()
        os._exit(0)
