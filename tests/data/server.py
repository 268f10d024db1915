"""A small web server on this machine that misbehaves as it is told; nothing here touches the network."""

import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves bytes by path. Each request takes one of the `troubles` first, while there are any."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.validators: dict[str, str] = {"ETag": '"1"'}
        self.ranges = True
        self.troubles: deque[object] = (
            deque()
        )  # a status; or ("cut", bytes); or ("stall", event); or "wrong range"
        self.requests: list[dict[str, str]] = []  # headers, with the path under ":path"
        self.sent = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # a client that goes away is no news
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{path}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                server.requests.append(dict(self.headers) | {":path": self.path[1:]})
                trouble = server.troubles.popleft() if server.troubles else None
                content = server.files.get(self.path[1:])
                if isinstance(trouble, int) or content is None:
                    self.send_error(trouble if isinstance(trouble, int) else 404)
                    return
                if isinstance(trouble, tuple) and trouble[0] == "stall":
                    trouble[1].wait(10)
                    return
                start = self._start(content)
                if start is None:
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    first = start + (trouble == "wrong range")
                    self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(content) - start))
                for key, value in server.validators.items():
                    self.send_header(key, value)
                self.end_headers()
                if trouble == "wrong range":
                    content = content[1:] + b"?"
                end = start + trouble[1] if isinstance(trouble, tuple) else len(content)
                server.sent += len(content[start:end])
                self.wfile.write(content[start:end])

            def _start(self, content):
                """Where to begin: a range counts only for the version that the client has."""
                wanted = self.headers.get("Range")
                if not (wanted and server.ranges and self.headers.get("If-Range") in server.validators.values()):
                    return 0
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                return start if start < len(content) else None

        return Handler
