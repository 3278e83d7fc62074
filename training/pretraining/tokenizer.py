"""`minibert tokenizer`: train a tokenizer on files, or extend one."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ...tokenization import extend_tokenizer, train_tokenizer
from ..arguments import pretraining as arguments
from ..data.documents import check_sources, check_tokenization
from ..data.mixtures import load_sample
from ..files import check_folder
from ..loading import new_folder, saved_tokenizer


def train(
    corpus: arguments.CorpusArguments,
    mixture: arguments.MixtureArguments,
    streaming: arguments.StreamingArguments,
    tokenizer: arguments.TokenizerArguments,
    command: arguments.TokenizerCommandArguments,
) -> PreTrainedTokenizerBase:
    """Train a tokenizer (or extend a trained one), save it and give it back; a ValueError, before any work, if the
    folder holds one, or is none."""
    output = Path(command.output_dir)
    check_sources(corpus.data)
    check_folder(output)
    if (output / "tokenizer.json").exists():
        raise ValueError(f"output_dir: {str(output)!r} holds a tokenizer; give another one, or remove it")
    given = None if command.extend is None else saved_tokenizer(command.extend)
    documents = load_sample(corpus, mixture, streaming)
    if given is None:
        trained = train_tokenizer(documents["text"], **vars(tokenizer))
    else:
        extension = extend_tokenizer(given, documents["text"], command.extend_vocabulary)
        trained = extension.tokenizer
        print(extension.describe())
    check_tokenization(documents, trained)
    with new_folder(output) as written:
        trained.save_pretrained(written)
    example = next(iter(documents))["text"].splitlines()[0][:80]
    print(f"{len(trained):,} tokens, saved to {output}\n{example}\n{' '.join(trained.tokenize(example))}")
    return trained
