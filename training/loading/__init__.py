"""Opens saved models and tokenizers, without running code that comes with them.

What a hostile or damaged folder may hold is refused in four places: the names of code in
`foreign_code` (which reads them by `code_references`), files that are elsewhere in `linked_files`,
values of config.json in `config_checks`, tokenizers in
`tokenization.coverage.check_loaded_tokenizer`.
"""
