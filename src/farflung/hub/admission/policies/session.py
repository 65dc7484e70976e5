"""Applies all matching policies to one request.

Many policies are evaluated in several turns of the event loop.  Expressions that take longer than one turn are
evaluated in a worker process, where permissions are asked of the hub.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator, Sequence
from typing import Any, Final

import orjson

from farflung.apis.admissionregistration.authorizer import DecisionValue
from farflung.hub.admission.policies.evaluation import (
    AUTHORIZER,
    OUT_OF_BUDGET,
    PER_POLICY,
    Objection,
    PermissionQuestion,
    PolicyDecision,
    answered,
    decide,
    decide_in_worker,
    sent,
)
from farflung.hub.admission.policies.registry import AdmissionPolicy, ApplicablePolicy, ParamReference, PolicyBinding
from farflung.hub.admission.policies.review import AdmissionRequest
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind
from farflung.hub.registry.call import Call
from farflung.lib.worker_pool import JobTerms, JobTimeout, Overloaded, WorkerLost, WorkerPool
from farflung.machinery.errors import ApiError, Obj, forbidden, too_many_requests
from farflung.machinery.turns import ALLOWANCE, TURN_COST, TurnAllowance, TurnOver
from farflung.store.base import Store

log = logging.getLogger(__name__)

CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}
PER_REQUEST: Final = 2 * PER_POLICY  #: cost limit of all policies of a request
SECONDS: Final = 10.0  #: of all evaluations of a request in worker processes

MATCHING: Final = 6_000  #: work of matching a policy or binding, about a tenth of a millisecond
REQUIREMENT: Final = 50  #: more for each requirement of its selectors
SELECTING: Final = 300  #: work of matching the labels of one object
SELECTED: Final = 200  #: objects that are matched at a time

Question = tuple[AdmissionPolicy, Obj]  #: a policy and what its expressions are given
#: Yields questions, and gets their decisions.  Before long work it yields its amount instead.
_Questions = Generator[Question | int, PolicyDecision | None, None]


class PolicyReview:
    def __init__(self, request: AdmissionRequest, call: Call, warnings: list[str], workers: WorkerPool) -> None:
        self._request = request
        self._call = call
        self._warnings = warnings
        self._workers = workers
        self._left = PER_REQUEST
        self._refusal: ApiError | None = None

    def run(self, hooks: Sequence[ApplicablePolicy]) -> Awaitable[None] | None:
        """Raises the error of the first policy that refuses the request.  All are evaluated, for their warnings.  What
        takes long is awaited."""
        questions = self._questions(hooks)
        question = self._decide_here(questions, next(questions, None), ALLOWANCE.get() or TurnAllowance())
        if question is not None:
            return self._run_later(questions, question)
        self._finish()
        return None

    def _decide_here(
        self, questions: _Questions, question: Question | int | None, allowance: TurnAllowance
    ) -> Question | int | None:
        """Decide questions in this turn.  Returns the first one for which the allowance is too small."""
        token = ALLOWANCE.set(allowance)
        try:
            while question is not None:
                decision = None
                if isinstance(question, int):
                    allowance.take(question)
                elif question[0].is_expensive:
                    return question
                else:
                    decision = self._counted(decide_here(*question, self._limit))
                question = _next(questions, decision)
        except TurnOver:
            return question
        finally:
            ALLOWANCE.reset(token)
        return None

    async def _run_later(self, questions: _Questions, question: Question | int | None) -> None:
        """Go on in later turns.  Questions that are too expensive for a turn are decided in worker processes, one at a
        time for all objects of the request."""
        loop = asyncio.get_running_loop()
        async with self._call.beside:
            end = loop.time() + SECONDS
            while question is not None:
                if not isinstance(question, int) and question[0].is_expensive:
                    policy, given = question
                    decision = await self._decide_beside(policy, given, end - loop.time())
                    policy.is_expensive = decision.spent > TURN_COST
                    question = _next(questions, self._counted(decision))
                    continue
                await asyncio.sleep(0)
                left = self._decide_here(questions, question, TurnAllowance())
                if left is not question:
                    question = left
                elif isinstance(question, int):
                    question = _next(questions, None)
                else:
                    question[0].is_expensive = True
        self._finish()

    async def _decide_beside(self, policy: AdmissionPolicy, given: Obj, seconds: float) -> PolicyDecision:
        async def permission(question: PermissionQuestion) -> DecisionValue:
            return answered(question, given[AUTHORIZER])

        arguments = (orjson.dumps(policy.spec), *sent(given), policy.fails, self._limit)
        terms = JobTerms(self._call.owner, seconds)
        try:
            return await self._workers.converse(terms, permission, decide_in_worker, *arguments)
        except Overloaded:
            raise too_many_requests(
                "too many requests wait for the evaluation of expensive ValidatingAdmissionPolicies; send fewer at once"
            ) from None
        except (JobTimeout, WorkerLost):
            return PolicyDecision([Objection(OUT_OF_BUDGET)] if policy.fails else [])

    @property
    def _limit(self) -> int:
        return min(PER_POLICY, self._left)

    def _counted(self, verdict: PolicyDecision) -> PolicyDecision:
        self._left = max(self._left - verdict.spent, 0)
        return verdict

    def _finish(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _questions(self, hooks: Sequence[ApplicablePolicy]) -> _Questions:
        for hook in hooks:
            yield from self._apply(hook)

    def _apply(self, hook: ApplicablePolicy) -> _Questions:
        policy = hook.policy
        yield MATCHING + REQUIREMENT * policy.matcher.size
        form = hook.match.form(self._request)
        if form is None:
            return
        if policy.param_kind is not None and hook.params is None:
            self._misconfigured(
                policy, None, f"failed to find resource referenced by paramKind: '{shown_kind(policy.param_kind)}'"
            )
            return
        same_for_all: PolicyDecision | None = None
        for binding, match in hook.bound:
            yield MATCHING + REQUIREMENT * binding.matcher.size
            if match.form(self._request) is None:
                continue
            if hook.params is None or binding.param is None:
                if same_for_all is None:
                    same_for_all = yield from _decided(policy, self._request.given(form, None))
                self._act(policy, binding, same_for_all)
                continue
            try:
                params = yield from params_of(
                    self._call.store, self._call.target.cluster, hook.params, binding.param, self._request.namespace
                )
            except PolicyConfigurationError as error:
                self._misconfigured(policy, binding, str(error))
                continue
            for param in params:
                self._act(policy, binding, (yield from _decided(policy, self._request.given(form, param))))

    def _misconfigured(self, policy: AdmissionPolicy, binding: PolicyBinding | None, why: str) -> None:
        if policy.fails:
            what = "policy" if binding is None else "binding"
            self._refuse(policy, binding, Objection(f"failed to configure {what}: {why}"))

    def _act(self, policy: AdmissionPolicy, binding: PolicyBinding, verdict: PolicyDecision) -> None:
        for objection in verdict.objections:
            if "Deny" in binding.actions:
                self._refuse(policy, binding, objection)
            if "Warn" in binding.actions:
                whose = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                self._warnings.append(f"Validation failed for {whose}: {objection.message}")
        if verdict.objections and "Audit" in binding.actions:
            self._note("objects to", policy, binding)
        for failure in verdict.failures:
            self._refuse(policy, binding, failure)
        for key in verdict.annotations:
            self._note(f"has a note {key} about", policy, binding)

    def _note(self, what: str, policy: AdmissionPolicy, binding: PolicyBinding) -> None:
        """Only names: the log has no values of objects."""
        target, resource = self._call.target, self._call.resource
        log.info(
            "policy %s with binding %s %s %s of %s %s in cluster %s",
            policy.name,
            binding.name,
            what,
            self._request.operation,
            resource.qualified,
            "/".join(part for part in (target.namespace, self._request.name) if part),
            target.cluster,
        )

    def _refuse(self, policy: AdmissionPolicy, binding: PolicyBinding | None, objection: Objection) -> None:
        if self._refusal is not None:
            return
        bound = "" if binding is None else f" with binding '{binding.name}'"
        why = f"ValidatingAdmissionPolicy '{policy.name}'{bound} denied request: {objection.message}"
        error = forbidden(self._call.resource.group, self._call.resource.plural, self._request.name, why)
        error.code, error.reason = CODES.get(objection.reason, 422), objection.reason
        error.details = (error.details or {}) | {"causes": [{"message": why}]}
        self._refusal = error


def _decided(policy: AdmissionPolicy, given: Obj) -> Generator[Question, PolicyDecision | None, PolicyDecision]:
    decision = yield policy, given
    assert decision is not None
    return decision


def _next(questions: _Questions, verdict: PolicyDecision | None) -> Question | int | None:
    try:
        return questions.send(verdict)
    except StopIteration:
        return None


def decide_here(policy: AdmissionPolicy, given: Obj, limit: int) -> PolicyDecision:
    return decide(policy.compiled, given, fails=policy.fails, limit=limit)


def shown_kind(kind: Obj) -> str:
    """As Go prints a GroupVersionKind."""
    return f"{'' if '/' in kind['apiVersion'] else '/'}{kind['apiVersion']}, Kind={kind['kind']}"


class PolicyConfigurationError(Exception):
    """A policy or binding that cannot be applied; the text is the reason."""


Params = Generator[int, Any, list[Obj]]  #: yields the work of its next step


def params_of(store: Store, cluster: str, kind: Kind, reference: ParamReference, namespace: str) -> Params:
    """The parameters for a request in a namespace (empty: cluster-scoped); empty if the binding does not apply.
    Raises PolicyConfigurationError."""
    where = reference.namespace
    if not kind.resource.namespaced:
        if where:
            raise PolicyConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    elif not where:
        where = namespace
        if not where:
            why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise PolicyConfigurationError(why)
    found = named(store, cluster, kind, reference, where) if reference.name else []
    if not reference.name:
        found = yield from selected(store, cluster, kind, reference, where)
    if not found and reference.required:
        raise PolicyConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


def named(store: Store, cluster: str, kind: Kind, reference: ParamReference, namespace: str) -> list[Obj]:
    entry = store.get(objects.key(kind.resource, cluster, namespace, reference.name))
    return [] if entry is None else [kind.read(entry)]


def selected(store: Store, cluster: str, kind: Kind, reference: ParamReference, namespace: str) -> Params:
    found: list[Obj] = []
    entries = store.list(objects.prefix(kind.resource, cluster, namespace)).entries
    work = SELECTING + REQUIREMENT * len(reference.selector.requirements)
    for start in range(0, len(entries), SELECTED):
        yield SELECTED * work
        some = entries[start : start + SELECTED]
        found += [kind.read(entry) for entry in some if reference.selector.matches(objects.labels_of(entry))]
    return found
