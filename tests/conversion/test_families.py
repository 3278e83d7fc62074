"""What is particular of each family: padding, rows that are dropped, published configs, folders of
sentence-transformers."""

import numpy as np
import pytest
import torch
from helpers import sentences
from parity import LENGTH, TOLERANCE, VOCAB, assert_same_weights, make_native, make_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

import minibert.modeling_minibert as minibert
from minibert.configuration_minibert import MiniBertConfig
from minibert.tokenization import train_tokenizer
from minibert.training.arguments.pretraining import ConvertArguments
from minibert.training.conversion import convert, from_native, positions, to_native
from minibert.training.embeddings.encoders import Embedder

ROBERTAS = ["roberta", "xlm-roberta", "camembert"]


def rows_with_padding(layout: str, padding: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    mask = make_rows(layout, 4)
    ids = torch.randint(8, VOCAB, (4, LENGTH))
    return dict(input_ids=torch.where(mask.bool(), ids, padding), attention_mask=mask)


@pytest.mark.parametrize("layout", ["right", "left"])
@pytest.mark.parametrize("architecture", ROBERTAS)
def test_roberta_counts_real_tokens_on_either_side(architecture, layout):
    """The same rows for both, without further ado."""
    native = make_native(architecture, "plain", "ForTokenClassification")
    batch = rows_with_padding(layout, native.config.pad_token_id)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        theirs, mine = native(**batch), from_native(native)(**batch)
    torch.testing.assert_close(mine.logits[real], theirs.logits[real], **TOLERANCE)


@pytest.mark.parametrize("padding", [1, 4])
def test_rows_before_the_first_position_come_back(padding, tmp_path):
    native = make_native("roberta", "plain", "Model", pad_token_id=padding)
    table = native.embeddings.position_embeddings.weight
    assert table[: padding + 1].any()
    ours = from_native(native)
    assert positions(native.config) == positions(ours.config) == 80 - padding - 1
    assert torch.equal(ours.embeddings.position_embeddings.weight, table[padding + 1 :])
    ours.save_pretrained(tmp_path)
    again = to_native(minibert.MiniBertModel.from_pretrained(tmp_path))
    assert_same_weights(again, native)
    with pytest.raises(ValueError, match=f"beyond max_position_embeddings={80 - padding - 1}"):
        ours(torch.full((1, 80), 9))


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_any_bert_becomes_a_roberta(head):
    """Rows that nobody reads are zero then."""
    fields = dict(vocab_size=VOCAB, hidden_size=32, num_attention_heads=4, pad_token_id=3, max_position_embeddings=64)
    torch.manual_seed(0)
    ours = getattr(minibert, f"MiniBert{head}")(MiniBertConfig.bert("tiny", **fields)).eval()
    native = to_native(ours, "roberta")
    assert native.config.max_position_embeddings == 68
    assert not native.base_model.embeddings.position_embeddings.weight[:4].any()
    batch = rows_with_padding("right", 3)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        theirs, mine = native(**batch)[0], ours(**batch)[0]
    real = real if theirs.shape[:2] == real.shape else slice(None)
    torch.testing.assert_close(mine[real], theirs[real], **TOLERANCE)
    ours.config.pad_token_id = None
    with pytest.raises(ValueError, match="roberta needs pad_token_id"):
        to_native(ours, "roberta")


def test_what_minibert_has_no_place_for_is_kept(tmp_path):
    """Fields of the native config, through a save of the MiniBERT."""
    kept = dict(sparse_prediction=True, deterministic_flash_attn=True)
    native = make_native("modernbert", "plain", "ForMaskedLM", **kept)
    ours = from_native(native)
    ours.save_pretrained(tmp_path)
    again = to_native(minibert.MiniBertForMaskedLM.from_pretrained(tmp_path))
    assert {name: getattr(again.config, name) for name in kept} == kept
    assert from_native(make_native("modernbert", "plain", "ForMaskedLM")).config.converted_rest is None


@pytest.mark.parametrize("architecture", ["xlm-roberta"])
def test_a_folder_of_sentence_transformers(architecture, tmp_path):
    """Tokenizer, pooling and normalisation come along, both ways; texts are as long as the positions at most."""
    tokenizer = train_tokenizer(sentences(200), vocab_size=80, show_progress=False)
    fields = dict(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, max_position_embeddings=20)
    native = make_native(architecture, "plain", "Model", **fields)
    tokenizer.model_max_length = positions(native.config)
    native.save_pretrained(tmp_path / "native")
    tokenizer.save_pretrained(tmp_path / "native")
    modules = [Transformer(str(tmp_path / "native")), Pooling(32, "cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "modules"))
    texts = [*sentences(20, seed=1, longest=30), ""]
    expected = SentenceTransformer(str(tmp_path / "modules"), device="cpu").encode(texts)
    ours, again = (tmp_path / name for name in ("ours", "again"))
    convert(ConvertArguments(paths=[str(tmp_path / "modules"), str(ours)]))
    convert(ConvertArguments(paths=[str(ours), str(again)]))
    embedder = Embedder.from_pretrained(str(ours))
    assert (embedder.pooling, embedder.normalize) == ("cls", True)
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-5)
    np.testing.assert_allclose(SentenceTransformer(str(again), device="cpu").encode(texts), expected, atol=1e-6)
    assert_same_weights(SentenceTransformer(str(again), device="cpu")[0].auto_model, native)
