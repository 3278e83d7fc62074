"""What a saved tokenizer makes of texts, compared with what its tokenizer.json says."""

from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from .coverage import check_growth

# Capitals, accents, other scripts, numbers, spaces and joined words: what tokenizers treat
# differently.
SAMPLE_TEXTS = (
    "The king sold a map near the river.",
    "In 1848, Karl Marx and Friedrich Engels wrote 23 pages in London; 3,500 copies were printed.",
    "Ça va très bien, merci! Où est la gare de Besançon?",
    "Der Bäcker in Köln fragte: „Möchten Sie süße Brötchen?“",
    "Москва не сразу строилась, говорит старая пословица.",
    "北京是中国的首都。東京は日本の首都です。",
    "كتب الطالب رسالة طويلة. एक छोटा सा गाँव था।",
    "def main(args): return [x ** 2 for x in args if x != 0]  # e-mail: a.b@example.org",
    "  Two  spaces,\ta tab,\nand a new line; don't re-use the well-known e-mail address 😀.",
    # longer than the windows of models with local attention
    " ".join(
        f"On day {day} the old farmer carried {day} green apples to the market before dinner."
        for day in range(1, 16)
    ),
)
# Of an uncased vocabulary, only a few odd tokens have capitals.
MAX_SHARE_WITH_CAPITALS = 0.01


def sample_ids(
    tokenizer: PreTrainedTokenizerBase, add_special_tokens: bool = True
) -> list[list[int]]:
    """The ids of `SAMPLE_TEXTS`, by the tokenizer of Transformers."""
    options = {"add_special_tokens": add_special_tokens, "truncation": False, "verbose": False}
    ids = []
    for text in SAMPLE_TEXTS:
        ids.append(tokenizer(text, **options)["input_ids"])
    return ids


def sample_ids_of_file(backend: Tokenizer, add_special_tokens: bool = True) -> list[list[int]]:
    """The ids of `SAMPLE_TEXTS`, whole and without padding, by the library that reads
    tokenizer.json."""
    backend.no_truncation()
    backend.no_padding()
    ids = []
    for text in SAMPLE_TEXTS:
        ids.append(backend.encode(text, add_special_tokens=add_special_tokens).ids)
    return ids


def tokenizer_with_ids_of_file(
    tokenizer: PreTrainedTokenizerBase, file: Path | None
) -> PreTrainedTokenizerBase:
    """`tokenizer` if it gives the ids of its tokenizer.json; else a tokenizer that does.

    Transformers takes only the vocabulary from that file where tokenizer_config.json names a class
    such as BertTokenizer or RobertaTokenizer, and builds the rest as the class does: other words,
    other capitals.

    Args:
        file: Its tokenizer.json. None: it has none, and is returned as it is, as one in Python is.
    """
    reads_file_itself = type(tokenizer) is TokenizersBackend
    if file is None or reads_file_itself or not tokenizer.is_fast:
        return tokenizer
    backend = Tokenizer.from_file(str(file))
    check_growth(backend, repr(str(tokenizer.name_or_path)))
    # Without a template in the file, the class says where special tokens go.
    has_template = backend.post_processor is not None
    ids_of_file = sample_ids_of_file(backend, has_template)
    if sample_ids(tokenizer, has_template) == ids_of_file:
        return tokenizer
    special_tokens = {}
    for name, token in tokenizer.special_tokens_map.items():
        if isinstance(token, str) and backend.token_to_id(token) is not None:
            special_tokens[name] = token
    followed = TokenizersBackend(
        tokenizer_file=str(file),
        name_or_path=tokenizer.name_or_path,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        **special_tokens,
    )
    if sample_ids(followed, has_template) != ids_of_file:
        raise ValueError(
            f"tokenizer: {str(file)!r} gives other ids than the tokenizer that Transformers makes"
            " of it; save it again by a current version of tokenizers"
        )
    return followed


def tokens_with_capitals(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The tokens with capitals of a cased vocabulary, if the tokenizer lower-cases all text so that
    it never gives them; none for any other tokenizer."""
    if not tokenizer.is_fast:
        return []
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") != "a":
        return []
    special_tokens = tokenizer.get_added_vocab()
    tokens = []
    for token in tokenizer.get_vocab():
        is_special = token in special_tokens or token.startswith(("[", "<"))
        if token != token.lower() and not is_special:
            tokens.append(token)
    if len(tokens) <= MAX_SHARE_WITH_CAPITALS * len(tokenizer):
        return []
    return tokens
