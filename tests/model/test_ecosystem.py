"""What libraries around Transformers do with a MiniBERT: each against what the model itself gives.
More of them: `tests/embeddings/` (sentence-transformers, CrossEncoder), `test_peft.py`, `test_gliner.py`,
`tests/conversion/test_export.py`."""

import ast
import inspect
import textwrap
import types
from itertools import pairwise

import pytest
import torch
from accelerate import infer_auto_device_map
from helpers import BERT, build, sentences
from torch import nn
from torch.testing import assert_close
from transformers import AutoModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from minibert import MiniBertForMaskedLM, MiniBertModel
from minibert.tokenization import train_tokenizer

TEXTS = ["katan lover", "minben nuduk peten katan", "river"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(sentences(200), vocab_size=61, model_max_length=40, show_progress=False)


@pytest.fixture(scope="module")
def folder_of(tokenizer, tmp_path_factory):
    """A function: head and fields → the folder of a saved model."""
    root = tmp_path_factory.mktemp("ecosystem")

    def save(head, **fields):
        folder = root / f"{head}{len(list(root.iterdir()))}"
        ids = {
            f"{name}_token_id": getattr(tokenizer, f"{name}_token_id")
            for name in ("pad", "mask", "cls", "sep")
        }
        build(head, **ids | fields).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return save


@pytest.fixture(scope="module")
def masked_lm(folder_of):
    return folder_of("ForMaskedLM")


# --- accelerate ---


def test_device_map(masked_lm, tokenizer, tmp_path):
    """Layers stay whole, and what lies on the disk is fetched when it runs."""
    whole = MiniBertForMaskedLM.from_pretrained(masked_lm)
    layer = sum(x.numel() * x.element_size() for x in whole.model.layers[0].state_dict().values())
    table = whole.model.embeddings.tok_embeddings.weight.numel() * 4
    found = infer_auto_device_map(
        whole,
        {0: 2 * table + layer, "cpu": 10**9},
        no_split_module_classes=list(whole._no_split_modules),
    )
    assert set(found.values()) == {0, "cpu"} and not any(
        ".layers." in name and name.count(".") > 2 for name in found
    )
    places = {"model.embeddings": "cpu", "model.layers.0": "disk", "model.layers.1": "cpu"}
    places |= {"model.final_norm": "disk", "head": "disk", "decoder": "cpu"}
    spread = MiniBertForMaskedLM.from_pretrained(
        masked_lm, device_map=places, offload_folder=str(tmp_path)
    )
    assert spread.model.layers[0].attn.Wqkv.weight.device.type == "meta"
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert_close(spread(**inputs).logits, whole(**inputs).logits)


# --- vLLM's Transformers backend ---


class _Linear(nn.Module):
    """What vLLM puts in the place of an `nn.Linear`: not one of its subclasses."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


class _EncoderAttention:
    """[tokens, heads · width] three times, of requests one after the other, each of which sees itself only."""

    def __init__(self, bounds, heads, window):
        self.bounds, self.heads, self.window = bounds, heads, window
        self.impl = types.SimpleNamespace(scale=None)

    def forward(self, *qkv):
        out = []
        for start, stop in pairwise(self.bounds):
            q, k, v = (x[start:stop].unflatten(-1, (self.heads, -1)).transpose(0, 1) for x in qkv)
            places = torch.arange(stop - start)
            far = torch.zeros(stop - start, stop - start, dtype=torch.bool)
            if self.window is not None:
                far = (places[:, None] - places).abs() > self.window
            probs = (
                (q @ k.transpose(-1, -2) * self.impl.scale)
                .masked_fill(far, float("-inf"))
                .softmax(-1)
            )
            out.append((probs @ v).transpose(0, 1).flatten(1))
        return torch.cat(out)


def _vllm(
    module, query, key, value, attention_mask, scaling=None, attention_instances=None, **kwargs
):
    """How vLLM calls its own layers from Transformers' attention interface."""
    assert attention_mask is None  # not used, and of the square of all tokens
    attention = attention_instances[module.layer_idx]
    attention.impl.scale = scaling
    return attention.forward(
        *(x.transpose(1, 2).reshape(x.shape[-2], -1) for x in (query, key, value))
    ), None


@pytest.mark.parametrize("fields", [{}, BERT], ids=["modernbert", "bert"])
@torch.no_grad()
def test_vllm_transformers_backend(fields, folder_of, monkeypatch):
    """All that its Transformers backend does with a model before its own kernels come in: a class by `auto_map`, built
    on no device with `attn_implementation="vllm"`, other linear layers, and all requests in one row."""
    folder = folder_of("Model", **fields)
    expected = MiniBertModel.from_pretrained(folder)
    config = type(expected.config).from_pretrained(folder)
    assert "AutoModel" in config.to_dict()["auto_map"] and MiniBertModel.is_backend_compatible()
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "vllm", _vllm)
    config._attn_implementation = "vllm"
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    model.load_state_dict(expected.state_dict(), assign=True)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, _Linear(child))
    attentions = [
        module for module in model.modules() if getattr(module, "is_causal", True) is False
    ]
    assert [module.layer_idx for module in attentions] == list(range(config.num_hidden_layers))
    # it reads the source for the one call of what `ALL_ATTENTION_FUNCTIONS` gives
    nodes = list(
        ast.walk(ast.parse(textwrap.dedent(inspect.getsource(type(attentions[0]).forward))))
    )
    looked_up = [
        x
        for x in nodes
        if isinstance(x, ast.Assign) and "ALL_ATTENTION_FUNCTIONS" in ast.unparse(x.value)
    ]
    named = {x.targets[0].id for x in looked_up}
    assert (
        len([x for x in nodes if isinstance(x, ast.Call) and getattr(x.func, "id", None) in named])
        == 1
    )
    requests = [torch.randint(1, 61, (n,)) for n in (9, 1, 14)]
    bounds = [0, 9, 10, 24]
    instances = {
        i: _EncoderAttention(
            bounds, config.num_attention_heads, config.sliding_window if kind[0] == "s" else None
        )
        for i, kind in enumerate(config.layer_types)
    }
    outputs = model(
        input_ids=torch.cat(requests)[None], inputs_embeds=None, use_cache=False, return_dict=False,
        position_ids=torch.cat([torch.arange(len(x)) for x in requests])[None], attention_instances=instances,
    )  # fmt: skip
    for states, ids in zip(outputs[0][0].split([len(x) for x in requests]), requests):
        assert_close(states, expected(ids[None]).last_hidden_state[0], rtol=1e-4, atol=1e-5)
