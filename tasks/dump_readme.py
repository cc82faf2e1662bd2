"""The README inside every dump: what its files hold and how to read them."""

README = """\
# Chains of an MTP draft, dumped

`meta.json` has the counts: W windows (`windows`), T rows each (`window`), K tokens kept of
the trunk (`topk`), C chain steps (`chain`), H (`hidden`), V (`vocab`).

Arrays are Zarr folders, one chunk a window: `zarr.open_array("before_output", mode="r")`.
`heal dump KEY --numpy OUT` writes the same as plain `.npy` files.

| array | shape, type | what |
|---|---|---|
| `ids` | W T, u32 | tokens; row p of a window is real for p < `len` |
| `len`, `set`, `held_out` | W | real rows, data set, whether no training read it |
| `ti`, `tp` | W T K, u32 and f32 | the trunk's best next tokens at p, full softmax |
| `before_output` | W C T H, f16 | the block's raw output: step j at j - 1, start p |
| `before_top_id`, `before_top_p` | W C T 4 | the draft's best tokens and probabilities |
| `after_…` | the same | after training, if there was any |

Step j of the chain that starts at p reads token `ids[p+j]` and the output of step j - 1
(the trunk's row at first) and is right if its first token is `ti[p+j, 0]`. Rows exist where
p + j < `len`, and in the record of p where a window's records were kept apart; others are
zeros. Step j of start p stands at index [window, j - 1, p] in both layouts; `layout` in
`meta.json` says which it is:

* `exact`, what a decode has: its position is p + j - 1, it sees the step-1 rows of
  positions up to p and the steps 2 to j of its own chain;
* `rows`, an approximation (also of a heal that trains `stride`): its position is p, it sees
  the step-j rows of positions up to p.

`tensors.safetensors`: `embed`, `head`, `eh_proj` (f16), `enorm`, `hnorm`, `mtp_norm`,
`norm` (f32); `after.…` are those of the trained draft. A row's input is
`eh_proj · [rmsnorm(embed[token], enorm) ; rmsnorm(hidden, hnorm)]`, its logits are
`head · rmsnorm(output, mtp_norm)`; gains are w, with `norm_style` gemma 1 + w.
`wiring` in `meta.json` says whether hidden rows are read raw or behind their norm. The
trunk's own hidden rows lie in the same store, in the parts of `trunk_rows`.
"""
