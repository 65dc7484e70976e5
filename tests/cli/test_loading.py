"""What processes load before they serve: every module is paid for at every start."""

from __future__ import annotations

import subprocess
import sys

import pytest

CEL = "farflung.machinery.cel.environment"
#: module of a process → what it may not load: a feature that is used later, or never
LATER = {
    "farflung.cli.main": ("asyncio", "msgspec", "yaml", "farflung.hub", "farflung.client"),
    "farflung.cli.hub": (
        CEL,
        "farflung.hub.tenancy",
        "farflung.hub.catalog.openapi",
        "farflung.machines.engine",
        "farflung.client",
        "http.client",
        "jwt",
        "prometheus_client",
    ),
    "farflung.cli.edge_process": (CEL, "farflung.hub.tenancy", "farflung.machines.engine", "jwt", "prometheus_client"),
    "farflung.cli.syncer": (CEL, "farflung.hub", "http.client", "prometheus_client"),
    "farflung.inspect.explain": (CEL, "farflung.hub", "cryptography", "http.client", "prometheus_client"),
    "farflung.cli.tokens": ("asyncio", "cryptography", "farflung.http"),
    "farflung.cli.plugins.workspace": ("asyncio", "click", "msgspec", "yaml", "farflung.client"),
}


@pytest.mark.slow  # processes
@pytest.mark.parametrize("process", LATER)
def test_a_process_loads_nothing_that_it_may_never_need(process: str) -> None:
    program = f"import sys, {process}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout.split()
    unwanted = {one for one in loaded for name in LATER[process] if one == name or one.startswith(f"{name}.")}
    assert not unwanted
