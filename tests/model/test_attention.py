"""Who sees whom, and that every kernel computes softmax(q kᵀ / √d) v over that.

The truth table perturbs one token and looks at which others change. The kernels are compared with the formula in
float64, written out for each document alone.
"""

import functools
import itertools
from typing import NamedTuple
from unittest import mock

import pytest
import torch
from helpers import tiny
from torch.testing import assert_close
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from minibert import attention_minibert as attention
from minibert import cpu_minibert as cpu
from minibert import dispatch_minibert as dispatch
from minibert.attention_minibert import choose_dispatch
from minibert.configuration_minibert import MiniBertConfig
from minibert.cpu_minibert import chunked_attention, unfused_attention
from minibert.modeling_minibert import MiniBertModel, eager_attention_forward
from minibert.sequences_minibert import BatchDocuments, PaddedRows, UnpaddedTokens

# The published tolerances, absolute and relative, between any two ways to compute one attention from inputs of a type.
# In half precision that is four units in the last place.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-8, torch.bfloat16: 2**-5}


# --- the truth table ---

# One letter a document, a dot for padding.
LAYOUTS = {
    "full rows": ["aaaaaaaaaa", "bbbbbbbbbb"],
    "single": ["aaaaaaaaaa"],
    "padded right": ["aaaaaaaaaa", "bbbb......"],
    "padded left": ["aaaaaaaaaa", "......bbbb"],
    "holes": ["aa.aaa..aa", ".b.bb..bbb"],
    "holes, counted": ["aa.aaa..aa", ".b.bb..bbb"],
    "a row of padding": ["aaaaaaaaaa", ".........."],
    "one token": ["a"],
    "packed, position_ids": ["aaaaaaaaab", "ccccdddddd"],
    "packed, seq_idx": ["aaaaaaaaab", "ccccdddddd"],
    "packed, cu_seq_lens": ["aaaaaaaaab", "ccccdddddd"],
    "packed, position_ids, padding": ["aaa..bbbb.", "..ccc.cddd"],
    "packed, seq_idx, padding": ["aaa..bbbb.", "..ccc.cddd"],
    "packed, seq_idx, falling positions": ["aaaaaaaaab", "ccccdddddd"],
    "packed, cu_seq_lens, falling positions": ["aaaaaaaaab", "ccccdddddd"],
}
WINDOW = 2
PATTERNS = list(itertools.product(["full_attention", "sliding_attention"], [False, True]))


def describe(name: str):
    """The inputs that say where documents lie, and the tokens as (row, column, document, position)."""
    rows = LAYOUTS[name]
    tokens, seen = [], {}
    for b, row in enumerate(rows):
        for s, document in enumerate(row):
            if document != ".":
                seen.setdefault(document, []).append(s)
                position = s if "counted" in name else len(seen[document]) - 1
                if "falling" in name:
                    position = len(row) - s
                tokens.append((b, s, document, position))
    real = torch.tensor([[letter != "." for letter in row] for row in rows])
    inputs = {} if real.all() else {"attention_mask": real.long()}
    grid = torch.zeros(real.shape, dtype=torch.long)
    for b, s, document, position in tokens:
        grid[b, s] = ord(document) if "seq_idx" in name else position
    if "falling" in name:
        inputs["position_ids"] = torch.arange(real.shape[1], 0, -1).expand(real.shape)
    if "position_ids" in name or "counted" in name:
        inputs["position_ids"] = grid
    elif "seq_idx" in name:
        inputs["seq_idx"] = grid
    elif "cu_seq_lens" in name:
        lengths = [len(list(run)) for _, run in itertools.groupby("".join(rows))]
        bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
        inputs |= dict(
            cu_seq_lens_q=bounds,
            cu_seq_lens_k=bounds,
            max_length_q=max(lengths),
            max_length_k=max(lengths),
        )
    return real, inputs, tokens


def by_definition(query, key, layer_type: str, causal: bool) -> bool:
    """Whether a token sees another one."""
    (_, _, document_q, position_q), (_, _, document_k, position_k) = query, key
    in_window = layer_type == "full_attention" or abs(position_q - position_k) <= WINDOW
    return document_q == document_k and in_window and (not causal or position_k <= position_q)


def flash_stand_in(module, query, key, value, attention_mask, sliding_window=None, is_causal=False,
                   cu_seq_lens_q=None, cu_seq_lens_k=None, **kwargs):  # fmt: skip
    """What Transformers' `flash_attention_2` promises: boundaries in the flattened batch, and a window that counts the
    tokens on one side with the token itself, so that `sliding_window - 1` neighbours are seen."""
    assert attention_mask is None
    batch_size, _, length, _ = query.shape
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    if cu_seq_lens_q is None:
        bounds = range(0, batch_size * length + 1, length)
    else:
        assert cu_seq_lens_q.dtype == torch.int32 and torch.equal(cu_seq_lens_q, cu_seq_lens_k)
        bounds = cu_seq_lens_q.tolist()
    parts = []
    for start, end in itertools.pairwise(bounds):
        i = torch.arange(end - start)
        distance = i.unsqueeze(1) - i
        seen = torch.ones_like(distance, dtype=torch.bool)
        if sliding_window is not None:
            seen &= distance.abs() <= sliding_window - 1
        if is_causal:
            seen &= distance >= 0
        parts.append(formula(q[start:end], k[start:end], v[start:end], seen))
    return torch.cat(parts).unflatten(0, (batch_size, length)), None


def user_function(module, query, key, value, attention_mask, **kwargs):
    return eager_attention_forward(module, query, key, value, attention_mask, **kwargs)


def formula(q_qhd, k_khd, v_khd, seen_qk):
    scores = torch.einsum("qhd,khd->hqk", q_qhd, k_khd) / q_qhd.shape[-1] ** 0.5
    return torch.einsum(
        "hqk,khd->qhd", scores.masked_fill(~seen_qk, float("-inf")).softmax(-1), v_khd
    )


def prepare(backend: str, monkeypatch) -> tuple[str, dict]:
    """The attention implementation and the keywords of a call that lead to `backend`."""
    implementation = backend.split(",")[0]
    if backend == "sdpa, blocks":
        monkeypatch.setattr(dispatch.BlocksDispatch, "MIN_BLOCK", 2)
    elif backend == "sdpa, one call a document":
        monkeypatch.setattr(cpu, "SHORT_LENGTH", 1)
    elif backend == "sdpa, like lengths":
        monkeypatch.setattr(cpu, "choose_cpu_kernel", lambda *args: unfused_attention)
    elif implementation == "flash_attention_2":
        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "flash_attention_2", flash_stand_in)
    elif implementation == "of a user":
        AttentionInterface.register("of a user", user_function)
    return implementation, dict(output_hidden_states=True) if backend.endswith(
        "padded rows"
    ) else {}


def copied(inputs: dict, copies: int) -> dict:
    """The same rows `copies` times over."""
    out = {
        name: x.repeat(copies, 1)
        for name, x in inputs.items()
        if torch.is_tensor(x) and x.dim() == 2
    }
    if "cu_seq_lens_q" in inputs:
        bounds = inputs["cu_seq_lens_q"]
        later = torch.arange(copies, dtype=torch.int32).unsqueeze(1) * bounds[-1] + bounds[1:]
        later = torch.cat([bounds[:1], later.flatten()])
        out = inputs | out | {"cu_seq_lens_q": later, "cu_seq_lens_k": later}
    return out


def check_truth_table(backend: str, layout: str, patterns, monkeypatch, dtype=torch.float64):
    """Every token in turn is another one, in a copy of the rows of its own; the rows alone come first."""
    implementation, keywords = prepare(backend, monkeypatch)
    real, inputs, tokens = describe(layout)
    keys = [*tokens, *((b, s, ".", 0) for b, s in (~real).nonzero().tolist())]
    many = copied(inputs, len(keys) + 1)
    for layer_type, causal in patterns:
        config = MiniBertConfig(
            vocab_size=2, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4,
            local_attention=2 * WINDOW, layer_types=[layer_type], is_causal=causal, initializer_range=0.3,
        )  # fmt: skip
        torch.manual_seed(0)
        model = MiniBertModel(config).to(dtype).eval()
        # a name for which Transformers would look for a package cannot be set on a model
        model.config._attn_implementation_internal = implementation
        embeds = torch.randn(*real.shape, config.hidden_size, dtype=dtype)
        perturbed = embeds.repeat(len(keys) + 1, 1, 1, 1)
        for copy, (b, s, *_) in enumerate(keys):
            perturbed[copy, b, s] = torch.randn(config.hidden_size, dtype=dtype)
        with torch.no_grad():
            before = model(inputs_embeds=embeds, **inputs, **keywords).last_hidden_state
            after = model(
                inputs_embeds=perturbed.flatten(0, 1), **many, **keywords
            ).last_hidden_state
        assert not before[~real].any(), "padding has a state"
        *after, unchanged = after.unflatten(0, (-1, len(real)))
        threshold = 1e-6 if dtype == torch.float64 else 1e-5
        assert (unchanged - before).abs().max() < threshold, (
            "other rows of the batch change something"
        )
        for key, states in zip(keys, after):
            change = (states - unchanged).abs().amax(-1)
            got = {query[:2] for query in tokens if change[query[:2]] > threshold}
            expected = {
                query[:2] for query in tokens if by_definition(query, key, layer_type, causal)
            }
            assert got == expected, (
                f"{layer_type}, causal={causal}: who sees (row, column) {key[:2]}"
            )


BACKENDS = [
    "eager", "sdpa", "sdpa, blocks", "sdpa, one call a document", "sdpa, like lengths", "sdpa, padded rows",
    "of a user", "flash_attention_2", "flash_attention_2, padded rows",
]  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_truth_table(backend, layout, monkeypatch):
    check_truth_table(backend, layout, PATTERNS, monkeypatch)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "falling" in name])
def test_flash_attention_of_a_causal_model_goes_by_positions(layout, monkeypatch):
    """Where they fall within a document, the order of tokens is another one."""
    check_truth_table("flash_attention_2", layout, [("full_attention", True)], monkeypatch)


@pytest.mark.slow  # compiles for a minute or more
@pytest.mark.parametrize("layout", ["holes", "packed, position_ids, padding"])
def test_truth_table_of_flex_attention(layout, monkeypatch):
    # Of torch 2.13 flex attention for rows of any length does not compile on CPU (cur_kvSplitSize4 was not declared).
    with torch._dynamo.config.patch(
        automatic_dynamic_shapes=False
    ):  # monkeypatch would remove the field afterwards
        check_truth_table("flex_attention", layout, PATTERNS, monkeypatch, dtype=torch.float32)


def test_attention_functions_do_not_get_what_only_the_model_reads():
    passed_names = set()

    def attend(*args, **kwargs):
        passed_names.update(kwargs)
        return user_function(*args, **kwargs)

    AttentionInterface.register("of a user", attend)
    model = MiniBertModel(tiny(attn_implementation="of a user")).eval()
    model(torch.tensor([[1, 5, 2]]), output_hidden_states=True, output_attentions=True)
    assert "sliding_window" in passed_names
    assert passed_names.isdisjoint({"output_hidden_states", "output_attentions"})


def test_the_plans_of_the_truth_table_ran(monkeypatch):
    """Its rows are short: the names of its backends must not promise what they do not do."""
    plans = []
    monkeypatch.setattr(
        attention,
        "choose_dispatch",
        lambda *args: plans.append(choose_dispatch(*args)) or plans[-1],
    )
    expected = {
        "sdpa": [("one call a document", [10, 10])],  # two documents share a call
        "sdpa, one call a document": [("one call a document", [9, 1, 4, 6])],
        "sdpa, like lengths": [("documents packed into rows", None)],
        "sdpa, blocks": [("blocks of queries", None)],
        "sdpa, padded rows": [],
    }
    for backend, names in expected.items():
        with monkeypatch.context() as patch:
            implementation, keywords = prepare(backend, patch)
            if backend == "sdpa":
                patch.setattr(cpu, "SHORT_LENGTH", 10)
            _, inputs, _ = describe("packed, seq_idx")
            config = MiniBertConfig(
                vocab_size=2, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4,
                local_attention=2 * WINDOW, layer_types=["sliding_attention"], attn_implementation=implementation,
            )  # fmt: skip
            plans.clear()
            MiniBertModel(config).eval()(inputs_embeds=torch.randn(2, 10, 8), **inputs, **keywords)
            assert [plan.name for plan in plans] == [name for name, _ in names], backend
            assert [sizes and plan.sizes for plan, (_, sizes) in zip(plans, names)] == [
                sizes for _, sizes in names
            ]


# --- the kernels against the formula ---

HEADS, HEAD_WIDTH = 2, 16
# With the half-windows below: one token, documents of exactly the window, longer than it, longer than several blocks;
# no total is a multiple of a block.
LENGTHS = {
    "mixed": [1, 4, 5, 8, 9, 150, 3, 65], "short": [20, 1, 1, 9, 33, 7, 128, 2], "one token": [1],
    "long": [260, 1, 190], "the window": [129], "one more than a block": [65, 64, 63], "alike": [7, 7, 7],
}  # fmt: skip


# How positions go on within a document of n tokens.
POSITIONS = {
    "counted": None,
    "gaps": lambda n: torch.arange(n) + torch.arange(n) // 3,
    "repeated": lambda n: torch.arange(n) // 3,
    "falling": lambda n: n - torch.arange(n),
}


def tokens_of(lengths: list[int], positions: str = "counted") -> UnpaddedTokens:
    """Documents of these lengths."""
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).unsqueeze(0)
    count = POSITIONS[positions]
    positions = None if count is None else torch.cat([count(n) for n in lengths]).unsqueeze(0)
    return BatchDocuments(
        1, sum(lengths), torch.device("cpu"), position_ids=positions, seq_idx=ids
    ).find_tokens()


def by_document(q, k, v, lengths, positions, window, causal) -> torch.Tensor:
    """The formula in float64, a document at a time."""
    parts = []
    for q_part, k_part, v_part, p in zip(
        *(x.split(lengths) for x in (q.double(), k.double(), v.double(), positions))
    ):
        distance = p.unsqueeze(1) - p
        seen = torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            seen &= distance.abs() <= window
        if causal:
            seen &= distance >= 0
        parts.append(formula(q_part, k_part, v_part, seen))
    return torch.cat(parts)


def random_qkv(tokens: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(tokens)
    return [torch.randn(tokens, HEADS, HEAD_WIDTH).to(dtype).requires_grad_() for _ in range(3)]


def eager(q, k, v, tokens, window, causal, dropout) -> torch.Tensor:
    rows = (x.unsqueeze(0).transpose(1, 2) for x in (q, k, v))
    out, _ = eager_attention_forward(
        torch.nn.Module(), *rows, tokens.batch.dense_mask(window, causal), dropout=dropout
    )
    return out[0]


def of(kind):
    """A plan of one kind, whatever would be chosen."""
    return lambda q, k, v, tokens, window, causal, dropout: kind(
        tokens, window, causal, dropout, q.dtype
    ).attend(q, k, v)


def planned(q, k, v, tokens, window=None, causal=False, dropout=0.0) -> torch.Tensor:
    plan = choose_dispatch(tokens, window, causal, dropout, q.dtype, q.shape[-1])
    return plan.attend(q, k, v)


KERNELS = {
    "planned": planned, "documents": of(cpu.DocumentsDispatch), "blocks": of(cpu.CpuBlocksDispatch),
    "packed rows": of(cpu.PackedDispatch), "one call": of(dispatch.RowsDispatch), "groups": of(cpu.GroupsDispatch),
    "eager": eager,
}  # fmt: skip


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)],
    ids=str,
)
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_against_the_formula(kernel, name, dtype):
    """Output and gradients, with windows smaller and larger than half a block, in both directions and causal, whatever
    the positions are. (Blocks are for positions that rise.)"""
    lengths = LENGTHS[name]
    windows = [1, 4, 64] if kernel == "blocks" else [None, 1, 4, 64]
    ways = POSITIONS if dtype == torch.float32 else ("counted", "gaps", "falling")
    for window, causal, positions in itertools.product(windows, [False, True], ways):
        if (window is None and not causal and positions != "counted") or (
            kernel == "blocks" and positions in ("repeated", "falling")
        ):
            continue
        q, k, v, grad, *expected = expected_of(name, dtype, window, causal, positions)
        actual = KERNELS[kernel](q, k, v, tokens_of(lengths, positions), window, causal, 0.0)
        assert actual.dtype == dtype and actual.shape == q.shape
        where = f"window={window}, causal={causal}, positions {positions}"
        found = [actual, *torch.autograd.grad(actual, (q, k, v), grad)]
        for part, *pair in zip(("output", *(f"gradient of {x}" for x in "qkv")), found, expected):
            close(*pair, dtype, f"{where}, {part}")


@functools.cache
def expected_of(name, dtype, window, causal, positions) -> list[torch.Tensor]:
    """Queries, keys, values and the gradient of the output; the output, and the gradients of the first three."""
    lengths = LENGTHS[name]
    q, k, v = random_qkv(sum(lengths), dtype)
    grad = torch.randn(q.shape).to(dtype)
    out = by_document(q, k, v, lengths, tokens_of(lengths, positions).positions, window, causal)
    return [q, k, v, grad, out.detach(), *torch.autograd.grad(out, (q, k, v), grad.double())]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("step", [5, 64])
@pytest.mark.parametrize("name", ["mixed", "long"])
def test_chunked_attention_against_the_formula(name, step, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "UNFUSED_QUERIES", step)
    monkeypatch.setattr(cpu, "choose_cpu_kernel", lambda *args: chunked_attention)
    lengths = LENGTHS[name]
    q, k, v = (x.detach() for x in random_qkv(sum(lengths), dtype))
    for window, causal, positions in itertools.product(
        [None, 4, 64], [False, True], ["counted", "gaps"]
    ):
        tokens = tokens_of(lengths, positions)
        expected = by_document(q, k, v, lengths, tokens.positions, window, causal)
        where = f"window={window}, causal={causal}, positions {positions}"
        close(KERNELS["documents"](q, k, v, tokens, window, causal, 0.0), expected, dtype, where)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 300])
@torch.no_grad()
def test_bf16_without_amx_and_fp32_on_amd_take_plain_products(window, causal, dtype, monkeypatch):
    """In inference (fp32 for long documents): the same comes out as on other processors, within the tolerance."""
    if not cpu.FUSED_DTYPES:
        pytest.skip("this torch, or this processor, has no oneDNN in bf16")
    monkeypatch.setattr(cpu, "UNFUSED_QUERIES", 256)
    short = (
        []
        if dtype == torch.float32
        else [[100, 400, 200], [20, 30, 600], [300] + [100] * 7, [9] * 30]
    )
    for lengths in ([700], *short):
        q, k, v = (x.detach() for x in random_qkv(sum(lengths), dtype))
        expected = by_document(q, k, v, lengths, tokens_of(lengths).positions, window, causal)
        for plain in (True, False):
            monkeypatch.setattr(cpu, "BF16_WITHOUT_AMX", plain)
            monkeypatch.setattr(cpu, "FUSED_DTYPES", {dtype} if plain else set())
            sdpa = torch.nn.functional.scaled_dot_product_attention
            with mock.patch.object(dispatch.F, "scaled_dot_product_attention", wraps=sdpa) as spy:
                actual = planned(q, k, v, tokens_of(lengths), window, causal)
            close(actual, expected, dtype, f"{lengths}, plain={plain}")
            assert spy.called != plain


def close(actual, expected, dtype, where):
    tolerance = TOLERANCE[dtype]
    said = lambda text: f"{where}: {text}"  # noqa: E731
    assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance, msg=said)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_kernels_take_what_the_layer_hands_over(dtype):
    """Views of one fused projection: no kernel may rely on contiguous memory, nor write into it."""
    lengths = LENGTHS["mixed"]
    tokens = tokens_of(lengths)
    torch.manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, HEADS, HEAD_WIDTH).to(dtype)
    q, k, v = qkv.clone().requires_grad_().unbind(1)
    assert not q.is_contiguous()
    for kernel, window in itertools.product(KERNELS, [None, 4]):
        if (kernel, window) != ("blocks", None):
            actual = KERNELS[kernel](q, k, v, tokens, window, False, 0.0)
            close(
                actual,
                by_document(q, k, v, lengths, tokens.positions, window, False),
                dtype,
                kernel,
            )
    assert torch.equal(torch.stack([q, k, v], 1), qkv)


def test_cost_of_local_layers_does_not_grow_with_the_square(monkeypatch):
    """Scores that are computed: a constant number of keys a query, whatever the length."""
    pairs = []

    def counting(q, k, v, bias, is_causal, dropout):
        pairs.append(q[..., 0].numel() * k.shape[-2])
        return unfused_attention(q, k, v, bias, is_causal, dropout)

    monkeypatch.setattr(cpu, "choose_cpu_kernel", lambda *args: counting)
    for tokens in (2048, 8192):
        q, k, v = random_qkv(tokens, torch.float32)
        planned(q, k, v, tokens_of([tokens]), window=64)
    assert pairs[1] == 4 * pairs[0] and pairs[0] <= HEADS * 2048 * 4 * 64


# --- which kernel ---

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    "device, capability, dtype, head_width, window, positions, dropout, expected",
    [
        ("cpu", None, FP32, 64, None, "counted", 0.0, "one call a document (sdpa)"),
        ("cpu", None, BF16, 64, None, "counted", 0.0, "one call a document (unfused_attention)"),
        ("cpu", None, FP32, 64, None, "counted", 0.1, "one call a document (unfused_attention)"),
        ("cpu", None, BF16, 64, 8, "counted", 0.1, "blocks of queries (unfused_attention)"),
        ("cpu", None, FP32, 64, 200, "counted", 0.0, "one call a document (sdpa)"),
        ("cpu", None, FP32, 64, 8, "falling", 0.0, "one call a document (sdpa)"),
        ("cuda", 8, BF16, 64, None, "counted", 0.0, "flash attention"),
        ("cuda", 9, FP16, 64, 8, "counted", 0.1, "flash attention"),
        ("cuda", 8, FP32, 64, None, "counted", 0.0, "one packed call"),
        ("cuda", 8, FP32, 64, 8, "counted", 0.0, "blocks of queries"),
        ("cuda", 7, FP16, 64, None, "counted", 0.0, "one packed call"),
        ("cuda", 7, BF16, 64, 8, "counted", 0.0, "blocks of queries"),
        ("cuda", 8, BF16, 20, None, "counted", 0.0, "one packed call"),
        ("cuda", 8, BF16, 264, 8, "counted", 0.0, "blocks of queries"),
        # distances that flash attention does not know
        ("cuda", 8, BF16, 64, 8, "gaps", 0.0, "blocks of queries"),
        ("cuda", 8, BF16, 64, None, "gaps", 0.0, "flash attention"),
        ("cuda", 8, BF16, 64, 8, "falling", 0.0, "one packed call"),
        ("cuda", 8, BF16, 64, None, "falling", 0.0, "flash attention"),
        ("mps", None, FP16, 64, None, "counted", 0.0, "one packed call"),
        ("mps", None, FP32, 64, 8, "counted", 0.1, "blocks of queries"),
    ],
)
def test_which_dispatch_is_taken(
    device, capability, dtype, head_width, window, positions, dropout, expected, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (capability, 0))
    tokens = tokens_of([150, 20], positions)
    tokens.order  # noqa: B018 - found where the tensors really are
    tokens.device = torch.device(device)
    if device != "cpu":
        for dispatch_class in (
            dispatch.AttentionDispatch,
            dispatch.RowsDispatch,
            dispatch.BlocksDispatch,
            dispatch.FlashDispatch,
        ):
            monkeypatch.setattr(dispatch_class, "prepare", lambda self: None)
    chosen = choose_dispatch(tokens, window, False, dropout, dtype, head_width)
    assert chosen.description == expected


def test_a_compiled_model_may_ask_what_the_gpu_can_do(monkeypatch):
    """torch.compile has no rule for `get_device_capability`."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: divmod(90, 10))
    ask = torch.compile(
        lambda x: x + attention._has_flash_attention(x.device), fullgraph=True, backend="eager"
    )
    assert ask(torch.zeros(1)) == 1


@pytest.mark.parametrize("window", [None, 4])
def test_nothing_but_padding_needs_no_kernel_of_a_device(window):
    """Which would be asked for no token at all."""
    tokens = BatchDocuments(2, 9, torch.device("cpu"), torch.zeros(2, 9)).find_tokens()
    tokens.order  # noqa: B018 - found where the tensors really are
    tokens.device = torch.device("mps")
    plan = choose_dispatch(tokens, window, False, 0.0, torch.float32, 8)
    assert plan.name == "no tokens"
    nothing = torch.zeros(0, 2, 8)
    assert plan.attend(nothing, nothing, nothing).shape == nothing.shape


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 4])
def test_flash_attention_is_called_as_torch_calls_it(window, causal, monkeypatch):
    """Left and right neighbours, -1 for all, and a causal switch besides."""

    def stand_in(q, k, v, bounds, bounds_k, max_q, max_k, dropout, causal, debug, **sides):
        lengths = bounds.diff().tolist()
        assert bounds.dtype == torch.int32 and torch.equal(bounds, bounds_k)
        assert max_q == max_k >= max(lengths) and dropout == 0.0 and not debug
        left, right = sides["window_size_left"], 0 if causal else sides["window_size_right"]
        parts = []
        for qkv in zip(*(x.split(lengths) for x in (q, k, v))):
            i = torch.arange(len(qkv[0]))
            distance = i.unsqueeze(1) - i
            seen = (distance <= left) | torch.tensor(left < 0)
            parts.append(formula(*qkv, seen & ((-distance <= right) | torch.tensor(right < 0))))
        return torch.cat(parts), None

    monkeypatch.setattr(dispatch, "FLASH_ATTENTION", stand_in)
    lengths = LENGTHS["mixed"]
    tokens = tokens_of(lengths)
    q, k, v = (x.detach() for x in random_qkv(sum(lengths), torch.float32))
    out = of(dispatch.FlashDispatch)(q, k, v, tokens, window, causal, 0.0)
    close(
        out,
        by_document(q, k, v, lengths, tokens.positions, window, causal),
        torch.float32,
        "flash",
    )


def test_this_torch_has_the_operator_with_gradients():
    """Its name has an underscore: it may change. On the meta device it computes shapes only."""
    q = torch.randn(10, 2, 16, device="meta", requires_grad=True)
    bounds = torch.zeros(3, dtype=torch.int32, device="meta")
    plan = dispatch.FlashDispatch.__new__(dispatch.FlashDispatch)
    plan.cu_seq_lens = bounds
    plan.max_length = 5
    plan.window_sizes = dict(window_size_left=4, window_size_right=0)
    plan.num_tokens = 10
    plan.dropout = 0.1
    plan.causal = True
    plan.attend(q, q, q).sum().backward()
    assert q.grad.shape == q.shape


# --- dropout ---


@pytest.mark.parametrize("kernel", ["planned", "documents", "blocks", "eager"])
def test_attention_dropout_is_unbiased_and_has_the_rate(kernel):
    """One document many times over. Each weight p is p / (1 - r) with probability 1 - r, else 0, and drawn alone: the
    mean is the output without dropout, the variance of an output is r / (1 - r) · Σ p² v²."""
    copies, length, rate, window = 400 if kernel == "eager" else 3000, 5, 0.25, 2
    torch.manual_seed(0)
    q, k, v = torch.randn(3, length, HEADS, HEAD_WIDTH)
    position = torch.arange(length)
    seen = (position.unsqueeze(1) - position).abs() <= window
    expected = formula(q, k, v, seen)
    probs = (
        (torch.einsum("qhd,khd->hqk", q, k) / HEAD_WIDTH**0.5)
        .masked_fill(~seen, float("-inf"))
        .softmax(-1)
    )
    variance = torch.einsum("hqk,khd->qhd", probs**2, v**2) * rate / (1 - rate)
    tokens = tokens_of([length] * copies)
    repeated = [x.repeat(copies, 1, 1) for x in (q, k, v)]
    draws = KERNELS[kernel](*repeated, tokens, window, False, rate).unflatten(0, (copies, length))
    error = (variance / copies).sqrt()
    assert ((draws.mean(0) - expected).abs() < 5 * error + 1e-4).all()
    ratio = draws.var(0) / variance  # over a sum of few draws, of which each counts
    assert abs(ratio.mean().item() - 1) < 0.05


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_drops_in_training_alone(implementation):
    """And not in layers that stay in evaluation mode while the others train."""
    config = tiny(attention_dropout=0.5, attn_implementation=implementation)
    model, x = MiniBertModel(config).eval(), torch.randn(2, 6, config.hidden_size)
    expected = model(inputs_embeds=x).last_hidden_state
    assert not torch.equal(model.train()(inputs_embeds=x).last_hidden_state, expected)
    model.layers.eval()
    assert torch.equal(model(inputs_embeds=x).last_hidden_state, expected)
    for module in model.train().modules():  # the usual way to switch it off
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert torch.equal(model(inputs_embeds=x).last_hidden_state, expected)
    model = MiniBertModel(config).eval()
    expected = model(inputs_embeds=x).last_hidden_state
    for layer in (
        model.layers
    ):  # Monte Carlo dropout (Gal & Ghahramani 2016) has nothing else in training mode
        layer.attn.dropout.train()
    assert not torch.equal(model(inputs_embeds=x).last_hidden_state, expected)
    for layer in model.train().layers:
        layer.attn.dropout = layer.dropout = torch.nn.Identity()
    assert torch.equal(model(inputs_embeds=x).last_hidden_state, expected)


class Bounds(NamedTuple):
    start: torch.Tensor
    length: int


def test_what_is_moved_keeps_its_type():
    parts = [torch.zeros(1), (torch.zeros(2), 3), Bounds(torch.zeros(3), 4), "text"]
    tensor, pair, bounds, text = dispatch.move_to(parts, torch.device("meta"))
    assert tensor.device.type == pair[0].device.type == bounds.start.device.type == "meta"
    assert pair[1] == 3 and bounds.length == 4 and text == "text"


def test_a_keyword_of_the_caller_does_not_replace_what_is_decided():
    config = tiny(attn_implementation="eager")
    layer_input = PaddedRows(BatchDocuments(2, 5, torch.device("cpu")).find_tokens())
    kwargs = dict(backend="sdpa", sliding_window=99, keyword_of_somebody=1)
    arguments = attention.attention_arguments(
        layer_input, torch.zeros(2, 5, 8), 3, False, 0.0, config, kwargs
    )
    assert arguments["backend"] == "eager"
    assert arguments["sliding_window"] == 4
    assert arguments["keyword_of_somebody"] == 1
