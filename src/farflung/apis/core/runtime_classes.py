"""RuntimeClasses: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.core.resources import check_amounts
from farflung.apis.printers import AGE, NAME, column, printer
from farflung.apis.resource import Group
from farflung.apis.rows import Always, Default, Defaults, Each, Format, Optional, Validation, immutable
from farflung.apis.validation import Rules, check_labels
from farflung.machinery import names

RUNTIME_CLASSES: Final = printer(
    "node.v1.RuntimeClass", NAME, column("Handler", "", lambda runtime: runtime.get("handler", "")), AGE
)


# --- Runtime classes ------------------------------------------------------------------------------

NODE: Final = Group("node.k8s.io", "v1", "io.k8s.api.node.v1.")

RESOURCES: Final = (NODE.stored("runtimeclasses", "RuntimeClass", printer=RUNTIME_CLASSES, namespaced=False),)


# --- Rules of RuntimeClasses ----------------------------------------------------------------------


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (NODE.name, "RuntimeClass"): Rules(
        name=names.dns_subdomain,
        default=Defaults(Each("scheduling.tolerations", Default("operator", "Equal", empty=True))),
        validate=Validation(
            Always("handler", Format(names.dns_label)),
            Optional("overhead.podFixed", check_amounts),
            Optional("scheduling.nodeSelector", check_labels),
        ),
        validate_update=immutable("handler"),
        unconditional_update=False,
    ),
}
