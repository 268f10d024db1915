"""The server: what it answers, whom it answers, and what waits for what."""

import asyncio
import threading

import pytest

from pprgnn.explore import server
from pprgnn.explore.answers import Kept, Question
from pprgnn.explore.server import STATIC, build_app
from pprgnn.explore.traced import LeftError, check_asker

from ..problems import ZOO
from ..training.small_data import is_sentence
from ..training.test_explain import of_graph, untrained
from .questions import HOST, answers, ask, send

HOSTS = {HOST, "localhost:8471", "[::1]:8471"}


@pytest.fixture(scope="module")
def found():
    dataset = of_graph(ZOO["karate"])
    return answers(untrained(dataset, "hidden=6"), dataset)


@pytest.fixture(scope="module")
def app(found):
    return build_app(found, HOSTS)[0]


# ------------------------------------------------------------------------------------------------------- answers
def test_the_page_and_its_files(app):
    page = ask(app, "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.body == (STATIC / "index.html").read_bytes()
    for path in STATIC.rglob("*.js"):
        name = path.relative_to(STATIC).as_posix()
        file = ask(app, f"/static/{name}")
        assert (file.status, file.body) == (200, path.read_bytes())
        assert file.headers["content-type"] == "text/javascript; charset=utf-8"


def test_questions(app, found):
    assert ask(app, "/api/runs").json() == found.runs()
    results = ask(app, "/api/search?q=3&limit=2").json()
    assert [each["node"] for each in results["results"]] == [3, 30]
    assert results["more"] is True
    answer = ask(app, "/api/explain?node=5&target=1&limit=4").json()
    assert (answer["node"], answer["decision"]["target"], len(answer["nodes"])) == (5, 1, 4)
    assert ask(app, "/api/explain?name=5&target=1&limit=4").json() | {"seconds": 0} == answer | {"seconds": 0}
    assert ask(app, "/api/explain?node=5", method="HEAD").status == 200
    assert ask(app, "/api/features?node=5&target=1").json() == found.features(Question(node=5, target=1))


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/explain?node=99", 404, "karate has no node '99'; the closest are 0 to 33."),
        ("/api/explain?name=ann", 404, "karate has no node 'ann'; the closest are 0, 1, 2."),
        ("/api/explain?node=0&run=7", 404, "There are runs 0 to 0, but run 7 was asked for."),
        ("/api/explain?node=0&graph=2", 404, "karate has 1 graph, numbered from 0, but graph 2 was asked for."),
        ("/api/search?q=1&graph=2", 404, "karate has 1 graph, numbered from 0, but graph 2 was asked for."),
        ("/api/explain?node=0&target=9", 400, "target must be between 0 and 2, but came as 9."),
        ("/api/explain", 400, "This model labels nodes: say which, with node=NUMBER or name=NAME."),
        ("/api/explain?node=x", 400, "node must be a whole number, but came as 'x'."),
        ("/api/explain?node=1e3&run=", 400, "run must be a whole number, but came as ''."),
        ("/api/search?q=1&limit=1000", 400, "limit must be between 1 and 200, but came as 1000."),
        ("/api/features?node=99", 404, "karate has no node '99'; the closest are 0 to 33."),
        ("/api/features?node=0&target=9", 400, "target must be between 0 and 2, but came as 9."),
        ("/api/nothing", 404, "There is no such page here; begin at /."),
        ("/docs", 404, "There is no such page here; begin at /."),
        ("/openapi.json", 404, "There is no such page here; begin at /."),
        ("/static/nothing.js", 404, "There is no such page here; begin at /."),
    ],
)
def test_errors_are_sentences(app, path, status, sentence):
    answer = ask(app, path)
    assert (answer.status, answer.json()) == (status, {"detail": sentence})


@pytest.mark.parametrize(("query", "status"), [("node=99", 404), ("node=x", 400), ("node=0&limit=0", 400)])
def test_the_page_has_the_status_in_the_body_lest_the_console_calls_it_broken(app, query, status):
    plain = ask(app, f"/api/explain?{query}")
    answer = ask(app, f"/api/explain?{query}", headers=[("Prefer", "status-in-body")])
    assert plain.status == status
    assert (answer.status, answer.json()) == (200, {**plain.json(), "status": status})
    assert answer.headers["preference-applied"] == "status-in-body"
    assert ask(app, "/static/nothing.js", headers=[("Prefer", "status-in-body")]).status == 404


def test_a_mistake_in_the_code_is_one_sentence(found, monkeypatch, capfd):
    def fail(*_):
        raise KeyError("secret/path")

    monkeypatch.setattr(found, "search", fail)
    for debug in (False, True):
        answer = ask(build_app(found, HOSTS, debug)[0], "/api/search?q=1")
        assert answer.status == 500
        assert answer.json()["detail"].startswith("The explorer failed (KeyError);")
        assert b"secret" not in answer.body
        assert ("secret/path" in capfd.readouterr().err) is debug


# ------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8471", "127.0.0.1", "127.0.0.1:80", "", "-"])
@pytest.mark.parametrize("path", ["/", "/api/runs"])
def test_other_names_for_this_machine_are_refused(app, host, path):
    answer = ask(app, path, headers=[("Host", host)])
    assert answer.status == 403
    assert is_sentence(answer.json()["detail"])


def test_two_names_are_refused(app):
    assert ask(app, "/", headers=[("Host", HOST), ("Host", "evil.example")]).status == 403
    assert ask(app, "/", headers=[("Host", "evil.example"), ("Host", HOST)]).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8471", "localhost:8471", "LOCALHOST:8471", "[::1]:8471"])
def test_names_of_loopback_are_ours(app, host):
    assert ask(app, "/api/runs", headers=[("Host", host)]).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (f"http://{HOST}", 200),
        ("http://localhost:8471", 200),
        ("https://evil.example", 403),
        ("http://127.0.0.1:9999", 403),
        (f"https://{HOST}", 403),
        ("null", 403),
    ],
)
def test_other_origins_are_refused(app, origin, status):
    answer = ask(app, "/api/runs", headers=[("Origin", origin)])
    assert answer.status == status
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
def test_requests_by_other_pages_are_refused(app, site):
    foreign, headers = site in ("cross-site", "same-site"), [("Sec-Fetch-Site", site)]
    assert ask(app, "/api/runs", headers=headers).status == (403 if foreign else 200)
    assert ask(app, "/static/api.js", headers=headers).status == (403 if foreign else 200)
    assert ask(app, "/", headers=headers).status == 200  # a link from elsewhere


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/nothing"])
def test_other_methods_are_refused(app, method, path):
    answer = ask(app, path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "headers", [[("Content-Length", "5")], [("Content-Length", "junk")], [("Transfer-Encoding", "chunked")]]
)
def test_bodies_are_refused(app, headers):
    assert ask(app, "/api/runs", headers=headers).status == 413


def test_long_addresses_are_refused(app):
    assert ask(app, "/api/search?q=" + "a" * (server.LONGEST_URL - 50)).status == 200
    assert ask(app, "/api/search?q=" + "a" * server.LONGEST_URL).status == 414
    assert ask(app, "/" + "a" * server.LONGEST_URL).status == 414


def test_long_headers_are_refused(app):
    assert ask(app, "/api/runs", headers=[("X-A", "a" * (server.LONGEST_HEADERS - 100))]).status == 200
    assert ask(app, "/api/runs", headers=[("X-A", "a" * server.LONGEST_HEADERS)]).status == 431
    assert ask(app, "/", headers=[(f"X-{i}", "a" * 100) for i in range(200)]).status == 431


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static/vendor%2fd3.js",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/index.html%00.js",
        "/static/",
        "/static/vendor",
        "/static/README.md",
        "/../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_nothing_else_is_served(app, path):
    assert ask(app, path).status == 404


def test_links_are_not_followed(found, monkeypatch, tmp_path):
    (tmp_path / "index.html").write_text("page")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link.js").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(server, "STATIC", tmp_path)
    linked = build_app(found, HOSTS)[0]
    assert ask(linked, "/static/index.html").body == b"page"
    assert ask(linked, "/static/link.js").status == 404


@pytest.mark.parametrize("path", ["/", "/static/api.js", "/api/runs", "/api/nothing", "/api/explain?node=x"])
@pytest.mark.parametrize("host", [HOST, "evil.example"])
def test_every_answer_has_its_headers(app, path, host):
    headers = ask(app, path, headers=[("Host", host)]).headers
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'self'", "style-src 'self'", "img-src 'self' data: blob:"} <= set(policy)
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-store" if path.startswith("/api") else "no-cache")


# ----------------------------------------------------------------------------------------------- one at a time
@pytest.fixture
def slow(found, monkeypatch):
    """Explanations that take until they are let go, or until nobody waits; which began, which were left."""

    class Slow:
        began, go, asked, left = threading.Event(), threading.Event(), [], []

    def explain(question, *_):
        Slow.asked.append(question.node)
        Slow.began.set()
        try:
            while not Slow.go.wait(0.01):
                check_asker()
        except LeftError:
            Slow.left.append(question.node)
            raise
        return {"node": question.node}

    monkeypatch.setattr(found, "explain", Kept(explain))
    yield Slow
    Slow.go.set()


def test_one_explanation_at_a_time_and_nobody_who_left(found, slow):
    """The first one computes; of those behind it, only those whose askers are still there are asked."""
    app, desk = build_app(found, HOSTS)

    async def together():
        first = asyncio.create_task(send(app, "/api/explain?node=1"))
        await asyncio.to_thread(slow.began.wait, 10)
        assert desk.busy
        left = [asyncio.create_task(send(app, f"/api/explain?node={i}", gone=lambda: True)) for i in range(5, 10)]
        stayed = asyncio.create_task(send(app, "/api/explain?node=2"))
        await asyncio.sleep(0.05)
        assert slow.asked == [1]
        slow.go.set()
        return await asyncio.gather(first, stayed, *left)

    first, stayed, *_ = asyncio.run(together())
    assert (first.json(), stayed.json()) == ({"node": 1}, {"node": 2})
    assert slow.asked == [1, 2]
    assert not desk.busy


def test_light_answers_do_not_wait_for_an_explanation(found, slow):
    app, desk = build_app(found, HOSTS)
    found.explain[Question(node=7), 150, False] = {"node": 7}  # has been asked before

    async def together():
        first = asyncio.create_task(send(app, "/api/explain?node=1"))
        await asyncio.to_thread(slow.began.wait, 10)
        paths = ["/static/api.js", "/api/runs", "/api/search?q=3", "/api/explain?node=7"]
        light = await asyncio.wait_for(asyncio.gather(*(send(app, path) for path in paths)), 10)
        assert not first.done()
        slow.go.set()
        return [(await first).status, *(each.status for each in light)]

    assert asyncio.run(together()) == [200] * 5
    assert slow.asked == [1]
    assert not desk.busy


def test_the_next_click_gives_up_the_explanation_before(found, slow):
    app, desk = build_app(found, HOSTS)
    clicked = threading.Event()

    async def together():
        first = asyncio.create_task(send(app, "/api/explain?node=1", gone=clicked.is_set))
        await asyncio.to_thread(slow.began.wait, 10)
        second = asyncio.create_task(send(app, "/api/explain?node=2"))
        clicked.set()
        assert (await asyncio.wait_for(first, 10)).status == server.LEFT
        slow.go.set()
        return await second

    assert asyncio.run(together()).json() == {"node": 2}
    assert (slow.asked, slow.left) == ([1, 2], [1])
    assert (Question(node=1), 150, False) not in found.explain
    assert not desk.busy
