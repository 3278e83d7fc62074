"""What must hold for any encoder of Transformers: functions of a model that give a number, and what it was measured on.

The number must not exceed the check's limit. Nothing is compared with what the model itself gives in the same way: a
batch with each text alone, a loss with its formula, weights with what `_init_weights` makes of each module.
"""

import copy
import inspect
import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import transformers
from encoder_texts import (
    CHOICES,
    TOKEN_KINDS,
    Layout,
    NotApplicable,
    Texts,
    by_text,
    difference,
    first_position,
    from_batch,
    from_texts_alone,
    gradients,
    inputs_for,
    kind_of,
    labels_for,
    make_layouts,
    takes,
    texts_for,
    values,
    worst,
)  # fmt: skip
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

import minibert
from minibert.training.loading.load_errors import suppress_logging


def check_layout(model: PreTrainedModel, name: str) -> tuple[float, str]:
    """Outputs, loss and gradients of texts in a layout against those of each text alone."""
    texts = texts_for(model)
    layout = make_layouts(texts)[name]
    how, parameters = layout.how, inspect.signature(model.forward).parameters
    any_keyword = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    if how == "cu_seq_lens" and not (any_keyword or "cu_seq_lens_q" in parameters):
        raise NotApplicable("takes no cu_seq_lens_q")
    if how in ("position_ids", "seq_idx") and how not in parameters:
        raise NotApplicable(f"takes no {how}")
    if how != "mask" and kind_of(model) in ("QuestionAnswering", "MultipleChoice"):
        raise NotApplicable("one answer a row, however many documents it holds")
    try:
        found = from_batch(model, texts, layout)
    except (ValueError, RuntimeError, TypeError, IndexError) as error:
        if how == "mask":
            raise
        raise NotApplicable(f"refuses it: {' '.join(str(error).split())[:80]}") from error
    expected = from_texts_alone(model, texts)
    value, where = worst(difference(found, expected))
    note = f"largest in the {where}"
    if name == "left" and value > SAME and "position_ids" in parameters:
        positions = inputs_for(model, texts, Layout(layout.rows, "position_ids"))["position_ids"]
        said = from_batch(model, texts, layout, position_ids=positions)
        note += f"; with position_ids {worst(difference(said, expected))[0]:.1e}"
    return value, note


def check_positions(model: PreTrainedModel, shift: int) -> tuple[float, str]:
    """Position ids that say what is counted anyway, or that are all shifted, change nothing."""
    if not takes(model, "position_ids") or kind_of(model) == "MultipleChoice":
        raise NotApplicable("takes no position_ids")
    absolute = getattr(model.config, "position_embedding_type", None) in ("absolute", "sinusoidal")
    if shift and (
        absolute or any("position_embedding" in name for name, _ in model.named_parameters())
    ):
        raise NotApplicable("its positions are absolute")
    texts, start = texts_for(model), first_position(model)
    layout = Layout([texts.cells(0)])
    positions = torch.arange(texts.lengths[0])[None] + start + shift
    said, counted = (
        from_batch(model, texts, layout, **given) for given in (dict(position_ids=positions), {})
    )
    return worst(difference(said, counted))[0], f"position_ids from {start + shift} on"


def check_embeddings(model: PreTrainedModel) -> tuple[float, str]:
    """The vectors of tokens give what the tokens give, under padding on either side."""
    if not takes(model, "inputs_embeds"):
        raise NotApplicable("takes no inputs_embeds")
    texts, found = texts_for(model), {}
    for side in ("right", "left"):
        layout = make_layouts(texts)[side]
        inputs = inputs_for(model, texts, layout)
        vectors = model.get_input_embeddings()(inputs["input_ids"])
        given = {name: x for name, x in inputs.items() if name != "input_ids"} | {
            "inputs_embeds": vectors
        }
        with torch.no_grad():
            results = [
                by_text(kind_of(model), model.eval()(**each), layout) for each in (given, inputs)
            ]
        found[side] = worst(difference(*results))[0]
    value, side = worst(found)
    return value, f"padding {side}"


def check_no_target(model: PreTrainedModel, **keywords: Any) -> tuple[float, str]:
    """A step in which nothing has a label: a loss of 0, and gradients of 0."""
    kind, texts = kind_of(model), texts_for(model)
    layout = make_layouts(texts)["right"]
    labels = labels_for(kind, texts, layout)
    if not labels:
        raise NotApplicable("no loss")
    if labels.get("labels", texts.one).is_floating_point():
        raise NotApplicable("values have no -100")
    if kind == "Detection" and "minibert" not in type(model).__module__:
        raise NotApplicable("every real token has a label")
    nothing = (
        10_000 if kind == "QuestionAnswering" else -100
    )  # positions behind the text do not count
    model.train().zero_grad()
    labels = {name: torch.full_like(value, nothing) for name, value in labels.items()}
    loss = model(**inputs_for(model, texts, layout), **labels, **keywords).loss
    loss.backward()
    gradient = gradients(model).abs().max().item()
    model.eval().zero_grad()
    return worst({"loss": abs(loss.item()), "gradients": gradient})[
        0
    ], f"loss {loss.item():g}, gradient {gradient:g}"


def check_accumulation(
    model: PreTrainedModel,
    texts: Texts | None = None,
    sizes: Sequence[int] = (8, 2, 1),
    collator: Any = None,
) -> tuple[float, str]:
    """The weights after one step of `Trainer` (plain SGD), in micro-batches of so many texts, against those after a
    step of the loss's formula over all texts.

    Args:
        texts: eight of one length; by default with unequal numbers of targets.
    """
    kind, rate = kind_of(model), 0.5
    texts = texts or texts_for(model, lengths=[12] * 8)
    layout = Layout([texts.cells(i) for i in range(8)])
    if kind == "Model":
        raise NotApplicable("no loss")
    columns = inputs_for(model, texts, layout) | labels_for(kind, texts, layout)
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    expected = -rate * from_texts_alone(model, texts)["gradients"]
    found, note = {}, ""
    per_row = CHOICES if kind == "MultipleChoice" else 1
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    for size in sorted({max(1, size // per_row) for size in sizes}, reverse=True):
        steps = 8 // per_row // size
        trained = copy.deepcopy(model)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, use_cpu=True, optim="sgd", learning_rate=rate, lr_scheduler_type="constant", max_steps=1,
                max_grad_norm=0.0, per_device_train_batch_size=size, gradient_accumulation_steps=steps,
                save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
                remove_unused_columns=False, seed=3,
            )  # fmt: skip
            trainer = Trainer(trained, arguments, collator, rows)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        change = torch.cat([p.detach().flatten() for p in trained.parameters()]) - before
        found[f"{steps} micro-batches"] = ((change - expected).norm() / expected.norm()).item()
        note = f"a step of {steps} micro-batches is {(change.norm() / expected.norm()).item():.3f} times as long"
    return worst(found)[0], note


# --- initialisation ---


def deviation(values: Tensor, std: float) -> float:
    """How far the standard deviation and the mean of values are from `std` and 0, in standard errors."""
    values, count = values.detach().double().flatten(), values.numel()
    if count < 2:
        return 0.0
    of_std = abs(values.std().item() / std - 1) * math.sqrt(2 * count)
    return max(of_std, abs(values.mean().item()) / std * math.sqrt(count))


def check_initialisation(model: PreTrainedModel, lacking: bool) -> tuple[float, str]:
    """Every weight of a new model, or of what a checkpoint lacks (built in memory that is full of NaN), has the
    standard deviation that the class's `_init_weights` gives it, called for one module after the other.

    The number is the largest deviation in standard errors; infinite where a weight was not initialised at all.
    """
    torch.manual_seed(0)
    new = type(model)(copy.deepcopy(model.config))
    expected = dict(_initialised_by_hand(new).named_parameters())
    if lacking:
        with tempfile.TemporaryDirectory() as folder:
            kept = next(name for name, p in new.named_parameters() if p.dim() == 1)
            new = load_without(new, folder, lambda name: name != kept)
    found = {}
    for name, parameter in new.named_parameters():
        wanted = expected[name].detach()
        if not parameter.isfinite().all():
            found[name] = math.inf
        elif torch.equal(parameter, wanted):  # norms, biases, fixed tables
            found[name] = 0.0
        elif wanted.std(correction=0) == 0:
            found[name] = math.inf
        else:
            zero = (
                wanted == 0 if wanted.dim() < 2 else ~wanted.flatten(1).any(1)
            )  # the row of the padding
            alike = deviation(
                parameter[~zero] - wanted[~zero].mean(), wanted[~zero].double().std().item()
            )
            found[name] = math.inf if parameter[zero].any() else alike
    value, name = worst(found)
    std, wanted = (each.std(correction=0) for each in (new.get_parameter(name), expected[name]))
    return value, f"{name}: std {std:.4f}, expected {wanted:.4f}"


def _initialised_by_hand(model: PreTrainedModel) -> PreTrainedModel:
    """A twin in which `_init_weights` was called for every module, also where Transformers skips one; nothing tied."""
    twin = copy.deepcopy(model)
    for name in twin.all_tied_weights_keys:
        module, _, last = name.rpartition(".")
        setattr(
            twin.get_submodule(module),
            last,
            nn.Parameter(twin.get_parameter(name).detach().clone()),
        )

    def visit(module: nn.Module, owner: PreTrainedModel):
        for child in module.children():
            visit(child, child if isinstance(child, PreTrainedModel) else owner)
        owner._init_weights(module)

    with torch.no_grad():
        visit(twin, twin)
    return twin


def load_without(
    model: PreTrainedModel, folder: str | Path, lacks: Callable[[str], bool]
) -> PreTrainedModel:
    """The model as it is loaded from a checkpoint that lacks some weights, in memory that is full of NaN."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with suppress_logging():
        model.save_pretrained(folder)
        file = Path(folder) / "model.safetensors"
        save_file(
            {name: x for name, x in load_file(file).items() if not lacks(name)},
            file,
            {"format": "pt"},
        )
        try:  # tensors that nobody wrote to are NaN by torch.utils.deterministic.fill_uninitialized_memory
            torch.use_deterministic_algorithms(True, warn_only=True)
            return type(model).from_pretrained(folder)
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


# --- windows, precision ---


def check_window(model: PreTrainedModel) -> tuple[float, str]:
    """How many distances a local layer sees and should not, or the other way round. `sliding_window` is the half
    window: |i - j| <= sliding_window, as Transformers' masks define it; what is seen is where a gradient arrives."""
    config = model.config
    if "sliding_attention" not in (getattr(config, "layer_types", None) or ()):
        raise NotApplicable("no local layers")
    half, wrong, notes = config.sliding_window, {}, []
    middle, one_layer = (
        half + 4,
        config.to_dict() | dict(num_hidden_layers=1, layer_types=["sliding_attention"]),
    )
    one_layer["max_position_embeddings"] = max(config.max_position_embeddings, 2 * middle + 1)
    for attention in implementations(model):
        small = type(model)(
            type(config).from_dict(one_layer, attn_implementation=attention)
        ).base_model.eval()
        ids = torch.randint(8, config.vocab_size, (1, 2 * middle + 1))
        vectors = small.get_input_embeddings()(ids).detach().requires_grad_()
        small(inputs_embeds=vectors).last_hidden_state[0, middle].square().sum().backward()
        far = [i - middle for i in vectors.grad[0].abs().sum(-1).nonzero().flatten().tolist()]
        allowed = range(-half, 1 if getattr(config, "is_causal", False) else half + 1)
        wrong[attention] = float(len({*far} ^ {*allowed}))
        notes.append(f"{attention} sees {min(far)} … {max(far)}")
    return worst(wrong)[0], f"{', '.join(notes)}; sliding_window {half}"


def implementations(model: PreTrainedModel) -> list[str]:
    return ["eager", "sdpa"] if model._supports_sdpa else ["eager"]


def check_precision(
    model: PreTrainedModel, large: bool, dtypes=(torch.float16, torch.bfloat16), **keywords: Any
) -> tuple[float, str]:
    """Outputs, losses and gradients that are not finite: with rows of padding alone, left and right, or with vectors
    of up to 10,000 instead of tokens."""
    if large and not takes(model, "inputs_embeds"):
        raise NotApplicable("takes no inputs_embeds")
    kind, texts = kind_of(model), texts_for(model, lengths=[10] * 4)
    layout = Layout([texts.cells(i) for i in range(4)])
    inputs, found = inputs_for(model, texts, layout), {}
    labels = labels_for(kind, texts, layout)
    columns = torch.arange(10)
    mask = torch.stack([columns < 0, columns < 6, columns >= 7, columns < 10]).long()
    if not large:
        inputs["attention_mask"] = mask.view(inputs["input_ids"].shape)
        if kind in TOKEN_KINDS:
            labels["labels"][mask == 0] = -100
    for dtype, attention in itertools.product(dtypes, implementations(model)):
        half = copy.deepcopy(model).to(dtype).train()
        half.set_attn_implementation(attention)
        given = dict(inputs)
        if large:
            vectors = half.get_input_embeddings()(given.pop("input_ids")).detach()
            given["inputs_embeds"] = (vectors.float() * (1e4 / vectors.float().abs().max())).to(
                dtype
            )
        outputs = half(**given, **labels, **keywords)
        loss = outputs.loss if labels else sum(x.float().square().mean() for x in values(outputs))
        loss.backward()
        with torch.no_grad():
            shown = [*values(half.eval()(**given, **keywords)), loss, gradients(half)]
        name = f"{str(dtype).removeprefix('torch.')} {attention}"
        found[name] = float(sum((~x.isfinite()).sum().item() for x in shown))
    bad = [name for name, count in found.items() if count]
    return worst(found)[0], f"in {'; '.join(bad)}" if bad else ", ".join(found)


@dataclass
class Check:
    truth: str
    measure: Callable[[PreTrainedModel], tuple[float, str]]
    limit: float  # of what is measured


def _layout(name: str) -> Callable[[PreTrainedModel], tuple[float, str]]:
    return lambda model: check_layout(model, name)


def _initialisation(lacking: bool) -> Callable[[PreTrainedModel], tuple[float, str]]:
    return lambda model: check_initialisation(model, lacking)


SAME, FORMULA = 1e-4, 1e-3
STANDARD_ERRORS = 7.0  # of the difference of two samples; chance passes 5 once in a million times
_PACKED = "Packed documents give what each gives alone, told apart by"
CHECKS = {
    "packed position_ids": Check(
        f"{_PACKED} position_ids", _layout("packed by position_ids, one row"), SAME
    ),
    "packed seq_idx": Check(
        f"{_PACKED} seq_idx", _layout("packed by seq_idx, padding between"), SAME
    ),
    "packed cu_seq_lens": Check(f"{_PACKED} cu_seq_lens", _layout("packed by cu_seq_lens"), SAME),
    "packed mask": Check(f"{_PACKED} a mask of pairs", _layout("packed by a mask of pairs"), SAME),
    "padding right": Check(
        "Texts padded on the right give what each gives alone", _layout("right"), SAME
    ),
    "padding left": Check(
        "Texts padded on the left give what each gives alone", _layout("left"), SAME
    ),
    "positions said": Check(
        "position_ids that count the tokens change nothing", lambda m: check_positions(m, 0), SAME
    ),
    "positions shifted": Check(
        "Nor do they when all are shifted", lambda m: check_positions(m, 7), SAME
    ),
    "inputs_embeds": Check(
        "The vectors of tokens give what the tokens give", check_embeddings, SAME
    ),
    "accumulation": Check(
        "Gradient accumulation gives the step of one batch", check_accumulation, FORMULA
    ),
    "no target": Check("A step without any target has the loss 0", check_no_target, 0.0),
    "new weights": Check(
        "New weights have the spread the class means", _initialisation(False), STANDARD_ERRORS
    ),
    "lacking weights": Check(
        "So have those that a checkpoint lacks", _initialisation(True), STANDARD_ERRORS
    ),
    "window": Check("Local layers see |i - j| <= sliding_window, no more", check_window, 0.0),
    "half precision, padding": Check(
        "No NaN from rows of padding in 16 bits", lambda m: check_precision(m, False), 0.0
    ),
    "half precision, large": Check(
        "No NaN from large inputs in 16 bits", lambda m: check_precision(m, True), 0.0
    ),
}


# --- a model by its name, and the verdict of a check ---


@dataclass
class Finding:
    check: str
    truth: str
    measured: float | None  # None: not applicable
    limit: float
    verdict: str  # "pass", "fail" or "not applicable"
    note: str


def examine(model: PreTrainedModel, name: str) -> Finding:
    """One check of a model; an exception in it is a failure."""
    check = CHECKS[name]
    try:
        measured, note = check.measure(model)
    except NotApplicable as reason:
        return Finding(name, check.truth, None, check.limit, "not applicable", str(reason))
    except Exception as error:
        measured, note = math.inf, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    model.zero_grad()
    verdict = "pass" if measured <= check.limit else "fail"
    return Finding(name, check.truth, measured, check.limit, verdict, note)


# A class's own defaults otherwise; weights large enough for everything to show.
TINY = dict(vocab_size=96, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
            intermediate_size=64, hidden_dim=64, embedding_size=64, max_position_embeddings=64, local_attention=8,
            attention_window=8, initializer_range=0.2)  # fmt: skip


def load(name: str, given: dict[str, Any] | None = None) -> PreTrainedModel:
    """A saved model, or a tiny random one of a class; in fp32, without dropout.

    Args:
        given: fields of the config of a class.
    """
    model_class, saved = _class(name), False
    if model_class is not None:
        config = tiny_config(model_class.config_class, given or {})
    elif given:
        raise ValueError(f"--set is for a class, not for the saved model {name!r}")
    else:
        config, saved = AutoConfig.from_pretrained(name), True
        model_class = _class(config.architectures[0])
    for field_name, value in list(vars(config).items()):
        if "drop" in field_name and type(value) in (int, float):
            setattr(config, field_name, 0.0)
    if saved:
        return model_class.from_pretrained(name, config=config, dtype=torch.float32).eval()
    torch.manual_seed(0)
    return model_class(config).eval()


def _class(name: str) -> type[PreTrainedModel] | None:
    """The class of this name, if it is the name of one."""
    if Path(name).exists() or not name.isidentifier() or name == name.lower():
        return None
    return getattr(minibert, name, None) or getattr(transformers, name)


def tiny_config(config_class: type[PreTrainedConfig], given: dict[str, Any]) -> PreTrainedConfig:
    known, aliases = [each.name for each in fields(config_class)], config_class.attribute_map
    given = {aliases.get(key, key): value for key, value in given.items()}
    chosen = {
        aliases.get(key, key): value
        for key, value in TINY.items()
        if aliases.get(key, key) in known
    }
    # what is None or 0 stays it
    special = [
        name for name in known if name.endswith("_token_id") and getattr(config_class, name, None)
    ]
    chosen |= {name: i for i, name in enumerate(special, 1)}
    return config_class(**chosen | given)
