"""Autoscalers, version 1."""

from __future__ import annotations

from typing import Final

from farflung.apis.autoscaling import printers
from farflung.apis.group import Group, status

AUTOSCALING: Final = Group("autoscaling", "v1", "io.k8s.api.autoscaling.v1.")

RESOURCES: Final = (
    AUTOSCALING.stored(
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        printer=printers.AUTOSCALERS,
        short_names=("hpa",),
        categories=("all",),
        subresources=(status("HorizontalPodAutoscaler"),),
        stored_as=("autoscaling", "v2"),
    ),
)
