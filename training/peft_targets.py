"""What `peft` adapts in a MiniBERT where its config names no `target_modules`."""

# By what it adapts in a BERT: the linear layers, which are `Wqkv` and `Wo` of the attention, `Wi` and `Wo` of the MLP.
TARGETS = {
    ("query", "value"): ["Wqkv", "Wo", "Wi"],  # low-rank, orthogonal and other updates, which any linear layer can have
    ("key", "value", "output.dense"): ["Wqkv", "mlp.Wo"],  # IA³ scales the attention's projections,
    ("output.dense",): ["mlp.Wo"],  # and what goes into the MLP's last one
}


def register_peft() -> None:
    """Tell `peft` the `TARGETS` of every method that its version knows."""
    from peft.utils import constants

    for name, mapping in vars(constants).items():
        if name.endswith("_MODULES_MAPPING") and tuple(mapping.get("bert", ())) in TARGETS:
            mapping["minibert"] = TARGETS[tuple(mapping["bert"])]
