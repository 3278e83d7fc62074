"""What is given and would have no effect is rejected: on the command line always, in a recipe if that is at fault."""

import dataclasses

import pytest

from minibert.training.cli import main as cli
from minibert.training.cli import parsing
from minibert.training.cli.commands import COMMANDS
from minibert.training.cli.unused_arguments import CONDITIONS

NSP = "--objective mlm+nsp --model bert"
STREAM = "--data a.txt --streaming --max_steps 5"


@pytest.mark.parametrize(
    ("line", "unused", "where", "instead"),
    [
        ("--short_seq_prob 0.1", "short_seq_prob: 0.1", "with --objective mlm", "with --objective mlm+nsp"),
        ("--objective rtd --short_seq_prob 0", "short_seq_prob: 0.0", "with --objective rtd", "--objective mlm+nsp"),
        ("--generator_size 0.5", "generator_size: 0.5", "with --objective mlm", "with --objective rtd"),
        (f"{NSP} --discriminator-weight=50", "discriminator_weight: 50.0", "with --objective mlm+nsp", "rtd"),
        ("--objective clm --generator_temperature 2", "generator_temperature: 2.0", "with --objective clm", "rtd"),
        ("--objective clm --mlm_probability 0.15", "mlm_probability: 0.15", "with --objective clm", "mlm, mlm+nsp"),
        ("--objective clm --rate_points 1:0.2", "rate_points: {1.0: 0.2}", "with --objective clm", "mlm, mlm+nsp"),
        (f"{NSP} --packing packed", "packing: 'packed'", "with --objective mlm+nsp", "with --objective mlm, rtd, clm"),
        (f"{NSP} --num_proc 2", "num_proc: 2", "with --objective mlm+nsp", "with --objective mlm, rtd, clm"),
        (f"{STREAM} --num_proc 2", "num_proc: 2", "with --streaming True", "without --streaming"),
        ("--shuffle_buffer 5", "shuffle_buffer: 5", "without --streaming", "with --streaming"),
        ("--sample_documents 5", "sample_documents: 5", "without --streaming", "with --streaming"),
        (f"{STREAM} --tokenizer t --sample_documents 5", "sample_documents: 5", "with --tokenizer t", "--tokenizer"),
        ("--text_column text", "text_column: 'text'", "without --data", "with --data"),
        ("--sample_by auto", "sample_by: 'auto'", "without --data", "with --data"),
        ("--data a b --weights 1 2 --packages numpy", "packages: ['numpy']", "with --data a b", "without --data"),
        ("--data a --sampling_alpha 0.3", "sampling_alpha: 0.3", "with --data a", "with several entries of --data"),
        ("--tokenizer t --vocab_size 8192", "vocab_size: 8192", "with --tokenizer t", "without --tokenizer"),
        ("--tokenizer t --lowercase true", "lowercase: True", "with --tokenizer t", "without --tokenizer"),
        (
            "--model_name_or_path m --algorithm bpe",
            "algorithm: 'bpe'",
            "with --model_name_or_path m",
            "without --model",
        ),
        ("--model_name_or_path m --model bert", "model: 'bert'", "with --model_name_or_path m", "without --model"),
        ("--model_name_or_path m --size tiny", "size: 'tiny'", "with --model_name_or_path m", "without --model"),
    ],
)
def test_rejected_before_any_work(line, unused, where, instead, tmp_path, capsys):
    output = tmp_path / "run"
    assert cli.main(["pretrain", *line.split(), "--output_dir", str(output)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"minibert: error: {unused} has no effect {where}; use it ") and instead in error
    assert not output.exists()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("tokenizer --shuffle_buffer 5", "shuffle_buffer: 5 has no effect without --streaming"),
        ("tokenizer --data a --weights 2", "weights: [2.0] has no effect with --data a"),
        ("tokenizer --sample_by line", "sample_by: 'line' has no effect without --data"),
        ("embed cat --column nonsense", "column: 'nonsense' has no effect without --file"),
        ("embed --file a.txt --column text", "column: 'text' has no effect with --file a.txt"),
        ("search index cat --depth 3", "depth: 3 has no effect without --reranker"),
        ("search index cat --passage_words 7", "passage_words: 7 has no effect without --data"),
        ("evaluate embed --data a.csv --split nonsense", "split: 'nonsense' has no effect with --data a.csv"),
        ("evaluate embed --data . --columns a b c", "columns: ['a', 'b', 'c'] has no effect with --data ."),
        ("evaluate embed --data . --reference_texts 5", "reference_texts: 5 has no effect without --reference"),
        ("evaluate tag --resume_from_checkpoint true", "resume_from_checkpoint: 'true' has no effect here"),
        ("evaluate choose --push_to_hub true", "push_to_hub: True has no effect here"),
        ("evaluate classify --learning_rate 5e-5", "learning_rate: 5e-05 has no effect here"),
        ("evaluate nli --eval_strategy epoch", "eval_strategy: 'epoch' has no effect here"),
        ("export a b --pooling cls", "pooling: 'cls' has no effect with --format onnx"),
        ("export a b --format native --int8 true", "int8: True has no effect with --format native"),
        ("finetune embed a --pairs_from title --columns b", "columns: ['b'] has no effect with --pairs_from title"),
        ("finetune embed a --loss cosine --scale 99", "scale: 99.0 has no effect with --loss cosine"),
        (
            "finetune embed a --validation b --validation_size 5",
            "validation_size: 5.0 has no effect with --validation b",
        ),
        ("finetune rerank a --mine_depth 17", "mine_depth: 17 has no effect without --miner"),
    ],
)
def test_other_commands_refuse_it_too(line, error, capsys):
    assert cli.main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"minibert: error: {error}; use it ")


@pytest.mark.parametrize(
    "line",
    [
        f"{NSP} --short_seq_prob 0.2 --mlm_probability 0.2",
        "--objective rtd --generator_size 0.5 --masking span --packing padded",
        "--objective clm --packing padded --num_proc 2",
        f"{STREAM} --shuffle_buffer 5 --sample_documents 5 --vocab_size 300 --text_column text",
        "--data a b --weights 1 2 --sampling_alpha 0.5 --sample_by line",
        "--packages numpy",
        "--tokenizer t --model bert --size tiny",
        "--model_name_or_path m --max_position_embeddings 100",
        "--num_train_epochs 3 --max_steps 5",  # as Transformers has it, the steps count
    ],
)
def test_what_has_an_effect_is_not_refused(line):
    parsing.parse("pretrain", line.split())


def test_names_of_the_table():
    for kind, conditions in CONDITIONS.items():
        kinds = {item for command in COMMANDS.values() if kind in command.arguments for item in command.arguments}
        names = {field.name for item in kinds for field in dataclasses.fields(item)}
        assert all({condition.switch, *condition.arguments} <= names for condition in conditions)


# --- recipes ---


@pytest.mark.parametrize(
    ("recipe", "line"),
    [
        ("bert-classic", "--model_name_or_path runs/first"),  # as its own comment says
        ("decoder", "--tokenizer runs/modern"),  # as its own comment says
        ("long-context", "--model_name_or_path runs/modern"),
        ("modern", "--objective clm"),
        ("multilingual", "--data one.txt"),
        ("electra", "--objective mlm"),
    ],
)
def test_the_command_line_may_make_keys_unused_of_a_recipe(recipe, line):
    parsing.parse("pretrain", ["--recipe", recipe, *line.split()])


def test_a_recipe_may_not_have_unused_own_keys(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("objective: mlm\nshort_seq_prob: 0.2\n")
    with pytest.raises(ValueError, match="short_seq_prob: 0.2 has no effect with --objective mlm; use it with"):
        parsing.parse("pretrain", ["--recipe", str(recipe)])
    recipe.write_text("short_seq_prob: 0.2\n")
    with pytest.raises(ValueError, match="short_seq_prob: 0.2 has no effect with --objective mlm;"):
        parsing.parse("pretrain", ["--recipe", str(recipe)])
    parsing.parse("pretrain", ["--recipe", str(recipe), "--objective", "mlm+nsp"])
    recipe.write_text("objective: mlm+nsp\nmodel: bert\nshort_seq_prob: 0.2\n")
    with pytest.raises(ValueError, match="packing: 'padded' has no effect with --objective mlm\\+nsp"):
        parsing.parse("pretrain", ["--recipe", str(recipe), "--packing", "padded"])
