"""The parameters of operations, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Parameter(NamedTuple):
    name: str
    type: str
    description: str
    place: str = "query"


def table(*parameters: Parameter) -> Mapping[str, Parameter]:
    return {one.name: one for one in parameters}


PARAMETERS: Final = table(
    Parameter("name", "string", "name of the object", "path"),
    Parameter("namespace", "string", "namespace of the objects", "path"),
    Parameter("pretty", "string", "If 'true', then the output is pretty printed."),
    Parameter(
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may send events of type BOOKMARK, which carry nothing but a resource version.",
    ),
    Parameter("command", "string", "The command to run, one parameter per word. It is not run in a shell."),
    Parameter("container", "string", "The name of the container, if the pod has more than one."),
    Parameter("continue", "string", "Where to continue a list: metadata.continue of its last chunk."),
    Parameter(
        "dryRun",
        "string",
        "With 'All', everything is done but for storing the outcome. Other values are errors.",
    ),
    Parameter(
        "fieldManager",
        "string",
        "The name of the actor that makes the change, at most 128 printable characters. Required for apply patches.",
    ),
    Parameter("fieldSelector", "string", "Which objects, by the values of their fields. Defaults to everything."),
    Parameter(
        "fieldValidation",
        "string",
        "What to do about unknown and duplicate fields. 'Ignore' drops them, 'Warn' (the default) drops them with a "
        "warning each, 'Strict' refuses the request.",
    ),
    Parameter("follow", "boolean", "Whether to go on as the log grows."),
    Parameter(
        "force",
        "boolean",
        "Whether an apply patch takes fields from others who own them. Must be unset for other patches.",
    ),
    Parameter("gracePeriodSeconds", "integer", "Seconds until the object is deleted. Zero deletes at once."),
    Parameter(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Whether to delete an object that cannot be read, regardless of finalizers and preconditions.",
    ),
    Parameter(
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Whether to skip the verification of the certificate of the node that serves the log.",
    ),
    Parameter("labelSelector", "string", "Which objects, by their labels. Defaults to everything."),
    Parameter("limit", "integer", "The most objects to answer at once. The rest is to be had by continue."),
    Parameter("limitBytes", "integer", "The most bytes of the log to answer."),
    Parameter(
        "orphanDependents",
        "boolean",
        "Deprecated, use propagationPolicy. Whether the objects that depend on it are left alone.",
    ),
    Parameter("path", "string", "The path to ask for."),
    Parameter("ports", "integer", "The ports to forward, separated by commas."),
    Parameter("previous", "boolean", "Whether to read the log of the container that ran before."),
    Parameter(
        "propagationPolicy",
        "string",
        "What becomes of the objects that depend on it: 'Orphan', 'Background' or 'Foreground'.",
    ),
    Parameter("resourceVersion", "string", "From which version on the answer is to be."),
    Parameter("resourceVersionMatch", "string", "How resourceVersion applies to a list: 'Exact' or 'NotOlderThan'."),
    Parameter(
        "sendInitialEvents",
        "boolean",
        "Whether a watch begins with an ADDED event for every object there is, and a bookmark after them.",
    ),
    Parameter("sinceSeconds", "integer", "Only the log's last seconds."),
    Parameter("stderr", "boolean", "Whether to connect the standard error."),
    Parameter("stdin", "boolean", "Whether to connect the standard input."),
    Parameter("stdout", "boolean", "Whether to connect the standard output."),
    Parameter("stream", "string", "Which of the log's streams: 'All', 'Stdout' or 'Stderr'."),
    Parameter("tailLines", "integer", "Only the log's last lines."),
    Parameter("timeoutSeconds", "integer", "How long the request may take, whatever it is doing."),
    Parameter("timestamps", "boolean", "Whether every line of the log begins with its time."),
    Parameter("tty", "boolean", "Whether to allocate a terminal."),
    Parameter("watch", "boolean", "Whether to go on with a stream of changes instead of answering a list."),
)
