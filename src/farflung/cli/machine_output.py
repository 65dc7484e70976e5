"""Requests and bindings of virtual machines, for `explain` and `plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from farflung.cli.output import NONE, TABLE, machine_readable, table
from farflung.inspect import fields
from farflung.lib.words import count
from farflung.machinery.errors import Obj

BEHIND: Final = "the global scheduler is behind or not running"
NAMED: Final = 10  #: Clusters in one line
GONE: Final = "that Cluster was deleted, so it will be evicted"
UNKNOWN: Final = "that site is unknown; --conf selects the global scheduler's files"
UNSIZED: Final = "so it counts without vcpus and memory; --conf selects files with its size"
STAYS: Final = "a bound machine stays while its Cluster is healthy"


def printed(answer: Obj, output: str, *, limit: int) -> str:
    """`limit`: most Clusters to list; 0: all."""
    if output != TABLE:
        return machine_readable(answer, output)
    head = answer["object"]
    title = f"{head['kind']} {head['namespace']}/{head['name']} in {head['workspace']}"
    if problem := answer.get("problem"):
        return "\n".join([f"{title} is invalid: {problem}", _now(answer, {}), *_remarks(answer)])
    names = names_of([*answer["clusters"], *answer["now"]["bound"]])
    asked = table([f"  {name}:", text] for name, text in _request_rows(answer["asks"]))
    parts = [f"{title} requests\n{asked}"]
    shown = answer["clusters"][: limit or None]
    if shown:
        parts.append("\n".join([table(_rows(shown, names)), *_from_files(shown)]))
    if left := answer["clusters"][len(shown) :]:
        parts.append(f"{count(len(left), 'Cluster')} more: {_counted(left)}. `--limit 0` lists all.")
    if scores := [one for one in shown if one["fits"]]:
        indifferent = answer["indifferent"]
        weights = {name: weight for name, weight in answer["weights"].items() if name not in indifferent}
        parts.append("\n".join([table(_scores(scores, weights, names)), *_indifferent(indifferent)]))
    end = [*_unsized(answer), *decision_lines(answer["decision"], names), _now(answer, names), *_remarks(answer)]
    parts.append("\n".join(end))
    return "\n\n".join(parts)


# --- names ----------------------------------------------------------------------------------------


def names_of(clusters: Iterable[Obj]) -> dict[tuple[str, str, str], str]:
    """The shortest unambiguous name of each Cluster."""
    keys = {_key(one): None for one in clusters}
    by_name, within = Counter(key[2] for key in keys), Counter(key[1:] for key in keys)
    return {
        key: key[2] if by_name[key[2]] == 1 else _within(key) if within[key[1:]] == 1 else f"{key[0]}|{_within(key)}"
        for key in keys
    }


def _key(one: Obj) -> tuple[str, str, str]:
    return one["workspace"], one["namespace"], one["name"]


def _within(key: tuple[str, str, str]) -> str:
    return "/".join(filter(None, key[1:]))


def _name(one: Obj, names: Mapping[tuple[str, str, str], str]) -> str:
    return names.get(_key(one)) or _within(_key(one))


# --- requests -------------------------------------------------------------------------------------


def _request_rows(asks: Obj) -> Iterator[tuple[str, str]]:
    for item in asks["items"]:
        yield "machines", _item(item)
    if asks["replicas"] > 1:
        yield "replicas", str(asks["replicas"])
    overlooked = asks.get("overlooked", {})
    wishes = _where(asks["where"])
    yield "where", "; ".join(text for name, text in wishes.items() if name not in overlooked) or "anywhere"
    for name, plugin in overlooked.items():
        yield "overlooked", f"{wishes[name]}, because the policy has no {plugin}"
    yield "how", ", ".join(_how(asks["how"]))
    if asks["priority"]:
        yield "priority", str(asks["priority"])


def _item(item: Obj) -> str:
    parts = [f"{item['number']} of {' or '.join(item['flavors'])}"]
    if spot := item.get("spot"):
        parts.append(f"{' and '.join(spot)} as spot")
    parts += [f"{size} GiB of {kind}" for kind, size in item.get("storage", {}).items()]
    if item.get("publicAddress"):
        parts.append("a public address")
    return f"{item['name']}: {', '.join(parts)}".removeprefix(": ")


def _where(where: Obj) -> dict[str, str]:
    """Selectors as text, by name."""
    found: dict[str, str] = {}
    if regions := where.get("regions"):
        found["regions"] = "region " + " or ".join(_region(one) for one in regions)
    if geo := where.get("geo"):
        found["geo"] = "; ".join(f"{name} {value}" for name, value in geo.items())
    found |= {name: f"{name} {where[name]}" for name in ("operator", "site") if name in where}
    for name, words in (
        ("clusterAffinity", "labels"),
        ("stackAffinity", "preferably with"),
        ("stackAntiAffinity", "preferably not with"),
    ):
        if name in where:
            found[name] = f"{words} {', '.join(where[name])}"
    if near := where.get("near"):
        found["near"] = f"near {near['latitude']:g},{near['longitude']:g}"
    if number := where.get("preferences"):
        found["preferences"] = f"{count(number, 'preference')} of labels"
    return found


def _region(one: Obj) -> str:
    zones = f" ({' or '.join(one['zones'])})" if one["zones"] else ""
    return f"{one['region'] or 'any'}{zones}"


def _how(how: Obj) -> Iterator[str]:
    yield how["strategy"]
    if how.get("oneRegion"):
        yield "in one region"
    if number := how.get("minClusters"):
        yield f"at least {count(number, 'Cluster')}"
    if number := how.get("maxClusters"):
        yield f"at most {count(number, 'Cluster')}"


# --- Clusters -------------------------------------------------------------------------------------


def _rows(clusters: Sequence[Obj], names: Mapping[tuple[str, str, str], str]) -> Iterator[list[str]]:
    yield ["CLUSTER", "REGION", "ZONE", "ROOM", "SCORE", "CHOSEN", "REASON"]
    for one in clusters:
        head = [_name(one, names), one["region"] or NONE, one["zone"] or NONE]
        if one["fits"]:
            yield [*head, str(one["room"]), f"{one['score']:.2f}", _times(one["replicas"]), ""]
        else:
            yield [*head, "0", "-", "no", _reason(one)]


def _from_files(clusters: Iterable[Obj]) -> Iterator[str]:
    names = [one["name"] for one in clusters if not one["workspace"]]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    if names:
        yield f"from files: {', '.join(names[:NAMED])}{more}"


def _reason(one: Obj) -> str:
    short = one.get("shortage")
    return f"{one['reason']} (needs {short['needed']}, has {short['left']} left)" if short else str(one["reason"])


def _times(replicas: int) -> str:
    return {0: "no", 1: "yes"}.get(replicas, f"{replicas} times")


def _scores(
    clusters: Sequence[Obj], weights: Mapping[str, int], names: Mapping[tuple[str, str, str], str]
) -> Iterator[list[str]]:
    yield ["SCORES", *(f"{name} *{weight}" for name, weight in weights.items()), "FLAVORS"]
    for one in clusters:
        scores = [f"{one['scores'][name]:.1f}" for name in weights]
        yield [_name(one, names), *scores, ",".join(one["flavors"])]


def _indifferent(scorers: Mapping[str, float]) -> Iterator[str]:
    for name, score in scorers.items():
        yield f"{name} gives {score:g} to each: the request has no input for it"


def _counted(clusters: Iterable[Obj]) -> str:
    reasons = Counter(one.get("reason", "fit") for one in clusters)
    return ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())


def _unsized(answer: Obj) -> Iterator[str]:
    if unknown := answer.get("unknownSizes"):
        yield f"{' and '.join(unknown)} is not in the catalogue, {UNSIZED}"


def _remarks(answer: Obj) -> Iterator[str]:
    yield from (f"remark: {one}" for one in answer["remarks"])


# --- decisions ------------------------------------------------------------------------------------


def decision_lines(decision: Obj, names: Mapping[tuple[str, str, str], str]) -> Iterator[str]:
    """Equal replicas in one line."""
    if not decision["placed"]:
        yield f"not placed: {decision['message']}"
    for said, number in Counter(_placement_text(one, names) for one in decision.get("chosen", ())).items():
        yield f"placed on {said}" if number == 1 else f"{number} replicas placed on {said}"


def _placement_text(one: Obj, names: Mapping[tuple[str, str, str], str]) -> str:
    return f"{_name(one, names)} with {', '.join(one['flavors']) or NONE}, score {one['score']:.2f}"


def bound_to(placements: Iterable[Obj], names: Mapping[tuple[str, str, str], str]) -> str:
    numbers = Counter(_name(one, names) for one in placements).items()
    said = [name if number == 1 else f"{name} ({number} replicas)" for name, number in numbers]
    more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return f"bound to {', '.join(said[:NAMED])}{more}"


def _now(answer: Obj, names: Mapping[tuple[str, str, str], str]) -> str:
    now, condition = answer["now"], answer["now"]["condition"]
    since = f" since {condition['lastTransitionTime']}" if condition.get("lastTransitionTime") else ""
    if now["bound"]:
        undelivered = fields.line(fields.text(now, "undelivered", "message"), 1000)
        wrong = f"; not delivered: {undelivered}" if undelivered else ""
        return f"now: {bound_to(now['bound'], names)}{since}; {_agrees(now, answer, names)}{wrong}"
    said = f": {condition['message']}" if condition.get("message") else ""
    state = f"now: not bound{since if said else ''}{said}"
    if why := now.get("leftAlone"):
        return f"{state}; the global scheduler ignores it: {why}"
    return f"{state}; {'up to date' if now['agrees'] else BEHIND}"


def _agrees(now: Obj, answer: Obj, names: Mapping[tuple[str, str, str], str]) -> str:
    if why := now.get("leftAlone"):
        return str(why)
    if now["unwell"]:
        return "; ".join(_unwell(one, names) for one in now["unwell"])
    if not now.get("waits"):
        return "up to date" if now["agrees"] else _explain_stay(now["bound"], answer["clusters"])
    return f"its spec has changed, and {BEHIND if answer['decision']['placed'] else 'it stays there'}"


def _unwell(one: Obj, names: Mapping[tuple[str, str, str], str]) -> str:
    since = f" since {one['since']}" if "since" in one else ""
    state = f"is {one['phase']}{since}" if one["ails"] else "has a taint with the effect NoExecute"
    fate = f"machines are evicted at {one['leaves']} if they fit elsewhere" if one["leaves"] else "that is tolerated"
    if one["leaves"] and one["held"]:
        fate = "evictions stop while more than half of all Clusters are unhealthy"
    return f"{_name(one, names)} {state}, and {fate}"


def _explain_stay(bound: Iterable[Obj], clusters: Iterable[Obj]) -> str:
    known = {_key(one) for one in clusters}
    missing = [one for one in bound if _key(one) not in known]
    if not missing:
        return STAYS
    return GONE if any(one["workspace"] for one in missing) else UNKNOWN
