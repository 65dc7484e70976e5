"""YAML files of users, read as PyYAML reads them, with its parser in C where that is installed."""

from __future__ import annotations

from typing import Any, Final

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST: Final = 100  #: nested collections; the loader in C recurses without a bound of its own


def load(text: str | bytes) -> Any:
    """One document; None if there is none.  Raises yaml.YAMLError."""
    depth = 0
    try:
        for event in yaml.parse(text, LOADER):
            if isinstance(event, CollectionStartEvent):
                depth += 1
                if depth > DEEPEST:
                    raise yaml.YAMLError(f"more than {DEEPEST} nested collections")
            elif isinstance(event, CollectionEndEvent):
                depth -= 1
        return yaml.load(text, LOADER)  # noqa: S506 - a SafeLoader
    except (RecursionError, ValueError) as error:  # ValueError: a date that does not exist
        raise yaml.YAMLError(str(error)) from None
    except (LookupError, AttributeError):  # PyYAML's, for a text that is not what its tag says
        raise yaml.YAMLError("a value does not fit its tag") from None
