"""What runs on a GPU, rehearsed without one: tensors that have a shape and a device but no numbers, so that what mixes
devices, or waits for the device to look at a number, is an error. A torch without CUDA has no gradients for the device
"cuda", even so: the device is one that Python registers, and plans are chosen for it as for an H100."""

import pytest
from helpers import HEADS
from processes import Python

pytestmark = pytest.mark.slow

FLASH, NO_FLASH = ["flash attention"], ["blocks of queries", "one packed call"]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with Python(tmp_path_factory.mktemp("gpu")) as python:
        yield python


@pytest.fixture(scope="module")
def step(python):
    rehearsal = "import rehearsal; result = rehearsal.step"
    return lambda head, family, dtype, batch="None": python.run(
        f"{rehearsal}({head!r}, {family!r}, {dtype!r}, {batch})"
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "family, dtype, plans", [("bert", "bfloat16", FLASH), ("modernbert", "float32", NO_FLASH)]
)
def test_no_head_waits_for_the_device(step, head, family, dtype, plans):
    """With flash attention, and in fp32 without."""
    assert step(head, family, dtype) == (plans, ["gpu"])


def test_decoder_does_not_wait_for_the_device(step):
    assert step("ForCausalLM", "causal", "bfloat16") == (FLASH, ["gpu"])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "family, dtype", [("bert", "bfloat16"), ("modernbert", "bfloat16"), ("modernbert", "float32")]
)
def test_layers_on_two_devices(python, head, family, dtype):
    """`device_map="auto"` where there are several GPUs: masks and angles follow the layers, states come back."""
    devices = python.run(
        f"import rehearsal; result = rehearsal.spread({head!r}, {family!r}, {dtype!r})"
    )
    if head == "Model":
        assert devices.pop("last_hidden_state") == "gpu:0"  # where the inputs are
    assert {*devices.values()} <= {"gpu:1"}  # where the pooler and the heads are


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_packed_batches_do_not_wait_for_the_device(step, family):
    """However many documents a row has: more tokens than a learned position reaches."""
    assert step("ForMaskedLM", family, "bfloat16", "rehearsal.packed()") == (FLASH, ["gpu"])


@pytest.mark.parametrize(
    "batch, waits_for",
    [
        ("without=['masked_lm_positions']", "DynamicOutputShape"),
        ("position_ids=rehearsal.packed()['input_ids']", "DataDependentOutput"),
        ("attention_mask=rehearsal.packed()['input_ids']", "DynamicOutputShape"),
    ],
)
def test_rehearsal_detects_waits(step, batch, waits_for):
    """The rehearsal can fail: where masked places, the order of positions or padding are to be found."""
    with pytest.raises(AssertionError, match=waits_for):
        step("ForMaskedLM", "modernbert", "bfloat16", f"rehearsal.packed({batch})")
