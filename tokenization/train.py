"""Train a WordPiece, byte-level BPE or Unigram tokenizer that Transformers reloads without this
package."""

import copy
import json
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from itertools import accumulate

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.trainers import BpeTrainer, Trainer, UnigramTrainer, WordPieceTrainer
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from ..option_checks import checked_keywords
from .check_texts import check_text, check_texts

PAD = "[PAD]"
UNK = "[UNK]"
CLS = "[CLS]"
SEP = "[SEP]"
MASK = "[MASK]"
SPECIAL_TOKENS = [PAD, UNK, CLS, SEP, MASK]  # in the order of their ids
TrainFunction = Callable[..., Tokenizer]
# SentencePiece's default share of the text that the alphabet covers, and about the number of
# characters in BERT's English vocabulary, up to which rarer ones are taken in where there is room.
CHARACTER_COVERAGE = 0.9995
USUAL_ALPHABET_SIZE = 1000
# Characters of text from which training takes seconds, and progress bars are worth it.
MIN_CHARACTERS_FOR_PROGRESS = 2_000_000

SPACE_MARK = "▁"
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]

# Unigram's words are GPT-2's (Radford et al., 2019) with "▁" for the space, and with combining
# marks kept beside their letters, without which the words of Indic scripts fall to pieces. Its
# chunks are whatever stands between spaces.
WHITESPACE_PATTERN = r"[▁\s]+(?![^▁\s])|[▁\s]+"
WORD_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)|▁?[\p{L}\p{M}]+|▁?\p{N}+|▁?[^▁\s\p{L}\p{M}\p{N}]+|" + WHITESPACE_PATTERN
)
CHUNK_PATTERN = r"▁?[^▁\s]+|" + WHITESPACE_PATTERN

# BPE's words are GPT-2's, too, but that marks continue a word that begins with a letter. A mark
# behind a sign (as in some emoji) stays with the sign.
BPE_WORD_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}[\p{L}\p{M}]*| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


@checked_keywords
def train_tokenizer(
    texts: Iterable[str],
    algorithm: str = "wordpiece",
    vocab_size: int = 30_522,
    *,
    lowercase: bool | None = None,
    strip_accents: bool = False,
    model_max_length: int = 512,
    token_type_ids: bool = True,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Train a stock fast tokenizer, which `AutoTokenizer` reloads without this package; the same
    texts give the same tokenizer, id for id. Ids 0 to 4 are [PAD], [UNK], [CLS] (also the
    `bos_token`), [SEP] (also the `eos_token`) and [MASK]. A text becomes `[CLS] A [SEP]`, a pair
    `[CLS] A [SEP] B [SEP]`.

    - `"wordpiece"` (Devlin et al., 2019): BERT's normalizer and split. A word with a character
      outside the alphabet becomes [UNK], and spacing is not kept.
    - `"bpe"` (over bytes as in Radford et al., 2019): GPT-2's split, but that marks stay with their
      letters (such as the vowel signs of Hindi and Thai), and a space put before the first word.
    - `"unigram"` (Kudo, 2018): "▁" for the space as in SentencePiece, and 256 byte pieces for every
      character that has no piece of its own.

    BPE and Unigram lose no text, but for one leading space, special tokens spelled out in it, and
    with Unigram a "▁". Their [MASK] takes in the space before it, as RoBERTa's and XLM-R's do.

    Args:
        texts: Strings, read twice; an iterator is held in memory for that.
        vocab_size: How many tokens in all; a warning tells when the texts have too little in them.
            WordPiece and Unigram take in the most frequent characters: as many as cover 99.95 % of
            the text, or an eighth of the vocabulary (1,000 at most) if that is more.
        lowercase: By default WordPiece lower-cases, as bert-base-uncased does; BPE and Unigram do
            not.
        strip_accents: Drop the marks on letters, as bert-base-uncased does: accents, but also
            vowels of Indic scripts and tones. Words that only they tell apart become one.
        model_max_length: Length in tokens to which `truncation=True` cuts.
        token_type_ids: Whether the tokenizer puts them out; False for models with
            `type_vocab_size=0`.

    Raises:
        ValueError: Before training: an unknown algorithm, no text, or a `vocab_size` that is too
            small.
    """
    train_model = MODEL_TRAINERS.get(algorithm)
    if train_model is None:
        raise ValueError(f"algorithm: {algorithm!r} is unknown; use wordpiece, bpe or unigram")
    check_texts(texts)
    if isinstance(texts, Iterator):
        texts = list(texts)
    character_counts = _check_and_count(texts, show_progress)
    show_progress &= character_counts.total() > MIN_CHARACTERS_FOR_PROGRESS

    def train(backend: Tokenizer, trainer: type[Trainer], **options) -> Tokenizer:
        trained = copy.deepcopy(backend)  # which itself stays free of the trainer's special tokens
        length = len(texts) if isinstance(texts, Sized) else None
        configured_trainer = trainer(show_progress=show_progress, **options)
        trained.train_from_iterator(texts, configured_trainer, length=length)
        return trained

    backend = Tokenizer(models.BPE())  # the model is replaced by the trained one
    backend.normalizer = _make_normalizer(algorithm, lowercase, strip_accents)
    normalized_counts = _normalize_counts(character_counts, backend.normalizer)
    train_model(backend, train, normalized_counts, vocab_size)
    backend.post_processor = _make_post_processor(algorithm)
    tokenizer = _make_tokenizer(backend, algorithm, model_max_length, token_type_ids)
    if len(tokenizer) < vocab_size:
        warnings.warn(
            f"the texts gave a vocabulary of {len(tokenizer)} tokens,"
            f" fewer than vocab_size={vocab_size} asked for",
            stacklevel=3,  # who called, behind `checked_keywords`
        )
    return tokenizer


def _make_post_processor(algorithm: str) -> processors.PostProcessor:
    """`[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]`."""
    frame = processors.BertProcessing(
        (SEP, SPECIAL_TOKENS.index(SEP)), (CLS, SPECIAL_TOKENS.index(CLS))
    )
    if algorithm != "bpe":
        return frame
    # Without the first, a token's offsets take in the space before it.
    return processors.Sequence([processors.ByteLevel(trim_offsets=True), frame])


def _make_tokenizer(
    backend: Tokenizer, algorithm: str, model_max_length: int, token_type_ids: bool
) -> PreTrainedTokenizerFast:
    """The trained backend as a tokenizer of Transformers."""
    input_names = ["input_ids", "attention_mask"]
    if token_type_ids:
        input_names.insert(1, "token_type_ids")
    takes_space_before = algorithm != "wordpiece"
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=model_max_length,
        model_input_names=input_names,
        clean_up_tokenization_spaces=False,
        bos_token=CLS,  # as RoBERTa has them: a decoder's `generate` stops at [SEP]
        eos_token=SEP,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=AddedToken(MASK, lstrip=takes_space_before, normalized=False, special=True),
    )


def _make_normalizer(
    algorithm: str, lowercase: bool | None, strip_accents: bool
) -> normalizers.Normalizer | None:
    if algorithm == "wordpiece":
        return normalizers.BertNormalizer(
            lowercase=lowercase is not False, strip_accents=strip_accents
        )
    if not (lowercase or strip_accents):
        return None
    steps = []
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps)


def _normalize_counts(
    counts: Counter[str], normalizer: normalizers.Normalizer | None
) -> Counter[str]:
    """How often the characters occur in the normalized text; normalizers change one character at a
    time."""
    if normalizer is None:
        return counts
    normalized_counts: Counter[str] = Counter()
    for character, count in counts.items():
        for normalized_character in normalizer.normalize_str(character):
            normalized_counts[normalized_character] += count
    return normalized_counts


# One function for each algorithm. It gets a `backend` with nothing but a normalizer, and sets its
# pre-tokenizer, its decoder and its trained model. `train` trains a copy of the backend as it is
# then, and returns that.


def _train_wordpiece(
    backend: Tokenizer, train: TrainFunction, character_counts: Counter[str], vocab_size: int
) -> None:
    backend.model = models.WordPiece(unk_token=UNK)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()

    letters = {char: count for char, count in character_counts.items() if not char.isspace()}
    alphabet = _choose_alphabet(letters, vocab_size - len(SPECIAL_TOKENS))
    continuing_pieces = []
    for char in alphabet:
        # Chinese characters and punctuation are words of their own and continue none.
        text = backend.normalizer.normalize_str("a" + char)
        if len(backend.pre_tokenizer.pre_tokenize_str(text)) == 1:
            continuing_pieces.append("##" + char)
    _check_vocab_size(
        vocab_size,
        {"characters": alphabet, "of these that continue a word": continuing_pieces},
    )
    # The trainer numbers the continuing characters in the order of a randomly seeded hash map and
    # breaks ties by these numbers (tokenizers#1794): given as special tokens, they have their
    # numbers before it starts. The alphabet is given too, because its own choice among equally rare
    # characters is as random.
    trained = train(
        backend,
        WordPieceTrainer,
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS + continuing_pieces,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    backend.model = models.WordPiece(trained.get_vocab(), unk_token=UNK)


def _train_bpe(
    backend: Tokenizer, train: TrainFunction, character_counts: Counter[str], vocab_size: int
) -> None:
    # A text's first word too has a space before it; ByteLevel alone would give one to what follows
    # [MASK] as well.
    space = pre_tokenizers.Metaspace(" ", prepend_scheme="first", split=False)
    words = pre_tokenizers.Split(Regex(BPE_WORD_PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([space, words, byte_level])
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_vocab_size(vocab_size, {"bytes": alphabet})
    trained = train(
        backend,
        BpeTrainer,
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=alphabet,
    )
    backend.model = trained.model


def _train_unigram(
    backend: Tokenizer, train: TrainFunction, character_counts: Counter[str], vocab_size: int
) -> None:
    backend.model = models.Unigram()
    spaces = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="first", split=False)
    words = pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated")
    chunks = pre_tokenizers.Split(Regex(CHUNK_PATTERN), "isolated")
    decoding_steps = [
        decoders.Replace(SPACE_MARK, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    backend.decoder = decoders.Sequence(decoding_steps)

    reserved = SPECIAL_TOKENS + BYTE_PIECES
    letters = {char: count for char, count in character_counts.items() if char != " "}
    alphabet = {SPACE_MARK, *_choose_alphabet(letters, vocab_size - len(reserved))}
    _check_vocab_size(vocab_size, {"bytes": BYTE_PIECES, "characters": alphabet})
    # The trainer takes its first pieces from what repeats in the list of distinct words, where even
    # a frequent word stands once: "this" is found in "this," and "this." only. So it is trained on
    # chunks with their punctuation, to twice the size, and pieces that cross the border of a word
    # are dropped.
    backend.pre_tokenizer = pre_tokenizers.Sequence([spaces, chunks])
    trained = train(backend, UnigramTrainer, vocab_size=2 * vocab_size + len(character_counts))
    trained_pieces = json.loads(trained.to_str())["model"]["vocab"]
    backend.pre_tokenizer = pre_tokenizers.Sequence([spaces, words])

    # Two sources of chance are taken out. Characters too rare to have a score of their own get the
    # lowest one plus steps of 0.0001 in the order of a hash map; and sums over a hash map differ in
    # their last digits.
    lowest_score = min(score for _, score in trained_pieces)
    highest_unscored = lowest_score + 0.0001 * len(character_counts)
    scores = {}
    for piece, score in trained_pieces:
        is_within_word = len(piece) > 1 and len(words.pre_tokenize_str(piece)) == 1
        if piece in SPECIAL_TOKENS or not (piece in alphabet or is_within_word):
            continue
        if len(piece) == 1 and score <= highest_unscored:
            score = lowest_score
        scores[piece] = round(score, 4)
    # The alphabet, then the likeliest others, as many as there is room for. The score of the
    # reserved pieces plays no part, as they stand for characters without a piece.
    ranked = sorted(scores, key=lambda piece: (piece not in alphabet, -scores[piece], piece))
    vocab = [(piece, 0.0) for piece in reserved]
    vocab += [(piece, scores[piece]) for piece in ranked[: vocab_size - len(reserved)]]
    backend.model = models.Unigram(vocab, unk_id=SPECIAL_TOKENS.index(UNK), byte_fallback=True)


MODEL_TRAINERS = {
    "wordpiece": _train_wordpiece,
    "bpe": _train_bpe,
    "unigram": _train_unigram,
}


def _check_and_count(texts: Iterable[str], show_progress: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    progress = tqdm(texts, desc="Reading text", unit=" texts", disable=not show_progress, delay=1)
    for index, text in enumerate(progress):
        check_text(text, index)
        counts.update(text)
    if not any(map(str.strip, counts)):
        raise ValueError("texts: empty; give at least one string that is not blank")
    return counts


def _choose_alphabet(character_counts: Mapping[str, int], room: int) -> list[str]:
    """The most frequent characters, as described under `vocab_size`; `room` is the part of it that
    is not reserved."""
    ranked = sorted(character_counts, key=lambda char: (-character_counts[char], char))
    covered = list(accumulate(character_counts[char] for char in ranked))
    count_to_cover = CHARACTER_COVERAGE * sum(character_counts.values())
    num_needed = bisect_left(covered, count_to_cover) + 1
    return ranked[: max(num_needed, min(USUAL_ALPHABET_SIZE, room // 8))]


def _check_vocab_size(vocab_size: int, needed_tokens: Mapping[str, Collection[str]]) -> None:
    """Refuse (a ValueError) a size without room for the special tokens and these, by what they
    are."""
    smallest = len(SPECIAL_TOKENS) + sum(map(len, needed_tokens.values()))
    if vocab_size < smallest:
        listed = ", ".join(f"{len(tokens)} {name}" for name, tokens in needed_tokens.items())
        raise ValueError(
            f"vocab_size: {vocab_size} is too small; use at least {smallest},"
            f" for 5 special tokens, {listed}"
        )
