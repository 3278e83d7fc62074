"""MiniBERT on a GPU: equal to the CPU in fp32, without leaks between sequences, waits for the
device, or recompilation.

Only the model, the collator and Muon are used, which need no `datasets`.
"""

import contextlib
import copy
import functools
import itertools
import signal

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments

import minibert
from minibert import MaskedLMCollator, MiniBertConfig, attention_minibert
from minibert.attention_minibert import choose_dispatch
from minibert.sequences_minibert import BatchDocuments

VOCAB, LABELS, LENGTH, WINDOW = 61, 3, 48, 8
SIZES = dict(
    vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
    intermediate_size=96, max_position_embeddings=8192, initializer_range=0.05, num_labels=LABELS,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
PRESETS = {
    "bert": {},
    "modernbert": dict(local_attention=WINDOW),
    "minibert": dict(local_attention=6),
}
HEADS = [
    name for name in minibert.__all__ if name == "MiniBertModel" or name.startswith("MiniBertFor")
]
# Largest difference allowed, as a share of the largest number of the reference.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
LAYOUTS = ("right", "left", "packed", "seq_idx", "cu_seq_lens")
STARTS = torch.tensor([0, 11, 13, 30])


def build(head: str, preset: str, **fields):
    torch.manual_seed(0)
    return getattr(minibert, head)(
        getattr(MiniBertConfig, preset)("tiny", **SIZES | PRESETS[preset] | fields)
    )


def inputs(layout: str, rows: int = 3, length: int = LENGTH) -> dict[str, torch.Tensor | int]:
    batch = dict(input_ids=torch.randint(8, VOCAB, (rows, length)))
    columns, lengths = (
        torch.arange(length),
        torch.tensor([length, length // 2, 1] * rows)[:rows, None],
    )
    sequence = torch.bucketize(columns, STARTS, right=True)
    if layout in ("right", "left"):
        batch["attention_mask"] = (
            (columns < lengths) if layout == "right" else (columns >= length - lengths)
        ).long()
    elif layout == "packed":
        batch["position_ids"] = (columns - STARTS[sequence - 1]).expand(rows, length)
    elif layout == "seq_idx":
        batch["seq_idx"] = sequence.expand(rows, length)
    else:
        bounds = torch.tensor(
            [0, *(row * length + start for row in range(rows) for start in STARTS)]
        )[1:]
        bounds = torch.cat((bounds, torch.tensor([rows * length]))).int()
        batch["input_ids"] = batch["input_ids"].view(1, -1)
        batch |= dict(
            cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=length, max_length_k=length
        )
    return batch


def with_labels(head: str, batch: dict, layout: str) -> dict:
    shape = batch["input_ids"].shape
    sequences = len(STARTS) * 3 if layout in ("packed", "seq_idx", "cu_seq_lens") else shape[0]
    if head in ("MiniBertForMaskedLM", "MiniBertForPreTraining", "MiniBertForCausalLM"):
        labels = torch.where(torch.rand(shape) < 0.4, torch.randint(VOCAB, shape), -100)
    elif head in ("MiniBertForTokenClassification", "MiniBertForReplacedTokenDetection"):
        labels = torch.randint(2, shape)
    else:
        labels = torch.randint(2, (sequences,))
    if head == "MiniBertForMultipleChoice":
        shaped = {name: torch.stack((x, x), 1) for name, x in batch.items()}
        shaped["input_ids"][:, 1] = torch.randint(8, VOCAB, shape)
        return shaped | dict(labels=labels)
    if head == "MiniBertForQuestionAnswering":
        return batch | dict(
            start_positions=torch.zeros(shape[0]).long(), end_positions=torch.ones(shape[0]).long()
        )
    if head == "MiniBertForPreTraining":
        return batch | dict(labels=labels, next_sentence_label=torch.randint(2, (sequences,)))
    return batch if head == "MiniBertModel" else batch | dict(labels=labels)


def to(device: torch.device, batch: dict) -> dict:
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in batch.items()}


def outputs_and_gradients(model, batch: dict) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        found = {name: x for name, x in model.eval()(**batch).items() if x.is_floating_point()}
    outputs = model.train()(**batch)
    loss = outputs.loss if "loss" in outputs else outputs.last_hidden_state.float().pow(2).mean()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    found |= {"training loss": loss} | gradients
    return {name: x.detach().cpu().float() for name, x in found.items()}


def assert_close(name: str, actual: torch.Tensor, expected: torch.Tensor, share: float):
    counted = expected > -1e4  # logits of padding may be the lowest number of their type
    scale = max(float(expected[counted].abs().max()) if counted.any() else 0.0, 1e-2)
    worst = float((actual - expected)[counted].abs().max()) if counted.any() else 0.0
    assert worst <= share * scale, f"{name}: differs by {worst:.2e}, largest {scale:.2e}"


@functools.cache
def reference(
    head: str, preset: str, layout: str
) -> tuple[torch.nn.Module, dict, dict[str, torch.Tensor]]:
    """A model, a batch, and what it computes on the CPU in fp32."""
    model = build(head, preset)
    batch = with_labels(head, inputs(layout), layout)
    return model, batch, outputs_and_gradients(copy.deepcopy(model), batch)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("head", HEADS)
def test_outputs_loss_and_gradients_are_those_of_the_cpu(head, preset, dtype, device):
    for layout in LAYOUTS if head != "MiniBertForMultipleChoice" else LAYOUTS[:2]:
        model, batch, expected = reference(head, preset, layout)
        found = outputs_and_gradients(copy.deepcopy(model).to(device, dtype), to(device, batch))
        assert found.keys() == expected.keys()
        expected = expected.copy()
        if (
            dtype != torch.float32
        ):  # small gradients drown in the noise of 16 bits: all as one vector
            names = [name for name in expected if name in model.state_dict()]
            vectors = [
                torch.cat([x.pop(name).flatten() for name in names]) for x in (found, expected)
            ]
            assert (vectors[0] - vectors[1]).norm() <= 3 * TOLERANCE[dtype] * vectors[1].norm(), (
                layout
            )
        for name, value in expected.items():
            assert_close(f"{layout}, {name}", found[name], value, TOLERANCE[dtype])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_who_sees_whom(dtype, causal, device):
    """Token i depends on token j only if both are in one sequence, at most half a window apart."""
    fields = dict(num_hidden_layers=1, layer_types=["sliding_attention"], is_causal=causal)
    model = build("MiniBertModel", "modernbert", **fields).to(device, dtype).eval()
    position = torch.cat([torch.arange(n) for n in (5, 9, 2, 16)])
    sequence = torch.repeat_interleave(torch.arange(4), torch.tensor([5, 9, 2, 16]))
    states = torch.randn(1, 32, 64, device=device, dtype=dtype, requires_grad=True)
    outputs = model(inputs_embeds=states, position_ids=position[None].to(device)).last_hidden_state
    weights = torch.randn(
        64, device=device, dtype=dtype
    )  # a norm makes the sum of squares a constant
    for i in range(32):
        (gradient,) = torch.autograd.grad(
            (outputs[0, i] * weights).sum(), states, retain_graph=True
        )
        distance = position[i] - position
        seen = (
            (sequence == sequence[i])
            & (distance.abs() <= WINDOW // 2)
            & ((distance >= 0) | (not causal))
        )
        assert torch.equal(gradient[0].abs().sum(1).cpu() > 0, seen), i


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_leaks_between_packed_sequences(preset, dtype, device):
    model = build("MiniBertModel", preset).to(device, dtype).eval()
    batch = to(device, inputs("cu_seq_lens"))
    changed = batch | dict(input_ids=batch["input_ids"].clone())
    changed["input_ids"][0, 13:30] = 9
    with torch.no_grad():
        before, after = (model(**x).last_hidden_state[0] for x in (batch, changed))
    assert torch.equal(before[:13], after[:13]) and torch.equal(before[30:], after[30:])
    assert not torch.equal(before[13:30], after[13:30])


def test_attention_dropout_is_unbiased(cuda):
    bounds = torch.tensor([0, 15, 40], device=cuda)
    tokens = BatchDocuments(1, 40, cuda, cu_seq_lens=bounds, max_length=25).find_tokens()
    q, k, v = torch.randn(3, 40, 4, 32, device=cuda, dtype=torch.bfloat16)
    plans = [choose_dispatch(tokens, None, False, rate, q.dtype, 32) for rate in (0.0, 0.3)]
    assert {plan.name for plan in plans} == {"flash attention"}
    expected, draws = (
        plans[0].attend(q, k, v),
        torch.stack([plans[1].attend(q, k, v) for _ in range(500)]),
    )
    assert not torch.equal(draws[0], draws[1])
    assert (draws.float().mean(0) - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize("preset", PRESETS)
def test_without_the_operator_of_flash_attention_the_same_is_computed(preset, cuda, monkeypatch):
    """Its name is private and may go: SDPA over packed rows and blocks is the net."""
    batch = to(cuda, with_labels("MiniBertForMaskedLM", inputs("cu_seq_lens"), "cu_seq_lens"))
    model = build("MiniBertForMaskedLM", preset).to(cuda, torch.bfloat16)
    expected = outputs_and_gradients(copy.deepcopy(model), batch)
    monkeypatch.setattr(attention_minibert, "FLASH_ATTENTION", None)
    names = set()
    for layer in model.model.layers:
        layer.register_forward_pre_hook(
            lambda _, args, arguments: names.add(arguments["dispatch"].name), with_kwargs=True
        )
    with torch.no_grad():
        model.model(batch["input_ids"], padded_output=False)
    assert names and "flash attention" not in names
    actual = outputs_and_gradients(model, batch)
    vectors = []
    for results in (actual, expected):
        gradients = [results[name].flatten() for name in results if name in model.state_dict()]
        vectors.append(torch.cat(gradients))
    tolerance = TOLERANCE[torch.bfloat16]
    assert (vectors[0] - vectors[1]).norm() <= 3 * tolerance * vectors[1].norm()
    for name in ("logits", "training loss"):
        assert_close(name, actual[name], expected[name], tolerance)


@pytest.mark.parametrize("preset", PRESETS)
def test_padding_alone_and_empty_rows(preset, device):
    model = build("MiniBertForMaskedLM", preset).to(device, torch.bfloat16)
    ids, mask = (
        torch.full((2, 16), 9, device=device),
        torch.zeros(2, 16, dtype=torch.long, device=device),
    )
    for tokens in (0, 3):
        mask[0, :tokens] = 1
        labels = torch.where(mask > 0, ids, -100)
        outputs = model(ids, attention_mask=mask, labels=labels)
        outputs.loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        logits = model.eval()(ids, attention_mask=mask).logits
        assert logits.isfinite().all()


def packed_row(lengths: list[int], device: torch.device, share: float = 0.2) -> dict:
    """What the collator of packed training hands over, masks included."""
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    ids = torch.randint(8, VOCAB, (1, sum(lengths)))
    labels = torch.where(torch.rand(ids.shape) < share, ids, -100)
    labels[0, 0] = 9
    places = (labels[0] != -100).nonzero().squeeze(1)
    batch = dict(
        input_ids=ids,
        labels=labels,
        masked_lm_positions=places,
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
    )
    return to(device, batch | dict(max_length_q=max(lengths), max_length_k=max(lengths)))


def test_memory_is_linear_in_the_length(cuda):
    peaks = []
    model = build("MiniBertForMaskedLM", "modernbert").to(cuda)
    for length in (2048, 4096, 8192):
        batch = packed_row([length], cuda)
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16):
            model(**batch).loss.backward()
        model.zero_grad()
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[2] - peaks[1] < 2.2 * (peaks[1] - peaks[0])


def test_a_packed_training_step_does_not_wait_for_the_device(cuda):
    model = build("MiniBertForMaskedLM", "modernbert").to(cuda)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batch = packed_row([100, 30, 300, 82], cuda)
    for mode in ("default", "error"):  # the first step may set up what it needs
        torch.cuda.set_sync_debug_mode(mode)
        try:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextlib.contextmanager
def skip_after(seconds: float, reason: str):
    """Skip the test if it takes longer: compiling for a GPU may take minutes, and a borrowed one is
    lent for few."""

    def skip(signum, frame):
        pytest.skip(f"{reason} took more than {seconds:g} seconds")

    previous = signal.signal(signal.SIGALRM, skip)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_a_compilation_that_takes_too_long_is_skipped_with_its_reason():
    def compile_slowly(graph, inputs):
        while True:
            pass

    function = torch.compile(lambda x: x + 1, backend=compile_slowly)
    with (
        pytest.raises(pytest.skip.Exception, match="compiling took more than 0.5 seconds"),
        skip_after(0.5, "compiling"),
    ):
        function(torch.ones(2))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "preset, part", [("bert", "layers"), ("minibert", "layers"), ("minibert", "model")]
)
def test_compiled_code_serves_every_length(preset, part, device):
    try:
        with skip_after(120, f"compiling {part} of {preset}"):
            compare_compiled(preset, part, device)
    finally:
        torch._dynamo.reset()


def compare_compiled(preset, part, device):
    """Losses and gradients of a compiled model, and whether it is compiled again for new
    lengths."""
    model = build("MiniBertForMaskedLM", preset).to(device)
    torch._dynamo.reset()
    backend, count = ("inductor", 20) if device.type == "cuda" else ("aot_eager", 4)
    compiled = copy.deepcopy(model)
    for each in [compiled] if part == "model" else compiled.model.layers:
        each.compile(fullgraph=True, dynamic=True, backend=backend)
    batches = [packed_row([40 + 8 * i, 17, 100 + i], device) for i in range(count)]
    for number, batch in enumerate(batches):
        if number == 2:  # the first shapes may be special
            counters.clear()
        losses = []
        for each in (model, compiled):
            each.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                losses.append(each(**batch).loss)
            losses[-1].backward()
        assert_close("loss", losses[1].cpu(), losses[0].cpu(), 1e-2)
        expected = dict(model.named_parameters())
        for name, parameter in compiled.named_parameters():
            if parameter.grad is not None:
                assert_close(name, parameter.grad.cpu(), expected[name].grad.cpu(), 5e-2)
    assert not counters["stats"].get("unique_graphs")


def test_gradient_checkpointing_changes_nothing(device):
    model = build("MiniBertForMaskedLM", "modernbert").to(device).train()
    batch, found = packed_row([100, 30, 300, 82], device), []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(**batch).loss.backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for (name, _), a, b in zip(model.named_parameters(), *found):
        assert_close(name, b, a, 1e-5)


def test_muon_steps_as_on_the_cpu(device):
    muon = pytest.importorskip("minibert.training.optimization.muon")
    ends = []
    for where in (torch.device("cpu"), device):
        model = build("MiniBertForMaskedLM", "modernbert").to(where)
        decayed = [name for name, p in model.named_parameters() if p.dim() > 1]
        options = dict(learning_rate=1e-3, muon_learning_rate=1e-2, weight_decay=0.1)
        optimizer = muon.muon_optimizer(model, decayed, **options)
        for name, p in sorted(model.named_parameters()):
            torch.manual_seed(len(name))
            p.grad = torch.randn(p.shape).to(where)
        optimizer.step()
        ends.append({name: p.detach().cpu() for name, p in model.named_parameters()})
    for name, expected in ends[0].items():
        assert_close(
            name, ends[1][name], expected, 5e-2
        )  # Muon multiplies in bf16 where that is fast


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models

    vocabulary = {name: i for i, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
    vocabulary |= {f"w{i}": i for i in range(5, VOCAB)}
    names = dict(
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "[UNK]")), **names
    )


def test_a_resumed_training_is_the_same(tokenizer, device, tmp_path):
    """Not to the last bit: attention's backward and index_add add in any order on a GPU."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(160):
        lengths = torch.randint(3, 30, (3,), generator=generator).tolist()
        ids = torch.randint(5, VOCAB, (sum(lengths),), generator=generator).tolist()
        rows.append(
            dict(input_ids=ids, position_ids=[i for length in lengths for i in range(length)])
        )
    ends = []
    for name, resume in (("whole", None), ("resumed", str(tmp_path / "whole" / "checkpoint-10"))):
        arguments = TrainingArguments(
            str(tmp_path / name), max_steps=20, per_device_train_batch_size=8, learning_rate=1e-3,
            save_steps=10, bf16=device.type == "cuda", use_cpu=device.type == "cpu",
            report_to="none", disable_tqdm=True, seed=3, remove_unused_columns=False,
            logging_steps=20, dataloader_pin_memory=device.type == "cuda",
        )  # fmt: skip
        collator = MaskedLMCollator(tokenizer, seed=0, unpadded=True)
        trainer = Trainer(
            build("MiniBertForMaskedLM", "minibert"), arguments, collator, train_dataset=rows
        )
        trainer.train(resume_from_checkpoint=resume)
        ends.append({name: p.detach().cpu() for name, p in trainer.model.named_parameters()})
    for name, expected in ends[0].items():
        assert_close(name, ends[1][name], expected, 1e-2 if device.type == "cuda" else 1e-6)
