"""How words become tokens: their labels are at the first token (subword) of each word."""

from collections.abc import Sequence

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerBase

from ....tokenization import plain_tokenizer
from . import label_schemes as schemes
from .predictions import IS_CUT

# The label that no loss counts.
IGNORED_LABEL_ID = -100


def with_spaces_before_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, or one of its vocabulary, that reads every word of a sentence, the first one
    too, as behind a space, if words carry theirs. ModernBERT's own would read the words of a list
    as if they were parts of one."""
    pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer
    steps = [pre_tokenizer]
    if isinstance(pre_tokenizer, pre_tokenizers.Sequence):
        steps = list(pre_tokenizer)
    if isinstance(steps[0], pre_tokenizers.ByteLevel):
        steps[0].add_prefix_space = True
        tokenizer.add_prefix_space = True  # which is what RobertaTokenizer saves
        return tokenizer
    tokens_of_text = tokenizer.tokenize("a the")
    tokens_of_words = tokenizer.tokenize(["a", "the"], is_split_into_words=True)
    carry_no_space = tokens_of_text == tokens_of_words
    spaces_are_tokens = len(tokens_of_text) > len(tokens_of_words)
    if carry_no_space or spaces_are_tokens:
        return tokenizer
    # Behind another step that splits, ByteLevel would put the space before every piece.
    is_byte_level = any(isinstance(step, pre_tokenizers.ByteLevel) for step in steps)
    space = " " if is_byte_level else "\N{LOWER ONE EIGHTH BLOCK}"
    space_before = pre_tokenizers.Metaspace(space, prepend_scheme="always", split=False)
    adapted = plain_tokenizer(tokenizer)
    adapted.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [space_before, *filter(None, steps)]
    )
    return adapted


def encode_sentences(tokenizer, sentences, tags, *, labels: Sequence[str]) -> dict[str, list]:
    """Sentences (lists of words) and their tags, cut to `model_max_length`: the model's inputs;
    `labels`, the tags' ids at first subwords, -100 elsewhere (Devlin et al. 2019, section 5.3);
    `words`, the word that begins with each token, -1 where none does; and whether the sentence was
    `cut`."""
    encoded = tokenizer(sentences, is_split_into_words=True, truncation=True)
    id_of = dict(zip(labels, range(len(labels))))
    unknown_id = id_of.get(schemes.OUTSIDE, 0)  # for a tag that the model does not know
    rows = {
        "labels": [],
        "words": [],
        IS_CUT: [bool(encoding.overflowing) for encoding in encoded.encodings],
    }
    for sentence, sentence_tags in enumerate(tags):
        words = first_subwords(encoded.word_ids(sentence))
        label_ids = []
        for word in words:
            if word < 0:
                label_ids.append(IGNORED_LABEL_ID)
            else:
                label_ids.append(id_of.get(sentence_tags[word], unknown_id))
        rows["words"].append(words)
        rows["labels"].append(label_ids)
    return {**encoded, **rows}


def first_subwords(word_ids: Sequence[int | None]) -> list[int]:
    """The word that begins with each token, -1 where none does, of the words that the tokens belong
    to."""
    first = []
    word_before = None
    for word in word_ids:
        begins_word = word is not None and word != word_before
        first.append(word if begins_word else -1)
        word_before = word
    return first
