"""The header: peers' bytes kept, the peer's spelling, edits, refusals."""

import copy
import pickle
from pathlib import Path

import pytest

from cmfio.errors import ParseError
from cmfio.header import Arch, Header, Mtp, dump_header, parse_header
from cmfio.json_text import spell_float

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
CONTAINERS = [
    path for path in sorted(PEERS.rglob("*.cmf")) if "invalid" not in path.parts
] + sorted((PEERS / "invalid").glob("*_ok.cmf"))
MINIMAL = (
    b'{"format":"cmf","version":2,"arch":{"arch_name":"qwen3","hidden_size":8,'
    b'"intermediate_size":16,"num_layers":1,"num_attention_heads":2,"num_kv_heads":1,'
    b'"head_dim":4,"vocab_size":10,"layer_types":["FullAttention"],"rms_norm_eps":1e-6,'
    b'"norm_style":"qwen","rope_theta":10000.0,"tie_word_embeddings":true,'
    b'"partial_rotary_factor":1.0,"max_position_embeddings":64,'
    b'"linear_conv_kernel_dim":null,"linear_num_key_heads":null,'
    b'"linear_num_value_heads":null},"quant_type":"F16"}'
)


def header_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    offset, length = (int.from_bytes(data[at : at + 8], "little") for at in (16, 24))
    return data[offset : offset + length]


def small_arch() -> Arch:
    return Arch(
        arch_name="qwen3",
        hidden_size=8,
        intermediate_size=16,
        num_layers=1,
        num_attention_heads=2,
        num_kv_heads=1,
        head_dim=4,
        vocab_size=10,
        layer_types=("FullAttention",),
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        max_position_embeddings=64,
    )


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_peers_header_comes_back_byte_for_byte(path: Path) -> None:
    given = header_bytes(path)
    assert dump_header(parse_header(given)) == given


def test_a_header_made_here_follows_the_peers_rules_of_presence() -> None:
    assert dump_header(Header(arch=small_arch(), quant_type="F16")) == MINIMAL


def test_unknown_keys_keep_their_places_and_spelling() -> None:
    given = MINIMAL.replace(b'"head_dim":4', b'"new_dim":[1.50,null],"head_dim":4')
    given = given.replace(
        b'"version":2', b'"version":2,"seal":{"b":1,"a":12345678901234567890}'
    )
    header = parse_header(given)
    assert dump_header(header) == given
    changed = dump_header(header.replace_arch(num_layers=3))
    assert changed == given.replace(b'"num_layers":1', b'"num_layers":3')


def test_an_edit_puts_new_keys_where_the_peer_declares_them() -> None:
    header = parse_header(MINIMAL).replace_arch(mtp=Mtp(num_layers=1))
    header = header.with_provenance("mtp_heal", {"lr": 1e-5, "at": 1.5e-7})
    expected = MINIMAL.replace(
        b'1.0,"max_pos',
        b'1.0,"mtp":{"num_layers":1,"share_lm_head":true,"share_embed":true},"max_pos',
    ).replace(b'"F16"}', b'"F16","provenance":{"mtp_heal":{"lr":0.00001,"at":1.5e-7}}}')
    assert dump_header(header) == expected
    assert dump_header(header.replace_arch(mtp=None)).count(b'"mtp"') == 0


def test_provenance_keeps_its_other_keys_and_the_original_stays() -> None:
    header = parse_header(header_bytes(PEERS / "full.cmf"))
    changed = header.with_provenance("mtp_heal", {"steps": 3})
    assert isinstance(header.provenance, dict)
    assert isinstance(changed.provenance, dict)
    assert list(changed.provenance) == [*header.provenance, "mtp_heal"]
    assert changed.provenance["big"] == 12345678901234567


def test_edits_are_checked() -> None:
    header = parse_header(MINIMAL)
    with pytest.raises(ParseError, match="num_layers"):
        header.replace_arch(num_layers="three")
    with pytest.raises(ParseError, match="no field 'num_layer'"):
        header.replace_arch(num_layer=3)


def test_copies_and_pickles_spell_the_same() -> None:
    header = parse_header(MINIMAL)
    assert dump_header(copy.deepcopy(header)) == MINIMAL
    assert dump_header(pickle.loads(pickle.dumps(header))) == MINIMAL


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e-5, "0.00001"),
        (9.9e-6, "9.9e-6"),
        (1e-7, "1e-7"),
        (1e16, "1e16"),
        (1e15, "1000000000000000.0"),
        (1.25e300, "1.25e300"),
        (5e-324, "5e-324"),
        (100000.0, "100000.0"),
        (-0.0, "-0.0"),
        (float("nan"), "null"),
    ],
)
def test_numbers_are_spelled_like_the_peers(number: float, text: str) -> None:
    assert spell_float(number) == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"hidden_size":8', b'"hidden_size":8.0'),
        (b'"hidden_size":8', b'"hidden_size":-8'),
        (b'"hidden_size":8', b'"hidden_size":true'),
        (b'"hidden_size":8', b'"hidden_size":"8"'),
        (b'"hidden_size":8', b'"hidden_size":8,"hidden_size":8'),
        (b'"FullAttention"', b'"HalfAttention"'),
        (b'"version":2,', b""),
        (b"1e-6", b"NaN"),
        (b"1e-6", b"1e999"),
        (b"1e-6", b"true"),
        (b'"F16"', b'"F16","shard":{"no":0,"count":1}'),
        (b'"qwen3"', b'"qw\xffen3"'),
        (b'"qwen3"', b'"\\ud800"'),
        (b'"F16"', b'"F16","provenance":' + b"[" * 200 + b"]" * 200),
        (b'"F16"', b'"F16","provenance":' + b"[" * 99_999 + b"]" * 99_999),
        (b'"F16"', b'"F16","provenance":1' + b"0" * 5000),
    ],
)
def test_what_the_peers_parser_refuses_is_a_parse_error(old: bytes, new: bytes) -> None:
    assert old in MINIMAL
    with pytest.raises(ParseError):
        parse_header(MINIMAL.replace(old, new))
