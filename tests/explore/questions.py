"""Small runs to ask about, and requests that go straight to the application."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

from pprgnn.explore.answers import Answers, Question
from pprgnn.explore.run_view import Opened

PORT = 8471
HOST = f"127.0.0.1:{PORT}"


def answers(model, dataset, run=None, name="toy"):
    """All that can be asked about a model; ``model`` belongs to the answers from then on."""
    return Answers([Opened(Path(name), model, dataset, run)], [], lambda text: None)


def explain(found, node=None, *, graph=0, target=None, limit=1000, run=0):
    return found.explain(Question(run, graph, node, None, target), limit)


@dataclass
class Answer:
    status: int = 0
    headers: dict = field(default_factory=dict)
    body: bytes = b""

    def json(self):
        return json.loads(self.body)


async def send(app, path, *, method="GET", headers=(), query="", gone=lambda: False):
    """A request as it would come over the wire: nothing is tidied up on the way. ``gone``: did we leave?"""
    answer, names = Answer(), {name.lower() for name, _ in headers}
    given = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    if "host" not in names:
        given.append((b"host", HOST.encode()))
    path, _, found = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": decoded(path),
        "raw_path": path.encode("latin-1"),
        "root_path": "",
        "query_string": (query or found).encode("latin-1"),
        "headers": [(name, value) for name, value in given if value != b"-"],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", PORT),
    }

    async def receive():
        if gone():
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def take(message):
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                assert name.decode() not in answer.headers, f"{name} twice"
                answer.headers[name.decode()] = value.decode("latin-1")
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, take)
    return answer


def decoded(path):
    from urllib.parse import unquote

    return unquote(path)


def ask(app, path, **options):
    return asyncio.run(send(app, path, **options))
