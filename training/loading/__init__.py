"""Opens saved models and tokenizers, without running code that comes with them.

What a hostile or damaged folder may hold is refused in three places: the names of code in
`foreign_code`, values of config.json in `config_checks`, tokenizers in
`tokenization.coverage.check_loaded_tokenizer`.
"""
