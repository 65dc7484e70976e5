"""The functions of CEL, and those of Kubernetes 1.34: names, types, implementations and costs.

`KUBERNETES` has all functions that rules of CustomResourceDefinitions may use.
"""

from __future__ import annotations

from typing import Final

from farflung.machinery.cel.language.declarations import Functions, functions
from farflung.machinery.cel.library import (
    addresses,
    conversions,
    formats,
    lists,
    moments,
    operators,
    optionals,
    quantities,
    regexes,
    semvers,
    strings,
    urls,
)

KUBERNETES: Final[Functions] = functions(
    operators.LIBRARY,
    conversions.LIBRARY,
    moments.LIBRARY,
    urls.LIBRARY,
    regexes.LIBRARY,
    lists.LIBRARY,
    optionals.LIBRARY,
    quantities.LIBRARY,
    strings.LIBRARY,
    lists.SETS,
    addresses.LIBRARY,
    formats.LIBRARY,
    semvers.LIBRARY,
    lists.EXTENSION,
)
