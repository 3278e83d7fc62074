"""`minibert probe`: vectors against Transformers' BERT, formulas against brute force in fp64, classifiers against
scikit-learn's, and the commands from end to end on tiny models."""

import itertools
import json
import math
from collections import Counter

import datasets
import numpy as np
import pytest
import torch
from helpers import write_rows
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from tokenizers import pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, BertModel

from minibert import (
    MiniBertConfig,
    MiniBertForCausalLM,
    MiniBertForMaskedLM,
    MiniBertForPreTraining,
    MiniBertModel,
    train_tokenizer,
)
from minibert.training import report
from minibert.training.arguments.pretraining import CorpusArguments
from minibert.training.arguments.probes import NeighboursArguments, ProbeArguments
from minibert.training.cli.main import main
from minibert.training.conversion import from_native
from minibert.training.data.sentences import sentences
from minibert.training.probes import isotropy, neighbours, similarity, uses, vectors, wsd

pytestmark = [pytest.mark.filterwarnings("ignore:the texts gave a vocabulary"), pytest.mark.usefixtures("cache")]

RIVER = ["the", "river", "had", "a", "steep", "bank", "where", "fish", "and", "reeds", "grew", "near", "cold", "water"]
MONEY = ["the", "clerk", "at", "the", "bank", "lent", "money", "and", "counted", "coins", "for", "a", "small", "loan"]
SENTENCES = [
    RIVER,
    MONEY,
    ["a", "man", "walks", "unbelievably", "far"],
    ["bank"],
    ["reeds", "and", "coins", "by", "the", "bank"],
]
TARGETS = [5, 4, 3, 0, 5]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([" ".join(words) for words in SENTENCES[:2]] * 30, vocab_size=70, show_progress=False)


def randomize(model):
    """Norms and biases random too, and everything large enough for differences to show."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def bert_config(tokenizer):
    return BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bert(tokenizer):
    return randomize(BertForMaskedLM(bert_config(tokenizer)))


@pytest.fixture(scope="module")
def folder(tokenizer, bert, tmp_path_factory):
    """The converted model, with its head."""
    folder = tmp_path_factory.mktemp("model")
    from_native(bert).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return vectors.load_model(str(folder))


def use_of(words, target, **labels):
    start = len(" ".join([*words[:target], ""]))
    return uses.Use(" ".join(words), start, start + len(words[target]), **labels)


def rows_of(tokenizer, sentences=SENTENCES, targets=TARGETS, limit=40, subwords="mean"):
    tokenizer.model_max_length = limit
    return vectors.encode_uses(tokenizer, [use_of(*pair) for pair in zip(sentences, targets)], subwords)


def texts_of(tokenizer, texts, limit=40):
    tokenizer.model_max_length = limit
    return vectors.encode_texts(tokenizer, texts)


def labelled(lemma, sense):
    return uses.Use(lemma, 0, len(lemma), lemma, sense)


# --- vectors ---------------------------------------------------------------------------------------------------------


def test_vectors_are_those_of_bert_one_sentence_at_a_time(bert, loaded, tokenizer):
    model, _ = loaded
    mean = vectors.word_vectors(model, rows_of(tokenizer), batch_tokens=45)
    first = vectors.word_vectors(model, rows_of(tokenizer, subwords="first"), batch_tokens=45)
    several = 0
    for number, (words, target) in enumerate(zip(SENTENCES, TARGETS)):
        ids, places = [tokenizer.cls_token_id], []
        for place, word in enumerate(words):
            pieces = tokenizer(word, add_special_tokens=False)["input_ids"]
            if place == target:
                places = list(range(len(ids), len(ids) + len(pieces)))
            ids += pieces
        with torch.no_grad():
            output = bert.bert(torch.tensor([[*ids, tokenizer.sep_token_id]]), output_hidden_states=True)
        states = torch.stack(output.hidden_states)[:, 0].double().numpy()
        np.testing.assert_allclose(mean[number], states[:, places].mean(1), atol=1e-5)
        np.testing.assert_allclose(first[number], states[:, places[0]], atol=1e-5)
        several += len(places) > 1
    assert several  # else the two would be the same


def test_a_word_is_found_by_its_characters(tokenizer):
    row = rows_of(tokenizer)[2]
    pieces = tokenizer.convert_ids_to_tokens(row.input_ids[row.start : row.stop])
    assert "".join(pieces).replace("##", "").startswith("unb")


def test_byte_level_words_of_a_list_are_read_as_running_text():
    """ModernBERT's tokenizer puts no space before words by itself, and would glue those of a list together."""
    lines = [" ".join(words) for words in SENTENCES[:2]] * 30
    tokenizer = train_tokenizer(lines, algorithm="bpe", vocab_size=300, show_progress=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for use, words, target in zip(rows_of(tokenizer), SENTENCES, TARGETS):
        assert use.input_ids == tokenizer(" ".join(words))["input_ids"]
        assert tokenizer.decode(use.input_ids[use.start : use.stop]).strip() == words[target]
    with pytest.raises(ValueError, match="row 1: the word '' has no token"):
        vectors.encode_uses(tokenizer, [use_of(["a", "", "bank"], 1, name="row 1")])


@pytest.mark.parametrize("target", [0, 20, 59])
def test_of_a_long_sentence_what_stands_around_the_word_is_taken(tokenizer, target):
    words = [("bank", "coins", "money")[place % 3] for place in range(60)]
    (whole,) = rows_of(tokenizer, [words], [target], limit=10_000)
    (cut,) = rows_of(tokenizer, [words], [target], limit=21)
    assert len(cut.input_ids) == 21
    assert (cut.input_ids[0], cut.input_ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    body, shift = cut.input_ids[1:-1], whole.start - cut.start
    assert body == whole.input_ids[1 + shift : 20 + shift]
    assert cut.input_ids[cut.start : cut.stop] == whole.input_ids[whole.start : whole.stop]
    if target == 20:
        assert abs(cut.start - (21 - cut.stop)) <= 1


def test_layers(tokenizer):
    states = np.random.default_rng(0).normal(size=(3, 6, 4))
    wanted = {
        "last": states[:, 5],
        "last_four_mean": states[:, 2:].mean(1),
        "last_four_sum": states[:, 2:].sum(1),
        "0": states[:, 0],
        "1-3": (states[:, 1] + states[:, 2] + states[:, 3]) / 3,
    }
    for name, vector in wanted.items():
        np.testing.assert_allclose(vectors.parse_layers(name, 5)(states), vector)
    assert vectors.parse_layers("last_four_mean", 2).first == 1
    for name in ("6", "3-1", "top", "-1", "2-9"):
        with pytest.raises(ValueError, match=f"layers: '{name}'.*use last"):
            vectors.parse_layers(name, 5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_last_state_is_the_last_hidden_state(tokenizer, placement):
    config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny", norm_placement=placement)
    model = randomize(MiniBertModel(config))
    ids = [2, 9, 8, 7, 3]
    ((_, states),) = vectors.hidden_states(model, [vectors.Row(ids, 1, 4)], 100, "")
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).last_hidden_state
    torch.testing.assert_close(states[-1], wanted, atol=1e-5, rtol=0)
    assert len(states) == config.num_hidden_layers + 1


def test_every_row_comes_once_and_batches_keep_to_their_tokens(loaded):
    rows = [vectors.Row([5] * length, 0, length) for length in (3, 30, 7, 7, 1, 12, 2)]
    seen = []
    for batch, states in vectors.hidden_states(loaded[0], rows, 20, ""):
        assert states.shape[1:3] == (len(batch), max(len(rows[number].input_ids) for number in batch))
        assert states.shape[1] * states.shape[2] <= 20 or len(batch) == 1
        seen += batch
    assert sorted(seen) == list(range(len(rows)))


def test_static_vectors_are_rows_of_the_embedding_matrix(bert, loaded, tokenizer):
    rows = rows_of(tokenizer)
    table = bert.get_input_embeddings().weight.detach().double().numpy()
    for use, vector in zip(rows, vectors.static_vectors(loaded[0], rows)):
        np.testing.assert_allclose(vector, table[use.input_ids[use.start : use.stop]].mean(0), atol=1e-6)


def test_models_that_cannot_be_probed(folder, bert, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="no config.json"):
        vectors.load_model(str(tmp_path))
    BertModel(bert.config).save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="is a bert, not a MiniBERT"):
        vectors.load_model(str(tmp_path / "bert"))
    MiniBertModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    vectors.load_model(str(tmp_path / "encoder"))
    with pytest.raises(ValueError, match="no head that predicts masked tokens"):
        vectors.load_model(str(tmp_path / "encoder"), masked_lm=True)
    MiniBertForCausalLM.from_pretrained(folder, is_causal=True).save_pretrained(tmp_path / "decoder")
    with pytest.raises(ValueError, match="no head that predicts masked tokens"):
        vectors.load_model(str(tmp_path / "decoder"), masked_lm=True)
    config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny")
    MiniBertForPreTraining(config).save_pretrained(tmp_path / "pretraining")
    tokenizer.save_pretrained(tmp_path / "pretraining")
    assert isinstance(vectors.load_model(str(tmp_path / "pretraining"), masked_lm=True)[0], MiniBertForMaskedLM)


# --- word senses -----------------------------------------------------------------------------------------------------


def make_split(rng, rows, centres, lemmas=("bank", "bow")):
    """Vectors around a centre for every sense; each state has its own."""
    chosen = [lemmas[number % len(lemmas)] for number in range(rows)]
    split = wsd.Split([labelled(lemma, f"{lemma}_{rng.integers(3)}") for lemma in chosen])
    split.states = np.stack([centres[use.sense] for use in split.uses]) + rng.normal(size=(rows, 2, 3, 6))
    return split


@pytest.fixture(scope="module")
def splits():
    rng = np.random.default_rng(0)
    centres = {f"{lemma}_{sense}": 3 + rng.normal(size=(2, 3, 6)) for lemma in ("bank", "bow") for sense in range(3)}
    return make_split(rng, 80, centres), make_split(rng, 60, centres)


def features(split, setting):
    """The vectors of a setting, written out."""
    layers = split.states[:, :, setting.layers.first : setting.layers.last + 1].mean(2)
    if setting.vector != "word + sentence":
        return layers[:, 0 if setting.vector == "word" else 1]
    return np.concatenate([part / np.linalg.norm(part, axis=1, keepdims=True) for part in layers.swapaxes(0, 1)], 1)


@pytest.mark.parametrize("vector", wsd.VECTORS)
@pytest.mark.parametrize("scaling", wsd.SCALINGS)
def test_predictions_against_scikit_learn(splits, vector, scaling):
    known, split = splits
    settings = [wsd.Setting(vectors.parse_layers("1-2", 2), vector, scaling, k) for k in wsd.NEIGHBOURS]
    for setting in settings:
        found = wsd.predict(known, split, setting)
        neighbours_k = setting.neighbours
        a_all, b_all = features(known, setting), features(split, setting)
        for lemma in ("bank", "bow"):
            of_known, of_split = known.lemmas == lemma, split.lemmas == lemma
            a, b, senses = a_all[of_known], b_all[of_split], known.senses[of_known]
            source = a_all if scaling == "z-scored" else a
            if scaling != "raw":
                a, b = a - source.mean(0), b - source.mean(0)
            if scaling.startswith("z"):
                a, b = a / source.std(0), b / source.std(0)
            if neighbours_k == 0:  # the nearest centroid by cosine, in fp64
                names = sorted(set(senses))
                means = np.stack([a[senses == name].mean(0) for name in names])
                cosines = (b @ means.T) / np.linalg.norm(means, axis=1)
                wanted = np.array(names)[cosines.argmax(1)]
            else:  # of unit vectors the nearest by distance are those with the largest cosine
                a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
                wanted = KNeighborsClassifier(neighbours_k).fit(a, senses).predict(b)
            assert found[of_split].tolist() == wanted.tolist()


def test_sense_means_of_unit_length_are_nearest_centroids():
    """With means of equal length, the largest cosine is the smallest distance: scikit-learn's NearestCentroid."""
    rng = np.random.default_rng(1)
    x, senses = rng.normal(size=(30, 5)), np.array(["a", "b", "c"] * 10)
    for name in "abc":  # scaled so that each mean has length 1
        x[senses == name] /= np.linalg.norm(x[senses == name].mean(0))
    queries = rng.normal(size=(50, 5))
    wanted = NearestCentroid().fit(x, senses).predict(queries)
    assert wsd.Setting(None).fit(x, senses).predict(queries).tolist() == wanted.tolist()


def test_unseen_lemmas_get_the_most_frequent_sense(splits):
    known, _ = splits
    split = wsd.Split([labelled("seal", "seal_0")])
    split.states = np.ones((1, 2, 3, 6))
    names, counts = np.unique(known.senses, return_counts=True)
    found = wsd.predict(known, split, wsd.Setting(vectors.parse_layers("last", 2)))
    assert found == [names[counts.argmax()]]


def test_senses_keep_their_whole_names():
    """The most frequent sense of all is "s", and the other lemma's names are longer."""
    split = wsd.Split([labelled(*pair) for pair in zip("aaaabb", ("s", "s", "s", "s", "longer", "longest"))])
    x = np.eye(6)
    assert wsd.by_word(split, split, lambda _: x, wsd.Setting(None).fit).tolist() == split.senses.tolist()


def test_micro_and_macro_accuracy(splits):
    split = wsd.Split([labelled(*pair) for pair in zip("aaaabb", "xxyyzz")])
    found = wsd.accuracy(split, np.array(list("xxyxzx"), dtype=object))
    assert found["words"] == {"a": 0.75, "b": 0.5}
    assert found["micro"] == pytest.approx(4 / 6) and found["macro"] == pytest.approx(0.625)
    above = wsd.accuracy(split, np.array(list("xxyxzx")), np.array(list("xyyyzz")))["above_bag_of_words"]
    differences = [0, 1, 0, -1, 0, -1]
    half = 1.96 * np.std(differences) / math.sqrt(6)
    assert above == dict(difference=pytest.approx(-1 / 6), half_interval=pytest.approx(half))


def test_the_best_setting_is_the_one_of_the_validation_file(splits, monkeypatch):
    monkeypatch.setattr(wsd, "NEIGHBOURS", (0, 1, 5))  # fewer settings
    monkeypatch.setattr(wsd, "SCALINGS", wsd.SCALINGS[1:2])
    monkeypatch.setattr(wsd, "VECTORS", wsd.VECTORS[:2])
    known, split = splits
    best, tried = wsd.choose(known, split, 2)
    assert len(tried) == 3 * 2 * 3 and {str(s.layers.name) for s in tried} == {"1", "2", "1-2"}
    everything = {s: (split.senses == wsd.predict(known, split, s)).mean() for s in tried}
    assert everything[best["best of all"]] == max(everything.values())
    only = [value for s, value in everything.items() if s.vector == "word" and s.neighbours < 2]
    assert everything[best["best 1-NN of the word"]] == max(only)


def test_a_bag_of_words_of_single_characters():
    texts, senses = np.array(["我 去 银 行", "河 的 岸 边"] * 4, dtype=object), np.array(["house", "shore"] * 4)
    assert wsd.fit_bag_of_words(texts, senses).predict(texts).tolist() == senses.tolist()


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_nearest_uses_by_brute_force():
    x = np.random.default_rng(0).normal(size=(20, 5))
    for query, found in zip((3, 7), neighbours.nearest_uses(x, [3, 7], 4)):
        cosine = {n: x[n] @ x[query] / np.sqrt((x[n] @ x[n]) * (x[query] @ x[query])) for n in range(20) if n != query}
        wanted = sorted(cosine, key=cosine.get, reverse=True)[:4]
        assert [place for place, _ in found] == wanted
        assert [value for _, value in found] == pytest.approx([cosine[place] for place in wanted])


def test_ranks_by_sorting():
    scores = torch.randn(6, 30, generator=torch.Generator().manual_seed(0))
    scores[0, 4] = scores[0, 9]  # equals stand before
    right = torch.tensor([4, 1, 2, 3, 29, 0])
    wanted = [sorted(row.tolist(), reverse=True).index(row[at]) + 1 for row, at in zip(scores, right)]
    wanted[0] += 1
    assert neighbours.ranks(scores, right).tolist() == wanted


@pytest.mark.parametrize("masked_lm", [True, False])
def test_figures_are_of_single_precision(folder, tokenizer, tmp_path, masked_lm):
    """Whatever the weights were saved in: equals of fewer digits would stand before the right token."""
    MiniBertForMaskedLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert vectors.load_model(str(tmp_path), masked_lm)[0].dtype == torch.float32


def test_lookup_against_berts_own_head(bert, folder, tokenizer):
    """The MLM head's ranks are those of BERT's logits; the others are cosines and products with its embeddings."""
    model, _ = vectors.load_model(str(folder), masked_lm=True)
    texts = [" ".join(words) for words in SENTENCES[:3] + SENTENCES[4:]]
    tokenizer.model_max_length = 40
    rows, right = neighbours.mask_tokens(tokenizer, texts, np.random.default_rng(0))
    states = vectors.word_vectors(model.base_model, rows, 100)
    found = neighbours.lookup_ranks(model, states, right)
    table = bert.get_input_embeddings().weight.detach().double()
    for number, (use, token) in enumerate(zip(rows, right)):
        assert use.input_ids[use.start] == tokenizer.mask_token_id and use.stop == use.start + 1
        with torch.no_grad():
            output = bert(torch.tensor([use.input_ids]), output_hidden_states=True)
        logits = output.logits[0, use.start].double()
        assert found["MLM head"][0, number] == (logits >= logits[token]).sum()
        for state, hidden in enumerate(output.hidden_states):
            products = table @ hidden[0, use.start].double()
            assert found["dot product"][state, number] == (products >= products[token]).sum()
            cosines = products / table.norm(dim=1).clamp(min=1e-12)
            assert found["cosine"][state, number] == (cosines >= cosines[token]).sum()


def test_masked_tokens_of_a_model_with_narrow_embeddings(tokenizer):
    """States of another width cannot be looked up as they are."""
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", embedding_size=8)
    states = np.zeros((2, config.num_hidden_layers + 1, config.hidden_size), np.float32)
    found = neighbours.lookup_ranks(MiniBertForMaskedLM(config), states, [5, 6])
    assert [*found] == ["cosine after the head's transform", "MLM head"]


def test_occurrences_are_whole_words():
    found = neighbours.find_uses(["A Bank.", "bankers", "the bank, the bank", "bank-note", "none"], "bank")
    assert [(use.text, use.start) for use in found] == [("A Bank.", 2), ("the bank, the bank", 4), ("bank-note", 0)]


# --- similarity ------------------------------------------------------------------------------------------------------


def some_uses(rng, rows=120):
    return [labelled(lemma, f"{lemma}{rng.integers(3)}") for n in range(rows) for lemma in [("a", "b", "c")[n % 3]]]


def test_pairs_are_of_one_lemma_balanced_and_distinct():
    given = some_uses(np.random.default_rng(0)) + [labelled("single", "single")] * 5
    pairs, same = similarity.make_pairs(given, 240, np.random.default_rng(1))
    assert len(pairs) == 240 and same.sum() == 120
    assert len({tuple(sorted(pair)) for pair in pairs.tolist()}) == 240
    for (first, second), alike in zip(pairs, same):
        assert first != second and given[first].lemma == given[second].lemma != "single"
        assert (given[first].sense == given[second].sense) == alike
    again, _ = similarity.make_pairs(given, 240, np.random.default_rng(1))
    assert again.tolist() == pairs.tolist()


def test_there_are_no_more_pairs_than_asked_for():
    given = [labelled(f"w{n // 4}", "ab"[n % 2]) for n in range(400)]
    pairs, same = similarity.make_pairs(given, 40, np.random.default_rng(0))
    assert len(pairs) == 40 and same.sum() == 20


def test_vowel_signs_belong_to_their_words():
    assert similarity.WORD.findall("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert neighbours.find_uses(["हिन्दी"], "हिन्द") == []
    chinese = neighbours.find_uses(["我在大学学习。", "the cat大学", "concat"], "大学")  # no spaces between words
    assert [(use.start, use.stop) for use in chinese] == [(2, 4), (7, 9)]
    assert len(neighbours.find_uses(["the cat大学", "concat"], "cat")) == 1


def test_telling_senses_apart():
    rng = np.random.default_rng(0)
    same = rng.random(400) < 0.5
    cosines = np.where(same, 0.6, 0.4) + 0.1 * rng.normal(size=400)
    lemmas, fit = rng.choice(["a", "b"], 400), rng.random(400) < 0.5
    found = similarity.tell_apart(cosines, same, lemmas, fit)
    brute = np.mean([a > b for a, b in itertools.product(cosines[same], cosines[~same])])
    assert found["auc"] == pytest.approx(brute)
    words = [roc_auc_score(same[lemmas == lemma], cosines[lemmas == lemma]) for lemma in "ab"]
    assert found["auc_of_words"] == pytest.approx(np.mean(words))
    assert found["accuracy"] == pytest.approx(0.84, abs=0.05)  # two normal distributions two deviations apart
    assert found["same_sense"] == pytest.approx(np.mean([c for c, alike in zip(cosines, same) if alike]))
    assert found["different_sense"] == pytest.approx(np.mean([c for c, alike in zip(cosines, same) if not alike]))
    assert similarity.tell_apart(np.ones(400), same, lemmas, fit)["auc"] == 0.5
    fit, odd = np.arange(400) < 200, np.arange(400) % 2 == 1
    assert similarity.tell_apart(0.5 + odd / 4, odd == fit, lemmas, fit)["accuracy"] == 0  # chosen on one half alone


def test_every_sentence_of_a_word_has_the_same_chance():
    texts, drawn = [f"a Word w{i}." for i in range(10)], Counter()
    for seed in range(1000):
        uses = similarity.draw_uses(texts + texts[:5], ["word"], 2, np.random.default_rng(seed))["word"]
        assert len({use.text for use in uses}) == 2 and {use.word for use in uses} == {"Word"}
        drawn.update(use.text for use in uses)
    assert all(abs(drawn[text] / 1000 - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 1000) for text in texts)


def test_equal_vectors_tell_nothing_apart():
    """A word's static vector is the same in every use: rounding errors, which differ by word, are no ranking."""
    rng = np.random.default_rng(0)
    static = rng.normal(size=(20, 384)).astype(np.float32)
    x = static.repeat(10, 0) * rng.uniform(0.5, 2, size=(200, 1)).astype(np.float32)
    lemmas = np.arange(20).repeat(10)
    pairs = np.array(
        [pair for word in range(20) for pair in itertools.combinations(range(10 * word, 10 * word + 5), 2)]
    )
    same = rng.random(len(pairs)) < 0.5
    cosines = similarity.pair_cosines(x, pairs)
    assert set(cosines) == {1}
    found = similarity.tell_apart(cosines, same, lemmas[pairs[:, 0]], rng.random(len(pairs)) < 0.5)
    assert found["auc"] == found["auc_of_words"] == 0.5
    assert vectors.contributions(x[:10]).sum(-1).round(similarity.DECIMALS) == 1


def test_the_mean_cosine_of_several_states_by_brute_force():
    x = np.random.default_rng(0).normal(size=(6, 3, 8)) + 1
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    wanted = np.mean([(a * b).sum(-1) for a, b in itertools.combinations(unit, 2)], axis=0)
    np.testing.assert_allclose(vectors.contributions(x).sum(-1), wanted, atol=1e-6)


@pytest.mark.parametrize("spread", [1, 1e-3])
def test_errors_point_where_the_cosine_errs(spread):
    """Of two words with as many pairs of each kind, one has lower cosines throughout: its error is positive; also where
    all cosines are nearly the same, as in lower layers."""
    rng = np.random.default_rng(0)
    words = ["often", "seldom"] * 300
    same = np.arange(600) % 4 < 2
    cosines = 0.5 + 0.2 * same - 0.2 * (np.arange(600) % 2 == 0) + 0.02 * rng.normal(size=600)
    found = similarity.errors_of_words(1 - spread * (1 - cosines), same, np.array(words))
    assert found["often"] > 0.1 and found["seldom"] < -0.1
    assert found["often"] + found["seldom"] == pytest.approx(0, abs=1e-3)  # logistic regression is right on average


def test_trend_against_frequency():
    frequency = np.array([10, 100, 1000, 10000])
    found = similarity.against_frequency(np.array([0.9, 0.8, 0.7, 0.6]), frequency)
    assert found["per_tenfold"] == pytest.approx(-0.1) and found["spearman"] == pytest.approx(-1)
    assert similarity.against_frequency(np.ones(4), frequency) is None


# --- isotropy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean_cosine", [0.0, 0.3, 0.8])
def test_vectors_of_known_mean_cosine(mean_cosine):
    """Unit vectors c e_0 + sqrt(1 - c²) r, with random r at right angles to e_0: their mean cosine is c²."""
    rng = np.random.default_rng(0)
    r = rng.normal(size=(4000, 50))
    r /= np.linalg.norm(r, axis=1, keepdims=True)
    x = np.concatenate([np.full((4000, 1), np.sqrt(mean_cosine)), np.sqrt(1 - mean_cosine) * r], axis=1)
    x *= rng.uniform(0.5, 5, size=(4000, 1))
    found = isotropy.rogue_dimensions(x)
    assert found["mean_cosine"] == pytest.approx(mean_cosine, abs=2e-3)
    if mean_cosine:
        assert found["top"][0] == 0 and found["share"] == pytest.approx(1, abs=0.01)
        assert isotropy.contributions(x)[0] == pytest.approx(mean_cosine)
    else:
        assert found["share"] is None


def test_contributions_by_brute_force():
    x = np.random.default_rng(0).normal(size=(15, 6)) + np.array([5, 0, 0, 1, 0, 0])
    pairs = [a * b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in itertools.combinations(x, 2)]
    np.testing.assert_allclose(isotropy.contributions(x), np.mean(pairs, axis=0), atol=1e-12)
    found = isotropy.rogue_dimensions(x)
    wanted = np.sort(np.mean(pairs, axis=0))[::-1]
    assert found["share"] == pytest.approx(wanted[:3].sum() / wanted.sum())


def test_moments_are_those_of_all_tokens_but_special_ones(bert, loaded, tokenizer):
    texts = [" ".join(words) for words in SENTENCES]
    scalers = isotropy.corpus_moments(loaded[0], texts_of(tokenizer, texts), 50)
    tokens = []
    for text in texts:
        with torch.no_grad():
            states = bert.bert(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        tokens.append(torch.stack(states)[:, 0, 1:-1])
    tokens = torch.cat(tokens, dim=1).double().numpy()
    np.testing.assert_allclose([scaler.mean_ for scaler in scalers], tokens.mean(1), atol=1e-5)
    np.testing.assert_allclose([scaler.scale_ for scaler in scalers], tokens.std(1), atol=1e-4)


def test_sentences_go_over_line_breaks_and_end_at_their_marks_and_blank_lines():
    text = "A line\nthat goes on. Two!\n\nA title\n \n三。四"
    found = list(sentences(datasets.Dataset.from_dict({"text": [text, "Last"]})))
    assert found == ["A line that goes on.", "Two!", "A title", "三。", "四", "Last"]


def test_as_many_sentences_are_drawn_as_are_asked_for(monkeypatch):
    monkeypatch.setattr(uses, "DOCUMENTS", 5)
    documents = datasets.Dataset.from_dict({"text": [f"sentence {number}" for number in range(100)]})
    for count in (3, 60):
        assert len(uses.draw_sentences(documents, count, np.random.default_rng(0))) == count


# --- the commands ----------------------------------------------------------------------------------------------------


def labelled_rows(seed, rows=24):
    """Senses that the sentence gives away."""
    rng = np.random.default_rng(seed)
    for number in range(rows):
        words, sense = ((RIVER, "shore"), (MONEY, "house"))[number % 2]
        left = [str(word) for word in rng.permutation([word for word in words if word != "bank"])[:6]]
        yield {"tokens": [*left[:3], "bank", *left[3:]], "target_index": 3, "lemma": "bank", "sense": sense}


@pytest.fixture
def files(tmp_path):
    paths = {}
    for seed, name in enumerate(("train", "validation", "test")):
        paths[name] = tmp_path / f"{name}.jsonl"
        write_rows(paths[name], labelled_rows(seed))
    return paths


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for number in range(150):
        words = (RIVER, MONEY)[number % 2]
        lines.append(" ".join(rng.permutation(words)) + ".")
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def error_line(capsys):
    """What the command says at last; before it stand the progress bars of `datasets`."""
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("minibert: error: ")
    return error


def read_results(folder, *figures):
    assert {path.stem for path in folder.glob("*.png")} == {*figures}
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, by title; every one has a title, and labels that do not overlap."""
    saved = {}
    save = Figure.savefig

    def collect(figure, *given, **options):
        save(figure, *given, **options)
        saved[figure.get_suptitle()] = figure
        renderer = FigureCanvasAgg(figure).get_renderer()
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            labels = [label for label in axis.get_ticklabels(which="both") if label.get_text() and label.get_visible()]
            boxes = [label.get_window_extent(renderer) for label in labels if not label.get_rotation()]
            assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)), [x.get_text() for x in labels]
        for axes in figure.axes:
            boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text().isdigit()]
            assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
            assert all(len(line.get_xdata()) > 1 for line in axes.lines)

    monkeypatch.setattr(Figure, "savefig", collect)
    yield saved
    assert saved and all(saved)


@pytest.mark.parametrize("highest", [11, 3_000_000])
def test_ticks_of_frequencies_are_few_and_apart(tmp_path, figures, highest):
    frequency = np.array([10, 10, highest])
    report.plot_frequency(
        tmp_path / "frequency.png", frequency, np.random.default_rng(0).random((3, 3)), [0, 0.1, -0.1]
    )
    (figure,) = figures.values()
    assert 2 <= len(figure.axes[0].get_xticks()) <= 5


def test_words_and_methods_can_be_read_in_the_wsd_picture(tmp_path, figures, monkeypatch):
    """Seven methods and more words than are shown: a number in a cell for each of the words with most rows."""
    monkeypatch.setattr(report, "MOST_NAMES", 20)
    words = {f"w{n}": 2 if n >= 80 else 1 for n in range(100)}
    accuracy = {name: dict.fromkeys(words, 1.0) for name in ("bag of words", *(f"method {n}" for n in range(6)))}
    report.plot_wsd(tmp_path / "wsd.png", "test", words, accuracy, {"word, raw": {1: 50.0}})
    (figure,) = figures.values()
    (axes,) = figure.axes  # no curve of a single point
    assert len(axes.texts) == 7 * report.MOST_NAMES
    assert all(int(label.get_text().split()[0][1:]) >= 80 for label in axes.get_yticklabels())


def test_two_uses_are_not_drawn(folder, tmp_path):
    (tmp_path / "two.txt").write_text("The bank lent money. A cold river bank.", encoding="utf-8")
    assert run_neighbours(folder, tmp_path / "two.txt", tmp_path / "out", "bank") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.json"]


def test_results_are_returned(folder, corpus, tmp_path):
    arguments = NeighboursArguments(words=["bank"], uses=5, output_dir=str(tmp_path))
    found = neighbours.neighbours(CorpusArguments(data=[str(corpus)]), ProbeArguments(model=str(folder)), arguments)
    assert found == read_results(tmp_path, "uses")


def run_wsd(folder, files, *more):
    options = [f"--{name}={path}" for name, path in files.items()]
    return main(["probe", "wsd", "--model", str(folder), *options, *more])


def test_wsd_command(folder, files, tmp_path, capsys, monkeypatch, figures):
    monkeypatch.setattr(wsd, "NEIGHBOURS", (0, 5))  # fewer settings
    monkeypatch.setattr(wsd, "SCALINGS", wsd.SCALINGS[:2])
    write_rows(
        tmp_path / "other.jsonl", [{"tokens": "a big seal", "target_index": 2, "lemma": "seal", "sense": "animal"}]
    )
    test = [str(files.pop("test")), str(tmp_path / "other.jsonl")]
    out = tmp_path / "out"
    assert run_wsd(folder, files, "--test", *test, "--layers", "last", "1-2", "--output_dir", str(out)) == 0
    printed, progress = capsys.readouterr()
    assert all(f"{step}: " in progress for step in ("Word vectors of train", "Settings", "Methods"))
    assert "lemmas without training uses" in printed and "bag of words" in printed
    results = read_results(out, "wsd")
    assert results["rows"] == {"train": 24, "validation": 24, "test": 24, "other": 1}
    assert results["accuracy"]["bag of words"]["test"]["micro"] == 1
    assert results["accuracy"]["most frequent sense"]["test"]["micro"] == 0.5
    assert results["accuracy"]["best of all"]["test"]["micro"] > 0.65  # of a random model, on words in random order
    assert {"sense means, last", "sense means, 1-2", "best 1-NN of the word"} <= set(results["accuracy"])
    for name, splits in results["accuracy"].items():
        assert f"{splits['test']['micro']:.3f}" in printed and name in printed


def test_wsd_without_a_validation_file_measures_what_is_asked_for(folder, files, tmp_path):
    del files["validation"]
    assert run_wsd(folder, files, "--output_dir", str(tmp_path / "out")) == 0
    assert read_results(tmp_path / "out", "wsd")["best"] == {}


BAD_ROWS = {
    "target_index 7; use 0 to 6": {"target_index": 7},
    "target_index -1": {"target_index": -1},
    "sense is empty": {"sense": ""},
    "lemma is missing": {"lemma": None},
    "tokens []": {"tokens": []},
}


@pytest.mark.parametrize("message", BAD_ROWS)
def test_bad_rows_are_named(folder, files, tmp_path, capsys, monkeypatch, message):
    monkeypatch.setattr(wsd, "word_vectors", None)  # nothing is encoded before the error
    rows = list(labelled_rows(0))
    rows[4] |= BAD_ROWS[message]
    write_rows(files["test"], rows)
    assert run_wsd(folder, files, "--output_dir", str(tmp_path / "out")) == 2
    error = error_line(capsys)
    assert f"test: {files['test']}, row 5: {message}" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cell", ["", "2.5"])
def test_the_row_of_a_bad_cell_is_named_whatever_it_makes_of_its_column(folder, files, tmp_path, capsys, cell):
    files["test"] = tmp_path / "test.csv"
    rows = [f"the river bank,{cell if number == 5 else 2},bank,shore\n" for number in range(1, 9)]
    files["test"].write_text("tokens,target_index,lemma,sense\n" + "".join(rows), encoding="utf-8")
    assert run_wsd(folder, files, "--output_dir", str(tmp_path / "out")) == 2
    assert f"test: {files['test']}, row 5: target_index {cell}" in error_line(capsys).replace("'", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no rows"),
        ('{"tokens": ["a"], "lemma": "a", "sense": "b"}\n', "row 1: there is no column 'target_index'; columns:"),
        ("{nonsense\n", "row 1: is not JSON"),
        (None, "does not exist"),
    ],
)
def test_bad_files_are_named(folder, files, tmp_path, capsys, content, message):
    if content is None:
        files["train"].unlink()
    else:
        files["train"].write_text(content, encoding="utf-8")
    assert run_wsd(folder, files, "--output_dir", str(tmp_path / "out")) == 2
    error = error_line(capsys)
    assert "train: " in error and files["train"].name in error and message in error


def test_names_of_senses_that_look_like_numbers(tmp_path):
    """1.1 and 1.10 are two, and 01 is no 1."""
    rows = [f"the river bank,2,{lemma},{sense}\n" for lemma, sense in (("01", "1.1"), ("1", "1.10"), ("1", "2"))]
    (tmp_path / "uses.csv").write_text("tokens,target_index,lemma,sense\n" + "".join(rows), encoding="utf-8")
    found = [(use.lemma, use.sense) for use in uses.read_uses(str(tmp_path / "uses.csv"), "train")]
    assert found == [("01", "1.1"), ("1", "1.10"), ("1", "2")]


def test_words_without_tokens_are_named(folder, files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(wsd, "word_vectors", None)
    rows = list(labelled_rows(0))
    rows[1]["tokens"][3] = "\u200b"
    write_rows(files["test"], rows)
    assert run_wsd(folder, files, "--output_dir", str(tmp_path / "out")) == 2
    assert f"{files['test']}, row 2: the word '\\u200b' has no token" in error_line(capsys)


def run_neighbours(folder, corpus, out, *more):
    return main(["probe", "neighbours", *more, "--model", str(folder), f"--data={corpus}", f"--output_dir={out}"])


def test_neighbours_command(folder, corpus, tmp_path, capsys, figures):
    given = ["bank", "coins", "--text", "by the bank of the river", "--show", "3", "--uses", "20"]
    assert (
        run_neighbours(folder, corpus, tmp_path / "out", *given, "--masked_tokens", "30", "--recall_at", "1", "9") == 0
    )
    printed = capsys.readouterr().out
    assert "by the [bank] of the river" in printed and "MLM head" in printed
    results = read_results(tmp_path / "out", "uses", "masked_tokens")
    assert results["uses"] == {"bank": 21, "coins": 20}
    (nearest,) = results["nearest"]
    cosines = [entry["cosine"] for entry in nearest["nearest"]]
    assert len(cosines) == 3 and cosines == sorted(cosines, reverse=True)
    masked = results["masked_tokens"]
    assert masked["count"] == 30 and len(masked["recall"]["cosine"]) == 4
    (of_head,) = masked["recall"]["MLM head"]
    assert 0 <= of_head["1"] <= of_head["9"] <= 1


def test_a_seed_gives_the_same_results(folder, corpus, tmp_path):
    found = []
    for seed in "112":
        options = "--uses", "2", "--show", "1", "--seed", seed  # two uses, which are not drawn
        assert run_neighbours(folder, corpus, tmp_path, "bank", *options) == 0
        found.append(read_results(tmp_path)["nearest"])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["xylophone"], "words: 'xylophone' never occurs in"),
        (["bank", "--text", "nothing here"], "text: 'nothing here' has none of the words bank"),
        ([], "words: none given"),
        (["bank", "--layers", "9"], "layers: '9'"),
        (["bank", "--show", "0"], "show: 0"),
        (["bank", ""], "words: '' is blank"),
        (["bank", "--seed", "-1"], "seed: -1 is too small; use 0 or more"),
        (["bank", "--masked_tokens", "-1"], "masked_tokens: -1"),
    ],
)
def test_bad_arguments_of_neighbours(folder, corpus, tmp_path, capsys, given, message):
    assert run_neighbours(folder, corpus, tmp_path / "out", *given) == 2
    error = error_line(capsys)
    assert message in error
    assert not (tmp_path / "out").exists()


def test_masks_without_a_head_are_refused(folder, corpus, tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(neighbours, "word_vectors", None)  # nothing is encoded before the error
    MiniBertModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    assert run_neighbours(tmp_path / "encoder", corpus, tmp_path / "out", "--masked_tokens", "9") == 2
    assert "has no head that predicts masked tokens (MiniBertModel)" in error_line(capsys)


def test_similarity_command(folder, corpus, files, tmp_path, capsys, figures):
    given = ["--words", "12", "--uses_per_word", "4", "--pairs", "60", "--output_dir", str(tmp_path / "out")]
    command = ["probe", "similarity", "--model", str(folder), f"--data={corpus}", f"--uses={files['train']}", *given]
    assert main(command) == 0
    printed = capsys.readouterr().out
    results = read_results(tmp_path / "out", "senses", "frequency")
    found = results["senses"]["vectors"]
    assert found["static"]["auc"] == found["static"]["auc_of_words"] == 0.5 and found["static"]["same_sense"] == 1
    assert found["static"]["all_alike"] and "static vectors cannot tell senses apart" in printed
    ticks = [
        label.get_text() for label in figures["Do cosines tell the senses of a word apart?"].axes[0].get_xticklabels()
    ]
    assert ticks == [name for name, of_states in found.items() if not of_states["all_alike"]] and "static" not in ticks
    assert found["state 3"]["same_sense"] < 0.999 and found["state 3"]["auc"] != 0.5
    text = corpus.read_text(encoding="utf-8")
    assert results["senses"]["words"] == {"bank": text.count("bank")}
    for entry in results["frequency"]["words"]:
        assert entry["self_similarity"] == np.round(entry["self_similarity"], similarity.DECIMALS).tolist()
        assert entry["self_similarity"][0] > 0.1  # of the embeddings, which the uses share but for their positions
        assert entry["count"] == len([word for word in text.replace(".", " ").split() if word == entry["word"]])


def test_a_threshold_needs_pairs_of_both_kinds_to_choose_it_on(folder, corpus, tmp_path, capsys):
    uses, out = tmp_path / "uses.jsonl", tmp_path / "out"
    write_rows(uses, [row | {"sense": sense} for row, sense in zip(labelled_rows(0, 5), "aabcd")])
    command = ["probe", "similarity", "--model", str(folder), f"--data={corpus}", f"--uses={uses}"]
    assert main([*command, f"--output_dir={out}"]) == 2 and not out.exists()
    assert "gives 1 pairs of uses of the same sense and 9 of different ones; use" in error_line(capsys)


def test_isotropy_command(folder, bert, tokenizer, corpus, tmp_path, capsys, figures):
    rng = np.random.default_rng(0)
    pairs = [(" ".join(rng.permutation(RIVER)[:7]), " ".join(rng.permutation(MONEY)[:7])) for _ in range(12)]
    write_rows(
        tmp_path / "sts.jsonl", [{"sentence1": a, "sentence2": b, "score": n % 5} for n, (a, b) in enumerate(pairs)]
    )
    command = ["probe", "isotropy", "--model", str(folder), f"--data={corpus}", f"--sts={tmp_path / 'sts.jsonl'}"]
    assert main([*command, "--tokens", "40", "--output_dir", str(tmp_path / "out")]) == 0
    assert "z-scored" in capsys.readouterr().out
    results = read_results(tmp_path / "out", "isotropy")
    assert results["tokens"] == 40 and results["sentences_for_moments"] == 40 and len(results["states"]) == 4
    for state in results["states"]:
        assert abs(state["z_scored"]["mean_cosine"]) < 0.1
        assert -1 <= state["z_scored"]["sts_spearman"] <= 1
    cosines = []
    for pair in pairs:
        with torch.no_grad():
            states = [bert.bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1] for text in pair]
        cosines.append(torch.cosine_similarity(*(x.double().mean(0) for x in states), dim=0))
    assert results["states"][-1]["raw"]["sts_spearman"] == pytest.approx(
        spearmanr(cosines, [n % 5 for n in range(12)]).statistic
    )


def test_scores_that_are_all_alike_correlate_with_nothing(folder, corpus, tmp_path):
    write_rows(tmp_path / "sts.jsonl", [{"sentence1": "a bank", "sentence2": "a river", "score": 1}] * 3)
    command = ["probe", "isotropy", "--model", str(folder), f"--data={corpus}", f"--sts={tmp_path / 'sts.jsonl'}"]
    assert main([*command, "--tokens", "40", "--output_dir", str(tmp_path / "out")]) == 0
    states = read_results(tmp_path / "out", "isotropy")["states"]
    assert all(state[each]["sts_spearman"] == 0 for state in states for each in ("raw", "z_scored"))


def test_isotropy_without_sts_and_with_sentences_of_no_token(folder, corpus, tmp_path):
    with corpus.open("a", encoding="utf-8") as file:
        file.write("\n\n\u200b \u200b\n")
    command = ["probe", "isotropy", "--model", str(folder), f"--data={corpus}", "--output_dir", str(tmp_path / "out")]
    assert main(command) == 0
    assert "sts_spearman" not in read_results(tmp_path / "out", "isotropy")["states"][0]["raw"]
    assert main([*command[:-1], str(corpus / "out")]) == 2  # would lie in a file


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sentence1": ""}, "row 2: sentence1 is empty"),
        ({"score": None}, "row 2: score is missing"),
        ({"score": "high"}, "row 2: score='high' is not a number"),
        ({"sentence2": "\u200b"}, "row 2: sentence2: the text '\\u200b' has no token"),
    ],
)
def test_bad_sentence_pairs_are_named(folder, corpus, tmp_path, capsys, row, message):
    good = {"sentence1": "a bank", "sentence2": "a river", "score": 1.5}
    write_rows(tmp_path / "sts.jsonl", [good, good | row])
    command = ["probe", "isotropy", "--model", str(folder), f"--data={corpus}", f"--sts={tmp_path / 'sts.jsonl'}"]
    assert main(command) == 2
    assert message in error_line(capsys)
