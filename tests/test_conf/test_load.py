from pathlib import Path

import pytest
from pydantic import BaseModel

from conf.demo import DemoConfig
from conf.errors import ConfigError
from conf.load import find_config, load_config
from conf.schema import Cost, DataSpec, RunConfig, TapsConfig, WriteConfig, WriteSpec

MINIMAL = "student: model.cmf\ndata: [text.jsonl@5000]\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def message(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(RunConfig, written(tmp_path, text), overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", ["demo", "smollm2"])
def test_shipped_demonstrations_validate(name: str) -> None:
    assert load_config(DemoConfig, name).heal.pack.window in (128, 256)


def test_the_references_settings_validate() -> None:
    config = load_config(RunConfig, "conf/qwen14b.yaml")
    assert (config.train.lr, config.pack.split, config.train.depth) == (2e-5, "windows", 3)


def test_defaults_are_those_of_healing_md(tmp_path: Path) -> None:
    config = load_config(RunConfig, written(tmp_path, MINIMAL))
    pack, train, measure = config.pack, config.train, config.measure
    assert (pack.window, config.trunk.topk) == (2048, 64)
    assert (pack.split, pack.isolate, pack.hold_all) == ("records", False, False)
    assert (train.layout, train.depth, measure.depth) == ("exact", 3, 3)
    assert (train.loss, train.hard, train.step_weights) == ("tail_kl", 0.25, "reach")
    assert (train.trainable, train.through_chain) == ("auto", False)
    assert (train.lr, train.batch, train.refresh) == (2e-5, 2, 150)
    assert (train.eval_every, train.patience, train.select_by) == (25, 6, "walk")
    assert DataSpec(path="a").tokens == 393_216


@pytest.mark.parametrize(("name", "command"), [("nightly", "reheal"), ("demo", "demo")])
def test_the_configuration_of_another_command_names_it(name: str, command: str) -> None:
    with pytest.raises(ConfigError, match=f"is for `heal {command}"):
        load_config(RunConfig, name)


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_seeds_are_whole_numbers_that_a_generator_takes(tmp_path: Path, seed: int) -> None:
    said = message(tmp_path, MINIMAL, f"train.seed={seed}")
    assert "train.seed must be" in said


@pytest.mark.parametrize(
    ("text", "where"),
    [("a: [b", "line 1, column 6"), ("a: 1\n\tb: 2", "line 2, column 1")],
)
def test_a_fault_of_yaml_is_one_line_with_its_place(
    tmp_path: Path, text: str, where: str
) -> None:
    said = message(tmp_path, text)
    assert "\n" not in said
    assert said.endswith(where)


def test_overrides_reach_nested_settings(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL)
    config = load_config(RunConfig, path, ["train.lr=1e-5", "pack.window=64"])
    assert (config.train.lr, config.pack.window) == (1e-5, 64)


def test_a_typo_names_the_nearest_setting(tmp_path: Path) -> None:
    said = message(tmp_path, MINIMAL + "train: {learning_rat: 1.0}\n")
    assert "train.learning_rat is no setting" in said
    said = message(tmp_path, MINIMAL + "train: {epoch: 1}\n")
    assert "did you mean epochs?" in said


def test_a_typo_in_an_override_is_found(tmp_path: Path) -> None:
    assert "did you mean depth?" in message(tmp_path, MINIMAL, "train.dept=2")


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    assert "student is missing" in message(tmp_path, "data: [a.jsonl]\n")


def test_an_override_without_a_value_says_how_to_write_it(tmp_path: Path) -> None:
    assert "key.key=value" in message(tmp_path, MINIMAL, "train.lr")


def test_an_override_into_a_value_is_refused(tmp_path: Path) -> None:
    assert "holds no settings" in message(tmp_path, MINIMAL, "student.path=x")


def test_two_origins_of_a_draft_are_refused(tmp_path: Path) -> None:
    said = message(tmp_path, MINIMAL + "init: b.cmf\nstart_from_last_layer: true\n")
    assert "set one of them" in said


def test_a_fresh_draft_trained_by_its_block_only_is_refused(tmp_path: Path) -> None:
    text = MINIMAL + "start_from_last_layer: true\ntrain: {trainable: block}\n"
    assert "must be trained whole" in message(tmp_path, text)


def test_an_unknown_name_lists_the_shipped_ones_and_what_is_for_which_command() -> None:
    with pytest.raises(ConfigError) as caught:
        find_config("qwen41b")
    assert str(caught.value).endswith(
        "shipped ones are demo (heal demo --model), nightly (heal reheal), own_text, "
        "qwen14b, smollm2 (heal demo --model)"
    )


def test_what_lies_here_comes_before_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("nightly") == find_config("conf/nightly.yaml")
    assert find_config("nightly").is_absolute()
    Path("nightly.yaml").write_text("{}")
    assert find_config("nightly") == Path("nightly.yaml")
    Path("deeper").mkdir()
    Path("deeper/mine.yaml").write_text("{}")
    assert find_config("deeper/mine") == Path("deeper/mine.yaml")


def test_yaml_that_is_none_says_so(tmp_path: Path) -> None:
    assert "is not YAML" in message(tmp_path, "a: [b")
    assert "settings are `key: value` lines" in message(tmp_path, "- a\n")


def test_a_model_in_place_of_a_configuration_is_told_where_it_belongs(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.cmf").write_bytes(b"CMF\x01\xff\xfe")
    with pytest.raises(ConfigError, match=r"is not text; .*`student:` names the model"):
        load_config(RunConfig, tmp_path / "model.cmf")
    with pytest.raises(ConfigError, match=r"is a folder; .*`student:` names the model"):
        load_config(RunConfig, tmp_path)


def test_specs_may_be_text_or_mappings(tmp_path: Path) -> None:
    config = load_config(
        RunConfig, written(tmp_path, "student: m.cmf\ndata: [a@5, {path: b, name: c}]\n")
    )
    assert config.data == ("a@5", DataSpec(path="b", name="c"))


def test_a_set_may_be_text_the_trunk_writes(tmp_path: Path) -> None:
    text = "student: m.cmf\ndata: [{write: {prompts: a@5, tokens: 100}, name: own}]\n"
    (spec,) = load_config(RunConfig, written(tmp_path, text)).data
    assert isinstance(spec, WriteSpec)
    assert (spec.name, spec.write.prompts, spec.write.tokens) == ("own", "a@5", 100)
    said = message(tmp_path, "student: m.cmf\ndata: [{write: {promts: a}}]\n")
    assert "write.promts is no setting; did you mean prompts?" in said
    assert "DataSpec" not in said


def test_costs_are_given_or_timed(tmp_path: Path) -> None:
    def cost(*overrides: str) -> object:
        return load_config(RunConfig, written(tmp_path, MINIMAL), overrides).measure.cost

    assert cost() == Cost(verify=1.0, draft=0.06)
    assert cost("measure.cost=timed") == "timed"
    assert cost("measure.cost.verify=1.5") == Cost(verify=1.5, draft=0.06)
    assert "'timed'" in message(tmp_path, MINIMAL, "measure.cost=timd")
    said = message(tmp_path, MINIMAL, "measure.cost.verfy=1")
    assert "verfy is no setting; did you mean verify?" in said


def fields_of(model: type[BaseModel], prefix: str = "") -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= fields_of(inner, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_every_setting_is_listed_here() -> None:
    """A new setting is added here by whoever says which decision it lets a user take."""
    runtime = {
        *("device", "threads", "head_budget_mib", "placement", "store"),
        *("runner", "workers", "cluster", "gpu_limit", "cards", "locks", "scratch"),
    }
    train = {
        *("depth", "trainable", "lr", "epochs", "steps", "batch", "eval_every"),
        *("eval_windows", "patience", "select_by", "on_path", "anchors", "seed"),
        *("layout", "stride", "refresh", "loss", "hard", "step_weights", "through_chain"),
        "optimizer",
    }
    assert fields_of(RunConfig) == {
        *("student", "init", "start_from_last_layer", "data", "outputs", "taps"),
        *("pack.window", "pack.split", "pack.isolate", "pack.hold_all", "dump"),
        *("trunk.topk", "trunk.dtype", "trunk.compile"),
        "trunk.shard_windows",
        *(f"train.{name}" for name in train),
        *(f"runtime.{name}" for name in runtime),
        *("probe.windows", "probe.wiring"),
        *("measure.depth", "measure.temperatures"),
        "measure.cost",
    }
    page = (Path(__file__).parents[2] / "docs/conf.md").read_text()
    reasons = page.partition("## Why each is there")[2]
    written = {
        f"write.{name}" for name in (WriteConfig.model_fields | WriteSpec.model_fields)
    }
    sets = {f"data.{name}" for name in DataSpec.model_fields}
    wanted = fields_of(RunConfig) - {"taps"} | written - {"write.write"} | sets
    assert {name for name in wanted if f"`{name}`" not in reasons} == set()
    assert fields_of(Cost) == {"verify", "draft"}
    assert fields_of(TapsConfig) == {"layers"}
    assert fields_of(WriteConfig) == {
        *("prompts", "prompt_tokens", "tokens", "length", "temperature", "seed", "batch"),
    }


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ("layout: stride", "give both or neither"),
        ("layout: rows, stride: 8", "give both or neither"),
        ("layout: stride, stride: 2", "would overlap"),
        ("layout: rows, trainable: all", "set train.trainable: block"),
        ("layout: rows, anchors: 0.5", "train.anchors: only train.layout: exact"),
        ("layout: rows, step_weights: uniform", "train.step_weights: only"),
        ("step_weights: [1.0, 1.0]", "one for each of the 3 chain steps"),
        ("step_weights: [0.0, 0.0, 0.0]", "not all 0"),
        (
            "step_weights: [1.0, -1.0, 0.0]",
            "train.step_weights[1] must be at least 0 (is -1)",
        ),
    ],
)
def test_training_that_contradicts_itself_is_refused(
    tmp_path: Path, train: str, said: str
) -> None:
    assert said in message(tmp_path, MINIMAL + f"train: {{{train}}}\n")


def test_a_fresh_draft_needs_the_exact_layout(tmp_path: Path) -> None:
    text = MINIMAL + "start_from_last_layer: true\ntrain: {layout: rows}\n"
    assert "set train.layout: exact" in message(tmp_path, text)


@pytest.mark.parametrize(
    ("train", "kinds"),
    [
        ("depth: 4", 1),
        ("layout: rows, depth: 4", 4),
        ("layout: stride, stride: 8, depth: 4", 2),
        ("layout: stride, stride: 8, depth: 1", 1),
    ],
)
def test_a_layout_s_batch_makes_a_job_a_kind(
    tmp_path: Path, train: str, kinds: int
) -> None:
    text = MINIMAL + f"train: {{{train}}}\n"
    assert load_config(RunConfig, written(tmp_path, text)).train.kinds == kinds


def test_holding_out_every_window_leaves_nothing_to_train_on(tmp_path: Path) -> None:
    text = MINIMAL + "pack: {hold_all: true}\n"
    assert "train.epochs to 0" in message(tmp_path, text)
    held = load_config(RunConfig, written(tmp_path, text + "train: {epochs: 0}\n"))
    assert not held.train.trains
