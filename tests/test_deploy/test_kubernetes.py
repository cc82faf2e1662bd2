"""The manifests against each other, the program and Prefect's own checks.

What an API server would say of them no test here asks; `kubernetes_validate`, where it is
installed, holds them against the published schemas.
"""

import json
import shutil
import subprocess
from importlib.metadata import entry_points

import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.server.schemas.actions import WorkPoolCreate
from prefect.utilities.templating import apply_values

from conf.schema import RuntimeConfig
from conf.service import QUIET
from flows.cli import app
from tests.test_deploy.manifests import (
    FOLDER,
    HOME,
    Manifest,
    containers,
    kind,
    kustomization,
    manifests,
    name_of,
    pods,
)

OVERLAYS = ("base", "dask", "bucket")
TEMPLATE = json.loads((FOLDER / "base" / "base-job-template.json").read_text())
WORKERS_OWN = {  # what the worker fills in for each flow run
    "name": "heal-x",
    "command": ["prefect", "flow-run", "execute"],
    "env": [],
    "labels": {},
    "annotations": {},
}


def flow_run() -> Manifest:
    """The Job of a flow run, as Prefect fills the template with its defaults."""
    properties = TEMPLATE["variables"]["properties"]
    defaults = {n: p["default"] for n, p in properties.items() if "default" in p}
    job: Manifest = apply_values(
        TEMPLATE["job_configuration"]["job_manifest"], {**defaults, **WORKERS_OWN}
    )
    return job


EVERY_POD = pods([flow_run()])
every_pod = pytest.mark.parametrize("pod", EVERY_POD.values(), ids=list(EVERY_POD))


def test_every_object_says_what_it_is() -> None:
    found = manifests()
    assert len(found) > 10
    for one in found:
        assert one["apiVersion"]
        assert name_of(one)
    kinds = [(one["kind"], name_of(one)) for one in found]
    assert len(set(kinds)) == len(kinds)


def test_deployments_select_their_own_pods_and_services_reach_a_port_of_one() -> None:
    labels = {}
    for one in kind("Deployment"):
        own = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"] == own
        labels[name_of(one)] = own
    assert len({str(own) for own in labels.values()}) == len(labels)
    for service in kind("Service"):
        chosen = [n for n, own in labels.items() if own == service["spec"]["selector"]]
        assert chosen == [name_of(service)]
        (container,) = EVERY_POD[chosen[0]]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


@every_pod
def test_what_is_mounted_is_there(pod: Manifest) -> None:
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounted = {m["name"] for c in containers(pod) for m in c["volumeMounts"]}
    assert mounted == set(volumes)
    claims = {name_of(claim) for claim in kind("PersistentVolumeClaim")}
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in claims
        if "configMap" in volume:
            assert volume["configMap"]["name"] in generated()


def generated() -> dict[str, list[str]]:
    return {m["name"]: m["files"] for m in kustomization("base")["configMapGenerator"]}


@every_pod
def test_settings_are_there_and_secrets_are_only_named(pod: Manifest) -> None:
    for container in containers(pod):
        for source in container["envFrom"]:
            if "secretRef" in source:
                assert source["secretRef"]["optional"] is True
            else:
                assert source == {"configMapRef": {"name": "heal"}}
    assert kind("Secret") == []


@every_pod
def test_nothing_runs_as_root_or_without_a_limit(pod: Manifest) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec.get("serviceAccountName") or not spec["automountServiceAccountToken"]
    for container in containers(pod):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


@every_pod
def test_every_command_is_one_that_the_image_has(pod: Manifest) -> None:
    scripts = {point.name for point in entry_points(group="console_scripts")}
    callbacks = [one.callback for one in app.registered_commands if one.callback]
    commands = {callback.__name__ for callback in callbacks}
    for container in containers(pod):
        words = container["args"]
        assert all(isinstance(word, str) for word in words)
        assert words[0] in scripts
        if words[0] == "heal":
            assert words[1] in commands


def test_what_computes_has_a_card_and_what_does_not_has_none() -> None:
    cards = {
        name: pod["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
        for name, pod in EVERY_POD.items()
    }
    assert {name for name, count in cards.items() if count} == {
        "heal-x-",
        "heal-once-",
        "heal-dask-worker",
    }


def test_settings_are_those_of_the_services_and_the_home_is_where_it_is_mounted() -> None:
    (config,) = kind("ConfigMap")
    assert QUIET.items() <= config["data"].items()
    home = config["data"]["HEAL_HOME"]
    assert config["data"]["HEAL_STORE"].startswith(f"{home}/")
    mounts = [
        mount["mountPath"]
        for pod in EVERY_POD.values()
        for container in containers(pod)
        for mount in container["volumeMounts"]
        if mount["name"] == "home"
    ]
    assert set(mounts) == {home}
    server = config["data"]["PREFECT_API_URL"]
    (api,) = [one for one in kind("Service") if name_of(one) == "heal-server"]
    assert server == f"http://{name_of(api)}:{api['spec']['ports'][0]['port']}/api"


def test_those_who_may_reach_the_server_carry_the_label_that_lets_them() -> None:
    (policy,) = kind("NetworkPolicy")
    (rule,) = policy["spec"]["ingress"]
    allowed = rule["from"][0]["podSelector"]["matchLabels"]
    assert flow_run()["spec"]["template"]["metadata"]["labels"] == allowed
    for name in ("base", "dask"):  # the overlay for a bucket adds no pod
        (label,) = kustomization(name)["labels"]
        assert label == {"pairs": allowed, "includeTemplates": True}
    # Prefect's worker labels what it makes after the template did.
    assert not any("kubernetes.io" in key for key in allowed)


def test_dask_is_where_the_kustomization_says() -> None:
    text = (FOLDER / "dask" / "kustomization.yaml").read_text()
    settings = yaml.safe_load(text.splitlines()[0].partition("`runtime: ")[2].rstrip("`."))
    runtime = RuntimeConfig.model_validate(settings)
    (service,) = [one for one in kind("Service") if name_of(one) == "heal-dask"]
    port = service["spec"]["ports"][0]["port"]
    assert (runtime.runner, runtime.cluster) == ("dask", f"tcp://heal-dask:{port}")
    (worker,) = EVERY_POD["heal-dask-worker"]["spec"]["containers"]
    assert runtime.cluster in worker["args"]


def test_kustomizations_name_files_that_are_there() -> None:
    for overlay in OVERLAYS:
        for resource in kustomization(overlay)["resources"]:
            assert (FOLDER / overlay / resource).exists()
    for files in generated().values():
        assert all((FOLDER / "base" / file).is_file() for file in files)
    base = {path.name for path in (FOLDER / "base").glob("*.yaml")}
    listed = {*kustomization("base")["resources"], "kustomization.yaml", "prefect.yaml"}
    assert base == listed


def test_a_pool_takes_the_job_template_and_its_variables_are_all_used() -> None:
    pool = WorkPoolCreate(name="heal", type="kubernetes", base_job_template=TEMPLATE)
    assert pool.base_job_template == TEMPLATE
    text = json.dumps(TEMPLATE["job_configuration"])
    for name in TEMPLATE["variables"]["properties"]:
        assert f"{{{{ {name} }}}}" in text
    job = flow_run()
    assert (job["kind"], job["metadata"]["generateName"]) == ("Job", "heal-x-")
    assert "{{" not in json.dumps(job)


def test_the_deployments_are_the_repositorys_own_on_another_pool() -> None:
    raw = yaml.safe_load((FOLDER / "base" / "prefect.yaml").read_text())
    shipped = yaml.safe_load((HOME / "prefect.yaml").read_text())
    assert raw["pull"] == shipped["pull"]
    by_name = {one["name"]: one for one in shipped["deployments"]}
    for one in PrefectYamlModel.model_validate(raw).deployments:
        assert one.work_pool is not None
        assert one.work_pool.name == "heal"
        assert one.work_pool.job_variables == {"image": "{{ $HEAL_IMAGE }}"}
    for one in raw["deployments"]:
        pool = {"work_pool": {"name": "heal"}}
        assert {**one, **pool} == {**by_name[one["name"]], **pool}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubectl_builds_what_will_be_applied(overlay: str) -> None:
    command = ["kubectl", "kustomize", str(FOLDER / overlay)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    built = {(one["kind"], name_of(one)): one for one in yaml.safe_load_all(said)}
    deploy = built["Job", "heal-deploy"]["spec"]["template"]["spec"]
    worker = built["Deployment", "heal-worker"]["spec"]["template"]["spec"]
    (image,) = [one["value"] for one in deploy["containers"][0]["env"]]
    assert image == worker["containers"][0]["image"] == "mtp-heal:0.1.0"
    config = deploy["volumes"][0]["configMap"]["name"]
    assert ("ConfigMap", config) in built
    store = built["ConfigMap", "heal"]["data"]["HEAL_STORE"]
    assert store.startswith("s3://") == (overlay == "bucket")
    assert (("Service", "heal-dask") in built) == (overlay == "dask")
    for one in built.values():
        assert one["metadata"].get("namespace", "heal") == "heal"


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_the_published_schemas_take_every_object(version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    for one in manifests():
        schemas.validate(one, version, strict=True)
    job = flow_run()
    for field in ("parallelism", "completions"):  # Prefect asks for them in the pod, too
        del job["spec"]["template"]["spec"][field]
    schemas.validate(job, version, strict=True)
