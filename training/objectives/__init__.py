"""What a model is pretrained to do: each objective is its rows, its model, its collator and its figures."""
