"""The benchmark of learning: the same text, masks and turns for all."""

import json
import math

import pytest
import torch
from learning import HELD_OUT, Arguments, compare, main
from transformers import AutoModelForMaskedLM


def run(peer, *points):
    curve = [dict(zip(("tokens", "seconds", "flops", "loss"), point)) for point in points]
    return {"peer": peer, "curve": curve, "loss": curve[-1]["loss"]}


def test_where_a_run_reaches_the_best_run_of_a_peer():
    results = {
        "ours": run(None, (100, 1.0, 7, 6.0), (200, 2.0, 14, 4.0)),
        "early": run(None, (100, 1.0, 7, 4.5)),
        "bert slow": run("bert", (100, 10.0, 7, 6.5), (200, 20.0, 14, 6.0)),
        "bert fast": run("bert", (100, 10.0, 7, 6.0), (200, 20.0, 14, 5.0)),
    }
    best = compare(results)["bert"]
    assert best["run"] == "bert fast"
    assert best["reached"]["ours"] == {"seconds": 1.5 / 20, "tokens": 150 / 200, "flops": 10.5 / 14}
    assert best["reached"]["early"]["tokens"] == 0.5
    assert best["reached"]["bert fast"]["tokens"] == 1 and best["reached"]["bert slow"] is None


def test_a_run_that_diverged_is_not_the_best_of_its_peer():
    ended = {"a": run("bert", (1, 1.0, 1, math.nan)), "b": run("bert", (1, 1.0, 1, 5.0))}
    assert compare(ended)["bert"]["run"] == "b"
    assert (
        compare({"a": ended["a"], "ours": run(None, (1, 1.0, 1, 5.0))}) == {}
    )  # nobody can reach that


@pytest.mark.slow  # every run is a process that loads torch
def test_the_losses_are_those_of_the_saved_models(tmp_path):
    names = ["cat", "dog", "bird", "tree", "mat"]
    lines = (
        f"the {names[i % 5]} sat under a {names[i // 5 % 5]} and then {i} more of them came"
        for i in range(300)
    )
    (tmp_path / "text.txt").write_text("\n".join(lines))
    out = tmp_path / "runs"
    text = [str(tmp_path / "text.txt")]
    arguments = Arguments(
        data=text, peers=["bert"], learning_rates=[1e-3], output=str(out), quick=True
    )
    summary = main(arguments)
    assert {*summary["runs"]} == {"minibert", "bert 0.001"} and (out / "loss.png").exists()
    for name, found in summary["runs"].items():
        assert [point["step"] for point in found["curve"]] == [4, 8, 12]
        assert found["curve"][-1]["tokens"] == pytest.approx(12 * 2 * 128, rel=0.2)
        # the saved model on the saved masks, by torch's own cross-entropy
        model = AutoModelForMaskedLM.from_pretrained(out / name).eval()
        loss, targets = 0.0, 0
        for batch in json.loads((out / HELD_OUT).read_text())["batches"]:
            inputs = {name: torch.tensor(batch[name]) for name in ("input_ids", "attention_mask")}
            labels = torch.tensor(batch["labels"])
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                logits = model(**inputs).logits
            loss += torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), reduction="sum"
            )
            targets += (labels != -100).sum()
        assert found["loss"] == pytest.approx((loss / targets).item(), abs=0.01)
    before = summary["runs"]
    assert main(arguments)["runs"] == before  # what is done is not done again
    arguments.seed = 1
    with pytest.raises(ValueError, match="use another --output"):
        main(arguments)
