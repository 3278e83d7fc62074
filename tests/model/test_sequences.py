"""`BatchDocuments` against plain Python, and packed rows as Transformers' own collator makes them.

The expectation is known before the inputs are: a layout (documents of some lengths, with padding before, between,
behind or inside them) is drawn first, and every form in which a caller may describe it is derived from that.
"""

import math

import pytest
import torch
from helpers import VOCAB, build
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import DataCollatorWithFlattening

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import MiniBertConfig
from minibert.sequences_minibert import BatchDocuments, UnpaddedTokens

WIDTH = 3


# --- layouts ---


class Layout:
    """Rows of real tokens and padding, and what must come out of them.

    Args:
        rows: for each row its columns: the number of the document (over the whole batch), or None for padding.
    """

    def __init__(self, rows: list[list[int | None]]):
        self.rows = rows
        self.shape = len(rows), len(rows[0])
        cells = [(b, s, number) for b, row in enumerate(rows) for s, number in enumerate(row)]
        self.tokens = [(b, s) for b, s, number in cells if number is not None]
        numbers = [number for _, _, number in cells if number is not None]
        order = list(dict.fromkeys(numbers))
        self.ids = [order.index(number) for number in numbers]
        self.lengths = [numbers.count(number) for number in order]
        self.first = [numbers.index(number) for number in order]
        self.positions = [i - self.first[self.ids[i]] for i in range(len(numbers))]
        self.packed = any(len({number for number in row if number is not None}) > 1 for row in rows)

    def grid(self, values: list, padding) -> torch.Tensor:
        """[batch, length] with one value a token."""
        out = torch.full(self.shape, padding)
        for (b, s), value in zip(self.tokens, values):
            out[b, s] = value
        return out

    def mask(self) -> torch.Tensor:
        return self.grid([1] * len(self.tokens), 0)

    def column_positions(self, start: int = 0) -> list[int]:
        """Positions that count the columns of a document, its holes included."""
        return [
            s - self.tokens[self.first[i]][1] + start for (_, s), i in zip(self.tokens, self.ids)
        ]

    def cu_seq_lens(self) -> torch.Tensor:
        """A document reaches to where the next one starts: padding behind it is part of it."""
        starts = [b * self.shape[1] + s for b, s in (self.tokens[first] for first in self.first)]
        return torch.tensor([0, *starts[1:], self.shape[0] * self.shape[1]], dtype=torch.int32)


@st.composite
def layouts(
    draw, one_document_a_row: bool = False, holes: bool = True, padding: bool = True
) -> Layout:
    batch_size = draw(st.integers(1, 3))
    gap = st.integers(0, 3) if padding else st.just(0)
    rows, number = [], 0
    for _ in range(batch_size):
        row = [None] * draw(gap)
        for _ in range(draw(st.integers(0 if padding else 1, 1 if one_document_a_row else 3))):
            length = draw(st.integers(1, 5))
            document = [number if i in (0, length - 1) or not (holes and padding) or draw(st.booleans()) else None
                        for i in range(length)]  # fmt: skip
            row += document + [None] * draw(gap)
            number += 1
        rows.append(row)
    length = max(1, *map(len, rows)) if batch_size > 1 else max(1, len(rows[0]))
    for row in rows:
        if not padding:  # fill up with another document
            row += [number] * (length - len(row))
            number += 1
        row += [None] * (length - len(row))
    layout = Layout(rows)
    assume(layout.tokens)
    return layout


def check(sequences: BatchDocuments, layout: Layout, positions: list[int]):
    """Everything that `documents` says, against `layout`."""
    tokens = sequences.find_tokens()
    places = torch.arange(layout.shape[0] * layout.shape[1]).view(layout.shape)
    assert tokens.unpad(places).tolist() == [b * layout.shape[1] + s for b, s in layout.tokens]
    assert tokens.document_ids.tolist() == layout.ids
    assert tokens.positions.tolist() == positions
    assert tokens.lengths == layout.lengths
    assert tokens.cu_seq_lens.tolist() == [*layout.first, len(layout.ids)]
    assert tokens.cu_seq_lens.dtype == torch.int32  # what the variable-length kernels take
    assert tokens.is_packed == layout.packed
    ids = layout.ids
    steps = [positions[i + 1] - positions[i] for i in range(len(ids) - 1) if ids[i] == ids[i + 1]]
    rising = all(step >= 1 for step in steps)
    assert tokens.order == (
        "contiguous" if all(step == 1 for step in steps) else "rising" if rising else "any"
    )


SETTINGS = settings(deadline=None, derandomize=True, max_examples=50)


@given(layouts(one_document_a_row=True))
@SETTINGS
def test_padding_masks(layout):
    """Left, right and holes: a row is one document, and its real tokens are counted."""
    sequences = BatchDocuments(*layout.shape, torch.device("cpu"), layout.mask())
    check(sequences, layout, layout.positions)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int32])
def test_a_mask_may_have_any_type(dtype):
    layout = Layout([[None, 0, None, 0], [1, 1, 1, None]])
    check(
        BatchDocuments(*layout.shape, torch.device("cpu"), layout.mask().to(dtype)),
        layout,
        layout.positions,
    )


@given(
    layouts(),
    st.sampled_from(["tokens", "columns"]),
    st.sampled_from([0, 2]),
    st.sampled_from([-1, 0, 1, 7]),
)
@SETTINGS
def test_positions_that_restart(layout, counting, start, at_padding):
    """Holes counted or not, documents that start at 0 or, as RoBERTa's, at 2, and any number at padding."""
    positions = (
        [p + start for p in layout.positions]
        if counting == "tokens"
        else layout.column_positions(start)
    )
    position_ids = layout.grid(positions, at_padding)
    check(
        BatchDocuments(*layout.shape, torch.device("cpu"), layout.mask(), position_ids),
        layout,
        positions,
    )


@given(layouts(padding=False))
@SETTINGS
def test_positions_that_restart_without_a_mask(layout):
    position_ids = layout.grid(layout.positions, 0)
    check(
        BatchDocuments(*layout.shape, torch.device("cpu"), position_ids=position_ids),
        layout,
        layout.positions,
    )


@given(layouts(), st.booleans(), st.booleans())
@SETTINGS
def test_seq_idx_wins_over_cu_seq_lens_and_both_over_positions(layout, numbered, with_positions):
    wrong = torch.arange(layout.shape[1]).expand(layout.shape) if with_positions else None
    forms = dict(cu_seq_lens=layout.cu_seq_lens())
    if numbered:
        elsewhere = torch.tensor([0, layout.shape[0] * layout.shape[1]])
        forms = dict(seq_idx=layout.grid(layout.ids, -1), cu_seq_lens=elsewhere)
    sequences = BatchDocuments(*layout.shape, torch.device("cpu"), layout.mask(), wrong, **forms)
    check(sequences, layout, [s for _, s in layout.tokens] if with_positions else layout.positions)


@given(layouts(padding=False))
@SETTINGS
def test_one_row_with_cu_seq_lens_needs_no_search(layout):
    """Nothing is looked for: neither boundaries nor positions."""
    flat = Layout([[number for row in layout.rows for number in row]])
    sequences = BatchDocuments(*flat.shape, torch.device("cpu"), cu_seq_lens=flat.cu_seq_lens())
    sequences._drop_padding = None
    check(sequences, flat, flat.positions)


@pytest.mark.parametrize(
    "bounds", [[0, 3], [2, 5], [0, 7], [0, 4, 3, 5], [0, 2, 2, 5], [5]], ids=str
)
def test_cu_seq_lens_that_leave_tokens_out_are_refused(bounds):
    model = modeling.MiniBertModel(MiniBertConfig.bert("tiny", vocab_size=9))
    with pytest.raises(ValueError, match=r"cu_seq_lens_q=.* use increasing numbers from 0 to 5"):
        model(torch.ones(1, 5, dtype=torch.long), cu_seq_lens_q=torch.tensor(bounds))


def test_a_row_ends_every_document():
    """Equal numbers, or one range of `cu_seq_lens`, in two rows are two documents."""
    layout = Layout([[0, 0], [1, 1]])
    for form in (dict(seq_idx=torch.zeros(2, 2)), dict(cu_seq_lens=torch.tensor([0, 4]))):
        check(BatchDocuments(2, 2, torch.device("cpu"), **form), layout, [0, 1, 0, 1])


def test_one_row_of_positions_serves_the_batch():
    layout = Layout([[0, 0, 1, 1, 1], [2, 2, 3, 3, 3]])
    positions = [0, 1, 0, 1, 2]
    check(
        BatchDocuments(2, 5, torch.device("cpu"), position_ids=torch.tensor([positions])),
        layout,
        positions * 2,
    )


def test_without_anything_every_row_is_a_document():
    layout = Layout([[0] * 4, [1] * 4, [2] * 4])
    check(BatchDocuments(3, 4, torch.device("cpu")), layout, [0, 1, 2, 3] * 3)


# --- between the unpadded tokens and the padded batch ---


def tokens_of(layout: Layout) -> UnpaddedTokens:
    return BatchDocuments(
        *layout.shape, torch.device("cpu"), layout.mask(), seq_idx=layout.grid(layout.ids, -1)
    ).find_tokens()


@given(layouts(), st.sampled_from([0.0, -7.5]))
@SETTINGS
def test_pad_undoes_unpad(layout, fill):
    tokens, x = tokens_of(layout), torch.randn(*layout.shape, WIDTH)
    restored = tokens.pad(tokens.unpad(x), fill)
    expected = x.clone()
    expected[layout.mask() == 0] = fill
    assert torch.equal(restored, expected)


@given(layouts(), st.sampled_from(["cls", "last", "mean"]))
@SETTINGS
def test_pool(layout, pooling):
    tokens, x = tokens_of(layout), torch.randn(*layout.shape, WIDTH)

    def pooled(numbers) -> list[float]:
        places = [place for place, i in zip(layout.tokens, layout.ids) if i in numbers]
        vectors = [x[place].tolist() for place in places] or [[0.0] * WIDTH]
        if pooling == "mean":
            return [math.fsum(column) / len(vectors) for column in zip(*vectors)]
        return vectors[0 if pooling == "cls" else -1]

    if layout.packed:  # one vector a document
        expected = [pooled({i}) for i in range(len(layout.lengths))]
    else:  # one a row, zeros where a row is all padding
        rows = range(layout.shape[0])
        expected = [
            pooled({i for (b, _), i in zip(layout.tokens, layout.ids) if b == row}) for row in rows
        ]
    assert_close(tokens.pool(tokens.unpad(x), pooling), torch.tensor(expected))


@given(layouts(one_document_a_row=True), st.sampled_from(["cls", "last", "mean"]), st.booleans())
@SETTINGS
def test_pool_of_padded_rows(layout, pooling, with_mask):
    """What is captured in a graph never looks for the unpadded tokens; it must pool alike."""
    if not with_mask:
        layout = Layout([[b] * layout.shape[1] for b in range(layout.shape[0])])
    mask = layout.mask() if with_mask else None
    x = torch.randn(*layout.shape, WIDTH)
    unpadded = tokens_of(layout)
    expected = unpadded.pool(unpadded.unpad(x), pooling)
    columns = BatchDocuments(*layout.shape, torch.device("cpu"), mask).keep_columns()
    assert_close(columns.pool(columns.unpad(x), pooling), expected)


@pytest.mark.parametrize("pooling", ["cls", "last"])
@pytest.mark.parametrize("masked", [False, True])
def test_pool_of_long_padded_rows_in_half_precision(pooling, masked):
    """bf16 cannot count past 256."""
    length = 1000
    mask = (torch.arange(length) < length - 100).expand(2, length) if masked else None
    x = torch.arange(length, dtype=torch.bfloat16).expand(2, length).unsqueeze(-1)
    last = length - 101 if masked else length - 1
    columns = BatchDocuments(2, length, torch.device("cpu"), mask).keep_columns()
    pooled = columns.pool(columns.unpad(x), pooling)
    assert torch.equal(pooled, x[:, 0 if pooling == "cls" else last])


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype, height", [(torch.bfloat16, 1.0), (torch.float16, 100.0)], ids=str)
def test_mean_of_long_padded_rows_in_half_precision(dtype, height, autocast):
    """Their sum is beyond the largest fp16 number, and bf16 cannot count them."""
    torch.manual_seed(0)
    length = 1000
    mask = (torch.arange(length) < torch.tensor([[length], [514]])).long()
    x = (height + torch.randn(2, length, WIDTH)).to(dtype)
    columns = BatchDocuments(2, length, torch.device("cpu"), mask).keep_columns()
    with torch.autocast("cpu", dtype, enabled=autocast):
        pooled = columns.pool(columns.unpad(x), "mean")
    expected = torch.stack([x[0].double().mean(0), x[1, :514].double().mean(0)])
    assert pooled.dtype == dtype
    rounding = 0.51 * torch.finfo(dtype).eps  # of the result alone
    assert_close(pooled.double(), expected, rtol=rounding, atol=0)


@given(layouts(), st.sampled_from([None, 1, 2]), st.booleans())
@settings(SETTINGS, max_examples=20)
def test_masks(layout, window, causal):
    """The dense mask, and the rule for Transformers' mask functions."""
    sequences = BatchDocuments(
        *layout.shape, torch.device("cpu"), layout.mask(), seq_idx=layout.grid(layout.ids, -1)
    )
    mask, rule = sequences.dense_mask(window, causal), sequences.mask_function(window, causal)
    tokens = {place: (i, p) for place, i, p in zip(layout.tokens, layout.ids, layout.positions)}
    batch_size, length = layout.shape
    assert mask.shape == (batch_size, 1, length, length)
    for b in range(batch_size):
        for q in range(length):
            assert mask[b, 0, q].any()  # a softmax over nothing is NaN
            for k in range(length):
                assert bool(rule(b, 0, q, k)) == bool(mask[b, 0, q, k])
                query, key = tokens.get((b, q)), tokens.get((b, k))
                if query is None or key is None:
                    assert not mask[b, 0, q, k] or query is key is None
                    continue
                seen = query[0] == key[0] and (window is None or abs(query[1] - key[1]) <= window)
                assert bool(mask[b, 0, q, k]) == (seen and (not causal or k <= q))


def test_no_mask_where_none_is_needed():
    sequences = BatchDocuments(2, 5, torch.device("cpu"))
    assert sequences.dense_mask(None, causal=False) is None
    assert sequences.dense_mask(1, causal=False) is not None
    assert sequences.dense_mask(None, causal=True) is not None


def test_nothing_but_padding_leaves_nothing():
    tokens = BatchDocuments(2, 4, torch.device("cpu"), torch.zeros(2, 4)).find_tokens()
    assert tokens.lengths == [] and tokens.unpad(torch.arange(8).view(2, 4)).tolist() == []
    for pooling in ("cls", "last", "mean"):
        assert torch.equal(tokens.pool(torch.ones(0, WIDTH), pooling), torch.zeros(2, WIDTH))


# --- Transformers' collator ---

LENGTHS = [9, 1, 5, 2]
FORMS = {
    "position_ids": {},
    "seq_idx": dict(return_seq_idx=True, return_position_ids=False),
    "cu_seq_lens": dict(return_flash_attn_kwargs=True, return_position_ids=False),
    "all": dict(return_flash_attn_kwargs=True, return_seq_idx=True),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("head", ["ForMaskedLM", "ForCausalLM", "ForSequenceClassification"])
@torch.no_grad()
def test_heads_take_what_the_flattening_collator_gives(head, form):
    """Each document gives what it gives alone, and the loss is of all but each document's first token."""
    model = build(head).eval()
    texts = [torch.randint(1, VOCAB, (length,)) for length in LENGTHS]
    batch = DataCollatorWithFlattening(**FORMS[form])(
        [dict(input_ids=x.tolist(), labels=x.tolist()) for x in texts]
    )
    labels = batch.pop("labels")
    alone = torch.cat([model(text[None]).logits.flatten(0, -2) for text in texts])
    for model.config._attn_implementation in ("eager", "sdpa"):
        assert_close(model(**batch).logits.flatten(0, -2), alone, rtol=1e-5, atol=1e-5)
    if head != "ForSequenceClassification":
        predicted = torch.cat([alone[:1], alone[:-1]]) if head == "ForCausalLM" else alone
        assert_close(
            model(**batch, labels=labels).loss,
            F.cross_entropy(predicted, labels[0]),
            rtol=1e-5,
            atol=1e-5,
        )
