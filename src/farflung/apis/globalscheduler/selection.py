"""The selection of Clusters for virtual machines: in Pods in camelCase, in Allocations in snake_case."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import listing, number, record, text, texts, whole
from farflung.machinery.errors import Obj

NAME_LENGTH: Final = 253
LONGEST_TEXT: Final = 1024
MOST_RESOURCES: Final = 64
MOST_FLAVORS: Final = 16
MOST_REGIONS: Final = 64
MOST_ZONES: Final = 64
MOST_REQUIREMENTS: Final = 32
MOST_VALUES: Final = 64
MOST_COPIES: Final = 10_000  #: of one virtual machine, and of one stack
MOST_CLUSTERS: Final = 10_000

CENTRALIZE_OR: Final = ["", "centralize", "discrete", "spread"]
LOCAL_STRATEGY: Final = text(
    "How replicas are divided: centralize uses as few clusters as possible and is what is meant if nothing is said, "
    "discrete divides them in proportion to what each cluster can take, and spread as evenly as possible.",
    enum=CENTRALIZE_OR,
)


def name(description: str) -> Obj:
    return text(description, maxLength=NAME_LENGTH)


GEO_LOCATION: Final = record(
    "Where on earth. What is left out or empty may be anything; the rest must be equal, letter by letter.",
    {
        "country": name("The country."),
        "area": name("The part of the country."),
        "province": name("The province."),
        "city": name("The city."),
    },
)
COORDINATES: Final = {
    "latitude": number("Degrees north of the equator.", minimum=-90, maximum=90),
    "longitude": number("Degrees east of Greenwich.", minimum=-180, maximum=180),
}


def near(description: str) -> Obj:
    return record(description, COORDINATES, required=("latitude", "longitude"))


def requirements(description: str) -> Obj:
    requirement = record(
        "One condition on labels.",
        {
            "key": text("The label that is looked at.", minLength=1, maxLength=317),
            "operator": text(
                "How it is compared: in, notin, =, ==, !=, exists, ! (is not there), gt or lt.",
                enum=["in", "notin", "=", "==", "!=", "exists", "!", "gt", "lt"],
            ),
            "values": listing(
                "What it is compared with: one or more for in and notin, none for exists and !, one for the others.",
                text("A value.", maxLength=63),
                maxItems=MOST_VALUES,
            ),
        },
        required=("key", "operator"),
    )
    return listing(description, requirement, maxItems=MOST_REQUIREMENTS)


CLUSTER_AFFINITY: Final = record(
    "What is asked of the labels of clusters.",
    {
        "required": requirements("Conditions that all must hold."),
        "preferred": listing(
            "Conditions that would be good to hold.",
            record(
                "Some conditions, and how much they are wanted.",
                {
                    "weight": whole("How much, beside the others.", minimum=1, maximum=100),
                    "requirements": requirements("The conditions; together they count or do not."),
                },
                required=("weight", "requirements"),
            ),
            maxItems=MOST_FLAVORS,
        ),
    },
)
OPERATOR: Final = name("The operator of the cluster's network, such as chinatelecom; any if it is empty.")
SITE: Final = name(
    "The only cluster that will do: the name of a Cluster, or its region and zone as in `region1--az1`; any if empty."
)
NEAR: Final = near("A place on earth; of two clusters that are equally good, the nearer one is better.")
AFFINITY: Final = requirements("Clusters are better if they have a stack whose labels fulfil these conditions.")
ANTIAFFINITY: Final = requirements("Clusters are worse if they have a stack whose labels fulfil these conditions.")


def zones(also: str = "") -> Obj:
    return texts(
        f"The zones in the region, any of which will do; all of them if there are none.{also}",
        "A zone.",
        maxItems=MOST_ZONES,
    )


def regions(zone_fields: dict[str, Obj]) -> Obj:
    return listing(
        "The regions, any of which will do; all of them if there are none.",
        record("One region.", {"region": name("Its name; any region if it is empty."), **zone_fields}),
        maxItems=MOST_REGIONS,
    )


def cluster_count(description: str) -> Obj:
    return whole(f"{description} As many as it takes if it is 0 or left out.", minimum=0, maximum=MOST_CLUSTERS)
