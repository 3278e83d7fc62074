"""What `peft` adapts in a MiniBERT where its config names no `target_modules`."""

from __future__ import annotations

# Methods of low-rank and orthogonal updates, which adapt any linear layer.
METHODS = ("LORA", "ADALORA", "LOHA", "LOKR", "BOFT", "OFT", "HRA", "VERA", "RANDLORA", "ROAD", "MISS", "FOURIERFT")


def register_peft() -> None:
    """Tell `peft` the linear layers of a MiniBERT: of the attention `Wqkv` and `Wo`, of the MLP `Wi` and `Wo`. IA³
    scales what it scales in a BERT: the attention's projections and what goes into the MLP's last one."""
    from peft.utils import constants

    targets = {f"{method}_TARGET": ["Wqkv", "Wo", "Wi"] for method in METHODS}
    for name, modules in {**targets, "IA3_TARGET": ["Wqkv", "mlp.Wo"], "IA3_FEEDFORWARD": ["mlp.Wo"]}.items():
        mapping = getattr(constants, f"TRANSFORMERS_MODELS_TO_{name}_MODULES_MAPPING", None)
        if mapping is not None:  # versions of peft know more and fewer methods
            mapping["minibert"] = modules
