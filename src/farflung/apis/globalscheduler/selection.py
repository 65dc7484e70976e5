"""The selection of Clusters for virtual machines: in Pods in camelCase, in Allocations in snake_case."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import array, integer, number, object_, text, texts
from farflung.machinery.errors import Obj

NAME_LENGTH: Final = 253
LONGEST_TEXT: Final = 1024
MAX_RESOURCES: Final = 64
MAX_FLAVORS: Final = 16
MAX_REGIONS: Final = 64
MAX_ZONES: Final = 64
MAX_REQUIREMENTS: Final = 32
MAX_VALUES: Final = 64
MAX_COPIES: Final = 10_000  #: of one virtual machine, and of one stack
MAX_CLUSTERS: Final = 10_000

CENTRALIZE_OR: Final = ["", "centralize", "discrete", "spread"]
LOCAL_STRATEGY: Final = text(
    "How replicas are divided: centralize (the default) uses as few clusters as possible, discrete divides them in "
    "proportion to the free capacity of each cluster, spread divides them as evenly as possible.",
    enum=CENTRALIZE_OR,
)


def name(description: str) -> Obj:
    return text(description, maxLength=NAME_LENGTH)


GEO_LOCATION: Final = object_(
    "The geographic location. An omitted or empty field matches any value; others are compared exactly.",
    country=name("The country."),
    area=name("The area."),
    province=name("The province."),
    city=name("The city."),
)
COORDINATES: Final = {
    "latitude": number("Degrees north of the equator.", minimum=-90, maximum=90),
    "longitude": number("Degrees east of Greenwich.", minimum=-180, maximum=180),
}


def near(description: str) -> Obj:
    return object_(description, **COORDINATES, requires=("latitude", "longitude"))


def requirements(description: str) -> Obj:
    requirement = object_(
        "One requirement on a label.",
        key=text("The label key.", minLength=1, maxLength=317),
        operator=text(
            "The operator: in, notin, =, ==, !=, exists, ! (does not exist), gt or lt.",
            enum=["in", "notin", "=", "==", "!=", "exists", "!", "gt", "lt"],
        ),
        values=array(
            "The values: one or more for in and notin, none for exists and !, one for the others.",
            text("A value.", maxLength=63),
            maxItems=MAX_VALUES,
        ),
        requires=("key", "operator"),
    )
    return array(description, requirement, maxItems=MAX_REQUIREMENTS)


CLUSTER_AFFINITY: Final = object_(
    "Requirements on the labels of clusters.",
    required=requirements("Requirements that must all match."),
    preferred=array(
        "Preferred requirements.",
        object_(
            "Requirements with a weight.",
            weight=integer("The weight.", minimum=1, maximum=100),
            requirements=requirements("Requirements that must all match."),
            requires=("weight", "requirements"),
        ),
        maxItems=MAX_FLAVORS,
    ),
)
OPERATOR: Final = name("The operator of the cluster's network, such as chinatelecom; empty for all.")
SITE: Final = name(
    "The only permitted cluster: the name of a Cluster, or its region and zone as in `region1--az1`; empty for all."
)
NEAR: Final = near("Coordinates; of two clusters with equal scores, the nearer one is preferred.")
AFFINITY: Final = requirements("Prefer clusters that have a stack whose labels match.")
ANTIAFFINITY: Final = requirements("Avoid clusters that have a stack whose labels match.")


def zones(also: str = "") -> Obj:
    return texts(
        f"The permitted zones of the region; all if empty.{also}",
        "A zone.",
        maxItems=MAX_ZONES,
    )


def regions(zone_fields: dict[str, Obj]) -> Obj:
    return array(
        "The permitted regions; all if empty.",
        object_("One region.", region=name("Its name; empty for all."), **zone_fields),
        maxItems=MAX_REGIONS,
    )


def cluster_count(description: str) -> Obj:
    return integer(f"{description} No limit if 0 or omitted.", minimum=0, maximum=MAX_CLUSTERS)
