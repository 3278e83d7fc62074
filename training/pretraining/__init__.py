"""`minibert pretrain`: documents → a saved model. `objectives` say what is learned, `recipes` are
ready settings."""
