"""Write what is in config/crds, config/exports and config/imports, from the kinds that `farflung.apis.edge` describes,
and the same for the global scheduler in config/globalscheduler.

tools/manifests.py                       write
tools/manifests.py --check               say what differs, and fail if something does
tools/manifests.py --provider root:edge  name the workspace whose export is bound, as a real kcp requires
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from farflung.apis.edge import kinds as edge
from farflung.apis.globalscheduler import kinds as globalscheduler
from farflung.cli.plugins.session import is_workspace_path

CONFIG = Path(__file__).resolve().parent.parent / "config"
FOLDERS = tuple(f"{above}{folder}" for above in ("", "globalscheduler/") for folder in ("crds", "exports", "imports"))
COMPUTE = "root:compute"


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """What stands in many places is written in each of them."""
        return True


def written(obj: Any) -> str:
    """With a line that lets several files follow each other, as `cat` prints them."""
    return "---\n# Made by `make manifests`.\n" + yaml.dump(obj, Dumper=Dumper, sort_keys=False, width=120)


def manifests(provider: str) -> dict[str, str]:
    """Paths below config/, and what is in the files."""
    found = described(edge, provider)
    found |= {f"globalscheduler/{path}": obj for path, obj in described(globalscheduler, COMPUTE).items()}
    return {path: written(obj) for path, obj in found.items()}


def described(api: ModuleType, provider: str) -> dict[str, Any]:
    """All about an API whose export is in the workspace `provider`, by path."""
    found: dict[str, Any] = {}
    for kind in api.KINDS.values():
        definition = kind.definition()
        del definition["status"]
        found[f"crds/{kind.group}_{kind.plural}.yaml"] = definition
        found[f"exports/apiresourceschema-{kind.qualified}.yaml"] = kind.resource_schema()
    export = api.api_export()
    found[f"exports/apiexport-{export['metadata']['name']}.yaml"] = export
    found[f"imports/apibinding-{export['metadata']['name']}.yaml"] = api.api_binding(provider)
    return found


def present() -> dict[str, str]:
    files = (path for folder in FOLDERS for path in (CONFIG / folder).glob("*"))
    return {str(path.relative_to(CONFIG)): path.read_text() for path in files}


def workspace_path(text: str) -> str:
    if text and not is_workspace_path(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the path of a workspace, like root:edge")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the manifests of the edge API and the global scheduler.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if something would change")
    parser.add_argument(
        "--provider",
        default="",
        type=workspace_path,
        help="the workspace whose export is bound; by default none is named, and the hub finds it",
    )
    options = parser.parse_args()
    wanted, found = manifests(options.provider), present()
    different = sorted(path for path in wanted | found if wanted.get(path) != found.get(path))
    for path in different:
        print(f"config/{path}")
        if options.check:
            continue
        (CONFIG / path).parent.mkdir(parents=True, exist_ok=True)
        if path in wanted:
            (CONFIG / path).write_text(wanted[path])
        else:
            (CONFIG / path).unlink()
    return 1 if options.check and different else 0


if __name__ == "__main__":
    sys.exit(main())
