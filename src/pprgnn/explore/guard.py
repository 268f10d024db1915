"""Who may ask: this machine's own browser, on our own page, with short questions and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

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


class Guard:
    """Refuses what does not come from our own page, before anything else looks at it.

    Other pages in the same browser can send requests to this server: the ``Origin`` and ``Sec-Fetch-Site`` headers
    tell them, and a name that was made to point here (DNS rebinding) shows in ``Host``.

    Args:
        app: What answers.
        hosts: The values of ``Host`` that are ours, with the port.
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
