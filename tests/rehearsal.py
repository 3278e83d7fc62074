"""Models on a device that is not there: see test_device.py. For a process of its own, which importing this changes."""

from functools import partial

import numpy as np
import torch
from accelerate.utils import send_to_device
from helpers import FAMILIES, tiny
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transformers.initialization import no_init_weights

from minibert import attention_minibert, compat_minibert, modeling_minibert
from minibert.tokenization import train_tokenizer
from minibert.training.data.collators import MaskedLMCollator

_setup_privateuseone_for_python_backend("gpu")
torch.cuda.get_device_capability = lambda device=None: (9, 0)
choose = attention_minibert._choose_on_device
choose_dispatch = attention_minibert.choose_dispatch
attention_minibert._choose_on_device = lambda device, *rest: choose(torch.device("cuda"), *rest)
torch.tensor = lambda numbers, device=None: torch.zeros(
    np.shape(numbers), dtype=torch.long, device=device
)  # copied
# fake tensors look like those of a trace
compat_minibert.IS_TRACING = lambda x=None: False


def packed(without=(), **columns):
    """What the collator of packed training hands over."""
    rows = [
        {"input_ids": [2, 5, 6, 7, 3, 2, 8, 3], "position_ids": [0, 1, 2, 3, 4, 0, 1, 2]},
        {"input_ids": [2, 9, 3], "position_ids": [0, 1, 2]},
    ]
    tokenizer = train_tokenizer(["a word and another word"] * 4, vocab_size=40)
    batch = dict(MaskedLMCollator(tokenizer, unpadded=True, mlm_probability=0.5, seed=0)(rows))
    return {name: x for name, x in batch.items() if name not in without} | columns


def unpacked(head):
    """Rows of one document each, without padding, and labels for the head."""
    shape = (2, 3, 7) if head == "ForMultipleChoice" else (2, 7)
    rows, tokens = torch.zeros(2, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    of_rows = head in (
        "ForSequenceClassification",
        "ForNextSentencePrediction",
        "ForMultipleChoice",
    )
    labels = {
        "Model": {},
        "ForMaskedLM": {"labels": tokens, "masked_lm_positions": torch.zeros(3, dtype=torch.long)},
        "ForPreTraining": {
            "labels": tokens,
            "next_sentence_label": rows,
            "sparse_prediction": False,
        },
        "ForQuestionAnswering": {"start_positions": rows, "end_positions": rows},
    }
    return {"input_ids": tokens} | labels.get(head, {"labels": rows if of_rows else tokens})


def step(head, family, dtype, batch=None):
    """Forward and backward; the names of the plans, and the devices of the gradients."""
    batch, plans = unpacked(head) if batch is None else batch, set()

    def noted(*arguments):
        dispatch = choose_dispatch(*arguments)
        plans.add(dispatch.name)
        return dispatch

    attention_minibert.choose_dispatch = noted
    torch.set_default_dtype(getattr(torch, dtype))
    with no_init_weights(), FakeTensorMode(allow_non_fake_inputs=True), torch.device("gpu"):
        config = tiny(**dict(hidden_size=32, max_position_embeddings=8) | FAMILIES[family])
        model = getattr(modeling_minibert, f"MiniBert{head}")(config).train()
        batch = {
            name: torch.empty_like(x, device="gpu") if hasattr(x, "dtype") else x
            for name, x in batch.items()
        }
        outputs = model(**batch)
        loss = sum(x.sum() for x in outputs.values()) if head == "Model" else outputs.loss
        loss.backward()
    devices = {"none" if p.grad is None else p.grad.device.type for p in model.parameters()}
    return sorted(plans), sorted(devices)


def spread(head, family, dtype):
    """Forward and loss of a model on two devices, inputs sent after its modules as accelerate's hooks of `device_map`
    do; the devices of the outputs."""
    torch.set_default_dtype(getattr(torch, dtype))
    with no_init_weights(), FakeTensorMode(allow_non_fake_inputs=True), torch.device("gpu:0"):
        config = tiny(**dict(hidden_size=32, max_position_embeddings=8) | FAMILIES[family])
        model = getattr(modeling_minibert, f"MiniBert{head}")(config).eval()
        first = (
            modeling_minibert.MiniBertEmbeddings,
            modeling_minibert.MiniBertLayer,
        )  # these, and the rest after them
        blocks = [m for m in model.modules() if isinstance(m, first)]
        inside = {id(m) for block in blocks for m in block.modules()}
        blocks += [m for m in model.modules() if id(m) not in inside and not [*m.children()]]
        for place, block in enumerate(blocks):
            device = torch.device(f"gpu:{int(place > 1)}")
            for module in block.modules():  # `block.to` would swap them, which these tensors cannot
                for name, parameter in module.named_parameters(recurse=False):
                    module._parameters[name] = torch.nn.Parameter(parameter.to(device))
            block.register_forward_pre_hook(partial(send, device), with_kwargs=True)
        batch = {
            name: x if x is False else torch.empty_like(x, device="gpu:0")
            for name, x in unpacked(head).items()
        }
        return {name: str(x.device) for name, x in model(**batch).items()}


def send(device, module, args, kwargs):
    return send_to_device((args, kwargs), device)
