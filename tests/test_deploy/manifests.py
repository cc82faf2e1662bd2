"""The manifests of deploy/kubernetes as Python, and what holds pods."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HOME = Path(__file__).parents[2]
FOLDER = HOME / "deploy" / "kubernetes"
Manifest = dict[str, Any]  # as YAML has it


def manifests() -> list[Manifest]:
    """Every object of every file, kustomizations and Prefect's file apart."""
    other = {"kustomization.yaml", "prefect.yaml"}
    files = sorted(path for path in FOLDER.rglob("*.yaml") if path.name not in other)
    return [one for path in files for one in yaml.safe_load_all(path.read_text())]


def kind(wanted: str) -> list[Manifest]:
    """All objects of a kind."""
    return [one for one in manifests() if one["kind"] == wanted]


def name_of(manifest: Manifest) -> str:
    """Its name, or what that begins with."""
    metadata = manifest["metadata"]
    return str(metadata.get("name") or metadata["generateName"])


def pods(extra: list[Manifest]) -> dict[str, Manifest]:
    """Pod templates by the name of what makes them; `extra` are more makers of pods."""
    makers = [*kind("Deployment"), *kind("Job"), *extra]
    return {name_of(one): one["spec"]["template"] for one in makers}


def containers(pod: Manifest) -> Iterator[Manifest]:
    """A pod's containers, those that run before the others first."""
    yield from pod["spec"].get("initContainers", [])
    yield from pod["spec"]["containers"]


def kustomization(name: str) -> Manifest:
    """The kustomization of a folder."""
    found: Manifest = yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text())
    return found
