"""Train a WordPiece, byte-level BPE or Unigram tokenizer that Transformers reloads without this package."""

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

PAD, UNK, CLS, SEP, MASK = SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
Train = Callable[..., Tokenizer]
# SentencePiece's default share of the text that the alphabet covers, and about the number of characters in BERT's
# English vocabulary, up to which rarer ones are taken in where there is room.
CHARACTER_COVERAGE = 0.9995
USUAL_ALPHABET = 1000
# Characters of text from which training takes seconds, and progress bars are worth it.
LARGE = 2_000_000

SPACE = "▁"
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]

# Unigram's words are GPT-2's (Radford et al., 2019) with "▁" for the space, and with combining marks kept beside their
# letters, without which the words of Indic scripts fall to pieces. Its chunks are whatever stands between spaces.
WHITESPACE = r"[▁\s]+(?![^▁\s])|[▁\s]+"
WORDS = r"'(?:[sdmt]|ll|ve|re)|▁?[\p{L}\p{M}]+|▁?\p{N}+|▁?[^▁\s\p{L}\p{M}\p{N}]+|" + WHITESPACE
CHUNKS = r"▁?[^▁\s]+|" + WHITESPACE


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
    """Train a stock fast tokenizer, which `AutoTokenizer` reloads without this package; the same texts give the same
    tokenizer, id for id. Ids 0 to 4 are [PAD], [UNK], [CLS] (also the `bos_token`), [SEP] (also the `eos_token`) and
    [MASK]. A text becomes `[CLS] A [SEP]`, a pair `[CLS] A [SEP] B [SEP]`.

    - `"wordpiece"` (Devlin et al., 2019): BERT's normalizer and split. A word with a character outside the alphabet
      becomes [UNK], and spacing is not kept.
    - `"bpe"` (over bytes as in Radford et al., 2019): GPT-2's split, and a space put before the first word.
    - `"unigram"` (Kudo, 2018): "▁" for the space as in SentencePiece, and 256 byte pieces for every character that has
      no piece of its own.

    BPE and Unigram lose no text, but for one leading space, special tokens spelled out in it, and with Unigram a "▁".
    Their [MASK] takes in the space before it, as RoBERTa's and XLM-R's do.

    Args:
        texts: Strings, read twice; an iterator is held in memory for that.
        vocab_size: How many tokens in all; a warning tells when the texts have too little in them. WordPiece and
            Unigram take in the most frequent characters: as many as cover 99.95 % of the text, or an eighth of the
            vocabulary (1,000 at most) if that is more.
        lowercase: By default WordPiece lower-cases, as bert-base-uncased does; BPE and Unigram do not.
        strip_accents: Drop the marks on letters, as bert-base-uncased does: accents, but also vowels of Indic scripts
            and tones. Words that only they tell apart become one.
        model_max_length: Length in tokens to which `truncation=True` cuts.
        token_type_ids: Whether the tokenizer puts them out; False for models with `type_vocab_size=0`.

    Raises:
        ValueError: Before training: an unknown algorithm, no text, or a `vocab_size` that is too small.
    """
    finish = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}.get(algorithm)
    if finish is None:
        raise ValueError(f"algorithm: {algorithm!r} is unknown; use wordpiece, bpe or unigram")
    if isinstance(texts, str):
        raise ValueError("texts: a single str; use a list, or another iterable, of strings")
    if isinstance(texts, Iterator):
        texts = list(texts)
    characters = _count_characters(texts, show_progress)
    show_progress &= characters.total() > LARGE

    def train(backend: Tokenizer, trainer: type[Trainer], **options) -> Tokenizer:
        trained = copy.deepcopy(backend)  # which itself stays free of the trainer's special tokens
        length = len(texts) if isinstance(texts, Sized) else None
        trained.train_from_iterator(
            texts, trainer(show_progress=show_progress, **options), length=length
        )
        return trained

    backend = Tokenizer(models.BPE())  # the model is replaced by the trained one
    backend.normalizer = _normalizer(algorithm, lowercase, strip_accents)
    finish(backend, train, _normalized(characters, backend.normalizer), vocab_size)
    template = processors.BertProcessing((SEP, SPECIAL.index(SEP)), (CLS, SPECIAL.index(CLS)))
    if algorithm == "bpe":
        # Without this a token's offsets take in the space before it.
        template = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    backend.post_processor = template
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=model_max_length,
        model_input_names=[
            "input_ids",
            *(["token_type_ids"] if token_type_ids else []),
            "attention_mask",
        ],
        clean_up_tokenization_spaces=False,
        bos_token=CLS,  # as RoBERTa has them: a decoder's `generate` stops at [SEP]
        eos_token=SEP,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=AddedToken(
            MASK, lstrip=algorithm != "wordpiece", normalized=False, special=True
        ),
    )
    if (size := len(tokenizer)) < vocab_size:
        fewer = f"fewer than vocab_size={vocab_size} asked for"
        warnings.warn(f"the texts gave a vocabulary of {size} tokens, {fewer}", stacklevel=2)
    return tokenizer


def _normalizer(
    algorithm: str, lowercase: bool | None, strip_accents: bool
) -> normalizers.Normalizer | None:
    if algorithm == "wordpiece":
        return normalizers.BertNormalizer(
            lowercase=lowercase is not False, strip_accents=strip_accents
        )
    if not (lowercase or strip_accents):
        return None
    steps = [normalizers.NFD(), normalizers.StripAccents()] * strip_accents
    return normalizers.Sequence(steps + [normalizers.Lowercase()] * bool(lowercase))


def _normalized(
    characters: Counter[str], normalizer: normalizers.Normalizer | None
) -> Counter[str]:
    """How often the characters occur in the normalized text; normalizers change one character at a time."""
    if normalizer is None:
        return characters
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        for changed in normalizer.normalize_str(character):
            counts[changed] += count
    return counts


# Each of the three gives a backend, which has its normalizer, all else that it needs. `train` trains a copy of it.


def _wordpiece(backend: Tokenizer, train: Train, characters: Counter, size: int):
    backend.model = models.WordPiece(unk_token=UNK)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()

    alphabet = _alphabet(
        {c: n for c, n in characters.items() if not c.isspace()}, size - len(SPECIAL)
    )
    # Chinese characters and punctuation are words of their own and continue none.
    pairs = {c: backend.normalizer.normalize_str("a" + c) for c in alphabet}
    continuing = [
        "##" + c for c in alphabet if len(backend.pre_tokenizer.pre_tokenize_str(pairs[c])) == 1
    ]
    _check_vocab_size(size, {"characters": alphabet, "of these that continue a word": continuing})
    # The trainer numbers the continuing characters in the order of a randomly seeded hash map and breaks ties by these
    # numbers (tokenizers#1794): given as special tokens, they have their numbers before it starts. The alphabet is
    # given too, because its own choice among equally rare characters is as random.
    options = dict(
        vocab_size=size,
        min_frequency=2,
        special_tokens=SPECIAL + continuing,
        initial_alphabet=alphabet,
    )
    trained = train(backend, WordPieceTrainer, limit_alphabet=len(alphabet), **options)
    backend.model = models.WordPiece(trained.get_vocab(), unk_token=UNK)


def _bpe(backend: Tokenizer, train: Train, characters: Counter, size: int):
    # A text's first word too has a space before it; ByteLevel alone would give one to what follows [MASK] as well.
    space = pre_tokenizers.Metaspace(" ", prepend_scheme="first", split=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [space, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_vocab_size(size, {"bytes": alphabet})
    options = dict(
        vocab_size=size, min_frequency=2, special_tokens=SPECIAL, initial_alphabet=alphabet
    )
    backend.model = train(backend, BpeTrainer, **options).model


def _unigram(backend: Tokenizer, train: Train, characters: Counter, size: int):
    backend.model = models.Unigram()
    spaces = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    words = pre_tokenizers.Split(Regex(WORDS), "isolated")
    chunks = pre_tokenizers.Split(Regex(CHUNKS), "isolated")
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )

    head = SPECIAL + BYTE_PIECES
    alphabet = {
        SPACE,
        *_alphabet({c: n for c, n in characters.items() if c != " "}, size - len(head)),
    }
    _check_vocab_size(size, {"bytes": BYTE_PIECES, "characters": alphabet})
    # The trainer takes its first pieces from what repeats in the list of distinct words, where even a frequent word
    # stands once: "this" is found in "this," and "this." only. So it is trained on chunks with their punctuation, to
    # twice the size, and pieces that cross the border of a word are dropped.
    backend.pre_tokenizer = pre_tokenizers.Sequence([spaces, chunks])
    trained = train(backend, UnigramTrainer, vocab_size=2 * size + len(characters))
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    backend.pre_tokenizer = pre_tokenizers.Sequence([spaces, words])

    # Two sources of chance are taken out. Characters too rare to have a score of their own get the lowest one plus
    # steps of 0.0001 in the order of a hash map; and sums over a hash map differ in their last digits.
    lowest = min(score for _, score in pieces)
    unscored = lowest + 0.0001 * len(characters)
    scores = {
        piece: round(lowest if len(piece) == 1 and score <= unscored else score, 4)
        for piece, score in pieces
        if piece not in SPECIAL
        and (piece in alphabet or (len(piece) > 1 and len(words.pre_tokenize_str(piece)) == 1))
    }
    # The alphabet, then the likeliest others, as many as there is room for. The score of the byte pieces plays no
    # part, as they stand for characters without a piece.
    ranked = sorted(scores, key=lambda piece: (piece not in alphabet, -scores[piece], piece))
    vocab = [(piece, 0.0) for piece in head] + [
        (piece, scores[piece]) for piece in ranked[: size - len(head)]
    ]
    backend.model = models.Unigram(vocab, unk_id=1, byte_fallback=True)


def _count_characters(texts: Iterable[str], show_progress: bool) -> Counter[str]:
    characters: Counter[str] = Counter()
    for i, text in enumerate(
        tqdm(texts, desc="Reading text", unit=" texts", disable=not show_progress, delay=1)
    ):
        if not isinstance(text, str):
            raise ValueError(f"texts[{i}]: of type {type(text).__name__}; use strings")
        characters.update(text)
    if not any(map(str.strip, characters)):
        raise ValueError("texts: empty; give at least one string that is not blank")
    return characters


def _alphabet(characters: Mapping[str, int], room: int) -> list[str]:
    """The most frequent characters, as described under `vocab_size`; `room` is the part of it that is not reserved."""
    ranked = sorted(characters, key=lambda char: (-characters[char], char))
    covered = list(accumulate(characters[char] for char in ranked))
    needed = bisect_left(covered, CHARACTER_COVERAGE * sum(characters.values())) + 1
    return ranked[: max(needed, min(USUAL_ALPHABET, room // 8))]


def _check_vocab_size(size: int, content: Mapping[str, Collection[str]]) -> None:
    smallest = len(SPECIAL) + sum(map(len, content.values()))
    if size < smallest:
        listed = ", ".join(f"{len(tokens)} {name}" for name, tokens in content.items())
        raise ValueError(
            f"vocab_size: {size} is too small; use at least {smallest}, for 5 special tokens, {listed}"
        )
