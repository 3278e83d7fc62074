"""The two encoders of search: `Embedder` turns texts into vectors, `Reranker` scores pairs of texts.

Both run on MiniBERT alone and give what sentence-transformers gives for the same folder (`SentenceTransformer(path)`,
`CrossEncoder(path)`); its files say how a folder pools, whether it normalises and where it cuts texts off.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import AutoTokenizer, DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from ...configuration_minibert import MiniBertConfig
from ...modeling_minibert import MiniBertForSequenceClassification, MiniBertModel
from ..loading import minibert_config, quietly

POOLINGS = ("mean", "cls", "last_four")
# Heads that are trained on text alone, so that what they leave in the encoder can stand for a text.
TEXT_MODELS = (
    "MiniBertModel",
    "MiniBertForMaskedLM",
    "MiniBertForPreTraining",
    "MiniBertForNextSentencePrediction",
    "MiniBertForCausalLM",
    "MiniBertForReplacedTokenDetection",
)
RERANKER = "MiniBertForSequenceClassification"
# Texts that are tokenized at once: enough to sort by length, few enough for the memory.
CHUNK = 16_384
# Cosines that are held at once, however many passages there are: 128 MiB.
COSINES = 2**25


class Embedder:
    """Texts → vectors.

    Args:
        model: the encoder.
        tokenizer: its tokenizer.
        pooling: "mean" of the tokens' last states, the "cls" token's (the first), or "last_four": the mean of the
            tokens' states, each the mean of its last four layers, or of all if there are fewer (as word vectors are
            made in Devlin et al. 2018, section 5.3, by concatenation or sum).
        normalize: whether vectors get the length 1.
        max_length: tokens after which a text is cut off; None: as many as the model and the tokenizer take.
    """

    def __init__(
        self,
        model: MiniBertModel,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str = "mean",
        normalize: bool = True,
        max_length: int | None = None,
    ):
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: {pooling!r} is not one of {', '.join(POOLINGS)}")
        self.model, self.tokenizer = model.eval(), tokenizer
        self.pooling, self.normalize = pooling, normalize
        self.max_length = longest(model.config, tokenizer, max_length)
        self.width = model.config.hidden_size

    @classmethod
    def from_pretrained(
        cls,
        path: str,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
    ) -> Embedder:
        """Load a folder or a Hub name; what is not given is as the folder says, else mean pooling, not normalised.

        Raises:
            ValueError: no MiniBERT, one with a head for another task, or modules beyond pooling and normalisation.
        """
        check_text_model(path)
        saved = read_modules(path)
        return cls(
            _load(MiniBertModel, path, add_pooling_layer=False).to(_device(device)),  # vectors have no use for a pooler
            AutoTokenizer.from_pretrained(path),
            pooling or saved["pooling"],
            saved["normalize"] if normalize is None else normalize,
            saved["max_length"] if max_length is None else max_length,
        )

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], batch_tokens: int = 8192, progress: str | None = None) -> torch.Tensor:
        """[texts, width], fp32, on the CPU, in the order of `texts`.

        Args:
            batch_tokens: most tokens of a batch, padding included.
            progress: what the progress bar is called; None: there is none.
        """
        vectors = torch.empty(len(texts), self.width)
        for rows, batch in _batches(self.tokenizer, [list(texts)], self.max_length, batch_tokens, progress):
            vectors[rows] = self._pool(batch.to(self.model.device)).float().cpu()
        return vectors

    def _pool(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if self.pooling == "last_four":
            outputs = self.model(**batch, padded_output=False, output_hidden_states=True)
            states = torch.stack(outputs.hidden_states[1:][-4:]).mean(0)  # the first are the embeddings
            pooled = outputs.documents.pool(outputs.documents.select(states), "mean")
        else:
            outputs = self.model(**batch, padded_output=False)
            pooled = outputs.documents.pool(outputs.unpadded, self.pooling)
        return F.normalize(pooled, dim=-1) if self.normalize else pooled

    def fingerprint(self) -> str:
        """The same for the same weights, vocabulary and settings, wherever they lie; another one for any other."""
        settings = [self.pooling, self.normalize, self.max_length, sorted(self.tokenizer.get_vocab().items())]
        digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=16)
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
        return digest.hexdigest()


class Reranker:
    """A cross-encoder: how well a passage answers a query, from reading both at once.

    Args:
        model: a sequence classifier with one logit.
        tokenizer: its tokenizer.
        max_length: tokens of a pair after which the longer of its texts is cut off; None: as many as the model takes.
        sigmoid: whether scores are the logit's sigmoid, as `CrossEncoder` has it by default, or the logit itself.
    """

    def __init__(
        self,
        model: MiniBertForSequenceClassification,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None = None,
        sigmoid: bool = True,
    ):
        self.model, self.tokenizer, self.sigmoid = model.eval(), tokenizer, sigmoid
        self.max_length = longest(model.config, tokenizer, max_length)

    @classmethod
    def from_pretrained(
        cls, path: str, max_length: int | None = None, device: str | torch.device | None = None
    ) -> Reranker:
        """Load a folder or a Hub name.

        Raises:
            ValueError: no MiniBERT, another head, more than one logit, a prompt, or scores that are made otherwise.
        """
        activation = _activation(path, check_reranker(path))
        names = {None: True, "Sigmoid": True, "Identity": False}
        name = activation and activation.rpartition(".")[2]
        if name not in names:
            raise ValueError(f"model: {path!r} turns logits into scores by {activation}; legal: Sigmoid, Identity")
        model = _load(MiniBertForSequenceClassification, path).to(_device(device))
        return cls(model, AutoTokenizer.from_pretrained(path), max_length, names[name])

    @torch.inference_mode()
    def score(
        self, pairs: Sequence[tuple[str, str]], batch_tokens: int = 8192, progress: str | None = None
    ) -> torch.Tensor:
        """[pairs], fp32, on the CPU: the score of each (query, passage)."""
        scores = torch.empty(len(pairs))
        columns = [[query for query, _ in pairs], [passage for _, passage in pairs]]
        for rows, batch in _batches(self.tokenizer, columns, self.max_length, batch_tokens, progress):
            scores[rows] = self.model(**batch.to(self.model.device)).logits[:, 0].float().cpu()
        return scores.sigmoid() if self.sigmoid else scores

    def rank(self, query: str, passages: Sequence[str], progress: str | None = None) -> list[tuple[int, float]]:
        """(number, score) of every passage, best first; `progress` as in `score`."""
        scores = self.score([(query, passage) for passage in passages], progress=progress)
        order = scores.argsort(descending=True, stable=True).tolist()
        return [(i, scores[i].item()) for i in order]


def top_k(queries: torch.Tensor, passages: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `k` passages of highest cosine for every query.

    Args:
        queries, passages: [queries, width], [passages, width], of any length but zero.

    Returns:
        Cosines and passage numbers, each [queries, min(k, passages)], best first.
    """
    passages = F.normalize(passages, dim=-1)
    rows = max(1, COSINES // len(passages))
    parts = [
        (F.normalize(part, dim=-1) @ passages.T).topk(min(k, len(passages)), dim=-1) for part in queries.split(rows)
    ]
    return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])


# --- What a folder holds ---------------------------------------------------------------------------------------------


def check_text_model(path: str) -> MiniBertConfig:
    """The config of a MiniBERT that vectors of text can be taken from.

    Raises:
        ValueError: no MiniBERT, or one with a head for another task.
    """
    config, head = _read_config(path)
    if head not in TEXT_MODELS:
        what = "a reranker or a classifier" if head == RERANKER else "a model of another task"
        raise ValueError(f"model: {path!r} holds a {head}, {what}; legal here: {', '.join(TEXT_MODELS)}")
    return config


def check_reranker(path: str) -> MiniBertConfig:
    """The config of a MiniBERT that scores pairs.

    Raises:
        ValueError: no MiniBERT, another head, or more than one logit.
    """
    config, head = _read_config(path)
    if head != RERANKER or config.num_labels != 1:
        given = f"{head} with {config.num_labels} labels" if head == RERANKER else head
        raise ValueError(f"model: {path!r} holds a {given}; a reranker is a {RERANKER} with one")
    return config


def read_modules(path: str) -> dict[str, Any]:
    """`pooling`, `normalize` and `max_length` as the sentence-transformers files of a folder say.

    Raises:
        ValueError: modules, kinds of pooling or prompts that `Embedder` does not have.
    """
    result = {"pooling": "mean", "normalize": False, "max_length": None}
    modules = _read_json(path, "modules.json", [])
    names = [module["type"].rpartition(".")[2] for module in modules]
    if modules and (names[:2] != ["Transformer", "Pooling"] or names[2:] not in ([], ["Normalize"])):
        raise ValueError(
            f"model: {path!r} has the modules {', '.join(names)}; legal: Transformer, Pooling and perhaps Normalize"
        )
    if not modules:
        return result
    pooling = _read_json(path, f"{modules[1]['path']}/config.json", {})
    old_names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    old = [old_names.get(key, key) for key, on in pooling.items() if key.startswith("pooling_mode_") and on]
    mode = pooling.get("pooling_mode") or (old[0] if len(old) == 1 else old)
    if mode not in ("mean", "cls"):
        raise ValueError(f"model: {path!r} pools by {mode}; legal: mean, cls")
    _library_config(path)
    settings = _read_json(path, "sentence_bert_config.json", {})
    return {"pooling": mode, "normalize": len(modules) == 3, "max_length": settings.get("max_seq_length")}


def _library_config(path: str) -> dict[str, Any]:
    """What sentence-transformers wrote beside the model.

    Raises:
        ValueError: a prompt before every text.
    """
    config = _read_json(path, "config_sentence_transformers.json", {})
    if config.get("default_prompt_name"):
        raise ValueError(f"model: {path!r} puts a prompt before every text, which minibert does not")
    return config


def _activation(path: str, config: MiniBertConfig) -> str | None:
    """The name of what makes a score of a logit, where `CrossEncoder` finds it: in its own file, since version 6; in
    the model's config, in versions 4 and 5 and before."""
    return (
        _library_config(path).get("activation_fn")
        or getattr(config, "sentence_transformers", {}).get("activation_fn")
        or getattr(config, "sbert_ce_default_activation_function", None)
    )


def _read_config(path: str) -> tuple[MiniBertConfig, str]:
    config = minibert_config(path)
    return config, (config.architectures or ["MiniBertModel"])[0]


def _load(model_class: type[PreTrainedModel], path: str, **options) -> PreTrainedModel:
    """The model, or an error if weights are missing; weights of another head are no news."""
    with quietly():
        model, report = model_class.from_pretrained(path, output_loading_info=True, **options)
    if report["missing_keys"]:
        raise ValueError(f"model: {path!r} lacks the weights {', '.join(sorted(report['missing_keys']))}")
    return model


def _read_json(path: str, name: str, default: Any) -> Any:
    file = cached_file(
        path,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return default if file is None else json.loads(Path(file).read_text(encoding="utf-8"))


# --- Batches ---------------------------------------------------------------------------------------------------------


def longest(config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase, wanted: int | None) -> int:
    """`wanted`, or as many tokens as the model and its tokenizer take; more are refused."""
    limit = min(tokenizer.model_max_length, config.max_position_embeddings)
    if wanted is not None and not 3 <= wanted <= limit:
        raise ValueError(f"max_length: {wanted} is not legal; from 3 tokens up to {limit}, which the model takes")
    return limit if wanted is None else wanted


def _device(device: str | torch.device | None) -> torch.device:
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _batches(
    tokenizer: PreTrainedTokenizerBase,
    columns: Sequence[list[str]],
    max_length: int,
    batch_tokens: int,
    progress: str | None,
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """Row numbers and padded inputs, rows of like length together, the longest first."""
    pad = DataCollatorWithPadding(tokenizer)
    with tqdm(total=len(columns[0]), desc=progress, unit=" texts", disable=progress is None) as bar:
        for start in range(0, len(columns[0]), CHUNK):
            chunk = [column[start : start + CHUNK] for column in columns]
            encoded = tokenizer(*chunk, truncation=True, max_length=max_length, verbose=False)
            lengths = [len(ids) for ids in encoded["input_ids"]]
            for rows in _group(lengths, batch_tokens):
                yield [start + row for row in rows], pad([{key: encoded[key][row] for key in encoded} for row in rows])
                bar.update(len(rows))


def _group(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if rows and (len(rows) + 1) * lengths[rows[0]] > batch_tokens:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
