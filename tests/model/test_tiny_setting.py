"""The two small examples of the course text, with the right numbers: attention over three one-hot tokens, and a model
of 2 layers that learns to fill the blanks of 200 sentences over 20 words."""

import random

import pytest
import torch

from minibert.attention_minibert import InterfacePlan, MiniBertAttention, eager_attention_forward
from minibert.configuration_minibert import MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM

# --- attention by hand ---

# Query 2 of the tokens [1,0,0], [0,1,0], [0,0,1] with W_Q = W_K = W_V = I has the scores [0, 1, 0].
UNSCALED = torch.tensor([0.212, 0.576, 0.212])  # 1 / (2 + e), e / (2 + e)
SCALED = torch.tensor([0.264, 0.471, 0.264])  # the same with e to the power of 1 / √3


@pytest.mark.parametrize("scaling, expected", [(1.0, UNSCALED), (3**-0.5, SCALED), (None, SCALED)])
def test_attention_over_three_one_hot_tokens(scaling, expected):
    tokens = torch.eye(3).view(1, 1, 3, 3)
    module = torch.nn.Module().eval()
    out, probs = eager_attention_forward(module, tokens, tokens, tokens, None, scaling=scaling)
    for i in range(3):  # every token sees itself most, the others alike
        torch.testing.assert_close(probs[0, 0, i], expected.roll(i - 1), atol=6e-4, rtol=0)
    torch.testing.assert_close(out.view(3, 3), probs.view(3, 3))  # with one-hot values, the output is the weights


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_layer_gives_the_same(attention):
    config = MiniBertConfig(
        vocab_size=3, hidden_size=3, num_attention_heads=1, num_hidden_layers=1, intermediate_size=3,
        position_embedding_type="none", attn_implementation=attention,
    )  # fmt: skip
    layer = MiniBertAttention(config, 0).eval()
    layer.Wqkv.weight.data = torch.eye(3).repeat(3, 1)
    layer.Wo.weight.data = torch.eye(3)
    with torch.no_grad():
        out, _ = layer(torch.eye(3).unsqueeze(0), InterfacePlan(attention))
    torch.testing.assert_close(out[0, 1], SCALED, atol=6e-4, rtol=0)


# --- filling blanks ---

SOUNDS = dict(dog="barks", cat="purrs", cow="moos", duck="quacks", owl="hoots")
TIMES = dict(barn="morning", pond="noon", wood="evening", yard="night")
WORDS = [*SOUNDS, *SOUNDS.values(), *TIMES, *TIMES.values(), "the", "and"]
MASK = len(WORDS)
# Never seen together in training, in either order.
HELD_OUT = {("dog", "pond"), ("cat", "wood"), ("cow", "yard"), ("duck", "barn"), ("owl", "pond")}


def sentence(animal: str, place: str, swapped: bool) -> list[str]:
    """Two clauses in either order, so that a word follows from another word and not from its column."""
    clauses = [[animal, SOUNDS[animal]], [place, TIMES[place]]]
    first, second = reversed(clauses) if swapped else clauses
    return ["the", *first, "and", "the", *second]


def blanks(sentences: list[list[str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sentence once for each of its four content words, which is blanked: input ids and labels."""
    ids = torch.tensor([[WORDS.index(word) for word in words] for words in sentences])
    inputs = ids.repeat_interleave(4, 0)
    rows, columns = torch.arange(len(inputs)), torch.tensor([1, 2, 5, 6]).repeat(len(ids))
    labels = torch.full_like(inputs, -100)
    labels[rows, columns] = inputs[rows, columns]
    inputs[rows, columns] = MASK
    return inputs, labels


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["bert", "modernbert"])
def test_twenty_words_two_hundred_sentences_two_layers(preset):
    """It fills blanks, also in sentences that it never saw. (The best constant answer is right once in ten times.)"""
    assert len(WORDS) == len(set(WORDS)) == 20
    pairs = [(animal, place) for animal in SOUNDS for place in TIMES]
    chance = random.Random(0)
    seen = [pair for pair in pairs if pair not in HELD_OUT]
    training = [sentence(*chance.choice(seen), chance.random() < 0.5) for _ in range(200)]
    unseen = [sentence(*pair, swapped) for pair in HELD_OUT for swapped in (False, True)]
    assert not {tuple(words) for words in training} & {tuple(words) for words in unseen}

    torch.manual_seed(0)
    config = getattr(MiniBertConfig, preset)(
        "tiny", vocab_size=len(WORDS) + 1, num_hidden_layers=2, pad_token_id=None, mask_token_id=MASK
    )
    model = MiniBertForMaskedLM(config)
    blanked, unseen_blanked = blanks(training), blanks(unseen)

    def accuracy(inputs: torch.Tensor, labels: torch.Tensor) -> float:
        with torch.no_grad():
            guesses = model.eval()(inputs).logits.argmax(-1)
        return (guesses == labels)[labels != -100].float().mean().item()

    assert accuracy(*blanked) < 0.3
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(120):
        rows = torch.randint(len(blanked[0]), (64,))
        optimizer.zero_grad()
        model.train()(blanked[0][rows], labels=blanked[1][rows]).loss.backward()
        optimizer.step()
    assert accuracy(*blanked) == 1.0
    assert accuracy(*unseen_blanked) == 1.0
