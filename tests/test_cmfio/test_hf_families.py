"""Every family of checkpoints, made by transformers: in, out, and loaded there again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from cmfio.config_json import Config
from cmfio.errors import CmfError, UnsupportedFeature
from cmfio.hf_config import arch_from_config
from cmfio.hf_export import export_hf
from cmfio.hf_import import import_hf
from cmfio.reader import open_container
from tests.tiny_checkpoints import GLM, MOE, SHARED, TINY, VOCAB, Wishes, make_checkpoint

torch.set_num_threads(1)
PLAIN = Wishes(shards=1, is_composite=False)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        found |= load_file(path)
    return found


def logits(folder: Path, family: str) -> torch.Tensor:
    """What transformers itself computes; MiMo's class is one it doesn't know."""
    by_name = transformers.AutoModelForCausalLM
    loader: Any = transformers.Qwen2ForCausalLM if family == "mimo" else by_name
    model, report = loader.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"]
    ids = torch.arange(20)[None] * 7 % VOCAB
    with torch.no_grad():
        found: torch.Tensor = model(ids).logits
    return found


def there_and_back(folder: Path, root: Path) -> Path:
    import_hf(folder, root / "m.cmf")
    with open_container(root / "m.cmf") as model:
        export_hf(model, root / "back")
    return root / "back"


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


@pytest.mark.parametrize("family", TINY)
def test_a_family_comes_out_byte_for_byte_and_computes_the_same(
    family: str, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "hf", family)
    back = there_and_back(folder, tmp_path)
    given = {
        name.replace("model.language_model.", "model."): tensor
        for name, tensor in tensors_of(folder).items()
        if ".visual." not in name
    }
    found = tensors_of(back)
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name
    assert torch.equal(logits(back, family), logits(folder, family))


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_next", "qwen3_5_moe"])
def test_stacked_experts_stay_stacked(family: str, tmp_path: Path) -> None:
    wishes = Wishes(shards=1, is_composite=False, is_fused=True)
    folder = make_checkpoint(tmp_path / "hf", family, wishes)
    back = there_and_back(folder, tmp_path)
    assert tensors_of(back).keys() == tensors_of(folder).keys()
    name = "model.layers.0.mlp.experts.gate_up_proj"
    assert torch.equal(tensors_of(back)[name], tensors_of(folder)[name])
    assert torch.equal(logits(back, family), logits(folder, family))


YARN = {
    "rope_type": "yarn",
    "rope_theta": 5e5,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *((family, {}) for family in TINY if family != "mimo"),
        ("llama", {"rope_parameters": YARN, "head_dim": 8, "rms_norm_eps": 1e-5}),
        ("qwen3", {"rope_parameters": YARN | {"beta_fast": 8.0, "mscale": 0.7}}),
        ("qwen3_5", {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}),
        (
            "qwen3",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        ),
        ("mistral", {"sliding_window": None}),
        ("llama", {"hidden_act": "gelu_pytorch_tanh"}),
        ("qwen3_moe", {"mlp_only_layers": [0], "norm_topk_prob": True}),
        ("qwen3_next", {"layer_types": ["full_attention", "linear_attention"]}),
        ("glm4_moe", {"use_qk_norm": False, "attention_bias": False}),
        ("glm4_moe", {"routed_scaling_factor": 2.5, "n_shared_experts": 2}),
    ],
)
def test_transformers_reads_the_same_settings_back(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    wishes = Wishes(shards=1, is_composite=False, mtp_layers=0, settings=settings)
    folder = make_checkpoint(tmp_path / "hf", family, wishes)
    back = there_and_back(folder, tmp_path)
    theirs = transformers.AutoConfig.from_pretrained(folder)
    ours = transformers.AutoConfig.from_pretrained(back)
    assert type(ours) is type(theirs)
    told = json.loads((back / "config.json").read_text("utf-8"))
    for key in told.keys() - {"architectures", "rope_theta", "rope_parameters"}:
        if hasattr(theirs, key):
            assert getattr(ours, key) == getattr(theirs, key), key
    rope, expected = dict(ours.rope_parameters), dict(theirs.rope_parameters)
    assert rope.items() >= {k: v for k, v in expected.items() if k != "mscale"}.items()
    assert torch.equal(logits(back, family), logits(folder, family))


def test_the_header_says_what_the_config_did(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5_moe")
    import_hf(folder, tmp_path / "m.cmf")
    with open_container(tmp_path / "m.cmf") as model:
        arch = model.header.arch
        special = model.header.tokenizer_config
    assert (arch.arch_name, arch.norm_style) == ("qwen3_5_moe", "gemma")
    assert arch.layer_types == ("LinearAttention", "FullAttention")
    assert (arch.partial_rotary_factor, arch.num_layers, arch.vocab_size) == (0.25, 2, 300)
    assert (arch.linear_num_key_heads, arch.linear_num_value_heads) == (2, 4)
    assert (arch.linear_key_head_dim, arch.linear_value_head_dim) == (8, 8)
    assert arch.moe is not None
    assert (arch.moe.num_experts, arch.moe.top_k, arch.moe.moe_intermediate_size) == (
        4,
        2,
        16,
    )
    assert arch.moe.norm_topk_prob
    assert arch.moe.shared_expert_intermediate_size == 16
    assert arch.mtp is not None
    assert special is not None
    assert special.eos_token_ids == (299,)


@pytest.mark.parametrize(
    ("family", "changes", "text"),
    [
        ("llama", {"attention_bias": True}, "attention_bias is True"),
        ("llama", {"mlp_bias": True}, "mlp_bias is True"),
        ("llama", {"partial_rotary_factor": 0.5}, "LlamaForCausalLM ignores it"),
        ("llama", {"layer_types": ["sliding_attention"] * 2}, "'sliding_attention'"),
        ("qwen3", {"layer_types": ["full_attention"]}, "1 entries for 2 layers"),
        ("qwen3", {"layer_types": ["linear_attention"] * 2}, "'linear_attention' has no"),
        ("qwen3", {"layer_types": ["chunked_attention"] * 2}, "'chunked_attention' isn't"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "layer 1 has no experts, the tensors say"),
        ("qwen3_moe", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("glm4_moe", {"first_k_dense_replace": 2}, "layer 1 has no experts"),
        ("glm4_moe", {"first_k_dense_replace": 0}, "layer 0 has experts"),
        (
            "glm4_moe",
            {"use_qk_norm": False},
            "use_qk_norm is False, and the",
        ),
        ("glm4_moe", {"n_group": 2}, "n_group is 2"),
        ("ernie4_5", {"use_bias": True}, "use_bias is True"),
        ("qwen3_5", {"quantization_config": {"quant_method": "fp8"}}, r"quantised \(fp8\)"),
        (
            "qwen3",
            {"model_type": "ernie4_5_moe"},
            "'ernie4_5_moe' can't be read",
        ),
        (
            "llama",
            {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}},
            "rope_parameters differ by layer type",
        ),
        (
            "llama",
            {"rope_parameters": YARN | {"truncate": False}},
            "yarn with truncate False",
        ),
    ],
)
def test_what_a_header_cant_say_is_refused_by_name(
    family: str, changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "hf", family, PLAIN)
    edit(folder, **changes)
    with pytest.raises(CmfError, match=text):
        import_hf(folder, tmp_path / "m.cmf")


@pytest.mark.parametrize(
    ("family", "changes", "text"),
    [
        ("glm4_moe", {"no_rope_layers": [0]}, "arch.no_rope_layers"),
        ("llama", {"norm_style": "gemma"}, "arch.norm_style"),
        ("llama", {"intermediate_size": 48}, "widths by layer|can't give each layer"),
        ("qwen3_moe", {"sliding_window": 8}, "arch.sliding_window"),
    ],
)
def test_what_a_config_cant_say_isnt_exported(
    family: str, changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    from cmfio.rewrite import rewrite

    import_hf(make_checkpoint(tmp_path / "hf", family, PLAIN), tmp_path / "m.cmf")
    with open_container(tmp_path / "m.cmf") as model:
        rewrite(
            model, tmp_path / "odd.cmf", {}, header=model.header.replace_arch(**changes)
        )
    with (
        open_container(tmp_path / "odd.cmf") as odd,
        pytest.raises(UnsupportedFeature, match=text),
    ):
        export_hf(odd, tmp_path / "out")


@pytest.mark.parametrize(
    "family",
    ["llama", "mistral", "qwen3_next", "qwen3_5", "qwen3_5_moe", "glm4_moe", "ernie4_5"],
)
def test_a_silent_config_means_what_transformers_takes_it_to_mean(family: str) -> None:
    tiny = TINY[family]
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    said: dict[str, Any] = {key: 64 if key == "hidden_size" else 4 for key in sizes}
    said |= {"model_type": tiny.model_type, "max_position_embeddings": 64}
    said |= {"intermediate_size": 8, "num_key_value_heads": 2}
    wanted = (*MOE, *SHARED, *GLM)
    said |= {key: 4 for key in wanted if key in tiny.settings and "use" not in key}
    for key in ("first_k_dense_replace", "attention_bias", "layer_types"):
        said.pop(key, None)
    theirs = transformers.AutoConfig.for_model(**said)
    arch = arch_from_config(Config(Path("config.json"), said))
    rope = theirs.rope_parameters
    assert arch.rope_theta == rope["rope_theta"]
    assert arch.partial_rotary_factor == rope.get("partial_rotary_factor", 1.0)
    assert arch.rms_norm_eps == theirs.rms_norm_eps
    assert arch.tie_word_embeddings == theirs.tie_word_embeddings
    assert arch.sliding_window == getattr(theirs, "sliding_window", None)
    if "layer_types" in theirs.to_dict():
        kinds = [
            kind.lower().replace("attention", "_attention") for kind in arch.layer_types
        ]
        assert kinds == theirs.layer_types
    for key in ("linear_key_head_dim", "linear_num_value_heads", "linear_conv_kernel_dim"):
        assert getattr(arch, key) == getattr(theirs, key, None), key
    if arch.moe is not None:
        assert arch.moe.norm_topk_prob == getattr(theirs, "norm_topk_prob", True)
