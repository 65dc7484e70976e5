"""Wait for a view, and say for what, once."""

from __future__ import annotations

import io
from typing import Any

import pytest
from scripted_server import Scripted, ScriptedServer, failure, said

from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.runtime.environment import Environment
from farflung.runtime.exports import ADVICE, View, find_view, is_missing, report_unbound, until_gone, until_there

URL = "https://hub.example/services/apiexport/root/edge.kcp.io"


def export(**status: Any) -> Scripted:
    return said({"metadata": {"annotations": {"kcp.io/path": "root:espw"}}, "status": status})


def conditions(status: str) -> list[dict[str, str]]:
    return [{"type": "Other", "status": "True"}, {"type": "VirtualWorkspaceURLsReady", "status": status}]


READY = export(conditions=conditions("True"), virtualWorkspaces=[{"url": URL}, {"url": "https://other.example"}])


async def found(*answers: Scripted, verbosity: int = 9) -> tuple[View, list[str], list[float]]:
    """(what was found, what was said, how long it paused)"""
    script, said, pauses = iter(answers), io.StringIO(), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    env = Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
    server = ScriptedServer(lambda request: next(script))
    view = await find_view(Client(server, "/clusters/root"), "edge.kcp.io", env, Logger(said, verbosity))
    assert {request.target for request in server.requests} == {
        "/clusters/root/apis/apis.kcp.io/v1alpha1/apiexports/edge.kcp.io"
    }
    lines = [line.partition("] ")[2] for line in said.getvalue().splitlines()]
    return view, lines, pauses


async def test_a_view_that_is_there_is_found_at_once() -> None:
    view, lines, pauses = await found(READY)
    assert view == View(URL, "root:espw")
    assert lines == [f'"Found APIExport view" exportName="edge.kcp.io" serverURL="{URL}"']
    assert pauses == []


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (failure(404, "NotFound"), True),
        (failure(403, "Forbidden"), True),
        (failure(500), False),
        (READY, False),
        (export(), False),
    ],
)
async def test_an_export_is_missing_only_if_the_server_says_so(answer: Scripted, missing: bool) -> None:
    assert await is_missing(Client(ScriptedServer(lambda request: answer)), "edge.kcp.io") == missing


async def test_an_export_is_awaited() -> None:
    answers, pauses = iter([failure(404, "NotFound"), failure(403, "Forbidden"), READY]), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    env = Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
    await until_there(Client(ScriptedServer(lambda request: next(answers))), "edge.kcp.io", env)
    assert pauses == [2.0, 2.0]


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            said({"metadata": {"resourceVersion": "1"}, "items": []}),
            [
                '"No workspace binds the APIExport" exportName="edge.kcp.io" exportPath="root:edge" '
                'bindWith="kubectl kcp bind apiexport root:edge:edge.kcp.io"'
            ],
        ),
        (said({"metadata": {"resourceVersion": "1", "continue": "x"}, "items": [{"metadata": {"name": "b"}}]}), []),
        (failure(403, "Forbidden"), []),
    ],
)
async def test_an_export_that_no_workspace_binds_is_reported(answer: Scripted, lines: list[str]) -> None:
    log, server = io.StringIO(), ScriptedServer(lambda request: answer)
    await report_unbound(Client(server, "/services/x"), "edge.kcp.io", "root:edge", Logger(log))
    assert [line.partition("] ")[2] for line in log.getvalue().splitlines()] == lines
    assert len(server.requests) == 1


async def test_what_is_missing_is_said_once_and_looked_at_again() -> None:
    not_ready = export(conditions=conditions("False"))
    no_urls = export(conditions=conditions("True"), virtualWorkspaces=[])
    empty = export(conditions=conditions("True"), virtualWorkspaces=[{}])
    missing = failure(404, "NotFound")
    _, lines, pauses = await found(
        missing, missing, said({}), not_ready, no_urls, empty, failure(503), failure(503), READY
    )
    name, where = 'exportName="edge.kcp.io"', 'at="/clusters/root"'
    assert lines[:-1] == [
        f'"Pause because APIExport not found" {name} {where} whatToDo="{ADVICE}"',
        f'"Pause because APIExport not ready: APIExport virtual workspace URLs are not ready" {name} {where}',
        f'"Pause because APIExport not ready: APIExport does not have any virtual workspace URLs" {name} {where}',
        f'"Pause because APIExport cannot be read" {name} err="the server answered 503" {where}',
    ]
    assert pauses == [2.0] * 8


ODD = [
    said([]),
    said({"status": 5}),
    said({"status": {"conditions": {}}}),
    said({"status": {"conditions": [5], "virtualWorkspaces": "x"}}),
    said({"metadata": {"annotations": {"kcp.io/path": 5}}}),
    Scripted(200, [b"<html>"]),
    Scripted(200, [b"[" * 100_000]),
]


@pytest.mark.parametrize("answer", ODD)
async def test_odd_answers_are_waited_out(answer: Scripted) -> None:
    view, lines, _ = await found(answer, answer, READY)
    assert view.url == URL
    assert len(lines) == 2


async def gone(*answers: Scripted, troubles: list[int]) -> tuple[int, str]:
    """After how many looks it was found out, and what was said."""
    script, said, looks = iter(answers), io.StringIO(), 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1

    env = Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
    server, counted = ScriptedServer(lambda request: next(script)), iter(troubles)
    client, view = Client(server, "/clusters/root"), View(URL, "root:espw")
    await until_gone(client, "edge.kcp.io", view, lambda: next(counted), env, Logger(said))
    assert next(script, None) is None
    return looks, said.getvalue()


ELSEWHERE = export(conditions=conditions("True"), virtualWorkspaces=[{"url": f"{URL}2"}])


@pytest.mark.parametrize("answer", [ELSEWHERE, failure(404, "NotFound"), failure(403, "Forbidden")])
async def test_a_deleted_view_is_reported(answer: Scripted) -> None:
    looks, said = await gone(answer, troubles=[0, 1])
    assert looks == 1
    assert said.endswith(
        f'"the view of an APIExport has changed or was deleted" exportName="edge.kcp.io" serverURL="{URL}"\n'
    )


async def test_the_url_of_a_view_is_not_requested_again_without_an_error() -> None:
    assert (await gone(ELSEWHERE, troubles=[7, 7, 7, 7, 8]))[0] == 4


async def test_a_server_that_does_not_answer_says_nothing_about_a_view() -> None:
    answers = [failure(503), READY, failure(429), ELSEWHERE]
    assert (await gone(*answers, troubles=[0, 1, 2, 3, 4]))[0] == 4
