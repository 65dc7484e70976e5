"""The hub as a function from a request to a response.

    request ─► authenticate ─► route (path → target) ─► authorize ─► find the kind ─► dispatch the verb ─► response

Reads return at once; writes and watches are awaited.  Errors below become a Status here.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from farflung.apis.edge.names import RECORDS_AUTHORS
from farflung.http.messages import Answer, Request, Response, Stream
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.auth.impersonation import impersonated_user
from farflung.hub.auth.open_streams import OpenStreams, Permission
from farflung.hub.auth.service_account_tokens import openid_document
from farflung.hub.catalog.served import Kinds
from farflung.hub.metrics import Metrics
from farflung.hub.registry import respond
from farflung.hub.registry.call import Call, CallDependencies, Redefined
from farflung.hub.request import attributes
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.audit import Audit, AuditRecord
from farflung.hub.request.indentation import indented, is_for_people
from farflung.hub.request.target import RequestRoute, Target
from farflung.hub.request.turns import in_turns
from farflung.hub.request.user import User
from farflung.hub.routing.dispatcher import VERBS, Dispatcher, OneCluster, Routes, page_not_found
from farflung.lib.version import __version__
from farflung.machinery.errors import ApiError, no_such_path, unauthorized
from farflung.machinery.turns import ALLOWANCE, LongWork, TurnAllowance, TurnOver
from farflung.store.base import Unavailable

log = logging.getLogger(__name__)

VERSION: Final = {
    "major": "1",
    "minor": "33",
    "emulationMajor": "1",
    "emulationMinor": "33",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "32",
    "gitVersion": f"v1.33.0+farflung-{__version__}",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": f"python{platform.python_version()}",
    "compiler": platform.python_implementation(),
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}


class Hub:
    def __init__(
        self,
        kinds: Kinds,
        tools: CallDependencies,
        authenticator: Authenticator,
        dispatcher: Dispatcher,
        audit: Audit | None = None,
        routes: Routes | None = None,
    ) -> None:
        """`audit`: None: lines go to the log; `routes`: None: the hub has one logical cluster."""
        self.audit = audit or Audit()
        self._routes = routes or OneCluster(tools.authorizer)
        self._kinds = kinds
        self._tools = tools
        self._authenticator = authenticator
        self._authorizer = tools.authorizer
        self._dispatcher = dispatcher
        self._version = VERSION if routes is None else VERSION | {RECORDS_AUTHORS: True}
        self.streams = OpenStreams(tools.store, tools.clock)
        authenticator.subscribe(self.streams.recheck)
        self.metrics = Metrics()
        self.metrics.gauge("farflung_revision", "The newest durable revision.", lambda: tools.store.revision)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        audit_record = self.audit.begin(request)
        token = ALLOWANCE.set(TurnAllowance())
        try:
            answer = self._dispatch(request, audit_record)
        except TurnOver:
            return self._finish(request, self._dispatch_later(request, audit_record), audit_record)
        except (ApiError, Unavailable) as error:
            return self._counted(request, refused(request, error), audit_record)
        except BaseException:
            self._fail(audit_record)
            raise
        finally:
            ALLOWANCE.reset(token)
        if isinstance(answer, Response):
            return self._counted(request, answer, audit_record)
        if isinstance(answer, Stream):
            return self._counted(request, self._guarded(request, answer), audit_record)
        return self._finish(request, answer, audit_record)

    def admit(self, request: Request) -> str | Response:
        """The sender of a request whose body has not arrived yet, or the response that refuses the request."""
        audit_record = self.audit.begin(request)
        token = ALLOWANCE.set(TurnAllowance())
        try:
            user = self._admitted(request, audit_record)
        except TurnOver:  # the request is authorized when its body has arrived
            user = self._authenticator.user_of(request)
        except (ApiError, Unavailable) as error:
            response = refused(request, error)
            self._counted(request, response, audit_record)
            return response
        finally:
            ALLOWANCE.reset(token)
        return f"{user.cluster}/{user.name}"

    def _admitted(self, request: Request, audit_record: AuditRecord | None) -> User:
        route, _, access, user = self._enter(request, audit_record)
        self._routes.check(route.cluster, route.view, user, access)
        return user

    async def _dispatch_later(self, request: Request, audit_record: AuditRecord | None) -> Answer:
        """In later turns, for example because the roles of the cluster are being read."""
        await asyncio.sleep(0)
        answer = await in_turns(lambda: self._dispatch(request, audit_record))
        return answer if isinstance(answer, Response | Stream) else await answer

    async def _finish(self, request: Request, answer: Awaitable[Answer], audit_record: AuditRecord | None) -> Answer:
        try:
            while True:
                try:
                    return self._counted(request, self._guarded(request, await answer), audit_record)
                except Redefined:
                    answer = self._dispatch_later(request, audit_record)
        except (ApiError, Unavailable) as error:
            return self._counted(request, refused(request, error), audit_record)
        except BaseException:
            self._fail(audit_record)
            raise

    def _fail(self, audit_record: AuditRecord | None) -> None:
        """A bug, or the client disconnected."""
        if audit_record is not None:
            self.audit.end(audit_record, None)

    def _counted(self, request: Request, answer: Answer, audit_record: AuditRecord | None) -> Answer:
        self.metrics.count(request.method, answer.status)
        if audit_record is not None:
            self.audit.end(audit_record, answer)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s %s %d", request.peer, request.method, request.path, answer.status)
        return indented(answer) if isinstance(answer, Response) and is_for_people(request) else answer

    def _dispatch(self, request: Request, audit_record: AuditRecord | None) -> Answer | Awaitable[Answer]:
        route, target, access, user = self._enter(request, audit_record)
        if audit_record is not None:
            self.audit.receive(audit_record)
        self._routes.check(route.cluster, route.view, user, access)
        if audit_record is not None:
            audit_record.authorized = True
        if target is None:
            return self._document(request, route)
        return self._resource(request, target, access.verb, user, audit_record)

    def _enter(
        self, request: Request, audit_record: AuditRecord | None
    ) -> tuple[RequestRoute, Target | None, Attributes, User]:
        """Authenticate, and find the target.  Without a target the path is that of a document."""
        sender = self._authenticator.user_of(request)
        if audit_record is not None:
            audit_record.user = audit_record.by = sender
        route = self._routes.route(request.path, sender)
        user = impersonated_user(sender, request.headers, self._authorizer, route.cluster)
        requested = route
        if route.view:
            route, user = self._routes.enter(route, user)
        target, access = attributes.requested(request.method, *route, request.query)
        if audit_record is not None:
            audit_record.user, audit_record.route = user, requested
        return route, target, access, user

    # --- streams ----------------------------------------------------------------------------------

    def _guarded(self, request: Request, answer: Answer) -> Answer:
        """A stream ends when its request would be refused, or would reach another cluster."""
        if isinstance(answer, Response):
            return answer
        head = replace(request, body=b"")
        return self.streams.guard(answer, partial(self._permission, head, []))

    def _permission(self, request: Request, opened: list[RequestRoute]) -> Permission:
        """Raises ApiError.  `opened`: the route at the first call."""
        sender = self._authenticator.user_of(request)
        requested = self._routes.route(request.path, sender)
        route, target, access, user = self._enter(request, None)
        if not opened:
            opened.append(route)
        if target is None or route != opened[0]:
            raise unauthorized()
        self._routes.check(route.cluster, route.view, user, access)
        validity = self._authenticator.validity(request)
        depends_on = {*validity.depends_on, *self._routes.depends_on(requested, user, access)}
        if user is not sender:
            own = RequestRoute(requested.cluster, requested.path)
            depends_on.update(self._routes.depends_on(own, sender, Attributes("impersonate")))
        return Permission(depends_on, validity.until)

    # --- resources --------------------------------------------------------------------------------

    def _resource(
        self, request: Request, target: Target, access_verb: str, user: User, audit_record: AuditRecord | None
    ) -> Answer | Awaitable[Answer]:
        kind = self._kinds.find(target)
        if kind is None:
            if target.view or (target.group and not self._kinds.builtin.catalog.is_builtin(target.group)):
                return page_not_found()
            raise no_such_path()
        call = Call(request, target, kind, user, self._tools, audit_record)
        if audit_record is not None:
            audit_record.definition = kind.resource.definition
        verb = "watch" if access_verb == "watch" else VERBS.get((request.method, bool(target.name)))
        return self._deprecated(call, verb) if kind.resource.deprecated else self._dispatcher.dispatch(call, verb)

    def _deprecated(self, call: Call, verb: str | None) -> Answer | Awaitable[Answer]:
        """An error has the deprecation warning too."""
        try:
            answer = self._dispatcher.dispatch(call, verb)
        except ApiError as error:
            raise respond.warned(error, [call.resource.deprecated]) from None
        return answer if isinstance(answer, Response | Stream) else self._deprecated_later(call, answer)

    async def _deprecated_later(self, call: Call, answer: Awaitable[Answer]) -> Answer:
        try:
            return await answer
        except ApiError as error:
            raise respond.warned(error, [call.resource.deprecated]) from None

    # --- documents --------------------------------------------------------------------------------

    def _document(self, request: Request, route: RequestRoute) -> Answer | Awaitable[Answer]:
        cluster, path, view = route
        match first_part(path):
            case "healthz" | "livez" | "readyz":
                return self._health(request, path)
            case "version":
                return Response(200, orjson.dumps(self._version, option=orjson.OPT_INDENT_2))
            case "metrics":
                return Response(200, *self.metrics.render())
            case ".well-known" | "openid":
                return openid_document(request, path, self._authenticator.signing_keys) or page_not_found()
            case "openapi":
                return self._openapi(request, route)
        return self._kinds.at(cluster, view).documents.answer(request, path) or page_not_found()

    def _openapi(self, request: Request, route: RequestRoute) -> Answer | Awaitable[Answer]:
        try:
            return self._openapi_at_once(request, route)
        except LongWork as document:
            return self._openapi_later(request, route, document)

    def _openapi_at_once(self, request: Request, route: RequestRoute) -> Answer:
        openapi = self._kinds.at(route.cluster, route.view).openapi
        return openapi.answer(request, route.path) or page_not_found()

    async def _openapi_later(self, request: Request, route: RequestRoute, document: LongWork) -> Answer:
        """Worker processes make documents that are too large for a turn."""
        kept = []
        while True:
            kept.append(document.keep(await self._tools.compute(request, document.make)))
            try:
                return await in_turns(lambda: self._openapi_at_once(request, route))
            except LongWork as another:
                document = another

    def _health(self, request: Request, path: str) -> Response:
        endpoint, _, check = path.strip("/").partition("/")
        checks = ("ping", "log", "store")
        if check and check not in checks:
            return page_not_found()
        selected = (check,) if check else checks
        # a hub that cannot write is alive but not ready
        failed = {"store"} if self._tools.store.write_error and endpoint != "livez" else set()
        healthy = failed.isdisjoint(selected)
        text = "ok"
        if not healthy or (not check and "verbose" in request.query):
            lines = [f"[-]{name} failed" if name in failed else f"[+]{name} ok" for name in selected]
            text = "\n".join([*lines, f"{endpoint} check {'passed' if healthy else 'failed'}", ""])
        return Response(200 if healthy else 500, text.encode(), content_type="text/plain; charset=utf-8")


def first_part(path: str) -> str:
    """`healthz` of `/healthz/ping`; empty for `*`, which is no path."""
    return path[1:].partition("/")[0]


def refused(request: Request, error: ApiError | Unavailable) -> Response:
    return respond.with_error(request, error if isinstance(error, ApiError) else unavailable(error))


def unavailable(error: Unavailable) -> ApiError:
    """503, because the store cannot write.  The client may retry."""
    return ApiError(503, "ServiceUnavailable", str(error), {"retryAfterSeconds": 1}, headers=[("Retry-After", "1")])
