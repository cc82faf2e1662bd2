"""The image's recipe against the repository it is made from. No daemon builds it here."""

import re
import tomllib
from pathlib import Path

import yaml

from tests.test_deploy.manifests import HOME, containers, kind, pods

RECIPE = HOME / "deploy" / "Dockerfile"
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its words; lines that go on are one, comments are left out."""
    lines = [line for line in RECIPE.read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.partition(" ") for line in text.splitlines() if line]
    return [(word, rest) for word, _, rest in found]


def arguments() -> dict[str, str]:
    pairs = [rest.partition("=") for word, rest in instructions() if word == "ARG"]
    return {name: value for name, _, value in pairs}


def copied() -> list[str]:
    """What is taken from the repository."""
    words = [rest.split() for word, rest in instructions() if word == "COPY"]
    return [path for one in words if "--from=build" not in one for path in one[:-1]]


def test_only_known_instructions_and_every_argument_is_used() -> None:
    known = {"ARG", "FROM", "ENV", "WORKDIR", "RUN", "COPY", "USER", "CMD"}
    assert {word for word, _ in instructions()} == known
    text = RECIPE.read_text()
    for name in arguments():
        assert re.search(rf"\$\{{?{name}\b", text)


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    ignored = RECIPE.with_suffix(".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert set(copied()) == sent
    assert all((HOME / path).exists() for path in sent)
    packages = PROJECT["tool"]["setuptools"]["packages"]
    assert {name.partition(".")[0] for name in packages} <= sent
    assert {"pyproject.toml", PROJECT["project"]["readme"]} <= sent


def test_versions_are_those_of_the_constraints() -> None:
    pinned = (HOME / "constraints.txt").read_text().splitlines()
    assert arguments()["TORCH"] in pinned
    assert arguments()["PYTHON"] in PROJECT["project"]["requires-python"]


def test_it_does_not_run_as_root_and_names_no_host() -> None:
    stages = [i for i, (word, _) in enumerate(instructions()) if word == "FROM"]
    last = instructions()[stages[-1] :]
    (user,) = [rest for word, rest in last if word == "USER"]
    users = {
        f"{pod['spec']['securityContext']['runAsUser']}:"
        f"{pod['spec']['securityContext']['runAsGroup']}"
        for pod in pods([]).values()
    }
    assert users == {user}
    assert "://" not in RECIPE.read_text()
    assert not any("ENTRYPOINT" in word for word, _ in last)


def test_what_libraries_write_goes_where_a_read_only_root_lets_them() -> None:
    (env,) = [rest for word, rest in instructions()[-6:] if word == "ENV"]
    told = dict(pair.split("=", 1) for pair in env.split())
    writing = {"HOME", *(name for name in told if name.endswith(("_CACHE_DIR", "_HOME")))}
    places = {told[name].split("/")[1] for name in writing - {"HEAL_HOME"}}
    assert places == {"tmp"}
    (config,) = kind("ConfigMap")
    assert told["HEAL_HOME"] == config["data"]["HEAL_HOME"]


def test_one_name_and_tag_everywhere() -> None:
    tags = {
        image["newTag"]
        for path in Path(HOME / "deploy").rglob("kustomization.yaml")
        for image in yaml.safe_load(path.read_text()).get("images", [])
    }
    (tag,) = tags
    said = {c["image"] for pod in pods([]).values() for c in containers(pod)}
    assert said == {"mtp-heal", f"mtp-heal:{tag}"}
    assert f"mtp-heal:{tag}" in RECIPE.read_text()
