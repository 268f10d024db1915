"""The explorer over HTTP, on this machine alone: who may ask, the page, its files, four questions, how it ends."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Annotated, Any

import h11
import uvicorn
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from pprgnn.errors import DataError
from pprgnn.explore.answers import LIMIT, Answers, Kept, Question
from pprgnn.explore.dataset_view import NotThereError
from pprgnn.explore.traced import LeftError, asker_gone
from pprgnn.training.errors import TrainingError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_URL = 2000
LONGEST_HEADERS = 16_000
POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
STATIC = Path(__file__).parent / "static"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
GET = ["GET", "HEAD"]
Asked = Annotated[Question, Depends()]
IN_BODY = "status-in-body"
PORT = 8471
PATIENCE = 1  # seconds that an answer under way is waited for at the end
NAMES = ("127.0.0.1", "localhost", "[::1]")
LEFT = 499  # nobody sees it: whoever asked has gone
LIGHT = 4  # threads for questions that are quickly answered
LOOK = 0.05  # seconds between two looks whether whoever asked is still there
HEADERS_WITHIN = 10.0  # seconds for a request to come, from its first letter, or from the start of the connection


# ----------------------------------------------------------------------------------------------------- who may ask
class Guard:
    """Refuses what does not come from our own page, before anything else looks at it.

    Other pages in the same browser can send requests to this server: the ``Origin`` and ``Sec-Fetch-Site`` headers
    tell them, and a name that was made to point here (DNS rebinding) shows in ``Host``.
    """

    def __init__(self, app: App, hosts: Iterable[str]) -> None:
        self.app, self.hosts = app, frozenset(hosts)
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        api = scope["path"].startswith("/api")

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = {**HEADERS, "Cache-Control": "no-store" if api else "no-cache"}
                added = [(name.lower().encode(), value.encode()) for name, value in more.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send_guarded)
            return
        status, sentence = refusal
        headers = {"Allow": "GET, HEAD"} if status == 405 else {"Connection": "close"}
        await JSONResponse({"detail": sentence}, status, headers)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence; ``None``: it may pass."""
        names = [name.decode("latin-1").lower() for name, _ in scope["headers"]]
        values = dict(zip(names, (value.decode("latin-1") for _, value in scope["headers"]), strict=True))
        if names.count("host") != 1 or values["host"].lower() not in self.hosts:
            return 403, f"This page is served as {min(self.hosts)} only, and was asked for by another name."
        if "origin" in values and (names.count("origin") != 1 or values["origin"].lower() not in self.origins):
            return 403, "Pages from elsewhere may not ask here."
        foreign = values.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if foreign and scope["path"] != "/":  # a link from elsewhere may lead to the page, and to nothing else
            return 403, "Pages from elsewhere may not ask here."
        if scope["method"] not in ("GET", "HEAD"):
            return 405, f"Only GET and HEAD are answered here, but {scope['method'][:20]} came."
        if values.get("content-length", "0") != "0" or "transfer-encoding" in values:
            return 413, "Questions have no body here; ask with the address alone."
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_URL:
            return 414, f"An address may have {LONGEST_URL} letters here; ask for less."
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEADERS:
            return (
                431,
                f"All headers together may have {LONGEST_HEADERS} letters here; delete this page's cookies.",
            )
        return None


# ----------------------------------------------------------------------------------------------- answers over HTTP
class RequestQueue:
    """Answers what takes long one at a time, and all else beside it.

    A question whose asker has gone is passed over, and given up if it is being answered.
    """

    def __init__(self, debug: bool) -> None:
        self._debug, self._turn, self._running = debug, asyncio.Lock(), set[threading.Event]()
        self._light = CapacityLimiter(LIGHT)  # threads of its own: those behind an explanation take none of them

    @property
    def busy(self) -> bool:
        """Whether anything is being answered."""
        return bool(self._running)

    async def ask(self, request: Request, question: Callable[[], dict[str, Any]]) -> Response:
        """The answer to what is quickly found, or why there is none."""
        return await self._answered(request, question, threading.Event(), self._light)

    async def compute(self, request: Request, question: Callable[[], dict[str, Any]]) -> Response:
        """The same for what takes long, when its turn has come."""
        async with self._turn:
            if await request.is_disconnected():
                return Response(status_code=LEFT)
            gone = threading.Event()
            watching = asyncio.create_task(_watch(request, gone))
            try:
                return await self._answered(request, question, gone, None)
            finally:
                watching.cancel()

    async def _answered(
        self,
        request: Request,
        question: Callable[[], dict[str, Any]],
        gone: threading.Event,
        limiter: CapacityLimiter | None,
    ) -> Response:
        def work() -> Response:
            asker_gone.set(gone)  # in this thread's copy of the context
            self._running.add(gone)
            try:
                return JSONResponse(question())
            finally:
                self._running.discard(gone)

        try:
            return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
        except LeftError:
            return Response(status_code=LEFT)
        except NotThereError as error:
            return refused(404, str(error), request)
        except DataError as error:
            return refused(400, str(error), request)
        except Exception as error:
            return self.failed(error)

    def failed(self, error: Exception) -> Response:
        """A mistake in the code: its kind for the page, the rest for the terminal of whoever looks for it."""
        if self._debug:
            traceback.print_exception(error, file=sys.stderr)
        return refused(
            500,
            f"The explorer failed ({type(error).__name__}); `pprgnn --debug explore` shows where in the terminal.",
        )


async def _watch(request: Request, gone: threading.Event) -> None:
    """Tell when whoever asked has gone: a page drops its question when the next one is clicked."""
    while not await request.is_disconnected():
        await asyncio.sleep(LOOK)
    gone.set()


def refused(status: int, sentence: str, request: Request | None = None) -> Response:
    """An error, as the page expects it.

    Browsers write every 4xx into the console, as if the page were broken. It asks for the status in the body.
    """
    if request is not None and request.headers.get("prefer") == IN_BODY:
        return JSONResponse({"detail": sentence, "status": status}, headers={"Preference-Applied": IN_BODY})
    return JSONResponse({"detail": sentence}, status)


def build_app(answers: Answers, hosts: Iterable[str], debug: bool = False) -> tuple[App, RequestQueue]:
    """The application for these values of the ``Host`` header, and the queue where it computes."""
    app, queue, files = (
        FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        RequestQueue(debug),
        dict(static_files()),
    )

    @app.api_route("/api/runs", methods=GET)
    async def runs(request: Request) -> Response:
        return await queue.ask(request, answers.runs)

    @app.api_route("/api/search", methods=GET)
    async def search(request: Request, q: str = "", graph: int = 0, run: int = 0, limit: int = 20) -> Response:
        return await queue.ask(request, lambda: answers.search(q, graph, run, limit))

    async def kept_or_computed(request: Request, answer: Kept, *asked: Any) -> Response:
        if (found := answer.get(asked)) is not None:
            return await queue.ask(request, lambda: found)
        return await queue.compute(request, lambda: answer(*asked))

    @app.api_route("/api/explain", methods=GET)
    async def explain(request: Request, question: Asked, limit: int = LIMIT, all: int = 0) -> Response:
        return await kept_or_computed(request, answers.explain, question, limit, bool(all))

    @app.api_route("/api/features", methods=GET)
    async def features(request: Request, question: Asked) -> Response:
        return await kept_or_computed(request, answers.features, question)

    @app.api_route("/", methods=GET)
    @app.api_route("/static/{name:path}", methods=GET)
    async def file(request: Request) -> Response:
        path = files.get(request.scope["raw_path"].decode("latin-1"))  # as it came: nothing is decoded or joined
        if path is None:
            raise HTTPException(404)
        return Response(path.read_bytes(), media_type=KINDS[path.suffix])

    @app.exception_handler(RequestValidationError)
    async def not_a_value(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        sentence = f"{first['loc'][-1]} must be a whole number, but came as {str(first['input'])[:40]!r}."
        return refused(400, sentence, request)

    @app.exception_handler(HTTPException)
    async def not_there(_: Request, error: HTTPException) -> Response:
        return refused(error.status_code, "There is no such page here; begin at /.")

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return queue.failed(error)

    return Guard(app, hosts), queue


def static_files() -> Iterator[tuple[str, Path]]:
    """All that is served beside the answers, by the address it has."""
    for path in STATIC.rglob("*"):
        if path.suffix in KINDS and path.is_file() and not path.is_symlink():
            yield f"/static/{path.relative_to(STATIC).as_posix()}", path
    yield "/", STATIC / "index.html"


# ------------------------------------------------------------------------------------------- on this machine alone
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


def web_server(app: App) -> uvicorn.Server:
    """What speaks HTTP for the application."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=InTime,
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
    )


class InTime(H11Protocol):
    """Closes a connection on which no whole request comes in time; uvicorn would wait for ever."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _expect(self) -> None:
        if self.conn.their_state is not h11.IDLE:  # the request is there
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(HEADERS_WITHIN, self.transport.close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def serve(
    answers: Answers,
    sock: socket.socket,
    ready: Callable[[], None],
    ended: Callable[[], None],
    debug: bool = False,
) -> None:
    """Answer until Ctrl-C or SIGTERM; tells when it is ready, and when it has ended."""
    url, port = url_of(sock), sock.getsockname()[1]
    hosts = {url.removeprefix("http://").rstrip("/"), *(f"{name}:{port}" for name in NAMES)}
    app, queue = build_app(answers, hosts, debug)
    # Uvicorn ends at a signal, and then raises it once more for whoever would handle it without it: nobody should.
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: None) for each in signals]
    ready()
    web_server(app).run(sockets=[sock])
    for each, handler in zip(signals, before, strict=True):
        signal.signal(each, handler)
    ended()
    if queue.busy:  # it cannot be interrupted, and nobody waits for it any more
        sys.stdout.flush()
        os._exit(0)
