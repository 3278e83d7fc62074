"""Train a WordPiece, byte-level BPE or Unigram tokenizer that Transformers reloads without this package."""

import copy
import json
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from itertools import accumulate

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, Trainer, UnigramTrainer, WordPieceTrainer
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

MOST_TOKENS = 10_000_000
ALGORITHMS = ("wordpiece", "bpe", "unigram")
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
    min_frequency: int | None = None,
    pad_token: str = "[PAD]",
    unk_token: str = "[UNK]",
    cls_token: str = "[CLS]",
    sep_token: str = "[SEP]",
    mask_token: str = "[MASK]",
    model_max_length: int = 512,
    token_type_ids: bool = True,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Train a stock fast tokenizer, which `AutoTokenizer` reloads without this package; the same texts give the same
    tokenizer, id for id. Ids 0 to 4 are the padding, unknown, class, separator and mask token; the class token is the
    `bos_token` too, and the separator the `eos_token`. A text becomes `[CLS] A [SEP]`, a pair `[CLS] A [SEP] B [SEP]`.

    - `"wordpiece"` (Schuster and Nakajima, 2012; Devlin et al., 2019): BERT's normalizer and split. A word with a
      character outside the alphabet becomes `unk_token`, and spacing is not kept.
    - `"bpe"` (Sennrich et al., 2016; over bytes as in Radford et al., 2019): GPT-2's split, a space put before the
      first word, and all 256 bytes in the alphabet.
    - `"unigram"` (Kudo, 2018): "▁" for the space as in SentencePiece, and 256 byte pieces for every character that has
      no piece of its own.

    With BPE and Unigram `decode(encode(text), skip_special_tokens=True)` gives back the text in any script, but for
    one leading space, special tokens spelled out in it, and with Unigram a "▁" (U+2581). Offsets of a Unigram token
    take in the space before it; those of the others do not.

    Args:
        texts: Strings, read twice; an iterator is held in memory for that.
        vocab_size: How many tokens in all; a warning tells when the texts have too little in them. WordPiece and
            Unigram take in the most frequent characters: as many as cover 99.95 % of the text, or an eighth of the
            vocabulary (1,000 at most) if that is more.
        lowercase: By default WordPiece lower-cases, as bert-base-uncased does; BPE and Unigram do not.
        strip_accents: Drop the marks on letters, as bert-base-uncased does: accents, but also vowels of Indic scripts
            and tones. Words that only they tell apart become one.
        min_frequency: How often two pieces must stand side by side to be merged, 2 by default; not for Unigram.
        pad_token, unk_token, cls_token, sep_token, mask_token: With BPE and Unigram the mask token takes in the space
            before it, as RoBERTa's and XLM-R's do.
        model_max_length: Length in tokens to which `truncation=True` cuts.
        token_type_ids: Whether the tokenizer puts them out; False for models with `type_vocab_size=0`.
        show_progress: Whether to show progress bars, where there is text for seconds of work.

    Raises:
        ValueError: Before training, for an unknown algorithm, when `texts` holds anything but strings, or no text, or
            when `vocab_size` is too small, with the smallest possible.
    """
    names = dict(
        pad_token=pad_token, unk_token=unk_token, cls_token=cls_token, sep_token=sep_token, mask_token=mask_token
    )
    _check_arguments(texts, algorithm, vocab_size, min_frequency, names)
    if isinstance(texts, Iterator):
        texts = list(texts)
    characters = _count_characters(texts, show_progress)
    show_progress &= characters.total() > LARGE

    def train(backend: Tokenizer, trainer: type[Trainer], **options) -> Tokenizer:
        trained = copy.deepcopy(backend)  # which itself stays free of the trainer's special tokens
        length = len(texts) if isinstance(texts, Sized) else None
        trained.train_from_iterator(texts, trainer(show_progress=show_progress, **options), length=length)
        return trained

    backend = Tokenizer(models.BPE())  # the model is replaced by the trained one
    backend.normalizer = _normalizer(algorithm, lowercase, strip_accents)
    characters = _normalized(characters, backend.normalizer)
    finish = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}[algorithm]
    least = 2 if min_frequency is None else min_frequency
    finish(backend, train, characters, vocab_size, list(names.values()), least)

    template = processors.BertProcessing(*((name, backend.token_to_id(name)) for name in (sep_token, cls_token)))
    if algorithm == "bpe":
        # Without this a token's offsets take in the space before it.
        template = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    backend.post_processor = template
    names["mask_token"] = AddedToken(mask_token, lstrip=algorithm != "wordpiece", normalized=False, special=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=model_max_length,
        model_input_names=["input_ids", *(["token_type_ids"] if token_type_ids else []), "attention_mask"],
        clean_up_tokenization_spaces=False,
        bos_token=cls_token,  # as RoBERTa has them: a decoder's `generate` stops at [SEP]
        eos_token=sep_token,
        **names,
    )
    if (size := len(tokenizer)) < vocab_size:
        fewer = f"fewer than vocab_size={vocab_size} asked for"
        warnings.warn(f"the texts gave a vocabulary of {size} tokens, {fewer}", stacklevel=2)
    return tokenizer


def _normalizer(algorithm: str, lowercase: bool | None, strip_accents: bool) -> normalizers.Normalizer | None:
    if algorithm == "wordpiece":
        return normalizers.BertNormalizer(lowercase=lowercase is not False, strip_accents=strip_accents)
    if not (lowercase or strip_accents):
        return None
    steps = [normalizers.NFD(), normalizers.StripAccents()] * strip_accents
    return normalizers.Sequence(steps + [normalizers.Lowercase()] * bool(lowercase))


def _normalized(characters: Counter[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    """How often the characters occur in the normalized text; normalizers change one character at a time."""
    if normalizer is None:
        return characters
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        for changed in normalizer.normalize_str(character):
            counts[changed] += count
    return counts


def _check_arguments(
    texts: Iterable[str], algorithm: str, vocab_size: int, min_frequency: int | None, names: Mapping[str, str]
) -> None:
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm: {algorithm!r} is unknown; use one of {', '.join(ALGORITHMS)}")
    if not isinstance(vocab_size, int) or vocab_size > MOST_TOKENS:  # the trainer ends the process if memory is short
        raise ValueError(f"vocab_size: {vocab_size!r}; use a whole number, at most {MOST_TOKENS:,}")
    if isinstance(texts, (str, bytes)):
        raise ValueError(f"texts: a single {type(texts).__name__}; use a list, or another iterable, of strings")
    if algorithm == "unigram" and min_frequency is not None:
        raise ValueError(f"min_frequency: {min_frequency} has no effect with unigram; leave it out")
    for field, name in names.items():
        if not isinstance(name, str) or not name.strip() or list(names.values()).count(name) > 1:
            raise ValueError(f"{field}: {name!r} is blank or given twice; use five different strings")


# Each of the three gives a backend, which has its normalizer, all else that it needs. `train` trains a copy of it.


def _wordpiece(backend: Tokenizer, train: Train, characters: Counter, size: int, special: list[str], least: int):
    backend.model = models.WordPiece(unk_token=special[1])
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()

    alphabet = _alphabet({c: n for c, n in characters.items() if not c.isspace()}, size - len(special))
    # Chinese characters and punctuation are words of their own and continue none.
    pairs = {c: backend.normalizer.normalize_str("a" + c) for c in alphabet}
    continuing = ["##" + c for c in alphabet if len(backend.pre_tokenizer.pre_tokenize_str(pairs[c])) == 1]
    content = {"special tokens": special, "characters": alphabet, "of these that continue a word": continuing}
    _check_vocab_size(size, content)
    # The trainer numbers the continuing characters in the order of a randomly seeded hash map and breaks ties by these
    # numbers (tokenizers#1794): given as special tokens, they have their numbers before it starts. The alphabet is
    # given too, because its own choice among equally rare characters is as random.
    options = dict(vocab_size=size, min_frequency=least, special_tokens=special + continuing, initial_alphabet=alphabet)
    trained = train(backend, WordPieceTrainer, limit_alphabet=len(alphabet), **options)
    backend.model = models.WordPiece(trained.get_vocab(), unk_token=special[1])


def _bpe(backend: Tokenizer, train: Train, characters: Counter, size: int, special: list[str], least: int):
    # A text's first word too has a space before it; ByteLevel alone would give one to what follows [MASK] as well.
    space = pre_tokenizers.Metaspace(" ", prepend_scheme="first", split=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([space, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_vocab_size(size, {"special tokens": special, "bytes": alphabet})
    options = dict(vocab_size=size, min_frequency=least, special_tokens=special, initial_alphabet=alphabet)
    backend.model = train(backend, BpeTrainer, **options).model


def _unigram(backend: Tokenizer, train: Train, characters: Counter, size: int, special: list[str], least: int):
    backend.model = models.Unigram()
    spaces = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    words = pre_tokenizers.Split(Regex(WORDS), "isolated")
    chunks = pre_tokenizers.Split(Regex(CHUNKS), "isolated")
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )

    head = special + BYTE_PIECES
    alphabet = {SPACE, *_alphabet({c: n for c, n in characters.items() if c != " "}, size - len(head))}
    _check_vocab_size(size, {"special tokens": special, "bytes": BYTE_PIECES, "characters": alphabet})
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
        if piece not in special and (piece in alphabet or (len(piece) > 1 and len(words.pre_tokenize_str(piece)) == 1))
    }
    # The alphabet, then the likeliest others, as many as there is room for. The score of the byte pieces plays no
    # part, as they stand for characters without a piece.
    ranked = sorted(scores, key=lambda piece: (piece not in alphabet, -scores[piece], piece))
    vocab = [(piece, 0.0) for piece in head] + [(piece, scores[piece]) for piece in ranked[: size - len(head)]]
    backend.model = models.Unigram(vocab, unk_id=1, byte_fallback=True)


def _count_characters(texts: Iterable[str], show_progress: bool) -> Counter[str]:
    characters: Counter[str] = Counter()
    for i, text in enumerate(tqdm(texts, desc="Reading text", unit=" texts", disable=not show_progress, delay=1)):
        if not isinstance(text, str):
            raise ValueError(f"texts[{i}]: of type {type(text).__name__}; use strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"texts[{i}]: not Unicode text: {error}") from None
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
    smallest = sum(map(len, content.values()))
    if size < smallest:
        listed = ", ".join(f"{len(tokens)} {name}" for name, tokens in content.items())
        raise ValueError(f"vocab_size: {size} is too small; use at least {smallest}, for {listed}")
