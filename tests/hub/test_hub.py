"""Publishing and loading through the real `huggingface_hub` client, against a small Hub on 127.0.0.1."""

import dataclasses
import json
import re
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hub_server import TOKEN, HubServer, client_environment, git_ignores
from processes import Python
from safetensors.torch import load_file, save_file
from transformers import pipeline

from minibert import MiniBertConfig, MiniBertForMaskedLM, modeling_minibert, train_tokenizer
from minibert.configuration_minibert import AUTO_MAP
from minibert.training.arguments.tools import PushArguments
from minibert.training.cli import main as cli
from minibert.training.hub import files
from minibert.training.hub import push as hub_push
from minibert.training.hub.trainer import HubReady

PUBLISHED = {
    ".gitattributes", ".gitignore", "README.md", "config.json", "model.safetensors", "tokenizer.json",
    "tokenizer_config.json", "model_card.json", *files.CODE,
}  # fmt: skip
SENTENCES = ["return the end of the list", "a good book, a dull book", "this text is the first text of the list"]


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
    code = [
        "from unittest import mock",
        "from minibert.training.cli import main as cli",
        "from minibert.training.hub import push",
    ]
    code += [before, f"words = ['push', *{[str(word) for word in words]!r}]"]
    if checked:
        code.append("result = cli.main(words)")
    else:
        code.append("found = {'saved': 'model', 'auto_classes': []}")
        code.append("with mock.patch.object(push, 'verify_remote_code', lambda folder: found):")
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
        if name in PUBLISHED - {"README.md", "model_card.json", ".gitignore", ".gitattributes"}:
            assert data == (folder / name).read_bytes(), name
    assert server.requests("PUT", "/lfs/") and server.requests("POST", "/lfs/verify")  # checksum verified


def test_the_card_pins_the_commit_of_the_files(published):
    card = published.at("main").files["README.md"].decode()
    pins = set(re.findall(r'revision="([^"]*)"', card))
    assert len(pins) == 1
    pinned = published.at(pins.pop())
    assert set(pinned.files) | {"README.md", "model_card.json"} == PUBLISHED
    names = set(re.findall(r'from_pretrained\("([^"]*)"|pipeline\("fill-mask", "([^"]*)"', card))
    assert {a or b for a, b in names} == {"tester/animals"}
    assert "license: mit" in card


def test_a_reader_fills_masks_alike(published, reader, folder):
    pin = re.search(r'revision="(\w+)"', published.at("main").files["README.md"].decode())[1]
    assert fill(reader, "tester/animals", pin) == expected_fill(folder)


def test_a_reader_loads_every_auto_class(published, reader):
    found = reader.run("""
        import transformers
        config = transformers.AutoConfig.from_pretrained("tester/animals", trust_remote_code=True)
        result = {}
        for name in config.auto_map:
            if name != "AutoConfig":
                auto_class = getattr(transformers, name)
                model = auto_class.from_pretrained("tester/animals", trust_remote_code=True)
                result[name] = [type(model).__module__.split(".")[0], type(model).__name__]
    """)
    assert found == {
        name: ["transformers_modules", reference.split(".")[1]]
        for name, reference in AUTO_MAP.items()
        if name != "AutoConfig"
    }


EVERY_HEAD = [name for name in AUTO_MAP if name != "AutoConfig"]


@pytest.mark.parametrize(
    ("architecture", "saved"),
    [
        ("modernbert", ["AutoModel", "AutoModelForMultipleChoice"]),
        pytest.param("modernbert", EVERY_HEAD, marks=pytest.mark.slow),
        pytest.param("bert", EVERY_HEAD, marks=pytest.mark.slow),
    ],
    ids=["some", "modernbert", "bert"],
)
def test_every_auto_class_loads_from_every_saved_head(architecture, saved, reader, tokenizer, tmp_path):
    """The encoder's weights are there, whatever was saved and whatever is loaded. (Classifiers may differ in their
    number of classes, for which Transformers wants to be told to make a new one.)"""
    config = MiniBertConfig.from_tokenizer(tokenizer, architecture, "tiny", num_hidden_layers=1)
    for name in saved:
        getattr(modeling_minibert, AUTO_MAP[name].split(".")[1])(config).save_pretrained(tmp_path / name)
    failed = reader.run(f"""
        import pathlib, torch, transformers
        from safetensors.torch import load_file
        result = []
        for folder in pathlib.Path({str(tmp_path)!r}).iterdir():
            saved = load_file(folder / "model.safetensors")
            prefix = "" if folder.name == "AutoModel" else "model."
            expected = saved[prefix + "layers.0.attn.Wqkv.weight"]
            for name in {EVERY_HEAD!r}:
                model = getattr(transformers, name).from_pretrained(
                    folder, trust_remote_code=True, ignore_mismatched_sizes=folder.name != name
                )
                encoder = model if name == "AutoModel" else model.model
                weight = encoder.layers[0].attn.Wqkv.weight
                if not torch.equal(weight, expected):
                    result.append([folder.name, name])
    """)
    assert failed == []


def test_large_files_are_searched_where_they_lie(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("it is read into memory"))
    (tmp_path / "empty").touch()
    files.check_secrets(tmp_path / "empty")
    (tmp_path / "weights").write_bytes(b"x" * 100 + b"\nhf_" + b"a" * 34)
    with pytest.raises(ValueError, match="weights, line 2: there seems to be a Hugging Face token"):
        files.check_secrets(tmp_path / "weights")


@pytest.mark.parametrize("head", ["MiniBertForMultipleChoice", "MiniBertForReplacedTokenDetection"])
def test_the_check_knows_every_head(head, reader, tokenizer, tmp_path):
    """Also one whose classifier fits no other head, and one that no Auto class is for."""
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
    getattr(modeling_minibert, head)(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = reader.run(f"""
        import runpy
        names = runpy.run_path({str(hub_push.SCRIPT)!r})
        result = names["load"]({str(tmp_path)!r})[0]
    """)
    assert found["saved"] == head and found["auto_classes"] == sorted(EVERY_HEAD)


def test_the_check_needs_no_padding_and_no_long_table(reader, tmp_path):
    tokenizer = train_tokenizer(SENTENCES * 20, vocab_size=70, show_progress=False)
    tokenizer.pad_token = None
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1, max_position_embeddings=8)
    MiniBertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = reader.run(f"""
        import runpy
        names = runpy.run_path({str(hub_push.SCRIPT)!r})
        result = names["load"]({str(tmp_path)!r})[0]
    """)
    assert found["saved"] == "MiniBertForMaskedLM"


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


TRAIN = """
    import torch, transformers
    from datasets import Dataset
    tokenizer = transformers.AutoTokenizer.from_pretrained({source!r}, trust_remote_code=True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained({source!r}, trust_remote_code=True)
    rows = Dataset.from_dict(tokenizer(["a good book", "a dull book"] * 4) | {{"labels": [1, 0] * 4}})
    arguments = transformers.TrainingArguments(
        "run", max_steps=2, learning_rate=0.01, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model({target!r})
    batch = tokenizer(["a good book"], return_tensors="pt")
    with torch.no_grad():
        result = model.eval()(**batch).logits.tolist()
"""
LOGITS = """
    import torch, transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained({source!r}, trust_remote_code=True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained({source!r}, trust_remote_code=True)
    with torch.no_grad():
        result = model.eval()(**tokenizer(["a good book"], return_tensors="pt")).logits.tolist()
"""


def test_load_train_save_load_in_both_worlds(published, reader, author, tmp_path):
    """Both load what somebody without the package trained, and what a user of the package did."""
    for trains, other, target in ((reader, author, tmp_path / "s"), (author, reader, tmp_path / "a")):
        logits = trains.run(
            ("import minibert\n" if trains is author else "")
            + TRAIN.format(source="tester/animals", target=str(target)).replace("\n    ", "\n")
        )
        assert {path.name for path in target.glob("*.py")} == set(files.CODE)
        auto_map = json.loads((target / "config.json").read_text())["auto_map"]
        assert auto_map["AutoModelForMaskedLM"] == "modeling_minibert.MiniBertForMaskedLM"
        for client in (trains, other):
            assert client.run(LOGITS.format(source=str(target))) == [pytest.approx(logits[0], rel=1e-4)]


def test_pushing_again_changes_nothing(published, author, folder):
    before = len(published.commits)
    push(author, folder, "animals", "--license", "mit")
    assert len(published.commits) == before
    push(author, folder, "animals", "--license", "apache-2.0")  # only the card
    assert len(published.commits) == before + 1
    old, new = published.history()[-2:]
    assert {name for name in new.files if new.files[name] != old.files.get(name)} == {
        "README.md", "model_card.json"
    }  # fmt: skip


def test_the_card_pins_files_that_something_else_put_there(author, server, folder, tmp_path):
    """Or a push whose card the Hub did not take: the snippets are of what is there now."""
    copy = copy_of(folder, tmp_path)
    push(author, copy, "tester/other-way")
    weights = load_file(copy / "model.safetensors")
    save_file({name: x + 1 for name, x in weights.items()}, copy / "model.safetensors", {"format": "pt"})
    author.run(f"""
        from huggingface_hub import HfApi
        HfApi().upload_file(path_or_fileobj={str(copy / "model.safetensors")!r}, path_in_repo="model.safetensors",
                            repo_id="tester/other-way")""")
    push(author, copy, "tester/other-way")
    repository = server.repositories["tester/other-way"]
    pinned = re.search(r'revision="([0-9a-f]{40})"', repository.at("main").files["README.md"].decode())[1]
    assert repository.at(pinned).files["model.safetensors"] == (copy / "model.safetensors").read_bytes()
    author.run("""
        from huggingface_hub import HfApi
        given = dict(path_in_repo=".eval_results/me--news.yaml", repo_id="tester/other-way")
        HfApi().upload_file(path_or_fileobj=b"x", **given)""")
    commits = len(repository.commits)
    push(author, copy, "tester/other-way")
    assert len(repository.commits) == commits + 1  # the card's, which pins the new commit
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert "hf repos delete-files tester/other-way .eval_results/me--news.yaml" in push(
        author, copy, "tester/other-way"
    )


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


def test_stages_are_branches(published, author, reader, folder, tmp_path, tokenizer):
    """The branch is made; the stage is another model than main's."""
    stage = tmp_path / "stage"
    config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny", num_hidden_layers=1)
    MiniBertForMaskedLM(config).save_pretrained(stage)
    tokenizer.save_pretrained(stage)
    main = published.branches["main"]
    assert "/tree/step-100" in push(author, stage, "animals", "--revision", "step-100")
    assert published.branches["main"] == main and published.branches["step-100"] != main
    layers = reader.run("""
        from transformers import AutoModel
        load = lambda revision: AutoModel.from_pretrained("tester/animals", revision=revision, trust_remote_code=True)
        result = [load(revision).config.num_hidden_layers for revision in ("main", "step-100")]
    """)
    assert layers == [2, 1]


def test_private(author, server, folder, published):
    push(author, folder, "secret", "--private")
    assert server.repositories["tester/secret"].private
    printed = push(author, folder, "animals", "--private", status=2)
    assert "public" in printed


def test_dry_run_uploads_nothing(author, server, folder):
    asked = len(server.log)
    printed = push(author, folder, "tester/dry", "--dry-run")
    assert "nothing was uploaded" in printed and "model.safetensors" in printed
    assert len(server.log) == asked and "tester/dry" not in server.repositories


def test_a_card_edited_by_hand_stays(author, server, folder, published):
    """On the Hub, until --overwrite-card; and in the folder."""
    push(author, folder, "edited")
    repository = server.repositories["tester/edited"]
    card = repository.at("main").files["README.md"]
    by_hand = card.replace(b"## Limits", b"## Limits\n\nIt cannot whistle.")
    repository.commit("main", "edit", repository.at("main").files | {"README.md": by_hand})
    assert "stays as it is" in push(author, folder, "edited")
    assert repository.at("main").files["README.md"] == by_hand
    push(author, folder, "edited", "--overwrite-card")
    assert repository.at("main").files["README.md"] != by_hand

    local = folder / "README.md"
    try:
        local.write_bytes(by_hand)
        assert "uploaded as it is" in push(author, folder, "edited")
        assert repository.at("main").files["README.md"] == by_hand
        local.write_bytes(by_hand + b"\nNor sing.\n")
        push(author, folder, "edited")  # what is there is what was pushed before
        assert repository.at("main").files["README.md"] == by_hand + b"\nNor sing.\n"
        on_hub = by_hand + b"\nBut hum.\n"
        repository.commit("main", "edit", repository.at("main").files | {"README.md": on_hub})
        assert "edited by hand both here and on the Hub" in push(author, folder, "edited", status=2)
        assert repository.at("main").files["README.md"] == on_hub
    finally:
        local.unlink()


def test_a_card_that_the_hub_refuses(author, server, folder, tmp_path):
    """Nothing is uploaded, and what the Hub says is shown."""
    copy = copy_of(folder, tmp_path)
    write_card(copy, "---\nbase_model: /home/me/x\n---\n" + "x" * 50)
    assert "base_model" in push(author, copy, "tester/refused", status=2)
    assert set(server.repositories["tester/refused"].at("main").files) == {".gitattributes"}


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
    assert last.endswith(f"to try again: minibert push {folder} tester/nowhere --revision 'a b'")
    assert "tester/nowhere" not in server.repositories


def test_a_card_that_cannot_be_read_is_not_taken_for_none(author, server, published):
    """A dead line must not end in overwriting what somebody wrote."""
    try:
        author.run("""
            from unittest import mock
            import huggingface_hub
            from minibert.training.hub.trainer import hub_card
            assert hub_card("tester/animals", None).text and not hub_card("tester/animals", "no-branch").text
            assert not hub_card("tester/nothing", None).text
            constants = huggingface_hub.constants
            template = constants.HUGGINGFACE_CO_URL_TEMPLATE
            constants.HUGGINGFACE_CO_URL_TEMPLATE = template.replace(constants.ENDPOINT, "http://127.0.0.1:9")
            constants.ENDPOINT = "http://127.0.0.1:9"
            try:
                with mock.patch("time.sleep"):  # between attempts
                    hub_card("tester/animals", None)  # which is in the cache
            except Exception as error:
                assert "refused" in str(error)
            else:
                raise AssertionError
        """)
    finally:
        author.run(f"""
            from huggingface_hub import constants
            constants.HUGGINGFACE_CO_URL_TEMPLATE = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(
                constants.ENDPOINT, {server.url!r}
            )
            constants.ENDPOINT = {server.url!r}
        """)


# --- what may not go up ---


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / ".env").write_text("x"), ".env: a file of secrets"),
        (lambda folder: (folder / "notes.txt").write_text("a\nb hf_" + "a" * 34), "notes.txt, line 2"),
        (lambda folder: (folder / "k.json").write_text('"AKIA' + "A" * 16 + '"'), "an AWS key"),
        (lambda folder: (folder / "id").write_text("-----BEGIN RSA " + "PRIVATE KEY-----"), "a private key"),
        (lambda folder: write_card(folder, "---\na: [\n---\n"), "not YAML"),
        (lambda folder: edit_config(folder, architectures=["BertModel"]), "has the architecture 'BertModel'"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "only an adapter"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_uploaded(change, said, folder, tmp_path, capsys):
    copy = copy_of(folder, tmp_path)
    change(copy)
    assert cli.main(["push", str(copy), "tester/refused"]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("paths", [[], ["one"], ["a", "b", "c"], ["no/such/folder", "a/b"], [".", "a/b/c"]])
def test_bad_paths(paths, capsys):
    assert cli.main(["push", *paths]) == 2
    assert "paths:" in capsys.readouterr().err


def test_code_that_does_not_load_is_found(folder, tmp_path, reader, monkeypatch):
    copy = copy_of(folder, tmp_path)
    with (copy / "modeling_minibert.py").open("a") as file:
        file.write("\nimport minibert\n")
    said = reader.run(f"""
        import runpy
        try:
            runpy.run_path({str(hub_push.SCRIPT)!r})["load"]({str(copy)!r})
        except ImportError as error:
            result = str(error)
    """)
    assert "minibert" in said
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.exit('no module named minibert')")
    monkeypatch.setattr(hub_push, "SCRIPT", script)
    with pytest.raises(ValueError, match="without the package the model does not load: no module named minibert"):
        hub_push.verify_remote_code(copy)


def test_what_is_staged(folder, tmp_path):
    """No pickle, no optimizer state, no checkpoint; what the author put there besides comes along."""
    copy = copy_of(folder, tmp_path)
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "x.pkl", "checkpoint-5/model.safetensors",
                 "test_predictions.jsonl", "report.json", ".tmpAbc12", ".report.json.7.unfinished",
                 "onnx/model.onnx", ".git/config", "1_Pooling/config.json"):  # fmt: skip
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("{}")
    (copy / "modeling_minibert.py").unlink()
    left_out, staged = files.stage(copy, tmp_path / "staged"), tmp_path / "staged"
    there = {str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file()}
    assert there == (PUBLISHED - {"README.md", "model_card.json", ".gitattributes"}) | {
        "onnx/model.onnx", "1_Pooling/config.json"
    }  # fmt: skip
    assert set(left_out) == {
        "training_args.bin", "optimizer.pt", "rng_state.pth", "x.pkl", "checkpoint-5/model.safetensors",
        "test_predictions.jsonl", "report.json", ".tmpAbc12", ".report.json.7.unfinished",
    }  # fmt: skip


def test_what_the_author_ignores_stays_ignored(folder, tmp_path):
    copy = copy_of(folder, tmp_path)
    (copy / ".gitignore").write_text("notes/\n")
    files.stage(copy, tmp_path / "staged")
    ignored = (tmp_path / "staged" / ".gitignore").read_text()
    assert git_ignores(ignored, "notes/a.txt") and git_ignores(ignored, "optimizer.pt")
    assert (copy / ".gitignore").read_text() == "notes/\n"


def test_what_a_gitignore_keeps_from_the_hub_is_said(author, server, folder, tmp_path):
    copy = copy_of(folder, tmp_path)
    assert "Not uploaded" not in push(author, copy, "tester/ignoring")
    (copy / ".gitignore").write_text("*.md\n*.safetensors\nnotes/\n")
    (copy / "notes").mkdir()
    (copy / "notes" / "a.txt").write_text("mine")
    printed = push(author, copy, "tester/ignoring-more")
    assert "names them: model.safetensors, notes/a.txt\n" in printed
    assert "model.safetensors" not in server.repositories["tester/ignoring-more"].at("main").files


def test_the_check_finds_libraries_where_this_process_has_them(tmp_path, monkeypatch):
    """Those of `pip install --user`, say, or of PYTHONPATH."""
    (tmp_path / "of_the_user.py").write_text("")
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text("import json, of_the_user; print(json.dumps({'found': True}))")
    monkeypatch.setattr(hub_push, "SCRIPT", script)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert hub_push.verify_remote_code(tmp_path) == {"found": True}


def test_a_license_cannot_go_into_a_card_that_stays(folder, tmp_path, capsys):
    copy = copy_of(folder, tmp_path)
    write_card(copy, "# My own\n")
    assert cli.main(["push", str(copy), "tester/refused", "--license", "mit"]) == 2
    assert "license: 'mit' has no effect on" in capsys.readouterr().err


def test_push_returns_what_it_would_upload(folder, monkeypatch):
    found = {"saved": "MiniBertForMaskedLM", "auto_classes": ["AutoModel"], "versions": {}}
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda staged: found)
    pushed = hub_push.push(PushArguments([str(folder), "me/animals"], dry_run=True))
    assert pushed["url"] is None and pushed["left_out"] == [] and pushed["verified"] == found
    assert set(pushed["files"]) == PUBLISHED - {".gitattributes"}
    assert pushed["files"]["model.safetensors"] == (folder / "model.safetensors").stat().st_size


def test_push_says_why_the_card_has_no_figures(folder, tmp_path, monkeypatch, capsys):
    """Whether a training kept the best model or the last one stands in no file but a pickle."""
    found = {"saved": "MiniBertForMaskedLM", "auto_classes": ["AutoModel"], "versions": {}}
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda staged: found)
    copy = copy_of(folder, tmp_path)
    history = [{"eval_loss": 1.0, "step": 1}, {"eval_loss": 2.0, "step": 2}, {"train_runtime": 3.0, "step": 2}]
    state = {"global_step": 2, "best_model_checkpoint": "run/checkpoint-1", "log_history": history}
    (copy / "trainer_state.json").write_text(json.dumps(state))
    arguments = PushArguments([str(copy), "me/animals"], dry_run=True)
    with pytest.raises(ValueError, match="'loss' names 0 figures"):
        hub_push.push(dataclasses.replace(arguments, eval_results=["loss=me/news:ner"]))
    assert "The card has no figures: " in capsys.readouterr().out
    history.append({"eval_loss": 1.25, "step": 2})
    (copy / "trainer_state.json").write_text(json.dumps(state))
    hub_push.push(arguments)
    assert "no figures" not in capsys.readouterr().out


def test_gitignore_is_what_git_makes_of_it(tmp_path):
    """Both the server's reading of it and what we mean by it, against git itself."""
    files.write_gitignore(tmp_path)
    files.write_gitignore(tmp_path)
    text = (tmp_path / ".gitignore").read_text()
    assert len(set(text.splitlines())) == len(text.splitlines())
    files.write_gitignore(tmp_path / "..", keep_checkpoints=True)
    assert not git_ignores((tmp_path / ".." / ".gitignore").read_text(), "checkpoint-5/model.safetensors")
    (tmp_path / ".." / ".gitignore").unlink()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for path, ignored in {
        "training_args.bin": True, "optimizer.pt": True, "checkpoint-5/model.safetensors": True,
        "model.safetensors": False, "last-checkpoint/optimizer.pt": False, "README.md": False, "my.pt.json": False,
    }.items():  # fmt: skip
        result = subprocess.run(["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--quiet", path])
        assert (result.returncode == 0) is ignored, path
        assert git_ignores(text, path) is ignored, path


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
    from minibert.training.hub.trainer import HubReady

    class Ready(HubReady, Trainer):
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
                  hub_revision="stage-1")
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
        assert PUBLISHED - {"README.md", "model_card.json"} <= set(commit.files), commit.message
        assert not [name for name in commit.files if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    first, last = pushed[0], repository.at("stage-1")
    assert first.files["model.safetensors"] != last.files["model.safetensors"]
    assert len(fill(reader, "tester/run", first.oid)) == 5
    card = last.files["README.md"].decode()
    assert "eval" not in card and "generated automatically" not in card
    assert "license: mit" in card and "type: loss" in card and "4 (" in card
    assert 'revision="stage-1"' in card and 'revision="main"' not in card
    assert "base_model:" not in card  # a local folder


def test_a_checkpoint_resumes_without_the_package(training, reader, author, folder, tmp_path):
    """…and gets to the same weights as the run that went on."""
    checkpoint = training / "checkpoint-2"
    assert set(files.CODE) <= {path.name for path in checkpoint.iterdir()}
    code = RUN.format(folder=str(checkpoint), sentences=SENTENCES)
    code = code.replace("import minibert, torch", "import torch")
    code = code.replace("from minibert import MiniBertForMaskedLM", "from transformers import AutoModelForMaskedLM")
    code = code.replace("from minibert.training.hub.trainer import HubReady", "class HubReady: pass")
    code = code.replace(
        f"MiniBertForMaskedLM.from_pretrained({str(checkpoint)!r})",
        f"AutoModelForMaskedLM.from_pretrained({str(checkpoint)!r}, trust_remote_code=True)",
    )
    code = code.replace(
        f"from_pretrained({str(checkpoint)!r})", f"from_pretrained({str(checkpoint)!r}, trust_remote_code=True)"
    )
    code = code.replace("trainer.train()", f"trainer.train(resume_from_checkpoint={str(checkpoint)!r})")
    reader.run(code + f"\n    run({str(tmp_path)!r}).save_model()\n    result = 1")
    from safetensors.torch import load_file

    resumed = load_file(tmp_path / "model.safetensors")
    for name, weight in load_file(training / "checkpoint-4" / "model.safetensors").items():
        torch.testing.assert_close(resumed[name], weight, atol=1e-6, rtol=1e-5)


def test_a_checkpoint_is_uploaded_before_the_next_one_takes_its_place(capsys):
    """Of which `Trainer` deletes it, under the upload; and an upload that failed is told."""
    events, failed = [], Future()
    failed.set_exception(OSError("no space"))

    class Saving:
        args = SimpleNamespace(push_to_hub=True, hub_strategy="checkpoint")
        hub_model_id, push_in_progress = "me/x", SimpleNamespace(jobs=[failed])

        def _finish_current_push(self):
            events.append("uploaded")

        def _save_checkpoint(self):
            events.append("saved")

    type("Both", (HubReady, Saving), {})()._save_checkpoint()
    assert events == ["uploaded", "saved"] and "An upload to me/x failed: no space" in capsys.readouterr().out


def test_a_checkpoint_is_pushed_as_a_stage(training, author, server):
    """With a card out of its state, and without the optimizer's."""
    printed = push(author, training / "checkpoint-2", "run", "--revision", "step-2")
    there = server.repositories["tester/run"].at("step-2").files
    assert set(there) == PUBLISHED | {"loss.png"}
    for name in ("optimizer.pt", "training_args.bin", "scheduler.pt"):
        assert name in printed.split("left out:")[1]
    assert "steps: 2 (" in there["README.md"].decode() and "(loss.png)" in there["README.md"].decode()


def test_hf_upload_of_an_output_folder(training, server, reader, tmp_path):
    environment = client_environment(server, tmp_path)
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from huggingface_hub.cli.hf import main; main()",
            "upload",
            "tester/by-hf",
            str(training),
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    there = server.repositories["tester/by-hf"].at("main").files
    assert set(there) >= PUBLISHED and not [name for name in there if name.endswith((".bin", ".pt", ".pth"))]
    assert (training / "training_args.bin").exists() and not [name for name in there if "checkpoint" in name]
    assert len(fill(reader, "tester/by-hf", "main")) == 5


@pytest.mark.parametrize("given", ["", "token", "revision"])
def test_a_card_edited_on_the_hub_survives_trainer(author, server, folder, tmp_path, given):
    """Also where it can be read with the token, or lies on the branch, that is given to the push alone."""
    name, branch = f"tester/twice{given}", "draft" if given == "revision" else "main"
    keywords = {"": "", "token": f"token={TOKEN!r}", "revision": "revision='draft'"}[given]
    code = (
        RUN.format(folder=str(folder), sentences=SENTENCES)
        + f"""
    import os
    trainer = run({str(tmp_path / "run")!r}, hub_model_id={name!r}, hub_private_repo=True)
    kept = os.environ.pop("HF_TOKEN") if {given == "token"} else None
    trainer.push_to_hub({keywords})
    assert trainer.args.hub_token is None  # which is saved
    assert trainer.of_this_push == (None, None)
    if kept:
        os.environ["HF_TOKEN"] = kept
    trainer.push_to_hub()
    """
    )
    author.run(code)
    repository = server.repositories[name]
    assert b'revision="main"' in repository.at("main").files["README.md"]  # the next push is not that one
    by_hand = b"---\nlicense: mit\n---\n# Mine\n\nWritten by me, with care, for you.\n"
    for edition in (by_hand, by_hand + b"\nImproved.\n"):
        repository.commit(branch, "edit", repository.at(branch).files | {"README.md": edition})
        author.run(code)
        assert repository.private and repository.at(branch).files["README.md"] == edition


def test_a_stock_trainer_and_push_to_hub_load_too(author, server, reader, folder, tmp_path):
    """`Trainer` without anything of ours, `model.push_to_hub`, `tokenizer.push_to_hub`."""
    author.run(
        RUN.format(folder=str(folder), sentences=SENTENCES)
        + f"""
    trainer = run({str(tmp_path / "run")!r}, Trainer, hub_model_id="tester/stock")
    trainer.push_to_hub()
    trainer.model.push_to_hub("tester/parts")
    trainer.processing_class.push_to_hub("tester/parts")
    """
    )
    for name in ("stock", "parts"):
        there = server.repositories[f"tester/{name}"].at("main").files
        assert PUBLISHED - {".gitignore", "model_card.json"} <= set(there)
        assert len(fill(reader, f"tester/{name}", "main")) == 5
    assert not [file for file in there if file.endswith(".bin")]


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


def test_the_server_asks_for_a_token(server, published):
    import urllib.error
    import urllib.request

    def status(path, token=None, **options):
        request = urllib.request.Request(server.url + path, **options)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return error.code

    assert status("/api/whoami-v2") == 401 and status("/api/whoami-v2", TOKEN) == 200
    assert status("/api/repos/create", method="POST", data=b"{}") == 401
    assert status("/api/models/tester/animals/commit/main", method="POST", data=b"{}") == 401
    assert status("/lfs/" + "0" * 64, method="PUT", data=b"other") == 400
    assert status("/tester/animals/resolve/main/config.json") == 200
    assert status("/tester/animals/resolve/main/no.json") == status("/tester/animals/resolve/no/config.json") == 404
