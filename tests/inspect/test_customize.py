"""`farflung customize`: objects as they would go to a Location, known from files or from a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from asked_hub import AskedHub, custom
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.apis.edge.names import CUSTOMIZERS
from farflung.apis.kcp.names import LOCATIONS
from farflung.apis.names import Collection
from farflung.cli.main import main
from farflung.cli.output import manifests_text
from farflung.client.errors import Forbidden
from farflung.inspect.customize import CustomizeRequest, CustomizeResult, customize_objects, objects, read_missing
from farflung.inspect.hub import HiddenError
from farflung.inspect.manifests import Manifest
from farflung.inspect.results import InspectError
from farflung.machinery.codec import yaml as kubernetes_yaml
from farflung.machinery.errors import Obj

EXPAND, NAMES = "edge.kcp.io/expand-parameters", "edge.kcp.io/customizer"
NAMESPACES = Collection("", "v1", "namespaces", "Namespace")

PAGE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: page
  annotations:
    edge.kcp.io/expand-parameters: "true"
data:
  index.html: Running in %(city), at %(location.name).
"""
SHOP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: shop
  namespace: web
  annotations:
    edge.kcp.io/customizer: by-env
data: {}
"""
FLORIN = """\
apiVersion: scheduling.kcp.io/v1alpha1
kind: Location
metadata:
  name: florin
  labels: {env: prod}
  annotations: {city: Florin City}
"""
BY_ENV = """\
apiVersion: edge.kcp.io/v1alpha1
kind: Customizer
metadata:
  name: by-env
  namespace: web
  annotations: {edge.kcp.io/expand-parameters: "true"}
replacements:
- {path: $.data.env, value: '"%(env)"'}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files, and no server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name, text in {"page": PAGE, "shop": SHOP, "florin": FLORIN, "by-env": BY_ENV}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def run(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(main, ["customize", *words], input=given)


# --- from files -----------------------------------------------------------------------------------


def test_parameters_are_those_of_a_location_in_a_file(files: Path) -> None:
    result = run("-f", "page.yaml", "--location-file", "florin.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == PAGE.replace("%(city)", "Florin City").replace("%(location.name)", "florin")


def test_a_customizer_is_found_in_a_file(files: Path) -> None:
    result = run("-f", "shop.yaml", "--location-file", "florin.yaml", "--customizer-file", "by-env.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == SHOP.replace("data: {}", "data:\n  env: prod")


def test_several_objects_are_several_documents_or_a_list(files: Path) -> None:
    words = ["-f", "page.yaml", "-f", "shop.yaml", "--location-file", "florin.yaml", "--customizer-file", "by-env.yaml"]
    documents = list(yaml.safe_load_all(run(*words).stdout))
    assert [one["metadata"]["name"] for one in documents] == ["page", "shop"]
    listed = orjson.loads(run(*words, "-o", "json").stdout)
    assert listed == {"apiVersion": "v1", "kind": "List", "items": documents}
    alone = orjson.loads(run("-f", "page.yaml", "--location-file", "florin.yaml", "-o", "json").stdout)
    assert alone == documents[0]


def test_standard_input_is_a_file(files: Path) -> None:
    result = run("-f", "-", "--location-file", "florin.yaml", given=PAGE)
    assert "Running in Florin City" in result.stdout


def test_what_has_no_namespace_is_in_the_one_that_is_said(files: Path) -> None:
    bare = SHOP.replace("  namespace: web\n", "")
    words = ["-f", "-", "--location-file", "florin.yaml", "--customizer-file", "by-env.yaml"]
    wrong = run(*words, given=bare)
    assert wrong.exit_code == 1
    assert "there is no Customizer default/by-env" in wrong.stderr
    right = run(*words, "-n", "web", given=bare)
    assert right.exit_code == 0
    assert right.stdout == bare.replace("data: {}", "data:\n  env: prod")
    (files / "by-env.yaml").write_text(BY_ENV.replace("  namespace: web\n", ""))
    assert run(*words, given=bare).exit_code == 0


@pytest.mark.parametrize("head", ["v1\nkind: Namespace", "apis.kcp.io/v1alpha1\nkind: APIBinding"])
def test_kinds_without_a_namespace_must_say_the_customizers(files: Path, head: str) -> None:
    text = f"apiVersion: {head}\nmetadata: {{name: x, annotations: {{edge.kcp.io/customizer: by-env}}}}\n"
    words = ["-f", "-", "--location-file", "florin.yaml", "--customizer-file", "by-env.yaml"]
    assert "an object without a namespace names a Customizer as NAMESPACE/NAME" in run(*words, given=text).stderr
    assert run(*words, given=text.replace("by-env", "web/by-env")).exit_code == 0


def test_the_cluster_of_a_file_is_the_one_that_is_said(files: Path) -> None:
    text = PAGE.replace("%(city)", "%(cluster.name)")
    hint = run("-f", "-", "--location-file", "florin.yaml", given=text)
    assert hint.exit_code == 0
    assert hint.stderr == (
        "Warning: standard input: ConfigMap page: %(cluster.name) is not replaced: select the SyncTarget "
        "with --sync-target\n"
    )
    said = run("-f", "-", "--location-file", "florin.yaml", "--sync-target", "florin-1", given=text)
    assert "Running in florin-1, at florin." in said.stdout


def test_what_is_not_known_and_what_leads_nowhere_is_a_warning(files: Path) -> None:
    (files / "by-env.yaml").write_text(BY_ENV.replace("$.data.env", "$..nothing").replace("%(env)", "%(color)"))
    result = run("-f", "shop.yaml", "--location-file", "florin.yaml", "--customizer-file", "by-env.yaml")
    assert (result.exit_code, result.stdout) == (0, SHOP)
    assert result.stderr.splitlines() == [
        "Warning: shop.yaml: ConfigMap shop: %(color) is not replaced: the Location has no label or annotation of that "
        "name",
        "Warning: shop.yaml: ConfigMap shop: the path $..nothing matches nothing",
    ]


def test_a_broken_customization_is_said_and_the_others_are_printed(files: Path) -> None:
    (files / "by-env.yaml").write_text(BY_ENV.replace("$.data.env", "$.data.my-env"))
    words = ["-f", "shop.yaml", "-f", "page.yaml", "--location-file", "florin.yaml", "--customizer-file", "by-env.yaml"]
    result = run(*words)
    assert result.exit_code == 1
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "page"
    assert result.stderr == (
        'Error: shop.yaml: ConfigMap shop: Customizer web/by-env: replacements[0].path: "$.data.my-env" is no path: at '
        "character 10: expected . or [ here; names with other characters than letters, digits, _ and $ are written "
        "['like-this']\n"
    )


def test_a_secret_is_printed_as_it_is_the_users_own(files: Path) -> None:
    text = PAGE.replace("ConfigMap", "Secret").replace("\ndata:", "\nstringData:")
    assert "Running in Florin City" in run("-f", "-", "--location-file", "florin.yaml", given=text).stdout


def test_what_a_server_wrote_is_left_out_of_what_a_server_made(files: Path) -> None:
    made = PAGE.replace("  name: page\n", "  name: page\n  uid: u\n  resourceVersion: '7'\n  generation: 1\n")
    result = run("-f", "-", "--location-file", "florin.yaml", given=f"{made}status: {{}}\n")
    assert result.exit_code == 0
    assert set(yaml.safe_load(result.stdout)["metadata"]) == {"name", "annotations"}
    assert "status" not in yaml.safe_load(result.stdout)


@pytest.mark.parametrize(
    ("words", "given", "sentence"),
    [
        (["-f", "none.yaml", "--location-file", "florin.yaml"], "", "cannot read none.yaml"),
        (["-f", "page.yaml", "--location-file", "page.yaml"], "", "page.yaml: expected a Location"),
        (["-f", "page.yaml", "--location-file", "-"], FLORIN + "---\n" + FLORIN, "-: expected one Location, found 2"),
        (["-f", "page.yaml", "--location-file", "-"], "", "-: expected one Location, found 0"),
        (
            ["-f", "shop.yaml", "--location-file", "florin.yaml", "--customizer-file", "page.yaml"],
            "",
            "page.yaml: expected a Customizer",
        ),
        (["-f", "-", "--location-file", "florin.yaml"], "", "no objects in the files"),
        (
            ["-f", "-", "--location-file", "florin.yaml"],
            "apiVersion: v1\nkind: Secret\nmetadata: {}",
            "standard input: the Secret has no metadata.name",
        ),
        (
            ["-f", "-", "--location-file", "florin.yaml"],
            PAGE.replace('"true"', "true"),
            "standard input: metadata.annotations must be a map of strings",
        ),
        (
            ["-f", "-", "--location-file", "florin.yaml"],
            "apiVersion: v1\nkind: Service\nmetadata: {name: x, uid: u, managedFields: [7]}\nspec: 7",
            "standard input: not a valid Service",
        ),
        (["-f", "page.yaml", "--location", "florin"], "", "none"),
        (["-f", "shop.yaml", "--location-file", "florin.yaml"], "", "none"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(files: Path, words: list[str], given: str, sentence: str) -> None:
    result = run(*words, given=given)
    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [[], ["--location", "a", "--location-file", "florin.yaml"]])
def test_there_must_be_one_location(files: Path, words: list[str]) -> None:
    result = run("-f", "page.yaml", *words)
    assert result.exit_code == 2
    assert "give either --location or --location-file" in result.stderr


# --- from a hub -----------------------------------------------------------------------------------


async def furnished() -> AskedHub:
    hub = await AskedHub.started()
    await hub.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}})
    await hub.client.create(CUSTOMIZERS, yaml.safe_load(BY_ENV), "web")
    await hub.target("florin-1", env="prod")
    await hub.location("florin", {"env": "prod"}, env="prod")
    await hub.inventory.patch(LOCATIONS, "florin", {"metadata": {"annotations": {"city": "Florin City"}}})
    return hub


def request(text: str, location: str = "florin", **others: Any) -> CustomizeRequest:
    return CustomizeRequest(objects([Manifest("x.yaml", one) for one in yaml.safe_load_all(text)]), location, **others)


async def asked(hub: AskedHub, text: str, location: str = "florin", **others: Any) -> CustomizeResult:
    wanted = request(text, location, **others)
    place, known = await read_missing(hub.asked, wanted, None, None)
    return customize_objects(wanted, place, known)


def data(answer: CustomizeResult) -> list[Obj]:
    return [one["data"] for one in answer.objects]


async def test_the_location_and_the_customizers_are_found_in_a_hub() -> None:
    hub = await furnished()
    found = await asked(hub, f"{PAGE}---\n{SHOP}")
    assert data(found) == [{"index.html": "Running in Florin City, at florin."}, {"env": "prod"}]
    assert (found.warnings, found.problems) == ([], [])
    assert hub.transport.writes == []


async def test_what_every_place_has_is_known() -> None:
    hub = await furnished()
    text = PAGE.replace("%(city)", "%(cluster.name) of %(workspace)")
    assert data(await asked(hub, text)) == [{"index.html": f"Running in florin-1 of {hub.cluster}, at florin."}]


@pytest.mark.parametrize("workspace", ["root:places", "C"])
async def test_a_location_can_be_named_with_its_workspace(workspace: str) -> None:
    hub = await furnished()
    location = f"{workspace.replace('C', hub.cluster)}:florin"
    assert data(await asked(hub, PAGE, location)) == data(await asked(hub, PAGE))
    with pytest.raises(InspectError, match="Location root:places:guilder not found"):
        await asked(hub, PAGE, "root:places:guilder")


async def test_of_several_locations_of_one_name_one_must_be_chosen() -> None:
    hub = await furnished()
    with pytest.raises(InspectError, match="Location guilder not found"):
        await asked(hub, PAGE, "guilder")
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    compute = hub.client.workspace("root:compute")
    await compute.create(LOCATIONS, custom(LOCATIONS, "florin", resource=resource))
    with pytest.raises(
        InspectError, match=rf"2 workspaces have a Location florin; select one of .*{hub.cluster}:florin"
    ):
        await asked(hub, PAGE)
    assert (await asked(hub, PAGE, f"{hub.cluster}:florin")).problems == []


async def test_of_several_clusters_of_a_location_one_can_be_chosen() -> None:
    hub = await furnished()
    await hub.target("florin-2", env="prod")
    await hub.target("other", env="dev")
    text = PAGE.replace("%(city)", "%(cluster.name)")
    hint = await asked(hub, text)
    assert hint.warnings == [
        "x.yaml: ConfigMap page: %(cluster.name) is not replaced: the Location florin selects the SyncTargets "
        "florin-1, florin-2; select one with --sync-target"
    ]
    assert data(await asked(hub, text, target="florin-2")) == [{"index.html": "Running in florin-2, at florin."}]
    with pytest.raises(InspectError, match="SyncTarget other not found: the Location florin"):
        await asked(hub, text, target="other")


async def test_a_customizer_that_is_not_there_holds_the_object_back() -> None:
    hub = await furnished()
    found = await asked(hub, SHOP.replace("by-env", "none"))
    assert found.objects == []
    assert found.problems == [
        "x.yaml: ConfigMap shop: metadata.annotations[edge.kcp.io/customizer]: there is no Customizer web/none"
    ]


async def test_a_workspace_without_customizers_is_a_sentence() -> None:
    hub = await furnished()
    hub.client = hub.inventory
    with pytest.raises(InspectError, match=r"`kubectl kcp bind apiexport root:espw:edge.kcp.io` in that workspace"):
        await asked(hub, SHOP)


async def test_a_user_that_may_not_list_all_locations_can_name_the_workspace() -> None:
    hub = await furnished()
    with pytest.raises(HiddenError, match="you may not list the Locations of all workspaces"):
        await read_missing(hub.asked_by_somebody, request(PAGE), None, None)
    wanted = request(PAGE, "root:places:florin")
    with pytest.raises(Forbidden):
        await read_missing(hub.asked_by_somebody, wanted, None, None)
    enter = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    rules = [
        {"apiGroups": ["scheduling.kcp.io"], "resources": ["locations"], "verbs": ["get"]},
        {"apiGroups": ["workload.kcp.io"], "resources": ["synctargets"], "verbs": ["list"]},
    ]
    await hub.grant("root:places", "read", enter, *rules)
    place, known = await read_missing(hub.asked_by_somebody, wanted, None, None)
    assert customize_objects(wanted, place, known) == await asked(hub, PAGE)


# --- printing -------------------------------------------------------------------------------------

TEXTS = (
    st.sampled_from(["", "y", "on", "1e3", "0x1F", "1_000", "~", "null", "=", "a: b", "- x", "a\n b\n", "\t"])
    | st.text()
)
VALUES = st.recursive(
    TEXTS | st.integers(-(2**62), 2**62) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
@example({"": None, "0": "\x85"})
@example("a\n\u2028")
def test_kubernetes_reads_what_is_printed_as_it_was(value: Any) -> None:
    obj = {"apiVersion": "v1", "kind": "X", "again": [value, value], "value": value}
    assert kubernetes_yaml.parse(manifests_text([obj], "yaml").encode()).value == obj
    assert orjson.loads(manifests_text([obj], "json")) == obj
