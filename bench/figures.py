"""How figures are shown."""

from __future__ import annotations

import os
import resource

from generators import Rate, percentile
from http_client import Heard


class Figures:
    """Lines of a table, each printed as soon as it is known."""

    def begin(self, *others: str) -> None:
        load = os.getloadavg()[0]
        print(f"{os.cpu_count()} cores, load {load:.1f} before we began: a busy machine makes all of this worse")
        self.show("figure", "measured", *others)

    def show(self, figure: str, measured: str, target: str = "", remark: str = "") -> None:
        print(f"{figure:<46} {measured:>14}   {target:<16} {remark}".rstrip(), flush=True)

    def compare(self, figure: str, measured: str, target: str = "", others: str = "", remark: str = "") -> None:
        """With what others say of theirs."""
        self.show(figure, measured, target, f"{others:<12} {remark}".rstrip())

    def show_rate(self, figure: str, rate: Rate, cpu: float, target: str = "") -> None:
        remark = f"{cpu * 1e6:4.0f} µs CPU each, p50 {rate.p50:.1f} ms, p99 {rate.p99:.1f} ms"
        self.show(figure, f"{rate.per_second:,.0f}/s", target, remark)

    def show_delays(self, figure: str, heard: Heard, target: str = "") -> None:
        p50, p99 = percentile(heard.delays, 50), percentile(heard.delays, 99)
        self.show(figure, f"{p50:.1f} / {p99:.1f} ms", target, f"{heard.cpu * 1e6:4.0f} µs CPU for each event heard")


def allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
