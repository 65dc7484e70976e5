#!/usr/bin/env python3
"""Print a software bill of materials in the format of CycloneDX 1.6: all packages of requirements.lock.

Versions and hashes are those of the lock file.  Licences and dependencies are those that the packages in .venv declare.
A package that only the installation needs has the scope `excluded`.  The same lock file always gives the same bytes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import metadata
from typing import Any

from setup import ENVIRONMENT, PYTHON, ROOT, RUNNING, Failed, canonical

ENTRY = re.compile(r"^([A-Za-z0-9][^\s=]*)==(\S+)(.*\n(?: .*\n)*)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def main() -> int:
    try:
        bill = bill_of((ROOT / RUNNING).read_text(), environment())
    except Failed as failure:
        print(f"sbom: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(bill, indent=2, sort_keys=True))
    return 0


def environment() -> dict[str, Any]:
    """The bill of everything in .venv, with this project as the main component."""
    how = ["environment", "--output-reproducible", "--sv", "1.6", "--pyproject", str(ROOT / "pyproject.toml")]
    command = [str(ENVIRONMENT / "bin/cyclonedx-py"), *how, str(PYTHON)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Failed(f"this failed with code {ended.returncode}: {' '.join(command)}\n{ended.stderr.rstrip()}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def bill_of(lock: str, found: dict[str, Any]) -> dict[str, Any]:
    """What `found` says of the packages of the lock file, and their hashes."""
    root = found["metadata"]["component"]["bom-ref"]
    installed = {(canonical(one["name"]), one["version"]): one for one in found["components"]}
    components = {}
    for name, version, rest in ENTRY.findall(lock):
        component = installed.get((canonical(name), version))
        if component is None:
            raise Failed(f"{name} {version} is not installed: run `make setup`")
        components[component["bom-ref"]] = with_license(with_hashes(component, HASH.findall(rest)))
    depends = {one["ref"]: sorted({*one.get("dependsOn", ())} & components.keys()) for one in found["dependencies"]}
    needed, waiting = set[str](), [root]
    while waiting:
        reference = waiting.pop()
        waiting += {*depends[reference]} - needed
        needed.update(depends[reference])
    for reference, component in components.items():
        component["scope"] = "required" if reference in needed else "excluded"
    return {
        **found,
        "components": [components[reference] for reference in sorted(components)],
        "dependencies": [{"ref": one, "dependsOn": depends[one]} for one in sorted({root, *components})],
    }


def with_hashes(component: dict[str, Any], hashes: list[str]) -> dict[str, Any]:
    """The lock file has the hashes of all files of a release; pip installs one of them."""
    files = {
        "type": "distribution",
        "url": f"https://pypi.org/project/{canonical(component['name'])}/{component['version']}/#files",
        "hashes": [{"alg": "SHA-256", "content": one} for one in sorted(hashes)],
    }
    return {**component, "externalReferences": [*component.get("externalReferences", ()), files]}


def with_license(component: dict[str, Any]) -> dict[str, Any]:
    """`cyclonedx-py` leaves out the text of a licence that is no SPDX identifier."""
    declared = metadata(component["name"]).get("License")
    if "licenses" in component or not declared:
        return component
    return {**component, "licenses": [{"license": {"name": declared, "acknowledgement": "declared"}}]}


if __name__ == "__main__":
    sys.exit(main())
