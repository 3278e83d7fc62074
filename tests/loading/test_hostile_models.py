"""Saved models whose files name code of others, against every command: the code writes a file when it is imported, and
that file never appears; nor does any name of it go into what is saved or published."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import refusal, run, save_model, sentences, write_rows
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModelForMaskedLM, BertConfig, BertModel

import minibert
from minibert import train_tokenizer
from minibert.training.common.printable import UNPRINTABLE, printable
from minibert.training.embeddings.trainers.sentence_trainer import SentenceTrainerMixin
from minibert.training.finetuning.prediction_files import as_json
from minibert.training.hub import card, facts, uploaded_files
from minibert.training.hub import push as hub_push
from minibert.training.hub.example import run_example
from minibert.training.loading import code_references, models, saved_files
from minibert.training.loading.models import (
    load_pretrained,
    load_sentence_transformer,
    saved_config,
)
from minibert.training.loading.saved_files import SENTENCE_CONFIGS
from minibert.training.loading.tokenizers import saved_tokenizer

QUICK = ["--max_steps", 1, "--bf16", "false", "--use_cpu", "true", "--disable_tqdm", "true"]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
POOLING = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
SIGMOID = "torch.nn.modules.activation.Sigmoid"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Harmless models: a masked language model, a classifier, an embedding model, a reranker, a BERT."""
    root = tmp_path_factory.mktemp("saved")
    tokenizer = train_tokenizer(sentences(100), vocab_size=80, show_progress=False)
    for name in ("masked", "embedder"):
        save_model(root / name, tokenizer, "modernbert", "ForMaskedLM")
    for name, count in (("reranker", 1), ("classifier", 2)):
        save_model(root / name, tokenizer, "bert", "ForSequenceClassification", num_labels=count)
    (root / "embedder" / "modules.json").write_text(json.dumps(MODULES))
    (root / "embedder" / "1_Pooling").mkdir()
    (root / "embedder" / "1_Pooling" / "config.json").write_text(json.dumps(POOLING))
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    return root


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A file that appears when hostile code is imported, from whatever place."""
    trap = tmp_path / "trap"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "evil.py").write_text(evil_code(trap))
    (elsewhere / "evil_package.py").write_text(evil_code(trap))
    monkeypatch.syspath_prepend(str(elsewhere))  # as if it were installed
    yield trap
    assert not trap.exists()


def evil_code(trap: Path) -> str:
    return f"open({str(trap)!r}, 'w').close()\nclass Evil:\n    pass\n"


def edit(path: Path, **changes) -> None:
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(settings | changes))


def copy_of(saved: Path, name: str, tmp_path: Path, trap: Path) -> Path:
    """A copy with hostile code beside the model."""
    folder = tmp_path / name
    shutil.copytree(saved / name, folder)
    (folder / "evil.py").write_text(evil_code(trap))
    return folder


def name_evil_code(folder: Path, name: str) -> None:
    """Put the name of hostile code everywhere that Transformers would look for one."""
    auto_classes = ["AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoTokenizer", "AutoOther"]
    auto_classes += ["AutoModelForSequenceClassification"]
    pipelines = {"fill-mask": {"impl": name, "pt": ["AutoModelForMaskedLM"], "type": "text"}}
    edit(
        folder / "config.json",
        auto_map=dict.fromkeys(auto_classes, name),
        custom_pipelines=pipelines,
        other_config={"auto_map": {"AutoConfig": name}},
        converted_rest={"fields": {"custom_pipelines": pipelines}},
    )
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [name, name]})


PLACES = {
    "beside": "evil.Evil",
    "elsewhere": "{elsewhere}--evil.Evil",
    "repository": "other/repo--evil.Evil",
}


def place(which: str, tmp_path: Path) -> str:
    return PLACES[which].format(elsewhere=tmp_path / "elsewhere")


def names_in(folder: Path) -> list[str]:
    """Everything in the JSON files of a folder that names the hostile code."""
    return [str(path) for path in folder.rglob("*.json") if "evil" in path.read_text().lower()]


# --- loading: nothing runs, and nothing goes along ---


@pytest.fixture
def data(tmp_path):
    """A file of each kind of data."""
    texts = sentences(60)
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    pairs = [dict(query=a, positive=b) for a, b in zip(texts[:30], texts[30:])]
    write_rows(tmp_path / "pairs.jsonl", pairs)
    scored = [
        dict(sentence1=a, sentence2=b, score=n % 2)
        for n, (a, b) in enumerate(zip(texts[:30], texts[30:]))
    ]
    write_rows(tmp_path / "scored.jsonl", scored)
    labelled = [dict(text=text, label="ab"[n % 2]) for n, text in enumerate(texts)]
    write_rows(tmp_path / "labelled.jsonl", labelled)
    return tmp_path


SAVING = {
    "pretrain": ("masked", ["pretrain", "--model_name_or_path", "MODEL", "--data", "text.txt", "--seq_length", 16,
                            "--output_dir", "OUT", *QUICK]),
    "classify": ("masked", ["finetune", "classify", "--data", "labelled.jsonl", "--model", "MODEL", "--output_dir", "OUT", *QUICK]),
    "classify bert": ("bert", ["finetune", "classify", "--data", "labelled.jsonl", "--model", "MODEL", "--output_dir", "OUT",
                               *QUICK]),
    "finetune embed": ("embedder", ["finetune", "embed", "pairs.jsonl", "--model", "MODEL", "--output_dir", "OUT",
                                    *QUICK]),
    "finetune rerank": ("reranker", ["finetune", "rerank", "scored.jsonl", "--model", "MODEL", "--output_dir", "OUT",
                                     *QUICK]),
    "convert": ("bert", ["convert", "MODEL", "OUT"]),
    "convert back": ("masked", ["convert", "MODEL", "OUT"]),
    "convert set": ("embedder", ["convert", "MODEL", "OUT", "--set", "local_attention=6"]),
    "export native": ("masked", ["export", "MODEL", "OUT", "--format", "native"]),
    "export": ("embedder", ["export", "MODEL", "OUT", "--format", "sentence-transformers"]),
    "tokenizer": ("masked", ["prepare", "--data", "text.txt", "--output_dir", "OUT", "--tokenizer", "MODEL", "--seq_length", 16]),
}  # fmt: skip
READING = {
    "fill": ("masked", ["fill", "ka [MASK]", "--model", "MODEL"]),
    "embed": ("embedder", ["embed", "ka lo", "--model", "MODEL", "--output", "vectors.npy"]),
    "rerank": ("reranker", ["rerank", "ka lo", "ka", "lo", "--model", "MODEL"]),
    "search": ("embedder", ["search", "index", "--data", "text.txt", "--model", "MODEL"]),
    "evaluate embed": ("embedder", ["evaluate", "embed", "scored.jsonl", "--model", "MODEL"]),
    "evaluate": ("classifier", ["evaluate", "classify", "--test", "labelled.jsonl", "--model", "MODEL"]),
}  # fmt: skip


def fill_in(arguments, model: Path, out: Path):
    places = {"MODEL": model, "OUT": out}
    return [places.get(argument, argument) for argument in arguments]


@pytest.mark.parametrize("command", SAVING)
def test_what_is_saved_names_no_code_of_others(command, saved, trap, data, monkeypatch, capsys):
    monkeypatch.chdir(data)
    name, arguments = SAVING[command]
    model = copy_of(saved, name, data, trap)
    name_evil_code(model, place("elsewhere", data))
    run(*fill_in(arguments, model, data / "out"))
    assert "code of others, which is not run and does not go along" in capsys.readouterr().err
    assert names_in(data / "out") == []
    assert list((data / "out").rglob("evil*")) == []


@pytest.mark.parametrize("command", ["pretrain", "classify", "finetune embed"])
@pytest.mark.parametrize("file", ["loss.png", "trainer_state.json"])
def test_a_link_in_the_output_folder_is_refused_before_the_training(
    file, command, saved, data, monkeypatch, capsys
):
    """Afterwards, the model could not be loaded for its card."""
    monkeypatch.chdir(data)
    name, arguments = SAVING[command]
    out = data / "out"
    out.mkdir()
    victim = data / "bashrc"
    victim.write_text("mine")
    (out / file).symlink_to(victim)
    error = refusal(capsys, *fill_in(arguments, saved / name, out))
    assert f"{file} is a link to {victim}; remove it" in error
    assert list(out.iterdir()) == [out / file]
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("which", PLACES)
@pytest.mark.parametrize("command", READING)
def test_what_is_read_runs_no_code_of_others(command, which, saved, trap, data, monkeypatch):
    monkeypatch.chdir(data)
    name, arguments = READING[command]
    model = copy_of(saved, name, data, trap)
    if command == "evaluate":
        edit(model / "config.json", id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    name_evil_code(model, place(which, data))
    run(*fill_in(arguments, model, data / "out"))


@pytest.mark.parametrize("which", [*PLACES, "installed"])
@pytest.mark.parametrize(
    "command", ["embed", "search", "evaluate embed", "finetune embed", "convert set", "export"]
)
def test_modules_of_others_are_refused(command, which, saved, trap, data, monkeypatch, capsys):
    """By every command that opens them, before any of their code."""
    monkeypatch.chdir(data)
    name, arguments = (READING | SAVING)[command]
    model = copy_of(saved, name, data, trap)
    evil = "evil_package.Evil" if which == "installed" else place(which, data)
    (model / "modules.json").write_text(json.dumps([MODULES[0], MODULES[1] | {"type": evil}]))
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert "modules.json names" in error and "code of others is never run" in error
    assert not (data / "out" / "modules.json").exists()


def test_an_activation_of_others_is_refused(saved, trap, tmp_path, capsys):
    model = copy_of(saved, "embedder", tmp_path, trap)
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    (model / "modules.json").write_text(json.dumps([*MODULES, dense]))
    (model / "2_Dense").mkdir()
    edit(model / "2_Dense" / "config.json", activation_function="evil_package.Evil")
    assert "2_Dense/config.json names" in refusal(
        capsys, "embed", "ka", "--model", model, "--output", tmp_path / "x.npy"
    )
    with pytest.raises(ValueError, match="names 'evil_package.Evil' .activation_function."):
        uploaded_files.stage(model, tmp_path / "staged")


@pytest.mark.parametrize(
    "command", ["embed", "rerank", "evaluate embed", "finetune embed", "finetune rerank", "fill"]
)
@pytest.mark.parametrize(
    ("hostile", "message"),
    [
        (dict(model_max_length=0), "model_max_length=0"),
        (dict(model_max_length=-5), "model_max_length=-5"),
        ("normalizer", "multiplies a text"),
    ],
    ids=["0", "-5", "normalizer"],
)  # fmt: skip
def test_hostile_tokenizers_are_refused(
    command, hostile, message, saved, data, monkeypatch, capsys
):
    monkeypatch.chdir(data)
    name, arguments = (READING | SAVING)[command]
    model = data / name
    shutil.copytree(saved / name, model)
    if hostile == "normalizer":
        grow = {"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaa"}
        steps = {"type": "Sequence", "normalizers": [grow] * 17}
        edit(model / "tokenizer.json", normalizer=steps)
    else:
        edit(model / "tokenizer_config.json", **hostile)
    assert message in refusal(capsys, *fill_in(arguments, model, data / "out"))


@pytest.mark.parametrize(
    "command", ["embed", "evaluate embed", "finetune embed", "convert set", "export"]
)
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", [1], "modules.json is no list of modules"),
        ("modules.json", {"a": 1}, "modules.json is no list of modules"),
        ("modules.json", [{"path": 1, "type": "x"}], "modules.json is no list of modules"),
        ("sentence_bert_config.json", [1], "sentence_bert_config.json is no JSON object"),
        ("config_sentence_transformers.json", 7, "config_sentence_transformers.json is no JSON object"),
        ("config.json", {"architectures": -1}, "architectures=-1"),
        ("config.json", {"architectures": ["x--y.z"]}, "architectures=['x--y.z']"),
        ("config.json", {"id2label": -1}, "id2label=-1"),
        ("config.json", {"id2label": {"a": "b"}}, "id2label={'a': 'b'}"),
        ("config.json", {"id2label": {"0": {"x": 1}}}, "id2label={'0': {'x': 1}}"),
        ("config.json", {"attn_implementation": "evil/kernel"}, "asks for the kernel 'evil/kernel'"),
    ],
)  # fmt: skip
def test_odd_files_are_refused_by_one_line(
    command, file, content, message, saved, data, monkeypatch, capsys
):
    monkeypatch.chdir(data)
    name, arguments = (READING | SAVING)[command]
    model = data / name
    shutil.copytree(saved / name, model)
    if isinstance(content, dict) and file == "config.json":
        edit(model / file, **content)
    else:
        (model / file).write_text(json.dumps(content))
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert message in error and len(error.strip().splitlines()) == 1


# --- publishing ---


@pytest.fixture
def unverified(monkeypatch):
    """The check that runs a folder's code must not begin."""
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda folder: pytest.fail("code is run"))


def put(file: str, **changes):
    def change(folder: Path, name: str) -> None:
        text = json.dumps(changes).replace('"NAME"', json.dumps(name))
        edit(folder / file, **json.loads(text))

    return change


def put_module(folder: Path, name: str) -> None:
    (folder / "modules.json").write_text(json.dumps([MODULES[0], MODULES[1] | {"type": name}]))


NAMINGS = {
    "config": put("config.json", auto_map={"AutoConfig": "NAME"}),
    "model": put("config.json", auto_map={"AutoModel": "NAME"}),
    "head": put("config.json", auto_map={"AutoModelForMaskedLM": "NAME"}),
    "unknown key": put("config.json", auto_map={"AutoWhatever": "NAME"}),
    "list": put("config.json", auto_map=["NAME"]),
    "sub-config": put("config.json", other_config={"a": [{"auto_map": {"AutoConfig": "NAME"}}]}),
    "pipeline": put("config.json", custom_pipelines={"fill-mask": {"impl": "NAME"}}),
    "score": put("config.json", sentence_transformers={"activation_fn": "NAME"}),
    "tokenizer": put("tokenizer_config.json", auto_map={"AutoTokenizer": ["NAME", None]}),
    "old tokenizer": put("tokenizer_config.json", auto_map=["NAME", None]),
    "processor": put("tokenizer_config.json", auto_map={"AutoProcessor": "NAME"}),
    "generation": put("generation_config.json", custom_generate="NAME"),
    "module": put_module,
}  # fmt: skip
OUTSIDE = ["{elsewhere}--evil.Evil", "other/repo--evil.Evil", "{elsewhere}/evil.Evil", "../elsewhere/evil.Evil",
           "..evil.Evil", "other/repo--modeling_minibert.MiniBertModel", "evil", "a.b.c.Evil", "evil.Evil\n"]  # fmt: skip


@pytest.mark.parametrize("naming", NAMINGS)
def test_push_refuses_code_of_others(naming, saved, trap, tmp_path, unverified, capsys):
    folder = copy_of(saved, "embedder", tmp_path, trap)
    NAMINGS[naming](folder, "evil.Evil")
    error = refusal(capsys, "push", folder, "me/x", "--dry_run", "true")
    assert "names 'evil.Evil'" in error and "--trust_remote_code true" in error
    NAMINGS[naming](folder, f"{tmp_path / 'elsewhere'}--evil.Evil")
    for trusted in ("false", "true"):
        options = ["--dry_run", "true", "--trust_remote_code", trusted]
        assert "code elsewhere is never run" in refusal(capsys, "push", folder, "me/x", *options)


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_of_the_folder_are_never_allowed(name, saved, trap, tmp_path):
    name = name.format(elsewhere=tmp_path / "elsewhere")
    folder = copy_of(saved, "masked", tmp_path, trap)
    for naming in ("head", "pipeline", "tokenizer", "module"):
        NAMINGS[naming](folder, name)
        for trusted in (False, True):
            target = tmp_path / f"staged {naming} {trusted}"
            with pytest.raises(ValueError, match="code elsewhere is never run"):
                uploaded_files.stage(folder, target, trusted)
        shutil.rmtree(folder)
        folder = copy_of(saved, "masked", tmp_path, trap)


def test_trusted_files_of_the_folder_go_up_with_what_they_import(
    saved, trap, tmp_path, monkeypatch, capsys
):
    folder = copy_of(saved, "embedder", tmp_path, trap)
    (folder / "helper.py").write_text("x = 1\n")
    (folder / "mine.py").write_text("from .helper import x\nclass Mine:\n    pass\n")
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    edit(folder / "config.json", auto_map=auto_map | {"AutoModelForImageToText": "mine.Mine"})
    monkeypatch.setattr(
        hub_push, "verify_remote_code", lambda folder: dict(saved="x", auto_classes=[])
    )
    pushed = minibert.push(folder, "me/x", trust_remote_code=True, dry_run=True)
    assert {"mine.py", "helper.py"} <= pushed["files"].keys()
    assert "evil.py" in pushed["left_out"] and "mine.py" not in pushed["left_out"]
    assert "goes up: mine.py (43 bytes), helper.py (6 bytes)" in capsys.readouterr().out
    (folder / "mine.py").write_text("from ..elsewhere.evil import Evil\n")
    with pytest.raises(ValueError, match="only files beside it can go up"):
        uploaded_files.stage(folder, tmp_path / "other", trust_remote_code=True)
    (folder / "mine.py").unlink()
    (folder / "mine.py").symlink_to(tmp_path / "elsewhere" / "evil.py")
    with pytest.raises(ValueError, match="mine.py is named as code, but is no file there"):
        uploaded_files.stage(folder, tmp_path / "third", trust_remote_code=True)


def test_pylate_goes_up_on_demand(saved, tmp_path):
    folder = tmp_path / "colbert"
    shutil.copytree(saved / "embedder", folder)
    put_module(folder, "pylate.models.Dense.Dense")
    with pytest.raises(ValueError, match="which is no code of this package"):
        uploaded_files.stage(folder, tmp_path / "no")
    assert uploaded_files.stage(folder, tmp_path / "yes", trust_remote_code=True).own_code == []


@pytest.mark.parametrize("model_type", ["ColBERT", "Evil", {"a": 1}, None])
def test_a_card_is_written_for_any_kind_of_embedding_model(model_type, saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(saved / "embedder", folder)
    edit(folder / "config_sentence_transformers.json", model_type=model_type)
    text = card.render_card(folder, facts.CardFacts())
    assert ("MultiVectorEncoder" in text) == (model_type == "ColBERT")


def test_an_old_folder_keeps_its_own_model_files(saved, tmp_path, monkeypatch):
    """Also those that this version has no more, and no newer ones among them."""
    folder = tmp_path / "old"
    shutil.copytree(saved / "masked", folder)
    (folder / "retired_minibert.py").write_text("x = 1\n")
    assert "retired_minibert.py" in uploaded_files.stage(folder, tmp_path / "new").left_out
    model_file = folder / "modeling_minibert.py"
    model_file.write_text(f"from .retired_minibert import x\n{model_file.read_text()}")
    with pytest.raises(ValueError, match="modeling_minibert.py differs from this package's"):
        uploaded_files.stage(folder, tmp_path / "refused")
    staged = uploaded_files.stage(folder, tmp_path / "staged", trust_remote_code=True)
    assert {"modeling_minibert.py", "retired_minibert.py"} == set(staged.own_code)
    monkeypatch.setattr(
        uploaded_files, "OUR_FILES", (*uploaded_files.OUR_FILES, "newer_minibert.py")
    )
    uploaded_files.stage(folder, tmp_path / "again", trust_remote_code=True)
    assert not (tmp_path / "again" / "newer_minibert.py").exists()
    assert (tmp_path / "staged" / "modeling_minibert.py").read_bytes() == model_file.read_bytes()


def test_our_files_are_those_of_the_package():
    assert {"configuration_minibert.py", "modeling_minibert.py"} <= set(code_references.OUR_FILES)
    assert set(code_references.OUR_FILES) == {
        path.name for path in code_references.PACKAGE.glob("*_minibert.py")
    }


# --- a file that is exchanged while it is copied ---


def exchange(monkeypatch, path: Path, target) -> None:
    """Put something in the place of `path` when the files have been listed."""
    listed = uploaded_files.list_files

    def list_files(folder):
        names = listed(folder)
        if path.is_dir():
            path.rename(path.with_name("moved"))
        else:
            path.unlink()
        target(path)
        return names

    monkeypatch.setattr(uploaded_files, "list_files", list_files)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "README.md", "modeling_minibert.py", "1_Pooling/config.json", "1_Pooling"],
)
def test_a_link_that_appears_after_the_check_is_not_followed(name, saved, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(saved / "embedder", folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "config.json").write_text('"secret"')
    leads_to = secret if name == "1_Pooling" else secret / "config.json"
    exchange(monkeypatch, folder / name, lambda path: path.symlink_to(leads_to))
    with pytest.raises(OSError):
        uploaded_files.stage(folder, tmp_path / "staged")
    copies = [path for path in (tmp_path / "staged").rglob("*") if path.is_file()]
    assert not any("secret" in path.read_text(errors="replace") for path in copies)


def test_a_pipe_does_not_hold_the_copy_up(saved, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(saved / "masked", folder)
    exchange(monkeypatch, folder / "tokenizer.json", os.mkfifo)
    with pytest.raises(OSError, match="no file any more"):
        uploaded_files.stage(folder, tmp_path / "staged")


# --- what stays allowed ---


def test_a_score_function_of_torch_is_kept(saved, tmp_path):
    folder = tmp_path / "reranker"
    shutil.copytree(saved / "reranker", folder)
    edit(folder / "config.json", sentence_transformers={"activation_fn": SIGMOID})
    uploaded_files.stage(folder, tmp_path / "staged")
    config = saved_config(str(folder))
    assert config.sentence_transformers == {"activation_fn": SIGMOID}


def test_our_own_names_make_no_message(saved, tmp_path, capsys):
    load_pretrained(AutoModelForMaskedLM, saved / "masked")
    saved_tokenizer(saved / "masked")
    assert "names" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("minibert.modeling_minibert", True),
        ("transformers.models.bert.modeling_bert", True),
        ("evil_package", False),
        ("transformers_evil.x", False),
    ],
)
def test_an_adapter_names_known_libraries_only(library, allowed, trap, tmp_path):
    """PEFT imports the library of the model that an adapter was trained on."""
    mapping = {"base_model_class": "Evil", "parent_library": library}
    edit(tmp_path / "adapter_config.json", base_model_name_or_path="me/base", auto_mapping=mapping)
    (tmp_path / "adapter_model.safetensors").write_text("x")
    if allowed:
        uploaded_files.stage(tmp_path, tmp_path / "staged")
        return
    with pytest.raises(ValueError, match="adapter_config.json names"):
        uploaded_files.stage(tmp_path, tmp_path / "staged")


# --- what a saved model may not set, and files that are elsewhere ---


class Pickled:
    """What runs code when a pickle of it is read."""

    def __init__(self, trap: Path):
        self.trap = trap

    def __reduce__(self):
        return open, (str(self.trap), "w")


def put_pickle(folder: Path, trap: Path) -> dict:
    """Weights that run code when they are unpickled; returns the options that would have
    sentence-transformers unpickle them."""
    torch.save({"weight": Pickled(trap)}, folder / "pytorch_model.bin")
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("dtype", None)  # without it, Transformers looks for one in the weights
    (folder / "config.json").write_text(json.dumps(settings))
    return {"dtype": "auto", "weights_only": False, "use_safetensors": False}


@pytest.mark.parametrize("key", ["model_args", "model_kwargs"])
@pytest.mark.parametrize("command", ["embed", "finetune embed", "convert set", "export"])
def test_a_saved_model_cannot_have_its_pickle_read(
    command, key, saved, trap, data, monkeypatch, capsys
):
    monkeypatch.chdir(data)
    name, arguments = (READING | SAVING)[command]
    model = copy_of(saved, name, data, trap)
    edit(model / "sentence_bert_config.json", **{key: put_pickle(model, trap)})
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert "opens the model with 'weights_only', which a saved model may not set" in error
    assert "'weights_only'" in refusal(capsys, "push", model, "me/x", "--dry_run", "true")


def test_a_saved_model_may_set_its_number_format(saved, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(saved / "embedder", model)
    options = {"dtype": "float32", "attn_implementation": "sdpa", "trust_remote_code": True}
    edit(model / "sentence_bert_config.json", model_args=options)
    assert minibert.embed("ka", model=str(model)).shape == (1, 32)


@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_transformers": {"activation_fn": "NAME"}},
        {"sbert_ce_default_activation_function": "NAME"},
    ],
)
@pytest.mark.parametrize(
    "name", ["torch.os.getcwd", "evil_package.Evil", "torch.distributed.run.main"]
)
@pytest.mark.parametrize("command", ["rerank", "finetune rerank"])
def test_a_score_is_computed_by_torch_nn_only(
    command, name, settings, saved, trap, data, monkeypatch, capsys
):
    """`torch.distributed.run.main` would run a file of the name that the command line says first."""
    monkeypatch.chdir(data)
    model_name, arguments = (READING | SAVING)[command]
    model = copy_of(saved, model_name, data, trap)
    edit(model / "config.json", **json.loads(json.dumps(settings).replace("NAME", name)))
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert f"config.json names '{name}'" in error and "no class of torch.nn" in error


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("1_Pooling/model.safetensors", "convert set"),
        ("1_Pooling/config.json", "convert set"),
        ("config_sentence_transformers.json", "export"),
        ("tokenizer_config.json", "convert back"),
        ("tokenizer_config.json", "pretrain"),
        ("tokenizer_config.json", "tokenizer"),
        ("additional_chat_templates/default.jinja", "convert back"),
        ("1_Pooling/deeper/vocab.txt", "embed"),
        ("generation_config.json", "embed"),
        ("README.md", "convert back"),
        ("prophetnet.tokenizer", "fill"),
        ("1_Pooling/model.safetensors", "embed"),
    ],
)
def test_a_link_to_a_file_elsewhere_is_refused(file, command, saved, data, monkeypatch, capsys):
    """Its content would become a file of the new model, and go up with it."""
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    secret = data / "secret.json"
    secret.write_text('{"auth": "SECRET"}')
    (model / file).parent.mkdir(exist_ok=True)
    (model / file).unlink(missing_ok=True)
    (model / file).symlink_to(secret)
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert f"{file} is a link to {secret}" in error
    assert not any(b"SECRET" in path.read_bytes() for path in (data / "out").rglob("*.*"))


def test_a_link_to_a_folder_elsewhere_is_refused(saved, data, capsys):
    model = data / "model"
    shutil.copytree(saved / "masked", model)
    (data / "private").mkdir()
    (model / "additional_chat_templates").symlink_to(data / "private")
    error = refusal(capsys, "convert", model, data / "out")
    assert f"additional_chat_templates is a link to {data / 'private'}" in error


def test_links_in_the_cache_of_the_hub_and_to_weights_are_followed(saved, tmp_path):
    blobs = tmp_path / "models--me--x" / "blobs"
    snapshot = tmp_path / "models--me--x" / "snapshots" / "abc"
    shutil.copytree(saved / "embedder", blobs)
    for file in [path for path in blobs.rglob("*") if path.is_file()]:
        link = snapshot / file.relative_to(blobs)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    assert minibert.embed("ka", model=str(snapshot)).shape == (1, 32)
    model = tmp_path / "model"
    shutil.copytree(saved / "embedder", model)
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to(saved / "embedder" / "model.safetensors")
    assert minibert.embed("ka", model=str(model)).shape == (1, 32)


@pytest.mark.parametrize("file", ["../other/model.safetensors", "{saved}/masked/model.safetensors"])
@pytest.mark.parametrize("command", ["fill", "convert back", "pretrain"])
def test_weights_in_another_folder_are_refused(command, file, saved, data, monkeypatch, capsys):
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "masked", model)
    (data / "other").mkdir()
    shutil.move(model / "model.safetensors", data / "other")
    weight_map = {"model.embeddings.tok_embeddings.weight": file.format(saved=saved)}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert "all weights have to lie beside it" in error


@pytest.mark.parametrize("command", ["embed", "convert back", "export"])
@pytest.mark.parametrize(
    "path",
    [
        "../masked", "/tmp", "..\\masked", "1_Pooling/../../masked", "", ".", "./", "1_Pooling/.",
        "2_a/b/c/Dense", "1_Pooling\n", "x\u202ey",
    ],
)  # fmt: skip
def test_modules_without_a_folder_of_their_own_are_refused(
    path, command, saved, data, monkeypatch, capsys
):
    """Their files would stand for those of the model: of the old one, and of the new one."""
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    (model / "modules.json").write_text(json.dumps([MODULES[0], MODULES[1] | {"path": path}]))
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert f"modules.json has a Pooling in {printable(repr(path))}; save the model again" in error
    assert not (data / "out").exists()


def test_a_second_encoder_is_refused(saved, data, capsys):
    """Its files would be read at the root of the machine."""
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    (model / "modules.json").write_text(json.dumps([*MODULES, MODULES[0]]))
    error = refusal(capsys, "convert", model, data / "out")
    assert "modules.json has an encoder after other modules" in error


@pytest.mark.parametrize("name", SENTENCE_CONFIGS)
def test_a_model_cannot_ask_for_its_pickle(name, saved, trap, data, capsys):
    model = copy_of(saved, "embedder", data, trap)
    edit(model / name, model_kwargs=put_pickle(model, trap))
    error = refusal(capsys, "embed", "ka", "--model", model, "--output", data / "x.npy")
    assert f"{name} opens the model with 'weights_only'" in error


def test_no_pickle_is_read_whatever_the_files_say(saved, trap, data, monkeypatch):
    """If a check of files were passed by."""
    model = copy_of(saved, "embedder", data, trap)
    edit(model / "sentence_bert_config.json", model_kwargs=put_pickle(model, trap))
    monkeypatch.setattr(models, "modules_of", lambda path: None)
    with pytest.raises(ValueError, match="Weights only load failed|weights_only"):
        minibert.embed("ka", model=str(model))


@pytest.mark.parametrize("command", ["embed", "search", "export", "convert set", "finetune embed"])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"tokenizer_name_or_path": "MASKED"}, "tokenizer_name_or_path"),
        ({"processor_kwargs": {"vocab": "MASKED"}}, "vocab"),
        ({"tokenizer_args": {"tokenizer_file": "MASKED"}}, "tokenizer_file"),
        ({"config_kwargs": {"name_or_path": "MASKED"}}, "name_or_path"),
        ({"cache_dir": "MASKED"}, "cache_dir"),
    ],
)
def test_settings_that_lead_elsewhere_are_refused(
    settings, name, command, saved, data, monkeypatch, capsys
):
    """The tokenizer of another folder would be saved with the model, and be published."""
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    text = json.dumps(settings).replace("MASKED", str(saved / "masked"))
    (model / "sentence_bert_config.json").write_text(text)
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert f"sentence_bert_config.json opens the model with '{name}'" in error


@pytest.mark.parametrize("command", ["embed", "convert back", "export"])
@pytest.mark.parametrize("module", ["Transformer", "MLMTransformer"])
@pytest.mark.parametrize("path", ["0_Transformer", "../masked", "/tmp", "."])
def test_an_encoder_in_another_folder_is_refused(
    path, module, command, saved, data, monkeypatch, capsys
):
    """Its settings, adapters and links would need the checks of the model's own folder."""
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    shutil.copytree(saved / "embedder", model / "0_Transformer")
    encoder = {"path": path, "type": f"sentence_transformers.models.{module}"}
    (model / "modules.json").write_text(json.dumps([MODULES[0] | encoder, MODULES[1]]))
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert f"modules.json has its encoder in '{path}'" in error


@pytest.mark.parametrize("module", ["Router", "BoW", "WordEmbeddings", "CLIPModel"])
def test_modules_that_read_other_files_are_refused(module, saved, data, capsys):
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    added = {"path": "2_Other", "type": f"sentence_transformers.models.{module}"}
    (model / "modules.json").write_text(json.dumps([*MODULES, MODULES[1] | added]))
    error = refusal(capsys, "embed", "ka", "--model", model, "--output", data / "x.npy")
    assert f"modules.json has a {module}; MiniBERT opens" in error


@pytest.mark.parametrize("command", ["fill", "convert back", "tokenizer"])
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("tokenizer_config.json", "vocab"),
        ("tokenizer_config.json", "merges"),
        ("tokenizer_config.json", "init_inputs"),
        ("special_tokens_map.json", "vocab"),
        ("special_tokens_map.json", "vocab_file"),
        ("special_tokens_map.json", "tokenizer_file"),
    ],
)
def test_a_tokenizer_that_names_a_file_is_refused(
    file, key, command, saved, data, monkeypatch, capsys
):
    """Its lines would become tokens, and be published."""
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "masked", model)
    (model / "tokenizer.json").unlink()
    secret = data / "private.txt"
    secret.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "secret"]))
    (model / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    edit(model / file, **{key: [str(secret)] if key == "init_inputs" else str(secret)})
    error = refusal(capsys, *fill_in(arguments, model, data / "out"))
    assert f"{file} has '{key}', by which a tokenizer can read any file" in error


@pytest.mark.parametrize("name", ["embedder", "reranker"])
def test_a_checkpoint_cannot_ask_for_its_pickle(name, saved, trap, data):
    """A resumed training opens it as a model."""
    model_class = SentenceTransformer if name == "embedder" else CrossEncoder
    trainer = SimpleNamespace(model=load_sentence_transformer(model_class, str(saved / name)))
    checkpoint = copy_of(saved, name, data, trap)
    options = put_pickle(checkpoint, trap)
    edit(checkpoint / "sentence_bert_config.json", model_kwargs=options)
    modules = MODULES if name == "embedder" else MODULES[:1]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="opens the model with 'weights_only'"):
        SentenceTrainerMixin._load_from_checkpoint(trainer, checkpoint)


def test_an_adapter_of_the_hub_is_refused(saved, tmp_path, monkeypatch):
    """Its base model, which may be any folder or repository, would be loaded instead."""
    adapter = tmp_path / "adapter_config.json"
    adapter.write_text(json.dumps({"base_model_name_or_path": str(saved / "masked")}))
    monkeypatch.setattr(saved_files, "hf_hub_download", lambda repository, name: str(adapter))
    with pytest.raises(ValueError, match="'attacker/model' holds an adapter"):
        saved_config("attacker/model")


@pytest.mark.parametrize("command", ["fill", "embed", "convert back", "pretrain"])
def test_an_adapter_beside_a_model_is_refused(command, saved, data, monkeypatch, capsys):
    """Its base model, which may be any folder or repository, would be loaded instead."""
    monkeypatch.chdir(data)
    _, arguments = (READING | SAVING)[command]
    model = data / "model"
    shutil.copytree(saved / "embedder", model)
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(saved / "masked")}
    edit(model / "adapter_config.json", **settings)
    assert "holds an adapter" in refusal(capsys, *fill_in(arguments, model, data / "out"))


def test_predictions_on_a_terminal_have_no_control_characters():
    row = {"text": "a\x9b2J\u202eb\U000e0041 é", "label": "\x1b[2J"}
    line = as_json(row)
    assert line.isascii() is False and not UNPRINTABLE.search(line)
    assert json.loads(line) == row


def test_the_example_of_a_card_runs_no_code_of_the_folder(saved, trap, data, monkeypatch, capsys):
    """What a stranger has left in the output folder is not of the model that was trained."""
    monkeypatch.chdir(data)
    name, arguments = SAVING["classify"]
    out = copy_of(saved, name, data / "other", trap)
    for file in out.glob("*"):
        if file.name != "evil.py" and file.is_file():
            file.unlink()
    edit(out / "processor_config.json", auto_map={"AutoProcessor": "evil.Evil"})
    put_module(out, "evil.Evil")
    run(*fill_in(arguments, saved / name, out))


def test_the_example_of_a_card_trusts_nothing():
    text = "```python\nprint(dict(trust_remote_code=True))\n```\n"
    assert run_example(text) == "{'trust_remote_code': False}"


@pytest.mark.parametrize(
    "change", [{"quantization_config": "x"}, {"deep": "DEEP"}], ids=["quantization", "deep"]
)
def test_push_refuses_an_odd_config_by_one_line(change, saved, tmp_path, unverified, capsys):
    folder = tmp_path / "model"
    shutil.copytree(saved / "masked", folder)
    text = json.dumps(json.loads((folder / "config.json").read_text()) | change)
    text = text.replace('"DEEP"', '{"a":' * 600 + "1" + "}" * 600)
    (folder / "config.json").write_text(text)
    error = refusal(capsys, "push", folder, "me/x", "--dry_run", "true")
    assert len(error.strip().splitlines()) == 1


def test_tokens_on_a_terminal_have_no_control_characters(saved, data, monkeypatch, capsys):
    model = data / "model"
    shutil.copytree(saved / "masked", model)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    hostile_token = "a\u202e\x9b2J"
    replaced_token = max(vocabulary, key=vocabulary.get)
    vocabulary[hostile_token] = vocabulary.pop(replaced_token)
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    run("fill", "ka [MASK]", "--model", model, "--top_k", size)
    printed = capsys.readouterr().out
    assert "\\u202e\\x9b2J" in printed
    assert not UNPRINTABLE.search(printed.replace("\n", ""))
