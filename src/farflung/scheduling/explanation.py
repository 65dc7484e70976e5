"""Decisions in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.scheduling.shortage import Shortage
from farflung.scheduling.values import Decision, Request, SiteKey

MOST_REASONS: Final = 10  #: in one message


class Verdict(NamedTuple):
    """What is to be said of one site."""

    site: SiteKey
    refusal: str = ""  #: why it does not fit; empty: it does
    number: int = 0  #: of replicas that it has room for
    flavors: tuple[str, ...] = ()  #: that the first one would get, for each item
    scores: Mapping[str, float] = {}  #: by scorer, 0 to 100
    total: float = 0.0
    shortage: Shortage | None = None  #: how much is missing, if it does not fit because something is short


@dataclass(frozen=True, slots=True)
class Explanation:
    decision: Decision
    weights: Mapping[str, int]  #: of the scorers that have a say
    indifferent: Mapping[str, float]  #: what some of them give to every site, whatever it is
    verdicts: tuple[Verdict, ...]  #: the best site first, then by name those that do not fit


def refusal_text(request: Request, possible: int, fitting: int, sites: int, reasons: Mapping[str, int]) -> str:
    """Why a request is not placed: how many replicas could be, and the reasons of sites, the most frequent first."""
    if not sites:
        return "there are no clusters"
    text = f"{fitting}/{sites} clusters fit"
    if request.replicas > 1 or fitting:
        text = f"{possible} of {request.replicas} replicas can be placed{_within(request)}; {text}"
    return f"{text}: {_counted(reasons)}" if reasons else text


def _within(request: Request) -> str:
    selector = request.selector
    bounds = [f"at least {selector.min_clusters}"] if selector.min_clusters > 1 else []
    bounds += [f"at most {selector.max_clusters}"] if selector.max_clusters else []
    clusters = f" in {' and '.join(bounds)} clusters" if bounds else ""
    return f"{clusters} in one region" if selector.region_alone else clusters


def _counted(reasons: Mapping[str, int]) -> str:
    ranked = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    texts = [f"{number} {reason}" for reason, number in ranked[:MOST_REASONS]]
    if others := sum(number for _, number in ranked[MOST_REASONS:]):
        texts.append(f"{others} for other reasons")
    return ", ".join(texts)
