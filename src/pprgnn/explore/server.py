"""The explorer over HTTP: the page, its files, and four questions."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from pprgnn.errors import DataError
from pprgnn.explore.answers import LIMIT, Answers
from pprgnn.explore.errors import NotThereError
from pprgnn.explore.guard import App, Guard

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
GET = ["GET", "HEAD"]
IN_BODY = "status-in-body"
LEFT = 499  # nobody sees it: whoever asked has gone


class Desk:
    """Answers one question at a time; those whose asker has gone are passed over."""

    def __init__(self, debug: bool) -> None:
        self.busy, self._debug, self._turn = False, debug, asyncio.Lock()

    async def ask(self, request: Request, question: Callable[[], dict[str, Any]]) -> Response:
        """The answer, or why there is none."""
        async with self._turn:
            if await request.is_disconnected():
                return Response(status_code=LEFT)
            try:
                return JSONResponse(await to_thread.run_sync(self._work, question, abandon_on_cancel=True))
            except NotThereError as error:
                return refused(404, str(error), request)
            except DataError as error:
                return refused(400, str(error), request)
            except Exception as error:
                return self.failed(error)

    def _work(self, question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self.busy = True
        try:
            return question()
        finally:
            self.busy = False

    def failed(self, error: Exception) -> Response:
        """A mistake in the code: its kind for the page, the rest for the terminal of whoever looks for it."""
        if self._debug:
            traceback.print_exception(error, file=sys.stderr)
        return refused(
            500,
            f"The explorer failed ({type(error).__name__}); `pprgnn --debug explore` shows where in the terminal.",
        )


def refused(status: int, sentence: str, request: Request | None = None) -> Response:
    """An error, as the page expects it.

    Browsers write every 4xx into the console, as if the page were broken. It asks for the status in the body.
    """
    if request is not None and request.headers.get("prefer") == IN_BODY:
        return JSONResponse({"detail": sentence, "status": status}, headers={"Preference-Applied": IN_BODY})
    return JSONResponse({"detail": sentence}, status)


def build_app(answers: Answers, hosts: Iterable[str], debug: bool = False) -> tuple[App, Desk]:
    """The application for these values of the ``Host`` header, and the desk where it computes."""
    app, desk, files = FastAPI(docs_url=None, redoc_url=None, openapi_url=None), Desk(debug), dict(_files())

    @app.api_route("/api/runs", methods=GET)
    async def runs(request: Request) -> Response:
        return await desk.ask(request, answers.runs)

    @app.api_route("/api/search", methods=GET)
    async def search(request: Request, q: str = "", graph: int = 0, run: int = 0, limit: int = 20) -> Response:
        return await desk.ask(request, lambda: answers.search(q, graph, run, limit))

    @app.api_route("/api/explain", methods=GET)
    async def explain(
        request: Request,
        run: int = 0,
        graph: int = 0,
        node: int | None = None,
        name: str | None = None,
        target: int | None = None,
        limit: int = LIMIT,
        all: int = 0,
    ) -> Response:
        return await desk.ask(request, lambda: answers.explain(run, graph, node, name, target, limit, bool(all)))

    @app.api_route("/api/features", methods=GET)
    async def features(
        request: Request,
        run: int = 0,
        graph: int = 0,
        node: int | None = None,
        name: str | None = None,
        target: int | None = None,
    ) -> Response:
        return await desk.ask(request, lambda: answers.features(run, graph, node, name, target))

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
        return desk.failed(error)

    return Guard(app, hosts), desk


def _files() -> Iterator[tuple[str, Path]]:
    """All that is served beside the answers, by the address it has."""
    for path in STATIC.rglob("*"):
        if path.suffix in KINDS and path.is_file() and not path.is_symlink():
            yield f"/static/{path.relative_to(STATIC).as_posix()}", path
    yield "/", STATIC / PAGE
