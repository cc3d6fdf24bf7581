"""Container files and Kubernetes manifests: what is wrong in them without an engine to run them.

The chart is rendered by what Helm is made of, Go's templates and Sprig; Helm itself is not run.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from forewarn_base.exit_codes import UNREACHABLE
from tests.agent.programs import program
from tests.agent.test_kubernetes_rights import rights_in, rights_of

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "dist/helm/forewarn"
RENDERED = ROOT / "dist/helm/forewarn.yaml"
MANIFESTS = (ROOT / "dist/agent/daemonset.yaml", RENDERED)
RENDERER = Path(__file__).with_name("render")
SCHEMAS = json.loads(Path(__file__).with_name("kubernetes.json").read_text("utf-8"))["definitions"]
#: Container files, and the directory that each is built in.
CONTAINERS = {"dist/Containerfile": ".", "dist/agent/Containerfile": "dist/agent"}
BUILT = {"forewarn-agent.pyz"}
INSTRUCTIONS = {
    "ARG",
    "FROM",
    "COPY",
    "RUN",
    "USER",
    "VOLUME",
    "ENV",
    "EXPOSE",
    "ENTRYPOINT",
    "CMD",
}


def instructions(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a container file with what follows them on their lines."""
    text = re.sub(r"^\s*#.*\n", "", ROOT.joinpath(name).read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def objects(text: str) -> list[dict[str, object]]:
    """Return the objects of a manifest."""
    return [each for each in yaml.safe_load_all(text) if each]


def refused(form: dict[str, object]) -> list[str]:
    """Return what Kubernetes would not take of an object, unknown members included."""
    group, _, version = str(form["apiVersion"]).rpartition("/")
    package = group.removesuffix(".authorization.k8s.io") or "core"
    reference = {"$ref": f"#/definitions/io.k8s.api.{package}.{version}.{form['kind']}"}
    validator = jsonschema_rs.Draft4Validator({**reference, "definitions": SCHEMAS})
    return [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(form)]


@pytest.mark.parametrize("name", CONTAINERS)
def test_container_file_keeps_the_rules(name: str) -> None:
    """It copies what there is, pins an image, ends as nobody special, and needs no shell to run."""
    found = instructions(name)
    assert {word for word, _ in found} <= INSTRUCTIONS
    words = dict(found)
    assert re.fullmatch(r"[1-9]\d*", words["USER"]), "a number, so that runAsNonRoot can tell"
    assert isinstance(json.loads(words["ENTRYPOINT"]), list)
    assert isinstance(json.loads(words["CMD"]), list)
    assert re.search(r":[\d.]+\S*@sha256:[0-9a-f]{64}$", words["ARG"])
    for word, rest in found:
        if word == "COPY":
            *sources, _ = rest.split()
            kept = [each for each in sources if each not in BUILT]
            assert all((ROOT / CONTAINERS[name] / each).exists() for each in kept), rest
        if word == "RUN":
            script = re.sub(r"^(--\S+ )+", "", rest)
            subprocess.run(["sh", "-n", "-c", script], check=True)
            assert "apt-get" not in script
            assert all("--no-cache-dir" in each for each in re.findall(r"pip [^&]+", script))


def test_container_has_what_the_wheel_is_built_from(tmp_path: Path) -> None:
    """The files that are copied into the image are enough for hatchling."""
    for word, rest in instructions("dist/Containerfile"):
        if word == "COPY" and "/source/" in rest:
            *sources, target = rest.split()
            for source in sources:
                place = tmp_path / target.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                if ROOT.joinpath(source).is_dir():
                    shutil.copytree(ROOT / source, place)
                else:
                    place.mkdir(exist_ok=True)
                    shutil.copy(ROOT / source, place)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(build, cwd=tmp_path / "source", check=True, capture_output=True)
    assert list(tmp_path.glob("source/dist/*.whl"))


def test_container_files_use_the_users_of_the_chart() -> None:
    """A volume that belongs to another user cannot be written."""
    (workload,) = (each for each in objects(RENDERED.read_text()) if each["kind"] == "StatefulSet")
    user = dict(instructions("dist/Containerfile"))["USER"]
    assert f"'runAsUser': {user}" in str(workload)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifest_is_what_kubernetes_takes(path: Path) -> None:
    """Every object keeps the schema of its kind, from Kubernetes' own description."""
    for form in objects(path.read_text("utf-8")):
        assert not refused(form), form["kind"]


def test_schema_refuses_what_is_misspelt() -> None:
    """A check that takes anything would check nothing."""
    (form,) = (each for each in objects(RENDERED.read_text()) if each["kind"] == "DaemonSet")
    text = json.dumps(form)
    assert refused(json.loads(text.replace("readinessProbe", "readynessProbe")))
    assert refused(json.loads(text.replace('"hostNetwork": true', '"hostNetwork": "yes"')))


def test_rendered_agent_does_as_the_manifest() -> None:
    """Chart and manifest differ in names alone: what one may do, the other may."""
    rules = [
        [each["rules"] for each in objects(path.read_text()) if each["kind"] == "ClusterRole"]
        for path in MANIFESTS
    ]
    assert rules[0] == rules[1]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the renderer; the first time Go downloads Sprig."""
    built = tmp_path_factory.mktemp("render") / "render"
    command = [program("go"), "build", "-o", str(built), "."]
    done = subprocess.run(command, cwd=RENDERER, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the renderer cannot be built: {done.stderr.strip()[-200:]}")
    return built


def rendered(renderer: Path, name: str, *values: str) -> list[dict[str, object]]:
    """Return the objects of a release."""
    command = [str(renderer), str(CHART), name, "forewarn", *values]
    return objects(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_chart_renders_what_is_kept(renderer: Path) -> None:
    """`dist/helm/forewarn.yaml` is the chart with its own values, for those without helm."""
    assert rendered(renderer, "forewarn") == objects(RENDERED.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["service", "agent"])
def test_chart_renders_each_part_alone(renderer: Path, part: str) -> None:
    """Each half can be switched off, and values of one's own keep the schema."""
    own = (f"{part}.enabled=false", "service.storage.className=fast", "image.tag='1'")
    forms = rendered(renderer, "mine", *own)
    kinds = {str(form["kind"]) for form in forms}
    assert ("StatefulSet" in kinds, "DaemonSet" in kinds) == (part == "agent", part == "service")
    assert not any(refused(form) for form in forms)


def controller(renderer: Path, *values: str) -> list[dict[str, object]]:
    """Return the objects of the controller."""
    forms = rendered(renderer, "forewarn", "controller.enabled=true", *values)
    names = {"forewarn-controller", "forewarn-tenant-view", "forewarn-tenant-edit"}
    return [form for form in forms if form["metadata"]["name"] in names]  # type: ignore[index]


@pytest.mark.slow
def test_chart_renders_the_controller(renderer: Path) -> None:
    """Each of its two programs can be switched off, with its rights and secrets."""
    both, nodes = controller(renderer), controller(renderer, "controller.resources.enabled=false")
    assert not any(refused(form) for form in (*both, *nodes))
    programs = [
        [each["args"][1] for each in form["spec"]["template"]["spec"]["containers"]]  # type: ignore[index]
        for forms in (both, nodes)
        for form in forms
        if form["kind"] == "Deployment"
    ]
    assert programs == [["answer-resources", "mark-nodes"], ["mark-nodes"]]
    assert "forewarn.io" not in str([form for form in nodes if form["kind"] == "ClusterRole"])


@pytest.mark.slow
def test_chart_gives_the_controller_the_rights_of_the_manifests(renderer: Path) -> None:
    """Tests of the manifests hold for the chart as well."""
    kinds = ("ClusterRole", "Role")
    rules = {
        str(form["metadata"]["name"]): form["rules"]  # type: ignore[index]
        for form in objects((ROOT / "dist/forewarn-resources.yaml").read_text("utf-8"))
        if form["kind"] in kinds
    }
    for part in ("nodes", "resources"):
        for form in controller(renderer, f"controller.{part}.enabled=false"):
            name = str(form["metadata"]["name"])  # type: ignore[index]
            if form["kind"] not in kinds:
                continue
            if part == "nodes":
                kept = "forewarn-resources" if name == "forewarn-controller" else name
                assert form["rules"] == rules[kept]
            else:
                given = rights_in(ROOT / "dist/forewarn-driver-rbac.yaml", "forewarn-driver")
                assert rights_of(form) <= given


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        (),
        ("agent.nodeEvents=true",),
        ("controller.enabled=true",),
        ("controller.enabled=true", "controller.nodes.enabled=false"),
        ("controller.enabled=true", "controller.resources.enabled=false"),
    ],
    ids=lambda values: ",".join(values) or "own",
)
def test_helm_renders_the_same(renderer: Path, values: tuple[str, ...]) -> None:
    """What these tests render is what users install."""
    sets = [word for each in values for word in ("--set", each)]
    command = [program("helm"), "template", "forewarn", str(CHART), "--namespace", "forewarn"]
    done = subprocess.run([*command, *sets], check=True, capture_output=True, text=True)
    assert in_order(objects(done.stdout)) == in_order(rendered(renderer, "forewarn", *values))


def in_order(forms: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return objects by kind and name; Helm has an order of its own."""
    return sorted(forms, key=lambda form: (form["kind"], form["metadata"]["name"]))  # type: ignore[index]


@pytest.mark.slow
def test_chart_serves_node_events_where_they_are_wanted(renderer: Path) -> None:
    """A second container and the right to watch nodes, and nothing else. Source: K-5."""
    plain = rendered(renderer, "forewarn")
    wanted = rendered(renderer, "forewarn", "agent.nodeEvents=true")
    assert not any(refused(form) for form in wanted)
    given, before = (
        {right for form in forms if form["kind"] == "ClusterRole" for right in rights_of(form)}
        for forms in (wanted, plain)
    )
    assert given - before == {("", "", "nodes", "watch")}
    (words,) = (
        form["spec"]["template"]["spec"]["containers"][1]["command"]  # type: ignore[index]
        for form in wanted
        if form["kind"] == "DaemonSet"
    )
    assert words[2:4] == ["forewarn.agent", "node-events"]


def test_chart_has_the_definitions_of_the_manifest() -> None:
    """Helm installs them before everything else."""
    manifest = objects((ROOT / "dist/forewarn-resources.yaml").read_text("utf-8"))
    kinds = [form for form in manifest if form["kind"] == "CustomResourceDefinition"]
    assert objects((CHART / "crds/resources.yaml").read_text("utf-8")) == kinds


@pytest.mark.slow
def test_controller_starts_with_the_words_of_the_chart(renderer: Path, tmp_path: Path) -> None:
    """The commands know every option and setting; without a cluster, they say that it is away."""
    forms = controller(renderer, "controller.server=http://127.0.0.1:1")
    (settings,) = (form["data"]["forewarn.toml"] for form in forms if form["kind"] == "ConfigMap")  # type: ignore[index]
    (tmp_path / "forewarn.toml").write_text(f'{settings}server = "http://127.0.0.1:1"\n')
    (tmp_path / "token").write_text("right")
    (deployment,) = (form for form in forms if form["kind"] == "Deployment")
    for container in deployment["spec"]["template"]["spec"]["containers"]:  # type: ignore[index]
        words = [
            re.sub(r"=/etc/forewarn/(controller|viewer|namespaces)", f"={tmp_path}", word)
            for word in container["args"]
            if word != "--follow"
        ]
        command = [str(Path(sys.executable).with_name("forewarn")), *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == UNREACHABLE, done.stderr
