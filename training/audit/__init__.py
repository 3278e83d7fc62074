"""What must hold for any encoder of Transformers, measured."""
