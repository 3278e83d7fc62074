"""Publishing, against a client that keeps what it is given, and the check in a process without the package."""

import json
import re
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset
from helpers import refusal, save_model, write_rows
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from processes import Python
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
)

import minibert
from minibert import MiniBertConfig, MiniBertForMaskedLM, modeling_minibert, train_tokenizer
from minibert.configuration_minibert import AUTO_MAP
from minibert.training import cli
from minibert.training.embeddings.config import EmbeddingConfig
from minibert.training.embeddings.trainers.embedding_trainer import DenseTrainer
from minibert.training.embeddings.trainers.setups import EmbeddingSetup
from minibert.training.hub import push as hub_push
from minibert.training.hub import upload_mixin, uploaded_files
from minibert.training.hub.upload_mixin import HubMixin

PUBLISHED = {
    "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *uploaded_files.OUR_FILES,
}  # fmt: skip
SENTENCES = [
    "return the end of the list",
    "a good book, a dull book",
    "this text is the first text of the list",
]
FOUND = {"saved": "model", "auto_classes": [], "versions": {}}  # by a check that is left out
TOKEN = "hf_" + "test"


class FakeHub:
    """What is asked of `HfApi`: repositories, their branches, and every commit with all of its files."""

    endpoint = "http://hub"

    def __init__(self, token=TOKEN, **_):
        self.token, self.branches, self.commits, self.private = token, {}, [], {}

    def whoami(self):
        if self.token != TOKEN:
            raise OSError("Invalid credentials")
        return {"name": "tester"}

    def create_repo(self, name, private=None, exist_ok=False):
        assert exist_ok or name not in self.private
        self.private.setdefault(name, bool(private))
        return SimpleNamespace(repo_id=name)

    def repo_info(self, name):
        if name not in self.private:
            response = SimpleNamespace(headers={}, request=None)
            raise RepositoryNotFoundError("no such repository", response=response)
        return SimpleNamespace(private=self.private[name])

    def create_branch(self, name, branch, exist_ok):
        self.branches.setdefault((name, branch), {})

    def upload_folder(
        self,
        repo_id,
        folder_path,
        revision,
        commit_message,
        allow_patterns,
        delete_patterns,
        run_as_future,
    ):
        there = {
            path.relative_to(folder_path).as_posix(): path for path in Path(folder_path).rglob("*")
        }
        new = {
            name: there[name].read_bytes()
            for name in filter_repo_objects(there, allow_patterns=allow_patterns)
            if there[name].is_file()
        }
        before = self.branches.get((repo_id, revision or "main"), {})
        gone = set(filter_repo_objects(before, allow_patterns=delete_patterns)) - new.keys()
        after = {name: data for name, data in before.items() if name not in gone} | new
        self.branches[repo_id, revision or "main"] = after
        self.commits.append(
            SimpleNamespace(repository=repo_id, message=commit_message, files=after)
        )
        job = Future()
        job.set_result("commit")
        return job if run_as_future else "commit"


@pytest.fixture
def hub(monkeypatch):
    """The Hub of `push` and of trainers; nothing is checked in another process."""
    hub = FakeHub()

    def init_hf_repo(self, **_):
        self.hub_model_id, self.push_in_progress = self.args.hub_model_id, None

    for module in (hub_push, upload_mixin):
        monkeypatch.setattr(module, "HfApi", lambda token=TOKEN, **_: hub)
        monkeypatch.setattr(module, "verify_remote_code", lambda folder: FOUND)
    monkeypatch.setattr(Trainer, "init_hf_repo", init_hf_repo)
    return hub


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(SENTENCES * 20, vocab_size=70, show_progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    """A saved model, small, with weights far from each other."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(folder, tokenizer, "modernbert", "ForMaskedLM", initializer_range=0.3)
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the saved model to change."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy


# --- minibert push ---


def test_push_publishes_everything_and_nothing_else(hub, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    pushed = minibert.push(folder, "animals", license="mit")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    there = hub.branches["tester/animals", "main"]
    assert set(there) == PUBLISHED and not hub.private["tester/animals"]
    assert all(there[name] == (folder / name).read_bytes() for name in PUBLISHED - {"README.md"})
    card = there["README.md"].decode()
    assert "license: mit" in card and str(folder) not in card
    assert set(re.findall(r"^model_id = (.*)$", card, re.MULTILINE)) == {'"tester/animals"'}
    assert (
        pushed["url"] == "http://hub/tester/animals"
        and pushed["left_out"] == []
        and pushed["verified"] == FOUND
    )
    assert pushed["files"] == {name: len(data) for name, data in there.items()}


def test_dry_run_uploads_nothing(hub, folder, capsys):
    hub.token = None  # nobody asks for one
    assert set(minibert.push(folder, "me/dry", dry_run=True)["files"]) == PUBLISHED
    assert "nothing was uploaded" in capsys.readouterr().out and not hub.private


def test_what_would_be_read_instead_does_not_stay(hub, folder, tokenizer, tmp_path):
    """Transformers prefers one file of weights to several, and an adapter's config to a model's."""
    minibert.push(folder, "again")
    stays = {"adapter_config.json": b"{}", "modules.json": b"[]", "notes.txt": b"mine"}
    hub.branches["tester/again", "main"] |= stays
    save_sharded(folder, tokenizer, tmp_path)
    minibert.push(tmp_path, "again")
    there = hub.branches["tester/again", "main"]
    assert "notes.txt" in there and "model.safetensors.index.json" in there
    assert not {"model.safetensors", "adapter_config.json", "modules.json"} & there.keys()


def save_sharded(folder, tokenizer, target):
    """Save the model in `folder` with its weights in several files; returns the path of their index."""
    MiniBertForMaskedLM.from_pretrained(folder).save_pretrained(target, max_shard_size="20KB")
    tokenizer.save_pretrained(target)
    return target / "model.safetensors.index.json"


def test_weights_in_several_files_are_whole(folder, tokenizer, tmp_path):
    save_sharded(folder, tokenizer, tmp_path)
    assert hub_push.is_whole_model(tmp_path)
    shard = next(tmp_path.glob("model-*-of-*.safetensors"))
    shard.unlink()
    assert not hub_push.is_whole_model(tmp_path)
    with pytest.raises(ValueError, match=f"{shard.name} is missing"):
        minibert.push(tmp_path, "me/model", dry_run=True)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_an_index_stands_for_weights_only(copy, name):
    (copy / name).rename(copy / f"{name}.index.json")
    assert not hub_push.is_whole_model(copy)
    with pytest.raises(ValueError, match=f"{name} is missing"):
        minibert.push(copy, "me/model", dry_run=True)


@pytest.mark.parametrize(
    "name",
    ["../other.safetensors", "/other.safetensors", "config.json", "w" * 999 + ".safetensors", 7],
)
def test_an_index_names_files_beside_it_only(folder, tokenizer, tmp_path, name):
    (tmp_path / "other.safetensors").touch()
    target = tmp_path / "model"
    index = save_sharded(folder, tokenizer, target)
    index.write_text(json.dumps({"weight_map": {"decoder.bias": name}}))
    for check in (hub_push.is_whole_model, hub_push.read_shard_names):
        with pytest.raises(ValueError, match="no safetensors file beside it"):
            check(target)


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": {}}', "not JSON"])
def test_an_index_without_names_is_refused(folder, tokenizer, tmp_path, content):
    save_sharded(folder, tokenizer, tmp_path).write_text(content)
    with pytest.raises(ValueError, match="save the model again"):
        minibert.push(tmp_path, "me/model", dry_run=True)


def test_private_stays_private(hub, folder):
    minibert.push(folder, "secret", private=True)
    assert hub.private["tester/secret"]
    minibert.push(folder, "animals")
    with pytest.raises(ValueError, match="exists already and is public"):
        minibert.push(folder, "animals", private=True)


def test_an_error_is_one_line_with_the_command_that_tries_again(hub, folder, capsys, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("the line\nis dead")

    monkeypatch.setattr(hub, "upload_folder", fails)
    assert cli.main(["push", str(folder), "tester/x", "--revision", "a b", "--private"]) == 2
    again = f"minibert push {folder} tester/x --revision 'a b' --private true"
    assert capsys.readouterr().err.endswith(
        f"error: the Hub: the line is dead; to try again: {again}\n"
    )
    hub.token = "hf_wrong"
    with pytest.raises(OSError, match="Invalid credentials"):
        minibert.push(folder, "tester/x")


# --- what may not go up ---

PRIVATE = (
    ".env", "env.local", "id_rsa", ".npmrc", ".pypirc", ".netrc", "credentials.json", "notes.txt", "customers.csv",
    "train.jsonl", "vectors.safetensors", "pytorch_model.bin", "training_args.bin", "optimizer.pt", "rng_state.pth",
    "scheduler.pt", "trainer_state.json", "report.json", "metrics.json", "errors.jsonl", "x.pkl", "evil.py",
    "checkpoint_manifest.json", ".minibert.lock", ".report.json.7.unfinished", ".tmpAbc12", "model.safetensors.bak",
    "data/customers.csv", "checkpoint-5/model.safetensors", "checkpoint-5/optimizer.pt", ".git/config", "private/.env",
    ".cache/huggingface/token", "1_Pooling/notes.txt", "1_Pooling/deep/config.json", "onnx/.env", "runs/config.json",
)  # fmt: skip
PUBLIC = (
    "1_Pooling/config.json", "2_Dense/model.safetensors", "modules.json", "onnx/model.onnx", "loss.png", "LICENSE",
    "model-00001-of-00002.safetensors", "model.safetensors.index.json", "vocab.txt", "merges.txt", "spiece.model",
)  # fmt: skip


def write(folder, *names, text="{}"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def staged(folder, target, **options):
    left_out = uploaded_files.stage(folder, target, **options).left_out
    return {
        path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()
    }, left_out


def test_only_what_is_on_the_list_goes_up(copy, tmp_path):
    """…of everything that people have in their folders; symbolic links are not followed, wherever they lead."""
    patients = tmp_path / "patients"
    write(copy, *PRIVATE, *PUBLIC)
    write(copy, "modules.json", text="[]")
    write(patients, "config.json", "model.onnx", "names.csv")
    links = {
        "data2": patients, "2_Folder": patients, "loop": "loop", "self": ".", "tokenizer.model": "notes.txt",
        "generation_config.json": patients / "config.json", "1_Pooling/model.safetensors": "../id_rsa",
    }  # fmt: skip
    for name, target in links.items():
        (copy / name).symlink_to(target)
    (copy / "modeling_minibert.py").unlink()
    there, left_out = staged(copy, tmp_path / "staged")
    assert there == PUBLISHED - {"README.md"} | set(PUBLIC)
    assert "errors.jsonl" in left_out  # texts of people
    assert {name.split("/")[0] for name in PRIVATE} - {"1_Pooling", "onnx"} <= {
        name.split("/")[0] for name in left_out
    }
    assert {*links, "1_Pooling/notes.txt", "onnx/.env"} <= set(left_out)


def test_an_adapter_goes_up_with_nothing_else(folder, tmp_path):
    adapter = tmp_path / "adapter"
    write(adapter, "adapter_model.safetensors", "training_args.bin", ".env")
    write(adapter, "README.md", text="---\nlibrary_name: peft\n---\n")
    write(adapter, "adapter_config.json", text=json.dumps({"base_model_name_or_path": "me/base"}))
    there, _ = staged(adapter, tmp_path / "staged")
    assert there == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    write(adapter, "README.md", text="# My project")
    assert "README.md" not in staged(adapter, tmp_path / "without")[0]
    write(adapter, "adapter_config.json", text=json.dumps({"base_model_name_or_path": str(folder)}))
    with pytest.raises(ValueError, match="which nobody else has"):
        uploaded_files.stage(adapter, tmp_path / "other")


# --- paths of this machine ---


def edit_json(path, **changes):
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings | changes))


def test_paths_that_libraries_write_do_not_go_up(hub, copy):
    """The rest of the file does, and the folder stays as it is."""
    secret = "/home/alice/secret/base"
    edit_json(copy / "config.json", _name_or_path=secret, text_config={"name_or_path": secret})
    edit_json(copy / "config.json", label2id={"vocab_file": 0}, id2label={"0": "vocab_file"})
    settings = {"name_or_path": "me/base", "special_tokens_map_file": secret, "vocab_file": secret}
    edit_json(copy / "tokenizer_config.json", **settings)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    minibert.push(copy, "me/model")
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    files = hub.branches["me/model", "main"]
    assert not [name for name, data in files.items() if b"alice" in data]
    saved = json.loads(before["config.json"]) | {"text_config": {}}
    del saved["_name_or_path"]
    assert json.loads(files["config.json"]) == saved
    tokenizer_settings = json.loads(files["tokenizer_config.json"])
    assert not settings.keys() & tokenizer_settings.keys()
    assert tokenizer_settings["mask_token"] == "[MASK]"


LOCAL_PATHS = [
    "/home/alice/patients.csv",
    "/data",
    "//server/share",
    "~/notes.txt",
    "~alice/notes.txt",
    "../base",
    "C:\\Users\\alice\\base",
    "D:/models/base",
    "\\\\server\\share",
    "file:///home/alice/x",
    "de=/home/alice/de.txt",
    "--data ~/notes.txt",
    "from C:\\Users\\alice",
    "data=/mnt/alice/patients.csv",
    "see:/mnt/alice",
    "trained on /scratch/alice/x",
    "{'train': '/mnt/alice/x'}",
]


@pytest.mark.parametrize("path", LOCAL_PATHS)
def test_a_path_in_a_config_is_refused(hub, copy, path):
    edit_json(copy / "config.json", training={"my_data": [1, path]})
    with pytest.raises(ValueError, match="config.json has a path of this machine under 'my_data'"):
        minibert.push(copy, "me/model")
    assert not hub.commits


@pytest.mark.parametrize(
    "settings",
    [
        {"my_tokens": ["/mnt/alice/a"]},
        {"my_token": "/mnt/alice/a"},
        {"/home/alice/a": 1},
        {"training": {"/mnt/alice/a": 1}},
        {"id2label": {"0": "/home/alice/a"}},
        {"label2id": {"~/a": 0}},
        {"prompts": {"query": "of /home/alice/a"}},
        {"unk_token": {"content": "/Users/alice"}},
        {"additional_special_tokens": ["/home/alice"]},
        {"chat_template": "{{ 'file:///mnt/a' }}"},
    ],
)
def test_a_path_under_any_key_is_refused(settings, copy, tmp_path):
    edit_json(copy / "config.json", **settings)
    with pytest.raises(ValueError, match="config.json has a path of this machine under"):
        uploaded_files.stage(copy, tmp_path / "staged")


@pytest.mark.parametrize(
    "file",
    [
        "tokenizer_config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
    ],
)
def test_a_path_in_other_files_is_refused(file, copy, tmp_path):
    edit_json(copy / file, **{"transformer_task": "/home/alice/\x1b[2Jprivate.txt"})
    with pytest.raises(
        ValueError, match=rf"{file} has a path.* '/home/alice/\\x1b\[2Jprivate.txt'"
    ):
        uploaded_files.stage(copy, tmp_path / "staged")


def test_what_only_looks_like_a_path_goes_up(copy, tmp_path):
    """Labels, tokens and prompts may, and addresses of the web, names of the Hub and regexes are no
    paths."""
    edit_json(
        copy / "config.json",
        id2label={"0": "/person/artist", "1": "/home"},
        label2id={"/person/artist": 0, "/home": 1},
        source="https://example.org/home/alice and http://localhost:8000/root/x",
        base="owner/home",
        pattern=r"\s+|[/~]\w+|a:\n",
        separator="/",
        tilde="~",
        ratio="1/2",
        note="file: profile:/x, and/or, s3://bucket/x, sftp://host/x, http://localhost:8000/a/b",
    )
    edit_json(
        copy / "tokenizer_config.json",
        unk_token="/unk",
        pad_token={"content": "/pad/pad"},
        additional_special_tokens=["/data/x", "~"],
        added_tokens_decoder={"5": {"content": "/data/x"}},
        chat_template="{% for m in messages %}{{ 'A:\\n' ~ '/think/x' }}{% endfor %}",
    )
    edit_json(copy / "config_sentence_transformers.json", prompts={"query": "/think "})
    write(copy, "vocab.json", "added_tokens.json", text='{"/home/alice": 5}')
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    target = tmp_path / "staged"
    uploaded_files.stage(copy, target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


def change_code(folder, line):
    with (folder / "modeling_minibert.py").open("a") as file:
        file.write(f"\n{line}\n")


def test_dry_run_repeats_the_warning_of_the_card(copy, monkeypatch, capsys):
    (copy / "README.md").write_text("---\nlicense: mit\n---\n\n**Warning: worse than guessing.**\n")
    monkeypatch.setattr(
        hub_push, "verify_remote_code", lambda folder: {"auto_classes": [], "saved": "model"}
    )
    minibert.push(copy, "me/x", dry_run=True)
    assert "WARNING: the card says: worse than guessing" in capsys.readouterr().out


def test_code_that_is_not_ours_is_named(copy, tmp_path, monkeypatch):
    """It is run, and goes up, only on demand."""
    change_code(copy, "# changed")
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda folder: pytest.fail("it is run"))
    with pytest.raises(
        ValueError, match=r"modeling_minibert.py differs from this package's.*trust_remote_code"
    ):
        minibert.push(copy, "me/x", dry_run=True)
    staged(copy, tmp_path / "staged", trust_remote_code=True)
    assert (tmp_path / "staged" / "modeling_minibert.py").read_text().endswith("# changed\n")


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: write(folder, "README.md", text="---\na: [\n---\n"), "not YAML"),
        (lambda folder: edit_config(folder, architectures=["BertModel"]), "has the architecture 'BertModel'"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "only an adapter"),
        (lambda folder: write(folder, "modules.json", text='[{"path": ""}, {"path": "../x"}]'), "names '../x', which"),
        (lambda folder: write(folder, "modules.json", text='[{"path": "1_Pooling/../../x"}]'), "which does not go up"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_uploaded(change, said, copy, capsys):
    change(copy)
    assert cli.main(["push", str(copy), "tester/refused", "--dry_run", "true"]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1


def add_adapter(folder):
    settings = {"base_model_name_or_path": "me/base"}
    write(folder, "adapter_config.json", text=json.dumps(settings))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (add_adapter, "only an adapter"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
    ],
    ids=["adapter", "weights"],
)
def test_a_change_of_the_folder_while_it_is_copied_is_seen(hub, copy, monkeypatch, change, said):
    stage = uploaded_files.stage

    def change_and_stage(folder, *arguments):
        change(folder)
        return stage(folder, *arguments)

    monkeypatch.setattr(hub_push, "stage", change_and_stage)
    with pytest.raises(ValueError, match=f"^{copy}: {said}"):
        minibert.push(copy, "me/model")
    assert not hub.commits


def test_weights_that_are_a_link_are_missed_before_the_model_is_loaded(
    hub, copy, tmp_path, monkeypatch
):
    (copy / "model.safetensors").rename(tmp_path / "weights")
    (copy / "model.safetensors").symlink_to(tmp_path / "weights")
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda folder: pytest.fail("it is run"))
    with pytest.raises(ValueError, match="model.safetensors is missing, or is a link"):
        minibert.push(copy, "me/model")


@pytest.mark.parametrize("paths", [("no/such/folder", "a/b"), (".", "a/b/c"), (".", "../a")])
def test_bad_paths(paths):
    with pytest.raises(ValueError, match=r"folder|Repo id"):
        minibert.push(*paths, dry_run=True)


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_checkpoints_are_no_strategy(strategy, tmp_path):
    training = TrainingArguments(
        str(tmp_path), push_to_hub=True, hub_strategy=strategy, use_cpu=True
    )
    with pytest.raises(ValueError, match=f"hub_strategy: '{strategy}' would upload pickles"):
        hub_push.check_push(training)


# --- private is asked before a training ---

WORDS = ["a good book", "a dull book", "the end of the list", "the first text", "return the list"]
ROADS = {
    "pretrain": ["pretrain", "--data", "text.txt", "--vocab_size", "60"],
    "classify": ["finetune", "classify", "--data", "labelled.jsonl", "--model", "MODEL"],
    "embed": ["finetune", "embed", "pairs.jsonl", "--model", "MODEL"],
    "rerank": ["finetune", "rerank", "pairs.jsonl", "--model", "MODEL"],
}


@pytest.mark.parametrize("road", ROADS)
def test_a_public_repository_is_refused_before_the_training(
    road, hub, folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(WORDS * 20))
    write_rows(tmp_path / "labelled.jsonl", [dict(text=x, label=x[0]) for x in WORDS * 20])
    write_rows(tmp_path / "pairs.jsonl", [dict(query=x, positive=x) for x in WORDS * 20])
    hub.private["tester/known"] = False
    arguments = [str(folder) if part == "MODEL" else part for part in ROADS[road]]
    where = ["--push_to_hub", "true", "--hub_private_repo", "true", "--hub_token", TOKEN]
    for name in ("tester/known", "known"):
        options = [*where, "--hub_model_id", name, "--output_dir", "out"]
        error = refusal(capsys, *arguments, *options, "--max_steps", "1")
        assert "tester/known exists already and is public" in error
    assert not (tmp_path / "out").exists() and not hub.commits


@pytest.mark.parametrize("road", ROADS)
def test_a_training_pushes_its_finished_model_once(road, hub, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(WORDS * 20))
    write_rows(tmp_path / "labelled.jsonl", [dict(text=x, label=x[0]) for x in WORDS * 20])
    write_rows(tmp_path / "pairs.jsonl", [dict(query=x, positive=x) for x in WORDS * 20])
    arguments = [str(folder) if part == "MODEL" else part for part in ROADS[road]]
    options = ["--push_to_hub", "true", "--hub_token", TOKEN, "--hub_model_id", "tester/mine",
               "--output_dir", "out", "--max_steps", "2", "--bf16", "false", "--disable_tqdm", "true",
               "--save_strategy", "no", "--load_best_model_at_end", "false"]  # fmt: skip
    if road == "pretrain":
        options += ["--size", "tiny", "--seq_length", "32"]
    elif road in ("embed", "rerank"):
        options += ["--validation_size", "2"]
    assert cli.main([*arguments, *options]) == 0
    (commit,) = hub.commits
    assert commit.repository == "tester/mine"
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(commit.files)
    assert not {"report.json", "metrics.json", "trainer_state.json"} & set(commit.files)
    assert "tester/mine" in commit.files["README.md"].decode()


def test_a_trainer_asks_before_it_begins(hub, folder, tokenizer, tmp_path):
    hub.private |= {"tester/public": False, "tester/private": True}
    where = dict(hub_private_repo=True, hub_token=TOKEN)
    with pytest.raises(ValueError, match="tester/public exists already and is public"):
        train(folder, tokenizer, tmp_path, hub_model_id="tester/public", **where)
    assert not hub.commits and not list(tmp_path.iterdir())
    train(folder, tokenizer, tmp_path, hub_model_id="tester/private", **where)
    assert {commit.repository for commit in hub.commits} == {"tester/private"}


def test_a_push_that_asks_for_a_private_repository_gets_one(hub, folder, tokenizer, tmp_path):
    """Also where the trainer knows its repository already."""
    hub.private |= {"tester/public": False, "tester/private": True}
    where = dict(hub_token=TOKEN, save_strategy="no")
    trainer = train(folder, tokenizer, tmp_path / "a", hub_model_id="tester/public", **where)
    with pytest.raises(ValueError, match="tester/public exists already and is public"):
        trainer.push_to_hub(private=True)
    assert not hub.commits
    trainer = train(folder, tokenizer, tmp_path / "b", hub_model_id="tester/private", **where)
    trainer.push_to_hub(private=True)
    assert [commit.repository for commit in hub.commits] == ["tester/private"]


def test_a_hub_that_does_not_answer_is_told_before_the_training(hub, tmp_path, monkeypatch):
    options = dict(hub_model_id="tester/x", hub_private_repo=True, hub_token=TOKEN, use_cpu=True)
    training = TrainingArguments(str(tmp_path), push_to_hub=True, **options)
    hub_push.check_push(training)  # no such repository: it will be made
    monkeypatch.setattr(hub, "repo_info", lambda name: (_ for _ in ()).throw(OSError("no line")))
    with pytest.raises(OSError, match="the Hub: no line"):
        hub_push.check_push(training)


# --- the check in another process ---


def test_the_process_that_runs_code_has_no_secrets(tmp_path, monkeypatch):
    """…and finds the libraries where this process has them: those of `pip install --user`, say, or of PYTHONPATH."""
    (tmp_path / "of_the_user.py").write_text("")
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text(
        "import json, os, of_the_user, huggingface_hub\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), huggingface_hub.get_token()]))"
    )
    monkeypatch.setattr(hub_push, "VERIFY_SCRIPT", script)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "home" / "huggingface").mkdir(parents=True)
    (tmp_path / "home" / "huggingface" / "token").write_text("hf_of_the_login")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "WANDB_API_KEY",
        "MY_PASSWORD",
    ):
        monkeypatch.setenv(name, "hf_secret")
    environment, folder, token = hub_push.verify_remote_code(tmp_path)
    assert "hf_secret" not in environment.values() and token is None and folder != str(Path.cwd())
    assert set(environment) - {"LC_CTYPE"} <= {
        *hub_push.PASSED_VARIABLES, "HOME", "USERPROFILE", "HF_HOME", "PYTHONPATH", "TRANSFORMERS_VERBOSITY",
        "HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS",
    }  # fmt: skip


@pytest.mark.slow
def test_the_check_loads_the_folder_without_the_package(copy):
    found = hub_push.verify_remote_code(copy)
    assert found["saved"] == "MiniBertForMaskedLM" and set(
        found["auto_classes"]
    ) == AUTO_MAP.keys() - {"AutoConfig"}
    change_code(copy, "import minibert")
    with pytest.raises(ValueError, match="without the package the model does not load: .*minibert"):
        hub_push.verify_remote_code(copy)


@pytest.mark.slow
def test_the_check_knows_every_head_and_refuses_a_tokenizer_that_does_not_fit(tokenizer, tmp_path):
    """Also a head whose classifier fits no other, and one that no Auto class is for."""

    def save(name, head, **fields):
        config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
        for field, value in fields.items():
            setattr(config, field, value)
        getattr(modeling_minibert, head)(config).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return f"import runpy\nresult = runpy.run_path({str(hub_push.VERIFY_SCRIPT)!r})['load']({str(tmp_path / name)!r})"

    with Python(tmp_path, with_package=False) as python:
        for head in ("MiniBertForMultipleChoice", "MiniBertForReplacedTokenDetection"):
            found = python.run(save(head, head))
            assert found["saved"] == head and set(found["auto_classes"]) == AUTO_MAP.keys() - {
                "AutoConfig"
            }
        for name, value in (("pad_token_id", 7), ("vocab_size", 40)):
            with pytest.raises(
                AssertionError, match="SystemExit: the tokenizer does not fit the model: ids up to "
            ):
                python.run(save(name, "MiniBertForMaskedLM", **{name: value}))


def test_with_the_package_no_remote_code_runs(copy):
    """The folder's code would say so if it ran."""
    for name in uploaded_files.OUR_FILES:
        (copy / name).write_text("raise SystemExit('remote code ran')\n")
    for trust in (None, False, True):
        for auto_class in (AutoConfig, AutoModelForMaskedLM):
            assert type(
                auto_class.from_pretrained(copy, trust_remote_code=trust)
            ).__module__.startswith("minibert.")


# --- Trainer ---


class HubTrainer(HubMixin, Trainer):
    pass


def train(folder, tokenizer, output, **arguments):
    rows = Dataset.from_dict(tokenizer(SENTENCES * 8))
    rows = rows.add_column("labels", rows["input_ids"])
    arguments = TrainingArguments(
        str(output), max_steps=4, save_steps=2, logging_steps=1, report_to="none", use_cpu=True, disable_tqdm=True,
        per_device_train_batch_size=4, seed=3, hub_always_push=True, push_to_hub=True, **arguments,
    )  # fmt: skip
    trainer = HubTrainer(
        MiniBertForMaskedLM.from_pretrained(folder), arguments, train_dataset=rows, eval_dataset=rows,
        data_collator=DataCollatorForTokenClassification(tokenizer), processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    return trainer


def test_every_commit_of_a_training_loads(hub, folder, tokenizer, tmp_path):
    """In mid-run too; no pickle at any time, no card of Trainer's, no token on the disk."""
    where = dict(
        hub_model_id="tester/run",
        hub_strategy="every_save",
        hub_revision="stage-1",
        hub_token=TOKEN,
    )
    trainer = train(folder, tokenizer, tmp_path, **where)
    trainer.evaluate()
    trainer.push_to_hub(license="mit")
    messages = [commit.message for commit in hub.commits]
    assert messages == [
        "Training in progress, step 2",
        "Training in progress, step 4",
        "End of training",
    ]
    for commit in hub.commits:
        assert PUBLISHED - {"README.md"} <= set(commit.files) <= PUBLISHED, commit.message
    first, last = hub.commits[0].files, hub.branches["tester/run", "stage-1"]
    assert first["model.safetensors"] != last["model.safetensors"]
    card = last["README.md"].decode()
    assert "eval" not in card and "generated automatically" not in card
    assert "license: mit" in card and "type: loss" in card and "4 (" in card
    assert (
        'revision="stage-1"' in card
        and 'revision="main"' not in card
        and 'model_id = "tester/run"' in card
    )
    assert "base_model:" not in card and str(tmp_path) not in card  # local folders
    saved = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.name == "training_args.bin" for path in saved) == 3
    assert not [path for path in saved if TOKEN.encode() in path.read_bytes()]
    left_out = minibert.push(tmp_path / "checkpoint-2", "run", revision="step-2")["left_out"]
    assert {"optimizer.pt", "training_args.bin", "scheduler.pt", "trainer_state.json"} <= set(
        left_out
    )
    assert 'revision="step-2"' in hub.branches["tester/run", "step-2"]["README.md"].decode()


def test_a_training_is_loaded_without_the_package_once(
    hub, folder, tokenizer, tmp_path, monkeypatch, capsys
):
    """Before the first upload; where that fails, nothing goes up."""
    checked = []
    monkeypatch.setattr(upload_mixin, "verify_remote_code", checked.append)
    train(folder, tokenizer, tmp_path / "good", hub_model_id="tester/good")
    assert len(checked) == 1 and len(hub.commits) == 2

    def fails(folder):
        raise ValueError("it does not load")

    monkeypatch.setattr(upload_mixin, "verify_remote_code", fails)
    train(folder, tokenizer, tmp_path / "bad", hub_model_id="tester/bad")
    assert capsys.readouterr().out.count("was not uploaded: it does not load") == 2
    assert len(hub.commits) == 2


def test_a_training_of_weights_in_several_files_is_loaded_too(
    hub, folder, tokenizer, tmp_path, monkeypatch
):
    checked = []
    save = MiniBertForMaskedLM.save_pretrained

    def save_in_several_files(self, target, **options):
        save(self, target, **(options | {"max_shard_size": "20KB"}))

    monkeypatch.setattr(upload_mixin, "verify_remote_code", checked.append)
    monkeypatch.setattr(MiniBertForMaskedLM, "save_pretrained", save_in_several_files)
    train(folder, tokenizer, tmp_path, hub_model_id="tester/good")
    assert "model.safetensors.index.json" in hub.commits[0].files and len(checked) == 1


def test_names_of_code_elsewhere_do_not_go_up_in_a_training(hub, copy, tokenizer, tmp_path, capsys):
    """A model that Transformers has loaded, by its own reading, still has them."""
    evil = "other/repo--evil.Evil"
    edit_config(
        copy,
        auto_map=AUTO_MAP | {"AutoModelForImageToText": evil},
        custom_pipelines={"fill-mask": {"impl": evil}},
    )
    train(copy, tokenizer, tmp_path / "out", hub_model_id="tester/run").push_to_hub()
    assert "code of others, which is not run and does not go along" in capsys.readouterr().err
    assert len(hub.commits) == 3
    for commit in hub.commits:
        assert not any(b"evil" in data for data in commit.files.values())
        assert json.loads(commit.files["config.json"])["auto_map"] == AUTO_MAP


def test_code_of_a_class_of_the_users_own_goes_up(hub, folder, tokenizer, tmp_path, monkeypatch):
    """It runs already, and is saved with the model."""
    source = "import minibert\n\n\nclass MiniBertForMaskedLM(minibert.MiniBertForMaskedLM): pass\n"
    (tmp_path / "my_head.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    from my_head import MiniBertForMaskedLM as Mine

    Mine.register_for_auto_class("AutoModelForMaskedLM")
    trainer = HubTrainer(
        Mine.from_pretrained(folder),
        TrainingArguments(
            str(tmp_path / "out"), push_to_hub=True, hub_model_id="tester/own", use_cpu=True
        ),
        processing_class=tokenizer,
    )
    trainer.push_to_hub()
    assert hub.commits[0].files["my_head.py"].decode() == source


def test_a_model_of_sentence_transformers_is_no_consent_to_code(hub, folder, tmp_path, monkeypatch):
    """Its class is of a library: what lies in the output folder is not run, and does not go up."""
    source = "import minibert\n\n\nclass MiniBertModel(minibert.MiniBertModel): pass\n"
    rows = [dict(query=words, positive=words) for words in WORDS * 4]
    setup = EmbeddingSetup(data=rows, validation=rows, model=str(folder))
    config = EmbeddingConfig(
        str(tmp_path), push_to_hub=True, hub_model_id="tester/embed", hub_token=TOKEN, use_cpu=True
    )
    trainer = DenseTrainer(setup, config)
    settings = {"auto_map": {"AutoModel": "my_encoder.MiniBertModel"}}
    write(tmp_path, "2_Mine/config.json", text=json.dumps(settings))
    write(tmp_path, "my_encoder.py", text=source)
    with pytest.raises(OSError, match="my_encoder.MiniBertModel.*no code of this package"):
        trainer.push_to_hub()
    assert not hub.commits
    # as the class of what is trained, it runs already
    monkeypatch.syspath_prepend(str(tmp_path))
    from my_encoder import MiniBertModel

    trainer.model.transformers_model.__class__ = MiniBertModel
    trainer.push_to_hub()
    assert hub.commits[0].files["my_encoder.py"].decode() == source


def test_a_project_as_output_folder(hub, folder, tokenizer, tmp_path):
    """`--output_dir .`: nothing of the project goes up."""
    write(tmp_path, ".env", "id_rsa", "data/customers.csv", "notes.txt", text="secret")
    (tmp_path / "README.md").write_text("# My project: secret\n")
    train(folder, tokenizer, tmp_path, hub_model_id="tester/project").push_to_hub()
    minibert.push(tmp_path, "project")
    assert len(hub.commits) == 4
    for commit in hub.commits:
        assert set(commit.files) <= PUBLISHED and b"My project" not in commit.files.get(
            "README.md", b""
        )
        assert not any(b"secret" in data for data in commit.files.values())
    assert (tmp_path / "README.md").read_text() == "# My project: secret\n"


def test_an_upload_that_fails_stops_no_training(
    hub, folder, tokenizer, tmp_path, monkeypatch, capsys
):
    for broken in ("stage", "upload"):
        with monkeypatch.context() as patch:
            patch.setattr(
                upload_mixin, broken, lambda *_, **__: (_ for _ in ()).throw(OSError("no space"))
            )
            trainer = train(folder, tokenizer, tmp_path / broken, hub_model_id="tester/failing")
        assert trainer.state.global_step == 4
    assert capsys.readouterr().out.count("was not uploaded: no space") == 4
