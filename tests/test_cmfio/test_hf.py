"""Checkpoints in and out, against the safetensors library and transformers' own configs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from cmfio.errors import CmfError, UnknownCodec, UnsupportedFeature
from cmfio.hf_export import export_hf
from cmfio.hf_import import import_hf
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from cmfio.verify import verify
from cmfio.writer import Output

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 32, 4, 2, 8, 64, 40
Tensors = dict[str, NDArray[Any]]  # of the checkpoint's own dtypes
CONFIG: dict[str, Any] = {  # JSON
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mtp_num_hidden_layers": 1,
    "eos_token_id": 7,
}
MTP = {  # the checkpoint's names, and the container's
    "mtp.fc.weight": "model.mtp.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": "model.mtp.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "model.mtp.hnorm.weight",
    "mtp.norm.weight": "model.mtp.norm.weight",
}


def layer(prefix: str, make: Callable[..., NDArray[Any]]) -> Tensors:
    return {
        f"{prefix}self_attn.q_proj.weight": make(HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}self_attn.k_proj.weight": make(KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}self_attn.v_proj.weight": make(KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}self_attn.o_proj.weight": make(HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}self_attn.q_norm.weight": make(HEAD_DIM),
        f"{prefix}self_attn.k_norm.weight": make(HEAD_DIM),
        f"{prefix}mlp.gate_proj.weight": make(FFN, HIDDEN),
        f"{prefix}mlp.up_proj.weight": make(FFN, HIDDEN),
        f"{prefix}mlp.down_proj.weight": make(HIDDEN, FFN),
        f"{prefix}input_layernorm.weight": make(HIDDEN),
        f"{prefix}post_attention_layernorm.weight": make(HIDDEN),
    }


def qwen3_tensors() -> Tensors:
    noise = np.random.default_rng(2)

    def half(*shape: int) -> NDArray[Any]:
        return noise.standard_normal(shape).astype(np.float16)

    def full(*shape: int) -> NDArray[Any]:
        return noise.standard_normal(shape).astype(np.float32)

    return {
        "model.embed_tokens.weight": half(VOCAB, HIDDEN),
        "model.norm.weight": full(HIDDEN),
        **layer("model.layers.0.", half),
        **layer("model.layers.1.", full),
        **layer("mtp.layers.0.", half),
        "mtp.fc.weight": half(HIDDEN, 2 * HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": full(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": full(HIDDEN),
        "mtp.norm.weight": full(HIDDEN),
    }


def checkpoint(
    folder: Path, tensors: Tensors, config: dict[str, Any] | None = None
) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | (config or {})), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def sharded(folder: Path, tensors: Tensors) -> Path:
    checkpoint(folder, {})
    (folder / "model.safetensors").unlink()
    places: dict[str, str] = {}
    for number in (1, 2):
        own = dict(sorted(tensors.items())[number - 1 :: 2])
        name = f"model-{number:05}-of-00002.safetensors"
        save_file(own, folder / name)
        places |= dict.fromkeys(own, name)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return folder


def canonical(name: str) -> str:
    return MTP.get(name, name.replace("mtp.layers.", "model.mtp.layers."))


@pytest.mark.parametrize("make", [checkpoint, sharded])
def test_every_tensor_comes_in_with_its_dtype_and_bytes(
    make: Callable[[Path, Tensors], Path], tmp_path: Path
) -> None:
    tensors = qwen3_tensors()
    import_hf(make(tmp_path / "hf", tensors), tmp_path / "out.cmf")
    with open_container(tmp_path / "out.cmf") as model:
        assert verify(model) == []
        assert set(model.entries) == {canonical(name) for name in tensors}
        for name, values in tensors.items():
            entry = model.entries[canonical(name)]
            assert entry.dtype == {"float16": "f16", "float32": "f32"}[str(values.dtype)]
            assert entry.shape == values.shape
            assert bytes(model.payload(entry.name)) == values.tobytes()
        assert model.header.arch.mtp is not None
        assert model.header.quant_type == "F16"  # most of the bytes


@pytest.mark.parametrize("most", [None, 20_000])
def test_what_was_imported_comes_out_the_same(most: int | None, tmp_path: Path) -> None:
    tensors = qwen3_tensors()
    import_hf(checkpoint(tmp_path / "hf", tensors), tmp_path / "out.cmf")
    with open_container(tmp_path / "out.cmf") as model:
        paths = export_hf(model, tmp_path / "back", output=Output(shard_max_bytes=most))
    files = [path for path in paths if path.suffix == ".safetensors"]
    assert (len(files) == 1) == (most is None)
    found: Tensors = {}
    for path in files:
        found |= load_file(path)
    assert found.keys() == tensors.keys()
    for name, values in tensors.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
    import_hf(tmp_path / "back", tmp_path / "again.cmf")
    with open_container(tmp_path / "again.cmf") as again:
        assert again.header.arch.mtp is not None


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_transformers_reads_and_writes_the_same_config(family: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    config = CONFIG | {"model_type": family, "mtp_num_hidden_layers": 0}
    theirs = AutoConfig.for_model(**{**config, "rope_parameters": {
        "rope_type": "default", "rope_theta": 5e5}})  # fmt: skip
    tensors = {n: v for n, v in qwen3_tensors().items() if "mtp" not in n}
    if family == "llama":
        tensors = {n: v for n, v in tensors.items() if "_norm.weight" not in n}
    checkpoint(tmp_path / "hf", tensors)
    theirs.save_pretrained(tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "out.cmf")
    with open_container(tmp_path / "out.cmf") as model:
        arch = model.header.arch
        assert (arch.rope_theta, arch.num_kv_heads, arch.num_layers) == (5e5, KV_HEADS, 2)
        export_hf(model, tmp_path / "back")
    back = AutoConfig.from_pretrained(tmp_path / "back").to_dict()
    expected = theirs.to_dict()
    told = json.loads((tmp_path / "back" / "config.json").read_text("utf-8"))
    assert type(AutoConfig.from_pretrained(tmp_path / "back")) is type(theirs)
    for key in (*told, "layer_types"):
        if key in expected and key not in {"architectures", "rope_theta"}:
            assert back[key] == expected[key], key


def test_stored_codecs_are_decoded_into_the_dtype_asked_for(tmp_path: Path) -> None:
    import_hf(checkpoint(tmp_path / "hf", qwen3_tensors()), tmp_path / "in.cmf")
    name = "model.layers.0.mlp.up_proj.weight"
    with open_container(tmp_path / "in.cmf") as model:
        rewrite(model, tmp_path / "q.cmf", {name: model.tensor(name)}, codec="q4_tiled")
    with open_container(tmp_path / "q.cmf") as model:
        export_hf(model, tmp_path / "back", "f32")
        expected = model.tensor(name)
        with pytest.raises(UnknownCodec, match="there are f32, f16, bf16"):
            export_hf(model, tmp_path / "other", "q8_row")
    np.testing.assert_array_equal(
        load_file(tmp_path / "back" / "model.safetensors")[name], expected
    )


def test_tokenizer_template_and_special_ids_are_taken_along(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "hf", qwen3_tensors(), {"bos_token_id": 1})
    (folder / "tokenizer.json").write_bytes(b'{"model": 1}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}', "utf-8")
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "{{ é }}"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    import_hf(folder, tmp_path / "out.cmf")
    with open_container(tmp_path / "out.cmf") as model:
        special = model.header.tokenizer_config
        assert special is not None
        assert (special.bos_token_id, special.eos_token_ids) == (1, (5, 6))
        assert special.chat_template == "{{ é }}"
        assert bytes(model.vocab or b"") == b'{"model": 1}'
        export_hf(model, tmp_path / "back")
    back = tmp_path / "back"
    assert (back / "tokenizer.json").read_bytes() == b'{"model": 1}'
    assert (back / "chat_template.jinja").read_text("utf-8") == "{{ é }}"
    assert json.loads((back / "generation_config.json").read_text())["eos_token_id"] == [
        5,
        6,
    ]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_type": "gemma3"}, "model_type 'gemma3' can't be read"),
        ({"quantization_config": {"quant_method": "awq"}}, r"quantised \(awq\)"),
        ({"quantization_config": {"quant_method": "fp8"}}, r"quantised \(fp8\)"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "scaling 'llama3'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "'sliding_attention'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"num_hidden_layers": 3}, r"needs tensor 'model\.layers\.2\.input_layernorm"),
        ({"num_hidden_layers": 10**12}, "too many"),
        ({"num_hidden_layers": 1}, r"'model\.layers\.1\.\S+' has no place"),
        ({"tie_word_embeddings": False}, "needs 'lm_head.weight'"),
        ({"hidden_size": "32"}, "hidden_size should be a count"),
    ],
)
def test_other_variants_are_refused_by_name(
    config: dict[str, Any], text: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "hf", qwen3_tensors(), config)
    with pytest.raises(CmfError, match=text):
        import_hf(folder, tmp_path / "out.cmf")
    assert not (tmp_path / "out.cmf").exists()


def test_packed_weights_are_refused_by_name(tmp_path: Path) -> None:
    tensors = qwen3_tensors() | {"model.norm.weight": np.ones(HIDDEN, np.int8)}
    folder = checkpoint(tmp_path / "hf", tensors)
    with pytest.raises(UnsupportedFeature, match=r"'model\.norm\.weight' is I8"):
        import_hf(folder, tmp_path / "out.cmf")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    import_hf(checkpoint(tmp_path / "hf", qwen3_tensors()), tmp_path / "m.cmf")
    before = sorted(path.read_bytes() for path in (tmp_path / "hf").iterdir())
    (tmp_path / "new.partial").mkdir()
    (tmp_path / "new.partial" / "left.safetensors").write_bytes(b"x")
    with open_container(tmp_path / "m.cmf") as model:
        with pytest.raises(CmfError, match="is there already"):
            export_hf(model, tmp_path / "hf")
        export_hf(model, tmp_path / "new")
    assert sorted(path.read_bytes() for path in (tmp_path / "hf").iterdir()) == before
    assert not (tmp_path / "new.partial").exists()
    assert not (tmp_path / "new" / "left.safetensors").exists()


def test_what_a_config_cant_say_isnt_exported(tmp_path: Path) -> None:
    import_hf(checkpoint(tmp_path / "hf", qwen3_tensors()), tmp_path / "m.cmf")
    with open_container(tmp_path / "m.cmf") as model:
        header = model.header.replace_arch(attention_heads_per_layer=(4, 2))
        rewrite(model, tmp_path / "odd.cmf", {}, header=header)
    with (
        open_container(tmp_path / "odd.cmf") as odd,
        pytest.raises(UnsupportedFeature, match=r"arch\.attention_heads_per_layer"),
    ):
        export_hf(odd, tmp_path / "out")
