"""A tokenizer.json rebuilt from a GGUF file: byte-level BPE, special tokens apart."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cmfio.errors import ParseError, UnsupportedFeature
from cmfio.header import TokenizerConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KEY = "tokenizer.ggml."
PRE_TOKENIZERS = ("smollm", "gpt-2", "qwen2")
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TokenType(IntEnum):
    """GGUF's kinds of tokens that stand outside the merges."""

    CONTROL = 3
    USER_DEFINED = 4


def tokenizer_json(metadata: Mapping[str, object], path: Path) -> bytes:
    """A Hugging Face tokenizer.json that gives every token its id in the GGUF."""
    kind, pre = metadata.get(KEY + "model"), metadata.get(KEY + "pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise UnsupportedFeature(
            f"{path}: tokenizer {kind!r} with pre-tokenizer {pre!r} can't be rebuilt; "
            f"byte-level BPE with {', '.join(PRE_TOKENIZERS)} can"
        )
    tokens = _texts(metadata, "tokens", path)
    merges = [_merge(text, path) for text in _texts(metadata, "merges", path)]
    try:
        tokenizer = _build(tokens, merges, str(pre))
    except Exception as error:  # the library raises nothing narrower
        raise ParseError(f"{path}: its tokenizer can't be rebuilt: {error}") from error
    types = cast("Sequence[int]", metadata.get(KEY + "token_type", ()))
    _add_special(tokenizer, tokens, types)
    return tokenizer.to_str().encode("utf-8")


def special_ids(metadata: Mapping[str, object]) -> TokenizerConfig:
    """Special ids and the chat template, as far as the GGUF says them."""

    def token_id(name: str) -> int | None:
        value = metadata.get(f"{KEY}{name}_token_id")
        return value if isinstance(value, int) else None

    template = metadata.get("tokenizer.chat_template")
    eos = token_id("eos")
    return TokenizerConfig(
        chat_template=template if isinstance(template, str) else None,
        eos_token_ids=() if eos is None else (eos,),
        bos_token_id=token_id("bos"),
        pad_token_id=token_id("padding"),
    )


def _build(tokens: Sequence[str], merges: list[tuple[str, str]], pre: str) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models

    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    _split_like(tokenizer, pre)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _split_like(tokenizer: "Tokenizer", pre: str) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    if pre == "gpt-2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    else:
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated")
        encode = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, encode])


def _add_special(
    tokenizer: "Tokenizer", tokens: Sequence[str], types: Sequence[int]
) -> None:
    from tokenizers import AddedToken

    for token, kind in zip(tokens, types, strict=False):
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED):
            is_special = kind == TokenType.CONTROL
            added = AddedToken(token, normalized=False, special=is_special)
            tokenizer.add_tokens([added])


def _texts(metadata: Mapping[str, object], name: str, path: Path) -> list[str]:
    value = metadata.get(KEY + name)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return cast("list[str]", value)
    raise ParseError(f"{path}: has no list {KEY + name}, so its tokenizer can't be rebuilt")


def _merge(text: str, path: Path) -> tuple[str, str]:
    left, gap, right = text.partition(" ")
    if not gap:
        raise ParseError(f"{path}: merge {text!r} isn't two tokens")
    return left, right
