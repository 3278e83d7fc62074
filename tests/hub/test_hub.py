"""Publishing and loading through the real `huggingface_hub` client, against a small Hub on 127.0.0.1."""

import json
import re
from pathlib import Path

import pytest
import torch
from hub_server import TOKEN, HubServer, client_environment
from processes import Python
from transformers import TrainingArguments, pipeline

import minibert
from minibert import MiniBertConfig, MiniBertForMaskedLM, modeling_minibert, train_tokenizer
from minibert.configuration_minibert import AUTO_MAP
from minibert.training import cli
from minibert.training.hub import files
from minibert.training.hub import push as hub_push

PUBLISHED = {
    ".gitattributes", "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    *files.CODE,
}  # fmt: skip
SENTENCES = ["return the end of the list", "a good book, a dull book", "this text is the first text of the list"]
FOUND = {"saved": "model", "auto_classes": [], "versions": {}}  # by a check that is left out


@pytest.fixture(scope="module")
def server():
    server = HubServer()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(SENTENCES * 20, vocab_size=70, show_progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    """A saved model, small, with weights far from each other."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    torch.manual_seed(0)
    config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny", num_hidden_layers=2, initializer_range=0.3)
    MiniBertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def author(server, tmp_path_factory):
    """A process with the package and a token."""
    home = tmp_path_factory.mktemp("author")
    with Python(home, client_environment(server, home)) as author:
        yield author


@pytest.fixture(scope="module")
def reader(server, tmp_path_factory):
    """A process without the package and without a token, and with an empty cache."""
    home = tmp_path_factory.mktemp("reader")
    with Python(home, client_environment(server, home, token=None), with_package=False) as reader:
        assert reader.run(IS_BLOCKED)
        yield reader


IS_BLOCKED = """
try:
    import minibert
    result = False
except ImportError:
    result = True
"""


def push(author, *words, status=0, checked=False, before=""):
    """Run `minibert push` in the author's process; what it printed.

    Args:
        checked: with the check in a clean process, which takes seconds.
        before: code that runs first.
    """
    code = ["from unittest import mock", "from minibert.training import cli", "from minibert.training.hub import push"]
    code += [before, f"words = ['push', *{[str(word) for word in words]!r}]"]
    if checked:
        code.append("result = cli.main(words)")
    else:
        code.append(f"with mock.patch.object(push, 'verify_remote_code', lambda folder: {FOUND}):")
        code.append("    result = cli.main(words)")
    assert author.run("\n".join(code)) == status, author.printed
    return author.printed


def fill(client, repository, revision):
    """The candidates for a mask, as the client's `pipeline` gives them."""
    return client.run(f"""
        from transformers import pipeline
        fill = pipeline("fill-mask", {str(repository)!r}, revision={revision!r}, trust_remote_code=True)
        result = [[each["token"], each["score"]] for each in fill("the [MASK] of the list", top_k=5)]
        assert type(fill.model).__module__.startswith("transformers_modules."), type(fill.model)
    """)


def expected_fill(folder):
    filled = pipeline("fill-mask", str(folder))("the [MASK] of the list", top_k=5)
    return [[each["token"], pytest.approx(each["score"], rel=1e-4)] for each in filled]


# --- minibert push ---


@pytest.fixture(scope="module")
def published(author, server, folder):
    """The repository that `minibert push` made."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    printed = push(author, folder, "animals", "--license", "mit", checked=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "Published: http://127.0.0.1" in printed
    assert "model.safetensors" in printed and "together" in printed  # sizes
    assert f"{len(AUTO_MAP) - 1} Auto classes load it" in printed
    return server.repositories["tester/animals"]


def test_push_publishes_everything_and_nothing_else(published, folder, server):
    files_there = published.at("main").files
    assert set(files_there) == PUBLISHED
    assert "model.safetensors" in published.lfs and not published.private
    for name, data in files_there.items():
        if name in PUBLISHED - {"README.md", ".gitattributes"}:
            assert data == (folder / name).read_bytes(), name
    assert server.requests("PUT", "/lfs/") and server.requests("POST", "/lfs/verify")  # checksum verified


def test_the_card_loads_the_repository(published, folder):
    card = published.at("main").files["README.md"].decode()
    assert "license: mit" in card and str(folder) not in card
    assert set(re.findall(r"^model_id = (.*)$", card, re.MULTILINE)) == {'"tester/animals"'}


def test_a_reader_fills_masks_alike(published, reader, folder):
    assert fill(reader, "tester/animals", published.branches["main"]) == expected_fill(folder)


@pytest.mark.parametrize("head", ["MiniBertForMultipleChoice", "MiniBertForReplacedTokenDetection"])
def test_the_check_knows_every_head(head, reader, tokenizer, tmp_path):
    """Also one whose classifier fits no other head, and one that no Auto class is for."""
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
    getattr(modeling_minibert, head)(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = reader.run(f"""
        import runpy
        names = runpy.run_path({str(hub_push.SCRIPT)!r})
        result = names["load"]({str(tmp_path)!r})
    """)
    assert found["saved"] == head and set(found["auto_classes"]) == AUTO_MAP.keys() - {"AutoConfig"}


@pytest.mark.parametrize(("field", "value"), [("pad_token_id", 7), ("vocab_size", 40)])
def test_a_tokenizer_that_does_not_fit_is_not_published(field, value, reader, tokenizer, tmp_path):
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
    setattr(config, field, value)
    MiniBertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(AssertionError, match="SystemExit: the tokenizer does not fit the model: ids up to "):
        reader.run(f"""
            import runpy
            runpy.run_path({str(hub_push.SCRIPT)!r})["load"]({str(tmp_path)!r})
        """)


def test_pushing_again_changes_nothing(published, author, folder):
    before = len(published.commits)
    push(author, folder, "animals", "--license", "mit")
    assert len(published.commits) == before


def test_what_would_be_read_instead_does_not_stay(author, server, reader, folder, tokenizer, tmp_path):
    """Transformers prefers one file of weights to several, and an adapter's config to a model's."""
    push(author, folder, "again")
    shards = tmp_path / "shards"
    model = MiniBertForMaskedLM.from_pretrained(folder)
    model.get_input_embeddings().weight.data.zero_()
    model.save_pretrained(shards, max_shard_size="20KB")
    tokenizer.save_pretrained(shards)
    repository = server.repositories["tester/again"]
    stays = {"adapter_config.json": b"{}", "modules.json": b"[]", "notes.txt": b"mine"}
    repository.commit("main", "more", repository.at("main").files | stays)
    push(author, shards, "again")
    there = repository.at("main").files
    assert "notes.txt" in there and "model.safetensors.index.json" in there
    assert not {"model.safetensors", "adapter_config.json", "modules.json"} & there.keys()
    vectors = reader.run("""
        from transformers import AutoModel
        model = AutoModel.from_pretrained("tester/again", trust_remote_code=True)
        result = model.get_input_embeddings().weight.abs().sum().item()
    """)
    assert vectors == 0


def test_private(author, server, folder, published):
    push(author, folder, "secret", "--private")
    assert server.repositories["tester/secret"].private
    printed = push(author, folder, "animals", "--private", status=2)
    assert "public" in printed


def test_dry_run_uploads_nothing(author, server, folder):
    asked = len(server.log)
    printed = push(author, folder, "tester/dry", "--dry_run")
    assert "nothing was uploaded" in printed and "model.safetensors" in printed
    assert len(server.log) == asked and "tester/dry" not in server.repositories


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("import os; os.environ.pop('HF_TOKEN')", "no token for the Hub"),
        ("import os; os.environ['HF_TOKEN'] = 'hf_wrong'", "Invalid credentials"),
        ("import huggingface_hub; huggingface_hub.constants.ENDPOINT = 'http://127.0.0.1:9'", "refused"),
    ],
)
def test_without_a_token_or_a_network(before, said, author, server, folder):
    """One line that says why and what to type; nothing on the Hub."""
    restore = f"import os; os.environ['HF_TOKEN'] = {TOKEN!r}; import huggingface_hub; "
    restore += f"huggingface_hub.constants.ENDPOINT = {server.url!r}"
    try:
        printed = push(author, folder, "tester/nowhere", "--revision", "a b", status=2, before=before)
    finally:
        author.run(restore)
    last = printed.splitlines()[-1]
    assert last.startswith("minibert: error:") and said in last
    if "token" not in said:  # which is told before anything is checked
        assert last.endswith(f"to try again: minibert push {folder} tester/nowhere --revision 'a b'")
    assert "tester/nowhere" not in server.repositories


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
    left_out = files.stage(folder, target, **options)
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}, left_out


@pytest.mark.parametrize("copied", [False, True])
def test_only_what_is_on_the_list_goes_up(folder, tmp_path, copied):
    """…of everything that people have in their folders; symbolic links are not followed, wherever they lead."""
    copy, patients = copy_of(folder, tmp_path), tmp_path / "patients"
    write(copy, *PRIVATE, *PUBLIC)
    write(patients, "config.json", "model.onnx", "names.csv")
    links = {
        "data2": patients, "2_Folder": patients, "loop": "loop", "self": ".", "tokenizer.model": "notes.txt",
        "generation_config.json": patients / "config.json", "1_Pooling/model.safetensors": "../id_rsa",
    }  # fmt: skip
    for name, target in links.items():
        (copy / name).symlink_to(target)
    (copy / "modeling_minibert.py").unlink()
    there, left_out = staged(copy, tmp_path / "staged", copy=copied)
    assert there == PUBLISHED - {"README.md", ".gitattributes"} | set(PUBLIC)
    assert "errors.jsonl" in left_out  # texts of people
    assert {name.split("/")[0] for name in PRIVATE} - {"1_Pooling", "onnx"} <= {name.split("/")[0] for name in left_out}
    assert {*links, "1_Pooling/notes.txt", "onnx/.env"} <= set(left_out)


def test_a_project_as_output_folder(author, server, folder, tmp_path):
    """`--output_dir .`: nothing of the project goes up."""
    write(tmp_path, ".env", "id_rsa", "data/customers.csv", "notes.txt", text="secret")
    (tmp_path / "README.md").write_text("# My project: secret\n")
    author.run(
        RUN.format(folder=str(folder), sentences=SENTENCES)
        + f"""
    run({str(tmp_path)!r}, push_to_hub=True, hub_model_id="tester/project").push_to_hub()
    """
    )
    push(author, tmp_path, "project", "--license", "mit")
    for commit in server.repositories["tester/project"].history()[1:]:
        assert set(commit.files) <= PUBLISHED and b"My project" not in commit.files.get("README.md", b"")
        assert not any(b"secret" in data for data in commit.files.values())
    assert (tmp_path / "README.md").read_text() == "# My project: secret\n"


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
        files.stage(adapter, tmp_path / "other")


def test_code_that_is_not_ours_is_named(folder, tmp_path, monkeypatch):
    """It is run, and goes up, only on demand."""
    copy = copy_of(folder, tmp_path)
    with (copy / "modeling_minibert.py").open("a") as file:
        file.write("\n# changed\n")
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda folder: pytest.fail("it is run"))
    with pytest.raises(ValueError, match=r"modeling_minibert.py differs from this package's.*trust_remote_code"):
        minibert.push(str(copy), "me/x", dry_run=True)
    staged(copy, tmp_path / "staged", own_code=True)
    assert (tmp_path / "staged" / "modeling_minibert.py").read_text().endswith("# changed\n")


def test_the_process_that_runs_code_has_no_secrets(tmp_path, monkeypatch):
    """…and finds the libraries where this process has them: those of `pip install --user`, say, or of PYTHONPATH."""
    (tmp_path / "of_the_user.py").write_text("")
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text(
        "import json, os, of_the_user, huggingface_hub\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), huggingface_hub.get_token()]))"
    )
    monkeypatch.setattr(hub_push, "SCRIPT", script)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "home" / "huggingface").mkdir(parents=True)
    (tmp_path / "home" / "huggingface" / "token").write_text("hf_of_the_login")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "MY_PASSWORD"):
        monkeypatch.setenv(name, "hf_secret")
    environment, folder, token = hub_push.verify_remote_code(tmp_path)
    assert "hf_secret" not in environment.values() and token is None and folder != str(Path.cwd())
    assert set(environment) - {"LC_CTYPE"} <= {
        *hub_push.ENVIRONMENT, "HOME", "USERPROFILE", "HF_HOME", "PYTHONPATH", "TRANSFORMERS_VERBOSITY",
        "HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: write_card(folder, "---\na: [\n---\n"), "not YAML"),
        (lambda folder: edit_config(folder, architectures=["BertModel"]), "has the architecture 'BertModel'"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "only an adapter"),
        (lambda folder: write(folder, "modules.json", text='[{"path": ""}, {"path": "../x"}]'), "names '../x', which"),
        (lambda folder: write(folder, "modules.json", text='[{"path": "1_Pooling/../../x"}]'), "which does not go up"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_uploaded(change, said, folder, tmp_path, capsys):
    copy = copy_of(folder, tmp_path)
    change(copy)
    assert cli.main(["push", str(copy), "tester/refused", "--dry_run", "true"]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("paths", [("no/such/folder", "a/b"), (".", "a/b/c"), (".", "../a")])
def test_bad_paths(paths):
    with pytest.raises(ValueError, match="folder|repository"):
        minibert.push(*paths, dry_run=True)


def test_code_that_does_not_load_is_found(folder, tmp_path):
    copy = copy_of(folder, tmp_path)
    with (copy / "modeling_minibert.py").open("a") as file:
        file.write("\nimport minibert\n")
    with pytest.raises(ValueError, match="without the package the model does not load: .*minibert"):
        hub_push.verify_remote_code(copy)


def test_push_returns_what_it_would_upload(folder, monkeypatch):
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda staged: FOUND)
    pushed = minibert.push(str(folder), "me/animals", dry_run=True)
    assert pushed["url"] is None and pushed["left_out"] == [] and pushed["verified"] == FOUND
    assert set(pushed["files"]) == PUBLISHED - {".gitattributes"}
    assert pushed["files"]["model.safetensors"] == (folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_checkpoints_are_no_strategy(strategy, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_push, "get_token", lambda: TOKEN)
    training = TrainingArguments(str(tmp_path), push_to_hub=True, hub_strategy=strategy, use_cpu=True)
    with pytest.raises(ValueError, match=f"hub_strategy: '{strategy}' would upload pickles"):
        hub_push.check_push(training)


def copy_of(folder, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy


def write_card(folder, text):
    (folder / "README.md").write_text(text)


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- Trainer, and the library's own ways ---

RUN = """
    import minibert, torch
    from datasets import Dataset
    from transformers import AutoTokenizer, DataCollatorForTokenClassification
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from minibert import MiniBertForMaskedLM
    from minibert.training.hub.trainer import HubMixin

    class Ready(HubMixin, Trainer):
        pass

    class OnePushAtATime(TrainerCallback):
        def on_save(self, *arguments, **keywords):
            if self.trainer.push_in_progress is not None:
                self.trainer.push_in_progress.wait_until_done()

    def run(output_dir, trainer_class=Ready, **arguments):
        tokenizer = AutoTokenizer.from_pretrained({folder!r})
        texts = Dataset.from_dict(tokenizer({sentences!r} * 8))
        texts = texts.add_column("labels", texts["input_ids"])
        trainer = trainer_class(
            MiniBertForMaskedLM.from_pretrained({folder!r}),
            TrainingArguments(
                output_dir, max_steps=4, save_steps=2, logging_steps=1, report_to="none", use_cpu=True,
                disable_tqdm=True, per_device_train_batch_size=4, seed=3, hub_always_push=True, **arguments
            ),
            data_collator=DataCollatorForTokenClassification(tokenizer),
            train_dataset=texts, eval_dataset=texts, processing_class=tokenizer,
        )
        wait = OnePushAtATime()
        wait.trainer = trainer
        if trainer.args.push_to_hub:
            trainer.add_callback(wait)
        trainer.train()
        return trainer
"""


@pytest.fixture(scope="module")
def training(author, server, folder, tmp_path_factory):
    """The output folder of a run that pushed at every save and at its end."""
    output = tmp_path_factory.mktemp("training") / "run"
    author.run(
        RUN.format(folder=str(folder), sentences=SENTENCES)
        + f"""
    trainer = run({str(output)!r}, push_to_hub=True, hub_model_id="tester/run", hub_strategy="every_save",
                  hub_revision="stage-1", hub_token={TOKEN!r})
    trainer.evaluate()
    trainer.push_to_hub(license="mit")
    """
    )
    return output


def test_every_commit_of_a_training_loads(training, server, reader):
    """In mid-run too; no pickle at any time, no card of Trainer's."""
    repository = server.repositories["tester/run"]
    pushed = [commit for commit in repository.history() if "config.json" in commit.files]
    assert {"Training in progress, step 2", "Training in progress, step 4", "End of training"} <= {
        commit.message for commit in pushed
    }
    for commit in pushed:
        assert PUBLISHED - {"README.md"} <= set(commit.files) <= PUBLISHED, commit.message
    first, last = pushed[0], repository.at("stage-1")
    assert first.files["model.safetensors"] != last.files["model.safetensors"]
    assert len(fill(reader, "tester/run", first.oid)) == 5
    card = last.files["README.md"].decode()
    assert "eval" not in card and "generated automatically" not in card
    assert "license: mit" in card and "type: loss" in card and "4 (" in card
    assert 'revision="stage-1"' in card and 'revision="main"' not in card and 'model_id = "tester/run"' in card
    assert "base_model:" not in card and str(training) not in card  # local folders


def test_a_checkpoint_is_pushed_as_a_stage(training, author, server):
    """A branch, made on demand; without what belongs to the training alone."""
    before = dict(server.repositories["tester/run"].branches)
    printed = push(author, training / "checkpoint-2", "run", "--revision", "step-2")
    there = server.repositories["tester/run"].at("step-2").files
    assert set(there) == PUBLISHED
    assert before == {name: oid for name, oid in server.repositories["tester/run"].branches.items() if name in before}
    for name in ("optimizer.pt", "training_args.bin", "scheduler.pt", "trainer_state.json"):
        assert name in printed.split("left out:")[1]
    assert 'revision="step-2"' in there["README.md"].decode()


def test_no_token_reaches_the_disk(training):
    """The run was given one; `training_args.bin` is there, in the folder and in every checkpoint."""
    saved = [path for path in training.rglob("*") if path.is_file()]
    assert sum(path.name == "training_args.bin" for path in saved) == 3
    assert not [path for path in saved if TOKEN.encode() in path.read_bytes()]


def test_an_upload_that_fails_stops_no_training(author, server, folder, tmp_path):
    author.run(
        RUN.format(folder=str(folder), sentences=SENTENCES)
        + f"""
    from unittest import mock
    from minibert.training.hub import trainer as hub_trainer
    for broken in ("stage", "upload"):
        with mock.patch.object(hub_trainer, broken, side_effect=OSError("no space")):
            trainer = run({str(tmp_path)!r} + broken, push_to_hub=True, hub_model_id="tester/failing")
            assert trainer.state.global_step == 4
    """
    )
    assert author.printed.count("was not uploaded: no space") == 4


def test_with_the_package_no_remote_code_runs(author, server, published):
    """The repository's code would say so if it ran."""
    repository = server.repositories["tester/animals"]
    trap = dict.fromkeys(files.CODE, b"raise SystemExit('remote code ran')\n")
    repository.commit("trap", "trap", repository.at("main").files | trap)
    found = author.run("""
        import sys
        import minibert
        from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline
        result = []
        for trust in (None, False, True):
            where = {"revision": "trap", "trust_remote_code": trust}
            for auto_class in (AutoConfig, AutoModel, AutoModelForMaskedLM):
                result.append(type(auto_class.from_pretrained("tester/animals", **where)).__module__)
        AutoTokenizer.from_pretrained("tester/animals", **where)
        result.append(type(pipeline("fill-mask", "tester/animals", **where).model).__module__)
        result += [name for name in sys.modules if name.startswith("transformers_modules.")]
    """)
    assert set(found) == {"minibert.configuration_minibert", "minibert.modeling_minibert"}
