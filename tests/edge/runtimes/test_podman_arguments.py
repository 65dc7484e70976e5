"""Arguments of podman."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.runtimes import podman_arguments as words
from farflung.edge.runtimes.base import ContainerSpec, Mount, StartError
from farflung.edge.runtimes.podman_arguments import DROPPED, InstanceIdentity, secret_names, variables

IDENTITY = InstanceIdentity(Path("/edges/florin"), "5fz2b")
IMAGE = "docker.io/library/httpd:2.4"


def container(**changes: object) -> ContainerSpec:
    settings: dict[str, object] = {
        "pod_uid": "1f2e",
        "namespace": "shop",
        "pod": "web-abc",
        "name": "httpd",
        "attempt": 2,
        "image": "httpd:2.4",
        "log": Path("/edges/florin/pods/1f2e/logs/httpd/2.log"),
    }
    return ContainerSpec(**(settings | changes))  # type: ignore[arg-type]


def run(**changes: object) -> tuple[str, ...]:
    return words.run(container(**changes), IDENTITY, IMAGE, {})


def options(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments[: arguments.index("--")]


def test_a_container_carries_the_marks_of_its_edge_and_of_this_instance() -> None:
    asked = run()
    assert f"--name=farflung-{IDENTITY.edge}-5fz2b-1f2e-httpd-2" in asked
    assert f"--label=io.farflung.edge={IDENTITY.edge}" in asked
    assert f"--label=io.farflung.instance={IDENTITY.edge}-5fz2b" in asked
    assert f"--filter=label=io.farflung.edge={IDENTITY.edge}" in words.all_of(IDENTITY.edge_filter)


def test_edges_in_other_directories_have_other_marks(tmp_path: Path) -> None:
    (tmp_path / "florin").mkdir()
    (tmp_path / "link").symlink_to("florin")
    one = InstanceIdentity.of(tmp_path / "florin", "a")
    assert InstanceIdentity.of(tmp_path / "link", "a") == one
    assert InstanceIdentity.of(tmp_path / "guilder", "a").edge != one.edge
    assert InstanceIdentity.of(tmp_path / "florin", "b").edge == one.edge


def test_a_container_may_do_no_more_than_kubernetes_lets_it_do_by_default() -> None:
    asked = options(run())
    assert {word for word in asked if word.startswith("--cap-")} == {f"--cap-drop={name}" for name in DROPPED}
    assert "--security-opt=no-new-privileges" in asked
    assert not [word for word in asked if word.startswith(("--privileged", "--device", "--pid", "--ipc", "--network"))]


def test_defaults_of_podman_that_kubernetes_does_not_have_are_disabled() -> None:
    asked = options(run())
    assert {"--http-proxy=false", "--no-healthcheck", "--systemd=false", "--sdnotify=ignore"} <= set(asked)


@pytest.mark.parametrize(
    ("command", "arguments", "entrypoint", "rest"),
    [
        (None, None, None, ()),
        (None, ("-x", "--help"), None, ("-x", "--help")),
        (("/bin/sh", "-c"), None, '["/bin/sh", "-c"]', ()),
        (('a "b"',), ("c d",), '["a \\"b\\""]', ("c d",)),
    ],
)
def test_command_and_arguments_take_the_place_of_entrypoint_and_command_of_the_image(
    command: tuple[str, ...] | None, arguments: tuple[str, ...] | None, entrypoint: str | None, rest: tuple[str, ...]
) -> None:
    asked = run(command=command, arguments=arguments)
    assert [word for word in asked if word.startswith("--entrypoint")] == (
        [] if entrypoint is None else [f"--entrypoint={entrypoint}"]
    )
    assert asked[asked.index("--") :] == ("--", IMAGE, *rest)


def test_ports_are_published_on_this_machine_alone_wherever_there_is_one_free() -> None:
    asked = run(ports=(8080, 80, 8080))
    assert [word for word in asked if word.startswith("--publish")] == [
        "--publish=127.0.0.1::80",
        "--publish=127.0.0.1::8080",
    ]


def test_containers_that_share_a_network_publish_their_ports_together() -> None:
    asked = run(ports=(80,), shared_ports=(80, 9090))
    pod = f"farflung-{IDENTITY.edge}-5fz2b-1f2e"
    assert f"--pod={pod}" in asked
    assert not [word for word in asked if word.startswith("--publish")]
    made = words.create_pod(container(ports=(80,), shared_ports=(80, 9090)), IDENTITY)
    assert made[:3] == ("pod", "create", "--share=net")
    assert {f"--name={pod}", "--publish=127.0.0.1::80", "--publish=127.0.0.1::9090"} <= set(made)
    assert f"--label=io.farflung.edge={IDENTITY.edge}" in made


def test_only_mounts_from_the_edges_directory_are_relabelled() -> None:
    asked = run(
        mounts=(
            Mount(Path("/edges/florin/pods/1f2e/volumes/page"), "/htdocs", read_only=True),
            Mount(Path("/edges/florin/pods/1f2e/volumes/scratch"), "/tmp"),
            Mount(Path("/srv"), "/srv", read_only=True),
            Mount(Path("/data"), "/data"),
        )
    )
    assert [word.removeprefix("--volume=") for word in asked if word.startswith("--volume")] == [
        "/edges/florin/pods/1f2e/volumes/page:/htdocs:ro,z",
        "/edges/florin/pods/1f2e/volumes/scratch:/tmp:z",
        "/srv:/srv:ro",
        "/data:/data",
    ]


@pytest.mark.parametrize(
    "mount",
    [Mount(Path("/a:b"), "/c"), Mount(Path("/a,b"), "/c"), Mount(Path("/a"), "/c:rw"), Mount(Path("/\n"), "/c")],
)
def test_a_mount_that_podman_would_read_as_another_is_refused(mount: Mount) -> None:
    with pytest.raises(StartError) as refused:
        run(mounts=(mount,))
    assert refused.value.reason == "CreateContainerError"


def test_directory_user_and_grace_are_the_containers() -> None:
    asked = run(working_directory="/srv", user=0, grace=1.2)
    assert {"--workdir=/srv", "--user=0", "--stop-timeout=2"} <= set(asked)
    assert not [word for word in run() if word.startswith(("--workdir", "--user"))]


def test_the_host_name_is_the_truncated_name_of_the_pod() -> None:
    assert words.host_name("web-abc") == "web-abc"
    assert words.host_name("a" * 62 + "-b.c") == "a" * 62


def test_the_log_is_written_by_podman_in_the_form_of_container_runtimes() -> None:
    asked = run()
    assert "--log-driver=k8s-file" in asked
    assert "--log-opt=path=/edges/florin/pods/1f2e/logs/httpd/2.log" in asked


def test_values_of_variables_are_never_on_the_command_line() -> None:
    given_ = variables({"PASSWORD": "hunter2", "KEY": "-----BEGIN\nhunter3\n"})
    secrets = secret_names(IDENTITY.name(container()), given_)
    asked = words.run(container(environment={"PASSWORD": "hunter2", "KEY": "hunter3"}), IDENTITY, IMAGE, secrets)
    assert "hunter" not in " ".join(asked)
    assert f"--secret={secrets['KEY']},type=env,target=KEY" in asked
    assert secrets["KEY"].startswith(IDENTITY.instance_prefix)


@pytest.mark.parametrize("name", ["", "A B", "#A", "A=", "A,type=mount", "A*", "ä", "1A", "A\n"])
def test_a_variable_that_podman_cannot_name_is_refused(name: str) -> None:
    with pytest.raises(StartError) as refused:
        variables({name: "x"})
    assert refused.value.reason == "CreateContainerConfigError"


def read_by_podman(lines: str) -> dict[str, str]:
    """Parse an environment file like podman 4.3."""
    read = {}
    for line in lines.split("\n"):
        line = line.removesuffix("\r").lstrip(" \t\r\n\v\f")
        assert len(line) < 64 * 1024
        if line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert name and equals and not any(character.isspace() for character in name)
            read[name] = value
    return read


ODD = st.text(alphabet=st.sampled_from(list("ab=#$'\"`\\ \t\n\r\v\0\x1b:{},é\u2028\u00a0")), max_size=12)


@given(st.dictionaries(st.sampled_from(["A", "B_c", "x.y", "-z", "PATH"]), ODD | st.text(max_size=20)))
def test_every_variable_is_passed_once_and_unchanged(environment: dict[str, str]) -> None:
    said = variables(environment)
    plain = read_by_podman(said.lines)
    assert plain.keys().isdisjoint(said.secrets)
    assert plain | dict(said.secrets) == environment
    assert not any(quote in value for value in plain.values() for quote in "'\"`#$\\")


def test_an_ordinary_value_needs_no_secret() -> None:
    assert not variables({"A": "", "B": "b c", "URL": "https://x.org/?a=b&c=%20", "Z": "ü"}).secrets
    assert variables({"A": "x" * 40_000}).secrets


def test_containers_are_removed_at_once_with_their_volumes_even_if_some_do_not_exist() -> None:
    assert words.remove(["a", "b"]) == ("rm", "--force", "--ignore", "--time=0", "--volumes", "a", "b")


def test_stopping_waits_for_whole_seconds() -> None:
    assert words.stop("a", 0.2) == ("stop", "--ignore", "--time=1", "a")
    assert words.stop("a", -3) == ("stop", "--ignore", "--time=0", "a")
