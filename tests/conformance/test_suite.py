"""Transformers' own common tests of models (`ModelTesterMixin`, unmodified), on corners of the config: see `suite.py`.

They are no part of the installed package: the source distribution of the installed version is fetched by pip.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import transformers

HERE = Path(__file__).parent
PARAMETERIZED = (
    "parameterized==0.9.0"  # what the common tests import, and Transformers does not require
)
CORNERS = ("Bert", "ModernBert", "Decoder", "PostRms", "Sinusoidal", "NoPositions")

# Why a test may be skipped: no such hardware or library here, or it is about what this family has not.
EXPLAINED = {
    r"test requires (multiple )?accelerators?": "no GPU here",
    r"test requires (Flash Attention|MPS|the kernels library|deepspeed)": "no such hardware or library here",
    r"(No subconfigs|.*is not (a )?composite|.* does not support SDPA$)": "of models made of several",
    r"(No usage of the `capture_outputs` decorator|Cannot capture hidden states)": "forward collects them itself",
    r"No conversion found": "checkpoints of other architectures are converted explicitly, by `minibert convert`",
    r"(.* has no _|No `_)keep_in_fp32_modules": "no part needs fp32 in a half-precision model",
    r"Do not take a cache": "there is none",
    r".*(grouped_mm|sparse experts|output_router_logits)": "no experts",
    r"No sequence-to-sequence": "an encoder, or a decoder",
    r".*(no standardized RoPE module|partial rope|axial RoPE)": "rotary angles are computed in the forward pass",
    r"Model does not support output_attentions$": "forward takes it among its keywords, unnamed",
    r"no rotary positions": "corners with other positions",
    r"test is slow": "the library's nightly ones",
    r"Model does not have position embeddings": "`resize_position_embeddings` is not offered",
    r"Model does not support sliding window mask": "of configs with use_sliding_window; layer_types says it here",
    r"Model does not have a TP plan": "tensor parallelism is not offered",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """With the package `transformers_tests`: the common tests, and empty classes for what the distribution lacks."""
    folder = tmp_path_factory.mktemp("conformance")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    name = f"transformers=={transformers.__version__}"
    for command in (
        ["download", "--no-deps", "--no-binary", ":all:", name, "-d", str(folder)],
        ["install", "--no-deps", "--target", str(folder), PARAMETERIZED],
    ):
        done = subprocess.run([*pip, *command], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(
                f"pip cannot get {command[-3] if command[0] == 'download' else command[-1]}: {done.stderr[-300:]}"
            )
    with tarfile.open(next(folder.glob("transformers-*.tar.gz"))) as archive:
        member = next(
            each
            for each in archive.getmembers()
            if each.name.endswith("/tests/test_modeling_common.py")
        )
        text = archive.extractfile(member).read()
    package = folder / "transformers_tests"
    for part, missing in (
        ("exporters/test_export", "ExportTesterMixin"),
        ("generation/test_utils", "GenerationTesterMixin"),
    ):
        module = package / f"{part}.py"
        module.parent.mkdir(parents=True)
        (module.parent / "__init__.py").touch()
        module.write_text(f"class {missing}:\n    pass\n")
    (package / "__init__.py").touch()
    (package / "test_modeling_common.py").write_bytes(text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("corner", CORNERS)
def test_common_tests(corner, folder):
    # a copy: above the original lies the package's root, which must not be imported under the name of its folder
    suite = shutil.copy(HERE / "suite.py", folder)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "TRANSFORMERS_VERBOSITY": "warning",
        "HF_HUB_OFFLINE": "1",
    }
    options = [
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
        "-q",
        "-rsfE",
        "--tb=short",
    ]
    command = [sys.executable, "-m", "pytest", *options, f"{suite}::{corner}Test"]
    said = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder
    ).stdout
    passed = re.search(r"(\d+) passed", said)
    failed = [line for line in said.splitlines() if re.match(r"(FAILED|ERROR|SUBFAIL)", line)]
    assert failed == [], said[-8000:]
    assert passed and int(passed[1]) > 100, said[-3000:]
    reasons = set(re.findall(r"^SKIPPED \[\d+\] \S+:\d+: (.*)$", said, re.MULTILINE))
    assert reasons and not [
        why for why in reasons if not any(re.match(known, why) for known in EXPLAINED)
    ]
