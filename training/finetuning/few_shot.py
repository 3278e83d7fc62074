"""Contrastive training of an encoder on few labelled texts, by SetFit (Tunstall et al. 2022, arXiv 2209.11055)."""

import tempfile
from collections.abc import Sequence

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sklearn.linear_model import LogisticRegression
from transformers import PreTrainedModel, PreTrainedTokenizerBase

STEPS, BATCH_SIZE = 100, 16  # pairs of texts


def train_encoder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    labels: Sequence[int],
    seed: int,
) -> None:
    """Train the encoder of `model`, in place, so that the mean vectors of texts are alike within a class and differ
    between classes. SetFit's own classifier, which it would save as a pickle, is left out."""
    from setfit import SetFitModel, Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        model.base_model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        encoder = Transformer(folder, max_seq_length=tokenizer.model_max_length)
        body = SentenceTransformer(modules=[encoder, Pooling(model.config.hidden_size, "mean")])
        args = TrainingArguments(
            folder, batch_size=BATCH_SIZE, max_steps=STEPS, seed=seed, save_strategy="no", report_to="none",
            show_progress_bar=False,
        )  # fmt: skip
        trainer = Trainer(SetFitModel(body, model_head=LogisticRegression()), args)
        trainer.train_embeddings(list(texts), list(labels), args=args)
    model.base_model.load_state_dict(encoder.auto_model.state_dict())
